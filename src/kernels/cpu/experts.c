// Experts: the router's choice, rows ordered by expert and back, GEMMs with one matrix per expert.
//
// PERMUTE numbers its rows in one pass over the tokens in the calling thread. All other operations
// work by rows, each in one task, so the bits of a row depend on no other row. A grouped GEMM is
// one GEMM (gemm.h) for each expert that has rows; the kernel reads the number of rows from the
// offsets in device memory, which the host does not know. Sums over the experts of a token are in
// fp32, in the order of its experts; dot products are in double, in DOT_LANES interleaved sums.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/route.h"
#include "kernels/cpu/vec_call.h"
#include "kernels/expert_rows.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, DOT_LANES = 8 };

// Returns a pointer to one number of an fp32 statistic.
static float *statistic(const kern_tensor *t, int64_t row, int64_t column)
{
    return (float *)t->data + row * tensor_stride(t) + column;
}

static double dot(const cpu_vec *vec, cpu_span a, cpu_span b, int64_t n)
{
    float x[BLOCK], y[BLOCK];
    double sums[DOT_LANES] = {0.0};
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t count = min_i64(BLOCK, n - begin);
        vec->cast(cpu_span_fp32(x), cpu_span_offset(a, begin), count);
        vec->cast(cpu_span_fp32(y), cpu_span_offset(b, begin), count);
        for (int64_t i = 0; i + DOT_LANES <= count; i += DOT_LANES) {
            for (int k = 0; k < DOT_LANES; k++) sums[k] += (double)x[i + k] * (double)y[i + k];
        }
        for (int64_t i = count / DOT_LANES * DOT_LANES; i < count; i++) {
            sums[i % DOT_LANES] += (double)x[i] * (double)y[i];
        }
    }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// ---- the router ---------------------------------------------------------------------------------

// Inserts a logit into the largest ones so far, which are kept descending in the token's weights;
// among equal logits the first stays first.
static void choose(const kern_call *c, int64_t n, float value, int64_t e, int64_t *count)
{
    const kern_tensor *ids = &c->out[0];
    float *best = statistic(&c->out[1], n, 0);
    int64_t at = *count;
    if (at == ids->dims[1]) {
        if (!(value > best[at - 1])) return;
        at--;
    } else {
        ++*count;
    }
    for (; at > 0 && value > best[at - 1]; at--) {
        best[at] = best[at - 1];
        tensor_int_put(ids, n, at, tensor_int_at(ids, n, at - 1));
    }
    best[at] = value;
    tensor_int_put(ids, n, at, e);
}

// Computes exp(x - top) of `count` logits from e on.
static void powers(const cpu_row_job *job, int64_t n, int64_t e, int64_t count, float top, float *x)
{
    const kern_tensor *logits = &job->call->in[job->call->code == OP_ROUTE ? 0 : 1];
    job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(logits, n), e), count);
    for (int64_t i = 0; i < count; i++) x[i] -= top;
    job->vec->function(0, x, x, count);
}

static void route_row(const cpu_row_job *job, int64_t n)
{
    const kern_call *c = job->call;
    const int64_t experts = c->in[0].dims[1], taken = c->out[0].dims[1];
    float x[BLOCK], *weights = statistic(&c->out[1], n, 0);
    int64_t count = 0;
    for (int64_t begin = 0; begin < experts; begin += BLOCK) {
        const int64_t some = min_i64(BLOCK, experts - begin);
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&c->in[0], n), begin), some);
        for (int64_t i = 0; i < some; i++) choose(c, n, x[i], begin + i, &count);
    }
    const float top = weights[0];
    double sum = 0.0;
    for (int64_t begin = 0; begin < experts && !c->attrs.normalize; begin += BLOCK) {
        const int64_t some = min_i64(BLOCK, experts - begin);
        powers(job, n, begin, some, top, x);
        for (int64_t i = 0; i < some; i++) sum += (double)x[i];
    }
    for (int64_t t = 0; t < taken; t++) weights[t] -= top;
    job->vec->function(0, weights, weights, taken);
    for (int64_t t = 0; t < taken && c->attrs.normalize; t++) sum += (double)weights[t];
    for (int64_t t = 0; t < taken; t++) weights[t] = (float)((double)weights[t] / sum);
}

static void route_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) route_row(job, n);
}

status cpu_route(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    if (cpu_route_is_scored(call)) return cpu_route_scored(context, call);
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], route_task);
    return ST_OK;
}

