// The losses of pairs or groups of documents: op/objective.h has the rules. This kernel gives them
// one sequence after the other in double. With context parallelism it reads whole sequences, whose
// token losses lie as they were gathered, and writes the rows of its rank (op/zigzag.h).
#include "op/objective.h"
#include "kernels/ref/ref.h"
#include "op/zigzag.h"

static int64_t ways_of(const kern_call *c)
{
    return max_i64(1, c->piece.cp_ways);
}

int64_t ref_objective_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return op_objective_bytes(c->seq * ways_of(c));
}

static double *take(double **at, int64_t count)
{
    double *taken = *at;
    *at += count;
    return taken;
}

// The position in its sequence of row i of this rank.
static int64_t position_of(const kern_call *c, int64_t i)
{
    return zigzag_position(ways_of(c), c->piece.cp_turns, c->piece.cp_at, c->seq, i);
}

static void store(const kern_call *c, int out, int64_t first, const double *values)
{
    const kern_tensor *target = &c->out[out];
    const int64_t columns = target->ndim == 1 ? 1 : target->dims[1];
    for (int64_t i = 0; i < c->seq && ref_has(target); i++) {
        for (int64_t j = 0; j < columns; j++) {
            const double value = values[position_of(c, i) * columns + j];
            if (target->ndim == 1) ref_put(target, 0, first + i, value);
            if (target->ndim == 2) ref_put(target, first + i, j, value);
        }
    }
}

status ref_objective(const kern_context *context, const kern_call *c)
{
    (void)context;
    const int64_t ways = ways_of(c), rows = c->seq * ways, count = c->in[0].dims[0];
    int64_t run = 0;
    double *at = c->workspace;
    double *losses = take(&at, rows), *given = take(&at, rows * GIVEN_COLUMNS);
    const op_objective_sequence s = {.rows = rows,
                                     .token_loss = losses,
                                     .given = given,
                                     .losses = take(&at, rows),
                                     .slopes = take(&at, rows),
                                     .measures = take(&at, rows * MEASURE_COLUMNS)};
    int32_t *documents = (int32_t *)at;
    op_objective_sequence all = s;
    all.documents = documents;
    all.units = documents + rows;
    for (int64_t first = 0; first < count; first += rows) {
        for (int64_t t = 0; t < rows; t++) {
            const int64_t row = first + zigzag_row(ways, c->piece.cp_turns, rows, t, &run);
            losses[t] = ref_get(&c->in[0], 0, row);
            documents[t] = (int32_t)ref_int(&c->in[1], first + t);
            for (int64_t k = 0; k < GIVEN_COLUMNS; k++) {
                given[t * GIVEN_COLUMNS + k] = ref_get(&c->in[2], first + t, k);
            }
        }
        op_objective_compute(&c->attrs.objective, &all);
        const int64_t own = first / ways;
        store(c, 0, own, all.losses);
        for (int64_t i = 0; i < c->seq; i++) {
            ref_put_int(&c->out[1], 0, own + i, all.units[position_of(c, i)]);
        }
        store(c, 2, own, all.measures);
        store(c, 3, own, all.slopes);
    }
    return ST_OK;
}
