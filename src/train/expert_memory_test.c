// Experts on several ranks: on every rank the arena has the predicted size, and a step touches all
// of it and nothing else, with the bounds of rows that travel and whether or not experts may move.
#include "base/rng.h"
#include "fixtures/train/test_ranks.h"
#include "train/job.h"

typedef struct job_rank {
    comm_control_block *control_block;
    int rank, ranks;
    const char *const *set;
    int64_t predicted, arena, touched;
    status st;
    char text[400];
} job_rank;

static status step_run(arena *a, train_job *job, const run_config *r)
{
    static const char *const names[] = {"ids", "labels", "positions", "documents"};
    const plan *p = assemble_plan_of(job->plans, r->train.global_batch, false);
    const int64_t cells = p->own_sequences * p->seq;
    exec_input input = {.settings = train_step_settings(r), .batch_count = COUNT_OF(names)};
    int32_t *all = NULL;
    TRY(arena_new(a, COUNT_OF(names) * cells, &all));
    for (int64_t i = 0; i < 2 * cells; i++) {
        all[i] = (int32_t)(rng_word(5, 1, (uint64_t)(p->first_sequence * p->seq + i)) % 257);
    }
    for (int64_t i = 0; i < cells; i++) all[2 * cells + i] = (int32_t)(i % p->seq);
    for (int i = 0; i < COUNT_OF(names); i++) {
        input.batch[i] = (exec_batch){names[i], all + i * cells, cells * 4};
    }
    input.host = (step_host){.step = 1, .seed = 1, .lr = 1e-2, .sequences = p->sequences};
    TRY(exec_begin(job->e, p, &input));
    return exec_finish(job->e);
}

static status job_run(job_rank *k, arena *a, comm *all)
{
    run_config r;
    config *c = NULL;
    decoder_spec spec;
    assemble_plans *plans = NULL;
    train_job job;
    const char *more[24] = {"model.experts=8",         "model.experts_per_token=2",
                            "model.layers=4",          "model.dim=32",
                            "model.heads=2",           "model.ffn_dim=0",
                            "model.expert_ffn_dim=16", "model.vocab=257",
                            "train.global_batch=8",    "kernels.threads=1",
                            "model.shared_experts=1"};
    int n = 11;
    for (; k->set[n - 11] != NULL; n++) more[n] = k->set[n - 11];
    test_config("memory", more, n, a, &r, &c);
    TRY(model_spec_from_config(host_real(), a, &r, &spec));
    const assemble_options options = {
        .threads = 1, .device = "cpu", .backend = "cpu", .mesh = run_config_mesh(&r, k->rank)};
    TRY(arena_new(a, 1, &plans));
    TRY(assemble_rank(a, &r, &spec, &options, plans));
    const train_ranks ranks = {.all = all, .hosts = comm_world(all)};
    TRY(train_job_create(host_real(), a, plans, &options, &ranks, NULL, &job));
    status st = train_job_weights(&job, a);
    if (st == ST_OK) st = step_run(a, &job, &r);
    if (st == ST_OK) st = comm_barrier(ranks.hosts, "memory");
    k->predicted = plans->arena_bytes;
    k->arena = exec_arena_bytes(job.e);
    k->touched = exec_touched_bytes(job.e);
    train_job_destroy(&job);
    return st;
}

static void *job_main(void *context)
{
    job_rank *k = context;
    comm *all = NULL;
    arena *a = NULL;
    k->st = arena_create("rank", 0, &a);
    if (k->st == ST_OK) k->st = rank_open(k->control_block, k->rank, k->ranks, &all);
    if (k->st == ST_OK) k->st = job_run(k, a, all);
    (void)snprintf(k->text, sizeof(k->text), "%.399s", k->st != ST_OK ? error_last()->text : "");
    if (k->st != ST_OK && all != NULL) comm_abort(all, k->st, k->text);
    comm_close(all);
    arena_destroy(a);
    return NULL;
}

static void layout_check(int ranks, const char *const *set)
{
    job_rank jobs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    comm_control_block *control_block = NULL;
    assert_int_equal(comm_control_block_create(ranks, RANKS_JOB, 0, &control_block), ST_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job_rank){.control_block = control_block, .rank = r, .ranks = ranks, .set = set};
        assert_int_equal(pthread_create(&threads[r], NULL, job_main, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < ranks; r++) {
        if (jobs[r].st != ST_OK) print_error("%s: rank %d: %s\n", set[0], r, jobs[r].text);
        assert_int_equal(jobs[r].st, ST_OK);
        assert_int_equal(jobs[r].arena, jobs[r].predicted);
        assert_int_equal(jobs[r].touched, jobs[r].predicted);
    }
    comm_control_block_unmap(control_block);
}

static void the_peak_is_predicted(void **state)
{
    (void)state;
    static const char *const sets[][8] = {
        {"layout.dp=2", "layout.ep=2"},
        {"layout.dp=4", "layout.ep=2", "layout.zero=1", "moe.rebalance=1"},
        {"layout.dp=4", "layout.ep=4", "layout.zero=3", "train.recompute=full"},
        {"layout.dp=2", "layout.ep=2", "layout.pp=2", "layout.schedule=dualpipe-v",
         "train.micro_batch=1"},
        {"layout.tp=2", "layout.ep=2", "layout.sp=yes", "layout.etp=1", "train.micro_batch=4"},
        {"layout.cp=2", "layout.ep=2", "determinism=strict", "determinism.cp_shards=2",
         "layout.dp=2"}};
    static const int ranks[] = {2, 4, 4, 4, 2, 4};
    for (int i = 0; i < COUNT_OF(sets); i++) layout_check(ranks[i], sets[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_peak_is_predicted)};
    return cmocka_run_group_tests_name("expert_memory", tests, test_run_setup, test_run_teardown);
}
