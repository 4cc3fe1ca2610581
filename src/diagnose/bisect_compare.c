// Compares a step of the layout's ranks with one rank, in the order in which values are computed.
//
// The bound. Activations and gradients pass through the whole model, so a rounding anywhere changes
// all that follows; the size of the change is measured, not assumed. One rank runs the same step
// from the same weights in fp64 (backend ref): the error of fp32 is |fp32 - fp64| of one rank, and
// the error of the configuration's narrower types is |types - fp64| of one rank in those types.
// Both are root mean squares, over a row and over the whole tensor (a row of few values may be
// right by chance), and an element may differ by
//
//     slack x (rms of fp32 + rms of the types) + 4 x epsilon of the stored type x |value|
//
// The slack is 16: for a normal error one element in 10^8 exceeds 5.7 times its rms, and two errors
// add up. Over the sound layouts of bisect_test.c the worst is 0.22 of the bound in fp32 and 0.49
// in bf16. The single rank is never cut, so no mistake of a layout widens its own bound (a broken
// layout against its own fp64 would round as little, but needs as many slow ranks as the layout
// has). If the model is too large for fp64 in reasonable time, one rank in bf16 is measured against
// fp32 instead, which is 65,536 times as fine; fp32's own error is then that x ratio of epsilons x
// sqrt(terms of a sum).
//
// Ranks of the layout that hold the same element must have the same bits, however much rounding
// explains.
//
// Sums and updates are not compared with those of the single rank, whose gradients differ by
// roundings: Adam's first update is the sign of a gradient. They are recomputed in double from this
// run's own token losses, gradients and state, and may differ only by the rounding of the update
// itself.
//
// The gradient of a history of factors in 8 bits counts magnitudes by powers of two, once for each
// call. How many calls there are depends on the layout, so its rows are compared with those of one
// rank in these types by their largest power of two, which roundings may move by one. (One rank in
// fp32 has others: the first step cuts off gradients, since no history tells their size.) Its
// update is compared as every other one.
#include "diagnose/bisect_internal.h"
#include "op/objective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 16.0;

const char *bisect_phase_name(bisect_phase phase)
{
    static const char *const names[BISECT_PHASE_COUNT] = {
        [BISECT_START] = "start",       [BISECT_FORWARD] = "forward",
        [BISECT_BACKWARD] = "backward", [BISECT_GRADIENT] = "gradient",
        [BISECT_SUMS] = "sums",         [BISECT_UPDATE] = "update",
    };
    return names[phase];
}

static double epsilon_of(dtype type)
{
    if (type == DTYPE_BF16) return 0x1p-8;
    if (type == DTYPE_F16) return 0x1p-11;
    return type == DTYPE_F64 ? 0x1p-53 : 0x1p-24;
}

// Below this number values have fewer digits: the distance between two of them.
static double tiniest_of(dtype type)
{
    return type == DTYPE_F16 ? 0x1p-24 : 0x1p-126;
}

// ---- expected values ----------------------------------------------------------------------------

typedef struct field {
    int64_t rows, columns;
    double *want;      // [row][column]
    double *slack;     // [row]
    double *held;      // [row][column] a rank's value; NaN: none so far
    const double *old; // [row][column] or NULL; slack in parts of it and of the value:
    double of_old, of_want;
} field;

static void field_free(field *f)
{
    free(f->want);
    free(f->held);
    free(f->slack);
}

static status field_alloc(field *f)
{
    f->want = malloc((size_t)(f->rows * f->columns) * sizeof(double) + 1);
    f->held = malloc((size_t)(f->rows * f->columns) * sizeof(double) + 1);
    f->slack = calloc((size_t)f->rows + 1, sizeof(double));
    if (f->want != NULL && f->held != NULL && f->slack != NULL) {
        for (int64_t i = 0; i < f->rows * f->columns; i++) f->held[i] = (double)NAN;
        return ST_OK;
    }
    field_free(f);
    return fail(ST_NO_MEMORY, "no memory to compare %lld x %lld values", (long long)f->rows,
                (long long)f->columns);
}

