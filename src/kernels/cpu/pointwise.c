// Operations that work element by element: sums, activations, dropout, casts, rotations.
//
// All of them are limited by memory, so the pieces are contiguous and each thread streams through
// its own. Storage is fp32, bf16 or fp16, arithmetic fp32.
#include "kernels/cpu/vec_call.h"
#include "op/zigzag.h"

// ---- y = f(a, b), any shape ---------------------------------------------------------------------
typedef struct field_job {
    const kern_call *call;
    const cpu_vec *vec;
    cpu_cut cut;
    const kern_tensor *y, *a, *b; // b may be NULL
} field_job;

// Contiguous operands were cut as one row; then row is 0.
static cpu_span field_at(const kern_tensor *t, int64_t row, int64_t column)
{
    return cpu_span_at(t, row * tensor_stride(t) + column);
}

static void field_row(const field_job *job, int64_t row, int64_t column, int64_t n)
{
    const op_activation kind = job->call->attrs.activation;
    const cpu_span y = field_at(job->y, row, column), a = field_at(job->a, row, column);
    const cpu_span b = job->b != NULL ? field_at(job->b, row, column) : (cpu_span){0};
    switch ((int)job->call->code) {
    case OP_CAST:
        job->vec->cast(y, a, n);
        return;
    case OP_ACTIVATION:
        job->vec->activation(kind, y, a, n);
        return;
    case OP_ACTIVATION_BWD:
        job->vec->activation_bwd(kind, y, a, b, n);
        return;
    default:
        job->vec->add(y, a, b, n);
        return;
    }
}

static void field_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const field_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = 0; i < piece.rows; i++) {
        field_row(job, piece.row + i, piece.column, piece.columns);
    }
}

static status field_run(const kern_context *context, const kern_call *call, const kern_tensor *a,
                        const kern_tensor *b)
{
    TRY(cpu_call_check(call));
    const kern_tensor *y = &call->out[0];
    const bool contiguous =
        tensor_contiguous(y) && tensor_contiguous(a) && (b == NULL || tensor_contiguous(b));
    field_job job = {.call = call, .vec = cpu_vec_of(context->level), .y = y, .a = a, .b = b};
    job.cut = cpu_cut_field(tensor_rows(y), tensor_columns(y), contiguous);
    kern_parallel(context->pool, job.cut.count, field_task, &job);
    return ST_OK;
}

status cpu_add(const kern_context *context, const kern_call *call)
{
    return field_run(context, call, &call->in[0], &call->in[1]);
}

// Casts between types other than fp32, bf16 and fp16, one element at a time, through double.
static void cast_any_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const field_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t from = i * tensor_stride(job->a), to = i * tensor_stride(job->y);
        for (int64_t j = piece.column; j < piece.column + piece.columns; j++) {
            const double x = dtype_load(job->a->type, job->a->data, from + j);
            dtype_store(job->y->type, job->y->data, to + j, x);
        }
    }
}

status cpu_cast(const kern_context *context, const kern_call *call)
{
    const kern_tensor *x = &call->in[0], *y = &call->out[0];
    if (!cpu_type_is_vector(x->type) || !cpu_type_is_vector(y->type)) {
        field_job job = {.call = call, .y = y, .a = x};
        job.cut = cpu_cut_rows(tensor_rows(y), tensor_columns(y));
        kern_parallel(context->pool, job.cut.count, cast_any_task, &job);
        return ST_OK;
    }
    return field_run(context, call, &call->in[0], NULL);
}

status cpu_activation(const kern_context *context, const kern_call *call)
{
    return field_run(context, call, &call->in[0], NULL);
}

status cpu_activation_bwd(const kern_context *context, const kern_call *call)
{
    return field_run(context, call, &call->in[0], &call->in[1]);
}

// dst += src is an ADD, or a cast if dst starts from 0.
status cpu_tree_add(const kern_context *context, const kern_call *call)
{
    kern_call sum = *call;
    sum.code = call->accumulate ? OP_ADD : OP_CAST;
    return field_run(context, &sum, &call->in[0], call->accumulate ? &call->out[0] : NULL);
}

// ---- row by row ---------------------------------------------------------------------------------
static void swiglu_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor *h = &job->call->in[0], *a = &job->call->out[0];
    const int64_t width = a->dims[1];
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t at = i * h->strides[0];
        job->vec->swiglu(tensor_row(a, i), cpu_span_at(h, at), cpu_span_at(h, at + width), width);
    }
}

