// Building programs: tensors, views, boundaries, and appending nodes. The functions that blocks
// call for single operations are in emit.c.
#include "op/op_internal.h"

#include "op/step.h"

#include <stdio.h>
#include <string.h>

status op_program_create(arena *a, op_purpose purpose, dtype compute, dtype grad, op_program **out)
{
    ASSERT(op_type_fits('f', compute));
    ASSERT(op_type_fits('f', grad));
    op_program *p = NULL;
    TRY(arena_new(a, 1, &p));
    p->a = a;
    p->purpose = purpose;
    p->compute = compute;
    p->grad = grad;
    p->step = TENSOR_NONE;
    for (int i = 0; i < OP_MAX_BOUNDARY; i++) {
        p->inputs[i] = p->outputs[i] = p->d_inputs[i] = p->d_outputs[i] = TENSOR_NONE;
    }
    *out = p;
    return ST_OK;
}

op_node op_node_of(op_code code)
{
    op_node node;
    memset(&node, 0, sizeof(node));
    node.code = code;
    for (int i = 0; i < OP_MAX_IN; i++) node.in[i] = TENSOR_NONE;
    for (int o = 0; o < OP_MAX_OUT; o++) node.out[o] = TENSOR_NONE;
    return node;
}

// Only rows may be bounded, by an element of a whole vector of integers.
static status counts_check(const op_program *p, const op_tensor *t)
{
    for (int d = 1; d < t->ndim; d++) {
        if (t->dims[d].bounded) return fail(ST_MODEL, "tensor %s: dim %d is bounded", t->name, d);
    }
    const extent rows = t->dims[0];
    if (!rows.bounded) return ST_OK;
    if (rows.count < 0 || rows.count >= p->tensor_count) {
        return fail(ST_MODEL, "tensor %s: its rows are counted by tensor %d of %lld", t->name,
                    (int)rows.count, (long long)p->tensor_count);
    }
    const op_tensor *count = op_at(p, rows.count);
    const bool is_integer = count->type == DTYPE_I32 || count->type == DTYPE_I64;
    if (is_integer && count->ndim == 1 && count->view_of == TENSOR_NONE &&
        count->dims[0].symbol == EXTENT_ONE && rows.count_at >= 0 &&
        rows.count_at < count->dims[0].scale) {
        return ST_OK;
    }
    return fail(ST_MODEL, "tensor %s: its rows cannot be counted by element %d of %s", t->name,
                (int)rows.count_at, count->name);
}

status op_tensor_add(op_program *p, const op_tensor *tensor, tensor_id *out)
{
    ASSERT(tensor->ndim >= 1 && tensor->ndim <= OP_MAX_DIMS);
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->dims[d].scale < 0 || tensor->dims[d].scale > INT64_C(1) << 48) {
            return fail(ST_MODEL, "tensor %s: dim %d is %lld, expected 0 to 2^48", tensor->name, d,
                        (long long)tensor->dims[d].scale);
        }
    }
    TRY(counts_check(p, tensor));
    if (p->tensor_count >= INT32_MAX) return fail(ST_INTERNAL, "a program has 2^31 tensors");
    TRY(arena_grow(p->a, (void **)&p->tensors, &p->tensor_capacity, p->tensor_count + 1,
                   (int64_t)sizeof(op_tensor)));
    *out = (tensor_id)p->tensor_count;
    p->tensors[p->tensor_count++] = *tensor;
    return ST_OK;
}

status op_tensor_make(op_program *p, const char *name, tensor_role role, dtype type, int ndim,
                      extent rows, extent columns, tensor_id *out)
{
    ASSERT(ndim == 1 || ndim == 2);
    op_tensor t = {.type = type,
                   .ndim = ndim,
                   .dims = {rows, columns},
                   .role = role,
                   .of = TENSOR_NONE,
                   .view_of = TENSOR_NONE};
    if (ndim == 1) t.dims[1] = extent_of(0);
    memset(t.cut_dim, -1, sizeof(t.cut_dim));
    (void)snprintf(t.name, sizeof(t.name), "%s", name);
    return op_tensor_add(p, &t, out);
}

