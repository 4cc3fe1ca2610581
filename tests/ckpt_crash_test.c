// Tests which checkpoints a crash leaves, state by state.
//
// A whole run trains on a disk in memory that logs every change (support/crash_host.h). Every
// prefix of that log is a moment at which the process may be killed, and for each of them the disk
// gives the states that a power cut may leave. In each such state the test reads the folder as the
// next start would. Every checkpoint with a manifest must be complete and have the digest of the
// uninterrupted run, the newest one must be one that the table of kill points allows, and two must
// remain once two were made. Some states are resumed to the last step, whose digest must be that of
// the uninterrupted run.
//
// The test also sweeps the errors of single calls: the k-th call fails, and that costs one
// checkpoint.
#include "tests/support/crash_host.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif
#if defined(CKPT_CRASH_NIGHT)
enum { EXHAUSTIVE = 10, SAMPLES = 400, RESUME_EVERY = 40, FAULT_EVERY = 1 };
#elif defined(SANITIZED)
enum { EXHAUSTIVE = 2, SAMPLES = 1, RESUME_EVERY = 100, FAULT_EVERY = 37 };
#else
enum { EXHAUSTIVE = 3, SAMPLES = 4, RESUME_EVERY = 150, FAULT_EVERY = 17 };
#endif
enum { STEPS = 8, SAVE_EVERY = 2, MOST_STEPS = 64, FOLDER_CALLS = 5 };
#define FOLDER "/run/checkpoints"

typedef struct digests {
    hash128 of[MOST_STEPS];
    bool known[MOST_STEPS];
} digests;

static digests straight;
static int64_t states_tried, resumes_tried;
static uint64_t dice = 0x9e3779b97f4a7c15u;

static uint64_t roll(uint64_t sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % sides;
}

// ---- runs ---------------------------------------------------------------------------------------

static sim_disk *fresh_disk(void)
{
    sim_disk *d = sim_disk_create();
    crash_host *c = crash_host_create(d);
    char prose[6000];
    for (int i = 0; i < (int)sizeof(prose); i++) prose[i] = "the ship rows on "[(i * i / 7) % 17];
    assert_int_equal(c->h.api->path_mkdir(&c->h, "/data"), ST_OK);
    assert_int_equal(host_write_all(&c->h, "/data/text.txt", prose, sizeof(prose)), ST_OK);
    c->disk = NULL;
    crash_host_destroy(c);
    return d;
}

// Checkpoints are ordered by fork, then by step.
enum { FORK = 1000 };
static int64_t order_of_name(const char *name)
{
    int64_t step = 0, fork = 0;
    return ckpt_name_parse(name, &step, &fork) ? fork * FORK + step : -1;
}

static void on_saved(void *context, const train_saved *saved)
{
    crash_host *c = context;
    pthread_mutex_lock(&c->lock);
    c->mark = order_of_name(path_base_name(saved->path));
    pthread_mutex_unlock(&c->lock);
}

typedef struct run_with {
    const char *keep, *resume;
    int64_t steps;
} run_with;

static status run_on(crash_host *c, const run_with *w)
{
    char steps[40], keep[40], every[40];
    (void)snprintf(steps, sizeof(steps), "train.steps=%lld", (long long)w->steps);
    (void)snprintf(keep, sizeof(keep), "checkpoint.keep=%s", w->keep);
    (void)snprintf(every, sizeof(every), "checkpoint.every=%d", SAVE_EVERY);
    const char *const keys[] = {"run.dir=/run",
                                "data.train=/data/text.txt",
                                "data.tokenizer=bytes",
                                "model.arch=llama",
                                "model.layers=1",
                                "model.dim=8",
                                "model.heads=1",
                                "model.ffn_dim=8",
                                "train.seq=8",
                                "train.global_batch=2",
                                "train.micro_batch=2",
                                "optimizer.lr=1e-2",
                                "schedule.name=constant",
                                "eval.every=4",
                                "eval.batches=1",
                                "determinism=strict",
                                "kernels.threads=1",
                                steps,
                                keep,
                                every};
    arena *a = NULL;
    run_config r;
    config *conf = NULL;
    train_outcome outcome;
    memset(&r, 0, sizeof(r));
    assert_int_equal(arena_create("run", 0, &a), ST_OK);
    assert_int_equal(run_config_load(&c->h, a, NULL, keys, COUNT_OF(keys), &r, &conf), ST_OK);
    const train_watcher watcher = {.context = c, .saved = on_saved};
    const train_order order = {.r = &r, .c = conf, .resume = w->resume, .watcher = &watcher};
    const status st = train_run(&c->h, a, &order, &outcome);
    arena_destroy(a);
    assert_int_equal(c->open_files, 0);
    return st;
}

