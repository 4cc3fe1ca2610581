// The search: its order, the layouts that it examines, and the ones that it keeps. search.h
// describes the idea.
#include "predict/search_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- descriptions -------------------------------------------------------------------------------

bool search_layout_is_same(const search_layout *x, const search_layout *y)
{
    return x->dp == y->dp && x->tp == y->tp && x->pp == y->pp && x->cp == y->cp && x->ep == y->ep &&
           x->chunks == y->chunks && x->zero == y->zero && x->sp == y->sp &&
           x->whole_experts == y->whole_experts &&
           search_recompute_equals(x, y->recompute, y->recompute_layers) &&
           x->schedule == y->schedule && x->micro_batch == y->micro_batch;
}

const char *search_layout_name(const search_layout *l, char buffer[SEARCH_NAME_BYTES])
{
    int n = snprintf(buffer, SEARCH_NAME_BYTES, "dp %d", (int)l->dp);
    const size_t size = SEARCH_NAME_BYTES;
    if (l->tp > 1)
        n += snprintf(buffer + n, size - (size_t)n, " · tp %d%s", (int)l->tp, l->sp ? " sp" : "");
    if (l->cp > 1) n += snprintf(buffer + n, size - (size_t)n, " · cp %d", (int)l->cp);
    if (l->ep > 1) n += snprintf(buffer + n, size - (size_t)n, " · ep %d", (int)l->ep);
    if (l->whole_experts) n += snprintf(buffer + n, size - (size_t)n, " · etp 1");
    if (l->pp > 1) {
        n += snprintf(buffer + n, size - (size_t)n, " · pp %d %s", (int)l->pp, l->schedule->name);
    }
    if (l->pp > 1 && l->chunks > 1) {
        (void)snprintf(buffer + n, size - (size_t)n, " x %d", (int)l->chunks);
    }
    return buffer;
}

const char *search_rule_name(search_rule rule)
{
    static const char *const names[RULE_COUNT] = {
        [RULE_TP_HEADS] =
            "layout.tp does not divide heads or columns, or does not match the key heads",
        [RULE_SP_SEQ] = "layout.tp does not divide train.seq, which layout.sp needs",
        [RULE_CP_SEQ] = "2 x layout.cp does not divide train.seq",
        [RULE_PP_LAYERS] = "there are more stages than layers",
        [RULE_DP_BATCH] = "layout.dp does not divide train.global_batch",
        [RULE_SCHEDULE] = "the schedule does not allow this number of micro-batches",
        [RULE_CODEC] = "comm.compression needs several ranks and layout.zero_sums=step or zero < 2",
    };
    return names[rule];
}

search_fixed search_fixed_none(void)
{
    return (search_fixed){
        .zero = -1, .sp = -1, .recompute = -1, .whole_experts = -1, .recompute_layers = -1};
}

// ---- the best of them ---------------------------------------------------------------------------

// An estimate with gathered weights and unsharded gradients may be too high by a ninth, by tests of
// many layouts.
static bool may_fit(const search *s, const search_found *f)
{
    const int64_t slack = f->layout.zero >= 2 ? f->memory.live_bytes / 9 : 0;
    return f->bytes - slack <= s->r->usable_bytes;
}

static int64_t held_bytes(const search_found *f)
{
    return f->simulated.peak_bytes > 0 ? f->simulated.peak_bytes : f->bytes;
}

static int64_t bytes_of(const search *s, const estimate_memory *m)
{
    return candidates_bytes(s->r->each, m);
}

