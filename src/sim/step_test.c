// Tests the simulator: with equal prices it reproduces the timeline of the schedule; the parts of a
// step's time add up; a higher price never ends earlier; the order of a machine's ranks does not
// matter.
#include "cost/habits.h"
#include "fixtures/plan/verify_sample.h"
#include "fixtures/sim/test_cluster.h"
#include "plan/schedule/timeline.h"
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct job {
    arena *a;
    sample_job made;
    sim_rank ranks[16];
    sim_prices prices[16];
    int32_t count;
} job;

// The first rank of each stage; all prices 0.
static bool job_make(const sample_settings *s, job *out)
{
    memset(out, 0, sizeof(*out));
    assert_int_equal(arena_create("simulation", 0, &out->a), ST_OK);
    if (sample_make(out->a, s, &out->made) != ST_OK) {
        error_clear();
        arena_destroy(out->a);
        return false;
    }
    out->count = s->pp > 0 ? s->pp : 1;
    const int32_t apart = out->made.ranks / out->count;
    for (int32_t i = 0; i < out->count; i++) {
        const plan *p = out->made.plans[i * apart];
        out->ranks[i] = (sim_rank){.p = p, .mesh = plan_mesh_from(&out->made.mesh, i * apart)};
        assert_int_equal(arena_new(out->a, p->action_count, &out->prices[i].ns), ST_OK);
        for (int k = 0; k < TRAFFIC_COUNT; k += k == TRAFFIC_TP ? 2 : 1) { // the sample has no cp
            assert_int_equal(arena_new(out->a, p->action_count, &out->prices[i].held[k]), ST_OK);
        }
    }
    return true;
}

static sim_step *simulate(job *j, int32_t steps)
{
    sim_step *step = NULL;
    const status st = sim_step_run(j->a, j->ranks, j->count, j->prices, 0, steps, &step);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    return step;
}

// Sets the prices of a layer's lists; all other prices are 0.
static void lists_price(job *j, int64_t forward, int64_t input, int64_t weight)
{
    for (int32_t r = 0; r < j->count; r++) {
        const plan *p = j->ranks[r].p;
        for (int64_t i = 0; i < p->action_count; i++) {
            const plan_action *x = &p->actions[i];
            if (x->kind != ACTION_COMPUTE || x->layer < 0 || x->ops_begin > 0) continue;
            if (p->model->layers[x->layer].index < 0) continue;
            if (x->list == OP_FORWARD) j->prices[r].ns[i] = forward;
            if (x->list == OP_BACKWARD_INPUT) j->prices[r].ns[i] = input;
            if (x->list == OP_BACKWARD_WEIGHT) j->prices[r].ns[i] = weight;
        }
    }
}

// ---- schedules ---------------------------------------------------------------------------------

typedef struct schedule_case {
    const char *name;
    int32_t chunks;
    bool apart; // weight gradients are actions of their own
    bool pairs; // a forward and a backward run as a pair
} schedule_case;

// false: the sample has no such plan.
static bool is_the_timeline(const schedule_case *x, int32_t pp, int32_t microbatches)
{
    const plan_schedule *schedule = plan_schedule_find(x->name);
    const schedule_request shape = {
        .stages = pp, .microbatches = microbatches, .chunks = x->chunks};
    const sample_settings s = {.pp = pp,
                               .schedule = x->name,
                               .chunks = x->chunks,
                               .micro_batch = 1,
                               .sequences = microbatches,
                               .untied = true,
                               .layers = plan_schedule_depth(schedule, &shape)};
    const int64_t input = x->apart ? 1000 : 2000, weight = x->apart ? 1000 : 0;
    const timeline_costs costs = {.each = {1000, input, weight}};
    plan_timeline *t = NULL;
    job j;
    if (!job_make(&s, &j)) return false;
    lists_price(&j, 1000, input, weight);
    assert_int_equal(plan_timeline_simulate(j.a, schedule, &shape, &costs, &t), ST_OK);
    const sim_step *step = simulate(&j, 1);
    // In a pair the plan sends the forward's output before the backward is done; the timeline sends
    // both at the end.
    const int64_t simulated = step->first_ns;
    const bool is_right = simulated == t->length || (x->pairs && simulated < t->length);
    if (!is_right) {
        print_error("%s pp %d, %d micro-batches: %lld, timeline %lld\n", x->name, (int)pp,
                    (int)microbatches, (long long)simulated, (long long)t->length);
    }
    assert_true(is_right);
    for (int32_t r = 0; r < pp; r++) {
        assert_int_equal(step->times[r].compute, t->ranks[r].busy);
    }
    arena_destroy(j.a);
    return true;
}

