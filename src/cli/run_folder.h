// Kinds of operands of a command: a configuration, a run, a checkpoint, a Hugging Face folder.
#ifndef CLI_RUN_FOLDER_H
#define CLI_RUN_FOLDER_H

#include "cli/cli.h"

typedef enum operand_kind {
    OPERAND_CONFIG,     // a YAML file
    OPERAND_RUN,        // a folder that holds run.json
    OPERAND_CHECKPOINT, // a folder that holds manifest.json
    OPERAND_HF          // a folder that holds config.json
} operand_kind;

// ST_NOT_FOUND or ST_USAGE for any other path, with the files that were expected.
NODISCARD status cli_operand_kind(cli_context *cli, const char *path, operand_kind *out);
// The newest complete checkpoint of a run, or the checkpoint itself.
NODISCARD status cli_checkpoint_of(cli_context *cli, const char *path, char **out);
// The YAML file of a file, a run, a checkpoint or a folder of `init`; *is_resolved: it has all
// values (config.resolved.yaml).
NODISCARD status cli_config_file(cli_context *cli, const char *path, const char **out,
                                 bool *is_resolved);
NODISCARD status cli_has_file(cli_context *cli, const char *folder, const char *name, bool *out);

#endif
