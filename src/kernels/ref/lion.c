// The Lion optimizer (op/lion.c) in double; the state is rounded once, when it is stored.
#include "kernels/ref/ref.h"
#include "op/optimizer.h"

static double sign_of(double x)
{
    return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; // 0 and NaN stay
}

status ref_lion(const kern_context *context, const kern_call *c)
{
    (void)context;
    const step_block *step = c->step;
    if (ref_is_masked(&step->device)) return ST_OK;
    const kern_tensor *grad = &c->in[0], *master = &c->in[1], *m = &c->in[2];
    const double beta1 = optimizer_beta(c->attrs.beta1), beta2 = optimizer_beta(c->attrs.beta2);
    const double lr = step->host.lr * (double)c->attrs.lr_scale;
    const double decay = c->attrs.decay ? lr * (double)c->attrs.weight_decay : 0.0;
    const int64_t columns = grad->ndim == 2 ? grad->dims[1] : 1;
    for (int64_t i = 0; i < ref_rows(grad); i++) {
        for (int64_t j = 0; j < ref_columns(grad); j++) {
            const double g = ref_get(grad, i, j) * step->device.grad_factor, old = ref_get(m, i, j);
            const double direction = sign_of(beta1 * old + (1.0 - beta1) * g);
            const double p = ref_get(master, i, j) * (1.0 - decay) - lr * direction;
            const optimizer_run run = optimizer_run_placed(
                &c->piece, &c->attrs, c->in[3].data, (c->first_row + i) * columns + j, columns);
            const philox_words random =
                optimizer_random(&step->host, c->attrs.tensor_index, run.element);
            ref_put_update(c, &c->out[0], i, j, p, random.w[0]);
            ref_put_update(c, &c->out[1], i, j, beta2 * old + (1.0 - beta2) * g, random.w[1]);
            ref_put_update(c, &c->out[2], i, j, p, random.w[3]);
        }
    }
    return ST_OK;
}
