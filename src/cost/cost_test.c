// Tests prices: limits of the roofline, monotony in every size, collectives against formulas
// computed by hand.
#include "cost/cost.h"
#include "cost/habits.h"
#include "fixtures/cost/cost_sample.h"

#include <math.h>
#include <stdio.h>

// ---- GEMMs -------------------------------------------------------------------------------------

static void large_gemms_reach_their_share(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    const cost_gemm big = {128.0 * 1000, 128.0 * 100, 65536};
    const double s = 2.0 * big.m * big.n * big.k / (1e15 * 0.7);
    assert_close((double)cost_gemm_ns(&m, &big, DTYPE_BF16, 0.0), s * 1e9, 0.01);
    assert_close((double)cost_gemm_ns(&m, &big, DTYPE_F32, 0.0), s * 20.0 * 1e9, 0.01);
    // The bytes decide if they take longer than the work.
    const cost_gemm thin = {1, 1e5, 1e5};
    assert_close((double)cost_gemm_ns(&m, &thin, DTYPE_BF16, 2e10), 2e10 / 2.4e12 * 1e9, 0.001);
    // Half the speed in the profile gives half the speed.
    cost_profile slow = p;
    slow.gemm = 0.5;
    const cost_model other = {.c = &c, .profile = &slow};
    assert_close((double)cost_gemm_ns(&other, &big, DTYPE_BF16, 0.0), 2.0 * s * 1e9, 0.01);
}

static void a_type_without_units_takes_the_next(void **state)
{
    (void)state;
    cluster c = sample();
    assert_int_equal(cost_math_of(&c.device, DTYPE_F16), MATH_BF16);
    assert_int_equal(cost_math_of(&c.device, DTYPE_F32), MATH_FP32);
    c.device.peak_flops[MATH_BF16] = 0.0;
    assert_int_equal(cost_math_of(&c.device, DTYPE_BF16), MATH_FP32);
}

static void tiles_and_waves_quantise(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    // 100 tiles fill 100 units once; 101 need a second wave of some tile and cost more than 1%
    // more.
    const cost_gemm full = {128.0 * 10, 128.0 * 10, 8192}, over = {128.0 * 10 + 1, 1280, 8192};
    const double one = (double)cost_gemm_ns(&m, &full, DTYPE_BF16, 0.0);
    const double two = (double)cost_gemm_ns(&m, &over, DTYPE_BF16, 0.0);
    assert_true(two > 1.05 * one);
    assert_true(two < 2.2 * one);
    const double share = cost_gemm_share(&c.device, &full, MATH_BF16);
    assert_true(share > 0.6 && share <= 0.7);
}

static void nothing_larger_is_cheaper(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    static const double sizes[] = {1,   7,    64,   100,  128,  129,  500,
                                   512, 1000, 1024, 4096, 5000, 8192, 28672};
    for (int i = 0; i + 1 < COUNT_OF(sizes); i++) {
        for (int j = 0; j < COUNT_OF(sizes); j++) {
            for (int k = 0; k < COUNT_OF(sizes); k++) {
                const cost_gemm one[] = {{sizes[i], sizes[j], sizes[k]},
                                         {sizes[j], sizes[i], sizes[k]},
                                         {sizes[j], sizes[k], sizes[i]}};
                const cost_gemm more[] = {{sizes[i + 1], sizes[j], sizes[k]},
                                          {sizes[j], sizes[i + 1], sizes[k]},
                                          {sizes[j], sizes[k], sizes[i + 1]}};
                for (int d = 0; d < 3; d++) {
                    const int64_t a = cost_gemm_ns(&m, &one[d], DTYPE_BF16, 0.0);
                    const int64_t b = cost_gemm_ns(&m, &more[d], DTYPE_BF16, 0.0);
                    assert_true(b >= a);
                    const double flops = 2.0 * one[d].m * one[d].n * one[d].k;
                    assert_true(cost_floor_ns(&m, flops, 0.0, DTYPE_BF16) <= a);
                }
            }
        }
    }
    for (int64_t bytes = 1; bytes < 10000000000; bytes *= 3) {
        assert_true(cost_memory_ns(&m, 3.0 * (double)bytes) >= cost_memory_ns(&m, (double)bytes));
    }
    // Transfers of this size reach half the speed.
    assert_close((double)cost_memory_ns(&m, 1e6), 2e6 / 2.4e12 * 1e9, 0.01);
}

