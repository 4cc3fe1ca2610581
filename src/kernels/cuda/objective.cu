// Losses of pairs and groups of answers (op/objective.h), in double: a block has a sequence. All
// threads bring its numbers into the scratch and take the results from there; one thread goes over
// the sequence, as on CPUs, so every sum has the same order. With context parallelism a rank reads
// whole sequences, whose token losses lie as they were gathered, and writes its own rows.
#include "kernels/cuda/view.h"
#include "op/objective/rules.h"
#include "op/zigzag.h"

DEV_INLINE void objective_put(const cuda_view *t, int64_t row, int64_t column, double value)
{
    if (t->data == NULL) return;
    if (column < 0) { // a vector
        dev_store(t, 0, row, (float)value);
    } else {
        dev_store(t, row, column, (float)value);
    }
}

DEV_KERNEL(cuda_objective, cuda_objective_args, CUDA_THREADS)
{
    const int64_t rows = a.seq * a.ways, first = dev_block(0) * rows, own = dev_block(0) * a.seq;
    double *const losses = a.scratch + dev_block(0) * a.numbers, *const given = losses + rows;
    double *const made = given + rows * GIVEN_COLUMNS;
    int32_t *const documents = (int32_t *)(void *)(made + rows * (2 + MEASURE_COLUMNS));
    op_objective_sequence s;
    s.rows = rows;
    s.token_loss = losses;
    s.given = given;
    s.losses = made;
    s.slopes = made + rows;
    s.measures = made + 2 * rows;
    s.documents = documents;
    s.units = documents + rows;
    for (int64_t t = dev_thread(); t < rows; t += dev_threads()) {
        int64_t run = 0;
        losses[t] = dev_load(&a.losses, 0, first + zigzag_row(a.ways, a.turns, rows, t, &run));
        documents[t] = (int32_t)dev_index(&a.documents, first + t);
        for (int i = 0; i < GIVEN_COLUMNS; i++) {
            given[t * GIVEN_COLUMNS + i] = dev_load(&a.given, first + t, i);
        }
    }
    dev_barrier();
    if (dev_thread() == 0) objective_sequence(&a.attrs, &s);
    dev_barrier();
    for (int64_t i = dev_thread(); i < a.seq; i += dev_threads()) {
        const int64_t t = zigzag_position(a.ways, a.turns, a.at, a.seq, i);
        objective_put(&a.out[0], own + i, -1, s.losses[t]);
        dev_index_put(&a.out[1], own + i, s.units[t]);
        for (int k = 0; k < MEASURE_COLUMNS; k++) {
            objective_put(&a.out[2], own + i, k, s.measures[t * MEASURE_COLUMNS + k]);
        }
        objective_put(&a.out[3], own + i, -1, s.slopes[t]);
    }
}
