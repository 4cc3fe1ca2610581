// Fuzz entry: any bytes as a config.json. What is accepted holds to its limits, makes a table of
// rotary positions without a NaN, and prints as a config.json that is accepted again.
#include "model/model.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status read_one(arena *a, const char *bytes, int64_t count, decoder_spec *out)
{
    json *root = NULL;
    TRY(json_parse(bytes, count, "config.json", &root));
    const status st = model_spec_from_json(a, root, "config.json", out);
    json_free(root);
    return st;
}

static status accepted(arena *a, const decoder_spec *s)
{
    text printed = {.a = a};
    decoder_spec again;
    TRY(model_spec_print_json(s, &printed));
    TRY(read_one(a, printed.bytes, printed.length, &again));
    ASSERT(again.layers == s->layers && again.dim == s->dim && again.head_dim == s->head_dim);
    ASSERT(again.rope.kind == s->rope.kind && again.tied == s->tied);
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    float *table = NULL;
    TRY(model_rope_table(a, s, 4, s->context, &table));
    for (int64_t i = 0; i < 4 * s->head_dim; i++) ASSERT(!isnan(table[i]));
    return ST_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    if (arena_create("fuzz", 1 << 26, &a) != ST_OK) return 0;
    decoder_spec s;
    if (read_one(a, (const char *)data, (int64_t)size, &s) == ST_OK) {
        const status st = accepted(a, &s);
        ASSERT(st == ST_OK || st == ST_NO_MEMORY);
    } else {
        const status code = error_last()->code;
        ASSERT(code == ST_DAMAGED || code == ST_MODEL || code == ST_NO_MEMORY);
    }
    arena_destroy(a);
    return 0;
}
