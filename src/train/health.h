// Trends of the health of a GPU during a run, from its states by NVML (device/cuda/nvml.h), and of
// a machine, from what Linux counts (base/host_errors.h): pure.
//
// A finding comes once. Errors count from the first look, so those of earlier runs are not this
// run's. Throttling must last for HEALTH_LOOKS looks in a row: every GPU is slowed down at times.
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include "base/host_errors.h"
#include "device/cuda/nvml.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HEALTH_LOOKS = 10, HEALTH_CORRECTED = 100 };

typedef enum health_finding {
    HEALTH_UNCORRECTED, // an error of memory that ECC could not correct
    HEALTH_ROWS,        // rows of memory wait for remapping, or cannot be remapped
    HEALTH_TREND,       // HEALTH_CORRECTED errors that ECC corrected: the next one may not be
    HEALTH_THROTTLED,   // by heat, power supply or a fault
    HEALTH_LINKS,       // HEALTH_CORRECTED errors that links corrected or sent again
    HEALTH_FINDINGS
} health_finding;
const char *health_finding_name(health_finding f); // "corrected memory errors"
// The part that fails: a GPU and a machine have the same findings.
typedef enum health_part { HEALTH_GPU, HEALTH_MACHINE, HEALTH_PARTS } health_part;
const char *health_part_name(health_part p);
// The cause of an event: "GPU: corrected memory errors".
enum { HEALTH_CAUSE_BYTES = 96 };
void health_cause(health_part p, health_finding f, char out[HEALTH_CAUSE_BYTES]);

typedef struct health {
    bool has_begun;
    int64_t corrected, uncorrected; // at the first look that told them; -1: none has
    int64_t links;                  // of a machine
    int64_t slowed;                 // of a machine: times that processors were slowed down before
    int throttled;                  // looks in a row
    uint32_t found;                 // bit f: finding f was made
} health;
// Returns the new findings, a bit each.
uint32_t health_see(health *h, const nvml_state *s);
uint32_t health_see_machine(health *h, const host_errors *e);

#ifdef __cplusplus
}
#endif
#endif
