// The load of experts in the step block, and the bias that balances it (op/balance.c).
#include "kernels/ref/ref.h"

// Adds a token's loss to a sum of whole units, which has one value for every order.
static void loss_add(int64_t *sum, double loss)
{
    *sum += llround(fmin(loss, ldexp(1.0, LOAD_MOST_BITS)) * ldexp(1.0, LOAD_UNIT_BITS));
}

static void counts_add(const kern_call *c, int64_t *row, int64_t n)
{
    const kern_tensor *ids = &c->in[0], *kept = &c->in[1];
    for (int64_t t = 0; t < ids->dims[1]; t++) {
        const int64_t id = ref_get_int(ids, n, t);
        if (id >= 0) row[id]++;
        if (!ref_has(kept) || id < 0) continue;
        row[c->attrs.experts + LOAD_DROPPED] += ref_get_int(kept, n, t) < 0;
    }
    row[c->attrs.experts + LOAD_TOKENS]++;
}

status ref_step_routes(const kern_context *context, const kern_call *c)
{
    (void)context;
    const op_attrs *a = &c->attrs;
    const int64_t layer = max_i64(c->layer, 0);
    int64_t *row = step_loads(c->step, a->load_layers, a->experts, layer, false);
    for (int64_t n = 0; n < c->in[0].dims[0]; n++) {
        counts_add(c, row, n);
        if (!ref_has(&c->in[2])) continue;
        const ref_route_loss loss = ref_route_loss_of(c, &c->in[2], &c->in[0], n);
        loss_add(&row[a->experts + LOAD_AUX], loss.balance);
        loss_add(&row[a->experts + LOAD_Z], loss.z);
    }
    return ST_OK;
}

status ref_balance(const kern_context *context, const kern_call *c)
{
    (void)context;
    const op_attrs *a = &c->attrs;
    const kern_tensor *target = &c->in[0];
    const int64_t *row = step_loads(c->step, a->load_layers, a->experts, a->load_row, false);
    int64_t all = 0;
    if (ref_is_masked(&c->step->device)) return ST_OK;
    for (int64_t e = 0; e < a->experts; e++) all += row[e];
    for (int64_t e = 0; e < a->experts; e++) {
        double more = (double)(row[e] * a->experts - all);
        if (ref_has(target)) {
            more = (double)a->experts * ((double)row[e] - ref_get(target, 0, e) * (double)all);
        }
        const double sign = more > 0.0 ? -1.0 : more < 0.0 ? 1.0 : 0.0;
        ref_put(&c->out[0], 0, e, ref_get(&c->in[1], 0, e) + sign * (double)a->bias_rate);
    }
    return ST_OK;
}
