// Lowering: from a model's programs and a batch to the actions of one step on one rank.
//
//   copy in | begin | micro-batch 0: forward of all layers, backward of all layers | 1 | ... |
//           norm of all gradients | decide | optimizer, weight by weight | read back
//
// With several ranks sums over them come in between, on their own lane (lower_comm.c).
//
// Within a layer's backward the recompute list runs first, then the backward-input list, then the
// backward-weight list; a layer without an output (the head) makes its gradient in the weight list,
// which then comes first.
//
// In strict mode the weight list is emitted once per shard that the micro-batch meets, on that
// shard's rows, into the shard's own accumulators; when a shard is complete, accumulators are summed
// up the one binary tree over shards (shard_tree below). So bits depend on the shards alone.
//
// Live intervals are derived from the finished list (live.h).
#include "plan/lower/lower.h"

#include "op/zigzag.h"

#include <string.h>

status lower_action_push(lowering *l, const plan_action *action, int32_t *index)
{
    plan *p = l->p;
    TRY(arena_grow(p->a, (void **)&p->actions, &p->action_capacity, p->action_count + 1,
                   (int64_t)sizeof(plan_action)));
    TRY(arena_grow(l->a, (void **)&l->ticks, &l->tick_capacity, p->action_count + 1,
                   (int64_t)sizeof(int32_t)));
    l->ticks[p->action_count] = action->kind == ACTION_COMMUNICATE ? 0 : action->ops_count;
    if (index != NULL) *index = (int32_t)p->action_count;
    p->actions[p->action_count++] = *action;
    return ST_OK;
}

void lower_tick(lowering *l)
{
    const int64_t last = l->p->action_count - 1;
    if (last >= 0 && l->p->actions[last].kind == ACTION_COMMUNICATE) l->ticks[last] = 1;
}

status lower_wait(lowering *l, int32_t action, int32_t on)
{
    TRY(arena_grow(l->a, (void **)&l->pairs, &l->pair_capacity, l->pair_count + 1,
                   (int64_t)sizeof(wait_pair)));
    l->pairs[l->pair_count++] = (wait_pair){action, on};
    return ST_OK;
}

// Each action's waits side by side.
static status waits_settle(lowering *l)
{
    plan *p = l->p;
    for (int64_t i = 0; i < l->pair_count; i++) p->actions[l->pairs[i].action].waits_count++;
    int32_t at = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        a->waits_begin = a->waits_count > 0 ? at : 0;
        at += a->waits_count;
        a->waits_count = 0;
    }
    TRY(arena_new(p->run->a, l->pair_count + 1, &p->waits));
    p->wait_count = l->pair_count;
    for (int64_t i = 0; i < l->pair_count; i++) {
        plan_action *a = &p->actions[l->pairs[i].action];
        p->waits[a->waits_begin + a->waits_count++] = l->pairs[i].on;
    }
    return ST_OK;
}

static int32_t owner_ref(const plan_binding *b, tensor_id t)
{
    while (b->program->tensors[t].view_of != TENSOR_NONE) t = b->program->tensors[t].view_of;
    return b->tensor[t];
}

status lower_wait_next(lowering *l, int32_t on)
{
    TRY(arena_grow(l->a, (void **)&l->next_waits, &l->next_wait_capacity, l->next_wait_count + 1,
                   (int64_t)sizeof(int32_t)));
    l->next_waits[l->next_wait_count++] = on;
    return ST_OK;
}

static status list_push(lowering *l, int32_t layer_row, op_list list)
{
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    const plan_action action = {.kind = ACTION_COMPUTE,
                                .layer = layer_row,
                                .binding = l->layers[layer_row].slots[l->slot].binding[0],
                                .list = (int32_t)list,
                                .ops_count = (int32_t)program->lists[list].count,
                                .sequence_count = (int32_t)l->r->micro_batch};
    return lower_compute_push(l, &action);
}

// Does this node start a buffer that nothing has been added to in this step (or shard)?
static bool node_starts(const lowering *l, const plan_binding *b, const op_node *node)
{
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const tensor_id t = node->out[k];
        if (t == TENSOR_NONE || b->program->tensors[t].role != ROLE_WEIGHT_GRAD) continue;
        return !l->touched[b->tensor[t]];
    }
    return false;
}

