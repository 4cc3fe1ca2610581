// Merging an adapter: the base model's values come from a checkpoint, from files or from a seed,
// the adapter's from a checkpoint or a folder of PEFT. Products are summed in double and rounded
// once.
#include "cli/export/export_merge.h"

#include "assemble/base.h"
#include "infer/infer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct export_merge {
    cli_context *cli;
    int sign;
    decoder_spec spec; // with the adapter
    op_model *m;       // with the adapter
    // The adapter's values: of a checkpoint, or else of PEFT's file.
    ckpt_reader *adapter;
    model_adapter_source peft;
    assemble_base_values base;
};

// ---- sources ------------------------------------------------------------------------------------

// The base model must be the one that the adapter was trained with.
static status base_of_run(export_merge *m, const cli_model *model, const assemble_base *was)
{
    assemble_base now;
    TRY(assemble_base_describe(m->cli->h, m->cli->a, &model->spec, was->from, was->seed, &now));
    TRY(assemble_base_compare(model->folder, was, &now));
    TRY(assemble_base_open(m->cli->h, m->cli->a, &m->spec, was->from, (uint64_t)was->seed,
                           &m->base));
    return ckpt_reader_open(m->cli->h, model->folder, &m->adapter);
}

static status model_make(export_merge *m)
{
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 1};
    return model_build(m->cli->a, &m->spec, &options, &m->m);
}

static status sources_open(export_merge *m, const cli_model *model, const char *peft)
{
    const host *h = m->cli->h;
    arena *a = m->cli->a;
    assemble_base was;
    bool has_base = false;
    m->spec = model->spec;
    TRY(infer_adapter_read(h, a, model->folder, peft, &m->spec));
    if (m->spec.adapter.rank == 0) {
        return fail(ST_USAGE,
                    "--adapter, --merge and --unmerge: %s has no adapter; name a run that trained "
                    "one, or give the folder of one with --peft",
                    model->folder);
    }
    if (m->spec.adapter.dora && m->sign < 0) {
        return fail(ST_UNSUPPORTED,
                    "--unmerge: the adapter is a DoRA, which replaces the length of each row, so "
                    "the lengths of the base model cannot be found again");
    }
    if (m->spec.scores != MODEL_WRITES && m->sign < 0) {
        return fail(ST_UNSUPPORTED,
                    "--unmerge: %s is a reward model, whose head was trained with the adapter, so "
                    "that of the base model cannot be found again",
                    model->folder);
    }
    TRY(model_make(m));
    if (model->kind != OPERAND_HF) {
        TRY(assemble_base_read(h, a, model->folder, &was, &has_base));
    }
    if (has_base) return base_of_run(m, model, &was);
    TRY(assemble_base_open(h, a, &m->spec, model->folder, 0, &m->base));
    return model_adapter_open(h, a, &m->spec, m->m, 0, &m->peft);
}

status export_merge_open(cli_context *cli, const cli_model *model, const char *peft, int sign,
                         export_merge **out)
{
    export_merge *m = NULL;
    TRY(arena_new(cli->a, 1, &m));
    m->cli = cli;
    m->sign = sign;
    const status st = sources_open(m, model, peft);
    if (st != ST_OK) export_merge_close(m);
    if (st == ST_OK) *out = m;
    return st;
}

void export_merge_close(export_merge *m)
{
    if (m == NULL) return;
    model_adapter_close(&m->peft);
    ckpt_reader_close(m->adapter);
    assemble_base_close(&m->base);
}

const op_model *export_merge_model(const export_merge *m)
{
    return m->m;
}

const decoder_spec *export_merge_spec(const export_merge *m)
{
    return &m->spec;
}

// ---- values -------------------------------------------------------------------------------------

status export_merge_part(export_merge *m, int64_t weight, int part, float *values)
{
    const op_weight *w = &m->m->weights[weight];
    if (m->adapter != NULL) return assemble_part_read(m->adapter, w, part, values);
    const int64_t count = w->rows * w->columns;
    float *whole = malloc((size_t)count * sizeof(float));
    if (whole == NULL) return fail(ST_NO_MEMORY, "no memory for %s", w->name);
    const status st = model_adapter_weight(&m->peft, weight, whole);
    if (st == ST_OK) {
        memcpy(values, whole + w->parts[part].row_begin * w->columns,
               (size_t)(w->parts[part].rows * w->columns) * sizeof(float));
    }
    free(whole);
    return st;
}

// ---- products -----------------------------------------------------------------------------------

