// Tests plans: the tree over shards, live intervals that share no bytes, memory near its lower
// bound, refusals.
#include "fixtures/plan/plan_sample.h"
#include "plan/lower/shards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TREE_TEXT = 2048 };

// Prints the sum of a tree: "((0 1)(2 3))". Absent shards add nothing.
static void tree_text(int64_t sequences, int32_t shards, int32_t begin, int32_t size, char *out)
{
    if (begin >= shards) return;
    if (size == 1) {
        const int64_t from = plan_shard_begin(sequences, shards, begin);
        if (plan_shard_begin(sequences, shards, begin + 1) > from)
            snprintf(out, TREE_TEXT, "%d", begin);
        return;
    }
    char left[TREE_TEXT] = "", right[TREE_TEXT] = "";
    tree_text(sequences, shards, begin, size / 2, left);
    tree_text(sequences, shards, begin + size / 2, size / 2, right);
    if (left[0] != '\0' && right[0] != '\0') {
        snprintf(out, TREE_TEXT, "(%.900s %.900s)", left, right);
    } else {
        snprintf(out, TREE_TEXT, "%.1800s%.200s", left, right);
    }
}

// The same from the merges of the schedule: the contents of the buffers at the end.
static void schedule_text(const shard_tree *t, char buffers[TREE_MAX_BUFFERS][TREE_TEXT])
{
    memset(buffers, 0, (size_t)TREE_MAX_BUFFERS * TREE_TEXT);
    for (int32_t s = t->first; s < t->last; s++) {
        if (t->leaf[s] >= 0) {
            assert_string_equal(buffers[t->leaf[s]], ""); // no sum is overwritten
            snprintf(buffers[t->leaf[s]], TREE_TEXT, "%d", s);
        }
        for (int k = 0; k < t->merge_count[s]; k++) {
            char sum[TREE_TEXT] = "";
            const tree_merge m = t->merges[s][k];
            assert_true(buffers[m.target][0] != '\0' && buffers[m.source][0] != '\0');
            snprintf(sum, sizeof(sum), "(%.900s %.900s)", buffers[m.target], buffers[m.source]);
            memcpy(buffers[m.target], sum, sizeof(sum));
            buffers[m.source][0] = '\0';
        }
    }
}

// Prints the result of an operation over all ranks: a node that a rank has, or its halves.
typedef struct given_node {
    int32_t begin, end;
    char sum[TREE_TEXT];
} given_node;

static void given_text(const given_node *nodes, int count, int32_t shards, int32_t begin,
                       int32_t size, char *out)
{
    const int32_t end = begin + size < shards ? begin + size : shards;
    if (begin >= shards) return;
    for (int i = 0; i < count; i++) {
        if (nodes[i].begin == begin && nodes[i].end == end) memcpy(out, nodes[i].sum, TREE_TEXT);
        if (nodes[i].begin == begin && nodes[i].end == end) return;
    }
    if (size == 1) return;
    char left[TREE_TEXT] = "", right[TREE_TEXT] = "";
    given_text(nodes, count, shards, begin, size / 2, left);
    given_text(nodes, count, shards, begin + size / 2, size / 2, right);
    if (left[0] != '\0' && right[0] != '\0') {
        snprintf(out, TREE_TEXT, "(%.900s %.900s)", left, right);
    } else {
        snprintf(out, TREE_TEXT, "%.1800s%.200s", left, right);
    }
}

// Any number of ranks with consecutive shards compute the same tree.
static void one_way_is_the_tree(int32_t shards, int64_t sequences, int32_t ranks, const char *want)
{
    static char buffers[TREE_MAX_BUFFERS][TREE_TEXT];
    static given_node nodes[64];
    int count = 0;
    int32_t size = 1;
    while (size < shards) size *= 2;
    for (int32_t rank = 0; rank < ranks; rank++) {
        shard_tree t;
        plan_request r = {.sequences = sequences, .strict = true, .shards = shards};
        r.mesh.size[AXIS_DP] = ranks;
        r.mesh.at[AXIS_DP] = rank;
        assert_int_equal(shard_tree_make(&t, &r, 0, 0), ST_OK);
        schedule_text(&t, buffers);
        for (int i = 0; i < t.node_count; i++) {
            given_node *n = &nodes[count++];
            n->begin = t.node[i].begin;
            n->end = t.node[i].end;
            memcpy(n->sum, buffers[t.node[i].buffer], TREE_TEXT);
            assert_true(count == 1 || n[-1].end <= n->begin);
        }
        if (ranks == 1) {
            int log2 = 0;
            while ((1 << log2) < shards) log2++;
            assert_true(t.buffer_count <= 1 + log2);
            assert_int_equal(t.node_count, 1);
        }
    }
    char got[TREE_TEXT] = "";
    given_text(nodes, count, shards, 0, size, got);
    assert_string_equal(got, want);
}

