// The contract of the family: every row of the table, by its name, over shared memory, 1 to 9 ranks
// as threads and some as processes, buffers that peers reach and others, against naive results. And
// strict rows give one sum, to the bit, however many ranks there are and whichever of them runs.
//
//   WHOLE_PRODUCT=1  every row x type x reduction x size from nothing to 1 MiB + 1 byte (make
//                    test-night); else types and sizes by turns
#include "comm/algo/algo.h"
#include "comm/args.h"
#include "fixtures/comm/test_ranks.h"
#include "fixtures/comm/test_reference.h"

#include <setjmp.h>
#include <stdarg.h>
// after the above, which it needs
#include <cmocka.h>

#include <stdlib.h>

enum { SHARDS = 13, STRICT_COUNT = 257, MIB_AND_BYTE = (1 << 20) + 1, COUNTS_END = -1 };

static bool is_whole_product; // of the test, not of the program

// Odd numbers of ranks, and processes, do it as those that share cores, whatever this machine has.
static void job_run(int ranks, bool processes, fixture_body body, void *context)
{
    fixture_job job = {.ranks = ranks,
                       .processes = processes,
                       .cores = ranks % 2 == 1 || processes ? 1 : 0,
                       .body = body,
                       .context = context};
    fixture_run(&job);
    for (int i = 0; i < ranks; i++) {
        if (job.results[i].st != ST_OK)
            fail_msg("%d ranks, rank %d: %s", ranks, i, job.results[i].text);
    }
}

// ---- every row ---------------------------------------------------------------------------------
static int64_t runs[64]; // of rows, by all threads

static status row_once(comm_group *g, const comm_algorithm *row, comm_args args, int64_t count,
                       char *memory, char *own)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g);
    comm_args *a = &args;
    a->root = (int)(count % size);
    const reference r = {a->op, a->type, a->reduction, size, a->root, (uint64_t)count};
    const int64_t bytes = reference_pieces(&r, rank, true) * count * dtype_bytes(a->type);
    // A rank's output may be out of its peers' reach where they need not reach it.
    char *in = memory;
    char *out = (rank == 1 && a->type == DTYPE_BF16 ? own : memory) + align_up(bytes, 64);
    if (count % 2 == 1) {
        out = memory;
        reference_in_place(&r, rank, count, &in, &out);
    }
    reference_fill(&r, rank, count, in);
    const comm_item item = {.in = bytes > 0 ? in : NULL,
                            .out = reference_pieces(&r, rank, false) > 0 ? out : NULL,
                            .count = count};
    a->items = &item;
    a->item_count = 1;
    comm_choice choice;
    if (comm_choose(g, a, &choice) != ST_OK) return ST_OK; // a limit of the row
    TRY(comm_run(g, a));
    for (int i = 0; i < comm_algorithm_count(); i++) {
        if (comm_algorithm_table[i] == row) (void)__atomic_add_fetch(&runs[i], 1, __ATOMIC_RELAXED);
    }
    double wanted = 0;
    const int64_t wrong = reference_differs(&r, rank, count, item.out, &wanted);
    if (wrong < 0) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_INTERNAL,
                   "%s by %s, %s of %lld x %s, root %d, rank %d: element %lld is %g, not %g",
                   op_collective_name(a->op), row->name, op_reduction_name(a->reduction),
                   (long long)count, dtype_name(a->type), a->root, rank, (long long)wrong,
                   dtype_load(a->type, item.out, wrong), wanted);
}

static bool adds(op_collective op)
{
    return op == COLLECTIVE_ALL_REDUCE || op == COLLECTIVE_REDUCE ||
           op == COLLECTIVE_REDUCE_SCATTER;
}

// Barrier, send and all_to_allv have their own tests, and so have algorithms with two levels
// (transport/ucx_test.c).
static bool has_reference(const comm_algorithm *row)
{
    return !row->levels && reference_pieces(&(reference){.op = row->op, .size = 2}, 0, false) > 0;
}

// Not by turn: of a type and a reduction after the first two some sizes are left out.
static bool is_left_out(int64_t type, int reduction, int64_t size)
{
    return !is_whole_product && reduction + type > 1 && (reduction + type + size) % 3 != 0;
}

// Sizes in bytes, rounded up to whole elements; other sizes are counts.
static int64_t count_of(int64_t size, dtype type)
{
    return size == MIB_AND_BYTE ? (size - 1) / dtype_bytes(type) + 1 : size;
}

