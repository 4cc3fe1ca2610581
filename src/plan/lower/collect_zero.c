// Pass 3 of lowering, tensors that ZeRO cuts over dp and cp: the optimizer's state (ZeRO-1),
// gradients (ZeRO-2) and weights (ZeRO-3).
//
// A rank keeps its rows of each tensor; the whole, unsharded tensor has bytes only around the layer
// that needs it. A *visit* is what a layer does at one time, and visits follow one another on the
// compute stream.
//
//   compute   | visit v - 1       | visit v           | visit v + 1       |
//   dp                            | sum of v - 1      | sum of v ...
//                                 | gather for v + 1  | gather for v + 2
//
// A whole gradient is computed again in every micro-batch. The rows that a rank has summed so far
// are added to its own rows of the whole gradient, so the sum over ranks is the sum of all
// micro-batches so far and replaces these rows. Visit v + 2 waits until the sum of v is done; then
// the whole gradient's bytes are free.
//
// A whole weight is gathered one visit ahead: the gather waits for the visit before that.
//
// With ZeRO-1 a weight is gathered once, after its update; the next step's first forward of its
// layer waits for that.
#include "plan/lower/collect_internal.h"

#include <string.h>

static status row_of_group(const lower_input *in, uint32_t axes, int32_t *row)
{
    const plan_group g = plan_group_of(&in->r->mesh, axes, GROUP_OVERLAPPED);
    *row = -1;
    return g.axes != 0 ? plan_table_group(in->p->run, &g, row) : ST_OK;
}

static status groups_find(collector *c)
{
    const lower_input *in = c->in;
    const plan_mesh *m = &in->r->mesh;
    collect_groups *dense = &c->groups[KIND_DENSE], *expert = &c->groups[KIND_EXPERT];
    *dense = *expert = (collect_groups){-1, -1, -1};
    TRY(row_of_group(in, MESH_DATA, &dense->data));
    if (in->r->zero > 0 && plan_zero_size(m) > 1) {
        TRY(row_of_group(in, MESH_ZERO, &dense->cut));
        TRY(row_of_group(in, MESH_DP_ACROSS, &dense->across));
    }
    if (!plan_experts_apart(m)) return ST_OK;
    TRY(row_of_group(in, MESH_EXPERT_DATA, &expert->data));
    if (in->r->zero > 0 && plan_expert_size(m) > 1) expert->cut = expert->data;
    return ST_OK;
}

static status rows_new(const lower_input *in, int32_t **out)
{
    TRY(arena_new(in->a, in->m->weight_count + 1, out));
    memset(*out, -1, (size_t)in->m->weight_count * sizeof(**out));
    return ST_OK;
}

// Checks that all ranks have as many micro-batches if each micro-batch has collectives.
static status microbatches_check(const lower_input *in)
{
    const plan_request *r = in->r;
    const bool is_even = r->fewest_microbatches == r->most_microbatches;
    if (is_even || (!lower_scatters_gradients(r) &&
                    (!lower_gathers_weights(r) || in->pipe.schedule == NULL))) {
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

status collect_zero_begin(collector *c)
{
    const lower_input *in = c->in;
    collect_zero *z = &c->zero;
    TRY(groups_find(c));
    if (lower_scatters_gradients(in->r) && in->r->codec != NULL) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.zero = %d sums gradients in every micro-batch, comm.compression once in a "
            "step: expected layout.zero_sums = step, or no compression",
            (int)in->r->zero);
    }
    TRY(microbatches_check(in));
    TRY(rows_new(in, &z->gather_of));
    TRY(rows_new(in, &z->gathered_by));
    TRY(rows_new(in, &z->summed_by));
    TRY(arena_new(in->a, in->m->weight_count + 1, &z->needed_at));
    for (int32_t w = 0; w < in->m->weight_count; w++) z->needed_at[w] = INT32_MIN;
    return ST_OK;
}

// ---- weights ------------------------------------------------------------------------------------

// True if a visit runs this list.
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

// True if a node of the visit reads tensor t or a view of it.
static bool visit_reads(const op_program *program, const layer_visit *v, tensor_id t)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        if (!visit_runs(v, program->output_count == 0, (op_list)list)) continue;
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            for (int k = 0; k < OP_MAX_IN; k++) {
                const tensor_id in = program->lists[list].nodes[i].in[k];
                if (in != TENSOR_NONE && op_owner(program, in).id == t) return true;
            }
        }
    }
    return false;
}

