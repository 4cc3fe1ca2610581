// Compressed gradients in whole runs of several ranks: all ranks have the same weights, to the bit;
// losses are near those of an uncompressed run; checkpoints keep the residuals; and when the error
// exceeds its bound, all ranks switch to the plan without compression at the same step.
//
// The daily test runs each layout with one of the codecs, and each codec with some of the layouts.
#include "assemble/prove.h"
#include "base/rng.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

// ---- weights of every rank ----------------------------------------------------------------------
enum { JOB_STEPS = 4 };

typedef struct job_rank {
    comm_control_block *control_block;
    int rank, ranks;
    const char *set[7];
    int32_t stage, piece; // ranks along pp and tp
    // Hashes of all weights, and of this rank's weights: those replicated over tp, and those cut by
    // it.
    hash128 weights, whole, cut;
    double error;
    bool drifts; // the values that a step reports depend on earlier steps
    int64_t arena_bytes, predicted_bytes, touched_bytes;
    status st;
    char text[400];
} job_rank;

static status batch_of(arena *a, const plan *p, int64_t vocab, int64_t step, exec_input *input)
{
    static const char *const names[] = {"ids", "labels", "positions", "documents"};
    const int64_t cells = p->own_sequences * p->seq;
    int32_t *all = NULL;
    TRY(arena_new(a, 4 * cells, &all));
    for (int64_t i = 0; i < cells; i++) {
        const uint64_t at = (uint64_t)(p->first_sequence * p->seq + i);
        all[i] = (int32_t)(rng_word(5, (uint64_t)step, at) % (uint64_t)vocab);
        all[cells + i] = (int32_t)(rng_word(5, (uint64_t)step, at + 1) % (uint64_t)vocab);
        all[2 * cells + i] = (int32_t)(i % p->seq);
    }
    for (int i = 0; i < COUNT_OF(names); i++) {
        input->batch[i] = (exec_batch){names[i], all + i * cells, cells * 4};
    }
    input->batch_count = COUNT_OF(names);
    input->host.step = step;
    input->host.seed = 1;
    input->host.lr = 1e-2;
    input->host.sequences = p->sequences;
    return ST_OK;
}

static status job_steps(job_rank *k, arena *a, train_job *job, const run_config *r, int64_t vocab)
{
    const plan *p = assemble_plan_of(job->plans, r->train.global_batch, true);
    step_device results;
    int64_t step = 0;
    double *sent = NULL;
    bool any = false;
    assert_non_null(p);
    for (int64_t i = 1; i <= JOB_STEPS; i++) {
        exec_input input = {.settings = train_step_settings(r)};
        TRY(batch_of(a, p, vocab, i, &input));
        TRY(exec_begin(job->e, p, &input));
        TRY(exec_finish(job->e));
        TRY(exec_results(job->e, &results, &step, &any));
        const double *losses = exec_losses(job->e);
        if (i == 1) TRY(arena_new(a, p->bucket_count + 1, &sent));
        for (int64_t b = 0; b < p->bucket_count; b++) {
            const double *row = &losses[b * COMM_REALS];
            k->error = fmax(k->error, comm_compressed_error(row));
            if (i == 1) sent[b] = row[COMM_BYTES_SENT];
            if (row[COMM_BYTES_SENT] != sent[b]) k->drifts = true;
        }
    }
    return ST_OK;
}

static status weights_hash(job_rank *k, arena *a, const train_job *job)
{
    const op_model *m = job->plans->whole;
    uint64_t both[2] = {0, 0};
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        float *values = NULL;
        TRY(arena_new(a, count, &values));
        TRY(ckpt_weight_get(&job->state, w, values));
        const hash128 h = hash128_of(values, count * 4);
        both[0] = both[0] * 31 + h.low;
        both[1] = both[1] * 31 + h.high;
    }
    k->weights = hash128_of(both, sizeof(both));
    return ST_OK;
}

