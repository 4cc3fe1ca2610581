// Operand checks and work cutting that the kernels of this folder share.
#ifndef KERNELS_CPU_VEC_CALL_H
#define KERNELS_CPU_VEC_CALL_H

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vec_kernels.h"

static inline bool tensor_has(const kern_tensor *t)
{
    return t->data != NULL;
}

// A tensor with one, three or more dims counts as one row, because it is contiguous.
static inline int64_t tensor_rows(const kern_tensor *t)
{
    return t->ndim == 2 ? t->dims[0] : 1;
}

static inline int64_t tensor_columns(const kern_tensor *t)
{
    if (t->ndim == 2) return t->dims[1];
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->dims[i];
    return n;
}

static inline int64_t tensor_stride(const kern_tensor *t)
{
    return t->ndim == 2 ? t->strides[0] : tensor_columns(t);
}

static inline bool tensor_contiguous(const kern_tensor *t)
{
    return t->ndim != 2 || t->dims[0] <= 1 || t->strides[0] == t->dims[1];
}

static inline cpu_span tensor_row(const kern_tensor *t, int64_t row)
{
    return cpu_span_at(t, row * tensor_stride(t));
}

static inline int64_t tensor_int(const kern_tensor *t, int64_t i)
{
    if (t->type == DTYPE_I32) return ((const int32_t *)t->data)[i];
    return ((const int64_t *)t->data)[i];
}

// Returns the pages of one of `sequences` sequences.
static inline const int32_t *cpu_pages_of(const kern_tensor *pages, int64_t sequence,
                                          int64_t sequences)
{
    return (const int32_t *)pages->data + sequence * (pages->dims[0] / sequences);
}

// Returns the row of a cache with token `at` of the sequence that has these pages.
static inline int64_t cpu_page_row(const int32_t *pages, int64_t page, int64_t at)
{
    return (int64_t)pages[at / page] * page + at % page;
}

static inline int64_t tensor_int_at(const kern_tensor *t, int64_t row, int64_t column)
{
    return tensor_int(t, row * tensor_stride(t) + column);
}

static inline void tensor_int_put(const kern_tensor *t, int64_t row, int64_t column, int64_t value)
{
    const int64_t at = row * tensor_stride(t) + column;
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[at] = (int32_t)value;
    } else {
        ((int64_t *)t->data)[at] = value;
    }
}

bool cpu_type_is_vector(dtype type); // fp32, bf16, fp16: the types of a cpu_span
// Returns ST_UNSUPPORTED if an operand has a floating-point type that the leaves cannot read.
NODISCARD status cpu_call_check(const kern_call *call);
// Refuses pages of sequences that are no page of a cache with `rows` rows.
NODISCARD status cpu_pages_check(const kern_call *call, const kern_tensor *pages,
                                 const kern_tensor *lengths, int64_t rows);

// A range of elements that one task handles: rows row .. row + rows - 1, and of each the columns
// column .. column + columns - 1.
typedef struct cpu_piece {
    int64_t row, rows, column, columns;
} cpu_piece;

// The cut of rows x columns elements into pieces of about 16k elements. Contiguous operands are one
// long row. Cuts within a row are at multiples of 64.
typedef struct cpu_cut {
    int64_t rows, columns;             // of the field
    int64_t piece_rows, piece_columns; // of a piece
    int64_t across, count;             // pieces of a row; pieces
} cpu_cut;
cpu_cut cpu_cut_rows(int64_t rows, int64_t columns); // whole rows
cpu_cut cpu_cut_field(int64_t rows, int64_t columns, bool contiguous);
cpu_cut cpu_cut_tiles(int64_t elements, int64_t most); // equal ones of one long row
cpu_piece cpu_cut_piece(const cpu_cut *cut, int64_t index);

// The context of a task that works on whole rows of a field (cpu_cut_piece of `cut` says which).
typedef struct cpu_row_job {
    const kern_call *call;
    const cpu_vec *vec;
    cpu_cut cut;
} cpu_row_job;
// Runs task(const cpu_row_job *, index, thread) over all rows, on all threads.
void cpu_rows_run(const kern_context *context, const kern_call *call, int64_t rows, int64_t columns,
                  kern_task task);

#endif
