// The search. See search.h. Models, measured programs and prices are made once for each way to cut the model
// and each micro-batch, and looked up for the many layouts that share them.
#include "plan/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What layouts with the same tp, cp, sp and recompute share; and of those with one micro-batch.
typedef struct measured {
    int64_t micro_batch;
    estimate *e;
    estimate_prices *prices;
} measured;

typedef struct family {
    int32_t tp, cp, ep;
    bool sp;
    op_recompute recompute;
    op_model *whole, *local;
    measured *each;
    int64_t count, capacity;
} family;

// Layers of stages, by what the whole model costs.
typedef struct cut {
    op_recompute recompute;
    int32_t depth;
    const int32_t *first_layer;
} cut;

typedef struct joined {
    int32_t tp, cp, pp, ep;
    estimate_links links;
} joined;

// Layouts of one schedule, numbers of ranks, chunks and micro-batches do the same things in the same order.
enum { WORK_RANKS = 4 };
typedef struct shared_pipe {
    const plan_schedule *schedule;
    int32_t pp, chunks, microbatches;
    estimate_pipe *pipe; // NULL: not yet
    int32_t rank_count, ranks[WORK_RANKS];
    estimate_work works[WORK_RANKS];
} shared_pipe;
enum { PIPE_ACTIONS_MOST = 1 << 22 }; // that are kept: some 200 MB

typedef struct candidate {
    search_layout layout;
    estimate_time least;
    const measured *m;
    const int32_t *first_layer;
    search_found *found; // once it may fit, and its least time is the tighter one
} candidate;

typedef struct search {
    arena *a, *work;
    const search_request *r;
    search_result *out;
    family *families;
    int64_t family_count, family_capacity;
    cut *cuts;
    int64_t cut_count, cut_capacity;
    joined *links;
    int64_t link_count, link_capacity;
    candidate *all;
    int64_t count, capacity;
    arena *pipe_arena;
    shared_pipe *pipes;
    int64_t pipe_count, pipe_capacity, pipe_actions;
    int32_t *heap; // of `all`: those with a tighter time, the least of them first
    int64_t heap_count;
    int64_t plan_capacity;
} search;

// ---- words --------------------------------------------------------------------------------------

const char *search_layout_name(const search_layout *l, char buffer[SEARCH_NAME_BYTES])
{
    int n = snprintf(buffer, SEARCH_NAME_BYTES, "dp %d", (int)l->dp);
    const size_t size = SEARCH_NAME_BYTES;
    if (l->tp > 1)
        n += snprintf(buffer + n, size - (size_t)n, " · tp %d%s", (int)l->tp, l->sp ? " sp" : "");
    if (l->cp > 1) n += snprintf(buffer + n, size - (size_t)n, " · cp %d", (int)l->cp);
    if (l->ep > 1) n += snprintf(buffer + n, size - (size_t)n, " · ep %d", (int)l->ep);
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
        [RULE_TP_HEADS] = "layout.tp does not divide heads, heads of keys or feed-forward",
        [RULE_SP_SEQ] = "layout.tp does not divide train.seq, as layout.sp wants",
        [RULE_CP_SEQ] = "2 x layout.cp does not divide train.seq",
        [RULE_PP_LAYERS] = "more stages than layers",
        [RULE_DP_BATCH] = "layout.dp does not divide train.global_batch",
        [RULE_SCHEDULE] = "the schedule does not take so few or so many micro-batches",
    };
    return names[rule];
}

search_fixed search_fixed_none(void)
{
    return (search_fixed){.zero = -1, .sp = -1, .recompute = -1};
}

// ---- what layouts share ---------------------------------------------------------------------------

static status family_of(search *s, const search_layout *l, family **out)
{
    for (int64_t i = s->family_count - 1; i >= 0; i--) {
        family *f = &s->families[i];
        if (f->tp != l->tp || f->cp != l->cp || f->ep != l->ep || f->sp != l->sp) continue;
        if (f->recompute != l->recompute) continue;
        *out = f;
        return ST_OK;
    }
    TRY(arena_grow(s->a, (void **)&s->families, &s->family_capacity, s->family_count + 1,
                   (int64_t)sizeof(family)));
    family *f = &s->families[s->family_count];
    *f = (family){.tp = l->tp, .cp = l->cp, .ep = l->ep, .sp = l->sp, .recompute = l->recompute};
    const search_calls *calls = &s->r->calls;
    TRY(calls->model(calls->context, s->a, l, &f->whole, &f->local));
    s->family_count++;
    *out = f;
    return ST_OK;
}

