// Lowering, messages of tp beside products: a product whose result is a term on each rank is made in pieces of
// rows, and while one piece is added over the ranks, on a lane of its own, the next one is computed. With layout.sp
// the same goes for what is gathered before a product: while the rows of a piece come, those before are used.
//
//   compute   | product, rows 0.. | product, rows n/2.. |           | what reads the sum
//   tp                            | sum of rows 0..     | sum of rows n/2.. |
//
//   compute                        | product, rows 0.. | product, rows n/2.. |
//   tp        | gather of rows 0.. | of rows n/2..     |
//
// Rows are independent, of products as of sums, so pieces change no bit. They are sequences of the micro-batch,
// or positions of its only one. What is cut by positions must be on all ranks, whatever the piece: so in fast order
// of one sequence a rank has its part of every piece (plan.cut_pieces), and in strict order, where shards say which
// positions a rank has, one sequence goes whole. A message below a MiB costs more than it hides. What is read and
// written by the two at a time has bytes of its own, where it may share some otherwise.
#include "plan/lower.h"

enum { PIECES_MAX = 4, PIECE_BYTES = 1 << 20, PIECE_POSITIONS = 64 };

static const op_node *node_at(const lowering *l, const plan_action *action, int32_t i)
{
    const op_program *program = l->p->bindings[action->binding].program;
    return &program->lists[action->list].nodes[action->ops_begin + i];
}

static const op_tensor *tensor_at(const lowering *l, const plan_action *action, tensor_id t)
{
    return &l->p->bindings[action->binding].program->tensors[t];
}

static bool is_term(const op_node *sum, tensor_id t)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (sum->in[i] == t) return t != TENSOR_NONE;
    }
    return false;
}

// Every row of its result comes from the same row of what it reads.
static bool is_product(const lowering *l, const plan_action *action, const op_node *node)
{
    if (node->code != OP_MATMUL && node->code != OP_MATMUL_DX) return false;
    const extent from = tensor_at(l, action, node->in[0])->dims[0];
    const extent to = tensor_at(l, action, node->out[0])->dims[0];
    return from.symbol == EXTENT_TOKENS && to.symbol == EXTENT_TOKENS && from.scale == 1 &&
           to.scale == 1;
}

// Pieces that a message of so many bytes may go in, of `most` at most.
static int64_t pieces_below(int64_t bytes, int64_t most)
{
    return min_i64(most, min_i64(bytes / PIECE_BYTES, PIECES_MAX));
}

// all: what the communication sums, scatters or gathers, with all its rows.
static int32_t pieces_of(const lowering *l, const plan_action *action, const op_node *node,
                         tensor_id all)
{
    const op_tensor *t = tensor_at(l, action, all);
    const int64_t sequences = l->r->micro_batch, seq = l->p->seq;
    const int64_t bytes = sequences * seq * t->dims[1].scale * dtype_bytes(t->type);
    int64_t most = seq / PIECE_POSITIONS;
    if (sequences > 1) {
        most = sequences;
    } else if (node->code != OP_ALL_REDUCE) {
        most = l->p->strict ? 1 : l->p->cut_pieces;
    }
    int64_t pieces = pieces_below(bytes, most);
    while (sequences == 1 && node->code != OP_ALL_REDUCE && pieces > 1 && most % pieces != 0) {
        pieces--; // each is several of those that are cut
    }
    return pieces > 1 ? (int32_t)pieces : 0;
}

// Does the node gather or scatter rows over all of tp, that are cut by positions?
static bool cuts_positions(const op_program *p, const op_node *node)
{
    const bool gathers = node->code == OP_ALL_GATHER, scatters = node->code == OP_REDUCE_SCATTER;
    if ((!gathers && !scatters) || node->attrs.axis != AXIS_TP) return false;
    const op_tensor *own = &p->tensors[gathers ? node->in[0] : node->out[0]];
    return own->ndim == 2 && own->dims[0].symbol == EXTENT_TOKENS_CUT && own->dims[0].scale == 1;
}

int64_t lower_cut_pieces(const plan_request *r)
{
    const int64_t tp = plan_mesh_size(&r->mesh, AXIS_TP), own = r->seq / tp;
    int64_t bytes = 0;
    if (r->strict || tp == 1 || r->micro_batch > 1) return 1;
    for (int32_t i = 0; i < r->model->program_count; i++) {
        const op_program *p = r->model->programs[i];
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            for (int64_t k = 0; k < p->lists[list].count; k++) {
                const op_node *node = &p->lists[list].nodes[k];
                if (!cuts_positions(p, node)) continue;
                const op_tensor *t = &p->tensors[node->in[0]];
                bytes = max_i64(bytes, r->seq * t->dims[1].scale * dtype_bytes(t->type));
            }
        }
    }
    int64_t pieces = max_i64(pieces_below(bytes, r->seq / PIECE_POSITIONS), 1);
    while (own % pieces != 0) pieces--;
    return pieces;
}

// All rows of a micro-batch, which pieces can be taken of?
static bool is_whole(const lowering *l, const plan_action *action)
{
    return action->kind == ACTION_COMPUTE && action->list != OP_BACKWARD_WEIGHT &&
           action->sequence_count == l->r->micro_batch && action->position_count == 0;
}

