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
// Which products, and how many pieces, plan/lower/beside.h says. Of one sequence whose positions are cut a rank has its part
// of every piece in fast order (plan.cut_pieces); in strict order, where shards say which positions a rank has, it
// goes whole. What is read and written by the two at a time has bytes of its own, where it may share some otherwise.
#include "plan/lower/lower.h"

static const op_program *program_of(const lowering *l, const plan_action *action)
{
    return l->p->bindings[action->binding].program;
}

static beside_rule rule_of(const lowering *l, const plan_action *action)
{
    return (beside_rule){
        .sequences = l->r->micro_batch,
        .seq = l->p->seq,
        .cut_pieces = l->p->strict ? 1 : l->p->cut_pieces,
        .gathers = !l->r->rows_inline,
        .is_whole = action->kind == ACTION_COMPUTE && action->list != OP_BACKWARD_WEIGHT &&
                    action->sequence_count == l->r->micro_batch && action->position_count == 0};
}

beside_part lower_beside_next(const lowering *l, const plan_action *action)
{
    const beside_rule rule = rule_of(l, action);
    return plan_beside_next(&rule, program_of(l, action), (op_list)action->list, action->ops_begin,
                            action->ops_count);
}

static void rows_set(const lowering *l, int32_t piece, int32_t pieces, plan_action *action)
{
    const beside_rule rule = rule_of(l, action);
    const int32_t begin = (int32_t)plan_beside_row(&rule, piece, pieces);
    const int32_t count = (int32_t)plan_beside_row(&rule, piece + 1, pieces) - begin;
    if (rule.sequences > 1) {
        action->sequence_begin = begin;
        action->sequence_count = count;
        return;
    }
    action->position_begin = begin;
    action->position_count = count;
}

static status summed_push(lowering *l, const plan_action *action, int32_t pieces)
{
    const int32_t products = action->ops_count - 1;
    int32_t last = -1;
    for (int32_t i = 0; i < pieces; i++) {
        plan_action piece = *action;
        rows_set(l, i, pieces, &piece);
        piece.ops_count = products;
        TRY(lower_compute_run(l, &piece));
        piece.ops_begin += products;
        piece.ops_count = 1;
        TRY(lower_inline_beside(l, &piece, i + 1 < pieces, &last));
    }
    lower_tick(l);
    return lower_wait_next(l, last);
}

static status gathered_push(lowering *l, const plan_action *action, int32_t pieces)
{
    const int32_t products = action->ops_count - 1;
    int32_t come[BESIDE_PIECES_MAX];
    plan_action piece = *action;
    piece.ops_count = 1;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(l, i, pieces, &piece);
        TRY(lower_inline_beside(l, &piece, i + 1 < pieces, &come[i]));
    }
    lower_tick(l);
    piece.ops_begin++;
    piece.ops_count = products;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(l, i, pieces, &piece);
        TRY(lower_wait_next(l, come[i]));
        TRY(lower_compute_run(l, &piece));
    }
    return ST_OK;
}

static status ring_push(lowering *l, const plan_action *action)
{
    const int32_t shifts = action->ops_count - 1;
    plan_action part = *action;
    int32_t last = -1;
    part.ops_count = 1;
    for (int32_t i = 0; i < shifts; i++, part.ops_begin++) {
        TRY(lower_shift_beside(l, &part, &last));
        lower_tick(l);
    }
    TRY(lower_compute_run(l, &part));
    return lower_wait_next(l, last);
}

status lower_beside_push(lowering *l, const plan_action *action, const beside_part *part)
{
    if (part->kind == BESIDE_RING) return ring_push(l, action);
    if (part->kind == BESIDE_GATHER) return gathered_push(l, action, part->pieces);
    return summed_push(l, action, part->pieces);
}
