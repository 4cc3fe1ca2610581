// Writes files in the GGUF format, version 3, which llama.cpp reads: keys with typed values, then
// the table of tensors, then their data, each aligned to 32 bytes.
//
// Order of calls: create; keys; tensors; then put for all bytes of the tensors in order; finish.
// The first put writes the header. Source: docs/gguf.md of the ggml project.
#ifndef BASE_FORMAT_GGUF_H
#define BASE_FORMAT_GGUF_H

#include "base/hash.h"
#include "base/host.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

// Types of tensors, by their numbers in files. Q8_0: blocks of 32 elements, each an fp16 scale and
// 32 bytes.
typedef enum gguf_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_BF16 = 30 } gguf_type;
enum { GGUF_BLOCK = 32, GGUF_BLOCK_BYTES = 34, GGUF_NAME_BYTES = 64 };

// Bytes of a tensor's `count` elements; of Q8_0 whole blocks.
int64_t gguf_bytes(gguf_type type, int64_t count);
// Converts elements; Q8_0 rounds half away from zero, as ggml does, the others to nearest even.
void gguf_encode(gguf_type type, const float *values, int64_t count, void *out);

typedef struct gguf_writer {
    const host *h;
    file *f;
    text keys, tensors;
    int64_t key_count, tensor_count;
    int64_t data_bytes; // of all declared tensors, with padding
    int64_t written;    // of the file
    bool has_begun;
    hash_stream *sum;
} gguf_writer;
NODISCARD status gguf_create(const host *h, arena *a, const char *path, gguf_writer *out);
void gguf_close(gguf_writer *w); // also after an error

NODISCARD status gguf_key_u32(gguf_writer *w, const char *key, uint32_t value);
NODISCARD status gguf_key_f32(gguf_writer *w, const char *key, float value);
NODISCARD status gguf_key_bool(gguf_writer *w, const char *key, bool value);
NODISCARD status gguf_key_text(gguf_writer *w, const char *key, const char *value, int64_t bytes);
// A text of a list may hold any bytes but has no NUL.
NODISCARD status gguf_key_texts(gguf_writer *w, const char *key, const char *const *values,
                                int64_t count);
NODISCARD status gguf_key_i32s(gguf_writer *w, const char *key, const int32_t *values,
                               int64_t count);
NODISCARD status gguf_key_f32s(gguf_writer *w, const char *key, const float *values, int64_t count);

// columns: the extent of the dim whose elements lie next to each other; rows 0: one dim.
NODISCARD status gguf_tensor(gguf_writer *w, const char *name, gguf_type type, int64_t rows,
                             int64_t columns);
// The bytes of the next tensor, whole.
NODISCARD status gguf_put(gguf_writer *w, const void *bytes, int64_t count);
// Syncs the file. *sum is the hash of all of its bytes.
NODISCARD status gguf_finish(gguf_writer *w, hash128 *sum, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