// True if the layout is certainly too large, by its run tensors alone, and not the smallest such
// layout: then it is only counted. (All gradients are alive at once too, but a profile may count
// less for the rest.) By then there is one to report.
static bool is_hopeless(const search *s, const candidate *c, const estimate_layout *l)
{
    const search_found *smallest = &s->out->smallest;
    const int32_t ranks[] = {0, l->pp - 1};
    for (int i = 0; i < COUNT_OF(ranks) && smallest->layout.dp > 0; i++) {
        search_found f = {.layout = c->layout};
        estimate_memory_run(c->m->e, l, ranks[i], &f.memory);
        f.bytes = bytes_of(s, &f.memory);
        if (f.bytes >= held_bytes(smallest) && !may_fit(s, &f)) return true;
    }
    return false;
}

static void memory_of(search *s, const candidate *c, const estimate_layout *l, const shared_pipe *p,
                      search_found *out)
{
    out->bytes = -1;
    for (int32_t i = 0; i < p->rank_count; i++) {
        estimate_memory m;
        estimate_memory_of(c->m->e, l, p->ranks[i], &p->works[i], &m);
        const int64_t bytes = bytes_of(s, &m);
        if (bytes <= out->bytes) continue;
        out->bytes = bytes;
        out->memory = m;
        // Certainly too large, and not the smallest such layout.
        const search_found *smallest = &s->out->smallest;
        const bool is_larger = smallest->layout.dp > 0 && bytes >= held_bytes(smallest);
        if (is_larger && !may_fit(s, out)) break;
    }
}

static void too_large(search *s, const search_found *f)
{
    search_result *out = s->out;
    out->too_large++;
    if (out->fastest_too_large.layout.dp == 0) out->fastest_too_large = *f;
    if (out->smallest.layout.dp == 0 || held_bytes(f) < held_bytes(&out->smallest)) {
        out->smallest = *f;
    }
}

// Keeps simulated layouts, the best first; if memory alone is asked for, only as many as are
// wanted.
static status found_insert(search *s, const search_found *f)
{
    search_result *out = s->out;
    const bool all = s->r->simulations > 0;
    if (!all && out->count == s->r->wanted) {
        if (out->plans[out->count - 1].simulated.step_ns <= f->simulated.step_ns) return ST_OK;
        out->count--;
    }
    TRY(arena_grow(s->a, (void **)&out->plans, &s->plan_capacity, out->count + 1,
                   (int64_t)sizeof(search_found)));
    int32_t at = out->count++;
    for (; at > 0 && out->plans[at - 1].simulated.step_ns > f->simulated.step_ns; at--) {
        out->plans[at] = out->plans[at - 1];
    }
    out->plans[at] = *f;
    return ST_OK;
}

// The last of the best: a layout that is not faster does not enter. NULL: there are not yet enough.
static const search_found *last_of_best(const search *s)
{
    const search_result *out = s->out;
    return out->count < s->r->wanted ? NULL : &out->plans[s->r->wanted - 1];
}

// True if the layouts that remain are left out.
static bool is_beyond_limit(const search *s)
{
    return s->r->limit_ns > 0 && s->heap_count > 0 && s->heap[0].least_ns > s->r->limit_ns;
}

// True if all wanted plans are found and no remaining layout can be faster than the last of them.
static bool is_settled(const search *s, int64_t least_ns)
{
    const search_found *last = last_of_best(s);
    return last != NULL && last->simulated.step_ns <= least_ns;
}

