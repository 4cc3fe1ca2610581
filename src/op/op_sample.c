// The sample programs: for every operation a function that makes its operands in one setting (types
// and sizes) and one option (which optional operands, which attributes, views or not).
//
// Variant v is setting v % SETTINGS with option v / SETTINGS. To add an operation: a builder and a
// row below; to add a size or type that all operations are tried in: a setting.
#include "op/op_sample_internal.h"

enum { SETTINGS = 7 };
static const setting settings[SETTINGS] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_I32, 4, 2, 6, 2, 5, 9, 7, 9, 11},
    {DTYPE_BF16, DTYPE_F32, DTYPE_I32, 4, 2, 16, 2, 8, 16, 16, 32, 40},
    {DTYPE_F16, DTYPE_F32, DTYPE_I64, 3, 3, 4, 3, 3, 3, 5, 3, 13},
    {DTYPE_F32, DTYPE_F32, DTYPE_I32, 1, 1, 2, 1, 1, 2, 1, 1, 1},
    {DTYPE_F32, DTYPE_F32, DTYPE_I32, 6, 2, 10, 2, 33, 40, 66, 34, 130},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_I32, 2, 2, 64, 2, 17, 70, 48, 20, 259},
    {DTYPE_F32, DTYPE_F32, DTYPE_I32, 1, 1, 256, 1, 70, 71, 33, 17, 1030},
};

static status tensor(builder *b, const char *name, tensor_role role, dtype type, int ndim,
                     extent rows, int64_t columns, tensor_id *out)
{
    return op_tensor_make(b->p, name, role, type, ndim, rows, extent_of(columns), out);
}

// An activation of the setting's type, a row per token.
static status rows_of(builder *b, const char *name, int64_t columns, tensor_id *out)
{
    return tensor(b, name, ROLE_ACTIVATION, b->s->type, 2, extent_tokens(1), columns, out);
}

// The same as columns of a wider tensor.
static status rows_view(builder *b, const char *name, int64_t columns, tensor_id *out)
{
    tensor_id wide = TENSOR_NONE;
    TRY(rows_of(b, "wide", columns + 3, &wide));
    return op_view(b->p, wide, name, 2, columns, out);
}

static status rows_maybe_view(builder *b, bool view, const char *name, int64_t columns,
                              tensor_id *out)
{
    return view ? rows_view(b, name, columns, out) : rows_of(b, name, columns, out);
}

static status statistic(builder *b, const char *name, int ndim, int64_t columns, tensor_id *out)
{
    return tensor(b, name, ROLE_ACTIVATION, DTYPE_F32, ndim, extent_tokens(1), columns, out);
}

static status weight(builder *b, const char *name, int ndim, int64_t rows, int64_t columns,
                     tensor_id *out)
{
    return tensor(b, name, ROLE_WEIGHT, b->s->type, ndim, extent_of(rows), columns, out);
}

static status batch(builder *b, const char *name, dtype type, tensor_id *out)
{
    return tensor(b, name, ROLE_BATCH, type, 1, extent_tokens(1), 0, out);
}

static status lengths(builder *b, const char *name, dtype type, tensor_id *out)
{
    const extent sequences = {1, EXTENT_SEQS};
    return tensor(b, name, ROLE_BATCH, type, 1, sequences, 0, out);
}

static status embedding(builder *b)
{
    op_node *n = &b->node;
    TRY(batch(b, "ids", b->s->id, &n->in[0]));
    TRY(weight(b, "table", 2, b->s->vocab, b->s->k, &n->in[1]));
    if (b->option == 0) return ST_OK;
    TRY(batch(b, "positions", b->s->id, &n->in[2]));
    return weight(b, "position_table", 2, b->s->seq + 3, b->s->k, &n->in[3]);
}

static status embedding_dw(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_WEIGHT;
    TRY(batch(b, "ids", b->s->id, &n->in[0]));
    TRY(rows_maybe_view(b, b->option == 1, "dx", b->s->k, &n->in[1]));
    tensor_id table = TENSOR_NONE;
    TRY(weight(b, "table", 2, b->s->vocab, b->s->k, &table));
    return op_grad_weight(b->p, table, &n->out[0]);
}

static const op_activation activations[] = {ACT_GELU_TANH, ACT_GELU_ERF, ACT_SILU, ACT_RELU};