static status gather_push(collector *c, const plan_comm *comm, int32_t layer,
                          int32_t *const *brought, int64_t count)
{
    const comm_note note = {
        .before = "weights, ", .text = c->in->m->layers[layer].name, .from = -1};
    int32_t action = -1;
    if (comm->items_count == 0) return ST_OK;
    TRY(collect_comm(c, comm, &note, c->last_compute, &action));
    c->in->p->actions[action].microbatch = -1; // a weight belongs to no micro-batch
    for (int64_t i = 0; i < count; i++) *brought[i] = action;
    return ST_OK;
}

// The weight that tensor t of the layer's program is, if it must be gathered for the visit; else
// -1. A weight of the last two visits is still there, because otherwise it would have to be
// gathered at once.
static int32_t weight_to_bring(collector *c, int64_t visit, tensor_id t)
{
    const layer_visit *v = &c->x->visits[visit];
    const op_layer *layer = &c->in->m->layers[v->layer];
    const op_program *program = c->in->m->programs[layer->program];
    const bool is_weight =
        program->tensors[t].role == ROLE_WEIGHT && program->tensors[t].view_of == TENSOR_NONE;
    const int32_t w = is_weight ? layer->weight_of[t] : -1;
    if (w < 0 || c->b->whole_of[w] < 0 || !visit_reads(program, v, t)) return -1;
    const bool is_there = c->zero.needed_at[w] >= visit - 2;
    c->zero.needed_at[w] = max_i64(c->zero.needed_at[w], visit);
    return is_there ? -1 : w;
}

// Gathers the weights that a visit reads and that are not there yet.
static status weights_gather(collector *c, int64_t visit)
{
    const lower_input *in = c->in;
    if (visit >= c->x->visit_count) return ST_OK;
    const int32_t layer = c->x->visits[visit].layer;
    const op_program *program = in->m->programs[in->m->layers[layer].program];
    plan_comm comm = {0};
    int32_t **brought = NULL;
    int64_t count = 0;
    TRY(arena_new(in->a, program->tensor_count + 1, &brought));
    for (tensor_id t = 0; t < program->tensor_count; t++) {
        const int32_t w = weight_to_bring(c, visit, t);
        if (w < 0) continue;
        const plan_tensor *whole = &in->p->tensors[c->b->whole_of[w]];
        const int64_t row = plan_table_find(in->p->run, in->m->weights[w].name);
        const plan_rows rows = lower_rows(in, w);
        const plan_comm_item item = {.in = plan_run_ref(row),
                                     .out = c->b->whole_of[w],
                                     .count = rows.piece * whole->dims[1],
                                     .total = lower_pieces_end(&rows, whole->dims[1])};
        const int32_t group = collect_groups_of(c, w)->cut;
        if (comm.items_count > 0 && (comm.type != whole->type || comm.group != group)) {
            TRY(gather_push(c, &comm, layer, brought, count));
            comm.items_count = 0;
            count = 0;
        }
        if (comm.items_count == 0) {
            comm = (plan_comm){.op = COLLECTIVE_ALL_GATHER, .group = group, .type = whole->type};
        }
        TRY(collect_item(c, &comm, &item));
        brought[count++] = &c->zero.gathered_by[w];
    }
    return gather_push(c, &comm, layer, brought, count);
}

// Makes the next compute action wait for the weights that the visit reads.
static status weights_wait(collector *c, const layer_visit *v)
{
    const op_layer *layer = &c->in->m->layers[v->layer];
    const op_program *program = c->in->m->programs[layer->program];
    collect_zero *z = &c->zero;
    int32_t last[KIND_COUNT] = {-1, -1};
    for (tensor_id t = 0; t < program->tensor_count; t++) {
        const int32_t w = program->tensors[t].role == ROLE_WEIGHT ? layer->weight_of[t] : -1;
        if (w < 0 || z->gathered_by[w] < 0 || z->needed_at[w] != z->visit) continue;
        int32_t *latest = &last[lower_kind_of(c->in, w)]; // each stream is in order
        if (z->gathered_by[w] > *latest) *latest = z->gathered_by[w];
        z->gathered_by[w] = -1;
    }
    for (int k = 0; k < KIND_COUNT; k++) {
        if (last[k] >= 0) TRY(collect_wait_next(c, last[k]));
    }
    return ST_OK;
}

