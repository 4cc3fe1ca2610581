// Lowering, the nouns: which tensors a step has, and which tensor of the plan stands for which tensor
// of a program. Layers of one shape share a program; each has a binding of its own (several, where
// strict mode has several accumulators).
#include "plan/lower/lower.h"

#include <stdio.h>
#include <string.h>

status plan_tensor_push(plan *p, const plan_tensor *tensor, int32_t *row)
{
    TRY(arena_grow(p->a, (void **)&p->tensors, &p->tensor_capacity, p->tensor_count + 1,
                   (int64_t)sizeof(plan_tensor)));
    *row = (int32_t)p->tensor_count;
    p->tensors[p->tensor_count++] = *tensor;
    return ST_OK;
}

status lower_run_tensor(plan_table *run, const plan_tensor *want, int32_t *ref)
{
    int64_t row = plan_table_find(run, want->name);
    if (row < 0) {
        plan_tensor tensor = *want;
        tensor.is_run = true;
        row = run->count;
        TRY(plan_table_push(run, &tensor));
    }
    plan_tensor *have = &run->tensors[row];
    if (have->type != want->type) {
        return fail(ST_INTERNAL, "run tensor %s is wanted as %s and as %s", want->name,
                    dtype_name(have->type), dtype_name(want->type));
    }
    if (want->bytes > have->bytes) {
        have->bytes = want->bytes;
        memcpy(have->dims, want->dims, sizeof(have->dims));
    }
    *ref = plan_run_ref(row);
    return ST_OK;
}

plan_tensor lower_tensor_like(const op_tensor *t, const extent_binding *bound)
{
    plan_tensor out = {.type = t->type, .ndim = t->ndim, .role = t->role, .weight = -1};
    out.bytes = dtype_bytes(t->type);
    for (int i = 0; i < t->ndim; i++) {
        out.dims[i] = extent_value(t->dims[i], bound);
        out.bytes *= out.dims[i];
    }
    out.bytes = align_up(out.bytes, ALIGN_TENSOR);
    return out;
}

void lower_name(plan_tensor *t, const char *a, const char *separator, const char *b)
{
    (void)snprintf(t->name, sizeof(t->name), "%s%s%s", a, separator, b);
}

static status weights_add(lowering *l)
{
    // Types of working weights are what the programs say.
    for (int32_t i = 0; i < l->m->layer_count; i++) {
        const op_layer *layer = &l->m->layers[i];
        const op_program *program = l->m->programs[layer->program];
        for (int64_t t = 0; t < program->tensor_count && l->layers[i].is_here; t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->role != ROLE_WEIGHT || local->view_of != TENSOR_NONE) continue;
            const int32_t w = layer->weight_of[t];
            int32_t ref = -1;
            ASSERT(w >= 0 && w < l->m->weight_count);
            l->holds[w] = true;
            plan_tensor tensor = lower_tensor_like(local, &l->bound);
            tensor.kind = BYTES_WEIGHTS;
            tensor.weight = w;
            tensor.bytes = lower_padded_bytes(l, w, &tensor);
            lower_name(&tensor, l->m->weights[w].name, "", "");
            const bool passes = l->cuts_weights && lower_rows(l, w).cut;
            int32_t whole = -1;
            if (passes) TRY(lower_whole_weight(l, w, &tensor, &whole));
            TRY(lower_run_tensor(l->p->run, &tensor, &ref));
            if (passes) ref = whole;
            for (int32_t s = 0; s < l->slot_count; s++) l->layers[i].slots[s].tensor[t] = ref;
        }
    }
    return ST_OK;
}

static status step_add(lowering *l)
{
    plan_tensor step = {.name = "step",
                        .type = DTYPE_U8,
                        .ndim = 1,
                        .dims = {(int64_t)sizeof(step_block)},
                        .kind = BYTES_BUFFERS,
                        .role = ROLE_STEP,
                        .weight = -1,
                        .bytes = align_up((int64_t)sizeof(step_block), ALIGN_TENSOR)};
    TRY(lower_run_tensor(l->p->run, &step, &l->step_ref));
    l->p->step_ref = l->step_ref;
    if (l->r->scratch_bytes == 0) return ST_OK;
    plan_tensor scratch = step;
    int32_t ref = -1;
    lower_name(&scratch, "scratch", "", "");
    scratch.role = ROLE_ACTIVATION;
    scratch.dims[0] = l->r->scratch_bytes;
    scratch.bytes = align_up(l->r->scratch_bytes, 4096);
    return lower_run_tensor(l->p->run, &scratch, &ref);
}

