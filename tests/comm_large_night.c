// Every row of the table of collectives once with 100,000,001 bytes in its largest operand, on 3 ranks as threads,
// or 2 where it wants 2^k: what 32-bit sizes and offsets would break.
#include "comm/algo/algo.h"
#include "fixtures/comm/test_ranks.h"
#include "fixtures/comm/test_reference.h"

#include <setjmp.h>
#include <stdarg.h>
// after the above, which it needs
#include <cmocka.h>

enum { BYTES = 100000001 };

typedef struct trial {
    const comm_algorithm *row;
    reference r;
} trial;

static status body(comm *c, void *context)
{
    const trial *t = context;
    const reference *r = &t->r;
    const int rank = comm_rank(c), ins = reference_pieces(r, rank, true);
    const int outs = reference_pieces(r, rank, false);
    const int most = (int)max_i64(reference_pieces(r, 0, true), reference_pieces(r, 0, false));
    const int64_t count = BYTES / most;
    unsigned char *in = malloc((size_t)(ins * count) + 1);
    unsigned char *out = malloc((size_t)(outs * count) + 1);
    if (in == NULL || out == NULL) {
        free(in);
        free(out);
        return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    }
    reference_fill(r, rank, count, in);
    const comm_item item = {
        .in = ins > 0 ? in : NULL, .out = outs > 0 ? out : NULL, .count = count};
    const comm_args args = {.op = r->op,
                            .order = t->row->order,
                            .type = r->type,
                            .items = &item,
                            .item_count = 1,
                            .algorithm = t->row->name,
                            .tensor = "large",
                            .site = "comm_large_night",
                            .step = -1};
    status st = comm_run(comm_world(c), &args);
    double wanted = 0;
    const int64_t wrong = st == ST_OK ? reference_differs(r, rank, count, out, &wanted) : -1;
    if (wrong >= 0) {
        st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "rank %d: byte %lld is %d, not %g", rank,
                     (long long)wrong, out[wrong], wanted);
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    free(in);
    free(out);
    return st;
}

static void every_row_once(void **unused)
{
    (void)unused;
    int ran = 0;
    for (int i = 0; i < comm_algorithm_count(); i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        const int ranks = row->power_of_two ? 2 : 3;
        trial t = {row, {.op = row->op, .type = DTYPE_U8, .size = ranks}};
        if (reference_pieces(&t.r, 0, false) == 0 || row->max_bytes > 0) continue;
        if (row->levels) continue; // of several hosts: tests/hosts_test.sh
        fixture_job job = {.ranks = ranks, .body = body, .context = &t};
        fixture_run(&job);
        for (int r = 0; r < ranks; r++) {
            if (job.results[r].st == ST_OK) continue;
            fail_msg("%s by %s: %s", op_collective_name(row->op), row->name, job.results[r].text);
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