int32_t lower_overlap_products(const lowering *l, const plan_action *action, int32_t run)
{
    if (!is_whole(l, action) || run == 0) return 0;
    if (run + 1 >= action->ops_count) return 0; // somebody must wait for it
    const op_node *sum = node_at(l, action, run);
    const bool sums = sum->code == OP_ALL_REDUCE || sum->code == OP_REDUCE_SCATTER;
    if (!sums || sum->attrs.axis != AXIS_TP || sum->attrs.inside > 0) return 0;
    int32_t products = 0;
    while (products < run) {
        const op_node *node = node_at(l, action, run - 1 - products);
        if (!is_product(l, action, node) || !is_term(sum, node->out[0])) break;
        products++;
    }
    return products > 0 && pieces_of(l, action, sum, sum->in[0]) > 1 ? products : 0;
}

static void rows_set(const lowering *l, int32_t piece, int32_t pieces, plan_action *action)
{
    const int32_t sequences = (int32_t)l->r->micro_batch, seq = (int32_t)l->p->seq;
    if (sequences > 1) {
        action->sequence_begin = sequences * piece / pieces;
        action->sequence_count = sequences * (piece + 1) / pieces - action->sequence_begin;
        return;
    }
    action->position_begin = seq * piece / pieces;
    action->position_count = seq * (piece + 1) / pieces - action->position_begin;
}

status lower_overlap_push(lowering *l, const plan_action *action, int32_t products)
{
    const op_node *sum = node_at(l, action, products);
    const int32_t *tensor = l->p->bindings[action->binding].tensor;
    const int32_t pieces = pieces_of(l, action, sum, sum->in[0]);
    int32_t last = -1;
    TRY(lower_touch(l, tensor[sum->out[0]])); // it is written while products go on
    for (int32_t i = 0; i < pieces; i++) {
        plan_action piece = *action;
        rows_set(l, i, pieces, &piece);
        piece.ops_count = products;
        TRY(lower_compute_run(l, &piece));
        piece.ops_begin += products;
        piece.ops_count = 1;
        TRY(lower_inline_beside(l, &piece, i + 1 < pieces, &last));
    }
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (sum->in[i] != TENSOR_NONE) TRY(lower_touch(l, tensor[sum->in[i]]));
    }
    TRY(lower_touch(l, tensor[sum->out[0]]));
    l->lives.now++;
    return lower_wait_next(l, last);
}

// ---- gathers ------------------------------------------------------------------------------------

int32_t lower_overlap_gathered(const lowering *l, const plan_action *action)
{
    const op_node *gather = node_at(l, action, 0);
    const op_program *program = l->p->bindings[action->binding].program;
    if (!is_whole(l, action) || gather->code != OP_ALL_GATHER) return 0;
    if (!cuts_positions(program, gather)) return 0;
    int32_t products = 0;
    while (products + 1 < action->ops_count) {
        const op_node *node = node_at(l, action, products + 1);
        if (!is_product(l, action, node) || node->in[0] != gather->out[0]) break;
        products++;
    }
    return products > 0 && pieces_of(l, action, gather, gather->out[0]) > 1 ? products : 0;
}

status lower_gathered_push(lowering *l, const plan_action *action, int32_t products)
{
    const op_node *gather = node_at(l, action, 0);
    const int32_t *tensor = l->p->bindings[action->binding].tensor;
    const int32_t pieces = pieces_of(l, action, gather, gather->out[0]);
    int32_t come[PIECES_MAX];
    plan_action piece = *action;
    piece.ops_count = 1;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(l, i, pieces, &piece);
        TRY(lower_inline_beside(l, &piece, i + 1 < pieces, &come[i]));
    }
    TRY(lower_live(l, &piece));
    piece.ops_begin++;
    piece.ops_count = products;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(l, i, pieces, &piece);
        TRY(lower_wait_next(l, come[i]));
        TRY(lower_compute_run(l, &piece));
    }
    return lower_touch_at(l, tensor[gather->in[0]], l->lives.now - 1); // by then all have come
}

// ---- rings --------------------------------------------------------------------------------------

static bool is_operand(const lowering *l, const plan_action *action, const op_node *node,
                       tensor_id of)
{
    const op_program *program = l->p->bindings[action->binding].program;
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        tensor_id t = i < OP_MAX_IN ? node->in[i] : node->out[i - OP_MAX_IN];
        while (t != TENSOR_NONE && program->tensors[t].view_of != TENSOR_NONE) {
            t = program->tensors[t].view_of;
        }
        if (t == of) return true;
    }
    return false;
}

int32_t lower_ring_shifts(const lowering *l, const plan_action *action)
{
    int32_t shifts = 0;
    while (shifts < action->ops_count && node_at(l, action, shifts)->code == OP_SHIFT) shifts++;
    if (shifts == 0 || shifts + 1 >= action->ops_count) return 0; // somebody must wait for them
    const op_node *product = node_at(l, action, shifts);
    if (op_communicates(product->code)) return 0;
    for (int32_t i = 0; i < shifts; i++) {
        if (is_operand(l, action, product, node_at(l, action, i)->out[0])) return 0;
    }
    return shifts;
}

status lower_ring_push(lowering *l, const plan_action *action, int32_t shifts)
{
    const int32_t *tensor = l->p->bindings[action->binding].tensor;
    plan_action part = *action;
    int32_t last = -1;
    part.ops_count = 1;
    for (int32_t i = 0; i < shifts; i++, part.ops_begin++) {
        TRY(lower_shift_beside(l, &part, &last));
        TRY(lower_live(l, &part));
    }
    TRY(lower_compute_run(l, &part));
    for (int32_t i = 0; i < shifts; i++) { // they may be under way until the product is done
        const op_node *shift = node_at(l, action, i);
        TRY(lower_touch_at(l, tensor[shift->in[0]], l->lives.now - 1));
        TRY(lower_touch_at(l, tensor[shift->out[0]], l->lives.now - 1));
    }
    return lower_wait_next(l, last);
}