// 0 plain, 1 bias, 2 views, then fused: each activation, the even ones with a bias.
static status matmul(builder *b)
{
    op_node *n = &b->node;
    const bool fused = b->option >= 3;
    TRY(rows_maybe_view(b, b->option == 2, "x", b->s->k, &n->in[0]));
    TRY(weight(b, "w", 2, b->s->m, b->s->k, &n->in[1]));
    if (b->option == 1 || (fused && b->option % 2 == 0)) {
        TRY(weight(b, "bias", 1, b->s->m, 0, &n->in[2]));
    }
    if (fused) {
        b->p->purpose = PURPOSE_EVALUATE;
        n->attrs.activation = activations[b->option - 3];
    }
    if (b->option == 2) return rows_view(b, "y", b->s->m, &n->out[0]);
    return ST_OK;
}

// 0 plain, 1 views, 2 going on from what other columns gave, with some rows of a weight.
static status matmul_dx(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_INPUT;
    TRY(rows_maybe_view(b, b->option == 1, "dy", b->s->m, &n->in[0]));
    if (b->option == 2) {
        tensor_id whole = TENSOR_NONE;
        TRY(rows_of(b, "before", b->s->k, &n->in[2]));
        TRY(weight(b, "whole", 2, b->s->m + 3, b->s->k, &whole));
        return op_view_rows(b->p, whole, "w", 2, b->s->m, &n->in[1]);
    }
    TRY(weight(b, "w", 2, b->s->m, b->s->k, &n->in[1]));
    if (b->option == 1) return rows_view(b, "dx", b->s->k, &n->out[0]);
    return ST_OK;
}

static status matmul_dw(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_WEIGHT;
    TRY(rows_maybe_view(b, b->option == 1, "dy", b->s->m, &n->in[0]));
    return rows_maybe_view(b, b->option == 1, "x", b->s->k, &n->in[1]);
}

static status bias_dw(builder *b)
{
    b->list = OP_BACKWARD_WEIGHT;
    return rows_maybe_view(b, b->option == 1, "dy", b->s->m, &b->node.in[0]);
}

static status add(builder *b)
{
    TRY(rows_maybe_view(b, b->option == 1, "a", b->s->k, &b->node.in[0]));
    return rows_of(b, "b", b->s->k, &b->node.in[1]);
}

static status add_bias(builder *b)
{
    TRY(rows_maybe_view(b, b->option == 1, "x", b->s->m, &b->node.in[0]));
    return weight(b, "bias", 1, b->s->m, 0, &b->node.in[1]);
}

// One, two, three and eight terms.
static status terms(builder *b, int *count)
{
    static const int counts[] = {1, 2, 3, 8};
    *count = counts[b->option];
    for (int i = 0; i < *count; i++) {
        TRY(rows_maybe_view(b, i == 1, "term", b->s->k, &b->node.in[i]));
    }
    return ST_OK;
}

static status sum(builder *b)
{
    int count = 0;
    return terms(b, &count);
}

// 0 three tiles, 1 four, of which two and two are of the same columns.
static status unstack(builder *b)
{
    const int tiles = b->option == 0 ? 3 : 4;
    b->node.attrs.shard_count = tiles;
    b->node.attrs.repeat = b->option == 0 ? 0 : 2;
    return tensor(b, "x", ROLE_ACTIVATION, b->s->type, 2, extent_tokens(tiles), b->s->k,
                  &b->node.in[0]);
}

static status stack(builder *b)
{
    b->node.attrs.shard_count = b->option == 0 ? 3 : 4;
    b->node.attrs.repeat = b->option == 0 ? 0 : 2;
    return rows_maybe_view(b, b->option == 1, "x", b->s->k * (b->option == 0 ? 3 : 2),
                           &b->node.in[0]);
}

// The rows of three ranks, there and back; one rank where a sequence is not two pieces.
static status zip(builder *b)
{
    const int ways = b->s->seq % 2 == 0 ? 3 : 1;
    b->node.attrs.shard_count = ways;
    b->node.attrs.cp_turns = b->s->seq % 4 == 0 ? 2 : 0;
    b->node.attrs.inverse = b->option == 1;
    return tensor(b, "x", ROLE_ACTIVATION, b->s->type, 2, extent_tokens(ways), b->s->k,
                  &b->node.in[0]);
}

static status exchange(builder *b)
{
    b->node.attrs.axis = AXIS_CP;
    return tensor(b, "x", ROLE_ACTIVATION, b->s->type, 2, extent_tokens(2), b->s->k,
                  &b->node.in[0]);
}

static status reduce(builder *b)
{
    int count = 0;
    TRY(terms(b, &count));
    b->node.attrs.axis = AXIS_TP;
    if (b->option == 0) return ST_OK;
    b->node.attrs.shards = 2 * count;
    b->node.attrs.first_shard = count;
    return ST_OK;
}

static const extent rows_cut = {1, EXTENT_TOKENS_CUT};

