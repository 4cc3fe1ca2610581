// Rotary positions and attention, with their gradients.
//
// Attention is never stored as a matrix: the forward keeps the log-sum-exp of every row and head,
// and the backward computes probabilities again from it. Costs here count the pairs that a causal
// mask and a window leave; documents are not known before the data are.
#include "op/op_internal.h"
#include "op/zigzag.h"

static status rope_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    int64_t columns = 0, dim = 0;
    TRY(op_shapes_constant(node, &shapes, 'C', &columns));
    TRY(op_shapes_constant(node, &shapes, 'D', &dim));
    const op_attrs *a = &node->attrs;
    const bool fits = a->heads > 0 && (int64_t)a->heads * a->head_dim <= columns;
    if (!fits || dim > a->head_dim || dim % 2 != 0) {
        return fail(
            ST_MODEL,
            "rope: %d heads of %d in %lld columns with a table of %lld; the table's columns "
            "are even and at most the head size",
            (int)a->heads, (int)a->head_dim, (long long)columns, (long long)dim);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void rope_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:0", "1rr:1", "prr:p"); // by tokens; by heads; linear
}

static void rope_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                     op_node *piece)
{
    (void)p;
    (void)at;
    if (rule == 2) piece->attrs.heads = node->attrs.heads / ways;
}

static op_cost rope_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double rows = op_dim(p, node->in[0], 0, bound);
    op_cost cost = op_cost_bytes(p, node, bound);
    const op_tensor *table = op_at(p, node->in[2]);
    // At most one row of the table is read per token.
    cost.bytes_read -= op_elements(p, node->in[2], bound) * (double)dtype_bytes(table->type);
    const double rotated = op_dim(p, node->in[2], 1, bound);
    cost.bytes_read += rows * rotated * (double)dtype_bytes(table->type);
    cost.flops = 3.0 * rows * (double)node->attrs.heads * rotated;
    return cost;
}

static status rope_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_ROPE);
    dx.in[0] = op_grad_get(p, node->out[0]);
    dx.in[1] = node->in[1];
    dx.in[2] = node->in[2];
    dx.attrs = node->attrs;
    dx.piece = node->piece;
    dx.attrs.inverse = !node->attrs.inverse;
    return op_grad_append(p, &dx, node->in[0]);
}

static void rope_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'D') % 2 == 0);
    ASSERT(op_fact(f, 'D') <= f->attrs->head_dim);
    ASSERT((int64_t)f->attrs->heads * f->attrs->head_dim <= op_fact(f, 'C'));
}

const op_kind op_row_rope = {
    .code = OP_ROPE,
    .name = "rope",
    .in = "fNC iN fPD",
    .out = "fNC",
    .made = "y",
    .pointwise = true,
    .composed = true,
    .inplace = {0, -1, -1, -1},
    .infer = rope_infer,
    .place = rope_place,
    .cut = rope_cut,
    .cost = rope_cost,
    .gradient = rope_gradient,
    .check = rope_check,
};

// ---- attention ----------------------------------------------------------------------------------

enum { HEAD_DIM_MAX = 256 };

static int32_t value_dim(const op_attrs *a)
{
    return a->value_dim > 0 ? a->value_dim : a->head_dim;
}

