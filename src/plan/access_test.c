// Tests the accesses of actions: rows of a micro-batch, accumulators, workspaces, items of
// communications. All actions of sample plans stay inside the tensors of their plan.
#include "fixtures/plan/verify_sample.h"
#include "plan/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A program with a tensor of each role, which adds to a gradient and works on rows of tokens.
typedef struct bench {
    arena *a;
    plan_table run;
    plan p;
    plan_tensor tensors[8];
    plan_binding binding;
    int32_t map[8], spaces[4];
    op_program *program;
} bench;

enum { SEQ = 8, DIM = 4, MICRO_BATCH = 2 };

static void bench_open(bench *x)
{
    memset(x, 0, sizeof(*x));
    assert_int_equal(arena_create("access", 0, &x->a), ST_OK);
    x->run.a = x->a;
    const plan_tensor step = {.name = "step", .bytes = 8192, .role = ROLE_STEP, .is_run = true};
    assert_int_equal(plan_table_push(&x->run, &step), ST_OK);
    assert_int_equal(op_program_create(x->a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &x->program),
                     ST_OK);
    x->p = (plan){.run = &x->run,
                  .tensors = x->tensors,
                  .bindings = &x->binding,
                  .binding_count = 1,
                  .micro_batch = MICRO_BATCH,
                  .seq = SEQ,
                  .seq_cut = SEQ,
                  .step_ref = plan_run_ref(0)};
    x->binding = (plan_binding){.program = x->program, .tensor = x->map};
    x->binding.workspace[OP_FORWARD] = x->spaces;
    memset(x->map, -1, sizeof(x->map));
    memset(x->spaces, -1, sizeof(x->spaces));
}

static tensor_id tensor_add(bench *x, const char *name, tensor_role role, extent rows)
{
    tensor_id t = TENSOR_NONE;
    const int64_t count = rows.symbol == EXTENT_ONE ? rows.scale : MICRO_BATCH * SEQ;
    assert_int_equal(op_tensor_make(x->program, name, role, DTYPE_F32, 2, rows, extent_of(DIM), &t),
                     ST_OK);
    plan_tensor *row = &x->tensors[x->p.tensor_count];
    *row = (plan_tensor){.bytes = count * DIM * 4, .ndim = 2, .dims = {count, DIM}};
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    x->map[t] = (int32_t)x->p.tensor_count++;
    return t;
}

static void rows_of_an_action_are_those_of_its_sequences(void **state)
{
    (void)state;
    bench x;
    plan_access all[ACCESS_NODE_MAX];
    bench_open(&x);
    op_node node = op_node_of(OP_MATMUL);
    node.in[0] = tensor_add(&x, "x", ROLE_ACTIVATION, extent_tokens(1));
    node.in[1] = tensor_add(&x, "w", ROLE_WEIGHT, extent_of(DIM));
    node.out[0] = tensor_add(&x, "y", ROLE_ACTIVATION, extent_tokens(1));
    assert_int_equal(op_append(x.program, OP_FORWARD, &node, 1), ST_OK);
    const plan_tensor space = {.name = "workspace", .bytes = 640};
    x.spaces[0] = (int32_t)x.p.tensor_count;
    x.tensors[x.p.tensor_count++] = space;
    plan_action action = {.list = OP_FORWARD, .ops_count = 1, .sequence_count = MICRO_BATCH};
    assert_int_equal(plan_access_node(&x.p, &action, 0, all), 4);
    assert_int_equal(all[0].bytes, MICRO_BATCH * SEQ * DIM * 4);
    assert_int_equal(all[3].kind, ACCESS_WRITE);
    assert_int_equal(all[3].bytes, 640);
    action.sequence_begin = action.sequence_count = 1;
    assert_int_equal(plan_access_node(&x.p, &action, 0, all), 4);
    assert_int_equal(all[0].begin, SEQ * DIM * 4);
    assert_int_equal(all[0].bytes, SEQ * DIM * 4);
    assert_int_equal(all[1].begin, 0); // all rows of a weight
    assert_int_equal(all[1].bytes, DIM * DIM * 4);
    assert_int_equal(all[2].kind, ACCESS_WRITE);
    action.position_begin = 2;
    action.position_count = 3;
    assert_int_equal(plan_access_node(&x.p, &action, 0, all), 4);
    assert_int_equal(all[2].begin, (SEQ + 2) * DIM * 4);
    assert_int_equal(all[2].bytes, 3 * DIM * 4);
    assert_int_equal(all[2].needs, MICRO_BATCH * SEQ * DIM * 4);
    arena_destroy(x.a);
}

