// Lowering, what tensor and context parallelism add (op/pass/partition.h, op/pass/context.h): communications between
// the nodes of a list, on the lane that computes, for the next node waits for them; and the norm of
// gradients that are cut.
//
//   nodes of a list   a  b  ALL_REDUCE  c  d
//   actions           [a b] [communicate] [c d]
//
// Rows that are cut by positions: rank r of w has the r-th of w parts of every sequence, or where strict order
// has several shards of it here, of each piece of those (op/zigzag.h), so what gathers or scatters them has an
// item for each.
#include "op/zigzag.h"
#include "plan/lower/lower.h"

#include <stdio.h>
#include <string.h>

static const op_node *node_at(const lowering *l, const plan_action *action, int32_t i)
{
    const op_program *program = l->p->bindings[action->binding].program;
    return &program->lists[action->list].nodes[action->ops_begin + i];
}

// What the items of a communication are made from.
typedef struct inline_comm {
    lowering *l;
    const plan_binding *b;
    const op_node *node;
    plan_comm c;
    int64_t begin, count;        // sequences of the micro-batch
    int64_t position, positions; // rows of one of them; 0: all
    int64_t ways;
} inline_comm;

static const op_tensor *tensor_of(const inline_comm *k, tensor_id t)
{
    return &k->b->program->tensors[t];
}

// Elements of `rows` rows of the tensor.
static int64_t elements(const inline_comm *k, tensor_id t, int64_t rows)
{
    const op_tensor *tensor = tensor_of(k, t);
    ASSERT(tensor->view_of == TENSOR_NONE);
    return tensor->ndim == 2 ? rows * tensor->dims[1].scale : rows;
}

static int64_t bytes(const inline_comm *k, tensor_id t, int64_t rows)
{
    return elements(k, t, rows) * dtype_bytes(tensor_of(k, t)->type);
}

// Rows in_row.. of all terms, side by side, and out_row.. of the result.
static status rows_push(inline_comm *k, int64_t in_row, int64_t out_row, int64_t count_rows)
{
    const tensor_id to = k->node->out[0];
    for (int i = 0; i < OP_MAX_IN && k->node->in[i] != TENSOR_NONE; i++) {
        const tensor_id from = k->node->in[i];
        const plan_comm_item item = {.in = k->b->tensor[from],
                                     .out = i == 0 ? k->b->tensor[to] : k->b->tensor[from],
                                     .in_offset = bytes(k, from, in_row),
                                     .out_offset =
                                         i == 0 ? bytes(k, to, out_row) : bytes(k, from, in_row),
                                     .count = elements(k, from, count_rows)};
        TRY(lower_item_push(k->l, &k->c, &item));
    }
    return ST_OK;
}

// Of context parallelism (op/zigzag.h): the first pieces of all ranks, then the second ones.
static status pieces_push(inline_comm *k)
{
    const bool scatter = k->node->code == OP_REDUCE_SCATTER;
    const tensor_id own_rows = scatter ? k->node->out[0] : k->node->in[0];
    const int64_t mine = k->l->r->seq * tensor_of(k, own_rows)->dims[0].scale;
    const int64_t all = mine * k->ways, pieces = zigzag_pieces(k->node->attrs.piece.cp_turns);
    const int64_t size = mine / pieces;
    for (int64_t i = pieces * k->begin; i < pieces * (k->begin + k->count); i++) {
        const int64_t whole = i / pieces * all + i % pieces * (all / pieces), own = i * size;
        TRY(scatter ? rows_push(k, whole, own, size) : rows_push(k, own, whole, size));
    }
    return ST_OK;
}

// Piece by piece: of each all positions on one side, this rank's on the other.
static status positions_push(inline_comm *k)
{
    const int64_t each = tensor_of(k, k->node->in[0])->dims[0].scale; // rows of a token
    const int64_t all = each * k->l->r->seq, mine = each * k->l->p->seq_cut;
    const bool scatter = k->node->code == OP_REDUCE_SCATTER;
    if (mine * k->ways != all || mine % k->l->p->cut_pieces != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.sp = yes: train.seq = %lld is not a multiple of layout.tp = %lld and of %lld "
            "pieces (determinism.cp_shards)",
            (long long)all, (long long)k->ways, (long long)k->l->p->cut_pieces);
    }
    const int64_t pieces = k->l->p->cut_pieces, size = all / pieces, part = mine / pieces;
    const int64_t first = k->begin * pieces + k->position * each / size;
    const int64_t count = k->positions > 0 ? k->positions * each / size : k->count * pieces;
    ASSERT(k->position * each % size == 0 && count > 0);
    for (int64_t i = first; i < first + count; i++) {
        TRY(scatter ? rows_push(k, i * size, i * part, part)
                    : rows_push(k, i * part, i * size, part));
    }
    return ST_OK;
}

