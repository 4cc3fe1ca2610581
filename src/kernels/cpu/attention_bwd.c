// Attention, backward. A task is one head of one sequence: all its query tiles in order
// (vec_attention_bwd.inc), with its own fp32 sums of dk and dv.
//
// Query heads that share a key-value head add to the same dk and dv. Their tasks run at the same
// time, so each keeps its own sums, and a second pass adds these in the order of the heads. To
// bound that memory, heads are processed in waves of whole groups; the size of a wave is a multiple
// of the number of threads, so no thread waits long. A head that shares no key-value head stores
// its sums at once, and its thread reuses the buffers. The bits of a result depend neither on waves
// nor on threads.
#include "kernels/cpu/attention.h"

#include <string.h>

enum {
    SUM_ROWS = 64, // keys of one task of the second pass
    AHEAD = 8 // rows that are asked for before they are written: 7% of backward at 256 keys in bf16
};

typedef struct bwd_job {
    const kern_call *call;
    const cpu_vec *vec;
    attention_leaf leaf;
    int64_t rows;          // queries of a tile
    int64_t keys;          // of a sequence
    int64_t first, count;  // heads of this wave, counted over sequences
    bool is_alone;         // no two heads share keys, and each thread has the sums of one head
    int64_t scratch, sums; // floats: per thread; of dk or dv of one head
    float *scratch_at, *sums_at;
} bwd_job;

static int64_t key_count(const kern_call *call)
{
    return call->in[2].dims[0] / max_i64(1, attention_sequences(call));
}

static int64_t sum_floats(const kern_call *call)
{
    return align_up(key_count(call) * align_up(attention_wide(call), 16), 16);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool is_alone(const kern_call *call)
{
    return call->attrs.heads == call->attrs.kv_heads;
}

static int64_t thread_floats(const kern_call *call)
{
    const int64_t wide = attention_wide(call);
    return align_up(cpu_attention_scratch(wide, true), 16) +
           cpu_attention_packed(key_count(call), wide, attention_key_runs(call));
}

// Returns the number of heads of a wave: whole groups and, unless that is too many, a multiple of
// the threads.
static int64_t wave_heads(const kern_call *call, int threads)
{
    const int64_t group = call->attrs.heads / call->attrs.kv_heads;
    ASSERT(group > 0 && threads > 0);
    const int64_t both = group / greatest_divisor(group, threads) * threads;
    const int64_t enough = (4 * threads + group - 1) / group * group;
    const int64_t heads = both <= enough ? (enough + both - 1) / both * both : enough;
    return min_i64(heads, attention_sequences(call) * call->attrs.heads);
}

int64_t cpu_attention_bwd_workspace(const kern_call *call, int threads)
{
    const int64_t heads = is_alone(call) ? threads : wave_heads(call, threads);
    const int64_t sums = heads * 2 * sum_floats(call);
    return (threads * thread_floats(call) + sums) * (int64_t)sizeof(float);
}

// Processes all tiles of one run of queries.
static void run_backward(const bwd_job *job, cpu_attention_tile *t, const attention_sequence *s,
                         const zigzag_run *run, int64_t head)
{
    const kern_call *c = job->call;
    const kern_tensor *dy = &c->in[0], *q = &c->in[1], *y = &c->in[4], *lse = &c->in[5];
    const kern_tensor *dq = &c->out[0];
    for (int64_t first = 0; first < run->count; first += job->rows) {
        const int64_t row = s->query_row + run->row + first;
        t->rows = min_i64(job->rows, run->count - first);
        t->position = run->position + first;
        t->q = cpu_span_at(q, row * q->strides[0] + head * t->dim);
        t->y = cpu_span_at(y, row * y->strides[0] + head * t->value_dim);
        t->dy = cpu_span_at(dy, row * dy->strides[0] + head * t->value_dim);
        t->dq = cpu_span_at(dq, row * dq->strides[0] + head * t->dim);
        t->lse = (float *)lse->data + row * lse->strides[0] + head;
        job->leaf(t);
    }
}

// Prefetches a row that will be written: rows are far apart, and the rows of a head are stored
// together.
static void row_fetch(cpu_span row, int64_t dim)
{
    const int64_t bytes = dim * dtype_bytes(row.type);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)row.at + i, 1, 3);
}

// Computes dk and dv of keys begin .. end - 1 of one key-value head as the sums of its group, head
// after head. `sums`: of the first one, which is head `member` of all sequences.
static void sum_keys(const bwd_job *job, float *sums, int64_t member, int64_t begin, int64_t end)
{
    const kern_call *c = job->call;
    const int64_t heads = c->attrs.heads, group = heads / c->attrs.kv_heads;
    const int64_t sequence = member / heads, kv = member % heads / group;
    const int64_t ways = c->piece.ring ? 1 : c->piece.cp_ways; // that the rows are gathered from
    for (int pass = 0; pass < 2; pass++) {
        const kern_tensor *out = &c->out[1 + pass];
        const int64_t dim = pass == 0 ? c->attrs.head_dim : attention_value_dim(c);
        const int64_t wide = align_up(dim, 16);
        for (int64_t key = begin; key < end; key++) {
            float *total = sums + pass * job->sums + key * wide;
            const cpu_span sum = {total, DTYPE_F32};
            for (int64_t g = 1; g < group; g++) {
                const cpu_span other = {total + g * 2 * job->sums, DTYPE_F32};
                job->vec->add(sum, sum, other, dim);
            }
            int64_t side = 0;
            const int64_t row =
                sequence * job->keys + zigzag_row(ways, c->piece.cp_turns, job->keys, key, &side);
            const float factor = pass == 0 ? c->attrs.scale : 1.0F;
            if (side > AHEAD) {
                const int64_t next = (row + AHEAD) * out->strides[0] + kv * dim;
                row_fetch(cpu_span_at(out, next), dim);
            }
            job->vec->scale(cpu_span_at(out, row * out->strides[0] + kv * dim), sum, factor, dim);
        }
    }
}

