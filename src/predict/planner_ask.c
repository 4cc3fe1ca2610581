// The inverse questions: the largest model that fits, the fewest devices, the devices for a number
// of days or dollars.
//
// Each is a walk over one number with a search at every step. It ends where one value succeeds and
// the next one fails: a model that fits has a plan, and one that does not was refused layout by
// layout.
#include "predict/planner.h"

#include <math.h>

enum { LAYERS_MAX = 10000, ASK_SIMULATIONS = 3 };

// Chooses the settings with the least memory if the keys leave them open.
static void least_memory(predict_planner *p)
{
    if (p->fixed.recompute < 0) p->fixed.recompute = RECOMPUTE_FULL;
    if (p->fixed.recompute_layers < 0) p->fixed.recompute_layers = 0;
    if (p->fixed.micro_batch == 0) p->fixed.micro_batch = 1;
}

// True if some layout fits; without a valid layout none fits.
static status does_fit(predict_planner *p, bool *fits)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    TRY(arena_create("does it fit", 0, &a));
    const status st = predict_search(p, a, 1, &found);
    arena_destroy(a);
    *fits = st == ST_OK && found.count > 0;
    if (st != ST_CONFIG_CONFLICT) return st;
    error_clear();
    return ST_OK;
}

// ---- the largest model -------------------------------------------------------------------------

static status layers_fit(predict_planner *p, int64_t layers, bool *fits)
{
    TRY(predict_planner_layers(p, layers));
    return does_fit(p, fits);
}

static status ask_layers(predict_planner *p, predict_answer *out)
{
    const search_fixed fixed = p->fixed;
    int64_t low = 0, high = 1; // low fits and high does not, once known
    bool fits = true;
    least_memory(p);
    for (; fits && high <= LAYERS_MAX; high *= fits ? 2 : 1) {
        TRY(layers_fit(p, high, &fits));
        if (fits) low = high;
    }
    if (fits) high = LAYERS_MAX + 1;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        TRY(layers_fit(p, middle, &fits));
        *(fits ? &low : &high) = middle;
    }
    TRY(predict_planner_layers(p, max_i64(low, 1)));
    p->fixed = fixed;
    out->layers = low;
    out->boundary = high;
    out->parameters = low > 0 ? (int64_t)p->parameters : 0;
    return ST_OK;
}

// ---- the fewest devices ------------------------------------------------------------------------

// Every layout leaves a device its share of the state.
static int64_t devices_at_least(const predict_planner *p)
{
    const run_types types = run_config_types(p->each.base.r);
    const double each =
        (double)dtype_bytes(types.weights) + (double)dtype_bytes(types.grads) +
        (types.has_master ? 4.0 : 0.0) +
        (double)run_optimizer_at((run_optimizer)p->each.base.r->optimizer.name)->moments *
            (double)dtype_bytes(types.moments);
    return max_i64((int64_t)ceil(p->parameters * each / (double)predict_usable_bytes(p)), 1);
}

static status ask_devices(predict_planner *p, predict_answer *out)
{
    const search_fixed fixed = p->fixed;
    const int64_t most = p->devices;
    bool fits = false;
    int64_t n = devices_at_least(p);
    least_memory(p);
    for (; n <= most; n++) {
        TRY(predict_planner_devices(p, n));
        TRY(does_fit(p, &fits));
        if (fits) break;
    }
    p->fixed = fixed;
    out->devices = fits ? n : 0;
    out->boundary = fits ? n - 1 : most;
    return fits ? ST_OK : predict_planner_devices(p, most);
}

// ---- days and dollars --------------------------------------------------------------------------

typedef struct run_figures {
    bool is_there; // a layout fits
    double days, cost_usd;
} run_figures;

static status run_on(predict_planner *p, int64_t devices, run_figures *out)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    predict_setup s;
    predict_step *x = NULL;
    sim_long_run_input in;
    sim_long_run_result long_run;
    status st = ST_OK;
    *out = (run_figures){.is_there = false};
    TRY(predict_planner_devices(p, devices));
    TRY(arena_create("a run", 0, &a));
    TRY_TO(done, predict_search(p, a, ASK_SIMULATIONS, &found));
    if (found.count == 0) goto done;
    TRY_TO(done, arena_new(a, 1, &x));
    TRY_TO(done, candidates_show(&p->each, a, &found.plans[0].layout, &s, x));
    TRY_TO(done, predict_long_run(a, x, &in, &long_run));
    *out = (run_figures){
        .is_there = true, .days = long_run.days.p50, .cost_usd = long_run.cost_usd.p50};
done:
    arena_destroy(a);
    if (st != ST_CONFIG_CONFLICT) return st;
    error_clear();
    return ST_OK;
}

static bool is_good(const predict_answer *q, const run_figures *f)
{
    if (!f->is_there) return false;
    return q->question == ASK_DAYS ? f->days <= q->limit : f->cost_usd <= q->limit;
}

// Steps by whole nodes. More nodes mean fewer days and more dollars: finds the first number that
// suffices, or the last.
static status ask_run(predict_planner *p, predict_answer *out)
{
    const int64_t node = max_i64(p->each.base.machine.node.devices, 1), most = p->devices / node;
    const bool first = out->question == ASK_DAYS;
    run_figures f, best = {.is_there = false}, beyond = {.is_there = false};
    int64_t bad = 0, good = 0, n = 1;
    if (!p->each.base.has_length) {
        return fail(ST_CONFIG_CONFLICT, "the length of the run is not known: give train.tokens (or "
                                        "train.steps), such as train.tokens=15e12");
    }
    if (!first) bad = most + 1;
    for (;; n = min_i64(n * 2, most)) { // until one suffices (days) or no more does (dollars)
        TRY(run_on(p, n * node, &f));
        const bool is = is_good(out, &f);
        if (is) {
            good = n;
            best = f;
        }
        if (!is && (first || f.is_there)) {
            bad = n;
            beyond = f;
        }
        if ((first ? is : f.is_there && !is) || n >= most) break;
    }
    while (good > 0 && (first ? good - bad : bad - good) > 1) {
        const int64_t middle = (good + bad) / 2;
        TRY(run_on(p, middle * node, &f));
        if (is_good(out, &f)) {
            good = middle;
            best = f;
        } else {
            bad = middle;
            beyond = f;
        }
    }
    out->devices = good * node;
    out->boundary = good > 0 && bad <= most ? bad * node : 0;
    out->boundary_days = beyond.days;
    out->boundary_usd = beyond.cost_usd;
    out->days = best.days;
    out->cost_usd = best.cost_usd;
    return predict_planner_devices(p, good > 0 ? good * node : most * node);
}

status predict_ask(predict_planner *p, predict_question question, double limit, predict_answer *out)
{
    *out = (predict_answer){.question = question, .limit = limit};
    switch (question) {
    case ASK_MAX_MODEL:
        return ask_layers(p, out);
    case ASK_MIN_DEVICES:
        return ask_devices(p, out);
    case ASK_DAYS:
    case ASK_BUDGET:
        return ask_run(p, out);
    case ASK_NOTHING:
    default:
        return ST_OK;
    }
}