static status heads_check(const op_node *node, const op_shapes *shapes)
{
    const char *name = op_kind_of(node->code)->name;
    const op_attrs *a = &node->attrs;
    int64_t columns = 0, kv_columns = 0, values = 0;
    TRY(op_shapes_constant(node, shapes, 'C', &columns));
    TRY(op_shapes_constant(node, shapes, 'E', &kv_columns));
    TRY(op_shapes_constant(node, shapes, 'V', &values));
    if (a->heads <= 0 || a->kv_heads <= 0 || a->heads % a->kv_heads != 0) {
        return fail(ST_MODEL, "%s: %d heads on %d key-value heads, expected a multiple", name,
                    (int)a->heads, (int)a->kv_heads);
    }
    if (a->head_dim <= 0 || a->head_dim > HEAD_DIM_MAX) {
        return fail(ST_UNSUPPORTED, "%s: head size %d, expected 1 to %d", name, (int)a->head_dim,
                    (int)HEAD_DIM_MAX);
    }
    if (columns != (int64_t)a->heads * a->head_dim ||
        kv_columns != (int64_t)a->kv_heads * a->head_dim ||
        values != (int64_t)a->kv_heads * value_dim(a)) {
        return fail(ST_MODEL,
                    "%s: queries have %lld columns, keys %lld and values %lld, expected %d and %d "
                    "heads of %d, of values %d",
                    name, (long long)columns, (long long)kv_columns, (long long)values,
                    (int)a->heads, (int)a->kv_heads, (int)a->head_dim, (int)value_dim(a));
    }
    if (value_dim(a) > HEAD_DIM_MAX || !(a->cap >= 0.0f)) {
        return fail(ST_UNSUPPORTED,
                    "%s: values of %d columns and a cap of %g, expected 1 to %d and 0 "
                    "or more",
                    name, (int)value_dim(a), (double)a->cap, (int)HEAD_DIM_MAX);
    }
    if (a->window < 0 || !(a->dropout >= 0.0f && a->dropout < 1.0f)) {
        return fail(ST_MODEL, "%s: window %d and dropout %g, expected 0 or more and 0 to below 1",
                    name, (int)a->window, (double)a->dropout);
    }
    return ST_OK;
}

// Checks that keys have the rows of the queries, or the rows of all ranks, and documents those of
// all ranks.
static status rows_check(const op_node *node, const op_shapes *shapes, bool cached)
{
    const op_piece *piece = &node->piece;
    extent keys = shapes->of['N'], all = keys;
    if (piece->cp_ways > 1) all.scale *= piece->cp_ways;
    if (!piece->ring) keys = all;
    if (piece->ring && (piece->cp_ways < 2 || piece->key_at < 0 ||
                        piece->key_at >= piece->cp_ways || piece->shards > 0)) {
        return fail(ST_MODEL, "attention: keys of rank %d of %d, in a ring", (int)piece->key_at,
                    (int)piece->cp_ways);
    }
    if (shapes->of['Z'].scale >= 0 && !extent_equal(all, shapes->of['Z'])) {
        return fail(ST_MODEL, "attention: documents are not of all rows");
    }
    if (cached && piece->cp_ways > 1) {
        return fail(ST_MODEL, "attention: over a cache queries are not cut by positions");
    }
    if (!cached && !extent_equal(keys, shapes->of['S'])) {
        return fail(ST_MODEL, "attention: queries and keys differ in rows, and there is no cache");
    }
    if (piece->cp_ways > 1 && (piece->cp_at < 0 || piece->cp_at >= piece->cp_ways)) {
        return fail(ST_MODEL, "attention: rank %d of %d", (int)piece->cp_at, (int)piece->cp_ways);
    }
    return ST_OK;
}

static status attention_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(heads_check(node, &shapes));
    const bool cached = node->in[4] != TENSOR_NONE;
    if (cached && node->in[3] != TENSOR_NONE) {
        return fail(ST_MODEL, "attention: documents and a cache cannot be combined");
    }
    TRY(rows_check(node, &shapes, cached));
    if (node->in[5] != TENSOR_NONE && !extent_equal(shapes.of['H'], extent_of(node->attrs.heads))) {
        return fail(ST_MODEL, "attention: %lld sinks for %d heads", (long long)shapes.of['H'].scale,
                    (int)node->attrs.heads);
    }
    op_shapes_bind(&shapes, 'H', extent_of(node->attrs.heads));
    op_shapes_bind(&shapes, 'Y', extent_of((int64_t)node->attrs.heads * value_dim(&node->attrs)));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void attention_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    if (node->in[6] != TENSOR_NONE) {
        OP_RULES(rules, count, "111rr0r:11"); // all sequences share the pages
    } else {
        OP_RULES(rules, count, "00000r0:00", "111rr00:11"); // by whole sequences; by heads
    }
}

