// Helpers for all blocks: weights, norms and batch tensors by name.
#include "model/block/block.h"

#include <math.h>
#include <string.h>

static const model_block *const table[] = {
    &model_block_embedding, &model_block_attention, &model_block_mlp_gelu, &model_block_mlp_swiglu,
    &model_block_head,      &model_block_experts,   &model_block_latent,   &model_block_next,
};

const model_block *model_block_at(int64_t index)
{
    return index >= 0 && index < COUNT_OF(table) ? table[index] : NULL;
}

static const char *joined(block_context *c, const char *a, const char *b)
{
    char *out = NULL;
    return arena_format(c->p->a, &out, "%s.%s", a, b) == ST_OK ? out : NULL;
}

// Marks the last declared weight as frozen if the names known so far match a pattern.
static status freeze(block_context *c)
{
    const block_weight *w = &c->weights[c->weight_count - 1];
    op_tensor *t = &c->p->tensors[c->weight_ids[c->weight_count - 1]];
    return model_freeze_weight(c, c->prefix, w, &t->frozen);
}

static status weight_add(block_context *c, const block_weight *w, tensor_id *out)
{
    if (c->weight_count == BLOCK_MAX_WEIGHTS) {
        return fail(ST_INTERNAL, "a layer has more than %d weights", BLOCK_MAX_WEIGHTS);
    }
    TRY(op_tensor_make(c->p, w->name, ROLE_WEIGHT, c->options->compute, w->ndim, extent_of(w->rows),
                       extent_of(w->ndim == 1 ? 0 : w->columns), out));
    op_tensor *t = &c->p->tensors[*out];
    memcpy(t->cut_dim, w->cut_dim, sizeof(w->cut_dim));
    t->part_count = w->part_count;
    for (int i = 0; i < w->part_count; i++) {
        t->parts[i].name = w->parts[i].name;
        t->parts[i].rows = w->parts[i].rows;
        t->parts[i].heads = w->parts[i].heads;
    }
    c->weights[c->weight_count] = *w;
    c->weight_ids[c->weight_count++] = *out;
    return freeze(c);
}

static block_weight matrix_of(const block_context *c, const char *name, int64_t rows,
                              int64_t columns, int cut_dim)
{
    block_weight w = {.name = name,
                      .ndim = 2,
                      .rows = rows,
                      .columns = columns,
                      .init = INIT_NORMAL,
                      .init_std = c->spec->init_std,
                      .in_gemm = true,
                      .is_matrix = true};
    memset(w.cut_dim, -1, sizeof(w.cut_dim));
    w.cut_dim[AXIS_TP] = (int8_t)cut_dim;
    return w;
}

static block_weight vector_of(const char *name, int64_t rows, weight_init init, int cut_dim)
{
    block_weight w = {.name = name, .ndim = 1, .rows = rows, .columns = 1, .init = init};
    memset(w.cut_dim, -1, sizeof(w.cut_dim));
    w.cut_dim[AXIS_TP] = (int8_t)cut_dim;
    return w;
}

status block_matrix(block_context *c, const char *name, int64_t rows, int64_t columns, int cut_dim,
                    tensor_id *out)
{
    const block_weight w = matrix_of(c, name, rows, columns, cut_dim);
    return weight_add(c, &w, out);
}

status block_vector(block_context *c, const char *name, int64_t rows, weight_init init, int cut_dim,
                    tensor_id *out)
{
    const block_weight w = vector_of(name, rows, init, cut_dim);
    return weight_add(c, &w, out);
}

// The program's tensor has the parts of all experts, because sizes of a cut follow from them. The
// weight itself is one part, since each expert has its own rows of every part.
status block_experts(block_context *c, const char *name, int64_t rows, int64_t columns, int parts,
                     int cut_dim, tensor_id *out)
{
    const int64_t all = c->spec->experts.count * rows;
    ASSERT(parts >= 1 && parts <= BLOCK_MAX_PARTS && rows % parts == 0);
    block_weight w = matrix_of(c, name, all, columns, cut_dim);
    w.cut_dim[AXIS_EP] = 0;
    w.stripe = cut_dim == 0 ? rows / parts : 0;
    w.matrix_rows = rows / parts;
    TRY(weight_add(c, &w, out));
    op_tensor *t = &c->p->tensors[*out];
    t->part_count = parts > 1 ? parts : 0;
    for (int i = 0; i < t->part_count; i++) {
        t->parts[i].name = name;
        t->parts[i].rows = all / parts;
    }
    return ST_OK;
}

