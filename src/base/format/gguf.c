// The writer of GGUF files. Keys and the table of tensors are made in memory; the data go to the
// file as they come. All numbers are little-endian, as on every machine that this program runs on.
#include "base/format/gguf.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 32, VERSION = 3 };
// Kinds of values, by their numbers in files.
enum { KIND_I32 = 5, KIND_U32 = 4, KIND_F32 = 6, KIND_BOOL = 7, KIND_TEXT = 8, KIND_LIST = 9 };

int64_t gguf_bytes(gguf_type type, int64_t count)
{
    switch (type) {
    case GGUF_F32:
        return 4 * count;
    case GGUF_Q8_0:
        ASSERT(count % GGUF_BLOCK == 0);
        return count / GGUF_BLOCK * GGUF_BLOCK_BYTES;
    case GGUF_F16:
    case GGUF_BF16:
    default:
        return 2 * count;
    }
}

// The scale is the largest magnitude over 127. Elements are divided by it before it is rounded to
// fp16.
static void block_encode(const float *values, uint8_t *out)
{
    float largest = 0.0f;
    for (int i = 0; i < GGUF_BLOCK; i++) largest = fmaxf(largest, fabsf(values[i]));
    const float scale = largest / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    const uint16_t narrow = f16_from_f32(scale);
    memcpy(out, &narrow, sizeof(narrow));
    for (int i = 0; i < GGUF_BLOCK; i++) {
        const int8_t q = (int8_t)roundf(values[i] * inverse);
        memcpy(out + sizeof(narrow) + i, &q, 1);
    }
}

