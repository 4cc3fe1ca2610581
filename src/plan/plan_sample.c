// A small model made by hand. See plan_sample.h.
#include "plan/plan_sample.h"

#include <stdio.h>
#include <string.h>

enum { MAX_WEIGHTS = 128, LAYER_WEIGHTS = 8 };

typedef struct sample {
    arena *a;
    const plan_sample_config *c;
    op_model *m;
    op_weight *weights;
    op_layer *layers;
    op_program **programs;
    // Of the program that is being written: its weights, as templates.
    int count;
    tensor_id ids[LAYER_WEIGHTS];
    op_weight templates[LAYER_WEIGHTS];
} sample;

static status weight(sample *s, op_program *p, const char *name, int64_t row_count, int64_t columns,
                     tensor_id *out)
{
    const int ndim = columns > 0 ? 2 : 1;
    TRY(op_tensor_make(p, name, ROLE_WEIGHT, s->c->compute, ndim, extent_of(row_count),
                       extent_of(columns), out));
    ASSERT(s->count < LAYER_WEIGHTS);
    s->ids[s->count] = *out;
    s->templates[s->count++] = (op_weight){.name = name,
                                           .ndim = ndim,
                                           .rows = row_count,
                                           .columns = columns > 0 ? columns : 1,
                                           .part_count = 1,
                                           .decay = ndim == 2};
    return ST_OK;
}

static status batch(op_program *p, const char *name, tensor_id *out)
{
    return op_tensor_make(p, name, ROLE_BATCH, DTYPE_I32, 1, extent_tokens(1), extent_of(0), out);
}

static status program_end(sample *s, op_program *p)
{
    if (s->c->purpose == PURPOSE_TRAIN) {
        TRY(op_program_differentiate(p));
        TRY(op_program_recompute(p, s->c->recompute));
    }
    s->programs[s->m->program_count++] = p;
    return ST_OK;
}

static status program_begin(sample *s, op_program **p)
{
    s->count = 0;
    return op_program_create(s->a, s->c->purpose, s->c->compute, DTYPE_F32, p);
}

// A layer with weights of its own, but for the one that it shares.
static status layer(sample *s, const char *name, int index, int32_t shared)
{
    const op_program *p = s->programs[s->m->program_count - 1];
    int32_t *map = NULL;
    TRY(arena_new(s->a, p->tensor_count, &map));
    memset(map, -1, (size_t)p->tensor_count * sizeof(*map));
    for (int i = 0; i < s->count; i++) {
        if (shared >= 0 && i == s->count - 1) {
            map[s->ids[i]] = shared;
            continue;
        }
        char *full = NULL;
        TRY(arena_format(s->a, &full, "%s.%s", name, s->templates[i].name));
        ASSERT(s->m->weight_count < MAX_WEIGHTS);
        op_weight *w = &s->weights[s->m->weight_count];
        *w = s->templates[i];
        w->name = full;
        w->parts[0] = (weight_part){.name = full, .rows = w->rows};
        map[s->ids[i]] = (int32_t)s->m->weight_count++;
    }
    s->layers[s->m->layer_count++] = (op_layer){
        .name = name, .program = s->m->program_count - 1, .index = index, .weight_of = map};
    return ST_OK;
}

static status embedding(sample *s)
{
    op_program *p = NULL;
    tensor_id ids = TENSOR_NONE, table = TENSOR_NONE, h = TENSOR_NONE;
    TRY(program_begin(s, &p));
    TRY(batch(p, "ids", &ids));
    TRY(weight(s, p, "table", s->c->vocab, s->c->dim, &table));
    TRY(op_embedding(p, ids, table, TENSOR_NONE, TENSOR_NONE, &h));
    TRY(op_output(p, h));
    TRY(program_end(s, p));
    return layer(s, "embed", -1, -1);
}

static status attention(sample *s, op_program *p, tensor_id x, tensor_id *y)
{
    const int kv_heads = s->c->kv_heads > 0 ? s->c->kv_heads : s->c->heads;
    const int64_t dim = s->c->dim, narrow = dim / s->c->heads * kv_heads;
    tensor_id w = TENSOR_NONE, out = TENSOR_NONE, qkv = TENSOR_NONE, a = TENSOR_NONE;
    tensor_id q = TENSOR_NONE, k = TENSOR_NONE, v = TENSOR_NONE;
    const op_attrs attrs = {.heads = s->c->heads,
                            .kv_heads = kv_heads,
                            .head_dim = s->c->dim / s->c->heads,
                            .scale = 0.5f,
                            .dropout = s->c->dropout};
    TRY(weight(s, p, "qkv", dim + 2 * narrow, dim, &w));
    TRY(op_matmul(p, x, w, TENSOR_NONE, ACT_NONE, &qkv));
    TRY(op_view(p, qkv, "q", 0, dim, &q));
    TRY(op_view(p, qkv, "k", dim, narrow, &k));
    TRY(op_view(p, qkv, "v", dim + narrow, narrow, &v));
    TRY(op_attention(p, q, k, v, TENSOR_NONE, TENSOR_NONE, &attrs, &a));
    TRY(weight(s, p, "out", dim, dim, &out));
    return op_matmul(p, a, out, TENSOR_NONE, ACT_NONE, y);
}

