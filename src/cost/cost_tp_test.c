// Tests prices of tensor-parallel ranks: on links that join pairs, a group has only the links among
// its members; logits that each rank has for all columns are gathered, and every rank computes
// their loss.
#include "cost/cost.h"
#include "cost/habits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 2048, DIM = 1024, PIECE = 8192, WAYS = 4 };

static void assert_close(double got, double wanted)
{
    if (got >= wanted * 0.999 && got <= wanted * 1.001) return;
    print_error("%.9g, expected %.9g\n", got, wanted);
    assert_true(false);
}

// One node of this many devices, 400 GB/s each.
static cluster node_of(int64_t devices, cluster_shape shape)
{
    return (cluster){.name = "node",
                     .devices = devices,
                     .device = {.name = "d",
                                .maker = "sample",
                                .memory_bytes_s = 1e12,
                                .memory_share = 1.0,
                                .peak_flops = {[MATH_BF16] = 1e15, [MATH_FP32] = 5e13},
                                .gemm_share = {[MATH_BF16] = 0.5}},
                     .node = {.devices = (int32_t)devices, .host_bytes_s = 50e9},
                     .levels = {{.name = "links",
                                 .shape = shape,
                                 .devices = devices,
                                 .bytes_s = 400e9,
                                 .efficiency = 1.0,
                                 .taper = 1}},
                     .level_count = 1};
}

static double collective_ns(const cluster *c, int64_t ranks, op_collective op)
{
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = c, .profile = &p};
    const plan_mesh mesh = {.size = {[AXIS_TP] = (int32_t)ranks}};
    const plan_group all = plan_group_of(&mesh, MESH_AXIS(AXIS_TP), GROUP_INLINE);
    cost_group g;
    cost_group_of(c, &mesh, &all, &g);
    return (double)cost_collective_ns(&m, &g, op, 1e9);
}

// Relative to a switch: two ranks of a mesh of four have a third of their links, two of a cube of
// eight have one or two of six, four have four.
static void pairs_have_their_own_links(void **state)
{
    (void)state;
    static const struct {
        cluster_shape shape;
        int64_t devices, ranks;
        double slower;
    } cases[] = {
        {SHAPE_MESH, 4, 2, 3.0},       {SHAPE_MESH, 4, 3, 1.5}, {SHAPE_MESH, 4, 4, 1.0},
        {SHAPE_MESH, 8, 2, 7.0},       {SHAPE_MESH, 2, 2, 1.0}, {SHAPE_CUBE, 8, 2, 6.0},
        {SHAPE_CUBE, 8, 4, 6.0 / 4.0}, {SHAPE_CUBE, 8, 8, 1.0}, {SHAPE_RING, 8, 2, 1.0},
    };
    static const op_collective ops[] = {COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_GATHER,
                                        COLLECTIVE_ALL_TO_ALL};
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const cluster pairs = node_of(cases[i].devices, cases[i].shape);
        const cluster any = node_of(cases[i].devices, SHAPE_SWITCH);
        for (int64_t k = 0; k < COUNT_OF(ops); k++) {
            assert_close(collective_ns(&pairs, cases[i].ranks, ops[k]) /
                             collective_ns(&any, cases[i].ranks, ops[k]),
                         cases[i].slower);
        }
    }
}

// A mesh of eight nodes of four devices: two nodes have one of their seven links; within a node
// there is a switch.
static void nodes_may_be_joined_so_too(void **state)
{
    (void)state;
    cluster c = node_of(4, SHAPE_SWITCH);
    c.devices = 32;
    c.level_count = 2;
    c.levels[1] = c.levels[0];
    c.levels[1].devices = 32;
    const double any = collective_ns(&c, 8, COLLECTIVE_ALL_GATHER),
                 within = collective_ns(&c, 4, COLLECTIVE_ALL_GATHER);
    // 400 GB/s per device: half of 1 GB over four devices' links, seven eighths within the nodes.
    assert_close(any, 1e9 * 7.0 / 8.0 / 400.0);
    c.levels[1].shape = SHAPE_MESH;
    assert_close(collective_ns(&c, 8, COLLECTIVE_ALL_GATHER), 1e9 / 2.0 / (4.0 * 400.0 / 7.0));
    assert_close(collective_ns(&c, 4, COLLECTIVE_ALL_GATHER), within);
}

// Time of a head operation on `columns` of its `whole` columns; 0: on all of them.
static double head_ns(const cost_model *m, op_code code, int64_t columns, int64_t whole)
{
    arena *a = NULL;
    op_program *p = NULL;
    op_node node = op_node_of(code);
    assert_int_equal(arena_create("head", 0, &a), ST_OK);
    assert_int_equal(op_program_create(a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &p), ST_OK);
    assert_int_equal(op_input(p, "x", extent_tokens(1), extent_of(DIM), &node.in[0]), ST_OK);
    assert_int_equal(op_tensor_make(p, "w", ROLE_WEIGHT, DTYPE_BF16, 2, extent_of(columns),
                                    extent_of(DIM), &node.in[1]),
                     ST_OK);
    node.piece.whole_rows = whole;
    node.attrs.kept = true;
    const extent_binding bound = {
        .value = {[EXTENT_ONE] = 1, [EXTENT_TOKENS] = ROWS, [EXTENT_SEQS] = 1}};
    const double ns = (double)cost_node_ns(m, p, &node, &bound);
    arena_destroy(a);
    return ns;
}

static void logits_of_all_columns_take_time(void **state)
{
    (void)state;
    enum { ALL = PIECE * WAYS };
    const cluster c = node_of(WAYS, SHAPE_SWITCH);
    const cost_profile p = cost_profile_trireme();
    cost_profile gathers = p, makes = p;
    const cost_model m = {.c = &c, .profile = &p}, gathered = {.c = &c, .profile = &gathers},
                     made = {.c = &c, .profile = &makes};
    cost_habits logits_of_all = cost_habits_none, head_of_all = cost_habits_none;
    logits_of_all.whole_logits = true;
    head_of_all.whole_head = true;
    gathers.habits = &logits_of_all;
    makes.habits = &head_of_all;
    const double stats = head_ns(&m, OP_HEAD_STATS, PIECE, ALL);
    // Each logit of the other ranks takes two passes of four bytes at 1,000 GB/s; each logit takes
    // what the gather's copy reads and writes; and the gather moves two bytes each, three quarters
    // of them at 400 GB/s.
    const double piece = (double)ROWS * PIECE, logits = (double)ROWS * ALL;
    assert_close(head_ns(&gathered, OP_HEAD_STATS, PIECE, ALL) - stats,
                 (8.0 * (logits - piece) + 4.0 * logits) / 1000.0 + 2.0 * logits * 0.75 / 400.0);
    // The loss covers the gathered columns and gathers no more.
    const double loss = head_ns(&m, OP_HEAD_LOSS, PIECE, ALL);
    const double more = 4.0 * (logits - piece) / 1000.0;
    assert_close(head_ns(&gathered, OP_HEAD_LOSS, PIECE, ALL) - loss, more);
    assert_close(head_ns(&made, OP_HEAD_LOSS, PIECE, ALL) - loss, more);
    // A rank with the whole head does what a single rank does, which gathers nothing.
    const double alone = head_ns(&m, OP_HEAD_STATS, ALL, 0);
    assert_close(head_ns(&made, OP_HEAD_STATS, PIECE, ALL), alone);
    assert_close(head_ns(&gathered, OP_HEAD_STATS, ALL, 0), alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_have_their_own_links),
        cmocka_unit_test(nodes_may_be_joined_so_too),
        cmocka_unit_test(logits_of_all_columns_take_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