static void node_started(lowering *l, const plan_binding *b, const op_node *node)
{
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const tensor_id t = node->out[k];
        if (t == TENSOR_NONE || b->program->tensors[t].role != ROLE_WEIGHT_GRAD) continue;
        l->touched[b->tensor[t]] = true;
    }
}

// The weight list on some sequences of the micro-batch: runs of nodes that start, or continue.
static status weight_list_push(lowering *l, int32_t layer_row, int buffer, int32_t begin,
                               int32_t count, const zigzag_run *run)
{
    const int32_t binding = l->layers[layer_row].slots[l->slot].binding[buffer];
    const op_program *program = l->p->bindings[binding].program;
    const op_node *nodes = program->lists[OP_BACKWARD_WEIGHT].nodes;
    const int32_t n = (int32_t)program->lists[OP_BACKWARD_WEIGHT].count;
    for (int32_t i = 0; i < n;) {
        const plan_binding b = l->p->bindings[binding];
        const bool starts = node_starts(l, &b, &nodes[i]);
        int32_t end = i;
        while (end < n && node_starts(l, &b, &nodes[end]) == starts) {
            node_started(l, &b, &nodes[end]);
            end++;
        }
        const plan_action action = {.kind = ACTION_COMPUTE,
                                    .layer = layer_row,
                                    .binding = binding,
                                    .list = OP_BACKWARD_WEIGHT,
                                    .ops_begin = i,
                                    .ops_count = end - i,
                                    .sequence_begin = begin,
                                    .sequence_count = count,
                                    .position_begin = (int32_t)run->row,
                                    .position_count = (int32_t)run->count,
                                    .accumulate = !starts};
        TRY(lower_compute_push(l, &action));
        i = end;
    }
    return ST_OK;
}

status lower_tree_add(lowering *l, int32_t target, int32_t source, int32_t *binding)
{
    if (*binding == 0) {
        op_program *program = NULL;
        arena *a = l->p->run->a;
        const plan_tensor *t = &l->p->tensors[target];
        TRY(op_program_create(a, PURPOSE_TRAIN, t->type, t->type, &program));
        op_node node = {.code = OP_TREE_ADD};
        memset(node.in, -1, sizeof(node.in));
        memset(node.out, -1, sizeof(node.out));
        const extent rows = extent_of(t->dims[0]), columns = extent_of(t->dims[1]);
        TRY(op_tensor_make(program, "source", ROLE_WEIGHT_GRAD, t->type, t->ndim, rows, columns,
                           &node.in[0]));
        TRY(op_tensor_make(program, "target", ROLE_WEIGHT_GRAD, t->type, t->ndim, rows, columns,
                           &node.out[0]));
        TRY(op_append(program, OP_FORWARD, &node, 1));
        int32_t *map = NULL;
        TRY(arena_new(a, 2, &map));
        map[node.in[0]] = source;
        map[node.out[0]] = target;
        const plan_binding b = {.program = program, .layer = -1, .tensor = map};
        TRY(lower_binding(l, &b, binding));
    }
    const plan_action action = {.kind = ACTION_COMPUTE,
                                .layer = -1,
                                .binding = *binding,
                                .list = OP_FORWARD,
                                .ops_count = 1,
                                .accumulate = true};
    if (l->microbatch >= 0) l->touched[source] = false;
    return lower_compute_push(l, &action);
}

// A leaf's sequences: all rows of them, or where several shards of a sequence are here the two pieces of one,
// sequence after sequence, as a rank that has no other would take them.
static status leaf_push(lowering *l, int32_t layer_row, int32_t shard, int32_t own, int32_t begin,
                        int32_t count)
{
    const shard_tree *tree = lower_tree(l, layer_row);
    const int8_t buffer = tree->leaf[shard * tree->cp_count + own];
    const int32_t ways = plan_mesh_size(&l->r->mesh, AXIS_CP), at = l->r->mesh.at[AXIS_CP];
    zigzag_run runs[2] = {{0}, {0}};
    if (tree->cp_count == 1) {
        return weight_list_push(l, layer_row, buffer, begin, count, &runs[0]);
    }
    zigzag_shard(ways, at, l->p->seq, tree->cp_shards, tree->cp_first + own, runs);
    for (int32_t i = 0; i < 2 * count; i++) {
        TRY(weight_list_push(l, layer_row, buffer, begin + i / 2, 1, &runs[i % 2]));
    }
    return ST_OK;
}

