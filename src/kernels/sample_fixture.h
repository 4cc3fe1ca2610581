// For tests: the samples of op/op_sample.h with memory, ready to be run by any backend
// (sample_values.h fills them).
//
// Every whole tensor lies between guard bytes in a buffer of its own; rows may be set apart to try
// strides.
#ifndef KERNELS_SAMPLE_FIXTURE_H
#define KERNELS_SAMPLE_FIXTURE_H

#include "kernels/backend_fixture.h"
#include "kernels/tensor_fixture.h"
#include "op/op_sample.h"

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

static inline void sample_open(arena *a, op_code code, int variant, sample *s)
{
    op_list list;
    int64_t index;
    memset(s, 0, sizeof(*s));
    must(op_sample(a, code, variant, &s->program, &list, &index, &s->bound));
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
        b->bytes = SAMPLE_GUARD + SAMPLE_GUARD + rows * b->stride * dtype_bytes(whole->type);
        char *base;
        must(arena_alloc(m->a, b->bytes + ALIGN_TENSOR, (void **)&base));
        base += (ALIGN_TENSOR - (int64_t)((uintptr_t)base % ALIGN_TENSOR)) % ALIGN_TENSOR;
        b->base = (unsigned char *)base;
        memset(b->base, 0xFF, (size_t)b->bytes);
        must(arena_alloc(m->a, b->bytes, (void **)&b->copy));
    }
    if (k.ndim == 2) k.strides[0] = b->stride;
    const int64_t first = t->view_of == TENSOR_NONE ? 0 : t->view_begin;
    const int64_t first_row = t->view_of == TENSOR_NONE ? 0 : t->view_row;
    k.data = b->base + SAMPLE_GUARD + (first_row * b->stride + first) * dtype_bytes(t->type);
    return k;
}

// pad: elements between the rows of every whole two-dim tensor.
static inline sample_memory *sample_memory_create(arena *a, const sample *s, int64_t pad)
{
    sample_memory *m;
    must(arena_new(a, 1, &m));
    m->of = s;
    m->a = a;
    must(arena_new(a, s->program->tensor_count, &m->buffers));
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
    step_device_init(&m->step.device, 8.0);
    m->step.device.applied = 3;
    m->step.device.grad_factor = 0.7;
    return m;
}

// ---- running ------------------------------------------------------------------------------------
// Elements of the largest input.
static inline int64_t sample_largest(const sample *s)
{
    int64_t most = 0;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (s->node.in[i] == TENSOR_NONE) continue;
        const op_tensor *tensor = &s->program->tensors[s->node.in[i]];
        if (tensor->role == ROLE_STEP) continue;
        most = max_i64(most, op_tensor_elements(tensor, &s->bound));
    }
    return most;
}

// The big samples are for kernels that work in blocks: where size says nothing, they are left out.
static inline bool sample_is_big(const sample *s)
{
    return sample_largest(s) > 20000;
}

static inline status sample_run_call(sample_memory *m, const backend_run *run, kern_call *call)
{
    const int threads = kern_pool_threads(run->context.pool);
    call->workspace_bytes = kern_workspace_bytes(run->backend, call, threads);
    const int64_t dims[1] = {call->workspace_bytes};
    call->workspace = kt_make(m->a, DTYPE_U8, 1, dims).data;
    return kern_run(run->backend, &run->context, call);
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
