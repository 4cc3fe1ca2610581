// GEMM micro-kernels with AVX2 and FMA: tiles of 6 rows and 16 columns.
//
// 12 accumulators, 2 vectors of B and 2 of A fill the 16 registers. 12 fma per step of k and 8
// loads keep both multipliers of a core busy (an fma has a latency of 4 and two start per cycle, so
// at least 8 must be in flight). bench/RESULTS.md has measurements on Zen 3.
#include "kernels/cpu/gemm_unit.h"

#include <immintrin.h>
#include <string.h>

#define AVX2      __attribute__((target("avx2,fma,f16c")))
#define AVX2_LEAF static inline AVX2 __attribute__((always_inline))

// Compilers keep arrays of vectors in registers only if the loops over them are unrolled.
#define UNROLL _Pragma("GCC unroll 16")

enum { MR = 6, NR = 16, AHEAD = 2 };

// ---- micro-kernel -------------------------------------------------------------------------------
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)

AVX2 static void kernel(const float *a, const float *b, gemm_sums from, gemm_sums to, int64_t kc,
                        const float *ahead, gemm_fetch later)
{
#define DECLARE(i) __m256 l##i = _mm256_setzero_ps(), h##i = _mm256_setzero_ps();
#define LOAD(i)                                        \
    l##i = _mm256_loadu_ps(from.at + i * from.stride); \
    h##i = _mm256_loadu_ps(from.at + i * from.stride + 8);
#define PREFETCH(i) _mm_prefetch((const char *)(to.at + i * to.stride), _MM_HINT_T0);
#define STEP(i)                                      \
    {                                                \
        const __m256 x = _mm256_broadcast_ss(a + i); \
        l##i = _mm256_fmadd_ps(x, low, l##i);        \
        h##i = _mm256_fmadd_ps(x, high, h##i);       \
    }
#define STEPS                                                                 \
    {                                                                         \
        const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8); \
        EACH_ROW(STEP)                                                        \
    }
