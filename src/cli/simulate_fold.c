// Of a step with very many micro-batches, its time without playing all of them, and the bytes without planning all.
//
// A step is played with few, and again with a round more. Where the second one repeats itself in its middle
// (sim_repeats), and is longer than the first by just that, each further round adds as much: the rest is a straight
// line. Where it does not (messages that fall behind a little with each micro-batch, say), twice as many are tried, and
// in the end all. A search asks thus; `simulate` plays every micro-batch.
#include "cli/simulate.h"

// Micro-batches of a rank.
typedef struct folding {
    int64_t few, round, all;
} folding;

// Has a step so many that it is worth while? The first one is for `few` that fill the pipeline several times over.
static bool folding_of(const run_config *r, folding *out)
{
    const int64_t pp = r->layout.pp, together = r->layout.dp * r->train.micro_batch;
    const int64_t batch = run_config_batch_max(r), all = batch / together;
    *out = (folding){.few = 8 * (pp + 1) + all % pp, .round = pp, .all = all};
    return batch % together == 0 && run_config_ramp_count(r) == 1 &&
           r->determinism.mode != RUN_STRICT;
}

static bool is_worth_while(const folding *f)
{
    return 2 * f->few + f->round <= f->all / 2;
}

// The rest of what `few` and a round more say.
static int64_t rounds_left(const folding *f)
{
    return (f->all - f->few - f->round) / f->round;
}

static int64_t unfold(const folding *f, int64_t few, int64_t more)
{
    return more + (more - few) * rounds_left(f);
}

// The same run with fewer micro-batches.
static status shorter(arena *a, const simulation *s, int64_t microbatches, simulation **out)
{
    run_config *r = NULL;
    TRY(arena_new(a, 1, out));
    TRY(arena_new(a, 1, &r));
    *r = *s->r;
    r->train.global_batch = r->layout.dp * r->train.micro_batch * microbatches;
    **out = *s;
    (*out)->r = r;
    return ST_OK;
}

// ---- time -----------------------------------------------------------------------------------------

// Every part of a rank's time grows along its own line; they add up to the length as before.
static void times_unfold(const folding *f, const sim_times *few, sim_times *out)
{
    out->length = unfold(f, few->length, out->length);
    out->compute = unfold(f, few->compute, out->compute);
    out->bubble = unfold(f, few->bubble, out->bubble);
    out->data = unfold(f, few->data, out->data);
    out->host = unfold(f, few->host, out->host);
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        out->exposed[k] = unfold(f, few->exposed[k], out->exposed[k]);
        out->sent[k] = unfold(f, few->sent[k], out->sent[k]);
    }
}

// What the batch takes to come to a device: it grows with the batch, outside of what repeats itself.
static int64_t batch_ns(const simulated *x)
{
    int64_t most = 0;
    for (int32_t r = 0; r < x->stages; r++) {
        const plan *p = x->ranks[r].p;
        int64_t ns = 0;
        for (int64_t i = 0; i < p->action_count; i++) {
            const sim_span *span = &x->step->spans[r][i];
            if (p->actions[i].kind == ACTION_COPY) ns += span->end - span->begin;
        }
        most = max_i64(most, ns);
    }
    return most;
}

static status is_straight(arena *a, const folding *f, const simulated *few, const simulated *more,
                          bool *out)
{
    const int32_t pp = (int32_t)f->round, count = pp > 2 ? 2 * pp : 4;
    const sim_stretch middle = {
        .first = (int32_t)(f->few + f->round) / 2 - count / 2, .count = count, .apart = pp};
    const int64_t longer = more->step->step_ns - few->step->step_ns;
    const int64_t batch = batch_ns(more) - batch_ns(few);
    int64_t period = 0;
    TRY(sim_repeats(a, more->ranks, more->step, &middle, &period));
    *out = period > 0 && longer >= period && longer <= period + batch;
    for (int32_t i = 0; i < more->stages && *out; i++) {
        *out = more->step->times[i].length - few->step->times[i].length == longer;
    }
    return ST_OK;
}

static status times_try(arena *a, const simulation *s, const folding *f, simulated *out, bool *done)
{
    simulation *of_few = NULL, *of_more = NULL;
    simulated *few = NULL;
    TRY(arena_new(a, 1, &few));
    TRY(shorter(a, s, f->few, &of_few));
    TRY(shorter(a, s, f->few + f->round, &of_more));
    TRY(simulate_played(a, of_few, few));
    TRY(simulate_played(a, of_more, out));
    TRY(is_straight(a, f, few, out, done));
    if (!*done) return ST_OK;
    out->of = s;
    out->microbatches = f->all;
    out->played = 2 * f->few + f->round;
    out->few = few;
    out->step->step_ns = unfold(f, few->step->step_ns, out->step->step_ns);
    for (int32_t i = 0; i < out->stages; i++) {
        times_unfold(f, &few->step->times[i], &out->step->times[i]);
    }
    return ST_OK;
}

