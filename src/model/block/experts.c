// Experts: MLPs of which each token uses a few (Shazeer et al. 2017, arXiv:1701.06538; DeepSeek-AI
// 2024, arXiv:2401.06066). The matrices of all experts are one weight, expert after expert:
// mlp.experts.gate_up has the rows of the gate of expert 0, of its up, of the gate of expert 1 ...
//
//   x -> router -> ids, weights;  x, ids -> rows by expert -> gate_up -> scaled by weights -> down
//                                 -> summed = y
//   x -> the shared experts, which every token uses, as one wide MLP: added to y
#include "model/block/block.h"

static status gated(block_context *c, const op_permuted *p, tensor_id *a)
{
    const decoder_spec *s = c->spec;
    const int32_t count = (int32_t)s->experts.count;
    const int64_t width = s->experts.ffn_dim;
    tensor_id w = TENSOR_NONE, h = TENSOR_NONE;
    if (s->mlp != MODEL_MLP_SWIGLU) {
        TRY(block_experts(c, "mlp.experts.up", width, s->dim, 1, 0, &w));
        TRY(op_grouped_matmul(c->p, p->rows, w, p->offsets, count, &h));
        return op_activate(c->p, h, s->activation, a);
    }
    TRY(block_experts(c, "mlp.experts.gate_up", 2 * width, s->dim, 2, 0, &w));
    TRY(op_grouped_matmul(c->p, p->rows, w, p->offsets, count, &h));
    return block_gate(c, h, a);
}

// Emits the shared experts, which every token uses, as one wide MLP.
static status shared(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const int64_t width = s->experts.shared * s->experts.ffn_dim;
    const linear_spec gate_up = {.name = "mlp.shared.gate_up",
                                 .rows = 2 * width,
                                 .columns = s->dim,
                                 .part_count = 2,
                                 .parts = {{.name = "mlp.shared.gate", .rows = width},
                                           {.name = "mlp.shared.up", .rows = width}}};
    const linear_spec up = {
        .name = "mlp.shared.up", .rows = width, .columns = s->dim, .activation = s->activation};
    const linear_spec down = {.name = "mlp.shared.down",
                              .rows = s->dim,
                              .columns = width,
                              .cut_dim = 1,
                              .to_residual = true};
    tensor_id h = TENSOR_NONE, a = TENSOR_NONE;
    if (s->mlp == MODEL_MLP_SWIGLU) {
        TRY(block_linear(c, &gate_up, x, &h));
        TRY(block_gate(c, h, &a));
    } else {
        TRY(block_linear(c, &up, x, &a));
    }
    return block_linear(c, &down, a, y);
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const model_experts *e = &s->experts;
    const linear_spec router = {
        .name = "mlp.router", .rows = e->count, .columns = s->dim, .cut_dim = -1};
    tensor_id w = TENSOR_NONE, logits = TENSOR_NONE, ids = TENSOR_NONE, weights = TENSOR_NONE;
    tensor_id a = TENSOR_NONE, sum = TENSOR_NONE, d = TENSOR_NONE;
    op_permuted p;
    TRY(block_linear(c, &router, x, &logits));
    TRY(op_route(c->p, logits, (int32_t)e->top_k, !e->unscaled, &ids, &weights));
    TRY(op_permute(c->p, x, ids, weights, (int32_t)e->count, &p)); // (top_k tokens, dim)
    TRY(gated(c, &p, &a));                                         // (top_k tokens, ffn)
    TRY(op_scale_rows(c->p, a, p.scale, &a));
    TRY(block_experts(c, "mlp.experts.down", s->dim, e->ffn_dim, 1, 1, &w));
    block_residual_projection(c);
    TRY(op_grouped_matmul(c->p, a, w, p.offsets, (int32_t)e->count, &d));
    TRY(op_unpermute(c->p, d, p.row_of, TENSOR_NONE, y)); // (tokens, dim)
    if (e->shared > 0) {
        TRY(shared(c, x, &sum));
        TRY(op_add(c->p, *y, sum, y));
    }
    if (s->dropout_residual == 0.0f || c->options->purpose != PURPOSE_TRAIN) return ST_OK;
    return op_dropout(c->p, *y, s->dropout_residual, BLOCK_SITE_MLP, y);
}

const model_block model_block_experts = {.name = "experts", .emit = emit};