// The formula is in kernels/ref/experts.c.
static void route_bwd_row(const cpu_row_job *job, int64_t n)
{
    const kern_call *c = job->call;
    const kern_tensor *logits = &c->in[1], *ids = &c->in[2], *dlogits = &c->out[0];
    const float *dweights = statistic(&c->in[0], n, 0), *weights = statistic(&c->in[3], n, 0);
    const int64_t experts = logits->dims[1], taken = ids->dims[1];
    float x[BLOCK], top = 0.0f;
    double mean = 0.0;
    job->vec->cast(cpu_span_fp32(&top),
                   cpu_span_offset(tensor_row(logits, n), tensor_int_at(ids, n, 0)), 1);
    for (int64_t t = 0; t < taken; t++) mean += (double)dweights[t] * (double)weights[t];
    for (int64_t begin = 0; begin < experts; begin += BLOCK) {
        const int64_t some = min_i64(BLOCK, experts - begin);
        memset(x, 0, sizeof(x));
        if (!c->attrs.normalize) {
            powers(job, n, begin, some, top, x);
            for (int64_t i = 0; i < some; i++) {
                x[i] = (float)(-(double)weights[0] * (double)x[i] * mean);
            }
        }
        for (int64_t t = 0; t < taken; t++) {
            const int64_t i = tensor_int_at(ids, n, t) - begin;
            if (i < 0 || i >= some) continue;
            x[i] = (float)((double)weights[t] * ((double)dweights[t] - mean));
        }
        job->vec->cast(cpu_span_offset(tensor_row(dlogits, n), begin), cpu_span_fp32(x), some);
    }
}

static void route_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) route_bwd_row(job, n);
}

status cpu_route_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *ids = &call->in[2];
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        if (tensor_int_at(ids, n, 0) >= 0 && tensor_int_at(ids, n, 0) < call->in[1].dims[1])
            continue;
        return fail(ST_DATA, "route_bwd: token %lld has expert %lld of %lld", (long long)n,
                    (long long)tensor_int_at(ids, n, 0), (long long)call->in[1].dims[1]);
    }
    if (cpu_route_is_scored(call)) {
        TRY(cpu_route_scored_bwd(context, call));
    } else {
        cpu_rows_run(context, call, call->in[1].dims[0], call->in[1].dims[1], route_bwd_task);
    }
    return cpu_route_losses(context, call);
}

// ---- there and back -----------------------------------------------------------------------------

// Counts the rows of each expert in the offset behind it, adds the counts up, and assigns rows.
// While it assigns, offsets[e] is the next row of e, so at the end it is the begin of e + 1.
static status rows_number(const kern_call *c)
{
    const kern_tensor *ids = &c->in[1], *row_of = &c->out[1], *offsets = &c->out[2];
    const int64_t experts = c->attrs.experts;
    for (int64_t e = 0; e <= experts; e++) tensor_int_put(offsets, 0, e, 0);
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = tensor_int_at(ids, n, t);
            if (id >= experts) {
                return fail(ST_DATA, "permute: token %lld asks for expert %lld of %d", (long long)n,
                            (long long)id, (int)experts);
            }
            if (id >= 0) tensor_int_put(offsets, 0, id + 1, tensor_int(offsets, id + 1) + 1);
        }
    }
    for (int64_t e = 0; e < experts; e++) {
        tensor_int_put(offsets, 0, e + 1, tensor_int(offsets, e) + tensor_int(offsets, e + 1));
    }
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = tensor_int_at(ids, n, t),
                          row = id < 0 ? -1 : tensor_int(offsets, id);
            tensor_int_put(row_of, n, t, row);
            if (id >= 0) tensor_int_put(offsets, 0, id, row + 1);
        }
    }
    for (int64_t e = experts; e > 0; e--) tensor_int_put(offsets, 0, e, tensor_int(offsets, e - 1));
    tensor_int_put(offsets, 0, 0, 0);
    return ST_OK;
}

static void permute_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        for (int64_t t = 0; t < c->out[1].dims[1]; t++) {
            const int64_t row = tensor_int_at(&c->out[1], n, t);
            if (row < 0) continue;
            job->vec->cast(tensor_row(&c->out[0], row), tensor_row(&c->in[0], n), piece.columns);
            if (!tensor_has(&c->in[2])) continue;
            *statistic(&c->out[3], row, 0) = *statistic(&c->in[2], n, t);
        }
    }
}

status cpu_permute(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(rows_number(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], permute_task);
    return ST_OK;
}