// ---- operations --------------------------------------------------------------------------------

// Prices, and a program that begins with a GEMM of a matrix with tokens as rows.
typedef struct priced {
    cluster c;
    cost_profile p;
    cost_habits h;
    cost_model m;
    arena *a;
    op_program *program;
    tensor_id x, y; // operand and result of the GEMM
    extent_binding bound;
} priced;

static void priced_begin(priced *t, int64_t columns, int64_t rows, int64_t tokens)
{
    tensor_id w = TENSOR_NONE;
    *t = (priced){
        .c = sample(),
        .p = cost_profile_trireme(),
        .h = cost_habits_none,
        .bound = {.value = {[EXTENT_ONE] = 1, [EXTENT_TOKENS] = tokens, [EXTENT_SEQS] = 1}}};
    t->p.habits = &t->h;
    t->m = (cost_model){.c = &t->c, .profile = &t->p};
    assert_int_equal(arena_create("priced", 0, &t->a), ST_OK);
    assert_int_equal(op_program_create(t->a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &t->program),
                     ST_OK);
    assert_int_equal(op_input(t->program, "x", extent_tokens(1), extent_of(columns), &t->x), ST_OK);
    assert_int_equal(op_tensor_make(t->program, "w", ROLE_WEIGHT, DTYPE_BF16, 2, extent_of(rows),
                                    extent_of(columns), &w),
                     ST_OK);
    assert_int_equal(op_matmul(t->program, t->x, w, TENSOR_NONE, ACT_NONE, &t->y), ST_OK);
}

// A GEMM, a gate over its columns, and an addition to the remaining half.
static void eager_operations_move_more(void **state)
{
    (void)state;
    priced t;
    tensor_id gated = TENSOR_NONE, twice = TENSOR_NONE;
    priced_begin(&t, 4096, 8192, 8192);
    assert_int_equal(op_swiglu(t.program, t.y, &gated), ST_OK);
    assert_int_equal(op_add(t.program, gated, gated, &twice), ST_OK);
    assert_int_equal(op_output(t.program, twice), ST_OK);
    const op_node *gate = &t.program->lists[OP_FORWARD].nodes[1];
    const op_node *sum = &t.program->lists[OP_FORWARD].nodes[2];
    assert_int_equal(gate->code, OP_SWIGLU);
    t.h.pointwise = 0.5;
    const int64_t fused = cost_node_ns(&t.m, t.program, gate, &t.bound);
    const int64_t added = cost_node_ns(&t.m, t.program, sum, &t.bound);
    t.h.eager_pointwise = 4.0;
    assert_close((double)(cost_node_ns(&t.m, t.program, gate, &t.bound) - fused),
                 3.5 * 3.0 * 8192 * 4096 * 2 / 2.4e12 * 1e9, 1e-3);
    assert_int_equal(cost_node_ns(&t.m, t.program, sum, &t.bound), added); // for any model
    arena_destroy(t.a);
}

