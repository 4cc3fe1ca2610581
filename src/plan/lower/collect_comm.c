// Pass 3 of lowering, communications inside a list (op/pass/partition.h, op/pass/context.h): their
// groups, and the rows of their tensors.
//
// For rows that are cut by positions, rank r of w has the r-th of w parts of every sequence; if
// strict order places several shards of a sequence on the rank, it has the r-th part of each of
// their pieces (op/zigzag.h). So a gather or scatter has an item for each piece.
#include "op/zigzag.h"
#include "plan/lower/collect_internal.h"

// The first node of the action's range.
static const op_node *node_of(const collector *c, const plan_action *action)
{
    const op_program *program = c->in->p->bindings[action->binding].program;
    return &program->lists[action->list].nodes[action->ops_begin];
}

static op_collective collective_of(const op_node *node)
{
    return op_kind_of(node->code)->collective;
}

// The inputs for the items of a communication.
typedef struct inline_comm {
    collector *c;
    const plan_binding *b;
    const op_node *node;
    plan_comm comm;
    comm_note note;
    int64_t begin, count;        // sequences of the micro-batch
    int64_t position, positions; // rows of one of them; 0: all
    int64_t ways;
} inline_comm;

static const op_tensor *tensor_of(const inline_comm *k, tensor_id t)
{
    return &k->b->program->tensors[t];
}

// Number of elements in `rows` rows of the tensor.
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

// Adds an item with rows in_row.. of all terms, one after the other, and out_row.. of the result.
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
        TRY(collect_item(k->c, &k->comm, &item));
    }
    return ST_OK;
}

// Adds items for context parallelism (op/zigzag.h): the first pieces of all ranks, then the second
// ones.
static status pieces_push(inline_comm *k)
{
    const bool scatter = k->comm.op == COLLECTIVE_REDUCE_SCATTER;
    const tensor_id own_rows = scatter ? k->node->out[0] : k->node->in[0];
    const int64_t mine = k->c->in->r->seq * tensor_of(k, own_rows)->dims[0].scale;
    const int64_t all = mine * k->ways, pieces = zigzag_pieces(k->node->piece.cp_turns);
    const int64_t size = mine / pieces;
    for (int64_t i = pieces * k->begin; i < pieces * (k->begin + k->count); i++) {
        const int64_t whole = i / pieces * all + i % pieces * (all / pieces), own = i * size;
        TRY(scatter ? rows_push(k, whole, own, size) : rows_push(k, own, whole, size));
    }
    return ST_OK;
}

// Adds an item for each piece, with all its positions on one side and this rank's on the other.
static status positions_push(inline_comm *k)
{
    const int64_t each = tensor_of(k, k->node->in[0])->dims[0].scale; // rows of a token
    const int64_t all = each * k->c->in->r->seq, mine = each * k->c->in->p->seq_cut;
    const bool scatter = k->comm.op == COLLECTIVE_REDUCE_SCATTER;
    if (mine * k->ways != all || mine % k->c->in->p->cut_pieces != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.sp = yes: train.seq = %lld is not a multiple of layout.tp = %lld and of %lld "
            "pieces (determinism.cp_shards)",
            (long long)all, (long long)k->ways, (long long)k->c->in->p->cut_pieces);
    }
    const int64_t pieces = k->c->in->p->cut_pieces, size = all / pieces, part = mine / pieces;
    const int64_t first = k->begin * pieces + k->position * each / size;
    const int64_t count = k->positions > 0 ? k->positions * each / size : k->count * pieces;
    ASSERT(k->position * each % size == 0 && count > 0);
    for (int64_t i = first; i < first + count; i++) {
        TRY(scatter ? rows_push(k, i * size, i * part, part)
                    : rows_push(k, i * part, i * size, part));
    }
    return ST_OK;
}

// Adds an item with a tile of rows for each rank.
static status tiles_push(inline_comm *k)
{
    const extent of = tensor_of(k, k->node->in[0])->dims[0];
    const int64_t seq = of.symbol == EXTENT_SEQS         ? 1
                        : of.symbol == EXTENT_TOKENS_CUT ? k->c->in->p->seq_cut
                                                         : k->c->in->r->seq;
    return rows_push(k, 0, 0, k->count * seq * of.scale / k->ways);
}