// A tile of rows for each rank.
static status tiles_push(inline_comm *k)
{
    const extent of = tensor_of(k, k->node->in[0])->dims[0];
    const int64_t seq = of.symbol == EXTENT_TOKENS_CUT ? k->l->p->seq_cut : k->l->r->seq;
    return rows_push(k, 0, 0, k->count * seq * of.scale / k->ways);
}

// Of a weight: all of the rank's rows, or part by part those that it gives.
static status weight_push(inline_comm *k)
{
    const op_attrs *a = &k->node->attrs;
    int64_t to = 0;
    if (a->piece.part_count == 0)
        return rows_push(k, 0, 0, tensor_of(k, k->node->in[0])->dims[0].scale);
    for (int32_t i = 0; i < a->piece.part_count; i++) {
        TRY(rows_push(k, a->piece.part_first[i], to, a->piece.part_rows[i]));
        to += a->piece.part_whole[i];
    }
    return ST_OK;
}

static status items_push(inline_comm *k)
{
    if (k->node->code == OP_ALL_TO_ALL) return tiles_push(k);
    if (tensor_of(k, k->node->in[0])->dims[0].symbol == EXTENT_ONE) return weight_push(k);
    const int64_t each = tensor_of(k, k->node->in[0])->dims[0].scale;
    const int64_t seq = k->l->r->seq, first = each * (k->begin * seq + k->position);
    const int64_t rows = each * (k->positions > 0 ? k->positions : k->count * seq);
    if (k->node->code == OP_ALL_REDUCE) return rows_push(k, first, first, rows);
    if (k->node->code == OP_ALL_GATHER && k->node->attrs.stacked) {
        return rows_push(k, first, k->ways * first, rows);
    }
    return k->node->attrs.zigzag ? pieces_push(k) : positions_push(k);
}

static status leaves_push(inline_comm *k)
{
    plan *p = k->l->p;
    const op_attrs *a = &k->node->attrs;
    if (a->piece.shards == 0) return ST_OK;
    k->c.shards = a->piece.shards;
    k->c.leaves_begin = (int32_t)p->leaf_count;
    for (int32_t i = 0; i < OP_MAX_IN && k->node->in[i] != TENSOR_NONE; i++) {
        TRY(arena_grow(p->a, (void **)&p->leaves, &p->leaf_capacity, p->leaf_count + 1,
                       (int64_t)sizeof(*p->leaves)));
        p->leaves[p->leaf_count++] =
            (plan_comm_leaf){a->piece.first_shard + i, a->piece.first_shard + i + 1};
        k->c.leaves_count++;
    }
    return ST_OK;
}

static op_collective op_of(op_code code)
{
    if (code == OP_ALL_REDUCE) return COLLECTIVE_ALL_REDUCE;
    if (code == OP_ALL_TO_ALL) return COLLECTIVE_ALL_TO_ALL;
    return code == OP_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_GATHER;
}

// Ranks that the node is between. Of cp there are two kinds, and more of tp (plan/mesh.h).
static plan_group group_of(const lowering *l, const op_node *node, group_use use)
{
    const op_attrs *a = &node->attrs;
    if (a->axis == AXIS_TP)
        return plan_group_tp(&l->r->mesh, a->piece.inside, a->piece.across, use);
    const uint32_t of_cp = node->code == OP_ALL_TO_ALL ? MESH_CP_HEADS : MESH_CP_REST;
    const uint32_t axes = a->axis == AXIS_CP ? of_cp : MESH_AXIS(a->axis); // of ep: those alone
    return plan_group_of(&l->r->mesh, axes, use);
}

// ---- records that are shared ----------------------------------------------------------------------

// Who asks for times and bytes alone is not told which tensors a communication is of: so those of one node on as many
// rows have one record for all micro-batches and layers. In strict order, and of sums of accumulators, of which only the
// last one of a step may have a tail (sim/price.c), each has its own.
struct shared_comm {
    const op_node *node;
    int32_t binding, sequence_begin, sequence_count, position_begin, position_count;
    int32_t use,
        part;     // group_use; part: 1 of what others follow, and of the second half of a shift
    int32_t comm; // 1 more; 0: an empty slot
};
enum { SHARED_SLOTS = 1 << 12 };

