// Embedding: rows of a table by id, plus rows of a position table, and the gradient of the table.
#include "op/op_internal.h"

static status embedding_infer(op_program *p, op_node *node, uint32_t wanted)
{
    if ((node->in[2] == TENSOR_NONE) != (node->in[3] == TENSOR_NONE)) {
        return fail(ST_MODEL, "embedding: positions and their table go together, got one of them");
    }
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void embedding_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    // Cut by tokens, by features, or by vocabulary: then an id is in one piece, and the other
    // pieces give -0, which changes no sum.
    OP_RULES(rules, count, "0r0r:0", "r1r1:1", "r0rr:p");
    if (node->piece.whole_rows > 0) *count -= 1; // cut already
}

static void embedding_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                          op_node *piece)
{
    if (rule == 3) op_cut_rows(p, node->in[1], ways, at, &piece->piece);
}

// Only the wanted rows of a table are read.
static op_cost embedding_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const tensor_id x = node->out[0];
    const double elements = op_elements(p, x, bound);
    op_cost cost = {0.0, 0.0, 0.0};
    for (int i = 0; i < 4; i += 2) {
        if (node->in[i] == TENSOR_NONE) continue;
        cost.bytes_read +=
            op_elements(p, node->in[i], bound) * (double)dtype_bytes(op_at(p, node->in[i])->type);
        cost.bytes_read += elements * (double)dtype_bytes(op_at(p, node->in[i + 1])->type);
        if (i > 0) cost.flops += elements;
    }
    cost.bytes_written = elements * (double)dtype_bytes(op_at(p, x)->type);
    return cost;
}

static status table_gradient(op_program *p, tensor_id ids, tensor_id table, tensor_id dx,
                             int32_t skipped)
{
    if (!op_trains(p, table)) return ST_OK;
    op_node node = op_node_of(OP_EMBEDDING_DW);
    node.in[0] = ids;
    node.in[1] = dx;
    node.attrs.skipped = skipped;
    TRY(op_grad_weight(p, table, &node.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &node, 0);
}

static status embedding_gradient(op_program *p, const op_node *node)
{
    const tensor_id dx = op_grad_get(p, node->out[0]);
    TRY(table_gradient(p, node->in[0], node->in[1], dx, node->attrs.skipped));
    return table_gradient(p, node->in[2], node->in[3], dx, 0);
}

static void embedding_check(const op_facts *f)
{
    ASSERT(op_has_in(f, 2) == op_has_in(f, 3));
}

const op_kind op_row_embedding = {
    .code = OP_EMBEDDING,
    .name = "embedding",
    .in = "iN fVD iN fPD",
    .out = "fND",
    .made = "x",
    .optional_in = 1u << 2 | 1u << 3,
    .picks = 1u << 1 | 1u << 3,
    .inplace = {-1, -1, -1, -1},
    .infer = embedding_infer,
    .place = embedding_place,
    .cut = embedding_cut,
    .cost = embedding_cost,
    .gradient = embedding_gradient,
    .check = embedding_check,
};

static status dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    // Only the tensor of the table knows the number of its rows.
    if (node->out[0] == TENSOR_NONE) {
        return fail(ST_MODEL, "embedding_dw: the accumulator must be given");
    }
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    OP_RULES(rules, count, "00:p", "r1:1", "rr:0"); // the last: rows of the table
    if (node->piece.whole_rows > 0) *count -= 1;
}

static void dw_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                   op_node *piece)
{
    if (rule == 3) op_cut_rows(p, node->out[0], ways, at, &piece->piece);
}

static op_cost dw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double elements = op_elements(p, node->in[1], bound);
    op_cost cost = op_cost_bytes(p, node, bound);
    const op_tensor *table = op_at(p, node->out[0]);
    const double whole = cost.bytes_written;
    const double touched = elements * (double)dtype_bytes(table->type);
    cost.bytes_read += touched - whole;
    cost.bytes_written = touched;
    cost.flops = elements;
    return cost;
}

const op_kind op_row_embedding_dw = {
    .code = OP_EMBEDDING_DW,
    .name = "embedding_dw",
    .in = "iN fND",
    .out = "gVD",
    .made = "dtable",
    .accumulates = 1u,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = dw_infer,
    .place = dw_place,
    .cut = dw_cut,
    .cost = dw_cost,
};
