// The end of a model: logits, cross-entropy and both gradients, some tokens at a time.
//
// All logits of a step would be the largest tensor by far (GPT-2, 4096 tokens: 823 MB). So a chunk
// of R tokens goes through all steps before the next chunk starts:
//
//   logits (R x V) = x w^T      softmax, loss; e in place      dx = s (e w)
//                                                              dw += e^T (s x)
//
// The gradient of a row of logits is s e, with one number s for the row. s is applied to dx and to
// a copy of x, which are narrow, so the wide row needs no further pass over memory.
//
// A chunk costs 6 R V D operations, but w is read and packed twice and dw read and written once per
// chunk whatever R is, so with few rows that traffic determines the speed. Two threads of a Zen 3
// take 430 ms for the three GEMMs of 320 rows (64 MB of logits), 820 ms for those of 640 (V =
// 50257, D = 768, 2026-11).
//
// If the vocabulary is cut, HEAD_STATS computes the logits of its piece and keeps three numbers of
// each shard. When those of all shards exist, HEAD_LOSS continues with the sums of the whole. Both
// begin their workspace with the logits: if they share a workspace (attrs.kept) and all tokens are
// one chunk, the logits are still there, else they are computed again.
//
// dw is one sequential sum over tokens that continues from memory, dx one over the vocabulary: the
// bits do not depend on R, which is even. Logits and their gradients are fp32 in every precision.
// If w is bf16 and the order is free or goes by pairs, gradients are rounded to bf16 when a GEMM
// packs them, if the CPU has a unit for that.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_unit.h"
#include "kernels/cpu/head_rows.h"

#include <math.h>
#include <string.h>

// The workspace: R rows of logits; R rows of x times their factors, in fp32; R rows of dx in fp32
// if dx is narrower; the factors.
typedef struct head_layout {
    int64_t rows;   // R
    int64_t stride; // of logits, in elements
    bool narrow_dx;
    int64_t bytes;
} head_layout;

static head_layout layout_of(const kern_call *call)
{
    const int64_t tokens = call->in[0].dims[0], dim = call->in[0].dims[1];
    const kern_tensor *dx = &call->out[1];
    head_layout l = {.stride = align_up(call->in[1].dims[0], 16)};
    l.narrow_dx = dx->data != NULL && dx->type != DTYPE_F32;
    l.rows = max_i64(1, min_i64(op_head_chunk_rows(call->in[1].dims[0]), tokens));
    const int64_t floats = l.rows * (l.stride + dim + (l.narrow_dx ? dim : 0) + 1);
    l.bytes = align_up(floats * (int64_t)sizeof(float), ALIGN_TENSOR);
    return l;
}

int64_t cpu_head_loss_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return layout_of(call).bytes;
}

// Bytes of the packed panels of w. First those for x w^T, unless HEAD_STATS computes the logits,
// which keeps them then; after them those for dx, unless the rows of w are in several shards, of
// which each makes a term.
typedef struct head_panels {
    int64_t logits, dx; // bytes
} head_panels;

static head_panels panels_of(const kern_call *call, kern_level level)
{
    const kern_tensor *w = &call->in[1];
    const bool is_free = !call->strict, is_stats = call->code == OP_HEAD_STATS;
    head_panels p = {0, 0};
    if (is_stats || !call->attrs.kept) {
        p.logits = gemm_panels_bytes(level, w->type, is_free, w->dims[0], w->dims[1]);
    }
    if (!is_stats && call->piece.shard_count <= 1 && call->out[1].data != NULL) {
        p.dx = gemm_panels_bytes(level, w->type, is_free, w->dims[1], w->dims[0]);
    }
    p.logits = align_up(p.logits, ALIGN_TENSOR);
    return p;
}

int64_t cpu_head_loss_packed_bytes(const kern_call *call, kern_level level)
{
    const head_panels p = panels_of(call, level);
    return p.logits + p.dx;
}

int64_t cpu_head_stats_packed_bytes(const kern_call *call, kern_level level)
{
    return panels_of(call, level).logits;
}

enum { OF_LOGITS, OF_DX, OF_DW, PRODUCTS };

typedef struct chunk {
    const kern_call *call;
    const head_rows *leaf;
    const gemm_unit *conversions;
    head_layout layout;
    int64_t first, rows; // tokens of this chunk
    int64_t term;        // of dx
    float *logits, *x, *dx, *factors;
    void *logits_panels, *dx_panels; // of w; NULL: they are not kept
    bool wants_grad;
    bool cut;    // the vocabulary is in shards, whose statistics are known
    double unit; // factor of a loss before it is differentiated
    gemm_check checks[PRODUCTS];
} chunk;