static void an_accumulator_is_read_where_it_goes_on(void **state)
{
    (void)state;
    bench x;
    plan_access all[ACCESS_NODE_MAX];
    bench_open(&x);
    op_node node = op_node_of(OP_MATMUL_DW);
    node.in[0] = tensor_add(&x, "x", ROLE_ACTIVATION, extent_tokens(1));
    node.in[1] = tensor_add(&x, "dy", ROLE_ACTIVATION, extent_tokens(1));
    node.out[0] = tensor_add(&x, "dw", ROLE_WEIGHT_GRAD, extent_of(DIM));
    assert_int_equal(op_append(x.program, OP_FORWARD, &node, 1), ST_OK);
    plan_action action = {.list = OP_FORWARD, .ops_count = 1};
    assert_int_equal(plan_access_node(&x.p, &action, 0, all), 3);
    assert_int_equal(all[2].kind, ACCESS_WRITE);
    action.accumulate = true;
    assert_int_equal(plan_access_node(&x.p, &action, 0, all), 3);
    assert_int_equal(all[2].kind, ACCESS_UPDATE);
    arena_destroy(x.a);
}

// The bytes that a member of a group sends and receives for an item.
static void items_are_pieces_of_their_ranks(void **state)
{
    (void)state;
    bench x;
    plan_mesh mesh = {.size = {1, 4, 1, 1, 1}, .at = {0, 1, 0, 0, 0}};
    bench_open(&x);
    (void)tensor_add(&x, "x", ROLE_ACTIVATION, extent_of(16));
    plan_comm_item item = {.in = 0, .out = 0, .count = 10};
    const plan_group group = plan_group_of(&mesh, MESH_AXIS(AXIS_DP), GROUP_OVERLAPPED);
    plan_comm c = {.op = COLLECTIVE_ALL_REDUCE, .type = DTYPE_F32, .items_count = 1};
    x.p.items = &item;
    x.p.item_count = 1;
    assert_int_equal(plan_table_group(&x.run, &group, &c.group), ST_OK);
    assert_int_equal(plan_access_item_in(&x.p, &mesh, &c, 0).bytes, 40);
    c.op = COLLECTIVE_REDUCE_SCATTER;
    item.out_offset = 40;
    assert_int_equal(plan_access_item_in(&x.p, &mesh, &c, 0).bytes, 160);
    assert_int_equal(plan_access_item_out(&x.p, &mesh, &c, 0).bytes, 40);
    assert_int_equal(plan_access_item_out(&x.p, &mesh, &c, 0).begin, 40);
    item.total = 35; // the last rank's piece is shorter
    assert_int_equal(plan_access_item_in(&x.p, &mesh, &c, 0).bytes, 140);
    mesh.at[AXIS_DP] = 3;
    assert_int_equal(plan_access_item_out(&x.p, &mesh, &c, 0).bytes, 20);
    c.op = COLLECTIVE_RECEIVE;
    assert_int_equal(plan_access_item_in(&x.p, &mesh, &c, 0).bytes, 0);
    assert_int_equal(plan_access_item_in(&x.p, &mesh, &c, 0).ref, -1);
    arena_destroy(x.a);
}

static status is_inside(void *context, const plan_access *a)
{
    const plan *p = context;
    const plan_tensor *t = plan_tensor_at(p, a->ref);
    assert_false(t->is_part);
    assert_true(a->begin >= 0 && a->bytes >= 0 && a->begin + a->bytes <= t->bytes);
    assert_true(a->needs <= a->has);
    return ST_OK;
}

static void plans_touch_their_own_tensors(void **state)
{
    (void)state;
    for (int32_t zero = 0; zero <= 3; zero++) {
        const sample_settings s = {
            .dp = 2, .zero = zero, .sequences = 8, .micro_batch = 2, .layers = 2};
        sample_job job;
        arena *a = NULL;
        assert_int_equal(arena_create("access", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &job), ST_OK);
        plan *p = job.plans[1];
        const plan_mesh mesh = plan_mesh_from(&job.mesh, 1);
        int64_t end = 0;
        for (int64_t i = 0; i < p->action_count; i++) {
            assert_int_equal(plan_access_each(p, &mesh, &p->actions[i], is_inside, p), ST_OK);
            end = max_i64(end, plan_access_end(p, &p->actions[i]));
        }
        assert_true(end <= p->run->run_bytes + p->transient_bytes);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_an_action_are_those_of_its_sequences),
        cmocka_unit_test(an_accumulator_is_read_where_it_goes_on),
        cmocka_unit_test(items_are_pieces_of_their_ranks),
        cmocka_unit_test(plans_touch_their_own_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
