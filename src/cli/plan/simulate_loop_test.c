// Tests steps with many micro-batches that are not all simulated: the time and all its parts equal
// those of the full simulation up to some nanoseconds per round (the time of the batch's copy to
// the device is rounded), and the same runs fit.
#include "cli/plan/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 24 };

static void assert_ok(status st)
{
    if (st != ST_OK) print_error("%s: %s\n", status_name(st), error_last()->text);
    assert_int_equal(st, ST_OK);
}

typedef struct trial {
    cli_context cli;
    predict_setup s;
    predict_step all, some;
} trial;

static void trial_open(trial *t, const char *machine, const char *words)
{
    static char copy[512];
    const char *keys[WORDS] = {"model.layers=8",   "model.dim=512",      "model.heads=8",
                               "model.kv_heads=8", "model.ffn_dim=1408", "train.seq=1024",
                               "train.steps=10",   "train.micro_batch=1"};
    int64_t count = 8;
    memset(t, 0, sizeof(*t));
    (void)snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        keys[count++] = word;
    assert_true(count <= WORDS);
    assert_ok(cli_context_init(&t->cli, stdout, stderr));
    assert_ok(simulate_open(&t->cli, "tiny", machine, keys, count, false, &t->s));
}

static void near(int64_t shortened, int64_t simulated, int64_t most)
{
    if (llabs(shortened - simulated) > most) {
        print_error("%lld ns, simulated %lld\n", (long long)shortened, (long long)simulated);
    }
    assert_true(llabs(shortened - simulated) <= most);
}

static void times_compare(const trial *t)
{
    const int64_t most = 0;
    near(t->some.step->step_ns, t->all.step->step_ns, most);
    for (int32_t i = 0; i < t->all.stages; i++) {
        const sim_times *x = &t->some.step->times[i], *y = &t->all.step->times[i];
        near(x->length, y->length, most);
        near(x->compute, y->compute, most);
        near(x->bubble, y->bubble, most);
        near(x->data, y->data, most);
        near(x->host, y->host, most);
        for (int k = 0; k < TRAFFIC_COUNT; k++) near(x->exposed[k], y->exposed[k], most);
    }
}

static const struct {
    const char *machine, *words;
} rows[] = {
    {"h100", "layout.dp=8 train.global_batch=1024"},
    {"h100", "layout.dp=8 layout.zero=1 train.global_batch=1000"},
    {"v100", "layout.dp=8 layout.zero=3 train.global_batch=1024"},
    {"h100", "layout.dp=8 layout.zero=2 layout.zero_sums=step train.global_batch=1024"},
    {"h100", "layout.tp=4 layout.sp=yes train.global_batch=150 train.recompute=full"},
    {"v100", "layout.cp=4 layout.cp_ring=yes train.global_batch=96"},
    {"h100", "layout.pp=2 layout.dp=4 layout.zero=1 train.global_batch=508"},
    {"v100", "layout.pp=2 layout.dp=4 layout.zero=3 train.global_batch=800"},
    {"h100", "layout.pp=4 train.global_batch=255 train.recompute=full train.recompute_layers=3"},
    {"h100", "layout.pp=3 model.layers=9 train.global_batch=200"}, // rounds do not divide it
    {"h100", "layout.pp=6 layout.schedule=dualpipe-v model.layers=12 train.global_batch=333"},
    {"h100", "layout.pp=4 layout.schedule=gpipe train.global_batch=200"},
    {"h100",
     "layout.pp=4 layout.schedule=interleaved layout.vpp=2 layout.dp=2 train.global_batch=512"},
    {"v100", "layout.pp=2 layout.schedule=interleaved layout.vpp=2 layout.dp=4 layout.zero=2 "
             "train.global_batch=512"},
    {"h100", "layout.pp=4 layout.schedule=zb-h1 train.global_batch=200"},
    {"h100", "layout.pp=4 layout.schedule=zb-v train.global_batch=200"},
    {"h100", "layout.pp=4 layout.schedule=dualpipe-v train.global_batch=200"},
    {"a100-80", "profile=megatron layout.pp=4 layout.tp=2 train.global_batch=200"},
    {"a100-80", "profile=fsdp layout.dp=8 layout.zero=3 train.global_batch=1024"},
};