// A reference's values, joined over its pieces.
typedef struct source {
    const char *data; // NULL: it has none
    dtype type;
    double factor;
} source;

static double source_at(const source *s, int64_t i)
{
    return dtype_load(s->type, s->data, i) * s->factor;
}

// Adds the measured error of `s` against `truth` to the slack of each row.
static status slack_add(field *f, const source *s, const source *truth, double times)
{
    double all = 0.0;
    double *rows = calloc((size_t)f->rows + 1, sizeof(double));
    if (rows == NULL) return fail(ST_NO_MEMORY, "no memory to measure roundings");
    for (int64_t r = 0; r < f->rows; r++) {
        for (int64_t c = 0; c < f->columns; c++) {
            const int64_t i = r * f->columns + c;
            const double error = source_at(s, i) - source_at(truth, i);
            rows[r] += error * error;
        }
        all += rows[r];
        rows[r] /= (double)max_i64(f->columns, 1);
    }
    all /= (double)max_i64(f->rows * f->columns, 1);
    for (int64_t r = 0; r < f->rows; r++) f->slack[r] += slack * times * sqrt(rows[r] + all);
    free(rows);
    return ST_OK;
}

static status slack_measure(const bisect *b, field *f, const source s[REF_COUNT], double terms)
{
    const source *fp32 = &s[REF_FP32], *fp64 = &s[REF_FP64], *types = &s[REF_TYPES];
    if (fp64->data != NULL) {
        TRY(slack_add(f, fp32, fp64, b->is_narrow ? 1.0 : 2.0));
        return b->is_narrow ? slack_add(f, types, fp64, 1.0) : ST_OK;
    }
    const dtype narrow = run_config_types(&b->refs[REF_TYPES]->r).compute;
    const double down = epsilon_of(DTYPE_F32) / epsilon_of(narrow) * sqrt(terms);
    return slack_add(f, types, fp32, b->is_narrow ? 1.0 + down : 2.0 * down);
}

static status field_make(const bisect *b, const source s[REF_COUNT], double terms, field *f)
{
    TRY(field_alloc(f));
    for (int64_t i = 0; i < f->rows * f->columns; i++) f->want[i] = source_at(&s[REF_FP32], i);
    const status st = slack_measure(b, f, s, terms);
    if (st != ST_OK) field_free(f);
    return st;
}

// ---- one tensor ---------------------------------------------------------------------------------

typedef struct comparing {
    bisect *b;
    bisect_item item;
    const field *f;
    int32_t what; // a point, or a weight
    int part, kind;
    bool is_tokens; // rows are of tokens
    // The first element that differs, by row and column; then the ranks that hold it.
    int64_t row, column;
    double value, expected, bound;
    bool collects;
    text differ, agree;
} comparing;

static double bound_at(const field *f, int64_t i, int64_t row, dtype type)
{
    const double want = fabs(f->want[i]);
    const double old = f->old != NULL ? fabs(f->old[i]) * f->of_old : 0.0;
    return f->slack[row] + old + want * (f->of_want + 4.0 * epsilon_of(type)) + tiniest_of(type);
}

static status rank_name(const bisect *b, int rank, text *t)
{
    static const char *const axes[AXIS_COUNT] = {"pp", "dp", "cp", "tp", "ep"};
    const plan_mesh *mesh = &b->ranks[rank]->options.mesh;
    TRY(text_add(t, "%srank %d", t->length > 0 ? ", " : "", rank));
    const char *before = " (";
    for (int i = 0; i < AXIS_COUNT; i++) {
        if (plan_mesh_size(mesh, (mesh_axis)i) < 2) continue;
        TRY(text_add(t, "%s%s %d", before, axes[i], (int)mesh->at[i]));
        before = " ";
    }
    return before[1] == '\0' ? text_add(t, ")") : ST_OK;
}