static void attention_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                          op_node *piece)
{
    (void)p;
    if (rule != (node->code == OP_ATTENTION && node->in[6] != TENSOR_NONE ? 1 : 2)) return;
    piece->attrs.heads = node->attrs.heads / ways;
    piece->attrs.kv_heads = node->attrs.kv_heads / ways;
    piece->piece.first_head = node->piece.first_head + at * piece->attrs.heads;
}

double op_cache_rows(const op_program *p, const op_node *node, tensor_id t,
                     const extent_binding *bound)
{
    const double rows = op_dim(p, t, 0, bound);
    if (node->attrs.page == 0) return rows;
    const tensor_id pages = node->in[node->code == OP_ATTENTION ? 6 : 7];
    const double most = op_dim(p, pages, 0, bound) * (double)node->attrs.page;
    return rows < most ? rows : most; // the pool may be smaller, or have other sequences' pages
}

// Returns the pairs of a query and a key that it sees, over all sequences. With a cache it is the
// bound, of a full cache. With context parallelism a rank has its share: causal masks are balanced,
// and windows nearly so.
static double attention_pairs(const op_program *p, const op_node *node, tensor_id q, tensor_id k,
                              const extent_binding *bound)
{
    const int32_t window = node->attrs.window;
    const double seqs = (double)max_i64(bound->value[EXTENT_SEQS], 1);
    const double ways = (double)max_i64(node->piece.cp_ways, 1);
    const double queries = ways * op_dim(p, q, 0, bound) / seqs;
    const double keys = node->piece.ring ? queries : op_cache_rows(p, node, k, bound) / seqs;
    const double before = keys - queries; // keys before the first query
    const double most = window > 0 ? (double)window : keys;
    double growing = most - before; // queries that see all keys before them
    if (growing < 0.0) growing = 0.0;
    if (growing > queries) growing = queries;
    const double pairs =
        growing * before + growing * (growing + 1.0) / 2.0 + (queries - growing) * most;
    return pairs * seqs / (node->piece.ring ? ways * ways : ways);
}

static op_cost attention_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const op_attrs *a = &node->attrs;
    op_cost cost = op_cost_bytes(p, node, bound);
    const double pairs = attention_pairs(p, node, node->in[0], node->in[1], bound);
    cost.flops = pairs * (double)a->heads * (2.0 * (double)(a->head_dim + value_dim(a)) + 6.0);
    return cost;
}

