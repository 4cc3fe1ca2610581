// Tests habits of other software: each changes its own price and no other.
#include "cost/habits.h"

#include "fixtures/cost/cost_sample.h"

// Two nodes of eight: rings also bring a node the pieces of its own ranks, 15/16 of the bytes
// instead of 8/16, except for sums that switches compute. Within a node they change nothing.
static void rings_transfer_a_nodes_own_pieces(void **state)
{
    (void)state;
    enum { NODES_LEVEL = 1 };
    cluster c = sample(), adds;
    cost_profile p = cost_profile_trireme(), rings = p;
    const double bytes = 64e9;
    cost_habits round_rings = cost_habits_none;
    round_rings.rings = true;
    rings.habits = &round_rings;
    c.levels[NODES_LEVEL].bytes_s = 1e9; // the nodes' links decide
    c.levels[NODES_LEVEL].reduces = false;
    adds = c;
    adds.levels[NODES_LEVEL].reduces = true;
    const struct {
        const cluster *c;
        op_collective op;
        int32_t nodes;
        double ratio;
    } cases[] = {
        {&c, COLLECTIVE_ALL_GATHER, 1, 1.0},
        {&c, COLLECTIVE_ALL_REDUCE, 1, 1.0},
        {&c, COLLECTIVE_REDUCE_SCATTER, 2, 15.0 / 8.0},
        {&c, COLLECTIVE_ALL_GATHER, 2, 15.0 / 8.0},
        {&c, COLLECTIVE_ALL_REDUCE, 2, 15.0 / 8.0},
        {&adds, COLLECTIVE_ALL_REDUCE, 2, 1.0},
        {&adds, COLLECTIVE_ALL_GATHER, 2, 15.0 / 8.0},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const cost_model once = {.c = cases[i].c, .profile = &p},
                         round = {.c = cases[i].c, .profile = &rings};
        const plan_mesh mesh = {.size = {[AXIS_DP] = 8 * cases[i].nodes}};
        const cost_group g = group_along(cases[i].c, &mesh, AXIS_DP, GROUP_INLINE);
        assert_close((double)cost_collective_ns(&round, &g, cases[i].op, bytes) /
                         (double)cost_collective_ns(&once, &g, cases[i].op, bytes),
                     cases[i].ratio, 1e-3);
    }
}

// A channel of `*gb_s`, a member of m's profile, delays 64 MB on `held` if it is the slowest: from
// least_ns on. At the links' speed or above it changes nothing, and it never affects collectives of
// `free`.
static void is_held_up(const cost_model *m, double *gb_s, const cost_group *held, op_collective op,
                       int64_t least_ns, const cost_group *free, op_collective other)
{
    const double bytes = 64e6;
    const int64_t free_ns = cost_collective_ns(m, held, op, bytes);
    const int64_t others = cost_collective_ns(m, free, other, bytes);
    *gb_s = 1e5;
    assert_int_equal(cost_collective_ns(m, held, op, bytes), free_ns);
    *gb_s = 1.0;
    const int64_t held_ns = cost_collective_ns(m, held, op, bytes);
    assert_true(held_ns >= least_ns && held_ns < least_ns + free_ns);
    assert_int_equal(cost_collective_ns(m, free, other, bytes), others);
}

// Rows go to experts at the rank's own sending rate, or that of slower links: seven eighths of 64
// MB at 1 GB/s. Nothing else is delayed.
static void rows_of_experts_are_held_up(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p};
    const plan_mesh mesh = {.size = {[AXIS_DP] = 8}, .ep = 8};
    const cost_group ep = group_along(&c, &mesh, AXIS_EP, GROUP_INLINE);
    const cost_group dp = group_along(&c, &mesh, AXIS_DP, GROUP_INLINE);
    is_held_up(&m, &h.ep_gb_s, &ep, COLLECTIVE_ALL_TO_ALL, 56000000, &dp, COLLECTIVE_ALL_TO_ALL);
}

