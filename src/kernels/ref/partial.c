// Operations that stand where a sum is cut: the terms that one rank has, and what comes after the sum.
#include "kernels/ref/ref.h"

status ref_add_bias(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *bias = &c->in[1], *y = &c->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        for (int64_t j = 0; j < y->dims[1]; j++) {
            ref_put(y, i, j, ref_get(x, i, j) + ref_get(bias, 0, j));
        }
    }
    return ST_OK;
}

// Neighbours first, then neighbours of those.
status ref_sum(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *y = &c->out[0];
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            double terms[OP_MAX_IN];
            int count = 0;
            for (; count < OP_MAX_IN && ref_has(&c->in[count]); count++) {
                terms[count] = ref_get(&c->in[count], i, j);
            }
            for (int width = 1; width < count; width *= 2) {
                for (int k = 0; k + width < count; k += 2 * width) terms[k] += terms[k + width];
            }
            ref_put(y, i, j, terms[0]);
        }
    }
    return ST_OK;
}

status ref_unstack(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        for (int64_t j = 0; j < y->dims[1]; j++) {
            const int64_t tile = j / x->dims[1];
            ref_put(y, i, j, ref_get(x, tile * y->dims[0] + i, j % x->dims[1]));
        }
    }
    return ST_OK;
}
