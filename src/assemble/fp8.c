// Runs whose products are in 8 bits (op/fp8.h): the recipe, and the sizes with which its blocks are
// the same in each layout.
//
// In strict order one digest holds for all layouts, so no block may lie in two pieces of an
// operand: pieces of sequences and of weights have whole blocks of 128. Factors of whole operands
// are those of all ranks, so any sizes do.
#include "assemble/assemble.h"

fp8_recipe assemble_fp8(const run_config *r)
{
    // Plans for other machines have bf16 products, to which cost/ gives the speed of 8 bits.
    if (r->precision.fp8_exact) return FP8_TENSOR;
    if (r->train.precision != RUN_FP8 || r->planned) return FP8_NONE;
    return r->precision.fp8 == RUN_FP8_TENSOR ? FP8_TENSOR : FP8_BLOCK;
}

static status sequences_check(const run_config *r)
{
    const int64_t cp = r->determinism.cp_shards, turns = run_config_cp_turns(r);
    const int64_t pieces = r->determinism.tp_shards * (cp > 1 ? 2 * cp * max_i64(turns, 1) : 1);
    const int64_t wanted = pieces * FP8_BLOCK_SIZE;
    if (r->train.seq % wanted == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "train.precision = fp8 has a factor for each %d tokens, so with determinism = "
                "strict train.seq is a multiple of %lld (%lld pieces of a sequence); got %lld, "
                "nearest %lld",
                FP8_BLOCK_SIZE, (long long)wanted, (long long)pieces, (long long)r->train.seq,
                (long long)align_up(r->train.seq, wanted));
}

// Returns the numbers of a weight's dim that one of `ways` pieces has, of the part that has fewest;
// 0: it is not cut.
static int64_t piece_of(const op_weight *w, int64_t ways)
{
    const int64_t matrix = w->stripe > 0 ? w->stripe : w->matrix_rows;
    if (w->cut_dim[AXIS_TP] == 1) return w->columns / ways;
    if (w->cut_dim[AXIS_TP] != 0) return 0;
    if (w->is_expert) return matrix / ways;
    int64_t least = w->rows;
    for (int i = 0; i < w->part_count; i++) {
        const int64_t copies = op_part_copies(w->parts[i].heads, (int32_t)ways);
        const int64_t rows = w->parts[i].rows * copies / ways;
        if (rows % FP8_BLOCK_SIZE != 0) return rows;
        least = min_i64(least, rows);
    }
    return least;
}

static status weight_check(const run_config *r, const op_weight *w)
{
    const int64_t ways = w->is_expert ? r->determinism.etp_shards : r->determinism.tp_shards;
    const int64_t piece = ways > 1 ? piece_of(w, ways) : 0;
    if (piece % FP8_BLOCK_SIZE == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "train.precision = fp8 has a factor for each %d x %d numbers of a weight, so with "
                "determinism = strict pieces of a weight are multiples of %d; determinism.%s = "
                "%lld cuts %s into pieces of %lld",
                FP8_BLOCK_SIZE, FP8_BLOCK_SIZE, FP8_BLOCK_SIZE,
                w->is_expert ? "etp_shards" : "tp_shards", (long long)ways, w->name,
                (long long)piece);
}

status assemble_fp8_check(const run_config *r, const op_model *m)
{
    if (assemble_fp8(r) != FP8_BLOCK || r->determinism.mode != RUN_STRICT) return ST_OK;
    TRY(sequences_check(r));
    for (int64_t i = 0; i < m->weight_count; i++) {
        if (m->weights[i].is_matrix) TRY(weight_check(r, &m->weights[i]));
    }
    return ST_OK;
}
