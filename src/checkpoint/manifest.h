// A checkpoint's manifest: the list of the folder's contents, and the record of the save. Internal
// to checkpoint/.
//
// The text ends with a line that holds the checksum of all bytes before that line, so a change of
// any byte is detected:
//
//   {
//    "format": "trireme-checkpoint-2", "step": 100, ... the record, one field per line
//    "state": [ {"name", "bytes", "head_bytes", "head_xxh128"} ],    safetensors files
//    "tensors": [ {"name", "type", "shape", "file", "offset", "bytes", "xxh128"} ],
//    "files": [ {"name", "bytes", "xxh128"} ],                       files that the trainer adds
//    "digest": "..",                                                 over the logical tensors
//    "root": "..",                                                   of a tree over their checksums
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
    CKPT_MAX_NAME_BYTES = 1024, // a tensor's name, as in safetensors
};

typedef struct ckpt_file {
    const char *name;
    int64_t bytes;
    int64_t head_bytes; // size of a state file's header, which `checksum` covers; otherwise 0
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
    hash128 root; // ckpt_manifest_root()
} ckpt_manifest;

// The root of the Merkle tree over the logical tensors in their order: it depends on names, types,
// shapes and checksums, and not on files or the layout of the run. So two checkpoints with the same
// root have the same content, and one tensor is proved to belong to it by log2(tensors) hashes.
hash128 ckpt_manifest_root(const ckpt_tensor *tensors, int64_t count);

// Parses a manifest and checks all that its text alone allows. `what` names it in errors. All of
// `out` is in the arena.
NODISCARD status ckpt_manifest_parse(arena *a, const char *bytes, int64_t count, const char *what,
                                     ckpt_manifest *out);
// Prints a manifest. `sorted` is not used.
NODISCARD status ckpt_manifest_print(const ckpt_manifest *m, text *out);
const ckpt_tensor *ckpt_manifest_find(const ckpt_manifest *m, const char *name);

#endif
