// A whole model for one purpose: embedding, decoder layers, head.
//
//   h -> norm -> attention -> d;  h' = h + d -> norm -> mlp -> e;  h'' = h' + e     (every layer)
//
// A layer with a stage boundary in its middle is two rows; the first passes h' to the second.
// Layers of one shape share a program: it is emitted once for each window and each kind of
// recomputation. Blocks declare the weights of "a layer of this shape"; build.c gives each layer
// its own weights, named "layers.<n>.<name>", in the order of the forward pass.
#include "model/arch/arch.h"
#include "model/block/block.h"
#include "model/spec.h"

#include <string.h>

typedef struct built_program {
    op_program *p;
    // The shape of decoder layers that share this program:
    int32_t window;
    bool has_experts;
    op_recompute recompute;
    op_layer_part part;
    bool frozen_input; // no weight below it is trained
    block_context c;
} built_program;

typedef struct building {
    arena *a;
    const decoder_spec *spec;
    const model_options *options;
    op_model *m;
    built_program *programs;
    int32_t program_count;
    op_layer *layers;
    op_weight *weights;
    int64_t weight_count, weight_capacity;
    bool trains; // a weight added so far is trained
} building;

// Declares the residual stream that enters from the layers below.
static status stream_input(building *b, built_program *bp, const char *name, tensor_id *h)
{
    TRY(op_input(bp->p, name, extent_tokens(1), extent_of(b->spec->dim), h));
    bp->frozen_input = block_freezes(&bp->c) && !b->trains;
    bp->p->tensors[*h].frozen = bp->frozen_input;
    return ST_OK;
}

static status program_begin(building *b, const char *prefix, built_program **out)
{
    built_program *bp = &b->programs[b->program_count];
    TRY(op_program_create(b->a, b->options->purpose, b->options->compute, b->options->grad,
                          &bp->p));
    bp->p->as_training = b->options->as_training;
    bp->p->fp8 = b->options->fp8_exact ? FP8_NONE : b->options->fp8;
    bp->p->fp8_margin = b->options->fp8_margin;
    bp->c = (block_context){
        .p = bp->p, .spec = b->spec, .options = b->options, .prefix = prefix, .next = TENSOR_NONE};
    bp->recompute = b->options->recompute;
    *out = bp;
    return ST_OK;
}

static status program_end(building *b, built_program *bp)
{
    if (b->options->purpose == PURPOSE_TRAIN) {
        TRY(op_program_differentiate(bp->p));
        TRY(op_program_recompute(bp->p, bp->recompute));
    }
    b->program_count++;
    return ST_OK;
}

// Only training has the layers above the last norm, but every purpose has their weights.
static bool trains_next(const building *b)
{
    return b->spec->next_layers > 0 && b->options->purpose == PURPOSE_TRAIN;
}

static status embedding_emit(building *b)
{
    built_program *bp = NULL;
    tensor_id h = TENSOR_NONE;
    TRY(program_begin(b, "", &bp));
    TRY(model_block_embedding.emit(&bp->c, TENSOR_NONE, &h));
    TRY(op_output(bp->p, h));
    return program_end(b, bp);
}

static status head_emit(building *b)
{
    built_program *bp = NULL;
    tensor_id h = TENSOR_NONE, none = TENSOR_NONE;
    TRY(program_begin(b, "", &bp));
    TRY(stream_input(b, bp, "h", &h));
    if (trains_next(b)) TRY(stream_input(b, bp, "next", &bp->c.next));
    TRY(model_block_head.emit(&bp->c, h, &none));
    return program_end(b, bp);
}

static const model_block *mlp_of(const decoder_spec *s, bool has_experts)
{
    if (has_experts) return &model_block_experts;
    return s->mlp == MODEL_MLP_SWIGLU ? &model_block_mlp_swiglu : &model_block_mlp_gelu;
}

// The shape of a decoder layer, and one layer that has it.
typedef struct decoder_shape {
    const char *prefix; // prefix of the layer's weight names, which decide about freezing
    int32_t layer, window;
    bool has_experts;
    op_recompute recompute;
    op_layer_part part;
} decoder_shape;

static bool norms_before(const decoder_spec *s)
{
    return s->norm_place != MODEL_NORM_AFTER;
}

// Normalizes the result of attention or of the MLP, where the spec says so.
static status after_norm(block_context *c, const char *name, tensor_id *d)
{
    tensor_id same = TENSOR_NONE;
    if (c->spec->norm_place == MODEL_NORM_BEFORE) return ST_OK;
    return block_norm(c, name, *d, TENSOR_NONE, d, &same);
}

