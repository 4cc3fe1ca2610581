// `train` with adapter.files: several adapters over one base model in one job.
#ifndef CLI_TRAIN_ADAPTERS_H
#define CLI_TRAIN_ADAPTERS_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "launch/launch.h"

typedef struct cli_adapters_order {
    const char *yaml_path, *config_text, *resume;
    const char *const *keys; // of the command line
    int64_t key_count;
    bool quiet;
    const launch_place *place;
} cli_adapters_order;

// `common`: the values of the file and the command line, which has adapter.files. An adapter's run
// has these, then the keys of its own file, then those of the command line. Its folder is that of
// its file's name in run.dir. With a layout of several ranks this process starts them, or is one of
// them.
NODISCARD status cli_adapters_train(cli_context *cli, const cli_adapters_order *order,
                                    const run_config *common);

#endif
