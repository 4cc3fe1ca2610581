// Tests the mesh: ranks and coordinates map one to one, and the members of a group agree on the
// group.
#include "plan/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int32_t sizes[][4] = { // pp, dp, cp, tp
    {1, 1, 1, 1},
    {2, 3, 1, 2},
    {3, 1, 2, 4},
    {4, 2, 2, 2},
    {1, 5, 1, 3}};

static plan_mesh mesh_of(const int32_t s[4])
{
    return (plan_mesh){
        .size = {[AXIS_PP] = s[0], [AXIS_DP] = s[1], [AXIS_CP] = s[2], [AXIS_TP] = s[3]}};
}

static void ranks_are_coordinates(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        const plan_mesh m = mesh_of(sizes[i]);
        const int64_t ranks = plan_mesh_ranks(&m);
        assert_int_equal(ranks, sizes[i][0] * sizes[i][1] * sizes[i][2] * sizes[i][3]);
        for (int64_t r = 0; r < ranks; r++) {
            const plan_mesh at = plan_mesh_from(&m, r);
            assert_int_equal(plan_mesh_rank(&at), r);
            assert_int_equal(r % sizes[i][3], at.at[AXIS_TP]); // tp is innermost
        }
    }
}

// Checks that every member of a group lists the same members in the same order, itself at its
// place.
static void check_group(const plan_mesh *m, const plan_group *g)
{
    int32_t mine[128], theirs[128];
    const int64_t n = plan_group_size(m, g);
    assert_in_range(n, 1, 128);
    plan_group_members(m, g, mine);
    assert_int_equal(mine[plan_group_place(m, g)], plan_mesh_rank(m));
    const plan_members members = plan_members_of(m, g);
    for (int64_t rank = 0, below = 0; rank <= plan_mesh_ranks(m); rank++) {
        assert_int_equal(plan_members_below(&members, rank), below);
        if (below < n && mine[below] == rank) below++;
    }
    for (int64_t i = 0; i < n; i++) {
        const plan_mesh other = plan_mesh_from(m, mine[i]);
        if (i > 0) assert_true(mine[i - 1] < mine[i]);
        assert_int_equal(plan_group_size(&other, g), n);
        plan_group_members(&other, g, theirs);
        assert_memory_equal(mine, theirs, (size_t)n * sizeof(int32_t));
        assert_int_equal(plan_group_place(&other, g), i);
    }
}

// Groups over which experts are distributed, and groups with the same experts: every rank of dp x
// cp, and of tp if it cuts no expert, is in one of each, and two such groups share one rank only.
static void experts_are_distributed(void **state)
{
    (void)state;
    static const int32_t rows[][5] = {
        // dp, cp, tp, ep, whole_experts
        {8, 1, 1, 4, 0}, {8, 1, 2, 8, 0},  {4, 2, 1, 2, 0},  {4, 4, 2, 2, 0}, {4, 2, 1, 8, 0},
        {6, 2, 1, 4, 0}, {6, 1, 1, 3, 0},  {4, 2, 4, 1, 1},  {4, 2, 4, 2, 1}, {4, 2, 4, 4, 1},
        {4, 2, 4, 8, 1}, {4, 2, 4, 16, 1}, {4, 2, 4, 32, 1}, {3, 4, 2, 4, 1}, {6, 2, 2, 12, 1}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        plan_mesh whole = {.size = {[AXIS_PP] = 2,
                                    [AXIS_DP] = rows[i][0],
                                    [AXIS_CP] = rows[i][1],
                                    [AXIS_TP] = rows[i][2]},
                           .ep = rows[i][3],
                           .whole_experts = rows[i][4] == 1};
        const int32_t ranks = rows[i][0] * rows[i][1] * (rows[i][4] == 1 ? rows[i][2] : 1);
        assert_true(plan_ep_fits(&whole));
        for (int64_t r = 0; r < plan_mesh_ranks(&whole); r++) {
            const plan_mesh m = plan_mesh_from(&whole, r);
            const plan_group ep = plan_group_of(&m, MESH_AXIS(AXIS_EP), GROUP_INLINE);
            const plan_group same = plan_group_of(&m, MESH_EXPERT_DATA, GROUP_OVERLAPPED);
            int32_t a[128], b[128];
            int64_t shared = 0;
            check_group(&m, &ep);
            check_group(&m, &same);
            const int64_t n = plan_group_size(&m, &ep), k = plan_group_size(&m, &same);
            assert_int_equal(n, rows[i][3]);
            assert_int_equal(n * k, ranks);
            plan_group_members(&m, &ep, a);
            plan_group_members(&m, &same, b);
            for (int64_t x = 0; x < n * k; x++) shared += a[x / k] == b[x % k] ? 1 : 0;
            assert_int_equal(shared, 1);
            // ZeRO cuts over these groups.
            assert_int_equal(k, plan_expert_size(&m));
            assert_int_equal(plan_group_place(&m, &same), plan_expert_place(&m));
        }
    }
    static const int32_t others[][5] = {
        {8, 4, 1, 6, 0}, {8, 4, 2, 3, 0}, {8, 4, 2, 64, 0}, {8, 3, 4, 6, 1}, {3, 1, 4, 8, 1}};
    for (int i = 0; i < COUNT_OF(others); i++) {
        const plan_mesh none = {
            .size = {[AXIS_DP] = others[i][0], [AXIS_CP] = others[i][1], [AXIS_TP] = others[i][2]},
            .ep = others[i][3],
            .whole_experts = others[i][4] == 1};
        assert_false(plan_ep_fits(&none));
    }
}