// 0 rows of positions, 1 stacked, 2 in pieces of context parallelism.
static status all_gather(builder *b)
{
    b->node.attrs.axis = b->option == 2 ? AXIS_CP : AXIS_TP;
    b->node.attrs.stacked = b->option == 1;
    b->node.attrs.zigzag = b->option == 2;
    if (b->option == 0) {
        return tensor(b, "x", ROLE_ACTIVATION, b->s->type, 2, rows_cut, b->s->k, &b->node.in[0]);
    }
    TRY(rows_of(b, "x", b->s->k, &b->node.in[0]));
    return tensor(b, "y", ROLE_ACTIVATION, b->s->type, 2, extent_tokens(4), b->s->k,
                  &b->node.out[0]);
}

// 0 plain, 1 with a delta, 2 by heads on columns of a wider tensor (QK norm).
static int64_t norm_columns(const builder *b)
{
    return b->option == 2 ? (int64_t)b->s->heads * b->s->head_dim : b->s->k;
}

static int64_t norm_dim(const builder *b)
{
    return b->option == 2 ? b->s->head_dim : b->s->k;
}

static status rmsnorm(builder *b)
{
    op_node *n = &b->node;
    n->attrs.eps = 1e-5f;
    n->attrs.plus = b->option == 2 ? 1.0f : 0.0f;
    TRY(rows_maybe_view(b, b->option == 2, "x", norm_columns(b), &n->in[0]));
    TRY(weight(b, "w", 1, norm_dim(b), 0, &n->in[1]));
    if (b->option == 1) TRY(rows_of(b, "delta", b->s->k, &n->in[2]));
    return ST_OK;
}

static status rmsnorm_dx(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_INPUT;
    n->attrs.eps = 1e-5f;
    n->attrs.plus = b->option == 2 ? 1.0f : 0.0f;
    TRY(rows_of(b, "dy", norm_columns(b), &n->in[0]));
    TRY(rows_maybe_view(b, b->option == 2, "h", norm_columns(b), &n->in[1]));
    TRY(statistic(b, "r", 2, norm_columns(b) / norm_dim(b), &n->in[2]));
    TRY(weight(b, "w", 1, norm_dim(b), 0, &n->in[3]));
    if (b->option == 1) TRY(rows_of(b, "dh", b->s->k, &n->in[4]));
    if (b->option == 2) TRY(rows_view(b, "dx", norm_columns(b), &n->out[0]));
    return ST_OK;
}

static status rmsnorm_dw(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_WEIGHT;
    b->option *= 2; // plain, by heads
    TRY(rows_of(b, "dy", norm_columns(b), &n->in[0]));
    TRY(rows_maybe_view(b, b->option == 2, "h", norm_columns(b), &n->in[1]));
    return statistic(b, "r", 2, norm_columns(b) / norm_dim(b), &n->in[2]);
}

static status layernorm(builder *b)
{
    op_node *n = &b->node;
    n->attrs.eps = 1e-5f;
    TRY(rows_of(b, "x", b->s->k, &n->in[0]));
    TRY(weight(b, "w", 1, b->s->k, 0, &n->in[1]));
    if (b->option % 2 == 1) TRY(weight(b, "b", 1, b->s->k, 0, &n->in[2]));
    if (b->option >= 2) TRY(rows_of(b, "delta", b->s->k, &n->in[3]));
    return ST_OK;
}

static status layernorm_dx(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_INPUT;
    n->attrs.eps = 1e-5f;
    TRY(rows_of(b, "dy", b->s->k, &n->in[0]));
    TRY(rows_of(b, "h", b->s->k, &n->in[1]));
    TRY(statistic(b, "mean", 1, 0, &n->in[2]));
    TRY(statistic(b, "r", 1, 0, &n->in[3]));
    TRY(weight(b, "w", 1, b->s->k, 0, &n->in[4]));
    if (b->option == 1) TRY(rows_of(b, "dh", b->s->k, &n->in[5]));
    return ST_OK;
}

static status layernorm_dw(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_WEIGHT;
    TRY(rows_of(b, "dy", b->s->k, &n->in[0]));
    TRY(rows_of(b, "h", b->s->k, &n->in[1]));
    TRY(statistic(b, "mean", 1, 0, &n->in[2]));
    TRY(statistic(b, "r", 1, 0, &n->in[3]));
    b->wanted = b->option == 1 ? 1u << 1 : 0;
    return ST_OK;
}

