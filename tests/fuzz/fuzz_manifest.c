// Fuzz entry: any bytes as a checkpoint's manifest, with the checksum at the end made right: what a
// forger would do, and what lets the fuzzer past it. An accepted one prints, and reads back the same.
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_back(arena *a, const ckpt_manifest *m)
{
    text printed = {.a = a};
    ckpt_manifest again;
    if (ckpt_manifest_print(m, &printed) != ST_OK) return; // no memory
    const status st = ckpt_manifest_parse(a, printed.bytes, printed.length, "again", &again);
    if (st == ST_NO_MEMORY) return;
    ASSERT(st == ST_OK);
    ASSERT(again.tensor_count == m->tensor_count && again.state_count == m->state_count);
    for (int64_t i = 0; i < m->tensor_count; i++) {
        const ckpt_tensor *x = &m->tensors[i], *y = &again.tensors[i];
        ASSERT(strcmp(x->name, y->name) == 0 && strcmp(x->file, y->file) == 0);
        ASSERT(x->offset == y->offset && x->bytes == y->bytes && x->type == y->type);
        ASSERT(ckpt_manifest_find(m, x->name) == x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char begin[] = " \"manifest\": \"", end[] = "\"\n}\n";
    char hex[33];
    arena *a = NULL;
    ckpt_manifest m;
    if (arena_create("fuzz", 64 << 20, &a) != ST_OK) return 0;
    text whole = {.a = a};
    (void)hash128_text(hash128_of(data, (int64_t)size), hex);
    if (text_add_bytes(&whole, data, (int64_t)size) == ST_OK &&
        text_add(&whole, "%s%s%s", begin, hex, end) == ST_OK) {
        const status st = ckpt_manifest_parse(a, whole.bytes, whole.length, "fuzz", &m);
        ASSERT(st == ST_OK || st == ST_DAMAGED || st == ST_SECURITY || st == ST_NO_MEMORY);
        if (st == ST_OK) read_back(a, &m);
    }
    arena_destroy(a);
    return 0;
}