#define STORE(i)                                   \
    _mm256_storeu_ps(to.at + i * to.stride, l##i); \
    _mm256_storeu_ps(to.at + i * to.stride + 8, h##i);

    EACH_ROW(DECLARE)
    if (from.at != NULL) {
        EACH_ROW(LOAD)
    }
    EACH_ROW(PREFETCH)
    int64_t k = 0;
    for (; k + 8 <= kc; k += 8, ahead += 8 * AHEAD, later.at += 2 * later.stride) {
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        _mm_prefetch(later.at, _MM_HINT_T1);
        _mm_prefetch(later.at + later.stride, _MM_HINT_T1);
        UNROLL
        for (int i = 0; i < 8; i++, a += MR, b += NR) STEPS
    }
    for (; k < kc; k++, a += MR, b += NR) STEPS
    EACH_ROW(STORE)
#undef DECLARE
#undef LOAD
#undef PREFETCH
#undef STEP
#undef STEPS
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

// Rounds like bf16_from_f32: to nearest even; a NaN stays one.
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

AVX2 void gemm_avx2_stream(void *data, dtype type, const float *values, int64_t n)
{
    enum { LINE = 64 };
    if (type == DTYPE_F16) {
        gemm_avx2_store(data, type, values, n);
        return;
    }
    const int64_t width = type == DTYPE_F32 ? 4 : 2, in_line = LINE / width;
    const int64_t before = (int64_t)(-(uintptr_t)data % LINE) / width;
    int64_t i = min_i64(before, n);
    gemm_avx2_store(data, type, values, i);
    char *line = (char *)data + i * width;
    for (; i + in_line <= n; i += in_line, line += LINE) {
        const float *v = values + i;
        __m256i low, high;
        if (type == DTYPE_F32) {
            low = _mm256_castps_si256(_mm256_loadu_ps(v));
            high = _mm256_castps_si256(_mm256_loadu_ps(v + 8));
        } else {
            low = _mm256_setr_m128i(bf16_round(_mm256_loadu_ps(v)),
                                    bf16_round(_mm256_loadu_ps(v + 8)));
            high = _mm256_setr_m128i(bf16_round(_mm256_loadu_ps(v + 16)),
                                     bf16_round(_mm256_loadu_ps(v + 24)));
        }
        _mm256_stream_si256((void *)line, low);
        _mm256_stream_si256((void *)(line + LINE / 2), high);
    }
    gemm_avx2_store(line, type, values + i, n - i);
}

// ---- packing ------------------------------------------------------------------------------------
// Loads 32-bit word i of lines 0..7 at p into t[i]. Halves of lines i and i + 4 are loaded into one
// register, which saves 8 of 24 shuffles.
AVX2_LEAF __m256 halves(const void *low, const void *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

AVX2_LEAF void turn4(__m256 *t, __m256 r0, __m256 r1, __m256 r2, __m256 r3)
{
    const __m256 a = _mm256_unpacklo_ps(r0, r1), b = _mm256_unpackhi_ps(r0, r1);
    const __m256 c = _mm256_unpacklo_ps(r2, r3), d = _mm256_unpackhi_ps(r2, r3);
    t[0] = _mm256_shuffle_ps(a, c, 0x44);
    t[1] = _mm256_shuffle_ps(a, c, 0xee);
    t[2] = _mm256_shuffle_ps(b, d, 0x44);
    t[3] = _mm256_shuffle_ps(b, d, 0xee);
}

AVX2_LEAF void turn8(__m256 t[8], const char *const p[8], int64_t byte)
{
    turn4(t, halves(p[0] + byte, p[4] + byte), halves(p[1] + byte, p[5] + byte),
          halves(p[2] + byte, p[6] + byte), halves(p[3] + byte, p[7] + byte));
    byte += 16;
    turn4(t + 4, halves(p[0] + byte, p[4] + byte), halves(p[1] + byte, p[5] + byte),
          halves(p[2] + byte, p[6] + byte), halves(p[3] + byte, p[7] + byte));
}

// Loads element k + i of lines 0..7, in fp32, into t[i]; STEPS elements at a time. In bf16 a word
// holds two elements, the first one in the lower half.
AVX2_LEAF int64_t steps_of(dtype type)
{
    return type == DTYPE_BF16 ? 16 : 8;
}

AVX2_LEAF void turn_steps(__m256 t[16], const char *const p[8], int64_t k, dtype type)
{
    if (type == DTYPE_F32) {
        turn8(t, p, k * 4);
    } else if (type == DTYPE_BF16) {
        __m256 words[8];
        turn8(words, p, k * 2);
        const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u));
        UNROLL
        for (int64_t i = 0; i < 8; i++) {
            t[2 * i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words[i]), 16));
            t[2 * i + 1] = _mm256_and_ps(words[i], upper);
        }
    } else {
        float wide[8][8];
        const char *lines[8];
        UNROLL
        for (int i = 0; i < 8; i++) {
            _mm256_storeu_ps(wide[i], load8(p[i], k, DTYPE_F16));
            lines[i] = (const char *)wide[i];
        }
        turn8(t, lines, 0);
    }
}

// Panels are 6, 14 (6 + 8), 16 or 32 lines wide: strips of 8 lines and at most one of 6.
AVX2_LEAF void put(float *out, __m256 x, bool six)
{
    if (!six) {
        _mm256_storeu_ps(out, x);
        return;
    }
    _mm_storeu_ps(out, _mm256_castps256_ps128(x));
    _mm_storel_pi((void *)(out + 4), _mm256_extractf128_ps(x, 1));
}

// Packs a strip whose lines are contiguous along k, to out[k * width + 0..7].
AVX2_LEAF void strip_along_k(float *out, int64_t width, const gemm_lines *l, int64_t first,
                             dtype type, bool six)
{
    const int64_t width_bytes = type == DTYPE_F32 ? 4 : 2, steps = steps_of(type);
    const char *lines[8];
    for (int i = 0; i < 8; i++) {
        const int64_t line = min_i64(first + i, l->count - 1);
        lines[i] = (const char *)l->data + line * l->line_stride * width_bytes;
    }
    int64_t k = 0;
    for (; k + steps <= l->kc; k += steps) {
        __m256 t[16];
        turn_steps(t, lines, k, type);
        UNROLL
        for (int i = 0; i < steps; i++) put(out + (k + i) * width, t[i], six);
    }
    for (; k < l->kc; k++) {
        float line[8];
        for (int i = 0; i < 8; i++) line[i] = gemm_load_one(type, lines[i], k);
        put(out + k * width, _mm256_loadu_ps(line), six);
    }
}

// Packs steps [k, end) of a strip whose lines are contiguous across k.
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

// Lines that are contiguous across k are packed 16 steps of k at a time over all panels, so that
// each open row of memory is read to its end, and few pages are in use at once.
enum { ACROSS_STEPS = 16 };

