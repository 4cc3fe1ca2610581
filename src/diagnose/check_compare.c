// Converts our tensors, which are fused and stored (out, in), to those of files: model_hf_tensors()
// says which rows of a weight a file's tensor holds, and whether the file transposes it.
#include "diagnose/check_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void check_relative_add(check_relative *r, const float *got, const void *want, int64_t count)
{
    const char *bytes = want;
    for (int64_t i = 0; i < count; i++) {
        float w;
        memcpy(&w, bytes + i * (int64_t)sizeof(w), sizeof(w));
        const double difference = fabs((double)got[i] - (double)w);
        if (!(difference <= r->difference)) r->difference = difference; // NaN stays
        if (isnan(difference)) r->difference = (double)INFINITY;
        if (fabs((double)w) > r->largest) r->largest = fabs((double)w);
    }
}

double check_relative_value(const check_relative *r)
{
    // A reference of zeros, or of what rounding in double leaves of them, gives no scale: a router
    // whose weights are divided by their sum has no gradient if a token takes one expert.
    const double least = 1e-14;
    return r->largest > least ? r->difference / r->largest : r->difference;
}

static double token_loss(const float *logits, int64_t vocab, int32_t label)
{
    double highest = -(double)INFINITY, sum = 0.0;
    for (int64_t v = 0; v < vocab; v++) highest = fmax(highest, (double)logits[v]);
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - highest);
    return highest - (double)logits[label] + log(sum);
}

void check_noise_add(check_noise *n, const float *got, const void *want, const int32_t *labels,
                     int64_t rows, int64_t vocab)
{
    float *row = malloc((size_t)vocab * sizeof(float)); // aligned
    for (int64_t r = 0; row != NULL && r < rows; r++) {
        if (labels[r] < 0 || labels[r] >= vocab) continue;
        memcpy(row, (const char *)want + r * vocab * 4, (size_t)vocab * sizeof(float));
        const double error =
            token_loss(got + r * vocab, vocab, labels[r]) - token_loss(row, vocab, labels[r]);
        n->squares += error * error;
        n->count++;
    }
    free(row);
}

double check_noise_of_mean(const check_noise *n)
{
    return n->count > 0 ? sqrt(n->squares) / (double)n->count : 0.0;
}

// ---- gradients ----------------------------------------------------------------------------------

// The tensor of the plan that the norm of weight w reads: its whole gradient, whatever shards and
// uses it was summed from. Where ranks have copies of a weight, one that counts none of its rows
// has no norm of it, but an update that reads the same tensor.
static const plan_tensor *gradient_of(const plan *p, int64_t weight)
{
    const plan_tensor *updated = NULL;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *action = &p->actions[i];
        if (action->kind != ACTION_OPTIMIZER || action->ops_count < 1) continue;
        const plan_binding *b = &p->bindings[action->binding];
        const op_node *node = &b->program->lists[action->list].nodes[action->ops_begin];
        const bool norm = op_adds_norm(node->code), update = op_kind_of(node->code)->updates_state;
        if ((!norm && !update) || node->attrs.tensor_index != weight) continue;
        const int32_t ref = b->tensor[op_owner(b->program, node->in[0]).id];
        if (norm) return plan_tensor_at(p, ref);
        if (ref != -1 && !plan_ref_is_run(ref)) updated = plan_tensor_at(p, ref);
    }
    return updated;
}

// Reads this rank's piece of a part, which has the same position in the gradient as the part's own
// piece in the weight.
static status own_gradient_read(const check_source *s, int32_t weight, int part, float *out)
{
    const plan_places *places = s->state->places;
    const plan_piece own = plan_piece_of(places, s->state->rank, weight, part, PLACE_STATE);
    const plan_tensor *t = gradient_of(s->p, weight);
    if (t == NULL) {
        return fail(ST_INTERNAL, "the plan has no gradient of %s",
                    places->whole->weights[weight].name);
    }
    // The norm reads this rank's rows: all of a tensor of its own, or a part of the whole one.
    const int64_t begin = own.at + (t->is_part ? t->offset / dtype_bytes(t->type) : 0);
    const int64_t count = own.rows * own.columns;
    const int64_t bytes = (begin + count) * dtype_bytes(t->type);
    void *raw = malloc((size_t)bytes);
    if (raw == NULL) return fail(ST_NO_MEMORY, "no memory for the gradient of %s", t->name);
    const int32_t row = t->is_part ? t->whole : (int32_t)(t - s->p->tensors);
    const status st = exec_read_transient(s->state->e, s->p, row, raw, bytes);
    for (int64_t i = 0; i < count && st == ST_OK; i++) {
        out[i] = (float)(dtype_load(t->type, raw, begin + i) * s->factor);
    }
    free(raw);
    return st;
}

