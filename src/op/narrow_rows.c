// Rows as they travel between ranks in 8 bits, and back.
//
//   NARROW_ROWS  x(R,D) -> q(R,D+1): D numbers of 8 bits (e4m3) and the exponent of their factor
//   WIDEN_ROWS   q      -> y(R,D)
//
// Each row has a factor, a power of two that brings its largest magnitude to 224 .. 448, the
// largest number of e4m3 (DeepSeek-AI 2024, arXiv:2412.19437, section 3.3, has one for each 128
// columns). With a power of two nothing is rounded but the 8-bit numbers.
#include "op/op_internal.h"

static status narrow_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'D', &columns));
    op_shapes_bind(&shapes, 'E', extent_of(columns + 1));
    if (node->out[0] == TENSOR_NONE || op_at(p, node->out[0])->type != DTYPE_U8) {
        return fail(ST_MODEL, "narrow_rows: its result is not of bytes");
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static status widen_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'E', &columns));
    if (op_at(p, node->in[0])->type != DTYPE_U8 || columns < 2) {
        return fail(ST_MODEL, "widen_rows: %lld columns of %s, expected bytes of a row",
                    (long long)columns, dtype_name(op_at(p, node->in[0])->type));
    }
    op_shapes_bind(&shapes, 'D', extent_of(columns - 1));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0:0");
}

static op_cost narrow_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 3.0);
}

static void rows_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'E') == op_fact(f, 'D') + 1);
}

const op_kind op_row_narrow_rows = {
    .code = OP_NARROW_ROWS,
    .name = "narrow_rows",
    .in = "fRD",
    .out = "mRE",
    .made = "q",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = narrow_infer,
    .place = rows_place,
    .cost = narrow_cost,
    .check = rows_check,
};

const op_kind op_row_widen_rows = {
    .code = OP_WIDEN_ROWS,
    .name = "widen_rows",
    .in = "mRE",
    .out = "fRD",
    .made = "y",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = widen_infer,
    .place = rows_place,
    .cost = narrow_cost,
    .check = rows_check,
};
