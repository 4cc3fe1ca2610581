// The bias that balances the load of experts (op/balance.c). Loads are whole numbers, and the mean
// is compared without a division, so only the addition to a bias rounds, once.
#include "kernels/cpu/vec_call.h"

// Returns how far an expert's load is above its share, in tokens times experts.
static double above(const kern_call *call, const int64_t *row, int64_t all, int64_t e)
{
    const kern_tensor *target = &call->in[0];
    const int64_t experts = call->attrs.experts;
    if (target->data == NULL) return (double)(row[e] * experts - all);
    const double share = dtype_load(target->type, target->data, e * target->strides[0]);
    return (double)experts * ((double)row[e] - share * (double)all);
}

status cpu_balance(const kern_context *context, const kern_call *call)
{
    (void)context;
    const op_attrs *a = &call->attrs;
    const step_device *d = &call->step->device;
    const kern_tensor *from = &call->in[1], *to = &call->out[0];
    const int64_t *row = step_loads(call->step, a->load_layers, a->experts, a->load_row, false);
    int64_t all = 0;
    if (d->skip != 0 || d->halt != 0) return ST_OK;
    for (int64_t e = 0; e < a->experts; e++) all += row[e];
    for (int64_t e = 0; e < a->experts; e++) {
        const double more = above(call, row, all, e);
        const double sign = more > 0.0 ? -1.0 : more < 0.0 ? 1.0 : 0.0;
        const double before = dtype_load(from->type, from->data, e * from->strides[0]);
        dtype_store(to->type, to->data, e * to->strides[0], before + sign * (double)a->bias_rate);
    }
    return ST_OK;
}
