// Folders that appear whole or not at all: made beside their place, renamed into it.
#ifndef CLI_EXPORT_WORK_FOLDER_H
#define CLI_EXPORT_WORK_FOLDER_H

#include "cli/cli.h"

// Without slashes at its end.
NODISCARD status cli_path_trim(arena *a, const char *path, char **out);
// Removes what a command of ours left: a folder of files and of folders of files, nothing deeper.
// What cannot be removed stays; the error that is being told is kept.
void cli_work_remove(cli_context *cli, const char *folder);
// Puts `work` where `to` is: which is nothing, an empty folder or (replaces) a folder of ours, whose
// files go once the new one stands there. Durable when it returns.
NODISCARD status cli_work_rename(cli_context *cli, const char *work, const char *to, bool replaces);

#endif