// ---- what a state must be -----------------------------------------------------------------------

typedef struct found {
    int64_t newest, count; // of checkpoints with a manifest; newest (fork and step) 0: none
    const char *wrong;     // NULL: all are complete
} found;

static found look(const crash_host *c)
{
    static char wrong[ERROR_TEXT_BYTES + 256];
    found f = {0};
    file_names names = {0};
    arena *a = NULL;
    file_info info;
    assert_int_equal(arena_create("look", 0, &a), ST_OK);
    assert_int_equal(c->h.api->path_info(&c->h, FOLDER, &info), ST_OK);
    if (info.kind == FILE_KIND_FOLDER) {
        assert_int_equal(c->h.api->path_list(&c->h, a, FOLDER, &names), ST_OK);
    }
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL, *manifest = NULL;
        const int64_t order = order_of_name(names.names[i]), step = order % FORK;
        if (order < 0) continue;
        assert_int_equal(arena_format(a, &path, FOLDER "/%s", names.names[i]), ST_OK);
        assert_int_equal(arena_format(a, &manifest, "%s/manifest.json", path), ST_OK);
        assert_int_equal(c->h.api->path_info(&c->h, manifest, &info), ST_OK);
        if (info.kind == FILE_KIND_NONE) continue;
        hash128 digest = {0, 0};
        const status st = ckpt_digest(&c->h, a, path, &digest);
        const bool same = st == ST_OK && step < MOST_STEPS && straight.known[step] &&
                          digest.high == straight.of[step].high &&
                          digest.low == straight.of[step].low;
        if (!same) {
            (void)snprintf(wrong, sizeof(wrong), "%s: %s", names.names[i],
                           st == ST_OK ? "another digest" : error_last()->text);
            f.wrong = wrong;
        }
        f.count++;
        f.newest = max_i64(f.newest, order);
    }
    arena_destroy(a);
    error_clear();
    return f;
}

// Checkpoints that must exist after the log's first `count` changes.
typedef struct due {
    int64_t least, most; // of the newest checkpoint
    int64_t two;         // at least two checkpoints
} due;

// A recording: its initial state, and all changes since.
typedef struct story {
    sim_disk *begin;
    sim_log *log;
    int64_t newest, count;           // in the folder at the beginning
    bool inside[SIM_MAX_NODES];      // nodes of the checkpoints' folder and below
    int64_t order_of[SIM_MAX_NODES]; // of a checkpoint's folder; 0: none
} story;

static void story_walk(story *s, int32_t node)
{
    const sim_node *n = &s->begin->nodes[node];
    for (int32_t i = 0; i < n->entry_count; i++) {
        const int32_t child = n->entries[i].node;
        s->inside[child] = s->inside[node] || strcmp(n->entries[i].name, "checkpoints") == 0;
        s->order_of[child] = max_i64(0, order_of_name(n->entries[i].name));
        story_walk(s, child);
    }
}

static void story_index(story *s)
{
    memset(s->inside, 0, sizeof(s->inside));
    memset(s->order_of, 0, sizeof(s->order_of));
    story_walk(s, SIM_ROOT);
    for (int64_t i = 0; i < s->log->count; i++) {
        const sim_op *op = &s->log->ops[i];
        if (op->kind != SIM_ADD) continue;
        s->inside[op->node] = s->inside[op->folder] || strcmp(op->name, "checkpoints") == 0;
        s->order_of[op->node] = max_i64(0, order_of_name(op->name));
    }
}