// Reads the gradient of the mean loss in fp32 from all ranks' pieces; `piece` has the same
// capacity. A gradient that all ranks hold is read on rank 0 only, whose comparison counts.
static status gradient_read(const check_source *s, int32_t weight, float *piece, float *out)
{
    const ckpt_state *state = s->state;
    const op_weight *w = &state->model->weights[weight];
    const bool shared = !plan_is_everywhere(state->places, weight, PLACE_STATE);
    for (int i = 0; i < w->part_count; i++) {
        int64_t r = plan_holder_next(state->places, -1, weight, i, PLACE_STATE);
        for (; r >= 0; r = plan_holder_next(state->places, r, weight, i, PLACE_STATE)) {
            const plan_piece p = plan_piece_of(state->places, r, weight, i, PLACE_STATE);
            const int64_t bytes = p.rows * p.columns * (int64_t)sizeof(float);
            if (r == state->rank) TRY(own_gradient_read(s, weight, i, piece));
            if (shared) TRY(state->share(state->ranks, (int)r, piece, bytes));
            if (!shared && r != state->rank) memset(piece, 0, (size_t)bytes);
            (void)plan_piece_put(&p, w->columns, 0, w->parts[i].rows * w->columns,
                                 (int64_t)sizeof(float), piece,
                                 out + w->parts[i].row_begin * w->columns);
        }
    }
    return ST_OK;
}

// Rows of a weight as the file stores them.
static void stored(const op_weight *w, const model_hf_tensor *t, const float *weight, float *out)
{
    const float *rows = weight + t->row_begin * w->columns;
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t c = 0; c < w->columns; c++) {
            out[model_hf_at(t, w->columns, r, c)] = rows[r * w->columns + c];
        }
    }
}

// Files may name tensors with the architecture's prefix ("transformer.") or without it.
static const safetensors_entry *golden_find(const check_source *s, const char *name, char **full)
{
    const char *dot = strchr(name, '.');
    const safetensors_entry *e = NULL;
    if (arena_format(s->a, full, "grad.%s", name) == ST_OK) e = safetensors_find(s->golden, *full);
    if (e != NULL || dot == NULL) return e;
    char *bare = NULL;
    if (arena_format(s->a, &bare, "grad.%s", dot + 1) == ST_OK) {
        e = safetensors_find(s->golden, bare);
    }
    return e;
}

static status weight_compare(const check_source *s, int32_t weight, float *whole, float *piece,
                             check_gradient *out, int64_t *count)
{
    const op_weight *w = &s->state->model->weights[weight];
    model_hf_tensor *tensors = NULL;
    int64_t tensor_count = 0;
    TRY(gradient_read(s, weight, piece, whole));
    TRY(model_hf_tensors(s->a, s->spec, s->state->model, weight, &tensors, &tensor_count));
    for (int64_t i = 0; i < tensor_count; i++) {
        const int64_t elements = tensors[i].rows * w->columns;
        char *name = NULL;
        const safetensors_entry *e = golden_find(s, tensors[i].name, &name);
        if (e == NULL) return fail(ST_DAMAGED, "golden.safetensors has no tensor %s", name);
        if (e->type != DTYPE_F32 || e->bytes != elements * (int64_t)sizeof(float)) {
            return fail(ST_DAMAGED, "golden.safetensors: %s is not fp32 of %lld elements", e->name,
                        (long long)elements);
        }
        check_relative r = {0};
        stored(w, &tensors[i], whole, piece);
        check_relative_add(&r, piece, e->data, elements);
        out[(*count)++] = (check_gradient){tensors[i].name, check_relative_value(&r)};
    }
    return ST_OK;
}

