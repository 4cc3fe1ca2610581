// Tensor parallelism in whole runs: ranks that have pieces of each matrix give the result of one
// rank. In strict order, with the sums inside matrices cut by determinism.tp_shards, the digest is
// equal. The daily test runs each mesh with some of the models and orders.
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

enum { SETTINGS_MAX = 18 };

// Small models of both kinds: grouped queries with fewer key heads than ranks, gates and no biases;
// learned positions, biases, a tied table and dropout everywhere. The vocabulary (bytes) and the
// MLP width need not be even.
static const char *const kinds[][6] = {
    {"train.steps=4", "model.heads=8", "model.kv_heads=2"},
    {"train.steps=4", "model.arch=gpt2", "model.heads=4", "model.kv_heads=4", "model.dropout=0.1",
     "model.tied=yes"},
    {"train.steps=4", "model.arch=qwen3", "model.heads=8", "model.kv_heads=2"}, // norms of heads
    {"train.steps=4", "model.arch=qwen2", "model.heads=4", "model.kv_heads=1",  // biases of qkv
     "model.dropout=0.1"},
};
enum { STRICT_KINDS = 4 };

static int settings_of(int kind, const char **out)
{
    int n = 0;
    while (n < 6 && kinds[kind][n] != NULL) {
        out[n] = kinds[kind][n];
        n++;
    }
    return n;
}

// Ranks along tp and along dp; whether positions are cut (layout.sp).
static const struct {
    int tp, dp;
    bool sp;
} meshes[] = {{2, 1, false}, {4, 1, false}, {2, 2, true}, {4, 2, false}, {4, 1, true}};

static const char *const orders[][6] = {
    {"determinism=strict", "determinism.tp_shards=4"},
    {"determinism=strict", "determinism.tp_shards=4", "train.precision=bf16",
     "precision.master=none", "precision.moments=bf16", "optimizer.stochastic_rounding=yes"},
    // Weight gradients are summed by pieces of a sequence, and each rank of tp has its rows of
    // every piece.
    {"determinism=strict", "determinism.tp_shards=4", "train.precision=bf16", "train.micro_batch=2",
     "determinism.cp_shards=2"},
};
// For each order: the first mesh, and the distance to the next.
static const int first_mesh[] = {0, 0, 2}, mesh_step[] = {1, 3, 2};

static void strict_ranks_are_one(void **state)
{
    (void)state;
    for (int i = 0; i < STRICT_KINDS * (int)COUNT_OF(orders); i++) {
        const char *settings[SETTINGS_MAX];
        int n = settings_of(i / (int)COUNT_OF(orders), settings);
        for (int k = 0; k < 6 && orders[i % COUNT_OF(orders)][k] != NULL; k++) {
            settings[n++] = orders[i % COUNT_OF(orders)][k];
        }
        run_seen seen = {0};
        hash128 one, many;
        char name[40], tp[32], dp[32];
        (void)snprintf(name, sizeof(name), "tp-one-%d", i);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        const int order = i % (int)COUNT_OF(orders);
        for (int m = first_mesh[order]; m < COUNT_OF(meshes); m += mesh_step[order]) {
            if (part_skips(TRIALS_PART, m, COUNT_OF(meshes), i / (int)COUNT_OF(orders),
                           STRICT_KINDS))
                continue;
            (void)snprintf(name, sizeof(name), "tp-many-%d-%d", i, m);
            (void)snprintf(tp, sizeof(tp), "layout.tp=%d", meshes[m].tp);
            (void)snprintf(dp, sizeof(dp), "layout.dp=%d", meshes[m].dp);
            settings[n] = tp;
            settings[n + 1] = dp;
            settings[n + 2] = "kernels.threads=1";
            settings[n + 3] = meshes[m].sp ? "layout.sp=yes" : "layout.sp=no";
            settings[n + 4] = "layout.zero=1"; // which cuts over several ranks along dp
            assert_int_equal(ranks_run(name, settings, n + 4 + (meshes[m].dp > 1),
                                       meshes[m].tp * meshes[m].dp, "auto", 0, &many),
                             ST_OK);
            if (one.high != many.high) {
                print_error("%s: tp %d dp %d: loss %.9g, one rank %.9g\n", name, meshes[m].tp,
                            meshes[m].dp, rank_runs[0].seen.last_loss, seen.last_loss);
            }
            assert_same(one, many);
        }
    }
}