static status attention_emit(building *b, block_context *c, tensor_id *h, tensor_id *d)
{
    const model_block *attention =
        b->spec->latent.kv_rank > 0 ? &model_block_latent : &model_block_attention;
    tensor_id x = *h;
    if (norms_before(b->spec)) TRY(block_norm(c, "attn_norm", *h, TENSOR_NONE, &x, h));
    TRY(attention->emit(c, x, d));
    return after_norm(c, "attn_post_norm", d);
}

// The norm before the MLP also adds the output of attention to the residual stream.
static status mlp_emit(building *b, block_context *c, bool has_experts, tensor_id *h, tensor_id *d)
{
    tensor_id x = TENSOR_NONE;
    if (norms_before(b->spec)) {
        TRY(block_norm(c, "mlp_norm", *h, *d, &x, h));
    } else {
        if (*d != TENSOR_NONE) TRY(op_add(c->p, *h, *d, h));
        x = *h;
    }
    TRY(mlp_of(b->spec, has_experts)->emit(c, x, d));
    return after_norm(c, "mlp_post_norm", d);
}

static status decoder_emit(building *b, const decoder_shape *s)
{
    built_program *bp = NULL;
    tensor_id h = TENSOR_NONE, d = TENSOR_NONE, y = TENSOR_NONE;
    TRY(program_begin(b, s->prefix, &bp));
    bp->window = s->window;
    bp->has_experts = s->has_experts;
    bp->recompute = s->recompute;
    bp->part = s->part;
    bp->c.layer = s->layer;
    TRY(stream_input(b, bp, "h", &h));
    if (s->part != LAYER_MLP) TRY(attention_emit(b, &bp->c, &h, &d));
    if (s->part != LAYER_ATTENTION) TRY(mlp_emit(b, &bp->c, s->has_experts, &h, &d));
    TRY(op_add(bp->p, h, d, &y));
    TRY(op_output(bp->p, y));
    return program_end(b, bp);
}

// The layer that predicts the token after the next, with the model's last norm, which both it and
// the head read (block/next.c).
static status next_emit(building *b, const decoder_shape *s)
{
    built_program *bp = NULL;
    tensor_id h = TENSOR_NONE, y = TENSOR_NONE, x = TENSOR_NONE, d = TENSOR_NONE,
              same = TENSOR_NONE;
    TRY(program_begin(b, s->prefix, &bp));
    block_context *c = &bp->c;
    bp->has_experts = s->has_experts;
    bp->recompute = s->recompute;
    c->layer = s->layer;
    TRY(stream_input(b, bp, "h", &h));
    TRY(block_norm(c, "norm", h, TENSOR_NONE, &y, &same));
    TRY(block_of_model(c));
    TRY(model_block_next.emit(c, y, &x));
    TRY(attention_emit(b, c, &x, &d));
    TRY(mlp_emit(b, c, s->has_experts, &x, &d));
    TRY(op_add(bp->p, x, d, &d));
    TRY(block_norm(c, "shared_head.norm", d, TENSOR_NONE, &x, &same));
    TRY(op_output(bp->p, y));
    TRY(op_output(bp->p, x));
    return program_end(b, bp);
}

// ---- layers and their weights -------------------------------------------------------------------

static status weight_find(const building *b, const char *name, int32_t *row)
{
    for (int64_t i = 0; i < b->weight_count; i++) {
        if (strcmp(b->weights[i].name, name) == 0) {
            *row = (int32_t)i;
            return ST_OK;
        }
    }
    return fail(ST_INTERNAL, "no weight %s to share", name);
}

static status named(arena *a, const char *prefix, const char *name, const char **out)
{
    char *joined = NULL;
    TRY(arena_format(a, &joined, "%s%s", prefix, name));
    *out = joined;
    return ST_OK;
}

