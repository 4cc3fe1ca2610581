// The functions that blocks call: one per forward operation, which makes the node and appends it.
//
// Differences between training and the other purposes are decided here, so that a block states the
// computation once: training separates activations from GEMMs (their gradients need the values
// before), other purposes fuse them; only training drops.
#include "op/op_internal.h"

#include <string.h>

#include <math.h>

status op_embedding(op_program *p, tensor_id ids, tensor_id table, tensor_id positions,
                    tensor_id position_table, tensor_id *x)
{
    return op_embedding_skip(p, (const tensor_id[4]){ids, table, positions, position_table}, -1, x);
}

status op_embedding_skip(op_program *p, const tensor_id in[4], int32_t skipped, tensor_id *x)
{
    op_node node = op_node_of(OP_EMBEDDING);
    for (int i = 0; i < 4; i++) node.in[i] = in[i];
    node.attrs.skipped = skipped + 1;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *x = node.out[0];
    return ST_OK;
}

status op_matmul(op_program *p, tensor_id x, tensor_id w, tensor_id bias, op_activation activation,
                 tensor_id *y)
{
    const tensor_id in[4] = {x, w, bias, TENSOR_NONE};
    return op_matmul_scaled(p, in, activation, y);
}

// Factors of whole operands come from a history.
static void fp8_set(const op_program *p, tensor_id history, op_node *node)
{
    const bool has_factors = p->fp8 != FP8_TENSOR || history != TENSOR_NONE;
    node->attrs.fp8 = has_factors ? p->fp8 : FP8_NONE;
    node->attrs.fp8_margin = node->attrs.fp8 == FP8_TENSOR ? p->fp8_margin : 0;
}

status op_matmul_scaled(op_program *p, const tensor_id in[4], op_activation activation,
                        tensor_id *y)
{
    const bool apart = (p->purpose == PURPOSE_TRAIN || p->as_training) && activation != ACT_NONE;
    op_node node = op_node_of(OP_MATMUL);
    for (int i = 0; i < 4; i++) node.in[i] = in[i];
    fp8_set(p, in[3], &node);
    node.attrs.activation = apart ? ACT_NONE : activation;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    if (apart) return op_activate(p, node.out[0], activation, y);
    *y = node.out[0];
    return ST_OK;
}

