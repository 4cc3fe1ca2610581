// Counts of the rows that go to experts of several ranks, and the offsets of those that come: a few
// numbers, in the calling thread.
#include "kernels/cpu/vec_call.h"

#include <string.h>

static void add(const kern_tensor *t, int64_t at, int64_t value)
{
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[at] += (int32_t)value;
    } else {
        ((int64_t *)t->data)[at] += value;
    }
}

static void put(const kern_tensor *t, int64_t at, int64_t value)
{
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[at] = (int32_t)value;
    } else {
        ((int64_t *)t->data)[at] = value;
    }
}

static void clear(const kern_tensor *t)
{
    const int64_t rows = t->ndim == 2 ? t->dims[0] : 1, columns = t->dims[t->ndim - 1];
    for (int64_t r = 0; r < rows; r++) {
        char *row = (char *)t->data + r * tensor_stride(t) * dtype_bytes(t->type);
        memset(row, 0, (size_t)(columns * dtype_bytes(t->type)));
    }
}

// One pass over the tokens. An id below 0 stands for no expert.
status cpu_count_rows(const kern_context *context, const kern_call *call)
{
    (void)context;
    const kern_tensor *ids = &call->in[0], *counts = &call->out[0];
    const int64_t experts = call->attrs.experts, all = experts * call->attrs.ranks;
    const int64_t sequences = counts->dims[0] / call->attrs.ranks;
    const int64_t each = sequences > 0 ? ids->dims[0] / sequences : 0;
    clear(counts);
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = tensor_int(ids, n * tensor_stride(ids) + t);
            if (id >= all) {
                return fail(ST_DATA, "count_rows: token %lld asks for expert %lld of %lld",
                            (long long)n, (long long)id, (long long)all);
            }
            if (id < 0) continue;
            const int64_t row = id / experts * sequences + n / each;
            add(counts, row * tensor_stride(counts) + id % experts, 1);
        }
    }
    return ST_OK;
}

status cpu_limit_rows(const kern_context *context, const kern_call *call)
{
    (void)context;
    const kern_tensor *ids = &call->in[0], *kept = &call->out[0];
    int32_t taken[OP_LIMIT_EXPERTS];
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        if (n % call->attrs.limit_seq == 0) {
            memset(taken, 0, (size_t)call->attrs.experts * sizeof(*taken));
        }
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = tensor_int(ids, n * tensor_stride(ids) + t);
            if (id >= call->attrs.experts) {
                return fail(ST_DATA, "limit_rows: token %lld asks for expert %lld of %d",
                            (long long)n, (long long)id, (int)call->attrs.experts);
            }
            const bool fits = id >= 0 && taken[id] < call->attrs.limit;
            put(kept, n * tensor_stride(kept) + t, fits ? id : -1);
            if (fits) taken[id]++;
        }
    }
    return ST_OK;
}

status cpu_place_experts(const kern_context *context, const kern_call *call)
{
    (void)context;
    const kern_tensor *ids = &call->in[0], *table = &call->in[1], *slots = &call->out[0];
    const int64_t experts = call->attrs.experts, layer = max_i64(call->layer, 0);
    ASSERT(layer < table->dims[0]);
    for (int64_t n = 0; n < ids->dims[0]; n++) {
        for (int64_t t = 0; t < ids->dims[1]; t++) {
            const int64_t id = tensor_int(ids, n * tensor_stride(ids) + t);
            int64_t slot = -1;
            if (id >= experts) {
                return fail(ST_DATA, "place_experts: token %lld asks for expert %lld of %lld",
                            (long long)n, (long long)id, (long long)experts);
            }
            if (id >= 0) {
                slot = (int64_t)dtype_load(table->type, table->data,
                                           layer * tensor_stride(table) + id);
            }
            put(slots, n * tensor_stride(slots) + t, slot);
        }
    }
    return ST_OK;
}

status cpu_row_offsets(const kern_context *context, const kern_call *call)
{
    (void)context;
    const kern_tensor *counts = &call->in[0], *offsets = &call->out[0];
    const int64_t experts = call->attrs.experts;
    const int64_t sequences = counts->dims[0] / call->attrs.ranks;
    clear(offsets);
    for (int64_t r = 0; r < counts->dims[0]; r++) {
        for (int64_t e = 0; e < experts; e++) {
            const int64_t count = tensor_int(counts, r * tensor_stride(counts) + e);
            add(offsets, r / sequences * experts + e + 1, count);
        }
    }
    for (int64_t g = 1; g < offsets->dims[0]; g++) add(offsets, g, tensor_int(offsets, g - 1));
    return ST_OK;
}
