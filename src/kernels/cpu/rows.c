// Operations that select rows: embedding tables, gathers, caches.
//
// A row number outside its table comes from data, not from a bug, so it is an error status. All
// numbers are checked first, then the rows are moved.
#include "kernels/cpu/vec_call.h"

#include <string.h>

static status check_rows(const char *what, const kern_tensor *numbers, int64_t n, int64_t count)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t value = tensor_int(numbers, i);
        if (value < 0 || value >= count) {
            return fail(ST_DATA, "%s: row %lld asks for %lld, the table has %lld rows", what,
                        (long long)i, (long long)value, (long long)count);
        }
    }
    return ST_OK;
}

// Returns the rows of the whole table, of which `table` may be a piece.
static int64_t vocabulary_of(const kern_call *c, const kern_tensor *table)
{
    return c->piece.whole_rows > 0 ? c->piece.whole_rows : table->dims[0];
}

// Fills with -0, which changes no sum, not even the sign of a zero.
static void negative_zeros(cpu_span x, int64_t n)
{
    if (x.type == DTYPE_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)x.at)[i] = -0.0f;
    } else { // bf16, fp16
        for (int64_t i = 0; i < n; i++) ((uint16_t *)x.at)[i] = 0x8000;
    }
}

static void embedding_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const bool has_positions = tensor_has(&c->in[2]);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const cpu_span x = tensor_row(&c->out[0], i);
        const int64_t id = tensor_int(&c->in[0], i) - c->piece.first_row;
        if (id < 0 || id >= c->in[1].dims[0]) {
            negative_zeros(x, piece.columns);
            continue;
        }
        const cpu_span token = tensor_row(&c->in[1], id);
        if (has_positions) {
            const cpu_span place = tensor_row(&c->in[3], tensor_int(&c->in[2], i));
            job->vec->add(x, token, place, piece.columns);
        } else {
            job->vec->cast(x, token, piece.columns);
        }
    }
}

status cpu_embedding(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *x = &call->out[0];
    TRY(check_rows("embedding", &call->in[0], x->dims[0], vocabulary_of(call, &call->in[1])));
    if (tensor_has(&call->in[2])) {
        TRY(check_rows("position embedding", &call->in[2], x->dims[0], call->in[3].dims[0]));
    }
    cpu_rows_run(context, call, x->dims[0], x->dims[1], embedding_task);
    return ST_OK;
}

// ---- gradient of a table ------------------------------------------------------------------------
static void zero_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *table = &job->call->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const size_t bytes = (size_t)(piece.columns * dtype_bytes(table->type));
    ASSERT(table->data != NULL);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        memset(tensor_row(table, i).at, 0, bytes);
    }
}

// Tasks own columns: every element is one sequential sum over the tokens, in their order.
static void column_sum_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *dx = &job->call->in[1], *table = &job->call->out[0];
    const int64_t column = index * CPU_SUM_COLUMNS;
    const int64_t count = min_i64(CPU_SUM_COLUMNS, dx->dims[1] - column);
    for (int64_t i = 0; i < dx->dims[0]; i++) {
        const int64_t id = tensor_int(&job->call->in[0], i), row = id - job->call->piece.first_row;
        if (row < 0 || row >= table->dims[0] || id + 1 == job->call->attrs.skipped) continue;
        const cpu_span sum = cpu_span_at(table, row * table->strides[0] + column);
        job->vec->add(sum, sum, cpu_span_at(dx, i * dx->strides[0] + column), count);
    }
}

status cpu_embedding_dw(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *dx = &call->in[1], *table = &call->out[0];
    TRY(check_rows("embedding", &call->in[0], dx->dims[0], vocabulary_of(call, table)));
    if (!call->accumulate) cpu_rows_run(context, call, table->dims[0], table->dims[1], zero_task);
    cpu_row_job job = {.call = call, .vec = cpu_vec_of(context->level)};
    const int64_t blocks = (dx->dims[1] + CPU_SUM_COLUMNS - 1) / CPU_SUM_COLUMNS;
    kern_parallel(context->pool, blocks, column_sum_task, &job);
    return ST_OK;
}

// ---- moves --------------------------------------------------------------------------------------
static void gather_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        job->vec->cast(tensor_row(&c->out[0], i), tensor_row(&c->in[0], tensor_int(&c->in[1], i)),
                       piece.columns);
    }
}

status cpu_gather(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *y = &call->out[0];
    TRY(check_rows("gather", &call->in[1], y->dims[0], call->in[0].dims[0]));
    cpu_rows_run(context, call, y->dims[0], y->dims[1], gather_task);
    return ST_OK;
}

status cpu_pages_check(const kern_call *call, const kern_tensor *pages, const kern_tensor *lengths,
                       int64_t rows)
{
    const int64_t page = call->attrs.page, sequences = lengths->dims[0];
    if (!tensor_has(pages)) return ST_OK;
    if (pages->type != DTYPE_I32) {
        return fail(ST_UNSUPPORTED, "backend cpu: pages in %s, not in i32",
                    dtype_name(pages->type));
    }
    for (int64_t b = 0; b < sequences; b++) {
        const int32_t *of = cpu_pages_of(pages, b, sequences);
        const int64_t used = (tensor_int(lengths, b) + page - 1) / page;
        for (int64_t i = 0; i < used; i++) {
            if (of[i] >= 0 && of[i] < rows / page) continue;
            return fail(ST_DATA, "%s: page %lld of sequence %lld is %d of %lld",
                        op_kind_of(call->code)->name, (long long)i, (long long)b, (int)of[i],
                        (long long)(rows / page));
        }
    }
    return ST_OK;
}

// Row t of T goes to cached position lengths[b] - T + t. Positions before 0 are padding at the
// front of a prompt that is shorter than T and are skipped.
static void append_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        const int64_t b = i / c->seq, t = i % c->seq;
        const int64_t position = tensor_int(&c->in[1], b) - c->seq + t;
        if (position < 0) continue;
        const kern_tensor *pages = &c->in[2];
        int64_t row = b * c->cache_seq + position;
        if (tensor_has(pages)) {
            row = cpu_page_row(cpu_pages_of(pages, b, c->in[1].dims[0]), c->attrs.page, position);
        }
        job->vec->cast(tensor_row(&c->out[0], row), tensor_row(&c->in[0], i), piece.columns);
    }
}

status cpu_cache_append(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *x = &call->in[0], *lengths = &call->in[1];
    for (int64_t b = 0; b < lengths->dims[0]; b++) {
        const int64_t length = tensor_int(lengths, b);
        if (length < 0 || length > call->cache_seq) {
            return fail(ST_DATA, "cache of %lld positions: sequence %lld has length %lld",
                        (long long)call->cache_seq, (long long)b, (long long)length);
        }
    }
    TRY(cpu_pages_check(call, &call->in[2], lengths, call->out[0].dims[0]));
    cpu_rows_run(context, call, x->dims[0], x->dims[1], append_task);
    return ST_OK;
}