// Checks a value of one rank. Ranks that hold the same element must hold the same bits: sums over
// ranks end that way, and equal inputs give equal results.
static status value_check(comparing *k, int rank, int64_t row, int64_t column, double got,
                          dtype type)
{
    const field *f = k->f;
    const int64_t i = row * f->columns + column;
    ASSERT(row >= 0 && row < f->rows && column >= 0 && column < f->columns);
    const double bound = bound_at(f, i, row, type), apart = fabs(got - f->want[i]);
    const bool both = isnan(got) && isnan(f->want[i]);
    const bool near = both || got == f->want[i] || apart <= bound;
    const bool same = !near || isnan(f->held[i]) || got == f->held[i];
    const bool ok = near && same;
    if (k->collects) {
        if (row != k->row || column != k->column || rank < 0) return ST_OK;
        text *t = ok ? &k->agree : &k->differ;
        return t->length < 200 ? rank_name(k->b, rank, t) : ST_OK;
    }
    if (near && isnan(f->held[i])) f->held[i] = got;
    k->item.elements++;
    if (ok) {
        if (!both) k->item.worst = fmax(k->item.worst, got == f->want[i] ? 0.0 : apart / bound);
        return ST_OK;
    }
    const bool before = row < k->row || (row == k->row && column < k->column);
    if (k->item.differ++ > 0 && !before) return ST_OK;
    k->row = row;
    k->column = column;
    k->value = got;
    k->bound = near ? 0.0 : bound;
    k->expected = near ? f->held[i] : f->want[i];
    return ST_OK;
}

static status found_put(comparing *k)
{
    bisect_found *found = &k->b->out->first;
    k->b->out->differs = k->b->over = true;
    const int64_t seq = k->b->r->train.seq;
    *found = (bisect_found){.item = k->item,
                            .index = {-1, -1, -1, -1},
                            .value = k->value,
                            .expected = k->expected,
                            .bound = k->bound,
                            .ranks = k->differ.bytes,
                            .others = k->agree.length > 0 ? k->agree.bytes : NULL};
    if (k->b->last[0] != '\0') {
        char *before = NULL;
        TRY(arena_format(k->b->a, &before, "%s", k->b->last));
        found->before = before;
    }
    if (k->is_tokens) {
        found->index.sequence = k->row / seq;
        found->index.position = k->row % seq;
    } else if (k->item.phase != BISECT_SUMS) {
        found->index.row = k->row;
    }
    if (k->item.phase != BISECT_SUMS) found->index.column = k->column;
    return ST_OK;
}

// Visits all values; if some differ, visits them again to find the ranks that hold the first one.
static status compare(comparing *k, status (*visit)(comparing *))
{
    bisect *b = k->b;
    k->differ.a = k->agree.a = b->a;
    TRY(visit(k));
    if (k->item.elements == 0 && k->item.differ == 0)
        return ST_OK; // the run does not compute it separately
    if (k->item.differ > 0) {
        k->collects = true;
        TRY(visit(k));
        if (k->differ.length == 0) TRY(text_add(&k->differ, "no rank"));
        TRY(found_put(k));
    }
    b->out->items++;
    b->out->elements += k->item.elements;
    if (b->order->compared != NULL) b->order->compared(b->order->context, &k->item);
    if (k->item.differ > 0) return ST_OK;
    (void)snprintf(b->last, BISECT_LAST_BYTES, "%s of %s, %s", bisect_phase_name(k->item.phase),
                   k->item.block, k->item.tensor);
    if (k->item.worst >= b->out->worst) {
        b->out->worst = k->item.worst;
        (void)snprintf(b->out->where, sizeof(b->out->where), "%s, step %lld", b->last,
                       (long long)b->step);
    }
    return ST_OK;
}

// ---- activations --------------------------------------------------------------------------------