// Creates the weight of one layer from the block's declaration.
static status weight_make(building *b, const char *prefix, const block_weight *w, int32_t *row)
{
    if (w->shared != NULL) return weight_find(b, w->shared, row);
    TRY(arena_grow(b->a, (void **)&b->weights, &b->weight_capacity, b->weight_count + 1,
                   (int64_t)sizeof(op_weight)));
    *row = (int32_t)b->weight_count;
    op_weight *out = &b->weights[b->weight_count++];
    *out = (op_weight){.ndim = w->ndim,
                       .rows = w->rows,
                       .columns = w->columns,
                       .part_count = w->part_count > 0 ? w->part_count : 1,
                       .init = w->init,
                       .init_std = w->init_std,
                       .decay = w->ndim == 2,
                       .in_gemm = w->in_gemm,
                       .is_matrix = w->is_matrix,
                       .is_history = w->history,
                       .is_expert = w->cut_dim[AXIS_EP] >= 0,
                       .stripe = w->stripe,
                       .matrix_rows = w->matrix_rows,
                       .quant = w->quant,
                       .is_adapter = w->adapter};
    memcpy(out->cut_dim, w->cut_dim, sizeof(out->cut_dim));
    if (w->of_model) prefix = "";
    TRY(named(b->a, prefix, w->name, &out->name));
    out->parts[0] = (weight_part){.name = out->name, .rows = w->rows};
    int64_t at = 0;
    for (int i = 0; i < w->part_count; i++) {
        TRY(named(b->a, prefix, w->parts[i].name, &out->parts[i].name));
        out->parts[i].row_begin = at;
        out->parts[i].rows = w->parts[i].rows;
        out->parts[i].heads = w->parts[i].heads;
        at += w->parts[i].rows;
    }
    return ST_OK;
}

static status layer_make(building *b, int32_t program, int32_t index, const char *name,
                         const char *prefix)
{
    const built_program *bp = &b->programs[program];
    int32_t *map = NULL;
    TRY(arena_new(b->a, bp->p->tensor_count + 1, &map));
    for (int64_t t = 0; t < bp->p->tensor_count; t++) map[t] = -1;
    for (int i = 0; i < bp->c.weight_count; i++) {
        const tensor_id t = bp->c.weight_ids[i];
        TRY(weight_make(b, prefix, &bp->c.weights[i], &map[t]));
        b->weights[map[t]].frozen = bp->p->tensors[t].frozen;
        b->weights[map[t]].type = bp->p->tensors[t].type;
        if (bp->c.weights[i].balanced) {
            b->weights[map[t]].balanced =
                b->spec->adapter.rank == 0 &&
                !model_freeze_matches(&b->options->freeze, b->weights[map[t]].name);
        }
        b->trains = b->trains || !bp->p->tensors[t].frozen;
    }
    b->layers[b->m->layer_count++] =
        (op_layer){.name = name, .program = program, .index = index, .weight_of = map};
    return ST_OK;
}

// Returns whether the adapter covers the same matrices in the layer with this prefix.
static bool covers_same(const built_program *p, const char *prefix)
{
    for (int i = 0; i < p->c.matrix_count; i++) {
        const bool covered = model_adapter_covers(p->c.spec, prefix, p->c.matrices[i].name);
        if (covered != p->c.matrices[i].covered) return false;
    }
    return true;
}

// Returns in *out whether the program has and trains the same weights as the layer with this
// prefix.
static status trains_same_weights(const building *b, const built_program *p, const char *prefix,
                                  bool *out)
{
    *out = covers_same(p, prefix);
    if (!block_freezes(&p->c)) return ST_OK;
    *out = *out && p->frozen_input == !b->trains;
    for (int i = 0; i < p->c.weight_count && *out; i++) {
        bool frozen = false;
        TRY(model_freeze_weight(&p->c, prefix, &p->c.weights[i], &frozen));
        *out = frozen == p->p->tensors[p->c.weight_ids[i]].frozen;
    }
    return ST_OK;
}

// Finds the program of this shape; *out: -1 if it does not exist yet.
static status decoder_program(const building *b, const decoder_shape *s, int32_t *out)
{
    *out = -1;
    for (int32_t i = 1; i < b->program_count && *out < 0; i++) { // program 0 is the embedding
        const built_program *p = &b->programs[i];
        bool is_same = false;
        if (p->window != s->window || p->has_experts != s->has_experts || p->part != s->part ||
            p->recompute != s->recompute) {
            continue;
        }
        TRY(trains_same_weights(b, p, s->prefix, &is_same));
        if (is_same) *out = i;
    }
    return ST_OK;
}

// Spreads the layers that recompute evenly, so every pipeline stage has its share.
static op_recompute decoder_recompute(const building *b, int64_t index)
{
    const int64_t layers = b->spec->layers, count = b->options->recompute_layers;
    const bool is_one = count == 0 || (index + 1) * count / layers > index * count / layers;
    return is_one ? b->options->recompute : RECOMPUTE_NONE;
}

