// e4m3 per value and a scale per block that maps the largest magnitude to 448. Relative error at
// most 2^-4, except for values below largest / 28672, where the absolute one is at most largest /
// 458752. NaN has its own code. A block is: largest (fp32) | n bytes. Source: Micikevicius et al.
// 2022, arXiv:2209.05433.
#include "comm/compress/compress_table.h"
#include "comm/compress/scale.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

static int64_t block_bytes(int64_t n)
{
    return 4 + n;
}

static uint8_t code_of(float x)
{
    return f8e4m3_from_f32(isfinite(x) ? x : NAN, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
}

// Eight codes of magnitudes: from 2^-6 on three bits of the mantissa stay; below, steps of 2^-9.
__attribute__((target("avx2"))) static __m256i codes_avx2(__m256i magnitude)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7ffff)), odd);
    const __m256i high =
        _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
    const __m256i low =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(512.0F)));
    const __m256i is_low = _mm256_cmpgt_epi32(_mm256_set1_epi32(121 << 23), magnitude);
    return _mm256_min_epi32(_mm256_blendv_epi8(high, low, is_low), _mm256_set1_epi32(0x7e));
}

__attribute__((target("avx2"))) static int64_t encode_avx2(const float *v, int64_t n, float factor,
                                                           unsigned char *out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(v + i));
        const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
        const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
        const __m256i bad = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f7fffff));
        const __m256 y = _mm256_mul_ps(_mm256_castsi256_ps(size), _mm256_set1_ps(factor));
        __m256i code = _mm256_or_si256(codes_avx2(_mm256_castps_si256(y)), sign);
        code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), bad);
        const __m128i words =
            _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
        _mm_storel_epi64((__m128i *)(void *)(out + i), _mm_packus_epi16(words, words));
    }
    return i;
}

static void encode_block(comm_vectors vectors, const float *v, int64_t n, unsigned char *out)
{
    const float largest = scale_largest(vectors, v, n);
    memcpy(out, &largest, 4);
    out += 4;
    if (largest < SCALE_LEAST || largest > SCALE_MOST) {
        const double factor = largest > 0 ? 448.0 / (double)largest : 0;
        for (int64_t i = 0; i < n; i++) out[i] = code_of((float)((double)v[i] * factor));
        return;
    }
    const float factor = 448.0F / largest;
    int64_t i = vectors == COMM_AVX2 ? encode_avx2(v, n, factor, out) : 0;
    for (; i < n; i++) out[i] = code_of(v[i] * factor);
}

// A code's bits moved to the place of fp32's are its value times 2^-120, subnormals too.
__attribute__((target("avx2"))) static int64_t decode_avx2(const unsigned char *in, int64_t n,
                                                           float step, float *v)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i code =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(in + i)));
        const __m256i size = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
        const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(code, 7), 31);
        const __m256 bits = _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(size, 20), sign));
        const __m256 y =
            _mm256_mul_ps(_mm256_mul_ps(bits, _mm256_set1_ps(0x1p120F)), _mm256_set1_ps(step));
        const __m256 bad = _mm256_castsi256_ps(_mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x7f)));
        _mm256_storeu_ps(v + i, _mm256_blendv_ps(y, _mm256_set1_ps(NAN), bad));
    }
    return i;
}

static bool decode_block(comm_vectors vectors, const unsigned char *in, int64_t n, float *v)
{
    float largest;
    memcpy(&largest, in, 4);
    if (!scale_is_legal(largest)) return false;
    in += 4;
    const bool plain = largest >= SCALE_LEAST && largest <= SCALE_MOST;
    const float step = largest / 448.0F;
    int64_t i = plain && vectors == COMM_AVX2 ? decode_avx2(in, n, step, v) : 0;
    for (; i < n; i++) {
        const float y = f32_from_f8e4m3(in[i]);
        const float z = plain ? y * step : (float)((double)y * (double)largest / 448.0);
        v[i] = y == y ? z : NAN;
    }
    return true;
}

const comm_codec comm_codec_fp8 = {
    .name = "fp8",
    .id = 3,
    .bound = 0.05,
    .block_bytes = block_bytes,
    .encode_block = encode_block,
    .decode_block = decode_block,
};
