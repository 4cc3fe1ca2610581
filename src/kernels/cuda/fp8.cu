// Operands of products in 8 bits (op/fp8.h): a block of threads has 128 rows and 128 columns of an
// operand. It finds the exponents of their factors in one pass, and rounds in a second one, which
// reads the numbers from the cache.
//
//   128 of a row      a warp for each row, four columns a lane; the sums of a warp are its own
//   128 of a column   a thread for 64 rows of a column; two threads share a factor
//   128 x 128         the largest magnitude of each warp goes through shared memory
//   a whole operand   a warp looks for the largest column of the history that counts
//   of experts        the same; a block has rows, or a piece of the matrix, of one expert
//
// cuda_fp8_operand writes the rounded numbers in the operand's type. cuda_fp8_codes writes their 8
// bits, and the factors, as cuBLASLt and grouped.cu take them: the dim that the product sums over
// is contiguous, so an operand may have to be transposed, through shared memory.
#include "kernels/cuda/groups.h"
#include "kernels/cuda/update.h"

enum {
    FP8_SIDE = FP8_BLOCK_SIZE,
    FP8_WARPS = CUDA_THREADS / DEV_WARP,
    FP8_PITCH = FP8_SIDE + 16 // bytes of a row of codes in shared memory
};

// Shared memory of a block.
typedef struct fp8_tile {
    float most[CUDA_THREADS];
    int32_t exponent[FP8_SIDE]; // of each row or column; of all: the first one
    uint8_t codes[FP8_SIDE * FP8_PITCH];
} fp8_tile;

// The piece of a block of threads.
typedef struct fp8_place {
    int64_t row, column, rows, columns;
} fp8_place;

DEV_INLINE void fp8_rows(const cuda_fp8_args *a, const fp8_place *at, fp8_tile *tile)
{
    const int lane = dev_thread() % DEV_WARP;
    for (int64_t i = dev_thread() / DEV_WARP; i < at->rows; i += FP8_WARPS) {
        float most = 0.0f;
        for (int64_t j = lane; j < at->columns; j += DEV_WARP) {
            most = fp8_larger(most, dev_load(&a->in, at->row + i, at->column + j));
        }
        most = dev_warp_max(most);
        if (lane == 0) tile->exponent[i] = fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST);
    }
}

DEV_INLINE void fp8_columns(const cuda_fp8_args *a, const fp8_place *at, fp8_tile *tile)
{
    const int half = dev_thread() / FP8_SIDE, own = dev_thread() % FP8_SIDE;
    const int64_t end = dev_min((half + 1) * (int64_t)(FP8_SIDE / 2), at->rows);
    float most = 0.0f;
    for (int64_t i = half * (FP8_SIDE / 2); i < end && own < at->columns; i++) {
        most = fp8_larger(most, dev_load(&a->in, at->row + i, at->column + own));
    }
    tile->most[dev_thread()] = most;
    dev_barrier();
    if (half > 0) return;
    most = fmaxf(most, tile->most[FP8_SIDE + own]);
    tile->exponent[own] = fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST);
}

DEV_INLINE void fp8_square(const cuda_fp8_args *a, const fp8_place *at, fp8_tile *tile)
{
    float most = 0.0f;
    for (int64_t e = dev_thread(); e < at->rows * FP8_SIDE; e += CUDA_THREADS) {
        if (e % FP8_SIDE >= at->columns) continue;
        most =
            fp8_larger(most, dev_load(&a->in, at->row + e / FP8_SIDE, at->column + e % FP8_SIDE));
    }
    most = dev_warp_max(most);
    if (dev_thread() % DEV_WARP == 0) tile->most[dev_thread() / DEV_WARP] = most;
    dev_barrier();
    if (dev_thread() > 0) return;
    for (int i = 1; i < FP8_WARPS; i++) most = fmaxf(most, tile->most[i]);
    tile->exponent[0] = fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST);
}