static status leaf_merge(lowering *l, int32_t layer_row, int32_t leaf)
{
    const shard_tree *tree = lower_tree(l, layer_row);
    const layer_state *state = &l->layers[layer_row];
    for (int64_t u = 0; u < state->use_count && tree->merge_count[leaf] > 0; u++) {
        grad_use *use = &l->uses[state->use_begin + u];
        for (int k = 0; k < tree->merge_count[leaf]; k++) {
            const tree_merge merge = tree->merges[leaf][k];
            TRY(lower_tree_add(l, use->buffer[merge.target], use->buffer[merge.source],
                               &use->binding_of_merge[merge.target][merge.source]));
        }
    }
    return ST_OK;
}

// The weight gradients of a layer for the current micro-batch, shard by shard.
static status weights_push(lowering *l, int32_t layer_row)
{
    const int64_t first = l->p->first_sequence + l->microbatch * l->r->micro_batch;
    const int64_t end = first + l->r->micro_batch;
    const shard_tree *tree = lower_tree(l, layer_row);
    for (int32_t s = tree->first; s < tree->last; s++) {
        const int64_t from = max_i64(first, tree->begin[s]);
        const int64_t to = min_i64(end, tree->begin[s + 1]);
        if (from >= to) continue;
        for (int64_t at = from; at < to; at += lower_head_piece(l, layer_row)) {
            const int64_t count = min_i64(to - at, lower_head_piece(l, layer_row));
            for (int32_t k = 0; k < tree->cp_count; k++) {
                TRY(leaf_push(l, layer_row, s, k, (int32_t)(at - first), (int32_t)count));
            }
        }
        for (int32_t k = 0; k < tree->cp_count && to == tree->begin[s + 1]; k++) {
            TRY(leaf_merge(l, layer_row, s * tree->cp_count + k));
        }
    }
    return ST_OK;
}

status lower_forward(lowering *l, int32_t layer_row)
{
    layer_state *state = &l->layers[layer_row];
    TRY(lower_visit_begin(l));
    if (state->first_forward < 0) state->first_forward = (int32_t)l->p->action_count;
    TRY(list_push(l, layer_row, OP_FORWARD));
    return lower_visit_end(l);
}

static status input_half_push(lowering *l, int32_t layer_row)
{
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    TRY(list_push(l, layer_row, OP_RECOMPUTE));
    if (program->output_count == 0) TRY(weights_push(l, layer_row));
    return list_push(l, layer_row, OP_BACKWARD_INPUT);
}

// The last of those that pass through the layer's chunk.
static bool microbatch_is_last(const lowering *l, int32_t layer_row)
{
    int32_t first = 0, count = l->pipe.shape.microbatches;
    if (l->visits_after > 0) return false; // it is another rank's
    if (l->pipe.schedule != NULL) {
        plan_schedule_share(l->pipe.schedule, &l->pipe.shape, l->layers[layer_row].chunk, &first,
                            &count);
    }
    return l->microbatch + 1 == first + count;
}

status lower_backward(lowering *l, int32_t layer_row, bool input, bool weight)
{
    const bool has_loss = l->m->programs[l->m->layers[layer_row].program]->output_count == 0;
    TRY(lower_visit_begin(l));
    if (has_loss ? input : weight) TRY(lower_passing_begin(l, layer_row));
    if (input) TRY(input_half_push(l, layer_row));
    if (weight && !has_loss) TRY(weights_push(l, layer_row));
    if (has_loss ? input : weight) TRY(lower_passing_sum(l, layer_row));
    TRY(lower_visit_end(l));
    // Where the pipeline goes both ways two stages finish their layers in different orders: all at the end.
    if (!weight || l->two_ways || !microbatch_is_last(l, layer_row)) return ST_OK;
    return lower_gradients_reduce(l, layer_row);
}

