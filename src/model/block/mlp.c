// The two MLP blocks: gated, y = (act(x Wg) * (x Wu)) Wd with SiLU or GELU (Shazeer 2020,
// arXiv:2002.05202), and plain, y = act(x Wu + bu) Wd + bd.
#include "model/block/block.h"

// The down projection into the residual stream, with bias and dropout if the spec has them.
static status down(block_context *c, tensor_id a, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const linear_spec down = {.name = "mlp.down",
                              .rows = s->dim,
                              .columns = s->ffn_dim,
                              .cut_dim = 1,
                              .bias = s->mlp_bias,
                              .to_residual = true};
    TRY(block_linear(c, &down, a, y));
    if (s->dropout_residual > 0.0f && c->options->purpose == PURPOSE_TRAIN) {
        TRY(op_dropout(c->p, *y, s->dropout_residual, BLOCK_SITE_MLP, y));
    }
    return ST_OK;
}

status block_gate(block_context *c, tensor_id h, tensor_id *a)
{
    const decoder_spec *s = c->spec;
    const op_activation activation = s->activation;
    if (s->gate_limit > 0.0f) return op_clamped_gate(c->p, h, s->gate_slope, s->gate_limit, a);
    return activation == ACT_SILU ? op_swiglu(c->p, h, a) : op_geglu(c->p, h, activation, a);
}

static status emit_swiglu(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const linear_spec gate_up = {.name = "mlp.gate_up",
                                 .rows = 2 * s->ffn_dim,
                                 .columns = s->dim,
                                 .bias = s->mlp_bias,
                                 .part_count = 2,
                                 .parts = {{.name = "mlp.gate", .rows = s->ffn_dim},
                                           {.name = "mlp.up", .rows = s->ffn_dim}}};
    tensor_id h = TENSOR_NONE, a = TENSOR_NONE;
    TRY(block_linear(c, &gate_up, x, &h)); // (tokens, 2 ffn)
    TRY(block_gate(c, h, &a));             // (tokens, ffn)
    return down(c, a, y);
}

static status emit_gelu(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const linear_spec up = {.name = "mlp.up",
                            .rows = s->ffn_dim,
                            .columns = s->dim,
                            .bias = s->mlp_bias,
                            .activation = s->activation};
    tensor_id a = TENSOR_NONE;
    TRY(block_linear(c, &up, x, &a)); // (tokens, ffn)
    return down(c, a, y);
}

const model_block model_block_mlp_swiglu = {.name = "mlp_swiglu", .emit = emit_swiglu};
const model_block model_block_mlp_gelu = {.name = "mlp_gelu", .emit = emit_gelu};