static status links_of(search *s, const search_layout *l, const estimate_links **out)
{
    for (int64_t i = s->link_count - 1; i >= 0; i--) {
        const joined *j = &s->links[i];
        if (j->tp == l->tp && j->cp == l->cp && j->pp == l->pp && j->ep == l->ep) {
            *out = &j->links;
            return ST_OK;
        }
    }
    TRY(arena_grow(s->a, (void **)&s->links, &s->link_capacity, s->link_count + 1,
                   (int64_t)sizeof(joined)));
    joined *j = &s->links[s->link_count];
    j->tp = l->tp;
    j->cp = l->cp;
    j->pp = l->pp;
    j->ep = l->ep;
    const plan_mesh mesh = {
        .size = {[AXIS_PP] = l->pp, [AXIS_DP] = l->dp, [AXIS_CP] = l->cp, [AXIS_TP] = l->tp},
        .ep = l->ep};
    const status st = estimate_links_of(s->r->prices->c, s->work, &mesh, &j->links);
    arena_reset(s->work);
    TRY(st);
    s->link_count++;
    *out = &j->links;
    return ST_OK;
}

static status measured_of(search *s, const search_layout *l, family *f, const measured **out)
{
    for (int64_t i = f->count - 1; i >= 0; i--) {
        if (f->each[i].micro_batch != l->micro_batch) continue;
        *out = &f->each[i];
        return ST_OK;
    }
    if (f->each == NULL) { // pointers to them are kept
        f->capacity = SEARCH_MICRO_BATCH_MAX + 1;
        TRY(arena_new(s->a, f->capacity, &f->each));
    }
    ASSERT(f->count < f->capacity);
    const search_request *r = s->r;
    const estimate_links *links = NULL;
    measured *m = &f->each[f->count];
    const estimate_request request = {.model = f->local,
                                      .micro_batch = l->micro_batch,
                                      .seq = r->seq,
                                      .tp = l->tp,
                                      .cp = l->cp,
                                      .states = r->states,
                                      .scratch_bytes = r->scratch_bytes,
                                      .workspace = r->workspace,
                                      .workspace_context = r->workspace_context};
    TRY(links_of(s, l, &links));
    TRY(estimate_make(s->a, &request, &m->e));
    TRY(estimate_price(s->a, m->e, r->prices, links, &m->prices));
    m->micro_batch = l->micro_batch;
    f->count++;
    *out = m;
    return ST_OK;
}

static status cut_of(search *s, const search_layout *l, const op_model *whole, int32_t depth,
                     const int32_t **out)
{
    for (int64_t i = s->cut_count - 1; i >= 0; i--) {
        if (s->cuts[i].depth != depth || s->cuts[i].recompute != l->recompute) continue;
        *out = s->cuts[i].first_layer;
        return ST_OK;
    }
    plan_pipeline pipe;
    const plan_mesh mesh = {.size = {[AXIS_PP] = l->pp}};
    const plan_pipeline_request request = {.schedule = l->schedule, .chunks = l->chunks};
    TRY(plan_pipeline_make(s->a, whole, &mesh, &request, 0, &pipe));
    ASSERT(pipe.depth == depth);
    TRY(arena_grow(s->a, (void **)&s->cuts, &s->cut_capacity, s->cut_count + 1,
                   (int64_t)sizeof(cut)));
    s->cuts[s->cut_count++] =
        (cut){.recompute = l->recompute, .depth = depth, .first_layer = pipe.first_layer};
    *out = pipe.first_layer;
    return ST_OK;
}

static estimate_layout layout_of(const search *s, const search_layout *l,
                                 const int32_t *first_layer)
{
    return (estimate_layout){.dp = l->dp,
                             .pp = l->pp,
                             .ep = l->ep,
                             .zero = l->zero,
                             .schedule = l->schedule,
                             .chunks = l->chunks,
                             .first_layer = first_layer,
                             .microbatches =
                                 (int32_t)(s->r->global_batch / l->dp / l->micro_batch)};
}

// ---- every layout -------------------------------------------------------------------------------

static void ruled_out(search *s, search_rule rule)
{
    s->out->ruled_out[rule]++;
}

