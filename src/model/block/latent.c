// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1): keys and values
// are made from one narrow row of each token.
//
//   x -> q_a -> norm -> q_b ------------------------------+
//   x -> kv_a = c | r;  c -> norm -> kv_b (k, v, by heads) +-> rotated, joined -> attention -> out
//                       r (the part of keys that is rotated) +
//
// In generation the cache holds c, normed, and r, rotated: no key or value of a head is stored.
#include "model/block/block.h"

#include <math.h>

// The norms of narrow rows have their own epsilon, whatever that of the other norms is.
#define LATENT_EPS 1e-6f

static status narrow_norm(block_context *c, const char *norm, int64_t width, tensor_id row,
                          tensor_id *y)
{
    tensor_id w = TENSOR_NONE, same = TENSOR_NONE;
    TRY(block_gain(c, norm, width, &w));
    return op_rmsnorm(c->p, row, w, TENSOR_NONE, LATENT_EPS, block_plus(c), y, &same);
}

// Projects `columns` columns to a given number for each head.
static linear_spec wide(const decoder_spec *s, const char *name, int64_t columns, int64_t each)
{
    const int64_t rows = s->heads * each;
    return (linear_spec){.name = name,
                         .rows = rows,
                         .columns = columns,
                         .part_count = 1,
                         .parts = {{name, rows, s->heads}}};
}

static status queries(block_context *c, tensor_id x, tensor_id *q)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const int64_t head = l->nope_dim + l->rope_dim;
    const linear_spec down = {.name = "attn.q_a",
                              .rows = l->q_rank,
                              .columns = s->dim,
                              .cut_dim = -1,
                              .bias = s->qkv_bias};
    tensor_id row = x;
    if (l->q_rank > 0) {
        TRY(block_linear(c, &down, x, &row));
        TRY(narrow_norm(c, "attn.q_a_norm", l->q_rank, row, &row));
    }
    const linear_spec up =
        l->q_rank > 0 ? wide(s, "attn.q_b", l->q_rank, head) : wide(s, "attn.q", s->dim, head);
    return block_linear(c, &up, row, q);
}

// The narrow row of keys and values, normed, and the part of keys that is rotated.
static status latent_rows(block_context *c, tensor_id x, tensor_id *row, tensor_id *r)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const linear_spec down = {.name = "attn.kv_a",
                              .rows = l->kv_rank + l->rope_dim,
                              .columns = s->dim,
                              .cut_dim = -1,
                              .bias = s->qkv_bias};
    tensor_id both = TENSOR_NONE, narrow = TENSOR_NONE;
    TRY(block_linear(c, &down, x, &both));
    TRY(op_view(c->p, both, "latent", 0, l->kv_rank, &narrow));
    TRY(op_view(c->p, both, "k_rope", l->kv_rank, l->rope_dim, r));
    // Ranks that share the rows of a sequence gather it, which takes a tensor of its own.
    TRY(op_scale(c->p, *r, 1.0F, r));
    return narrow_norm(c, "attn.kv_a_norm", l->kv_rank, narrow, row);
}

static status tables(block_context *c, tensor_id out[2])
{
    TRY(block_batch(c, "positions", extent_tokens(1), DTYPE_I32, &out[0]));
    return op_tensor_make(c->p, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(c->options->seq),
                          extent_of(c->spec->latent.rope_dim), &out[1]);
}

// Attention over the cache of narrow rows.
static status attend_cached(block_context *c, op_attrs attrs, tensor_id q, tensor_id row,
                            tensor_id r, tensor_id *a)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const linear_spec up = wide(s, "attn.kv_b", l->kv_rank, l->nope_dim + l->value_dim);
    tensor_id in[8] = {q};
    block_cache rows;
    TRY(tables(c, &in[5]));
    TRY(block_cache_begin(c, &rows));
    in[4] = rows.lengths;
    in[7] = rows.pages;
    attrs.page = rows.page;
    TRY(block_linear_weight(c, &up, &in[1]));
    TRY(op_rope(c->p, r, in[5], in[6], 1, (int32_t)l->rope_dim, attrs.interleaved, &r));
    TRY(block_cache_add(c, &rows, "cache_latent", l->kv_rank, row, &in[2]));
    TRY(block_cache_add(c, &rows, "cache_rope", l->rope_dim, r, &in[3]));
    return op_latent_cached(c->p, in, &attrs, a);
}

static status attend(block_context *c, const op_attrs *attrs, tensor_id q, tensor_id row,
                     tensor_id r, tensor_id *a)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const linear_spec up = wide(s, "attn.kv_b", l->kv_rank, l->nope_dim + l->value_dim);
    tensor_id in[5] = {q, TENSOR_NONE, r}, out[3], documents = TENSOR_NONE;
    TRY(block_linear(c, &up, row, &in[1]));
    TRY(tables(c, &in[3]));
    TRY(op_latent(c->p, in, attrs, out));
    if (c->options->documents) {
        TRY(block_batch(c, "documents", extent_tokens(1), DTYPE_I32, &documents));
    }
    return op_attention(c->p, out[0], out[1], out[2], documents, TENSOR_NONE, attrs, a);
}

// YaRN scales the scores too: by the square of its factor for all dims.
static double score_scale(const decoder_spec *s)
{
    const model_rope *r = &s->rope;
    const double head = (double)(s->latent.nope_dim + s->latent.rope_dim);
    double factor = 1.0;
    if (r->kind == MODEL_ROPE_YARN && r->mscale_all_dim > 0.0 && r->factor > 1.0) {
        factor = 0.1 * r->mscale_all_dim * log(r->factor) + 1.0;
    }
    return factor * factor / sqrt(head);
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const op_attrs attrs = {.heads = (int32_t)s->heads,
                            .kv_heads = (int32_t)s->heads,
                            .head_dim = (int32_t)(l->nope_dim + l->rope_dim),
                            .value_dim = (int32_t)l->value_dim,
                            .interleaved = s->rope_interleaved,
                            .scale = (float)score_scale(s)};
    const linear_spec projection = {.name = "attn.out",
                                    .rows = s->dim,
                                    .columns = s->heads * l->value_dim,
                                    .cut_dim = 1,
                                    .bias = s->out_bias,
                                    .to_residual = true};
    tensor_id q = TENSOR_NONE, row = TENSOR_NONE, r = TENSOR_NONE, a = TENSOR_NONE;
    TRY(queries(c, x, &q));
    TRY(latent_rows(c, x, &row, &r));
    TRY(block_is_cached(c) ? attend_cached(c, attrs, q, row, r, &a)
                           : attend(c, &attrs, q, row, r, &a));
    return block_linear(c, &projection, a, y);
}

const model_block model_block_latent = {.name = "latent", .emit = emit};
