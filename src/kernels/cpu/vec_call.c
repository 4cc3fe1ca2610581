// Cuts the work of kernels that go over rows (vec_call.h). The pieces do not depend on the number
// of threads, and no leaf's result depends on the pieces.
#include "kernels/cpu/vec_call.h"

enum { PIECE_ELEMENTS = 16384, CUT_ALIGN = 64 };

bool cpu_type_is_vector(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16;
}

static bool is_readable(const kern_tensor *t)
{
    return t->data == NULL || cpu_type_is_vector(t->type) || t->type == DTYPE_I32 ||
           t->type == DTYPE_I64 || t->type == DTYPE_U8; // bytes: the step block
}

status cpu_call_check(const kern_call *call)
{
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const kern_tensor *t = i < OP_MAX_IN ? &call->in[i] : &call->out[i - OP_MAX_IN];
        if (!is_readable(t)) {
            return fail(ST_UNSUPPORTED, "backend cpu: %s with an operand of type %s",
                        op_kind_of(call->code)->name, dtype_name(t->type));
        }
    }
    return ST_OK;
}

cpu_cut cpu_cut_rows(int64_t rows, int64_t columns)
{
    cpu_cut cut = {.rows = rows, .columns = columns, .piece_columns = columns, .across = 1};
    cut.piece_rows = max_i64(1, PIECE_ELEMENTS / max_i64(1, columns));
    cut.count = (rows + cut.piece_rows - 1) / cut.piece_rows;
    return cut;
}

cpu_cut cpu_cut_field(int64_t rows, int64_t columns, bool contiguous)
{
    if (contiguous) {
        columns *= rows;
        rows = 1;
    }
    if (columns <= PIECE_ELEMENTS) return cpu_cut_rows(rows, columns);
    cpu_cut cut = {.rows = rows, .columns = columns, .piece_rows = 1};
    const int64_t across = (columns + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS;
    cut.piece_columns = align_up((columns + across - 1) / across, CUT_ALIGN);
    cut.across = (columns + cut.piece_columns - 1) / cut.piece_columns;
    cut.count = rows * cut.across;
    return cut;
}

cpu_cut cpu_cut_tiles(int64_t elements, int64_t most)
{
    const int64_t count = (elements + most - 1) / most;
    return (cpu_cut){.rows = 1,
                     .columns = elements,
                     .piece_rows = 1,
                     .piece_columns = most,
                     .across = count,
                     .count = count};
}

cpu_piece cpu_cut_piece(const cpu_cut *cut, int64_t index)
{
    DEBUG_ASSERT(index >= 0 && index < cut->count);
    const int64_t row = index / cut->across * cut->piece_rows;
    const int64_t column = index % cut->across * cut->piece_columns;
    return (cpu_piece){.row = row,
                       .rows = min_i64(cut->piece_rows, cut->rows - row),
                       .column = column,
                       .columns = min_i64(cut->piece_columns, cut->columns - column)};
}

void cpu_rows_run(const kern_context *context, const kern_call *call, int64_t rows, int64_t columns,
                  kern_task task)
{
    cpu_row_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    job.cut = cpu_cut_rows(rows, columns);
    kern_parallel(context->pool, job.cut.count, task, &job);
}
