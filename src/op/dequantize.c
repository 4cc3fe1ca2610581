// Frozen weights that are held in few bits (op/quantized.h) become numbers for the products that
// read them. A backward pass makes them again instead of keeping them, so at most two matrices of a
// layer are wide at a time.
//
//   DEQUANTIZE  q(M,P) -> w(M,K): attrs.quant; P bytes are a row of K columns
#include "op/op_internal.h"

#include <stdio.h>

static status infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t bytes = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'P', &bytes));
    if (node->out[0] == TENSOR_NONE || op_at(p, node->in[0])->type != DTYPE_U8) {
        return fail(ST_MODEL, "dequantize: expected bytes and a tensor for the result");
    }
    const int64_t columns = op_at(p, node->out[0])->dims[1].scale;
    if (op_quant_row_bytes(node->attrs.quant, columns) != bytes) {
        return fail(ST_MODEL, "dequantize: %lld bytes of a row are not %lld columns",
                    (long long)bytes, (long long)columns);
    }
    op_shapes_bind(&shapes, 'K', extent_of(columns));
    return op_shapes_out(p, node, wanted, &shapes);
}

// Columns are cut between blocks.
static void place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0:0", "1:1");
}

static op_cost cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 1.0);
}

const op_kind op_row_dequantize = {
    .code = OP_DEQUANTIZE,
    .name = "dequantize",
    .in = "mMP",
    .out = "fMK",
    .made = "w",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = infer,
    .place = place,
    .cost = cost,
};

static status again(op_program *p, const op_node *made, tensor_id *out)
{
    op_node node = *made;
    const op_tensor like = *op_at(p, made->out[0]);
    char name[OP_NAME_BYTES];
    op_name_unique(p, "", like.name, name);
    TRY(op_tensor_make(p, name, ROLE_ACTIVATION, like.type, 2, like.dims[0], like.dims[1],
                       &node.out[0]));
    p->tensors[node.out[0]].frozen = true;
    TRY(op_append(p, OP_BACKWARD_INPUT, &node, 0));
    *out = node.out[0];
    return ST_OK;
}

status op_dequantize_again(op_program *p, tensor_id w, tensor_id *out)
{
    *out = w;
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node made = p->lists[OP_FORWARD].nodes[i];
        if (made.code == OP_DEQUANTIZE && made.out[0] == w) return again(p, &made, out);
    }
    return ST_OK;
}

status op_dequantize(op_program *p, tensor_id q, op_quant kind, int64_t columns, tensor_id *w)
{
    op_node node = op_node_of(OP_DEQUANTIZE);
    const op_tensor from = *op_at(p, q);
    char wanted[OP_NAME_BYTES], name[OP_NAME_BYTES];
    (void)snprintf(wanted, sizeof(wanted), "%.36s.wide", from.name);
    op_name_unique(p, "", wanted, name);
    TRY(op_tensor_make(p, name, ROLE_ACTIVATION, p->compute, 2, from.dims[0], extent_of(columns),
                       &node.out[0]));
    node.in[0] = q;
    node.attrs.quant = kind;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *w = node.out[0];
    return ST_OK;
}
