// The keys that say where a model runs, for the commands that generate and score text.
#ifndef CLI_INFER_DEVICE_H
#define CLI_INFER_DEVICE_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "infer/infer.h"

// Whether the text before "=" is kernels.device or kernels.graphs.
bool cli_device_is_key(const char *key);
// Reads the keys of a command that takes these alone.
NODISCARD status cli_device_find(cli_context *cli, const cli_call *call, const char *command,
                                 run_config **out);
// The rule between them: there are graphs on GPUs only.
NODISCARD status cli_device_check(const run_config *r, const config *c);
// Shows the driver the GPUs that Slurm gave to this process, before it is loaded, and says so.
NODISCARD status cli_device_show(cli_context *cli, const run_config *r);
// Sets the options of the device. A run's own strict mode holds on CPUs only; --strict holds on a
// GPU too. strict: what the run says.
void cli_device_set(const run_config *r, bool strict, infer_options *options);

#endif