// The norm of a gradient, piece by piece; tensor 0 is the gradient, a vector as one row.
static status norm_nodes_push(lowering *l, op_program *program, op_node *node, int32_t grad,
                              int32_t weight)
{
    norm_piece pieces[NORM_MAX_PIECES];
    const plan_tensor *t = &l->p->tensors[grad];
    const int64_t rows = t->ndim == 1 ? 1 : t->dims[0], columns = t->dims[t->ndim - 1];
    const int32_t count = lower_norm_pieces(l, weight, pieces);
    tensor_id whole = TENSOR_NONE;
    if (count == 0) return ST_OK;
    TRY(op_tensor_make(program, "grad", ROLE_WEIGHT_GRAD, t->type, 2, extent_of(rows),
                       extent_of(columns), &whole));
    for (int32_t i = 0; i < count; i++) {
        const norm_piece *piece = &pieces[i];
        node->in[0] = whole;
        if (piece->count < columns) {
            TRY(op_view(program, whole, "columns", piece->begin, piece->count, &node->in[0]));
        }
        if (piece->rows < rows) {
            TRY(op_view_rows(program, node->in[0], "rows", piece->row, piece->rows, &node->in[0]));
        }
        TRY(op_append(program, OP_FORWARD, node, 0));
    }
    return ST_OK;
}

// A program of one node without tensors but the step block (and a gradient).
static status step_node_push(lowering *l, op_code code, int32_t grad, int32_t weight,
                             int32_t *action_index)
{
    op_program *program = NULL;
    arena *a = l->p->run->a;
    TRY(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &program));
    op_node node = {.code = code, .attrs = {.tensor_index = weight}};
    memset(node.in, -1, sizeof(node.in));
    memset(node.out, -1, sizeof(node.out));
    int32_t *map = NULL;
    if (grad >= 0) {
        TRY(norm_nodes_push(l, program, &node, grad, weight));
        if (program->lists[OP_FORWARD].count == 0) return ST_OK; // others count all of it
    } else {
        TRY(op_append(program, OP_FORWARD, &node, 0));
    }
    TRY(arena_new(a, program->tensor_count, &map));
    memset(map, -1, (size_t)program->tensor_count * sizeof(*map));
    if (grad >= 0) map[0] = grad;
    for (int64_t i = 0; i < program->tensor_count; i++) {
        if (program->tensors[i].role == ROLE_STEP) map[i] = l->step_ref;
    }
    plan_binding b = {.program = program, .layer = -1, .tensor = map};
    int32_t binding = -1;
    TRY(lower_workspaces(l, program, op_kind_of(code)->name, b.workspace));
    TRY(lower_binding(l, &b, &binding));
    const plan_action action = {.kind = ACTION_OPTIMIZER,
                                .layer = -1,
                                .binding = binding,
                                .list = OP_FORWARD,
                                .ops_count = (int32_t)program->lists[OP_FORWARD].count};
    if (action_index != NULL) *action_index = (int32_t)l->p->action_count;
    return lower_compute_push(l, &action);
}

