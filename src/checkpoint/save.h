// Between the parts of checkpoint/ that write: an image of the state, and a checkpoint from it.
#ifndef CHECKPOINT_SAVE_H
#define CHECKPOINT_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/state.h"

#define STATE_FILE_BYTES ((int64_t)2 << 30) // a state file is split above this

// What is written: the list, the step block's counters, and the tensors' bytes, in memory or (bytes
// NULL) still on the device, which then must stay idle until it is written.
typedef struct ckpt_image {
    const ckpt_state *s;
    state_list list;
    char *bytes;
    int64_t file_bytes; // 0: STATE_FILE_BYTES
    step_block *block;  // to read the device's into
    int64_t counts[STEP_COUNTS];
    double reals[STEP_REALS];
} ckpt_image;

// Copies from the idle device. The only part of a save for which a step has to wait.
NODISCARD status ckpt_image_take(ckpt_image *image);
// Writes <folder>/<name> until it is durable and verified. If that fails nothing is left of it.
NODISCARD status ckpt_image_save(const ckpt_image *image, arena *a, const char *folder,
                                 const ckpt_info *info, const ckpt_extra *extras,
                                 int64_t extra_count, const char *name);

// "step-0000100", or "step-0000100.<fork>" and up where such a one exists: a folder that holds a
// manifest is never written again; one without is debris and goes.
NODISCARD status ckpt_name_free(const host *h, arena *a, const char *folder, int64_t step,
                                int64_t fork, char **name);
// The manifest first, by rename: from then on the folder is debris, whatever happens.
NODISCARD status ckpt_remove(const host *h, arena *a, const char *path);

#endif