// Its slot, or the empty one that it may have; NULL: it is not to be shared.
static shared_comm *shared_find(lowering *l, const plan_action *action, group_use use, int32_t part)
{
    const op_node *node = node_at(l, action, 0);
    if (l->shared == NULL || l->shared_count > SHARED_SLOTS / 2) return NULL;
    uint64_t at = (uint64_t)(uintptr_t)node / 16 * UINT64_C(0x9e3779b97f4a7c15);
    at ^= (uint64_t)action->position_begin * 31 + (uint64_t)action->sequence_begin * 7;
    at ^= (uint64_t)(uint32_t)action->binding * UINT64_C(0xbf58476d1ce4e5b9) >> 20;
    for (at += (uint64_t)part; l->shared[at % SHARED_SLOTS].comm > 0; at++) {
        shared_comm *s = &l->shared[at % SHARED_SLOTS];
        if (s->node == node && s->binding == action->binding &&
            s->sequence_begin == action->sequence_begin &&
            s->sequence_count == action->sequence_count &&
            s->position_begin == action->position_begin &&
            s->position_count == action->position_count && s->use == (int32_t)use &&
            s->part == part) {
            return s;
        }
    }
    return &l->shared[at % SHARED_SLOTS];
}

static void shared_add(lowering *l, const plan_action *action, group_use use, int32_t part,
                       int32_t comm)
{
    const plan *p = l->p;
    shared_comm *s = shared_find(l, action, use, part);
    const int32_t in = p->items[p->comms[comm].items_begin].in;
    if (s == NULL || (in >= 0 && p->tensors[in].kind == BYTES_GRADIENTS)) return;
    *s = (shared_comm){.node = node_at(l, action, 0),
                       .binding = action->binding,
                       .sequence_begin = action->sequence_begin,
                       .sequence_count = action->sequence_count,
                       .position_begin = action->position_begin,
                       .position_count = action->position_count,
                       .use = (int32_t)use,
                       .part = part,
                       .comm = comm + 1};
    l->shared_count++;
}

status lower_shared_begin(lowering *l)
{
    if (l->p->strict || l->r->use == PLAN_WHOLE) return ST_OK;
    return arena_new(l->a, SHARED_SLOTS, &l->shared);
}

// Another action of the record that is in a slot.
static status shared_push(lowering *l, const plan_action *action, const shared_comm *s,
                          int32_t after, int32_t *pushed)
{
    TRY(lower_comm_again(l, s->comm - 1, after, pushed));
    l->p->actions[*pushed].layer = action->layer;
    return ST_OK;
}

// It waits for action `after`, unless that is -1. *pushed: its row.
static status comm_push(inline_comm *k, const plan_action *action, int32_t part, int32_t after,
                        int32_t *pushed)
{
    lowering *l = k->l;
    TRY(lower_comm_push(l, &k->c, after, pushed));
    l->p->actions[*pushed].layer = action->layer;
    shared_add(l, action, l->p->run->groups[k->c.group].use, part, l->p->actions[*pushed].comm);
    return ST_OK;
}

// To the next rank and from the one before, after action `after` where that is one. Every other one sends first, so
// that none waits for ever.
static status shift_push(inline_comm *k, const plan_action *action, const plan_group *group,
                         int32_t after, int32_t *last)
{
    const int32_t place = plan_group_place(&k->l->r->mesh, group), size = (int32_t)k->ways;
    const tensor_id from = k->node->in[0], to = k->node->out[0];
    const int64_t rows = k->count * k->l->r->seq * tensor_of(k, from)->dims[0].scale;
    const plan_comm_item items[] = {
        {.in = k->b->tensor[from], .out = -1, .count = elements(k, from, rows)},
        {.in = -1, .out = k->b->tensor[to], .count = elements(k, to, rows)}};
    for (int i = 0; i < 2; i++) {
        const bool sends = (i == 0) == (place % 2 == 0);
        k->c.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE;
        k->c.peer = sends ? (place + 1) % size : (place + size - 1) % size;
        k->c.items_count = 0;
        TRY(lower_item_push(k->l, &k->c, &items[sends ? 0 : 1]));
        TRY(comm_push(k, action, i, after, last));
    }
    return ST_OK;
}

