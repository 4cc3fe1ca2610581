// For tests: the values of a sample's operands.
//
// They depend on (seed, operand, element) only, so two memories of one sample, however laid out, hold
// the same numbers. All that is not an input starts as NaN.
#ifndef KERNELS_SAMPLE_VALUES_H
#define KERNELS_SAMPLE_VALUES_H

#include "kernels/sample_fixture.h"

// An integer operand, by its place in op.h.
static inline int64_t sample_int(const sample_memory *m, int operand, int64_t index, uint64_t seed)
{
    const kern_call *c = &m->call;
    const int64_t draw = (int64_t)(test_bits(seed, operand, index) >> 34);
    switch ((int)c->code * OP_MAX_IN + operand) {
    case OP_EMBEDDING *OP_MAX_IN + 0:
        return draw % c->in[1].dims[0];
    case OP_EMBEDDING *OP_MAX_IN + 2:
        return draw % c->in[3].dims[0];
    case OP_EMBEDDING_DW *OP_MAX_IN + 0:
        return draw % c->out[0].dims[0];
    case OP_ROPE *OP_MAX_IN + 1:
        return draw % c->in[2].dims[0];
    case OP_HEAD_LOSS *OP_MAX_IN + 2:
    case OP_HEAD_STATS *OP_MAX_IN + 2:
        return draw % (max_i64(c->in[1].dims[0], c->attrs.whole_rows) + 1) - 1;
    case OP_GATHER *OP_MAX_IN + 1:
        return draw % c->in[0].dims[0];
    case OP_STEP_LOSS *OP_MAX_IN + 1:
        return draw % 4 - 1;
    case OP_SAMPLE *OP_MAX_IN + 2:
        return draw % 100;
    case OP_ATTENTION *OP_MAX_IN + 3:
    case OP_ATTENTION_BWD *OP_MAX_IN + 6: // a new document every five rows
        return index / c->seq * 1000 + index % c->seq / 5;
    case OP_ATTENTION *OP_MAX_IN + 4:
    case OP_CACHE_APPEND *OP_MAX_IN + 1:
        return c->seq + draw % (c->cache_seq - c->seq + 1);
    default:
        return 0;
    }
}

static inline double sample_real(const sample_memory *m, int operand, int64_t index, uint64_t seed)
{
    static const double params[8] = {0.8, 5.0, 0.9, 0.05, 0.0, 0.0, 0.0, 0.0};
    const double u = test_uniform(seed, operand, index);
    switch ((int)m->call.code * OP_MAX_IN + operand) {
    case OP_SAMPLE *OP_MAX_IN + 0:
        return 6.0 * u;
    case OP_SAMPLE *OP_MAX_IN + 1:
        return params[index % 8];
    case OP_STEP_LOSS *OP_MAX_IN + 0:
    case OP_ADAMW *OP_MAX_IN + 3:
        return fabs(u);
    case OP_ACTIVATION *OP_MAX_IN + 0:
    case OP_ACTIVATION_BWD *OP_MAX_IN + 0:
    case OP_SWIGLU *OP_MAX_IN + 0:
    case OP_SWIGLU_BWD *OP_MAX_IN + 0:
        return 5.0 * u;
    default:
        return u;
    }
}

static inline double sample_row_mean(const kern_tensor *h, int64_t first, int64_t count,
                                     bool squares)
{
    double sum = 0.0;
    for (int64_t j = first; j < first + count; j++) {
        sum += squares ? kt_get(h, j) * kt_get(h, j) : kt_get(h, j);
    }
    return sum / (double)count;
}

// Statistics that a forward operation would have left.
static inline void sample_derive_norm(sample_memory *m)
{
    kern_call *c = &m->call;
    const kern_tensor *h = &c->in[1];
    const double eps = (double)c->attrs.eps;
    const int64_t columns = h->dims[1];
    if (c->code == OP_RMSNORM_DX || c->code == OP_RMSNORM_DW) {
        const int64_t groups = c->in[2].dims[1], dim = columns / groups;
        for (int64_t g = 0; g < h->dims[0] * groups; g++) {
            kt_put(&c->in[2], g, 1.0 / sqrt(sample_row_mean(h, g * dim, dim, true) + eps));
        }
        return;
    }
    for (int64_t i = 0; i < h->dims[0]; i++) {
        const double mean = sample_row_mean(h, i * columns, columns, false);
        const double squares = sample_row_mean(h, i * columns, columns, true);
        kt_put(&c->in[2], i, mean);
        kt_put(&c->in[3], i, 1.0 / sqrt(fmax(squares - mean * mean, 0.0) + eps));
    }
}