void gguf_encode(gguf_type type, const float *values, int64_t count, void *out)
{
    uint8_t *bytes = out;
    if (type == GGUF_F32) {
        memcpy(out, values, (size_t)count * sizeof(float));
        return;
    }
    if (type == GGUF_Q8_0) {
        ASSERT(count % GGUF_BLOCK == 0);
        for (int64_t i = 0; i < count; i += GGUF_BLOCK) {
            block_encode(values + i, bytes + i / GGUF_BLOCK * GGUF_BLOCK_BYTES);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const uint16_t x = type == GGUF_F16 ? f16_from_f32(values[i]) : bf16_from_f32(values[i]);
        memcpy(bytes + 2 * i, &x, sizeof(x));
    }
}

status gguf_create(const host *h, arena *a, const char *path, gguf_writer *out)
{
    *out = (gguf_writer){.h = h, .keys = {.a = a}, .tensors = {.a = a}, .sum = hash_begin()};
    if (out->sum == NULL) return fail(ST_NO_MEMORY, "no memory for a checksum");
    const status st = h->api->file_open(h, path, FILE_WRITE, &out->f);
    if (st != ST_OK) gguf_close(out);
    return st;
}

void gguf_close(gguf_writer *w)
{
    if (w->f != NULL) (void)w->h->api->file_close(w->f); // reports only the first error
    if (w->sum != NULL) (void)hash_end(w->sum);
    w->f = NULL;
    w->sum = NULL;
}

// ---- keys ---------------------------------------------------------------------------------------

static status number_add(text *t, uint64_t value, int64_t bytes)
{
    return text_add_bytes(t, &value, bytes);
}

static status text_value_add(text *t, const char *value, int64_t bytes)
{
    TRY(number_add(t, (uint64_t)bytes, 8));
    return text_add_bytes(t, value, bytes);
}

static status key_begin(gguf_writer *w, const char *key, uint32_t kind)
{
    ASSERT(!w->has_begun);
    w->key_count++;
    TRY(text_value_add(&w->keys, key, (int64_t)strlen(key)));
    return number_add(&w->keys, kind, 4);
}

static status list_begin(gguf_writer *w, const char *key, uint32_t kind, int64_t count)
{
    TRY(key_begin(w, key, KIND_LIST));
    TRY(number_add(&w->keys, kind, 4));
    return number_add(&w->keys, (uint64_t)count, 8);
}

status gguf_key_u32(gguf_writer *w, const char *key, uint32_t value)
{
    TRY(key_begin(w, key, KIND_U32));
    return number_add(&w->keys, value, 4);
}

status gguf_key_f32(gguf_writer *w, const char *key, float value)
{
    TRY(key_begin(w, key, KIND_F32));
    return text_add_bytes(&w->keys, &value, sizeof(value));
}

status gguf_key_bool(gguf_writer *w, const char *key, bool value)
{
    TRY(key_begin(w, key, KIND_BOOL));
    return number_add(&w->keys, value ? 1 : 0, 1);
}

status gguf_key_text(gguf_writer *w, const char *key, const char *value, int64_t bytes)
{
    TRY(key_begin(w, key, KIND_TEXT));
    return text_value_add(&w->keys, value, bytes);
}

status gguf_key_texts(gguf_writer *w, const char *key, const char *const *values, int64_t count)
{
    TRY(list_begin(w, key, KIND_TEXT, count));
    for (int64_t i = 0; i < count; i++) {
        TRY(text_value_add(&w->keys, values[i], (int64_t)strlen(values[i])));
    }
    return ST_OK;
}

status gguf_key_i32s(gguf_writer *w, const char *key, const int32_t *values, int64_t count)
{
    TRY(list_begin(w, key, KIND_I32, count));
    return text_add_bytes(&w->keys, values, 4 * count);
}

status gguf_key_f32s(gguf_writer *w, const char *key, const float *values, int64_t count)
{
    TRY(list_begin(w, key, KIND_F32, count));
    return text_add_bytes(&w->keys, values, 4 * count);
}

// ---- tensors ------------------------------------------------------------------------------------

static int64_t padding_after(int64_t at)
{
    return (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT;
}

status gguf_tensor(gguf_writer *w, const char *name, gguf_type type, int64_t rows, int64_t columns)
{
    const int64_t bytes = gguf_bytes(type, columns * max_i64(rows, 1));
    ASSERT(!w->has_begun && strlen(name) < GGUF_NAME_BYTES);
    TRY(text_value_add(&w->tensors, name, (int64_t)strlen(name)));
    TRY(number_add(&w->tensors, rows > 0 ? 2 : 1, 4));
    TRY(number_add(&w->tensors, (uint64_t)columns, 8));
    if (rows > 0) TRY(number_add(&w->tensors, (uint64_t)rows, 8));
    TRY(number_add(&w->tensors, (uint64_t)type, 4));
    TRY(number_add(&w->tensors, (uint64_t)w->data_bytes, 8));
    w->tensor_count++;
    w->data_bytes += bytes + padding_after(bytes);
    return ST_OK;
}

static status out(gguf_writer *w, const void *bytes, int64_t count)
{
    if (count == 0) return ST_OK;
    TRY(w->h->api->file_write(w->f, bytes, count));
    hash_add(w->sum, bytes, count);
    w->written += count;
    return ST_OK;
}

static status pad(gguf_writer *w)
{
    static const char zeros[ALIGNMENT] = {0};
    return out(w, zeros, padding_after(w->written));
}

static status header_write(gguf_writer *w)
{
    text head = {.a = w->keys.a};
    w->has_begun = true;
    TRY(text_add_bytes(&head, "GGUF", 4));
    TRY(number_add(&head, VERSION, 4));
    TRY(number_add(&head, (uint64_t)w->tensor_count, 8));
    TRY(number_add(&head, (uint64_t)w->key_count, 8));
    TRY(out(w, head.bytes, head.length));
    TRY(out(w, w->keys.bytes, w->keys.length));
    TRY(out(w, w->tensors.bytes, w->tensors.length));
    return pad(w);
}

status gguf_put(gguf_writer *w, const void *bytes, int64_t count)
{
    if (!w->has_begun) TRY(header_write(w));
    TRY(out(w, bytes, count));
    return pad(w);
}

status gguf_finish(gguf_writer *w, hash128 *sum, int64_t *bytes)
{
    file *f = w->f;
    TRY(w->h->api->file_sync(f));
    w->f = NULL;
    TRY(w->h->api->file_close(f));
    *sum = hash_end(w->sum);
    w->sum = NULL;
    *bytes = w->written;
    return ST_OK;
}