// A sink has the gradient of a key whose value is 0.
static status sinks_gradient(op_program *p, const op_node *node)
{
    if (node->in[5] == TENSOR_NONE || !op_trains(p, node->in[5])) return ST_OK;
    op_node dw = op_node_of(OP_SINKS_DW);
    dw.attrs = node->attrs;
    dw.piece = node->piece;
    dw.in[0] = op_grad_get(p, node->out[0]);
    dw.in[1] = node->out[0];
    dw.in[2] = node->out[1];
    dw.in[3] = node->in[5];
    TRY(op_grad_weight(p, node->in[5], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

static status attention_gradient(op_program *p, const op_node *node)
{
    if (node->in[4] != TENSOR_NONE) {
        return fail(ST_MODEL, "attention: over a cache it has no gradient");
    }
    op_node back = op_node_of(OP_ATTENTION_BWD);
    back.in[0] = op_grad_get(p, node->out[0]);
    for (int i = 0; i < 3; i++) back.in[1 + i] = node->in[i];
    back.in[4] = node->out[0];
    back.in[5] = node->out[1];
    back.in[6] = node->in[3];
    back.attrs = node->attrs;
    back.attrs.sinks = node->in[5] != TENSOR_NONE;
    back.piece = node->piece;
    for (int i = 0; i < 3; i++) {
        TRY(op_grad_new(p, node->in[i], &back.out[i]));
    }
    TRY(op_append(p, OP_BACKWARD_INPUT, &back, 0));
    for (int i = 0; i < 3; i++) TRY(op_grad_add(p, node->in[i], back.out[i]));
    return sinks_gradient(p, node);
}

// With context parallelism, keys are those of all ranks, or in a ring those of one.
static void ranks_check(const op_facts *f)
{
    const op_piece *piece = f->piece;
    const int64_t ways = piece->cp_ways, rows = op_fact(f, 'N');
    ASSERT(op_fact(f, 'S') == rows * (piece->ring ? 1 : ways));
    ASSERT(f->seq % zigzag_pieces(piece->cp_turns) == 0 && piece->cp_turns <= ZIGZAG_MAX_TURNS);
    ASSERT(op_fact(f, 'B') < 0 && piece->cp_at >= 0 && piece->cp_at < ways);
    ASSERT(!piece->ring || (piece->key_at >= 0 && piece->key_at < ways && piece->shards == 0));
}

static void attention_check(const op_facts *f)
{
    const op_attrs *a = f->attrs;
    const op_piece *piece = f->piece;
    const int64_t heads = op_fact(f, 'H'), rows = op_fact(f, 'N'), keys = op_fact(f, 'S');
    op_check_sequences(f);
    ASSERT(a->heads > 0 && a->kv_heads > 0 && a->head_dim > 0);
    ASSERT(a->heads % a->kv_heads == 0);
    ASSERT(a->window >= 0);
    ASSERT(op_fact(f, 'C') == (int64_t)a->heads * a->head_dim);
    ASSERT(op_fact(f, 'E') == (int64_t)a->kv_heads * a->head_dim);
    ASSERT(op_fact(f, 'V') == (int64_t)a->kv_heads * value_dim(a));
    ASSERT(op_fact(f, 'Y') == (int64_t)a->heads * value_dim(a));
    ASSERT(heads < 0 || heads == a->heads);
    // Without a cache every sequence has the same number of keys, at least one for each query.
    if (op_fact(f, 'B') < 0 && rows > 0) {
        ASSERT(keys % (rows / f->seq) == 0);
        ASSERT(keys >= rows);
    }
    if (piece->cp_ways > 1) ranks_check(f);
    const int64_t documents = op_fact(f, 'Z');
    ASSERT(documents < 0 || documents == rows * max_i64(piece->cp_ways, 1));
    if (piece->shards > 0) { // backward: its queries are of one shard
        const int64_t own = piece->shards / max_i64(piece->cp_ways, 1);
        ASSERT(f->seq % (2 * own) == 0);
        ASSERT(piece->first_shard / own == (piece->cp_ways > 1 ? piece->cp_at : 0));
    }
}

const op_kind op_row_attention = {
    .code = OP_ATTENTION,
    .name = "attention",
    .in = "fNC fSE fSV iZ iB fH iQ",
    .out = "fNY sNH",
    .made = "y lse",
    .optional_in = 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6,
    .kept_by_selective = true,
    .cost_class = COST_ATTENTION,
    .step_reads = STEP_FIELD_HOST,
    .inplace = {-1, -1, -1, -1},
    .infer = attention_infer,
    .place = attention_place,
    .cut = attention_cut,
    .cost = attention_cost,
    .gradient = attention_gradient,
    .check = attention_check,
};

// The results over two sets of keys are averaged, weighted by their sums.
static status merge_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0, heads = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'C', &columns));
    TRY(op_shapes_constant(node, &shapes, 'H', &heads));
    if (columns % heads != 0) {
        return fail(ST_MODEL, "attention_merge: %lld columns are not %lld heads",
                    (long long)columns, (long long)heads);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void merge_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000:00");
}

static op_cost merge_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 3.0);
}

static void merge_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'C') % op_fact(f, 'H') == 0);
}