static int64_t label_of(const kern_call *call, int64_t token)
{
    const kern_tensor *labels = &call->in[2];
    if (labels->type == DTYPE_I32) return ((const int32_t *)labels->data)[token];
    return ((const int64_t *)labels->data)[token];
}

// Computes a row of x times its factor, which dx waits for.
static void row_of_x(const chunk *c, int64_t index, double factor)
{
    const kern_tensor *slopes = &c->call->in[4];
    if (slopes->data != NULL) factor *= dtype_load(slopes->type, slopes->data, c->first + index);
    const float scale = (float)factor;
    const kern_tensor *x = &c->call->in[0];
    const int64_t dim = x->dims[1], at = (c->first + index) * x->strides[0];
    float *row = c->x + index * dim;
    c->factors[index] = scale;
    c->conversions->load(row, (const char *)x->data + at * dtype_bytes(x->type), x->type, dim);
    c->leaf->scale(row, dim, scale);
}

// Return the rows of the whole vocabulary, of which w may be a piece, and the first row of a shard
// in w.
static int64_t vocabulary_of(const kern_call *call)
{
    return call->piece.whole_rows > 0 ? call->piece.whole_rows : call->in[1].dims[0];
}

static int64_t shard_begin(const kern_call *call, int64_t shard)
{
    return vocabulary_of(call) * shard / call->piece.shards - call->piece.first_row;
}

// Statistics of a whole row of logits: the highest, the sum of exp(logit - highest), the label's
// logit.
typedef struct row_stats {
    double top, sum, label;
} row_stats;

enum { MAX_SHARDS = 64 };

// Adds the sums of shards by the tree: neighbours first.
static row_stats stats_of(const kern_call *call, int64_t token)
{
    const kern_tensor *stats = &call->in[3];
    const int64_t count = call->piece.shards, per_tile = stats->dims[1] / 3;
    const int64_t tokens = call->in[0].dims[0];
    double tops[MAX_SHARDS], sums[MAX_SHARDS];
    row_stats out = {-HUGE_VAL, 0.0, 0.0};
    ASSERT(count <= MAX_SHARDS);
    for (int64_t s = 0; s < count; s++) {
        const int64_t row = s / per_tile * tokens + token;
        const int64_t at = row * stats->strides[0] + s % per_tile * 3;
        tops[s] = dtype_load(stats->type, stats->data, at);
        sums[s] = dtype_load(stats->type, stats->data, at + 1);
        out.label += dtype_load(stats->type, stats->data, at + 2);
        out.top = tops[s] > out.top ? tops[s] : out.top;
    }
    for (int64_t s = 0; s < count; s++) sums[s] *= exp(tops[s] - out.top);
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t s = 0; s + width < count; s += 2 * width) sums[s] += sums[s + width];
    }
    out.sum = sums[0];
    return out;
}

// Turns a row of logits into e, or into the gradient itself if e could not represent the label's.
// Returns the factor that is missing. label: in this row; -1: in another piece.
static double row_differentiate(const chunk *c, float *row, int64_t label, double weight,
                                double sum)
{
    const double factor = weight / sum;
    const double p = label >= 0 ? (double)row[label] * factor : 0.0;
    if (weight >= 0.5) {
        if (label >= 0) row[label] = (float)((p - 1.0) / factor);
        return factor * c->unit;
    }
    // Near 0 or below, no finite factor would restore the label's gradient.
    c->leaf->scale(row, c->call->in[1].dims[0], (float)factor);
    if (label >= 0) row[label] = (float)(p - 1.0);
    return c->unit;
}

// Turns a row of capped logits into its gradient; the factor that is missing is the unit. label: in
// this row; -1: in another piece.
static double capped_differentiate(const chunk *c, float *row, int64_t label, double top,
                                   double factor)
{
    const float cap = c->call->attrs.cap;
    const double logit = label >= 0 ? (double)row[label] : 0.0, part = logit / (double)cap;
    c->leaf->capped(row, c->call->in[1].dims[0], (float)top, (float)factor, cap);
    if (label >= 0) {
        row[label] = (float)((exp(logit - top) * factor - 1.0) * (1.0 - part * part));
    }
    return c->unit;
}

