// Biases of experts and the clamped gate (op/expert_bias.c, op/clamped_gate.c), element by element.
#include "kernels/expert_rows.h"
#include "kernels/ref/ref.h"

#include <math.h>

status ref_bias_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *bias = &c->in[1], *y = &c->out[0];
    const int64_t experts = c->attrs.experts, columns = x->dims[1];
    for (int64_t i = 0; i < expert_ranks(c) * experts; i++) {
        expert_rows g = {0};
        TRY(expert_rows_of(c, i / experts, i % experts, &g));
        for (int64_t n = g.begin; n < g.begin + g.count; n++) {
            for (int64_t m = 0; m < columns; m++) {
                const double b = ref_get(bias, i % experts * columns + m, 0);
                ref_put(y, n, m, ref_get(x, n, m) + b);
            }
        }
    }
    return ST_OK;
}

status ref_bias_rows_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *db = &c->out[0];
    const int64_t columns = dy->dims[1];
    for (int64_t i = 0; i < db->dims[0]; i++) {
        ref_total total = ref_total_begin(db, c->accumulate, i, 0);
        expert_walk walk = expert_walk_begin(c);
        while (expert_walk_has(&walk)) {
            expert_rows g = {0};
            TRY(expert_walk_next(c, i / columns, &walk, &g));
            for (int64_t n = g.begin; n < g.begin + g.count; n++) {
                const double scale = ref_has(&c->in[1]) ? ref_get(&c->in[1], n, 0) : 1.0;
                ref_total_add(&total, scale, ref_get(dy, n, i % columns));
            }
        }
        ref_total_end(&total, db, i, 0);
    }
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static status ids_check(const kern_call *c, int64_t experts)
{
    const kern_tensor *ids = &c->in[1];
    for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
        const int64_t id = ref_get_int(ids, k / ids->dims[1], k % ids->dims[1]);
        if (id < experts) continue;
        return fail(ST_DATA, "%s: token %lld has expert %lld of %lld", op_kind_of(c->code)->name,
                    (long long)(k / ids->dims[1]), (long long)id, (long long)experts);
    }
    return ST_OK;
}

status ref_bias_tokens(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *ids = &c->in[1], *weights = &c->in[2], *bias = &c->in[3];
    TRY(ids_check(c, bias->dims[0]));
    for (int64_t n = 0; n < x->dims[0]; n++) {
        for (int64_t j = 0; j < x->dims[1]; j++) {
            double sum = ref_get(x, n, j);
            for (int64_t t = 0; t < ids->dims[1]; t++) {
                const int64_t e = ref_get_int(ids, n, t);
                if (e >= 0) sum += ref_get(weights, n, t) * ref_get(bias, e, j);
            }
            ref_put(&c->out[0], n, j, sum);
        }
    }
    return ST_OK;
}

status ref_bias_tokens_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *ids = &c->in[1], *weights = &c->in[2], *db = &c->out[0];
    TRY(ids_check(c, db->dims[0]));
    for (int64_t i = 0; i < db->dims[0] * db->dims[1]; i++) {
        const int64_t e = i / db->dims[1], j = i % db->dims[1];
        ref_total total = ref_total_begin(db, c->accumulate, e, j);
        for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
            const int64_t n = k / ids->dims[1], t = k % ids->dims[1];
            if (ref_get_int(ids, n, t) != e) continue;
            ref_total_add(&total, ref_get(weights, n, t), ref_get(dy, n, j));
        }
        ref_total_end(&total, db, e, j);
    }
    return ST_OK;
}

status ref_bias_tokens_ds(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *ids = &c->in[1], *bias = &c->in[2];
    TRY(ids_check(c, bias->dims[0]));
    for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
        const int64_t n = k / ids->dims[1], t = k % ids->dims[1], e = ref_get_int(ids, n, t);
        double sum = 0.0;
        for (int64_t j = 0; j < dy->dims[1] && e >= 0; j++) {
            sum += ref_get(dy, n, j) * ref_get(bias, e, j);
        }
        ref_put(&c->out[0], n, t, sum);
    }
    return ST_OK;
}

// ---- the gate -----------------------------------------------------------------------------------

typedef struct clamped {
    double gate, up, sigmoid;
    bool gate_is_free, up_is_free; // within the limit
} clamped;

static clamped clamped_at(const kern_call *c, int64_t i, int64_t j, int64_t width)
{
    const double limit = (double)c->attrs.cap;
    const double gate = ref_get(&c->in[0], i, j), up = ref_get(&c->in[0], i, width + j);
    clamped v = {.gate = fmin(gate, limit),
                 .up = fmax(fmin(up, limit), -limit),
                 .gate_is_free = gate <= limit,
                 .up_is_free = fabs(up) <= limit};
    v.sigmoid = 1.0 / (1.0 + exp(-(double)c->attrs.scale * v.gate));
    return v;
}

status ref_clamped_gate(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *a = &c->out[0];
    for (int64_t i = 0; i < a->dims[0]; i++) {
        for (int64_t j = 0; j < a->dims[1]; j++) {
            const clamped v = clamped_at(c, i, j, a->dims[1]);
            ref_put(a, i, j, (1.0 + v.up) * v.gate * v.sigmoid);
        }
    }
    return ST_OK;
}

status ref_clamped_gate_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *da = &c->in[1], *dh = &c->out[0];
    const int64_t width = da->dims[1];
    for (int64_t i = 0; i < da->dims[0]; i++) {
        for (int64_t j = 0; j < width; j++) {
            const clamped v = clamped_at(c, i, j, width);
            const double d = ref_get(da, i, j), s = v.sigmoid;
            const double slope = s + v.gate * (double)c->attrs.scale * s * (1.0 - s);
            ref_put(dh, i, j, v.gate_is_free ? d * (1.0 + v.up) * slope : 0.0);
            ref_put(dh, i, width + j, v.up_is_free ? d * v.gate * s : 0.0);
        }
    }
    return ST_OK;
}
