// `train.micro_batch: auto` for a given layout: chooses among the micro-batches that divide a
// rank's batch, and the recomputation if that is open too.
#include "predict/planner.h"

enum { MICRO_SIMULATIONS = 8 };

// Fixes the whole layout.
static search_fixed fixed_of(const run_config *r)
{
    const plan_schedule *schedule = r->layout.pp > 1 ? r->layout.pipeline : NULL;
    search_fixed f = search_fixed_none();
    f.dp = (int32_t)r->layout.dp;
    f.tp = (int32_t)r->layout.tp;
    f.pp = (int32_t)r->layout.pp;
    f.cp = (int32_t)r->layout.cp;
    f.ep = (int32_t)max_i64(r->layout.ep, 1);
    f.whole_experts = r->layout.etp == 1 ? 1 : 0;
    f.zero = f.dp * f.cp > 1 ? (int32_t)r->layout.zero : 0;
    f.sp = r->layout.sp ? 1 : 0;
    f.schedule = schedule;
    if (schedule != NULL) {
        f.chunks = r->layout.vpp > 0 ? (int32_t)r->layout.vpp : schedule->chunks_min;
    }
    if (!r->train.recompute_chosen) f.recompute = r->train.recompute;
    if (!r->train.recompute_chosen || r->train.recompute_layers > 0) {
        f.recompute_layers = (int32_t)r->train.recompute_layers;
    }
    return f;
}

static void layout_put(const search_layout *l, run_config *r)
{
    r->train.micro_batch = l->micro_batch;
    r->train.recompute = (int32_t)l->recompute;
    r->train.recompute_layers = l->recompute_layers;
    r->train.micro_batch_planned = r->train.micro_batch_chosen = false;
    r->train.recompute_chosen = false;
    r->train.memory_settled = true;
}

// The fastest; on a processor the smallest that is nearly as fast.
static const search_found *take(const predict_planner *p, const search_result *found)
{
    const search_found *best = found->count > 0 ? &found->plans[0] : &found->smallest;
    if (!cost_is_processor(&p->each.base.machine.device)) return best;
    for (int32_t i = 1; i < found->count; i++) {
        const search_found *f = &found->plans[i];
        const bool is_as_fast =
            f->simulated.step_ns <= found->plans[0].simulated.step_ns / 100 * 101;
        if (is_as_fast && f->simulated.peak_bytes < best->simulated.peak_bytes) best = f;
    }
    return best;
}

static status choose(predict_planner *p, arena *a, run_config *out)
{
    search_result found = {.count = 0};
    TRY(run_config_pipeline(out, a, &p->pipeline));
    TRY(predict_search(p, a, p->simulations, &found));
    const search_found *best = take(p, &found);
    if (best->layout.dp == 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "train.micro_batch = auto: no micro-batch of %lld sequences for %lld ranks of "
                    "layout.dp has a plan; give a number",
                    (long long)run_config_batch_divisor(out), (long long)out->layout.dp);
    }
    layout_put(&best->layout, out);
    return ST_OK;
}

status predict_micro_batch(const host *h, arena *a, predict_setup *s)
{
    predict_planner *p = NULL;
    arena *work = NULL;
    run_config *own = NULL; // the search starts from it
    if (!s->r->train.micro_batch_planned) return ST_OK;
    TRY(arena_new(a, 1, &p));
    TRY(arena_new(a, 1, &own));
    *own = *s->r;
    *p = (predict_planner){.h = h,
                           .a = a,
                           .each = {.base = *s, .has_layout = true},
                           .fixed = fixed_of(s->r),
                           .devices = run_config_ranks(s->r),
                           .wanted = cost_is_processor(&s->machine.device) ? MICRO_SIMULATIONS : 1,
                           .simulations = MICRO_SIMULATIONS};
    p->each.base.r = own;
    TRY(arena_create("a simulation", 0, &p->each.work));
    status st = arena_create("train.micro_batch: auto", 0, &work);
    if (st == ST_OK) st = choose(p, work, s->r);
    arena_destroy(work);
    arena_destroy(p->each.work); // s owns the rest
    return st;
}

// For a processor only: elsewhere the search has taken the fastest, and memory that fits costs
// nothing.
status predict_micro_batch_of(const predict_planner *p, search_layout *l)
{
    const search_fixed *f = &p->fixed;
    run_config r = {0};
    if (f->micro_batch > 0 || !cost_is_processor(&p->each.base.machine.device)) return ST_OK;
    TRY(candidates_config_check(&p->each, l, &r));
    r.train.micro_batch_planned = true;
    r.train.recompute_chosen = f->recompute < 0;
    if (f->recompute < 0) r.train.recompute_layers = max_i64(f->recompute_layers, 0);
    predict_setup s = p->each.base;
    s.r = &r;
    TRY(predict_micro_batch(p->h, p->a, &s));
    l->micro_batch = r.train.micro_batch;
    l->recompute = (op_recompute)r.train.recompute;
    l->recompute_layers = (int32_t)r.train.recompute_layers;
    return ST_OK;
}