// 0 halves, 1 interleaved, 2 turned back, 3 with columns that are only copied, from a view.
static status rope(builder *b)
{
    op_node *n = &b->node;
    const int64_t columns = (int64_t)b->s->heads * b->s->head_dim;
    n->attrs.heads = b->s->heads;
    n->attrs.head_dim = b->s->head_dim;
    n->attrs.interleaved = b->option == 1;
    n->attrs.inverse = b->option == 2;
    if (b->option == 3) {
        TRY(rows_view(b, "x", columns + 4, &n->in[0]));
    } else {
        TRY(rows_of(b, "x", columns, &n->in[0]));
    }
    TRY(batch(b, "positions", b->s->id, &n->in[1]));
    return tensor(b, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(b->s->seq + 5), b->s->head_dim,
                  &n->in[2]);
}

static void attention_attrs(builder *b)
{
    op_attrs *a = &b->node.attrs;
    a->heads = b->s->heads;
    a->kv_heads = b->s->kv_heads;
    a->head_dim = b->s->head_dim;
    a->scale = 0.3f;
}

// q, k and v, or their gradients, as columns of one tensor.
static status heads_joined(builder *b, const char *name, tensor_id *q, tensor_id *k, tensor_id *v)
{
    const int64_t wide = (int64_t)b->s->heads * b->s->head_dim;
    const int64_t narrow = (int64_t)b->s->kv_heads * b->s->head_dim;
    tensor_id whole = TENSOR_NONE;
    TRY(rows_of(b, name, wide + 2 * narrow, &whole));
    TRY(op_view(b->p, whole, "q_view", 0, wide, q));
    TRY(op_view(b->p, whole, "k_view", wide, narrow, k));
    return op_view(b->p, whole, "v_view", wide + narrow, narrow, v);
}

static status heads_apart(builder *b, tensor_id *q, tensor_id *k, tensor_id *v)
{
    TRY(rows_of(b, "q", (int64_t)b->s->heads * b->s->head_dim, q));
    TRY(rows_of(b, "k", (int64_t)b->s->kv_heads * b->s->head_dim, k));
    return rows_of(b, "v", (int64_t)b->s->kv_heads * b->s->head_dim, v);
}

// Keys and values of three ranks' rows; false: the setting's rows are not two pieces.
static bool heads_gathered(builder *b)
{
    if (b->s->seq % 2 != 0) return false;
    b->node.attrs.cp_ways = 3;
    b->node.attrs.cp_at = 1;
    b->node.attrs.window = 2 * (int32_t)b->s->seq;
    b->node.attrs.dropout = 0.25f;
    b->node.attrs.site = 9;
    return true;
}

// `ring`: those of one of them, before the queries or behind the first half of them.
static status keys_gathered(builder *b, bool ring, tensor_id *k, tensor_id *v, tensor_id *documents)
{
    const int64_t narrow = (int64_t)b->s->kv_heads * b->s->head_dim;
    const extent all = extent_tokens(3), keys = ring ? extent_tokens(1) : all;
    b->node.attrs.ring = ring;
    b->node.attrs.cp_turns = b->s->seq % 4 == 0 && b->node.attrs.shards == 0 ? 2 : 0;
    b->node.attrs.key_at = b->option % 2 == 0 ? 2 : 0;
    TRY(tensor(b, "k_all", ROLE_ACTIVATION, b->s->type, 2, keys, narrow, k));
    TRY(tensor(b, "v_all", ROLE_ACTIVATION, b->s->type, 2, keys, narrow, v));
    return tensor(b, "documents", ROLE_BATCH, DTYPE_I32, 1, all, 0, documents);
}

// 0 causal, 1 documents, 2 a window, 3 dropout, in views, 4 a cache, 5 a cache and a window, 6 with the
// keys of other ranks, 7 and 8 of one of them.
static status attention(builder *b)
{
    op_node *n = &b->node;
    attention_attrs(b);
    if (b->option == 2 || b->option == 5) n->attrs.window = 4;
    if (b->option == 3) {
        n->attrs.dropout = 0.25f;
        n->attrs.site = 9;
        return heads_joined(b, "qkv", &n->in[0], &n->in[1], &n->in[2]);
    }
    if (b->option >= 6 && heads_gathered(b)) {
        TRY(rows_of(b, "q", (int64_t)b->s->heads * b->s->head_dim, &n->in[0]));
        return keys_gathered(b, b->option > 6, &n->in[1], &n->in[2], &n->in[3]);
    }
    if (b->option < 4 || b->option >= 6) {
        TRY(heads_apart(b, &n->in[0], &n->in[1], &n->in[2]));
        if (b->option == 1) TRY(batch(b, "documents", DTYPE_I32, &n->in[3]));
        return ST_OK;
    }
    b->p->purpose = PURPOSE_PREFILL;
    const extent cached = {1, EXTENT_CACHE};
    const int64_t narrow = (int64_t)b->s->kv_heads * b->s->head_dim;
    TRY(rows_of(b, "q", (int64_t)b->s->heads * b->s->head_dim, &n->in[0]));
    TRY(tensor(b, "k_cache", ROLE_CACHE, b->s->type, 2, cached, narrow, &n->in[1]));
    TRY(tensor(b, "v_cache", ROLE_CACHE, b->s->type, 2, cached, narrow, &n->in[2]));
    return lengths(b, "lengths", DTYPE_I32, &n->in[4]);
}

