// Tests the share of collectives that a profile hides: this program's overlap with GEMMs as the
// streams are simulated, other software's by its shares; and tests the attribution of waits.
#include "cli/plan/simulate.h"
#include "cost/habits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MORE_MAX = 8 };

static void assert_ok(status st)
{
    if (st != ST_OK) print_error("%s: %s\n", status_name(st), error_last()->text);
    assert_int_equal(st, ST_OK);
}

// The first stage's times; more: additional keys.
static sim_times times_of(const char *const more[MORE_MAX], bool overlaps, int64_t *overlapped)
{
    const char *keys[MORE_MAX + 8] = {"model.layers=4",    "model.dim=2048",     "model.heads=16",
                                      "model.kv_heads=16", "model.ffn_dim=5632", "train.seq=4096",
                                      "train.steps=10"};
    int64_t count = 7;
    cli_context cli;
    predict_setup s;
    predict_step x;
    for (int i = 0; i < MORE_MAX && more[i] != NULL; i++) keys[count++] = more[i];
    assert_ok(cli_context_init(&cli, stdout, stderr));
    assert_ok(simulate_open(&cli, "tiny", "h100", keys, count, false, &s));
    cost_habits habits = *cost_habits_of(&s.profile);
    habits.beside = overlaps;
    s.profile.habits = &habits;
    assert_ok(predict_step_times(cli.a, &s, &x));
    const sim_times t = x.step->times[0];
    const plan *p = x.ranks[0].p;
    *overlapped = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind != ACTION_COMMUNICATE || a->stream == STREAM_COMPUTE || a->layer < 0) continue;
        *overlapped += traffic_of(p->run->groups[p->comms[a->comm].group].axes) == TRAFFIC_TP;
    }
    cli_context_deinit(&cli);
    return t;
}

static void pieces_are_hidden_as_they_are_simulated(void **state)
{
    (void)state;
    static const char *const more[][MORE_MAX] = {
        {"layout.tp=4", "train.micro_batch=1", "train.global_batch=2"},
        {"layout.tp=4", "layout.sp=yes", "train.micro_batch=1", "train.global_batch=2"},
        {"layout.tp=4", "layout.sp=yes", "train.micro_batch=4", "train.global_batch=8"}};
    for (int i = 0; i < COUNT_OF(more); i++) {
        int64_t own = 0, others = 0;
        const sim_times a = times_of(more[i], true, &own), b = times_of(more[i], false, &others);
        print_message("%s: %.3f of %.3f ms wait for tp; else %.3f of %.3f\n", more[i][1],
                      (double)a.exposed[TRAFFIC_TP] * 1e-6, (double)a.length * 1e-6,
                      (double)b.exposed[TRAFFIC_TP] * 1e-6, (double)b.length * 1e-6);
        assert_true(a.exposed[TRAFFIC_TP] > 0 &&
                    a.exposed[TRAFFIC_TP] < a.sent[TRAFFIC_TP] * 3 / 4);
        assert_true(b.exposed[TRAFFIC_TP] >= b.sent[TRAFFIC_TP]);
        assert_true(a.length < b.length);
        // Gathers overlap with GEMMs in this program only.
        assert_true(i == 0 ? own == others : own > others);
    }
}

// A regression test: these waits were once attributed to dp.
static void exposed_ring_shifts_count_as_cp(void **state)
{
    (void)state;
    static const char *const more[MORE_MAX] = {"layout.cp=4", "layout.cp_ring=yes",
                                               "train.micro_batch=1", "train.global_batch=2"};
    int64_t none = 0;
    const sim_times a = times_of(more, true, &none), b = times_of(more, false, &none);
    assert_int_equal(a.exposed[TRAFFIC_DP] + b.exposed[TRAFFIC_DP], 0);
    assert_true(b.exposed[TRAFFIC_CP] > a.exposed[TRAFFIC_CP] &&
                a.sent[TRAFFIC_CP] == b.sent[TRAFFIC_CP]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_are_hidden_as_they_are_simulated),
                                       cmocka_unit_test(exposed_ring_shifts_count_as_cp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