// Adds the items of a weight: all of the rank's rows, or the rows that it contributes to each part.
static status weight_push(inline_comm *k)
{
    const op_piece *a = &k->node->piece;
    int64_t to = 0;
    if (a->part_count == 0) return rows_push(k, 0, 0, tensor_of(k, k->node->in[0])->dims[0].scale);
    for (int32_t i = 0; i < a->part_count; i++) {
        TRY(rows_push(k, a->part_first[i], to, a->part_rows[i]));
        to += a->part_whole[i];
    }
    return ST_OK;
}

// Adds the item of rows that are exchanged by counts in device memory.
static status exchange_push(inline_comm *k)
{
    const op_tensor *from = tensor_of(k, k->node->in[0]), *to = tensor_of(k, k->node->out[0]);
    const extent_binding *symbols = &k->c->in->bound;
    const plan_comm_item item = {.in = k->b->tensor[k->node->in[0]],
                                 .out = k->b->tensor[k->node->out[0]],
                                 .count = op_tensor_elements(from, symbols),
                                 .total = op_tensor_elements(to, symbols)};
    k->comm.stride = k->node->attrs.experts;
    k->comm.row_elements = extent_value(from->dims[1], symbols);
    k->comm.likely = (int64_t)op_tensor_likely(from, symbols);
    TRY(collect_item(k->c, &k->comm, &item));
    for (int i = 1; i <= 2; i++) { // counted in the elements of the rows
        const op_tensor *offsets = tensor_of(k, k->node->in[i]);
        const int64_t bytes_of = op_tensor_bytes(offsets, symbols);
        const plan_comm_item read = {.in = k->b->tensor[k->node->in[i]],
                                     .out = -1,
                                     .count = bytes_of / dtype_bytes(k->comm.type)};
        ASSERT(offsets->type == DTYPE_I32);
        TRY(collect_item(k->c, &k->comm, &read));
    }
    return ST_OK;
}

static status items_push(inline_comm *k)
{
    if (k->comm.op == COLLECTIVE_ALL_TO_ALLV) return exchange_push(k);
    if (k->comm.op == COLLECTIVE_ALL_TO_ALL) return tiles_push(k);
    if (tensor_of(k, k->node->in[0])->dims[0].symbol == EXTENT_ONE) return weight_push(k);
    // Rows of tokens, or one of each sequence.
    const extent in = tensor_of(k, k->node->in[0])->dims[0];
    const bool by_token = in.symbol != EXTENT_SEQS;
    const int64_t each = in.scale, seq = by_token ? k->c->in->r->seq : 1;
    const int64_t first = each * (k->begin * seq + (by_token ? k->position : 0));
    const int64_t rows = each * (by_token && k->positions > 0 ? k->positions : k->count * seq);
    if (k->comm.op == COLLECTIVE_ALL_REDUCE) return rows_push(k, first, first, rows);
    if (k->comm.op == COLLECTIVE_ALL_GATHER && k->node->attrs.stacked) {
        return rows_push(k, first, k->ways * first, rows);
    }
    return k->node->attrs.zigzag ? pieces_push(k) : positions_push(k);
}

static status leaves_push(inline_comm *k)
{
    plan *p = k->c->in->p;
    const op_piece *a = &k->node->piece;
    if (a->shards == 0) return ST_OK;
    k->comm.shards = a->shards;
    k->comm.leaves_begin = (int32_t)p->leaf_count;
    for (int32_t i = 0; i < OP_MAX_IN && k->node->in[i] != TENSOR_NONE; i++) {
        TRY(arena_grow(p->a, (void **)&p->leaves, &p->leaf_capacity, p->leaf_count + 1,
                       (int64_t)sizeof(*p->leaves)));
        p->leaves[p->leaf_count++] = (plan_comm_leaf){a->first_shard + i, a->first_shard + i + 1};
        k->comm.leaves_count++;
    }
    return ST_OK;
}

// The group of the node. There are two kinds of groups of cp, and more of tp (plan/mesh.h).
static plan_group group_of(const collector *c, const op_node *node, group_use use)
{
    const op_attrs *a = &node->attrs;
    const op_piece *piece = &node->piece;
    if (a->axis == AXIS_TP)
        return plan_group_tp(&c->in->r->mesh, piece->inside, piece->across, use);
    const bool of_all = piece->cp_ways > 0 && plan_mesh_heads(&c->in->r->mesh) > 1;
    const uint32_t of_cp = collective_of(node) == COLLECTIVE_ALL_TO_ALL ? MESH_CP_HEADS
                           : of_all                                     ? MESH_AXIS(AXIS_CP)
                                                                        : MESH_CP_REST;
    const uint32_t axes = a->axis == AXIS_CP ? of_cp : MESH_AXIS(a->axis); // ep has only these
    return plan_group_of(&c->in->r->mesh, axes, use);
}

