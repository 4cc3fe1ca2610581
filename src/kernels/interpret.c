// The interpreter of programs (interpret.h): one buffer per tensor, one kernel call per node.
#include "kernels/interpret.h"

#include <string.h>

struct kern_interpret {
    kern_interpret_config config;
    arena *a;
    void **data; // [tensor] first byte; NULL for a view
    step_block *step;
    void *workspace;
    int64_t workspace_bytes;
};

static status alloc_aligned(arena *a, int64_t bytes, void **out)
{
    char *memory;
    TRY(arena_alloc(a, bytes + ALIGN_TENSOR, (void **)&memory));
    const int64_t over = (int64_t)((uintptr_t)memory % ALIGN_TENSOR);
    *out = memory + (over == 0 ? 0 : ALIGN_TENSOR - over);
    return ST_OK;
}

// Returns the bytes of the step block and of the loads of experts that the program counts.
static int64_t step_bytes_of(const op_program *p)
{
    int64_t bytes = (int64_t)sizeof(step_block);
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_attrs *a = &p->lists[list].nodes[i].attrs;
            bytes = max_i64(bytes, step_bytes(a->load_layers, a->experts));
        }
    }
    return bytes;
}

status kern_interpret_create(arena *a, const kern_interpret_config *config, kern_interpret **out)
{
    const op_program *p = config->program;
    kern_interpret *it;
    TRY(arena_new(a, 1, &it));
    it->config = *config;
    it->config.bound.value[EXTENT_ONE] = 1;
    it->a = a;
    TRY(arena_new(a, max_i64(p->tensor_count, 1), &it->data));
    TRY(alloc_aligned(a, step_bytes_of(p), (void **)&it->step));
    it->step->host.step = 1;
    it->step->host.seed = 1;
    step_device_init(&it->step->device, 1.0);
    for (int64_t t = 0; t < p->tensor_count; t++) {
        const op_tensor *tensor = &p->tensors[t];
        if (tensor->role == ROLE_STEP) {
            it->data[t] = it->step;
        } else if (tensor->view_of == TENSOR_NONE) {
            const int64_t bytes = op_tensor_bytes(tensor, &it->config.bound);
            TRY(alloc_aligned(a, bytes, &it->data[t]));
            memset(it->data[t], 0xFF, (size_t)bytes);
        }
    }
    *out = it;
    return ST_OK;
}

kern_tensor kern_interpret_tensor(const kern_interpret *it, tensor_id t)
{
    kern_tensor k = {.data = NULL};
    if (t == TENSOR_NONE) return k;
    ASSERT(t >= 0 && t < it->config.program->tensor_count);
    const op_tensor *tensor = &it->config.program->tensors[t];
    k.type = tensor->type;
    k.ndim = tensor->ndim;
    int64_t stride = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        k.dims[d] = extent_value(tensor->dims[d], &it->config.bound);
        k.strides[d] = stride;
        stride *= k.dims[d];
    }
    if (tensor->dims[0].bounded) {
        const kern_tensor count = kern_interpret_tensor(it, tensor->dims[0].count);
        k.count_type = count.type;
        k.count = (char *)count.data + tensor->dims[0].count_at * dtype_bytes(count.type);
    }
    if (tensor->view_of == TENSOR_NONE) {
        k.data = it->data[t];
        return k;
    }
    const kern_tensor whole = kern_interpret_tensor(it, tensor->view_of);
    k.strides[0] = whole.strides[0];
    k.data = (char *)whole.data +
             (tensor->view_row * whole.strides[0] + tensor->view_begin) * dtype_bytes(tensor->type);
    return k;
}

void kern_interpret_bind(kern_interpret *it, tensor_id t, void *data)
{
    ASSERT(it->config.program->tensors[t].view_of == TENSOR_NONE);
    it->data[t] = data;
}

step_block *kern_interpret_step(kern_interpret *it)
{
    return it->step;
}

int64_t kern_interpret_elements(const kern_interpret *it, tensor_id t)
{
    return op_tensor_elements(&it->config.program->tensors[t], &it->config.bound);
}

static int64_t element_offset(const kern_tensor *k, int64_t index)
{
    const int64_t columns = k->dims[k->ndim - 1];
    return k->ndim == 2 ? index / columns * k->strides[0] + index % columns : index;
}

double kern_interpret_get(const kern_interpret *it, tensor_id t, int64_t index)
{
    const kern_tensor k = kern_interpret_tensor(it, t);
    return dtype_load(k.type, k.data, element_offset(&k, index));
}

void kern_interpret_put(kern_interpret *it, tensor_id t, int64_t index, double value)
{
    const kern_tensor k = kern_interpret_tensor(it, t);
    dtype_store(k.type, k.data, element_offset(&k, index), value);
}

status kern_interpret_node(kern_interpret *it, const op_node *node, bool accumulate)
{
    const kern_interpret_config *config = &it->config;
    const int64_t *bound = config->bound.value;
    const int64_t sequences = max_i64(bound[EXTENT_SEQS], 1);
    kern_call call = {
        .code = node->code,
        .attrs = node->attrs,
        .piece = node->piece,
        .step = it->step,
        .seq = bound[EXTENT_TOKENS] / sequences,
        .cache_seq = bound[EXTENT_CACHE] / sequences,
        .first_sequence = config->first_sequence,
        .loss_divisor = op_loss_divisor(&node->attrs, config->loss_divisor),
        .accumulate = accumulate,
        .strict = config->strict,
        .step_no = (int32_t)it->step->host.step,
        .microbatch = -1,
        .layer = -1,
    };
    for (int i = 0; i < OP_MAX_IN; i++) call.in[i] = kern_interpret_tensor(it, node->in[i]);
    for (int i = 0; i < OP_MAX_OUT; i++) call.out[i] = kern_interpret_tensor(it, node->out[i]);
    const int64_t wanted = kern_workspace_bytes(config->context, &call);
    if (wanted > it->workspace_bytes) {
        TRY(alloc_aligned(it->a, wanted, &it->workspace));
        memset(it->workspace, 0xFF, (size_t)wanted);
        it->workspace_bytes = wanted;
    }
    call.workspace = it->workspace;
    call.workspace_bytes = it->workspace_bytes;
    return kern_run(config->context, &call);
}

status kern_interpret_run(kern_interpret *it, op_list list, bool accumulate)
{
    const op_program *p = it->config.program;
    for (int64_t i = 0; i < p->lists[list].count; i++) {
        TRY(kern_interpret_node(it, &p->lists[list].nodes[i], accumulate));
    }
    return ST_OK;
}
