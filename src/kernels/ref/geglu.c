// a = gelu(gate) * up, the halves of h, and its gradient: see op/geglu.c.
#include "kernels/ref/ref.h"

status ref_geglu(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *h = &c->in[0], *a = &c->out[0];
    const int64_t width = a->dims[1];
    for (int64_t i = 0; i < a->dims[0]; i++) {
        for (int64_t j = 0; j < width; j++) {
            const double gate = ref_get(h, i, j), up = ref_get(h, i, width + j);
            ref_put(a, i, j, ref_activation_value(c->attrs.activation, gate) * up);
        }
    }
    return ST_OK;
}

status ref_geglu_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *h = &c->in[0], *da = &c->in[1], *dh = &c->out[0];
    const int64_t width = da->dims[1];
    for (int64_t i = 0; i < da->dims[0]; i++) {
        for (int64_t j = 0; j < width; j++) {
            const double gate = ref_get(h, i, j), up = ref_get(h, i, width + j);
            const double d = ref_get(da, i, j);
            ref_put(dh, i, j, d * up * ref_activation_slope(c->attrs.activation, gate));
            ref_put(dh, i, width + j, d * ref_activation_value(c->attrs.activation, gate));
        }
    }
    return ST_OK;
}
