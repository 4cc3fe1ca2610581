// A run's folder: who may write in it, and what always stands there.
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include "base/format/config.h"
#include "train/train.h"

typedef struct train_folder {
    const host *h;
    arena *a;
    const char *path, *checkpoints, *cache;
    file *lock;  // held while it is open
    bool reader; // of a rank but the first: it writes nothing here
} train_folder;

// Makes the folder and takes its lock, which the system gives back when the process ends. A second
// writer is refused by name.
NODISCARD status train_folder_open(const host *h, arena *a, const char *path, train_folder *out);
// For the other ranks of a run whose first one has the folder open.
NODISCARD status train_folder_join(const host *h, arena *a, const char *path, train_folder *out);
void train_folder_close(train_folder *f);
NODISCARD status train_folder_write(const train_folder *f, const char *name, const char *text);
// config.yaml (as given), config.resolved.yaml, plan.json, run.json.
NODISCARD status train_folder_describe(const train_folder *f, const train_start *s, const config *c,
                                       const char *config_text);
// run.json alone, when what it says has changed.
NODISCARD status train_folder_rerun(const train_folder *f, const train_start *s);
// One line for scripts: "running", "done 0", "stopped 75 SIGTERM in step 640".
NODISCARD status train_folder_status(const train_folder *f, const char *state, int exit_code,
                                     const char *reason);
// Path of this session's TensorBoard file: events.out.tfevents.<Unix seconds>.<host>.
NODISCARD status train_folder_events(const train_folder *f, char **path);
// Compares with the configuration that the folder's run was made with; `log` gets what changed.
NODISCARD status train_folder_compare(const train_folder *f, const run_config *now, const config *c,
                                      text *log);

#endif
