// Bounded rows through plan and executor: a small model of experts whose tokens take others, fewer
// or none from step to step, all with one plan. Strict runs end in the same bits for every
// micro-batch, recompute policy, device and number of threads, and with all rows beyond the count
// poisoned.
#include "exec/exec.h"
#include "fixtures/plan/plan_sample.h"
#include "plan/verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQ = 6, SEQUENCES = 4, ROWS = SEQ * SEQUENCES, VOCAB = 23, EXPERTS = 3, STEPS = 6 };

typedef struct setup {
    int64_t micro_batch;
    op_recompute recompute;
    const device_api *device;
    const char *backend;
    int threads;
    uint64_t seed; // of the shadow's order
    bool poison;
    int32_t shards;
} setup;

typedef struct job {
    arena *a;
    op_model *m;
    kern_context *kernels;
    plan_table run;
    plan *p;
    exec *e;
} job;

typedef struct result {
    uint64_t bits; // of all weights and states
    double loss[STEPS];
    int64_t poisoned_bytes;
} result;

static status plan_make(job *j, const setup *s)
{
    const plan_sample_config config = {.layers = 2,
                                       .dim = 16,
                                       .ffn = 12,
                                       .heads = 2,
                                       .vocab = VOCAB,
                                       .experts = EXPERTS,
                                       .recompute = s->recompute};
    op_program *const *optimizer = NULL;
    assert_int_equal(arena_create("test", 0, &j->a), ST_OK);
    const status st = plan_sample_model(j->a, &config, &j->m);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    assert_int_equal(plan_sample_optimizer(j->a, j->m, &optimizer), ST_OK);
    j->run = (plan_table){.a = j->a};
    const kern_hint hint = {.threads = s->threads};
    assert_int_equal(kern_context_create(j->a, s->backend, &hint, &j->kernels), ST_OK);
    exec_workspace_context workspace = {.kernels = j->kernels, .strict = true};
    const plan_request request = {.model = j->m,
                                  .sequences = SEQUENCES,
                                  .micro_batch = s->micro_batch,
                                  .seq = SEQ,
                                  .strict = true,
                                  .shards = s->shards,
                                  .poison = s->poison,
                                  .optimizer = optimizer,
                                  .scratch_bytes = kern_scratch_bytes(j->kernels),
                                  .workspace = exec_workspace,
                                  .fuses = exec_fuses,
                                  .workspace_context = &workspace};
    TRY(plan_create(j->a, &request, &j->run, &j->p));
    plan_table_place(&j->run);
    return ST_OK;
}

static status exec_make(job *j, const setup *s)
{
    const plan *plans[] = {j->p};
    const exec_config wanted = {.api = s->device,
                                .device = {.h = host_real(),
                                           .run = &kern_device_kernels,
                                           .kernels = j->kernels,
                                           .seed = s->seed},
                                .run = &j->run,
                                .plans = plans,
                                .plan_count = 1};
    return exec_create(&wanted, &j->e);
}

static void state_walk(job *j, bool write, uint64_t *bits)
{
    *bits = 14695981039346656037u;
    for (int64_t i = 0; i < j->run.count; i++) {
        const plan_tensor *t = &j->run.tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        const int64_t count = t->dims[0] * (t->ndim == 2 ? t->dims[1] : 1);
        float *values = calloc((size_t)count, sizeof(float));
        assert_non_null(values);
        for (int64_t k = 0; k < count && t->role == ROLE_WEIGHT; k++) {
            const uint32_t word = (uint32_t)(k * 2654435761u) ^ (uint32_t)(i * 40503);
            values[k] = t->ndim == 1 ? 1.0f : ((float)(word % 2001) - 1000.0f) * 3e-4f;
        }
        if (write) assert_int_equal(exec_write(j->e, i, 0, values, count * 4), ST_OK);
        if (!write) assert_int_equal(exec_read(j->e, i, 0, values, count * 4), ST_OK);
        for (int64_t k = 0; k < count * 4; k++) {
            *bits = (*bits ^ ((const unsigned char *)values)[k]) * 1099511628211u;
        }
        free(values);
    }
}

// Returns the experts that token i takes in a step: all three in turn; one for all; few; none; two
// for some; all again.
static int32_t expert_of(int step, int i, int k)
{
    switch (step % STEPS) {
    case 1:
        return k == 0 ? 2 : -1;
    case 2:
        return i % 7 == 0 ? (i + k) % EXPERTS : -1;
    case 3:
        return -1;
    case 4:
        return i % 2 == 0 ? k : -1;
    default:
        return (i * 5 + k + step) % EXPERTS;
    }
}

static void steps_run(job *j, result *out)
{
    int32_t ids[ROWS], labels[ROWS], experts[ROWS * 2];
    step_device *d = malloc(sizeof(*d));
    assert_non_null(d);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < ROWS; i++) {
            ids[i] = (i * 7 + s * 3) % VOCAB;
            labels[i] = (i * 5 + s) % VOCAB;
            for (int k = 0; k < 2; k++) experts[2 * i + k] = expert_of(s, i, k);
        }
        exec_input input = {.host = {.step = s + 1, .seed = 5, .lr = 1e-2, .sequences = SEQUENCES},
                            .settings = {.clip = 1.0},
                            .batch = {{"ids", ids, sizeof(ids)},
                                      {"labels", labels, sizeof(labels)},
                                      {"experts", experts, sizeof(experts)}},
                            .batch_count = 3};
        int64_t step = 0;
        bool any = false;
        assert_int_equal(exec_begin(j->e, j->p, &input), ST_OK);
        assert_int_equal(exec_finish(j->e), ST_OK);
        assert_int_equal(exec_results(j->e, d, &step, &any), ST_OK);
        assert_true(any && d->skip == 0);
        out->loss[s] = d->loss;
    }
    free(d);
}