// A weight of the adapter, or a part of one, by name; false: it has none.
static bool part_find(const op_model *m, const char *matrix, const char *kind, int64_t *weight,
                      int *part)
{
    char name[PLAN_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", matrix, kind);
    for (int64_t w = 0; w < m->weight_count; w++) {
        for (int i = 0; m->weights[w].is_adapter && i < m->weights[w].part_count; i++) {
            if (strcmp(m->weights[w].parts[i].name, name) != 0) continue;
            *weight = w;
            *part = i;
            return true;
        }
        if (m->weights[w].is_adapter && strcmp(m->weights[w].name, name) == 0) {
            *weight = w;
            *part = -1; // all parts
            return true;
        }
    }
    return false;
}

// Reads a weight of the adapter, or a part of one; the caller frees *out.
static status matrix_read(export_merge *m, int64_t weight, int part, float **out)
{
    const op_weight *w = &m->m->weights[weight];
    const int first = part < 0 ? 0 : part, last = part < 0 ? w->part_count - 1 : part;
    int64_t rows = 0;
    for (int i = first; i <= last; i++) rows += w->parts[i].rows;
    float *values = malloc((size_t)(rows * w->columns) * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for %s", w->name);
    int64_t at = 0;
    status st = ST_OK;
    for (int i = first; i <= last && st == ST_OK; i++) {
        st = export_merge_part(m, weight, i, values + at * w->columns);
        at += w->parts[i].rows;
    }
    if (st != ST_OK) {
        free(values);
        return st;
    }
    *out = values;
    return ST_OK;
}

// w(rows, columns) += scale * b(rows, rank) a(rank, columns).
static void product_add(const float *b, const float *a, int64_t rows, int64_t rank, int64_t columns,
                        double scale, float *w)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < rank; k++) {
                sum += (double)b[i * rank + k] * (double)a[k * columns + j];
            }
            w[i * columns + j] = (float)((double)w[i * columns + j] + scale * sum);
        }
    }
}

// Gives each row of w the length that DoRA trained for it.
static status lengths_set(export_merge *m, const char *name, int64_t rows, int64_t columns,
                          float *w)
{
    int64_t weight = 0;
    int part = 0;
    float *lengths = NULL;
    if (!part_find(m->m, name, "lora_magnitude_vector", &weight, &part)) {
        return fail(ST_INTERNAL, "%s has a lora_B and no lora_magnitude_vector", name);
    }
    TRY(matrix_read(m, weight, part, &lengths));
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < columns; j++) {
            sum += (double)w[i * columns + j] * (double)w[i * columns + j];
        }
        const double factor = sum > 0.0 ? (double)lengths[i] / sqrt(sum) : 0.0;
        for (int64_t j = 0; j < columns; j++) {
            w[i * columns + j] = (float)((double)w[i * columns + j] * factor);
        }
    }
    free(lengths);
    return ST_OK;
}

// Merges the terms of one matrix of files, which is a weight or a part of one.
static status matrix_merge(export_merge *m, const char *name, int64_t rows, int64_t columns,
                           float *values)
{
    int64_t a_weight = 0, b_weight = 0;
    int a_part = 0, b_part = 0;
    float *a = NULL, *b = NULL;
    // B first: each matrix has its own, and some share a weight of all their A.
    if (!part_find(m->m, name, "lora_B", &b_weight, &b_part)) return ST_OK;
    if (!part_find(m->m, name, "lora_A", &a_weight, &a_part)) {
        return fail(ST_INTERNAL, "%s has a lora_B and no lora_A", name);
    }
    TRY(matrix_read(m, a_weight, a_part, &a));
    status st = matrix_read(m, b_weight, b_part, &b);
    if (st == ST_OK) {
        const double scale = m->sign * model_adapter_scale(&m->spec.adapter);
        product_add(b, a, rows, m->spec.adapter.rank, columns, scale, values);
        if (m->spec.adapter.dora) st = lengths_set(m, name, rows, columns, values);
    }
    free(a);
    free(b);
    return st;
}

// A weight that was trained whole, with the adapter, as the head of a reward model is.
static status whole_read(export_merge *m, const char *name, float *values, bool *is_there)
{
    *is_there = false;
    for (int64_t w = 0; w < m->m->weight_count && !*is_there; w++) {
        const op_weight *own = &m->m->weights[w];
        *is_there = own->is_adapter && strcmp(own->name, name) == 0;
        for (int i = 0; i < own->part_count && *is_there; i++) {
            TRY(export_merge_part(m, w, i, values + own->parts[i].row_begin * own->columns));
        }
    }
    return ST_OK;
}

status export_merge_weight(export_merge *m, const op_model *weights, int64_t weight, float *values)
{
    const op_weight *w = &weights->weights[weight];
    bool is_whole = false;
    TRY(whole_read(m, w->name, values, &is_whole));
    if (is_whole) return ST_OK;
    TRY(assemble_base_weight(&m->base, weights, weight, values));
    if (w->ndim != 2) return ST_OK;
    TRY(matrix_merge(m, w->name, w->rows, w->columns, values));
    for (int i = 0; i < w->part_count && w->part_count > 1; i++) {
        TRY(matrix_merge(m, w->parts[i].name, w->parts[i].rows, w->columns,
                         values + w->parts[i].row_begin * w->columns));
    }
    return ST_OK;
}