static status candidate_add(search *s, const search_layout *l)
{
    family *f = NULL;
    const estimate_links *links = NULL;
    TRY(arena_grow(s->a, (void **)&s->all, &s->capacity, s->count + 1, (int64_t)sizeof(candidate)));
    candidate *c = &s->all[s->count];
    *c = (candidate){.layout = *l};
    TRY(family_of(s, l, &f));
    TRY(measured_of(s, l, f, &c->m));
    TRY(links_of(s, l, &links));
    int32_t depth = 1;
    if (l->schedule != NULL) {
        const schedule_request shape = {.stages = l->pp, .microbatches = 1, .chunks = l->chunks};
        depth = plan_schedule_depth(l->schedule, &shape);
    }
    TRY(cut_of(s, l, f->whole, depth, &c->first_layer));
    const estimate_layout layout = layout_of(s, l, c->first_layer);
    estimate_time_of(c->m->e, c->m->prices, s->r->prices, links, &layout, &c->least);
    s->count++;
    return ST_OK;
}

static status zero_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    for (l->zero = 0; l->zero <= (l->dp > 1 ? 3 : 0); l->zero++) {
        if (f->zero >= 0 && f->zero != l->zero) continue;
        TRY(candidate_add(s, l));
    }
    return ST_OK;
}

// Does the schedule take it? Without an error's text: it is asked often.
static bool is_taken(const search_layout *l, int64_t microbatches)
{
    const schedule_request shape = {
        .stages = l->pp, .microbatches = (int32_t)microbatches, .chunks = l->chunks};
    if (microbatches > SCHEDULE_MAX_MICROBATCHES) return false;
    const bool taken = plan_schedule_check(l->schedule, &shape) == ST_OK;
    if (!taken) error_clear();
    return taken;
}

static status schedule_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    const int64_t microbatches = s->r->global_batch / l->dp / l->micro_batch;
    l->schedule = NULL;
    l->chunks = 1;
    if (l->pp == 1) return zero_each(s, l);
    for (int row = 0; f->schedule != NULL ? row == 0 : plan_schedule_at(row) != NULL; row++) {
        l->schedule = f->schedule != NULL ? f->schedule : plan_schedule_at(row);
        const int32_t most = l->schedule->chunks_max < SEARCH_CHUNKS_MAX ? l->schedule->chunks_max
                                                                         : SEARCH_CHUNKS_MAX;
        for (l->chunks = l->schedule->chunks_min; l->chunks <= most; l->chunks++) {
            if (f->chunks > 0 && f->chunks != l->chunks) continue;
            const schedule_request shape = {
                .stages = l->pp, .microbatches = 1, .chunks = l->chunks};
            if (plan_schedule_depth(l->schedule, &shape) > s->r->layers) {
                ruled_out(s, RULE_PP_LAYERS);
                continue;
            }
            if (!is_taken(l, microbatches)) {
                ruled_out(s, RULE_SCHEDULE);
                continue;
            }
            TRY(zero_each(s, l));
        }
    }
    return ST_OK;
}

static status micro_batch_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    const int64_t own = s->r->global_batch / l->dp;
    for (int64_t b = 1; b <= own; b++) {
        const bool is_asked = f->micro_batch == b;
        if (own % b != 0 || (f->micro_batch > 0 && !is_asked)) continue;
        if (b > SEARCH_MICRO_BATCH_MAX && !is_asked) break;
        l->micro_batch = b;
        TRY(schedule_each(s, l));
    }
    return ST_OK;
}

static status recompute_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    for (int sp = 0; sp <= (l->tp > 1 ? 1 : 0); sp++) {
        if (f->sp >= 0 && l->tp > 1 && f->sp != sp) continue;
        l->sp = sp == 1;
        if (l->sp && s->r->seq / l->cp % l->tp != 0) {
            ruled_out(s, RULE_SP_SEQ);
            continue;
        }
        for (int k = RECOMPUTE_NONE; k <= RECOMPUTE_FULL; k++) {
            if (f->recompute >= 0 && f->recompute != k) continue;
            l->recompute = (op_recompute)k;
            TRY(micro_batch_each(s, l));
        }
    }
    return ST_OK;
}

