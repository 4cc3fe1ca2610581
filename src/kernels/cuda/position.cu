// Operations that depend on the place of a row in its sequence: rotary positions and dropout.
#include "kernels/cuda/turn.h"
#include "op/dropout.h"
#include "op/zigzag.h"

// Eight pairs of a head, the first of them pair i.
DEV_INLINE void rope_pairs(const cuda_rope_args *a, int64_t n, int64_t position, int64_t head,
                           int64_t i)
{
    dev_turn t;
    t.table = &a->table;
    t.position = position;
    t.half = a->table.columns / 2;
    t.interleaved = a->interleaved;
    t.inverse = a->inverse;
    turn_copy(&t, &a->x, head * a->head_dim, &a->y, head * a->head_dim, n, i);
}

// A thread takes eight pairs of a head at a time; then come vectors that are copied: those of heads
// of which a part is rotated, and those after the heads.
DEV_KERNEL(cuda_rope, cuda_rope_args, CUDA_THREADS)
{
    const int64_t per_head = (a.table.columns / 2 + DEV_VECTOR - 1) / DEV_VECTOR;
    const int64_t plain = a.head_dim - a.table.columns;
    const int64_t per_plain = (plain + DEV_VECTOR - 1) / DEV_VECTOR;
    const int64_t rotated = a.heads * a.head_dim, tail = a.x.columns - rotated;
    const int64_t after = a.heads * (per_head + per_plain);
    const int64_t work = after + (tail + DEV_VECTOR - 1) / DEV_VECTOR;
    for (int64_t n = dev_block(1); n < a.x.rows; n += dev_blocks(1)) {
        const int64_t position = dev_index(&a.positions, n);
        dev_index_check("rope", n, position, a.table.rows);
        for (int64_t k = dev_block(0) * dev_threads() + dev_thread(); k < work;
             k += dev_blocks(0) * dev_threads()) {
            const int64_t head = k / per_head;
            if (head < a.heads) {
                rope_pairs(&a, n, position, head, k % per_head * DEV_VECTOR);
                continue;
            }
            float x[DEV_VECTOR];
            int64_t j = rotated + (k - after) * DEV_VECTOR, left = a.x.columns - j;
            if (k < after) {
                const int64_t at = k - a.heads * per_head, i = at % per_plain * DEV_VECTOR;
                j = at / per_plain * a.head_dim + a.table.columns + i;
                left = plain - i;
            }
            dev_load_some(&a.x, n, j, left, x);
            dev_store_some(&a.y, n, j, left, x);
        }
    }
}

DEV_KERNEL(cuda_dropout, cuda_dropout_args, CUDA_THREADS)
{
    for (int64_t i = dev_block(1); i < a.y.rows; i += dev_blocks(1)) {
        const int64_t whole = a.seq * (a.cut_ways > 1 ? a.cut_ways : 1);
        const int64_t row = cut_position(a.cut_ways, a.cut_pieces, a.cut_at, a.seq, i % a.seq);
        const int64_t position = zigzag_position(a.cp_ways, a.cp_turns, a.cp_at, whole, row);
        const dropout_stream stream =
            dropout_stream_of(a.step, a.site, 0, a.first_sequence + i / a.seq);
        for (int64_t j = dev_column_first(); j < a.y.columns; j += dev_column_step()) {
            float x[DEV_VECTOR];
            dev_load8(&a.x, i, j, x);
            if (a.first_column % 4 != 0) {
                DEV_UNROLL
                for (int k = 0; k < DEV_VECTOR; k++) {
                    x[k] *= dropout_factor_at(&stream, position, a.first_column + j + k, a.p);
                }
                dev_store8(&a.y, i, j, x);
                continue;
            }
            for (int quad = 0; quad < 2; quad++) {
                const int64_t at = (a.first_column + j) / 4 + quad;
                const philox_words words = dropout_words(&stream, position, at);
                DEV_UNROLL
                for (int k = 0; k < 4; k++) x[quad * 4 + k] *= dropout_factor(words.w[k], a.p);
            }
            dev_store8(&a.y, i, j, x);
        }
    }
}