// What it makes; of a layer, whose nodes run with every micro-batch, the name is kept.
static status name_set(inline_comm *k, int32_t layer_row)
{
    lowering *l = k->l;
    const tensor_id t = k->node->out[0];
    if (layer_row < 0) {
        return lower_comm_name(l, &k->c, "%s", plan_tensor_at(l->p, k->b->tensor[t])->name);
    }
    const op_layer *layer = &l->m->layers[layer_row];
    const char ***names = &l->names[layer_row];
    if (*names == NULL) TRY(arena_new(l->a, k->b->program->tensor_count, names));
    if ((*names)[t] == NULL) {
        TRY(lower_comm_name(l, &k->c, "%.40s/%s", layer->name, tensor_of(k, t)->name));
        (*names)[t] = k->c.name;
    }
    k->c.name = (*names)[t];
    return ST_OK;
}

// All of it but the items.
static status comm_begin(lowering *l, const plan_action *action, const plan_group *group,
                         inline_comm *out)
{
    const op_node *node = node_at(l, action, 0);
    inline_comm k = {.l = l,
                     .b = &l->p->bindings[action->binding],
                     .node = node,
                     .begin = action->sequence_begin,
                     .count =
                         action->sequence_count > 0 ? action->sequence_count : l->r->micro_batch,
                     .position = action->position_begin,
                     .positions = action->position_count,
                     .ways = plan_group_size(&l->r->mesh, group)};
    k.c = (plan_comm){.op = op_of(node->code), .reduction = REDUCTION_SUM};
    k.c.type = tensor_of(&k, node->in[0])->type;
    TRY(name_set(&k, action->layer));
    if (group->axes == 0) {
        return fail(ST_INTERNAL, "%s is between ranks, and there is one", k.c.name);
    }
    TRY(plan_table_group(l->p->run, group, &k.c.group));
    *out = k;
    return ST_OK;
}

static status shift(lowering *l, const plan_action *action, group_use use, int32_t after,
                    int32_t *last)
{
    const shared_comm *one = shared_find(l, action, use, 0), *two = shared_find(l, action, use, 1);
    if (one != NULL && one->comm > 0 && two != NULL && two->comm > 0) {
        TRY(shared_push(l, action, one, after, last));
        return shared_push(l, action, two, after, last);
    }
    const plan_group group = group_of(l, node_at(l, action, 0), use);
    inline_comm k;
    TRY(comm_begin(l, action, &group, &k));
    return shift_push(&k, action, &group, after, last);
}

// A gather or a sum; `more`: other rows of it follow.
static status message(lowering *l, const plan_action *action, group_use use, bool more,
                      int32_t after, int32_t *out)
{
    const shared_comm *s = shared_find(l, action, use, more ? 1 : 0);
    if (s != NULL && s->comm > 0) return shared_push(l, action, s, after, out);
    const plan_group group = group_of(l, node_at(l, action, 0), use);
    inline_comm k;
    TRY(comm_begin(l, action, &group, &k));
    TRY(items_push(&k));
    TRY(leaves_push(&k));
    k.c.more = more;
    return comm_push(&k, action, more ? 1 : 0, after, out);
}

// The communication that the action's range begins with.
static status inline_push(lowering *l, const plan_action *action)
{
    if (node_at(l, action, 0)->code == OP_SHIFT) {
        return shift(l, action, GROUP_INLINE, -1, &l->last_compute);
    }
    return message(l, action, GROUP_INLINE, false, -1, &l->last_compute);
}

status lower_shift_beside(lowering *l, const plan_action *action, int32_t *out)
{
    return shift(l, action, GROUP_RING, l->last_compute, out);
}

status lower_inline_beside(lowering *l, const plan_action *action, bool more, int32_t *out)
{
    TRY(message(l, action, GROUP_ASIDE, more, l->last_compute, out));
    for (int64_t i = 0; i < l->next_wait_count; i++) { // it may come before the next compute action
        TRY(lower_wait(l, *out, l->next_waits[i]));
    }
    return ST_OK;
}

// ---- what computes, and communications in it ------------------------------------------------------

// What was asked to be waited for, by the action pushed last.
static status waits_take(lowering *l)
{
    for (int64_t i = 0; i < l->next_wait_count; i++) {
        TRY(lower_wait(l, l->last_compute, l->next_waits[i]));
    }
    l->next_wait_count = 0;
    return ST_OK;
}