static status point_of_rank(comparing *k, int rank, bool *covered)
{
    const bisect_point *p = &k->b->points.rows[k->what];
    const bisect_rank *r = k->b->ranks[rank];
    const bisect_seen *s = &r->seen[k->what];
    const int64_t batches = r->p->own_sequences / r->p->micro_batch;
    const double scale = p->phase == BISECT_BACKWARD ? r->loss_scale : 1.0;
    for (int64_t mb = 0; s->data != NULL && mb < batches; mb++) {
        for (int64_t i = 0; s->has[mb] && i < s->rows; i++) {
            const int64_t row = bisect_row(r, s, mb, i), at = (mb * s->rows + i) * s->columns;
            covered[row] = true;
            for (int64_t j = 0; j < s->columns; j++) {
                TRY(value_check(k, rank, row, bisect_column(r, s, p, j),
                                dtype_load(s->type, s->data, at + j) / scale, s->type));
            }
        }
    }
    return ST_OK;
}

static status point_visit(comparing *k)
{
    bool *covered = calloc((size_t)k->f->rows + 1, sizeof(bool));
    if (covered == NULL) return fail(ST_NO_MEMORY, "no memory to compare");
    status st = ST_OK;
    for (int r = 0; r < k->b->rank_count && st == ST_OK; r++) st = point_of_rank(k, r, covered);
    const bool needed = k->b->points.rows[k->what].is_boundary;
    for (int64_t row = 0; row < k->f->rows && st == ST_OK && needed; row++) {
        if (!covered[row]) st = value_check(k, -1, row, 0, (double)NAN, DTYPE_F32);
    }
    free(covered);
    return st;
}

static double largest_sum(const bisect *b, bool of_weights)
{
    const decoder_spec *s = &b->spec;
    int64_t most = max_i64(max_i64(s->dim, s->ffn_dim), b->r->train.seq);
    if (of_weights) most = max_i64(most, b->sequences * b->r->train.seq);
    return (double)most;
}

static status point_compare(bisect *b, int32_t at)
{
    const bisect_point *p = &b->points.rows[at];
    const bool backward = p->phase == BISECT_BACKWARD;
    source s[REF_COUNT] = {{0}};
    field f = {.rows = b->sequences * b->r->train.seq, .columns = p->columns};
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] == NULL || b->refs[i]->seen[at].data == NULL) continue;
        const bisect_seen *seen = &b->refs[i]->seen[at];
        s[i] = (source){seen->data, seen->type, backward ? 1.0 / b->refs[i]->loss_scale : 1.0};
    }
    if (s[REF_FP32].data == NULL) return ST_OK;
    comparing k = {
        .b = b,
        .item = {.step = b->step, .phase = p->phase, .block = p->block, .tensor = p->name},
        .f = &f,
        .what = at,
        .is_tokens = true};
    TRY(field_make(b, s, largest_sum(b, false), &f));
    const status st = compare(&k, point_visit);
    field_free(&f);
    return st;
}

// ---- gradients of weights -----------------------------------------------------------------------

// Returns the largest column of a row of counts that is positive; -1: none.
static double largest_column(const bisect_seen *s, int64_t row)
{
    int64_t column = s->columns - 1;
    while (column >= 0 && !(dtype_load(s->type, s->data, row * s->columns + column) > 0.0)) {
        column--;
    }
    return (double)column;
}

static status counts_visit(comparing *k)
{
    for (int rank = 0; rank < k->b->rank_count; rank++) {
        const bisect_rank *r = k->b->ranks[rank];
        const bisect_seen *s = &r->grads[k->what];
        const plan_piece p = plan_piece_of(&r->plans.places, rank, k->what, k->part, PLACE_STATE);
        for (int64_t i = 0; s->data != NULL && i < p.rows; i++) {
            TRY(value_check(k, rank, plan_piece_row(&p, i), 0, largest_column(s, i), DTYPE_F32));
        }
    }
    return ST_OK;
}

static status counts_compare(bisect *b, int32_t weight)
{
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    field f = {.rows = w->rows, .columns = 1};
    comparing k = {.b = b,
                   .item = {.step = b->step,
                            .phase = BISECT_GRADIENT,
                            .block = w->name,
                            .tensor = "largest magnitudes of x, w, dy"},
                   .f = &f,
                   .what = weight};
    ASSERT(b->is_narrow); // so there is a rank in the types of the run
    TRY(field_alloc(&f));
    for (int64_t i = 0; i < f.rows; i++) {
        f.want[i] = largest_column(&b->refs[REF_TYPES]->grads[weight], i);
        f.slack[i] = 1.0;
    }
    const status st = compare(&k, counts_visit);
    field_free(&f);
    return st;
}

