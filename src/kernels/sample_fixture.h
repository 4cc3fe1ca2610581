// For tests: the samples of op/op_sample.h with memory and values, ready to be run by any backend.
//
// Every whole tensor lies between guard bytes in a buffer of its own; rows may be set apart to try
// strides. Values depend on (seed, operand, element) only, so two memories of one sample, however
// laid out, hold the same numbers. All that is not an input starts as NaN.
#ifndef KERNELS_SAMPLE_FIXTURE_H
#define KERNELS_SAMPLE_FIXTURE_H

#include "base/rng.h"
#include "kernels/backend_fixture.h"
#include "op/op_sample.h"

#include <math.h>

typedef struct sample {
    op_program *program;
    op_node node;
    const op_kind *kind;
    extent_binding bound;
    int variant;
} sample;

typedef struct sample_buffer {
    unsigned char *base, *copy; // with the guards; copy: as it was before the run
    int64_t bytes, stride;      // stride: elements from row to row
} sample_buffer;

enum { SAMPLE_GUARD = 128 };

typedef struct sample_memory {
    const sample *of;
    arena *a;
    sample_buffer *buffers; // by whole tensor; base NULL where the node has none
    kern_call call;
    step_block step;
} sample_memory;

static inline void sample_must(status st)
{
    if (st == ST_OK) return;
    fprintf(stderr, "%s:%d: %s\n", error_last()->file, error_last()->line, error_last()->text);
    abort();
}

static inline void sample_open(arena *a, op_code code, int variant, sample *s)
{
    op_list list;
    int64_t index;
    memset(s, 0, sizeof(*s));
    sample_must(op_sample(a, code, variant, &s->program, &list, &index, &s->bound));
    s->bound.value[EXTENT_ONE] = 1;
    s->node = s->program->lists[list].nodes[index];
    s->kind = op_kind_of(code);
    s->variant = variant;
}

static inline int64_t sample_seq(const sample *s)
{
    return s->bound.value[EXTENT_TOKENS] / max_i64(s->bound.value[EXTENT_SEQS], 1);
}

static inline int64_t sample_cache_seq(const sample *s)
{
    return s->bound.value[EXTENT_CACHE] / max_i64(s->bound.value[EXTENT_SEQS], 1);
}

// ---- elements -----------------------------------------------------------------------------------
static inline int64_t kt_elements(const kern_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= t->dims[d];
    return count;
}

static inline int64_t kt_offset(const kern_tensor *t, int64_t index)
{
    if (t->ndim != 2) return index;
    return index / t->dims[1] * t->strides[0] + index % t->dims[1];
}

static inline double kt_get(const kern_tensor *t, int64_t index)
{
    return dtype_load(t->type, t->data, kt_offset(t, index));
}

static inline void kt_put(const kern_tensor *t, int64_t index, double value)
{
    dtype_store(t->type, t->data, kt_offset(t, index), value);
}

static inline bool kt_is_floating(const kern_tensor *t)
{
    return t->type <= DTYPE_F64;
}

static inline kern_tensor kt_make(arena *a, dtype type, int ndim, const int64_t *dims)
{
    kern_tensor t;
    memset(&t, 0, sizeof(t));
    t.type = type;
    t.ndim = ndim;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        t.dims[d] = dims[d];
        t.strides[d] = stride;
        stride *= dims[d];
    }
    const int64_t bytes = stride * dtype_bytes(type);
    char *data;
    sample_must(arena_alloc(a, bytes + ALIGN_TENSOR, (void **)&data));
    data += (ALIGN_TENSOR - (int64_t)((uintptr_t)data % ALIGN_TENSOR)) % ALIGN_TENSOR;
    memset(data, 0xFF, (size_t)bytes);
    t.data = data;
    return t;
}

