// Low-rank terms of an adapter on a projection: y += s (x A^T) B^T, where s is the adapter's scale.
//
// A projection may be fused: q, k and v are one matrix, of which files have three. Then the adapter
// has an A and a B for each part that it covers. All A of a projection are one weight, so x is read
// once; each B writes its own columns of the term.
//
//   x (N, in) -> low = x [A_q; A_v]^T (N, 2 rank)   low_q | low_v
//   y = x W^T    q | k | v                          q + s low_q B_q^T | k | v + s low_v B_v^T
//
// tp cuts B where it cuts W by rows, and A where it cuts W by columns: then low is a sum over
// ranks, which is narrow.
//
// DoRA trains the length of each row of W + s B A apart from its direction: m, a number for each
// column of y, takes the place of the length (op/magnitude.c). Dropout applies to all that m
// scales, as in PEFT; the rest of y is added to the result:
//
//   y = W x - W x' + m / |W + s B A| (W x' + s B A x') + bias       x' = dropout(x)
#include "model/block/block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// A matrix of the model's files: a projection, or a part of a fused one.
typedef struct matrix {
    const char *name;
    int64_t begin, rows; // columns of y
    int part;            // of the projection; -1: all of it
    bool covered;
} matrix;

// Returns the number of matrices that a projection has in files.
static int matrices_of(const block_context *c, const linear_spec *spec, matrix out[BLOCK_MAX_PARTS])
{
    char whole[MODEL_NAME_BYTES], module[MODEL_NAME_BYTES];
    (void)snprintf(whole, sizeof(whole), "%s%s", c->prefix, spec->name);
    if (spec->part_count == 0 || model_hf_module(c->spec, whole, module)) {
        out[0] = (matrix){.name = spec->name, .rows = spec->rows, .part = -1};
        return 1;
    }
    int64_t at = 0;
    for (int i = 0; i < spec->part_count; i++) {
        out[i] = (matrix){
            .name = spec->parts[i].name, .begin = at, .rows = spec->parts[i].rows, .part = i};
        at += spec->parts[i].rows;
    }
    return spec->part_count;
}

static int covered_of(const block_context *c, const linear_spec *spec, matrix out[BLOCK_MAX_PARTS],
                      int *count)
{
    int covered = 0;
    *count = matrices_of(c, spec, out);
    for (int i = 0; i < *count; i++) {
        out[i].covered = model_adapter_covers(c->spec, c->prefix, out[i].name);
        covered += out[i].covered ? 1 : 0;
    }
    return covered;
}

bool block_adapter_begin(block_context *c, const linear_spec *spec)
{
    matrix all[BLOCK_MAX_PARTS];
    int count = 0;
    if (c->spec->adapter.rank == 0) return false;
    const int covered = covered_of(c, spec, all, &count);
    for (int i = 0; i < count; i++) {
        ASSERT(c->matrix_count < BLOCK_MAX_MATRICES);
        c->matrices[c->matrix_count].name = all[i].name;
        c->matrices[c->matrix_count++].covered = all[i].covered;
    }
    return covered > 0;
}

static status joined(block_context *c, const char *name, const char *end, const char **out)
{
    char *both = NULL;
    TRY(arena_format(c->p->a, &both, "%s.%s", name, end));
    *out = both;
    return ST_OK;
}

static block_weight weight_of(const char *name, int64_t rows, int64_t columns)
{
    block_weight w = {.name = name,
                      .ndim = 2,
                      .rows = rows,
                      .columns = columns,
                      .in_gemm = true,
                      .is_matrix = true,
                      .adapter = true};
    memset(w.cut_dim, -1, sizeof(w.cut_dim));
    return w;
}