// 0 causal, 1 documents, 2 a window, 3 dropout, in views, 4 with the keys of other ranks, 5 and 6 of one.
static status attention_bwd(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_INPUT;
    attention_attrs(b);
    if (b->option == 2) n->attrs.window = 4;
    const int64_t columns = (int64_t)b->s->heads * b->s->head_dim;
    TRY(rows_of(b, "dy", columns, &n->in[0]));
    if (b->option == 3) {
        n->attrs.dropout = 0.25f;
        n->attrs.site = 9;
        TRY(heads_joined(b, "qkv", &n->in[1], &n->in[2], &n->in[3]));
        TRY(heads_joined(b, "dqkv", &n->out[0], &n->out[1], &n->out[2]));
    } else if (b->option >= 4 && heads_gathered(b)) {
        n->attrs.shards = b->option == 4 ? 3 : 0;
        n->attrs.first_shard = b->option == 4 ? 1 : 0;
        TRY(rows_of(b, "q", columns, &n->in[1]));
        TRY(keys_gathered(b, b->option > 4, &n->in[2], &n->in[3], &n->in[6]));
    } else {
        TRY(heads_apart(b, &n->in[1], &n->in[2], &n->in[3]));
    }
    TRY(rows_of(b, "y", columns, &n->in[4]));
    TRY(statistic(b, "lse", 2, b->s->heads, &n->in[5]));
    if (b->option == 1) TRY(batch(b, "documents", DTYPE_I32, &n->in[6]));
    return ST_OK;
}

static status attention_merge(builder *b)
{
    op_node *n = &b->node;
    const int64_t columns = (int64_t)b->s->heads * b->s->head_dim;
    TRY(rows_of(b, "a", columns, &n->in[0]));
    TRY(statistic(b, "lse_a", 2, b->s->heads, &n->in[1]));
    TRY(rows_maybe_view(b, b->option == 1, "b", columns, &n->in[2]));
    TRY(statistic(b, "lse_b", 2, b->s->heads, &n->in[3]));
    if (b->option == 1) return rows_view(b, "y", columns, &n->out[0]);
    return ST_OK;
}

static status cache_append(builder *b)
{
    op_node *n = &b->node;
    const extent cached = {1, EXTENT_CACHE};
    b->p->purpose = PURPOSE_PREFILL;
    TRY(rows_maybe_view(b, b->option == 1, "x", b->s->k, &n->in[0]));
    TRY(lengths(b, "lengths", DTYPE_I32, &n->in[1]));
    return tensor(b, "cache", ROLE_CACHE, b->s->type, 2, cached, b->s->k, &n->out[0]);
}

static status swiglu(builder *b)
{
    return rows_of(b, "h", 2 * b->s->m, &b->node.in[0]);
}

static status swiglu_bwd(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(rows_of(b, "h", 2 * b->s->m, &b->node.in[0]));
    return rows_of(b, "da", b->s->m, &b->node.in[1]);
}

static status activation(builder *b)
{
    b->node.attrs.activation = activations[b->option];
    return rows_maybe_view(b, b->option == 1, "x", b->s->k, &b->node.in[0]);
}

static status activation_bwd(builder *b)
{
    b->list = OP_BACKWARD_INPUT;
    TRY(activation(b));
    return rows_of(b, "dy", b->s->k, &b->node.in[1]);
}

static status dropout(builder *b)
{
    b->node.attrs.dropout = b->option == 0 ? 0.5f : 0.1f;
    if (b->option == 2 && b->s->seq % 2 == 0) {
        b->node.attrs.cp_ways = 3;
        b->node.attrs.cp_at = 2;
    }
    b->node.attrs.site = 6;
    return rows_maybe_view(b, b->option == 1, "x", b->s->k, &b->node.in[0]);
}

// All shards of the vocabulary: four where it has so many rows.
static void all_shards(builder *b)
{
    b->node.attrs.shards = b->node.attrs.shard_count = b->s->vocab >= 4 ? 4 : 1;
}