static result run_setup(const setup *s)
{
    result out = {0};
    job j = {.e = NULL};
    uint64_t start = 0;
    assert_int_equal(plan_make(&j, s), ST_OK);
    assert_int_equal(exec_make(&j, s), ST_OK);
    state_walk(&j, true, &start);
    assert_int_equal(exec_step_reset(j.e, 1.0), ST_OK);
    steps_run(&j, &out);
    state_walk(&j, false, &out.bits);
    out.poisoned_bytes = exec_poisoned_bytes(j.e);
    exec_destroy(j.e);
    arena_destroy(j.a);
    return out;
}

static setup base_setup(void)
{
    return (setup){.micro_batch = SEQUENCES,
                   .device = &device_cpu,
                   .backend = "cpu",
                   .threads = 1,
                   .shards = 1};
}

static void counts_change_without_a_new_plan(void **state)
{
    (void)state;
    setup s = base_setup();
    const result plain = run_setup(&s);
    for (int i = 0; i < STEPS; i++) assert_true(plain.loss[i] > 2.0 && plain.loss[i] < 4.0);
    for (s.micro_batch = 1; s.micro_batch < SEQUENCES; s.micro_batch *= 2) {
        const result r = run_setup(&s);
        assert_memory_equal(r.loss, plain.loss, sizeof(r.loss));
        assert_true(r.bits == plain.bits);
    }
    for (int policy = RECOMPUTE_SELECTIVE; policy <= RECOMPUTE_FULL; policy++) {
        s = base_setup();
        s.recompute = (op_recompute)policy;
        s.threads = 2;
        assert_true(run_setup(&s).bits == plain.bits);
    }
    s = base_setup();
    s.device = &device_shadow;
    for (s.seed = 1; s.seed <= 3; s.seed++) {
        s.micro_batch = s.seed == 3 ? 2 : SEQUENCES;
        s.recompute = s.seed == 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        assert_true(run_setup(&s).bits == plain.bits);
    }
    s = base_setup();
    s.backend = "ref";
    const result ref = run_setup(&s);
    for (int i = 0; i < STEPS; i++) {
        assert_true(ref.loss[i] - plain.loss[i] < 1e-4 && plain.loss[i] - ref.loss[i] < 1e-4);
    }
}

static void poisoned_rows_find_no_reader(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        setup s = base_setup();
        s.micro_batch = i % 2 == 0 ? SEQUENCES : 2;
        s.recompute = (op_recompute)(i % 3);
        s.device = i >= 4 ? &device_shadow : &device_cpu;
        s.backend = i == 3 ? "ref" : "cpu";
        const result clean = run_setup(&s);
        s.poison = true;
        const result poisoned = run_setup(&s);
        assert_true(poisoned.poisoned_bytes > 0);
        assert_true(poisoned.bits == clean.bits);
    }
}

static plan_tensor *tensor_of(job *j, const char *name)
{
    for (int64_t i = 0; i < j->p->tensor_count; i++) {
        if (strcmp(j->p->tensors[i].name, name) == 0) return &j->p->tensors[i];
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static status verify(job *j)
{
    const plan_mesh alone = {.size = {0}};
    const plan *plans[] = {j->p};
    plan_verified v;
    return plan_verify(j->a, &alone, plans, 0, &v);
}

// A tensor that counts rows is live as long as any tensor with those rows: the test finds bytes
// that another tensor takes in between.
static void counts_are_verified(void **state)
{
    (void)state;
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        setup s = base_setup();
        job j = {.e = NULL};
        s.recompute = (op_recompute)policy;
        assert_int_equal(plan_make(&j, &s), ST_OK);
        assert_int_equal(verify(&j), ST_OK);
        plan_tensor *offsets = tensor_of(&j, "layers.0/permute.offsets");
        offsets->offset = tensor_of(&j, "layers.0/unpermute.y")->offset;
        assert_int_equal(verify(&j), ST_BROKEN_PLAN);
        assert_non_null(strstr(error_last()->text, "permute.offsets"));
        arena_destroy(j.a);
    }
}

// Rows in the order of experts cannot be cut between shards of a micro-batch.
static void a_cut_between_shards_is_refused(void **state)
{
    (void)state;
    setup s = base_setup();
    job j = {.e = NULL};
    s.shards = 2;
    assert_int_equal(plan_make(&j, &s), ST_OK);
    assert_int_equal(exec_make(&j, &s), ST_UNSUPPORTED);
    arena_destroy(j.a);
    s.micro_batch = 2; // a shard each
    const result two = run_setup(&s);
    s.micro_batch = 1;
    assert_true(run_setup(&s).bits == two.bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_change_without_a_new_plan),
        cmocka_unit_test(poisoned_rows_find_no_reader),
        cmocka_unit_test(counts_are_verified),
        cmocka_unit_test(a_cut_between_shards_is_refused),
    };
    return cmocka_run_group_tests_name("bounded", tests, NULL, NULL);
}