// Keys and values go round a ring of cp: 64 MB at 1 GB/s. Gradients are not affected.
static void keys_and_values_are_held_up(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p};
    const plan_mesh mesh = {.size = {[AXIS_DP] = 2, [AXIS_CP] = 4}};
    const cost_group cp = group_along(&c, &mesh, AXIS_CP, GROUP_INLINE);
    const cost_group dp = group_along(&c, &mesh, AXIS_DP, GROUP_INLINE);
    is_held_up(&m, &h.cp_gb_s, &cp, COLLECTIVE_SEND, 64000000, &dp, COLLECTIVE_ALL_REDUCE);
}

// Rows that are cast before they are gathered over tp travel in half the bytes; weights over dp,
// sums, and runs in 16 bits do not.
static void fp8_rows_are_gathered_in_a_byte(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p, .fp8 = true};
    const plan_mesh mesh = {.size = {[AXIS_TP] = 8, [AXIS_DP] = 8}};
    const cost_group tp = group_along(&c, &mesh, AXIS_TP, GROUP_INLINE);
    cost_group dp = group_along(&c, &mesh, AXIS_DP, GROUP_INLINE);
    const double bytes = 64e6;
    const int64_t half = cost_collective_ns(&m, &tp, COLLECTIVE_ALL_GATHER, bytes / 2.0);
    const int64_t whole = cost_collective_ns(&m, &tp, COLLECTIVE_ALL_GATHER, bytes);
    const int64_t sum = cost_collective_ns(&m, &tp, COLLECTIVE_REDUCE_SCATTER, bytes);
    const int64_t weights = cost_collective_ns(&m, &dp, COLLECTIVE_ALL_GATHER, bytes);
    assert_true(half < whole);
    h.fp8_gathers = true;
    assert_int_equal(cost_collective_ns(&m, &tp, COLLECTIVE_ALL_GATHER, bytes), half);
    assert_int_equal(cost_collective_ns(&m, &tp, COLLECTIVE_REDUCE_SCATTER, bytes), sum);
    assert_int_equal(cost_collective_ns(&m, &dp, COLLECTIVE_ALL_GATHER, bytes), weights);
    const cost_model wide = {.c = &c, .profile = &p};
    assert_int_equal(cost_collective_ns(&wide, &tp, COLLECTIVE_ALL_GATHER, bytes), whole);
    // Rows from the stage before, which are gathered on arrival, do not either.
    h.pp_pieces = true;
    dp.same_rows = 8;
    assert_int_equal(cost_pieces_ns(&m, &dp, bytes), whole);
}

// Eight ranks of tp hold the same 1 GB: each sends an eighth to another node at 40 GB/s, where they
// gather; with layout.sp each has its own.
static void stages_get_pieces(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group node = group_of(&c, 8, 1);
    cost_group link = group_of(&c, 2, 8);
    const double bytes = 1e9;
    const double whole = (double)cost_collective_ns(&m, &link, COLLECTIVE_SEND, bytes);
    h.pp_pieces = true;
    assert_close((double)cost_collective_ns(&m, &link, COLLECTIVE_SEND, bytes), whole, 0.0);
    link.same_rows = 8;
    const double gather = (double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_GATHER, bytes);
    assert_close((double)cost_pieces_ns(&m, &link, bytes), gather, 1e-9);
    assert_close((double)cost_collective_ns(&m, &link, COLLECTIVE_RECEIVE, bytes),
                 (bytes / 8 / 40e9 + 4e-6 + 1e-6) * 1e9 + gather, 1e-6);
    h.pp_pieces = false;
    assert_close((double)cost_collective_ns(&m, &link, COLLECTIVE_SEND, bytes), whole, 0.0);
    assert_int_equal(cost_pieces_ns(&m, &link, bytes), 0);
}

// PyTorch's DDP overlaps sums with the backward pass if there are no stages.
static void sums_are_hidden_where_there_are_no_stages(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    p.overlap[TRAFFIC_DP] = p.overlap[TRAFFIC_TP] = 0.0;
    for (int pp = 1; pp <= 2; pp++) {
        const plan_mesh mesh = {.size = {[AXIS_DP] = 4, [AXIS_TP] = 2, [AXIS_PP] = pp}};
        const cost_group sums = group_along(&c, &mesh, AXIS_DP, GROUP_OVERLAPPED);
        const cost_group rows = group_along(&c, &mesh, AXIS_TP, GROUP_INLINE);
        h.dp_beside = false;
        assert_close(cost_overlap(&p, &sums, true), 0.0, 0.0);
        h.dp_beside = true;
        assert_close(cost_overlap(&p, &sums, true), pp == 1 ? 1.0 : 0.0, 0.0);
        assert_close(cost_overlap(&p, &sums, false), 0.0, 0.0);
        assert_close(cost_overlap(&p, &rows, false), 0.0, 0.0);
    }
}