status block_shared(block_context *c, const char *name)
{
    ASSERT(c->weight_count > 0);
    c->weights[c->weight_count - 1].shared = name;
    return freeze(c);
}

void block_fixed(block_context *c)
{
    ASSERT(c->weight_count > 0);
    c->weights[c->weight_count - 1].fixed = true;
    c->p->tensors[c->weight_ids[c->weight_count - 1]].frozen = true;
}

status block_of_model(block_context *c)
{
    ASSERT(c->weight_count > 0);
    c->weights[c->weight_count - 1].of_model = true;
    return freeze(c);
}

void block_bias(block_context *c)
{
    ASSERT(c->weight_count > 0);
    block_weight *w = &c->weights[c->weight_count - 1];
    w->init = INIT_ZEROS;
    w->in_gemm = w->is_matrix = false;
}

void block_fp32(block_context *c)
{
    ASSERT(c->weight_count > 0);
    c->p->tensors[c->weight_ids[c->weight_count - 1]].type = DTYPE_F32;
}

void block_residual_projection(block_context *c)
{
    ASSERT(c->weight_count > 0);
    c->weights[c->weight_count - 1].init_std =
        c->spec->init_std / (float)sqrt(2.0 * (double)c->spec->layers);
}

static void parts_set(block_weight *w, const linear_spec *spec)
{
    int64_t sum = 0;
    w->part_count = spec->part_count;
    for (int i = 0; i < spec->part_count; i++) {
        ASSERT(spec->parts[i].heads == 0 || spec->parts[i].rows % spec->parts[i].heads == 0);
        w->parts[i].name = spec->parts[i].name;
        w->parts[i].rows = spec->parts[i].rows;
        w->parts[i].heads = spec->parts[i].heads;
        sum += spec->parts[i].rows;
    }
    ASSERT(spec->part_count == 0 || sum == w->rows);
}

// The bias has the weight's parts, each with ".bias" after its name. If y is a term of a sum, the
// bias belongs to the whole sum, so it is not cut.
static status linear_bias(block_context *c, const linear_spec *spec, tensor_id *b)
{
    block_weight w = vector_of(joined(c, spec->name, "bias"), spec->rows, INIT_ZEROS,
                               spec->cut_dim == 0 ? 0 : -1);
    parts_set(&w, spec);
    bool named = w.name != NULL;
    for (int i = 0; i < w.part_count; i++) {
        w.parts[i].name = joined(c, spec->parts[i].name, "bias");
        named = named && w.parts[i].name != NULL;
    }
    if (!named) return fail(ST_NO_MEMORY, "no memory for the names of biases");
    return weight_add(c, &w, b);
}

status block_linear_weight(block_context *c, const linear_spec *spec, tensor_id *w)
{
    block_weight weight = matrix_of(c, spec->name, spec->rows, spec->columns, spec->cut_dim);
    parts_set(&weight, spec);
    TRY(weight_add(c, &weight, w));
    if (spec->to_residual) block_residual_projection(c);
    return ST_OK;
}

// The last declared weight is held in few bits; *w becomes the numbers that products read.
static status quantize(block_context *c, tensor_id *w)
{
    const op_quant kind = c->spec->adapter.quant;
    block_weight *declared = &c->weights[c->weight_count - 1];
    op_tensor *t = &c->p->tensors[*w];
    if (kind == QUANT_NONE) return ST_OK;
    declared->quant = kind;
    t->type = DTYPE_U8;
    t->dims[1] = extent_of(op_quant_row_bytes(kind, declared->columns));
    return op_dequantize(c->p, *w, kind, declared->columns, w);
}

// Declares the history of the factors of a product's operands, if they have one, of experts one for
// each: y = x w^T + b. The gradient tells the magnitudes of dy, so a product below the first
// trained weight has no history and stays in the model's type. A history is fp32, whatever that is.
static status history_add(block_context *c, const char *name, int64_t experts,
                          const tensor_id in[3], tensor_id *history)
{
    block_weight w =
        matrix_of(c, joined(c, name, "fp8"), FP8_OPERANDS * max_i64(experts, 1), FP8_COLUMNS, -1);
    const bool has_gradient =
        op_wants_grad(c->p, in[0]) || op_trains(c->p, in[1]) || op_trains(c->p, in[2]);
    if (c->options->fp8 != FP8_TENSOR || !has_gradient) return ST_OK;
    if (w.name == NULL) return fail(ST_NO_MEMORY, "no memory for the name of a history");
    w.init = INIT_ZEROS;
    w.in_gemm = w.is_matrix = false;
    w.history = true;
    if (experts > 0) {
        w.cut_dim[AXIS_EP] = 0;
        w.matrix_rows = FP8_OPERANDS;
    }
    TRY(weight_add(c, &w, history));
    block_fp32(c);
    return ST_OK;
}