static void equal_prices_are_the_timeline(void **state)
{
    (void)state;
    static const schedule_case schedules[] = {
        {"gpipe", 1, false, false},       {"1f1b", 1, false, false},
        {"interleaved", 2, false, false}, {"zb-h1", 1, true, false},
        {"zb-h2", 1, true, false},        {"zb-v", 2, true, false},
        {"dualpipe", 2, false, true},     {"dualpipe-v", 2, false, true}};
    int compared = 0;
    for (int64_t i = 0; i < COUNT_OF(schedules); i++) {
        for (int32_t pp = 2; pp <= 8; pp += pp < 4 ? 1 : 4) {
            for (int32_t n = 8; n <= 16; n += 4) {
                compared += is_the_timeline(&schedules[i], pp, n) ? 1 : 0;
            }
        }
    }
    assert_true(compared >= 40);
}

// ---- real prices -------------------------------------------------------------------------------

// Costs of a virtual stage for one micro-batch, without collectives and without begin and end of
// the step.
static void stage_costs(job *j, const plan_pipeline *pipe, timeline_cost *costs)
{
    for (int32_t r = 0; r < j->count; r++) {
        const plan *p = j->ranks[r].p;
        for (int64_t i = 0; i < p->action_count; i++) {
            const plan_action *x = &p->actions[i];
            if (x->kind != ACTION_COMPUTE || x->layer < 0) j->prices[r].ns[i] = 0;
            if (x->kind != ACTION_COMPUTE || x->layer < 0 || x->microbatch != 0) continue;
            timeline_cost *c = &costs[plan_pipeline_stage_of(pipe, x->layer)];
            const bool is_head = x->layer == p->model->layer_count - 1;
            if (x->list == OP_FORWARD) {
                c->forward += j->prices[r].ns[i];
            } else if (x->list == OP_BACKWARD_WEIGHT && !is_head) {
                c->backward_weight += j->prices[r].ns[i];
            } else { // the head computes both gradients at once
                c->backward_input += j->prices[r].ns[i];
            }
        }
    }
}

// Stages of different lengths, recompute and uneven layers: the result equals the timeline's to the
// nanosecond.
static void real_prices_are_the_timeline_too(void **state)
{
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};
    const cluster c = small_cluster();
    const cost_profile profile = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &profile};
    int compared = 0;
    for (uint32_t i = 0; i < 120; i++) {
        const uint32_t seed = (i + 1) * 2654435761u >> 7;
        const sample_settings s = {.pp = 2 + (int32_t)(seed % 3),
                                   .schedule = names[i % 6],
                                   .chunks = i % 6 == 2 || i % 6 == 5 ? 2 : 1,
                                   .micro_batch = 1,
                                   .sequences = 4 + (seed >> 3) % 3 * 4,
                                   .untied = true,
                                   .recompute = (op_recompute)((seed >> 5) % 3),
                                   .layers = 8 + (int32_t)((seed >> 7) % 3)};
        timeline_cost costs[16] = {{0}};
        const timeline_costs all = {.stages = costs};
        plan_pipeline pipe;
        plan_timeline *t = NULL;
        job j;
        if (!job_make(&s, &j)) continue;
        const plan_pipeline_request request = {.schedule = plan_schedule_find(s.schedule),
                                               .chunks = s.chunks};
        assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
        assert_int_equal(plan_pipeline_make(j.a, j.ranks[0].p->model, &j.made.mesh, &request,
                                            s.sequences, &pipe),
                         ST_OK);
        stage_costs(&j, &pipe, costs);
        assert_int_equal(plan_timeline_simulate(j.a, request.schedule, &pipe.shape, &all, &t),
                         ST_OK);
        const int64_t simulated = simulate(&j, 1)->first_ns;
        if (simulated != t->length) {
            print_error("%s pp %d, %d micro-batches: %lld, timeline %lld\n", s.schedule, (int)s.pp,
                        (int)s.sequences, (long long)simulated, (long long)t->length);
        }
        assert_int_equal(simulated, t->length);
        compared++;
        arena_destroy(j.a);
    }
    assert_true(compared >= 90);
}