// Ranks of dp x cp that share experts: they are a divisor of cp, or cp times one of dp (plan/mesh.h).
static status ep_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    const int64_t experts = max_i64(s->r->experts, 1), ranks = (int64_t)l->dp * l->cp;
    for (int64_t ep = 1; ep <= min_i64(experts, ranks); ep++) {
        const bool fits = l->cp % ep == 0 || (ep % l->cp == 0 && l->dp % (ep / l->cp) == 0);
        if (experts % ep != 0 || !fits || (f->ep > 0 && f->ep != ep)) continue;
        l->ep = (int32_t)ep;
        TRY(recompute_each(s, l));
    }
    return ST_OK;
}

static status pp_each(search *s, search_layout *l, int64_t rest)
{
    const search_fixed *f = &s->r->fixed;
    for (int64_t pp = 1; pp <= rest && pp <= SCHEDULE_MAX_STAGES; pp++) {
        if (rest % pp != 0 || (f->pp > 0 && f->pp != pp)) continue;
        const int64_t dp = rest / pp;
        if (f->dp > 0 && f->dp != dp) continue;
        if (pp > s->r->layers) {
            ruled_out(s, RULE_PP_LAYERS);
            break;
        }
        if (dp > s->r->global_batch || s->r->global_batch % dp != 0) {
            ruled_out(s, RULE_DP_BATCH);
            continue;
        }
        l->pp = (int32_t)pp;
        l->dp = (int32_t)dp;
        TRY(ep_each(s, l));
    }
    return ST_OK;
}

static status layouts_each(search *s)
{
    const search_request *r = s->r;
    const search_fixed *f = &r->fixed;
    search_layout l = {.dp = 1};
    for (int64_t tp = 1; tp <= r->devices && tp <= max_i64(r->tp_max, f->tp); tp++) {
        if (r->devices % tp != 0 || (f->tp > 0 && f->tp != tp)) continue;
        const bool whole = r->ffn_dim % tp == 0 && r->expert_ffn_dim % tp == 0;
        if (r->heads % tp != 0 || r->kv_heads % tp != 0 || !whole) {
            ruled_out(s, RULE_TP_HEADS);
            continue;
        }
        l.tp = (int32_t)tp;
        const int64_t rest = r->devices / tp;
        for (int64_t cp = 1; cp <= rest && (cp <= SEARCH_CP_MAX || cp == f->cp); cp++) {
            if (rest % cp != 0 || (f->cp > 0 && f->cp != cp)) continue;
            if (cp > 1 && r->seq % (2 * cp) != 0) {
                ruled_out(s, RULE_CP_SEQ);
                continue;
            }
            l.cp = (int32_t)cp;
            TRY(pp_each(s, &l, rest / cp));
        }
    }
    return ST_OK;
}

// ---- the best of them ---------------------------------------------------------------------------

static int compare_least(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->least.step_ns != y->least.step_ns) {
        return x->least.step_ns < y->least.step_ns ? -1 : 1;
    }
    // Of equal ones the plainer first: what ZeRO and recomputation do not speed up they need not do.
    if (x->layout.recompute != y->layout.recompute) {
        return x->layout.recompute < y->layout.recompute ? -1 : 1;
    }
    if (x->layout.zero != y->layout.zero) return x->layout.zero < y->layout.zero ? -1 : 1;
    return x->layout.pp < y->layout.pp ? -1 : x->layout.pp > y->layout.pp;
}

// What an estimate may be too high, where weights and gradients pass by.
static bool may_fit(const search *s, const search_found *f)
{
    const int64_t slack = f->layout.zero >= 2 ? f->memory.live_bytes / 14 : 0;
    return f->bytes - slack <= s->r->usable_bytes;
}

static int64_t held_bytes(const search_found *f)
{
    return f->played.peak_bytes > 0 ? f->played.peak_bytes : f->bytes;
}

// What ranks do, of the four that may be the fullest: the first has most in flight, the last the head; where
// chunks lie both ways, others too.
static status pipe_works(search *s, const estimate_layout *l, shared_pipe *p)
{
    const int32_t last = l->pp - 1, ranks[WORK_RANKS] = {0, last, 1, last / 2};
    for (int i = 0; i < WORK_RANKS; i++) {
        if (i > 0 && (ranks[i] == 0 || ranks[i] > last)) continue;
        if (i > 1 && ranks[i] == last) continue;
        TRY(estimate_work_of(l, ranks[i], s->pipe_arena, &p->works[p->rank_count]));
        s->pipe_actions += p->works[p->rank_count].list.count;
        p->ranks[p->rank_count++] = ranks[i];
    }
    return ST_OK;
}

