// The top of a model: final norm, then the output that the purpose needs.
//
//   train     loss, its gradient and the matrix's gradient, in one operation (op.h, HEAD_LOSS), or
//             in two passes of it with OBJECTIVE between them
//   evaluate  the loss (and all logits, for `check` to compare)
//   prefill, decode   logits of each sequence's last row, and the token sampled from them
//
// A reward model has one row of weights in place of the matrix, and SCORE in place of HEAD_LOSS.
//
// x is the residual stream; there is no *y.
#include "model/block/block.h"

// Logits are fp32 for every type of the model.
static status logits(block_context *c, tensor_id x, tensor_id w, extent rows, tensor_id *out)
{
    op_node node = op_node_of(OP_MATMUL);
    TRY(op_tensor_make(c->p, "logits", ROLE_ACTIVATION, DTYPE_F32, 2, rows,
                       extent_of(c->spec->vocab), out));
    node.in[0] = x;
    node.in[1] = w;
    node.out[0] = *out;
    TRY(op_append(c->p, OP_FORWARD, &node, 0));
    return c->spec->logit_cap > 0.0f ? op_soft_cap(c->p, *out, c->spec->logit_cap, out) : ST_OK;
}

static status draw(block_context *c, tensor_id y, tensor_id w)
{
    const extent seqs = {.scale = 1, .symbol = EXTENT_SEQS};
    tensor_id rows = TENSOR_NONE, last = TENSOR_NONE, all = TENSOR_NONE, ids = TENSOR_NONE;
    tensor_id params = TENSOR_NONE, draws = TENSOR_NONE, losses = TENSOR_NONE;
    TRY(block_batch(c, "rows", seqs, DTYPE_I32, &rows));
    TRY(op_tensor_make(c->p, "params", ROLE_BATCH, DTYPE_F32, 2, seqs, extent_of(8), &params));
    TRY(block_batch(c, "draws", seqs, DTYPE_I64, &draws));
    TRY(op_gather(c->p, y, rows, &last));
    TRY(logits(c, last, w, seqs, &all));
    TRY(op_sample_ids(c->p, all, params, draws, &ids));
    TRY(op_output(c->p, ids));
    if (!c->options->as_training) return op_output(c->p, all);
    const op_head_options head = {.cap = c->spec->logit_cap};
    TRY(op_head_loss(c->p, last, w, ids, &head, &losses));
    return op_output(c->p, losses);
}

// A loss of pairs or groups of documents.
static status objective(block_context *c, tensor_id x, tensor_id w, tensor_id labels)
{
    const op_head_options head = {.cap = c->spec->logit_cap,
                                  .scores = c->spec->scores != MODEL_WRITES};
    tensor_id in[5] = {x, w, labels, TENSOR_NONE, TENSOR_NONE};
    op_objective_rows rows;
    TRY(block_batch(c, "documents", extent_tokens(1), DTYPE_I32, &in[3]));
    TRY(op_tensor_make(c->p, "given", ROLE_BATCH, DTYPE_F32, 2, extent_tokens(1),
                       extent_of(GIVEN_COLUMNS), &in[4]));
    TRY(op_head_objective(c->p, in, &head, &c->options->objective, &rows));
    return op_step_loss(c->p, rows.losses, rows.units);
}

// The weights of the head: (vocabulary, dim), or one row.
static status matrix(block_context *c, tensor_id *w)
{
    const decoder_spec *s = c->spec;
    const bool scores = s->scores != MODEL_WRITES;
    const int cut = c->options->whole_vocabulary ? -1 : 0;
    TRY(scores ? block_matrix(c, "score", 1, s->dim, -1, w)
               : block_matrix(c, "head", s->vocab, s->dim, cut, w));
    block_weight *made = &c->weights[c->weight_count - 1];
    made->is_matrix = false;
    if (scores && s->adapter.rank > 0) { // the adapter's folder holds the trained row
        made->adapter = true;
        TRY(model_freeze_weight(c, c->prefix, made, &c->p->tensors[*w].frozen));
    }
    return s->tied && !scores ? block_shared(c, "embed.tokens") : ST_OK;
}

// In a model that has a layer above the last norm, that layer declares the norm.
static status norm(block_context *c, tensor_id x, tensor_id *y)
{
    tensor_id h = TENSOR_NONE;
    *y = x;
    if (c->next != TENSOR_NONE) return ST_OK;
    TRY(block_norm(c, "norm", x, TENSOR_NONE, y, &h));
    return c->spec->next_layers > 0 ? block_shared(c, "norm.weight") : ST_OK;
}

// The loss of the token after the next. It trains, but is no part of the reported loss. It comes
// before that, because the layer below still needs the rows of the other (model/block/next.c).
static status next_loss(block_context *c, tensor_id w)
{
    const float given = c->options->next_loss;
    const op_head_options head = {.cap = c->spec->logit_cap, .weight = given > 0.0f ? given : 0.3f};
    tensor_id labels = TENSOR_NONE, losses = TENSOR_NONE;
    TRY(block_batch(c, "next_labels", extent_tokens(1), DTYPE_I32, &labels));
    return op_head_loss(c->p, c->next, w, labels, &head, &losses);
}

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    tensor_id normed = TENSOR_NONE, w = TENSOR_NONE, labels = TENSOR_NONE;
    tensor_id losses = TENSOR_NONE, all = TENSOR_NONE;
    *y = TENSOR_NONE;
    TRY(norm(c, x, &normed));
    TRY(matrix(c, &w));
    if (block_is_cached(c)) return draw(c, normed, w);
    if (c->options->logits && c->options->purpose == PURPOSE_EVALUATE) {
        TRY(logits(c, normed, w, extent_tokens(1), &all));
        TRY(op_output(c->p, all));
    }
    TRY(block_batch(c, "labels", extent_tokens(1), DTYPE_I32, &labels));
    if (c->options->objective.kind != OBJECTIVE_NONE) return objective(c, normed, w, labels);
    const op_head_options head = {
        .z_loss = c->options->z_loss, .cap = s->logit_cap, .scores = s->scores != MODEL_WRITES};
    if (c->next != TENSOR_NONE) TRY(next_loss(c, w));
    TRY(op_head_loss(c->p, normed, w, labels, &head, &losses));
    if (c->options->losses && c->options->purpose == PURPOSE_EVALUATE) {
        TRY(op_output(c->p, losses));
    }
    return op_step_loss(c->p, losses, labels);
}

const model_block model_block_head = {.name = "head", .emit = emit};
