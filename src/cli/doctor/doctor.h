// What a machine has, and what a missing thing costs. A row per check in cmd_doctor.c; to add one: a
// function in doctor_machine.c (what the kernel tells) or doctor_try.c (what is tried), and its row.
#ifndef CLI_DOCTOR_DOCTOR_H
#define CLI_DOCTOR_DOCTOR_H

#include "cli/cli.h"

typedef enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL } doctor_level;

typedef struct doctor_finding {
    doctor_level level;
    const char *found; // "2 cores, avx2"
    const char *cost;  // of what is missing or wrong, and the remedy; NULL
} doctor_finding;

typedef struct doctor {
    cli_context *cli;
    const char *folder; // where runs would be written
} doctor;

// What was found; the text lies in the command's arena. Later calls add to `found`; level and cost
// become those of the worst.
NODISCARD status doctor_found(const doctor *d, doctor_finding *f, const char *format, ...)
    PRINTF_LIKE(3, 4);
NODISCARD status doctor_costs(const doctor *d, doctor_finding *f, doctor_level level,
                              const char *format, ...) PRINTF_LIKE(4, 5);
// The start of a small file of the kernel's; "" if it is not there.
void doctor_file(const char *path, char *out, int64_t bytes);

// doctor_machine.c
status doctor_cpu(const doctor *d, doctor_finding *f);
status doctor_onednn(const doctor *d, doctor_finding *f);
status doctor_memory(const doctor *d, doctor_finding *f);
status doctor_cuda(const doctor *d, doctor_finding *f);
status doctor_clock(const doctor *d, doctor_finding *f);
status doctor_limits(const doctor *d, doctor_finding *f);
status doctor_launchers(const doctor *d, doctor_finding *f);
status doctor_tools(const doctor *d, doctor_finding *f);
// doctor_try.c
status doctor_storage(const doctor *d, doctor_finding *f);
status doctor_network(const doctor *d, doctor_finding *f);
status doctor_comm(const doctor *d, doctor_finding *f);

#endif