static void operations_are_priced_by_their_rows(void **state)
{
    (void)state;
    priced t;
    tensor_id z = TENSOR_NONE;
    priced_begin(&t, 4096, 8192, 8192);
    assert_int_equal(op_add(t.program, t.y, t.y, &z), ST_OK);
    assert_int_equal(op_output(t.program, z), ST_OK);
    assert_int_equal(op_program_differentiate(t.program), ST_OK);
    const op_node *nodes = t.program->lists[OP_FORWARD].nodes;
    const cost_gemm shape = {8192, 8192, 4096};
    assert_int_equal(cost_node_ns(&t.m, t.program, &nodes[0], &t.bound),
                     cost_gemm_ns(&t.m, &shape, DTYPE_BF16, 0.0) + 1000);
    // Three tensors of 8192 x 8192 bf16 go through memory; fused kernels move only some of them.
    const int64_t plain = cost_node_ns(&t.m, t.program, &nodes[1], &t.bound);
    assert_close((double)plain, 3.0 * 8192 * 8192 * 2 / 2.4e12 * 1e9 + 1000, 0.01);
    t.h.pointwise = 0.5;
    assert_true(cost_node_ns(&t.m, t.program, &nodes[1], &t.bound) < plain * 6 / 10);
    // Where arithmetic is slower than memory (processors), the time is the operands over their
    // rate.
    cluster slow = t.c;
    const cost_model on_slow = {.c = &slow, .profile = &t.p};
    slow.device.pointwise_16_s = 1e10;
    assert_close((double)cost_node_ns(&on_slow, t.program, &nodes[1], &t.bound),
                 3.0 * 8192 * 8192 / 1e10 * 1e9 + 1000, 1e-6);
    // Each row takes a fixed time too: a quarter of that of its 8,192 columns.
    slow.device.pointwise_half = 2048.0;
    assert_close((double)cost_node_ns(&on_slow, t.program, &nodes[1], &t.bound),
                 1.25 * 3.0 * 8192 * 8192 / 1e10 * 1e9 + 1000, 1e-6);
    slow.device.pointwise_half = 0.0;
    slow.device.pointwise_16_s = 1e15;
    assert_int_equal(cost_node_ns(&on_slow, t.program, &nodes[1], &t.bound),
                     cost_node_ns(&t.m, t.program, &nodes[1], &t.bound));
    // Both gradients have the forward's FLOPs; that of the weight has 8192 x 4096 sums of 8192
    // terms.
    const op_node *dw = &t.program->lists[OP_BACKWARD_WEIGHT].nodes[0];
    const cost_gemm across = {4096, 8192, 8192};
    assert_int_equal(dw->code, OP_MATMUL_DW);
    assert_int_equal(cost_node_ns(&t.m, t.program, dw, &t.bound),
                     cost_gemm_ns(&t.m, &across, DTYPE_BF16, 0.0) + 1000);
    // A separate kernel adds: 2 bytes of the gradient, 4 read and 4 written of the sum. Two-byte
    // sums take other bytes.
    t.h.sum16_bytes = 6.0;
    assert_int_equal(cost_node_ns(&t.m, t.program, dw, &t.bound),
                     cost_gemm_ns(&t.m, &across, DTYPE_BF16, 0.0) + 1000);
    t.h.sum32_bytes = 10.0;
    assert_close((double)cost_node_ns(&t.m, t.program, dw, &t.bound),
                 (double)cost_gemm_ns(&t.m, &across, DTYPE_BF16, 0.0) +
                     (10.0 * 8192 * 4096 + 1e6) / 2.4e12 * 1e9 + 2000,
                 1e-6);
    assert_int_equal(cost_node_ns(&t.m, t.program, &nodes[0], &t.bound),
                     cost_gemm_ns(&t.m, &shape, DTYPE_BF16, 0.0) + 1000);
    t.h.sum16_bytes = t.h.sum32_bytes = 0.0;
    // In fp8 the incoming rows are read and written twice in one byte; the weights and the operand
    // of a GEMM over rows are cast already.
    cluster twice = t.c;
    const cost_model narrow = {.c = &twice, .profile = &t.p, .fp8 = true};
    twice.device.peak_flops[MATH_FP8] = 2e15;
    twice.device.gemm_share[MATH_FP8] = 0.7;
    twice.device.memory_half_bytes = 0.0;
    const double half = (double)cost_gemm_ns(&t.m, &shape, DTYPE_BF16, 0.0) / 2.0;
    const double half_across = (double)cost_gemm_ns(&t.m, &across, DTYPE_BF16, 0.0) / 2.0;
    t.h.pointwise = 1.0;
    assert_close((double)cost_node_ns(&narrow, t.program, &nodes[0], &t.bound),
                 half + 4.0 * 8192 * 4096 / 2.4e12 * 1e9 + 1000, 1e-4);
    assert_close((double)cost_node_ns(&narrow, t.program, dw, &t.bound), half_across + 1000, 1e-4);
    arena_destroy(t.a);
}

