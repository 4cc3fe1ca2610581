// Numbers held within a bound (op/clamp.c). A NaN stays one.
#include "kernels/ref/ref.h"

status ref_clamp(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    const double cap = (double)c->attrs.cap;
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            const double v = ref_get(x, i, j);
            ref_put(y, i, j, v > cap ? cap : v < -cap ? -cap : v);
        }
    }
    return ST_OK;
}

status ref_clamp_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *dy = &c->in[1], *dx = &c->out[0];
    for (int64_t i = 0; i < ref_rows(dx); i++) {
        for (int64_t j = 0; j < ref_columns(dx); j++) {
            const bool passes = fabs(ref_get(x, i, j)) <= (double)c->attrs.cap;
            ref_put(dx, i, j, passes ? ref_get(dy, i, j) : 0.0);
        }
    }
    return ST_OK;
}
