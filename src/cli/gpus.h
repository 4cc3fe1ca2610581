// The GPUs that this process shows to NVIDIA's driver.
#ifndef CLI_GPUS_H
#define CLI_GPUS_H

#include "cli/cli.h"

// Before the driver is loaded: where Slurm gave this process some of the visible GPUs, shows these
// alone (CUDA_VISIBLE_DEVICES). peers: ranks of this host that reach each other's GPUs; if they are
// more than Slurm's GPUs, all GPUs stay visible, and the one of this rank's turn is Slurm's. *said,
// in the command's arena: what was changed; NULL: nothing. ST_CONFIG: none of Slurm's is visible.
NODISCARD status cli_gpus_show(cli_context *cli, int peers, const char **said);

#endif
