// Shared by the files of pass 2: bind.c (actions), _tensors, _slots, _packed and _update.
#ifndef PLAN_LOWER_BIND_INTERNAL_H
#define PLAN_LOWER_BIND_INTERNAL_H

#include "plan/lower/bind.h"

// A binding of the first or last layer of a chunk for one set of boundary buffers.
typedef struct boundary_binding {
    int32_t layer, slot;
    int32_t ref[BOUNDARY_COUNT]; // boundary tensors of its micro-batch; -1: none
    int32_t binding[TREE_MAX_BUFFERS];
    int32_t next; // row with the same layer and slot; -1
} boundary_binding;

typedef struct binder {
    const lower_input *in;
    const expanded *x;
    bound *out;
    boundary_binding *boundary_bindings;
    int64_t boundary_count, boundary_capacity;
    bool *touched; // [transient tensor] an accumulator that has been written in this step
    bool *summed;  // [weight] an earlier micro-batch has summed its whole gradient
} binder;

NODISCARD status bind_add_binding(const lower_input *in, const plan_binding *binding, int32_t *out);
NODISCARD status bind_action(binder *b, const plan_action *action, int32_t *index);
// Adds an action of one node, target += source, for one use (NULL: for no use).
NODISCARD status bind_tree_add(binder *b, weight_use *use, int32_t target, int32_t source,
                               int32_t microbatch, int32_t *index);
// bind_tensors.c: fills layers, uses, holds, step_ref and the layers' bindings.
NODISCARD status bind_tensors(binder *b);
// Workspaces of the nodes of a program: one tensor for each node, live at that node only.
NODISCARD status bind_workspaces(const lower_input *in, const op_program *program, const char *name,
                                 const int32_t *out[OP_LIST_COUNT]);
// bind_uses.c
NODISCARD status bind_use_add(binder *b, int32_t layer, tensor_id t);
NODISCARD status bind_whole_weight(binder *b, int32_t weight, plan_tensor *own, int32_t *whole);
// bind_slots.c: tensors of the boundary buffers, and the bindings of a micro-batch that use them.
NODISCARD status bind_buffers(binder *b);
NODISCARD status bind_boundaries(binder *b, int32_t chunk, int32_t microbatch);
bool bind_is_boundary(const binder *b, int32_t layer, tensor_id t);
// bind_packed.c: packed weights of a layer's nodes.
NODISCARD status bind_packed(binder *b, int32_t layer, const int32_t *out[OP_LIST_COUNT]);
// bind_update.c
NODISCARD status bind_step_node(binder *b, op_code code, int32_t *index);
NODISCARD status bind_update(binder *b);

#endif
