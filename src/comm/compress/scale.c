// Scales of blocks, with vector units where there are any.
#include "comm/compress/scale.h"

#include <immintrin.h>
#include <string.h>

static float largest_scalar(const float *v, int64_t n, uint32_t most)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, 4);
        bits &= 0x7fffffff;
        if (bits < 0x7f800000 && bits > most) most = bits;
    }
    float x;
    memcpy(&x, &most, 4);
    return x;
}

// Magnitudes compare as integers; infinities and NaN are above all others and masked out.
__attribute__((target("avx2"))) static float largest_avx2(const float *v, int64_t n)
{
    __m256i most = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i bits = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(v + i)),
                                              _mm256_set1_epi32(0x7fffffff));
        const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), bits);
        most = _mm256_max_epi32(most, _mm256_and_si256(bits, finite));
    }
    uint32_t lanes[8], largest = 0;
    memcpy(lanes, &most, sizeof(lanes));
    for (int k = 0; k < 8; k++) largest = lanes[k] > largest ? lanes[k] : largest;
    return largest_scalar(v + i, n - i, largest);
}

float scale_largest(comm_vectors vectors, const float *v, int64_t n)
{
    return vectors == COMM_AVX2 ? largest_avx2(v, n) : largest_scalar(v, n, 0);
}

bool scale_is_legal(float largest)
{
    return largest >= 0 && largest <= 3.4028235e38F;
}