static status optimizer_push(lowering *l, int32_t weight, int32_t grad, int32_t weight_ref)
{
    const op_program *program = l->r->optimizer[weight];
    const plan_rows rows = lower_rows(l, weight);
    int32_t *map = NULL;
    TRY(arena_new(l->p->run->a, program->tensor_count + 1, &map));
    for (int64_t i = 0; i < program->tensor_count; i++) {
        const op_tensor *t = &program->tensors[i];
        map[i] = -1;
        switch (t->role) {
        case ROLE_WEIGHT:
            map[i] = weight_ref;
            break;
        case ROLE_WEIGHT_GRAD:
            map[i] = grad;
            break;
        case ROLE_STEP:
            map[i] = l->step_ref;
            break;
        case ROLE_STATE: {
            plan_tensor state = lower_tensor_like(t, &l->bound);
            state.kind = strcmp(t->name, "master") == 0 ? BYTES_MASTER : BYTES_MOMENTS;
            state.weight = weight;
            if (rows.cut) state.piece_rows = rows.piece;
            lower_name(&state, t->name, ".", l->m->weights[weight].name);
            TRY(lower_run_tensor(l->p->run, &state, &map[i]));
            break;
        }
        case ROLE_ACTIVATION: {
            plan_tensor work = lower_tensor_like(t, &l->bound);
            work.kind = BYTES_BUFFERS;
            lower_name(&work, t->name, ".", l->m->weights[weight].name);
            TRY(plan_tensor_push(l->p, &work, &map[i]));
            break;
        }
        case ROLE_INPUT:
        case ROLE_INPUT_GRAD:
        case ROLE_BATCH:
        case ROLE_CONSTANT:
        case ROLE_CACHE:
        default:
            return fail(ST_INTERNAL, "optimizer of %s has a tensor %s of role %d",
                        l->m->weights[weight].name, t->name, (int)t->role);
        }
    }
    if (rows.count == 0) return ST_OK; // the names of its states are all that it has
    plan_binding b = {.program = program, .layer = -1, .tensor = map, .first_row = rows.first};
    int32_t binding = -1;
    TRY(lower_workspaces(l, program, l->m->weights[weight].name, b.workspace));
    TRY(lower_binding(l, &b, &binding));
    const plan_action action = {.kind = ACTION_OPTIMIZER,
                                .layer = -1,
                                .binding = binding,
                                .list = OP_FORWARD,
                                .ops_count = (int32_t)program->lists[OP_FORWARD].count};
    return lower_compute_push(l, &action);
}

// Where each weight's gradient is complete: uses are added in the order of their forward, on the rows
// that this rank updates.
static status gradients_finish(lowering *l, int32_t *final)
{
    for (int64_t w = 0; w < l->m->weight_count; w++) final[w] = -1;
    for (int64_t u = 0; u < l->use_count; u++) {
        const grad_use *use = &l->uses[u];
        int32_t mine = -1;
        const shard_tree *tree = lower_tree(l, use->layer);
        if (lower_passes(l, use->weight)) {
            plan_rows own = lower_rows(l, use->weight);
            own.first = 0; // of what pads the last rank's there is no sum
            TRY(lower_part(l, l->rows_of[use->weight], own, &final[use->weight]));
            continue;
        }
        if (use->shared) continue;
        TRY(lower_part(l, use->buffer[tree->node[0].buffer], lower_rows(l, use->weight), &mine));
        if (final[use->weight] < 0) {
            final[use->weight] = mine;
        } else if (lower_rows(l, use->weight).count > 0) {
            int32_t none = 0;
            TRY(lower_tree_add(l, final[use->weight], mine, &none));
        }
    }
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        if (final[w] < 0 && l->holds[w] && !l->m->weights[w].frozen) {
            return fail(ST_INTERNAL, "weight %s has no gradient", l->m->weights[w].name);
        }
    }
    return ST_OK;
}

// A weight that several ranks update is counted in the norm by the first of them, where norms are summed.
static bool norm_is_mine(const lowering *l, int32_t weight)
{
    int32_t holders[PLAN_MAX_HOLDERS];
    const plan_mesh *mesh = &l->r->mesh;
    if (!l->holds[weight] || l->m->weights[weight].frozen) return false;
    if (!lower_norm_is_mine(l, weight)) return false;
    (void)plan_pipeline_holders(&l->pipe, weight, holders);
    if (holders[0] != mesh->at[AXIS_PP]) return false;
    if (!lower_norm_is_summed(l)) return true;
    const bool is_cut = lower_rows(l, weight).cut;
    if (lower_kind_of(l, weight) == KIND_EXPERT) { // others along ep have other experts
        return is_cut || plan_expert_place(mesh) == 0;
    }
    return plan_zero_is_first(mesh, is_cut);
}

// A tensor that is read after the step.
static status keep(lowering *l, int32_t ref)
{
    TRY(arena_grow(l->a, (void **)&l->kept, &l->kept_capacity, l->kept_count + 1,
                   (int64_t)sizeof(*l->kept)));
    l->kept[l->kept_count++] = ref;
    return ST_OK;
}

