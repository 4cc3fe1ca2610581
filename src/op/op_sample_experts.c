// The sample programs of operations that have a cost and no kernel yet: experts, latent attention.
#include "op/op_sample_internal.h"

enum { TAKEN = 2, EXPERT_COUNT = 2 };

static status tensor(builder *b, const char *name, tensor_role role, dtype type, int64_t rows,
                     int64_t columns, tensor_id *out)
{
    return op_tensor_make(b->p, name, role, type, 2, extent_tokens(rows), extent_of(columns), out);
}

// An activation of the setting's type, a row per token.
static status rows_of(builder *b, const char *name, int64_t columns, tensor_id *out)
{
    return tensor(b, name, ROLE_ACTIVATION, b->s->type, 1, columns, out);
}

static status weight(builder *b, int64_t rows, int64_t columns, tensor_id *out)
{
    return op_tensor_make(b->p, "w", ROLE_WEIGHT, b->s->type, 2, extent_of(rows),
                          extent_of(columns), out);
}

static status gates(builder *b, tensor_id *out)
{
    return tensor(b, "gates", ROLE_ACTIVATION, DTYPE_F32, 1, TAKEN, out);
}

// Rows that go to experts, and one gate for each.
static status expert_rows(builder *b, const char *name, int64_t columns, tensor_id *out)
{
    return tensor(b, name, ROLE_ACTIVATION, b->s->type, TAKEN, columns, out);
}

static status expert_gate(builder *b, const char *name, tensor_id *out)
{
    return tensor(b, name, ROLE_ACTIVATION, DTYPE_F32, TAKEN, 1, out);
}

static status route(builder *b)
{
    b->node.attrs.top_k = TAKEN;
    return rows_of(b, "logits", b->s->m + TAKEN, &b->node.in[0]);
}

static status route_bwd(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(gates(b, &b->node.in[0]));
    TRY(rows_of(b, "logits", b->s->m + TAKEN, &b->node.in[1]));
    return gates(b, &b->node.in[2]);
}

static status dispatch(builder *b)
{
    TRY(rows_of(b, "x", b->s->k, &b->node.in[0]));
    return gates(b, &b->node.in[1]);
}

static status dispatch_bwd(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(expert_rows(b, "drows", b->s->k, &b->node.in[0]));
    TRY(expert_gate(b, "dgate", &b->node.in[1]));
    return gates(b, &b->node.in[2]);
}

static status experts(builder *b)
{
    b->node.attrs.experts = EXPERT_COUNT;
    TRY(expert_rows(b, "x", b->s->k, &b->node.in[0]));
    return weight(b, EXPERT_COUNT * b->s->m, b->s->k, &b->node.in[1]);
}

static status experts_dx(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    b->node.attrs.experts = EXPERT_COUNT;
    TRY(expert_rows(b, "dy", b->s->m, &b->node.in[0]));
    return weight(b, EXPERT_COUNT * b->s->m, b->s->k, &b->node.in[1]);
}

static status experts_dw(builder *b)
{
    b->list = OP_BACKWARD_WEIGHT;
    b->node.attrs.experts = EXPERT_COUNT;
    TRY(expert_rows(b, "dy", b->s->m, &b->node.in[0]));
    return expert_rows(b, "x", b->s->k, &b->node.in[1]);
}

static status weigh(builder *b)
{
    TRY(expert_rows(b, "x", b->s->k, &b->node.in[0]));
    return expert_gate(b, "gate", &b->node.in[1]);
}

static status weigh_dg(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(expert_rows(b, "dy", b->s->k, &b->node.in[0]));
    return expert_rows(b, "x", b->s->k, &b->node.in[1]);
}

static status combine(builder *b)
{
    TRY(expert_rows(b, "rows", b->s->k, &b->node.in[0]));
    return gates(b, &b->node.in[1]);
}

static status combine_bwd(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    return dispatch(b);
}

// Heads of two columns more than the setting's, which are turned.
static status latent_tables(builder *b, int first)
{
    op_attrs *a = &b->node.attrs;
    a->heads = a->kv_heads = b->s->heads;
    a->head_dim = b->s->head_dim + 2;
    a->value_dim = b->s->head_dim + 1;
    TRY(op_tensor_make(b->p, "positions", ROLE_BATCH, b->s->id, 1, extent_tokens(1), extent_of(0),
                       &b->node.in[first]));
    return op_tensor_make(b->p, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(b->s->seq + 5),
                          extent_of(2), &b->node.in[first + 1]);
}

static status latent(builder *b)
{
    const int64_t heads = b->s->heads, size = b->s->head_dim;
    TRY(latent_tables(b, 3));
    TRY(rows_of(b, "q", heads * (size + 2), &b->node.in[0]));
    TRY(rows_of(b, "kv", heads * (2 * size + 1), &b->node.in[1]));
    return rows_of(b, "r", 2, &b->node.in[2]);
}

static status latent_bwd(builder *b)
{
    const int64_t heads = b->s->heads, size = b->s->head_dim;
    b->list = OP_BACKWARD_INPUT;
    TRY(latent_tables(b, 3));
    TRY(rows_of(b, "dq", heads * (size + 2), &b->node.in[0]));
    TRY(rows_of(b, "dk", heads * (size + 2), &b->node.in[1]));
    return rows_of(b, "dv", heads * (size + 1), &b->node.in[2]);
}

static status latent_dr(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(latent_tables(b, 1));
    return rows_of(b, "dk", b->s->heads * (b->s->head_dim + 2), &b->node.in[0]);
}

const sample_row op_sample_planned[OP_CODE_COUNT] = {
    [OP_ROUTE] = {1, route},
    [OP_ROUTE_BWD] = {1, route_bwd},
    [OP_DISPATCH] = {1, dispatch},
    [OP_DISPATCH_BWD] = {1, dispatch_bwd},
    [OP_EXPERTS] = {1, experts},
    [OP_EXPERTS_DX] = {1, experts_dx},
    [OP_EXPERTS_DW] = {1, experts_dw},
    [OP_WEIGH] = {1, weigh},
    [OP_WEIGH_DG] = {1, weigh_dg},
    [OP_COMBINE] = {1, combine},
    [OP_COMBINE_BWD] = {1, combine_bwd},
    [OP_LATENT] = {1, latent},
    [OP_LATENT_BWD] = {1, latent_bwd},
    [OP_LATENT_DR] = {1, latent_dr},
};
