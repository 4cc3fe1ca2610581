// Operations around a sum that is split over ranks: the terms of one rank, and the operations after
// the sum.
#include "kernels/ref/ref.h"
#include "op/zigzag.h"

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

// Adds neighbours first, then the sums of neighbours.
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

status ref_unpack(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t repeat = max_i64(c->attrs.repeat, 1);
    for (int64_t i = 0; i < y->dims[0]; i++) {
        for (int64_t j = 0; j < y->dims[1]; j++) {
            const int64_t tile = j / x->dims[1] * repeat;
            double sum = 0.0;
            for (int64_t k = tile; k < tile + repeat; k++) {
                const double term = ref_get(x, k * y->dims[0] + i, j % x->dims[1]);
                sum = k == tile ? term : sum + term;
            }
            ref_put(y, i, j, sum);
        }
    }
    return ST_OK;
}

status ref_pack(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t repeat = max_i64(c->attrs.repeat, 1);
    for (int64_t i = 0; i < y->dims[0]; i++) {
        const int64_t tile = i / x->dims[0];
        for (int64_t j = 0; j < y->dims[1]; j++) {
            ref_put(y, i, j, ref_get(x, i % x->dims[0], tile / repeat * y->dims[1] + j));
        }
    }
    return ST_OK;
}

status ref_zigzag(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        const int64_t other =
            zigzag_ordered_row(c->piece.shard_count, c->piece.cp_turns, x->dims[0], c->seq, i);
        for (int64_t j = 0; j < y->dims[1]; j++) {
            if (c->attrs.inverse) {
                ref_put(y, i, j, ref_get(x, other, j));
            } else {
                ref_put(y, other, j, ref_get(x, i, j));
            }
        }
    }
    return ST_OK;
}