// "layers.3/h", and of slots but the first "layers.3/h#2".
static status activation_add(lowering *l, const op_layer *layer, const op_tensor *local,
                             int32_t slot, plan_tensor *tensor, int32_t *ref)
{
    tensor->kind = BYTES_ACTIVATIONS;
    lower_name(tensor, layer->name, "/", local->name);
    const size_t length = strlen(tensor->name);
    if (slot > 0) {
        (void)snprintf(tensor->name + length, sizeof(tensor->name) - length, "#%d", (int)slot);
    }
    return plan_tensor_push(l->p, tensor, ref);
}

static status local_add(lowering *l, int32_t layer_row, int32_t slot, tensor_id t)
{
    const op_layer *layer = &l->m->layers[layer_row];
    const op_program *program = l->m->programs[layer->program];
    const op_tensor *local = &program->tensors[t];
    int32_t *ref = &l->layers[layer_row].slots[slot].tensor[t];
    const bool whole = local->role == ROLE_BATCH || local->role == ROLE_CACHE;
    const extent_binding all = plan_bound(l->p, l->p->own_sequences, 0);
    plan_tensor tensor = lower_tensor_like(local, whole ? &all : &l->bound);
    tensor.kind = BYTES_BUFFERS;
    switch (local->role) {
    case ROLE_BATCH:
        lower_name(&tensor, "batch", ".", local->name);
        return lower_run_tensor(l->p->run, &tensor, ref);
    case ROLE_CONSTANT:
        lower_name(&tensor, "constant", ".", local->name);
        return lower_run_tensor(l->p->run, &tensor, ref);
    case ROLE_CACHE:
        lower_name(&tensor, layer->name, "/", local->name);
        return lower_run_tensor(l->p->run, &tensor, ref);
    case ROLE_STEP:
        *ref = l->step_ref;
        return ST_OK;
    case ROLE_ACTIVATION:
        if (lower_is_border(l, layer_row, t)) return ST_OK;
        return activation_add(l, layer, local, slot, &tensor, ref);
    case ROLE_WEIGHT:      // weights_add
    case ROLE_WEIGHT_GRAD: // uses_add, per buffer
    case ROLE_INPUT:       // the layer below made it
    case ROLE_INPUT_GRAD:  // the layer above made it
        return ST_OK;
    case ROLE_STATE:
    default:
        return fail(ST_INTERNAL, "layer %s has a tensor %s of role %d", layer->name, local->name,
                    (int)local->role);
    }
}

// What comes from another stage has a tensor here.
static status border_add(lowering *l, int32_t layer_row, int32_t slot, tensor_id t)
{
    if (t == TENSOR_NONE || lower_is_border(l, layer_row, t)) return ST_OK;
    const op_layer *layer = &l->m->layers[layer_row];
    const op_tensor *local = &l->m->programs[layer->program]->tensors[t];
    plan_tensor tensor = lower_tensor_like(local, &l->bound);
    return activation_add(l, layer, local, slot, &tensor,
                          &l->layers[layer_row].slots[slot].tensor[t]);
}

// Activations cross borders upwards, their gradients downwards.
static status border_join(lowering *l, int32_t i, int32_t slot)
{
    const op_model *m = l->m;
    const op_program *below = m->programs[m->layers[i].program];
    const op_program *above = m->programs[m->layers[i + 1].program];
    const bool down = l->layers[i].is_here, up = l->layers[i + 1].is_here;
    const bool train = l->r->optimizer != NULL;
    if (below->output_count != above->input_count) {
        return fail(ST_INTERNAL, "layer %s has %d outputs, layer %s %d inputs", m->layers[i].name,
                    below->output_count, m->layers[i + 1].name, above->input_count);
    }
    for (int k = 0; k < below->output_count; k++) {
        const tensor_id out = below->outputs[k], in = above->inputs[k];
        const tensor_id d_out = below->d_outputs[k], d_in = above->d_inputs[k];
        const bool graded = train && d_out != TENSOR_NONE && d_in != TENSOR_NONE;
        if (down && up &&
            l->chunks[l->layers[i].chunk].pool == l->chunks[l->layers[i + 1].chunk].pool) {
            l->layers[i + 1].slots[slot].tensor[in] = l->layers[i].slots[slot].tensor[out];
            if (!graded) continue;
            l->layers[i].slots[slot].tensor[d_out] = l->layers[i + 1].slots[slot].tensor[d_in];
            continue;
        }
        if (up) TRY(border_add(l, i + 1, slot, in));
        if (down && graded) TRY(border_add(l, i, slot, d_out));
    }
    return ST_OK;
}