status lower_compute_run(lowering *l, const plan_action *action)
{
    TRY(lower_action_push(l, action, &l->last_compute));
    return waits_take(l);
}

status lower_compute_push(lowering *l, const plan_action *whole)
{
    plan_action action = *whole;
    if (action.ops_count == 0) return ST_OK;
    action.lane = LANE_COMPUTE;
    action.microbatch = l->microbatch;
    const int32_t end = action.ops_begin + action.ops_count;
    while (action.ops_begin < end) {
        const beside_part next = lower_beside_next(l, &action);
        plan_action part = action;
        part.ops_count = next.nodes;
        if (next.kind == BESIDE_NOTHING) {
            TRY(lower_compute_run(l, &part));
        } else if (next.kind == BESIDE_MESSAGE) {
            TRY(inline_push(l, &part));
            TRY(waits_take(l));
            lower_tick(l);
        } else {
            TRY(lower_beside_push(l, &part, &next));
        }
        action.ops_begin += part.ops_count;
        action.ops_count = end - action.ops_begin;
    }
    return ST_OK;
}

// Logits of a piece of the vocabulary are made for statistics, and are still there for the losses, if no
// more sequences are worked on at once than a chunk has.
int64_t lower_head_piece(const lowering *l, int32_t layer_row)
{
    const op_program *program = l->m->programs[l->m->layers[layer_row].program];
    for (int64_t i = 0; i < program->lists[OP_BACKWARD_WEIGHT].count; i++) {
        const op_node *node = &program->lists[OP_BACKWARD_WEIGHT].nodes[i];
        if (node->code != OP_HEAD_STATS || !node->attrs.kept) continue;
        const int64_t rows = op_head_chunk_rows(program->tensors[node->in[1]].dims[0].scale);
        if (rows >= l->r->seq) return rows / l->r->seq;
    }
    return l->r->micro_batch;
}

// ---- gradients that are terms ---------------------------------------------------------------------

// A sum of terms that are the same on `copies` ranks side by side: of one of each. Such are all of a model.
static status tp_sum(const lowering *l, int32_t copies, plan_comm *c)
{
    const plan_group group = plan_group_tp(&l->r->mesh, 0, copies, GROUP_INLINE);
    *c = (plan_comm){.op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM};
    ASSERT(group.axes != 0); // else it is no sum: op_model_partition
    return plan_table_group(l->p->run, &group, &c->group);
}

static int32_t copies_of(const lowering *l, int32_t weight)
{
    const op_weight *w = &l->m->weights[weight];
    return w->partial_grad ? w->partial_copies : 0;
}

static status layer_terms_reduce(lowering *l, int32_t layer_row, int32_t copies)
{
    plan_comm c;
    const layer_state *state = &l->layers[layer_row];
    TRY(tp_sum(l, copies, &c));
    TRY(lower_comm_name(l, &c, "%.60s, gradients that %s have terms of",
                        l->m->layers[layer_row].name, copies > 1 ? "some" : "all"));
    for (int64_t u = 0; u < state->use_count; u++) {
        const grad_use *use = &l->uses[state->use_begin + u];
        if (copies_of(l, use->weight) != copies || lower_passes(l, use->weight)) continue;
        ASSERT(!l->r->strict); // op_model_partition refuses
        const int32_t buffer = use->buffer[0];
        const plan_tensor *t = &l->p->tensors[buffer];
        const int64_t count = t->ndim == 1 ? t->dims[0] : t->dims[0] * t->dims[1];
        const plan_comm_item item = {.in = buffer, .out = buffer, .count = count};
        c.type = t->type;
        TRY(lower_item_push(l, &c, &item));
    }
    return c.items_count > 0 ? lower_comm_push(l, &c, -1, &l->last_compute) : ST_OK;
}

status lower_terms_reduce(lowering *l, int32_t layer_row)
{
    const layer_state *state = &l->layers[layer_row];
    for (int32_t copies = 1; copies < plan_mesh_size(&l->r->mesh, AXIS_TP); copies++) {
        bool any = false;
        for (int64_t u = 0; u < state->use_count; u++) {
            any = any || copies_of(l, l->uses[state->use_begin + u].weight) == copies;
        }
        if (any) TRY(layer_terms_reduce(l, layer_row, copies));
    }
    return ST_OK;
}