// Hashes the weights that are cut by tp, or those that are replicated.
static status own_hash(arena *a, const train_job *job, bool cut, hash128 *out)
{
    const op_model *m = job->plans->model;
    const plan_table *run = &job->plans->run;
    uint64_t both[2] = {0, 0};
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t row = plan_table_find(run, m->weights[w].name);
        if (row < 0 || (m->weights[w].ways > 1) != cut) continue;
        const int64_t bytes = m->weights[w].rows * m->weights[w].columns * 4;
        char *values = NULL;
        TRY(arena_new(a, bytes, &values));
        TRY(exec_read(job->e, row, 0, values, bytes));
        const hash128 h = hash128_of(values, bytes);
        both[0] = both[0] * 31 + h.low;
        both[1] = both[1] * 31 + h.high;
    }
    *out = hash128_of(both, sizeof(both));
    return ST_OK;
}

static status job_run(job_rank *k, arena *a, comm *all)
{
    run_config r;
    config *c = NULL;
    decoder_spec spec;
    assemble_plans *plans = NULL;
    train_job job;
    const char *more[10] = {"model.vocab=257", "kernels.threads=1"};
    int n = 2;
    for (int i = 0; i < COUNT_OF(k->set) && k->set[i] != NULL; i++) more[n++] = k->set[i];
    test_config("weights", more, n, a, &r, &c);
    TRY(model_spec_from_config(host_real(), a, &r, &spec));
    const assemble_options options = {
        .threads = 1, .device = "cpu", .backend = "cpu", .mesh = run_config_mesh(&r, k->rank)};
    k->stage = options.mesh.at[AXIS_PP];
    k->piece = options.mesh.at[AXIS_TP];
    TRY(arena_new(a, 1, &plans));
    TRY(assemble_rank(a, &r, &spec, &options, plans));
    train_ranks ranks = {.all = all, .hosts = comm_world(all)};
    TRY(train_job_create(host_real(), a, plans, &options, &ranks, NULL, &job));
    status st = train_job_weights(&job, a);
    if (st == ST_OK) st = job_steps(k, a, &job, &r, spec.vocab);
    if (st == ST_OK) st = comm_barrier(ranks.hosts, "weights");
    if (st == ST_OK) st = weights_hash(k, a, &job);
    if (st == ST_OK) st = own_hash(a, &job, false, &k->whole);
    if (st == ST_OK) st = own_hash(a, &job, true, &k->cut);
    k->predicted_bytes = plans->arena_bytes;
    k->arena_bytes = exec_arena_bytes(job.e);
    k->touched_bytes = exec_touched_bytes(job.e);
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

static const char *const modes[] = {
    "comm.compression=bf16", "comm.compression=int8",   "comm.compression=fp8",
    "comm.compression=topk", "comm.compression=onebit",
};
enum { MODES = COUNT_OF(modes), FIRST_FEEDBACK = 3 }; // first codec with error feedback
static const int unlike[] = {1, 3, 4};                // bf16 and fp8 behave like int8
enum { UNLIKE = COUNT_OF(unlike) };

// `more`: settings of the layout, up to the first NULL.
static void weights_agree(int mode, int ranks, const char *const more[5])
{
    job_rank jobs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    comm_control_block *control_block = NULL;
    assert_int_equal(comm_control_block_create(ranks, RANKS_JOB, 0, &control_block), ST_OK);
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job_rank){
            .control_block = control_block, .rank = r, .ranks = ranks, .set = {modes[mode]}};
        int n = 1;
        if (mode >= FIRST_FEEDBACK) jobs[r].set[n++] = "comm.compression.warmup=0";
        for (int i = 0; i < 5 && more[i] != NULL; i++) jobs[r].set[n++] = more[i];
        assert_int_equal(pthread_create(&threads[r], NULL, job_main, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        if (jobs[r].st != ST_OK) print_error("%s: %s\n", modes[mode], jobs[r].text);
        assert_int_equal(jobs[r].st, ST_OK);
        assert_same(jobs[r].weights, jobs[0].weights);
        while (jobs[same].stage != jobs[r].stage) same++;
        assert_same(jobs[r].whole, jobs[same].whole);
        while (jobs[same].stage != jobs[r].stage || jobs[same].piece != jobs[r].piece) same++;
        assert_same(jobs[r].cut, jobs[same].cut);
        assert_true(jobs[r].error > 0 && jobs[r].error == jobs[0].error);
        assert_true(jobs[r].error < 1);
        assert_false(jobs[r].drifts);
        // The predicted size is exact, residuals and workspace included.
        assert_int_equal(jobs[r].arena_bytes, jobs[r].predicted_bytes);
        assert_true(jobs[r].touched_bytes <= jobs[r].predicted_bytes);
    }
    comm_control_block_unmap(control_block);
}

static void weights_are_the_same_on_all_ranks(void **state)
{
    (void)state;
    static const char *const layouts[][5] = {{"layout.dp=2", "layout.zero=0"},
                                             {"layout.dp=2", "layout.zero=1"},
                                             {"layout.dp=3", "layout.zero=0"},
                                             {"layout.dp=3", "layout.zero=1"}};
    for (int i = 0; i < MODES * COUNT_OF(layouts); i++) {
        const int mode = i / COUNT_OF(layouts), at = i % COUNT_OF(layouts);
        if (part_skips(TRIALS_PART, at, COUNT_OF(layouts), mode, MODES)) continue;
        weights_agree(mode, 2 + at / 2, layouts[at]);
    }
}

// Verifies the plans of all ranks, made as a run makes them.
static void plans_are_sound(int mode, const char *const more[5])
{
    run_config r;
    config *c = NULL;
    decoder_spec spec;
    arena *a = NULL;
    const assemble_options options = {.threads = 1, .device = "cpu", .backend = "cpu"};
    assemble_proved proved = {0};
    const char *set[9] = {"model.vocab=257", "kernels.threads=1", modes[mode]};
    int n = 3;
    if (mode >= FIRST_FEEDBACK) set[n++] = "comm.compression.warmup=0";
    for (int i = 0; i < 5 && more[i] != NULL; i++) set[n++] = more[i];
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    test_config("sound", set, n, a, &r, &c);
    assert_int_equal(model_spec_from_config(host_real(), a, &r, &spec), ST_OK);
    const status st = assemble_prove(host_real(), a, &r, &spec, &options, &proved);
    if (st != ST_OK) print_error("%s, %s: %s\n", modes[mode], more[0], error_last()->text);
    assert_int_equal(st, ST_OK);
    arena_destroy(a);
}

typedef struct ranks_layout {
    int ranks;
    const char *set[5];
} ranks_layout;

// Tries each layout with each codec that differs from the others; the daily test tries some.
static void layouts_agree(const ranks_layout *layouts, int count)
{
    for (int i = 0; i < UNLIKE * count; i++) {
        const int turn = i / count, at = i % count;
        if (part_skips(TRIALS_PART, at, count, turn, UNLIKE)) continue;
        plans_are_sound(unlike[turn], layouts[at].set);
        weights_agree(unlike[turn], layouts[at].ranks, layouts[at].set);
    }
}

// Weights that tp replicates have the same error on each rank, also with fewer key heads than ranks
// and with a vocabulary that two does not divide. The ranks of a stage sum the stage's weights.
static void pieces_and_stages_agree(void **state)
{
    (void)state;
    static const ranks_layout layouts[] = {
        {4, {"layout.dp=2", "layout.tp=2", "layout.zero=0"}},
        {4, {"layout.dp=2", "layout.tp=2", "layout.zero=1", "layout.sp=yes"}},
        {8, {"layout.dp=2", "layout.tp=4", "layout.zero=0"}},
        {8, {"layout.dp=2", "layout.tp=4", "layout.zero=1"}},
        {4, {"layout.dp=2", "layout.pp=2", "layout.zero=0", "model.tied=yes"}},
        {4, {"layout.dp=2", "layout.pp=2", "layout.zero=1", "model.tied=yes"}},
        {4, {"layout.dp=2", "layout.pp=2", "layout.schedule=dualpipe", "train.micro_batch=1"}},
        {8, {"layout.dp=2", "layout.pp=2", "layout.tp=2", "layout.zero=1"}},
        {4, {"layout.dp=2", "layout.cp=2", "layout.zero=0"}},
    };
    layouts_agree(layouts, COUNT_OF(layouts));
}

// Rows that dp replicates or that cp cuts too, and layouts where the last rank of each copy has no
// rows.
static void copies_of_rows_agree(void **state)
{
    (void)state;
    static const ranks_layout layouts[] = {
        {4, {"layout.dp=4", "layout.zero=1", "layout.zero_group=2"}},
        {4, {"layout.dp=2", "layout.zero=1", "layout.cp=2"}},
        {6, {"layout.dp=6", "layout.zero=1", "layout.zero_group=2"}},
        {8, {"layout.dp=4", "layout.zero=1", "layout.zero_group=2", "layout.cp=2"}},
        {8, {"layout.dp=4", "layout.zero=1", "layout.zero_group=2", "layout.tp=2"}},
        {8, {"layout.dp=2", "layout.zero=1", "layout.cp=2", "layout.tp=2"}},
        {8, {"layout.dp=4", "layout.zero=1", "layout.zero_group=2", "layout.pp=2"}},
        {8, {"layout.dp=8", "layout.zero=1", "layout.zero_group=4", "model.ffn_dim=3"}},
    };
    layouts_agree(layouts, COUNT_OF(layouts));
}

// ---- whole runs ---------------------------------------------------------------------------------
static int settings(const char **out, const char *mode, const char *more, const char *ranks)
{
    int n = 0;
    out[n++] = "kernels.threads=1";
    out[n++] = "train.steps=12";
    out[n++] = ranks;
    if (mode != NULL) out[n++] = mode;
    if (more != NULL) out[n++] = more;
    return n;
}

// Relative difference of the loss after 12 steps; measured: 3e-6 (bf16), 5e-4 (int8), 8e-5 (fp8),
// 0.03, 0.02.
static void losses_are_near(void **state)
{
    (void)state;
    static const double near[] = {2e-5, 1e-3, 2e-3, 0.2, 0.2};
    const char *set[8];
    int n = settings(set, NULL, NULL, "layout.dp=2");
    assert_int_equal(ranks_run("plain", set, n, 2, "auto", 0, NULL), ST_OK);
    const double plain = rank_runs[0].seen.last_loss;
    for (int mode = 0; mode < MODES; mode++) {
        char name[32];
        const bool feedback = mode >= FIRST_FEEDBACK;
        (void)snprintf(name, sizeof(name), "near-%d", mode);
        n = settings(set, modes[mode], feedback ? "comm.compression.warmup=2" : NULL,
                     "layout.dp=2");
        if (mode == FIRST_FEEDBACK) set[n++] = "comm.compression.keep=0.1";
        assert_int_equal(ranks_run(name, set, n, 2, "auto", 0, NULL), ST_OK);
        const double loss = rank_runs[0].seen.last_loss, far = fabs(loss - plain) / plain;
        print_message("%s: loss %.6f, without %.6f: %.2g apart\n", modes[mode], loss, plain, far);
        assert_true(far > 0.0 && far <= near[mode]);
        assert_true(loss < 0.95 * rank_runs[0].seen.first_loss); // it learns
    }
}

// Ranks that differ in positions contribute terms like ranks that differ in sequences.
static void positions_are_near(void **state)
{
    (void)state;
    static const char *const layouts[][2] = {{"layout.cp=2", NULL}, {"layout.cp=2", "layout.dp=2"}};
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const char *set[8];
        const int ranks = 2 << i;
        int n = settings(set, NULL, layouts[i][1], layouts[i][0]);
        assert_int_equal(
            ranks_run(i == 0 ? "cp-plain" : "cp-dp-plain", set, n, ranks, "auto", 0, NULL), ST_OK);
        const double plain = rank_runs[0].seen.last_loss;
        for (int mode = 0; mode < FIRST_FEEDBACK; mode++) {
            char name[32];
            if (part_skips(TRIALS_PART, i, COUNT_OF(layouts), mode, FIRST_FEEDBACK)) continue;
            (void)snprintf(name, sizeof(name), "cp-%d-%d", i, mode);
            set[n] = modes[mode];
            assert_int_equal(ranks_run(name, set, n + 1, ranks, "auto", 0, NULL), ST_OK);
            const double loss = rank_runs[0].seen.last_loss, far = fabs(loss - plain) / plain;
            print_message("cp, %s: loss %.6f, without %.6f: %.2g apart\n", modes[mode], loss, plain,
                          far);
            assert_true(far > 0.0 && far <= 2e-3);
        }
    }
}