// ---- where time goes ---------------------------------------------------------------------------

static uint32_t dice(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void random_price(job *j, uint32_t seed, int64_t most)
{
    for (int32_t r = 0; r < j->count; r++) {
        for (int64_t i = 0; i < j->ranks[r].p->action_count; i++) {
            j->prices[r].ns[i] = dice(&seed) % (uint32_t)most;
            if (j->ranks[r].p->actions[i].stream != STREAM_COMPUTE) continue;
            for (int k = 0; k < TRAFFIC_COUNT; k++) {
                if (j->prices[r].held[k] == NULL) continue;
                j->prices[r].held[k][i] = dice(&seed) % 3 == 0 ? dice(&seed) % 50 : 0;
            }
        }
    }
}

static int64_t total(const sim_times *t)
{
    int64_t sum = t->compute + t->bubble + t->data + t->host;
    for (int k = 0; k < TRAFFIC_COUNT; k++) sum += t->exposed[k];
    return sum;
}

// No action takes less than its price or begins before its stream is free or its dependencies are
// done, except for transfers that are sent meanwhile.
static void rules_hold(const sim_rank *rank, const sim_prices *prices, const sim_span *spans)
{
    const plan *p = rank->p;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        assert_true(spans[i].end - spans[i].begin >= prices->ns[i]);
        for (int32_t w = 0; w < x->waits_count; w++) {
            const int32_t on = p->waits[x->waits_begin + w];
            if (on >= 0) assert_true(spans[on].end <= spans[i].begin + sim_sent(prices, i));
        }
        for (int64_t k = i + 1; k < p->action_count; k++) {
            if (p->actions[k].stream != x->stream) continue;
            assert_true(spans[k].begin >= spans[i].end);
            break;
        }
    }
}

static void times_add_up_and_rules_hold(void **state)
{
    (void)state;
    static const char *const names[] = {"1f1b", "zb-h1", "interleaved", "gpipe"};
    int simulated = 0;
    for (uint32_t seed = 1; seed <= 48; seed++) {
        const sample_settings s = {.pp = 1 + (int32_t)(seed % 4),
                                   .dp = 1 + (int32_t)(seed / 4 % 2),
                                   .zero = (int32_t)(seed / 4 % 2 != 0 ? seed / 8 % 4 : 0),
                                   .schedule = names[seed % 4],
                                   .chunks = seed % 4 == 2 ? 2 : 1,
                                   .micro_batch = 1,
                                   .sequences = 16,
                                   .layers = 8};
        job j;
        if (!job_make(&s, &j)) continue;
        random_price(&j, seed, 1000);
        const sim_step *step = simulate(&j, SIM_STEPS);
        for (int32_t r = 0; r < j.count; r++) {
            assert_int_equal(step->times[r].length, total(&step->times[r]));
            rules_hold(&j.ranks[r], &j.prices[r], step->spans[r]);
        }
        // Doubled prices double the time to the nanosecond; a higher price never ends earlier.
        const int64_t before = step->first_ns;
        for (int32_t r = 0; r < j.count; r++) {
            for (int64_t i = 0; i < j.ranks[r].p->action_count; i++) {
                j.prices[r].ns[i] *= 2;
                for (int k = 0; k < TRAFFIC_COUNT; k++) {
                    if (j.prices[r].held[k] != NULL) j.prices[r].held[k][i] *= 2;
                }
            }
        }
        assert_int_equal(simulate(&j, SIM_STEPS)->first_ns, 2 * before);
        j.prices[0].ns[j.ranks[0].p->action_count / 2] += 12345;
        assert_true(simulate(&j, SIM_STEPS)->first_ns >= 2 * before);
        simulated++;
        arena_destroy(j.a);
    }
    assert_true(simulated >= 30);
}

