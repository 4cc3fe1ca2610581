// Replay of steps while the run trains. Before a step that is replayed, the ranks compute it
// without its update, and then the step itself:
//
//   rank of dp     0       1       2
//   own            share 0 share 1 share 2
//   moved by one   share 1 share 2 share 0      the same weights, and the other's micro-batches
//   the step       share 0 share 1 share 2
//
// Ranks that share experts compute their tokens together, so there a group of ranks takes the
// shares of another group, rank by rank, and the experts of a rank meet the tokens of that group.
//
// In each pass a rank hashes its own gradients before others add theirs (gradients_local.c), so
// each share has three hashes of two ranks. If they differ, passes are repeated, with three ranks
// or more also moved by two, until it is known which rank was wrong, and whether it is wrong again
// (replays.c).
//
// A pass has the plan of the step. The halt flag of the step block masks all of its updates, and
// the block is written back after it, so a pass changes no state. The sums over ranks run too;
// their results are not used, because the terms of another order of ranks have other bits.
//
// Steps are replayed that sdc.replay samples, and the one that is done again after a value was
// found to be wrong. Random numbers follow the sequences (exec_input.moved).
#include "base/hash.h"
#include "train/gradients.h"
#include "train/replays.h"
#include "train/session.h"

#include <stdio.h>
#include <string.h>

enum { PASSES_MAX = 6 };

typedef struct probe_list {
    const exec_probe *items;
    int64_t count;
} probe_list;

// A plan's probes: the usual ones, those of a pass, and all, of a step that is replayed.
typedef struct replay_plan {
    const plan *p;
    probe_list usual, local, both;
} replay_plan;

struct session_replay {
    int64_t every; // of sampled steps; 0: none
    int64_t after; // the step that is done again after a hit; 0: none
    replay_plan *plans;
    int64_t plan_count, weights, ranks;
    int32_t unit;     // ranks compute shares that are a multiple of it further; 0: their own alone
    uint64_t *hashes; // [weight] of this rank, of the pass in progress
    uint64_t *all[PASSES_MAX]; // [rank][weight]
    int32_t by[PASSES_MAX];    // how far the shares were moved
    int count;
    int64_t step; // that is replayed; 0: none
    char *block, *halted;
    int64_t block_row, block_bytes;
    int64_t steps, passes; // replayed; of this session
};

// ---- the plans ----------------------------------------------------------------------------------

static bool is_before(const exec_probe *a, const exec_probe *b)
{
    return a->action != b->action ? a->action < b->action : a->node < b->node;
}

static status plan_probes(session *s, const train_gradients *g, replay_plan *x)
{
    const probe_list *a = &x->usual, *b = &x->local;
    int64_t i = 0, k = 0;
    exec_probe *both = NULL;
    TRY(train_gradients_local(s->a, g, x->p, &x->local.items, &x->local.count));
    x->usual.items = exec_probes_of(s->job.e, x->p, &x->usual.count);
    TRY(arena_new(s->a, a->count + b->count + 1, &both));
    while (i < a->count || k < b->count) {
        const bool is_usual =
            i < a->count && (k == b->count || !is_before(&b->items[k], &a->items[i]));
        both[x->both.count++] = is_usual ? a->items[i++] : b->items[k++];
    }
    x->both.items = both;
    return ST_OK;
}

// Whether the ranks of dp sum the gradients of their shares in the same way: they have as many
// sequences and, in strict order, equal trees over their shards.
static bool are_equivalent(const run_config *r, int64_t sequences)
{
    plan_mesh m = run_config_mesh(r, 0);
    const int64_t dp = r->layout.dp, shards = r->determinism.shards, each = shards / max_i64(dp, 1);
    const bool strict = r->determinism.mode == RUN_STRICT;
    int64_t first = 0, own = 0, least = INT64_MAX, most = 0;
    for (int64_t i = 0; i < dp; i++) {
        m.at[AXIS_DP] = (int32_t)i;
        plan_own_sequences(&m, strict, (int32_t)shards, sequences, &first, &own);
        least = min_i64(least, own);
        most = max_i64(most, own);
    }
    if (least != most || m.share_count == dp) return false;
    if (!strict) return true;
    return shards % dp == 0 && (each & (each - 1)) == 0 && sequences % shards == 0;
}

// By how many places of dp shares may move: ranks that share experts compute them together, so a
// group of them takes the shares of another one. 0: not at all.
static int32_t unit_of(const run_config *r)
{
    const plan_mesh m = run_config_mesh(r, 0);
    const int32_t unit = r->layout.ep > 1 ? plan_ep_dp(&m) : 1;
    if (r->layout.dp < 2 * unit) return 0;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        if (!are_equivalent(r, size)) return 0;
    }
    return unit;
}

