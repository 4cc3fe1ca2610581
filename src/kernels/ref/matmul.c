// Naive GEMMs: one dot product in double per element of the output. Weights are stored (out, in),
// as in Hugging Face files: y = x w^T.
#include "kernels/ref/ref.h"

status ref_matmul(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    const kern_tensor *x = &c->in[0], *w = &c->in[1], *bias = &c->in[2], *y = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        for (int64_t m = 0; m < w->dims[0]; m++) {
            double sum = ref_has(bias) ? ref_get(bias, 0, m) : 0.0;
            for (int64_t k = 0; k < x->dims[1]; k++) sum += ref_get(x, n, k) * ref_get(w, m, k);
            ref_put(y, n, m, ref_activation_value(c->attrs.activation, sum));
        }
    }
    return ST_OK;
}

status ref_matmul_dx(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    const kern_tensor *dy = &c->in[0], *w = &c->in[1], *before = &c->in[2], *dx = &c->out[0];
    for (int64_t n = 0; n < dy->dims[0]; n++) {
        for (int64_t k = 0; k < w->dims[1]; k++) {
            double sum = ref_has(before) ? ref_get(before, n, k) : 0.0;
            for (int64_t m = 0; m < w->dims[0]; m++) sum += ref_get(dy, n, m) * ref_get(w, m, k);
            ref_put(dx, n, k, sum);
        }
    }
    return ST_OK;
}

status ref_matmul_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    const kern_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
    for (int64_t m = 0; m < dw->dims[0]; m++) {
        for (int64_t k = 0; k < dw->dims[1]; k++) {
            ref_total total = ref_total_begin(dw, c->accumulate, m, k);
            for (int64_t n = 0; n < dy->dims[0]; n++) {
                ref_total_add(&total, ref_get(dy, n, m), ref_get(x, n, k));
            }
            ref_total_end(&total, dw, m, k);
        }
    }
    return ST_OK;
}

status ref_bias_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *db = &c->out[0];
    for (int64_t m = 0; m < db->dims[0]; m++) {
        ref_total total = ref_total_begin(db, c->accumulate, 0, m);
        for (int64_t n = 0; n < dy->dims[0]; n++) ref_total_add(&total, ref_get(dy, n, m), 1.0);
        ref_total_end(&total, db, 0, m);
    }
    return ST_OK;
}
