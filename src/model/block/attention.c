// Causal self-attention: grouped-query heads, rotary or learned positions, QK norm, sliding window,
// packed documents; in generation with a cache of keys and values. Sources: Vaswani et al. 2017,
// arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245; Su et al. 2021, arXiv:2104.09864.
//
//   x (tokens, dim) -> qkv (tokens, (H + 2 KV) D) -> q | k | v -> norm, rotate -> attention -> out
#include "model/block/block.h"

#include <math.h>

// Dropout sites of a layer (op.h, attrs.site): 0 attention, 1 after attention, 2 after the MLP.
enum { SITE_ATTENTION = 0, SITE_RESIDUAL = 1 };

typedef struct heads {
    tensor_id qkv, q, k, v;
    int64_t q_dim, kv_dim;
} heads;

static status qkv_make(block_context *c, tensor_id x, heads *h)
{
    const decoder_spec *s = c->spec;
    const linear_spec qkv = {.name = "attn.qkv",
                             .rows = h->q_dim + 2 * h->kv_dim,
                             .columns = s->dim,
                             .bias = s->qkv_bias,
                             .part_count = 3,
                             .parts = {{"attn.q", h->q_dim, s->heads},
                                       {"attn.k", h->kv_dim, s->kv_heads},
                                       {"attn.v", h->kv_dim, s->kv_heads}}};
    return block_linear(c, &qkv, x, &h->qkv);
}

static status views_make(block_context *c, heads *h)
{
    TRY(op_view(c->p, h->qkv, "q", 0, h->q_dim, &h->q));
    TRY(op_view(c->p, h->qkv, "k", h->q_dim, h->kv_dim, &h->k));
    return op_view(c->p, h->qkv, "v", h->q_dim + h->kv_dim, h->kv_dim, &h->v);
}

// Returns whether q, k and v become tensors of their own before positions turn them.
static bool is_apart(const decoder_spec *s)
{
    return s->qk_norm || s->qkv_clip > 0.0f;
}

static int32_t window_of(const block_context *c)
{
    return c->spec->windows != NULL ? c->spec->windows[c->layer] : 0;
}

// Rotates q and k: as one tensor while they still are one (values pass through), else separately.
static status rotate(block_context *c, heads *h)
{
    const decoder_spec *s = c->spec;
    const int32_t q_heads = (int32_t)s->heads, kv_heads = (int32_t)s->kv_heads;
    const int32_t size = (int32_t)s->head_dim;
    tensor_id positions = TENSOR_NONE, table = TENSOR_NONE;
    const bool is_local = s->rope_local_theta > 0.0 && window_of(c) > 0;
    const char *name = is_local ? "rope_local" : "rope";
    TRY(block_batch(c, "positions", extent_tokens(1), DTYPE_I32, &positions));
    TRY(op_tensor_make(c->p, name, ROLE_CONSTANT, DTYPE_F32, 2, extent_of(c->options->seq),
                       extent_of(model_rope_dim(s)), &table));
    if (!is_apart(s)) {
        TRY(op_rope(c->p, h->qkv, positions, table, q_heads + kv_heads, size, s->rope_interleaved,
                    &h->qkv));
        return views_make(c, h);
    }
    TRY(op_rope(c->p, h->q, positions, table, q_heads, size, s->rope_interleaved, &h->q));
    return op_rope(c->p, h->k, positions, table, kv_heads, size, s->rope_interleaved, &h->k);
}