// Muon gathers the update of a matrix's pieces: the bits are those of one rank, also with copies of
// key heads, in several parts, and with stochastic rounding per element of the whole matrix.
static void muon_takes_pieces(void **state)
{
    static const struct {
        const char *more[5];
        const char *layout[3];
        int ranks;
    } runs[] = {
        {{"model.heads=8", "model.kv_heads=2"}, {"layout.tp=4", "layout.sp=yes"}, 4},
        {{"model.heads=4", "model.kv_heads=2", "train.precision=bf16", "precision.master=none",
          "optimizer.stochastic_rounding=yes"},
         {"layout.tp=2", "layout.dp=2", "layout.zero=2"},
         4},
        {{"model.arch=gpt2", "model.heads=4", "model.kv_heads=4", "train.precision=bf16",
          "optimizer.nesterov=no"},
         {"layout.tp=2", "layout.pp=2"},
         4},
    };
    (void)state;
    for (int i = 0; i < COUNT_OF(runs); i++) {
        const char *settings[SETTINGS_MAX] = {"train.steps=4",           "optimizer.name=muon",
                                              "train.micro_batch=2",     "determinism=strict",
                                              "determinism.tp_shards=4", "kernels.threads=1"};
        int n = 6;
        char name[40];
        run_seen seen = {0};
        hash128 one, many;
        for (int k = 0; k < 5 && runs[i].more[k] != NULL; k++) settings[n++] = runs[i].more[k];
        (void)snprintf(name, sizeof(name), "tp-muon-one-%d", i);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int k = 0; k < 3 && runs[i].layout[k] != NULL; k++) settings[n++] = runs[i].layout[k];
        (void)snprintf(name, sizeof(name), "tp-muon-many-%d", i);
        assert_int_equal(ranks_run(name, settings, n, runs[i].ranks, "auto", 0, &many), ST_OK);
        assert_same(one, many);
    }
}

// Collectives so large that they run in chunks overlapped with the GEMMs: positions of one
// sequence, or sequences.
static void large_collectives_go_in_pieces(void **state)
{
    static const struct {
        const char *more[4], *layout[2];
    } runs[] = {
        {{"model.layers=1", "train.seq=1024", "train.micro_batch=1", "train.recompute=full"},
         {"layout.tp=2"}},
        {{"model.layers=1", "train.seq=512", "train.micro_batch=2"},
         {"layout.tp=2", "layout.sp=yes"}},
        // several in flight
        {{"model.layers=2", "train.seq=1024", "train.micro_batch=1"},
         {"layout.tp=2", "layout.pp=2"}},
    };
    (void)state;
    for (int i = 0; i < COUNT_OF(runs); i++) {
        const char *settings[SETTINGS_MAX] = {
            "train.steps=2",        "model.dim=512",      "model.heads=2",
            "model.kv_heads=2",     "model.ffn_dim=32",   "determinism.tp_shards=2",
            "train.global_batch=2", "determinism=strict", "kernels.threads=1"};
        int n = 9;
        char name[40];
        run_seen seen = {0};
        hash128 one, two;
        for (int k = 0; k < 4 && runs[i].more[k] != NULL; k++) settings[n++] = runs[i].more[k];
        (void)snprintf(name, sizeof(name), "tp-pieces-one-%d", i);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int k = 0; k < 2 && runs[i].layout[k] != NULL; k++) settings[n++] = runs[i].layout[k];
        (void)snprintf(name, sizeof(name), "tp-pieces-two-%d", i);
        assert_int_equal(ranks_run(name, settings, n, i < 2 ? 2 : 4, "auto", 0, &two), ST_OK);
        assert_same(one, two);
    }
}

// In fast order with layout.sp, the positions of one sequence are cut as well, and gathers too: a
// rank has its part of every chunk, of dropout masks too.
static void cut_positions_go_in_pieces(void **state)
{
    static const char *const more[][4] = {
        {"model.dropout=0.1"},
        {"train.recompute=full", "model.arch=gpt2", "layout.pp=2"},
        {"train.micro_batch=2", "train.recompute=full"},
        {"layout.cp=2", "model.dropout=0.1", "layout.cp_ring=yes"},
    };
    (void)state;
    for (int i = 0; i < COUNT_OF(more); i++) {
        // By day the second and the last, which have all that the others have.
        if (part_of(TRIALS_PART) > 1 && i % 2 == 0) continue;
        const char *settings[SETTINGS_MAX] = {
            "train.steps=2",        "model.dim=512",    "model.heads=2",
            "model.kv_heads=2",     "model.ffn_dim=32", "train.micro_batch=1",
            "train.global_batch=2", "train.seq=1024",   "kernels.threads=1"};
        int n = 9, ranks = 2;
        char name[40];
        run_seen seen = {0};
        (void)snprintf(name, sizeof(name), "tp-cut-one-%d", i);
        for (int k = 0; k < 4 && more[i][k] != NULL; k++) {
            if (strncmp(more[i][k], "layout.", 7) != 0) settings[n++] = more[i][k];
        }
        assert_int_equal(test_run(name, settings, n, "auto", &seen, NULL), ST_OK);
        for (int k = 0; k < 4 && more[i][k] != NULL; k++) {
            if (strncmp(more[i][k], "layout.", 7) != 0) continue;
            settings[n++] = more[i][k];
            if (strchr(more[i][k], '2') != NULL) ranks = 4;
        }
        settings[n++] = "layout.tp=2";
        settings[n++] = "layout.sp=yes";
        (void)snprintf(name, sizeof(name), "tp-cut-two-%d", i);
        assert_int_equal(ranks_run(name, settings, n, ranks, "auto", 0, NULL), ST_OK);
        print_message("%s: loss %.9g, one rank %.9g\n", name, rank_runs[0].seen.last_loss,
                      seen.last_loss);
        assert_true(fabs(rank_runs[0].seen.last_loss - seen.last_loss) < 1e-4);
    }
}

