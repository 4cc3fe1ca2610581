// Pass 2 of lowering, weights that layers share or that ZeRO cuts: accumulators of each use,
// weights and gradients that are unsharded for one layer at a time, and this rank's rows of them.
#include "plan/lower/bind_internal.h"

#include <stdio.h>
#include <string.h>

status bind_whole_weight(binder *b, int32_t weight, plan_tensor *own, int32_t *whole)
{
    int32_t *row = &b->out->whole_of[weight];
    if (*row < 0) {
        plan_tensor t = *own;
        t.is_unsharded = true;
        lower_name(&t, "whole", ".", own->name);
        TRY(plan_tensor_push(b->in->p, &t, row));
    }
    *whole = *row;
    lower_own_rows(b->in, weight, own);
    return ST_OK;
}

// Adds the tensors of a use whose whole gradient exists only for one layer at a time: `buffer` gets
// the whole gradient. The first use of a weight also adds this rank's rows of it.
static status unsharded_add(binder *b, plan_tensor *whole, int32_t *buffer)
{
    const int32_t weight = whole->weight;
    const char *name = b->in->m->weights[weight].name;
    plan_tensor own = *whole;
    lower_own_rows(b->in, weight, &own);
    lower_name(&own, "grad", ".", name);
    TRY(plan_tensor_push(b->in->p, &own, &b->out->rows_of[weight]));
    whole->is_unsharded = true;
    lower_name(whole, "whole.grad", ".", name);
    return plan_tensor_push(b->in->p, whole, buffer);
}

static const weight_use *use_of_weight(const bound *b, int32_t weight)
{
    for (int64_t i = 0; i < b->use_count; i++) {
        if (b->uses[i].weight == weight) return &b->uses[i];
    }
    return NULL;
}

static status accumulator_add(binder *b, const op_tensor *local, const weight_use *use, int k,
                              int32_t *buffer)
{
    const lower_input *in = b->in;
    const char *name = in->m->weights[use->weight].name;
    const bool first = use_of_weight(b->out, use->weight) == NULL;
    plan_tensor tensor = lower_tensor_like(local, &in->bound);
    tensor.kind = PLAN_BYTES_GRADIENTS;
    tensor.weight = use->weight;
    tensor.bytes = lower_padded_bytes(in, use->weight, &tensor);
    if (lower_scatters_gradients(in->r) && lower_rows(in, use->weight).cut) {
        return unsharded_add(b, &tensor, buffer);
    }
    (void)snprintf(tensor.name, sizeof(tensor.name), "grad.%s%s%s", name, first ? "" : "@",
                   first ? "" : in->m->layers[use->layer].name);
    const size_t length = strlen(tensor.name);
    if (k > 0) (void)snprintf(tensor.name + length, sizeof(tensor.name) - length, "#%d", k);
    return plan_tensor_push(in->p, &tensor, buffer);
}

status bind_use_add(binder *b, int32_t layer, tensor_id t)
{
    bound *out = b->out;
    const op_layer *row = &b->in->m->layers[layer];
    const op_tensor *local = &b->in->m->programs[row->program]->tensors[t];
    weight_use use = {.layer = layer, .local = t, .weight = row->weight_of[local->of]};
    const weight_use *first = use_of_weight(out, use.weight);
    use.shared = first != NULL && !b->in->r->strict;
    use.buffers = expand_tree(b->x, layer, lower_kind_of(b->in, use.weight))->buffer_count;
    for (int k = 0; k < use.buffers; k++) {
        if (use.shared) {
            use.buffer[k] = first->buffer[k];
        } else {
            TRY(accumulator_add(b, local, &use, k, &use.buffer[k]));
        }
    }
    TRY(arena_grow(b->in->a, (void **)&out->uses, &out->use_capacity, out->use_count + 1,
                   (int64_t)sizeof(weight_use)));
    out->uses[out->use_count++] = use;
    out->layers[layer].use_count++;
    return ST_OK;
}

// ---- sums of accumulators -----------------------------------------------------------------------

// Makes a program of one node that adds a source to a target.
static status add_program(const lower_input *in, int32_t target, int32_t source, int32_t *binding)
{
    op_program *program = NULL;
    arena *a = in->p->run->a;
    const plan_tensor *t = &in->p->tensors[target];
    op_node node = op_node_of(OP_TREE_ADD);
    const extent rows = extent_of(t->dims[0]), columns = extent_of(t->dims[1]);
    int32_t *map = NULL;
    TRY(op_program_create(a, PURPOSE_TRAIN, t->type, t->type, &program));
    TRY(op_tensor_make(program, "source", ROLE_WEIGHT_GRAD, t->type, t->ndim, rows, columns,
                       &node.in[0]));
    TRY(op_tensor_make(program, "target", ROLE_WEIGHT_GRAD, t->type, t->ndim, rows, columns,
                       &node.out[0]));
    TRY(op_append(program, OP_FORWARD, &node, 1));
    TRY(arena_new(a, 2, &map));
    map[node.in[0]] = source;
    map[node.out[0]] = target;
    const plan_binding made = {.program = program, .layer = -1, .tensor = map};
    return bind_add_binding(in, &made, binding);
}

status bind_tree_add(binder *b, weight_use *use, int32_t target, int32_t source, int32_t microbatch,
                     int32_t *index)
{
    bound *out = b->out;
    int32_t at = use != NULL ? use->adds - 1 : -1;
    while (at >= 0 && (out->adds[at].target != target || out->adds[at].source != source)) {
        at = out->adds[at].next - 1;
    }
    if (at < 0) {
        bound_add made = {target, source, -1, use != NULL ? use->adds : 0};
        TRY(add_program(b->in, target, source, &made.binding));
        TRY(arena_grow(b->in->a, (void **)&out->adds, &out->add_capacity, out->add_count + 1,
                       (int64_t)sizeof(made)));
        at = (int32_t)out->add_count;
        out->adds[out->add_count++] = made;
        if (use != NULL) use->adds = at + 1;
    }
    const plan_action action = {.kind = ACTION_COMPUTE,
                                .microbatch = microbatch,
                                .layer = -1,
                                .binding = out->adds[at].binding,
                                .list = OP_FORWARD,
                                .ops_count = 1,
                                .accumulate = true};
    return bind_action(b, &action, index);
}