// If the layout may fit, it waits with a tighter least time.
static status candidate_tighten(search *s, candidate *c)
{
    const search_layout *l = &c->layout;
    const estimate_layout layout = search_estimate_layout(s, l, c->first_layer);
    const estimate_links *links = NULL;
    shared_pipe *p = NULL;
    search_found f = {.layout = *l, .least = c->least};
    if (is_hopeless(s, c, &layout)) {
        s->out->too_large++;
        s->looked++;
        return ST_OK;
    }
    TRY(search_pipe_of(s, &layout, &p));
    TRY(estimate_measure(s->a, c->m->e));
    memory_of(s, c, &layout, p, &f);
    if (!may_fit(s, &f)) {
        too_large(s, &f);
        s->looked++;
        return ST_OK;
    }
    f.fits = true;
    if (p->pipe == NULL) {
        TRY(estimate_pipe_make(s->pipe_arena, &layout, &p->pipe));
        s->pipe_actions += estimate_pipe_actions(p->pipe);
    }
    TRY(search_links_of(s, l, &links));
    const int64_t tight =
        estimate_pipe_time(c->m->e, c->m->prices, s->r->prices, links, &layout, p->pipe);
    c->least.step_ns = f.least.step_ns = max_i64(f.least.step_ns, tight);
    if (s->r->simulations == 0) { // memory alone is asked for
        f.simulated.step_ns = f.least.step_ns;
        s->looked++;
        return found_insert(s, &f);
    }
    TRY(arena_new(s->a, 1, &c->found));
    *c->found = f;
    const item x = {.least_ns = f.least.step_ns, .c = c};
    return search_push(s, &x);
}

// An error that the user can cause excludes the layout.
static status refused(search *s, status st, bool *is)
{
    *is = st != ST_OK && status_blast_radius(st) == RADIUS_USER;
    if (!*is) return st;
    s->out->refused++;
    error_clear();
    return ST_OK;
}

// ---- do they fit -------------------------------------------------------------------------------

// A plan's arena is at most 5% above its live bytes (plan/lower/place.c) if chunks go one way and
// backwards are whole; an estimate of ZeRO-2 and ZeRO-3 may miss by as much again. Other schedules
// with many micro-batches reached 18%, and on other stages than the fullest: for those, all stages
// are measured, and so are the workspaces of compressed sums, which no estimate contains.
enum { HOLES_PERCENT = 5, FULLEST_STAGES = 4 };

typedef struct stage_bytes {
    int64_t bytes;
    int32_t stage;
} stage_bytes;

static int compare_stages(const void *a, const void *b)
{
    const stage_bytes *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->stage < y->stage ? -1 : x->stage > y->stage;
}

// Measures every stage, the fullest first; *f takes that stage's bytes.
static status stages_measure(search *s, search_found *f, stage_bytes *out)
{
    const search_layout *l = &f->layout;
    family *of = NULL;
    const measured *m = NULL;
    const int32_t *first_layer = NULL;
    boundary_timelines times;
    const schedule_request shape = {.stages = l->pp, .microbatches = 1, .chunks = l->chunks};
    const int32_t depth = l->schedule != NULL ? plan_schedule_depth(l->schedule, &shape) : 1;
    TRY(search_family_of(s, l, &of));
    TRY(search_measured_of(s, l, of, &m));
    TRY(estimate_measure(s->a, m->e));
    TRY(search_cut_of(s, l, of->whole, depth, &first_layer));
    const estimate_layout layout = search_estimate_layout(s, l, first_layer);
    f->bytes = -1;
    arena_reset(s->work);
    TRY(estimate_times_of(&layout, s->work, &times));
    for (int32_t pp = 0; pp < l->pp; pp++) {
        estimate_work work;
        estimate_memory x;
        TRY(estimate_work_of(&layout, &times, pp, s->work, &work));
        estimate_memory_of(m->e, &layout, pp, &work, &x);
        const int64_t bytes = bytes_of(s, &x);
        out[pp] = (stage_bytes){bytes, pp};
        if (bytes <= f->bytes) continue;
        f->bytes = bytes;
        f->memory = x;
    }
    qsort(out, (size_t)l->pp, sizeof(*out), compare_stages);
    return ST_OK;
}

static int64_t margin_percent(const search_layout *l)
{
    return 100 + (l->zero >= 2 ? 2 : 1) * HOLES_PERCENT;
}

