// Experts on several ranks: how many rows go where, and the exchange of rows itself.
//
//   ids -> COUNT_ROWS -> counts -> ALL_TO_ALL -> counts of the rows that come -> ROW_OFFSETS
//   rows, both offsets -> EXCHANGE_ROWS -> rows of this rank's experts, rank by rank
//
// Experts may move between ranks (moe.rebalance): an expert then has a slot, the place of its
// matrices in the order of the ranks, and ids -> PLACE_EXPERTS -> slots comes before the rest.
//
// Rows that come are ordered by the rank that sends them, then by expert, then by token. No count
// is known on the host: EXCHANGE_ROWS reads offsets in device memory, and shapes have the bound.
// Ranks of expert parallelism are consecutive, so the order by rank and token is the order of the
// tokens in the batch.
#include "op/op_internal.h"

static status count_rows_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    const op_attrs *a = &node->attrs;
    TRY(op_shapes_in(p, node, &shapes));
    if (a->experts < 1 || a->ranks < 1) {
        return fail(ST_MODEL, "count_rows: %d experts on each of %d ranks", (int)a->experts,
                    (int)a->ranks);
    }
    // A given result may have a row for each of several equal pieces of a sequence.
    const tensor_id given = node->out[0];
    const int64_t rows = given != TENSOR_NONE ? op_at(p, given)->dims[0].scale : a->ranks;
    if (rows < a->ranks || rows % a->ranks != 0) {
        return fail(ST_MODEL, "count_rows: %lld rows of counts for %d ranks", (long long)rows,
                    (int)a->ranks);
    }
    op_shapes_bind(&shapes, 'Q', extent_make(rows, EXTENT_SEQS));
    op_shapes_bind(&shapes, 'L', extent_of(a->experts));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void counts_check(const op_facts *f)
{
    const int64_t counts = op_fact(f, 'Q'), ranks = f->attrs->ranks, offsets = op_fact(f, 'X');
    ASSERT(f->attrs->experts > 0 && ranks > 0);
    ASSERT(counts < 0 || (counts % ranks == 0 && op_fact(f, 'L') == f->attrs->experts));
    ASSERT(offsets < 0 || offsets == ranks * f->attrs->experts + 1);
}

const op_kind op_row_count_rows = {
    .code = OP_COUNT_ROWS,
    .name = "count_rows",
    .in = "iNT",
    .out = "iQL",
    .made = "counts",
    .inplace = {-1, -1, -1, -1},
    .infer = count_rows_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = counts_check,
};

static status limit_rows_infer(op_program *p, op_node *node, uint32_t wanted)
{
    const op_attrs *a = &node->attrs;
    if (a->experts < 1 || a->experts > OP_LIMIT_EXPERTS || a->limit < 1 || a->limit_seq < 1) {
        return fail(ST_MODEL,
                    "limit_rows: %lld rows of each of %d experts, expected at least 1, of at most "
                    "%d experts",
                    (long long)a->limit, (int)a->experts, (int)OP_LIMIT_EXPERTS);
    }
    return op_infer_signature(p, node, wanted);
}

const op_kind op_row_limit_rows = {
    .code = OP_LIMIT_ROWS,
    .name = "limit_rows",
    .in = "iNT",
    .out = "iNT",
    .made = "kept",
    .inplace = {-1, -1, -1, -1},
    .infer = limit_rows_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};

static void place_experts_check(const op_facts *f)
{
    ASSERT(f->attrs->experts > 0 && op_fact(f, 'E') == f->attrs->experts);
}

const op_kind op_row_place_experts = {
    .code = OP_PLACE_EXPERTS,
    .name = "place_experts",
    .in = "iNT sLE",
    .out = "iNT",
    .made = "slots",
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = place_experts_check,
};

static status row_offsets_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    const op_attrs *a = &node->attrs;
    TRY(op_shapes_in(p, node, &shapes));
    if (!extent_bound_equal(shapes.of['L'], extent_of(a->experts))) {
        return fail(ST_MODEL, "row_offsets: %lld counts for %d experts",
                    (long long)shapes.of['L'].scale, (int)a->experts);
    }
    op_shapes_bind(&shapes, 'X', extent_of((int64_t)a->ranks * a->experts + 1));
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_row_offsets = {
    .code = OP_ROW_OFFSETS,
    .name = "row_offsets",
    .in = "iQL",
    .out = "iX",
    .made = "offsets",
    .inplace = {-1, -1, -1, -1},
    .infer = row_offsets_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = counts_check,
};

static status exchange_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (node->out[0] == TENSOR_NONE) {
        return fail(ST_MODEL, "exchange_rows: only its result knows how many rows may come");
    }
    if (node->attrs.experts < 1 || node->attrs.axis != AXIS_EP) {
        return fail(ST_MODEL, "exchange_rows: %d experts on a rank, along axis %d",
                    (int)node->attrs.experts, (int)node->attrs.axis);
    }
    op_shapes_bind(&shapes, 'P', op_at(p, node->out[0])->dims[0]);
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_exchange_rows = {
    .code = OP_EXCHANGE_ROWS,
    .name = "exchange_rows",
    .in = "mRD iX iX",
    .out = "mPD",
    .made = "rows",
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_ALL_TO_ALLV,
    .inplace = {-1, -1, -1, -1},
    .infer = exchange_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};
