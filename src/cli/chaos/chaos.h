// `chaos`: the run as a child process, its ranks, and the faults that are injected into them.
#ifndef CLI_CHAOS_CHAOS_H
#define CLI_CHAOS_CHAOS_H

#include "cli/cli.h"

#include <sys/types.h>

// In the run's folder; each rank writes where its memory is.
#define CHAOS_ARENAS "logs/arenas"

enum { CHAOS_RANKS_MAX = 256, CHAOS_FAULTS_MAX = 4096 };

typedef struct chaos_target {
    const host *h;
    pid_t process;
    int rank;
    const char *run_dir;
    const char *processes; // resilience.mode = live: file of this host's ranks; else NULL
    uint64_t word;         // random
} chaos_target;

// A kind of fault. It returns when the fault is over, or when it lasts by itself. False: the
// process has ended, or is not as far that the fault could act.
typedef struct chaos_kind {
    const char *name, *about;
    bool is_loss;  // the run loses the rank
    bool is_first; // it acts on rank 0, which writes the files
    // NULL: it ends the launcher of this host with its ranks, and the same command starts again.
    bool (*inject)(const chaos_target *target);
} chaos_kind;
extern const chaos_kind chaos_kinds[]; // ends with a NULL name
const chaos_kind *chaos_kind_find(const char *name);
NODISCARD status chaos_kind_names(arena *a, const char **out); // "kill, stop, pause and slow"

// A fault that is due `at_s` seconds after the start. rank: -1: any.
typedef struct chaos_fault {
    double at_s;
    const chaos_kind *kind;
    int64_t rank;
} chaos_fault;
typedef struct chaos_schedule {
    chaos_fault *items; // in the order of their times
    int64_t count, capacity;
} chaos_schedule;

// One fault per `every_s`, at a time that the seed shifts by up to half of that, from the kinds in
// turn by the seed, until `seconds`.
NODISCARD status chaos_schedule_make(arena *a, const char *kinds, double every_s, double seconds,
                                     uint64_t seed, chaos_schedule *out);
// Lines "SECONDS FAULT [RANK]"; '#' begins a comment.
NODISCARD status chaos_schedule_read(const host *h, arena *a, const char *path,
                                     chaos_schedule *out);

typedef struct chaos_injected {
    int64_t count, losses; // losses: faults that must cost a rank
    int64_t skipped;       // no rank was there
} chaos_injected;

// Starts `train` with these arguments and its output in `log`, injects the faults, and waits for
// its end. *exit_code: of `train`; 128 + n: a signal ended it.
typedef struct chaos_order {
    char *const *arguments;
    const char *run_dir, *log;
    const char *processes; // resilience.mode = live: file of this host's ranks; else NULL
    const chaos_schedule *schedule;
    uint64_t seed;
} chaos_order;
NODISCARD status chaos_run(cli_context *cli, const chaos_order *order, chaos_injected *injected,
                           int *exit_code);

// chaos_system.c: cuts the rank's connections; keeps its files from growing for 2 s.
bool chaos_inject_cut(const chaos_target *t);
bool chaos_inject_diskfull(const chaos_target *t);
// True if this process has its memory and has opened the run's files.
bool chaos_has_begun(const chaos_target *t);
// True if the run has finished a step, so its memory is there.
bool chaos_has_stepped(const chaos_target *t);
// chaos_flip.c: flips a random bit of the rank's weights or optimizer state, of one of both, or
// where the step has its gradients.
bool chaos_inject_flip(const chaos_target *target);
bool chaos_inject_flip_weight(const chaos_target *target);
bool chaos_inject_flip_moment(const chaos_target *target);
bool chaos_inject_flip_gradient(const chaos_target *target);

#endif
