// resilience.mode: restart. The process that starts the ranks starts them again after a loss, and
// keeps the folder in the machine's memory from which they continue.
//
//   launcher   makes the folder, starts the ranks, waits ... a rank is lost: all end; starts them
//              again with the loss in their environment ... the run ends: removes the folder
//   rank 0     copies the state into the folder after its steps (train/session_memory.c)
#ifndef CLI_TRAIN_RESTART_H
#define CLI_TRAIN_RESTART_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "launch/launch.h"
#include "train/train.h"

enum { RESTART_BEFORE_MAX = 4 };
typedef struct cli_restart {
    cli_context *cli;
    const run_config *r;
    char *memory, *link;  // the folder, and the link to it in the run's folder; NULL: mode off
    char *const *given;   // arguments of the first start
    char **again;         // of later starts: without --resume and --fresh
    int64_t begun_ns;     // Unix time
    int64_t epoch;        // losses so far
    int64_t lost_at_step; // newest copy at the last loss; -1: none
    int losses_in_place;  // losses in a row at that step
    // Changes since the one at the end of the last step: a session that ended early may not have
    // told them. Newest first.
    char *before[RESTART_BEFORE_MAX];
    int before_count;
} cli_restart;

// Makes the folder, or takes the one that a launcher of this run has left.
// has_folder: false on several hosts, which share no memory.
NODISCARD status cli_restart_open(cli_context *cli, const run_config *r, char *const *arguments,
                                  bool has_folder, cli_restart *out);
// Counts a loss. said: the newest step that a rank says it has finished; -1: none. *is_given_up:
// too many of them at the same step.
NODISCARD status cli_restart_count(cli_restart *k, int64_t said, bool *is_given_up);
// The same at this step.
void cli_restart_count_at(cli_restart *k, int64_t step, bool *is_given_up);
// The arguments of the next start.
char *const *cli_restart_arguments(const cli_restart *k);
// True if the ranks are to be started again after this result of a start. A text for the user, if
// the run is given up, is added to the result.
NODISCARD status cli_restart_again(cli_restart *k, launch_result *result, bool *again);
// is_over: the run has a checkpoint of its last state, so the copies in memory are removed.
void cli_restart_close(cli_restart *k, bool is_over);
// Removes the copies in memory of the run in this folder, if it has some.
NODISCARD status cli_restart_forget(cli_context *cli, const char *run_dir);

// Writes a change as a line for the ranks, and puts such a line where cli_restart_read() finds it;
// "": there was no change.
NODISCARD status cli_restart_note(cli_restart *k, const train_restart *lost, char **out);
NODISCARD status cli_restart_put(const char *memory, const char *lost);
// A rank's side: tells the launcher which rank was wrong.
NODISCARD status cli_restart_blame(const host *h, arena *a, const char *memory, int64_t rank);
// And what the launcher has put into the environment. *has is false without it.
NODISCARD status cli_restart_read(arena *a, train_restart *out, bool *has);

#endif