static void transfers_wait_for_both_ends(void **state)
{
    (void)state;
    const sample_settings s = {
        .pp = 2, .schedule = "1f1b", .micro_batch = 1, .sequences = 4, .untied = true, .layers = 2};
    job j;
    assert_true(job_make(&s, &j));
    lists_price(&j, 1000, 2000, 0);
    const int64_t free = simulate(&j, 1)->first_ns;
    for (int32_t r = 0; r < 2; r++) {
        const plan *p = j.ranks[r].p;
        for (int64_t i = 0; i < p->action_count; i++) {
            if (p->actions[i].kind != ACTION_COMMUNICATE) continue;
            const op_collective op = p->comms[p->actions[i].comm].op;
            if (op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE) j.prices[r].ns[i] = 100;
        }
    }
    // The first forward and the last backward cross the boundary once each; with two stages, steady
    // work hides the other transfers or does not.
    const sim_step *step = simulate(&j, 1);
    assert_true(step->first_ns >= free + 200);
    assert_true(step->first_ns <= free + 8 * 100);
    assert_true(step->times[0].exposed[TRAFFIC_PP] + step->times[1].exposed[TRAFFIC_PP] > 0);
    arena_destroy(j.a);
}

// Two stages of 1f1b whose transfers take 100 and delay the sender: a stage sends while it waits
// for the other stage, so each further micro-batch takes a forward, a backward and one transfer,
// not two.
static void a_stage_sends_while_it_waits(void **state)
{
    (void)state;
    enum { FORWARD = 1000, BACKWARD = 2000, MESSAGE = 100 };
    int64_t lengths[2];
    for (int32_t k = 0; k < 2; k++) {
        const sample_settings s = {.pp = 2,
                                   .schedule = "1f1b",
                                   .micro_batch = 1,
                                   .sequences = 8 * (k + 1),
                                   .untied = true,
                                   .layers = 2};
        job j;
        assert_true(job_make(&s, &j));
        lists_price(&j, FORWARD, BACKWARD, 0);
        for (int32_t r = 0; r < 2; r++) {
            const plan *p = j.ranks[r].p;
            for (int64_t i = 0; i < p->action_count; i++) {
                if (p->actions[i].kind != ACTION_COMMUNICATE) continue;
                const op_collective op = p->comms[p->actions[i].comm].op;
                if (op != COLLECTIVE_SEND && op != COLLECTIVE_RECEIVE) continue;
                j.prices[r].ns[i] = MESSAGE;
                int64_t next = i;
                while (next < p->action_count && p->actions[next].stream != STREAM_COMPUTE) next++;
                if (op == COLLECTIVE_SEND && next < p->action_count) {
                    j.prices[r].held[TRAFFIC_PP][next] += MESSAGE;
                }
            }
        }
        lengths[k] = simulate(&j, 1)->first_ns;
        arena_destroy(j.a);
    }
    assert_int_equal(lengths[1] - lengths[0], 8 * (FORWARD + BACKWARD + MESSAGE));
}

// ---- prices of real plans ----------------------------------------------------------------------