// A run that stops twice, during warm-up and after it, and resumes has the same residuals, to the
// bit.
static void residuals_survive(void **state)
{
    (void)state;
    static const char *const cuts[] = {"layout.zero=0", "layout.zero=1"};
    for (int i = 0; i < 2 * (MODES - FIRST_FEEDBACK); i++) {
        const char *set[8];
        char straight[32], stopped[32];
        hash128 want, got;
        if (part_skips(TRIALS_PART, i % 2, 2, i / 2, MODES - FIRST_FEEDBACK)) continue;
        int n = settings(set, modes[FIRST_FEEDBACK + i / 2], "comm.compression.warmup=3",
                         i < 2 ? "layout.dp=2" : "layout.dp=3");
        set[n++] = cuts[i % 2];
        const int ranks = i < 2 ? 2 : 3;
        (void)snprintf(straight, sizeof(straight), "straight-%d", i);
        (void)snprintf(stopped, sizeof(stopped), "stopped-%d", i);
        assert_int_equal(ranks_run(straight, set, n, ranks, "auto", 0, &want), ST_OK);
        assert_int_equal(ranks_run(stopped, set, n, ranks, "auto", 2, NULL), ST_STOPPED);
        assert_int_equal(ranks_run(stopped, set, n, ranks, "auto", 7, NULL), ST_STOPPED);
        assert_int_equal(ranks_run(stopped, set, n, ranks, "auto", 0, &got), ST_OK);
        assert_same(want, got);
        assert_null(strstr(rank_runs[0].seen.said, "begins at zero"));
    }
}

