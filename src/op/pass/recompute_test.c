// Recomputation: with any policy, all tensors that the backward lists read exist, and no node runs
// again unnecessarily.
#include "fixtures/op/blocks_fixture.h"

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("recompute", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

static bool made_here(const op_program *p, tensor_id t)
{
    const tensor_role role = op_at(p, op_owner(p, t).id)->role;
    return role == ROLE_ACTIVATION || role == ROLE_WEIGHT_GRAD;
}

// The tensors that exist after the forward, when only those that the policy keeps remain.
static void kept(const op_program *p, op_recompute policy, bool *there)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *n = &p->lists[OP_FORWARD].nodes[i];
        const bool product = n->code == OP_MATMUL || n->code == OP_ATTENTION;
        if (policy == RECOMPUTE_FULL || (policy == RECOMPUTE_SELECTIVE && !product)) continue;
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (n->out[o] != TENSOR_NONE) there[op_owner(p, n->out[o]).id] = true;
        }
    }
}

// Returns the first tensor that is read before it exists; TENSOR_NONE: none. skip: a node of the
// recompute list that is left out.
static tensor_id first_unmet(const op_program *p, op_recompute policy, int64_t skip)
{
    bool *there = NULL;
    MUST(arena_new(a, p->tensor_count + 1, &there));
    kept(p, policy, there);
    const bool loss_first = p->output_count == 0;
    const op_list order[] = {OP_RECOMPUTE, loss_first ? OP_BACKWARD_WEIGHT : OP_BACKWARD_INPUT,
                             loss_first ? OP_BACKWARD_INPUT : OP_BACKWARD_WEIGHT};
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < p->lists[order[k]].count; i++) {
            if (order[k] == OP_RECOMPUTE && i == skip) continue;
            const op_node *n = &p->lists[order[k]].nodes[i];
            for (int j = 0; j < OP_MAX_IN; j++) {
                if (n->in[j] == TENSOR_NONE || !made_here(p, n->in[j])) continue;
                if (!there[op_owner(p, n->in[j]).id]) return n->in[j];
            }
            for (int o = 0; o < OP_MAX_OUT; o++) {
                if (n->out[o] != TENSOR_NONE) there[op_owner(p, n->out[o]).id] = true;
            }
        }
    }
    return TENSOR_NONE;
}

static void check_policy(op_program *p, op_recompute policy)
{
    MUST(op_program_recompute(p, policy));
    const tensor_id unmet = first_unmet(p, policy, -1);
    if (unmet != TENSOR_NONE) print_error("%s is not there\n", op_at(p, unmet)->name);
    assert_int_equal(unmet, TENSOR_NONE);
    // The list is minimal: leaving out any node makes a tensor missing.
    for (int64_t i = 0; i < p->lists[OP_RECOMPUTE].count; i++) {
        assert_int_not_equal(first_unmet(p, policy, i), TENSOR_NONE);
    }
    // In the order of the forward, each node once and unchanged.
    int64_t at = 0;
    for (int64_t i = 0; i < p->lists[OP_RECOMPUTE].count; i++) {
        const op_node *n = &p->lists[OP_RECOMPUTE].nodes[i];
        while (at < p->lists[OP_FORWARD].count &&
               memcmp(&p->lists[OP_FORWARD].nodes[at], n, sizeof(*n)) != 0) {
            at++;
        }
        assert_true(at < p->lists[OP_FORWARD].count);
        at++;
    }
    if (policy == RECOMPUTE_NONE) assert_int_equal(p->lists[OP_RECOMPUTE].count, 0);
    if (policy == RECOMPUTE_SELECTIVE) {
        assert_int_equal(count_of(p, OP_RECOMPUTE, OP_MATMUL), 0);
        assert_int_equal(count_of(p, OP_RECOMPUTE, OP_ATTENTION), 0);
    }
}

static void check_all(op_program *p)
{
    MUST(op_program_differentiate(p));
    // Calls may come in any order, because each replaces the list.
    check_policy(p, RECOMPUTE_FULL);
    check_policy(p, RECOMPUTE_NONE);
    check_policy(p, RECOMPUTE_SELECTIVE);
    check_policy(p, RECOMPUTE_FULL);
}

