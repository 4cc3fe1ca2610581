// Lengths of the rows of a weight with its adapter, and factors that they give (op/magnitude.c).
#include "kernels/ref/ref.h"

status ref_row_squares(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *w = &c->in[0], *a = &c->in[1], *b = &c->in[2], *out = &c->out[0];
    for (int64_t m = 0; m < w->dims[0]; m++) {
        double sum = 0.0;
        for (int64_t k = 0; k < w->dims[1]; k++) {
            double term = 0.0;
            for (int64_t r = 0; r < a->dims[0]; r++) term += ref_get(b, m, r) * ref_get(a, r, k);
            const double v = ref_get(w, m, k) + (double)c->attrs.scale * term;
            sum += v * v;
        }
        ref_put(out, 0, m, sum);
    }
    return ST_OK;
}

// A row of zeros has no direction: its factor is 0.
static double inverse_length(double square)
{
    return square > 0.0 ? 1.0 / sqrt(square) : 0.0;
}

status ref_magnitude(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *m = &c->in[1], *squares = &c->in[2], *y = &c->out[0];
    for (int64_t j = 0; j < y->dims[1]; j++) {
        const double factor = ref_get(m, 0, j) * inverse_length(ref_get(squares, 0, j));
        for (int64_t i = 0; i < y->dims[0]; i++) ref_put(y, i, j, ref_get(x, i, j) * factor);
    }
    return ST_OK;
}

status ref_magnitude_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *x = &c->in[1], *squares = &c->in[2], *dm = &c->out[0];
    for (int64_t j = 0; j < dm->dims[0]; j++) {
        const double inverse = inverse_length(ref_get(squares, 0, j));
        ref_total total = ref_total_begin(dm, c->accumulate, 0, j);
        for (int64_t i = 0; i < dy->dims[0]; i++) {
            ref_total_add(&total, ref_get(dy, i, j) * ref_get(x, i, j), inverse);
        }
        ref_total_end(&total, dm, 0, j);
    }
    return ST_OK;
}