// Gradients complete, then norm, decision, updates.
static status update_push(lowering *l, int32_t *decide)
{
    l->microbatch = -1;
    int32_t *final = NULL;
    TRY(arena_new(l->a, l->m->weight_count + 1, &final));
    for (int32_t i = l->m->layer_count - 1; i >= 0 && l->two_ways; i--) {
        if (l->layers[i].is_here) TRY(lower_gradients_reduce(l, i));
    }
    TRY(lower_passing_end(l));
    for (int i = 0; i < KIND_COUNT * SUM_LANES; i++) {
        const int32_t sum = l->last_sum[i / SUM_LANES][i % SUM_LANES];
        if (sum >= 0) TRY(lower_wait_next(l, sum));
    }
    TRY(lower_terms_end(l));
    TRY(gradients_finish(l, final));
    TRY(lower_holders_reduce(l, final));
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        if (norm_is_mine(l, w)) TRY(step_node_push(l, OP_GRAD_NORM, final[w], w, NULL));
    }
    TRY(lower_step_reduce(l));
    TRY(step_node_push(l, OP_STEP_DECIDE, -1, 0, decide));
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        const int64_t row = plan_table_find(l->p->run, l->m->weights[w].name);
        int32_t mine = -1;
        if (!l->holds[w] || l->m->weights[w].frozen) continue;
        ASSERT(row >= 0);
        if (l->cuts_weights) {
            mine = plan_run_ref(row); // it is those rows, or whole
        } else {
            TRY(lower_part(l, plan_run_ref(row), lower_rows(l, w), &mine));
        }
        TRY(optimizer_push(l, w, final[w], mine));
        TRY(lower_weight_gather(l, w, plan_run_ref(row), l->last_compute));
    }
    for (int32_t w = 0; w < l->m->weight_count && l->r->keep_gradients; w++) {
        if (l->holds[w] && !l->m->weights[w].frozen) TRY(keep(l, final[w]));
    }
    return lower_forward_waits(l);
}

static status outputs_keep(lowering *l)
{
    const layer_state *top = &l->layers[l->m->layer_count - 1];
    for (int k = 0; k < OP_MAX_BOUNDARY; k++) l->p->outputs[k] = -1;
    const int32_t slot = top->is_here ? l->chunks[top->chunk].slot_of[0] : -1;
    if (slot < 0) return ST_OK; // another rank's, or of the pipeline's other direction
    l->microbatch = -1;
    const plan_binding *b = &l->p->bindings[top->slots[slot].binding[0]];
    for (int k = 0; k < b->program->output_count; k++) {
        const int32_t ref = owner_ref(b, b->program->outputs[k]);
        l->p->outputs[k] = ref;
        // The next micro-batch overwrites them.
        if (l->p->own_sequences == l->r->micro_batch) TRY(keep(l, ref));
    }
    return ST_OK;
}

static status actions_make(lowering *l)
{
    const plan_action copy = {
        .kind = ACTION_COPY, .lane = LANE_COPY, .microbatch = -1, .layer = -1, .binding = -1};
    int32_t copy_at = -1, begin_at = -1, decide_at = -1, back_at = -1;
    TRY(lower_action_push(l, &copy, &copy_at));
    l->microbatch = -1;
    TRY(step_node_push(l, OP_STEP_BEGIN, -1, 0, &begin_at));
    TRY(lower_microbatches(l));
    TRY(outputs_keep(l));
    if (l->r->optimizer != NULL) {
        TRY(update_push(l, &decide_at));
    } else {
        TRY(lower_step_reduce(l));
    }
    if (decide_at < 0) decide_at = l->last_compute;
    plan_action back = copy;
    back.kind = ACTION_READBACK;
    TRY(lower_action_push(l, &back, &back_at));
    TRY(lower_wait(l, copy_at, -1 - l->last_compute)); // the step before has read its batch
    TRY(lower_wait(l, begin_at, copy_at));
    TRY(lower_wait(l, begin_at, -1 - back_at)); // its results have been read
    TRY(lower_wait(l, back_at, decide_at));
    for (int64_t i = 0; i < l->next_wait_count; i++) { // without an update nothing came after them
        TRY(lower_wait(l, back_at, l->next_waits[i]));
    }
    return waits_settle(l);
}