// Residuals of compressed sums change in each pass, and completions are drawn in the step.
static bool may_replay(const session *s)
{
    return s->plans.codec.codec == NULL && s->rollouts == NULL;
}

static bool follows_hit(const session *s)
{
    const train_restart *o = s->memory.order;
    return o != NULL && o->epoch > 0 && o->event != NULL && strcmp(o->event, "sdc") == 0 &&
           !session_goes_on(s) && s->step < s->r->train.steps;
}

status session_replay_open(session *s)
{
    const int64_t every = session_record_every(s);
    const bool follows = follows_hit(s);
    struct session_replay *x = NULL;
    if ((every == 0 && !follows) || !may_replay(s)) return ST_OK;
    TRY(arena_new(s->a, 1, &x));
    x->every = every;
    x->after = follows ? s->step + 1 : 0;
    x->unit = unit_of(s->r);
    x->weights = s->plans.model->weight_count;
    x->ranks = s->ranks.all != NULL ? comm_ranks(s->ranks.all) : 1;
    TRY(arena_new(s->a, x->weights + 1, &x->hashes));
    for (int i = 0; i < PASSES_MAX; i++)
        TRY(arena_new(s->a, x->ranks * x->weights + 1, &x->all[i]));
    TRY(arena_new(s->a, s->plans.count, &x->plans));
    const train_gradients g = {.e = s->job.e,
                               .base = train_job_memory(&s->job),
                               .rank = s->ranks.all != NULL ? comm_rank(s->ranks.all) : 0,
                               .hashes = x->hashes};
    for (int64_t i = 0; i < s->plans.count; i++) {
        const plan *p = s->plans.all[i];
        if (p->purpose != PURPOSE_TRAIN) continue;
        x->plans[x->plan_count].p = p;
        TRY(plan_probes(s, &g, &x->plans[x->plan_count++]));
    }
    ASSERT(x->plan_count > 0);
    x->block_row = plan_ref_row(x->plans[0].p->step_ref);
    x->block_bytes = s->plans.run.tensors[x->block_row].bytes;
    TRY(arena_new(s->a, x->block_bytes, &x->block));
    TRY(arena_new(s->a, x->block_bytes, &x->halted));
    s->replay = x;
    return ST_OK;
}

// ---- a pass -------------------------------------------------------------------------------------

static bool is_replayed(const struct session_replay *x, int64_t step)
{
    return step == x->after || (x->every > 0 && step % x->every == 0);
}

static replay_plan *plan_of(const session *s, int64_t step)
{
    struct session_replay *x = s->replay;
    const plan *p = assemble_plan_of(&s->plans, run_config_batch(s->r, step - 1), false);
    int64_t i = 0;
    while (x->plans[i].p != p) ASSERT(++i < x->plan_count);
    return &x->plans[i];
}

static status hashes_share(session *s, int32_t by)
{
    struct session_replay *x = s->replay;
    uint64_t *to = x->all[x->count];
    x->by[x->count++] = by;
    return session_gather(s, x->hashes, to, x->weights * (int64_t)sizeof(*to),
                          "digests of gradients");
}

static void probes_set(session *s, const replay_plan *x, const probe_list *list)
{
    memset(s->replay->hashes, 0, (size_t)s->replay->weights * sizeof(*s->replay->hashes));
    exec_probes_set(s->job.e, x->p, list->items, list->count);
}

// The next step's share of the rank that is `by` places further along dp, without an update.
static status pass_run(session *s, int64_t step, int32_t by)
{
    struct session_replay *x = s->replay;
    const replay_plan *of = plan_of(s, step);
    const int64_t sequences = run_config_batch(s->r, step - 1);
    exec_input input = session_input(s, step, sequences);
    const plan_mesh *m = &s->options.mesh;
    const int32_t at = (m->at[AXIS_DP] + by) % plan_mesh_size(m, AXIS_DP);
    int64_t first = 0, began = 0;
    bool any = false;
    ASSERT(x->count < PASSES_MAX);
    session_progress(s, "replaying a step", false);
    TRY(train_loader_share(s->loader, at, s->sequences, sequences, &input, &first));
    input.moved = first - of->p->first_sequence;
    TRY(exec_write(s->job.e, x->block_row, 0, x->halted, x->block_bytes));
    probes_set(s, of, &of->local);
    TRY(exec_begin(s->job.e, of->p, &input));
    TRY(exec_finish(s->job.e));
    TRY(exec_results(s->job.e, s->results, &began, &any));
    exec_probes_set(s->job.e, of->p, of->usual.items, of->usual.count);
    x->passes++;
    return hashes_share(s, by);
}

