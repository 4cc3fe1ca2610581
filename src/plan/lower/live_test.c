// Live intervals of a small list of actions, written by hand: the order of a stream and its waits
// determine how long operands of communications are live.
#include "fixtures/plan/verify_sample.h"
#include "plan/lower/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS = 4, ACTIONS = 8 };

// Tensors x, y, z of a program with two lists, y = f(x) and z = f(y), and actions on them.
typedef struct bench {
    arena *a;
    plan_table run;
    plan p;
    plan_tensor tensors[TENSORS];
    plan_binding binding;
    int32_t map[TENSORS];
    plan_action actions[ACTIONS];
    int32_t waits[ACTIONS], wait_count;
    plan_comm comms[ACTIONS];
    plan_comm_item items[ACTIONS];
    int64_t begins[ACTIONS + 1];
    lifetime_table out;
} bench;

static void node_add(op_program *program, op_list list, tensor_id in, tensor_id out)
{
    op_node node = op_node_of(OP_ACTIVATION);
    node.in[0] = in;
    node.out[0] = out;
    node.attrs.activation = ACT_RELU;
    assert_int_equal(op_append(program, list, &node, 1), ST_OK);
}

static void bench_open(bench *x)
{
    memset(x, 0, sizeof(*x));
    op_program *program = NULL;
    const plan_mesh mesh = {.size = {1, 2, 1, 1, 1}};
    const plan_group sums = plan_group_of(&mesh, MESH_AXIS(AXIS_DP), GROUP_OVERLAPPED);
    const plan_tensor step = {.name = "step", .bytes = 8192, .role = ROLE_STEP, .is_run = true};
    int32_t group = -1;
    assert_int_equal(arena_create("live", 0, &x->a), ST_OK);
    x->run.a = x->out.a = x->a;
    assert_int_equal(plan_table_push(&x->run, &step), ST_OK);
    assert_int_equal(plan_table_group(&x->run, &sums, &group), ST_OK);
    assert_int_equal(op_program_create(x->a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &program), ST_OK);
    for (int32_t t = 0; t < 3; t++) {
        const char *const names[] = {"x", "y", "z"};
        tensor_id made = TENSOR_NONE;
        assert_int_equal(op_tensor_make(program, names[t], ROLE_ACTIVATION, DTYPE_F32, 2,
                                        extent_tokens(1), extent_of(4), &made),
                         ST_OK);
        assert_int_equal(made, t);
        x->map[t] = t;
        x->tensors[t] = (plan_tensor){.bytes = 64, .kind = PLAN_BYTES_ACTIVATIONS};
    }
    node_add(program, OP_FORWARD, 0, 1);
    node_add(program, OP_BACKWARD_INPUT, 1, 2);
    x->binding = (plan_binding){.program = program, .tensor = x->map};
    x->p = (plan){.run = &x->run,
                  .tensors = x->tensors,
                  .tensor_count = 3,
                  .bindings = &x->binding,
                  .binding_count = 1,
                  .actions = x->actions,
                  .waits = x->waits,
                  .comms = x->comms,
                  .items = x->items,
                  .micro_batch = 1,
                  .seq = 4,
                  .step_ref = plan_run_ref(0)};
}

// Adds an action; `on`: the action that it waits for, or -1.
static int32_t action_add(bench *x, plan_action a, int32_t on)
{
    const int32_t i = (int32_t)x->p.action_count++;
    a.waits_begin = x->wait_count;
    a.waits_count = on >= 0 ? 1 : 0;
    if (on >= 0) x->waits[x->wait_count++] = on;
    x->actions[i] = a;
    x->begins[i + 1] = x->begins[i] + a.ops_count;
    return i;
}

static int32_t list_add(bench *x, op_list list, int32_t microbatch, int32_t on)
{
    const plan_action a = {.kind = ACTION_COMPUTE,
                           .stream = STREAM_COMPUTE,
                           .microbatch = microbatch,
                           .list = (int32_t)list,
                           .ops_count = 1};
    return action_add(x, a, on);
}

// Sums `ref` in place, on a stream of its own.
static int32_t sum_add(bench *x, int32_t ref, int32_t on)
{
    const int32_t c = (int32_t)x->p.comm_count++;
    x->comms[c] = (plan_comm){
        .op = COLLECTIVE_ALL_REDUCE, .type = DTYPE_F32, .items_begin = c, .items_count = 1};
    x->items[c] = (plan_comm_item){.in = ref, .out = ref, .count = 16};
    const plan_action a = {.kind = ACTION_COMMUNICATE,
                           .stream = STREAM_GROUPS,
                           .microbatch = -1,
                           .layer = -1,
                           .binding = -1,
                           .comm = c};
    return action_add(x, a, on);
}