// With tp, pp, cp and copies the losses equal those of whole ranks and are near those of an
// uncompressed run; the checkpoint has the residuals of each rank.
static void pieces_stages_and_copies_are_near(void **state)
{
    (void)state;
    static const char *const layouts[][3] = {
        {"layout.dp=2", "layout.tp=2"},
        {"layout.dp=2", "layout.pp=2"},
        {"layout.dp=2", "layout.cp=2"},
        {"layout.dp=4", "layout.zero=1", "layout.zero_group=2"},
        {"layout.dp=2", "layout.zero=1", "layout.cp=2"},
    };
    static const double near[] = {[1] = 1e-3, [3] = 0.2, [4] = 0.2};
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const char *set[8];
        char name[32];
        int n = settings(set, layouts[i][1], layouts[i][2], layouts[i][0]);
        (void)snprintf(name, sizeof(name), "parts-%d", i);
        assert_int_equal(ranks_run(name, set, n, 4, "auto", 0, NULL), ST_OK);
        const double plain = rank_runs[0].seen.last_loss;
        for (int turn = 0; turn < UNLIKE; turn++) {
            hash128 want, got;
            const int mode = unlike[turn];
            if (part_skips(TRIALS_PART, i, COUNT_OF(layouts), turn, UNLIKE)) continue;
            set[n] = modes[mode];
            set[n + 1] = "comm.compression.warmup=2";
            set[n + 2] = "comm.compression.keep=0.1";
            const int count = n + 1 + (mode >= FIRST_FEEDBACK) + (mode == FIRST_FEEDBACK);
            (void)snprintf(name, sizeof(name), "parts-%d-%d", i, mode);
            assert_int_equal(ranks_run(name, set, count, 4, "auto", 0, &want), ST_OK);
            const double loss = rank_runs[0].seen.last_loss, far = fabs(loss - plain) / plain;
            print_message("%s, %s, %s: loss %.6f, without %.6f: %.2g apart\n", layouts[i][0],
                          layouts[i][COUNT_OF(layouts[i]) - 1 - (layouts[i][2] == NULL)],
                          modes[mode], loss, plain, far);
            assert_true(far > 0.0 && far <= near[mode]);
            assert_true(loss < 0.95 * rank_runs[0].seen.first_loss);
            (void)snprintf(name, sizeof(name), "parts-again-%d-%d", i, mode);
            assert_int_equal(ranks_run(name, set, count, 4, "auto", 5, NULL), ST_STOPPED);
            assert_int_equal(ranks_run(name, set, count, 4, "auto", 0, &got), ST_OK);
            assert_same(want, got);
            assert_null(strstr(rank_runs[0].seen.said, "begins at zero"));
        }
    }
}