status lower_binding(lowering *l, const plan_binding *binding, int32_t *out)
{
    plan *p = l->p;
    TRY(arena_grow(p->a, (void **)&p->bindings, &p->binding_capacity, p->binding_count + 1,
                   (int64_t)sizeof(plan_binding)));
    *out = (int32_t)p->binding_count;
    p->bindings[p->binding_count++] = *binding;
    return ST_OK;
}

// Where a head's logits are left for the node that goes on with them.
static int32_t stats_workspace(const op_program *program, int list, const int32_t *rows,
                               int64_t end)
{
    for (int64_t i = end - 1; i >= 0; i--) {
        if (program->lists[list].nodes[i].code == OP_HEAD_STATS) return rows[i];
    }
    return -1;
}

status lower_workspaces(lowering *l, const op_program *program, const char *name,
                        const int32_t *out[OP_LIST_COUNT])
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        int32_t *rows = NULL;
        TRY(arena_new(l->p->run->a, program->lists[list].count + 1, &rows));
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            const op_node *node = &program->lists[list].nodes[i];
            rows[i] = -1;
            const int32_t kept = node->code == OP_HEAD_LOSS && node->attrs.kept
                                     ? stats_workspace(program, list, rows, i)
                                     : -1;
            const int64_t bytes = l->r->workspace == NULL
                                      ? 0
                                      : l->r->workspace(l->r->workspace_context, program, node,
                                                        &l->bound, l->r->seq, l->r->cache_seq);
            if (bytes == 0) continue;
            if (kept >= 0) {
                plan_tensor *t = &l->p->tensors[kept];
                t->dims[0] = max_i64(t->dims[0], bytes);
                t->bytes = align_up(t->dims[0], ALIGN_TENSOR);
                rows[i] = kept;
                continue;
            }
            plan_tensor tensor = {.type = DTYPE_U8,
                                  .ndim = 1,
                                  .dims = {bytes},
                                  .kind = BYTES_BUFFERS,
                                  .weight = -1,
                                  .bytes = align_up(bytes, ALIGN_TENSOR)};
            (void)snprintf(tensor.name, sizeof(tensor.name), "workspace.%s.%s", name,
                           op_kind_of(node->code)->name);
            TRY(plan_tensor_push(l->p, &tensor, &rows[i]));
        }
        out[list] = rows;
    }
    return ST_OK;
}

static status slot_bindings_make(lowering *l, int32_t layer_row, int32_t slot,
                                 const int32_t *const *spaces, const int32_t *const *panels)
{
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    const layer_state *state = &l->layers[layer_row];
    layer_slot *mine = &state->slots[slot];
    const int buffers = (int)max_i64(lower_tree(l, layer_row)->buffer_count, 1);
    for (int k = 0; k < buffers; k++) {
        int32_t *map = NULL;
        TRY(arena_new(l->p->run->a, program->tensor_count + 1, &map));
        memcpy(map, mine->tensor, (size_t)program->tensor_count * sizeof(int32_t));
        for (int64_t u = 0; u < state->use_count; u++) {
            const grad_use *use = &l->uses[state->use_begin + u];
            map[use->local] = use->buffer[k];
        }
        plan_binding b = {.program = program, .layer = layer_row, .tensor = map};
        memcpy(b.workspace, spaces, sizeof(b.workspace));
        memcpy(b.panels, panels, sizeof(b.panels));
        TRY(lower_binding(l, &b, &mine->binding[k]));
    }
    return ST_OK;
}

static status layer_bindings_make(lowering *l)
{
    const int32_t **spaces = NULL; // [program][list]
    TRY(arena_new(l->a, l->m->program_count * OP_LIST_COUNT, &spaces));
    for (int32_t i = 0; i < l->m->layer_count; i++) {
        const op_layer *layer = &l->m->layers[i];
        const op_program *program = l->m->programs[layer->program];
        const int32_t **mine = &spaces[(int64_t)layer->program * OP_LIST_COUNT];
        if (!l->layers[i].is_here) continue;
        if (mine[0] == NULL) TRY(lower_workspaces(l, program, layer->name, mine));
        const int32_t *panels[OP_LIST_COUNT] = {0};
        TRY(lower_panels(l, i, panels));
        for (int32_t s = 0; s < l->slot_count; s++) TRY(slot_bindings_make(l, i, s, mine, panels));
    }
    return ST_OK;
}

