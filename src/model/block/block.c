// What all blocks use: weights, norms and batch tensors by name.
#include "model/block/block.h"

#include <math.h>
#include <string.h>

static const model_block *const table[] = {
    &model_block_embedding, &model_block_attention, &model_block_mlp_gelu, &model_block_mlp_swiglu,
    &model_block_head,      &model_block_experts,   &model_block_latent,
};

const model_block *model_block_at(int64_t index)
{
    return index >= 0 && index < COUNT_OF(table) ? table[index] : NULL;
}

static status weight_add(block_context *c, const block_weight *w, tensor_id *out)
{
    if (c->weight_count == BLOCK_MAX_WEIGHTS) {
        return fail(ST_INTERNAL, "a layer has more than %d weights", BLOCK_MAX_WEIGHTS);
    }
    TRY(op_tensor_make(c->p, w->name, ROLE_WEIGHT, c->options->compute, w->ndim, extent_of(w->rows),
                       extent_of(w->ndim == 1 ? 0 : w->columns), out));
    memcpy(c->p->tensors[*out].cut_dim, w->cut_dim, sizeof(w->cut_dim));
    c->weights[c->weight_count] = *w;
    c->weight_ids[c->weight_count++] = *out;
    return ST_OK;
}

static void cut_by_tp(block_weight *w, int cut_dim)
{
    memset(w->cut_dim, -1, sizeof(w->cut_dim));
    w->cut_dim[AXIS_TP] = (int8_t)cut_dim;
}

status block_matrix(block_context *c, const char *name, int64_t rows, int64_t columns, int cut_dim,
                    tensor_id *out)
{
    block_weight w = {.name = name,
                      .ndim = 2,
                      .rows = rows,
                      .columns = columns,
                      .init = INIT_NORMAL,
                      .init_std = c->spec->init_std,
                      .is_product = true,
                      .is_matrix = true};
    cut_by_tp(&w, cut_dim);
    return weight_add(c, &w, out);
}

status block_vector(block_context *c, const char *name, int64_t rows, weight_init init, int cut_dim,
                    tensor_id *out)
{
    block_weight w = {.name = name, .ndim = 1, .rows = rows, .columns = 1, .init = init};
    cut_by_tp(&w, cut_dim);
    return weight_add(c, &w, out);
}

void block_parts(block_context *c, int count, const char *const *names, const int64_t *rows)
{
    ASSERT(c->weight_count > 0 && count <= 4);
    block_weight *w = &c->weights[c->weight_count - 1];
    op_tensor *t = &c->p->tensors[c->weight_ids[c->weight_count - 1]];
    int64_t sum = 0;
    w->part_count = t->part_count = count;
    for (int i = 0; i < count; i++) {
        w->parts[i].name = t->parts[i].name = names[i];
        w->parts[i].rows = t->parts[i].rows = rows[i];
        sum += rows[i];
    }
    ASSERT(sum == w->rows);
}

void block_heads(block_context *c, const int64_t *heads)
{
    block_weight *w = &c->weights[c->weight_count - 1];
    op_tensor *t = &c->p->tensors[c->weight_ids[c->weight_count - 1]];
    for (int i = 0; i < w->part_count; i++) {
        ASSERT(w->parts[i].rows % heads[i] == 0);
        w->parts[i].heads = t->parts[i].heads = heads[i];
    }
}

void block_residual_projection(block_context *c)
{
    ASSERT(c->weight_count > 0);
    c->weights[c->weight_count - 1].init_std =
        c->spec->init_std / (float)sqrt(2.0 * (double)c->spec->layers);
}

static const char *joined(block_context *c, const char *a, const char *b)
{
    char *out = NULL;
    return arena_format(c->p->a, &out, "%s.%s", a, b) == ST_OK ? out : NULL;
}

status block_norm(block_context *c, const char *name, tensor_id x, tensor_id delta, tensor_id *y,
                  tensor_id *h)
{
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE;
    const char *weight_name = joined(c, name, "weight"), *bias_name = joined(c, name, "bias");
    if (weight_name == NULL || bias_name == NULL) return fail(ST_NO_MEMORY, "no memory for names");
    TRY(block_vector(c, weight_name, c->spec->dim, INIT_ONES, -1, &w));
    if (c->spec->norm == MODEL_RMSNORM) {
        return op_rmsnorm(c->p, x, w, delta, c->spec->norm_eps, 0.0f, y, h);
    }
    if (c->spec->norm_bias) TRY(block_vector(c, bias_name, c->spec->dim, INIT_ZEROS, -1, &b));
    return op_layernorm(c->p, x, w, b, delta, c->spec->norm_eps, y, h);
}

status block_batch(block_context *c, const char *name, extent rows, dtype type, tensor_id *out)
{
    for (tensor_id t = 0; t < c->p->tensor_count; t++) {
        if (c->p->tensors[t].role == ROLE_BATCH && strcmp(c->p->tensors[t].name, name) == 0) {
            *out = t;
            return ST_OK;
        }
    }
    return op_tensor_make(c->p, name, ROLE_BATCH, type, 1, rows, extent_of(0), out);
}

bool block_is_cached(const block_context *c)
{
    return c->options->purpose == PURPOSE_PREFILL || c->options->purpose == PURPOSE_DECODE;
}