// With a vocabulary this large, the head processes half a micro-batch at a time, to keep its
// logits.
static void large_vocabularies_go_by_chunks(void **state)
{
    (void)state;
    const char *settings[] = {
        "train.steps=2",       "model.layers=1",     "model.dim=8",
        "model.heads=2",       "model.kv_heads=2",   "model.ffn_dim=8",
        "model.vocab=600001",  "train.seq=64",       "train.global_batch=2",
        "train.micro_batch=2", "determinism=strict", "determinism.tp_shards=2",
        "kernels.threads=1",   "layout.tp=2"};
    const int n = (int)COUNT_OF(settings);
    assert_true(op_head_chunk_rows(300001) == 64);
    run_seen seen = {0};
    hash128 one, two;
    assert_int_equal(test_run("tp-words-one", settings, n - 1, "auto", &seen, &one), ST_OK);
    assert_int_equal(ranks_run("tp-words-two", settings, n, 2, "auto", 0, &two), ST_OK);
    assert_same(one, two);
}

// Fast order supports what strict order refuses: head norms, whose gradients are terms, and rows
// cut by positions.
static const char *const fast[][5] = {
    {"layout.tp=2"},
    {"layout.tp=4", "train.recompute=selective"},
    {"layout.tp=2", "layout.dp=2", "layout.zero=1", "train.recompute=full"},
    {"layout.tp=2", "layout.sp=yes"},
    {"layout.tp=4", "layout.sp=yes", "layout.dp=2", "train.recompute=full"},
    {"layout.tp=2", "layout.sp=yes", "layout.pp=2", "train.recompute=selective"},
};
static const int fast_ranks[] = {2, 4, 4, 2, 8, 4};

// Fast order gives other bits and nearly the same losses.
static void fast_ranks_are_near(void **state)
{
    (void)state;
    for (int kind = 0; kind < COUNT_OF(kinds); kind++) {
        const char *settings[SETTINGS_MAX];
        const int n = settings_of(kind, settings);
        run_seen seen = {0};
        char name[40];
        settings[n] = "train.micro_batch=2";
        settings[n + 1] = "eval.every=3";
        (void)snprintf(name, sizeof(name), "tp-fast-one-%d", kind);
        assert_int_equal(test_run(name, settings, n + 2, "auto", &seen, NULL), ST_OK);
        for (int m = 0; m < COUNT_OF(fast); m++) {
            int count = n + 2;
            if (part_skips(TRIALS_PART, m, COUNT_OF(fast), kind, COUNT_OF(kinds))) continue;
            for (int k = 0; k < 5 && fast[m][k] != NULL; k++) settings[count++] = fast[m][k];
            settings[count++] = "kernels.threads=1";
            (void)snprintf(name, sizeof(name), "tp-fast-%d-%d", kind, m);
            assert_int_equal(ranks_run(name, settings, count, fast_ranks[m], "auto", 0, NULL),
                             ST_OK);
            const run_seen *many = &rank_runs[0].seen;
            const double off = fabs(many->last_loss - seen.last_loss);
            if (off >= 1e-5) {
                print_error("%s %s: loss %.9g, of one rank %.9g\n", name, fast[m][0],
                            many->last_loss, seen.last_loss);
            }
            assert_true(off < 1e-5);
            assert_true(fabs(rank_runs[0].outcome.best_val_loss - seen.best_val_loss) < 1e-5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_ranks_are_near),
        cmocka_unit_test(strict_ranks_are_one),
        cmocka_unit_test(muon_takes_pieces),
        cmocka_unit_test(large_collectives_go_in_pieces),
        cmocka_unit_test(cut_positions_go_in_pieces),
        cmocka_unit_test(large_vocabularies_go_by_chunks),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