// 4,096 tokens of two experts of eight make 8,192 rows, which some software sorts once more. The
// host issues operations with experts, twice as many in the backward pass.
static void experts_have_their_host_and_order(void **state)
{
    (void)state;
    priced t;
    priced_begin(&t, 2048, 8, 4096);
    tensor_id ids = TENSOR_NONE, weights = TENSOR_NONE, y = TENSOR_NONE;
    op_permuted to;
    assert_int_equal(op_route(t.program, t.y, 2, true, &ids, &weights), ST_OK);
    assert_int_equal(op_permute(t.program, t.x, ids, weights, 8, &to), ST_OK);
    assert_int_equal(op_unpermute(t.program, to.rows, to.row_of, TENSOR_NONE, &y), ST_OK);
    const op_node *nodes = t.program->lists[OP_FORWARD].nodes;
    assert_false(cost_has_host(&t.p));
    for (int at = 2; at <= 3; at++) {
        t.h.expert_sorts = false;
        const int64_t plain = cost_node_ns(&t.m, t.program, &nodes[at], &t.bound);
        t.h.expert_sorts = true;
        const double more = (double)(cost_node_ns(&t.m, t.program, &nodes[at], &t.bound) - plain);
        assert_close(more, (2.0 * 8192 * 2048 * 2 + 1e6) / 2.4e12 * 1e9 + 1000, 1e-3);
    }
    t.h.issue_s = 2e-6;
    t.h.expert_issue_s = 1e-3;
    t.h.expert_product_s = 9e-6;
    assert_true(cost_has_host(&t.p));
    op_node back = op_node_of(OP_ROUTE_BWD), product = op_node_of(OP_GROUPED_MATMUL);
    op_node sent = op_node_of(OP_ALL_TO_ALL);
    product.attrs.experts = 8;
    assert_close((double)cost_issue_ns(&t.m, &nodes[0]), 2000.0, 1e-3);
    assert_close((double)cost_issue_ns(&t.m, &nodes[1]), 1002000.0, 1e-3);
    assert_close((double)cost_issue_ns(&t.m, &back), 2002000.0, 1e-3);
    assert_close((double)cost_issue_ns(&t.m, &product), 74000.0, 1e-3);
    assert_int_equal(cost_issue_ns(&t.m, &sent), 0);
    assert_false(cost_host_waits(&t.m, OP_PERMUTE));
    t.h.expert_wait = true;
    assert_true(cost_host_waits(&t.m, OP_PERMUTE) && !cost_host_waits(&t.m, OP_ROUTE));
    arena_destroy(t.a);
}

// fp8 may need longer sums to reach half its speed than 16 bits do: 128 there, 512 here.
static void fp8_wants_longer_sums(void **state)
{
    (void)state;
    cluster c = sample();
    const cost_gemm shape = {4096, 4096, 512};
    const double same = cost_gemm_share(&c.device, &shape, MATH_FP8);
    const double sixteen = cost_gemm_share(&c.device, &shape, MATH_BF16);
    c.device.gemm_half_k_fp8 = 512.0;
    assert_close(cost_gemm_share(&c.device, &shape, MATH_FP8),
                 same * (512.0 + 128.0) / (512.0 + 512.0), 1e-12);
    assert_close(cost_gemm_share(&c.device, &shape, MATH_BF16), sixteen, 1e-12);
}

