// Operands of products in 8 bits (op/fp8.h): rounded block by block into the workspace, as doubles.
#include "kernels/fp8_operands.h"
#include "kernels/ref/ref.h"

static void block_round(const kern_tensor *from, const kern_tensor *to, const int64_t begin[2],
                        const int64_t end[2])
{
    float most = 0.0f;
    for (int64_t i = begin[0]; i < end[0]; i++) {
        for (int64_t j = begin[1]; j < end[1]; j++) {
            most = fp8_larger(most, (float)ref_get(from, i, j));
        }
    }
    const int k = fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST);
    for (int64_t i = begin[0]; i < end[0]; i++) {
        for (int64_t j = begin[1]; j < end[1]; j++) {
            ref_put(to, i, j, (double)fp8_rounded((float)ref_get(from, i, j), k, FP8_E4M3));
        }
    }
}

static status tensor_round(const kern_call *c, int operand, const kern_tensor *to)
{
    const kern_tensor *from = &c->in[operand];
    const fp8_format format = fp8_format_of(fp8_operand_of(c, operand));
    for (int64_t s = 0; s < fp8_stretches(c, operand); s++) {
        int64_t expert = 0;
        expert_rows rows;
        TRY(fp8_stretch(c, operand, s, &rows, &expert));
        const int k = fp8_operand_exponent(c, operand, expert);
        for (int64_t i = rows.begin; i < rows.begin + rows.count; i++) {
            for (int64_t j = 0; j < from->dims[1]; j++) {
                ref_put(to, i, j, (double)fp8_rounded((float)ref_get(from, i, j), k, format));
            }
        }
    }
    return ST_OK;
}

static void operand_round(const kern_call *c, int operand, const kern_tensor *to)
{
    const kern_tensor *from = &c->in[operand];
    const fp8_block block = fp8_block_of(c, operand);
    const int64_t rows = from->dims[0], columns = from->dims[1];
    const int64_t height = block == FP8_OF_ROW ? 1 : FP8_BLOCK_SIZE;
    const int64_t width = block == FP8_OF_COLUMN ? 1 : FP8_BLOCK_SIZE;
    const int64_t group = fp8_group_rows(c, operand);
    for (int64_t first = 0; first < rows; first += group) {
        for (int64_t i = first; i < first + group; i += height) {
            for (int64_t j = 0; j < columns; j += width) {
                const int64_t begin[2] = {i, j};
                const int64_t end[2] = {min_i64(i + height, first + group),
                                        min_i64(j + width, columns)};
                block_round(from, to, begin, end);
            }
        }
    }
}

status ref_fp8_operands(const kern_call **call, kern_call *rounded)
{
    const kern_call *c = *call;
    if (c->attrs.fp8 == FP8_NONE) return ST_OK;
    fp8_operands_move(c, DTYPE_F64, rounded);
    for (int i = 0; i < 2; i++) {
        if (c->attrs.fp8 == FP8_TENSOR) TRY(tensor_round(c, i, &rounded->in[i]));
        if (c->attrs.fp8 == FP8_BLOCK) operand_round(c, i, &rounded->in[i]);
    }
    *call = rounded;
    return ST_OK;
}

int64_t ref_fp8_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return fp8_operands_bytes(c, DTYPE_F64);
}

// ---- histories ----------------------------------------------------------------------------------

static float rows_most(const kern_tensor *t, const expert_rows *rows, float most)
{
    for (int64_t i = rows->begin; i < rows->begin + rows->count; i++) {
        for (int64_t j = 0; j < t->dims[1]; j++) most = fp8_larger(most, (float)ref_get(t, i, j));
    }
    return most;
}

static void most_count(const kern_tensor *counts, int64_t row, float most)
{
    for (int j = fp8_column(most); j >= 0; j--) {
        ref_put(counts, row, j, ref_get(counts, row, j) + 1.0);
    }
}

status ref_fp8_counts(const kern_context *context, const kern_call *c)
{
    static const int operands[FP8_OPERANDS] = {1, 2, 0}; // x, w, dy
    (void)context;
    if (!c->accumulate) ref_zero(&c->out[0]);
    for (int o = 0; o < FP8_OPERANDS; o++) {
        const kern_tensor *t = &c->in[operands[o]];
        const expert_rows all = {.begin = 0, .count = t->dims[0]};
        most_count(&c->out[0], o, rows_most(t, &all, 0.0f));
    }
    return ST_OK;
}

// An action on some sequences counts all rows: a column only has to be positive.
status ref_fp8_counts_rows(const kern_context *context, const kern_call *c)
{
    const kern_tensor *w = &c->in[4];
    const int64_t experts = c->attrs.experts, own = w->dims[0] / experts;
    (void)context;
    if (!c->accumulate) ref_zero(&c->out[0]);
    for (int64_t e = 0; e < experts; e++) {
        const expert_rows matrix = {.begin = e * own, .count = own};
        float x = 0.0f, dy = 0.0f;
        for (int64_t rank = 0; rank < expert_ranks(c); rank++) {
            expert_rows rows;
            TRY(expert_rows_of(c, rank, e, &rows));
            x = rows_most(&c->in[1], &rows, x);
            dy = rows_most(&c->in[0], &rows, dy);
        }
        most_count(&c->out[0], FP8_OPERANDS * e, x);
        most_count(&c->out[0], FP8_OPERANDS * e + 1, rows_most(w, &matrix, 0.0f));
        most_count(&c->out[0], FP8_OPERANDS * e + 2, dy);
    }
    return ST_OK;
}

status ref_fp8_history(const kern_context *context, const kern_call *c)
{
    const kern_tensor *counts = &c->in[0], *steps = &c->in[1], *out = &c->out[0];
    (void)context;
    if (ref_is_masked(&c->step->device)) return ST_OK;
    for (int64_t i = 0; i < ref_rows(out); i++) {
        for (int64_t j = 0; j < ref_columns(out); j++) {
            const float calls = (float)ref_get(counts, i, j);
            ref_put(
                out, i, j,
                (double)fp8_history_next((float)ref_get(steps, i, j), calls, c->attrs.fp8_steps));
        }
    }
    return ST_OK;
}