static void shards_are_summed_by_one_tree(void **state)
{
    (void)state;
    for (int32_t shards = 1; shards <= 24; shards++) {
        for (int64_t sequences = 1; sequences <= 40; sequences += sequences < 12 ? 1 : 7) {
            char want[TREE_TEXT] = "";
            int32_t size = 1;
            while (size < shards) size *= 2;
            tree_text(sequences, shards, 0, size, want);
            for (int32_t ranks = 1; ranks <= 9 && ranks <= shards; ranks++) {
                one_way_is_the_tree(shards, sequences, ranks, want);
            }
        }
    }
}

// Shards of sequences: on any ranks, each has a tree over the batch, and their sums have one more.
static void shards_of_sequences_are_one_tree(void **state)
{
    (void)state;
    static shard_tree t;
    for (int32_t shards = 1; shards <= 9; shards++) {
        for (int32_t cp = 1; cp <= 8; cp *= 2) {
            int64_t leaves = 0;
            for (int32_t at = 0; at < cp; at++) {
                plan_request r = {
                    .sequences = 2 * shards + 1, .strict = true, .shards = shards, .cp_shards = 8};
                r.mesh.size[AXIS_CP] = cp;
                r.mesh.at[AXIS_CP] = at;
                assert_int_equal(shard_tree_make(&t, &r, 0, 0), ST_OK);
                // The leaves of a rank are whole trees or whole nodes above them.
                assert_int_equal(t.node_count, 1);
                assert_int_equal(t.node[0].begin, t.leaf_count / cp * at);
                assert_int_equal(t.node[0].end, t.leaf_count / cp * (at + 1));
                for (int32_t i = 0; i < shards * t.cp_count; i++) {
                    leaves += t.leaf[i] >= 0;
                    for (int k = 0; k < t.merge_count[i]; k++) {
                        assert_true(t.merges[i][k].target != t.merges[i][k].source);
                        leaves--;
                    }
                }
            }
            assert_int_equal(leaves, cp); // each rank is left with one sum
        }
    }
}

static plan_sample_config sample_config(void)
{
    return (plan_sample_config){
        .layers = 3, .dim = 64, .ffn = 96, .heads = 4, .vocab = 331, .tied = true};
}

static int64_t some_workspace(void *context, const op_program *program, const op_node *node,
                              const extent_binding *bound, int64_t seq, int64_t cache_seq)
{
    (void)context, (void)program, (void)seq, (void)cache_seq;
    return node->code == OP_MATMUL_DW ? 512 + bound->value[EXTENT_TOKENS] * 16 : 0;
}

static plan *make(arena *a, const plan_sample_config *config, int64_t micro_batch, bool strict,
                  plan_table *run)
{
    op_model *m = NULL;
    op_program *const *optimizer = NULL;
    plan *p = NULL;
    assert_int_equal(plan_sample_model(a, config, &m), ST_OK);
    if (config->purpose == PURPOSE_TRAIN) {
        assert_int_equal(plan_sample_optimizer(a, m, &optimizer), ST_OK);
    }
    const plan_request request = {.model = m,
                                  .sequences = 8,
                                  .micro_batch = micro_batch,
                                  .seq = 24,
                                  .strict = strict,
                                  .shards = 8,
                                  .optimizer = optimizer,
                                  .workspace = some_workspace};
    assert_int_equal(plan_create(a, &request, run, &p), ST_OK);
    return p;
}

static void memory_is_near_its_bound(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        arena *a = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        plan_table run = {.a = a};
        plan_sample_config config = sample_config();
        config.recompute = (op_recompute)(i % 3);
        const plan *p = make(a, &config, 1 << (i % 4), i >= 12, &run);
        plan_table_place(&run);
        assert_true(p->transient_bytes >= p->live_bytes);
        assert_true((double)(run.run_bytes + p->transient_bytes) <=
                    1.05 * (double)(run.run_bytes + p->live_bytes));
        int64_t kinds[PLAN_BYTES_COUNT], sum = 0;
        plan_memory_by_kind(p, kinds);
        for (int k = 0; k < PLAN_BYTES_COUNT; k++) sum += kinds[k];
        assert_int_equal(sum, run.run_bytes + p->live_bytes);
        arena_destroy(a);
    }
}