// Attention reaches less on short sequences; half of it at `attention_half` tokens.
static void attention_is_slow_on_short_sequences(void **state)
{
    (void)state;
    cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    arena *a = NULL;
    op_program *program = NULL;
    tensor_id x = TENSOR_NONE, y = TENSOR_NONE;
    op_attrs attrs = {.heads = 8, .kv_heads = 8, .head_dim = 64, .scale = 0.125F};
    c.device.memory_bytes_s = 1e18; // only FLOPs count
    c.device.launch_s = 0.0;
    assert_int_equal(arena_create("cost", 0, &a), ST_OK);
    assert_int_equal(op_program_create(a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &program), ST_OK);
    assert_int_equal(op_input(program, "x", extent_tokens(1), extent_of(512), &x), ST_OK);
    assert_int_equal(op_attention(program, x, x, x, TENSOR_NONE, TENSOR_NONE, &attrs, &y), ST_OK);
    const op_node *node = &program->lists[OP_FORWARD].nodes[0];
    for (int64_t seq = 64; seq <= 4096; seq *= 4) {
        const extent_binding bound = {
            .value = {[EXTENT_ONE] = 1, [EXTENT_TOKENS] = 512 * seq, [EXTENT_SEQS] = 512}};
        c.device.attention_half = 0.0;
        const double whole = (double)cost_node_ns(&m, program, node, &bound);
        c.device.attention_half = 256.0;
        const double cut = (double)cost_node_ns(&m, program, node, &bound);
        assert_close(cut, whole * (1.0 + 256.0 / (double)seq), 0.01);
        // A profile's kernels may need longer sequences than the device's best.
        cost_profile longer = p;
        cost_habits half = cost_habits_none;
        half.attention_half = 1024.0;
        longer.habits = &half;
        const cost_model other = {.c = &c, .profile = &longer};
        assert_close((double)cost_node_ns(&other, program, node, &bound),
                     whole * (1.0 + 1024.0 / (double)seq), 0.01);
        // Heads of 60 have 15/16 of the FLOPs and are loaded in halves where there are matrix
        // units.
        c.device.attention_half = 0.0;
        op_node odd = *node;
        odd.attrs.head_dim = 60;
        assert_close((double)cost_node_ns(&m, program, &odd, &bound), whole * 15 / 16, 0.01);
        c.device.matrix_units_per_unit = 4;
        assert_close((double)cost_node_ns(&m, program, &odd, &bound), whole * 30 / 16, 0.01);
        assert_int_equal(cost_node_ns(&m, program, node, &bound), (int64_t)whole);
        c.device.matrix_units_per_unit = 0;
        // Five kernels have five launches.
        cost_profile unfused = p;
        cost_habits kernels = cost_habits_none;
        kernels.attention_kernels = 5.0;
        unfused.habits = &kernels;
        c.device.launch_s = 1e-3;
        const cost_model five = {.c = &c, .profile = &unfused};
        assert_close((double)cost_node_ns(&five, program, node, &bound), whole + 5e6, 1e-6);
        c.device.launch_s = 0.0;
        // Heads of 64 have half the FLOPs per score of heads of 128, so twice the scores for the
        // same FLOPs.
        c.device.attention_forward_scores = 0.3;
        assert_close((double)cost_node_ns(&m, program, node, &bound), whole * 1.3, 0.01);
        c.device.attention_forward_scores = 0.0;
        // A processor computes attention in fp32 whatever the type of its rows.
        c.device.maker = "cpu";
        assert_close((double)cost_node_ns(&m, program, node, &bound),
                     whole * c.device.peak_flops[MATH_BF16] / c.device.peak_flops[MATH_FP32], 0.01);
        c.device.maker = "sample";
    }
    arena_destroy(a);
}