static void sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const bwd_job *job = context;
    const int64_t group = job->call->attrs.heads / job->call->attrs.kv_heads;
    const int64_t blocks = (job->keys + SUM_ROWS - 1) / SUM_ROWS;
    const int64_t member = index / blocks * group, begin = index % blocks * SUM_ROWS;
    sum_keys(job, job->sums_at + member * 2 * job->sums, job->first + member, begin,
             min_i64(job->keys, begin + SUM_ROWS));
}

static void head_task(void *context, int64_t index, int thread)
{
    const bwd_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *dy = &c->in[0], *q = &c->in[1], *k = &c->in[2], *v = &c->in[3];
    const kern_tensor *y = &c->in[4], *lse = &c->in[5], *dq = &c->out[0];
    const int64_t heads = c->attrs.heads, dim = c->attrs.head_dim, value = attention_value_dim(c);
    const int64_t sequence = (job->first + index) / heads, head = (job->first + index) % heads;
    const int64_t kv = head / (heads / c->attrs.kv_heads);
    const attention_sequence s = attention_sequence_of(c, k, NULL, sequence);
    float *dk = job->sums_at + (job->is_alone ? thread : index) * 2 * job->sums;
    memset(dk, 0, (size_t)(2 * job->sums) * sizeof(float));
    cpu_attention_tile t = {
        .dim = dim,
        .value_dim = value,
        .wide = attention_wide(c),
        .window = c->attrs.window,
        .scale = c->attrs.scale,
        .cap = c->attrs.cap,
        .k = cpu_span_at(k, s.key_row * k->strides[0] + kv * dim),
        .v = cpu_span_at(v, s.key_row * v->strides[0] + kv * value),
        .k_stride = k->strides[0],
        .v_stride = v->strides[0],
        .q_stride = q->strides[0],
        .y_stride = y->strides[0],
        .dy_stride = dy->strides[0],
        .dq_stride = dq->strides[0],
        .lse_stride = lse->strides[0],
        .dropout = c->attrs.dropout,
        .scratch = job->scratch_at + thread * job->scratch,
        .dk = dk,
        .dv = dk + job->sums,
    };
    attention_keys(c, &c->in[6], sequence, s.keys, &t);
    if (t.dropout > 0.0F) {
        t.stream = dropout_stream_of(&c->step->host, c->attrs.site, (int32_t)(c->first_head + head),
                                     c->first_sequence + sequence);
    }
    zigzag_run runs[ATTENTION_RUNS];
    int64_t packed[ATTENTION_RUNS];
    const int count = attention_runs(c, s.position, runs);
    for (int i = 0; i < count; i++) {
        attention_pack_begin(&t, t.scratch + align_up(cpu_attention_scratch(t.wide, true), 16),
                             packed);
        run_backward(job, &t, &s, &runs[i], head);
    }
    if (job->is_alone) sum_keys(job, dk, job->first + index, 0, job->keys);
}

status cpu_attention_bwd(const kern_context *context, const kern_call *call)
{
    TRY(attention_check(call, &call->in[2], NULL));
    const int threads = kern_pool_threads(context->pool);
    ASSERT(call->workspace_bytes >= cpu_attention_bwd_workspace(call, threads));
    bwd_job job = {.call = call,
                   .vec = cpu_vec_of(context->level),
                   .leaf = cpu_vec_of(context->level)->attention_bwd,
                   .keys = key_count(call),
                   .rows = ATTENTION_QUERIES_BWD,
                   .scratch = thread_floats(call),
                   .sums = sum_floats(call),
                   .is_alone = is_alone(call),
                   .scratch_at = call->workspace};
    if (attention_is_bf16(context, call)) {
        job.leaf = attention_bf16_bwd;
        job.rows = attention_bf16_rows(call->attrs.head_dim);
    }
    job.sums_at = job.scratch_at + threads * job.scratch;
    const int64_t total = attention_sequences(call) * call->attrs.heads;
    const int64_t wave = job.is_alone ? total : wave_heads(call, threads);
    const int64_t group = call->attrs.heads / call->attrs.kv_heads;
    const int64_t blocks = (job.keys + SUM_ROWS - 1) / SUM_ROWS;
    for (job.first = 0; job.first < total; job.first += wave) {
        job.count = min_i64(wave, total - job.first);
        kern_parallel(context->pool, job.count, head_task, &job);
        if (job.is_alone) continue;
        kern_parallel(context->pool, job.count / group * blocks, sum_task, &job);
    }
    return ST_OK;
}
