// Bytes per rank under ZeRO: weights, gradients, master copies and moments in mixed precision take
// the bytes of the paper's Table 1 (Rajbhandari et al. 2020, arXiv:1910.02054): 16 for each
// parameter, of which stage 1 cuts 12, stage 2 cuts 14 and stage 3 all.
#include "fixtures/train/test_job.h"

enum { MOST_RANKS = 1024 };

// Bytes for each parameter that rank `rank` keeps through the step; *vectors: the share of
// parameters in vectors, which are not cut.
static double bytes_kept(int ranks, int rank, int zero, double *vectors)
{
    char dp[32], stage[32], batch[48];
    (void)snprintf(dp, sizeof(dp), "layout.dp=%d", ranks);
    (void)snprintf(stage, sizeof(stage), "layout.zero=%d", ranks > 1 ? zero : 0);
    (void)snprintf(batch, sizeof(batch), "train.global_batch=%d", ranks);
    const char *const list[] = {"data.train=x",
                                "train.seq=8",
                                batch,
                                "model.arch=llama",
                                "model.dim=4096",
                                "model.layers=2",
                                "model.heads=32",
                                "model.vocab=4096",
                                "model.ffn_dim=8192",
                                "model.tied=no",
                                "train.steps=10",
                                "kernels.threads=1",
                                "train.precision=bf16",
                                "precision.grads=bf16",
                                dp,
                                stage};
    arena *a = NULL;
    config *c = NULL;
    run_config r = {0};
    decoder_spec spec = {0};
    assemble_plans *plans = NULL;
    assert_ok(arena_create("test", 0, &a));
    assert_ok(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c));
    assert_ok(model_spec_from_config(host_real(), a, &r, &spec));
    assert_ok(arena_new(a, 1, &plans));
    const assemble_options options = {
        .threads = 1, .device = "cpu", .backend = "cpu", .mesh = run_config_mesh(&r, rank)};
    assert_ok(assemble_rank(a, &r, &spec, &options, plans));
    int64_t bytes = 0, of_vectors = 0;
    for (int32_t i = 0; i < plans->whole->weight_count; i++) {
        if (plans->whole->weights[i].ndim == 1) of_vectors += plans->whole->weights[i].rows;
    }
    *vectors = (double)of_vectors / (double)plans->whole->parameters;
    const plan *p = plans->all[0];
    for (int64_t i = 0; i < plans->run.count; i++) {
        const plan_tensor *t = &plans->run.tensors[i];
        if (t->weight >= 0) bytes += t->bytes;
    }
    for (int64_t i = 0; i < p->tensor_count; i++) {
        const plan_tensor *t = &p->tensors[i];
        if (t->kind == PLAN_BYTES_GRADIENTS && !t->is_unsharded && !t->is_part) bytes += t->bytes;
    }
    const double per_parameter = (double)bytes / (double)plans->whole->parameters;
    arena_destroy(a);
    return per_parameter;
}

// The paper's table has two or three digits.
static bool near(double kept, double gb)
{
    return fabs(kept - gb) <= 0.01 * gb + (gb < 0.2 ? 0.003 : 0.0);
}

static void bytes_match_the_paper(void **state)
{
    (void)state;
    char path[1024], line[512];
    test_shared("validation/zero_memory_table.csv", path);
    FILE *table = fopen(path, "r");
    if (table == NULL) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    int rows = 0;
    while (fgets(line, sizeof(line), table) != NULL) {
        double parameters = 0.0, gb = 0.0;
        int ranks = 0, zero = 0;
        if (sscanf(line, "%*[^,],%lf,%d,ZeRO-%d%*[^,],%lf", &parameters, &ranks, &zero, &gb) != 4) {
            continue;
        }
        if (ranks > MOST_RANKS || parameters > 100.0) continue; // larger models behave the same
        for (int rank = 0; rank<ranks; rank += ranks> 4 ? ranks - 1 : 1) {
            double vectors = 0.0;
            const double all = bytes_kept(ranks, rank, zero, &vectors);
            const double cut_bytes = zero == 1 ? 12.0 : zero == 2 ? 14.0 : 16.0;
            const double kept = (all - vectors * cut_bytes * (1.0 - 1.0 / ranks)) *
                                parameters; // the table is rounded
            if (!near(kept, gb)) {
                print_error("ZeRO-%d, rank %d of %d: %.3f GB, table %.3f\n", zero, rank, ranks,
                            kept, gb);
            }
            assert_true(near(kept, gb));
        }
        rows++;
    }
    (void)fclose(table);
    assert_int_equal(rows, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_match_the_paper)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
