// GEMM micro-kernels with AVX-512: tiles of 14 rows and 32 columns, 28 accumulators of 32
// registers.
//
// Packing and conversion use the AVX2 code, because they wait for memory, not for arithmetic. GEMMs
// of few rows wait for memory too, but with half of the instructions a core looks twice as far
// ahead, so bf16 has its own code here. Without AVX-512 in the machine this file is not tested;
// gemm_test.c reports that.
#include "kernels/cpu/gemm_unit.h"

#include <immintrin.h>

#define AVX512      __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")))
#define AVX512_LEAF static inline AVX512 __attribute__((always_inline))

// Compilers keep arrays of vectors in registers only if the loops over them are unrolled.
#define UNROLL _Pragma("GCC unroll 16")

enum { MR = 14, NR = 32, AHEAD = 8 };

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
        if (k % (16 / AHEAD) == 0) _mm_prefetch((const char *)(ahead + AHEAD * k), _MM_HINT_T1);
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

// ---- few rows of bf16 ---------------------------------------------------------------------------
// As in gemm_avx2.c, but sixteen rows of w are transposed in registers: a lane is a column of y and
// k runs in order. This saves 1 to 8% of the time of a token of GPT-2 124M or Llama 135M (Zen 4,
// two threads, 2026-11-22).
enum { FLAT_GROUP = 16, FLAT_STEPS = 32 }; // columns of y at a time; steps of k in a cache line

// Loads four words (of two steps) of line 4 i, from `byte` on, into the 128 bits of lanes 4 i .. 4
// i + 3.
AVX512_LEAF __m512 quarters(const char *const *p, int64_t byte)
{
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const void *)(p[0] + byte)));
    x = _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(p[4] + byte)), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(p[8] + byte)), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps((const void *)(p[12] + byte)), 3);
}

// Loads element k + i of sixteen lines, in fp32, into t[i], for eight values of i.
AVX512_LEAF void transpose_eight(__m512 t[8], const char *const *p, int64_t k)
{
    const __m512 r0 = quarters(p, k * 2), r1 = quarters(p + 1, k * 2);
    const __m512 r2 = quarters(p + 2, k * 2), r3 = quarters(p + 3, k * 2);
    const __m512 a = _mm512_unpacklo_ps(r0, r1), b = _mm512_unpackhi_ps(r0, r1);
    const __m512 c = _mm512_unpacklo_ps(r2, r3), d = _mm512_unpackhi_ps(r2, r3);
    const __m512 words[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee),
                             _mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xee)};
    const __m512 upper = _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000u));
    UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words[i]), 16));
        t[2 * i + 1] = _mm512_and_ps(words[i], upper);
    }
}

// Adds the steps after the last whole cache line of k.
AVX512_LEAF void flat_rest(__m512 sum[GEMM_FLAT_ROWS], const gemm_flat *f, const char *const *lines,
                           int64_t k)
{
    for (; k < f->k; k++) {
        float line[FLAT_GROUP];
        for (int i = 0; i < FLAT_GROUP; i++) line[i] = gemm_load_one(DTYPE_BF16, lines[i], k);
        const __m512 w = _mm512_loadu_ps(line);
        for (int64_t r = 0; r < f->rows; r++) {
            const __m512 x = _mm512_set1_ps(f->x[r * f->x_stride + k]);
            sum[r] = _mm512_fmadd_ps(x, w, sum[r]);
        }
    }
}

// Computes columns [j, j + 16) of y, or fewer at the end, where the last row of w stands in for
// missing rows.
AVX512_LEAF void flat_columns(const gemm_flat *f, int64_t j, int64_t rows)
{
    const char *w = f->w, *lines[FLAT_GROUP];
    const char *ahead = w + (j + FLAT_GROUP) * f->w_stride * 2;
    for (int i = 0; i < FLAT_GROUP; i++) lines[i] = w + min_i64(j + i, f->n - 1) * f->w_stride * 2;
    __m512 sum[GEMM_FLAT_ROWS];
    for (int64_t r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + FLAT_STEPS <= f->k; k += FLAT_STEPS) {
        // Prefetches the next group into L2, in the order of memory, and the next lines of this
        // group into L1.
        UNROLL
        for (int i = 0; i < FLAT_GROUP; i++) {
            _mm_prefetch(ahead + (int64_t)i * 64, _MM_HINT_T1);
            _mm_prefetch(lines[i] + k * 2 + 64, _MM_HINT_T0);
        }
        ahead += (int64_t)FLAT_GROUP * 64;
        UNROLL
        for (int64_t part = 0; part < FLAT_STEPS; part += 8) {
            __m512 t[8];
            transpose_eight(t, lines, k + part);
            for (int64_t r = 0; r < rows; r++) {
                const float *x = f->x + r * f->x_stride + k + part;
                __m512 s = sum[r];
                UNROLL
                for (int i = 0; i < 8; i++) s = _mm512_fmadd_ps(_mm512_set1_ps(x[i]), t[i], s);
                sum[r] = s;
            }
        }
    }
    flat_rest(sum, f, lines, k);
    const __mmask16 columns = (__mmask16)((1u << min_i64(FLAT_GROUP, f->n - j)) - 1);
    for (int64_t r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(f->y + r * f->y_stride + j, columns, sum[r]);
    }
}

AVX512 static void flat(const gemm_flat *f)
{
    if (f->w_type != DTYPE_BF16) {
        gemm_avx2_flat(f);
        return;
    }
    for (int64_t j = 0; j < f->n; j += FLAT_GROUP) {
        if (f->rows == 1) {
            flat_columns(f, j, 1);
        } else {
            flat_columns(f, j, f->rows);
        }
    }
}

const gemm_unit gemm_unit_avx512 = {
    .level = KERN_AVX512,
    .steps = 1,
    .mr = MR,
    .nr = NR,
    .ahead = AHEAD,
    .kernel = kernel,
    .pack = gemm_avx2_pack,
    .load = gemm_avx2_load,
    .store = gemm_avx2_store,
    .stream = gemm_avx2_stream,
    .flat = flat,
};