// With another number of ranks the residuals have no meaning: they begin at zero, and the log says
// so.
static void residuals_are_of_a_layout(void **state)
{
    (void)state;
    const char *set[8];
    int n = settings(set, "comm.compression=topk", "comm.compression.warmup=1", "layout.dp=2");
    assert_int_equal(ranks_run("grows", set, n, 2, "auto", 4, NULL), ST_STOPPED);
    n = settings(set, "comm.compression=topk", "comm.compression.warmup=1", "layout.dp=3");
    assert_int_equal(ranks_run("grows", set, n, 3, "auto", 8, NULL), ST_STOPPED);
    assert_non_null(strstr(rank_runs[0].seen.said, "begins at zero for 4 of 4 buckets"));
    n = settings(set, "comm.compression=topk", "comm.compression.warmup=1", "layout.dp=2");
    set[n++] = "layout.tp=2";
    assert_int_equal(ranks_run("grows", set, n, 4, "auto", 9, NULL), ST_STOPPED);
    assert_non_null(strstr(rank_runs[0].seen.said, "begins at zero for 7 of 7 buckets"));
    // Stages have the same sums as a single stage, unless they share a weight.
    set[n - 1] = "layout.pp=2";
    assert_int_equal(ranks_run("moves", set, n - 1, 2, "auto", 4, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("moves", set, n, 4, "auto", 8, NULL), ST_STOPPED);
    assert_null(strstr(rank_runs[0].seen.said, "begins at zero"));
    // Rows cut differently by the same number of ranks have other sums too; those with one sum keep
    // their residuals.
    static const char *const copies[][3] = {{"layout.dp=2", "layout.zero=1", "layout.cp=2"},
                                            {"layout.dp=4", "layout.zero=1", "layout.zero_group=2"},
                                            {"layout.dp=4", "layout.zero=1", NULL}};
    for (int i = 0; i < COUNT_OF(copies); i++) {
        n = settings(set, "comm.compression=topk", "comm.compression.warmup=1", copies[i][0]);
        for (int k = 1; k < 3 && copies[i][k] != NULL; k++) set[n++] = copies[i][k];
        assert_int_equal(ranks_run("copies", set, n, 4, "auto", 3 + 3 * i, NULL), ST_STOPPED);
        if (i == 0) continue;
        assert_non_null(strstr(rank_runs[0].seen.said, i == 1 ? "begins at zero for 20 of 23"
                                                              : "begins at zero for 10 of 13"));
    }
    const char *const alone[] = {"train.steps=12", "layout.dp=1"};
    run_seen seen = {0};
    assert_int_equal(test_run("grows", alone, 2, "auto", &seen, NULL), ST_OK);
}

// ---- the bound ----------------------------------------------------------------------------------
static char *file_of(arena *a, const char *name, const char *which)
{
    char path[256], *bytes = NULL;
    int64_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/%s", test_folder, name, which);
    assert_int_equal(host_read_all(host_real(), a, path, 1 << 24, &bytes, &count), ST_OK);
    return bytes;
}

// Counts lines of metrics.jsonl that have an error; they must be the first ones.
static int lines_with_errors(arena *a, const char *name)
{
    int with = 0, lines = 0;
    char *at = file_of(a, name, "metrics.jsonl");
    for (char *line = strtok(at, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        if (strstr(line, "\"codec_errors\": [") == NULL) continue;
        assert_int_equal(with++, lines);
    }
    assert_int_equal(lines, 12);
    return with;
}

static void all_ranks_switch_at_the_same_step(void **state)
{
    (void)state;
    const char *set[8];
    hash128 straight, stopped;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    // Step 1 breaks the bound, step 2 is posted already, step 3 is uncompressed.
    const int n =
        settings(set, "comm.compression=int8", "comm.compression.bound=1e-4", "layout.dp=3");
    assert_int_equal(ranks_run("switch", set, n, 3, "auto", 0, &straight), ST_OK);
    for (int i = 0; i < 3; i++) {
        assert_non_null(
            strstr(rank_runs[i].seen.said, "gradients are not compressed from step 3 on"));
    }
    assert_int_equal(lines_with_errors(a, "switch"), 2);
    assert_non_null(strstr(file_of(a, "switch", "run.json"), "\"whole_from_step\": 3"));
    // Stopping right after the bound is broken, or long after, changes neither the step nor the
    // bits.
    assert_int_equal(ranks_run("broken", set, n, 3, "auto", 1, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("broken", set, n, 3, "auto", 5, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("broken", set, n, 3, "auto", 0, &stopped), ST_OK);
    assert_same(straight, stopped);
    assert_int_equal(lines_with_errors(a, "broken"), 2);
    assert_non_null(strstr(rank_runs[2].seen.said, "gradients are not compressed from step 3 on"));
    assert_non_null(strstr(file_of(a, "broken", "run.json"), "\"whole_from_step\": 3"));
    arena_destroy(a);
}

// All stages and all ranks with pieces or copies switch, even if the sums of one stage alone break
// the bound.
static void ranks_of_all_stages_switch(void **state)
{
    (void)state;
    static const char *const layouts[][3] = {
        {"layout.dp=2", "layout.tp=2"},
        {"layout.dp=2", "layout.pp=2"},
        {"layout.dp=4", "layout.zero=1", "layout.zero_group=2"},
        {"layout.dp=2", "layout.zero=1", "layout.cp=2"},
    };
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const char *set[8];
        char name[32];
        hash128 straight, stopped;
        int n =
            settings(set, "comm.compression=int8", "comm.compression.bound=1e-4", layouts[i][0]);
        for (int k = 1; k < 3 && layouts[i][k] != NULL; k++) set[n++] = layouts[i][k];
        (void)snprintf(name, sizeof(name), "switch-%d", i);
        assert_int_equal(ranks_run(name, set, n, 4, "auto", 0, &straight), ST_OK);
        for (int r = 0; r < 4; r++) {
            assert_non_null(
                strstr(rank_runs[r].seen.said, "gradients are not compressed from step 3 on"));
        }
        (void)snprintf(name, sizeof(name), "broken-%d", i);
        assert_int_equal(ranks_run(name, set, n, 4, "auto", 1, NULL), ST_STOPPED);
        assert_int_equal(ranks_run(name, set, n, 4, "auto", 0, &stopped), ST_OK);
        assert_same(straight, stopped);
    }
}

static void within_the_bound_compression_stays(void **state)
{
    (void)state;
    const char *set[8];
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const int n = settings(set, "comm.compression=int8", NULL, "layout.dp=2");
    assert_int_equal(ranks_run("within", set, n, 2, "auto", 0, NULL), ST_OK);
    assert_int_equal(lines_with_errors(a, "within"), 12);
    assert_null(strstr(file_of(a, "within", "run.json"), "whole_from_step"));
    assert_null(strstr(rank_runs[0].seen.said, "not compressed"));
    arena_destroy(a);
}

// A batch ramp, and weights that two layers share: one plan of each kind for each batch size.
static void ramps_and_shared_weights(void **state)
{
    (void)state;
    const char *const set[] = {"layout.dp=2",          "kernels.threads=1",
                               "model.tied=yes",       "train.batch_ramp=0=4,2=6,4=8",
                               "comm.compression=fp8", "layout.zero=1"};
    hash128 straight, again;
    assert_int_equal(ranks_run("ramp", set, COUNT_OF(set), 2, "auto", 0, &straight), ST_OK);
    assert_int_equal(ranks_run("ramp-again", set, COUNT_OF(set), 2, "auto", 3, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("ramp-again", set, COUNT_OF(set), 2, "auto", 0, &again), ST_OK);
    assert_same(straight, again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_same_on_all_ranks),
        cmocka_unit_test(pieces_and_stages_agree),
        cmocka_unit_test(copies_of_rows_agree),
        cmocka_unit_test(losses_are_near),
        cmocka_unit_test(positions_are_near),
        cmocka_unit_test(residuals_survive),
        cmocka_unit_test(pieces_stages_and_copies_are_near),
        cmocka_unit_test(residuals_are_of_a_layout),
        cmocka_unit_test(all_ranks_switch_at_the_same_step),
        cmocka_unit_test(ranks_of_all_stages_switch),
        cmocka_unit_test(within_the_bound_compression_stays),
        cmocka_unit_test(ramps_and_shared_weights),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