// Of those that have copies, heads' norms, there are no rows: they are vectors.
status lower_terms_end(lowering *l)
{
    plan_comm c;
    int32_t action = -1;
    bool any = false;
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        any = any ||
              (l->m->weights[w].partial_grad && lower_passes(l, w) && lower_rows(l, w).count > 0);
    }
    if (!any) return ST_OK;
    TRY(tp_sum(l, 1, &c));
    c.name = "rows of gradients that all have terms of";
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        if (!l->m->weights[w].partial_grad || !lower_passes(l, w)) continue;
        ASSERT(l->m->weights[w].partial_copies == 1);
        const plan_tensor *t = &l->p->tensors[l->rows_of[w]];
        if (t->dims[0] == 0) continue;
        const plan_comm_item item = {
            .in = l->rows_of[w], .out = l->rows_of[w], .count = t->dims[0] * t->dims[1]};
        c.type = t->type;
        TRY(lower_item_push(l, &c, &item));
    }
    TRY(lower_comm_push(l, &c, -1, &action));
    l->last_compute = action;
    return lower_sums_wait(l, action);
}

// ---- the norm -----------------------------------------------------------------------------------

bool lower_norm_is_mine(const lowering *l, int32_t weight)
{
    const op_weight *w = &l->m->weights[weight];
    const bool others =
        w->is_expert && l->r->mesh.whole_experts; // not those of its tp: norm_is_mine
    return w->ways > 1 || others || l->r->mesh.at[AXIS_TP] == 0;
}

// Blocks of the norm are cut where determinism.tp_shards cuts the columns of the whole weight, so that they
// are the same for any number of ranks.
static int32_t columns_of_norm(const lowering *l, const op_weight *w, norm_piece *out)
{
    const int32_t shards = l->r->strict && l->r->tp_shards > 1 ? l->r->tp_shards : 1;
    const int64_t ways = plan_mesh_size(&l->r->mesh, AXIS_TP), at = l->r->mesh.at[AXIS_TP];
    const bool vector = w->ndim == 1;
    const bool cut = w->cut_dim[AXIS_TP] == (vector ? 0 : 1);
    int32_t count = 0;
    if (shards == 1 || !cut) {
        out[0] = (norm_piece){.count = vector ? w->rows : w->columns};
        return 1;
    }
    for (int i = 0; i < (vector ? w->part_count : 1); i++) {
        const weight_piece part = op_weight_piece(w, i);
        const int64_t whole = vector ? part.whole_rows : part.whole_columns;
        const int64_t from = vector ? w->parts[i].row_begin - part.row : -part.column;
        for (int64_t s = at * (shards / ways); s < (at + 1) * (shards / ways); s++) {
            const int64_t begin = whole * s / shards, end = whole * (s + 1) / shards;
            ASSERT(count < NORM_MAX_PIECES);
            if (end == begin) continue;
            out[count++] = (norm_piece){.begin = from + begin, .count = end - begin};
        }
    }
    return count;
}

static bool has_copies(const op_weight *w)
{
    for (int i = 0; i < w->part_count; i++) {
        if (w->ways > 1 && w->parts[i].copies > 1) return true;
    }
    return false;
}

// Of parts that several ranks have each counts its share.
int32_t lower_norm_pieces(const lowering *l, int32_t weight, norm_piece out[NORM_MAX_PIECES])
{
    const op_weight *w = &l->m->weights[weight];
    const plan_rows own = lower_rows(l, weight);
    const bool vector = w->ndim == 1;
    if (own.count == 0) return 0;
    int32_t count = columns_of_norm(l, w, out);
    for (int32_t i = 0; i < count; i++) out[i].rows = vector ? 1 : own.count;
    if (!has_copies(w) || (vector && count > 1)) return count;
    ASSERT(count == 1);
    count = 0;
    for (int i = 0; i < w->part_count; i++) {
        int64_t rows = 0;
        const int64_t share =
            w->parts[i].row_begin + op_part_share(w, i, l->r->mesh.at[AXIS_TP], &rows);
        const int64_t begin = max_i64(share, own.first);
        const int64_t end = min_i64(share + rows, own.first + own.count);
        if (begin >= end) continue;
        out[count++] =
            vector
                ? (norm_piece){.rows = 1, .begin = begin, .count = end - begin}
                : (norm_piece){.row = begin - own.first, .rows = end - begin, .count = w->columns};
    }
    return count;
}