// Sets *f->fits from the arenas of the plans of at most `most` stages: the fullest, and all that
// holes might make too large.
static status found_fit(search *s, search_found *f, int32_t most, bool *is_refused)
{
    const int32_t pp = f->layout.pp;
    const plan_schedule *x = f->layout.schedule;
    const bool all_ways =
        s->r->codec != NULL || (x != NULL && (x->shape != SHAPE_LOOP || x->splits_backward));
    stage_bytes *all = NULL;
    int32_t *stages = NULL, count = 0;
    *is_refused = false;
    TRY(arena_new(s->a, pp, &all));
    TRY(arena_new(s->a, pp, &stages));
    TRY(stages_measure(s, f, all));
    f->fits = may_fit(s, f);
    if (!f->fits) return ST_OK;
    for (int32_t i = 0; i < pp && i < most; i++) {
        const bool has_margin =
            all[i].bytes / 100 * margin_percent(&f->layout) <= s->r->usable_bytes;
        if (i >= FULLEST_STAGES && has_margin && !all_ways) break;
        stages[count++] = all[i].stage;
    }
    TRY(refused(s, candidates_fit(s->r->each, &f->layout, stages, count, &f->simulated),
                is_refused));
    f->fits = !*is_refused && f->simulated.peak_bytes <= s->r->usable_bytes;
    return ST_OK;
}

// Measures the plan of the fullest stage before a simulation if it may be too large, because
// planning one stage takes a tenth of the time of simulating all. A layout that passes is measured
// again on its other stages when it is among the best.
static status fits_so_far(search *s, search_found *f, bool *is_refused)
{
    const search_request *r = s->r;
    const bool has_margin = f->bytes / 100 * margin_percent(&f->layout) <= r->usable_bytes;
    *is_refused = false;
    if (has_margin) return ST_OK;
    TRY(found_fit(s, f, 1, is_refused));
    if (f->fits) f->simulated = (search_simulated){0};
    return ST_OK;
}

// Records a layout whose bytes or step are known.
static status found_record(search *s, int64_t rows, const search_found *f)
{
    // Layouts that did not fit count too, so the search ends where it would if they were simulated.
    s->simulated_rows += rows;
    if (f->fits) return found_insert(s, f);
    too_large(s, f);
    return ST_OK;
}

static status candidate_look(search *s, search_found *f)
{
    const int64_t rows = candidates_rows(s->r->each, &f->layout);
    bool is_refused = false;
    s->looked++;
    TRY(fits_so_far(s, f, &is_refused));
    if (is_refused) return ST_OK;
    if (!f->fits) return found_record(s, rows, f);
    ASSERT(s->wait_count < WAITING_MOST);
    s->waits[s->wait_count++] = (waiting){f, rows};
    return ST_OK;
}

static status waiting_simulate(search *s)
{
    const search_layout *layouts[WAITING_MOST];
    const int32_t count = s->wait_count;
    s->wait_count = 0;
    for (int32_t i = 0; i < count; i++) layouts[i] = &s->waits[i].found->layout;
    if (count > 1) TRY(candidates_ahead(s->r->each, layouts, count));
    for (int32_t i = 0; i < count; i++) {
        search_found *f = s->waits[i].found;
        bool is_refused = false;
        TRY(refused(s, candidates_simulate(s->r->each, &f->layout, &f->simulated), &is_refused));
        if (is_refused) continue;
        s->out->simulated++;
        TRY(found_record(s, s->waits[i].rows, f));
    }
    return ST_OK;
}

// Until the wanted number is found, no simulation changes the order, so layouts that will be
// simulated can be collected; the result is the same.
static bool may_wait(const search *s)
{
    const search_request *r = s->r;
    return s->heap_count > 0 && !is_beyond_limit(s) && s->wait_count < WAITING_MOST &&
           s->out->count + s->wait_count < r->wanted &&
           s->out->simulated + s->wait_count < r->simulations;
}