static status rows_check(const kern_call *c, const kern_tensor *row_of, int64_t rows)
{
    for (int64_t n = 0; n < row_of->dims[0]; n++) {
        for (int64_t t = 0; t < row_of->dims[1]; t++) {
            if (tensor_int_at(row_of, n, t) < rows) continue;
            return fail(ST_DATA, "%s: row %lld of %lld", op_kind_of(c->code)->name,
                        (long long)tensor_int_at(row_of, n, t), (long long)rows);
        }
    }
    return ST_OK;
}

// Adds up the rows of a token, times their weights if there are any.
static void token_add(const cpu_row_job *job, const kern_tensor *weights, int64_t n)
{
    const kern_call *c = job->call;
    const kern_tensor *row_of = &c->in[1];
    float sum[BLOCK], x[BLOCK];
    for (int64_t begin = 0; begin < c->in[0].dims[1]; begin += BLOCK) {
        const int64_t some = min_i64(BLOCK, c->in[0].dims[1] - begin);
        memset(sum, 0, sizeof(sum));
        for (int64_t t = 0; t < row_of->dims[1]; t++) {
            const int64_t row = tensor_int_at(row_of, n, t);
            if (row < 0) continue;
            const float weight = tensor_has(weights) ? *statistic(weights, n, t) : 1.0f;
            job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&c->in[0], row), begin),
                           some);
            for (int64_t i = 0; i < some; i++) sum[i] += x[i] * weight;
        }
        job->vec->cast(cpu_span_offset(tensor_row(&c->out[0], n), begin), cpu_span_fp32(sum), some);
    }
}

static void unpermute_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        token_add(job, &job->call->in[2], n);
    }
}

status cpu_unpermute(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(rows_check(call, &call->in[1], call->in[0].dims[0]));
    cpu_rows_run(context, call, call->in[1].dims[0], call->in[0].dims[1], unpermute_task);
    return ST_OK;
}

static void permute_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor none = {0};
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        token_add(job, &none, n);
        for (int64_t t = 0; t < c->in[1].dims[1] && tensor_has(&c->in[2]); t++) {
            const int64_t row = tensor_int_at(&c->in[1], n, t);
            *statistic(&c->out[1], n, t) = row < 0 ? 0.0f : *statistic(&c->in[2], row, 0);
        }
    }
}

status cpu_permute_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(rows_check(call, &call->in[1], call->in[0].dims[0]));
    cpu_rows_run(context, call, call->in[1].dims[0], call->in[0].dims[1], permute_bwd_task);
    return ST_OK;
}

static void unpermute_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const bool weighted = tensor_has(&c->in[3]);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        const cpu_span dy = tensor_row(&c->in[0], n);
        for (int64_t t = 0; t < c->in[1].dims[1]; t++) {
            const int64_t row = tensor_int_at(&c->in[1], n, t);
            float *d = weighted ? statistic(&c->out[1], n, t) : NULL;
            if (d != NULL) *d = 0.0f;
            if (row < 0) continue;
            const float weight = weighted ? *statistic(&c->in[3], n, t) : 1.0f;
            job->vec->scale(tensor_row(&c->out[0], row), dy, weight, piece.columns);
            if (d == NULL) continue;
            *d = (float)dot(job->vec, dy, tensor_row(&c->in[2], row), piece.columns);
        }
    }
}

status cpu_unpermute_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    TRY(rows_check(call, &call->in[1], call->out[0].dims[0]));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], unpermute_bwd_task);
    return ST_OK;
}

// ---- products -----------------------------------------------------------------------------------

// Returns the rows of t from `row` on.
static gemm_matrix matrix_from(const kern_tensor *t, int64_t row)
{
    return gemm_rows(tensor_row(t, row).at, t->type, t->strides[0]);
}

static gemm_args product_into(const kern_call *c, int64_t row, int64_t rows)
{
    const kern_tensor *out = &c->out[0];
    return (gemm_args){.any_order = !c->strict,
                       .m = rows,
                       .n = out->dims[1],
                       .c = tensor_row(out, row).at,
                       .c_type = out->type,
                       .ldc = out->strides[0]};
}

// Puts the rows from which a sum continues where it goes, if they are elsewhere.
static void before_copy(const kern_context *context, const kern_call *c, const expert_rows *g)
{
    const kern_tensor *before = &c->in[3], *out = &c->out[0];
    if (before->data == out->data) return;
    for (int64_t n = g->begin; n < g->begin + g->count; n++) {
        cpu_vec_of(context->level)->cast(tensor_row(out, n), tensor_row(before, n), out->dims[1]);
    }
}

