// Lowering, panels: weights in the form that products read, packed once a step instead of once for each product.
//
// What a product reads of a weight differs between forward and backward, so each operation has a tensor of
// its own for each weight, which a recomputation shares with the forward that it repeats. The first action of a
// step that needs it fills it. Where others follow, its bytes are its own all through the step: those of forward and
// backward are in use side by side for most of it, and what a part of it spared, placing lost again (6% of a small
// model's arena).
// Weights that only pass (ZeRO-3) are gone before they are needed again: they have none.
#include "plan/lower/lower.h"

#include <stdio.h>
#include <string.h>

// The weight that a node multiplies with: its owner, and whether it stays.
static bool weight_stays(const lowering *l, int32_t layer_row, const op_program *program,
                         const op_node *node, tensor_id *owner)
{
    tensor_id t = node->in[1];
    if (t == TENSOR_NONE) return false;
    while (program->tensors[t].view_of != TENSOR_NONE) t = program->tensors[t].view_of;
    *owner = t;
    return program->tensors[t].role == ROLE_WEIGHT &&
           plan_ref_is_run(l->layers[layer_row].slots[0].tensor[t]);
}

// A row that has the name already, of those from `first` on; -1: there is none.
static int32_t row_of(const plan *p, int64_t first, const char *name)
{
    for (int64_t i = first; i < p->tensor_count; i++) {
        if (p->tensors[i].is_panels && strcmp(p->tensors[i].name, name) == 0) return (int32_t)i;
    }
    return -1;
}

static status node_panels(lowering *l, int32_t layer_row, const op_node *node, int64_t first,
                          int32_t *row)
{
    const op_layer *layer = &l->m->layers[layer_row];
    const op_program *program = l->m->programs[layer->program];
    tensor_id owner = TENSOR_NONE;
    *row = -1;
    if (!weight_stays(l, layer_row, program, node, &owner)) return ST_OK;
    const int64_t bytes = l->r->panels(l->r->workspace_context, program, node, &l->bound);
    if (bytes == 0) return ST_OK;
    plan_tensor tensor = {.type = DTYPE_U8,
                          .ndim = 1,
                          .dims = {bytes},
                          .kind = BYTES_BUFFERS,
                          .is_panels = true,
                          .weight = -1,
                          .bytes = align_up(bytes, ALIGN_TENSOR)};
    // Views are of some rows of the owner.
    (void)snprintf(tensor.name, sizeof(tensor.name), "panels.%s.%s/%s",
                   op_kind_of(node->code)->name, layer->name, program->tensors[node->in[1]].name);
    *row = row_of(l->p, first, tensor.name);
    return *row >= 0 ? ST_OK : plan_tensor_push(l->p, &tensor, row);
}

status lower_panels(lowering *l, int32_t layer_row, const int32_t *out[OP_LIST_COUNT])
{
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    const int64_t first = l->p->tensor_count;
    if (l->r->panels == NULL || l->r->optimizer == NULL) return ST_OK;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        int32_t *rows = NULL;
        TRY(arena_new(l->p->run->a, program->lists[list].count + 1, &rows));
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            TRY(node_panels(l, layer_row, &program->lists[list].nodes[i], first, &rows[i]));
        }
        out[list] = rows;
    }
    return ST_OK;
}

status lower_panels_end(lowering *l)
{
    plan *p = l->p;
    bool *filled = NULL; // [transient tensor]
    if (l->r->panels == NULL) return ST_OK;
    TRY(arena_new(l->a, p->tensor_count + 1, &filled));
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        const int32_t *rows =
            a->kind == ACTION_COMPUTE ? p->bindings[a->binding].panels[a->list] : NULL;
        for (int32_t k = 0; rows != NULL && k < a->ops_count; k++) {
            const int32_t row = rows[a->ops_begin + k];
            if (row < 0 || filled[row]) continue;
            filled[row] = true;
            a->fills = true;
        }
    }
    return ST_OK;
}
