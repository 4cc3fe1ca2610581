// Signs and the mean magnitude of each block, with feedback; the first steps travel whole. 1 bit per value.
// Squared error of a block is ||v||^2 - |v|_1^2 / n: never more than v itself, so the residual
// stays bounded. Source: Seide et al. 2014; warm-up: Tang et al. 2021, arXiv:2102.02888.
// A block is: mean (fp32; NaN if a value is not finite) | ceil(n / 8) bytes, first value lowest bit, 1: negative.
#include "comm/compress/compress_table.h"
#include "comm/compress/scale.h"

#include <math.h>
#include <string.h>

static int64_t block_bytes(int64_t n)
{
    return 4 + (n + 7) / 8;
}

static void encode_block(kern_level level, const float *v, int64_t n, unsigned char *out)
{
    (void)level;
    double sum = 0;
    memset(out + 4, 0, (size_t)((n + 7) / 8));
    for (int64_t i = 0; i < n; i++) {
        sum += fabs((double)v[i]);
        if (v[i] < 0) out[4 + i / 8] |= (unsigned char)(1u << (i % 8));
    }
    const float mean = isfinite(sum) ? (float)(sum / (double)n) : NAN;
    memcpy(out, &mean, 4);
}

static bool decode_block(kern_level level, const unsigned char *in, int64_t n, float *v)
{
    (void)level;
    float mean;
    memcpy(&mean, in, 4);
    if (mean == mean && !scale_is_legal(mean)) return false;
    if (n % 8 != 0 && in[4 + n / 8] >> (n % 8) != 0) return false;
    for (int64_t i = 0; i < n; i++) v[i] = (in[4 + i / 8] >> (i % 8) & 1) != 0 ? -mean : mean;
    return true;
}

const comm_codec comm_codec_onebit = {
    .name = "onebit",
    .id = 5,
    .feedback = true,
    .warms = true,
    .block_bytes = block_bytes,
    .encode_block = encode_block,
    .decode_block = decode_block,
};