// Like softmax_task, if other pieces have the rest of the row.
static void piece_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    const kern_call *call = c->call;
    const int64_t rows = call->in[1].dims[0], label = label_of(call, c->first + index);
    float *row = c->logits + index * c->layout.stride;
    double loss = 0.0, scale = 0.0;
    if (label < 0) {
        if (c->wants_grad) memset(row, 0, (size_t)rows * sizeof(float));
    } else {
        const row_stats s = stats_of(call, c->first + index);
        const double log_sum = log(s.sum), lse = s.top + log_sum, z = (double)call->attrs.z_loss;
        const int64_t at = label - call->piece.first_row;
        loss = (s.top - s.label) + log_sum + z * lse * lse;
        const int64_t here = at >= 0 && at < rows ? at : -1;
        const double weight = 1.0 + 2.0 * z * lse;
        if (c->wants_grad && call->attrs.cap > 0.0F) {
            scale = capped_differentiate(c, row, here, s.top, weight / s.sum);
        } else if (c->wants_grad) {
            (void)c->leaf->exponents(row, rows, (float)s.top);
            scale = row_differentiate(c, row, here, weight, s.sum);
        }
    }
    if (c->wants_grad) row_of_x(c, index, scale);
    dtype_store(call->out[0].type, call->out[0].data, c->first + index, loss);
}

// Computes the loss of one token. Its logits become e, and s e is the gradient of its scaled loss:
//     unit * (p (1 + 2 z lse) - [v = label])
static void softmax_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    const kern_call *call = c->call;
    const int64_t vocab = call->in[1].dims[0], label = label_of(call, c->first + index);
    float *row = c->logits + index * c->layout.stride;
    double loss = 0.0, scale = 0.0;
    if (label < 0) {
        if (c->wants_grad) memset(row, 0, (size_t)vocab * sizeof(float));
    } else {
        const float top = c->leaf->highest(row, vocab);
        const double gap = (double)top - (double)row[label];
        const bool is_capped = call->attrs.cap > 0.0F;
        const double sum =
            is_capped ? c->leaf->sum(row, vocab, top) : c->leaf->exponents(row, vocab, top);
        const double log_sum = log(sum);
        const double lse = (double)top + log_sum, z = (double)call->attrs.z_loss;
        const double weight = 1.0 + 2.0 * z * lse;
        loss = gap + log_sum + z * lse * lse;
        if (c->wants_grad) {
            scale = is_capped ? capped_differentiate(c, row, label, (double)top, weight / sum)
                              : row_differentiate(c, row, label, weight, sum);
        }
    }
    if (c->wants_grad) row_of_x(c, index, scale);
    dtype_store(call->out[0].type, call->out[0].data, c->first + index, loss);
}

// Returns the arguments that all three GEMMs share.
static gemm_args product_begin(const chunk *c, gemm_check *check)
{
    const bool is_free = !c->call->strict, pairs = c->call->in_pairs;
    return (gemm_args){.check = check,
                       .any_order = is_free,
                       .in_pairs = pairs,
                       .fills = c->call->fills && c->first == 0,
                       .rounds = (is_free || pairs) && c->call->in[1].type == DTYPE_BF16};
}

static gemm_matrix rows_of(const kern_tensor *t, int64_t first)
{
    const char *row = (const char *)t->data + first * t->strides[0] * dtype_bytes(t->type);
    return gemm_rows(row, t->type, t->strides[0]);
}

static void cap_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    c->leaf->cap(c->logits + index * c->layout.stride, c->call->in[1].dims[0], c->call->attrs.cap);
}

static void logits_make(const kern_context *context, chunk *c)
{
    const kern_tensor *x = &c->call->in[0], *w = &c->call->in[1];
    gemm_args g = product_begin(c, &c->checks[OF_LOGITS]);
    g.m = c->rows;
    g.n = w->dims[0];
    g.k = x->dims[1];
    g.a = rows_of(x, c->first);
    g.b = gemm_transposed(rows_of(w, 0));
    g.c = c->logits;
    g.c_type = DTYPE_F32;
    g.ldc = c->layout.stride;
    g.panels = c->logits_panels;
    gemm_run(context, &g);
    if (c->call->attrs.cap > 0.0F) kern_parallel(context->pool, c->rows, cap_task, c);
}

static void dx_scale(const void *context, float *values, int64_t i, int64_t j, int64_t count)
{
    (void)j;
    const chunk *c = context;
    c->leaf->scale(values, count, c->factors[i]);
}