// Which layers are here, and a map for each of their slots.
static status layers_make(lowering *l)
{
    const op_model *m = l->m;
    TRY(arena_new(l->a, m->layer_count, &l->layers));
    TRY(arena_new(l->a, m->weight_count + 1, &l->holds));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        layer_state *state = &l->layers[i];
        state->chunk = plan_pipeline_chunk_of(&l->pipe, l->r->mesh.at[AXIS_PP], i);
        state->is_here = state->chunk >= 0;
        state->first_forward = -1;
        if (!state->is_here) continue;
        TRY(arena_new(l->a, l->slot_count, &state->slots));
        for (int32_t s = 0; s < l->slot_count; s++) {
            TRY(arena_new(l->a, program->tensor_count + 1, &state->slots[s].tensor));
            memset(state->slots[s].tensor, -1, (size_t)program->tensor_count * sizeof(int32_t));
        }
    }
    return ST_OK;
}

status lower_tensors(lowering *l)
{
    const op_model *m = l->m;
    TRY(layers_make(l));
    TRY(weights_add(l));
    TRY(step_add(l));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        l->layers[i].use_begin = l->use_count;
        for (tensor_id t = 0; t < program->tensor_count && l->layers[i].is_here; t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->view_of != TENSOR_NONE) continue;
            for (int32_t s = 0; s < l->slot_count; s++) TRY(local_add(l, i, s, t));
            if (local->role == ROLE_WEIGHT_GRAD && l->r->optimizer != NULL)
                TRY(lower_use_add(l, i, t));
        }
    }
    for (int32_t i = 0; i + 1 < m->layer_count; i++) {
        for (int32_t s = 0; s < l->slot_count; s++) TRY(border_join(l, i, s));
    }
    return layer_bindings_make(l);
}

// ---- what is kept --------------------------------------------------------------------------------

// A list that has all its items.
static status list_keep(arena *a, void **items, int64_t count, int64_t *capacity,
                        int64_t item_bytes)
{
    void *kept = NULL;
    TRY(arena_alloc_array(a, count + 1, item_bytes, &kept));
    if (count > 0) memcpy(kept, *items, (size_t)(count * item_bytes));
    *items = kept;
    *capacity = count + 1;
    return ST_OK;
}

// As much as a plan has that is like it, and a sixteenth.
status lower_room_take(lowering *l)
{
    const plan *like = l->r->rooms != NULL ? l->r->rooms->like : NULL;
    plan *p = l->p;
    if (like == NULL || l->r->use == PLAN_BYTES) return ST_OK;
    p->a = p->run->a; // where they stay
    const struct {
        void **items;
        int64_t *capacity, count, bytes;
    } lists[] = {
        {(void **)&p->actions, &p->action_capacity, like->action_count, sizeof(*p->actions)},
        {(void **)&p->tensors, &p->tensor_capacity, like->tensor_count, sizeof(*p->tensors)},
        {(void **)&p->bindings, &p->binding_capacity, like->binding_count, sizeof(*p->bindings)},
        {(void **)&p->comms, &p->comm_capacity, like->comm_count, sizeof(*p->comms)},
        {(void **)&p->items, &p->item_capacity, like->item_count, sizeof(*p->items)}};
    for (int64_t i = 0; i < COUNT_OF(lists); i++) {
        TRY(arena_grow(p->a, lists[i].items, lists[i].capacity, lists[i].count / 16 * 17 + 64,
                       lists[i].bytes));
    }
    return arena_grow(l->a, (void **)&l->pairs, &l->pair_capacity, like->wait_count / 16 * 17 + 64,
                      (int64_t)sizeof(wait_pair));
}

// What grows leaves what it was behind: plans of a step with many micro-batches were three times as large with that.
status lower_keep(plan *p, plan_use use)
{
    p->a = p->run->a;
    TRY(list_keep(p->a, (void **)&p->tensors, p->tensor_count, &p->tensor_capacity,
                  (int64_t)sizeof(*p->tensors)));
    if (use == PLAN_BYTES) {
        p->action_count = p->binding_count = p->wait_count = 0;
        p->comm_count = p->item_count = p->leaf_count = 0;
    }
    TRY(list_keep(p->a, (void **)&p->actions, p->action_count, &p->action_capacity,
                  (int64_t)sizeof(*p->actions)));
    TRY(list_keep(p->a, (void **)&p->bindings, p->binding_count, &p->binding_capacity,
                  (int64_t)sizeof(*p->bindings)));
    TRY(list_keep(p->a, (void **)&p->comms, p->comm_count, &p->comm_capacity,
                  (int64_t)sizeof(*p->comms)));
    TRY(list_keep(p->a, (void **)&p->items, p->item_count, &p->item_capacity,
                  (int64_t)sizeof(*p->items)));
    return list_keep(p->a, (void **)&p->leaves, p->leaf_count, &p->leaf_capacity,
                     (int64_t)sizeof(*p->leaves));
}
