// The inverse questions: the largest model that fits, the fewest devices, the devices for a number
// of days or dollars.
//
// Each is a walk over one number with a search at every step. It ends where one value succeeds and
// the next one fails. The searches take one kind of pipeline (predict_ask_quickly), so that an
// answer takes seconds.
#include "predict/planner.h"

#include <math.h>
#include <stdlib.h>

enum { LAYERS_MAX = 10000, LAYERS_PRECISION = 128 };
enum { LINE_LAYERS = 24 }; // a multiple of all periods in which models repeat kinds of layers
enum { ASK_SIMULATIONS = 1, PROBES_MAX = 40, WALK_STEPS = 256 };

// One kind of pipeline stands for all: the others need as many bytes or more, and their times
// differ by their bubbles. Searching them all takes seconds for each number that is tried.
void predict_ask_quickly(predict_planner *p)
{
    p->asked = true;
    p->each.base.few_decide = true;
    if (p->fixed.chunks == 0) p->fixed.chunks = 1;
    if (p->fixed.schedule == NULL) p->fixed.schedule = plan_schedule_find("1f1b");
    if (p->fixed.recompute_layers < 0) p->fixed.recompute_layers = 0;
    if (p->fixed.micro_batch == 0) p->fixed.micro_batch = 1;
}

// Chooses the settings with the least memory if the keys leave them open.
static void least_memory(predict_planner *p)
{
    predict_ask_quickly(p);
    if (p->fixed.recompute < 0) p->fixed.recompute = RECOMPUTE_FULL;
}

// The bytes of the fullest stage. Those of a deep stage are on the line through two with fewer
// layers: each layer adds its share, and placing many tensors takes the square of their number.
static status peak_measure(predict_planner *p, const search_layout *l, int64_t *out)
{
    // The first stages hold the most micro-batches, the last one the head; those between are equal.
    const int32_t some[] = {0, l->pp - 1, 1, l->pp / 2}, count = l->pp < 4 ? l->pp : 4;
    const int64_t layers = p->each.base.spec.layers, depth = layers / l->pp;
    const int64_t steps = (depth - LINE_LAYERS) / LINE_LAYERS;
    search_simulated few = {0}, more = {0};
    if (steps < 2) {
        TRY(candidates_fit(&p->each, l, some, count, &more));
        *out = more.peak_bytes;
        return ST_OK;
    }
    const int64_t step = (int64_t)LINE_LAYERS * l->pp;
    status st = predict_planner_layers(p, layers - steps * step);
    if (st == ST_OK) st = candidates_fit(&p->each, l, some, count, &few);
    if (st == ST_OK) st = predict_planner_layers(p, layers - (steps - 1) * step);
    if (st == ST_OK) st = candidates_fit(&p->each, l, some, count, &more);
    *out = more.peak_bytes + (steps - 1) * (more.peak_bytes - few.peak_bytes);
    TRY(st);
    return predict_planner_layers(p, layers);
}

// Measures the plans of the layout that needs the fewest bytes by estimate.
static status smallest_fits(predict_planner *p, const search_result *found, bool *fits)
{
    const search_found *least = NULL;
    int64_t peak = 0;
    for (int32_t i = 0; i < found->count; i++) {
        if (least == NULL || found->plans[i].bytes < least->bytes) least = &found->plans[i];
    }
    *fits = false;
    if (least == NULL) return ST_OK;
    const status st = peak_measure(p, &least->layout, &peak);
    if (st != ST_OK && status_blast_radius(st) == RADIUS_USER) {
        error_clear();
        return ST_OK;
    }
    *fits = st == ST_OK && peak <= predict_usable_bytes(p);
    return st;
}

// True if some layout fits; without a valid layout none fits.
static status does_fit(predict_planner *p, bool *fits)
{
    enum { ALL_OF_THEM = 1 << 16 };
    arena *a = NULL;
    search_result found = {.count = 0};
    const int32_t wanted = p->wanted;
    TRY(arena_create("does it fit", 0, &a));
    p->wanted = ALL_OF_THEM;
    status st = predict_search(p, a, 0, &found);
    p->wanted = wanted;
    *fits = false;
    if (st == ST_OK) st = smallest_fits(p, &found, fits);
    arena_destroy(a);
    if (st != ST_CONFIG_CONFLICT) return st;
    error_clear();
    return ST_OK;
}

// ---- the largest model -------------------------------------------------------------------------

// Bytes of weights, gradients, master weights and moments of one parameter.
static double state_bytes(const predict_planner *p)
{
    const run_types types = run_config_types(p->each.base.r);
    return (double)dtype_bytes(types.weights) + (double)dtype_bytes(types.grads) +
           (types.has_master ? 4.0 : 0.0) +
           (double)run_optimizer_at((run_optimizer)p->each.base.r->optimizer.name)->moments *
               (double)dtype_bytes(types.moments);
}

