// Loop compression: computes the time of a step with very many micro-batches without simulating all
// of them, and its bytes without planning all.
//
// The lists of a schedule for many micro-batches equal those for few with additional rounds in the
// middle; each round equals the one before with later micro-batches. A step is therefore simulated
// with few. If its middle repeats itself (sim_repeats), all ranks are after a round in the state
// before it, only later; one more round then extends the step by exactly that time, and the rest is
// linear, to the nanosecond. If it does not repeat (collectives that fall behind a little with each
// micro-batch, for example), twice as many are tried, and in the end all. Where all would take
// minutes and gigabytes, the line through the last two tries gives the step, and the prediction
// says so (predict_step.is_line).
#include "predict/step.h"

#include "base/thread_pool.h"
#include "cost/habits.h"

#include <stdatomic.h>
#include <string.h>

// Micro-batches of a rank.
typedef struct step_loop {
    int64_t few, round, all;
} step_loop;

// True if the step has enough micro-batches. The first few fill the pipeline several times over and
// leave whole rounds.
static bool loop_find(const run_config *r, int64_t rounds, step_loop *out)
{
    enum { MORE_ROUNDS = 8 }; // additional ones for short rounds
    const int64_t pp = r->layout.pp, together = r->layout.dp * r->train.micro_batch;
    const int64_t batch = run_config_batch_max(r), all = batch / together;
    rounds += (MORE_ROUNDS + pp - 1) / pp;
    *out = (step_loop){.few = rounds * pp + all % pp, .round = pp, .all = all};
    return batch % together == 0 && run_config_ramp_count(r) == 1 &&
           r->determinism.mode != RUN_STRICT;
}

// Where few decide, the line through two steps is as good once the pipeline is full.
enum { TIME_ROUNDS = 7, TIME_ROUNDS_QUICK = 2, BYTES_ROUNDS = 8 };

static bool times_are_worth_while(const step_loop *f)
{
    return f->few <= f->all / 2;
}

// Two plans are made for them.
static bool bytes_are_worth_while(const step_loop *f)
{
    return 2 * f->few + f->round <= f->all / 2;
}

// Rounds in addition to `few` and one round.
static int64_t rounds_left(const step_loop *f)
{
    return (f->all - f->few - f->round) / f->round;
}

int64_t predict_step_weight(const run_config *r)
{
    step_loop f;
    const bool has_loop = loop_find(r, 0, &f);
    const int64_t pp = f.round, two = 2 * (8 * (pp + 1) + f.all % pp) + pp;
    return has_loop && two <= f.all / 2 ? two : f.all;
}

// The same run with fewer micro-batches.
static status shorter(arena *a, const predict_setup *s, int64_t microbatches, predict_setup **out)
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

// ---- time --------------------------------------------------------------------------------------

// True if every rank has the same list with more micro-batches, except for rounds in the middle.
static status schedule_has_loop(arena *a, const run_config *r, const step_loop *f, bool *out)
{
    plan_pipeline_request request;
    *out = true;
    if (r->layout.pp == 1) return ST_OK;
    TRY(run_config_pipeline(r, a, &request));
    schedule_request few = {.stages = (int32_t)r->layout.pp,
                            .chunks =
                                request.chunks > 0 ? request.chunks : request.schedule->chunks_min,
                            .microbatches = (int32_t)f->few};
    schedule_request all = few;
    all.microbatches = (int32_t)f->all;
    for (int32_t pp = 0; pp < few.stages && *out; pp++) {
        schedule_list x = {0}, y = {0};
        schedule_repeat repeat;
        TRY(plan_schedule_emit(request.schedule, &few, pp, a, &x));
        TRY(plan_schedule_emit(request.schedule, &all, pp, a, &y));
        *out =
            plan_schedule_repeat(&x, &y, (f->all - f->few) / f->round, (int32_t)f->round, &repeat);
    }
    return ST_OK;
}

