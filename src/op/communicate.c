// Collectives along an axis as nodes of a program: shapes and bytes. A partition inserts them where
// one placement becomes another (op/pass/partition.h), and lowering turns them into communications,
// so they have no kernels, and their only placement is that of their program.
//
//   partial -> replicate  ALL_REDUCE       partial -> shard of rows  REDUCE_SCATTER
//   shard of rows -> replicate  ALL_GATHER     shard of rows -> shard of columns        ALL_TO_ALL
#include "op/op_internal.h"

static status axis_check(const op_node *node)
{
    const op_attrs *a = &node->attrs;
    const op_piece *piece = &node->piece;
    const char *name = op_kind_of(node->code)->name;
    if ((int)a->axis < 0 || a->axis >= AXIS_COUNT) {
        return fail(ST_MODEL, "%s: %d is no axis of a mesh", name, (int)a->axis);
    }
    int terms = 0;
    for (int i = 0; i < OP_MAX_IN; i++) terms += node->in[i] == TENSOR_NONE ? 0 : 1;
    if (piece->shards == 0 && terms > 1) {
        return fail(ST_MODEL, "%s: %d terms, and no order that tells whose they are", name, terms);
    }
    if (piece->shards > 0 &&
        (piece->first_shard < 0 || piece->first_shard + terms > piece->shards)) {
        return fail(ST_MODEL, "%s: %d terms from shard %d on, of %d", name, terms,
                    (int)piece->first_shard, (int)piece->shards);
    }
    return ST_OK;
}

// The output has the shape and type of each input.
static status like_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(axis_check(node));
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_all_reduce = {
    .code = OP_ALL_REDUCE,
    .name = "all_reduce",
    .in = "f* f* f* f* f* f* f* f*",
    .out = "f*",
    .made = "y",
    .optional_in = 0xfe,
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_ALL_REDUCE,
    .inplace = {0, -1, -1, -1},
    .infer = like_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};

// Returns the extent of the rows of t (there may be several for each token) on another number of
// ranks.
static extent rows_of(const op_program *p, tensor_id t, extent_symbol symbol)
{
    return extent_make(op_at(p, t)->dims[0].scale, symbol);
}

static status rows_check(const op_program *p, const op_node *node, tensor_id t,
                         extent_symbol symbol)
{
    const op_tensor *tensor = op_at(p, t);
    if (tensor->dims[0].symbol == symbol && tensor->dims[0].scale >= 1) return ST_OK;
    return fail(ST_MODEL, "%s: the rows of %s are not those of %s", op_kind_of(node->code)->name,
                tensor->name, symbol == EXTENT_TOKENS ? "a micro-batch" : "a rank's piece of it");
}

// Only the shape of the result determines the number of ranks.
static status pieces_check(const op_program *p, const op_node *node, tensor_id one, tensor_id all)
{
    const char *name = op_kind_of(node->code)->name;
    if (one == TENSOR_NONE || all == TENSOR_NONE) {
        return fail(ST_MODEL, "%s: of how many ranks, only its result knows", name);
    }
    const extent a = op_at(p, one)->dims[0], b = op_at(p, all)->dims[0];
    if (a.symbol != b.symbol || a.scale <= 0 || b.scale % a.scale != 0) {
        return fail(ST_MODEL, "%s: %s is not whole pieces like %s", name, op_at(p, all)->name,
                    op_at(p, one)->name);
    }
    return ST_OK;
}

static status scatter_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(axis_check(node));
    if (node->attrs.zigzag) {
        TRY(pieces_check(p, node, node->out[0], node->in[0]));
        op_shapes_bind(&shapes, 'P', op_at(p, node->out[0])->dims[0]);
        return op_shapes_out(p, node, wanted, &shapes);
    }
    TRY(rows_check(p, node, node->in[0], EXTENT_TOKENS));
    op_shapes_bind(&shapes, 'P', rows_of(p, node->in[0], EXTENT_TOKENS_CUT));
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_reduce_scatter = {
    .code = OP_REDUCE_SCATTER,
    .name = "reduce_scatter",
    .in = "fND fND fND fND fND fND fND fND",
    .out = "fPD",
    .made = "y",
    .optional_in = 0xfe,
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_REDUCE_SCATTER,
    .inplace = {-1, -1, -1, -1},
    .infer = scatter_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};

// Checks the parts of a weight: every rank has the same number of rows of a part, and the rows of
// all ranks make up the part.
static status parts_check(const op_program *p, const op_node *node)
{
    const op_piece *piece = &node->piece;
    int64_t whole = 0;
    if (node->out[0] == TENSOR_NONE)
        return fail(ST_MODEL,
                    "all_gather: the node has parts but no output tensor that they are parts of");
    const extent rows = op_at(p, node->in[0])->dims[0], all = op_at(p, node->out[0])->dims[0];
    for (int i = 0; i < piece->part_count; i++) {
        const bool inside = piece->part_first[i] >= 0 && piece->part_rows[i] > 0 &&
                            piece->part_first[i] + piece->part_rows[i] <= rows.scale;
        if (!inside || piece->part_whole[i] % piece->part_rows[i] != 0) {
            return fail(ST_MODEL, "all_gather: rows [%lld, %lld) of part %d of %lld",
                        (long long)piece->part_first[i],
                        (long long)(piece->part_first[i] + piece->part_rows[i]), i,
                        (long long)piece->part_whole[i]);
        }
        whole += piece->part_whole[i];
    }
    if (rows.symbol == EXTENT_ONE && extent_equal(all, extent_of(whole))) return ST_OK;
    return fail(ST_MODEL, "all_gather: parts of %lld rows are not those of %s", (long long)whole,
                op_at(p, node->out[0])->name);
}

static status gather_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    const bool vector = op_at(p, node->in[0])->ndim == 1; // a number for each row
    TRY(op_shapes_in_as(p, node, vector ? "mP" : "mPD", &shapes));
    TRY(axis_check(node));
    if (node->piece.part_count > 0) {
        TRY(parts_check(p, node));
        op_shapes_bind(&shapes, 'N', op_at(p, node->out[0])->dims[0]);
    } else if (node->attrs.stacked || node->attrs.zigzag) {
        TRY(pieces_check(p, node, node->in[0], node->out[0]));
        op_shapes_bind(&shapes, 'N', op_at(p, node->out[0])->dims[0]);
    } else {
        TRY(rows_check(p, node, node->in[0], EXTENT_TOKENS_CUT));
        op_shapes_bind(&shapes, 'N', rows_of(p, node->in[0], EXTENT_TOKENS));
    }
    return op_shapes_out_as(p, node, wanted, vector ? "mN" : "mND", &shapes);
}

const op_kind op_row_all_gather = {
    .code = OP_ALL_GATHER,
    .name = "all_gather",
    .in = "mPD",
    .out = "mND",
    .made = "y",
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_ALL_GATHER,
    .inplace = {-1, -1, -1, -1},
    .infer = gather_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};

const op_kind op_row_all_to_all = {
    .code = OP_ALL_TO_ALL,
    .name = "all_to_all",
    .in = "a*",
    .out = "a*",
    .made = "y",
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_ALL_TO_ALL,
    .inplace = {-1, -1, -1, -1},
    .infer = like_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};

const op_kind op_row_shift = {
    .code = OP_SHIFT,
    .name = "shift",
    .in = "f*",
    .out = "f*",
    .made = "y",
    .cost_class = COST_FREE,
    .communicates = true,
    .collective = COLLECTIVE_SEND,
    .inplace = {-1, -1, -1, -1},
    .infer = like_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
};
