// A checkpoint's manifest: what is in the folder, and the record of the commit. Internal to
// checkpoint/.
//
// The text ends with a line that holds the checksum of all bytes before that line, so no byte of it
// can change unseen:
//
//   {
//    "format": "trireme-checkpoint-2", "step": 100, ... the record, a line each
//    "state": [ {"name", "bytes", "head_bytes", "head_xxh128"} ],    safetensors files
//    "tensors": [ {"name", "type", "shape", "file", "offset", "bytes", "xxh128"} ],
//    "files": [ {"name", "bytes", "xxh128"} ],                       what the trainer adds
//    "digest": "..",                                                 over the logical tensors
//    "manifest": ".."
//   }
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H

#include "base/text.h"
#include "checkpoint/checkpoint.h"

#define CKPT_FORMAT        "trireme-checkpoint-2"
#define CKPT_MANIFEST_NAME "manifest.json"

enum {
    CKPT_MANIFEST_LIMIT_BYTES = 256 << 20,
    CKPT_MAX_NAME_BYTES = 1024, // of a tensor, as safetensors has it
};

typedef struct ckpt_file {
    const char *name;
    int64_t bytes;
    int64_t head_bytes; // of a state file: its header, which `checksum` covers; else 0
    hash128 checksum;   // of the header, or of the whole file
} ckpt_file;

typedef struct ckpt_manifest {
    ckpt_info info;
    ckpt_file *state, *extras;
    int64_t state_count, extra_count;
    ckpt_tensor *tensors; // in logical order
    int64_t tensor_count;
    const ckpt_tensor **sorted; // by name
    hash128 digest;
} ckpt_manifest;

// Checks all that the text alone can tell. `what` names it in errors. All of `out` is in the arena.
NODISCARD status ckpt_manifest_parse(arena *a, const char *bytes, int64_t count, const char *what,
                                     ckpt_manifest *out);
// The text of a manifest. `sorted` is not used.
NODISCARD status ckpt_manifest_print(const ckpt_manifest *m, text *out);
const ckpt_tensor *ckpt_manifest_find(const ckpt_manifest *m, const char *name);

#endif