// ---- the decision ------------------------------------------------------------------------------

// The rank that computed the share of `owner` in a pass.
static int64_t computed_by(const session *s, int64_t owner, int32_t by)
{
    plan_mesh m = run_config_mesh(s->r, owner);
    const int32_t dp = plan_mesh_size(&m, AXIS_DP);
    m.at[AXIS_DP] = (m.at[AXIS_DP] + dp - by % dp) % dp;
    return plan_mesh_rank(&m);
}

static const uint64_t *hashes_of(const session *s, int64_t owner, int pass)
{
    const struct session_replay *x = s->replay;
    return x->all[pass] + computed_by(s, owner, x->by[pass]) * x->weights;
}

static replay_finding share_decide(const session *s, int64_t owner)
{
    const struct session_replay *x = s->replay;
    replay_value values[PASSES_MAX];
    for (int i = 0; i < x->count; i++) {
        const uint64_t *h = hashes_of(s, owner, i);
        values[i] = (replay_value){computed_by(s, owner, x->by[i]),
                                   hash64(h, x->weights * (int64_t)sizeof(*h), 0)};
    }
    return train_replay_decide(values, x->count);
}

// The first weight whose gradient differs between two passes of a share.
static const char *tensor_of(const session *s, int64_t owner)
{
    const struct session_replay *x = s->replay;
    for (int64_t w = 0; w < x->weights; w++) {
        for (int i = 1; i < x->count; i++) {
            if (hashes_of(s, owner, i)[w] != hashes_of(s, owner, 0)[w]) {
                return s->plans.model->weights[w].name;
            }
        }
    }
    return "none";
}

// The finding about the worst share. AGREE: all agree.
typedef struct replay_found {
    replay_finding j;
    int64_t owner;
} replay_found;

static replay_found worst_find(const session *s)
{
    replay_found worst = {.j = {.verdict = REPLAY_AGREE, .rank = -1}};
    for (int64_t r = 0; r < s->replay->ranks; r++) {
        static const int weight[] = {[REPLAY_AGREE] = 0,
                                     [REPLAY_ONCE] = 1,
                                     [REPLAY_WRONG] = 2,
                                     [REPLAY_UNDECIDED] = 3,
                                     [REPLAY_ALWAYS] = 4};
        const replay_finding j = share_decide(s, r);
        if (weight[j.verdict] > weight[worst.j.verdict]) worst = (replay_found){j, r};
    }
    return worst;
}

static status event_add(session *s, int64_t rank, const char *tensor, const char *verdict)
{
    text line = {.a = s->a};
    TRY(text_add(&line, "{\"step\": %lld, \"event\": \"sdc\", \"rank\": %lld, \"epoch\": %lld, ",
                 (long long)s->replay->step, (long long)rank,
                 (long long)(s->memory.order != NULL ? s->memory.order->epoch : 0)));
    if (tensor != NULL) {
        TRY(text_add(&line, "\"tensor\": "));
        TRY(text_add_json(&line, tensor));
        TRY(text_add(&line, ", "));
    }
    TRY(text_add(&line, "\"verdict\": \"%s\", \"cause\": \"replay\"}\n", verdict));
    return session_event(s, &line);
}

static status finding_add(session *s, const replay_found *f)
{
    if (!session_is_first(s)) return ST_OK;
    return event_add(s, f->j.rank, tensor_of(s, f->owner), replay_verdict_name(f->j.verdict));
}

// A rank that is wrong again and again, or one of two that repeat different values.
static status finding_fail(session *s, const replay_found *f)
{
    const long long step = (long long)s->replay->step, rank = (long long)f->j.rank;
    const char *tensor = tensor_of(s, f->owner);
    TRY(finding_add(s, f));
    if (f->j.verdict == REPLAY_UNDECIDED && f->j.other >= 0) {
        return fail(ST_CORRUPT,
                    "step %lld: the gradient of %s differs between rank %lld and rank %lld for the "
                    "same micro-batches, and both repeat their values; no third rank decides",
                    step, tensor, rank, (long long)f->j.other);
    }
    s->wrong = f->j.rank;
    return fail(ST_CORRUPT,
                "step %lld: rank %lld computes a wrong gradient of %s, also when it computes it "
                "again; its processor or memory is at fault",
                step, rank, tensor);
}

// ---- before and after the step ------------------------------------------------------------------

