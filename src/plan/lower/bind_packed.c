// Pass 2 of lowering, packed weights: weights in the form that GEMMs read, packed once a step
// instead of once for each GEMM.
//
// Forward and backward GEMMs need differently packed weights, so each operation has its own packed
// tensor for each weight; a recomputation shares the tensor of the forward that it repeats. The
// first action of a step that needs the tensor fills it. If other actions follow, the tensor is
// live through the whole step: those of forward and backward are in use at the same time for most
// of it, and shorter intervals saved less than placement lost again (6% of a small model's arena).
// Weights that are gathered for one layer at a time (ZeRO-3) have no packed tensor, because they
// are released before the next use.
#include "plan/lower/bind_internal.h"

#include <stdio.h>
#include <string.h>

// Finds the weight that a node multiplies with. True if the weight stays through the step.
static bool weight_stays(const binder *b, int32_t layer_row, const op_program *program,
                         const op_node *node, tensor_id *owner)
{
    if (node->in[1] == TENSOR_NONE) return false;
    const tensor_id t = *owner = op_owner(program, node->in[1]).id;
    return program->tensors[t].role == ROLE_WEIGHT &&
           plan_ref_is_run(b->out->layers[layer_row].slots[0].tensor[t]);
}

// Row with this name among those from `first` on; -1: none.
static int32_t row_of(const plan *p, int64_t first, const char *name)
{
    for (int64_t i = first; i < p->tensor_count; i++) {
        if (p->tensors[i].is_packed && strcmp(p->tensors[i].name, name) == 0) return (int32_t)i;
    }
    return -1;
}

static status node_packed(binder *b, int32_t layer_row, const op_node *node, int64_t first,
                          int32_t *row)
{
    const op_layer *layer = &b->in->m->layers[layer_row];
    const op_program *program = b->in->m->programs[layer->program];
    tensor_id owner = TENSOR_NONE;
    *row = -1;
    if (!weight_stays(b, layer_row, program, node, &owner)) return ST_OK;
    const plan_request *r = b->in->r;
    const int64_t bytes = r->packed_bytes(r->workspace_context, program, node, &b->in->bound);
    if (bytes == 0) return ST_OK;
    plan_tensor tensor = {.type = DTYPE_U8,
                          .ndim = 1,
                          .dims = {bytes},
                          .kind = PLAN_BYTES_BUFFERS,
                          .is_packed = true,
                          .weight = -1,
                          .bytes = align_up(bytes, ALIGN_TENSOR)};
    // A view covers some rows of its owner.
    (void)snprintf(tensor.name, sizeof(tensor.name), "panels.%s.%s/%s",
                   op_kind_of(node->code)->name, layer->name, program->tensors[node->in[1]].name);
    *row = row_of(b->in->p, first, tensor.name);
    return *row >= 0 ? ST_OK : plan_tensor_push(b->in->p, &tensor, row);
}

status bind_packed(binder *b, int32_t layer_row, const int32_t *out[OP_LIST_COUNT])
{
    const op_program *program = b->in->m->programs[b->in->m->layers[layer_row].program];
    const int64_t first = b->in->p->tensor_count;
    if (b->in->r->packed_bytes == NULL || b->in->r->optimizer == NULL) return ST_OK;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        int32_t *rows = NULL;
        TRY(arena_new(b->in->p->run->a, program->lists[list].count + 1, &rows));
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            TRY(node_packed(b, layer_row, &program->lists[list].nodes[i], first, &rows[i]));
        }
        out[list] = rows;
    }
    return ST_OK;
}