// A starts with the variance of PEFT's uniform values, 1 / (3 in), and B with zeros, so that the
// terms are zero at first.
static status down_declare(block_context *c, const linear_spec *spec, const matrix *all, int count,
                           tensor_id *a)
{
    const int64_t rank = c->spec->adapter.rank;
    const char *names[BLOCK_MAX_PARTS] = {NULL};
    int covered = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].covered) TRY(joined(c, all[i].name, "lora_A", &names[covered++]));
    }
    block_weight w = weight_of(names[0], covered * rank, spec->columns);
    if (covered > 1) {
        TRY(joined(c, spec->name, "lora_A", &w.name));
        w.part_count = covered;
        for (int i = 0; i < covered; i++) {
            w.parts[i].name = names[i];
            w.parts[i].rows = rank;
        }
    }
    w.init = INIT_NORMAL;
    w.init_std = (float)(1.0 / sqrt(3.0 * (double)spec->columns));
    w.cut_dim[AXIS_TP] = spec->cut_dim == 1 ? 1 : -1;
    return block_adapter_weight(c, &w, a);
}

// A weight with a row for each row of W that a matrix has has the parts of those rows.
static status rows_parts(block_context *c, const linear_spec *spec, const matrix *m,
                         block_weight *w)
{
    const int first = m->part < 0 ? 0 : m->part;
    w->part_count = m->part < 0 ? spec->part_count : 1;
    for (int i = 0; i < w->part_count && spec->part_count > 0; i++) {
        w->parts[i].name = w->name;
        if (m->part < 0) TRY(joined(c, w->name, spec->parts[i].name, &w->parts[i].name));
        w->parts[i].rows = spec->parts[first + i].rows;
        w->parts[i].heads = spec->parts[first + i].heads;
    }
    return ST_OK;
}

static status up_declare(block_context *c, const linear_spec *spec, const matrix *m, tensor_id *b)
{
    block_weight w = weight_of(NULL, m->rows, c->spec->adapter.rank);
    TRY(joined(c, m->name, "lora_B", &w.name));
    w.init = INIT_ZEROS;
    w.cut_dim[AXIS_TP] = spec->cut_dim == 0 ? 0 : -1;
    TRY(rows_parts(c, spec, m, &w));
    return block_adapter_weight(c, &w, b);
}

// ---- terms --------------------------------------------------------------------------------------

static bool drops(const block_context *c)
{
    return c->spec->adapter.dropout > 0.0f && c->options->purpose == PURPOSE_TRAIN;
}

// Appends low = s x A^T for all covered matrices: (N, covered * rank). x: after dropout.
static status low_emit(block_context *c, tensor_id x, tensor_id a, tensor_id *low)
{
    TRY(op_matmul(c->p, x, a, TENSOR_NONE, ACT_NONE, low));
    return op_scale(c->p, *low, (float)model_adapter_scale(&c->spec->adapter), low);
}

// Makes a tensor with the rows and the parts of y.
static status like_make(block_context *c, const char *name, tensor_id y, tensor_id *out)
{
    const op_tensor like = c->p->tensors[y];
    TRY(op_tensor_make(c->p, name, ROLE_ACTIVATION, like.type, 2, like.dims[0], like.dims[1], out));
    c->p->tensors[*out].of = y;
    return ST_OK;
}

