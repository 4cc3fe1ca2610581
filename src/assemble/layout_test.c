// Tests layouts against a model's shapes: a layout that does not divide is refused with the nearest
// that does, and the pieces of checkpoints equal the pieces that programs are cut into.
#include "fixtures/assemble/test_assemble.h"

typedef struct fixture {
    arena *a;
    run_config r;
    config *c;
    decoder_spec spec;
} fixture;

static void make(fixture *f, const char *const *more, int count)
{
    enum { OWN = 8, MORE = 8 };
    const char *keys[OWN + MORE] = {"data.train=x",     "model.arch=llama",    "model.layers=2",
                                    "model.dim=32",     "model.heads=4",       "model.kv_heads=2",
                                    "model.ffn_dim=48", "train.global_batch=8"};
    assert_true(count <= MORE);
    for (int i = 0; i < count; i++) keys[OWN + i] = more[i];
    memset(f, 0, sizeof(*f));
    assert_int_equal(arena_create("test", 0, &f->a), ST_OK);
    assert_ok(run_config_load(host_real(), f->a, NULL, keys, OWN + count, &f->r, &f->c));
    assert_int_equal(model_spec_from_config(host_real(), f->a, &f->r, &f->spec), ST_OK);
    if (f->spec.vocab == 0) f->spec.vocab = 257;
}

static const struct {
    int64_t heads, kv_heads, ffn_dim, tp, cp_heads;
    const char *says; // NULL: the layout is valid
} shapes[] = {
    {4, 2, 48, 2, 1, NULL},
    {12, 12, 3072, 4, 1, NULL},
    {12, 12, 3072, 5, 1, "nearest that do: 4 or 6"},
    {12, 4, 3072, 3, 1, "nearest that do: 2 or 4"},
    {8, 8, 100, 8, 1, "layout.tp = 8 does not divide the model's 8 heads, 8 heads of keys and 100"},
    {8, 8, 128, 16, 1, "nearest that do: 8"},
    {8, 2, 128, 4, 1, NULL},
    {8, 1, 128, 8, 1, NULL},
    {12, 4, 3072, 6, 1, "nearest that do: 4 or 12"},
    {8, 4, 128, 2, 2, NULL},
    {8, 4, 128, 2, 4, NULL}, // two ranks share a key head
    {12, 12, 3072, 1, 8, "nearest layout.cp_heads that do: 4"},
    {24, 6, 3072, 1, 4,
     "layout.cp_heads = 4 x layout.tp = 1 do not distribute the model's 24 heads "
     "with 6 heads of keys; nearest layout.cp_heads that do: 2"},
};

static void shapes_are_divided_or_refused(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        fixture f;
        make(&f, NULL, 0);
        f.spec.heads = shapes[i].heads;
        f.spec.kv_heads = shapes[i].kv_heads;
        f.spec.ffn_dim = shapes[i].ffn_dim;
        f.r.layout.tp = shapes[i].tp;
        f.r.layout.cp = 8;
        f.r.layout.cp_heads = shapes[i].cp_heads;
        const status st = assemble_layout_check(&f.r, &f.spec);
        if (shapes[i].says == NULL) {
            assert_int_equal(st, ST_OK);
        } else {
            assert_int_equal(st, ST_CONFIG_CONFLICT);
            if (strstr(error_last()->text, shapes[i].says) == NULL) {
                fail_msg("%s, expected %s", error_last()->text, shapes[i].says);
            }
        }
        arena_destroy(f.a);
    }
    fixture f;
    const char *stages[] = {"3", "4"};
    make(&f, NULL, 0); // two key heads, each on one rank in strict order
    f.r.determinism.mode = RUN_STRICT;
    f.r.layout.cp = f.r.layout.cp_heads = 4;
    assert_int_equal(assemble_layout_check(&f.r, &f.spec), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "in strict order; nearest layout.cp_heads"));
    arena_destroy(f.a);
    make(&f, NULL, 0); // the file gives model.layers; here a preset does
    f.r.layout.stages = (option_list){stages, 2};
    f.spec.layers = 8;
    assert_int_equal(assemble_layout_check(&f.r, &f.spec), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "layout.stages has 7 layers, the model has 8"));
    stages[1] = "5.5";
    assert_int_equal(assemble_layout_check(&f.r, &f.spec), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "layout.stages has 8.5 layers, the model has 8"));
    arena_destroy(f.a);
    const char *const pipeline[] = {"layout.pp=2", "layout.schedule=zb-v"};
    make(&f, pipeline, 2);
    assert_int_equal(assemble_layout_check(&f.r, &f.spec), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "makes 4 stages of whole layers, the model has 2"));
    arena_destroy(f.a);
}

// Compares a weight cut by op_model_partition() with plan_piece_of().
static void weights_compare(const assemble_plans *plans, int64_t rank)
{
    for (int32_t w = 0; w < plans->whole->weight_count; w++) {
        const op_weight *whole = &plans->whole->weights[w], *local = &plans->model->weights[w];
        int64_t elements = 0;
        assert_int_equal(whole->part_count, local->part_count);
        for (int i = 0; i < whole->part_count; i++) {
            const plan_piece p = plan_piece_of(&plans->places, rank, w, i, PLACE_WEIGHT);
            const weight_piece made = op_weight_piece(local, i);
            assert_int_equal(p.row, made.row);
            assert_int_equal(p.rows, made.rows);
            assert_int_equal(p.column, made.column);
            assert_int_equal(p.columns, made.columns);
            assert_int_equal(p.at, local->parts[i].row_begin * local->columns);
            elements += p.rows * p.columns;
        }
        assert_int_equal(elements, local->rows * local->columns);
    }
}

static void pieces_are_those_of_programs(void **state)
{
    static const char *const models[][4] = {
        {"model.arch=gpt2", "model.kv_heads=4", "model.tied=yes", "model.vocab=263"},
        {"model.arch=llama", "model.kv_heads=4", "model.tied=no", "model.vocab=261"},
        {"model.arch=qwen3", "model.kv_heads=4", "model.tied=no", "model.vocab=260"},
        {"model.arch=llama", "model.kv_heads=2", "model.tied=no", "model.vocab=261"},
        {"model.arch=qwen3", "model.kv_heads=1", "model.tied=no", "model.vocab=260"}};
    static const char *const tps[] = {"layout.tp=2", "layout.tp=4"};
    (void)state;
    for (int i = 0; i < COUNT_OF(models); i++) {
        for (int k = 0; k < COUNT_OF(tps); k++) {
            const char *more[] = {models[i][0], models[i][1], models[i][2], models[i][3], tps[k]};
            fixture f;
            make(&f, more, COUNT_OF(more));
            for (int64_t rank = 0; rank < run_config_ranks(&f.r); rank++) {
                const assemble_options options = {.threads = 1,
                                                  .device = "cpu",
                                                  .backend = "ref",
                                                  .mesh = run_config_mesh(&f.r, rank)};
                assemble_plans *plans = NULL;
                assert_int_equal(arena_new(f.a, 1, &plans), ST_OK);
                assert_int_equal(assemble_rank(f.a, &f.r, &f.spec, &options, plans), ST_OK);
                weights_compare(plans, rank);
            }
            arena_destroy(f.a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_divided_or_refused),
        cmocka_unit_test(pieces_are_those_of_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
