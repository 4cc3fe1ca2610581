// Checks of a machine, with the cost of a missing part. A row per check in cmd_doctor.c; to add
// one: a function in doctor_machine.c (facts from the kernel) or doctor_try.c (trials), and its
// row.
#ifndef CLI_DOCTOR_DOCTOR_H
#define CLI_DOCTOR_DOCTOR_H

#include "cli/cli.h"

typedef enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL } doctor_level;

typedef struct doctor_finding {
    doctor_level level;
    const char *found; // "2 cores, avx2"
    const char *cost;  // cost of a missing or wrong part, and the remedy; may be NULL
} doctor_finding;

typedef struct doctor {
    cli_context *cli;
    const char *folder; // folder of future runs
} doctor;

// Adds a finding; the text is in the command's arena. Later calls append to `found`; level and cost
// become those of the worst finding.
NODISCARD status doctor_found(const doctor *d, doctor_finding *f, const char *format, ...)
    PRINTF_LIKE(3, 4);
NODISCARD status doctor_costs(const doctor *d, doctor_finding *f, doctor_level level,
                              const char *format, ...) PRINTF_LIKE(4, 5);
// Reads the start of a small kernel file; "" if it does not exist.
void doctor_file(const char *path, char *out, int64_t bytes);
// Counts the entries of a folder whose names are `begin` and a number.
int doctor_entries(const char *folder, const char *begin);

// doctor_machine.c
status doctor_cpu(const doctor *d, doctor_finding *f);
status doctor_onednn(const doctor *d, doctor_finding *f);
status doctor_memory(const doctor *d, doctor_finding *f);
status doctor_clock(const doctor *d, doctor_finding *f);
status doctor_limits(const doctor *d, doctor_finding *f);
status doctor_launchers(const doctor *d, doctor_finding *f);
status doctor_tools(const doctor *d, doctor_finding *f);
// doctor_prove.c: parts of cpu and memory. prove: returns the first word that differs from what was
// written; -1: none.
status doctor_memory_try(const doctor *d, doctor_finding *f);
status doctor_product_try(const doctor *d, doctor_finding *f);
int64_t doctor_memory_prove(uint64_t *words, int64_t count);
// doctor_gpu.c
status doctor_cuda(const doctor *d, doctor_finding *f);
// doctor_try.c
status doctor_storage(const doctor *d, doctor_finding *f);
status doctor_network(const doctor *d, doctor_finding *f);
status doctor_comm(const doctor *d, doctor_finding *f);

#endif