// All units of a processor on one operation reach `team` of the sum of their separate speeds.
static void ranks_with_fewer_units_wait_less(void **state)
{
    (void)state;
    const cluster c = sample();
    cluster_device all = c.device, same = c.device;
    all.units = same.units = 16;
    all.team = 0.8;
    all.pointwise_fp32_s = 1e9;
    double before = 0.0;
    for (int64_t ranks = 1; ranks <= 16; ranks *= 2) {
        cluster_device d = all;
        cost_units_share(&d, ranks);
        assert_int_equal(d.units, 16 / ranks);
        assert_true(d.gemm_share[MATH_BF16] > before); // more ranks make each unit faster
        before = d.gemm_share[MATH_BF16];
        if (ranks == 1) assert_close(before, 0.7, 1e-9);
    }
    assert_close(before, fmin(1.0, 0.7 / 0.8), 1e-9);
    cluster_device one = all;
    cost_units_share(&one, 16);
    assert_close(one.pointwise_fp32_s, 1e9 / 0.8, 1e-9);
    assert_close(one.attention_backward_share, 0.5 / 0.8, 1e-9);
    cost_units_share(&same, 4); // `team` unknown: only the units are divided
    assert_int_equal(same.units, 4);
    assert_close(same.gemm_share[MATH_BF16], 0.7, 1e-12);
}

static void less_power_is_a_lower_clock(void **state)
{
    (void)state;
    const cluster c = sample();
    cluster_device d = c.device;
    d.watts = 700.0;
    d.idle_watts = 70.0;
    cost_limit_power(&d); // no limit
    assert_close(d.gemm_share[MATH_BF16], 0.7, 1e-12);
    d.limit_watts = 800.0; // above the device's power
    cost_limit_power(&d);
    assert_close(d.gemm_share[MATH_BF16], 0.7, 1e-12);
    assert_close(d.watts, 700.0, 1e-12);
    d.limit_watts = 70.0 + 630.0 * 0.64;
    for (int again = 0; again < 2; again++) { // the second call changes nothing
        cost_limit_power(&d);
        assert_close(d.gemm_share[MATH_BF16], 0.8 * 0.7, 1e-12);
        assert_close(d.attention_backward_share, 0.8 * c.device.attention_backward_share, 1e-12);
        assert_close(d.watts, d.limit_watts, 1e-12); // the energy uses it
        assert_close(d.sold_watts, 700.0, 1e-12);
    }
}

// ---- collectives -------------------------------------------------------------------------------

static void groups_know_their_levels(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_group node = group_of(&c, 8, 1), rail = group_of(&c, 8, 8),
                     all = group_of(&c, 4096, 1);
    assert_int_equal(node.top, 0);
    assert_int_equal(node.inside[0], 8);
    assert_int_equal(rail.top, 1);
    assert_int_equal(rail.inside[0], 1);
    assert_int_equal(rail.units[1], 8);
    assert_int_equal(all.top, 2);
    assert_int_equal(all.inside[1], 64);
    assert_int_equal(all.units[2], 64);
}

static void collectives_are_as_by_hand(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group node = group_of(&c, 8, 1), rail = group_of(&c, 8, 8),
                     two = group_of(&c, 16, 1);
    const double launch = 1e-6, bytes = 1e9;
    // In a node: 7/8 of the bytes at 200 GB/s; log2(8) steps in both directions are fewer than 7.
    const double in_node = 7.0 / 8.0 * bytes / 200e9;
    assert_close((double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_GATHER, bytes),
                 (in_node + 6e-6 + launch) * 1e9, 1e-6);
    assert_close((double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_REDUCE, bytes),
                 (2 * in_node + 12e-6 + launch) * 1e9, 1e-6);
    // One device of each node, 40 GB/s each.
    const double on_rail = 7.0 / 8.0 * bytes / 40e9;
    assert_close((double)cost_collective_ns(&m, &rail, COLLECTIVE_REDUCE_SCATTER, bytes),
                 (on_rail + 24e-6 + launch) * 1e9, 1e-6);
    // Two whole nodes: each fetches half over eight NICs and distributes it inside.
    const double inside = 15.0 / 16.0 * bytes / 200e9, between = 0.5 * bytes / (8 * 40e9);
    assert_true(inside > between);
    assert_close((double)cost_collective_ns(&m, &two, COLLECTIVE_ALL_GATHER, bytes),
                 (inside + 2 * (3e-6 + 4e-6) + launch) * 1e9, 1e-6);
    // Between two devices of two leaves, the taper halves the bandwidth of each.
    const cost_group far = group_of(&c, 2, 64);
    assert_close((double)cost_collective_ns(&m, &far, COLLECTIVE_SEND, bytes),
                 (bytes / 20e9 + 10e-6 + launch) * 1e9, 1e-6);
    const cost_group one = group_of(&c, 1, 1);
    assert_int_equal(cost_collective_ns(&m, &one, COLLECTIVE_ALL_REDUCE, bytes), 0);
}