// 0 losses only, 1 with gradients, 2 with a z-loss, 3 losses only with a z-loss; 4 with gradients from
// statistics of shards, 5 the last two of four shards, with a z-loss.
static status head_loss(builder *b)
{
    op_node *n = &b->node;
    const bool train = b->option == 1 || b->option == 2 || b->option >= 4;
    b->p->purpose = train ? PURPOSE_TRAIN : PURPOSE_EVALUATE;
    b->list = train ? OP_BACKWARD_WEIGHT : OP_FORWARD;
    b->wanted = train ? 1u << 1 | 1u << 2 : 0;
    n->attrs.z_loss = b->option == 2 || b->option == 3 || b->option == 5 ? 1e-2f : 0.0f;
    if (b->s->vocab == 1)
        n->attrs.z_loss = 1e-2f; // else all gradients are 0, and errors all there is
    TRY(rows_of(b, "x", b->s->k, &n->in[0]));
    TRY(weight(b, "w", 2, b->s->vocab, b->s->k, &n->in[1]));
    if (b->option >= 4) {
        int64_t tiles = 1;
        all_shards(b);
        if (b->option == 5 && b->s->vocab >= 4) { // w is the second half of a larger one
            tiles = 2;
            n->attrs.whole_rows = 2 * b->s->vocab;
            n->attrs.first_row = b->s->vocab;
            n->attrs.first_shard = n->attrs.shard_count = 2;
        }
        TRY(tensor(b, "stats", ROLE_ACTIVATION, DTYPE_F32, 2, extent_tokens(tiles),
                   3 * n->attrs.shards / tiles, &n->in[3]));
    }
    return batch(b, "labels", b->s->id, &n->in[2]);
}

static status head_stats(builder *b)
{
    op_node *n = &b->node;
    b->list = OP_BACKWARD_WEIGHT;
    all_shards(b);
    TRY(rows_of(b, "x", b->s->k, &n->in[0]));
    TRY(weight(b, "w", 2, b->s->vocab, b->s->k, &n->in[1]));
    return batch(b, "labels", b->s->id, &n->in[2]);
}

static status gather(builder *b)
{
    b->p->purpose = PURPOSE_PREFILL;
    TRY(rows_maybe_view(b, b->option == 1, "x", b->s->k, &b->node.in[0]));
    return lengths(b, "rows", DTYPE_I32, &b->node.in[1]);
}

static status sample(builder *b)
{
    const extent sequences = {1, EXTENT_SEQS};
    b->p->purpose = PURPOSE_DECODE;
    TRY(tensor(b, "logits", ROLE_ACTIVATION, b->s->type, 2, sequences, b->s->vocab,
               &b->node.in[0]));
    TRY(tensor(b, "params", ROLE_BATCH, DTYPE_F32, 2, sequences, 8, &b->node.in[1]));
    return lengths(b, "draws", DTYPE_I64, &b->node.in[2]);
}

static status cast(builder *b)
{
    static const dtype pairs[][2] = {
        {DTYPE_F32, DTYPE_BF16},   {DTYPE_F32, DTYPE_F16},    {DTYPE_F32, DTYPE_F8E4M3},
        {DTYPE_F32, DTYPE_F8E5M2}, {DTYPE_BF16, DTYPE_F32},   {DTYPE_F16, DTYPE_F32},
        {DTYPE_F8E4M3, DTYPE_F32}, {DTYPE_F8E5M2, DTYPE_F32}, {DTYPE_BF16, DTYPE_BF16},
    };
    const dtype *types = pairs[b->option];
    TRY(tensor(b, "x", ROLE_ACTIVATION, types[0], 2, extent_tokens(1), b->s->k, &b->node.in[0]));
    return tensor(b, "y", ROLE_ACTIVATION, types[1], 2, extent_tokens(1), b->s->k, &b->node.out[0]);
}

static status accumulator(builder *b, const char *name, int ndim, tensor_id *out)
{
    return tensor(b, name, ROLE_WEIGHT_GRAD, b->s->grad, ndim, extent_of(b->s->m), b->s->k, out);
}

static status tree_add(builder *b)
{
    b->list = OP_BACKWARD_WEIGHT;
    const int ndim = b->option == 0 ? 2 : 1;
    TRY(accumulator(b, "source", ndim, &b->node.in[0]));
    return accumulator(b, "target", ndim, &b->node.out[0]);
}

static status step_only(builder *b)
{
    (void)b;
    return ST_OK;
}

static status step_loss(builder *b)
{
    TRY(statistic(b, "token_loss", 1, 0, &b->node.in[0]));
    return batch(b, "labels", b->s->id, &b->node.in[1]);
}

static status grad_norm(builder *b)
{
    b->node.attrs.tensor_index = 3;
    return accumulator(b, "grad", b->option == 0 ? 2 : 1, &b->node.in[0]);
}

