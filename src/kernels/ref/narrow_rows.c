// Rows of 8-bit numbers with a factor each (op/narrow_rows.c), element by element.
#include "kernels/ref/ref.h"

#include <math.h>

static int row_exponent(const kern_tensor *x, int64_t n)
{
    double most = 0.0;
    for (int64_t j = 0; j < x->dims[1]; j++) most = fmax(most, fabs(ref_get(x, n, j)));
    return fp8_exponent((float)most, FP8_E4M3, FP8_ROW_EXPONENT_MOST);
}

status ref_narrow_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *q = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const int k = row_exponent(x, n);
        for (int64_t j = 0; j < x->dims[1]; j++) {
            const float scaled = (float)ldexp(ref_get(x, n, j), k);
            ref_put(q, n, j,
                    (double)f8e4m3_from_f32(scaled, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0));
        }
        ref_put(q, n, x->dims[1], (double)(k + FP8_ROW_EXPONENT_BIAS));
    }
    return ST_OK;
}

status ref_widen_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *q = &c->in[0], *y = &c->out[0];
    for (int64_t n = 0; n < y->dims[0]; n++) {
        const int k = (int)ref_get(q, n, y->dims[1]) - FP8_ROW_EXPONENT_BIAS;
        for (int64_t j = 0; j < y->dims[1]; j++) {
            ref_put(y, n, j, ldexp((double)f32_from_f8e4m3((uint8_t)ref_get(q, n, j)), -k));
        }
    }
    return ST_OK;
}