// Runs the GEMM of the rows of expert e that have come from a rank.
static status product_run(const kern_context *context, const kern_call *call, gemm_check *check,
                          int64_t rank, int64_t e)
{
    const bool is_dx = call->code == OP_GROUPED_MATMUL_DX;
    const int64_t columns = is_dx ? call->in[0].dims[1] : call->out[0].dims[1];
    const int64_t rows = call->piece.whole_rows > 0 ? call->piece.whole_rows : columns;
    expert_rows g = {0};
    TRY(expert_rows_of(call, rank, e, &g));
    if (g.count == 0) return ST_OK;
    gemm_args args = product_into(call, g.begin, g.count);
    const gemm_matrix w = matrix_from(&call->in[1], e * rows + call->piece.first_row);
    args.accumulate = is_dx && tensor_has(&call->in[3]);
    if (args.accumulate) before_copy(context, call, &g);
    args.counted_m = true;
    args.check = check;
    args.k = call->in[0].dims[1];
    args.in_pairs = call->in_pairs;
    args.a = matrix_from(&call->in[0], g.begin);
    args.b = is_dx ? w : gemm_transposed(w);
    gemm_run(context, &args);
    return ST_OK;
}

// Expert by expert, so that its matrix is in the cache for the rows of all ranks.
static status products_run(const kern_context *context, const kern_call *of)
{
    kern_call rounded;
    TRY(cpu_call_check(of));
    const kern_call *call = of;
    TRY(cpu_fp8_operands(context, &call, &rounded));
    gemm_check check = gemm_check_of(context, of);
    for (int64_t e = 0; e < call->attrs.experts; e++) {
        for (int64_t r = 0; r < expert_ranks(call); r++) {
            TRY(product_run(context, call, &check, r, e));
        }
    }
    return ST_OK;
}

status cpu_grouped_matmul(const kern_context *context, const kern_call *call)
{
    return products_run(context, call);
}

status cpu_grouped_matmul_dx(const kern_context *context, const kern_call *call)
{
    return products_run(context, call);
}

// An expert may have had any number of rows before, so its sum never takes pairs. It is one sum
// over the rows of all ranks.
static status expert_sum(const kern_context *context, const kern_call *call, gemm_check *check,
                         int64_t e)
{
    const int64_t columns = call->in[0].dims[1];
    bool accumulate = call->accumulate;
    expert_walk walk = expert_walk_begin(call);
    while (expert_walk_has(&walk)) {
        expert_rows g = {0};
        TRY(expert_walk_next(call, e, &walk, &g));
        if (g.count == 0 && (accumulate || expert_walk_has(&walk))) continue;
        gemm_args args = product_into(call, e * columns, columns);
        args.k = g.count;
        args.counted_k = true;
        args.a = gemm_transposed(matrix_from(&call->in[0], g.begin));
        args.b = matrix_from(&call->in[1], g.begin);
        args.accumulate = accumulate;
        args.check = check;
        gemm_run(context, &args);
        accumulate = true;
    }
    return ST_OK;
}

// The space is that of the largest product: all rows may be those of one expert.
int64_t cpu_grouped_check_bytes(const kern_call *call)
{
    const kern_tensor *in = &call->in[0], *out = &call->out[0];
    if (call->code == OP_GROUPED_MATMUL_DW) {
        return gemm_check_bytes(in->dims[1], out->dims[1], in->dims[0], out->type, true);
    }
    const bool adds = call->code == OP_GROUPED_MATMUL_DX && tensor_has(&call->in[3]);
    return gemm_check_bytes(out->dims[0], out->dims[1], in->dims[1], out->type, adds);
}

status cpu_grouped_matmul_dw(const kern_context *context, const kern_call *of)
{
    kern_call rounded;
    const kern_call *call = of;
    TRY(cpu_call_check(of));
    TRY(cpu_fp8_operands(context, &call, &rounded));
    gemm_check check = gemm_check_of(context, of);
    for (int64_t e = 0; e < call->attrs.experts; e++) TRY(expert_sum(context, call, &check, e));
    return ST_OK;
}

// ---- scales -------------------------------------------------------------------------------------

static void scale_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        job->vec->scale(tensor_row(&c->out[0], n), tensor_row(&c->in[0], n),
                        *statistic(&c->in[1], n, 0), piece.columns);
    }
}

status cpu_scale_rows(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], scale_task);
    return ST_OK;
}

static void scale_ds_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        *statistic(&c->out[0], n, 0) =
            (float)dot(job->vec, tensor_row(&c->in[0], n), tensor_row(&c->in[1], n), piece.columns);
    }
}

status cpu_scale_rows_ds(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], scale_ds_task);
    return ST_OK;
}