status op_add(op_program *p, tensor_id a, tensor_id b, tensor_id *y)
{
    op_node node = op_node_of(OP_ADD);
    node.in[0] = a;
    node.in[1] = b;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_rmsnorm(op_program *p, tensor_id x, tensor_id w, tensor_id delta, float eps, float plus,
                  tensor_id *y, tensor_id *h)
{
    op_node node = op_node_of(OP_RMSNORM);
    node.in[0] = x;
    node.in[1] = w;
    node.in[2] = delta;
    node.attrs.eps = eps;
    node.attrs.plus = plus;
    TRY(op_append(p, OP_FORWARD, &node, delta == TENSOR_NONE ? 0 : 1u << 2));
    *y = node.out[0];
    if (h != NULL) *h = delta == TENSOR_NONE ? x : node.out[2];
    return ST_OK;
}

status op_layernorm(op_program *p, tensor_id x, tensor_id w, tensor_id b, tensor_id delta,
                    float eps, tensor_id *y, tensor_id *h)
{
    op_node node = op_node_of(OP_LAYERNORM);
    node.in[0] = x;
    node.in[1] = w;
    node.in[2] = b;
    node.in[3] = delta;
    node.attrs.eps = eps;
    TRY(op_append(p, OP_FORWARD, &node, delta == TENSOR_NONE ? 0 : 1u << 3));
    *y = node.out[0];
    if (h != NULL) *h = delta == TENSOR_NONE ? x : node.out[3];
    return ST_OK;
}

status op_rope(op_program *p, tensor_id x, tensor_id positions, tensor_id table, int32_t heads,
               int32_t head_dim, bool interleaved, tensor_id *y)
{
    op_node node = op_node_of(OP_ROPE);
    node.in[0] = x;
    node.in[1] = positions;
    node.in[2] = table;
    node.attrs.heads = heads;
    node.attrs.head_dim = head_dim;
    node.attrs.interleaved = interleaved;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_attention(op_program *p, tensor_id q, tensor_id k, tensor_id v, tensor_id documents,
                    tensor_id lengths, const op_attrs *attrs, tensor_id *y)
{
    const tensor_id in[7] = {q, k, v, documents, lengths, TENSOR_NONE, TENSOR_NONE};
    return op_attention_sinks(p, in, attrs, y);
}

status op_attention_sinks(op_program *p, const tensor_id in[7], const op_attrs *attrs, tensor_id *y)
{
    op_node node = op_node_of(OP_ATTENTION);
    for (int i = 0; i < 7; i++) node.in[i] = in[i];
    node.attrs.heads = attrs->heads;
    node.attrs.kv_heads = attrs->kv_heads;
    node.attrs.head_dim = attrs->head_dim;
    node.attrs.value_dim = attrs->value_dim;
    node.attrs.window = attrs->window;
    node.attrs.scale = attrs->scale;
    node.attrs.cap = attrs->cap;
    node.attrs.in_tiles = attrs->in_tiles;
    node.attrs.page = attrs->page;
    if (attrs->scale == 0.0f && attrs->head_dim > 0) {
        node.attrs.scale = (float)(1.0 / sqrt((double)attrs->head_dim));
    }
    if (p->purpose == PURPOSE_TRAIN) {
        node.attrs.dropout = attrs->dropout;
        node.attrs.site = attrs->site;
    }
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_cache_append(op_program *p, tensor_id x, tensor_id lengths, tensor_id pages, int32_t page,
                       tensor_id cache)
{
    op_node node = op_node_of(OP_CACHE_APPEND);
    node.in[0] = x;
    node.in[1] = lengths;
    node.in[2] = pages;
    node.attrs.page = page;
    node.out[0] = cache;
    return op_append(p, OP_FORWARD, &node, 0);
}

status op_swiglu(op_program *p, tensor_id h, tensor_id *a)
{
    op_node node = op_node_of(OP_SWIGLU);
    node.in[0] = h;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *a = node.out[0];
    return ST_OK;
}

status op_activate(op_program *p, tensor_id x, op_activation activation, tensor_id *y)
{
    *y = x;
    if (activation == ACT_NONE) return ST_OK;
    op_node node = op_node_of(OP_ACTIVATION);
    node.in[0] = x;
    node.attrs.activation = activation;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_dropout(op_program *p, tensor_id x, float probability, int32_t site, tensor_id *y)
{
    *y = x;
    if (probability == 0.0f || p->purpose != PURPOSE_TRAIN) return ST_OK;
    op_node node = op_node_of(OP_DROPOUT);
    node.in[0] = x;
    node.attrs.dropout = probability;
    node.attrs.site = site;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

static op_list loss_list(const op_program *p)
{
    return p->purpose == PURPOSE_TRAIN ? OP_BACKWARD_WEIGHT : OP_FORWARD;
}

static op_node head_node(tensor_id x, tensor_id w, tensor_id labels, const op_head_options *options)
{
    op_node node = op_node_of(options->scores ? OP_SCORE : OP_HEAD_LOSS);
    node.in[0] = x;
    node.in[1] = w;
    node.in[2] = labels;
    if (options->scores) return node;
    node.attrs.z_loss = options->z_loss;
    node.attrs.cap = options->cap;
    node.attrs.loss_weight = options->weight;
    return node;
}

static status head_push(op_program *p, op_node *node, tensor_id *token_loss)
{
    const tensor_id x = node->in[0], w = node->in[1];
    if (p->purpose == PURPOSE_TRAIN) {
        if (op_wants_grad(p, x)) TRY(op_grad_new(p, x, &node->out[1]));
        if (op_trains(p, w)) TRY(op_grad_weight(p, w, &node->out[2]));
    }
    TRY(op_append(p, loss_list(p), node, 0));
    if (node->out[1] != TENSOR_NONE) TRY(op_grad_add(p, x, node->out[1]));
    *token_loss = node->out[0];
    return ST_OK;
}

status op_head_loss(op_program *p, tensor_id x, tensor_id w, tensor_id labels,
                    const op_head_options *options, tensor_id *token_loss)
{
    op_node node = head_node(x, w, labels, options);
    return head_push(p, &node, token_loss);
}

status op_head_objective(op_program *p, const tensor_id in[5], const op_head_options *options,
                         const op_objective_attrs *objective, op_objective_rows *out)
{
    tensor_id again = TENSOR_NONE;
    op_node head = head_node(in[0], in[1], in[2], options), node = op_node_of(OP_OBJECTIVE);
    TRY(op_append(p, OP_FORWARD, &head, 0));
    node.in[0] = head.out[0];
    node.in[1] = in[3];
    node.in[2] = in[4];
    node.attrs.objective = *objective;
    TRY(op_append(p, OP_FORWARD, &node, p->purpose == PURPOSE_TRAIN ? 1u << 3 : 0));
    *out = (op_objective_rows){
        .token_losses = head.out[0], .losses = node.out[0], .units = node.out[1]};
    if (p->purpose != PURPOSE_TRAIN) return ST_OK;
    op_node slopes = head_node(in[0], in[1], in[2], options);
    slopes.in[options->scores ? 3 : 4] = node.out[3];
    return head_push(p, &slopes, &again);
}

status op_step_loss(op_program *p, tensor_id token_loss, tensor_id labels)
{
    op_node node = op_node_of(OP_STEP_LOSS);
    node.in[0] = token_loss;
    node.in[1] = labels;
    return op_append(p, loss_list(p), &node, 0);
}

status op_gather(op_program *p, tensor_id x, tensor_id rows, tensor_id *y)
{
    op_node node = op_node_of(OP_GATHER);
    node.in[0] = x;
    node.in[1] = rows;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_sample_ids(op_program *p, tensor_id logits, tensor_id params, tensor_id draws,
                     tensor_id *ids)
{
    op_node node = op_node_of(OP_SAMPLE);
    node.in[0] = logits;
    node.in[1] = params;
    node.in[2] = draws;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *ids = node.out[0];
    return ST_OK;
}

status op_cast(op_program *p, tensor_id x, dtype type, tensor_id *y)
{
    const op_tensor *t = op_at(p, x);
    const int ndim = t->ndim;
    const extent rows = t->dims[0], columns = t->dims[1];
    char name[OP_NAME_BYTES];
    op_name_unique(p, "", "cast.y", name);
    op_node node = op_node_of(OP_CAST);
    node.in[0] = x;
    TRY(op_tensor_make(p, name, ROLE_ACTIVATION, type, ndim, rows, columns, &node.out[0]));
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

// ---- experts, latent attention ------------------------------------------------------------------

status op_latent(op_program *p, const tensor_id in[5], const op_attrs *attrs, tensor_id out[3])
{
    op_node node = op_node_of(OP_LATENT);
    for (int i = 0; i < 5; i++) node.in[i] = in[i];
    node.attrs.heads = node.attrs.kv_heads = attrs->heads;
    node.attrs.head_dim = attrs->head_dim;
    node.attrs.value_dim = attrs->value_dim;
    node.attrs.interleaved = attrs->interleaved;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    for (int o = 0; o < 3; o++) out[o] = node.out[o];
    return ST_OK;
}

status op_route(op_program *p, tensor_id logits, int32_t top_k, bool normalize, tensor_id *ids,
                tensor_id *weights)
{
    const op_attrs attrs = {.top_k = top_k, .normalize = normalize};
    return op_route_scored(p, logits, TENSOR_NONE, &attrs, ids, weights);
}

status op_route_scored(op_program *p, tensor_id logits, tensor_id bias, const op_attrs *attrs,
                       tensor_id *ids, tensor_id *weights)
{
    op_node node = op_node_of(OP_ROUTE);
    node.in[0] = logits;
    node.in[1] = bias;
    node.attrs = *attrs;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *ids = node.out[0];
    *weights = node.out[1];
    return ST_OK;
}

status op_gate_rows(op_program *p, tensor_id x, tensor_id gate, tensor_id *y)
{
    op_node node = op_node_of(OP_GATE_ROWS);
    node.in[0] = x;
    node.in[1] = gate;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_limit_rows(op_program *p, tensor_id ids, int32_t experts, int64_t seq, int64_t rows,
                     tensor_id *kept)
{
    op_node node = op_node_of(OP_LIMIT_ROWS);
    node.in[0] = ids;
    node.attrs.experts = experts;
    node.attrs.limit = rows;
    node.attrs.limit_seq = seq;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *kept = node.out[0];
    return ST_OK;
}

status op_step_routes(op_program *p, tensor_id ids, tensor_id kept, tensor_id logits,
                      const op_attrs *attrs)
{
    op_node node = op_node_of(OP_STEP_ROUTES);
    node.in[0] = ids;
    node.in[1] = kept;
    node.in[2] = logits;
    node.attrs = *attrs;
    return op_append(p, OP_FORWARD, &node, 0);
}

status op_permute(op_program *p, tensor_id x, tensor_id ids, tensor_id weights, int32_t experts,
                  op_permuted *out)
{
    op_node node = op_node_of(OP_PERMUTE);
    node.in[0] = x;
    node.in[1] = ids;
    node.in[2] = weights;
    node.attrs.experts = experts;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *out = (op_permuted){node.out[0], node.out[1], node.out[2], node.out[3]};
    return ST_OK;
}

status op_unpermute(op_program *p, tensor_id rows, tensor_id row_of, tensor_id weights,
                    tensor_id *y)
{
    op_node node = op_node_of(OP_UNPERMUTE);
    node.in[0] = rows;
    node.in[1] = row_of;
    node.in[2] = weights;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_grouped_matmul(op_program *p, tensor_id x, tensor_id w, tensor_id offsets,
                         int32_t experts, tensor_id *y)
{
    return op_grouped_matmul_scaled(p, (const tensor_id[4]){x, w, offsets, TENSOR_NONE}, experts,
                                    y);
}

status op_grouped_matmul_scaled(op_program *p, const tensor_id in[4], int32_t experts, tensor_id *y)
{
    op_node node = op_node_of(OP_GROUPED_MATMUL);
    for (int i = 0; i < 4; i++) node.in[i] = in[i];
    node.attrs.experts = experts;
    fp8_set(p, in[3], &node);
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

status op_scale_rows(op_program *p, tensor_id x, tensor_id scale, tensor_id *y)
{
    op_node node = op_node_of(OP_SCALE_ROWS);
    node.in[0] = x;
    node.in[1] = scale;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
