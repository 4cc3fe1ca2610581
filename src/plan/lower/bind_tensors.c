// Pass 2 of lowering, tensors: lists the tensors of a step and maps the tensors of each program to
// tensors of the plan. Layers of one shape share a program; each layer has its own binding
// (several, where strict mode has several accumulators).
#include "plan/access.h"
#include "plan/lower/bind_internal.h"

#include <stdio.h>
#include <string.h>

static bool is_here(const binder *b, int32_t layer)
{
    return b->x->chunk_of[layer] >= 0;
}

static const op_program *program_of(const binder *b, int32_t layer)
{
    return b->in->m->programs[b->in->m->layers[layer].program];
}

// Sets the same tensor in all slots.
static void slots_set(const binder *b, int32_t layer, tensor_id t, int32_t ref)
{
    for (int32_t s = 0; s < b->out->slots.slot_count; s++) {
        b->out->layers[layer].slots[s].tensor[t] = ref;
    }
}

static status weight_add(binder *b, int32_t layer, tensor_id t)
{
    const lower_input *in = b->in;
    const op_tensor *local = &program_of(b, layer)->tensors[t];
    const int32_t w = in->m->layers[layer].weight_of[t];
    int32_t ref = -1, whole = -1;
    ASSERT(w >= 0 && w < in->m->weight_count);
    b->out->holds[w] = true;
    plan_tensor tensor = lower_tensor_like(local, &in->bound);
    tensor.kind = PLAN_BYTES_WEIGHTS;
    tensor.weight = w;
    tensor.bytes = lower_padded_bytes(in, w, &tensor);
    lower_name(&tensor, in->m->weights[w].name, "", "");
    const bool gathered = lower_gathers_weights(in->r) && lower_rows(in, w).cut;
    if (gathered) TRY(bind_whole_weight(b, w, &tensor, &whole));
    TRY(lower_run_tensor(in->p->run, &tensor, &ref));
    slots_set(b, layer, t, gathered ? whole : ref);
    return ST_OK;
}

// Adds the working weights, with the types that the programs state.
static status weights_add(binder *b)
{
    for (int32_t i = 0; i < b->in->m->layer_count; i++) {
        const op_program *program = program_of(b, i);
        for (tensor_id t = 0; t < program->tensor_count && is_here(b, i); t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->role != ROLE_WEIGHT || local->view_of != TENSOR_NONE) continue;
            TRY(weight_add(b, i, t));
        }
    }
    return ST_OK;
}

static status step_add(binder *b)
{
    const lower_input *in = b->in;
    const int64_t bytes = step_bytes(in->m->load_layers, in->m->load_experts);
    plan_tensor step = {.name = "step",
                        .type = DTYPE_U8,
                        .ndim = 1,
                        .dims = {bytes},
                        .kind = PLAN_BYTES_BUFFERS,
                        .role = ROLE_STEP,
                        .weight = -1,
                        .bytes = align_up(bytes, ALIGN_TENSOR)};
    TRY(lower_run_tensor(in->p->run, &step, &b->out->step_ref));
    in->p->step_ref = b->out->step_ref;
    if (in->r->scratch_bytes == 0) return ST_OK;
    plan_tensor scratch = step;
    int32_t ref = -1;
    lower_name(&scratch, "scratch", "", "");
    scratch.role = ROLE_ACTIVATION;
    scratch.dims[0] = in->r->scratch_bytes;
    scratch.bytes = align_up(in->r->scratch_bytes, 4096);
    return lower_run_tensor(in->p->run, &scratch, &ref);
}

// Adds one tensor for each slot: "layers.3/h" for the first, "layers.3/h#2" and so on for the
// others.
static status activations_add(const binder *b, int32_t layer, tensor_id t)
{
    const op_tensor *local = &program_of(b, layer)->tensors[t];
    plan_tensor tensor = lower_tensor_like(local, &b->in->bound);
    tensor.kind = PLAN_BYTES_ACTIVATIONS;
    lower_name(&tensor, b->in->m->layers[layer].name, "/", local->name);
    const size_t length = strlen(tensor.name);
    for (int32_t s = 0; s < b->out->slots.slot_count; s++) {
        if (s > 0) {
            (void)snprintf(tensor.name + length, sizeof(tensor.name) - length, "#%d", (int)s);
        }
        TRY(plan_tensor_push(b->in->p, &tensor, &b->out->layers[layer].slots[s].tensor[t]));
    }
    return ST_OK;
}

static status run_tensor_add(const binder *b, int32_t layer, tensor_id t, const char *owner,
                             const char *separator)
{
    const plan *p = b->in->p;
    const op_tensor *local = &program_of(b, layer)->tensors[t];
    const bool whole = local->role == ROLE_BATCH || local->role == ROLE_CACHE;
    const extent_binding all = plan_bound(p, p->own_sequences, 0);
    plan_tensor tensor = lower_tensor_like(local, whole ? &all : &b->in->bound);
    int32_t ref = -1;
    tensor.kind = PLAN_BYTES_BUFFERS;
    lower_name(&tensor, owner, separator, local->name);
    TRY(lower_run_tensor(p->run, &tensor, &ref));
    slots_set(b, layer, t, ref);
    return ST_OK;
}