static status decoder_make(building *b, int32_t index, op_layer_part part)
{
    char *name = NULL, *prefix = NULL;
    int32_t program = -1;
    TRY(arena_format(b->a, &name, "layers.%d%s", index, op_layer_part_end(part)));
    TRY(arena_format(b->a, &prefix, "layers.%d.", index));
    const decoder_shape shape = {.prefix = prefix,
                                 .layer = index,
                                 .window = b->spec->windows != NULL ? b->spec->windows[index] : 0,
                                 .has_experts = model_has_experts(b->spec, index),
                                 .recompute = decoder_recompute(b, index),
                                 .part = part};
    TRY(decoder_program(b, &shape, &program));
    if (program < 0) {
        program = b->program_count;
        TRY(decoder_emit(b, &shape));
    }
    TRY(layer_make(b, program, index, name, prefix));
    b->layers[b->m->layer_count - 1].part = part;
    return ST_OK;
}

static status decoders_make(building *b)
{
    const model_options *o = b->options;
    int32_t next = 0; // index into the layers with two rows
    for (int32_t i = 0; i < b->spec->layers; i++) {
        if (next < o->halved_count && o->halved[next] == i) {
            TRY(decoder_make(b, i, LAYER_ATTENTION));
            TRY(decoder_make(b, i, LAYER_MLP));
            next++;
        } else {
            TRY(decoder_make(b, i, LAYER_WHOLE));
        }
    }
    ASSERT(next == o->halved_count);
    return ST_OK;
}

static status next_make(building *b)
{
    char *name = NULL, *prefix = NULL;
    const int32_t index = (int32_t)b->spec->layers, program = b->program_count;
    if (b->spec->next_layers == 0) return ST_OK;
    TRY(arena_format(b->a, &name, "layers.%d", index));
    TRY(arena_format(b->a, &prefix, "layers.%d.", index));
    const decoder_shape shape = {.prefix = prefix,
                                 .layer = index,
                                 .has_experts = model_has_experts(b->spec, index),
                                 .recompute = decoder_recompute(b, index)};
    TRY(next_emit(b, &shape));
    TRY(layer_make(b, program, index, name, prefix));
    if (trains_next(b)) {
        b->m->next_rows = 1;
        return ST_OK;
    }
    b->m->layer_count--; // its weights remain
    b->program_count--;
    return ST_OK;
}

static status constants_make(building *b)
{
    if (b->spec->position != MODEL_POSITION_ROPE) return ST_OK;
    static const char *const names[] = {"rope", "rope_local"};
    decoder_spec local = *b->spec;
    local.rope = model_rope_default();
    local.rope.theta = b->spec->rope_local_theta;
    const decoder_spec *const specs[] = {b->spec, &local};
    op_constant *rope = NULL;
    TRY(arena_new(b->a, COUNT_OF(names), &rope));
    for (int32_t i = 0; i < (b->spec->rope_local_theta > 0.0 ? 2 : 1); i++) {
        float *data = NULL;
        if (!b->options->sizes_only) {
            TRY(model_rope_table(b->a, specs[i], b->options->seq, b->options->seq, &data));
        }
        rope[i] = (op_constant){.name = names[i],
                                .rows = b->options->seq,
                                .columns = model_rope_dim(b->spec),
                                .data = data};
        b->m->constant_count++;
    }
    b->m->constants = rope;
    return ST_OK;
}

// Counts the work that frozen layers skip in a training step: a layer that trains nothing and
// passes no gradient down runs only forward.
static void skipped_count(op_model *m, const decoder_spec *spec)
{
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_layer *layer = &m->layers[i];
        const op_program *p = m->programs[layer->program];
        const bool forward_only =
            p->lists[OP_BACKWARD_INPUT].count == 0 && p->lists[OP_BACKWARD_WEIGHT].count == 0;
        if (p->input_count == 0) continue; // the embedding has no GEMM
        for (tensor_id t = 0; t < p->tensor_count; t++) {
            const int32_t row = layer->weight_of[t];
            if (row < 0 || !m->weights[row].in_gemm || p->tensors[t].view_of != TENSOR_NONE) {
                continue;
            }
            const int64_t count = m->weights[row].rows * m->weights[row].columns;
            if (p->tensors[t].frozen) m->skipped_parameters += count;
            if (forward_only) m->skipped_parameters += count;
        }
        if (forward_only && layer->index >= 0 && layer->part != LAYER_MLP) {
            m->skipped_width += spec->heads * spec->head_dim;
        }
    }
}

