// A factor and a soft cap for each element (op/scale.c), and the gradient of attention's sinks.
#include "kernels/ref/ref.h"

status ref_scale(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            ref_put(y, i, j, ref_get(x, i, j) * (double)c->attrs.scale);
        }
    }
    return ST_OK;
}

status ref_soft_cap(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    const double cap = (double)c->attrs.cap;
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            ref_put(y, i, j, cap * tanh(ref_get(x, i, j) / cap));
        }
    }
    return ST_OK;
}

// The probability of a sink is exp(sink - lse), because lse counts it.
status ref_sinks_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *y = &c->in[1], *lse = &c->in[2], *sinks = &c->in[3];
    const kern_tensor *out = &c->out[0];
    const int64_t heads = out->dims[0], dim = y->dims[1] / heads;
    for (int64_t h = 0; h < heads; h++) {
        ref_total total = ref_total_begin(out, c->accumulate, 0, h);
        for (int64_t i = 0; i < y->dims[0]; i++) {
            double dot = 0.0;
            for (int64_t d = h * dim; d < (h + 1) * dim; d++) {
                dot += ref_get(dy, i, d) * ref_get(y, i, d);
            }
            ref_total_add(&total, -exp(ref_get(sinks, 0, h) - ref_get(lse, i, h)), dot);
        }
        ref_total_end(&total, out, 0, h);
    }
    return ST_OK;
}