// True if the bytes of the batch divide evenly over the micro-batches.
static bool batch_is_even(const predict_step *x)
{
    for (int32_t r = 0; r < x->stages; r++) {
        const plan_table *run = x->ranks[r].p->run;
        for (int64_t i = 0; i < run->count; i++) {
            const bool is_batch = strncmp(run->tensors[i].name, "batch.", 6) == 0;
            if (is_batch && run->tensors[i].bytes % x->simulated != 0) return false;
        }
    }
    return true;
}

// Every part of a rank's time grows linearly; the parts still add up to the length.
static void times_add_rounds(int64_t rounds, const sim_times *some, sim_times *out)
{
    out->length += rounds * some->length;
    out->compute += rounds * some->compute;
    out->bubble += rounds * some->bubble;
    out->data += rounds * some->data;
    out->host += rounds * some->host;
    for (int k = 0; k < TRAFFIC_COUNT; k++) out->exposed[k] += rounds * some->exposed[k];
}

// True if a round is as long as all that a rank does in it. *period_ns 0: it is not, or the step
// does not repeat itself.
static status period_of(arena *a, const predict_step *x, int64_t *period_ns)
{
    TRY(sim_repeats(a, x->ranks, x->step, &x->stretch, period_ns));
    for (int32_t i = 0; i < x->stages; i++) {
        if (x->step->some[i].length != *period_ns) *period_ns = 0;
    }
    return ST_OK;
}

static status times_try(arena *a, const predict_setup *s, const step_loop *f, predict_step *out,
                        bool *done)
{
    predict_setup *of_few = NULL;
    const int32_t pp = (int32_t)f->round, count = pp > 2 ? 2 * pp : 4;
    const sim_stretch middle = {
        .first = (int32_t)f->few / 2 - (count + pp) / 2, .count = count, .apart = pp};
    int64_t period = 0;
    TRY(shorter(a, s, f->few, &of_few));
    TRY(predict_step_part(a, of_few, &middle, f->all, out));
    out->of = s;
    out->microbatches = f->all;
    out->stretch = middle;
    TRY(period_of(a, out, &period));
    // A host that is ahead at first may fall behind later.
    *done = period > 0 && batch_is_even(out) && !cost_has_host(&s->profile);
    if (!*done) return ST_OK;
    out->rounds = (f->all - f->few) / f->round;
    out->step->step_ns += out->rounds * period;
    for (int32_t i = 0; i < out->stages; i++) {
        times_add_rounds(out->rounds, &out->step->some[i], &out->step->times[i]);
    }
    return ST_OK;
}

// A step with so many micro-batches, times its stages, takes seconds to simulate.
enum { LINE_ROWS = 4096 };

// The times of a step with `few` micro-batches.
typedef struct some_times {
    int64_t few, step_ns;
    sim_times *times; // [stages]
} some_times;

static status times_keep(arena *a, const predict_step *x, int64_t few, some_times *out)
{
    TRY(arena_new(a, x->stages, &out->times));
    memcpy(out->times, x->step->times, (size_t)x->stages * sizeof(*out->times));
    out->few = few;
    out->step_ns = x->step->step_ns;
    return ST_OK;
}

static int64_t on_line(const some_times *before, int64_t few, int64_t all, int64_t v1, int64_t v2)
{
    return v2 + (int64_t)((double)(v2 - v1) * (double)(all - few) / (double)(few - before->few));
}

// Sets the times of all micro-batches from those of `few` in *out and of fewer before. The parts
// of a rank's time still add up to its length.
static void times_extend(const some_times *before, int64_t few, int64_t all, predict_step *out)
{
    sim_step *x = out->step;
    x->step_ns = on_line(before, few, all, before->step_ns, x->step_ns);
    for (int32_t i = 0; i < out->stages; i++) {
        sim_times *to = &x->times[i];
        const sim_times *from = &before->times[i];
        const int64_t length = on_line(before, few, all, from->length, to->length);
        to->compute = on_line(before, few, all, from->compute, to->compute);
        to->data = on_line(before, few, all, from->data, to->data);
        to->host = on_line(before, few, all, from->host, to->host);
        int64_t rest = length - to->compute - to->data - to->host;
        for (int k = 0; k < TRAFFIC_COUNT; k++) {
            to->exposed[k] = on_line(before, few, all, from->exposed[k], to->exposed[k]);
            rest -= to->exposed[k];
        }
        to->bubble = rest;
        to->length = length;
    }
    out->is_line = true;
}