// ---- memory -------------------------------------------------------------------------------------
static inline kern_tensor sample_operand(sample_memory *m, tensor_id id, int64_t pad)
{
    kern_tensor k;
    memset(&k, 0, sizeof(k));
    if (id == TENSOR_NONE) return k;
    const op_program *p = m->of->program;
    const op_tensor *t = &p->tensors[id];
    const op_tensor *whole = t->view_of == TENSOR_NONE ? t : &p->tensors[t->view_of];
    k.type = t->type;
    k.ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) k.dims[d] = extent_value(t->dims[d], &m->of->bound);
    k.strides[k.ndim - 1] = 1;
    if (t->role == ROLE_STEP) {
        k.data = &m->step;
        return k;
    }
    sample_buffer *b = &m->buffers[whole - p->tensors];
    if (b->base == NULL) {
        const int64_t rows = whole->ndim == 2 ? extent_value(whole->dims[0], &m->of->bound) : 1;
        const int64_t columns = extent_value(whole->dims[whole->ndim - 1], &m->of->bound);
        b->stride = columns + (whole->ndim == 2 ? pad : 0);
        b->bytes = 2 * SAMPLE_GUARD + rows * b->stride * dtype_bytes(whole->type);
        char *base;
        sample_must(arena_alloc(m->a, b->bytes + ALIGN_TENSOR, (void **)&base));
        base += (ALIGN_TENSOR - (int64_t)((uintptr_t)base % ALIGN_TENSOR)) % ALIGN_TENSOR;
        b->base = (unsigned char *)base;
        memset(b->base, 0xFF, (size_t)b->bytes);
        sample_must(arena_alloc(m->a, b->bytes, (void **)&b->copy));
    }
    if (k.ndim == 2) k.strides[0] = b->stride;
    const int64_t first = t->view_of == TENSOR_NONE ? 0 : t->view_begin;
    k.data = b->base + SAMPLE_GUARD + first * dtype_bytes(t->type);
    return k;
}

// pad: elements between the rows of every whole two-dim tensor.
static inline sample_memory *sample_memory_create(arena *a, const sample *s, int64_t pad)
{
    sample_memory *m;
    sample_must(arena_new(a, 1, &m));
    m->of = s;
    m->a = a;
    sample_must(arena_new(a, s->program->tensor_count, &m->buffers));
    m->call.code = s->node.code;
    m->call.attrs = s->node.attrs;
    for (int i = 0; i < OP_MAX_IN; i++) m->call.in[i] = sample_operand(m, s->node.in[i], pad);
    for (int i = 0; i < OP_MAX_OUT; i++) m->call.out[i] = sample_operand(m, s->node.out[i], pad);
    m->call.step = &m->step;
    m->call.seq = sample_seq(s);
    m->call.cache_seq = sample_cache_seq(s);
    m->call.first_sequence = 5;
    m->call.loss_divisor = 13.0;
    m->call.microbatch = -1;
    m->call.layer = -1;
    m->step.host.step = 3;
    m->step.host.seed = 0x123456789abcdef0u;
    m->step.host.lr = 0.01;
    m->step.settings.loss_divisor = 13.0;
    m->step.settings.clip = 1.0;
    step_device_init(&m->step.device, 1.0);
    m->step.device.applied = 3;
    m->step.device.grad_factor = 0.7;
    return m;
}

// ---- values -------------------------------------------------------------------------------------
static inline double sample_uniform(uint64_t seed, int operand, int64_t index)
{
    return 2.0 * (double)rng_uniform(rng_word(seed, (uint64_t)operand, (uint64_t)index)) - 1.0;
}

// In 0 .. count - 1.
static inline int64_t sample_below(uint64_t seed, int operand, int64_t index, int64_t count)
{
    return (int64_t)(rng_word(seed, (uint64_t)operand, (uint64_t)index) % (uint64_t)count);
}

