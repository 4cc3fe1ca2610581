// Lowering, what is cut over dp and cp beyond the optimizer's state: gradients (ZeRO-2) and weights (ZeRO-3).
//
// What stays is a rank's rows of each; the whole tensor passes: it has bytes only around the layer that
// needs it. A *visit* is what a layer does at a time, and visits follow one another on the compute lane.
//
//   compute   | visit v - 1       | visit v           | visit v + 1       |
//   dp                            | sum of v - 1      | sum of v ...
//                                 | gather for v + 1  | gather for v + 2
//
// A whole gradient is made anew in every micro-batch. The rows that a rank has summed so far go along in its
// own rows of it, so that the sum over ranks is the sum of all so far, and takes their place. Visit v + 2
// waits until the sum of v is done: then the whole gradient's bytes are free.
//
// A whole weight is gathered one visit ahead. Its bytes are its own from the beginning of the visit before, for
// that is what the gather waits for: whatever had them is over by then, and so are sums on the same lane.
//
// In strict order accumulators are whole: a shard's fold goes on from one micro-batch to the next. So they are where
// gradients are summed once in a step (layout.zero_sums): as with ZeRO-1, in more memory and with less to send.
#include "plan/lower/lower.h"

#include <stdio.h>
#include <string.h>

static status row_of_group(lowering *l, uint32_t axes, int32_t *row)
{
    const plan_group g = plan_group_of(&l->r->mesh, axes, GROUP_ASIDE);
    *row = -1;
    return g.axes != 0 ? plan_table_group(l->p->run, &g, row) : ST_OK;
}

static status groups_find(lowering *l)
{
    const plan_mesh *m = &l->r->mesh;
    lower_group_rows *dense = &l->groups[KIND_DENSE], *expert = &l->groups[KIND_EXPERT];
    *dense = *expert = (lower_group_rows){-1, -1, -1};
    TRY(row_of_group(l, MESH_DATA, &dense->data));
    if (l->r->zero > 0 && plan_zero_ways(m) > 1) {
        TRY(row_of_group(l, MESH_ZERO, &dense->cut));
        TRY(row_of_group(l, MESH_DP_ACROSS, &dense->across));
    }
    if (!plan_experts_apart(m)) return ST_OK;
    TRY(row_of_group(l, MESH_EXPERT_DATA, &expert->data));
    if (l->r->zero > 0 && plan_expert_ways(m) > 1) expert->cut = expert->data;
    return ST_OK;
}

static status rows_new(lowering *l, int32_t **out)
{
    TRY(arena_new(l->a, l->m->weight_count + 1, out));
    memset(*out, -1, (size_t)l->m->weight_count * sizeof(**out));
    return ST_OK;
}

// Where each micro-batch has operations among ranks, they must have as many.
static status microbatches_check(const lowering *l)
{
    const plan_request *r = l->r;
    const bool is_even = r->fewest_microbatches == r->most_microbatches;
    if (is_even || (!l->cuts_gradients && (!l->cuts_weights || l->pipe.schedule == NULL))) {
        return ST_OK;
    }
    return fail(
        ST_CONFIG_CONFLICT,
        "layout.zero = %d: in every micro-batch all ranks of layout.dp = %d take part, and some "
        "have %lld micro-batches, some %lld; let layout.dp x train.micro_batch divide the batch of "
        "%lld",
        (int)r->zero, (int)plan_mesh_size(&r->mesh, AXIS_DP), (long long)r->fewest_microbatches,
        (long long)r->most_microbatches, (long long)r->sequences);
}