static inline void sample_derive_attention(sample_memory *m)
{
    const kern_call *c = &m->call;
    kern_call forward = *c;
    forward.code = OP_ATTENTION;
    memset(forward.in, 0, sizeof(forward.in));
    memset(forward.out, 0, sizeof(forward.out));
    for (int i = 0; i < 3; i++) forward.in[i] = c->in[i + 1];
    forward.in[3] = c->in[6];
    forward.out[0] = c->in[4];
    forward.out[1] = c->in[5];
    forward.workspace_bytes = kern_workspace_bytes(&kern_backend_ref, &forward, 1);
    forward.workspace = kt_make(m->a, DTYPE_U8, 1, &forward.workspace_bytes).data;
    must(kern_run(&kern_backend_ref, NULL, &forward));
}

// Statistics of all shards; those of pieces that others have are made up, near those of w.
static inline void sample_derive_head(sample_memory *m, uint64_t seed)
{
    const kern_call *c = &m->call;
    const int64_t rows = c->in[0].dims[0], per_tile = c->in[3].dims[1] / 3;
    const int64_t dims[2] = {rows, 3 * (int64_t)c->attrs.shard_count};
    kern_call first = *c;
    first.code = OP_HEAD_STATS;
    memset(&first.in[3], 0, sizeof(first.in[3]));
    memset(first.out, 0, sizeof(first.out));
    first.out[0] = kt_make(m->a, c->in[3].type, 2, dims);
    first.workspace_bytes = kern_workspace_bytes(&kern_backend_ref, &first, 1);
    first.workspace = kt_make(m->a, DTYPE_U8, 1, &first.workspace_bytes).data;
    must(kern_run(&kern_backend_ref, NULL, &first));
    for (int64_t s = 0; s < c->attrs.shards; s++) {
        const int64_t own = s - c->attrs.first_shard;
        const bool is_own = own >= 0 && own < c->attrs.shard_count;
        for (int64_t n = 0; n < rows; n++) {
            const int64_t begin = max_i64(c->attrs.whole_rows, c->in[1].dims[0]) * s;
            const int64_t label = (int64_t)kt_get(&c->in[2], n) * c->attrs.shards;
            const bool has_label =
                label >= begin && label < begin + max_i64(c->attrs.whole_rows, c->in[1].dims[0]);
            const double made_up[3] = {0.3, 2.0 + test_uniform(seed, 9, n), has_label ? 0.1 : 0.0};
            for (int k = 0; k < 3; k++) {
                const double own_value =
                    is_own ? kt_get(&first.out[0], (n * c->attrs.shard_count + own) * 3 + k) : 0.0;
                kt_put(&c->in[3], ((s / per_tile * rows + n) * per_tile + s % per_tile) * 3 + k,
                       is_own ? own_value : made_up[k]);
            }
        }
    }
}

// Cached rows that no query may see stay NaN.
static inline void sample_hide_cache(sample_memory *m)
{
    const kern_call *c = &m->call;
    if (c->code != OP_ATTENTION || c->in[4].data == NULL) return;
    for (int i = 1; i <= 2; i++) {
        const int64_t columns = c->in[i].dims[1];
        for (int64_t row = 0; row < c->in[i].dims[0]; row++) {
            const int64_t length = (int64_t)kt_get(&c->in[4], row / c->cache_seq);
            if (row % c->cache_seq < length) continue;
            for (int64_t j = 0; j < columns; j++) kt_put(&c->in[i], row * columns + j, (double)NAN);
        }
    }
}

// All inputs, and where asked the accumulators; everything else NaN.
static inline void sample_fill(sample_memory *m, uint64_t seed, bool accumulators)
{
    kern_call *c = &m->call;
    for (int64_t t = 0; t < m->of->program->tensor_count; t++) {
        sample_buffer *b = &m->buffers[t];
        if (b->base != NULL) memset(b->base, 0xFF, (size_t)b->bytes);
    }
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (c->in[i].data == NULL || c->in[i].data == (void *)&m->step) continue;
        for (int64_t e = 0; e < kt_elements(&c->in[i]); e++) {
            const double value = kt_is_floating(&c->in[i]) ? sample_real(m, i, e, seed)
                                                           : (double)sample_int(m, i, e, seed);
            kt_put(&c->in[i], e, value);
        }
    }
    for (int o = 0; o < OP_MAX_OUT && accumulators; o++) {
        if (c->out[o].data == NULL || (m->of->kind->accumulates >> o & 1u) == 0) continue;
        for (int64_t e = 0; e < kt_elements(&c->out[o]); e++) {
            kt_put(&c->out[o], e, test_uniform(seed, OP_MAX_IN + o, e));
        }
    }
    const op_code code = c->code;
    if (code == OP_RMSNORM_DX || code == OP_RMSNORM_DW || code == OP_LAYERNORM_DX ||
        code == OP_LAYERNORM_DW) {
        sample_derive_norm(m);
    }
    if (code == OP_ATTENTION_BWD) sample_derive_attention(m);
    if (code == OP_HEAD_LOSS && c->in[3].data != NULL) sample_derive_head(m, seed);
    sample_hide_cache(m);
}

#endif
