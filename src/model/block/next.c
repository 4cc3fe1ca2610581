// The layer that predicts the token after the next, on top of a model in training (DeepSeek-AI
// 2024, arXiv:2412.19437, section 2.2). A row of it joins what the model says at a position with
// the embedding of the token that follows there; then it is a decoder layer like the last, and its
// rows go through the model's own head.
//
//   h -> the model's last norm = y -> hnorm --+
//   the next token -> embedding -> enorm -----+-> (tokens, 2 dim) -> eh_proj -> decoder layer
//                                                                    -> norm -> head, labels of
//                                                                       the position after
//
// Its projection reads the embedding first, as in published files (num_nextn_predict_layers).
#include "model/block/block.h"

// Copies x to columns of `joined` that begin at `begin`.
static status columns_put(block_context *c, tensor_id x, tensor_id joined, int64_t begin,
                          const char *name)
{
    op_node copy = op_node_of(OP_CAST);
    copy.in[0] = x;
    TRY(op_view(c->p, joined, name, begin, c->spec->dim, &copy.out[0]));
    return op_append(c->p, OP_FORWARD, &copy, 0);
}

static status embedding(block_context *c, tensor_id *e)
{
    const decoder_spec *s = c->spec;
    tensor_id in[4] = {TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE};
    TRY(block_batch(c, "next_ids", extent_tokens(1), DTYPE_I32, &in[0]));
    TRY(block_matrix(c, "embed.tokens", s->vocab, s->dim, 0, &in[1]));
    TRY(block_shared(c, "embed.tokens"));
    return op_embedding_skip(c->p, in, s->pad_token, e);
}

// x: y, the rows that the model's head reads. *y: the input of the decoder layer.
static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    const decoder_spec *s = c->spec;
    const linear_spec projection = {
        .name = "eh_proj", .rows = s->dim, .columns = 2 * s->dim, .cut_dim = -1};
    tensor_id e = TENSOR_NONE, same = TENSOR_NONE, rows[2], joined = TENSOR_NONE;
    TRY(embedding(c, &e));
    TRY(block_norm(c, "enorm", e, TENSOR_NONE, &rows[0], &same));
    TRY(block_norm(c, "hnorm", x, TENSOR_NONE, &rows[1], &same));
    TRY(op_tensor_make(c->p, "joined", ROLE_ACTIVATION, c->options->compute, 2, extent_tokens(1),
                       extent_of(2 * s->dim), &joined));
    TRY(columns_put(c, rows[0], joined, 0, "joined.e"));
    TRY(columns_put(c, rows[1], joined, s->dim, "joined.h"));
    return block_linear(c, &projection, joined, y);
}

const model_block model_block_next = {.name = "next", .emit = emit};
