// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1): keys and values
// are made from one narrow row of each token. It can be planned and priced; its operations have no
// kernels yet.
//
//   x -> q_a -> norm -> q_b ---------------------+
//   x -> kv_a -> norm -> kv_b (k and v, by heads) +-> rotated, joined -> attention -> out
//   x -> k_rope (the part of keys that is rotated) +
#include "model/block/block.h"

#include <math.h>

static status narrow(block_context *c, const char *name, const char *norm, tensor_id x,
                     int64_t width, tensor_id *y)
{
    const linear_spec down = {.name = name, .rows = width, .columns = c->spec->dim, .cut_dim = -1};
    tensor_id w = TENSOR_NONE, row = TENSOR_NONE, same = TENSOR_NONE;
    TRY(block_linear(c, &down, x, &row));
    TRY(block_vector(c, norm, width, INIT_ONES, -1, &w));
    return op_rmsnorm(c->p, row, w, TENSOR_NONE, c->spec->norm_eps, 0.0f, y, &same);
}

// Projects `columns` columns to a given number for each head.
static status wide(block_context *c, const char *name, tensor_id x, int64_t columns, int64_t each,
                   tensor_id *y)
{
    const int64_t heads = c->spec->heads, rows = heads * each;
    const linear_spec up = {.name = name,
                            .rows = rows,
                            .columns = columns,
                            .part_count = 1,
                            .parts = {{name, rows, heads}}};
    return block_linear(c, &up, x, y);
}

static status latent_rows(block_context *c, tensor_id x, tensor_id in[5])
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const int64_t head = l->nope_dim + l->rope_dim;
    const linear_spec k_rope = {
        .name = "attn.k_rope", .rows = l->rope_dim, .columns = s->dim, .cut_dim = -1};
    tensor_id row = x;
    if (l->q_rank > 0) TRY(narrow(c, "attn.q_a", "attn.q_a_norm", x, l->q_rank, &row));
    TRY(wide(c, "attn.q_b", row, l->q_rank > 0 ? l->q_rank : s->dim, head, &in[0]));
    TRY(narrow(c, "attn.kv_a", "attn.kv_a_norm", x, l->kv_rank, &row));
    TRY(wide(c, "attn.kv_b", row, l->kv_rank, l->nope_dim + l->value_dim, &in[1]));
    TRY(block_linear(c, &k_rope, x, &in[2]));
    TRY(block_batch(c, "positions", extent_tokens(1), DTYPE_I32, &in[3]));
    return op_tensor_make(c->p, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(c->options->seq),
                          extent_of(l->rope_dim), &in[4]);
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const model_latent *l = &s->latent;
    const int32_t heads = (int32_t)s->heads, head = (int32_t)(l->nope_dim + l->rope_dim);
    const op_attrs attrs = {.heads = heads,
                            .kv_heads = heads,
                            .head_dim = head,
                            .value_dim = (int32_t)l->value_dim,
                            .scale = (float)(1.0 / sqrt((double)head))};
    const linear_spec projection = {.name = "attn.out",
                                    .rows = s->dim,
                                    .columns = s->heads * l->value_dim,
                                    .cut_dim = 1,
                                    .to_residual = true};
    tensor_id in[5], out[3], a = TENSOR_NONE, documents = TENSOR_NONE;
    TRY(latent_rows(c, x, in));
    TRY(op_latent(c->p, in, heads, head, (int32_t)l->value_dim, out));
    if (c->options->documents) {
        TRY(block_batch(c, "documents", extent_tokens(1), DTYPE_I32, &documents));
    }
    TRY(op_attention(c->p, out[0], out[1], out[2], documents, TENSOR_NONE, &attrs, &a));
    return block_linear(c, &projection, a, y);
}

const model_block model_block_latent = {.name = "latent", .emit = emit};