// The lanes look at the columns from the largest one down, half of them at a time.
DEV_INLINE void fp8_whole(const cuda_fp8_args *a, fp8_tile *tile)
{
    const int lane = dev_thread() % DEV_WARP, last = FP8_COLUMNS - 1;
    if (dev_thread() >= DEV_WARP) return;
    const uint32_t high = dev_ballot(a->history[last - lane] > 0.0f);
    const uint32_t low = dev_ballot(a->history[last - DEV_WARP - lane] > 0.0f);
    const int column = high != 0  ? last - dev_lowest_bit(high)
                       : low != 0 ? last - DEV_WARP - dev_lowest_bit(low)
                                  : -1;
    if (lane == 0) tile->exponent[0] = fp8_column_exponent(column, a->operand, a->margin);
}

DEV_INLINE fp8_place fp8_place_of(const cuda_fp8_args *a)
{
    const int64_t stripes = (a->group + FP8_SIDE - 1) / FP8_SIDE;
    const int64_t inside = dev_block(1) % stripes * FP8_SIDE;
    fp8_place at;
    at.row = dev_block(1) / stripes * a->group + inside;
    at.column = dev_block(0) * FP8_SIDE;
    at.rows = dev_min(FP8_SIDE, a->group - inside);
    at.columns = dev_min(FP8_SIDE, a->in.columns - at.column);
    return at;
}

DEV_INLINE void fp8_exponents(const cuda_fp8_args *a, const fp8_place *at, fp8_tile *tile)
{
    if (a->block == FP8_OF_ROW) fp8_rows(a, at, tile);
    if (a->block == FP8_OF_COLUMN) fp8_columns(a, at, tile);
    if (a->block == FP8_OF_SQUARE) fp8_square(a, at, tile);
    if (a->block == FP8_OF_ALL) fp8_whole(a, tile);
    dev_barrier();
}

DEV_INLINE int fp8_exponent_of(const cuda_fp8_args *a, const fp8_tile *tile, int64_t i, int64_t j)
{
    const int64_t k = a->block == FP8_OF_ROW ? i : a->block == FP8_OF_COLUMN ? j : 0;
    return tile->exponent[k];
}

// Writes rows of codes, 16 bytes at a time: the summed dim has a multiple of 16 numbers.
DEV_INLINE void fp8_codes_store(const cuda_fp8_args *a, const fp8_place *at, const fp8_tile *tile)
{
    const int64_t rows = a->transposed ? at->columns : at->rows;
    const int64_t bytes = a->transposed ? at->rows : at->columns;
    const int64_t row = a->transposed ? at->column : at->row;
    const int64_t begin = a->transposed ? at->row : at->column;
    for (int64_t e = dev_thread(); e < rows * (FP8_SIDE / 16); e += CUDA_THREADS) {
        const int64_t i = e / (FP8_SIDE / 16), byte = e % (FP8_SIDE / 16) * 16;
        if (byte >= bytes) continue;
        dev_store16(a->codes + (row + i) * a->code_stride + begin + byte,
                    dev_load16(tile->codes + i * FP8_PITCH + byte));
    }
}

// Writes what the codes are multiplied by: of vectors by columns of the blocks, of squares by rows.
DEV_INLINE void fp8_scales_store(const cuda_fp8_args *a, const fp8_place *at, const fp8_tile *tile)
{
    // Blocks begin anew with each group.
    const int64_t stripes = (a->group + FP8_SIDE - 1) / FP8_SIDE, i = dev_thread();
    const int64_t down = at->row / a->group * stripes + at->row % a->group / FP8_SIDE;
    const int64_t across = at->column / FP8_SIDE;
    const bool is_first = i == 0 && down == 0 && across == 0;
    if (a->block == FP8_OF_ROW && i < at->rows) {
        a->scales[across * a->scale_stride + at->row + i] = fp8_power(-tile->exponent[i]);
    }
    if (a->block == FP8_OF_COLUMN && i < at->columns) {
        a->scales[down * a->scale_stride + at->column + i] = fp8_power(-tile->exponent[i]);
    }
    if (a->block == FP8_OF_SQUARE && i == 0) {
        const int64_t block =
            a->transposed ? across * a->scale_stride + down : down * a->scale_stride + across;
        a->scales[block] = fp8_power(-tile->exponent[0]);
    }
    if (a->block == FP8_OF_ALL && is_first) a->scales[0] = fp8_power(-tile->exponent[0]);
}

