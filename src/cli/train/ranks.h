// `train` on several ranks: this process starts them on this machine, or is one of them.
#ifndef CLI_TRAIN_RANKS_H
#define CLI_TRAIN_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"
#include "launch/launch.h"
#include "train/train.h"

// Who started this process: launch_place.ranks is 1 where it is alone.
NODISCARD status cli_ranks_place(launch_place *out);

// Starts the ranks of the layout, each this command with `keys` behind it, and stays until all have ended. The rank that
// failed first is told of last.
NODISCARD status cli_ranks_start(cli_context *cli, const run_config *r, const char *const *keys,
                                 int64_t key_count);

// This process as a rank: joins the others, and leaves them. r: what must be the same everywhere; NULL: no
// run, only ranks of the same program. transport: a row of comm's; NULL: what r says, or auto.
typedef struct cli_ranks cli_ranks;
NODISCARD status cli_ranks_join(cli_context *cli, const run_config *r, const char *transport,
                                const launch_place *place, cli_ranks **out);
comm *cli_ranks_comm(const cli_ranks *k);
void cli_ranks_progress(void *ranks, const train_progress *p); // for the others' judgement
// st: how this rank ends; the others hear of a failure. NULL is legal.
void cli_ranks_leave(cli_ranks *k, status st);

#endif