static bool has_gradients(const safetensors *golden)
{
    for (int64_t i = 0; i < safetensors_count(golden); i++) {
        if (strncmp(safetensors_at(golden, i)->name, "grad.", 5) == 0) return true;
    }
    return false;
}

static int64_t largest_weight(const op_model *m)
{
    int64_t largest = 1;
    for (int64_t w = 0; w < m->weight_count; w++) {
        largest = max_i64(largest, m->weights[w].rows * m->weights[w].columns);
    }
    return largest;
}

status check_gradients_compare(const check_source *s, check_gradient **out, int64_t *count)
{
    const op_model *m = s->state->model;
    const int64_t largest = largest_weight(m);
    *count = 0;
    if (!has_gradients(s->golden)) return ST_OK;
    int64_t most = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        model_hf_tensor *tensors = NULL;
        int64_t tensor_count = 0;
        TRY(model_hf_tensors(s->a, s->spec, m, w, &tensors, &tensor_count));
        most += tensor_count;
    }
    TRY(arena_new(s->a, most, out));
    float *memory = malloc((size_t)(2 * largest) * sizeof(float));
    if (memory == NULL) return fail(ST_NO_MEMORY, "no memory for the largest gradient");
    status st = ST_OK;
    for (int32_t w = 0; w < m->weight_count && st == ST_OK; w++) {
        if (m->weights[w].frozen) continue;
        st = weight_compare(s, w, memory, memory + largest, *out, count);
    }
    free(memory);
    return st;
}

// ---- weights ------------------------------------------------------------------------------------

static double rms(const float *got, const void *want, int64_t count)
{
    const char *bytes = want;
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        float w;
        memcpy(&w, bytes + i * (int64_t)sizeof(w), sizeof(w));
        const double difference = (double)got[i] - (double)w;
        sum += difference * difference;
    }
    return sqrt(sum / (double)max_i64(count, 1));
}

static bool same_name(const char *theirs, const char *name)
{
    const char *dot = strchr(theirs, '.');
    return strcmp(theirs, name) == 0 || (dot != NULL && strcmp(dot + 1, name) == 0);
}

// Finds the weight, and the tensor of it that a file calls `name`.
static status tensor_find(arena *a, const decoder_spec *spec, const op_model *m, const char *name,
                          int64_t *weight, model_hf_tensor *out)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        model_hf_tensor *tensors = NULL;
        int64_t count = 0;
        TRY(model_hf_tensors(a, spec, m, w, &tensors, &count));
        for (int64_t i = 0; i < count; i++) {
            if (!same_name(tensors[i].name, name)) continue;
            *weight = w;
            *out = tensors[i];
            return ST_OK;
        }
    }
    return fail(ST_DAMAGED, "golden.safetensors: the model has no parameter %s", name);
}

status check_final_compare(arena *a, const ckpt_state *state, const decoder_spec *spec,
                           const char *name, const safetensors_entry *final, double *out)
{
    int64_t weight = -1;
    model_hf_tensor tensor;
    const op_model *m = state->model;
    TRY(tensor_find(a, spec, m, name, &weight, &tensor));
    const op_weight *w = &m->weights[weight];
    const int64_t whole = w->rows * w->columns, elements = tensor.rows * w->columns;
    if (final->type != DTYPE_F32 || final->bytes != elements * (int64_t)sizeof(float)) {
        return fail(ST_DAMAGED, "golden.safetensors: %s is not fp32 of %lld elements", final->name,
                    (long long)elements);
    }
    float *memory = malloc((size_t)(whole + elements) * sizeof(float));
    if (memory == NULL) return fail(ST_NO_MEMORY, "no memory for %s", w->name);
    const status st = ckpt_weight_get(state, weight, memory);
    if (st == ST_OK) {
        stored(w, &tensor, memory, memory + whole);
        *out = rms(memory + whole, final->data, elements);
    }
    free(memory);
    return st;
}
