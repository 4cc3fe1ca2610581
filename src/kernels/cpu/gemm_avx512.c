// Matrix products with AVX-512: tiles of 14 rows and 32 columns, 28 accumulators of 32 registers.
//
// Packing and conversion are the AVX2 unit's: they wait for memory, not for arithmetic. Untested
// where the machine has no AVX-512; gemm_test.c says so when it skips it.
#include "kernels/cpu/gemm_unit.h"

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")))

enum { MR = 14, NR = 32 };

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

AVX512 static void kernel(const float *a, const float *b, gemm_sums from, gemm_sums to, int64_t kc,
                          const float *ahead, gemm_fetch later)
{
#define DECLARE(i) __m512 l##i = _mm512_setzero_ps(), h##i = _mm512_setzero_ps();
#define LOAD(i)                                        \
    l##i = _mm512_loadu_ps(from.at + i * from.stride); \
    h##i = _mm512_loadu_ps(from.at + i * from.stride + 16);
#define STEP(i)                                \
    {                                          \
        const __m512 x = _mm512_set1_ps(a[i]); \
        l##i = _mm512_fmadd_ps(x, low, l##i);  \
        h##i = _mm512_fmadd_ps(x, high, h##i); \
    }
#define STORE(i)                                   \
    _mm512_storeu_ps(to.at + i * to.stride, l##i); \
    _mm512_storeu_ps(to.at + i * to.stride + 16, h##i);

    EACH_ROW(DECLARE)
    if (from.at != NULL) {
        EACH_ROW(LOAD)
    }
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        if (k % 8 == 0) _mm_prefetch((const char *)(ahead + 2 * k), _MM_HINT_T1);
        if (k % 4 == 0) {
            _mm_prefetch(later.at, _MM_HINT_T1);
            later.at += later.stride;
        }
        const __m512 low = _mm512_loadu_ps(b), high = _mm512_loadu_ps(b + 16);
        EACH_ROW(STEP)
    }
    EACH_ROW(STORE)
#undef DECLARE
#undef LOAD
#undef STEP
#undef STORE
}

const gemm_unit gemm_unit_avx512 = {
    .level = KERN_AVX512,
    .steps = 1,
    .mr = MR,
    .nr = NR,
    .kernel = kernel,
    .pack = gemm_avx2_pack,
    .load = gemm_avx2_load,
    .store = gemm_avx2_store,
    .stream = gemm_avx2_stream,
    .flat = gemm_avx2_flat,
};