status lower_zero_begin(lowering *l)
{
    const plan_request *r = l->r;
    const bool is_cut = r->zero > 0 && plan_zero_ways(&r->mesh) > 1; // of experts too, or fewer
    TRY(groups_find(l));
    const bool keeps_whole = r->strict || r->sums_once;
    l->cuts_gradients = is_cut && r->zero >= 2 && r->optimizer != NULL && !keeps_whole;
    l->cuts_weights = is_cut && r->zero >= 3;
    if (l->cuts_gradients && r->codec != NULL) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.zero = %d sums gradients in every micro-batch, comm.compression once in a "
            "step: expected layout.zero_sums = step, or no compression",
            (int)r->zero);
    }
    TRY(microbatches_check(l));
    TRY(rows_new(l, &l->whole_of));
    TRY(rows_new(l, &l->gathered_by));
    TRY(rows_new(l, &l->rows_of));
    TRY(rows_new(l, &l->summed_by));
    TRY(arena_new(l->a, l->m->weight_count + 1, &l->needed_at));
    for (int32_t w = 0; w < l->m->weight_count; w++) l->needed_at[w] = INT32_MIN;
    if (!l->cuts_weights) return ST_OK;
    TRY(lower_visits(l));
    // Ranks with more micro-batches gather in those too: they are alike.
    const int64_t left_out = (int64_t)l->repeat.rounds * l->repeat.round;
    const int64_t own = l->pipe.shape.microbatches + left_out;
    const int64_t count = l->visit_count / max_i64(own, 1);
    for (int64_t i = 0; i < (r->most_microbatches - own) * count; i++) {
        TRY(arena_grow(l->a, (void **)&l->visits, &l->visit_capacity, l->visit_count + 1,
                       (int64_t)sizeof(*l->visits)));
        l->visits[l->visit_count++] = l->visits[i % count];
        l->visits_after++;
    }
    return ST_OK;
}

// The rank's own rows of a tensor that is as large as the weight.
static void own_rows(const lowering *l, int32_t weight, plan_tensor *t)
{
    const plan_rows rows = lower_rows(l, weight);
    t->dims[0] = rows.count;
    t->piece_rows = rows.piece;
    t->bytes = align_up(rows.kept * t->dims[1] * dtype_bytes(t->type), ALIGN_TENSOR);
}

status lower_whole_weight(lowering *l, int32_t weight, plan_tensor *own, int32_t *whole)
{
    if (l->whole_of[weight] < 0) {
        plan_tensor t = *own;
        t.passes = true;
        lower_name(&t, "whole", ".", own->name);
        TRY(plan_tensor_push(l->p, &t, &l->whole_of[weight]));
    }
    *whole = l->whole_of[weight];
    own_rows(l, weight, own);
    return ST_OK;
}

status lower_passing_add(lowering *l, plan_tensor *whole, int32_t *buffer)
{
    const int32_t weight = whole->weight;
    plan_tensor own = *whole;
    own_rows(l, weight, &own);
    lower_name(&own, "grad", ".", l->m->weights[weight].name);
    TRY(plan_tensor_push(l->p, &own, &l->rows_of[weight]));
    whole->passes = true;
    lower_name(whole, "whole.grad", ".", l->m->weights[weight].name);
    return plan_tensor_push(l->p, whole, buffer);
}

// ---- weights ------------------------------------------------------------------------------------

// Does a visit run this list?
static bool visit_runs(const layer_visit *v, bool has_loss, op_list list)
{
    switch (list) {
    case OP_FORWARD:
        return v->forward;
    case OP_RECOMPUTE:
    case OP_BACKWARD_INPUT:
        return v->input;
    case OP_BACKWARD_WEIGHT:
        return has_loss ? v->input : v->weight;
    case OP_LIST_COUNT:
    default:
        return false;
    }
}

// Does a node of the visit read tensor t, or a view of it?
static bool visit_reads(const op_program *program, const layer_visit *v, tensor_id t)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        if (!visit_runs(v, program->output_count == 0, (op_list)list)) continue;
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            for (int k = 0; k < OP_MAX_IN; k++) {
                tensor_id in = program->lists[list].nodes[i].in[k];
                while (in != TENSOR_NONE && program->tensors[in].view_of != TENSOR_NONE) {
                    in = program->tensors[in].view_of;
                }
                if (in == t) return true;
            }
        }
    }
    return false;
}

static status gather_push(lowering *l, plan_comm *c, int32_t *const *brought, int64_t count)
{
    int32_t action = -1;
    if (c->items_count == 0) return ST_OK;
    TRY(lower_comm_push(l, c, l->last_compute, &action));
    l->p->actions[action].microbatch = -1; // a weight is of none
    for (int64_t i = 0; i < count; i++) *brought[i] = action;
    return ST_OK;
}