static status row_all(comm_group *g, const comm_algorithm *row, const int64_t *sizes, char *shared,
                      char *own)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_U8,  DTYPE_I64,
                                  DTYPE_F16, DTYPE_F64,  DTYPE_I8,  DTYPE_I16,
                                  DTYPE_U16, DTYPE_I32,  DTYPE_U32, DTYPE_U64};
    enum { USUAL = 4 };
    for (int64_t t = 0; t < (is_whole_product ? COUNT_OF(types) : USUAL); t++) {
        for (int r = 0; r < (adds(row->op) ? REDUCTION_COUNT : 1); r++) {
            if (adds(row->op) && !comm_reduce_can(types[t], (op_reduction)r)) continue;
            for (int64_t c = 0; sizes[c] != COUNTS_END; c++) {
                if (is_left_out(t, r, c)) continue;
                comm_args a = {.op = row->op,
                               .reduction = (op_reduction)r,
                               .order = row->order,
                               .type = types[t],
                               .algorithm = row->name,
                               .tensor = "x",
                               .site = "algo_test",
                               .step = -1};
                TRY(row_once(g, row, a, count_of(sizes[c], types[t]),
                             (c + r) % 2 == 0 ? shared : own, own));
            }
        }
    }
    return ST_OK;
}

static status rows_body(comm *c, void *context)
{
    const int64_t *sizes = context;
    comm_memory *m = NULL;
    const int64_t bytes = is_whole_product ? 20 << 20 : 12 << 20;
    TRY(comm_memory_create(c, bytes, &m));
    char *own = malloc((size_t)bytes);
    if (own == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    status st = ST_OK;
    for (int i = 0; i < comm_algorithm_count() && st == ST_OK; i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        if (!has_reference(row)) continue;
        st = row_all(comm_world(c), row, sizes, comm_memory_at(m), own);
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    free(own);
    comm_memory_destroy(m);
    return st;
}

static void every_row(void **unused)
{
    (void)unused;
    static int64_t small[] = {1, 7, 1000, COUNTS_END}, large[] = {65537, COUNTS_END};
    static int64_t all[] = {0, 1, 7, 33, 1000, 65537, MIB_AND_BYTE, COUNTS_END};
    is_whole_product = getenv("WHOLE_PRODUCT") != NULL;
    assert_true(comm_algorithm_count() <= COUNT_OF(runs));
    for (int n = 1; n <= 9; n++) job_run(n, false, rows_body, is_whole_product ? all : small);
    for (int i = 0; i < comm_algorithm_count(); i++) {
        assert_true(!has_reference(comm_algorithm_table[i]) ||
                    runs[i] >= 100); // no limit kept it out
    }
    job_run(3, true, rows_body, small);
    job_run(4, true, rows_body, large);
}

// ---- pieces that end ---------------------------------------------------------------------------
enum { END_BYTES = 64 }; // behind a buffer, which stay as they are

// The elements of a rank's input, and of its output.
static int64_t ended_in(const comm_item *item, op_collective op, int rank, int size)
{
    return op == COLLECTIVE_ALL_GATHER ? comm_item_piece(item, rank) : comm_item_whole(item, size);
}
static int64_t ended_out(const comm_item *item, op_collective op, int rank, int size)
{
    return op == COLLECTIVE_ALL_GATHER ? comm_item_whole(item, size) : comm_item_piece(item, rank);
}

static status ended_once(comm_group *g, const comm_algorithm *row, dtype type, comm_item item,
                         char *memory)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g);
    const bool gathers = row->op == COLLECTIVE_ALL_GATHER;
    const int64_t width = dtype_bytes(type), own = rank * item.count;
    const int64_t in = ended_in(&item, row->op, rank, size);
    const int64_t out = ended_out(&item, row->op, rank, size);
    const int64_t before = gathers ? own : 0; // of the whole, where the input begins
    const bool in_place = (item.total + item.count) % 2 == 0;
    char *const source = memory, *target = memory + align_up(in * width + END_BYTES, 64);
    item.in = source;
    item.out = target;
    if (in_place && gathers) item.in = target + min_i64(own, item.total) * width;
    if (in_place && !gathers) item.out = target = source + min_i64(own, item.total) * width;
    memset(memory, 0x5a, (size_t)((in + out) * width + 3 * END_BYTES));
    for (int64_t i = 0; i < in; i++) {
        const double value = reference_value(7, gathers ? 0 : rank, before + i);
        dtype_store(type, (char *)(uintptr_t)item.in, i, value);
    }
    const comm_args args = {.op = row->op,
                            .order = row->order,
                            .type = type,
                            .items = &item,
                            .item_count = 1,
                            .algorithm = row->name,
                            .tensor = "x",
                            .site = "algo_test",
                            .step = -1};
    comm_choice choice;
    if (comm_choose(g, &args, &choice) != ST_OK) return ST_OK; // a limit of the row
    TRY(comm_run(g, &args));
    for (int64_t i = 0; i < out; i++) {
        double wanted = 0.0;
        for (int r = 0; r < (gathers ? 1 : size); r++) {
            wanted += reference_value(7, r, gathers ? i : own + i);
        }
        if (dtype_load(type, target, i) == wanted) continue;
        return fail_at(
            __FILE__, __LINE__, ST_INTERNAL,
            "%s by %s of %lld x %lld ending at %lld, rank %d: element %lld is %g, not %g",
            op_collective_name(row->op), row->name, (long long)size, (long long)item.count,
            (long long)item.total, rank, (long long)i, dtype_load(type, target, i), wanted);
    }
    const char *const end = in_place && !gathers ? source + in * width : target + out * width;
    for (int i = 0; i < END_BYTES; i++) {
        if (end[i] == 0x5a) continue;
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s by %s wrote behind its output",
                       op_collective_name(row->op), row->name);
    }
    return ST_OK;
}

