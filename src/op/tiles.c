// PACK cuts columns into tiles of rows, one for each rank; UNPACK is the inverse; ZIGZAG brings the
// rows of several ranks into the order of positions. They stand before and after an ALL_GATHER of
// columns or an ALL_TO_ALL. They copy, except that UNPACK adds tiles of the same columns.
#include "op/op_internal.h"
#include "op/zigzag.h"

static int32_t repeat_of(const op_node *node)
{
    return node->attrs.repeat > 1 ? node->attrs.repeat : 1;
}

static status tiles_check(const op_program *p, const op_node *node, int64_t whole)
{
    const int32_t tiles = node->piece.shard_count;
    if (tiles >= 1 && whole % tiles == 0 && tiles % repeat_of(node) == 0) return ST_OK;
    return fail(
        ST_MODEL,
        "%s: the rows of %s do not make %d tiles, in groups of %d that have the same columns",
        op_kind_of(node->code)->name, op_at(p, node->in[0])->name, (int)tiles,
        (int)repeat_of(node));
}

static status unpack_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    extent rows = shapes.of['R'], columns = shapes.of['C'];
    TRY(tiles_check(p, node, rows.scale));
    rows.scale /= node->piece.shard_count;
    columns.scale *= node->piece.shard_count / repeat_of(node);
    op_shapes_bind(&shapes, 'N', rows);
    op_shapes_bind(&shapes, 'E', columns);
    return op_shapes_out(p, node, wanted, &shapes);
}

static void tiles_are_whole(const op_facts *f)
{
    const int64_t tiles = f->piece->shard_count, repeat = max_i64(f->attrs->repeat, 1);
    const int64_t rows = op_fact(f, 'R');
    ASSERT(rows % tiles == 0 && rows / tiles == op_fact(f, 'N') && tiles % repeat == 0);
    ASSERT(op_fact(f, 'E') * repeat == tiles * op_fact(f, 'C'));
}

const op_kind op_row_unpack = {
    .code = OP_UNPACK,
    .name = "unpack",
    .in = "fRC",
    .out = "fNE",
    .made = "y",
    .inplace = {-1, -1, -1, -1},
    .infer = unpack_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = tiles_are_whole,
};

static status pack_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    extent rows = shapes.of['N'], columns = shapes.of['E'];
    TRY(tiles_check(p, node, columns.scale * repeat_of(node)));
    rows.scale *= node->piece.shard_count;
    columns.scale = columns.scale * repeat_of(node) / node->piece.shard_count;
    op_shapes_bind(&shapes, 'R', rows);
    op_shapes_bind(&shapes, 'C', columns);
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_pack = {
    .code = OP_PACK,
    .name = "pack",
    .in = "fNE",
    .out = "fRC",
    .made = "y",
    .inplace = {-1, -1, -1, -1},
    .infer = pack_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = tiles_are_whole,
};

static status zigzag_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(tiles_check(p, node, shapes.of['R'].scale));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void zigzag_check(const op_facts *f)
{
    const int64_t tiles = f->piece->shard_count, rows = op_fact(f, 'R'), tile = rows / tiles;
    ASSERT(rows == tiles * tile);
    ASSERT(tile == 0 || tile % f->seq == 0);
    ASSERT(tiles == 1 || f->seq % zigzag_pieces(f->piece->cp_turns) == 0);
}

const op_kind op_row_zigzag = {
    .code = OP_ZIGZAG,
    .name = "zigzag",
    .in = "fRC",
    .out = "fRC",
    .made = "y",
    .inplace = {-1, -1, -1, -1},
    .infer = zigzag_infer,
    .place = op_place_replicate,
    .cost = op_cost_bytes,
    .check = zigzag_check,
};
