// Memory of a run with an adapter, to the byte: what the table predicts is what the device
// allocates and a step covers; frozen weights have the bytes of their type, in few bits those of
// op/quantized.h, and neither gradients nor states.
#include "fixtures/train/test_job.h"
#include "op/quantized.h"

enum { DIM = 128, FFN = 192, LAYERS = 2, VOCAB = 257, RANK = 4, SEQ = 16, BATCH = 2 };

typedef struct form {
    const char *name;
    const char *keys[3];
    op_quant quant;
    int64_t wide; // bytes of a number of weights that are not quantized
} form;

static const form forms[] = {
    {"lora", {"adapter.kind=lora", "adapter.quantize=none", "train.precision=fp32"}, QUANT_NONE, 4},
    {"int8", {"adapter.kind=lora", "adapter.quantize=int8", "train.precision=fp32"}, QUANT_INT8, 4},
    {"nf4", {"adapter.kind=lora", "adapter.quantize=nf4", "train.precision=fp32"}, QUANT_NF4, 4},
    {"nf4 in bf16",
     {"adapter.kind=rslora", "adapter.quantize=nf4", "train.precision=bf16"},
     QUANT_NF4,
     2},
};

// Bytes of a projection of the base model.
static int64_t projection(const form *f, int64_t rows, int64_t columns)
{
    const int64_t blocks = columns / QUANT_BLOCK;
    if (f->quant == QUANT_NONE) return rows * columns * f->wide;
    return rows * blocks * ((f->quant == QUANT_INT8 ? QUANT_BLOCK : QUANT_BLOCK / 2) + 4);
}

static void table_check(const form *f, const assemble_plans *plans)
{
    const plan *p = plans->all[0];
    const int64_t layer = projection(f, 3 * DIM, DIM) + projection(f, DIM, DIM) +
                          projection(f, 2 * FFN, DIM) + projection(f, DIM, FFN);
    const int64_t rest = 2 * VOCAB * DIM + (2 * LAYERS + 1) * DIM; // embedding, head, norms
    int64_t frozen = 0, others = 0, gradients = 0, adapter = 0;
    for (int64_t w = 0; w < plans->whole->weight_count; w++) {
        const op_weight *weight = &plans->whole->weights[w];
        const int64_t row = plan_table_find(&plans->run, weight->name);
        assert_true(row >= 0);
        if (weight->is_adapter) {
            adapter += weight->rows * weight->columns;
            continue;
        }
        frozen += plans->run.tensors[row].bytes;
        for (int64_t i = 0; i < plans->run.count; i++) { // states have the weight's name at the end
            const plan_tensor *t = &plans->run.tensors[i];
            if (t->role == ROLE_STATE && t->weight == w) others += t->bytes;
        }
    }
    for (int64_t i = 0; i < p->tensor_count; i++) {
        const plan_tensor *t = &p->tensors[i];
        if (t->kind == PLAN_BYTES_GRADIENTS && !t->is_part) gradients += t->bytes;
    }
    assert_int_equal(frozen, LAYERS * layer + rest * f->wide);
    assert_int_equal(others, 0);
    assert_int_equal(gradients, adapter * (int64_t)sizeof(float));
}

static void step_run(const run_config *r, const train_job *job, const assemble_plans *plans)
{
    static int32_t ids[BATCH * SEQ], labels[BATCH * SEQ], positions[BATCH * SEQ];
    static int32_t documents[BATCH * SEQ];
    exec_input input = {.settings = train_step_settings(r),
                        .batch = {{"ids", ids, sizeof(ids)},
                                  {"labels", labels, sizeof(labels)},
                                  {"positions", positions, sizeof(positions)},
                                  {"documents", documents, sizeof(documents)}},
                        .batch_count = 4};
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = 7 * i % VOCAB;
        labels[i] = 5 * i % VOCAB;
        positions[i] = i % SEQ;
    }
    input.host.step = 1;
    input.host.lr = 1e-3;
    input.host.sequences = BATCH;
    assert_ok(exec_begin(job->e, plans->all[0], &input));
    assert_ok(exec_finish(job->e));
}

static void tables_hold_to_the_byte(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(forms); i++) {
        const form *f = &forms[i];
        const char *const list[] = {
            "data.train=x",   "train.seq=16",      "train.global_batch=2", "model.dim=128",
            "model.layers=2", "model.heads=2",     "model.vocab=257",      "model.ffn_dim=192",
            "model.tied=no",  "kernels.threads=1", "adapter.rank=4",       f->keys[0],
            f->keys[1],       f->keys[2]};
        arena *a = NULL;
        config *c = NULL;
        run_config r = {0};
        decoder_spec spec = {0};
        assemble_plans *plans = NULL;
        train_job job;
        assert_ok(arena_create("test", 0, &a));
        assert_ok(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c));
        assert_ok(model_spec_from_config(host_real(), a, &r, &spec));
        assert_ok(arena_new(a, 1, &plans));
        const assemble_options options = {
            .threads = 1, .device = "cpu", .backend = "cpu", .documents = true};
        assert_ok(assemble_rank(a, &r, &spec, &options, plans));
        assert_ok(train_job_create(host_real(), a, plans, &options, NULL, NULL, &job));
        assert_ok(train_job_weights(&job, a));
        step_run(&r, &job, plans);
        print_message("%s: predicted %lld bytes, allocated %lld, covered %lld\n", f->name,
                      (long long)plans->arena_bytes, (long long)exec_arena_bytes(job.e),
                      (long long)exec_touched_bytes(job.e));
        assert_int_equal(exec_arena_bytes(job.e), plans->arena_bytes);
        assert_int_equal(exec_touched_bytes(job.e), plans->arena_bytes);
        table_check(f, plans);
        train_job_destroy(&job);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_hold_to_the_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