static status qk_norm(block_context *c, heads *h)
{
    const decoder_spec *s = c->spec;
    tensor_id wq = TENSOR_NONE, wk = TENSOR_NONE, same = TENSOR_NONE;
    if (s->qk_norm_whole) { // cut as the heads are
        TRY(block_gain_of_heads(c, "attn.q_norm", h->q_dim, s->heads, &wq));
        TRY(block_gain_of_heads(c, "attn.k_norm", h->kv_dim, s->kv_heads, &wk));
    } else {
        TRY(block_gain(c, "attn.q_norm", s->head_dim, &wq));
        TRY(block_gain(c, "attn.k_norm", s->head_dim, &wk));
    }
    TRY(op_rmsnorm(c->p, h->q, wq, TENSOR_NONE, s->norm_eps, block_plus(c), &h->q, &same));
    return op_rmsnorm(c->p, h->k, wk, TENSOR_NONE, s->norm_eps, block_plus(c), &h->k, &same);
}

// Holds the three within the bound, each by itself: q and k may be no views of one tensor any more.
static status clip(block_context *c, heads *h)
{
    const float bound = c->spec->qkv_clip;
    TRY(op_clamp(c->p, h->q, bound, &h->q));
    TRY(op_clamp(c->p, h->k, bound, &h->k));
    return op_clamp(c->p, h->v, bound, &h->v);
}

// Appends keys and values to the cache; attention reads them from there.
static status cache(block_context *c, heads *h, block_cache *rows)
{
    tensor_id k = TENSOR_NONE, v = TENSOR_NONE;
    TRY(block_cache_begin(c, rows));
    TRY(block_cache_add(c, rows, "cache_k", h->kv_dim, h->k, &k));
    TRY(block_cache_add(c, rows, "cache_v", h->kv_dim, h->v, &v));
    h->k = k;
    h->v = v;
    return ST_OK;
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const bool train = c->options->purpose == PURPOSE_TRAIN;
    const bool rotates = s->position == MODEL_POSITION_ROPE;
    const double scalar = s->attention_scalar > 0.0 ? s->attention_scalar : (double)s->head_dim;
    heads h = {.q_dim = s->heads * s->head_dim, .kv_dim = s->kv_heads * s->head_dim};
    block_cache rows = {.lengths = TENSOR_NONE, .pages = TENSOR_NONE};
    tensor_id documents = TENSOR_NONE, a = TENSOR_NONE;
    TRY(qkv_make(c, x, &h));
    if (is_apart(s) || !rotates) TRY(views_make(c, &h));
    if (s->qk_norm) TRY(qk_norm(c, &h));
    if (s->qkv_clip > 0.0f) TRY(clip(c, &h));
    if (rotates) TRY(rotate(c, &h));
    if (block_is_cached(c)) {
        TRY(cache(c, &h, &rows));
    } else if (c->options->documents) {
        TRY(block_batch(c, "documents", extent_tokens(1), DTYPE_I32, &documents));
    }
    const op_attrs attrs = {.heads = (int32_t)s->heads,
                            .kv_heads = (int32_t)s->kv_heads,
                            .head_dim = (int32_t)s->head_dim,
                            .window = window_of(c),
                            .scale = (float)(1.0 / sqrt(scalar)),
                            .cap = s->attention_cap,
                            .dropout = train ? s->dropout_attention : 0.0f,
                            .site = SITE_ATTENTION,
                            .in_tiles = c->options->as_training,
                            .page = rows.page};
    tensor_id sinks = TENSOR_NONE;
    if (s->sinks) TRY(block_vector(c, "attn.sinks", s->heads, INIT_ZEROS, 0, &sinks));
    const tensor_id in[7] = {h.q, h.k, h.v, documents, rows.lengths, sinks, rows.pages};
    TRY(op_attention_sinks(c->p, in, &attrs, &a));
    const linear_spec out = {.name = "attn.out",
                             .rows = s->dim,
                             .columns = h.q_dim,
                             .cut_dim = 1,
                             .bias = s->out_bias,
                             .to_residual = true};
    TRY(block_linear(c, &out, a, y));
    if (s->dropout_residual > 0.0f && train) {
        TRY(op_dropout(c->p, *y, s->dropout_residual, SITE_RESIDUAL, y));
    }
    return ST_OK;
}

const model_block model_block_attention = {.name = "attention", .emit = emit};