// Every layout leaves a device its share of the state.
static int64_t devices_at_least(const predict_planner *p)
{
    return max_i64((int64_t)ceil(p->parameters * state_bytes(p) / (double)predict_usable_bytes(p)),
                   1);
}

// Layers whose states alone fill all devices.
static status layers_at_most(predict_planner *p, int64_t *out)
{
    const int64_t layers = max_i64(p->each.base.spec.layers, 2);
    TRY(predict_planner_layers(p, layers - 1));
    const double fewer = p->parameters;
    TRY(predict_planner_layers(p, layers));
    const double each = fmax(p->parameters - fewer, 1.0);
    const double available = (double)predict_usable_bytes(p) * (double)p->devices / state_bytes(p);
    const double more = floor((available - p->parameters) / each);
    *out = max_i64(min_i64(layers + (int64_t)fmin(more, LAYERS_MAX), LAYERS_MAX), 0);
    return ST_OK;
}

static status layers_fit(predict_planner *p, int64_t layers, bool *fits)
{
    TRY(predict_planner_layers(p, layers));
    return does_fit(p, fits);
}

static status ask_layers(predict_planner *p, predict_answer *out)
{
    const search_fixed fixed = p->fixed;
    int64_t low = 0, high = 0; // low fits and high does not
    bool fits = false;
    least_memory(p);
    TRY(layers_at_most(p, &high));
    high++;
    // A deep model takes seconds to plan, so its answer is within one part in LAYERS_PRECISION.
    // States take most of the bytes, so the answer is near the top: the first guess is nine tenths.
    while (high - low > max_i64(1, high > PREDICT_LAYERS_EXACT ? low / LAYERS_PRECISION : 1)) {
        const int64_t middle = low == 0 && high > 20 ? high - high / 10 : low + (high - low) / 2;
        TRY(layers_fit(p, middle, &fits));
        *(fits ? &low : &high) = middle;
    }
    TRY(predict_planner_layers(p, max_i64(low, 1)));
    p->fixed = fixed;
    predict_ask_quickly(p);
    out->layers = low;
    out->boundary = high;
    out->parameters = low > 0 ? (int64_t)p->parameters : 0;
    return ST_OK;
}

// ---- the fewest devices ------------------------------------------------------------------------

// Up to one node any number, then whole nodes.
static int64_t whole_nodes(int64_t devices, int64_t node)
{
    return devices <= node ? devices : (devices + node - 1) / node * node;
}

static status ask_devices(predict_planner *p, predict_answer *out)
{
    const search_fixed fixed = p->fixed;
    const int64_t most = p->devices;
    bool fits = false;
    const int64_t node = max_i64(p->each.base.machine.node.devices, 1);
    int64_t n = whole_nodes(devices_at_least(p), node), before = 0;
    out->needed = n;
    least_memory(p);
    for (; n <= most; n = whole_nodes(n + 1, node)) { // one node can be rented, a part cannot
        TRY(predict_planner_devices(p, n));
        TRY(does_fit(p, &fits));
        if (fits) break;
        before = n;
    }
    p->fixed = fixed;
    predict_ask_quickly(p);
    out->devices = fits ? n : 0;
    out->boundary = fits ? max_i64(before, whole_nodes(n, node) > node ? n - node : n - 1) : most;
    return fits ? ST_OK : predict_planner_devices(p, most);
}

// ---- days and dollars --------------------------------------------------------------------------

typedef struct run_figures {
    bool is_there; // a layout fits
    bool limited;  // layouts that take too long were left out
    double days, cost_usd;
} run_figures;

