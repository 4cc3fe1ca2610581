// resilience.straggler = move: the run goes on with other shares of each step.
//
//   step n    the first rank finds a slow one; all hear of it with the words after step n + 1
//   plan      each rank makes its plan for the new shares, the first one verifies those of all; if
//             one is refused, the run stays as it is
//   keep      each rank keeps its own weights, optimizer state and step block in host memory, and
//             closes its session; no file is written
//   put       the next session, in the same processes and with the same connections, begins from
//             them
//
// ZeRO cuts the state by ranks, not by shares, so each rank's part of it stays with it. In strict
// mode a shard's gradient and the tree over shards do not depend on the rank that computes them, so
// the bits stay; in fast mode sums over micro-batches are grouped otherwise.
#include "assemble/prove.h"
#include "train/process.h"
#include "train/session_health.h"
#include "train/shares.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Moves of one process. Each leaves the memory of its session behind.
enum { MOVES_MAX = 16, PARTS_MAX = 4096 };
static const double least_gain = 1.05; // of the predicted time of a step
static const double slow_most = 16.0;
// The ratios that travel for a rank that is drained: it is not slow, as far as is known.
static const double drained_ratio[HEALTH_PARTS] = {[HEALTH_GPU] = 0.0, [HEALTH_MACHINE] = -1.0};

struct session_kept {
    bool is_full;
    int moves;
    // [dp] time of a sequence when the session began, as a multiple of that of the others; NULL: 1.
    const double *slow;
    int64_t *parts; // [dp] of the step; NULL: those of the configuration
    int64_t count;
    int64_t begin_ns; // of the move
    // The state of a rank.
    plan_table run; // names and sizes of its rows
    void **rows;
    ckpt_info info;
    char *newest, *best;
    int64_t saved_step, fork, skipped_in_a_row, skipped, session_tokens, busy_ns, session_begin_ns;
};

status session_kept_create(arena *a, struct session_kept **out)
{
    return arena_new(a, 1, out);
}

static void rows_free(struct session_kept *c)
{
    for (int64_t i = 0; c->rows != NULL && i < c->run.count; i++) free(c->rows[i]);
    free(c->rows);
    c->rows = NULL;
}

void session_kept_destroy(struct session_kept *c)
{
    if (c != NULL) rows_free(c);
}

bool session_goes_on(const session *s)
{
    return s->kept != NULL && s->kept->is_full;
}

void session_shares_use(session *s, struct session_kept *c)
{
    s->kept = c;
    if (c->parts == NULL) return;
    s->own.layout.parts = c->parts;
    s->own.layout.part_count = c->count;
}

// ---- what is known ------------------------------------------------------------------------------

static int64_t dp_of(const session *s, int64_t rank)
{
    return run_config_mesh(s->r, rank).at[AXIS_DP];
}

double session_shares_scale(const session *s, int64_t rank)
{
    const plan_mesh m = run_config_mesh(s->r, rank);
    const bool strict = s->r->determinism.mode == RUN_STRICT;
    const int64_t batch = run_config_batch(s->r, s->step - 1); // of the step that ended
    int64_t first = 0, own = 0;
    plan_own_sequences(&m, strict, (int32_t)s->r->determinism.shards, batch, &first, &own);
    return own > 0 ? (double)batch / (double)plan_mesh_size(&m, AXIS_DP) / (double)own : 1.0;
}

void session_shares_known(const session *s, stragglers *of)
{
    const struct session_kept *c = s->kept;
    if (c == NULL || c->slow == NULL) return;
    for (int64_t r = 0; r < comm_ranks(s->ranks.all); r++) {
        stragglers_expect(of, r, c->slow[dp_of(s, r)]);
    }
}

void session_shares_found(session *s, const straggler *x)
{
    const int32_t policy = s->r->resilience.straggler;
    const bool moves = policy == RUN_STRAGGLER_MOVE && x->cause == STRAGGLER_COMPUTE;
    const bool evicts = policy == RUN_STRAGGLER_EVICT && !x->is_well &&
                        (x->cause == STRAGGLER_COMPUTE || x->cause == STRAGGLER_DATA);
    if (x->rank < 0 || s->kept == NULL || (!moves && !evicts)) return;
    if (s->move.rank >= 0) return; // another rank goes first
    s->move.rank = x->rank;
    s->move.ratio = x->ratio;
}

