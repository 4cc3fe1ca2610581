// Lowering, sums over tp beside products: a product whose result is a term on each rank is made in pieces of
// rows, and while one piece is added over the ranks, on a lane of its own, the next one is computed.
//
//   compute   | product, rows 0.. | product, rows n/2.. |           | what reads the sum
//   tp                            | sum of rows 0..     | sum of rows n/2.. |
//
// Rows are independent, of products as of sums, so pieces change no bit. They are sequences of the micro-batch,
// or positions of its only one; what is scattered by positions goes by sequences. A message below a MiB costs
// more than it hides. The sum has bytes of its own here, where a whole one may take its term's.
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

static int32_t pieces_of(const lowering *l, const plan_action *action, const op_node *sum)
{
    const op_tensor *term = tensor_at(l, action, sum->in[0]);
    const int64_t sequences = l->r->micro_batch, seq = l->p->seq;
    const int64_t bytes = sequences * seq * term->dims[1].scale * dtype_bytes(term->type);
    const bool scatters = sum->code == OP_REDUCE_SCATTER;
    int64_t most = sequences > 1 || scatters ? sequences : seq / PIECE_POSITIONS;
    most = min_i64(most, min_i64(bytes / PIECE_BYTES, PIECES_MAX));
    return most > 1 ? (int32_t)most : 0;
}

int32_t lower_overlap_products(const lowering *l, const plan_action *action, int32_t run)
{
    const bool whole = action->kind == ACTION_COMPUTE && action->list != OP_BACKWARD_WEIGHT &&
                       action->sequence_count == l->r->micro_batch && action->position_count == 0;
    if (!whole || run == 0 || run + 1 >= action->ops_count) return 0; // somebody must wait for it
    const op_node *sum = node_at(l, action, run);
    const bool sums = sum->code == OP_ALL_REDUCE || sum->code == OP_REDUCE_SCATTER;
    if (!sums || sum->attrs.axis != AXIS_TP || sum->attrs.inside > 0) return 0;
    int32_t products = 0;
    while (products < run) {
        const op_node *node = node_at(l, action, run - 1 - products);
        if (!is_product(l, action, node) || !is_term(sum, node->out[0])) break;
        products++;
    }
    return products > 0 && pieces_of(l, action, sum) > 1 ? products : 0;
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
    const int32_t pieces = pieces_of(l, action, sum);
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
