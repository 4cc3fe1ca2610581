// The two feed-forward blocks: gated, y = (silu(x Wg) * (x Wu)) Wd (Shazeer 2020, arXiv:2002.05202),
// and plain, y = act(x Wu + bu) Wd + bd.
#include "model/block/block.h"

enum { SITE_MLP = 2 };

// Down to the residual stream, with bias and dropout where the spec has them.
static status down(block_context *c, tensor_id a, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE;
    TRY(block_matrix(c, "mlp.down", s->dim, s->ffn_dim, 1, &w));
    block_residual_projection(c);
    if (s->mlp_bias) TRY(block_vector(c, "mlp.down.bias", s->dim, INIT_ZEROS, -1, &b));
    TRY(op_matmul(c->p, a, w, b, ACT_NONE, y));
    if (s->dropout_residual > 0.0f && c->options->purpose == PURPOSE_TRAIN) {
        TRY(op_dropout(c->p, *y, s->dropout_residual, SITE_MLP, y));
    }
    return ST_OK;
}

static status emit_swiglu(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const char *const weights[] = {"mlp.gate", "mlp.up"};
    const char *const biases[] = {"mlp.gate.bias", "mlp.up.bias"};
    const int64_t parts[] = {s->ffn_dim, s->ffn_dim};
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE, h = TENSOR_NONE, a = TENSOR_NONE;
    TRY(block_matrix(c, "mlp.gate_up", 2 * s->ffn_dim, s->dim, 0, &w));
    block_parts(c, 2, weights, parts);
    if (s->mlp_bias) {
        TRY(block_vector(c, "mlp.gate_up.bias", 2 * s->ffn_dim, INIT_ZEROS, 0, &b));
        block_parts(c, 2, biases, parts);
    }
    TRY(op_matmul(c->p, x, w, b, ACT_NONE, &h)); // (tokens, 2 ffn)
    TRY(op_swiglu(c->p, h, &a));                 // (tokens, ffn)
    return down(c, a, y);
}

static status emit_gelu(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE, a = TENSOR_NONE;
    TRY(block_matrix(c, "mlp.up", s->ffn_dim, s->dim, 0, &w));
    if (s->mlp_bias) TRY(block_vector(c, "mlp.up.bias", s->ffn_dim, INIT_ZEROS, 0, &b));
    TRY(op_matmul(c->p, x, w, b, s->activation, &a)); // (tokens, ffn)
    return down(c, a, y);
}

const model_block model_block_mlp_swiglu = {.name = "mlp_swiglu", .emit = emit_swiglu};
const model_block model_block_mlp_gelu = {.name = "mlp_gelu", .emit = emit_gelu};