// 0 one dim, master only; 1 a working copy, decayed; 2 all stored narrow, stochastic rounding.
static status adamw(builder *b)
{
    op_node *n = &b->node;
    const int ndim = b->option == 0 ? 1 : 2;
    const dtype narrow = b->s->type == DTYPE_F32 ? DTYPE_BF16 : b->s->type;
    const dtype stored = b->option == 2 ? narrow : DTYPE_F32;
    const extent rows = extent_of(b->s->m);
    n->attrs.beta1 = 0.9f;
    n->attrs.beta2 = 0.95f;
    n->attrs.eps = 1e-8f;
    n->attrs.weight_decay = 0.1f;
    n->attrs.lr_scale = 1.0f;
    n->attrs.decay = b->option == 1;
    n->attrs.stochastic = b->option == 2;
    n->attrs.tensor_index = 3;
    TRY(accumulator(b, "grad", ndim, &n->in[0]));
    TRY(tensor(b, "master", ROLE_STATE, stored, ndim, rows, b->s->k, &n->in[1]));
    TRY(tensor(b, "m", ROLE_STATE, stored, ndim, rows, b->s->k, &n->in[2]));
    TRY(tensor(b, "v", ROLE_STATE, stored, ndim, rows, b->s->k, &n->in[3]));
    if (b->option == 0) return ST_OK;
    return tensor(b, "weight", ROLE_WEIGHT, b->s->type, ndim, rows, b->s->k, &n->out[3]);
}

static op_attrs muon_attrs(const builder *b)
{
    op_attrs a = {.momentum = 0.95f, .eps = 1e-7f, .weight_decay = 0.1f, .lr_scale = 1.0f};
    a.decay = true;
    a.nesterov = b->option == 1;
    a.match_rms = b->option == 2;
    a.tensor_index = 3;
    return a;
}

// 0 master only; 1 a working copy, Nesterov, in two parts; 2 scaled like AdamW's updates.
static status muon(builder *b)
{
    op_node *n = &b->node;
    const extent rows = extent_of(b->s->m);
    n->attrs = muon_attrs(b);
    if (b->option == 1 && b->s->m > 1) {
        n->attrs.part_count = 2;
        n->attrs.part_rows[0] = b->s->m / 2;
        n->attrs.part_rows[1] = b->s->m - b->s->m / 2;
    }
    TRY(accumulator(b, "grad", 2, &n->in[0]));
    TRY(tensor(b, "master", ROLE_STATE, DTYPE_F32, 2, rows, b->s->k, &n->in[1]));
    TRY(tensor(b, "m", ROLE_STATE, DTYPE_F32, 2, rows, b->s->k, &n->in[2]));
    if (b->option == 0) return ST_OK;
    return tensor(b, "weight", ROLE_WEIGHT, b->s->type, 2, rows, b->s->k, &n->out[2]);
}

// A piece by columns: 0 plainly; 1 Nesterov; 2 with other types.
static status muon_direction(builder *b)
{
    op_node *n = &b->node;
    n->attrs = muon_attrs(b);
    n->attrs.stochastic = b->option == 2;
    n->attrs.part_count = 1;
    n->attrs.part_rows[0] = b->s->m;
    n->attrs.whole_columns = 3 * b->s->k;
    n->attrs.first_column = b->s->k;
    TRY(accumulator(b, "grad", 2, &n->in[0]));
    return tensor(b, "m", ROLE_STATE, b->option == 2 ? DTYPE_BF16 : DTYPE_F32, 2,
                  extent_of(b->s->m), b->s->k, &n->in[1]);
}

// 0 all of the weight; 1 some of its columns, with a working copy; 2 rows of two parts.
static status muon_update(builder *b)
{
    op_node *n = &b->node;
    const int64_t rows = b->s->m, columns = b->s->k;
    op_attrs *a = &n->attrs;
    *a = muon_attrs(b);
    a->part_count = 1;
    a->part_rows[0] = a->part_whole[0] = rows;
    a->whole_columns = columns + (b->option == 1 ? 3 : 0);
    a->first_column = b->option == 1 ? 2 : 0;
    if (b->option == 2 && rows > 1) {
        a->part_count = 2;
        a->part_rows[0] = rows / 2;
        a->part_rows[1] = rows - rows / 2;
        a->part_whole[0] = 2 * a->part_rows[0];
        a->part_whole[1] = a->part_rows[1] + 1;
        a->part_first[1] = a->part_whole[0] + 1;
    }
    const extent whole = extent_of(a->part_whole[0] + a->part_whole[1]);
    TRY(tensor(b, "u", ROLE_ACTIVATION, DTYPE_F32, 2, whole, a->whole_columns, &n->in[0]));
    TRY(tensor(b, "master", ROLE_STATE, DTYPE_F32, 2, extent_of(rows), columns, &n->in[1]));
    if (b->option == 0) return ST_OK;
    return tensor(b, "weight", ROLE_WEIGHT, b->s->type, 2, extent_of(rows), columns, &n->out[1]);
}