static void totals(op_model *m, const decoder_spec *spec)
{
    for (int64_t i = 0; i < m->weight_count; i++) {
        const int64_t count = m->weights[i].rows * m->weights[i].columns;
        if (!m->weights[i].is_history) m->parameters += count;
        if (m->weights[i].in_gemm) m->gemm_parameters += count;
    }
    const model_latent *l = &spec->latent;
    // The scores have the width of queries and the outputs the width of values: half of each.
    const int64_t head =
        l->kv_rank > 0 ? (l->nope_dim + l->rope_dim + l->value_dim) / 2 : spec->head_dim;
    const bool has_next = m->purpose == PURPOSE_TRAIN;
    m->attention_width = (has_next ? model_all_layers(spec) : spec->layers) * spec->heads * head;
    if (spec->experts.count == 0) return;
    model_counts counts;
    model_count(spec, &counts);
    m->gemm_parameters = counts.gemm; // those that one token uses
}

static status build(building *b)
{
    const decoder_spec *s = b->spec;
    op_model *m = b->m;
    m->purpose = b->options->purpose;
    const int64_t rows = model_all_layers(s) + b->options->halved_count + 2;
    TRY(arena_new(b->a, rows, &b->programs));
    TRY(arena_new(b->a, rows, &b->layers));
    TRY(embedding_emit(b));
    TRY(layer_make(b, 0, -1, "embed", ""));
    TRY(decoders_make(b));
    TRY(next_make(b));
    const int32_t head = b->program_count;
    TRY(head_emit(b));
    TRY(layer_make(b, head, -1, "head", ""));
    TRY(constants_make(b));
    op_program **programs = NULL;
    TRY(arena_new(b->a, b->program_count, &programs));
    for (int32_t i = 0; i < b->program_count; i++) programs[i] = b->programs[i].p;
    m->programs = programs;
    m->program_count = b->program_count;
    m->layers = b->layers;
    m->weights = b->weights;
    m->weight_count = b->weight_count;
    totals(m, s);
    if (m->purpose == PURPOSE_TRAIN && model_mixed_layers(s) > 0) {
        m->load_layers = (int32_t)model_all_layers(s);
        m->load_experts = (int32_t)s->experts.count;
    }
    if (m->purpose == PURPOSE_TRAIN && block_freezes(&b->programs[0].c)) skipped_count(m, s);
    TRY(model_adapter_check(m, s));
    return model_freeze_check(m, &b->options->freeze);
}

// Refuses models that cannot be trained, unless the result will not be executed.
static status unbuilt_refuse(const decoder_spec *s, const model_options *options)
{
    const bool is_counted = options->sizes_only && options->purpose == PURPOSE_TRAIN;
    if (is_counted || !model_is_planned_only(s)) return ST_OK;
    if (s->latent.kv_rank == 0) {
        const model_experts *e = &s->experts;
        return fail(ST_UNSUPPORTED,
                    "a model with %lld experts, %lld of them shared, and %lld dense layers of this "
                    "kind cannot be trained yet, only counted and simulated; experts without "
                    "biases are trained (model.mlp_bias=no) that are given by sizes "
                    "(model.experts), and those of folders and presets of Mixtral, Qwen, OLMoE and "
                    "DeepSeek",
                    (long long)(e->count + e->shared), (long long)e->shared,
                    (long long)e->dense_layers);
    }
    return fail(ST_UNSUPPORTED,
                "the model has latent attention (kv_rank %lld), which cannot be trained yet, "
                "only counted and simulated",
                (long long)s->latent.kv_rank);
}

status model_build(arena *a, const decoder_spec *spec, const model_options *options, op_model **out)
{
    TRY(model_spec_check(spec));
    TRY(unbuilt_refuse(spec, options));
    if (options->purpose != PURPOSE_TRAIN && options->purpose != PURPOSE_EVALUATE &&
        options->documents) {
        return fail(ST_INTERNAL, "generation does not support packed documents");
    }
    const bool writes = options->logits || options->purpose > PURPOSE_EVALUATE;
    if (spec->scores != MODEL_WRITES && writes) {
        return fail(ST_UNSUPPORTED,
                    "the model gives texts scores (a reward model) and writes none; "
                    "use it as reward.model of a run with rollouts");
    }
    if (spec->position == MODEL_POSITION_LEARNED && options->seq > spec->context) {
        return fail(ST_CONFIG_CONFLICT,
                    "train.seq = %lld, but the model has learned positions for %lld only",
                    (long long)options->seq, (long long)spec->context);
    }
    building b = {.a = a, .spec = spec, .options = options};
    TRY(arena_new(a, 1, &b.m));
    TRY(build(&b));
    *out = b.m;
    return ST_OK;
}