static status gradient_visit(comparing *k)
{
    for (int rank = 0; rank < k->b->rank_count; rank++) {
        const bisect_rank *r = k->b->ranks[rank];
        const bisect_seen *s = &r->grads[k->what];
        const plan_piece p = plan_piece_of(&r->plans.places, rank, k->what, k->part, PLACE_STATE);
        if (s->data == NULL) continue; // it takes none, which shows in its weights
        for (int64_t i = 0; i < p.rows * p.columns; i++) {
            TRY(value_check(k, rank, plan_piece_row(&p, i / p.columns), p.column + i % p.columns,
                            dtype_load(s->type, s->data, p.at + i) / r->loss_scale, s->type));
        }
    }
    return ST_OK;
}

static status gradient_compare(bisect *b, int32_t weight, int part)
{
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    source s[REF_COUNT] = {{0}};
    field f = {.rows = w->parts[part].rows, .columns = w->columns};
    if (w->is_history) return counts_compare(b, weight);
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] == NULL) continue;
        const bisect_seen *seen = &b->refs[i]->grads[weight];
        const int64_t begin = w->parts[part].row_begin * w->columns * dtype_bytes(seen->type);
        s[i] = (source){seen->data + begin, seen->type, 1.0 / b->refs[i]->loss_scale};
    }
    comparing k = {.b = b,
                   .item = {.step = b->step,
                            .phase = BISECT_GRADIENT,
                            .block = w->parts[part].name,
                            .tensor = "sum over all tokens"},
                   .f = &f,
                   .what = weight,
                   .part = part};
    TRY(field_make(b, s, largest_sum(b, true), &f));
    const status st = compare(&k, gradient_visit);
    field_free(&f);
    return st;
}

// ---- sums ---------------------------------------------------------------------------------------

enum { SUM_TOKENS, SUM_LOSS, SUM_NORM, SUM_FACTOR, SUM_SKIP, SUM_APPLIED, SUM_COUNT };

static status sum_visit(comparing *k)
{
    for (int rank = 0; rank < k->b->rank_count; rank++) {
        const step_device *d = &k->b->ranks[rank]->results;
        const double values[SUM_COUNT] = {
            [SUM_TOKENS] = (double)d->tokens, [SUM_LOSS] = d->loss,
            [SUM_NORM] = d->grad_norm,        [SUM_FACTOR] = d->grad_factor,
            [SUM_SKIP] = (double)d->skip,     [SUM_APPLIED] = (double)d->applied,
        };
        TRY(value_check(k, rank, 0, 0, values[k->kind], DTYPE_F32));
    }
    return ST_OK;
}

// The token losses on the ranks, by position.
static void losses_gather(const bisect *b, double *losses)
{
    for (int32_t at = 0; at < b->points.count; at++) {
        const bisect_point *p = &b->points.rows[at];
        if (p->phase != BISECT_FORWARD || p->list != OP_BACKWARD_WEIGHT) continue;
        for (int r = 0; r < b->rank_count; r++) {
            const bisect_rank *k = b->ranks[r];
            const bisect_seen *s = &k->seen[at];
            const int64_t batches = k->p->own_sequences / k->p->micro_batch;
            for (int64_t i = 0; s->data != NULL && i < batches * s->rows; i++) {
                if (!s->has[i / s->rows]) continue;
                losses[bisect_row(k, s, i / s->rows, i % s->rows)] =
                    dtype_load(s->type, s->data, i);
            }
        }
        break;
    }
}

static const void *batch_of(const bisect *b, const char *name)
{
    for (int i = 0; i < b->batch_count; i++) {
        if (strcmp(b->batch[i].name, name) == 0) return b->batch[i].data;
    }
    return NULL;
}