// ---- records that are shared --------------------------------------------------------------------

// Actions of one binding that do the same on as many rows share one record for all micro-batches,
// so a one-stage plan has as many records as its layers have communications. Exceptions are strict
// order, whose leaves are counted for each action, and sums of accumulators, of which only the last
// one of a step may have a tail (sim/price.c).
struct shared_comm {
    const op_node *node;
    int32_t binding, sequence_begin, sequence_count, position_begin, position_count;
    int32_t use,
        part;     // group_use; part: 1 if others follow, or for the second half of a shift
    int32_t comm; // 1 + record; 0: an empty slot
};
enum { SHARED_SLOTS = 1 << 13 };

static shared_comm shared_key(const collector *c, const plan_action *action, group_use use,
                              int32_t part)
{
    return (shared_comm){.node = node_of(c, action),
                         .binding = action->binding,
                         .sequence_begin = action->sequence_begin,
                         .sequence_count = action->sequence_count,
                         .position_begin = action->position_begin,
                         .position_count = action->position_count,
                         .use = (int32_t)use,
                         .part = part};
}

// The action's slot, or an empty slot for it; NULL: it may not be shared.
static shared_comm *shared_find(collector *c, const plan_action *action, group_use use,
                                int32_t part)
{
    const shared_comm key = shared_key(c, action, use, part);
    if (c->shared == NULL || c->shared_count > SHARED_SLOTS / 2) return NULL;
    uint64_t at = (uint64_t)(uintptr_t)key.node / 16 * UINT64_C(0x9e3779b97f4a7c15);
    at ^= (uint64_t)key.position_begin * 31 + (uint64_t)key.sequence_begin * 7;
    at ^= (uint64_t)(uint32_t)key.binding * UINT64_C(0xbf58476d1ce4e5b9) >> 20;
    for (at += (uint64_t)part; c->shared[at % SHARED_SLOTS].comm > 0; at++) {
        const shared_comm *s = &c->shared[at % SHARED_SLOTS];
        if (s->node == key.node && s->binding == key.binding &&
            s->sequence_begin == key.sequence_begin && s->sequence_count == key.sequence_count &&
            s->position_begin == key.position_begin && s->position_count == key.position_count &&
            s->use == key.use && s->part == part) {
            break;
        }
    }
    return &c->shared[at % SHARED_SLOTS];
}

static void shared_add(collector *c, const plan_action *action, group_use use, int32_t part,
                       int32_t comm)
{
    const plan *p = c->in->p;
    shared_comm *s = shared_find(c, action, use, part);
    const int32_t in = p->items[p->comms[comm].items_begin].in;
    if (s == NULL || (in >= 0 && p->tensors[in].kind == PLAN_BYTES_GRADIENTS)) return;
    *s = shared_key(c, action, use, part);
    s->comm = comm + 1;
    c->shared_count++;
}

status collect_shared_begin(collector *c)
{
    return c->in->p->strict ? ST_OK : arena_new(c->in->a, SHARED_SLOTS, &c->shared);
}

// Adds another action of the record in a slot.
static status shared_push(collector *c, const plan_action *action, const shared_comm *s,
                          int32_t after, int32_t *pushed)
{
    TRY(collect_comm_again(c, s->comm - 1, after, pushed));
    c->in->p->actions[*pushed].layer = action->layer;
    return ST_OK;
}

// ---- actions ------------------------------------------------------------------------------------

// Adds the communication. It waits for action `after`, unless that is -1. `*pushed`: its action.
static status comm_push(inline_comm *k, const plan_action *action, int32_t part, int32_t after,
                        int32_t *pushed)
{
    const plan *p = k->c->in->p;
    TRY(collect_comm(k->c, &k->comm, &k->note, after, pushed));
    p->actions[*pushed].layer = action->layer;
    shared_add(k->c, action, p->run->groups[k->comm.group].use, part, p->actions[*pushed].comm);
    return ST_OK;
}