// Prefetches the next steps. Each step is in another piece of memory, which the hardware does not
// predict.
AVX2_LEAF void prefetch_across(const gemm_lines *l, int64_t k, int64_t end, dtype type)
{
    const int64_t width = type == DTYPE_F32 ? 4 : 2;
    for (; k < end; k++) {
        const char *line = (const char *)l->data + k * l->k_stride * width;
        for (int64_t byte = 0; byte < l->count * width; byte += 64) {
            _mm_prefetch(line + byte, _MM_HINT_T0);
        }
    }
}

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
        prefetch_across(l, end, min_i64(end + ACROSS_STEPS, l->kc), type);
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
// Eight rows of w at a time are transposed in registers, so that a lane is a column of y and k runs
// in order: the same sum as in the tiles. Two such groups hide each other's latency.
enum { FLAT_GROUP = 16 }; // columns of y at a time

AVX2_LEAF void flat_sum(__m256 *sum, const gemm_flat *f, const __m256 *transposed, int64_t steps,
                        int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *x = f->x + r * f->x_stride + k;
        __m256 s = sum[r];
        UNROLL
        for (int i = 0; i < steps; i++)
            s = _mm256_fmadd_ps(_mm256_broadcast_ss(x + i), transposed[i], s);
        sum[r] = s;
    }
}

// Adds the steps after the last whole group of steps.
AVX2_LEAF void flat_rest(__m256 sum[2][GEMM_FLAT_ROWS], const gemm_flat *f,
                         const char *const *lines, int64_t k, dtype type)
{
    for (; k < f->k; k++) {
        for (int64_t g = 0; g < 2; g++) {
            float line[8];
            for (int i = 0; i < 8; i++) line[i] = gemm_load_one(type, lines[g * 8 + i], k);
            const __m256 w = _mm256_loadu_ps(line);
            for (int64_t r = 0; r < f->rows; r++) {
                const __m256 x = _mm256_broadcast_ss(f->x + r * f->x_stride + k);
                sum[g][r] = _mm256_fmadd_ps(x, w, sum[g][r]);
            }
        }
    }
}

// Computes columns [j, j + 16) of y, or fewer at the end, where the last row of w stands in for
// missing rows.
AVX2_LEAF void flat_columns(const gemm_flat *f, int64_t j, int64_t rows, dtype type)
{
    const int64_t width = type == DTYPE_F32 ? 4 : 2, steps = steps_of(type);
    // Prefetches the next group, line after line in the order of memory: interleaving its rows
    // would read at 16 addresses at a time, which takes memory a third longer (Zen 3, 2026-11-21).
    // The prefetch goes to the L2 cache, which can have more lines in flight than L1: 30 GB/s of
    // weights instead of 18 to 25 (Zen 4, 2026-11-22), as fast as reading alone.
    const char *ahead = (const char *)f->w + (j + FLAT_GROUP) * f->w_stride * width;
    const char *lines[FLAT_GROUP];
    for (int i = 0; i < FLAT_GROUP; i++) {
        lines[i] = (const char *)f->w + min_i64(j + i, f->n - 1) * f->w_stride * width;
    }
    __m256 sum[2][GEMM_FLAT_ROWS];
    for (int64_t r = 0; r < rows; r++) sum[0][r] = sum[1][r] = _mm256_setzero_ps();
    int64_t k = 0;
    for (; k + steps <= f->k; k += steps) {
        UNROLL
        for (int64_t i = 0; i < FLAT_GROUP * steps * width / 64; i++) {
            _mm_prefetch(ahead + i * 64, _MM_HINT_T1);
        }
        ahead += FLAT_GROUP * steps * width;
        UNROLL
        for (int64_t g = 0; g < 2; g++) {
            __m256 t[16];
            turn_steps(t, lines + g * 8, k, type);
            flat_sum(sum[g], f, t, steps, rows, k);
        }
    }
    flat_rest(sum, f, lines, k, type);
    for (int64_t g = 0; g < 2; g++) {
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
    for (int64_t j = 0; j < f->n; j += FLAT_GROUP) {
        if (f->rows == 1) {
            flat_columns(f, j, 1, type);
        } else {
            flat_columns(f, j, f->rows, type);
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
    .steps = 1,
    .mr = MR,
    .nr = NR,
    .ahead = AHEAD,
    .kernel = kernel,
    .pack = gemm_avx2_pack,
    .load = gemm_avx2_load,
    .store = gemm_avx2_store,
    .stream = gemm_avx2_stream,
    .flat = gemm_avx2_flat,
};
