// Shared by the parts of checkpoint/ that write: an image of the state, and a checkpoint made from
// it.
#ifndef CHECKPOINT_SAVE_H
#define CHECKPOINT_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/state.h"

#define STATE_FILE_BYTES ((int64_t)2 << 30) // larger state files are split

// An image of the state: the list, the step block's counters, and the tensors' bytes. The bytes are
// in memory, or (bytes NULL) still on the device, which must then stay idle until the save ends.
typedef struct ckpt_image {
    const ckpt_state *s;
    state_list list;
    char *bytes;
    int64_t file_bytes; // 0: STATE_FILE_BYTES
    step_block *block;  // receives the device's step block, with the loads of experts behind it
    int64_t counts[STEP_COUNTS];
    double reals[STEP_REALS];
} ckpt_image;

// Allocates the image's step block.
NODISCARD status ckpt_image_block(ckpt_image *image, arena *a);
// Copies the state from the idle device. This is the only part of a save that a step has to wait
// for.
NODISCARD status ckpt_image_take(ckpt_image *image);
// Writes <folder>/<name> until it is durable and verified. A failed save leaves nothing behind.
NODISCARD status ckpt_image_save(const ckpt_image *image, arena *a, const char *folder,
                                 const ckpt_info *info, const ckpt_extra *extras,
                                 int64_t extra_count, const char *name);

// Finds "step-0000100", or "step-0000100.<fork>" and up if that name exists. A folder that holds a
// manifest, or has lost it, is never written again; debris is removed.
NODISCARD status ckpt_name_free(const host *h, arena *a, const char *folder, int64_t step,
                                int64_t fork, char **name);
// Removes the manifest first, by rename: from then on the folder is debris, whatever happens.
NODISCARD status ckpt_remove(const host *h, arena *a, const char *path);

#endif
