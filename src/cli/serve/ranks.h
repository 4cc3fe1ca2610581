// `serve` on several ranks: layout.tp, and the processes that share the model.
#ifndef CLI_SERVE_RANKS_H
#define CLI_SERVE_RANKS_H

#include "cli/model_folder.h"
#include "config/run_config.h"

// Reads the keys of the command line: layout.tp, and in strict mode the shards, whose defaults are
// those of the model's run. Any other key is refused by name, as is a layout that the model's
// shapes do not allow.
NODISCARD status cli_serve_layout(cli_context *cli, const cli_call *call, const cli_model *model,
                                  bool strict, run_config **out);

// Starts this command once for each rank and waits until all have ended: a rank's error, or the
// loss of one, ends all.
NODISCARD status cli_serve_start(cli_context *cli, int64_t ranks);

#endif
