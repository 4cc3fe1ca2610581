// Multi-head latent attention: queries, keys and values assembled from the results of
// up-projections, and rotated (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1). In generation the
// cache holds the narrow rows, and one operation attends over them.
#include "op/op_internal.h"

// Binds columns of heads: C of queries and keys, V of values, E of the up-projection; P columns of
// each head are rotated.
static status columns_bind(const op_node *node, op_shapes *shapes)
{
    const op_attrs *a = &node->attrs;
    int64_t rotated = 0;
    TRY(op_shapes_constant(node, shapes, 'P', &rotated));
    const int64_t heads = a->heads, size = a->head_dim, value = a->value_dim;
    const struct {
        char letter;
        int64_t columns;
    } all[] = {{'C', heads * size}, {'E', heads * (size - rotated + value)}, {'V', heads * value}};
    if (heads < 1 || value < 1 || rotated < 1 || rotated >= size) {
        return fail(ST_MODEL, "%s: %lld heads of %lld and %lld, of which %lld are rotated",
                    op_kind_of(node->code)->name, (long long)heads, (long long)size,
                    (long long)value, (long long)rotated);
    }
    for (int i = 0; i < COUNT_OF(all); i++) {
        const extent wanted = extent_of(all[i].columns), met = shapes->of[(int)all[i].letter];
        if (met.scale >= 0 && !extent_equal(met, wanted)) {
            return fail(ST_MODEL, "%s: %lld columns, expected %lld", op_kind_of(node->code)->name,
                        (long long)met.scale, (long long)wanted.scale);
        }
        op_shapes_bind(shapes, all[i].letter, wanted);
    }
    return ST_OK;
}

static void latent_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                       op_node *piece)
{
    (void)p;
    (void)at;
    if (rule != 2) return;
    piece->attrs.heads = node->attrs.heads / ways;
    piece->attrs.kv_heads = node->attrs.kv_heads / ways;
}

// Three operations for each rotated element; the other elements are copied.
static op_cost latent_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 3.0);
}

static status latent_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(columns_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void latent_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000r:000", "11rrr:111"); // by tokens; by heads
}

static status latent_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_LATENT_BWD), dr = op_node_of(OP_LATENT_DR);
    back.attrs = dr.attrs = node->attrs;
    back.piece = dr.piece = node->piece;
    for (int o = 0; o < 3; o++) back.in[o] = op_grad_get(p, node->out[o]);
    dr.in[0] = back.in[1];
    for (int i = 0; i < 2; i++) {
        back.in[3 + i] = dr.in[1 + i] = node->in[3 + i];
        if (!op_wants_grad(p, node->in[i])) {
            return fail(ST_MODEL, "latent: %s is not an activation", op_at(p, node->in[i])->name);
        }
        TRY(op_grad_new(p, node->in[i], &back.out[i]));
    }
    TRY(op_append(p, OP_BACKWARD_INPUT, &back, 0));
    for (int i = 0; i < 2; i++) TRY(op_grad_add(p, node->in[i], back.out[i]));
    return op_grad_append(p, &dr, node->in[2]);
}

const op_kind op_row_latent = {
    .code = OP_LATENT,
    .name = "latent",
    .in = "fNC fNE fNP iN fSP",
    .out = "fNC fNC fNV",
    .made = "q k v",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = latent_infer,
    .place = latent_place,
    .cut = latent_cut,
    .cost = latent_cost,
    .gradient = latent_gradient,
};

static status latent_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(columns_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void latent_bwd_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000r:00", "111rr:11");
}

const op_kind op_row_latent_bwd = {
    .code = OP_LATENT_BWD,
    .name = "latent_bwd",
    .in = "fNC fNC fNV iN fSP",
    .out = "fNC fNE",
    .made = "dq dkv",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = latent_bwd_infer,
    .place = latent_bwd_place,
    .cut = latent_cut,
    .cost = latent_cost,
};

static status latent_dr_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(columns_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void latent_dr_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:0", "1rr:p");
}

const op_kind op_row_latent_dr = {
    .code = OP_LATENT_DR,
    .name = "latent_dr",
    .in = "fNC iN fSP",
    .out = "fNP",
    .made = "dr",
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = latent_dr_infer,
    .place = latent_dr_place,
    .cut = latent_cut,
    .cost = latent_cost,
};

// ---- generation ---------------------------------------------------------------------------------

static status cached_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(columns_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

// Scores and values of each head over the latent rows of a full cache.
static op_cost cached_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double queries = op_dim(p, node->in[0], 0, bound);
    const double rank = op_dim(p, node->in[2], 1, bound),
                 rotated = op_dim(p, node->in[3], 1, bound);
    const double seqs = (double)max_i64(bound->value[EXTENT_SEQS], 1);
    const double keys = op_cache_rows(p, node, node->in[2], bound) / seqs;
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.flops = queries * (2.0 * op_elements(p, node->in[1], bound) +
                            (double)node->attrs.heads * keys * (4.0 * rank + 2.0 * rotated + 6.0));
    return cost;
}

static void cached_check(const op_facts *f)
{
    op_check_sequences(f);
    ASSERT(f->attrs->heads > 0 && op_fact(f, 'C') % f->attrs->heads == 0);
}

const op_kind op_row_latent_cached = {
    .code = OP_LATENT_CACHED,
    .name = "latent_cached",
    .in = "fNC fER fSR fSP iB iN fTP iQ",
    .out = "fNV",
    .made = "y",
    .optional_in = 1u << 7,
    .cost_class = COST_ATTENTION,
    .inplace = {-1, -1, -1, -1},
    .infer = cached_infer,
    .place = op_place_replicate,
    .cost = cached_cost,
    .check = cached_check,
};

status op_latent_cached(op_program *p, const tensor_id in[8], const op_attrs *attrs, tensor_id *y)
{
    op_node node = op_node_of(OP_LATENT_CACHED);
    for (int i = 0; i < 8; i++) node.in[i] = in[i];
    node.attrs = *attrs;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