static void members_agree(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        const plan_mesh m = mesh_of(sizes[i]);
        for (int64_t r = 0; r < plan_mesh_ranks(&m); r++) {
            const plan_mesh at = plan_mesh_from(&m, r);
            for (uint32_t axes = 0; axes <= MESH_ALL; axes++) {
                const plan_group g = plan_group_of(&at, axes, GROUP_OVERLAPPED);
                check_group(&at, &g);
            }
            for (int32_t other = 0; other < sizes[i][0]; other++) {
                if (other == at.at[AXIS_PP]) continue;
                const plan_group up = plan_group_stages(at.at[AXIS_PP], other, GROUP_LINK_FORWARD);
                const plan_group down =
                    plan_group_stages(other, at.at[AXIS_PP], GROUP_LINK_BACKWARD);
                const plan_group pair =
                    plan_group_pair(&at, other, at.at[AXIS_PP], MESH_AXIS(AXIS_DP));
                check_group(&at, &up);
                check_group(&at, &down);
                check_group(&at, &pair);
                assert_int_equal(plan_group_size(&at, &pair), 2 * sizes[i][1]);
                assert_false(plan_group_equal(&up, &down));
            }
        }
    }
}

// Groups of a part of dp cut it into rows and columns: each rank is in one of each, and a row and a
// column share one rank only.
static void halves_of_dp_are_a_grid(void **state)
{
    (void)state;
    static const int32_t layouts[][4] = {{1, 4, 1, 1}, {2, 6, 1, 2}, {3, 4, 2, 1}};
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const int32_t dp = layouts[i][1];
        for (int32_t inside = 1; inside <= dp; inside++) {
            plan_mesh m = mesh_of(layouts[i]);
            m.zero_group = inside;
            for (int64_t r = 0; r < plan_mesh_ranks(&m) && dp % inside == 0; r++) {
                int32_t row[64], column[64];
                const plan_mesh at = plan_mesh_from(&m, r);
                const plan_group in = plan_group_of(&at, MESH_DP_INSIDE, GROUP_OVERLAPPED);
                const plan_group over = plan_group_of(&at, MESH_DP_ACROSS, GROUP_OVERLAPPED);
                const plan_group all = plan_group_of(&at, MESH_AXIS(AXIS_DP), GROUP_OVERLAPPED);
                const plan_group cut = plan_group_of(&at, MESH_ZERO, GROUP_OVERLAPPED); // with cp
                assert_int_equal(plan_group_size(&at, &cut), plan_zero_size(&at));
                assert_int_equal(plan_group_place(&at, &cut), plan_zero_place(&at));
                check_group(&at, &in);
                check_group(&at, &over);
                const int64_t rows = plan_group_size(&at, &in),
                              columns = plan_group_size(&at, &over);
                assert_int_equal(rows, inside);
                assert_int_equal(rows * columns, dp);
                assert_int_equal(plan_group_equal(&in, &all), inside == dp);
                plan_group_members(&at, &in, row);
                plan_group_members(&at, &over, column);
                int shared = 0;
                for (int64_t x = 0; x < rows * columns; x++)
                    shared += row[x / columns] == column[x % columns];
                assert_int_equal(shared, 1);
            }
        }
    }
}