static const sample_row rows[OP_CODE_COUNT] = {
    [OP_EMBEDDING] = {2, embedding},
    [OP_EMBEDDING_DW] = {2, embedding_dw},
    [OP_MATMUL] = {7, matmul},
    [OP_MATMUL_DX] = {3, matmul_dx},
    [OP_MATMUL_DW] = {2, matmul_dw},
    [OP_BIAS_DW] = {2, bias_dw},
    [OP_ADD] = {2, add},
    [OP_ADD_BIAS] = {2, add_bias},
    [OP_SUM] = {4, sum},
    [OP_UNSTACK] = {2, unstack},
    [OP_STACK] = {2, stack},
    [OP_ZIP] = {2, zip},
    [OP_RMSNORM] = {3, rmsnorm},
    [OP_RMSNORM_DX] = {3, rmsnorm_dx},
    [OP_RMSNORM_DW] = {2, rmsnorm_dw},
    [OP_LAYERNORM] = {4, layernorm},
    [OP_LAYERNORM_DX] = {2, layernorm_dx},
    [OP_LAYERNORM_DW] = {2, layernorm_dw},
    [OP_ROPE] = {4, rope},
    [OP_ATTENTION] = {9, attention},
    [OP_ATTENTION_MERGE] = {2, attention_merge},
    [OP_ATTENTION_BWD] = {7, attention_bwd},
    [OP_CACHE_APPEND] = {2, cache_append},
    [OP_SWIGLU] = {1, swiglu},
    [OP_SWIGLU_BWD] = {1, swiglu_bwd},
    [OP_ACTIVATION] = {4, activation},
    [OP_ACTIVATION_BWD] = {4, activation_bwd},
    [OP_DROPOUT] = {3, dropout},
    [OP_HEAD_LOSS] = {6, head_loss},
    [OP_HEAD_STATS] = {1, head_stats},
    [OP_GATHER] = {2, gather},
    [OP_SAMPLE] = {1, sample},
    [OP_CAST] = {9, cast},
    [OP_TREE_ADD] = {2, tree_add},
    [OP_STEP_BEGIN] = {1, step_only},
    [OP_STEP_LOSS] = {1, step_loss},
    [OP_GRAD_NORM] = {2, grad_norm},
    [OP_STEP_DECIDE] = {1, step_only},
    [OP_ADAMW] = {3, adamw},
    [OP_MUON] = {3, muon},
    [OP_MUON_DIRECTION] = {3, muon_direction},
    [OP_MUON_UPDATE] = {3, muon_update},
    [OP_ALL_REDUCE] = {4, reduce},
    [OP_REDUCE_SCATTER] = {4, reduce},
    [OP_ALL_GATHER] = {3, all_gather},
    [OP_ALL_TO_ALL] = {1, exchange},
    [OP_SHIFT] = {1, exchange},
};

static const sample_row *row_of(op_code code)
{
    return rows[code].build != NULL ? &rows[code] : &op_sample_planned[code];
}

int op_sample_count(op_code code)
{
    ASSERT((int)code >= 0 && code < OP_CODE_COUNT);
    return row_of(code)->options * SETTINGS;
}

status op_sample(arena *a, op_code code, int variant, op_program **p, op_list *list,
                 int64_t *node_index, extent_binding *bound)
{
    ASSERT(variant >= 0 && variant < op_sample_count(code));
    const setting *s = &settings[variant % SETTINGS];
    builder b = {
        .node = op_node_of(code), .s = s, .option = variant / SETTINGS, .list = OP_FORWARD};
    TRY(op_program_create(a, PURPOSE_TRAIN, s->type, s->grad, &b.p));
    TRY(row_of(code)->build(&b));
    TRY(op_append(b.p, b.list, &b.node, b.wanted));
    *p = b.p;
    *list = b.list;
    *node_index = b.p->lists[b.list].count - 1;
    *bound = (extent_binding){{0}};
    bound->value[EXTENT_ONE] = 1;
    bound->value[EXTENT_TOKENS] = s->seqs * s->seq;
    bound->value[EXTENT_SEQS] = s->seqs;
    bound->value[EXTENT_CACHE] = s->seqs * s->cache_seq;
    bound->value[EXTENT_TOKENS_CUT] = s->seqs * s->seq; // of one rank
    return ST_OK;
}