// Of one stage all micro-batches but the first two, and those that meet a border between shards, whose weight lists run
// several times, do as the one before.
static status repeats_find(lowering *l, live_input *in)
{
    const int64_t count = l->p->own_sequences / l->r->micro_batch;
    const shard_tree *tree = &l->trees[0];
    bool *repeats = NULL;
    if (l->pipe.schedule != NULL || count <= NOTED_MICROBATCHES) return ST_OK;
    TRY(arena_new(l->a, count, &repeats));
    for (int64_t m = NOTED_MICROBATCHES; m < count; m++) {
        const int64_t begin = l->p->first_sequence + m * l->r->micro_batch;
        repeats[m] = true;
        for (int32_t s = tree->first + 1; s < tree->last; s++) {
            const int64_t border = tree->begin[s];
            if (border > begin && border < begin + l->r->micro_batch) repeats[m] = false;
        }
    }
    in->repeats = repeats;
    return ST_OK;
}

static status lives_find(lowering *l)
{
    const plan *p = l->p;
    live_input in = {.p = p, .kept = l->kept, .kept_count = l->kept_count};
    TRY(arena_new(l->a, p->action_count + 1, &l->begins));
    for (int64_t i = 0; i < p->action_count; i++) l->begins[i + 1] = l->begins[i] + l->ticks[i];
    in.begins = l->begins;
    TRY(repeats_find(l, &in));
    return plan_live(&in, &l->lives);
}

static status lower(lowering *l)
{
    TRY(lower_room_take(l));
    TRY(lower_chunks(l));
    if (l->repeat.is_broken) return ST_OK;
    TRY(lower_trees(l));
    TRY(lower_zero_begin(l));
    TRY(lower_tensors(l));
    TRY(lower_borders(l));
    TRY(arena_new(l->a, l->p->tensor_count + 1, &l->touched));
    TRY(arena_new(l->a, l->m->layer_count, &l->names));
    TRY(arena_new(l->a, l->m->weight_count + 1, &l->gather_of));
    memset(l->gather_of, -1, (size_t)l->m->weight_count * sizeof(*l->gather_of));
    l->last_compute = -1;
    TRY(lower_codec_begin(l));
    TRY(lower_shared_begin(l));
    memset(l->last_sum, -1, sizeof(l->last_sum));
    TRY(actions_make(l));
    TRY(lower_panels_end(l));
    if (l->r->use == PLAN_TIMES) return ST_OK;
    TRY(lives_find(l));
    TRY(lower_copies_find(l));
    TRY(lower_repeat_lives(l));
    if (l->repeat.is_broken) return ST_OK;
    l->lives.is_complete = l->pipe.schedule != NULL && (l->cuts_weights || l->cuts_gradients);
    l->lives.sizes_only = l->r->use != PLAN_WHOLE;
    plan_table_place(l->p->run); // again with more plans; here its sum is asked for
    TRY(plan_memory_assign(l->p, &l->lives, l->r->enough_bytes - l->p->run->run_bytes,
                           l->r->rooms != NULL ? l->r->rooms->places : NULL));
    return l->r->use == PLAN_WHOLE ? lower_copies_move(l) : ST_OK;
}

static status cp_check(const plan_request *r)
{
    const int32_t ways = plan_mesh_size(&r->mesh, AXIS_CP);
    const int32_t shards = r->strict && r->cp_shards > 1 ? r->cp_shards : 1;
    if (ways == 1 && shards == 1) return ST_OK;
    if (r->strict && shards % ways != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.cp = %d does not divide determinism.cp_shards = %d, as strict order asks", ways,
            shards);
    }
    if (shards / ways > TREE_MAX_CP || shards > PLAN_MAX_CP_SHARDS) {
        return fail(ST_CONFIG_RANGE,
                    "determinism.cp_shards = %d is more than %d, or than %d for each rank of "
                    "layout.cp = %d",
                    shards, (int)PLAN_MAX_CP_SHARDS, (int)TREE_MAX_CP, ways);
    }
    const int64_t pieces = 2 * max_i64(ways, shards);
    if (r->seq % pieces == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "train.seq = %lld is not a multiple of %lld, the pieces of layout.cp and "
                "determinism.cp_shards",
                (long long)r->seq, (long long)pieces);
}