// Measures whether the best fit in the arenas of their own plans; asked last because it takes
// longest. false: one did not fit and is removed.
static status best_fit(search *s, bool *all)
{
    search_result *out = s->out;
    *all = true;
    for (int32_t i = 0; i < out->count && i < s->r->wanted;) {
        search_found *f = &out->plans[i++];
        bool is_refused = false;
        if (f->simulated.peak_bytes > 0 || s->r->simulations == 0) continue;
        TRY(found_fit(s, f, f->layout.pp, &is_refused));
        if (f->fits) continue;
        out->simulated--;
        if (!is_refused) too_large(s, f);
        *all = false;
        out->count--;
        i--;
        memmove(f, f + 1, (size_t)(out->count - i) * sizeof(*f));
    }
    return ST_OK;
}

static status none_valid(const search *s)
{
    search_rule most = RULE_TP_HEADS;
    for (int i = 0; i < RULE_COUNT; i++) {
        if (s->out->ruled_out[i] > s->out->ruled_out[most]) most = (search_rule)i;
    }
    return fail(ST_CONFIG_CONFLICT,
                "no layout of %lld devices is valid for %lld sequences of %lld tokens in a step; "
                "most frequent reason: %s",
                (long long)s->r->devices, (long long)s->r->global_batch, (long long)s->r->seq,
                search_rule_name(most));
}

// No simulations are left: counts the remaining layouts that might have been faster than the worst
// plan kept.
static status rest_count(search *s)
{
    search_result *out = s->out;
    const search_found *last = &out->plans[min_i64(out->count, s->r->wanted) - 1];
    while (s->heap_count > 0 && s->heap[0].least_ns < last->simulated.step_ns) {
        const item x = search_pop(s);
        if (x.g != NULL) TRY(search_group_open(s, x.g, x.least_ns));
        if (x.c != NULL) out->unknown++;
    }
    return ST_OK;
}

static void progress_tell(const search *s)
{
    const search_request *r = s->r;
    if (r->progress == NULL) return;
    const search_progress now = {.devices = r->devices,
                                 .layers = r->layers,
                                 .layouts = s->out->layouts,
                                 .looked = s->looked,
                                 .simulated = s->out->simulated};
    r->progress(r->progress_context, &now);
}

static status item_look(search *s, const item *x)
{
    progress_tell(s);
    if (x->g != NULL) return search_group_open(s, x->g, x->least_ns);
    return x->c->found == NULL ? candidate_tighten(s, x->c) : candidate_look(s, x->c->found);
}

static status best_find(search *s)
{
    search_result *out = s->out;
    TRY(search_groups_make(s));
    if (out->layouts == 0) return none_valid(s);
    for (;;) {
        if (!may_wait(s)) TRY(waiting_simulate(s));
        const bool settled =
            s->heap_count == 0 || is_beyond_limit(s) || is_settled(s, s->heap[0].least_ns);
        const bool long_enough =
            s->r->rows > 0 && s->simulated_rows >= s->r->rows && out->count >= s->r->wanted;
        const bool enough = s->r->simulations > 0 && out->count > 0 &&
                            (out->simulated >= s->r->simulations || long_enough);
        if (settled || enough) {
            bool all = false;
            TRY(best_fit(s, &all));
            if (!all) continue;
            if (out->count > 0 && !settled) TRY(rest_count(s));
            out->limited = is_beyond_limit(s);
            break;
        }
        const item next = search_pop(s);
        TRY(item_look(s, &next));
    }
    out->slower = out->layouts - s->looked - out->unknown;
    out->count = (int32_t)min_i64(out->count, s->r->wanted);
    return ST_OK;
}

status search_run(arena *a, const search_request *r, search_result *out)
{
    ASSERT(r->wanted >= 1 && r->devices >= 1);
    memset(out, 0, sizeof(*out));
    search s = {.a = a, .r = r, .out = out};
    TRY(arena_create("search", 0, &s.work));
    status st = arena_create("pipelines", 0, &s.pipe_arena);
    if (st == ST_OK) st = best_find(&s);
    arena_destroy(s.pipe_arena);
    arena_destroy(s.work);
    return st;
}
