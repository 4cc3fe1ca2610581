// GEMMs in plain C: the same sequential sums as the vector units, one fma at a time.
//
// For machines without AVX2, and as the reference of the vector units. fmaf rounds once on every
// machine, in software if there is no instruction for it.
#include "kernels/cpu/gemm_unit.h"

#include <math.h>
#include <string.h>

enum { MR = 4, NR = 8 };

float gemm_load_one(dtype type, const void *data, int64_t index)
{
    if (type == DTYPE_F32) return ((const float *)data)[index];
    const uint16_t bits = ((const uint16_t *)data)[index];
    return type == DTYPE_BF16 ? f32_from_bf16(bits) : f32_from_f16(bits);
}

void gemm_pack_any(float *panels, int64_t width, const gemm_lines *lines)
{
    for (int64_t first = 0; first < lines->count; first += width) {
        const int64_t count = min_i64(width, lines->count - first);
        for (int64_t k = 0; k < lines->kc; k++, panels += width) {
            const int64_t at = first * lines->line_stride + k * lines->k_stride;
            for (int64_t i = 0; i < count; i++) {
                panels[i] = gemm_load_one(lines->type, lines->data, at + i * lines->line_stride);
            }
            for (int64_t i = count; i < width; i++) panels[i] = 0.0f;
        }
    }
}

static void kernel(const float *a, const float *b, gemm_sums from, gemm_sums to, int64_t kc,
                   const float *ahead, gemm_fetch later)
{
    (void)ahead;
    (void)later;
    float sum[MR][NR] = {0};
    for (int i = 0; i < MR && from.at != NULL; i++) {
        memcpy(sum[i], from.at + i * from.stride, sizeof(sum[i]));
    }
    for (int64_t k = 0; k < kc; k++) {
        for (int i = 0; i < MR; i++) {
            for (int j = 0; j < NR; j++) sum[i][j] = fmaf(a[k * MR + i], b[k * NR + j], sum[i][j]);
        }
    }
    for (int i = 0; i < MR; i++) memcpy(to.at + i * to.stride, sum[i], sizeof(sum[i]));
}

static void load(float *out, const void *data, dtype type, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = gemm_load_one(type, data, i);
}

static void store(void *data, dtype type, const float *values, int64_t n)
{
    if (type == DTYPE_F32) {
        memcpy(data, values, (size_t)n * sizeof(float));
        return;
    }
    uint16_t *out = data;
    for (int64_t i = 0; i < n; i++) {
        out[i] = type == DTYPE_BF16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]);
    }
}

const gemm_unit gemm_unit_scalar = {
    .level = KERN_SCALAR,
    .steps = 1,
    .mr = MR,
    .nr = NR,
    .kernel = kernel,
    .pack = gemm_pack_any,
    .load = load,
    .store = store,
    .stream = store,
};