static void dx_narrow_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    const kern_tensor *dx = &c->call->out[1];
    const int64_t dim = c->call->in[0].dims[1];
    const int64_t at = (c->first + index) * dx->strides[0] + c->term * dim;
    c->conversions->store((char *)dx->data + at * dtype_bytes(dx->type), dx->type,
                          c->dx + index * dim, dim);
}

// Computes the term of rows [begin, end) of w, which is all of dx if the vocabulary is not cut.
static void dx_make(const kern_context *context, chunk *c, int64_t begin, int64_t end)
{
    const kern_tensor *w = &c->call->in[1], *dx = &c->call->out[1];
    const int64_t dim = w->dims[1], width = dtype_bytes(dx->type);
    char *target = (char *)dx->data + (c->first * dx->strides[0] + c->term * dim) * width;
    gemm_args g = product_begin(c, &c->checks[OF_DX]);
    g.m = c->rows;
    g.n = dim;
    g.k = end - begin;
    g.a = gemm_rows(c->logits + begin, DTYPE_F32, c->layout.stride);
    g.b = rows_of(w, begin);
    g.c = c->layout.narrow_dx ? (void *)c->dx : (void *)target;
    g.c_type = DTYPE_F32;
    g.ldc = c->layout.narrow_dx ? dim : dx->strides[0];
    g.epilogue = dx_scale;
    g.epilogue_context = c;
    g.panels = c->dx_panels;
    gemm_run(context, &g);
    if (c->layout.narrow_dx) kern_parallel(context->pool, c->rows, dx_narrow_task, c);
}

static void dx_terms(const kern_context *context, chunk *c)
{
    const op_piece *piece = &c->call->piece;
    if (c->call->out[1].data == NULL) return;
    c->term = 0;
    if (!c->cut) {
        dx_make(context, c, 0, c->call->in[1].dims[0]);
        return;
    }
    for (; c->term < piece->shard_count; c->term++) {
        dx_make(context, c, shard_begin(c->call, piece->first_shard + c->term),
                shard_begin(c->call, piece->first_shard + c->term + 1));
    }
}

static void dw_add(const kern_context *context, chunk *c)
{
    const kern_tensor *dw = &c->call->out[2];
    if (dw->data == NULL) return;
    gemm_args g = product_begin(c, &c->checks[OF_DW]);
    g.m = dw->dims[0];
    g.n = dw->dims[1];
    g.k = c->rows;
    g.a = gemm_transposed(gemm_rows(c->logits, DTYPE_F32, c->layout.stride));
    g.b = gemm_rows(c->x, DTYPE_F32, dw->dims[1]);
    g.c = dw->data;
    g.c_type = dw->type;
    g.ldc = dw->strides[0];
    g.accumulate = c->first > 0 || c->call->accumulate;
    gemm_run(context, &g);
}

// The bytes of the space in which each product is checked.
static void check_parts(const kern_call *call, int64_t bytes[PRODUCTS])
{
    const int64_t rows = layout_of(call).rows;
    const kern_tensor *w = &call->in[1], *dw = &call->out[2];
    const int64_t vocab = w->dims[0], dim = w->dims[1];
    const bool is_loss = call->code == OP_HEAD_LOSS;
    memset(bytes, 0, PRODUCTS * sizeof(bytes[0]));
    bytes[OF_LOGITS] = gemm_check_bytes(rows, vocab, dim, DTYPE_F32, false);
    if (is_loss && call->out[1].data != NULL) {
        bytes[OF_DX] = gemm_check_bytes(rows, dim, vocab, DTYPE_F32, false);
    }
    if (is_loss && dw->data != NULL) {
        bytes[OF_DW] = gemm_check_bytes(vocab, dim, rows, dw->type, true);
    }
    for (int i = 0; i < PRODUCTS; i++) bytes[i] = align_up(bytes[i], ALIGN_TENSOR);
}

int64_t cpu_head_check_bytes(const kern_call *call)
{
    int64_t bytes[PRODUCTS];
    check_parts(call, bytes);
    return bytes[OF_LOGITS] + bytes[OF_DX] + bytes[OF_DW];
}

// The weight is the B of the first two products, so its sums are made once for all chunks.
static void checks_find(const kern_context *context, chunk *c)
{
    int64_t bytes[PRODUCTS];
    gemm_check rest = gemm_check_of(context, c->call);
    check_parts(c->call, bytes);
    for (int i = 0; i < PRODUCTS; i++) {
        c->checks[i] = gemm_check_part(&rest, bytes[i]);
        c->checks[i].keeps_b = i != OF_DW;
    }
}