// The losses of answers in all sequences, from the losses of their tokens.
static status answers_sum(const bisect *b, const op_objective_attrs *a, const double *losses,
                          int64_t *units, double *sum)
{
    const int64_t seq = b->r->train.seq;
    const int32_t *documents = batch_of(b, "documents");
    const float *given = batch_of(b, "given");
    char *space = calloc((size_t)op_objective_bytes(seq) + 1, 1);
    if (space == NULL) return fail(ST_NO_MEMORY, "no memory for the losses of a sequence");
    double *made = (double *)(void *)space, *numbers = made + 2 * seq + seq * MEASURE_COLUMNS;
    for (int64_t n = 0; n < b->sequences; n++) {
        for (int64_t i = 0; i < seq * GIVEN_COLUMNS; i++) {
            numbers[i] = (double)given[n * seq * GIVEN_COLUMNS + i];
        }
        const op_objective_sequence s = {.rows = seq,
                                         .token_loss = losses + n * seq,
                                         .given = numbers,
                                         .documents = documents + n * seq,
                                         .losses = made,
                                         .slopes = made + seq,
                                         .measures = made + 2 * seq,
                                         .units =
                                             (int32_t *)(void *)(numbers + seq * GIVEN_COLUMNS)};
        op_objective_compute(a, &s);
        for (int64_t t = 0; t < seq; t++) {
            *units += s.units[t] >= 0 ? 1 : 0;
            *sum += s.losses[t];
        }
    }
    free(space);
    return ST_OK;
}

// How many tokens, or answers, have a loss, and its mean over them, from the token losses on the
// ranks.
static status own_loss(const bisect *b, int64_t *tokens, double *loss)
{
    const int64_t cells = b->sequences * b->r->train.seq;
    const op_objective_attrs objective = run_config_objective(b->r);
    const int32_t *labels = b->batch[1].data;
    double *losses = calloc((size_t)cells + 1, sizeof(double)), sum = 0.0;
    status st = ST_OK;
    if (losses == NULL) return fail(ST_NO_MEMORY, "no memory for the losses of tokens");
    losses_gather(b, losses);
    *tokens = 0;
    for (int64_t i = 0; i < cells && objective.kind == OBJECTIVE_NONE; i++) {
        *tokens += labels[i] >= 0 ? 1 : 0;
        sum += losses[i];
    }
    if (objective.kind != OBJECTIVE_NONE) st = answers_sum(b, &objective, losses, tokens, &sum);
    *loss = sum / (double)*tokens;
    free(losses);
    return st;
}

// A weight's whole gradient, gathered from the ranks.
static void gradient_gather(const bisect *b, int32_t weight, double *out)
{
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    for (int64_t r = 0; r < b->rank_count; r++) {
        const bisect_seen *s = &b->ranks[r]->grads[weight];
        for (int part = 0; part < w->part_count && s->data != NULL; part++) {
            const plan_piece p =
                plan_piece_of(&b->ranks[r]->plans.places, r, weight, part, PLACE_STATE);
            for (int64_t i = 0; i < p.rows * p.columns; i++) {
                const int64_t row = w->parts[part].row_begin + plan_piece_row(&p, i / p.columns);
                out[row * w->columns + p.column + i % p.columns] =
                    dtype_load(s->type, s->data, p.at + i);
            }
        }
    }
}

// Squares of all gradients, each element once, as accumulated.
static status own_squares(const bisect *b, double *sum)
{
    const op_model *m = b->refs[REF_FP32]->plans.whole;
    *sum = 0.0;
    for (int32_t w = 0; w < m->weight_count; w++) {
        const int64_t count = bisect_state_elements(&m->weights[w]);
        if (m->weights[w].is_history) continue;
        double *grad = calloc((size_t)count + 1, sizeof(double));
        if (grad == NULL) return fail(ST_NO_MEMORY, "no memory for a norm");
        gradient_gather(b, w, grad);
        for (int64_t i = 0; i < count; i++) *sum += grad[i] * grad[i];
        free(grad);
    }
    return ST_OK;
}

