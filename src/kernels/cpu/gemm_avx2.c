// Matrix products with AVX2 and FMA: tiles of 6 rows and 16 columns.
//
// 12 accumulators, 2 vectors of B and 2 of A fill the 16 registers; 12 fma per step of k against 8
// loads keep both multipliers of a core busy (one fma has a latency of 4, two start per cycle, so
// at least 8 must be on their way). Measured on Zen 3: see bench/RESULTS.md.
#include "kernels/cpu/gemm_unit.h"

#include <immintrin.h>
#include <string.h>

#define AVX2      __attribute__((target("avx2,fma,f16c")))
#define AVX2_LEAF static inline AVX2 __attribute__((always_inline))

enum { MR = 6, NR = 16 };

// ---- micro-kernel -------------------------------------------------------------------------------
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)

AVX2 static void kernel(const float *a, const float *b, float *c, int64_t ldc, int64_t kc,
                        bool from_zero)
{
#define DECLARE(i) __m256 l##i = _mm256_setzero_ps(), h##i = _mm256_setzero_ps();
#define LOAD(i)                          \
    l##i = _mm256_loadu_ps(c + i * ldc); \
    h##i = _mm256_loadu_ps(c + i * ldc + 8);
#define PREFETCH(i) _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
#define STEP(i)                                      \
    {                                                \
        const __m256 x = _mm256_broadcast_ss(a + i); \
        l##i = _mm256_fmadd_ps(x, low, l##i);        \
        h##i = _mm256_fmadd_ps(x, high, h##i);       \
    }
#define STORE(i)                         \
    _mm256_storeu_ps(c + i * ldc, l##i); \
    _mm256_storeu_ps(c + i * ldc + 8, h##i);

    EACH_ROW(DECLARE)
    if (from_zero) {
        EACH_ROW(PREFETCH)
    } else {
        EACH_ROW(LOAD)
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
        EACH_ROW(STEP)
    }
    EACH_ROW(STORE)
#undef DECLARE
#undef LOAD
#undef PREFETCH
#undef STEP
#undef STORE
}

// ---- types --------------------------------------------------------------------------------------
AVX2_LEAF __m256 load8(const void *data, int64_t index, dtype type)
{
    if (type == DTYPE_F32) return _mm256_loadu_ps((const float *)data + index);
    const __m128i bits = _mm_loadu_si128((const void *)((const uint16_t *)data + index));
    if (type == DTYPE_F16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// As bf16_from_f32: nearest even, a NaN stays one.
AVX2_LEAF __m128i bf16_round(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i out = _mm256_blendv_epi8(_mm256_srli_epi32(near, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}

AVX2 void gemm_avx2_load(float *out, const void *data, dtype type, int64_t n)
{
    int64_t i = 0;
    if (type == DTYPE_F32) {
        memcpy(out, data, (size_t)n * sizeof(float));
        return;
    }
    if (type == DTYPE_BF16) {
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, load8(data, i, DTYPE_BF16));
    } else {
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, load8(data, i, DTYPE_F16));
    }
    for (; i < n; i++) out[i] = gemm_load_one(type, data, i);
}

AVX2 void gemm_avx2_store(void *data, dtype type, const float *values, int64_t n)
{
    if (type == DTYPE_F32) {
        memcpy(data, values, (size_t)n * sizeof(float));
        return;
    }
    uint16_t *out = data;
    int64_t i = 0;
    if (type == DTYPE_BF16) {
        for (; i + 8 <= n; i += 8) {
            _mm_storeu_si128((void *)(out + i), bf16_round(_mm256_loadu_ps(values + i)));
        }
        for (; i < n; i++) out[i] = bf16_from_f32(values[i]);
        return;
    }
    for (; i + 8 <= n; i += 8) {
        const __m128i bits =
            _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((void *)(out + i), bits);
    }
    for (; i < n; i++) out[i] = f16_from_f32(values[i]);
}

// ---- packing ------------------------------------------------------------------------------------
// Turns r[i] = line i, elements k..k+7 into r[i] = element k+i of lines 0..7.
AVX2_LEAF void turn8(__m256 r[8])
{
    const __m256 a0 = _mm256_unpacklo_ps(r[0], r[1]), a1 = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 a2 = _mm256_unpacklo_ps(r[2], r[3]), a3 = _mm256_unpackhi_ps(r[2], r[3]);
    const __m256 a4 = _mm256_unpacklo_ps(r[4], r[5]), a5 = _mm256_unpackhi_ps(r[4], r[5]);
    const __m256 a6 = _mm256_unpacklo_ps(r[6], r[7]), a7 = _mm256_unpackhi_ps(r[6], r[7]);
    const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
    const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
    const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
    const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
    r[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
    r[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
    r[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
    r[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
    r[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
    r[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
    r[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
    r[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

// Panels are 6, 14 (6 + 8), 16 or 32 lines wide: strips of 8 and at most one of 6.
AVX2_LEAF void put(float *out, __m256 x, bool six)
{
    if (!six) {
        _mm256_storeu_ps(out, x);
        return;
    }
    _mm_storeu_ps(out, _mm256_castps256_ps128(x));
    _mm_storel_pi((void *)(out + 4), _mm256_extractf128_ps(x, 1));
}

// A strip whose lines' elements follow each other along k, to out[k * width + 0..7].
AVX2_LEAF void strip_along_k(float *out, int64_t width, const gemm_lines *l, int64_t first,
                             dtype type, bool six)
{
    const int64_t count = min_i64(six ? 6 : 8, l->count - first), begin = first * l->line_stride;
    int64_t k = 0;
    for (; k + 8 <= l->kc; k += 8) {
        __m256 r[8];
        for (int i = 0; i < 8; i++) {
            r[i] = i < count ? load8(l->data, begin + i * l->line_stride + k, type)
                             : _mm256_setzero_ps();
        }
        turn8(r);
        for (int i = 0; i < 8; i++) put(out + (k + i) * width, r[i], six);
    }
    for (; k < l->kc; k++) {
        float line[8] = {0};
        for (int64_t i = 0; i < count; i++) {
            line[i] = gemm_load_one(type, l->data, begin + i * l->line_stride + k);
        }
        put(out + k * width, _mm256_loadu_ps(line), six);
    }
}

// A strip whose lines lie side by side, steps [k, end).
AVX2_LEAF void strip_across(float *out, int64_t width, const gemm_lines *l, int64_t first,
                            int64_t k, int64_t end, dtype type, bool six)
{
    if (first + 8 <= l->count) {
        for (; k < end; k++) {
            put(out + k * width, load8(l->data, k * l->k_stride + first, type), six);
        }
        return;
    }
    for (; k < end; k++) {
        float line[8] = {0};
        for (int64_t i = 0; first + i < l->count; i++) {
            line[i] = gemm_load_one(type, l->data, k * l->k_stride + first + i);
        }
        put(out + k * width, _mm256_loadu_ps(line), six);
    }
}

// Lines side by side: 16 steps of k at a time over all panels, so that each piece of memory is read
// on when it is open, and few pages are in use at once.
enum { ACROSS_STEPS = 16 };

AVX2_LEAF void pack_typed(float *panels, int64_t width, const gemm_lines *l, dtype type)
{
    const int64_t strips = (width + 7) / 8;
    if (l->k_stride == 1) {
        for (int64_t first = 0; first < l->count; first += width, panels += width * l->kc) {
            for (int64_t s = 0; s < strips; s++) {
                const bool six = width - s * 8 == 6;
                if (six) {
                    strip_along_k(panels + s * 8, width, l, first + s * 8, type, true);
                } else {
                    strip_along_k(panels + s * 8, width, l, first + s * 8, type, false);
                }
            }
        }
        return;
    }
    for (int64_t k = 0; k < l->kc; k += ACROSS_STEPS) {
        const int64_t end = min_i64(k + ACROSS_STEPS, l->kc);
        float *panel = panels;
        for (int64_t first = 0; first < l->count; first += width, panel += width * l->kc) {
            for (int64_t s = 0; s < strips; s++) {
                const bool six = width - s * 8 == 6;
                if (six) {
                    strip_across(panel + s * 8, width, l, first + s * 8, k, end, type, true);
                } else {
                    strip_across(panel + s * 8, width, l, first + s * 8, k, end, type, false);
                }
            }
        }
    }
}

AVX2 void gemm_avx2_pack(float *panels, int64_t width, const gemm_lines *l)
{
    if (l->k_stride != 1 && l->line_stride != 1) {
        gemm_pack_any(panels, width, l);
    } else if (l->type == DTYPE_F32) {
        pack_typed(panels, width, l, DTYPE_F32);
    } else if (l->type == DTYPE_BF16) {
        pack_typed(panels, width, l, DTYPE_BF16);
    } else {
        pack_typed(panels, width, l, DTYPE_F16);
    }
}

// ---- few rows -----------------------------------------------------------------------------------
// Eight rows of w at a time are turned in registers, so that a lane is a column of y and k runs in
// order: the same fold as in the tiles. Two such groups hide each other's latency.
AVX2_LEAF void flat_fold(__m256 *sum, const gemm_flat *f, const __m256 turned[8], int64_t rows,
                         int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *x = f->x + r * f->x_stride + k;
        __m256 s = sum[r];
        for (int i = 0; i < 8; i++) s = _mm256_fmadd_ps(_mm256_broadcast_ss(x + i), turned[i], s);
        sum[r] = s;
    }
}

// Columns [j, j + 8) of y, or fewer at the end: missing rows of w are read as the last one.
AVX2_LEAF void flat_columns(const gemm_flat *f, int64_t j, int groups, int64_t rows, dtype type)
{
    int64_t at[16];
    for (int i = 0; i < 8 * groups; i++) at[i] = min_i64(j + i, f->n - 1) * f->w_stride;
    __m256 sum[2][GEMM_FLAT_ROWS];
    for (int64_t r = 0; r < rows; r++) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
    int64_t k = 0;
    for (; k + 8 <= f->k; k += 8) {
        for (int g = 0; g < groups; g++) {
            __m256 t[8];
            for (int i = 0; i < 8; i++) t[i] = load8(f->w, at[g * 8 + i] + k, type);
            turn8(t);
            flat_fold(sum[g], f, t, rows, k);
        }
    }
    for (; k < f->k; k++) {
        for (int g = 0; g < groups; g++) {
            float line[8];
            for (int i = 0; i < 8; i++) line[i] = gemm_load_one(type, f->w, at[g * 8 + i] + k);
            const __m256 w = _mm256_loadu_ps(line);
            for (int64_t r = 0; r < rows; r++) {
                const __m256 x = _mm256_broadcast_ss(f->x + r * f->x_stride + k);
                sum[g][r] = _mm256_fmadd_ps(x, w, sum[g][r]);
            }
        }
    }
    for (int g = 0; g < groups; g++) {
        const int64_t first = j + g * 8, count = min_i64(8, f->n - first);
        for (int64_t r = 0; r < rows && count > 0; r++) {
            float line[8];
            _mm256_storeu_ps(line, sum[g][r]);
            memcpy(f->y + r * f->y_stride + first, line, (size_t)count * sizeof(float));
        }
    }
}

AVX2_LEAF void flat_typed(const gemm_flat *f, dtype type)
{
    for (int64_t j = 0; j < f->n; j += 16) {
        if (f->rows == 1) {
            flat_columns(f, j, 2, 1, type);
        } else {
            flat_columns(f, j, 2, f->rows, type);
        }
    }
}

AVX2 void gemm_avx2_flat(const gemm_flat *f)
{
    if (f->w_type == DTYPE_F32) {
        flat_typed(f, DTYPE_F32);
    } else if (f->w_type == DTYPE_BF16) {
        flat_typed(f, DTYPE_BF16);
    } else {
        flat_typed(f, DTYPE_F16);
    }
}

const gemm_unit gemm_unit_avx2 = {
    .level = KERN_AVX2,
    .mr = MR,
    .nr = NR,
    .kernel = kernel,
    .pack = gemm_avx2_pack,
    .load = gemm_avx2_load,
    .store = gemm_avx2_store,
    .flat = gemm_avx2_flat,
};