int64_t session_replay_next(const session *s)
{
    const struct session_replay *x = s->replay;
    if (x == NULL || s->step >= s->r->train.steps) return INT64_MAX;
    if (is_replayed(x, s->step + 1)) return s->step + 1;
    return x->every > 0 ? (s->step + 1) / x->every * x->every + x->every - 1 : INT64_MAX;
}

static status passes_run(session *s, int64_t step)
{
    struct session_replay *x = s->replay;
    TRY(pass_run(s, step, 0));
    TRY(pass_run(s, step, x->unit));
    if (worst_find(s).j.verdict == REPLAY_AGREE) return ST_OK;
    TRY(pass_run(s, step, 0));
    if (x->unit > 0) TRY(pass_run(s, step, x->unit));
    const bool has_third = x->unit > 0 && s->r->layout.dp > 2 * x->unit;
    return has_third ? pass_run(s, step, 2 * x->unit) : ST_OK;
}

status session_replay_before(session *s)
{
    struct session_replay *x = s->replay;
    const int64_t step = s->step + 1;
    if (x == NULL || s->stop != 0 || !is_replayed(x, step)) return ST_OK;
    step_block *halted = (step_block *)(void *)x->halted;
    x->step = step;
    x->count = 0;
    session_process_forget(s); // a loss in a pass leaves the halt flag in the block
    TRY(exec_read(s->job.e, x->block_row, 0, x->block, x->block_bytes));
    memcpy(x->halted, x->block, (size_t)x->block_bytes);
    halted->device.halt = 1;
    TRY(passes_run(s, step));
    TRY(exec_write(s->job.e, x->block_row, 0, x->block, x->block_bytes));
    const replay_found f = worst_find(s);
    if (f.j.verdict != REPLAY_AGREE && f.j.verdict != REPLAY_ONCE) return finding_fail(s, &f);
    if (f.j.verdict == REPLAY_ONCE && session_is_first(s)) {
        session_say(s, LOG_WARN,
                    "step %lld: rank %lld computed a wrong gradient of %s once, in a replay, and "
                    "the right one when it computed it again; no weight was changed by it",
                    (long long)step, (long long)f.j.rank, tensor_of(s, f.owner));
        TRY(finding_add(s, &f));
    }
    const replay_plan *of = plan_of(s, step);
    probes_set(s, of, &of->both);
    return ST_OK;
}

// Says what a replay after a hit has found, if no rank computed anything else.
static status hit_tell(session *s)
{
    const train_restart *o = s->memory.order;
    if (s->replay->step != s->replay->after || !session_is_first(s)) return ST_OK;
    session_say(s, LOG_INFO,
                "step %lld was replayed after the wrong value, %s: all gradients agree to the bit, "
                "so it came from memory or a link, or was computed wrong once",
                (long long)s->step,
                s->replay->unit > 0 ? "by the same ranks and by others" : "by the same ranks");
    return event_add(s, o->rank, NULL, replay_verdict_name(REPLAY_AGREE));
}

status session_replay_after(session *s)
{
    struct session_replay *x = s->replay;
    if (x == NULL || x->step == 0 || s->step != x->step) return ST_OK;
    const replay_plan *of = plan_of(s, x->step);
    exec_probes_set(s->job.e, of->p, of->usual.items, of->usual.count);
    TRY(hashes_share(s, 0));
    x->steps++;
    for (int64_t r = 0; r < x->ranks; r++) {
        const replay_finding j = share_decide(s, r);
        const uint64_t *h = hashes_of(s, r, x->count - 1);
        const bool is_right = hash64(h, x->weights * (int64_t)sizeof(*h), 0) == j.right;
        if (j.verdict == REPLAY_AGREE || (is_right && j.verdict == REPLAY_ONCE)) continue;
        const replay_found f = {j, r};
        if (j.verdict != REPLAY_ONCE) return finding_fail(s, &f);
        TRY(finding_add(s, &f));
        s->wrong = j.rank;
        return fail(ST_CORRUPT,
                    "step %lld: rank %lld computed a wrong gradient of %s once; it and another "
                    "rank have the same right one; a processor or memory of rank %lld has returned "
                    "a wrong value",
                    (long long)x->step, (long long)j.rank, tensor_of(s, r), (long long)j.rank);
    }
    if (x->count == 3) TRY(hit_tell(s));
    x->step = 0;
    return ST_OK;
}

void session_replay_tell(const session *s)
{
    const struct session_replay *x = s->replay;
    if (x == NULL || x->steps == 0 || !session_is_first(s)) return;
    session_say(s, LOG_INFO,
                "%lld step%s computed again by the same ranks%s: their gradients had the same bits",
                (long long)x->steps, x->steps == 1 ? " was" : "s were",
                x->unit > 0 ? " and by others" : "");
}
