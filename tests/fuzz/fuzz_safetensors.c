// Fuzz entry: any bytes as a safetensors file. An accepted file must cover its data exactly: every
// byte of every tensor is read, and the tensors' sizes add up.
#include "base/format/safetensors_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    safetensors_file f;
    arena *a;
    if (arena_create("fuzz", 64 << 20, &a) != ST_OK) return 0;
    if (safetensors_parse(a, data, (int64_t)size, "fuzz", &f) == ST_OK) {
        int64_t covered = 0, first = (int64_t)size;
        unsigned sum = 0;
        for (int64_t i = 0; i < f.count; i++) {
            const safetensors_entry *e = &f.entries[i];
            ASSERT(safetensors_search(f.entries, f.count, e->name) == e);
            ASSERT(e->begin >= 10 && e->bytes >= 0 && e->begin + e->bytes <= (int64_t)size);
            for (int64_t k = 0; k < e->bytes; k++) sum += ((const uint8_t *)e->data)[k];
            covered += e->bytes;
            first = min_i64(first, e->begin);
        }
        ASSERT(sum < UINT32_MAX);
        ASSERT(covered == (int64_t)size - first);
    } else {
        ASSERT(error_last()->code == ST_DAMAGED || error_last()->code == ST_NO_MEMORY);
    }
    arena_destroy(a);
    return 0;
}
