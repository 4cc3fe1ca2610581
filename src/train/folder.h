// The folder of a run: its lock, and the files that describe the run.
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include "base/format/config.h"
#include "train/train.h"

typedef struct train_folder {
    const host *h;
    arena *a;
    const char *path, *checkpoints, *cache;
    file *lock; // held while it is open
    const char *lock_path;
    uint64_t lock_inode;
    bool reader; // true on every rank but the first: it writes no file here
} train_folder;

// Creates the folder and takes its lock, which the system releases when the process ends. If
// another process holds the lock, the error names that process.
NODISCARD status train_folder_open(const host *h, arena *a, const char *path, train_folder *out);
// Opens the folder on the other ranks of a run, whose first rank holds the lock.
NODISCARD status train_folder_join(const host *h, arena *a, const char *path, train_folder *out);
// Renames the folder of an earlier run to <path>.before-1, or the next free number, *to; NULL:
// there was no run. A folder that is in use, or that holds something else, is refused.
NODISCARD status train_folder_move_away(const host *h, arena *a, const char *path, char **to);
void train_folder_close(train_folder *f);
// True if the path no longer leads to the folder that was opened.
bool train_folder_is_lost(const train_folder *f);
// Makes the folder again and takes its lock.
NODISCARD status train_folder_remake(train_folder *f);
NODISCARD status train_folder_write(const train_folder *f, const char *name, const char *text);
// Writes config.yaml (as given), config.resolved.yaml, plan.json and run.json.
NODISCARD status train_folder_describe(const train_folder *f, const train_start *s, const config *c,
                                       const char *config_text);
// Writes run.json again after its contents have changed.
NODISCARD status train_folder_rerun(const train_folder *f, const train_start *s);
// Writes one line for scripts: "running", "done 0", "stopped 75 SIGTERM in step 640".
NODISCARD status train_folder_status(const train_folder *f, const char *state, int exit_code,
                                     const char *reason);
// Path of this session's TensorBoard file: events.out.tfevents.<Unix seconds>.<host>.
NODISCARD status train_folder_events(const train_folder *f, char **path);
// The configuration that the folder's run was made with; *out is NULL if there is none.
NODISCARD status train_folder_before(const train_folder *f, run_config **out);

#endif