bool session_shares_drain(session *s, int64_t rank, health_part part)
{
    struct train_process *p = session_process(s);
    const bool may = s->r->resilience.straggler == RUN_STRAGGLER_EVICT && s->kept != NULL;
    if (!may || p == NULL || s->ranks.hosts == NULL || s->move.rank >= 0) return false;
    for (int i = 0; i < p->drained_count; i++) {
        if (p->drained[i] == rank) return false;
    }
    if (p->drained_count == PROCESS_DRAINED_MAX) return false;
    p->drained[p->drained_count++] = rank;
    s->move.rank = rank;
    s->move.ratio = drained_ratio[part];
    return true;
}

void session_shares_take(session *s, int64_t rank, double ratio)
{
    s->move.rank = -1;
    if (rank < 0) return;
    s->move.slow_rank = rank;
    s->move.slow_ratio = ratio;
    s->move.is_due = true;
    s->move.is_evict = s->r->resilience.straggler == RUN_STRAGGLER_EVICT;
}

// ---- the plan -----------------------------------------------------------------------------------

// Parts of the smallest step: shards, or micro-batches of the usual size.
static int64_t parts_of(const run_config *r)
{
    int64_t least = INT64_MAX;
    if (r->determinism.mode == RUN_STRICT) return r->determinism.shards;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        least = min_i64(least, size / r->train.micro_batch);
    }
    return min_i64(least, PARTS_MAX);
}

static double slow_before(const session *s, int64_t dp)
{
    return s->kept->slow != NULL ? s->kept->slow[dp] : 1.0;
}

// The ratio of a finding is to what was known when the session began, even if an earlier finding
// moved nothing.
static status speeds_take(session *s)
{
    const int64_t dp = s->r->layout.dp, at = dp_of(s, s->move.slow_rank);
    if (s->move.slow == NULL) {
        TRY(arena_new(s->a, dp, &s->move.slow));
        for (int64_t i = 0; i < dp; i++) s->move.slow[i] = slow_before(s, i);
    }
    const double slow = fmin(slow_before(s, at) * s->move.slow_ratio, slow_most);
    s->move.slow[at] = slow < 1.1 ? 1.0 : slow;
    return ST_OK;
}

// True if all ranks can make their plans for these shares, and the verifier accepts them.
static status plans_try(session *s, const run_config *r, bool *is_possible)
{
    arena *work = NULL;
    assemble_options options = s->options;
    assemble_plans *plans = NULL;
    assemble_proved proved;
    error_record why = {.code = ST_OK};
    options.mesh = run_config_mesh(r, comm_rank(s->ranks.all));
    TRY(arena_create("shares", 0, &work));
    status st = arena_new(work, 1, &plans);
    if (st == ST_OK) st = assemble_rank(work, r, &s->spec, &options, plans);
    if (st == ST_OK && session_is_first(s)) {
        st = assemble_prove(s->h, work, r, &s->spec, &options, &proved);
    }
    if (st != ST_OK) error_take(&why);
    arena_destroy(work);
    int worst = (int)st;
    TRY(session_agree(s, &worst, "plans for other shares"));
    *is_possible = worst == ST_OK;
    if (st != ST_OK && session_is_first(s)) {
        session_say(s, LOG_WARN, "micro-batches cannot move: %.800s", why.text);
    }
    return ST_OK;
}

static status shares_say(session *s, const int64_t *parts, int64_t count)
{
    text line = {.a = s->a}, list = {.a = s->a};
    for (int64_t i = 0; i < count; i++) {
        TRY(text_add(&list, "%s%lld", i > 0 ? ", " : "", (long long)parts[i]));
    }
    if (!session_is_first(s)) return ST_OK;
    session_say(s, LOG_INFO, "after step %lld the ranks of dp take other shares: %s",
                (long long)s->step, list.bytes);
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"straggler\", \"rank\": %lld, \"epoch\": %lld, "
                 "\"shares\": [%s], \"cause\": \"micro-batches moved\"}\n",
                 (long long)s->step, (long long)s->move.slow_rank,
                 (long long)(s->memory.order != NULL ? s->memory.order->epoch : 0), list.bytes));
    return session_event(s, &line);
}