// Sends to the next rank and receives from the one before, after action `after` unless that is -1.
// Every other rank sends first, so the ring cannot deadlock.
static status shift_push(inline_comm *k, const plan_action *action, const plan_group *group,
                         int32_t after, int32_t *last)
{
    const int32_t place = plan_group_place(&k->c->in->r->mesh, group), size = (int32_t)k->ways;
    const tensor_id from = k->node->in[0], to = k->node->out[0];
    const int64_t rows = k->count * k->c->in->r->seq * tensor_of(k, from)->dims[0].scale;
    const plan_comm_item items[] = {
        {.in = k->b->tensor[from], .out = -1, .count = elements(k, from, rows)},
        {.in = -1, .out = k->b->tensor[to], .count = elements(k, to, rows)}};
    for (int i = 0; i < 2; i++) {
        const bool sends = (i == 0) == (place % 2 == 0);
        k->comm.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE;
        k->comm.peer = sends ? (place + 1) % size : (place + size - 1) % size;
        k->comm.items_count = 0;
        TRY(collect_item(k->c, &k->comm, &items[sends ? 0 : 1]));
        TRY(comm_push(k, action, i, after, last));
    }
    return ST_OK;
}

// Names the communication after the tensor that it makes.
static void note_set(inline_comm *k, int32_t layer)
{
    const tensor_id t = k->node->out[0];
    if (layer < 0) {
        k->note.text = plan_tensor_at(k->c->in->p, k->b->tensor[t])->name;
    } else {
        k->note.text = k->c->in->m->layers[layer].name;
        k->note.between = "/";
        k->note.second = tensor_of(k, t)->name;
    }
}

// Fills the record except for its items.
static status comm_begin(collector *c, const plan_action *action, const plan_group *group,
                         inline_comm *out)
{
    const lower_input *in = c->in;
    const op_node *node = node_of(c, action);
    inline_comm k = {.c = c,
                     .b = &in->p->bindings[action->binding],
                     .node = node,
                     .note = {.from = -1},
                     .begin = action->sequence_begin,
                     .count =
                         action->sequence_count > 0 ? action->sequence_count : in->r->micro_batch,
                     .position = action->position_begin,
                     .positions = action->position_count,
                     .ways = plan_group_size(&in->r->mesh, group)};
    k.comm = (plan_comm){.op = collective_of(node), .reduction = REDUCTION_SUM};
    k.comm.type = tensor_of(&k, node->in[0])->type;
    note_set(&k, action->layer);
    if (group->axes == 0) {
        return fail(ST_INTERNAL, "%s needs several ranks, and there is one",
                    tensor_of(&k, node->out[0])->name);
    }
    TRY(plan_table_group(in->p->run, group, &k.comm.group));
    *out = k;
    return ST_OK;
}

static status shift(collector *c, const plan_action *action, group_use use, int32_t after,
                    int32_t *last)
{
    const shared_comm *one = shared_find(c, action, use, 0), *two = shared_find(c, action, use, 1);
    if (one != NULL && one->comm > 0 && two != NULL && two->comm > 0) {
        TRY(shared_push(c, action, one, after, last));
        return shared_push(c, action, two, after, last);
    }
    const plan_group group = group_of(c, node_of(c, action), use);
    inline_comm k;
    TRY(comm_begin(c, action, &group, &k));
    return shift_push(&k, action, &group, after, last);
}

// A gather or a sum; `more`: other rows of it follow.
static status collective_push(collector *c, const plan_action *action, group_use use, bool more,
                              int32_t after, int32_t *out)
{
    const shared_comm *s = shared_find(c, action, use, more ? 1 : 0);
    if (s != NULL && s->comm > 0) return shared_push(c, action, s, after, out);
    const plan_group group = group_of(c, node_of(c, action), use);
    inline_comm k;
    TRY(comm_begin(c, action, &group, &k));
    TRY(items_push(&k));
    TRY(leaves_push(&k));
    k.comm.more = more;
    return comm_push(&k, action, more ? 1 : 0, after, out);
}

status collect_inline(collector *c, const plan_action *action)
{
    if (collective_of(node_of(c, action)) == COLLECTIVE_SEND) { // a shift
        return shift(c, action, GROUP_INLINE, -1, &c->last_compute);
    }
    return collective_push(c, action, GROUP_INLINE, false, -1, &c->last_compute);
}

status collect_ring(collector *c, const plan_action *action, int32_t *out)
{
    return shift(c, action, GROUP_RING, c->last_compute, out);
}

status collect_overlapped(collector *c, const plan_action *action, bool more, int32_t *out)
{
    TRY(collective_push(c, action, GROUP_OVERLAPPED, more, c->last_compute, out));
    for (int64_t i = 0; i < c->next_wait_count; i++) { // it may run before the next compute action
        TRY(collect_wait(c, *out, c->next_waits[i]));
    }
    return ST_OK;
}
