// Times single kernels: the GEMMs of a model's step, and attention.
//
// A call is made as the executor makes it (operands, workspace, scratch memory of the threads), on
// the cpu backend. Operands are small values: large ones are no slower, but infinities might be.
#include "train/bench.h"

#include "base/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = OP_MAX_IN + OP_MAX_OUT + 3, MAX_REPEATS = 1000 };

typedef struct bench_call {
    kern_context *kernels; // open
    kern_call call;
    void *pieces[MAX_PIECES]; // freed at the end
    int piece_count;
} bench_call;

static status piece(bench_call *c, int64_t bytes, void **out)
{
    ASSERT(c->piece_count < MAX_PIECES);
    void *memory = aligned_alloc(4096, (size_t)align_up(max_i64(bytes, 1), 4096));
    if (memory == NULL) {
        return fail(ST_NO_MEMORY, "no %lld bytes for a kernel's operand", (long long)bytes);
    }
    c->pieces[c->piece_count++] = memory;
    *out = memory;
    return ST_OK;
}

static void call_destroy(bench_call *c)
{
    kern_context_close(c->kernels);
    for (int i = 0; i < c->piece_count; i++) free(c->pieces[i]);
}

static status call_create(const train_bench_on *on, op_code code, bench_call *c)
{
    void *step = NULL;
    memset(c, 0, sizeof(*c));
    c->call = (kern_call){.code = code, .loss_divisor = 1.0, .accumulate = true};
    status st = kern_context_open(on->kernels, 0, &c->kernels);
    if (st == ST_OK) st = piece(c, (int64_t)sizeof(step_block), &step);
    if (st != ST_OK) {
        call_destroy(c);
        return st;
    }
    kern_context_lead(c->kernels);
    memset(step, 0, sizeof(step_block));
    c->call.step = step;
    step_device_init(&c->call.step->device, 1.0);
    return ST_OK;
}

// Fills a tensor with values of -3/8 to 3/8; integer types get 0 to 6.
static status tensor(bench_call *c, dtype type, int64_t rows, int64_t columns, kern_tensor *out)
{
    enum { PERIOD = 7 * 64 };
    const int64_t count = rows * columns, width = dtype_bytes(type);
    void *data = NULL;
    TRY(piece(c, count * width, &data));
    for (int64_t i = 0; i < min_i64(count, PERIOD); i++) {
        if (type == DTYPE_I32) {
            ((int32_t *)data)[i] = (int32_t)(i % 7);
        } else {
            dtype_store(type, data, i, (double)(i % 7 - 3) / 8.0);
        }
    }
    for (int64_t i = PERIOD; i < count; i += PERIOD) {
        memcpy((char *)data + i * width, data, (size_t)(min_i64(PERIOD, count - i) * width));
    }
    *out = (kern_tensor){
        .data = data, .type = type, .ndim = 2, .dims = {rows, columns}, .strides = {columns, 1}};
    return ST_OK;
}

static status vector(bench_call *c, dtype type, int64_t count, kern_tensor *out)
{
    TRY(tensor(c, type, count, 1, out));
    out->ndim = 1;
    return ST_OK;
}

static status call_time(const train_bench_on *on, bench_call *c, train_time *out)
{
    enum { LEAST = 3, MOST = 20 };
    static const double enough_s = 2.0;
    double seconds[MAX_REPEATS], all_s = 0.0;
    const int64_t repeats = min_i64(on->repeats > 0 ? on->repeats : MOST, MAX_REPEATS);
    c->call.workspace_bytes = kern_workspace_bytes(c->kernels, &c->call);
    TRY(piece(c, c->call.workspace_bytes, &c->call.workspace));
    TRY(kern_run(c->kernels, &c->call)); // untimed: touches the memory and wakes the threads
    int64_t n = 0;
    while (n < repeats && (on->repeats > 0 || n < LEAST || all_s < enough_s)) {
        const int64_t begin_ns = on->h->api->monotonic_ns(on->h);
        TRY(kern_run(c->kernels, &c->call));
        seconds[n] = (double)(on->h->api->monotonic_ns(on->h) - begin_ns) / 1e9;
        all_s += seconds[n++];
    }
    *out = train_time_of(seconds, n);
    return ST_OK;
}

// ---- GEMMs --------------------------------------------------------------------------------------

double train_gemm_flops(op_code code, int64_t n, int64_t m, int64_t k)
{
    const double gemm = 2.0 * (double)n * (double)m * (double)k;
    return op_kind_of(code)->logits == LOGITS_LOSS ? 3.0 * gemm : gemm; // logits, dx and dw
}