status session_shares_plan(session *s)
{
    struct session_kept *c = s->kept;
    const run_config *r = s->r;
    const int64_t dp = r->layout.dp, all = parts_of(r);
    run_config other = *r;
    int64_t *parts = NULL;
    bool is_possible = false;
    if (!s->move.is_due || s->move.is_evict) return ST_OK;
    s->move.is_due = false;
    TRY(speeds_take(s));
    if (all < dp || c->moves >= MOVES_MAX) return ST_OK;
    TRY(arena_new(s->a, dp, &parts));
    train_shares_choose(all, dp, s->move.slow, parts);
    int64_t *now = NULL;
    TRY(arena_new(s->a, dp, &now));
    const plan_mesh m = run_config_mesh(r, 0);
    for (int64_t i = 0; i < dp; i++) {
        now[i] = plan_share_begin(&m, all, i + 1) - plan_share_begin(&m, all, i);
    }
    const double before = train_shares_time(dp, s->move.slow, now);
    if (before < least_gain * train_shares_time(dp, s->move.slow, parts)) return ST_OK;
    other.layout.parts = parts;
    other.layout.part_count = dp;
    c->begin_ns = session_now(s);
    TRY(plans_try(s, &other, &is_possible));
    if (!is_possible) return ST_OK;
    c->slow = s->move.slow;
    c->parts = parts;
    c->count = dp;
    s->move.is_due = true;
    return shares_say(s, parts, dp);
}

// ---- the state ----------------------------------------------------------------------------------

static bool is_kept(const plan_tensor *t)
{
    return t->is_run && (t->role == ROLE_WEIGHT || t->role == ROLE_STATE || t->role == ROLE_STEP);
}

status session_shares_keep(session *s)
{
    struct session_kept *c = s->kept;
    const plan_table *run = &s->plans.run;
    TRY(session_save_poll(s, true));
    rows_free(c);
    c->run = *run; // in the memory of the run, which outlives the session
    c->rows = calloc((size_t)max_i64(run->count, 1), sizeof(*c->rows));
    if (c->rows == NULL) return fail(ST_NO_MEMORY, "no memory for the state");
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (!is_kept(t) || t->bytes == 0) continue;
        c->rows[i] = malloc((size_t)t->bytes);
        if (c->rows[i] == NULL) return fail(ST_NO_MEMORY, "no memory for %s", t->name);
        TRY(exec_read(s->job.e, i, 0, c->rows[i], t->bytes));
    }
    c->info = session_info(s);
    c->newest = s->newest_path;
    c->best = s->best_path;
    c->saved_step = s->saved_step;
    c->fork = s->fork;
    c->skipped_in_a_row = s->skipped_in_a_row;
    c->skipped = s->skipped;
    c->session_tokens = s->session_tokens;
    c->busy_ns = s->busy_ns;
    c->session_begin_ns = s->begin_ns;
    c->moves++;
    c->is_full = true;
    return ST_OK;
}

status session_shares_put(session *s)
{
    struct session_kept *c = s->kept;
    const plan_table *run = &s->plans.run;
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (!is_kept(t) || t->bytes == 0) continue;
        const int64_t from = plan_table_find(&c->run, t->name);
        if (from < 0 || c->rows[from] == NULL || c->run.tensors[from].bytes != t->bytes) {
            return fail(ST_INTERNAL, "%s is not in the state that was kept", t->name);
        }
        TRY(exec_write(s->job.e, i, 0, c->rows[from], t->bytes));
    }
    TRY(session_follow(s, &c->info, c->newest != NULL ? c->newest : ""));
    if (c->best != NULL) (void)snprintf(s->best_path, CKPT_PATH_BYTES, "%s", c->best);
    s->saved_step = c->saved_step;
    s->fork = c->fork;
    s->skipped_in_a_row = c->skipped_in_a_row;
    s->skipped = c->skipped;
    s->session_tokens = c->session_tokens;
    s->busy_ns = c->busy_ns;
    s->begin_ns = c->session_begin_ns;
    rows_free(c);
    if (session_is_first(s)) {
        session_say(s, LOG_INFO, "the other shares took %.2f s",
                    (double)(session_now(s) - c->begin_ns) / 1e9);
    }
    return ST_OK;
}

status session_shares_evict(session *s)
{
    TRY(session_memory_last(s));
    s->leaves = comm_rank(s->ranks.all) == s->move.slow_rank;
    for (int i = 0; i < HEALTH_PARTS; i++) {
        if (s->move.slow_ratio > drained_ratio[i] || s->move.slow_ratio < drained_ratio[i])
            continue;
        return fail(ST_PEER_LOST, "rank %lld was evicted at step %lld because its %s is failing",
                    (long long)s->move.slow_rank, (long long)s->step,
                    health_part_name((health_part)i));
    }
    return fail(ST_PEER_LOST, "rank %lld was slow up to step %lld and was evicted",
                (long long)s->move.slow_rank, (long long)s->step);
}