static void spans_are(const bench *x, int32_t row, int64_t count, const int64_t spans[][2])
{
    assert_true(row < x->out.capacity);
    const lifetime *l = &x->out.rows[row];
    assert_int_equal(l->count, count);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(l->spans[i].begin, spans[i][0]);
        assert_int_equal(l->spans[i].end, spans[i][1]);
    }
}

static void live_run(bench *x)
{
    const live_input in = {.p = &x->p, .begins = x->begins};
    assert_int_equal(plan_live(&in, &x->out), ST_OK);
    assert_int_equal(x->out.now, x->begins[x->p.action_count]);
}

static void each_micro_batch_begins_anew(void **state)
{
    (void)state;
    bench x;
    bench_open(&x);
    for (int32_t m = 0; m < 2; m++) {
        (void)list_add(&x, OP_FORWARD, m, -1);
        (void)list_add(&x, OP_BACKWARD_INPUT, m, -1);
    }
    live_run(&x);
    spans_are(&x, 1, 2, (const int64_t[][2]){{0, 1}, {2, 3}});
    spans_are(&x, 2, 2, (const int64_t[][2]){{1, 1}, {3, 3}});
    arena_destroy(x.a);
}

static void repeated_ones_are_not_recorded(void **state)
{
    (void)state;
    bench x;
    bench_open(&x);
    const bool repeats[] = {false, true};
    for (int32_t m = 0; m < 2; m++) (void)list_add(&x, OP_FORWARD, m, -1);
    const live_input in = {.p = &x.p, .begins = x.begins, .repeats = repeats};
    assert_int_equal(plan_live(&in, &x.out), ST_OK);
    spans_are(&x, 1, 1, (const int64_t[][2]){{0, 0}});
    arena_destroy(x.a);
}

// A sum of y goes on until somebody waits for it, or for one behind it on its stream.
static void operands_live_until_the_wait(void **state)
{
    (void)state;
    bench x;
    bench_open(&x);
    const int32_t made = list_add(&x, OP_FORWARD, 0, -1);
    const int32_t read = list_add(&x, OP_BACKWARD_INPUT, 0, -1);
    (void)sum_add(&x, 1, made);
    const int32_t last = sum_add(&x, 2, read);
    (void)list_add(&x, OP_BACKWARD_INPUT, 0, -1);
    (void)list_add(&x, OP_BACKWARD_INPUT, 0, -1);
    x.actions[x.p.action_count - 1].waits_begin = x.wait_count;
    x.actions[x.p.action_count - 1].waits_count = 1;
    x.waits[x.wait_count++] = last;
    for (int i = 4; i < 6; i++) x.actions[i].ops_count = 0; // neither reads y
    x.begins[5] = 3;
    x.begins[6] = 4;
    live_run(&x);
    spans_are(&x, 1, 1, (const int64_t[][2]){{0, 2}});
    spans_are(&x, 2, 1, (const int64_t[][2]){{1, 2}});
    arena_destroy(x.a);
}

static void accumulators_have_one_interval(void **state)
{
    (void)state;
    bench x;
    bench_open(&x);
    x.tensors[1].kind = PLAN_BYTES_GRADIENTS;
    for (int32_t m = 0; m < 2; m++) (void)list_add(&x, OP_FORWARD, m, -1);
    const int32_t sum = sum_add(&x, 1, 1);
    (void)list_add(&x, OP_BACKWARD_INPUT, 2, -1);
    (void)list_add(&x, OP_BACKWARD_INPUT, 3, sum);
    live_run(&x);
    spans_are(&x, 1, 1, (const int64_t[][2]){{0, 3}});
    arena_destroy(x.a);
}

// A tensor that is read after the step is live until its end.
static void kept_tensors_live_to_the_end(void **state)
{
    (void)state;
    bench x;
    bench_open(&x);
    (void)list_add(&x, OP_FORWARD, 0, -1);
    (void)list_add(&x, OP_BACKWARD_INPUT, 0, -1);
    const int32_t kept[] = {0};
    const live_input in = {.p = &x.p, .begins = x.begins, .kept = kept, .kept_count = 1};
    assert_int_equal(plan_live(&in, &x.out), ST_OK);
    spans_are(&x, 0, 1, (const int64_t[][2]){{0, 2}});
    arena_destroy(x.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_micro_batch_begins_anew),
        cmocka_unit_test(repeated_ones_are_not_recorded),
        cmocka_unit_test(operands_live_until_the_wait),
        cmocka_unit_test(accumulators_have_one_interval),
        cmocka_unit_test(kept_tensors_live_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