// An integer operand, by its place in op.h.
static inline int64_t sample_int(const sample_memory *m, int operand, int64_t index, uint64_t seed)
{
    const kern_call *c = &m->call;
    const int64_t draw = sample_below(seed, operand, index, INT64_C(1) << 30);
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
        return draw % (c->in[1].dims[0] + 1) - 1;
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
    const double u = sample_uniform(seed, operand, index);
    switch ((int)m->call.code * OP_MAX_IN + operand) {
    case OP_SAMPLE *OP_MAX_IN + 0:
        return 6.0 * u;
    case OP_SAMPLE *OP_MAX_IN + 1:
        return params[index];
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

static inline status sample_run_call(sample_memory *m, const backend_run *run, kern_call *call)
{
    const int threads = kern_pool_threads(run->context.pool);
    call->workspace_bytes = kern_workspace_bytes(run->backend, call, threads);
    const int64_t dims[1] = {call->workspace_bytes};
    call->workspace = kt_make(m->a, DTYPE_U8, 1, dims).data;
    return kern_run(run->backend, &run->context, call);
}

static inline void sample_derive_attention(sample_memory *m)
{
    const kern_call *c = &m->call;
    backend_run ref;
    memset(&ref, 0, sizeof(ref));
    kern_call forward = *c;
    forward.code = OP_ATTENTION;
    memset(forward.in, 0, sizeof(forward.in));
    memset(forward.out, 0, sizeof(forward.out));
    for (int i = 0; i < 3; i++) forward.in[i] = c->in[i + 1];
    forward.in[3] = c->in[6];
    forward.out[0] = c->in[4];
    forward.out[1] = c->in[5];
    backend_run_init(&ref, &kern_backend_ref, KERN_SCALAR, 1);
    sample_must(sample_run_call(m, &ref, &forward));
    backend_runs_deinit(&ref, 1);
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
            kt_put(&c->out[o], e, sample_uniform(seed, OP_MAX_IN + o, e));
        }
    }
    const op_code code = c->code;
    if (code == OP_RMSNORM_DX || code == OP_RMSNORM_DW || code == OP_LAYERNORM_DX ||
        code == OP_LAYERNORM_DW) {
        sample_derive_norm(m);
    }
    if (code == OP_ATTENTION_BWD) sample_derive_attention(m);
    sample_hide_cache(m);
}

static inline status sample_run(sample_memory *m, const backend_run *run, bool accumulate,
                                bool strict)
{
    for (int64_t t = 0; t < m->of->program->tensor_count; t++) {
        sample_buffer *b = &m->buffers[t];
        if (b->base != NULL) memcpy(b->copy, b->base, (size_t)b->bytes);
    }
    m->call.accumulate = accumulate;
    m->call.strict = strict;
    return sample_run_call(m, run, &m->call);
}

// Every byte that is not an element of an output is as it was before the run.
static inline bool sample_rest_is_untouched(sample_memory *m)
{
    const op_program *p = m->of->program;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *t = &m->call.out[o];
        if (t->data == NULL || t->data == (void *)&m->step) continue;
        for (int64_t b = 0; b < p->tensor_count; b++) {
            sample_buffer *buffer = &m->buffers[b];
            const unsigned char *data = (const unsigned char *)t->data;
            if (buffer->base == NULL || data < buffer->base ||
                data >= buffer->base + buffer->bytes) {
                continue;
            }
            const int64_t rows = t->ndim == 2 ? t->dims[0] : 1;
            const int64_t width = t->dims[t->ndim - 1] * dtype_bytes(t->type);
            for (int64_t i = 0; i < rows; i++) {
                const int64_t at = data - buffer->base +
                                   (t->ndim == 2 ? i * t->strides[0] * dtype_bytes(t->type) : 0);
                memcpy(buffer->copy + at, buffer->base + at, (size_t)width);
            }
        }
    }
    for (int64_t b = 0; b < p->tensor_count; b++) {
        const sample_buffer *buffer = &m->buffers[b];
        if (buffer->base == NULL) continue;
        if (memcmp(buffer->copy, buffer->base, (size_t)buffer->bytes) != 0) return false;
    }
    return true;
}

#endif