// Returns the columns of a matrix in a tensor like y.
static status columns_of(block_context *c, tensor_id of, const matrix *m, const char *end,
                         tensor_id *out)
{
    char name[OP_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%.24s.%s", m->name, end);
    return op_view(c->p, of, name, m->begin, m->rows, out);
}

static status node_to(block_context *c, op_code code, tensor_id a, tensor_id b, tensor_id out)
{
    op_node node = op_node_of(code);
    node.in[0] = a;
    node.in[1] = b;
    node.out[0] = out;
    return op_append(c->p, OP_FORWARD, &node, 0);
}

// Some parts of y get a term, and the others are copied.
static status some_add(block_context *c, const matrix *all, int count, const tensor_id *terms,
                       tensor_id *y, tensor_id sum)
{
    for (int i = 0; i < count; i++) {
        tensor_id from = TENSOR_NONE, to = TENSOR_NONE;
        TRY(columns_of(c, *y, &all[i], "plain", &from));
        TRY(columns_of(c, sum, &all[i], "sum", &to));
        TRY(node_to(c, all[i].covered ? OP_ADD : OP_CAST, from, terms[i], to));
        c->p->tensors[to].frozen = false; // its whole tensor gets a gradient
    }
    *y = sum;
    return ST_OK;
}

// The terms of an adapter on one projection: operands, and a B and a term for each matrix.
typedef struct adapted {
    const linear_spec *spec;
    matrix all[BLOCK_MAX_PARTS];
    int count, covered;
    tensor_id a, low, b[BLOCK_MAX_PARTS], terms[BLOCK_MAX_PARTS];
} adapted;

// Makes the term of each covered matrix: columns of `whole`, or if that is missing a tensor.
static status terms_emit(block_context *c, adapted *d, tensor_id whole)
{
    const int64_t rank = c->spec->adapter.rank;
    char name[OP_NAME_BYTES];
    int at = 0;
    for (int i = 0; i < d->count; i++) {
        tensor_id own = d->low;
        d->terms[i] = TENSOR_NONE;
        if (!d->all[i].covered) continue;
        TRY(up_declare(c, d->spec, &d->all[i], &d->b[i]));
        if (d->covered > 1) {
            (void)snprintf(name, sizeof(name), "%.24s.low", d->all[i].name);
            TRY(op_view(c->p, d->low, name, at++ * rank, rank, &own));
        }
        if (whole != TENSOR_NONE) {
            TRY(columns_of(c, whole, &d->all[i], "term", &d->terms[i]));
            TRY(node_to(c, OP_MATMUL, own, d->b[i], d->terms[i]));
            continue;
        }
        TRY(op_matmul(c->p, own, d->b[i], TENSOR_NONE, ACT_NONE, &d->terms[i]));
    }
    return ST_OK;
}

// ---- lengths ------------------------------------------------------------------------------------

static status magnitude_declare(block_context *c, const linear_spec *spec, const matrix *m,
                                tensor_id *out)
{
    block_weight w = {.ndim = 1, .rows = m->rows, .columns = 1, .init = INIT_ONES, .adapter = true};
    memset(w.cut_dim, -1, sizeof(w.cut_dim));
    TRY(joined(c, m->name, "lora_magnitude_vector", &w.name));
    w.cut_dim[AXIS_TP] = spec->cut_dim == 0 ? 0 : -1;
    TRY(rows_parts(c, spec, m, &w));
    return block_adapter_weight(c, &w, out);
}

// The rows of W that belong to one matrix; W itself if it has no others.
static status rows_of(block_context *c, const adapted *d, tensor_id w, int i, tensor_id *out)
{
    char name[OP_NAME_BYTES];
    *out = w;
    if (d->count == 1) return ST_OK;
    (void)snprintf(name, sizeof(name), "%.24s.rows", d->all[i].name);
    return op_view_rows(c->p, w, name, d->all[i].begin, d->all[i].rows, out);
}

// The squared lengths of these rows with s B A.
static status squares_emit(block_context *c, const adapted *d, tensor_id rows, int i,
                           tensor_id *out)
{
    const int64_t rank = c->spec->adapter.rank;
    tensor_id in[3] = {rows, d->a, d->b[i]};
    char name[OP_NAME_BYTES];
    int before = 0;
    for (int k = 0; k < i; k++) before += d->all[k].covered ? 1 : 0;
    if (d->covered > 1) {
        (void)snprintf(name, sizeof(name), "%.24s.down", d->all[i].name);
        TRY(op_view_rows(c->p, d->a, name, before * rank, rank, &in[1]));
    }
    return op_row_squares(c->p, in, (float)model_adapter_scale(&c->spec->adapter), out);
}

// Adds a - b to `scaled` and writes the sum to `to`, or to a new tensor.
static status rest_add(block_context *c, tensor_id scaled, tensor_id a, tensor_id b, tensor_id *to)
{
    tensor_id minus, rest;
    TRY(op_scale(c->p, b, -1.0f, &minus));
    TRY(op_add(c->p, a, minus, &rest));
    if (*to == TENSOR_NONE) return op_add(c->p, scaled, rest, to);
    return node_to(c, OP_ADD, scaled, rest, *to);
}

// Writes DoRA's result for one covered matrix, of which y = W x, to `to`, or to a new tensor. x:
// after dropout.
static status scaled_emit(block_context *c, const adapted *d, int i, tensor_id x, tensor_id w,
                          tensor_id y, tensor_id *to)
{
    tensor_id rows, sum, m, squares, dropped = y;
    const bool has_rest = drops(c);
    tensor_id scaled = has_rest ? TENSOR_NONE : *to;
    TRY(rows_of(c, d, w, i, &rows));
    if (has_rest) TRY(op_matmul(c->p, x, rows, TENSOR_NONE, ACT_NONE, &dropped));
    TRY(op_add(c->p, dropped, d->terms[i], &sum));
    TRY(magnitude_declare(c, d->spec, &d->all[i], &m));
    TRY(squares_emit(c, d, rows, i, &squares));
    TRY(op_magnitude(c->p, sum, m, squares, &scaled));
    if (has_rest) return rest_add(c, scaled, y, dropped, to);
    *to = scaled;
    return ST_OK;
}

// y = W x becomes DoRA's result without the bias. x: after dropout.
static status dora_add(block_context *c, adapted *d, tensor_id x, tensor_id w, tensor_id *y)
{
    tensor_id whole = TENSOR_NONE;
    char name[OP_NAME_BYTES];
    TRY(terms_emit(c, d, TENSOR_NONE));
    if (d->count == 1) {
        TRY(scaled_emit(c, d, 0, x, w, *y, &whole));
        *y = whole;
        return ST_OK;
    }
    (void)snprintf(name, sizeof(name), "%.24s.sum", d->spec->name);
    TRY(like_make(c, name, *y, &whole));
    for (int i = 0; i < d->count; i++) {
        tensor_id from, to;
        TRY(columns_of(c, *y, &d->all[i], "plain", &from));
        TRY(columns_of(c, whole, &d->all[i], "sum", &to));
        if (d->all[i].covered) {
            TRY(scaled_emit(c, d, i, x, w, from, &to));
        } else {
            TRY(node_to(c, OP_CAST, from, TENSOR_NONE, to));
        }
        c->p->tensors[to].frozen = false; // its whole tensor gets a gradient
    }
    *y = whole;
    return ST_OK;
}

status block_adapter_add(block_context *c, const linear_spec *spec, tensor_id x, tensor_id w,
                         tensor_id *y)
{
    adapted d = {.spec = spec};
    tensor_id whole = TENSOR_NONE;
    char name[OP_NAME_BYTES];
    d.covered = covered_of(c, spec, d.all, &d.count);
    ASSERT(d.covered > 0);
    TRY(down_declare(c, spec, d.all, d.count, &d.a));
    if (drops(c)) {
        const int32_t site = BLOCK_SITE_ADAPTER + c->adapted_count++;
        TRY(op_dropout(c->p, x, c->spec->adapter.dropout, site, &x));
    }
    TRY(low_emit(c, x, d.a, &d.low));
    if (c->spec->adapter.dora) return dora_add(c, &d, x, w, y);
    const bool is_some = d.covered < d.count;
    (void)snprintf(name, sizeof(name), "%.24s.%s", spec->name, is_some ? "sum" : "term");
    if (d.count > 1) TRY(like_make(c, name, *y, &whole));
    TRY(terms_emit(c, &d, is_some ? TENSOR_NONE : whole));
    if (is_some) return some_add(c, d.all, d.count, d.terms, y, whole);
    return op_add(c->p, *y, d.count > 1 ? whole : d.terms[0], y);
}