status simulate_times(arena *a, const simulation *s, simulated *out)
{
    folding f;
    bool done = false;
    // A host that was ahead once may fall behind later.
    const bool folds = folding_of(s->r, &f) && !cost_has_host(&s->profile);
    for (; folds && !done && is_worth_while(&f); f.few += f.few - f.few % f.round) {
        TRY(times_try(a, s, &f, out, &done));
    }
    if (!done) TRY(simulate_played(a, s, out));
    simulate_figures(s, out);
    return ST_OK;
}

static status again(arena *a, const simulated *x, const cluster *machine, int64_t *ns)
{
    simulation there = *x->of;
    simulated played = *x;
    there.machine = *machine;
    TRY(simulate_play(a, &there, &played));
    *ns = played.step->step_ns;
    return ST_OK;
}

status simulate_again(arena *a, const simulated *x, const cluster *machine, double *step_s)
{
    int64_t ns = 0, few = 0;
    TRY(again(a, x, machine, &ns));
    if (x->few != NULL) {
        const int64_t count = x->few->microbatches;
        const folding f = {count, x->played - 2 * count, x->microbatches};
        TRY(again(a, x->few, machine, &few));
        ns = unfold(&f, few, ns);
    }
    *step_s = (double)ns * 1e-9;
    return ST_OK;
}

// ---- bytes ----------------------------------------------------------------------------------------

// Where chunks go one way and backwards are whole, a step with more micro-batches holds the same at once, and their
// tokens; only holes between tensors may differ, for placing them well takes the square of their number.
static bool bytes_fold(const run_config *r, folding *f)
{
    const plan_schedule *x = r->layout.pp > 1 ? r->layout.pipeline : NULL;
    const bool one_way = x == NULL || (x->shape == SHAPE_LOOP && !x->splits_backward);
    return one_way && folding_of(r, f) && is_worth_while(f);
}

// An arena is at least what lives at once, and in such a pipeline at most this much more, twice that where weights and
// gradients pass by: 12% was seen then, with 200 micro-batches.
enum { HOLES_PERCENT = 10 };

// Does it fit, or not, whatever the holes on any of its stages are? tokens: of the micro-batches that were not planned.
static bool is_certain(const simulated *x, int64_t tokens)
{
    bool fits = true;
    for (int32_t i = 0; i < x->stages; i++) {
        const train_plans *plans = &x->plans[i];
        int64_t bytes[BYTES_KIND_COUNT];
        if (x->ranks[i].p == NULL) continue; // not asked for, or behind one that is too large
        const int64_t live = x->ranks[i].p->live_bytes;
        const int64_t holes = live / 100 * HOLES_PERCENT * (x->of->r->layout.zero >= 2 ? 2 : 1);
        const int64_t least = simulate_bytes(x, i, bytes) + tokens -
                              (plans->arena_bytes - plans->run.run_bytes - live);
        if (least > x->usable_bytes) return true;
        fits = fits && least + holes <= x->usable_bytes;
    }
    return fits;
}

static status peak_try(arena *a, const simulation *s, const folding *f, const int32_t *stages,
                       int32_t count, simulated *out, bool *done)
{
    simulation *of_few = NULL, *of_more = NULL;
    simulated *few = NULL;
    TRY(arena_new(a, 1, &few));
    TRY(shorter(a, s, f->few, &of_few));
    TRY(shorter(a, s, f->few + f->round, &of_more));
    TRY(simulate_planned(a, of_few, stages, count, few));
    TRY(simulate_planned(a, of_more, stages, count, out));
    const train_plans *x = &few->plans[few->fullest], *y = &out->plans[few->fullest];
    const bool alike =
        few->fullest == out->fullest && x->all[0]->live_bytes == y->all[0]->live_bytes;
    const int64_t tokens = (y->run.run_bytes - x->run.run_bytes) * rounds_left(f);
    out->of = s;
    *done = alike && is_certain(out, tokens);
    out->peak_bytes += tokens;
    out->memory[BYTES_BUFFERS] += tokens;
    out->fits = out->peak_bytes <= out->usable_bytes;
    return ST_OK;
}

status simulate_peak(arena *a, const simulation *s, const int32_t *stages, int32_t count,
                     simulated *out)
{
    folding f;
    bool done = false;
    if (bytes_fold(s->r, &f)) TRY(peak_try(a, s, &f, stages, count, out, &done));
    return done ? ST_OK : simulate_planned(a, s, stages, count, out);
}