// Two nodes of eight: 7/8 of the bytes inside at 200 GB/s, then half of them between at 40 GB/s;
// two operations of 1 us inside for each node, one message of 4 us to the other. If all levels work
// at once, the slower one decides.
static void exchanges_go_in_two_levels(void **state)
{
    (void)state;
    const cluster c = sample();
    cost_profile p = cost_profile_trireme();
    cost_habits h = cost_habits_none;
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group two = group_of(&c, 16, 1), rail = group_of(&c, 8, 8);
    const double bytes = 1e9, inside = 7.0 / 8.0 * bytes / 200e9, between = bytes / 2.0 / 40e9;
    static const op_collective ops[] = {COLLECTIVE_ALL_TO_ALL, COLLECTIVE_ALL_TO_ALLV};
    for (int i = 0; i < COUNT_OF(ops); i++) {
        p.habits = NULL;
        assert_close((double)cost_collective_ns(&m, &two, ops[i], bytes),
                     (inside + between + 4e-6 + 4e-6 + 1e-6) * 1e9, 1e-6);
        const int64_t straight = cost_collective_ns(&m, &rail, ops[i], bytes); // one rank of a node
        h.levels_at_once = true;
        p.habits = &h;
        assert_close((double)cost_collective_ns(&m, &two, ops[i], bytes),
                     (between + 2.0 * 4e-6 + 1e-6) * 1e9, 1e-6);
        assert_int_equal(cost_collective_ns(&m, &rail, ops[i], bytes), straight);
    }
}

static void switches_that_add_halve_a_sum(void **state)
{
    (void)state;
    cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group node = group_of(&c, 8, 1);
    const double plain = (double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_REDUCE, 1e10);
    c.levels[0].reduces = true;
    assert_close((double)cost_collective_ns(&m, &node, COLLECTIVE_ALL_REDUCE, 1e10), plain / 2.0,
                 0.01);
}

