// `train` on several ranks: this process starts them on this machine, or is one of them.
#ifndef CLI_TRAIN_RANKS_H
#define CLI_TRAIN_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"
#include "launch/launch.h"
#include "train/train.h"

// Finds the launcher of this process; launch_place.ranks is 1 without one.
NODISCARD status cli_ranks_place(launch_place *out);

// Starts the ranks of the layout, each with this command and the keys that were found, and waits
// until all have ended. Reports the error of the rank that failed first.
typedef struct cli_start {
    const run_config *r;
    const char *yaml; // r is the configuration of this file with these keys
    const char *const *keys;
    int64_t key_count;
    const char *const *found; // keys that the planner found
    int64_t found_count;
    const launch_place *place; // of this process among those of several hosts; NULL: one host
    // The runs of the job, which are prepared before it starts in place of r; NULL: r alone.
    const run_config *const *runs;
    int64_t run_count;
} cli_start;
NODISCARD status cli_ranks_start(cli_context *cli, const cli_start *order);

// The code of the table with the exit code of a rank that failed; the text is the rank's own.
status cli_ranks_status(int exit_code);

// Joins this process to the other ranks; cli_ranks_leave() leaves them. r: configuration that must
// be equal on all ranks; NULL: no run, only ranks of the same program. transport: a row of comm's;
// NULL: r's choice, or auto.
typedef struct cli_ranks cli_ranks;
NODISCARD status cli_ranks_join(cli_context *cli, const run_config *r, const char *transport,
                                const launch_place *place, cli_ranks **out);
// The facts that must be equal on all of them. tuning: contents of comm.tuning's file, or NULL.
NODISCARD status cli_ranks_facts(cli_context *cli, const run_config *r, const char *tuning,
                                 control_fact **out, int64_t *count);
comm *cli_ranks_comm(const cli_ranks *k);
// "host:process" of rank 0, in `a`; NULL where the ranks have not joined.
NODISCARD status cli_ranks_first(const cli_ranks *k, arena *a, char **out);
bool cli_ranks_change_asked(void *ranks); // train_watcher.change_asked
// For the failure detector of the other ranks.
void cli_ranks_progress(void *ranks, const train_progress *p);
// st: the result of this rank; the others receive a failure. NULL is legal.
void cli_ranks_leave(cli_ranks *k, status st);

#endif