const op_kind op_row_attention_merge = {
    .code = OP_ATTENTION_MERGE,
    .name = "attention_merge",
    .in = "fNC sNH fNC sNH",
    .out = "fNC sNH",
    .made = "y lse",
    .inplace = {0, 1, -1, -1},
    .infer = merge_infer,
    .place = merge_place,
    .cost = merge_cost,
    .check = merge_check,
};

static status bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(heads_check(node, &shapes));
    TRY(rows_check(node, &shapes, false));
    const op_attrs *a = &node->attrs;
    const op_piece *piece = &node->piece;
    if (shapes.of['Y'].scale != (int64_t)a->heads * value_dim(a)) {
        return fail(ST_MODEL, "attention_bwd: %lld columns of dy, expected %d heads of %d",
                    (long long)shapes.of['Y'].scale, (int)a->heads, (int)value_dim(a));
    }
    const int32_t ways = piece->cp_ways > 1 ? piece->cp_ways : 1,
                  at = piece->cp_ways > 1 ? piece->cp_at : 0;
    if (piece->shards > 0 &&
        (piece->shards % ways != 0 || piece->first_shard / (piece->shards / ways) != at)) {
        return fail(ST_MODEL, "attention_bwd: rank %d of %d has no shard %d of %d", (int)at,
                    (int)ways, (int)piece->first_shard, (int)piece->shards);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void bwd_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000000:000", "111111r:111");
}

// Five GEMMs of the size of the forward's two: scores again, dv, dp, dq, dk.
static op_cost bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const op_attrs *a = &node->attrs;
    const op_piece *piece = &node->piece;
    op_cost cost = op_cost_bytes(p, node, bound);
    double pairs = attention_pairs(p, node, node->in[1], node->in[2], bound);
    if (piece->shards > 0) pairs /= (double)piece->shards / (double)max_i64(piece->cp_ways, 1);
    cost.flops =
        pairs * (double)a->heads * (6.0 * (double)a->head_dim + 4.0 * (double)value_dim(a) + 8.0);
    cost.flops += 2.0 * op_elements(p, node->in[0], bound); // the row sums of dy * y
    return cost;
}

const op_kind op_row_attention_bwd = {
    .code = OP_ATTENTION_BWD,
    .name = "attention_bwd",
    .in = "fNY fNC fSE fSV fNY sNH iZ",
    .out = "fNC fSE fSV",
    .made = "dq dk dv",
    .optional_in = 1u << 6,
    .kept_by_selective = true,
    .cost_class = COST_ATTENTION,
    .grad_of = GRAD_OF_INPUT,
    .step_reads = STEP_FIELD_HOST,
    .inplace = {-1, -1, -1, -1},
    .infer = bwd_infer,
    .place = bwd_place,
    .cut = attention_cut,
    .cost = bwd_cost,
    .check = attention_check,
};

// ---- sinks --------------------------------------------------------------------------------------

static void sinks_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000r:p", "1110:0");
}

static void sinks_dw_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                         op_node *piece)
{
    attention_cut(p, node, rule, ways, at, piece);
}

static op_cost sinks_dw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0);
}

static status sinks_dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0, heads = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'Y', &columns));
    TRY(op_shapes_constant(node, &shapes, 'H', &heads));
    if (columns % heads != 0) {
        return fail(ST_MODEL, "sinks_dw: %lld columns are not %lld heads", (long long)columns,
                    (long long)heads);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void sinks_dw_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'Y') % op_fact(f, 'H') == 0);
}

// The gradient of the score of a key whose value is 0: -p (dy . y), summed over the rows.
const op_kind op_row_sinks_dw = {
    .code = OP_SINKS_DW,
    .name = "sinks_dw",
    .in = "fNY fNY sNH fH",
    .out = "gH",
    .made = "dsinks",
    .accumulates = 1u,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = sinks_dw_infer,
    .place = sinks_dw_place,
    .cut = sinks_dw_cut,
    .cost = sinks_dw_cost,
    .check = sinks_dw_check,
};
