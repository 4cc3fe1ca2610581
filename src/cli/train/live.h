// resilience.mode: live. The ranks of one machine live on when one of them is lost or when a
// process joins, and get new places from the process that started them (launch_live).
//
//   launcher   decides the layout of each epoch: that of the configuration, or the largest one for
//              the processes that are left; tells the ranks its keys and what was lost
//   a rank     waits for a place, trains in it, leaves it when the epoch ends, and waits again
#ifndef CLI_TRAIN_LIVE_H
#define CLI_TRAIN_LIVE_H

#include "cli/train/ranks.h"
#include "cli/train/restart.h"

// Starts the ranks and waits for the end of the run. *control_block: of the last epoch.
NODISCARD status cli_live_start(cli_restart *k, const cli_start *order, launch_result *result,
                                comm_control_block **control_block);

// Trains in one epoch, with these keys added to those of the command. Memory of cli->a is of the
// epoch.
// process: what this process keeps between its epochs.
typedef status cli_live_train(void *context, const char *const *keys, int64_t count,
                              const launch_place *place, train_process *process,
                              train_outcome *out);
// Prepares a spare for a place in an epoch with these keys.
typedef status cli_live_spare(void *context, const char *const *keys, int64_t count, int post_fd,
                              train_process *process);
// A rank: trains epoch by epoch until the run ends, or needs it no more.
NODISCARD status cli_live_rank(cli_context *cli, launch_place *place, cli_live_train *train,
                               cli_live_spare *spare, void *context);

// RUN/hosts-N: how launcher N of a run on several hosts comes back.
NODISCARD status cli_live_hosts_path(cli_context *cli, const char *run_dir, int launcher,
                                     char **out);

// RUN/logs/processes: the process of each rank, a line each, for `chaos` and for people; on several
// hosts RUN/logs/processes-N with those of launcher N. launcher: -1: one host.
NODISCARD status cli_live_processes_path(cli_context *cli, const char *run_dir, int launcher,
                                         char **out);

// `train RUN --join`: becomes a rank of the run in this folder, or the launcher of a host that was
// lost. Returns only if it cannot.
NODISCARD status cli_live_join(cli_context *cli, const char *run_dir);

#endif
