// Experts: MLPs of which each token uses a few (Shazeer et al. 2017, arXiv:1701.06538; DeepSeek-AI
// 2024, arXiv:2401.06066). The matrices of all experts are one weight, expert after expert:
// mlp.experts.gate_up has the rows of the gate of expert 0, of its up, of the gate of expert 1 ...
//
//   x -> router -> ids, weights;  x, ids -> rows by expert -> gate_up -> scaled by weights -> down
//                                 -> summed = y
//   x -> the shared experts, which every token uses, as one wide MLP: added to y
#include "model/block/block.h"

#include <math.h>

static status gated(block_context *c, const op_permuted *p, tensor_id *a)
{
    const decoder_spec *s = c->spec;
    const int64_t width = s->experts.ffn_dim;
    tensor_id w = TENSOR_NONE, h = TENSOR_NONE;
    if (s->mlp != MODEL_MLP_SWIGLU) {
        TRY(block_experts(c, "mlp.experts.up", width, s->dim, 1, 0, &w));
        TRY(block_experts_linear(c, "mlp.experts.up", p->rows, w, p->offsets, &h));
        return op_activate(c->p, h, s->activation, a);
    }
    TRY(block_experts(c, "mlp.experts.gate_up", 2 * width, s->dim, 2, 0, &w));
    TRY(block_experts_linear(c, "mlp.experts.gate_up", p->rows, w, p->offsets, &h));
    if (s->experts.bias) {
        TRY(block_experts(c, "mlp.experts.gate_up.bias", 2 * width, 1, 2, 0, &w));
        block_bias(c);
        TRY(op_bias_rows(c->p, h, w, p->offsets, (int32_t)s->experts.count, &h));
    }
    return block_gate(c, h, a);
}

// Emits the shared experts, which every token uses, as one wide MLP.
static status shared(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const int64_t width = model_shared_width(&s->experts);
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
    TRY(block_linear(c, &down, a, y));
    if (!s->experts.shared_gate) return ST_OK;
    const linear_spec gate = {
        .name = "mlp.shared_gate", .rows = 1, .columns = s->dim, .cut_dim = -1};
    TRY(block_linear(c, &gate, x, &h));
    return op_gate_rows(c->p, *y, h, y);
}

static op_attrs route_attrs(const block_context *c)
{
    const model_experts *e = &c->spec->experts;
    const model_options *o = c->options;
    const bool is_counted = o->purpose == PURPOSE_TRAIN;
    return (op_attrs){.top_k = (int32_t)e->top_k,
                      .experts = (int32_t)e->count,
                      .normalize = !e->unscaled,
                      .sigmoid = e->sigmoid,
                      .groups = (int32_t)e->groups,
                      .top_groups = (int32_t)e->top_groups,
                      .group_pairs = e->group_pairs,
                      .scale = e->scale,
                      .aux_loss = o->moe_aux_loss,
                      .aux_micro = o->moe_aux_micro,
                      .aux_batch = o->moe_aux_batch,
                      .z_loss = o->moe_z_loss,
                      .load_layers = is_counted ? (int32_t)model_all_layers(c->spec) : 0};
}

// The bias is fp32: it moves by steps that narrower types would lose.
static status correction(block_context *c, tensor_id *bias)
{
    const model_experts *e = &c->spec->experts;
    if (!e->correction) return ST_OK;
    TRY(block_vector(c, "mlp.router.correction", e->count, INIT_ZEROS, -1, bias));
    block_fixed(c);
    block_fp32(c);
    c->weights[c->weight_count - 1].balanced =
        c->options->purpose == PURPOSE_TRAIN && c->options->router_bias_rate > 0.0f;
    return ST_OK;
}

