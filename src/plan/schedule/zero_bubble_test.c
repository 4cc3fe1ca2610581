// Simulates zero-bubble schedules with the times that their authors profiled, and compares the
// bubble rates with the published ones.
//
// The paper (arXiv:2401.10241) prints the rates of its tables 4 and 5 with the mean times of F,
// B, W and of a message, for each model and number of micro-batches (its table 9). They are below,
// in microseconds. A rate is (cost - m (F + B + W)) / cost; nothing is fitted, and the four printed
// digits must come out.
#include "plan/schedule/timeline.h"

#include "fixtures/base/test_csv.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct profiled {
    const char *model;
    int32_t stages, chunks; // of the interleaved schedule: one layer each
    int32_t microbatches;
    int64_t forward, input, weight, message;
} profiled;

static const profiled times[] = {
    {"1.5B", 8, 3, 24, 18522, 18086, 9337, 601},    {"1.5B", 8, 3, 32, 18513, 18086, 9331, 626},
    {"1.5B", 8, 3, 64, 18546, 18097, 9321, 762},    {"6.2B", 8, 4, 24, 29718, 29444, 19927, 527},
    {"6.2B", 8, 4, 32, 29802, 29428, 19530, 577},   {"6.2B", 8, 4, 64, 29935, 29621, 19388, 535},
    {"14.6B", 16, 3, 48, 11347, 11248, 8132, 377},  {"14.6B", 16, 3, 64, 11307, 11254, 8101, 379},
    {"14.6B", 16, 3, 128, 11325, 11308, 8109, 378}, {"28.3B", 32, 2, 96, 10419, 10207, 7715, 408},
    {"28.3B", 32, 2, 128, 10408, 10204, 7703, 408}, {"28.3B", 32, 2, 256, 10402, 10248, 7698, 460},
};

typedef struct scheme {
    const char *published, *ours;
    // Messages that our list waits for and theirs did not: once per stage and step where chunks
    // interleave.
    int32_t messages_more;
} scheme;

// ZB-1p is the best list that a search finds in the memory of 1F1B: it is ZB-H1 for all these
// times.
static const scheme schemes[] = {
    {"1F1B", "1f1b", 0},   {"1F1B-I", "interleaved", 1}, {"ZB-H1", "zb-h1", 0},
    {"ZB-1p", "zb-h1", 0}, {"ZB-H2", "zb-h2", 0},
};

static double rate_of(arena *a, const profiled *x, const scheme *s)
{
    const int32_t v = strcmp(s->ours, "interleaved") == 0 ? x->chunks : 1;
    const int64_t ns = 1000;
    const schedule_request r = {x->stages, x->microbatches, v};
    const timeline_costs costs = {
        .each = {x->forward * ns / v, x->input * ns / v, x->weight * ns / v},
        .latency = x->message * ns};
    plan_timeline *t;
    int64_t length = 0;
    arena_reset(a);
    assert_int_equal(plan_timeline_simulate(a, plan_schedule_find(s->ours), &r, &costs, &t), ST_OK);
    // The longest of a rank: these schedules run without the optimizer's barrier.
    for (int32_t i = 0; i < x->stages; i++) {
        length = max_i64(length, t->ranks[i].end - t->ranks[i].begin);
    }
    length -= x->message * ns * x->stages * s->messages_more;
    const int64_t work = x->microbatches * (x->forward + x->input + x->weight) * ns;
    return 1.0 - (double)work / (double)length;
}

static void published_rates_come_out(void **state)
{
    (void)state;
    test_csv c;
    arena *a;
    int matched[COUNT_OF(schemes)] = {0};
    if (!test_csv_open(&c, "validation/zero_bubble_tables.csv")) skip();
    assert_int_equal(arena_create("zero bubble test", 0, &a), ST_OK);
    while (test_csv_line(&c) > 0) {
        // Those of its other tables were profiled apart, and their times are not printed.
        if (strstr(test_csv_cell(&c, "source"), "Tables 3,4,5") == NULL) continue;
        for (int64_t i = 0; i < COUNT_OF(schemes) * COUNT_OF(times); i++) {
            const scheme *s = &schemes[i / COUNT_OF(times)];
            const profiled *x = &times[i % COUNT_OF(times)];
            if (strcmp(test_csv_cell(&c, "schedule"), s->published) != 0) continue;
            if (strcmp(test_csv_cell(&c, "model"), x->model) != 0) continue;
            if ((int32_t)test_csv_number(&c, "num_microbatches") != x->microbatches) continue;
            const double printed = test_csv_number(&c, "bubble_rate"), rate = rate_of(a, x, s);
            const double off = rate - printed;
            if (off > 0.5001e-4 || off < -0.5001e-4) {
                print_error("%s %s %d: %.4f is printed, %.5f is simulated\n", x->model,
                            s->published, x->microbatches, printed, rate);
            }
            assert_true(off <= 0.5001e-4 && off >= -0.5001e-4);
            matched[i / COUNT_OF(times)]++;
        }
    }
    test_csv_close(&c);
    arena_destroy(a);
    assert_int_equal(matched[0], 8);
    assert_int_equal(matched[1], 6);
    assert_int_equal(matched[2], 3);
    assert_int_equal(matched[3], 9);
    assert_int_equal(matched[4], 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_rates_come_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
