// Every row of the table of collectives once with 100,000,001 bytes in its largest operand (less where the
// operation cuts it into pieces), on 3 ranks as threads, or 2 where it
// wants 2^k: what 32-bit sizes and offsets would break.
#include "comm/algo/algo.h"
#include "comm/test_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
// after the above, which it needs
#include <cmocka.h>

enum { BYTES = 100000001 };

// Byte i of piece `piece` on rank r; sums of bytes wrap.
static unsigned char value_at(int rank, int piece, int64_t i)
{
    return (unsigned char)(rank * 37 + piece * 11 + (i >> 20) + (i >> 8) * 3 + i);
}

static unsigned char expected(comm_op op, int ranks, int rank, int piece, int64_t i)
{
    unsigned char sum = 0;
    const bool scatters = op == COMM_REDUCE_SCATTER;
    if (op == COMM_BROADCAST) return value_at(0, 0, i);
    if (op == COMM_SCATTER) return value_at(0, rank, i);
    if (op == COMM_ALL_TO_ALL) return value_at(piece, rank, i);
    if (op == COMM_ALL_GATHER || op == COMM_GATHER) return value_at(piece, 0, i);
    for (int r = 0; r < ranks; r++)
        sum = (unsigned char)(sum + value_at(r, scatters ? rank : 0, i));
    return sum;
}

typedef struct case_of_row {
    const comm_algorithm *row;
    int ranks, ins, outs, root_ins, root_outs; // pieces
} case_of_row;

static case_of_row case_make(const comm_algorithm *row)
{
    const int n = row->power_of_two ? 2 : 3;
    const int pieces[COMM_OP_COUNT][4] = {
        [COMM_ALL_REDUCE] = {1, 1, 1, 1}, [COMM_REDUCE_SCATTER] = {n, 1, n, 1},
        [COMM_ALL_GATHER] = {1, n, 1, n}, [COMM_BROADCAST] = {0, 1, 1, 1},
        [COMM_REDUCE] = {1, 0, 1, 1},     [COMM_GATHER] = {1, 0, 1, n},
        [COMM_SCATTER] = {0, 1, n, 1},    [COMM_ALL_TO_ALL] = {n, n, n, n}};
    const int *p = pieces[row->op];
    return (case_of_row){row, n, p[0], p[1], p[2], p[3]};
}

static status case_check(const case_of_row *k, int rank, int outs, int64_t count,
                         const unsigned char *out)
{
    for (int piece = 0; piece < outs; piece++) {
        for (int64_t i = 0; i < count; i++) {
            if (out[piece * count + i] == expected(k->row->op, k->ranks, rank, piece, i)) continue;
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s by %s, rank %d: byte %lld is wrong",
                           comm_op_name(k->row->op), k->row->name, rank,
                           (long long)(piece * count + i));
        }
    }
    return ST_OK;
}

static status body(comm *c, void *context)
{
    const case_of_row *k = context;
    const int rank = comm_rank(c), ins = rank == 0 ? k->root_ins : k->ins;
    const int outs = rank == 0 ? k->root_outs : k->outs;
    const int most = k->root_ins > k->root_outs ? k->root_ins : k->root_outs;
    const int64_t count = BYTES / most;
    unsigned char *in = malloc((size_t)(ins * count) + 1),
                  *out = malloc((size_t)(outs * count) + 1);
    if (in == NULL || out == NULL) {
        free(in);
        free(out);
        return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    }
    for (int piece = 0; piece < ins; piece++) {
        for (int64_t i = 0; i < count; i++) in[piece * count + i] = value_at(rank, piece, i);
    }
    const comm_item item = {
        .in = ins > 0 ? in : NULL, .out = outs > 0 ? out : NULL, .count = count};
    const comm_args args = {.op = k->row->op,
                            .order = k->row->order,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .algorithm = k->row->name,
                            .tensor = "large",
                            .site = "comm_large_night",
                            .step = -1};
    status st = comm_run(comm_world(c), &args);
    if (st == ST_OK) st = case_check(k, rank, outs, count, out);
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    free(in);
    free(out);
    return st;
}

static void every_row_once(void **unused)
{
    (void)unused;
    static fixture_result results[FIXTURE_RANKS];
    int ran = 0;
    for (int i = 0; i < comm_algorithm_count(); i++) {
        case_of_row k = case_make(comm_algorithm_table[i]);
        if (k.root_outs == 0 || k.row->max_bytes > 0) continue;
        fixture_job job = {.ranks = k.ranks, .body = body, .context = &k, .results = results};
        fixture_run(&job);
        for (int r = 0; r < k.ranks; r++) {
            if (results[r].st != ST_OK) fail_msg("%s: %s", k.row->name, results[r].text);
        }
        ran++;
    }
    assert_true(ran >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