status op_view(op_program *p, tensor_id of, const char *name, int64_t column_begin,
               int64_t column_count, tensor_id *out)
{
    const op_tensor *t = op_at(p, of);
    if (t->ndim != 2 || t->dims[1].symbol != EXTENT_ONE) {
        return fail(ST_MODEL, "view %s: %s has no columns to take", name, t->name);
    }
    if (column_begin < 0 || column_count <= 0 || column_count > t->dims[1].scale - column_begin) {
        return fail(ST_MODEL, "view %s: columns %lld to %lld are not in %s, which has %lld", name,
                    (long long)column_begin, (long long)(column_begin + column_count - 1), t->name,
                    (long long)t->dims[1].scale);
    }
    op_tensor view = {.type = t->type,
                      .ndim = 2,
                      .dims = {t->dims[0], extent_of(column_count)},
                      .role = t->role,
                      .of = t->of,
                      .view_of = op_owner(p, of).id,
                      .view_begin = column_begin};
    if (t->view_of != TENSOR_NONE) view.view_begin += t->view_begin;
    view.view_row = t->view_row;
    memset(view.cut_dim, -1, sizeof(view.cut_dim));
    (void)snprintf(view.name, sizeof(view.name), "%s", name);
    return op_tensor_add(p, &view, out);
}

status op_view_rows(op_program *p, tensor_id of, const char *name, int64_t row_begin,
                    int64_t row_count, tensor_id *out)
{
    const op_tensor *t = op_at(p, of);
    // An activation with rows of a weight is a weight that was held in few bits.
    ASSERT(t->role == ROLE_WEIGHT || t->role == ROLE_WEIGHT_GRAD || t->role == ROLE_ACTIVATION);
    ASSERT(t->ndim == 2 && t->dims[0].symbol == EXTENT_ONE);
    ASSERT(row_begin >= 0 && row_count > 0 && row_count <= t->dims[0].scale - row_begin);
    op_tensor view = *t;
    view.dims[0] = extent_of(row_count);
    view.view_of = op_owner(p, of).id;
    view.view_begin = t->view_of == TENSOR_NONE ? 0 : t->view_begin;
    view.view_row = t->view_row + row_begin;
    view.part_count = 0;
    memset(view.cut_dim, -1, sizeof(view.cut_dim));
    (void)snprintf(view.name, sizeof(view.name), "%s", name);
    return op_tensor_add(p, &view, out);
}

status op_input(op_program *p, const char *name, extent rows, extent columns, tensor_id *out)
{
    if (p->input_count == OP_MAX_BOUNDARY) {
        return fail(ST_MODEL, "input %s: a block has at most %d", name, (int)OP_MAX_BOUNDARY);
    }
    TRY(op_tensor_make(p, name, ROLE_INPUT, p->compute, 2, rows, columns, out));
    p->inputs[p->input_count++] = *out;
    return ST_OK;
}

status op_output(op_program *p, tensor_id t)
{
    const op_tensor *tensor = op_at(p, t);
    if (p->output_count == OP_MAX_BOUNDARY) {
        return fail(ST_MODEL, "output %s: a block has at most %d", tensor->name,
                    (int)OP_MAX_BOUNDARY);
    }
    if (tensor->role != ROLE_ACTIVATION || tensor->view_of != TENSOR_NONE) {
        return fail(ST_MODEL, "output %s is not an activation that this block made", tensor->name);
    }
    if (tensor->dims[0].bounded) {
        return fail(ST_MODEL, "output %s is bounded, and its count stays in this block",
                    tensor->name);
    }
    for (int i = 0; i < p->output_count; i++) {
        if (p->outputs[i] == t) return fail(ST_MODEL, "%s is an output twice", tensor->name);
    }
    p->outputs[p->output_count++] = t;
    return ST_OK;
}