status cpu_swiglu(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), call->in[0].dims[1], swiglu_task);
    return ST_OK;
}

static void swiglu_bwd_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const kern_tensor *h = &job->call->in[0], *da = &job->call->in[1], *dh = &job->call->out[0];
    const int64_t width = da->dims[1];
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t at = i * h->strides[0], to = i * dh->strides[0];
        job->vec->swiglu_bwd(cpu_span_at(dh, to), cpu_span_at(dh, to + width), cpu_span_at(h, at),
                             cpu_span_at(h, at + width), tensor_row(da, i), width);
    }
}

status cpu_swiglu_bwd(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), call->in[0].dims[1], swiglu_bwd_task);
    return ST_OK;
}

static void dropout_row(const kern_call *call, int64_t row, int64_t columns,
                        const dropout_stream *stream, int64_t position)
{
    const cpu_span x = tensor_row(&call->in[0], row), y = tensor_row(&call->out[0], row);
    for (int64_t j = 0; j < columns; j++) {
        const float factor =
            dropout_factor_at(stream, position, call->piece.first_column + j, call->attrs.dropout);
        dtype_store(y.type, y.at, j, dtype_load(x.type, x.at, j) * (double)factor);
    }
}

static void dropout_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *call = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const op_piece *own = &call->piece;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const dropout_stream stream = dropout_stream_of(&call->step->host, call->attrs.site, 0,
                                                        call->first_sequence + i / call->seq);
        const int64_t whole = call->seq * max_i64(call->cut_ways, 1);
        const int64_t row =
            cut_position(call->cut_ways, call->cut_pieces, call->cut_at, call->seq, i % call->seq);
        const int64_t position =
            zigzag_position(own->cp_ways, own->cp_turns, own->cp_at, whole, row);
        if (own->first_column % 4 != 0) { // vectors begin at a multiple of four columns
            dropout_row(call, i, piece.columns, &stream, position);
            continue;
        }
        job->vec->dropout(tensor_row(&call->out[0], i), tensor_row(&call->in[0], i),
                          own->first_column, piece.columns, &stream, position, call->attrs.dropout);
    }
}

status cpu_dropout(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), tensor_columns(&call->in[0]),
                 dropout_task);
    return ST_OK;
}

static void rope_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *call = job->call;
    const kern_tensor *x = &call->in[0], *y = &call->out[0], *table = &call->in[2];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const int64_t rotated = (int64_t)call->attrs.heads * call->attrs.head_dim;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t position = tensor_int(&call->in[1], i);
        const cpu_rope_row row = {
            .x = tensor_row(x, i),
            .y = tensor_row(y, i),
            .turn = (const float *)table->data + position * table->strides[0],
            .heads = call->attrs.heads,
            .dim = table->dims[1],
            .head_dim = call->attrs.head_dim,
            .interleaved = call->attrs.interleaved,
            .inverse = call->attrs.inverse,
        };
        job->vec->rope(&row);
        const cpu_span rest = cpu_span_at(x, i * x->strides[0] + rotated);
        const cpu_span rest_out = cpu_span_at(y, i * y->strides[0] + rotated);
        if (rest.at == rest_out.at) continue;
        job->vec->cast(rest_out, rest, piece.columns - rotated);
        for (int64_t h = 0; h < row.heads && row.dim < row.head_dim; h++) {
            const int64_t plain = h * row.head_dim + row.dim;
            job->vec->cast(cpu_span_offset(row.y, plain), cpu_span_offset(row.x, plain),
                           row.head_dim - row.dim);
        }
    }
}

status cpu_rope(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *positions = &call->in[1], *table = &call->in[2];
    if (table->type != DTYPE_F32) {
        return fail(ST_UNSUPPORTED, "backend cpu: rope with a table of %s",
                    dtype_name(table->type));
    }
    for (int64_t i = 0; i < call->in[0].dims[0]; i++) {
        const int64_t position = tensor_int(positions, i);
        if (position < 0 || position >= table->dims[0]) {
            return fail(ST_DATA, "rope: row %lld has position %lld, the table ends at %lld",
                        (long long)i, (long long)position, (long long)table->dims[0]);
        }
    }
    cpu_rows_run(context, call, tensor_rows(&call->in[0]), call->in[0].dims[1], rope_task);
    return ST_OK;
}