// Brings what a visit reads and nothing has brought; what the visit before it, or the one before that, has
// needed is still there, for it would have to be brought at once.
static status weights_gather(lowering *l, int64_t visit)
{
    if (visit >= l->visit_count) return ST_OK;
    const layer_visit *v = &l->visits[visit];
    const op_layer *layer = &l->m->layers[v->layer];
    const op_program *program = l->m->programs[layer->program];
    plan_comm c = {0};
    int32_t **brought = NULL;
    int64_t count = 0;
    TRY(arena_new(l->a, program->tensor_count + 1, &brought));
    for (tensor_id t = 0; t < program->tensor_count; t++) {
        const bool is_weight =
            program->tensors[t].role == ROLE_WEIGHT && program->tensors[t].view_of == TENSOR_NONE;
        const int32_t w = is_weight ? layer->weight_of[t] : -1;
        if (w < 0 || l->whole_of[w] < 0 || !visit_reads(program, v, t)) continue;
        const bool is_there = l->needed_at[w] >= visit - 2;
        l->needed_at[w] = max_i64(l->needed_at[w], visit);
        if (is_there) continue;
        const plan_tensor *whole = &l->p->tensors[l->whole_of[w]];
        const int64_t row = plan_table_find(l->p->run, l->m->weights[w].name);
        const plan_rows rows = lower_rows(l, w);
        const plan_comm_item item = {.in = plan_run_ref(row),
                                     .out = l->whole_of[w],
                                     .count = rows.piece * whole->dims[1],
                                     .total = lower_pieces_end(&rows, whole->dims[1])};
        const int32_t group = lower_groups(l, w)->cut;
        if (c.items_count > 0 && (c.type != whole->type || c.group != group)) {
            TRY(gather_push(l, &c, brought, count));
            c.items_count = 0;
            count = 0;
        }
        if (c.items_count == 0) {
            c = (plan_comm){.op = COLLECTIVE_ALL_GATHER, .group = group, .type = whole->type};
            TRY(lower_comm_name(l, &c, "weights, %.80s", layer->name));
        }
        TRY(lower_item_push(l, &c, &item));
        brought[count++] = &l->gathered_by[w];
    }
    return gather_push(l, &c, brought, count);
}

// The compute action that comes next waits for what the visit reads.
static status weights_wait(lowering *l, const layer_visit *v)
{
    const op_layer *layer = &l->m->layers[v->layer];
    const op_program *program = l->m->programs[layer->program];
    int32_t last[KIND_COUNT] = {-1, -1};
    for (tensor_id t = 0; t < program->tensor_count; t++) {
        const int32_t w = program->tensors[t].role == ROLE_WEIGHT ? layer->weight_of[t] : -1;
        if (w < 0 || l->gathered_by[w] < 0 || l->needed_at[w] != l->visit) continue;
        int32_t *latest = &last[lower_kind_of(l, w)]; // each lane is in order
        if (l->gathered_by[w] > *latest) *latest = l->gathered_by[w];
        l->gathered_by[w] = -1;
    }
    for (int k = 0; k < KIND_COUNT; k++) {
        if (last[k] >= 0) TRY(lower_wait_next(l, last[k]));
    }
    return ST_OK;
}

// ---- gradients ----------------------------------------------------------------------------------

// The compute action that comes next waits for the oldest sums; their tensors end before it.
static status passing_release(lowering *l, int64_t count)
{
    for (; l->passing_done < count; l->passing_done++) {
        const passing_sum *s = &l->passing[l->passing_done];
        const bool is_first = l->passing_done == 0 || s[-1].action != s->action;
        if (is_first) TRY(lower_wait_next(l, s->action));
    }
    return ST_OK;
}

status lower_passing_begin(lowering *l, int32_t layer_row)
{
    const layer_state *state = &l->layers[layer_row];
    for (int64_t u = 0; u < state->use_count; u++) {
        const grad_use *use = &l->uses[state->use_begin + u];
        if (!lower_passes(l, use->weight)) continue;
        // Those of before are summed.
        for (int64_t i = l->passing_done; i < l->passing_count; i++) {
            if (l->passing[i].tensor == use->buffer[0]) TRY(passing_release(l, i + 1));
        }
    }
    return ST_OK;
}

