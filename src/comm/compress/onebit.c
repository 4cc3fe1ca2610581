// Signs and the mean magnitude of each block, with feedback; the first steps travel whole. 1 bit
// per value. Squared error of a block is ||v||^2 - |v|_1^2 / n: never more than v itself, so the
// residual stays bounded. Source: Seide et al. 2014; warm-up: Tang et al. 2021, arXiv:2102.02888. A
// block is: mean (fp32; NaN if a value is not finite) | ceil(n / 8) bytes, first value lowest bit,
// 1: negative.
#include "comm/compress/compress_table.h"
#include "comm/compress/scale.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

static int64_t block_bytes(int64_t n)
{
    return 4 + (n + 7) / 8;
}

// Eight sums of magnitudes, value i in sum i mod 8, and the signs. Values that are done.
__attribute__((target("avx2"))) static int64_t signs_avx2(const float *v, int64_t n, double *sums,
                                                          unsigned char *signs)
{
    const __m256 minus = _mm256_set1_ps(-0.0F);
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_loadu_ps(v + i), size = _mm256_andnot_ps(minus, x);
        const __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
        signs[i / 8] = (unsigned char)_mm256_movemask_ps(negative);
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(size)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(size, 1)));
    }
    _mm256_storeu_pd(sums, low);
    _mm256_storeu_pd(sums + 4, high);
    return i;
}

static void encode_block(comm_vectors vectors, const float *v, int64_t n, unsigned char *out)
{
    double sums[8] = {0}, sum = 0;
    memset(out + 4, 0, (size_t)((n + 7) / 8));
    int64_t i = vectors == COMM_AVX2 ? signs_avx2(v, n, sums, out + 4) : 0;
    for (; i < n; i++) {
        sums[i % 8] += fabs((double)v[i]);
        if (v[i] < 0) out[4 + i / 8] |= (unsigned char)(1u << (i % 8));
    }
    for (int k = 0; k < 8; k++) sum += sums[k];
    const float mean = isfinite(sum) ? (float)(sum / (double)n) : NAN;
    memcpy(out, &mean, 4);
}

__attribute__((target("avx2"))) static int64_t decode_avx2(const unsigned char *signs, int64_t n,
                                                           float mean, float *v)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i mine = _mm256_and_si256(_mm256_set1_epi32(signs[i / 8]), bit);
        const __m256 negative = _mm256_castsi256_ps(_mm256_cmpeq_epi32(mine, bit));
        _mm256_storeu_ps(v + i,
                         _mm256_blendv_ps(_mm256_set1_ps(mean), _mm256_set1_ps(-mean), negative));
    }
    return i;
}

static bool decode_block(comm_vectors vectors, const unsigned char *in, int64_t n, float *v)
{
    float mean;
    memcpy(&mean, in, 4);
    if (mean != mean)
        mean = NAN; // the one NaN
    else if (!scale_is_legal(mean))
        return false;
    if (n % 8 != 0 && in[4 + n / 8] >> (n % 8) != 0) return false;
    int64_t i = vectors == COMM_AVX2 ? decode_avx2(in + 4, n, mean, v) : 0;
    for (; i < n; i++) v[i] = (in[4 + i / 8] >> (i % 8) & 1) != 0 ? -mean : mean;
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