static status gemm_operands(bench_call *c, dtype type, const train_gemm *g)
{
    const int64_t n = g->n, m = g->m, k = g->k;
    kern_call *call = &c->call;
    call->seq = n;
    const op_kind *kind = op_kind_of(g->code);
    if (kind->gemm == NULL || kind->no_kernel) {
        return fail(ST_INTERNAL, "%s is no GEMM", kind->name);
    }
    if (kind->grad_of != GRAD_OF_NONE) TRY(tensor(c, type, n, m, &call->in[0])); // dy
    switch (kind->grad_of) {
    case GRAD_OF_INPUT:
        TRY(tensor(c, type, m, k, &call->in[1]));
        return tensor(c, type, n, k, &call->out[0]);
    case GRAD_OF_WEIGHT:
        TRY(tensor(c, type, n, k, &call->in[1]));
        return tensor(c, DTYPE_F32, m, k, &call->out[0]);
    case GRAD_OF_NONE:
    default:
        TRY(tensor(c, type, n, k, &call->in[0]));
        TRY(tensor(c, type, m, k, &call->in[1]));
        if (kind->logits == LOGITS_NONE) return tensor(c, type, n, m, &call->out[0]);
        call->loss_divisor = (double)n;
        TRY(vector(c, DTYPE_I32, n, &call->in[2]));
        for (int64_t i = 0; i < n; i++) ((int32_t *)call->in[2].data)[i] = (int32_t)(i % m);
        TRY(vector(c, DTYPE_F32, n, &call->out[0]));
        TRY(tensor(c, type, n, k, &call->out[1]));
        return tensor(c, DTYPE_F32, m, k, &call->out[2]);
    }
}

status train_gemm_time(const train_bench_on *on, train_gemm *gemm)
{
    bench_call *c = malloc(sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for a kernel's call");
    status st = call_create(on, gemm->code, c);
    if (st == ST_OK) {
        st = gemm_operands(c, on->type, gemm);
        if (st == ST_OK) st = call_time(on, c, &gemm->time);
        call_destroy(c);
    }
    free(c);
    return st;
}

// The operands repeat with a period of 7, so the sums of two rows depend on where the rows begin
// in it.
static int64_t elements_wrong(const train_gemm *g, const kern_tensor *out)
{
    double sums[7][7], right = 0.0;
    int64_t wrong = 0;
    for (int x = 0; x < 7; x++) {
        for (int w = 0; w < 7; w++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < g->k; i++) sum += ((x + i) % 7 - 3) * ((w + i) % 7 - 3);
            sums[x][w] = (double)sum / 64.0;
        }
    }
    for (int64_t i = 0; i < g->n * g->m; i++) {
        const double exact = sums[i / g->m * g->k % 7][i % g->m * g->k % 7];
        dtype_store(out->type, &right, 0, exact);
        wrong += dtype_load(out->type, &right, 0) != dtype_load(out->type, out->data, i);
    }
    return wrong;
}

status train_product_prove(const train_bench_on *on, int64_t *wrong)
{
    const train_gemm g = {.code = OP_MATMUL, .n = 256, .m = 257, .k = 513};
    bench_call *c = malloc(sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for a kernel's call");
    status st = call_create(on, g.code, c);
    if (st == ST_OK) {
        c->call.accumulate = false;
        st = gemm_operands(c, on->type, &g);
        c->call.workspace_bytes = kern_workspace_bytes(c->kernels, &c->call);
        if (st == ST_OK) st = piece(c, c->call.workspace_bytes, &c->call.workspace);
        if (st == ST_OK) st = kern_run(c->kernels, &c->call);
        if (st == ST_OK && fault_point("train.product.prove") != ST_OK) {
            error_clear();
            ((char *)c->call.out[0].data)[1] ^= 0x40;
        }
        if (st == ST_OK) *wrong = elements_wrong(&g, &c->call.out[0]);
        call_destroy(c);
    }
    free(c);
    return st;
}

// Returns the shape of a GEMM node that has a kernel and computes all of its result; false for
// other nodes.
static bool gemm_of(const op_program *p, const op_node *node, const extent_binding *bound,
                    train_gemm *out)
{
    const op_kind *kind = op_kind_of(node->code);
    op_gemm g;
    if (kind->no_kernel || kind->logits == LOGITS_STATS) return false;
    if (!op_gemm_of(p, node, bound, &g)) return false;
    // x has n rows of tokens; the weight is (m, k).
    const double n = kind->grad_of == GRAD_OF_WEIGHT ? g.k : g.m;
    const double m = kind->grad_of == GRAD_OF_WEIGHT  ? g.m
                     : kind->grad_of == GRAD_OF_INPUT ? g.k
                                                      : g.n;
    const double k = kind->grad_of == GRAD_OF_NONE ? g.k : g.n;
    *out = (train_gemm){
        .code = node->code, .n = (int64_t)n, .m = (int64_t)m, .k = (int64_t)k, .calls = 1};
    out->flops = train_gemm_flops(out->code, out->n, out->m, out->k);
    return true;
}

static status gemm_add(arena *a, const train_gemm *gemm, train_gemm **all, int64_t *count,
                       int64_t *capacity)
{
    for (int64_t i = 0; i < *count; i++) {
        train_gemm *g = &(*all)[i];
        if (g->code == gemm->code && g->n == gemm->n && g->m == gemm->m && g->k == gemm->k) {
            g->calls++;
            return ST_OK;
        }
    }
    TRY(arena_grow(a, (void **)all, capacity, *count + 1, (int64_t)sizeof(**all)));
    (*all)[(*count)++] = *gemm;
    return ST_OK;
}

status train_gemm_shapes(arena *a, const decoder_spec *spec, dtype type, int64_t tokens,
                         int64_t seq, train_gemm **out, int64_t *count)
{
    const model_options options = {
        .purpose = PURPOSE_TRAIN, .compute = type, .grad = DTYPE_F32, .seq = seq};
    op_model *m = NULL;
    int64_t capacity = 0;
    extent_binding bound = {{0}};
    bound.value[EXTENT_ONE] = 1;
    bound.value[EXTENT_TOKENS] = tokens;
    TRY(model_build(a, spec, &options, &m));
    *out = NULL;
    *count = 0;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int32_t i = 0; i < m->layer_count; i++) {
            const op_program *p = m->programs[m->layers[i].program];
            for (int64_t k = 0; k < p->lists[list].count; k++) {
                train_gemm gemm;
                if (!gemm_of(p, &p->lists[list].nodes[k], &bound, &gemm)) continue;
                TRY(gemm_add(a, &gemm, out, count, &capacity));
            }
        }
    }
    return ST_OK;
}