static void plans_are_priced(void **state)
{
    (void)state;
    const cluster c = small_cluster();
    cost_profile profile = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &profile};
    const sample_settings s = {.pp = 2,
                               .dp = 2,
                               .zero = 1,
                               .schedule = "1f1b",
                               .micro_batch = 1,
                               .sequences = 16,
                               .layers = 4};
    job j;
    assert_true(job_make(&s, &j));
    assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
    const sim_step *step = simulate(&j, SIM_STEPS);
    const int64_t quick = step->step_ns;
    assert_true(quick > 0 && step->times[0].compute > 0 && step->times[0].sent[TRAFFIC_DP] > 0);
    // Each node costs at least its launch; the exposed part is accounted for.
    for (int64_t i = 0; i < j.ranks[0].p->action_count; i++) {
        const plan_action *x = &j.ranks[0].p->actions[i];
        if (x->kind != ACTION_COMPUTE) continue;
        assert_true(j.prices[0].ns[i] >= 2000 * (int64_t)x->ops_count);
        assert_int_equal(sim_held(&j.prices[0], i), 0);
    }
    profile.overlap[TRAFFIC_DP] = profile.overlap[TRAFFIC_PP] = 0.0;
    assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
    assert_true(simulate(&j, SIM_STEPS)->step_ns > quick);
    text t = {.a = j.a};
    assert_int_equal(sim_trace_print(j.ranks, step, &t), ST_OK);
    assert_non_null(strstr(t.bytes, "\"traceEvents\""));
    assert_non_null(strstr(t.bytes, "gradients"));
    arena_destroy(j.a);
}

// Actions of 100 ns each. A host that issues one in 30 ns changes nothing; at 250 ns the host
// determines the step; a host that waits for each action adds both times.
static void a_late_host_holds_up(void **state)
{
    (void)state;
    const sample_settings s = {
        .pp = 1, .micro_batch = 1, .sequences = 4, .untied = true, .layers = 4};
    job j;
    assert_true(job_make(&s, &j));
    const plan *p = j.ranks[0].p;
    int64_t count = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const bool computes = p->actions[i].stream == STREAM_COMPUTE;
        j.prices[0].ns[i] = computes ? 100 : 0;
        count += computes ? 1 : 0;
    }
    assert_int_equal(simulate(&j, SIM_STEPS)->step_ns, 100 * count);
    assert_int_equal(arena_new(j.a, p->action_count, &j.prices[0].issue), ST_OK);
    assert_int_equal(arena_new(j.a, p->action_count, &j.prices[0].waits), ST_OK);
    static const struct {
        int64_t issue;
        bool waits;
    } hosts[] = {{0, false}, {30, false}, {250, false}, {0, true}, {30, true}};
    for (int64_t k = 0; k < COUNT_OF(hosts); k++) {
        const int64_t issue = hosts[k].issue;
        for (int64_t i = 0; i < p->action_count; i++) {
            j.prices[0].issue[i] = p->actions[i].stream == STREAM_COMPUTE ? issue : 0;
            j.prices[0].waits[i] = hosts[k].waits;
        }
        // The first action begins with the step; the last ends 100 ns after it was issued.
        const int64_t each = hosts[k].waits ? 100 + issue : max_i64(100, issue);
        const int64_t first = issue > 100 ? issue : 0;
        const sim_step *step = simulate(&j, SIM_STEPS);
        const sim_times *t = &step->times[0];
        assert_int_equal(step->step_ns, 100 + first + each * (count - 1));
        assert_int_equal(t->compute, 100 * count);
        assert_int_equal(t->host, step->step_ns - 100 * count);
        assert_int_equal(t->length, total(t));
    }
    arena_destroy(j.a);
}

// The exposed part of dp's sums of gradients comes after a stage's backward pass and delays no
// other stage.
static void sums_that_are_not_hidden_come_last(void **state)
{
    (void)state;
    const cluster c = small_cluster();
    cost_profile profile = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &profile};
    for (int chunks = 1; chunks <= 2; chunks++) {
        const sample_settings s = {.pp = 4,
                                   .dp = 2,
                                   .zero = 1,
                                   .schedule = chunks == 2 ? "interleaved" : "1f1b",
                                   .chunks = chunks,
                                   .micro_batch = 1,
                                   .sequences = 16,
                                   .untied = true,
                                   .layers = 8};
        job j;
        assert_true(job_make(&s, &j));
        profile.overlap[TRAFFIC_DP] = 1.0;
        assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
        const sim_step *hidden = simulate(&j, SIM_STEPS);
        int64_t most = 0;
        for (int32_t r = 0; r < j.count; r++)
            most = max_i64(most, hidden->times[r].sent[TRAFFIC_DP]);
        profile.overlap[TRAFFIC_DP] = 0.0;
        assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
        const sim_step *step = simulate(&j, SIM_STEPS);
        assert_true(step->step_ns > hidden->step_ns);
        // The delay is that of one rank's collectives, not the sum over the stages.
        assert_true(step->step_ns <= hidden->step_ns + most);
        arena_destroy(j.a);
    }
}