status collect_weight_gather(collector *c, int32_t weight, int32_t after)
{
    const lower_input *in = c->in;
    const plan_rows rows = lower_rows(in, weight);
    const char *name = in->m->weights[weight].name;
    const comm_note note = {.before = name, .from = -1};
    if (!rows.cut || lower_gathers_weights(in->r)) return ST_OK;
    const int32_t ref = plan_run_ref(plan_table_find(in->p->run, name));
    const plan_tensor *t = plan_tensor_at(in->p, ref);
    plan_comm comm = {
        .op = COLLECTIVE_ALL_GATHER, .group = collect_groups_of(c, weight)->cut, .type = t->type};
    const plan_comm_item item = {.in = ref,
                                 .out = ref,
                                 .in_offset = rows.first * t->dims[1] * dtype_bytes(t->type),
                                 .count = rows.piece * t->dims[1],
                                 .total = lower_pieces_end(&rows, t->dims[1])};
    TRY(collect_item(c, &comm, &item));
    return collect_comm(c, &comm, &note, after, &c->zero.gather_of[weight]);
}

// A layer's first forward waits for its weights of the step before; each stream is in order.
status collect_forward_waits(collector *c)
{
    const op_model *m = c->in->m;
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        int32_t latest[KIND_COUNT] = {-1, -1};
        for (int64_t t = 0; t < program->tensor_count && c->x->chunk_of[i] >= 0; t++) {
            const int32_t w =
                program->tensors[t].role == ROLE_WEIGHT ? m->layers[i].weight_of[t] : -1;
            if (w < 0) continue;
            int32_t *last = &latest[lower_kind_of(c->in, w)];
            if (c->zero.gather_of[w] > *last) *last = c->zero.gather_of[w];
        }
        for (int k = 0; k < KIND_COUNT; k++) {
            if (latest[k] >= 0) TRY(collect_wait(c, c->first_forward[i], -1 - latest[k]));
        }
    }
    return ST_OK;
}

// ---- gradients ----------------------------------------------------------------------------------

// Makes the next compute action wait for the oldest `count` sums.
static status unsharded_release(collector *c, int64_t count)
{
    collect_zero *z = &c->zero;
    for (; z->unsharded_done < count; z->unsharded_done++) {
        const unsharded_sum *s = &z->unsharded[z->unsharded_done];
        const bool is_first = z->unsharded_done == 0 || s[-1].action != s->action;
        if (is_first) TRY(collect_wait_next(c, s->action));
    }
    return ST_OK;
}

// Waits until the layer's whole gradients of earlier micro-batches are summed, before it makes new
// ones.
status collect_unsharded_begin(collector *c, int32_t layer)
{
    const layer_tensors *tensors = &c->b->layers[layer];
    collect_zero *z = &c->zero;
    for (int64_t u = 0; u < tensors->use_count; u++) {
        const weight_use *use = &c->b->uses[tensors->use_begin + u];
        if (!bind_is_unsharded(c->b, use->weight)) continue;
        for (int64_t i = z->unsharded_done; i < z->unsharded_count; i++) {
            if (z->unsharded[i].tensor == use->buffer[0]) TRY(unsharded_release(c, i + 1));
        }
    }
    return ST_OK;
}

static status unsharded_item(collector *c, plan_comm *comm, const weight_use *use, int32_t sum)
{
    const lower_input *in = c->in;
    collect_zero *z = &c->zero;
    const int32_t w = use->weight, whole = use->buffer[0];
    const plan_rows rows = lower_rows(in, w);
    const plan_tensor *t = &in->p->tensors[whole];
    if (sum >= 0) { // adds the sum so far
        TRY(collect_wait_next(c, z->summed_by[w]));
        TRY(collect_nodes(c, &c->b->actions[sum]));
    }
    const plan_comm_item item = {.in = whole,
                                 .out = c->b->rows_of[w],
                                 .count = rows.piece * t->dims[1],
                                 .total = lower_pieces_end(&rows, t->dims[1])};
    ASSERT(comm->items_count == 0 || comm->type == t->type);
    comm->type = t->type;
    TRY(collect_item(c, comm, &item));
    TRY(arena_grow(in->a, (void **)&z->unsharded, &z->unsharded_capacity, z->unsharded_count + 1,
                   (int64_t)sizeof(unsharded_sum)));
    z->unsharded[z->unsharded_count++] = (unsharded_sum){.tensor = whole, .visit = z->visit};
    return ST_OK;
}