static status decoder(sample *s)
{
    op_program *p = NULL;
    tensor_id h = TENSOR_NONE, w = TENSOR_NONE, x = TENSOR_NONE, d = TENSOR_NONE, y = TENSOR_NONE;
    tensor_id up = TENSOR_NONE, down = TENSOR_NONE, b = TENSOR_NONE;
    TRY(program_begin(s, &p));
    TRY(op_input(p, "h", extent_tokens(1), extent_of(s->c->dim), &h));
    TRY(weight(s, p, "norm1", s->c->dim, 0, &w));
    TRY(op_rmsnorm(p, h, w, TENSOR_NONE, 1e-5f, 0.0f, &x, &h));
    TRY(attention(s, p, x, &d));
    TRY(weight(s, p, "norm2", s->c->dim, 0, &w));
    TRY(op_rmsnorm(p, h, w, d, 1e-5f, 0.0f, &x, &h));
    TRY(weight(s, p, "up", 2 * (int64_t)s->c->ffn, s->c->dim, &up));
    TRY(weight(s, p, "up.bias", 2 * (int64_t)s->c->ffn, 0, &b));
    TRY(op_matmul(p, x, up, b, ACT_NONE, &x));
    TRY(op_swiglu(p, x, &x));
    TRY(weight(s, p, "down", s->c->dim, s->c->ffn, &down));
    TRY(op_matmul(p, x, down, TENSOR_NONE, ACT_NONE, &x));
    if (s->c->dropout > 0.0f) TRY(op_dropout(p, x, s->c->dropout, 2, &x));
    TRY(op_add(p, h, x, &y));
    TRY(op_output(p, y));
    TRY(program_end(s, p));
    for (int i = 0; i < s->c->layers; i++) {
        char *name = NULL;
        TRY(arena_format(s->a, &name, "layers.%d", i));
        TRY(layer(s, name, i, -1));
    }
    return ST_OK;
}

static status head(sample *s)
{
    op_program *p = NULL;
    tensor_id h = TENSOR_NONE, w = TENSOR_NONE, x = TENSOR_NONE, labels = TENSOR_NONE;
    tensor_id table = TENSOR_NONE, losses = TENSOR_NONE, same = TENSOR_NONE;
    TRY(program_begin(s, &p));
    TRY(op_input(p, "h", extent_tokens(1), extent_of(s->c->dim), &h));
    TRY(weight(s, p, "norm", s->c->dim, 0, &w));
    TRY(op_rmsnorm(p, h, w, TENSOR_NONE, 1e-5f, 0.0f, &x, &same));
    TRY(weight(s, p, "table", s->c->vocab, s->c->dim, &table));
    TRY(batch(p, "labels", &labels));
    TRY(op_head_loss(p, x, table, labels, 0.0f, &losses));
    TRY(op_step_loss(p, losses, labels));
    TRY(program_end(s, p));
    return layer(s, "head", -1, s->c->tied ? 0 : -1);
}

status plan_sample_model(arena *a, const plan_sample_config *c, op_model **out)
{
    sample s = {.a = a, .c = c};
    TRY(arena_new(a, 1, &s.m));
    TRY(arena_new(a, MAX_WEIGHTS, &s.weights));
    TRY(arena_new(a, c->layers + 2, &s.layers));
    TRY(arena_new(a, 3, &s.programs));
    TRY(embedding(&s));
    TRY(decoder(&s));
    TRY(head(&s));
    s.m->purpose = c->purpose;
    s.m->programs = s.programs;
    s.m->layers = s.layers;
    s.m->weights = s.weights;
    *out = s.m;
    return ST_OK;
}

status plan_sample_optimizer(arena *a, const op_model *m, op_program *const **out)
{
    const plan_mesh alone = {.size = {0}};
    return plan_sample_rows_optimizer(a, m, &alone, 0, out);
}

status plan_sample_rows_optimizer(arena *a, const op_model *m, const plan_mesh *mesh, int32_t zero,
                                  op_program *const **out)
{
    op_program **programs = NULL;
    TRY(arena_new(a, m->weight_count, &programs));
    for (int32_t i = 0; i < m->weight_count; i++) {
        const op_weight *w = &m->weights[i];
        const extent own = extent_of(plan_rows_of(mesh, zero, w, false).count);
        const extent columns = extent_of(w->ndim == 1 ? 0 : w->columns);
        op_program *p = NULL;
        op_node node = op_node_of(OP_ADAMW);
        TRY(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
        TRY(op_tensor_make(p, "grad", ROLE_WEIGHT_GRAD, DTYPE_F32, w->ndim, own, columns,
                           &node.in[0]));
        TRY(op_tensor_make(p, "weight", ROLE_WEIGHT, DTYPE_F32, w->ndim, own, columns,
                           &node.in[1]));
        TRY(op_tensor_make(p, "m", ROLE_STATE, DTYPE_F32, w->ndim, own, columns, &node.in[2]));
        TRY(op_tensor_make(p, "v", ROLE_STATE, DTYPE_F32, w->ndim, own, columns, &node.in[3]));
        for (int k = 0; k < 3; k++) node.out[k] = node.in[k + 1];
        node.attrs.tensor_index = i;
        node.attrs.decay = w->decay;
        node.attrs.beta1 = 0.9f;
        node.attrs.beta2 = 0.95f;
        node.attrs.eps = 1e-8f;
        node.attrs.weight_decay = 0.1f;
        node.attrs.lr_scale = 1.0f;
        TRY(op_append(p, OP_FORWARD, &node, 0));
        programs[i] = p;
    }
    *out = programs;
    return ST_OK;
}
