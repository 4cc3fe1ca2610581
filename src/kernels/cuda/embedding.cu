// Rows by index: embedding tables and gathers. Every table row of a gradient is one sequential sum
// over the tokens that name it, in their order, so its bits do not depend on the schedule.
#include "kernels/cuda/view.h"

// x = table[id] + position_table[position]; -0 where the piece of the table has no such row.
DEV_KERNEL(cuda_embedding, cuda_embedding_args, CUDA_THREADS)
{
    for (int64_t n = dev_block(1); n < a.x.rows; n += dev_blocks(1)) {
        const int64_t id = dev_index(&a.ids, n), row = id - a.first_row;
        const bool is_here = row >= 0 && row < a.table.rows;
        dev_index_check("embedding", n, id, a.whole_rows);
        int64_t position = 0;
        if (a.positions.data != NULL) {
            position = dev_index(&a.positions, n);
            dev_index_check("position embedding", n, position, a.position_table.rows);
        }
        for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
            float x[DEV_VECTOR], more[DEV_VECTOR];
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) x[i] = -0.0f;
            if (is_here) dev_load8(&a.table, row, j, x);
            if (is_here && a.positions.data != NULL) {
                dev_load8(&a.position_table, position, j, more);
                DEV_UNROLL
                for (int i = 0; i < DEV_VECTOR; i++) x[i] += more[i];
            }
            dev_store8(&a.x, n, j, x);
        }
    }
}

// y[b] = x[ids[b]]
DEV_KERNEL(cuda_gather, cuda_embedding_args, CUDA_THREADS)
{
    for (int64_t b = dev_block(1); b < a.x.rows; b += dev_blocks(1)) {
        const int64_t row = dev_index(&a.ids, b);
        dev_index_check("gather", b, row, a.table.rows);
        for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
            float x[DEV_VECTOR];
            dev_load8(&a.table, row, j, x);
            dev_store8(&a.x, b, j, x);
        }
    }
}

// Links the tokens of each id: next[n] is the next token with the id of token n, or -1, and
// follows[n] says that an earlier token has it (it starts as zero). A warp per token looks at 32
// tokens at a time.
DEV_KERNEL(cuda_embedding_link, cuda_embedding_dw_args, CUDA_THREADS)
{
    const int lane = dev_thread() % DEV_WARP;
    const int64_t n = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    if (n >= a.dx.rows) return;
    const int64_t id = dev_index(&a.ids, n);
    dev_index_check("embedding", n, id, a.whole_rows);
    int64_t next = -1;
    for (int64_t i = n + 1; i < a.dx.rows && next < 0; i += DEV_WARP) {
        const bool is_same = i + lane < a.dx.rows && dev_index(&a.ids, i + lane) == id;
        const uint32_t found = dev_ballot(is_same);
        if (found != 0) next = i + dev_lowest_bit(found);
    }
    if (lane != 0) return;
    a.next[n] = (int32_t)next;
    if (next >= 0) a.follows[next] = 1;
}

// A block per token that is the first of its id: it walks along the links.
DEV_KERNEL(cuda_embedding_dw, cuda_embedding_dw_args, CUDA_THREADS)
{
    const int64_t n = dev_block(0), row = dev_index(&a.ids, n) - a.first_row;
    if (a.follows[n] != 0 || row < 0 || row >= a.table.rows) return;
    if (row + a.first_row + 1 == a.skipped) return;
    for (int64_t j = dev_thread() * DEV_VECTOR; j < a.table.columns;
         j += dev_threads() * DEV_VECTOR) {
        float sum[DEV_VECTOR], x[DEV_VECTOR];
        dev_load8(&a.table, row, j, sum);
        for (int64_t i = n; i >= 0; i = a.next[i]) {
            dev_load8(&a.dx, i, j, x);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) sum[k] += x[k];
        }
        dev_store8(&a.table, row, j, sum);
    }
}