static status run_on(predict_planner *p, int64_t devices, run_figures *out)
{
    arena *a = NULL;
    search_result found = {.count = 0};
    const predict_step *x = NULL;
    sim_long_run_input in;
    sim_long_run_result long_run;
    *out = (run_figures){.is_there = false};
    TRY(predict_planner_devices(p, devices));
    TRY(arena_create("a run", 0, &a));
    status st = predict_search(p, a, ASK_SIMULATIONS, &found);
    out->limited = found.limited;
    if (st != ST_OK || found.count == 0) goto done;
    TRY_TO(done, candidates_step(&p->each, a, &found.plans[0].layout, &x));
    TRY_TO(done, predict_long_run(a, x, &in, &long_run));
    out->is_there = true;
    out->days = long_run.days.p50;
    out->cost_usd = long_run.cost_usd.p50;
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

// A walk over numbers of nodes: `good` suffices and `bad` does not, once known.
typedef struct run_walk {
    predict_planner *p;
    predict_answer *q;
    int64_t node, most;
    int64_t step; // the walk ends where good and bad are this near: 1, or 0.4% of a large cluster
    int64_t good, bad;
    bool was_good; // the number that was tried last
    run_figures best, beyond;
    int64_t least; // smallest number on which a layout fits, of those tried; 0: none
    run_figures at_least;
} run_walk;

static status walk_try(run_walk *w, int64_t n)
{
    run_figures f;
    TRY(run_on(w->p, n * w->node, &f));
    w->was_good = is_good(w->q, &f);
    if (w->was_good) {
        w->good = n;
        w->best = f;
    } else {
        w->bad = n;
        w->beyond = f;
    }
    if (!f.is_there || (w->least > 0 && w->least <= n)) return ST_OK;
    w->least = n;
    w->at_least = f;
    return ST_OK;
}

// Chooses the next number to try. Days fall like 1 / n and dollars grow evenly between two ends
// with figures: that guess, then the number one step to its other side, which often ends the walk,
// then the middle, so that it does end.
static int64_t walk_next(const run_walk *w, int probe)
{
    const int64_t low = min_i64(w->good, w->bad), high = max_i64(w->good, w->bad);
    const int64_t towards = w->good > w->bad ? -w->step : w->step; // from good to bad
    int64_t n = (low + high) / 2;
    if (w->best.is_there && probe % 3 != 2) {
        const double at = w->q->question == ASK_DAYS
                              ? (double)w->good * w->best.days / w->q->limit
                              : (double)w->good * w->q->limit / fmax(w->best.cost_usd, 1.0);
        n = probe % 3 == 0 ? (int64_t)at : w->was_good ? w->good + towards : w->bad - towards;
    }
    return min_i64(max_i64(n, low + 1), high - 1);
}

static status walk_between(run_walk *w)
{
    for (int i = 0; llabs((long long)(w->good - w->bad)) > w->step && i < PROBES_MAX; i++) {
        TRY(walk_try(w, walk_next(w, i)));
    }
    return ST_OK;
}

// No run is shorter than all of its steps.
static int64_t step_at_most_ns(const predict_planner *p, double days)
{
    const double steps = (double)sim_long_run_steps(p->each.base.r);
    return (int64_t)fmin(days * 86400e9 / steps, 1e18) + 1;
}

// More nodes mean fewer days: the first number that suffices, if all of them do. A number on which
// the least times of all layouts are too long is too small without a simulation; only the one that
// is reported is simulated in the end.
static status walk_days(run_walk *w, int64_t first)
{
    TRY(walk_try(w, w->most));
    if (!w->best.is_there) return ST_OK;
    w->bad = first - 1;
    w->p->limit_ns = step_at_most_ns(w->p, w->q->limit);
    const status st = walk_between(w);
    w->p->limit_ns = 0;
    TRY(st);
    return w->bad >= first && w->beyond.limited && !w->beyond.is_there ? walk_try(w, w->bad)
                                                                       : ST_OK;
}

// More nodes mean more dollars: the last number that suffices, if the first one that fits does.
static status walk_budget(run_walk *w, int64_t first)
{
    for (int64_t n = first; w->least == 0; n = min_i64(2 * n, w->most)) {
        TRY(walk_try(w, n));
        if (n == w->most) break;
    }
    w->bad = w->most + 1; // what is too small for the model is not too expensive
    if (!w->best.is_there || w->good == w->most) return ST_OK;
    TRY(walk_try(w, w->most));
    return w->good == w->most ? ST_OK : walk_between(w);
}

static status ask_run(predict_planner *p, predict_answer *out)
{
    const int64_t node = max_i64(p->each.base.machine.node.devices, 1);
    run_walk w = {.p = p, .q = out, .node = node, .most = max_i64(p->devices / node, 1)};
    if (!p->each.base.has_length) {
        return fail(ST_CONFIG_CONFLICT, "the length of the run is not known: give train.tokens (or "
                                        "train.steps), such as train.tokens=15e12");
    }
    w.step = max_i64(w.most / WALK_STEPS, 1);
    predict_ask_quickly(p);
    const int64_t first = min_i64((devices_at_least(p) + node - 1) / node, w.most);
    const status st = out->question == ASK_DAYS ? walk_days(&w, first) : walk_budget(&w, first);
    TRY(st);
    const bool found = w.best.is_there;
    out->devices = found ? w.good * node : 0;
    out->days = w.best.days;
    out->cost_usd = w.best.cost_usd;
    const bool has_next = w.bad >= 1 && w.bad <= w.most;
    const run_figures *next = found ? &w.beyond : &w.at_least;
    out->boundary = found ? (has_next ? w.bad * node : 0) : w.least * node;
    if (out->boundary > 0 && next->is_there) {
        out->boundary_days = next->days;
        out->boundary_usd = next->cost_usd;
    }
    return predict_planner_devices(p, (found ? w.good : w.most) * node);
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
