// Operations of generation: storing keys and values in the cache, gathering the wanted rows,
// choosing the next token.
#include "op/op_internal.h"

static status cache_append_infer(op_program *p, op_node *node, uint32_t wanted)
{
    if (node->out[0] == TENSOR_NONE) {
        return fail(ST_MODEL, "cache_append: the cache must be given");
    }
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void cache_append_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    if (node->in[2] != TENSOR_NONE) {
        OP_RULES(rules, count, "1rr:1"); // all sequences share the pages
    } else {
        OP_RULES(rules, count, "000:0", "1r0:1"); // by whole sequences; by heads
    }
}

static op_cost cache_append_cost(const op_program *p, const op_node *node,
                                 const extent_binding *bound)
{
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.bytes_written =
        op_elements(p, node->in[0], bound) * (double)dtype_bytes(op_at(p, node->out[0])->type);
    return cost;
}

const op_kind op_row_cache_append = {
    .code = OP_CACHE_APPEND,
    .name = "cache_append",
    .in = "fNE iB iQ",
    .out = "fSE",
    .made = "cache",
    .optional_in = 1u << 2,
    .inplace = {-1, -1, -1, -1},
    .infer = cache_append_infer,
    .place = cache_append_place,
    .cost = cache_append_cost,
    .check = op_check_sequences,
};

static void gather_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "1r:1"); // row numbers are global
}

static op_cost gather_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = op_cost_bytes(p, node, bound);
    const double type = (double)dtype_bytes(op_at(p, node->in[0])->type);
    cost.bytes_read +=
        (op_elements(p, node->out[0], bound) - op_elements(p, node->in[0], bound)) * type;
    return cost;
}

const op_kind op_row_gather = {
    .code = OP_GATHER,
    .name = "gather",
    .in = "fND iB",
    .out = "fBD",
    .made = "y",
    .picks = 1u,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = gather_place,
    .cost = gather_cost,
};

enum { SAMPLE_PARAMS = 8 };

static status sample_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    int64_t params = 0;
    TRY(op_shapes_constant(node, &shapes, 'X', &params));
    if (params != SAMPLE_PARAMS) {
        return fail(ST_MODEL, "sample: %lld parameters, expected %d", (long long)params,
                    (int)SAMPLE_PARAMS);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void sample_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:0"); // by sequences
}

// Counts an exponential, two sums and a few passes of selection for each logit.
static op_cost sample_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 20.0);
}

static void sample_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'X') == SAMPLE_PARAMS);
    ASSERT(op_fact(f, 'V') > 0);
}

const op_kind op_row_sample = {
    .code = OP_SAMPLE,
    .name = "sample",
    .in = "fBV pBX iB",
    .out = "iB",
    .made = "ids",
    .inplace = {-1, -1, -1, -1},
    .infer = sample_infer,
    .place = sample_place,
    .cost = sample_cost,
    .check = sample_check,
};
