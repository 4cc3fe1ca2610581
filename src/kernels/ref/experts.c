// Experts: the router's choice, rows ordered by expert and back, GEMMs with one matrix per expert.
//
// offsets(E+1) gives the rows of each expert; rows from offsets[E] on are neither read nor written.
// An invalid expert id, or offsets that do not rise within the rows, come from data, so they are an
// error status.
#include "kernels/expert_rows.h"
#include "kernels/ref/ref.h"

// ---- there and back -----------------------------------------------------------------------------

status ref_permute(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *ids = &c->in[1], *weights = &c->in[2];
    const kern_tensor *rows = &c->out[0], *row_of = &c->out[1], *offsets = &c->out[2];
    int64_t row = 0;
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = ref_get_int(ids, n, t);
            if (id >= c->attrs.experts) {
                return fail(ST_DATA, "permute: token %lld asks for expert %lld of %d", (long long)n,
                            (long long)id, (int)c->attrs.experts);
            }
            if (id < 0) ref_put_int(row_of, n, t, -1);
        }
    }
    for (int64_t e = 0; e < c->attrs.experts; e++) {
        ref_put_int(offsets, 0, e, row);
        for (int64_t k = 0; k < ids->dims[0] * ids->dims[1]; k++) {
            const int64_t n = k / ids->dims[1], t = k % ids->dims[1];
            if (ref_get_int(ids, n, t) != e) continue;
            ref_put_int(row_of, n, t, row);
            for (int64_t j = 0; j < x->dims[1]; j++) ref_put(rows, row, j, ref_get(x, n, j));
            if (ref_has(weights)) ref_put(&c->out[3], row, 0, ref_get(weights, n, t));
            row++;
        }
    }
    ref_put_int(offsets, 0, c->attrs.experts, row);
    return ST_OK;
}

static status row_check(const kern_call *c, int64_t row, int64_t rows)
{
    if (row < rows) return ST_OK;
    return fail(ST_DATA, "%s: row %lld of %lld", op_kind_of(c->code)->name, (long long)row,
                (long long)rows);
}

// Sets y[n] to the sum of a token's rows, times their weights if there are any.
static status rows_add(const kern_call *c, const kern_tensor *weights, const kern_tensor *y)
{
    const kern_tensor *rows = &c->in[0], *row_of = &c->in[1];
    for (int64_t n = 0; n < row_of->dims[0]; n++) {
        for (int64_t j = 0; j < rows->dims[1]; j++) {
            double sum = 0.0;
            for (int64_t t = 0; t < row_of->dims[1]; t++) {
                const int64_t row = ref_get_int(row_of, n, t);
                TRY(row_check(c, row, rows->dims[0]));
                if (row < 0) continue;
                sum += ref_get(rows, row, j) * (ref_has(weights) ? ref_get(weights, n, t) : 1.0);
            }
            ref_put(y, n, j, sum);
        }
    }
    return ST_OK;
}

status ref_unpermute(const kern_context *context, const kern_call *c)
{
    (void)context;
    return rows_add(c, &c->in[2], &c->out[0]);
}

status ref_permute_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor none = {0}, *row_of = &c->in[1], *dscale = &c->in[2];
    TRY(rows_add(c, &none, &c->out[0]));
    for (int64_t k = 0; k < row_of->dims[0] * row_of->dims[1] && ref_has(dscale); k++) {
        const int64_t n = k / row_of->dims[1], t = k % row_of->dims[1];
        const int64_t row = ref_get_int(row_of, n, t);
        ref_put(&c->out[1], n, t, row < 0 ? 0.0 : ref_get(dscale, row, 0));
    }
    return ST_OK;
}