static status local_add(const binder *b, int32_t layer_row, tensor_id t)
{
    const op_layer *layer = &b->in->m->layers[layer_row];
    const op_tensor *local = &program_of(b, layer_row)->tensors[t];
    switch (local->role) {
    case ROLE_BATCH:
        return run_tensor_add(b, layer_row, t, "batch", ".");
    case ROLE_CONSTANT:
        return run_tensor_add(b, layer_row, t, "constant", ".");
    case ROLE_CACHE:
        return run_tensor_add(b, layer_row, t, layer->name, "/");
    case ROLE_STEP:
        slots_set(b, layer_row, t, b->out->step_ref);
        return ST_OK;
    case ROLE_ACTIVATION:
        return bind_is_boundary(b, layer_row, t) ? ST_OK : activations_add(b, layer_row, t);
    case ROLE_WEIGHT:      // weights_add
    case ROLE_WEIGHT_GRAD: // bind_use_add, per accumulator
    case ROLE_INPUT:       // the layer below made it
    case ROLE_INPUT_GRAD:  // the layer above made it
        return ST_OK;
    case ROLE_STATE:
    default:
        return fail(ST_INTERNAL, "layer %s has a tensor %s of role %d", layer->name, local->name,
                    (int)local->role);
    }
}

// Adds a tensor for a boundary tensor that comes from another stage.
static status boundary_add(const binder *b, int32_t layer, tensor_id t)
{
    if (t == TENSOR_NONE || bind_is_boundary(b, layer, t)) return ST_OK;
    return activations_add(b, layer, t);
}

// True if both layers share the slots of their micro-batches.
static bool share_slots(const binder *b, int32_t below, int32_t above)
{
    const int32_t *pool = b->out->slots.pool, *chunk_of = b->x->chunk_of;
    return is_here(b, below) && is_here(b, above) && pool[chunk_of[below]] == pool[chunk_of[above]];
}

// Activations go upwards between layers, their gradients downwards.
static status boundary_join(binder *b, int32_t i)
{
    const op_model *m = b->in->m;
    const op_program *below = program_of(b, i), *above = program_of(b, i + 1);
    const layer_tensors *down = &b->out->layers[i], *up = &b->out->layers[i + 1];
    const bool train = b->in->r->optimizer != NULL;
    if (below->output_count != above->input_count) {
        return fail(ST_INTERNAL, "layer %s has %d outputs, layer %s %d inputs", m->layers[i].name,
                    below->output_count, m->layers[i + 1].name, above->input_count);
    }
    for (int k = 0; k < below->output_count; k++) {
        const tensor_id out = below->outputs[k], in = above->inputs[k];
        const tensor_id d_out = below->d_outputs[k], d_in = above->d_inputs[k];
        const bool graded = train && d_out != TENSOR_NONE && d_in != TENSOR_NONE;
        if (!share_slots(b, i, i + 1)) {
            if (is_here(b, i + 1)) TRY(boundary_add(b, i + 1, in));
            if (is_here(b, i) && graded) TRY(boundary_add(b, i, d_out));
            continue;
        }
        for (int32_t s = 0; s < b->out->slots.slot_count; s++) {
            up->slots[s].tensor[in] = down->slots[s].tensor[out];
            if (graded) down->slots[s].tensor[d_out] = up->slots[s].tensor[d_in];
        }
    }
    return ST_OK;
}

status bind_add_binding(const lower_input *in, const plan_binding *binding, int32_t *out)
{
    plan *p = in->p;
    TRY(arena_grow(p->a, (void **)&p->bindings, &p->binding_capacity, p->binding_count + 1,
                   (int64_t)sizeof(plan_binding)));
    *out = (int32_t)p->binding_count;
    p->bindings[p->binding_count++] = *binding;
    return ST_OK;
}

// The workspace in which a head leaves its logits for the node that continues with them.
static int32_t stats_workspace(const op_program *program, int list, const int32_t *rows,
                               int64_t end)
{
    for (int64_t i = end - 1; i >= 0; i--) {
        const op_code code = program->lists[list].nodes[i].code;
        if (op_kind_of(code)->logits == LOGITS_STATS) return rows[i];
    }
    return -1;
}

static status workspace_add(const lower_input *in, const op_node *node, const char *name,
                            int64_t bytes, int32_t *row)
{
    plan_tensor tensor = {.type = DTYPE_U8,
                          .ndim = 1,
                          .dims = {bytes},
                          .kind = PLAN_BYTES_BUFFERS,
                          .weight = -1,
                          .bytes = align_up(bytes, ALIGN_TENSOR)};
    (void)snprintf(tensor.name, sizeof(tensor.name), "workspace.%s.%s", name,
                   op_kind_of(node->code)->name);
    return plan_tensor_push(in->p, &tensor, row);
}