// Compressed sums are not added on the way: one stream to every owner, then the owners' streams to
// all.
static void compressed_sums_are_as_by_hand(void **state)
{
    (void)state;
    cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    const cost_group node = group_of(&c, 8, 1), two = group_of(&c, 16, 1);
    const cost_group many = group_of(&c, 512, 1), one = group_of(&c, 1, 1);
    const double launch = 1e-6, stream = 1e7;
    // In a node 7 streams leave and the sums of 7 others arrive: 7 steps are one round, then
    // log2(8) in both directions.
    const double in_node = 7.0 * stream / 200e9;
    assert_close((double)cost_compressed_ns(&m, &node, 10000000, false),
                 (in_node + 1e-6 + launch + in_node + 6e-6 + launch) * 1e9, 1e-5);
    // Between two nodes each device sends its own 8 streams for the other side, after 14 of 16 went
    // to another device inside; the sums enter a node once and arrive from inside.
    const double out = 14.0 * stream / 200e9 + 8.0 * stream / 40e9, inside = 15.0 * stream / 200e9;
    const double sent = out + 4e-6 + 4e-6 + launch, back = inside + 2 * (3e-6 + 4e-6) + launch;
    assert_close((double)cost_compressed_ns(&m, &two, 10000000, true), sent * 1e9, 1e-5);
    assert_close((double)cost_compressed_ns(&m, &two, 10000000, false), (sent + back) * 1e9, 1e-5);
    // With 512 ranks in 8 leaves 448 streams cross the halved top: 0.22 s at 20 GB/s. A ring of as
    // many bytes shares the links of 64 devices there: 64 times less, so the links inside the node
    // bound it.
    const double far =
        448.0 * stream / 200e9 + 448.0 * stream / 20e9 + 64 * 2e-6 + 63 * 10e-6 + launch;
    const double ring = 511.0 * stream / 200e9;
    assert_close((double)cost_compressed_ns(&m, &many, 10000000, true), far * 1e9, 1e-5);
    assert_close((double)cost_collective_ns(&m, &many, COLLECTIVE_REDUCE_SCATTER, 512 * stream),
                 ring * 1e9, 0.01);
    // Switches that add cannot add streams.
    for (int l = 0; l < 3; l++) c.levels[l].reduces = true;
    assert_close((double)cost_compressed_ns(&m, &two, 10000000, false), (sent + back) * 1e9, 1e-5);
    assert_int_equal(cost_compressed_ns(&m, &one, 10000000, false), 0);
    // A plan's records give the same price.
    plan_comm sum = {.op = COLLECTIVE_ALL_REDUCE,
                     .type = DTYPE_F32,
                     .compressed = true,
                     .stream_bytes = 10000000};
    const plan empty = {.codec = "int8"};
    assert_close(cost_comm_bytes(&empty, &sum, 16), 16 * stream, 1e-12);
    assert_int_equal(cost_comm_ns(&m, &two, &empty, &sum),
                     cost_compressed_ns(&m, &two, 10000000, false));
    sum.op = COLLECTIVE_REDUCE_SCATTER;
    assert_int_equal(cost_comm_ns(&m, &two, &empty, &sum),
                     cost_compressed_ns(&m, &two, 10000000, true));
}

static void collectives_are_monotone(void **state)
{
    (void)state;
    const cluster c = sample();
    const cost_profile p = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &p};
    for (int op = COLLECTIVE_ALL_REDUCE; op <= COLLECTIVE_RECEIVE; op++) {
        int64_t before = 0;
        for (int64_t n = 2; n <= 4096; n *= 2) {
            const cost_group g = group_of(&c, n, 1);
            const int64_t ns = cost_collective_ns(&m, &g, (op_collective)op, 1e8);
            assert_true(cost_collective_ns(&m, &g, (op_collective)op, 2e8) > ns);
            if (op == COLLECTIVE_ALL_REDUCE || op == COLLECTIVE_ALL_GATHER)
                assert_true(ns >= before);
            before = ns;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_gemms_reach_their_share),
        cmocka_unit_test(a_type_without_units_takes_the_next),
        cmocka_unit_test(tiles_and_waves_quantise),
        cmocka_unit_test(nothing_larger_is_cheaper),
        cmocka_unit_test(operations_are_priced_by_their_rows),
        cmocka_unit_test(eager_operations_move_more),
        cmocka_unit_test(fp8_wants_longer_sums),
        cmocka_unit_test(experts_have_their_host_and_order),
        cmocka_unit_test(attention_is_slow_on_short_sequences),
        cmocka_unit_test(ranks_with_fewer_units_wait_less),
        cmocka_unit_test(less_power_is_a_lower_clock),
        cmocka_unit_test(groups_know_their_levels),
        cmocka_unit_test(collectives_are_as_by_hand),
        cmocka_unit_test(exchanges_go_in_two_levels),
        cmocka_unit_test(switches_that_add_halve_a_sum),
        cmocka_unit_test(compressed_sums_are_as_by_hand),
        cmocka_unit_test(collectives_are_monotone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
