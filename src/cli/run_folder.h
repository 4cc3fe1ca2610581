// What an operand of a command stands for: a configuration, a run, a checkpoint, a Hugging Face folder.
#ifndef CLI_RUN_FOLDER_H
#define CLI_RUN_FOLDER_H

#include "cli/cli.h"

typedef enum operand_kind {
    OPERAND_CONFIG,     // a YAML file
    OPERAND_RUN,        // a folder that holds run.json
    OPERAND_CHECKPOINT, // a folder that holds manifest.json
    OPERAND_HF          // a folder that holds config.json
} operand_kind;

// ST_NOT_FOUND or ST_USAGE where it is none of these, with what was looked for.
NODISCARD status cli_operand_kind(cli_context *cli, const char *path, operand_kind *out);
// The newest whole checkpoint of a run, or the checkpoint itself.
NODISCARD status cli_checkpoint_of(cli_context *cli, const char *path, char **out);
// The YAML file that a file, a run, a checkpoint or a folder of `init` stands for; *is_resolved: all
// values are in it (config.resolved.yaml).
NODISCARD status cli_config_file(cli_context *cli, const char *path, const char **out,
                                 bool *is_resolved);
NODISCARD status cli_has_file(cli_context *cli, const char *folder, const char *name, bool *out);

#endif
