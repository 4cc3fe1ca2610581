// Pass 3 of lowering, lists: a list is cut at its communications, because the next node waits for
// them.
//
//   nodes of a list   a  b  ALL_REDUCE  c  d
//   actions           [a b] [communicate] [c d]
//
// With tensor parallelism a GEMM whose result is a term on each rank is made in pieces of rows, and
// while one piece is summed over the ranks, on a stream of its own, the next one is computed. With
// layout.sp the same goes for what is gathered before a GEMM: while the rows of a piece come, those
// before are used.
//
//   compute   | GEMM, rows 0.. | GEMM, rows n/2.. |           | what reads the sum
//   tp                         | sum of rows 0..  | sum of rows n/2.. |
//
//   compute                        | GEMM, rows 0.. | GEMM, rows n/2.. |
//   tp        | gather of rows 0.. | of rows n/2..  |
//
// While rows of tokens travel to experts, nodes run that need none of those that come: the shared
// experts, which the pass of expert parallelism puts there.
//
//   compute       | shared experts         |      | experts ...
//   ep            | rows to experts               |
//
// overlap.h decides which GEMMs are split and into how many pieces. If the positions of the only
// sequence are cut, a rank has a part of every piece in fast order (plan.cut_pieces); in strict
// order the shards determine a rank's positions, so there is no split.
#include "plan/lower/collect_internal.h"

static overlap_rule rule_of(const collector *c, const plan_action *action)
{
    const plan_request *r = c->in->r;
    return (overlap_rule){
        .sequences = r->micro_batch,
        .seq = c->in->p->seq,
        .cut_pieces = c->in->p->strict ? 1 : c->in->p->cut_pieces,
        .gathers = !r->rows_inline,
        .is_whole = action->kind == ACTION_COMPUTE && action->list != OP_BACKWARD_WEIGHT &&
                    action->sequence_count == r->micro_batch && action->position_count == 0};
}

static status compute_add(collector *c, const plan_action *action)
{
    TRY(collect_action(c, action, &c->last_compute));
    return collect_waits_take(c);
}

static void rows_set(const collector *c, int32_t piece, int32_t pieces, plan_action *action)
{
    const overlap_rule rule = rule_of(c, action);
    const int32_t begin = (int32_t)plan_overlap_row(&rule, piece, pieces);
    const int32_t count = (int32_t)plan_overlap_row(&rule, piece + 1, pieces) - begin;
    if (rule.sequences > 1) {
        action->sequence_begin = begin;
        action->sequence_count = count;
        return;
    }
    action->position_begin = begin;
    action->position_count = count;
}

static status summed_add(collector *c, const plan_action *action, int32_t pieces)
{
    const int32_t gemms = action->ops_count - 1;
    int32_t last = -1;
    for (int32_t i = 0; i < pieces; i++) {
        plan_action piece = *action;
        rows_set(c, i, pieces, &piece);
        piece.ops_count = gemms;
        TRY(compute_add(c, &piece));
        piece.ops_begin += gemms;
        piece.ops_count = 1;
        TRY(collect_overlapped(c, &piece, i + 1 < pieces, &last));
    }
    collect_tick(c);
    return collect_wait_next(c, last);
}

static status gathered_add(collector *c, const plan_action *action, int32_t pieces)
{
    int32_t come[OVERLAP_PIECES_MAX];
    plan_action piece = *action;
    piece.ops_count = 1;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(c, i, pieces, &piece);
        TRY(collect_overlapped(c, &piece, i + 1 < pieces, &come[i]));
    }
    collect_tick(c);
    piece.ops_begin++;
    piece.ops_count = action->ops_count - 1;
    for (int32_t i = 0; i < pieces; i++) {
        rows_set(c, i, pieces, &piece);
        TRY(collect_wait_next(c, come[i]));
        TRY(compute_add(c, &piece));
    }
    return ST_OK;
}

static status ring_add(collector *c, const plan_action *action)
{
    plan_action part = *action;
    int32_t last = -1;
    part.ops_count = 1;
    for (int32_t i = 0; i < action->ops_count - 1; i++, part.ops_begin++) {
        TRY(collect_ring(c, &part, &last));
        collect_tick(c);
    }
    TRY(compute_add(c, &part));
    return collect_wait_next(c, last);
}

static status rows_add(collector *c, const plan_action *action, int32_t sends)
{
    plan_action part = *action;
    int32_t last = -1;
    part.ops_count = 1;
    for (int32_t i = 0; i < sends; i++, part.ops_begin++) {
        TRY(collect_overlapped(c, &part, false, &last));
        collect_tick(c);
    }
    part.ops_count = action->ops_count - sends;
    TRY(compute_add(c, &part));
    return collect_wait_next(c, last);
}

static status part_add(collector *c, const plan_action *action, const overlap_part *part)
{
    switch (part->kind) {
    case OVERLAP_COLLECTIVE:
        TRY(collect_inline(c, action));
        collect_tick(c);
        return collect_waits_take(c);
    case OVERLAP_SUM:
        return summed_add(c, action, part->pieces);
    case OVERLAP_GATHER:
        return gathered_add(c, action, part->pieces);
    case OVERLAP_RING:
        return ring_add(c, action);
    case OVERLAP_ROWS:
        return rows_add(c, action, part->sends);
    case OVERLAP_COMPUTE:
    default:
        return compute_add(c, action);
    }
}

status collect_nodes(collector *c, const plan_action *whole)
{
    plan_action action = *whole;
    const overlap_rule rule = rule_of(c, whole);
    const op_program *program = c->in->p->bindings[whole->binding].program;
    const int32_t end = whole->ops_begin + whole->ops_count;
    action.stream = STREAM_COMPUTE;
    while (action.ops_begin < end) {
        action.ops_count = end - action.ops_begin;
        const overlap_part next = plan_overlap_next(&rule, program, (op_list)action.list,
                                                    action.ops_begin, action.ops_count);
        action.ops_count = next.nodes;
        TRY(part_add(c, &action, &next));
        action.ops_begin += next.nodes;
    }
    return ST_OK;
}