// Rounds the numbers of the tile: into the output, or as codes into shared memory.
DEV_INLINE void fp8_round(const cuda_fp8_args *a, const fp8_place *at, bool codes, fp8_tile *tile)
{
    const fp8_format format = (fp8_format)a->format;
    for (int64_t e = dev_thread(); e < at->rows * FP8_SIDE; e += CUDA_THREADS) {
        const int64_t i = e / FP8_SIDE, j = e % FP8_SIDE;
        if (j >= at->columns) continue;
        const int k = fp8_exponent_of(a, tile, i, j);
        const float x = dev_load(&a->in, at->row + i, at->column + j);
        const float rounded = fp8_nearest(x * fp8_power(k), format);
        if (codes) {
            const int64_t to = a->transposed ? j * FP8_PITCH + i : i * FP8_PITCH + j;
            tile->codes[to] = fp8_code(rounded, format);
        } else {
            dev_store(&a->out, at->row + i, at->column + j, rounded * fp8_power(-k));
        }
    }
}

DEV_KERNEL(cuda_fp8_operand, cuda_fp8_args, CUDA_THREADS)
{
    fp8_tile *tile = (fp8_tile *)dev_shared();
    const fp8_place at = fp8_place_of(&a);
    fp8_exponents(&a, &at, tile);
    fp8_round(&a, &at, false, tile);
}

// Rounds the piece of a block of threads, in the rows or the matrix of one expert; false: there is
// none.
DEV_INLINE bool fp8_experts_round(const cuda_fp8_experts_args *a, bool codes, fp8_tile *tile,
                                  cuda_fp8_args *of, fp8_place *at, int64_t *expert)
{
    int64_t index = dev_block(1);
    const group_rows rows = groups_find(&a->groups, FP8_SIDE, &index);
    if (rows.count == 0) return false;
    *of = a->of;
    of->history += FP8_OPERANDS * rows.expert * a->history_stride;
    at->row = rows.begin + index * FP8_SIDE;
    at->column = dev_block(0) * FP8_SIDE;
    at->rows = dev_min(FP8_SIDE, rows.count - index * FP8_SIDE);
    at->columns = dev_min(FP8_SIDE, of->in.columns - at->column);
    *expert = rows.expert;
    fp8_exponents(of, at, tile);
    fp8_round(of, at, codes, tile);
    return true;
}

DEV_KERNEL(cuda_fp8_experts, cuda_fp8_experts_args, CUDA_THREADS)
{
    fp8_tile *tile = (fp8_tile *)dev_shared();
    cuda_fp8_args of;
    fp8_place at;
    int64_t expert = 0;
    (void)fp8_experts_round(&a, false, tile, &of, &at, &expert);
}

// Codes; every block of an expert writes the same factor.
DEV_KERNEL(cuda_fp8_experts_codes, cuda_fp8_experts_args, CUDA_THREADS)
{
    fp8_tile *tile = (fp8_tile *)dev_shared();
    cuda_fp8_args of;
    fp8_place at;
    int64_t expert = 0;
    if (!fp8_experts_round(&a, true, tile, &of, &at, &expert)) return;
    if (dev_thread() == 0) of.scales[expert] = fp8_power(-tile->exponent[0]);
    dev_barrier();
    fp8_codes_store(&of, &at, tile);
}

DEV_KERNEL(cuda_fp8_codes, cuda_fp8_args, CUDA_THREADS)
{
    fp8_tile *tile = (fp8_tile *)dev_shared();
    const fp8_place at = fp8_place_of(&a);
    fp8_exponents(&a, &at, tile);
    fp8_round(&a, &at, true, tile);
    fp8_scales_store(&a, &at, tile);
    dev_barrier();
    fp8_codes_store(&a, &at, tile);
}

// ---- histories ----------------------------------------------------------------------------------