// Ranks of cp that distribute heads are consecutive; the rest of cp has the same heads.
static void halves_of_cp_are_a_grid(void **state)
{
    (void)state;
    const plan_mesh m = {.size = {[AXIS_DP] = 2, [AXIS_CP] = 6, [AXIS_TP] = 2}, .cp_heads = 3};
    for (int64_t r = 0; r < plan_mesh_ranks(&m); r++) {
        char name[PLAN_GROUP_NAME_BYTES];
        int32_t members[3];
        const plan_mesh at = plan_mesh_from(&m, r);
        const plan_group heads = plan_group_of(&at, MESH_CP_HEADS, GROUP_INLINE);
        const plan_group rest = plan_group_of(&at, MESH_CP_REST, GROUP_INLINE);
        check_group(&at, &heads);
        check_group(&at, &rest);
        assert_int_equal(plan_group_size(&at, &heads), 3);
        assert_int_equal(plan_group_size(&at, &rest), 2);
        plan_group_members(&at, &heads, members);
        assert_int_equal(members[1] - members[0], 2); // consecutive, except for tp
        plan_group_members(&at, &rest, members);
        assert_int_equal(members[1] - members[0], 6);
        plan_group_name(&heads, name);
        assert_string_equal(name, "cp heads inline");
    }
    plan_mesh all = {.size = {[AXIS_CP] = 4}, .cp_heads = 4};
    const plan_group cp = plan_group_of(&all, MESH_AXIS(AXIS_CP), GROUP_INLINE);
    const plan_group heads = plan_group_of(&all, MESH_CP_HEADS, GROUP_INLINE);
    assert_true(plan_group_equal(&cp, &heads));
    assert_int_equal(plan_group_of(&all, MESH_CP_REST, GROUP_INLINE).axes, 0);
    all.cp_heads = 0;
    const plan_group rest = plan_group_of(&all, MESH_CP_REST, GROUP_INLINE);
    assert_true(plan_group_equal(&cp, &rest));
}

// Groups of a part of tp cut it in the same way.
static void halves_of_tp_are_a_grid(void **state)
{
    (void)state;
    static const int32_t layout[4] = {2, 1, 2, 6};
    plan_mesh m = mesh_of(layout);
    for (int32_t copies = 1; copies <= 6; copies++) {
        for (int64_t r = 0; r < plan_mesh_ranks(&m) && 6 % copies == 0; r++) {
            int32_t row[64], column[64];
            const plan_mesh at = plan_mesh_from(&m, r);
            const plan_group in = plan_group_tp(&at, copies, 0, GROUP_INLINE);
            const plan_group over = plan_group_tp(&at, 0, copies, GROUP_INLINE);
            check_group(&at, &in);
            check_group(&at, &over);
            const int64_t rows = plan_group_size(&at, &in), columns = plan_group_size(&at, &over);
            assert_int_equal(rows, copies);
            assert_int_equal(rows * columns, 6);
            assert_int_equal(in.axes == 0, copies == 1);
            assert_int_equal(over.axes == 0, copies == 6);
            plan_group_members(&at, &in, row);
            plan_group_members(&at, &over, column);
            int shared = 0;
            for (int64_t x = 0; x < 6; x++) shared += row[x / columns] == column[x % columns];
            assert_int_equal(shared, 1);
            for (int64_t i = 0; i < columns; i++) assert_int_equal(column[i] % copies, r % copies);
            for (int64_t i = 1; i < rows; i++) assert_int_equal(row[i], row[i - 1] + 1);
        }
    }
}

// Axes of one rank are dropped: "dp+cp" without cp is "dp".
static void names_are_of_what_is_there(void **state)
{
    (void)state;
    char name[PLAN_GROUP_NAME_BYTES];
    const plan_mesh m = mesh_of(sizes[1]);
    const uint32_t both = MESH_AXIS(AXIS_DP) | MESH_AXIS(AXIS_CP);
    const plan_group with = plan_group_of(&m, both, GROUP_OVERLAPPED);
    const plan_group without = plan_group_of(&m, MESH_AXIS(AXIS_DP), GROUP_OVERLAPPED);
    const plan_group inlined = plan_group_of(&m, MESH_AXIS(AXIS_DP), GROUP_INLINE);
    assert_true(plan_group_equal(&with, &without));
    assert_false(plan_group_equal(&with, &inlined));
    plan_group_name(&with, name);
    assert_string_equal(name, "dp");
    const plan_group link = plan_group_stages(1, 0, GROUP_LINK_BACKWARD);
    plan_group_name(&link, name);
    assert_string_equal(name, "pp 1>0 back");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_coordinates),   cmocka_unit_test(members_agree),
        cmocka_unit_test(halves_of_dp_are_a_grid), cmocka_unit_test(halves_of_cp_are_a_grid),
        cmocka_unit_test(halves_of_tp_are_a_grid), cmocka_unit_test(names_are_of_what_is_there),
        cmocka_unit_test(experts_are_distributed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