// Gradients that are scattered once in a step: with small buckets each goes alone, with large ones
// all go with the last, and one collective takes less than many.
static void gradients_go_in_buckets(void **state)
{
    (void)state;
    const cluster c = small_cluster();
    cost_profile profile = cost_profile_trireme();
    cost_habits habits = cost_habits_none;
    profile.habits = &habits;
    const cost_model m = {.c = &c, .profile = &profile};
    const sample_settings s = {.dp = 2, .zero = 1, .micro_batch = 1, .sequences = 16, .layers = 4};
    int64_t sent[3], step_ns[3];
    job j;
    assert_true(job_make(&s, &j));
    const plan *p = j.ranks[0].p;
    for (int32_t k = 0; k < 3; k++) {
        cost_group *groups = NULL;
        sim_sums sums;
        double bytes = 0.0;
        int64_t count = 0, priced = 0, last = 0;
        habits.sum_bytes = k == 0 ? 0 : k == 1 ? 1 : INT64_C(1) << 40;
        assert_int_equal(arena_new(j.a, p->run->group_count + 1, &groups), ST_OK);
        sim_groups_of(&m, &j.ranks[0], groups);
        assert_int_equal(sim_sums_make(j.a, &m, groups, p, &sums), ST_OK);
        assert_true((sums.ns == NULL) == (k == 0));
        for (int32_t i = 0; k > 0 && i < p->comm_count; i++) {
            if (p->comms[i].op != COLLECTIVE_REDUCE_SCATTER) continue;
            const int64_t ns = sim_sum_ns(&sums, i, SIM_ALONE);
            bytes += cost_comm_bytes(p, &p->comms[i], 2);
            count++;
            priced += ns > 0 ? 1 : 0;
            last = max_i64(last, ns);
            if (k == 1)
                assert_int_equal(ns, cost_comm_ns(&m, &groups[p->comms[i].group], p, &p->comms[i]));
        }
        if (k == 1) assert_true(count > 3 && priced == count);
        if (k == 2) assert_int_equal(priced, 1);
        for (int32_t i = 0; k == 2 && i < p->comm_count; i++) {
            if (p->comms[i].op != COLLECTIVE_REDUCE_SCATTER) continue;
            assert_int_equal(last, cost_collective_ns(&m, &groups[p->comms[i].group],
                                                      COLLECTIVE_REDUCE_SCATTER, bytes));
        }
        assert_int_equal(sim_price(j.a, &m, j.ranks, j.count, j.prices), ST_OK);
        const sim_step *step = simulate(&j, SIM_STEPS);
        sent[k] = step->times[0].sent[TRAFFIC_DP];
        step_ns[k] = step->step_ns;
    }
    assert_true(sent[1] == sent[0] && step_ns[1] == step_ns[0]);
    assert_true(sent[2] < sent[0]);
    arena_destroy(j.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_prices_are_the_timeline),
        cmocka_unit_test(real_prices_are_the_timeline_too),
        cmocka_unit_test(times_add_up_and_rules_hold),
        cmocka_unit_test(transfers_wait_for_both_ends),
        cmocka_unit_test(a_stage_sends_while_it_waits),
        cmocka_unit_test(plans_are_priced),
        cmocka_unit_test(a_late_host_holds_up),
        cmocka_unit_test(sums_that_are_not_hidden_come_last),
        cmocka_unit_test(gradients_go_in_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