status ref_unpermute_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *row_of = &c->in[1], *rows = &c->in[2], *weights = &c->in[3];
    const kern_tensor *drows = &c->out[0];
    for (int64_t k = 0; k < row_of->dims[0] * row_of->dims[1]; k++) {
        const int64_t n = k / row_of->dims[1], t = k % row_of->dims[1];
        const int64_t row = ref_get_int(row_of, n, t);
        const double weight = ref_has(weights) ? ref_get(weights, n, t) : 1.0;
        double dot = 0.0;
        TRY(row_check(c, row, drows->dims[0]));
        for (int64_t j = 0; j < dy->dims[1] && row >= 0; j++) {
            if (ref_has(rows)) dot += ref_get(dy, n, j) * ref_get(rows, row, j);
            ref_put(drows, row, j, ref_get(dy, n, j) * weight);
        }
        if (ref_has(weights)) ref_put(&c->out[1], n, t, dot);
    }
    return ST_OK;
}

// ---- products -----------------------------------------------------------------------------------

static void row_times(const kern_call *c, int64_t n, int64_t e)
{
    const kern_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const bool is_dx = c->code == OP_GROUPED_MATMUL_DX;
    const int64_t own = is_dx ? x->dims[1] : y->dims[1]; // rows of an expert's matrix
    const int64_t rows = c->piece.whole_rows > 0 ? c->piece.whole_rows : own;
    const int64_t first = e * rows + c->piece.first_row;
    for (int64_t m = 0; m < y->dims[1]; m++) {
        double sum = is_dx && ref_has(&c->in[3]) ? ref_get(&c->in[3], n, m) : 0.0;
        for (int64_t k = 0; k < x->dims[1]; k++) {
            const double weight = is_dx ? ref_get(w, first + k, m) : ref_get(w, first + m, k);
            sum += ref_get(x, n, k) * weight;
        }
        ref_put(y, n, m, sum);
    }
}

static status rows_times(const kern_call *c)
{
    for (int64_t i = 0; i < expert_ranks(c) * c->attrs.experts; i++) {
        expert_rows g = {0};
        TRY(expert_rows_of(c, i / c->attrs.experts, i % c->attrs.experts, &g));
        for (int64_t n = g.begin; n < g.begin + g.count; n++) row_times(c, n, i % c->attrs.experts);
    }
    return ST_OK;
}

status ref_grouped_matmul(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    return rows_times(c);
}

status ref_grouped_matmul_dx(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    return rows_times(c);
}

// If an expert has no rows, its gradient keeps its value, or becomes zero.
status ref_grouped_matmul_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    kern_call rounded;
    TRY(ref_fp8_operands(&c, &rounded));
    const kern_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
    const int64_t columns = dy->dims[1];
    for (int64_t i = 0; i < dw->dims[0] * dw->dims[1]; i++) {
        const int64_t m = i / dw->dims[1], k = i % dw->dims[1];
        ref_total total = ref_total_begin(dw, c->accumulate, m, k);
        expert_walk walk = expert_walk_begin(c);
        while (expert_walk_has(&walk)) {
            expert_rows g = {0};
            TRY(expert_walk_next(c, m / columns, &walk, &g));
            for (int64_t n = g.begin; n < g.begin + g.count; n++) {
                ref_total_add(&total, ref_get(dy, n, m % columns), ref_get(x, n, k));
            }
        }
        ref_total_end(&total, dw, m, k);
    }
    return ST_OK;
}

// ---- scales -------------------------------------------------------------------------------------

status ref_scale_rows(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *scale = &c->in[1], *y = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        for (int64_t j = 0; j < x->dims[1]; j++) {
            ref_put(y, n, j, ref_get(x, n, j) * ref_get(scale, n, 0));
        }
    }
    return ST_OK;
}

status ref_scale_rows_ds(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *x = &c->in[1], *dscale = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        double sum = 0.0;
        for (int64_t j = 0; j < x->dims[1]; j++) sum += ref_get(dy, n, j) * ref_get(x, n, j);
        ref_put(dscale, n, 0, sum);
    }
    return ST_OK;
}