static void panels_find(chunk *c, kern_level level)
{
    const kern_call *call = c->call;
    const head_panels p = panels_of(call, level);
    if (call->packed == NULL) return;
    if (p.logits > 0) c->logits_panels = call->packed;
    if (p.dx > 0) c->dx_panels = (char *)call->packed + p.logits;
}

static status labels_check(const kern_call *call)
{
    const int64_t tokens = call->in[0].dims[0], vocab = vocabulary_of(call);
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t label = label_of(call, i);
        if (label < vocab) continue;
        return fail(ST_DATA, "head: row %lld has label %lld, the vocabulary has %lld", (long long)i,
                    (long long)label, (long long)vocab);
    }
    return ST_OK;
}

status cpu_head_loss(const kern_context *context, const kern_call *call)
{
    TRY(labels_check(call));
    const int64_t tokens = call->in[0].dims[0];
    chunk c = {.call = call,
               .leaf = context->level >= KERN_AVX2 ? &head_rows_avx2 : &head_rows_scalar,
               .conversions = gemm_unit_of(context->level),
               .layout = layout_of(call),
               .logits = call->workspace,
               .cut = call->in[3].data != NULL,
               .wants_grad = call->out[1].data != NULL || call->out[2].data != NULL};
    const int64_t dim = call->in[0].dims[1], rows = c.layout.rows;
    c.x = c.logits + rows * c.layout.stride;
    c.factors = c.x + rows * dim;
    c.dx = c.factors + rows;
    if (c.wants_grad) c.unit = call->step->device.loss_scale / call->loss_divisor;
    panels_find(&c, context->level);
    checks_find(context, &c);
    // the loop runs once even without tokens: an accumulator that starts here starts from +0, and
    // weights are packed
    do {
        c.rows = min_i64(c.layout.rows, tokens - c.first);
        const bool is_kept = c.cut && call->attrs.kept && rows == tokens;
        if (!is_kept && (!c.cut || c.wants_grad)) logits_make(context, &c);
        kern_parallel(context->pool, c.rows, c.cut ? piece_task : softmax_task, &c);
        if (c.wants_grad) {
            dx_terms(context, &c);
            dw_add(context, &c);
        }
        c.first += c.rows;
    } while (c.first < tokens);
    return ST_OK;
}

// ---- statistics of the shards of a piece --------------------------------------------------------

int64_t cpu_head_stats_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return layout_of(call).bytes;
}

static void stats_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const chunk *c = context;
    const kern_call *call = c->call;
    const op_piece *piece = &call->piece;
    const kern_tensor *out = &call->out[0];
    const int64_t label = label_of(call, c->first + index);
    float *row = c->logits + index * c->layout.stride;
    for (int64_t i = 0; i < piece->shard_count; i++) {
        const int64_t begin = shard_begin(call, piece->first_shard + i);
        const int64_t end = shard_begin(call, piece->first_shard + i + 1);
        const int64_t at = label - piece->first_row;
        const int64_t to = (c->first + index) * out->strides[0] + 3 * i;
        double top = label < 0 ? 0.0 : -HUGE_VAL, sum = 0.0, own = 0.0;
        if (label >= 0 && end > begin) {
            if (at >= begin && at < end) own = (double)row[at];
            top = (double)c->leaf->highest(row + begin, end - begin);
            sum = c->leaf->sum(row + begin, end - begin, (float)top);
        }
        dtype_store(out->type, out->data, to, top);
        dtype_store(out->type, out->data, to + 1, sum);
        dtype_store(out->type, out->data, to + 2, own);
    }
}

status cpu_head_stats(const kern_context *context, const kern_call *call)
{
    TRY(labels_check(call));
    const int64_t tokens = call->in[0].dims[0];
    chunk c = {.call = call,
               .leaf = context->level >= KERN_AVX2 ? &head_rows_avx2 : &head_rows_scalar,
               .conversions = gemm_unit_of(context->level),
               .layout = layout_of(call),
               .logits = call->workspace};
    panels_find(&c, context->level);
    checks_find(context, &c);
    do {
        c.rows = min_i64(c.layout.rows, tokens - c.first);
        logits_make(context, &c);
        kern_parallel(context->pool, c.rows, stats_task, &c);
        c.first += c.rows;
    } while (c.first < tokens);
    return ST_OK;
}