// Micro-batches of the next try in addition to those of this one.
static int64_t more_of(const predict_setup *s, const step_loop *f)
{
    enum { MORE_LEAST = 8 };
    if (!s->few_decide) return f->few - f->few % f->round;
    return (MORE_LEAST + f->round - 1) / f->round * f->round;
}

status predict_step_times(arena *a, const predict_setup *s, predict_step *out)
{
    step_loop f;
    some_times before = {.few = 0};
    bool done = false,
         has_loop = loop_find(s->r, s->few_decide ? TIME_ROUNDS_QUICK : TIME_ROUNDS, &f);
    const bool is_huge = has_loop && (s->few_decide || f.all * f.round >= 4 * LINE_ROWS);
    has_loop = has_loop && (is_huge || !cost_has_host(&s->profile));
    for (; has_loop && !done && times_are_worth_while(&f); f.few += more_of(s, &f)) {
        TRY(schedule_has_loop(a, s->r, &f, &has_loop));
        if (!has_loop) break;
        TRY(times_try(a, s, &f, out, &done));
        const bool is_long = s->few_decide || f.few * f.round >= LINE_ROWS;
        if (!done && is_huge && is_long && before.few > 0 && batch_is_even(out)) {
            times_extend(&before, f.few, f.all, out);
            done = true;
        }
        if (!done) TRY(times_keep(a, out, f.few, &before));
    }
    if (!done) TRY(predict_step_simulate(a, s, out));
    predict_step_figures(s, out);
    return ST_OK;
}

// ---- on other machines -------------------------------------------------------------------------

static status step_again(arena *a, const predict_step *x, const cluster *machine, double *step_s)
{
    int64_t period = 0;
    predict_setup there = *x->of;
    predict_step simulated = *x;
    there.machine = *machine;
    there.plan_scratch = NULL; // others simulate at the same time
    there.scratch[0] = NULL;
    TRY(predict_step_run(a, &there, &simulated));
    if (x->rounds > 0) TRY(period_of(a, &simulated, &period));
    if (x->rounds > 0 && period == 0) { // on that machine the step does not repeat itself
        TRY(predict_step_simulate(a, &there, &simulated));
    }
    *step_s = (double)(simulated.step->step_ns + x->rounds * period) * 1e-9;
    return ST_OK;
}

typedef struct elsewhere {
    const predict_step *x;
    const cluster *machines;
    double *step_s;
    int32_t count;
    atomic_int next;
} elsewhere;

static status elsewhere_work(void *context, int32_t worker)
{
    elsewhere *r = context;
    arena *a = worker < PREDICT_ARENAS ? r->x->of->scratch[worker] : NULL, *own = NULL;
    status st = ST_OK;
    if (a == NULL) {
        TRY(arena_create("on other machines", 0, &own));
        a = own;
    }
    while (st == ST_OK) {
        const int32_t k = atomic_fetch_add(&r->next, 1);
        if (k >= r->count) break;
        arena_reset(a);
        st = step_again(a, r->x, &r->machines[k], &r->step_s[k]);
    }
    arena_destroy(own);
    return st;
}

status predict_step_elsewhere(const predict_step *x, const cluster *machines, int32_t count,
                              double *step_s)
{
    enum { MOST = 4 };
    elsewhere r = {.x = x, .machines = machines, .step_s = step_s, .count = count};
    const int32_t most = (int32_t)max_i64(min_i64(count, MOST), 1);
    return thread_pool_run((int32_t)min_i64(most, kern_core_count()), elsewhere_work, &r);
}