static status request_check(const plan_request *r, int64_t *first, int64_t *own)
{
    const int32_t ranks = plan_mesh_size(&r->mesh, AXIS_DP);
    if (r->strict && (r->shards < 1 || r->shards > PLAN_MAX_SHARDS)) {
        return fail(ST_CONFIG_RANGE, "determinism.shards = %d is not between 1 and %d", r->shards,
                    PLAN_MAX_SHARDS);
    }
    if (r->sequences < 1) return fail(ST_CONFIG_RANGE, "a step has no sequences");
    TRY(cp_check(r));
    plan_own_sequences(&r->mesh, r->strict, r->shards, r->sequences, first, own);
    if (*own < 1) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.dp = %d leaves rank %d without a sequence of a step of %lld%s", ranks,
                    r->mesh.at[AXIS_DP], (long long)r->sequences,
                    r->strict ? ", of which it takes whole shards (determinism.shards)" : "");
    }
    if (r->micro_batch <= 0 || *own % r->micro_batch != 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "train.micro_batch = %lld does not divide the %lld sequences of the step",
                    (long long)r->micro_batch, (long long)*own);
    }
    return ST_OK;
}

// Weight gradients of strict order are made shard by shard, each of two pieces of a sequence. `r` is of the rank's rows.
static int64_t cut_pieces_of(const plan_request *r)
{
    const int32_t own = r->strict ? r->cp_shards / plan_mesh_size(&r->mesh, AXIS_CP) : 0;
    if (own > 1) return 2 * (int64_t)own;
    if (r->strict || r->rows_inline) return 1;
    return plan_beside_cut_pieces(r->model, plan_mesh_size(&r->mesh, AXIS_TP), r->micro_batch,
                                  r->seq);
}

// In `work`. *done: false where what was left out of many micro-batches cannot be.
static status plan_make(arena *a, arena *work, const plan_request *request, plan_table *run,
                        bool repeats, plan **out, bool *done)
{
    int64_t first = 0, own = 0;
    plan_request local = *request; // of this rank's rows
    plan *p = NULL;
    TRY(request_check(request, &first, &own));
    local.seq /= plan_mesh_size(&request->mesh, AXIS_CP);
    TRY(arena_new(a, 1, &p));
    *p = (plan){.purpose = request->model->purpose,
                .model = request->model,
                .run = run,
                .a = work,
                .sequences = request->sequences,
                .first_sequence = first,
                .own_sequences = own,
                .losses = -1,
                .shards = request->shards,
                .micro_batch = request->micro_batch,
                .cp_shards = request->strict && request->cp_shards > 1 ? request->cp_shards : 1,
                .seq = local.seq,
                .whole_seq = request->seq,
                .cache_seq = request->cache_seq,
                .seq_cut = local.seq / plan_mesh_size(&request->mesh, AXIS_TP),
                .cut_pieces = cut_pieces_of(&local),
                .loss_divisor = (double)request->sequences * (double)request->seq,
                .strict = request->strict,
                .poison = request->poison};
    lowering l = {
        .p = p, .r = &local, .m = request->model, .a = work, .repeat = {.is_tried = repeats}};
    l.lives.a = work;
    l.bound = plan_bound(p, request->micro_batch, 0);
    const int32_t count = (int32_t)(own / request->micro_batch);
    TRY(plan_pipeline_make(work, request->model, &request->mesh, &request->pipeline,
                           request->optimizer != NULL ? count : 0, &l.pipe));
    l.pipe.shape.microbatches = count; // evaluation goes forward only, in an order of its own
    TRY(lower(&l));
    *done = !l.repeat.is_broken;
    if (*done && p->a != run->a) TRY(lower_keep(p, request->use));
    if (*done) TRY(plan_fuse(request, p));
    *out = p;
    return ST_OK;
}

status plan_create(arena *a, const plan_request *request, plan_table *run, plan **out)
{
    arena *const lent = request->rooms != NULL ? request->rooms->lists : NULL, *work = lent;
    plan *p = NULL;
    bool done = false;
    if (work == NULL) TRY(arena_create("lowering", 0, &work));
    status st = plan_make(a, work, request, run, true, &p, &done);
    if (st == ST_OK && !done) {
        arena_reset(work);
        st = plan_make(a, work, request, run, false, &p, &done);
    }
    if (st == ST_OK) *out = p;
    plan_room_leave(work, lent);
    return st;
}