static status sums_compare(bisect *b)
{
    static const char *const names[SUM_COUNT] = {
        [SUM_TOKENS] = "tokens",
        [SUM_LOSS] = "loss",
        [SUM_NORM] = "norm of the gradient",
        [SUM_FACTOR] = "factor of the gradient",
        [SUM_SKIP] = "skipped",
        [SUM_APPLIED] = "updates so far",
    };
    int64_t tokens = 0;
    double squares = 0.0, loss = 0.0;
    const int64_t cells = b->sequences * b->r->train.seq;
    TRY(own_loss(b, &tokens, &loss));
    const double unit = (double)cells / (b->ranks[0]->loss_scale * (double)tokens);
    TRY(own_squares(b, &squares));
    const double norm = sqrt(squares) * unit, clip = b->r->optimizer.clip;
    const double clipped = clip > 0.0 ? fmin(1.0, clip / (norm + 1e-6)) : 1.0;
    const double want[SUM_COUNT] = {
        [SUM_TOKENS] = (double)tokens,
        [SUM_LOSS] = loss,
        [SUM_NORM] = norm,
        [SUM_FACTOR] = unit * clipped,
        [SUM_SKIP] = (double)b->ranks[0]->results.skip,
        [SUM_APPLIED] = (double)b->applied,
    };
    for (int i = 0; i < SUM_COUNT && !b->over; i++) {
        field f = {.rows = 1, .columns = 1, .of_want = 1e-6};
        TRY(field_alloc(&f));
        f.want[0] = want[i];
        comparing k = {
            .b = b,
            .item = {.step = b->step, .phase = BISECT_SUMS, .block = "step", .tensor = names[i]},
            .f = &f,
            .kind = i};
        const status st = compare(&k, sum_visit);
        field_free(&f);
        TRY(st);
    }
    return ST_OK;
}

// ---- state --------------------------------------------------------------------------------------

static status state_of_rank(comparing *k, int rank, double *values)
{
    const bisect_rank *r = k->b->ranks[rank];
    const plan_piece p = bisect_state_piece(r, k->what, k->part, k->kind);
    if (p.rows == 0) return ST_OK;
    const dtype type = bisect_state_type(r, k->what, k->kind);
    TRY(bisect_state_read(r, k->what, k->kind, &p, values));
    for (int64_t i = 0; i < p.rows * p.columns; i++) {
        TRY(value_check(k, rank, plan_piece_row(&p, i / p.columns), p.column + i % p.columns,
                        values[i], type));
    }
    return ST_OK;
}

static status state_visit(comparing *k)
{
    double *values = malloc((size_t)(k->f->rows * k->f->columns) * sizeof(double) + 1);
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory to compare weights");
    status st = ST_OK;
    for (int r = 0; r < k->b->rank_count && st == ST_OK; r++) st = state_of_rank(k, r, values);
    free(values);
    return st;
}

// Compares one kind of state of a part on all ranks with `want` (of the whole weight).
static status part_compare(bisect *b, int32_t weight, int part, int kind, const double *want)
{
    static const char *const kinds[] = {"working copy", "weight", "first moment", "second moment"};
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    const int64_t begin = w->parts[part].row_begin * w->columns;
    const int64_t first = max_i64(kind, 0) * bisect_state_elements(w) + begin;
    const bool is_start = b->step == 0;
    field f = {.rows = w->parts[part].rows, .columns = w->columns};
    if (!is_start && kind > 0) { // sums of two terms, which may cancel
        f.old = b->state[weight] + first;
        f.of_old = f.of_want = 0x1p-18;
    }
    TRY(field_alloc(&f));
    memcpy(f.want, want + begin, (size_t)(f.rows * f.columns) * sizeof(double));
    const run_optimizer name = (run_optimizer)b->r->optimizer.name;
    const double step = b->refs[REF_FP32]->results.grad_factor >= 0.0 ? b->r->optimizer.lr : 0.0;
    for (int64_t r = 0; r < f.rows && !is_start && kind <= 0; r++) {
        f.slack[r] = step * run_optimizer_for(name, w->is_matrix)->slack;
    }
    comparing k = {.b = b,
                   .item = {.step = b->step,
                            .phase = is_start ? BISECT_START : BISECT_UPDATE,
                            .block = w->parts[part].name,
                            .tensor = kinds[kind + 1]},
                   .f = &f,
                   .what = weight,
                   .part = part,
                   .kind = kind};
    const status st = compare(&k, state_visit);
    field_free(&f);
    return st;
}