static status operands_check(const op_program *p, const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    const int in_max = op_word_count(kind->in), out_max = op_word_count(kind->out);
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE) {
            if (i < in_max && (kind->optional_in >> i & 1u) == 0) {
                return fail(ST_MODEL, "%s: input %d is missing", kind->name, i);
            }
            continue;
        }
        if (i >= in_max) {
            return fail(ST_MODEL, "%s: input %d is given, it has at most %d", kind->name, i,
                        in_max);
        }
        if (node->in[i] < 0 || node->in[i] >= p->tensor_count) {
            return fail(ST_MODEL, "%s: input %d is tensor %d of %lld", kind->name, i,
                        (int)node->in[i], (long long)p->tensor_count);
        }
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] == TENSOR_NONE) continue;
        if (o >= out_max) {
            return fail(ST_MODEL, "%s: output %d is given, it has at most %d", kind->name, o,
                        out_max);
        }
        if (node->out[o] < 0 || node->out[o] >= p->tensor_count) {
            return fail(ST_MODEL, "%s: output %d is tensor %d of %lld", kind->name, o,
                        (int)node->out[o], (long long)p->tensor_count);
        }
        const op_tensor *t = op_at(p, node->out[o]);
        if (t->role == ROLE_INPUT || t->role == ROLE_BATCH || t->role == ROLE_CONSTANT) {
            return fail(ST_MODEL, "%s: output %d (%s) may not be written", kind->name, o, t->name);
        }
    }
    return ST_OK;
}

// Tensors computed only from frozen tensors are frozen.
static void freeze_outputs(op_program *p, const op_node *node)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (op_wants_grad(p, node->in[i]) || op_trains(p, node->in[i])) return;
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] == TENSOR_NONE) continue;
        op_tensor *out = &p->tensors[node->out[o]];
        out->frozen = out->role == ROLE_ACTIVATION;
    }
}

status op_append(op_program *p, op_list list, op_node *node, uint32_t wanted)
{
    ASSERT(node->code >= 0 && node->code < OP_CODE_COUNT);
    ASSERT(list >= 0 && list < OP_LIST_COUNT);
    const op_kind *kind = op_kind_of(node->code);
    TRY(operands_check(p, node));
    TRY(kind->infer(p, node, wanted));
    if (list == OP_FORWARD) freeze_outputs(p, node);
    for (int o = 0; o < op_word_count(kind->out); o++) {
        if (node->out[o] == TENSOR_NONE && (kind->optional_out >> o & 1u) == 0) {
            return fail(ST_MODEL, "%s: output %d must be given", kind->name, o);
        }
    }
    TRY(arena_grow(p->a, (void **)&p->lists[list].nodes, &p->lists[list].capacity,
                   p->lists[list].count + 1, (int64_t)sizeof(op_node)));
    p->lists[list].nodes[p->lists[list].count++] = *node;
    return ST_OK;
}

int64_t extent_value(extent e, const extent_binding *bound)
{
    ASSERT(e.symbol >= 0 && e.symbol < EXTENT_SYMBOL_COUNT);
    return e.symbol == EXTENT_ONE ? e.scale : e.scale * bound->value[e.symbol];
}

int64_t extent_likely(extent e, const extent_binding *bound)
{
    if (e.bounded && e.likely > 0) e.scale = e.likely;
    return extent_value(e, bound);
}

int64_t op_tensor_elements(const op_tensor *t, const extent_binding *bound)
{
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) {
        const bool fits = size_mul(count, extent_value(t->dims[d], bound), &count);
        ASSERT(fits); // the plan bounds the numbers that a user may set
    }
    return count;
}

double op_tensor_likely(const op_tensor *t, const extent_binding *bound)
{
    double count = 1.0;
    for (int d = 0; d < t->ndim; d++) count *= (double)extent_likely(t->dims[d], bound);
    return count;
}

int64_t op_tensor_bytes(const op_tensor *t, const extent_binding *bound)
{
    return t->view_of != TENSOR_NONE ? 0 : op_tensor_elements(t, bound) * dtype_bytes(t->type);
}