static status ended_body(comm *c, void *context)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_I64};
    static const int64_t counts[] = {1, 5, 700};
    comm_memory *m = NULL;
    (void)context;
    TRY(comm_memory_create(c, 1 << 20, &m));
    char *own = malloc(1 << 20);
    status st = ST_OK;
    for (int i = 0; i < comm_algorithm_count() && own != NULL; i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        if (!row->ends || row->levels) continue;
        for (int64_t k = 0; k < COUNT_OF(counts) && st == ST_OK; k++) {
            const int64_t n = counts[k], all = comm_ranks(c) * n;
            const int64_t totals[] = {1, n, min_i64(n + 1, all), max_i64(all - n, 1), all - 1, all};
            for (int64_t t = 0; t < COUNT_OF(totals) && st == ST_OK; t++) {
                if (totals[t] == 0) continue;
                const comm_item item = {.count = n, .total = totals[t]};
                st = ended_once(comm_world(c), row, types[(k + t) % COUNT_OF(types)], item,
                                (k + t) % 2 == 0 ? comm_memory_at(m) : own);
            }
        }
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    free(own);
    comm_memory_destroy(m);
    return st;
}

static void pieces_may_end(void **unused)
{
    (void)unused;
    static const int ranks[] = {1, 2, 3, 4, 7};
    for (int i = 0; i < COUNT_OF(ranks); i++) job_run(ranks[i], false, ended_body, NULL);
}

// A rank without elements whose arguments differ from those of the others gets the error too.
static status ends_differ_body(comm *c, void *context)
{
    float in[8] = {0}, out[8] = {0};
    (void)context;
    const comm_item item = {.in = in, .out = out, .count = 2, .total = comm_rank(c) == 3 ? 4 : 3};
    const comm_args args = {.op = COLLECTIVE_ALL_GATHER,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "x",
                            .site = "algo_test",
                            .step = -1};
    const comm_item too_long = {.in = in, .out = out, .count = 2, .total = 9};
    comm_args wrong = args;
    wrong.items = &too_long;
    if (comm_run(comm_world(c), &args) != ST_DIVERGED) return ST_INTERNAL;
    return comm_args_check(&wrong, 0, 4) == ST_INTERNAL ? ST_OK : ST_INTERNAL;
}

static void ends_must_agree(void **unused)
{
    (void)unused;
    job_run(4, false, ends_differ_body, NULL);
}

// Barriers: no rank leaves before the last one arrives.
static status barrier_body(comm *c, void *context)
{
    int *arrived = context;
    comm_group *g = comm_world(c);
    comm_args a = {
        .op = COLLECTIVE_BARRIER, .algorithm = "dissemination", .site = "algo_test", .step = -1};
    for (int round = 1; round <= 50; round++) {
        (void)__atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
        TRY(comm_run(g, &a));
        const int now = __atomic_load_n(arrived, __ATOMIC_SEQ_CST);
        if (now < round * comm_group_size(g)) {
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%d of %d came to round %d", now,
                           comm_group_size(g), round);
        }
    }
    return ST_OK;
}