status block_experts_linear(block_context *c, const char *name, tensor_id x, tensor_id w,
                            tensor_id offsets, tensor_id *y)
{
    const int64_t experts = c->spec->experts.count;
    tensor_id in[4] = {x, w, offsets, TENSOR_NONE};
    TRY(history_add(c, name, experts, (const tensor_id[3]){x, w, TENSOR_NONE}, &in[3]));
    return op_grouped_matmul_scaled(c->p, in, (int32_t)experts, y);
}

status block_linear(block_context *c, const linear_spec *spec, tensor_id x, tensor_id *y)
{
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE;
    TRY(block_linear_weight(c, spec, &w));
    TRY(quantize(c, &w));
    if (spec->bias) TRY(linear_bias(c, spec, &b));
    tensor_id in[4] = {x, w, b, TENSOR_NONE};
    TRY(history_add(c, spec->name, 0, in, &in[3]));
    if (!block_adapter_begin(c, spec)) return op_matmul_scaled(c->p, in, spec->activation, y);
    const bool is_scaled = c->spec->adapter.dora; // all but the bias
    if (is_scaled) in[2] = TENSOR_NONE;
    TRY(op_matmul_scaled(c->p, in, ACT_NONE, y));
    TRY(block_adapter_add(c, spec, x, w, y));
    if (is_scaled && b != TENSOR_NONE) TRY(op_add_bias(c->p, *y, b, y));
    return spec->activation == ACT_NONE ? ST_OK : op_activate(c->p, *y, spec->activation, y);
}

status block_adapter_weight(block_context *c, const block_weight *w, tensor_id *out)
{
    ASSERT(w->adapter);
    return weight_add(c, w, out);
}

float block_plus(const block_context *c)
{
    return c->spec->norm_plus_one ? 1.0f : 0.0f;
}

status block_gain(block_context *c, const char *name, int64_t rows, tensor_id *out)
{
    const weight_init init = c->spec->norm_plus_one ? INIT_ZEROS : INIT_ONES;
    return block_vector(c, name, rows, init, -1, out);
}

status block_gain_of_heads(block_context *c, const char *name, int64_t rows, int64_t heads,
                           tensor_id *out)
{
    const weight_init init = c->spec->norm_plus_one ? INIT_ZEROS : INIT_ONES;
    block_weight w = vector_of(name, rows, init, 0);
    w.part_count = 1;
    w.parts[0].name = name;
    w.parts[0].rows = rows;
    w.parts[0].heads = heads;
    return weight_add(c, &w, out);
}

status block_norm(block_context *c, const char *name, tensor_id x, tensor_id delta, tensor_id *y,
                  tensor_id *h)
{
    tensor_id w = TENSOR_NONE, b = TENSOR_NONE;
    const char *weight_name = joined(c, name, "weight"), *bias_name = joined(c, name, "bias");
    if (weight_name == NULL || bias_name == NULL) return fail(ST_NO_MEMORY, "no memory for names");
    if (c->spec->norm == MODEL_RMSNORM) {
        TRY(block_gain(c, weight_name, c->spec->dim, &w));
        return op_rmsnorm(c->p, x, w, delta, c->spec->norm_eps, block_plus(c), y, h);
    }
    TRY(block_vector(c, weight_name, c->spec->dim, INIT_ONES, -1, &w));
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

status block_cache_begin(block_context *c, block_cache *out)
{
    const model_options *o = c->options;
    const extent seqs = {.scale = 1, .symbol = EXTENT_SEQS};
    *out = (block_cache){.pages = TENSOR_NONE, .rows = {.scale = 1, .symbol = EXTENT_CACHE}};
    TRY(block_batch(c, "lengths", seqs, DTYPE_I32, &out->lengths));
    if (o->page == 0) return ST_OK;
    const extent tables = {.scale = (o->seq + o->page - 1) / o->page, .symbol = EXTENT_SEQS};
    out->page = (int32_t)o->page;
    out->rows = extent_of(o->pages * o->page);
    return block_batch(c, "pages", tables, DTYPE_I32, &out->pages);
}

status block_cache_add(block_context *c, const block_cache *rows, const char *name, int64_t columns,
                       tensor_id x, tensor_id *cache)
{
    TRY(op_tensor_make(c->p, name, ROLE_CACHE, c->options->compute, 2, rows->rows,
                       extent_of(columns), cache));
    return op_cache_append(c->p, x, rows->lengths, rows->pages, rows->page, *cache);
}