static bool is_inside(const story *s, const sim_op *op)
{
    return s->inside[op->node] || s->inside[op->folder] || s->inside[op->to_folder];
}

static due due_at(const story *s, int64_t count, bool power)
{
    due d = {.least = s->newest, .most = s->newest};
    int64_t whole = s->count;
    for (int64_t i = 0; i < count; i++) {
        const sim_op *op = &s->log->ops[i];
        if (op->kind != SIM_RENAME || strcmp(op->to_name, "manifest.json") != 0) continue;
        const int64_t order = s->order_of[op->to_folder];
        d.most = max_i64(d.most, order);
        if (power && !sim_is_durable(s->log, i, count)) continue;
        d.least = max_i64(d.least, order);
        whole++;
    }
    d.two = min_i64(2, whole);
    return d;
}

static bool state_is_right(const found *f, const due *d, int64_t told)
{
    return f->wrong == NULL && f->newest >= d->least && f->newest <= d->most &&
           f->count >= d->two && d->least >= told;
}

// ---- crash states -------------------------------------------------------------------------------

enum { MAX_PENDING = 512 };

typedef struct cut {
    int64_t count;                // changes done
    int64_t pending[MAX_PENDING]; // changes inside the folder that are not durable
    int pending_count;
    bool is_durable[SIM_MAX_OPS];
} cut;

static void cut_at(const story *s, int64_t count, cut *c)
{
    c->count = count;
    c->pending_count = 0;
    for (int64_t i = 0; i < count; i++) {
        c->is_durable[i] = sim_is_durable(s->log, i, count);
        if (c->is_durable[i] || !is_inside(s, &s->log->ops[i])) continue;
        assert_true(c->pending_count < MAX_PENDING);
        c->pending[c->pending_count++] = i;
    }
}

static sim_fate random_fate(const sim_op *op)
{
    if (op->kind == SIM_WRITE) return (sim_fate)roll(SIM_FATES);
    return roll(2) == 0 ? SIM_LOST : SIM_KEPT;
}

// Makes the disk after the cut. `fates` are those of c->pending, in its order; chance decides about
// all other pending changes.
static sim_disk *cut_disk(const story *s, const cut *c, const sim_fate *fates)
{
    sim_disk *d = sim_disk_copy(s->begin);
    int p = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const sim_op *op = &s->log->ops[i];
        sim_fate fate = SIM_KEPT;
        if (p < c->pending_count && c->pending[p] == i) {
            fate = fates[p++];
        } else if (!c->is_durable[i]) {
            fate = random_fate(op);
        }
        sim_apply(d, op, fate);
    }
    return d;
}

static void show(const found *f, const due *d, int64_t at, int64_t told, uint64_t seed)
{
    print_error("after change %lld (dice %llx): newest %lld, %lld of them, told of %lld; "
                "expected %lld to %lld, at least %lld; %s\n",
                (long long)at, (unsigned long long)seed, (long long)f->newest, (long long)f->count,
                (long long)told, (long long)d->least, (long long)d->most, (long long)d->two,
                f->wrong != NULL ? f->wrong : "all whole");
}