// Sixteen ranks of two nodes: fifteen hops, one of which leaves a node. An all-reduce keeps its
// tree.
static void rings_take_their_hops(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group node = group_of(&c, 8, 1), two = group_of(&c, 16, 1);
    const int64_t sum = cost_collective_ns(&m, &two, COLLECTIVE_ALL_REDUCE, 1e9);
    h.hop_s = 30e-6;
    h.hop_outside_s = 200e-6;
    const double launch = 1e-6, bytes = 1e9;
    assert_close((double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_GATHER, bytes),
                 (7.0 / 8.0 * bytes / 200e9 + 7 * 30e-6 + launch) * 1e9, 1e-6);
    assert_close((double)cost_collective_ns(&m, &two, COLLECTIVE_REDUCE_SCATTER, bytes),
                 (15.0 / 16.0 * bytes / 200e9 + 14 * 30e-6 + 200e-6 + launch) * 1e9, 1e-6);
    assert_int_equal(cost_collective_ns(&m, &two, COLLECTIVE_ALL_REDUCE, bytes), sum);
}

// The loss of GEMMs that overlap with a collective is proportional to the rate at which a rank
// receives: one rank on each of eight nodes receives 50 x 0.8 of 400 x 0.5 GB/s; with eight on each
// of two nodes, whose ports all fetch for all, it is 8 of those over 8/15 of the bytes.
static void slow_links_crowd_less(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    p.habits = &h;
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group in_node = group_of(&c, 8, 1), apart = group_of(&c, 8, 8),
                     both = group_of(&c, 16, 1);
    assert_close(cost_crowding(&m, &apart), 0.0, 0.0);
    h.crowding = 0.25;
    assert_close(cost_crowding(&m, &in_node), 0.25, 1e-9);
    assert_close(cost_crowding(&m, &apart), 0.25 * 40.0 / 200.0, 1e-9);
    assert_close(cost_crowding(&m, &both), 0.25,
                 1e-9); // 15/8 x 8 x 40 of 200 GB/s: more than one rank receives
}

// A habit that is left out changes nothing, and no habits equals all of them left out.
static void none_changes_nothing(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile bare = cost_profile_trireme(), none = bare;
    none.habits = &cost_habits_none;
    const plan_mesh mesh = {.size = {[AXIS_DP] = 8, [AXIS_TP] = 2, [AXIS_CP] = 2}, .ep = 8};
    const cost_model of_bare = {.c = &c, .profile = &bare}, of_none = {.c = &c, .profile = &none};
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        const cost_group g = group_along(&c, &mesh, (mesh_axis)axis, GROUP_OVERLAPPED);
        for (int op = COLLECTIVE_ALL_REDUCE; op <= COLLECTIVE_RECEIVE; op++) {
            assert_int_equal(cost_collective_ns(&of_bare, &g, (op_collective)op, 1e8),
                             cost_collective_ns(&of_none, &g, (op_collective)op, 1e8));
        }
        assert_true(cost_overlap(&bare, &g, true) == cost_overlap(&none, &g, true));
        assert_true(cost_crowding(&of_none, &g) == 0.0);
    }
    assert_false(cost_has_host(&none) || cost_has_all_logits(&none));
    assert_int_equal(cost_step_ns(&none), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_transfer_a_nodes_own_pieces),
        cmocka_unit_test(rows_of_experts_are_held_up),
        cmocka_unit_test(keys_and_values_are_held_up),
        cmocka_unit_test(fp8_rows_are_gathered_in_a_byte),
        cmocka_unit_test(stages_get_pieces),
        cmocka_unit_test(sums_are_hidden_where_there_are_no_stages),
        cmocka_unit_test(rings_take_their_hops),
        cmocka_unit_test(slow_links_crowd_less),
        cmocka_unit_test(none_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
