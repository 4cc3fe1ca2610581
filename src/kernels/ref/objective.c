// The losses of pairs or groups of documents: op/objective.h has the rules. This kernel gives them
// one sequence after the other in double.
#include "op/objective.h"
#include "kernels/ref/ref.h"

int64_t ref_objective_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return op_objective_bytes(c->seq);
}

static double *take(double **at, int64_t count)
{
    double *taken = *at;
    *at += count;
    return taken;
}

static void store(const kern_tensor *target, int64_t first, int64_t rows, const double *values)
{
    const int64_t columns = target->ndim == 1 ? 1 : target->dims[1];
    for (int64_t i = 0; i < rows && ref_has(target); i++) {
        for (int64_t j = 0; j < columns; j++) {
            const double value = values[i * columns + j];
            if (target->ndim == 1) ref_put(target, 0, first + i, value);
            if (target->ndim == 2) ref_put(target, first + i, j, value);
        }
    }
}

status ref_objective(const kern_context *context, const kern_call *c)
{
    (void)context;
    const int64_t rows = c->seq, count = c->in[0].dims[0];
    double *at = c->workspace;
    double *losses = take(&at, rows), *given = take(&at, rows * GIVEN_COLUMNS);
    const op_objective_sequence s = {.rows = rows,
                                     .token_loss = losses,
                                     .given = given,
                                     .losses = take(&at, rows),
                                     .slopes = take(&at, rows),
                                     .measures = take(&at, rows * MEASURE_COLUMNS)};
    int32_t *labels = (int32_t *)at, *documents = labels + rows;
    op_objective_sequence all = s;
    all.labels = labels;
    all.documents = documents;
    all.units = documents + rows;
    for (int64_t first = 0; first < count; first += rows) {
        for (int64_t t = 0; t < rows; t++) {
            losses[t] = ref_get(&c->in[0], 0, first + t);
            labels[t] = (int32_t)ref_int(&c->in[1], first + t);
            documents[t] = (int32_t)ref_int(&c->in[2], first + t);
            for (int64_t k = 0; k < GIVEN_COLUMNS; k++) {
                given[t * GIVEN_COLUMNS + k] = ref_get(&c->in[3], first + t, k);
            }
        }
        op_objective_compute(&c->attrs.objective, &all);
        store(&c->out[0], first, rows, all.losses);
        for (int64_t t = 0; t < rows; t++) ref_put_int(&c->out[1], 0, first + t, all.units[t]);
        store(&c->out[2], first, rows, all.measures);
        store(&c->out[3], first, rows, all.slopes);
    }
    return ST_OK;
}
