// e4m3 per value and a scale per block that maps the largest magnitude to 448. Relative error at most 2^-4, but
// for values below largest / 28672, where the absolute one is at most largest / 458752. NaN has a code of
// its own. A block is: largest (fp32) | n bytes. Source: Micikevicius et al. 2022, arXiv:2209.05433.
#include "comm/compress/compress_table.h"
#include "comm/compress/scale.h"

#include <math.h>
#include <string.h>

static int64_t block_bytes(int64_t n)
{
    return 4 + n;
}

static void encode_block(kern_level level, const float *v, int64_t n, unsigned char *out)
{
    const float largest = scale_largest(level, v, n);
    memcpy(out, &largest, 4);
    const double factor = largest > 0 ? 448.0 / (double)largest : 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = isfinite(v[i]) ? (float)((double)v[i] * factor) : NAN;
        out[4 + i] = f8e4m3_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
    }
}

static bool decode_block(kern_level level, const unsigned char *in, int64_t n, float *v)
{
    (void)level;
    float largest;
    memcpy(&largest, in, 4);
    if (!scale_is_legal(largest)) return false;
    const double step = (double)largest / 448.0;
    for (int64_t i = 0; i < n; i++) {
        const float y = f32_from_f8e4m3(in[4 + i]);
        v[i] = y == y ? (float)((double)y * step) : NAN;
    }
    return true;
}

const comm_codec comm_codec_fp8 = {
    .name = "fp8",
    .id = 3,
    .block_bytes = block_bytes,
    .encode_block = encode_block,
    .decode_block = decode_block,
};
