// The losses of pairs or groups of documents: op/objective.h has the rules, in double. A thread
// takes a sequence at a time; no sequence depends on another. With context parallelism it reads
// whole sequences, whose token losses lie as they were gathered, and writes the rows of its rank
// (op/zigzag.h).
#include "op/objective.h"
#include "kernels/cpu/vec_call.h"
#include "op/zigzag.h"

static int64_t ways_of(const kern_call *call)
{
    return max_i64(1, call->piece.cp_ways);
}

int64_t cpu_objective_workspace(const kern_call *call, int threads)
{
    return align_up(op_objective_bytes(call->seq * ways_of(call)), ALIGN_TENSOR) * threads;
}

// The row that position t of a sequence of `rows` has among gathered rows.
static int64_t row_of(const kern_call *call, int64_t rows, int64_t t)
{
    int64_t run = 0;
    return zigzag_row(ways_of(call), call->piece.cp_turns, rows, t, &run);
}

// The position in its sequence of row i of this rank.
static int64_t position_of(const kern_call *call, int64_t i)
{
    return zigzag_position(ways_of(call), call->piece.cp_turns, call->piece.cp_at, call->seq, i);
}

// Rows [first, first + rows) of `given`, one behind the other.
static void load(const kern_tensor *t, int64_t first, int64_t rows, double *to)
{
    for (int64_t i = 0; i < rows * GIVEN_COLUMNS; i++) {
        to[i] = dtype_load(t->type, t->data,
                           (first + i / GIVEN_COLUMNS) * t->strides[0] + i % GIVEN_COLUMNS);
    }
}

static void store(const kern_call *call, int out, int64_t first, const double *from)
{
    const kern_tensor *t = &call->out[out];
    const int64_t columns = t->ndim == 1 ? 1 : t->dims[1],
                  stride = t->ndim == 1 ? 1 : t->strides[0];
    for (int64_t i = 0; i < call->seq && t->data != NULL; i++) {
        const double *row = from + position_of(call, i) * columns;
        for (int64_t k = 0; k < columns; k++) {
            dtype_store(t->type, t->data, (first + i) * stride + k, row[k]);
        }
    }
}

static void sequence_task(void *context, int64_t index, int thread)
{
    const kern_call *c = context;
    const int64_t rows = c->seq * ways_of(c), first = index * rows, own_first = index * c->seq;
    void *own = (char *)c->workspace + thread * align_up(op_objective_bytes(rows), ALIGN_TENSOR);
    double *losses = own;
    double *given = losses + rows, *made = given + rows * GIVEN_COLUMNS;
    int32_t *documents = (int32_t *)(made + rows * (2 + MEASURE_COLUMNS));
    const op_objective_sequence s = {.rows = rows,
                                     .token_loss = losses,
                                     .given = given,
                                     .losses = made,
                                     .slopes = made + rows,
                                     .measures = made + 2 * rows,
                                     .documents = documents,
                                     .units = documents + rows};
    load(&c->in[2], first, rows, given);
    for (int64_t t = 0; t < rows; t++) {
        losses[t] = dtype_load(c->in[0].type, c->in[0].data, first + row_of(c, rows, t));
        documents[t] = (int32_t)tensor_int(&c->in[1], first + t);
    }
    op_objective_compute(&c->attrs.objective, &s);
    store(c, 0, own_first, s.losses);
    for (int64_t i = 0; i < c->seq; i++) {
        tensor_int_put(&c->out[1], 0, own_first + i, s.units[position_of(c, i)]);
    }
    store(c, 2, own_first, s.measures);
    store(c, 3, own_first, s.slopes);
}

status cpu_objective(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    kern_call whole = *call;
    if (call->seq > 0) {
        const int64_t sequences = call->in[0].dims[0] / (call->seq * ways_of(call));
        kern_parallel(context->pool, sequences, sequence_task, &whole);
    }
    return ST_OK;
}