static void time_equals_full_simulation(void **state)
{
    (void)state;
    int shortened = 0;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        trial t;
        trial_open(&t, rows[i].machine, rows[i].words);
        assert_ok(predict_step_times(t.cli.a, &t.s, &t.some));
        assert_ok(predict_step_simulate(t.cli.a, &t.s, &t.all));
        predict_step_figures(&t.s, &t.all);
        assert_int_equal(t.some.microbatches, t.all.microbatches);
        assert_int_equal(t.all.simulated, t.all.microbatches);
        print_message("%4lld of %4lld simulated: %s\n", (long long)t.some.simulated,
                      (long long)t.all.microbatches, rows[i].words);
        shortened += t.some.simulated < t.all.simulated ? 1 : 0;
        times_compare(&t);
        double some_s = 0.0, all_s = 0.0; // on a machine with faster links
        cluster faster = t.s.machine;
        for (int32_t k = 0; k < faster.level_count; k++) faster.levels[k].bytes_s *= 1.01;
        assert_ok(predict_step_elsewhere(&t.some, &faster, 1, &some_s));
        assert_ok(predict_step_elsewhere(&t.all, &faster, 1, &all_s));
        assert_true(fabs(some_s / all_s - 1.0) < 1e-6);
        cli_context_deinit(&t.cli);
    }
    assert_true(shortened > COUNT_OF(rows) / 2);
}

static void few_micro_batches_are_all_simulated(void **state)
{
    (void)state;
    trial t;
    trial_open(&t, "h100", "layout.pp=4 layout.dp=2 train.global_batch=64");
    assert_ok(predict_step_times(t.cli.a, &t.s, &t.some));
    assert_int_equal(t.some.simulated, 32);
    assert_int_equal(t.some.microbatches, 32);
    cli_context_deinit(&t.cli);
}

// Simulates in scratch memory that another simulation has used before, and while another one uses
// it.
static void scratch_changes_nothing(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i += 5) {
        trial t;
        double own_s[3], scratch_s[3];
        trial_open(&t, rows[i].machine, rows[i].words);
        assert_ok(predict_step_times(t.cli.a, &t.s, &t.all));
        predict_setup in_scratch = t.s;
        for (int k = 0; k < PREDICT_ARENAS; k++) {
            assert_ok(arena_create("times of a simulation", 0, &in_scratch.scratch[k]));
        }
        for (int turn = 0; turn < 2; turn++) {
            assert_ok(predict_step_times(t.cli.a, &in_scratch, &t.some));
        }
        times_compare(&t);
        const cluster machines[] = {t.s.machine, t.s.machine, t.s.machine};
        assert_ok(predict_step_elsewhere(&t.all, machines, COUNT_OF(machines), own_s));
        assert_ok(predict_step_elsewhere(&t.some, machines, COUNT_OF(machines), scratch_s));
        times_compare(&t);
        for (int k = 0; k < COUNT_OF(machines); k++) assert_true(own_s[k] == scratch_s[k]);
        for (int k = 0; k < PREDICT_ARENAS; k++) arena_destroy(in_scratch.scratch[k]);
        cli_context_deinit(&t.cli);
    }
}

// Varies the usable memory from a little below to a little above the plans' bytes.
static void fit_equals_full_simulation(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i += 2) {
        static const int32_t stages[] = {0, 1, 2, 3, 4, 5};
        trial t;
        trial_open(&t, rows[i].machine, rows[i].words);
        const int32_t count = (int32_t)t.s.r->layout.pp;
        t.s.machine.device.usable_bytes = 0.0;
        assert_ok(predict_step_plan(t.cli.a, &t.s, stages, count, &t.all));
        for (int percent = 92; percent <= 108; percent += 8) {
            const int64_t usable = t.all.peak_bytes / 100 * percent;
            t.s.machine.device.usable_bytes = (double)usable;
            assert_ok(predict_step_peak(t.cli.a, &t.s, stages, count, &t.some));
            if (t.some.fits != (t.all.peak_bytes <= usable)) {
                print_error("%s: %lld of %lld, by all plans %lld\n", rows[i].words,
                            (long long)t.some.peak_bytes, (long long)usable,
                            (long long)t.all.peak_bytes);
            }
            assert_int_equal(t.some.fits, t.all.peak_bytes <= usable);
        }
        assert_true(llabs(t.some.peak_bytes - t.all.peak_bytes) <= t.all.peak_bytes / 10);
        cli_context_deinit(&t.cli);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_equals_full_simulation),
                                       cmocka_unit_test(few_micro_batches_are_all_simulated),
                                       cmocka_unit_test(scratch_changes_nothing),
                                       cmocka_unit_test(fit_equals_full_simulation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
