// Token embedding, and GPT-2's learned positions, at the bottom of a model: it has no input, and *y
// is the residual stream (tokens, dim). The table lookup is not a GEMM; if tied, the table is the
// head's matrix too.
#include "model/block/block.h"

static status emit(block_context *c, tensor_id x, tensor_id *y)
{
    (void)x;
    const decoder_spec *s = c->spec;
    tensor_id ids = TENSOR_NONE, table = TENSOR_NONE;
    tensor_id positions = TENSOR_NONE, position_table = TENSOR_NONE;
    TRY(block_batch(c, "ids", extent_tokens(1), DTYPE_I32, &ids));
    TRY(block_matrix(c, "embed.tokens", s->vocab, s->dim, c->options->whole_vocabulary ? -1 : 0,
                     &table));
    c->weights[c->weight_count - 1].in_gemm = s->tied && s->scores == MODEL_WRITES;
    c->weights[c->weight_count - 1].is_matrix = false;
    if (s->position == MODEL_POSITION_LEARNED) {
        TRY(block_batch(c, "positions", extent_tokens(1), DTYPE_I32, &positions));
        TRY(block_matrix(c, "embed.positions", s->context, s->dim, -1, &position_table));
        c->weights[c->weight_count - 1].in_gemm = false;
        c->weights[c->weight_count - 1].is_matrix = false;
    }
    tensor_id h = TENSOR_NONE;
    const tensor_id in[4] = {ids, table, positions, position_table};
    TRY(op_embedding_skip(c->p, in, s->pad_token, &h));
    if (s->embed_scale > 0.0f) {
        // In a model of narrower activations the factor is one of their type, as in the models that
        // have it.
        float rounded = 0.0f;
        dtype_store(c->options->compute, &rounded, 0, (double)s->embed_scale);
        TRY(op_scale(c->p, h, (float)dtype_load(c->options->compute, &rounded, 0), &h));
    }
    if (s->dropout_embedding > 0.0f && c->options->purpose == PURPOSE_TRAIN) {
        TRY(op_dropout(c->p, h, s->dropout_embedding, 0, &h));
    }
    *y = h;
    return ST_OK;
}

const model_block model_block_embedding = {.name = "embedding", .emit = emit};
