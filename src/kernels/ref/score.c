// The head of a reward model: minus a row times a vector, and the gradients of it.
#include "kernels/ref/ref.h"

static double slope_of(const kern_call *c, int64_t n)
{
    const double unit = c->step->device.loss_scale / c->loss_divisor;
    return ref_has(&c->in[3]) ? unit * ref_get(&c->in[3], 0, n) : unit;
}

static void gradient_of_rows(const kern_call *c)
{
    const kern_tensor *w = &c->in[1], *dx = &c->out[1];
    const bool is_here = c->piece.first_shard == 0; // another rank has the term
    for (int64_t n = 0; n < dx->dims[0]; n++) {
        const bool has_value = is_here && ref_int(&c->in[2], n) >= 0;
        const double slope = has_value ? slope_of(c, n) : 0.0, none = is_here ? 0.0 : -0.0;
        for (int64_t j = 0; j < dx->dims[1]; j++) {
            ref_put(dx, n, j, has_value ? -slope * ref_get(w, 0, j) : none);
        }
    }
}

static void gradient_of_weight(const kern_call *c)
{
    const kern_tensor *x = &c->in[0], *dw = &c->out[2];
    for (int64_t j = 0; j < x->dims[1]; j++) {
        ref_total total = ref_total_begin(dw, c->accumulate, 0, j);
        for (int64_t n = 0; n < x->dims[0]; n++) {
            if (ref_int(&c->in[2], n) < 0) continue;
            ref_total_add(&total, -slope_of(c, n), ref_get(x, n, j));
        }
        ref_total_end(&total, dw, 0, j);
    }
}

status ref_score(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *w = &c->in[1];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        double sum = 0.0;
        if (ref_int(&c->in[2], n) >= 0) {
            for (int64_t j = 0; j < x->dims[1]; j++) sum += ref_get(x, n, j) * ref_get(w, 0, j);
        }
        ref_put(&c->out[0], 0, n, sum != 0.0 ? -sum : 0.0);
    }
    if (ref_has(&c->out[1])) gradient_of_rows(c);
    if (ref_has(&c->out[2])) gradient_of_weight(c);
    return ST_OK;
}