status train_bench_gemm(const host *h, const kern_context *kernels, dtype type, double *flops_per_s)
{
    static const int64_t sizes[][3] = {{512, 512, 512}, {1024, 1024, 1024}, {2048, 1024, 1024}};
    enum { LEAST = 3, MOST = 12 };
    static const double enough_s = 0.1; // per size
    train_bench_on on = {.h = h, .kernels = kernels, .type = type};
    double best = 0.0;
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        train_gemm g = {.code = OP_MATMUL, .n = sizes[i][0], .m = sizes[i][1], .k = sizes[i][2]};
        const double work = train_gemm_flops(g.code, g.n, g.m, g.k);
        if (best > 0.0 && work / best > enough_s) break; // at the peak of a slow machine
        on.repeats = best > 0.0 ? (int64_t)fmin(enough_s * best / work, MOST) : MOST;
        on.repeats = max_i64(on.repeats, LEAST);
        TRY(train_gemm_time(&on, &g));
        if (work / g.time.min_s > best) best = work / g.time.min_s;
    }
    *flops_per_s = best;
    return ST_OK;
}

// ---- attention ----------------------------------------------------------------------------------

double train_attention_flops(const train_attention *a)
{
    const double gemms = a->backward ? 4.0 : 2.0;
    return gemms * 2.0 * (double)a->batch * (double)a->heads * (double)a->head_dim *
           (double)a->seq * (double)a->seq / 2.0;
}

static status attention_operands(bench_call *c, dtype type, const train_attention *a)
{
    const int64_t n = a->batch * a->seq, q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    kern_call *call = &c->call;
    kern_tensor y, lse;
    call->seq = a->seq;
    call->attrs.heads = (int32_t)a->heads;
    call->attrs.kv_heads = (int32_t)a->kv_heads;
    call->attrs.head_dim = (int32_t)a->head_dim;
    call->attrs.scale = (float)(1.0 / sqrt((double)a->head_dim));
    TRY(tensor(c, type, n, q, &call->in[0]));
    TRY(tensor(c, type, n, kv, &call->in[1]));
    TRY(tensor(c, type, n, kv, &call->in[2]));
    TRY(tensor(c, type, n, q, &y));
    TRY(tensor(c, DTYPE_F32, n, a->heads, &lse));
    call->out[0] = y;
    call->out[1] = lse;
    if (!a->backward) return ST_OK;
    // The backward pass reads what the forward pass left.
    call->code = OP_ATTENTION;
    call->workspace_bytes = kern_workspace_bytes(c->kernels, call);
    TRY(piece(c, call->workspace_bytes, &call->workspace));
    TRY(kern_run(c->kernels, call));
    call->code = OP_ATTENTION_BWD;
    call->in[3] = call->in[2];
    call->in[2] = call->in[1];
    call->in[1] = call->in[0];
    TRY(tensor(c, type, n, q, &call->in[0]));
    call->in[4] = y;
    call->in[5] = lse;
    TRY(tensor(c, type, n, q, &call->out[0]));
    TRY(tensor(c, type, n, kv, &call->out[1]));
    return tensor(c, type, n, kv, &call->out[2]);
}

status train_attention_time(const train_bench_on *on, train_attention *attention)
{
    const op_code code = attention->backward ? OP_ATTENTION_BWD : OP_ATTENTION;
    attention->flops = train_attention_flops(attention);
    bench_call *c = malloc(sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for a kernel's call");
    status st = call_create(on, code, c);
    if (st == ST_OK) {
        st = attention_operands(c, on->type, attention);
        if (st == ST_OK) st = call_time(on, c, &attention->time);
        call_destroy(c);
    }
    free(c);
    return st;
}