status bind_workspaces(const lower_input *in, const op_program *program, const char *name,
                       const int32_t *out[OP_LIST_COUNT])
{
    const plan_request *r = in->r;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        int32_t *rows = NULL;
        TRY(arena_new(in->p->run->a, program->lists[list].count + 1, &rows));
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            const op_node *node = &program->lists[list].nodes[i];
            const bool goes_on = plan_access_workspace(node) == ACCESS_UPDATE;
            const int32_t kept = goes_on ? stats_workspace(program, list, rows, i) : -1;
            rows[i] = -1;
            const int64_t bytes = r->workspace == NULL
                                      ? 0
                                      : r->workspace(r->workspace_context, program, node,
                                                     &in->bound, r->seq, r->cache_seq);
            if (bytes == 0) continue;
            if (kept < 0) {
                TRY(workspace_add(in, node, name, bytes, &rows[i]));
                continue;
            }
            plan_tensor *t = &in->p->tensors[kept];
            t->dims[0] = max_i64(t->dims[0], bytes);
            t->bytes = align_up(t->dims[0], ALIGN_TENSOR);
            rows[i] = kept;
        }
        out[list] = rows;
    }
    return ST_OK;
}

static status slot_bindings_make(const binder *b, int32_t layer, int32_t slot,
                                 const int32_t *const *spaces, const int32_t *const *packed)
{
    const op_program *program = program_of(b, layer);
    const layer_tensors *tensors = &b->out->layers[layer];
    layer_slot *mine = &tensors->slots[slot];
    const int buffers = expand_buffers(b->x, layer);
    for (int k = 0; k < buffers; k++) {
        int32_t *map = NULL;
        TRY(arena_new(b->in->p->run->a, program->tensor_count + 1, &map));
        memcpy(map, mine->tensor, (size_t)program->tensor_count * sizeof(int32_t));
        for (int64_t u = 0; u < tensors->use_count; u++) {
            const weight_use *use = &b->out->uses[tensors->use_begin + u];
            map[use->local] = use->buffer[min_i64(k, max_i64(use->buffers, 1) - 1)];
        }
        plan_binding made = {.program = program, .layer = layer, .tensor = map};
        memcpy(made.workspace, spaces, sizeof(made.workspace));
        memcpy(made.packed, packed, sizeof(made.packed));
        TRY(bind_add_binding(b->in, &made, &mine->binding[k]));
    }
    return ST_OK;
}

static status layer_bindings_make(binder *b)
{
    const op_model *m = b->in->m;
    const int32_t **spaces = NULL; // [program][list]
    TRY(arena_new(b->in->a, m->program_count * OP_LIST_COUNT, &spaces));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_layer *layer = &m->layers[i];
        const int32_t **mine = &spaces[(int64_t)layer->program * OP_LIST_COUNT];
        const int32_t *packed[OP_LIST_COUNT] = {0};
        if (!is_here(b, i)) continue;
        if (mine[0] == NULL) TRY(bind_workspaces(b->in, program_of(b, i), layer->name, mine));
        TRY(bind_packed(b, i, packed));
        for (int32_t s = 0; s < b->out->slots.slot_count; s++) {
            TRY(slot_bindings_make(b, i, s, mine, packed));
        }
    }
    return ST_OK;
}

// Makes a tensor map for each slot of each layer on this rank.
static status layers_make(binder *b)
{
    const op_model *m = b->in->m;
    bound *out = b->out;
    TRY(arena_new(b->in->a, m->layer_count, &out->layers));
    TRY(arena_new(b->in->a, m->weight_count + 1, &out->holds));
    TRY(arena_new(b->in->a, m->weight_count + 1, &out->whole_of));
    TRY(arena_new(b->in->a, m->weight_count + 1, &out->rows_of));
    memset(out->whole_of, -1, (size_t)m->weight_count * sizeof(int32_t));
    memset(out->rows_of, -1, (size_t)m->weight_count * sizeof(int32_t));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = program_of(b, i);
        if (!is_here(b, i)) continue;
        TRY(arena_new(b->in->a, out->slots.slot_count, &out->layers[i].slots));
        for (int32_t s = 0; s < out->slots.slot_count; s++) {
            layer_slot *slot = &out->layers[i].slots[s];
            TRY(arena_new(b->in->a, program->tensor_count + 1, &slot->tensor));
            memset(slot->tensor, -1, (size_t)program->tensor_count * sizeof(int32_t));
        }
    }
    return ST_OK;
}

status bind_tensors(binder *b)
{
    const op_model *m = b->in->m;
    TRY(layers_make(b));
    TRY(weights_add(b));
    TRY(step_add(b));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = program_of(b, i);
        b->out->layers[i].use_begin = b->out->use_count;
        for (tensor_id t = 0; t < program->tensor_count && is_here(b, i); t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->view_of != TENSOR_NONE) continue;
            TRY(local_add(b, i, t));
            if (local->role == ROLE_WEIGHT_GRAD && b->in->r->optimizer != NULL) {
                TRY(bind_use_add(b, i, t));
            }
        }
    }
    for (int32_t i = 0; i + 1 < m->layer_count; i++) TRY(boundary_join(b, i));
    return layer_bindings_make(b);
}