// Resumes from the given disk and takes ownership of it. Afterwards the folder is tidy and the last
// step is right.
static void resume_from(sim_disk *take, const char *keep)
{
    crash_host *c = crash_host_create(take);
    const run_with w = {.keep = keep, .resume = "auto", .steps = STEPS + 2};
    const status st = run_on(c, &w);
    if (st != ST_OK) print_error("resumed: %s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    const found f = look(c);
    if (f.wrong != NULL) print_error("resumed: %s\n", f.wrong);
    assert_null(f.wrong);
    assert_int_equal(f.newest % FORK, STEPS + 2);
    arena *a = NULL;
    file_names names;
    assert_int_equal(arena_create("tidy", 0, &a), ST_OK);
    assert_int_equal(c->h.api->path_list(&c->h, a, FOLDER, &names), ST_OK);
    int64_t folders = 0;
    for (int64_t i = 0; i < names.count; i++) {
        if (order_of_name(names.names[i]) >= 0) folders++;
    }
    if (folders != f.count)
        print_error("%lld folders are debris\n", (long long)(folders - f.count));
    assert_int_equal(folders, f.count);
    arena_destroy(a);
    crash_host_destroy(c);
    resumes_tried++;
}

// A violation is a failure. Only the test of the test counts violations instead.
typedef struct trial {
    const story *s;
    const char *keep;
    bool expects_violations;
    int64_t violations;
} trial;

static void state_try(trial *t, sim_disk *take, const due *d, int64_t at, int64_t told)
{
    crash_host *c = crash_host_create(take);
    const uint64_t seed = dice;
    const found f = look(c);
    states_tried++;
    const bool right = state_is_right(&f, d, told);
    if (!right) t->violations++;
    if (!right && !t->expects_violations) {
        show(&f, d, at, told, seed);
        assert_true(right);
    }
    const bool resume = !t->expects_violations && states_tried % RESUME_EVERY == 0;
    if (resume) resume_from(sim_disk_copy(take), t->keep);
    crash_host_destroy(c);
}

static void cut_try(trial *t, const cut *c, const due *d, int64_t told)
{
    sim_fate fates[MAX_PENDING];
    const int n = c->pending_count;
    const bool all = n <= EXHAUSTIVE;
    const int64_t samples = all ? (int64_t)1 << n : SAMPLES + 2;
    for (int64_t k = 0; k < samples; k++) {
        for (int i = 0; i < n; i++) {
            const sim_op *op = &t->s->log->ops[c->pending[i]];
            const bool lost = all ? (k >> i & 1) != 0 : k == 0;
            fates[i] = lost ? SIM_LOST : all || k == 1 ? SIM_KEPT : random_fate(op);
        }
        state_try(t, cut_disk(t->s, c, fates), d, c->count, told);
    }
    for (int i = 0; i < n && all; i++) { // torn, and longer without its bytes
        const sim_op *op = &t->s->log->ops[c->pending[i]];
        for (int fate = SIM_TORN; fate <= SIM_HOLE && op->kind == SIM_WRITE; fate++) {
            for (int k = 0; k < n; k++) fates[k] = k == i ? (sim_fate)fate : SIM_KEPT;
            state_try(t, cut_disk(t->s, c, fates), d, c->count, told);
        }
    }
}

// Kills and cuts after every prefix that ends with a change inside the folder.
static void story_try(trial *t)
{
    const story *s = t->s;
    cut *c = sim_alloc(sizeof(*c));
    sim_disk *killed = sim_disk_copy(s->begin);
    for (int64_t count = 0; count <= s->log->count; count++) {
        if (count > 0) sim_apply(killed, &s->log->ops[count - 1], SIM_KEPT);
        if (count > 0 && !is_inside(s, &s->log->ops[count - 1])) continue;
        const int64_t told = count > 0 ? s->log->ops[count - 1].mark : 0;
        due d = due_at(s, count, false);
        state_try(t, sim_disk_copy(killed), &d, count, told);
        d = due_at(s, count, true);
        cut_at(s, count, c);
        cut_try(t, c, &d, told);
    }
    sim_disk_destroy(killed);
    free(c);
}

// Records a run on a copy of `begin`; *end gets the disk afterwards unless it is NULL.
static story record(const sim_disk *begin, const run_with *w, void (*lie)(crash_host *),
                    sim_disk **end)
{
    story s = {.begin = sim_disk_copy(begin), .log = sim_alloc(sizeof(sim_log))};
    crash_host *c = crash_host_create(sim_disk_copy(begin));
    const found f = look(c);
    assert_null(f.wrong);
    s.newest = f.newest;
    s.count = f.count;
    c->log = s.log;
    c->mark = f.newest;
    if (lie != NULL) lie(c);
    const status st = run_on(c, w);
    if (st != ST_OK) print_error("recorded: %s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    if (end != NULL) {
        *end = c->disk;
        c->disk = NULL;
    }
    crash_host_destroy(c);
    story_index(&s);
    return s;
}

static void story_end(story *s)
{
    sim_log_clear(s->log);
    free(s->log);
    sim_disk_destroy(s->begin);
}

static void try_run(const sim_disk *begin, const run_with *w, const char *name, sim_disk **end)
{
    const int64_t before = states_tried, resumes = resumes_tried;
    story s = record(begin, w, NULL, end);
    trial t = {.s = &s, .keep = w->keep};
    story_try(&t);
    print_message("%s: %lld changes, %lld crash states, %lld of them resumed\n", name,
                  (long long)s.log->count, (long long)(states_tried - before),
                  (long long)(resumes_tried - resumes));
    story_end(&s);
}

// ---- the tests ----------------------------------------------------------------------------------

static int make_straight(void **state)
{
    (void)state;
    crash_host *c = crash_host_create(fresh_disk());
    const run_with w = {.keep = "1000", .resume = "none", .steps = STEPS + 2};
    if (run_on(c, &w) != ST_OK) return -1;
    arena *a = NULL;
    assert_int_equal(arena_create("straight", 0, &a), ST_OK);
    for (int64_t step = SAVE_EVERY; step <= STEPS + 2; step += SAVE_EVERY) {
        char *path = NULL;
        assert_int_equal(arena_format(a, &path, FOLDER "/step-%07lld", (long long)step), ST_OK);
        assert_int_equal(ckpt_digest(&c->h, a, path, &straight.of[step]), ST_OK);
        straight.known[step] = true;
    }
    arena_destroy(a);
    crash_host_destroy(c);
    return 0;
}

// Covers the first save to the last, including saves that prune and saves of the best.
static void a_run_survives_every_cut(void **state)
{
    (void)state;
    sim_disk *fresh = fresh_disk(), *end = NULL;
    try_run(fresh, &(run_with){"2", "auto", STEPS}, "fresh run, keep 2", &end);
    sim_disk_destroy(fresh);
    try_run(end, &(run_with){"2", "auto", STEPS + 2}, "run gone on with", NULL);
    sim_disk_destroy(end);
}

static void keep_of_one_keeps_two(void **state)
{
    (void)state;
    sim_disk *fresh = fresh_disk();
    try_run(fresh, &(run_with){"1", "auto", STEPS}, "fresh run, keep 1", NULL);
    sim_disk_destroy(fresh);
}

// Steps that were saved before are repeated and saved again.
static void redone_steps_survive_every_cut(void **state)
{
    (void)state;
    sim_disk *fresh = fresh_disk();
    crash_host *c = crash_host_create(fresh);
    assert_int_equal(run_on(c, &(run_with){"3", "auto", STEPS}), ST_OK);
    try_run(c->disk, &(run_with){"3", FOLDER "/step-0000004", STEPS}, "redone from step 4", NULL);
    crash_host_destroy(c);
}

// A power cut, and a second one while the next start continues from the state that the first left.
static void a_recovery_survives_every_cut(void **state)
{
    (void)state;
    sim_disk *fresh = fresh_disk();
    story s = record(fresh, &(run_with){"2", "auto", STEPS}, NULL, NULL);
    cut *c = sim_alloc(sizeof(*c));
    for (int third = 1; third <= 2; third++) {
        sim_fate fates[MAX_PENDING];
        cut_at(&s, s.log->count * third / 3, c);
        for (int i = 0; i < c->pending_count; i++) {
            fates[i] = random_fate(&s.log->ops[c->pending[i]]);
        }
        sim_disk *left = cut_disk(&s, c, fates);
        try_run(left, &(run_with){"2", "auto", STEPS}, "after a power cut", NULL);
        sim_disk_destroy(left);
    }
    free(c);
    story_end(&s);
    sim_disk_destroy(fresh);
}

static void lie_folder(crash_host *c)
{
    c->forgets_folder_sync = true;
}

static void lie_file(crash_host *c)
{
    c->forgets_file_sync = true;
}

// Moves every manifest's rename to where its temporary file was made.
static void rename_early(sim_log *log)
{
    for (int64_t i = 0; i < log->count; i++) {
        const sim_op op = log->ops[i];
        if (op.kind != SIM_RENAME || strcmp(op.to_name, "manifest.json") != 0) continue;
        int64_t made = i;
        while (made > 0 && !(log->ops[made].kind == SIM_ADD && log->ops[made].node == op.node))
            made--;
        memmove(&log->ops[made + 2], &log->ops[made + 1], sizeof(op) * (size_t)(i - made - 1));
        log->ops[made + 1] = op;
    }
}

// This test must detect a disk that ignores syncs, and a rename before its bytes.
static void a_lost_protection_is_seen(void **state)
{
    (void)state;
    static void (*const lies[])(crash_host *) = {NULL, lie_folder, lie_file, NULL};
    for (int i = 0; i < COUNT_OF(lies); i++) {
        sim_disk *fresh = fresh_disk();
        story s = record(fresh, &(run_with){"2", "auto", 4}, lies[i], NULL);
        if (i == 3) rename_early(s.log);
        trial t = {.s = &s, .keep = "2", .expects_violations = i > 0};
        story_try(&t);
        if (i > 0) assert_true(t.violations > 0);
        story_end(&s);
        sim_disk_destroy(fresh);
    }
}

// A run in which the k-th call on the checkpoints' folder fails, once or from then on.
static status failing_run(const sim_disk *fresh, int64_t k, crash_error error, bool for_ever,
                          bool resume)
{
    crash_host *c = crash_host_create(sim_disk_copy(fresh));
    c->where = FOLDER;
    c->fail_at = k;
    c->fail_count = for_ever ? INT32_MAX : 1;
    c->error = error;
    const status st = run_on(c, &(run_with){"2", "auto", STEPS});
    c->where = NULL; // stop failing, to look
    const found f = look(c);
    const bool known = st == ST_OK || st == ST_IO || st == ST_DISK_FULL || st == ST_DAMAGED;
    const bool right = f.wrong == NULL && known && (st != ST_OK || f.newest == STEPS);
    if (!right) {
        print_error("call %lld fails as %d%s: status %s, newest %lld, %s\n", (long long)k, error,
                    for_ever ? " and all after it" : "", status_name(st), (long long)f.newest,
                    f.wrong != NULL ? f.wrong : "all whole");
    }
    assert_true(right);
    assert_true(c->failed > 0);
    if (resume) resume_from(sim_disk_copy(c->disk), "2");
    crash_host_destroy(c);
    return st;
}

// For every k and every kind of failure: it costs one checkpoint and not the run, except for the
// calls that make the folder.
static void a_failed_call_costs_one_checkpoint(void **state)
{
    (void)state;
    int64_t trials = 0, ended = 0;
    sim_disk *fresh = fresh_disk();
    crash_host *c = crash_host_create(sim_disk_copy(fresh));
    c->where = FOLDER;
    assert_int_equal(run_on(c, &(run_with){"2", "auto", STEPS}), ST_OK);
    const int64_t calls = c->calls;
    crash_host_destroy(c);
    for (int error = 0; error < CRASH_ERRORS; error++) {
        for (int64_t k = 1 + error; k <= calls; k += FAULT_EVERY) {
            trials++;
            const status st = failing_run(fresh, k, (crash_error)error, false, trials % 4 == 0);
            if (st != ST_OK) ended++;
            if (k <= FOLDER_CALLS) continue;
            assert_int_equal(st, ST_OK);
            if (trials % 4 == 1) (void)failing_run(fresh, k, (crash_error)error, true, true);
        }
    }
    sim_disk_destroy(fresh);
    print_message("%lld calls, %lld trials of a failing one, %lld ended the run\n",
                  (long long)calls, (long long)trials, (long long)ended);
}

static int tell(void **state)
{
    (void)state;
    print_message("%lld crash states, %lld resumed\n", (long long)states_tried,
                  (long long)resumes_tried);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_survives_every_cut),
        cmocka_unit_test(keep_of_one_keeps_two),
        cmocka_unit_test(redone_steps_survive_every_cut),
        cmocka_unit_test(a_recovery_survives_every_cut),
        cmocka_unit_test(a_lost_protection_is_seen),
        cmocka_unit_test(a_failed_call_costs_one_checkpoint),
    };
    return cmocka_run_group_tests(tests, make_straight, tell);
}