static status passing_sum_of(lowering *l, int32_t layer_row, lower_kind kind)
{
    const layer_state *state = &l->layers[layer_row];
    int32_t *last_sum = &l->last_sum[kind][SUM_ROWS];
    plan_comm c = {
        .op = COLLECTIVE_REDUCE_SCATTER, .reduction = REDUCTION_SUM, .group = l->groups[kind].cut};
    const int64_t begin = l->passing_count;
    TRY(lower_comm_name(l, &c, "gradients, %.80s", l->m->layers[layer_row].name));
    for (int64_t u = 0; u < state->use_count && l->cuts_gradients; u++) {
        grad_use *use = &l->uses[state->use_begin + u];
        const int32_t w = use->weight, whole = use->buffer[0];
        const plan_rows rows = lower_rows(l, w);
        if (!lower_passes(l, w) || lower_kind_of(l, w) != kind) continue;
        if (l->summed_by[w] >= 0 && rows.count > 0) { // what is summed so far goes along
            int32_t mine = -1;
            if (use->binding_of_merge[0][0] == 0) TRY(lower_part(l, whole, rows, &mine));
            TRY(lower_wait_next(l, l->summed_by[w]));
            TRY(lower_tree_add(l, mine, l->rows_of[w], &use->binding_of_merge[0][0]));
        }
        const int64_t columns = l->p->tensors[whole].dims[1];
        const plan_comm_item item = {.in = whole,
                                     .out = l->rows_of[w],
                                     .count = rows.piece * columns,
                                     .total = lower_pieces_end(&rows, columns)};
        ASSERT(c.items_count == 0 || c.type == l->p->tensors[whole].type);
        c.type = l->p->tensors[whole].type;
        TRY(lower_item_push(l, &c, &item));
        TRY(arena_grow(l->a, (void **)&l->passing, &l->passing_capacity, l->passing_count + 1,
                       (int64_t)sizeof(passing_sum)));
        l->passing[l->passing_count++] = (passing_sum){.tensor = whole, .visit = l->visit};
        l->touched[whole] = false;
    }
    if (c.items_count == 0) return ST_OK;
    TRY(lower_comm_push(l, &c, l->last_compute, last_sum));
    for (int64_t i = begin; i < l->passing_count; i++) {
        l->passing[i].action = *last_sum;
        l->summed_by[l->p->tensors[l->passing[i].tensor].weight] = *last_sum;
    }
    return ST_OK;
}

status lower_passing_sum(lowering *l, int32_t layer_row)
{
    TRY(passing_sum_of(l, layer_row, KIND_DENSE));
    return passing_sum_of(l, layer_row, KIND_EXPERT);
}

status lower_passing_end(lowering *l)
{
    return passing_release(l, l->passing_count);
}

status lower_across_sum(lowering *l, int32_t weight, int32_t ref, int32_t after)
{
    const lower_kind kind = lower_kind_of(l, weight);
    if (l->groups[kind].across < 0) return ST_OK;
    const plan_tensor *t = plan_tensor_at(l->p, ref);
    // Nor have the others of this group any of it. Compressed, they sum nothing: what each sum lost is added
    // over all ranks in place, so all of them must write it in every step.
    if (t->dims[0] == 0 && !lower_is_compressed(l, weight)) return ST_OK;
    plan_comm c = {.op = COLLECTIVE_ALL_REDUCE,
                   .reduction = REDUCTION_SUM,
                   .group = l->groups[kind].across,
                   .type = t->type};
    const plan_comm_item item = {.in = ref, .out = ref, .count = t->dims[0] * t->dims[1]};
    TRY(lower_comm_name(l, &c, "gradients, %.70s, across", l->m->weights[weight].name));
    TRY(lower_item_push(l, &c, &item));
    TRY(lower_codec_sum(l, &c, SUM_ACROSS, NULL, weight));
    return lower_comm_push(l, &c, after, &l->last_sum[kind][SUM_ACROSS]);
}

// ---- visits -------------------------------------------------------------------------------------

status lower_visit_begin(lowering *l)
{
    int64_t old = l->passing_done;
    while (old < l->passing_count && l->passing[old].visit <= l->visit - 2) old++;
    TRY(passing_release(l, old));
    if (!l->cuts_weights) return ST_OK;
    TRY(weights_gather(l, l->visit)); // the step's first one: others are brought ahead
    TRY(weights_wait(l, &l->visits[l->visit]));
    return weights_gather(l, l->visit + 1);
}

status lower_visit_end(lowering *l)
{
    l->visit++;
    return ST_OK;
}

status lower_visits_end(lowering *l)
{
    const int64_t count =
        l->r->most_microbatches > 0 ? l->visit_count / l->r->most_microbatches : 0;
    for (l->microbatch = -1; l->visits_after > 0; l->visits_after--) {
        const layer_visit v = l->visits[l->visit];
        const int64_t before = l->p->action_count;
        TRY(lower_visit_begin(l));
        if (l->p->action_count > before) lower_tick(l); // what is gathered has a time of its own
        TRY(lower_visit_end(l));
        if (v.weight && l->visits_after <= count) TRY(lower_gradients_reduce(l, v.layer));
    }
    return ST_OK;
}