// The largest magnitude of some rows of an operand; axis 1 of the grid is x, w, dy.
DEV_KERNEL(cuda_fp8_most, cuda_fp8_counts_args, CUDA_THREADS)
{
    float *warps = (float *)dev_shared();
    const int operand = (int)dev_block(1), lane = dev_thread() % DEV_WARP;
    const cuda_view v = operand == 0 ? a.x : operand == 1 ? a.w : a.dy;
    const int64_t part_rows = (v.rows + a.parts - 1) / a.parts, begin = dev_block(0) * part_rows;
    const int64_t end = dev_min(begin + part_rows, v.rows);
    float most = 0.0f;
    for (int64_t i = begin + dev_thread() / DEV_WARP; i < end; i += FP8_WARPS) {
        for (int64_t j = lane * DEV_VECTOR; j < v.columns; j += DEV_WARP * DEV_VECTOR) {
            float x[DEV_VECTOR];
            dev_load8(&v, i, j, x);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) most = fp8_larger(most, x[k]);
        }
    }
    most = dev_warp_max(most);
    if (lane == 0) warps[dev_thread() / DEV_WARP] = most;
    dev_barrier();
    if (dev_thread() > 0) return;
    for (int i = 1; i < FP8_WARPS; i++) most = fmaxf(most, warps[i]);
    a.partial[operand * a.parts + dev_block(0)] = most;
}

// A thread for each column of each operand.
DEV_KERNEL(cuda_fp8_counts, cuda_fp8_counts_args, CUDA_THREADS)
{
    const int operand = dev_thread() / FP8_COLUMNS, column = dev_thread() % FP8_COLUMNS;
    if (operand >= FP8_OPERANDS) return;
    float most = 0.0f;
    for (int64_t i = 0; i < a.parts; i++) most = fmaxf(most, a.partial[operand * a.parts + i]);
    const float before = a.accumulate ? dev_load(&a.counts, operand, column) : 0.0f;
    dev_store(&a.counts, operand, column, before + (column <= fp8_column(most) ? 1.0f : 0.0f));
}

// A block for each expert; axis 1 of the grid is x, w, dy.
DEV_KERNEL(cuda_fp8_counts_rows, cuda_fp8_counts_rows_args, CUDA_THREADS)
{
    float *warps = (float *)dev_shared();
    const int operand = (int)dev_block(1), lane = dev_thread() % DEV_WARP;
    const int64_t expert = dev_block(0), row = FP8_OPERANDS * expert + operand;
    const cuda_view v = operand == 0 ? a.x : operand == 1 ? a.w : a.dy;
    float most = 0.0f;
    for (int64_t rank = 0; rank < (operand == 1 ? 1 : a.groups.ranks); rank++) {
        group_rows rows = groups_rows_of(&a.groups, rank, expert);
        if (operand == 1) {
            rows.count = a.w.rows / a.groups.experts;
            rows.begin = expert * rows.count;
        }
        for (int64_t i = dev_thread() / DEV_WARP; i < rows.count; i += FP8_WARPS) {
            for (int64_t j = lane; j < v.columns; j += DEV_WARP) {
                most = fp8_larger(most, dev_load(&v, rows.begin + i, j));
            }
        }
    }
    most = dev_warp_max(most);
    if (lane == 0) warps[dev_thread() / DEV_WARP] = most;
    dev_barrier();
    if (dev_thread() >= FP8_COLUMNS) return;
    for (int i = 0; i < FP8_WARPS; i++) most = fmaxf(most, warps[i]);
    const float before = a.accumulate ? dev_load(&a.counts, row, dev_thread()) : 0.0f;
    dev_store(&a.counts, row, dev_thread(),
              before + (dev_thread() <= fp8_column(most) ? 1.0f : 0.0f));
}

DEV_KERNEL(cuda_fp8_history, cuda_fp8_history_args, CUDA_THREADS)
{
    if (update_is_masked(a.step)) return;
    for (int64_t e = dev_thread(); e < a.out.rows * a.out.columns; e += CUDA_THREADS) {
        const int64_t i = e / a.out.columns, j = e % a.out.columns;
        const float calls = dev_load(&a.counts, i, j), before = dev_load(&a.steps, i, j);
        dev_store(&a.out, i, j, fp8_history_next(before, calls, a.most));
    }
}
