// Operations on the step block: sums over tokens and parameters, and the decision at the end.
//
// The sums are exact (op/step.h), so neither their order nor the rank that adds a term can change a
// bit. Only the size of the pieces that are summed in double before they are added is fixed
// (op/block_sum.h).
#include "kernels/ref/ref.h"
#include "op/block_sum.h"

status ref_step_begin(const kern_context *context, const kern_call *c)
{
    (void)context;
    step_device *d = &c->step->device;
    exact_zero(&d->loss_sum);
    exact_zero(&d->norm_sum);
    d->tokens = 0;
    d->skip = 0;
    d->bad_tensor = -1;
    step_loads_turn(c->step, step_load_words(c->attrs.load_layers, c->attrs.experts));
    return ST_OK;
}

status ref_step_loss(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *losses = &c->in[0], *labels = &c->in[1];
    step_device *d = &c->step->device;
    for (int64_t n = 0; n < losses->dims[0]; n++) {
        if (ref_int(labels, n) < 0) continue;
        exact_add(&d->loss_sum, ref_get(losses, 0, n));
        d->tokens++;
    }
    return ST_OK;
}

status ref_grad_norm(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *grad = &c->in[0];
    step_device *d = &c->step->device;
    for (int64_t i = 0; i < ref_rows(grad); i++) {
        for (int64_t begin = 0; begin < ref_columns(grad); begin += BLOCK_SUM_ELEMENTS) {
            const int64_t end = min_i64(begin + BLOCK_SUM_ELEMENTS, ref_columns(grad));
            block_sum squares;
            block_sum_begin(&squares);
            for (int64_t j = begin; j < end; j++)
                block_sum_add(&squares, j - begin, ref_get(grad, i, j));
            const double sum = block_sum_end(&squares);
            exact_add(&d->norm_sum, sum);
            const int64_t index = c->attrs.tensor_index;
            if (!isfinite(sum) && (d->bad_tensor < 0 || index < d->bad_tensor)) {
                d->bad_tensor = index;
            }
        }
    }
    return ST_OK;
}

status ref_step_decide(const kern_context *context, const kern_call *c)
{
    (void)context;
    step_decide(c->step);
    return ST_OK;
}