static void test_blocks(void **state)
{
    (void)state;
    check_all(block_llama(a, PURPOSE_TRAIN, false));
    check_all(block_llama(a, PURPOSE_TRAIN, true));
    check_all(block_gpt2(a, PURPOSE_TRAIN, 0.1f));
    check_all(block_gpt2(a, PURPOSE_TRAIN, 0.0f));
    check_all(block_head(a, PURPOSE_TRAIN));
}

static void test_llama(void **state)
{
    (void)state;
    op_program *p = block_llama(a, PURPOSE_TRAIN, false);
    MUST(op_program_differentiate(p));
    MUST(op_program_recompute(p, RECOMPUTE_FULL));
    // All nodes but the last GEMM and the last addition, which no backward node reads.
    assert_int_equal(p->lists[OP_RECOMPUTE].count, p->lists[OP_FORWARD].count - 2);
    MUST(op_program_recompute(p, RECOMPUTE_SELECTIVE));
    static const op_code selective[] = {OP_RMSNORM, OP_ROPE, OP_ROPE, OP_RMSNORM, OP_SWIGLU};
    assert_int_equal(p->lists[OP_RECOMPUTE].count, COUNT_OF(selective));
    for (int64_t i = 0; i < COUNT_OF(selective); i++) {
        assert_int_equal(p->lists[OP_RECOMPUTE].nodes[i].code, selective[i]);
    }
}

// As in other software: the same operations as forward; those that no gradient needs come last, and
// no node reads their results.
static void test_rest(void **state)
{
    (void)state;
    op_program *p = block_gpt2(a, PURPOSE_TRAIN, 0.1f);
    bool read[256] = {false};
    MUST(op_program_differentiate(p));
    MUST(op_program_recompute(p, RECOMPUTE_FULL));
    const int64_t needed = p->lists[OP_RECOMPUTE].count, tensors = p->tensor_count;
    MUST(op_program_recompute_rest(p));
    const int64_t all = p->lists[OP_RECOMPUTE].count;
    assert_int_equal(all, p->lists[OP_FORWARD].count);
    assert_true(all > needed && p->tensor_count < 256);
    for (op_code code = 0; code < OP_CODE_COUNT; code++) {
        assert_int_equal(count_of(p, OP_RECOMPUTE, code), count_of(p, OP_FORWARD, code));
    }
    for (int list = OP_BACKWARD_INPUT; list <= OP_BACKWARD_WEIGHT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            for (int k = 0; k < OP_MAX_IN; k++) {
                const tensor_id t = p->lists[list].nodes[i].in[k];
                if (t != TENSOR_NONE) read[t] = true;
            }
        }
    }
    for (int64_t i = needed; i < all; i++) {
        const tensor_id t = p->lists[OP_RECOMPUTE].nodes[i].out[0];
        assert_true(t >= tensors && !read[t]);
    }
    MUST(op_program_recompute(p, RECOMPUTE_NONE));
    MUST(op_program_recompute_rest(p));
    assert_int_equal(p->lists[OP_RECOMPUTE].count, 0);
}

// Two nodes write a tensor, half each: a reader of either half needs both again.
static void test_halves(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, wide, left, right, y;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(4), &x));
    MUST(op_tensor_make(p, "wide", ROLE_ACTIVATION, DTYPE_F32, 2, extent_tokens(1), extent_of(8),
                        &wide));
    MUST(op_view(p, wide, "left", 0, 4, &left));
    MUST(op_view(p, wide, "right", 4, 4, &right));
    for (int k = 0; k < 2; k++) {
        op_node n = op_node_of(OP_ACTIVATION);
        n.attrs.activation = k == 0 ? ACT_RELU : ACT_SILU;
        n.in[0] = x;
        n.out[0] = k == 0 ? left : right;
        MUST(op_append(p, OP_FORWARD, &n, 0));
    }
    MUST(op_activate(p, wide, ACT_SILU, &y));
    MUST(op_output(p, y));
    MUST(op_program_differentiate(p));
    MUST(op_program_recompute(p, RECOMPUTE_FULL));
    assert_int_equal(first_unmet(p, RECOMPUTE_FULL, -1), TENSOR_NONE);
    assert_int_equal(p->lists[OP_RECOMPUTE].count, 2);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ACTIVATION_BWD), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests_name("recompute", tests, setup, teardown);
}