static void recomputation_and_micro_batches_save_memory(void **state)
{
    (void)state;
    int64_t bytes[3] = {0};
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int policy = 0; policy < 3; policy++) {
        plan_table run = {.a = a};
        plan_sample_config config = sample_config();
        config.layers = 8;
        config.recompute = (op_recompute)policy;
        bytes[policy] = make(a, &config, 8, false, &run)->live_bytes;
    }
    assert_true(bytes[RECOMPUTE_SELECTIVE] < bytes[RECOMPUTE_NONE]);
    assert_true(bytes[RECOMPUTE_FULL] < bytes[RECOMPUTE_SELECTIVE]);
    arena_destroy(a);
}

// Every action reads only what an earlier one of the same micro-batch (or the run) wrote.
static void nothing_is_read_before_it_is_written(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        arena *a = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        plan_table run = {.a = a};
        plan_sample_config config = sample_config();
        config.recompute = (op_recompute)(i % 3);
        const plan *p = make(a, &config, 1 << (i % 4), i % 2 == 0, &run);
        bool *written = NULL;
        assert_int_equal(arena_new(a, p->tensor_count, &written), ST_OK);
        int64_t computed = 0;
        for (int64_t k = 0; k < p->action_count; k++) {
            const plan_action *action = &p->actions[k];
            if (action->binding < 0) continue;
            const plan_binding *b = &p->bindings[action->binding];
            for (int32_t n = 0; n < action->ops_count; n++) {
                const op_node *node = &b->program->lists[action->list].nodes[action->ops_begin + n];
                for (int o = 0; o < OP_MAX_IN; o++) {
                    tensor_id t = node->in[o];
                    if (t == TENSOR_NONE) continue;
                    while (b->program->tensors[t].view_of != TENSOR_NONE) {
                        t = b->program->tensors[t].view_of;
                    }
                    assert_true(b->tensor[t] != -1);
                    if (b->tensor[t] >= 0) assert_true(written[b->tensor[t]]);
                }
                for (int o = 0; o < OP_MAX_OUT; o++) {
                    tensor_id t = node->out[o];
                    if (t == TENSOR_NONE) continue;
                    while (b->program->tensors[t].view_of != TENSOR_NONE) {
                        t = b->program->tensors[t].view_of;
                    }
                    if (b->tensor[t] >= 0) written[b->tensor[t]] = true;
                }
                computed++;
            }
        }
        assert_true(computed > 50);
        arena_destroy(a);
    }
}

static void a_plan_prints_itself(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    plan_table run = {.a = a};
    const plan_sample_config config = sample_config();
    const plan *p = make(a, &config, 2, true, &run);
    plan_table_place(&run);
    text json = {.a = a}, table = {.a = a};
    assert_int_equal(plan_print_json(p, &json), ST_OK);
    assert_int_equal(
        plan_print_memory(p, run.run_bytes + p->transient_bytes, 0, 0, 1 << 20, &table), ST_OK);
    assert_non_null(strstr(json.bytes, "\"grad.embed.table\""));
    assert_non_null(strstr(table.bytes, "moments"));
    assert_non_null(strstr(table.bytes, "context        1.00 MiB"));
    arena_destroy(a);
}

static void a_wrong_micro_batch_is_refused(void **state)
{
    (void)state;
    arena *a = NULL;
    op_model *m = NULL;
    plan *p = NULL;
    const plan_sample_config config = sample_config();
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(plan_sample_model(a, &config, &m), ST_OK);
    plan_table run = {.a = a};
    const plan_request request = {.model = m, .sequences = 8, .micro_batch = 3, .seq = 4};
    assert_int_equal(plan_create(a, &request, &run, &p), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "micro_batch = 3"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_summed_by_one_tree),
        cmocka_unit_test(shards_of_sequences_are_one_tree),
        cmocka_unit_test(memory_is_near_its_bound),
        cmocka_unit_test(recomputation_and_micro_batches_save_memory),
        cmocka_unit_test(nothing_is_read_before_it_is_written),
        cmocka_unit_test(a_plan_prints_itself),
        cmocka_unit_test(a_wrong_micro_batch_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