static status weight_compare(bisect *b, int32_t weight, double *const want[BISECT_STATES])
{
    static const int kinds[] = {0, 1, 2, -1};
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        bool is_kept = false;
        for (int64_t r = 0; r < b->rank_count; r++) {
            is_kept = is_kept || bisect_state_is_kept(b->ranks[r], weight, kinds[i]);
        }
        for (int part = 0; part < w->part_count && is_kept && !b->over; part++) {
            TRY(part_compare(b, weight, part, kinds[i], want[max_i64(kinds[i], 0)]));
        }
    }
    return ST_OK;
}

// Takes the state of the layout's ranks as the state with which all sides begin the next step.
static status state_take(bisect *b, int32_t weight, double *piece)
{
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    for (int kind = 0; kind < BISECT_STATES; kind++) {
        for (int part = 0; part < w->part_count; part++) {
            double *whole = b->state[weight] + kind * bisect_state_elements(w) +
                            w->parts[part].row_begin * w->columns;
            for (int64_t r = 0; r < b->rank_count; r++) { // of equal pieces any one will do
                const bisect_rank *k = b->ranks[r];
                const plan_piece p = bisect_state_piece(k, weight, part, kind);
                if (p.rows == 0) continue;
                TRY(bisect_state_read(k, weight, kind, &p, piece));
                (void)plan_piece_put(&p, w->columns, 0, w->parts[part].rows * w->columns,
                                     (int64_t)sizeof(double), piece, whole);
            }
        }
    }
    return ST_OK;
}

static status update_compare(bisect *b, int32_t weight)
{
    const op_weight *w = &b->refs[REF_FP32]->plans.whole->weights[weight];
    const int64_t count = bisect_state_elements(w);
    double *memory = malloc((size_t)((BISECT_STATES + 1) * count) * sizeof(double) + 1);
    if (memory == NULL) return fail(ST_NO_MEMORY, "no memory for the update of %s", w->name);
    double *const want[BISECT_STATES] = {memory + count, memory + 2 * count, memory + 3 * count};
    memset(memory, 0, (size_t)count * sizeof(double));
    gradient_gather(b, weight, memory);
    status st = bisect_update_expect(b, weight, memory, want);
    if (st == ST_OK) st = weight_compare(b, weight, want);
    if (st == ST_OK && !b->over) st = state_take(b, weight, memory);
    free(memory);
    return st;
}

// ---- the whole step -----------------------------------------------------------------------------

status bisect_compare_start(bisect *b)
{
    const op_model *m = b->refs[REF_FP32]->plans.whole;
    for (int32_t i = 0; i < m->weight_count && !b->over; i++) {
        const int64_t count = bisect_state_elements(&m->weights[i]);
        double *const want[BISECT_STATES] = {b->state[i], b->state[i] + count,
                                             b->state[i] + 2 * count};
        TRY(weight_compare(b, i, want));
    }
    return ST_OK;
}

status bisect_compare_step(bisect *b)
{
    const op_model *m = b->refs[REF_FP32]->plans.whole;
    for (int32_t i = 0; i < b->points.count && !b->over; i++) TRY(point_compare(b, i));
    for (int32_t w = (int32_t)m->weight_count - 1; w >= 0;
         w--) { // in the order of the backward pass
        for (int part = 0; part < m->weights[w].part_count && !b->over; part++) {
            TRY(gradient_compare(b, w, part));
        }
    }
    if (!b->over) TRY(sums_compare(b));
    for (int32_t w = 0; w < m->weight_count && !b->over; w++) TRY(update_compare(b, w));
    for (int i = 0; i < REF_COUNT && !b->over; i++) {
        if (b->refs[i] != NULL) TRY(bisect_state_write(b, b->refs[i]));
    }
    return ST_OK;
}
