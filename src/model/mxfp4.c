// MXFP4, the type of gpt-oss's published experts (Open Compute Project, Microscaling Formats 1.0):
// blocks of 32 numbers of 4 bits (sign, two bits of exponent, one of mantissa) with a power of two
// as scale. A tensor NAME (experts, columns, rows) is stored as
//
//   NAME_blocks  u8 (experts, rows, columns / 32, 16)   two numbers in a byte, the lower bits first
//   NAME_scales  u8 (experts, rows, columns / 32)       exponent + 127
//
// Every value is exact in bf16 and fp32.
#include "model/hf_tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = BLOCK / 2, EXPONENT_BIAS = 127, SCALE_NAN = 255 };

static const safetensors_entry *part_find(const safetensors *set, const decoder_spec *spec,
                                          const hf_source *source, const char *end)
{
    hf_source part = *source;
    const size_t used = strlen(part.name);
    if (used + strlen(end) >= sizeof(part.name)) return NULL;
    memcpy(part.name + used, end, strlen(end) + 1);
    return hf_entry_find(set, spec, &part);
}

hf_blocks hf_blocks_find(const safetensors *set, const decoder_spec *spec, const hf_source *source)
{
    return (hf_blocks){.blocks = part_find(set, spec, source, "_blocks"),
                       .scales = part_find(set, spec, source, "_scales")};
}

static bool dims_are(const safetensors_entry *e, int ndim, const int64_t *dims)
{
    bool same = e->type == DTYPE_U8 && e->ndim == ndim;
    for (int d = 0; d < ndim && same; d++) same = e->dims[d] == dims[d];
    return same;
}

bool hf_blocks_fit(const hf_blocks *b, const hf_source *source, int64_t columns, char why[160])
{
    const int64_t slices = source->as.slices;
    const int64_t dims[4] = {slices, source->as.rows / slices, columns / BLOCK, BLOCK_BYTES};
    if (b->scales == NULL) {
        snprintf(why, 160, "has blocks of 4 bits, but no scales for them (%s_scales)",
                 source->tensor->theirs);
        return false;
    }
    if (columns % BLOCK == 0 && dims_are(b->blocks, 4, dims) && dims_are(b->scales, 3, dims)) {
        return true;
    }
    snprintf(
        why, 160,
        "is stored in blocks of 4 bits that do not fit: expected u8 of [%lld, %lld, %lld, %lld] "
        "and scales without the last",
        (long long)dims[0], (long long)dims[1], (long long)dims[2], (long long)dims[3]);
    return false;
}

static void block_read(const uint8_t *bytes, uint8_t scale, float *out)
{
    static const float values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    const float factor = scale == SCALE_NAN ? NAN : ldexpf(1.0F, (int)scale - EXPONENT_BIAS);
    for (int i = 0; i < BLOCK_BYTES; i++) {
        out[2 * i] = values[bytes[i] & 15] * factor;
        out[2 * i + 1] = values[bytes[i] >> 4] * factor;
    }
}

// Row by row: its blocks, then its scales.
status hf_blocks_read(const safetensors *set, const hf_blocks *b, const hf_source *source,
                      int64_t slice, int64_t columns, float *out)
{
    const int64_t rows = source->as.rows / source->as.slices, count = columns / BLOCK;
    uint8_t *bytes = malloc((size_t)(count * (BLOCK_BYTES + 1)));
    status st = ST_OK;
    if (bytes == NULL) return fail(ST_NO_MEMORY, "no memory to read tensor %s", source->name);
    uint8_t *scales = bytes + count * BLOCK_BYTES;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = (slice * rows + r) * count;
        TRY_TO(free_bytes,
               safetensors_read(set, b->blocks, at * BLOCK_BYTES, bytes, count * BLOCK_BYTES));
        TRY_TO(free_bytes, safetensors_read(set, b->scales, at, scales, count));
        for (int64_t i = 0; i < count; i++) {
            block_read(bytes + i * BLOCK_BYTES, scales[i], out + r * columns + i * BLOCK);
        }
    }
free_bytes:
    free(bytes);
    return st;
}