static void barriers_hold(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n++) {
        int arrived = 0;
        job_run(n, false, barrier_body, &arrived);
    }
}

// ---- one sum, to the bit -----------------------------------------------------------------------
static float shards[SHARDS][STRICT_COUNT], whole[STRICT_COUNT];

static void tree_sum(int32_t begin, int32_t end, float *out)
{
    comm_term terms[SHARDS];
    const void *in[SHARDS];
    for (int32_t s = begin; s < end; s++) {
        terms[s - begin] = (comm_term){s, s + 1};
        in[s - begin] = shards[s];
    }
    comm_reducer r;
    if (comm_reducer_tree(COMM_SCALAR, DTYPE_F32, REDUCTION_SUM, terms, end - begin, SHARDS, 1,
                          &r) != ST_OK) {
        abort();
    }
    void *to = out;
    comm_reduce(&r, &(comm_reduce_args){.in = in, .out = &to, .outs = 1, .count = STRICT_COUNT});
}

// The tree's nodes that lie wholly in this rank's share.
static int nodes_make(int32_t begin, int32_t end, comm_term *terms, float (*sums)[STRICT_COUNT])
{
    int n = 0;
    for (; begin < end; begin = terms[n++].end) {
        int32_t width = 1;
        while (begin % (2 * width) == 0 &&
               (begin + 2 * width <= end || (end == SHARDS && begin + width < end))) {
            width *= 2;
        }
        terms[n] = (comm_term){begin, begin + width < SHARDS ? begin + width : SHARDS};
        tree_sum(terms[n].begin, terms[n].end, sums[n]);
    }
    return n;
}

// Whichever rank holds which shards: in order of ranks, or the other way round.
static status strict_row(comm_group *g, const comm_algorithm *row, bool reversed)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g);
    const int part = reversed ? size - 1 - rank : rank;
    float sums[SHARDS][STRICT_COUNT], out[STRICT_COUNT];
    comm_term terms[SHARDS];
    comm_item items[SHARDS];
    const int n = nodes_make(SHARDS * part / size, SHARDS * (part + 1) / size, terms, sums);
    const bool scatters = row->op == COLLECTIVE_REDUCE_SCATTER;
    const int64_t count = scatters ? STRICT_COUNT / size : STRICT_COUNT;
    for (int k = 0; k < n; k++) items[k] = (comm_item){sums[k], out, count, 0};
    const comm_args a = {.op = row->op,
                         .order = COMM_ORDER_SHARD,
                         .type = DTYPE_F32,
                         .items = items,
                         .item_count = 1,
                         .terms = terms,
                         .term_count = n,
                         .shards = SHARDS,
                         .algorithm = row->name,
                         .tensor = "sum",
                         .site = "strict",
                         .step = -1};
    TRY(comm_run(g, &a));
    if (row->op == COLLECTIVE_REDUCE && rank != 0) return ST_OK;
    if (memcmp(out, whole + (scatters ? rank * count : 0), (size_t)count * 4) != 0) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s by %s of %d ranks: other bits",
                       op_collective_name(row->op), row->name, size);
    }
    return ST_OK;
}

static status strict_body(comm *c, void *context)
{
    int *rows = context;
    for (int i = 0; i < comm_algorithm_count(); i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        if (!adds(row->op) || row->order != COMM_ORDER_SHARD) continue;
        if (comm_ranks(c) == 1 && !row->direct) continue; // the group of one has no messages
        TRY(strict_row(comm_world(c), row, false));
        TRY(strict_row(comm_world(c), row, true));
        if (comm_rank(c) == 0) ++*rows;
    }
    return ST_OK;
}

static void strict_rows_agree(void **unused)
{
    (void)unused;
    uint32_t state = 1;
    for (int s = 0; s < SHARDS; s++) {
        for (int i = 0; i < STRICT_COUNT; i++) {
            state = state * 1664525u + 1013904223u;
            shards[s][i] = ((float)(state >> 8) - 0x1p23F) * 0x1p-20F;
        }
    }
    tree_sum(0, SHARDS, whole);
    for (int n = 1; n <= 9; n++) {
        int rows = 0;
        job_run(n, false, strict_body, &rows);
        assert_int_equal(rows, n == 1 ? 3 : 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),         cmocka_unit_test(pieces_may_end),
        cmocka_unit_test(ends_must_agree),   cmocka_unit_test(barriers_hold),
        cmocka_unit_test(strict_rows_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
