// Folders that appear complete or not at all: made under a temporary name, then renamed.
#ifndef CLI_EXPORT_WORK_FOLDER_H
#define CLI_EXPORT_WORK_FOLDER_H

#include "cli/cli.h"

// Removes slashes from the end.
NODISCARD status cli_path_trim(arena *a, const char *path, char **out);
// Removes the folder of an earlier command: a folder of files and of folders of files, no deeper
// levels. Files that cannot be removed stay, and the error record stays unchanged.
void cli_work_remove(cli_context *cli, const char *folder);
// Renames `work` to `to`, which may be missing, an empty folder or (replaces) a native folder,
// whose files are removed after the rename. Durable when it returns.
NODISCARD status cli_work_rename(cli_context *cli, const char *work, const char *to, bool replaces);

#endif
