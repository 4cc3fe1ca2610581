// The head: GEMM with the vocabulary, softmax and cross-entropy in one, in chunks that never hold
// all logits. In training one node computes the losses and both gradients, because the logits of a
// chunk exist only once.
#include "op/op_internal.h"

// Returns the number of terms of the gradient of x, one after the other in its columns.
static int64_t terms_of(const op_node *node)
{
    return node->in[3] == TENSOR_NONE ? 1 : node->piece.shard_count;
}

static status stats_check(const op_program *p, const op_node *node)
{
    const op_piece *piece = &node->piece;
    const op_tensor *stats = op_at(p, node->in[3]), *w = op_at(p, node->in[1]);
    const extent rows = op_at(p, node->in[0])->dims[0];
    const int64_t tiles = rows.scale > 0 ? stats->dims[0].scale / rows.scale : 0;
    const int64_t whole = piece->whole_rows > 0 ? piece->whole_rows : w->dims[0].scale;
    if (stats->dims[0].symbol != rows.symbol || tiles * rows.scale != stats->dims[0].scale ||
        stats->dims[1].scale * tiles != 3 * (int64_t)piece->shards) {
        return fail(ST_MODEL, "head_loss: %s is not of %d shards", stats->name, (int)piece->shards);
    }
    if (piece->shard_count < 1 || piece->first_shard < 0 ||
        piece->first_shard + piece->shard_count > piece->shards ||
        piece->first_row != op_piece_begin(whole, piece->shards, piece->first_shard)) {
        return fail(ST_MODEL, "%s: shards %d to %d of %d are not where row %lld is",
                    op_kind_of(node->code)->name, (int)piece->first_shard,
                    (int)(piece->first_shard + piece->shard_count - 1), (int)piece->shards,
                    (long long)piece->first_row);
    }
    return ST_OK;
}

static status head_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (!(node->attrs.z_loss >= 0.0f)) {
        return fail(ST_MODEL, "head_loss: z-loss %g, expected 0 or more",
                    (double)node->attrs.z_loss);
    }
    int64_t dim = 0;
    TRY(op_shapes_constant(node, &shapes, 'D', &dim));
    if (node->in[3] != TENSOR_NONE) TRY(stats_check(p, node));
    op_shapes_bind(&shapes, 'E', extent_of(dim * terms_of(node)));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void head_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    const bool has_stats = node->in[3] != TENSOR_NONE;
    OP_RULES(rules, count, "0r0r0:00p", "r0rrr:r10");
    if (has_stats) { // tiles of rows cannot be cut by rows; by vocabulary, with the terms of dx
        rules[1] = rules[2];
    }
    *count = 2;
}

// Cuts the vocabulary into whole shards.
static void shards_cut(const op_program *p, const op_node *node, int ways, int at, op_node *piece)
{
    const int64_t whole = op_at(p, node->in[1])->dims[0].scale;
    piece->piece.shard_count = node->piece.shard_count / ways;
    piece->piece.first_shard = node->piece.first_shard + at * piece->piece.shard_count;
    piece->piece.whole_rows = node->piece.whole_rows > 0 ? node->piece.whole_rows : whole;
    piece->piece.first_row =
        op_piece_begin(piece->piece.whole_rows, node->piece.shards, piece->piece.first_shard);
}

static void head_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                     op_node *piece)
{
    if (rule == 1 && node->in[3] != TENSOR_NONE) shards_cut(p, node, ways, at, piece);
}

static op_cost head_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double logits = op_dim(p, node->in[0], 0, bound) * op_dim(p, node->in[1], 0, bound);
    double products = 1.0;
    for (int o = 1; o < 3; o++) products += node->out[o] == TENSOR_NONE ? 0.0 : 1.0;
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.flops = logits * (2.0 * products * op_dim(p, node->in[0], 1, bound) + 6.0);
    return cost;
}

// Checks that the gradient of x has a term for each shard of the vocabulary and that the statistics
// are of all shards.
static void terms_check(const op_facts *f)
{
    const bool cut = op_has_in(f, 3);
    const int64_t terms = cut ? f->piece->shard_count : 1, rows = op_fact(f, 'N');
    if (op_has_out(f, 1)) ASSERT(op_fact(f, 'E') == terms * op_fact(f, 'D'));
    if (!cut || rows == 0) return;
    const int64_t tiles = op_fact(f, 'R') / rows;
    ASSERT(tiles * rows == op_fact(f, 'R'));
    ASSERT(tiles * op_fact(f, 'Q') == 3 * (int64_t)f->piece->shards);
}

static void head_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'V') > 0);
    terms_check(f);
    if (op_has_out(f, 1) || op_has_out(f, 2)) ASSERT(f->loss_divisor > 0.0 && f->has_step);
}

const op_kind op_row_head_loss = {
    .code = OP_HEAD_LOSS,
    .name = "head_loss",
    .in = "fND fVD iN sRQ sN",
    .out = "sN fNE gVD",
    .made = "token_loss dx dw",
    .optional_in = 1u << 3 | 1u << 4,
    .optional_out = 1u << 1 | 1u << 2,
    .accumulates = 1u << 2,
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "NVD",
    .logits = LOGITS_LOSS,
    .step_reads = STEP_FIELD_LOSS_SCALE,
    .inplace = {-1, -1, -1, -1},
    .infer = head_infer,
    .place = head_place,
    .cut = head_cut,
    .cost = head_cost,
    .check = head_check,
};

static status stats_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    const op_piece *piece = &node->piece;
    if (piece->shard_count < 1 || piece->first_shard + piece->shard_count > piece->shards) {
        return fail(ST_MODEL, "head_stats: %d shards from %d on, of %d", (int)piece->shard_count,
                    (int)piece->first_shard, (int)piece->shards);
    }
    op_shapes_bind(&shapes, 'Q', extent_of(3 * (int64_t)piece->shard_count));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void stats_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r0:0", "r0r:1");
}

static void stats_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                      op_node *piece)
{
    if (rule == 2) shards_cut(p, node, ways, at, piece);
}

static op_cost stats_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double logits = op_dim(p, node->in[0], 0, bound) * op_dim(p, node->in[1], 0, bound);
    op_cost cost = op_cost_bytes(p, node, bound);
    cost.flops = logits * (2.0 * op_dim(p, node->in[0], 1, bound) + 3.0);
    return cost;
}

static void stats_facts(const op_facts *f)
{
    ASSERT(f->piece->shard_count > 0);
    ASSERT(op_fact(f, 'Q') == 3 * (int64_t)f->piece->shard_count);
}

const op_kind op_row_head_stats = {
    .code = OP_HEAD_STATS,
    .name = "head_stats",
    .in = "fND fVD iN",
    .out = "sNQ",
    .made = "stats",
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "NVD",
    .logits = LOGITS_STATS,
    .inplace = {-1, -1, -1, -1},
    .infer = stats_infer,
    .place = stats_place,
    .cut = stats_cut,
    .cost = stats_cost,
    .check = stats_facts,
};