static status pipe_of(search *s, const estimate_layout *l, shared_pipe **out)
{
    for (int64_t i = s->pipe_count - 1; i >= 0; i--) {
        shared_pipe *p = &s->pipes[i];
        if (p->schedule != l->schedule || p->pp != l->pp || p->chunks != l->chunks ||
            p->microbatches != l->microbatches) {
            continue;
        }
        *out = p;
        return ST_OK;
    }
    if (s->pipe_actions > PIPE_ACTIONS_MOST) {
        arena_reset(s->pipe_arena);
        s->pipes = NULL;
        s->pipe_count = s->pipe_capacity = s->pipe_actions = 0;
    }
    TRY(arena_grow(s->pipe_arena, (void **)&s->pipes, &s->pipe_capacity, s->pipe_count + 1,
                   (int64_t)sizeof(shared_pipe)));
    shared_pipe *p = &s->pipes[s->pipe_count];
    *p = (shared_pipe){
        .schedule = l->schedule, .pp = l->pp, .chunks = l->chunks, .microbatches = l->microbatches};
    TRY(pipe_works(s, l, p));
    s->pipe_count++;
    *out = p;
    return ST_OK;
}

static void memory_of(search *s, const candidate *c, const estimate_layout *l, const shared_pipe *p,
                      search_found *out)
{
    const search_calls *calls = &s->r->calls;
    out->bytes = -1;
    for (int32_t i = 0; i < p->rank_count; i++) {
        estimate_memory m;
        estimate_memory_of(c->m->e, l, p->ranks[i], &p->works[i], &m);
        const int64_t bytes =
            calls->bytes != NULL ? calls->bytes(calls->context, &m) : estimate_memory_bytes(&m);
        if (bytes <= out->bytes) continue;
        out->bytes = bytes;
        out->memory = m;
        // Too large for certain, and not the smallest of those that are.
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

// Keeps those that were played, the best first; where memory alone is asked for, only as many as are wanted.
static status found_insert(search *s, const search_found *f)
{
    search_result *out = s->out;
    const bool all = s->r->plays > 0;
    if (!all && out->count == s->r->wanted) {
        if (out->plans[out->count - 1].played.step_ns <= f->played.step_ns) return ST_OK;
        out->count--;
    }
    TRY(arena_grow(s->a, (void **)&out->plans, &s->plan_capacity, out->count + 1,
                   (int64_t)sizeof(search_found)));
    int32_t at = out->count++;
    for (; at > 0 && out->plans[at - 1].played.step_ns > f->played.step_ns; at--) {
        out->plans[at] = out->plans[at - 1];
    }
    out->plans[at] = *f;
    return ST_OK;
}

// The last of the best: who is not faster is not among them. NULL: there are not as many yet.
static const search_found *last_of_best(const search *s)
{
    const search_result *out = s->out;
    return out->count < s->r->wanted ? NULL : &out->plans[s->r->wanted - 1];
}

// Is every plan that is wanted there, and none that is left can be faster than the last of them?
static bool is_settled(const search *s, int64_t least_ns)
{
    const search_found *last = last_of_best(s);
    return last != NULL && last->played.step_ns <= least_ns;
}

static bool is_before(const search *s, int32_t x, int32_t y)
{
    return compare_least(&s->all[x], &s->all[y]) < 0;
}

static void heap_push(search *s, int32_t row)
{
    int64_t at = s->heap_count++;
    for (; at > 0 && is_before(s, row, s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = row;
}

static int32_t heap_pop(search *s)
{
    const int32_t first = s->heap[0], row = s->heap[--s->heap_count];
    int64_t at = 0;
    for (int64_t child = 1; child < s->heap_count; child = 2 * at + 1) {
        if (child + 1 < s->heap_count && is_before(s, s->heap[child + 1], s->heap[child])) child++;
        if (!is_before(s, s->heap[child], row)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = row;
    return first;
}

// May it fit? Then it waits with a tighter least time.
static status candidate_tighten(search *s, int32_t row)
{
    candidate *c = &s->all[row];
    const search_layout *l = &c->layout;
    const estimate_layout layout = layout_of(s, l, c->first_layer);
    const estimate_links *links = NULL;
    shared_pipe *p = NULL;
    search_found f = {.layout = *l, .least = c->least};
    TRY(pipe_of(s, &layout, &p));
    memory_of(s, c, &layout, p, &f);
    if (!may_fit(s, &f)) {
        too_large(s, &f);
        return ST_OK;
    }
    f.fits = true;
    if (p->pipe == NULL) {
        TRY(estimate_pipe_make(s->pipe_arena, &layout, &p->pipe));
        s->pipe_actions += estimate_pipe_actions(p->pipe);
    }
    TRY(links_of(s, l, &links));
    const int64_t tight =
        estimate_pipe_time(c->m->e, c->m->prices, s->r->prices, links, &layout, p->pipe);
    c->least.step_ns = f.least.step_ns = max_i64(f.least.step_ns, tight);
    if (s->r->plays == 0) { // memory alone is asked for
        f.played.step_ns = f.least.step_ns;
        return found_insert(s, &f);
    }
    TRY(arena_new(s->a, 1, &c->found));
    *c->found = f;
    heap_push(s, row);
    return ST_OK;
}

// An error that the user can cause leaves the layout out.
static status refused(search *s, status st, bool *is)
{
    *is = st != ST_OK && status_blast_radius(st) == RADIUS_USER;
    if (!*is) return st;
    s->out->refused++;
    error_clear();
    return ST_OK;
}

static status candidate_play(search *s, search_found *f)
{
    const search_calls *calls = &s->r->calls;
    bool is_refused = false;
    TRY(refused(s, calls->play(calls->context, &f->layout, &f->played), &is_refused));
    if (is_refused) return ST_OK;
    s->out->played++;
    f->fits = f->played.peak_bytes <= s->r->usable_bytes;
    if (f->fits) return found_insert(s, f);
    too_large(s, f);
    return ST_OK;
}

// Do the best fit in the arenas of their own plans? Asked last, for it takes longest; false: one did not, and
// is gone.
static status best_fit(search *s, bool *all)
{
    const search_calls *calls = &s->r->calls;
    search_result *out = s->out;
    *all = true;
    for (int32_t i = 0; i < out->count && i < s->r->wanted && calls->fit != NULL;) {
        search_found *f = &out->plans[i++];
        bool is_refused = false;
        if (f->played.peak_bytes > 0 || s->r->plays == 0) continue;
        TRY(refused(s, calls->fit(calls->context, &f->layout, &f->played), &is_refused));
        f->fits = !is_refused && f->played.peak_bytes <= s->r->usable_bytes;
        if (f->fits) continue;
        out->played--;
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
                "most often in the way: %s",
                (long long)s->r->devices, (long long)s->r->global_batch, (long long)s->r->seq,
                search_rule_name(most));
}

// No more plays: which of the rest might have been faster than the worst plan that is kept?
static void rest_count(search *s, int64_t at, bool is_settled)
{
    search_result *out = s->out;
    const search_found *last = &out->plans[min_i64(out->count, s->r->wanted) - 1];
    out->unknown = 0;
    for (int64_t i = at; i < s->count && !is_settled; i++) {
        if (s->all[i].least.step_ns < last->played.step_ns) out->unknown++;
    }
    for (int64_t i = 0; i < s->heap_count && !is_settled; i++) {
        if (s->all[s->heap[i]].least.step_ns < last->played.step_ns) out->unknown++;
    }
    out->slower = s->count - at + s->heap_count - out->unknown;
}

static status best_find(search *s)
{
    search_result *out = s->out;
    TRY(layouts_each(s));
    out->layouts = s->count;
    if (s->count == 0) return none_valid(s);
    qsort(s->all, (size_t)s->count, sizeof(candidate), compare_least);
    TRY(arena_new(s->a, s->count, &s->heap));
    for (int32_t at = 0;;) {
        const bool is_end = at == s->count && s->heap_count == 0;
        const bool is_tight = s->heap_count > 0 && (at == s->count || is_before(s, s->heap[0], at));
        const bool settled =
            is_end || is_settled(s, s->all[is_tight ? s->heap[0] : at].least.step_ns);
        const bool enough = s->r->plays > 0 && out->played >= s->r->plays && out->count > 0;
        if (settled || enough) {
            bool all = false;
            TRY(best_fit(s, &all));
            if (!all) continue;
            if (out->count > 0) rest_count(s, at, settled);
            break;
        }
        if (is_tight) {
            TRY(candidate_play(s, s->all[heap_pop(s)].found));
        } else {
            TRY(candidate_tighten(s, at++));
        }
    }
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