static status unsharded_sum_of(collector *c, int32_t layer, const bound_visit *visit,
                               lower_kind kind)
{
    const layer_tensors *tensors = &c->b->layers[layer];
    collect_zero *z = &c->zero;
    int32_t *last_sum = &c->last_sum[kind][SUM_ROWS];
    plan_comm comm = {
        .op = COLLECTIVE_REDUCE_SCATTER, .reduction = REDUCTION_SUM, .group = c->groups[kind].cut};
    const comm_note note = {
        .before = "gradients, ", .text = c->in->m->layers[layer].name, .from = -1};
    const int64_t begin = z->unsharded_count;
    for (int64_t u = 0; u < tensors->use_count; u++) {
        const weight_use *use = &c->b->uses[tensors->use_begin + u];
        const int32_t w = use->weight;
        if (!bind_is_unsharded(c->b, w) || lower_kind_of(c->in, w) != kind) continue;
        TRY(unsharded_item(c, &comm, use, c->b->sums[visit->sums_begin + u]));
    }
    if (comm.items_count == 0) return ST_OK;
    TRY(collect_comm(c, &comm, &note, c->last_compute, last_sum));
    for (int64_t i = begin; i < z->unsharded_count; i++) {
        z->unsharded[i].action = *last_sum;
        z->summed_by[c->in->p->tensors[z->unsharded[i].tensor].weight] = *last_sum;
    }
    return ST_OK;
}

status collect_unsharded_sum(collector *c, int32_t layer, const bound_visit *visit)
{
    if (!lower_scatters_gradients(c->in->r)) return ST_OK;
    TRY(unsharded_sum_of(c, layer, visit, KIND_DENSE));
    return unsharded_sum_of(c, layer, visit, KIND_EXPERT);
}

status collect_unsharded_end(collector *c)
{
    return unsharded_release(c, c->zero.unsharded_count);
}

status collect_across_sum(collector *c, int32_t weight, int32_t ref, int32_t after)
{
    const lower_kind kind = lower_kind_of(c->in, weight);
    if (c->groups[kind].across < 0) return ST_OK;
    const plan_tensor *t = plan_tensor_at(c->in->p, ref);
    // The other ranks of this group have no rows either. A compressed sum is still needed: the
    // losses of each sum are added over all ranks in place, so all of them must write theirs in
    // every step.
    if (t->dims[0] == 0 && !collect_is_compressed(c, weight)) return ST_OK;
    plan_comm comm = {.op = COLLECTIVE_ALL_REDUCE,
                      .reduction = REDUCTION_SUM,
                      .group = c->groups[kind].across,
                      .type = t->type};
    comm_note note = {.before = "gradients, ",
                      .text = c->in->m->weights[weight].name,
                      .between = ", across",
                      .from = -1};
    const plan_comm_item item = {.in = ref, .out = ref, .count = t->dims[0] * t->dims[1]};
    TRY(collect_item(c, &comm, &item));
    TRY(collect_codec_sum(c, &comm, &note, SUM_ACROSS, NULL, weight));
    return collect_comm(c, &comm, &note, after, &c->last_sum[kind][SUM_ACROSS]);
}

// ---- visits -------------------------------------------------------------------------------------

status collect_visit_begin(collector *c)
{
    collect_zero *z = &c->zero;
    int64_t old = z->unsharded_done;
    while (old < z->unsharded_count && z->unsharded[old].visit <= z->visit - 2) old++;
    TRY(unsharded_release(c, old));
    if (!lower_gathers_weights(c->in->r)) return ST_OK;
    TRY(weights_gather(c, z->visit)); // the step's first visit; others are gathered ahead
    TRY(weights_wait(c, &c->x->visits[z->visit]));
    return weights_gather(c, z->visit + 1);
}

status collect_visit_end(collector *c)
{
    c->zero.visit++;
    return ST_OK;
}