// The router's logits are fp32 for every type of the model.
static status route(block_context *c, tensor_id x, const op_attrs *attrs, tensor_id *logits,
                    tensor_id *ids, tensor_id *weights)
{
    const model_experts *e = &c->spec->experts;
    const linear_spec router = {
        .name = "mlp.router", .rows = e->count, .columns = c->spec->dim, .cut_dim = -1};
    tensor_id w = TENSOR_NONE, bias = TENSOR_NONE;
    op_node node = op_node_of(OP_MATMUL);
    TRY(block_linear_weight(c, &router, &w));
    TRY(op_tensor_make(c->p, "router_logits", ROLE_ACTIVATION, DTYPE_F32, 2, extent_tokens(1),
                       extent_of(e->count), logits));
    if (e->bias) TRY(block_vector(c, "mlp.router.bias", e->count, INIT_ZEROS, -1, &node.in[2]));
    node.in[0] = x;
    node.in[1] = w;
    node.out[0] = *logits;
    TRY(op_append(c->p, OP_FORWARD, &node, 0));
    TRY(correction(c, &bias));
    return op_route_scored(c->p, *logits, bias, attrs, ids, weights);
}

// Drops the tokens of a sequence beyond what each of their experts takes, if there is a limit.
static status limit(block_context *c, tensor_id *ids)
{
    const model_experts *e = &c->spec->experts;
    const double share = (double)(c->options->seq * e->top_k) / (double)e->count;
    const double most = ceil(c->options->expert_capacity * share);
    if (c->options->purpose != PURPOSE_TRAIN || c->options->expert_capacity <= 0.0) return ST_OK;
    const int64_t rows = most < (double)c->options->seq ? (int64_t)most : c->options->seq;
    return op_limit_rows(c->p, *ids, (int32_t)e->count, c->options->seq, rows, ids);
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const model_experts *e = &s->experts;
    const op_attrs attrs = route_attrs(c);
    tensor_id w = TENSOR_NONE, ids = TENSOR_NONE, weights = TENSOR_NONE;
    tensor_id logits = TENSOR_NONE, kept = TENSOR_NONE;
    tensor_id a = TENSOR_NONE, sum = TENSOR_NONE, d = TENSOR_NONE;
    op_permuted p;
    TRY(route(c, x, &attrs, &logits, &ids, &weights));
    kept = ids;
    TRY(limit(c, &kept));
    if (attrs.load_layers > 0) {
        const bool has_losses = attrs.aux_loss > 0.0f || attrs.z_loss > 0.0f;
        TRY(op_step_routes(c->p, ids, kept != ids ? kept : TENSOR_NONE,
                           has_losses ? logits : TENSOR_NONE, &attrs));
    }
    TRY(op_permute(c->p, x, kept, weights, (int32_t)e->count, &p)); // (top_k tokens, dim)
    TRY(gated(c, &p, &a));                                          // (top_k tokens, ffn)
    TRY(op_scale_rows(c->p, a, p.scale, &a));
    TRY(block_experts(c, "mlp.experts.down", s->dim, e->ffn_dim, 1, 1, &w));
    block_residual_projection(c);
    TRY(block_experts_linear(c, "mlp.experts.down", a, w, p.offsets, &d));
    TRY(op_unpermute(c->p, d, p.row_of, TENSOR_NONE, y)); // (tokens, dim)
    if (e->bias) {
        const op_chosen chosen = {kept, weights};
        TRY(block_matrix(c, "mlp.experts.down.bias", e->count, s->dim, -1, &w));
        block_bias(c);
        TRY(op_bias_tokens(c->p, *y, &chosen, w, y));
    }
    if (model_shared_width(e) > 0) {
        TRY(shared(c, x, &sum));
        TRY(op_add(c->p, *y, sum, y));
    }
    if (s->dropout_residual == 0.0f || c->options->purpose != PURPOSE_TRAIN) return ST_OK;
    return op_dropout(c->p, *y, s->dropout_residual, BLOCK_SITE_MLP, y);
}

const model_block model_block_experts = {.name = "experts", .emit = emit};
