// A byte per value and a scale per block: q = round(v / largest * 127). Absolute error at most
// largest / 254. -128 marks values that are not finite. A block is: largest (fp32) | n bytes.
#include "comm/compress/compress_table.h"
#include "comm/compress/scale.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

enum { NOT_FINITE = -128 };

static int64_t block_bytes(int64_t n)
{
    return 4 + n;
}

// In double, for blocks so small or large that fp32 factors would not do; also ends of blocks.
static void quantize(const float *v, int64_t n, double factor, int8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        q[i] = (int8_t)(isfinite(v[i]) ? (int)rint((double)v[i] * factor) : NOT_FINITE);
    }
}

static void quantize_f32(const float *v, int64_t n, float factor, int8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        q[i] = (int8_t)(isfinite(v[i]) ? (int)rintf(v[i] * factor) : NOT_FINITE);
    }
}

// The conversion turns values that are not finite into INT32_MIN or saturates them, so a mask marks
// them separately.
__attribute__((target("avx2"))) static void quantize_avx2(const float *v, int64_t n, float factor,
                                                          int8_t *q)
{
    const __m256 f = _mm256_set1_ps(factor), none = _mm256_set1_ps(INFINITY);
    const __m256 sign = _mm256_set1_ps(-0.0F);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_loadu_ps(v + i);
        const __m256 finite = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), none, _CMP_LT_OQ);
        const __m256i y = _mm256_cvtps_epi32(_mm256_mul_ps(x, f));
        const __m256i z =
            _mm256_blendv_epi8(_mm256_set1_epi32(NOT_FINITE), y, _mm256_castps_si256(finite));
        const __m128i w =
            _mm_packs_epi32(_mm256_castsi256_si128(z), _mm256_extracti128_si256(z, 1));
        _mm_storel_epi64((__m128i *)(void *)(q + i), _mm_packs_epi16(w, w));
    }
    quantize_f32(v + i, n - i, factor, q + i);
}

static void encode_block(comm_vectors vectors, const float *v, int64_t n, unsigned char *out)
{
    const float largest = scale_largest(vectors, v, n);
    memcpy(out, &largest, 4);
    int8_t *q = (int8_t *)(out + 4);
    if (largest < SCALE_LEAST || largest > SCALE_MOST) {
        quantize(v, n, largest > 0 ? 127.0 / (double)largest : 0, q);
    } else if (vectors == COMM_AVX2) {
        quantize_avx2(v, n, 127.0F / largest, q);
    } else {
        quantize_f32(v, n, 127.0F / largest, q);
    }
}

__attribute__((target("avx2"))) static int64_t restore_avx2(const int8_t *q, int64_t n, float step,
                                                            float *v)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i x =
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(q + i)));
        const __m256 bad =
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(x, _mm256_set1_epi32(NOT_FINITE)));
        const __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(step));
        _mm256_storeu_ps(v + i, _mm256_blendv_ps(y, _mm256_set1_ps(NAN), bad));
    }
    return i;
}

static bool decode_block(comm_vectors vectors, const unsigned char *in, int64_t n, float *v)
{
    float largest;
    memcpy(&largest, in, 4);
    if (!scale_is_legal(largest)) return false;
    const int8_t *q = (const int8_t *)(in + 4);
    const bool plain = largest >= SCALE_LEAST && largest <= SCALE_MOST;
    const float step = largest / 127.0F;
    int64_t i = plain && vectors == COMM_AVX2 ? restore_avx2(q, n, step, v) : 0;
    for (; i < n; i++) {
        const float y =
            plain ? (float)q[i] * step : (float)((double)q[i] * (double)largest / 127.0);
        v[i] = q[i] == NOT_FINITE ? NAN : y;
    }
    return true;
}

const comm_codec comm_codec_int8 = {
    .name = "int8",
    .id = 2,
    .bound = 0.05,
    .block_bytes = block_bytes,
    .encode_block = encode_block,
    .decode_block = decode_block,
};