// ---- bytes -------------------------------------------------------------------------------------

// If chunks go one way and backwards are whole, a step with more micro-batches has the same live
// bytes, plus its tokens; only holes between tensors may differ, because placing them well takes
// the square of their number.
static bool bytes_have_loop(const run_config *r, step_loop *f)
{
    const plan_schedule *x = r->layout.pp > 1 ? r->layout.pipeline : NULL;
    const bool one_way = x == NULL || (x->shape == SHAPE_LOOP && !x->splits_backward);
    return one_way && loop_find(r, BYTES_ROUNDS, f) && bytes_are_worth_while(f);
}

status predict_step_few(arena *a, const predict_setup *s, const predict_setup **out)
{
    step_loop f;
    predict_setup *few = NULL;
    const bool is_long =
        bytes_have_loop(s->r, &f) && (s->few_decide || f.all * f.round >= 4 * LINE_ROWS);
    if (!is_long) return ST_OK;
    TRY(shorter(a, s, f.few + f.round, &few));
    *out = few;
    return ST_OK;
}

// An arena is at least its live bytes and, in such a pipeline, at most this much more; twice that
// with gathered weights and unsharded gradients: 12% was measured there, with 200 micro-batches.
enum { HOLES_PERCENT = 10 };

// True if the answer holds whatever the holes of any stage are. tokens: of the micro-batches that
// were not planned.
static bool is_certain(const predict_step *x, int64_t tokens)
{
    bool fits = true;
    for (int32_t i = 0; i < x->stages; i++) {
        const assemble_plans *plans = &x->plans[i];
        int64_t bytes[PLAN_BYTES_COUNT];
        if (x->ranks[i].p == NULL) continue; // not requested, or after one that is too large
        const int64_t live = x->ranks[i].p->live_bytes;
        const int64_t holes = live / 100 * HOLES_PERCENT * (x->of->r->layout.zero >= 2 ? 2 : 1);
        const int64_t least = predict_step_bytes(x, i, bytes) + tokens -
                              (plans->arena_bytes - plans->run.run_bytes - live);
        if (least > x->usable_bytes) return true;
        fits = fits && least + holes <= x->usable_bytes;
    }
    return fits;
}

static status peak_try(arena *a, const predict_setup *s, const step_loop *f, const int32_t *stages,
                       int32_t count, predict_step *out, bool *done)
{
    predict_setup *of_few = NULL, *of_more = NULL;
    predict_step *few = NULL;
    TRY(arena_new(a, 1, &few));
    TRY(shorter(a, s, f->few, &of_few));
    TRY(shorter(a, s, f->few + f->round, &of_more));
    TRY(predict_step_plan(a, of_few, stages, count, few));
    TRY(predict_step_plan(a, of_more, stages, count, out));
    const assemble_plans *x = &few->plans[few->fullest], *y = &out->plans[few->fullest];
    const bool is_equivalent =
        few->fullest == out->fullest && x->all[0]->live_bytes == y->all[0]->live_bytes;
    const int64_t tokens = (y->run.run_bytes - x->run.run_bytes) * rounds_left(f);
    out->of = s;
    *done = is_equivalent && (s->few_decide || is_certain(out, tokens));
    out->peak_bytes += tokens;
    out->memory[PLAN_BYTES_BUFFERS] += tokens;
    out->fits = out->peak_bytes <= out->usable_bytes;
    return ST_OK;
}

status predict_step_peak(arena *a, const predict_setup *s, const int32_t *stages, int32_t count,
                         predict_step *out)
{
    step_loop f;
    bool done = false;
    if (bytes_have_loop(s->r, &f)) TRY(peak_try(a, s, &f, stages, count, out, &done));
    return done ? ST_OK : predict_step_plan(a, s, stages, count, out);
}
