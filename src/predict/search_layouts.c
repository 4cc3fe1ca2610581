// Enumerates the layouts in groups that share all but schedule, chunks and ZeRO, and keeps them on
// a heap with the least time first. A group is opened when its work alone is the least time of all
// that remain, so much slower layouts cost no more than counting them.
#include "predict/search_internal.h"

// ---- the next one ------------------------------------------------------------------------------

// Order of equal times: groups first, because they stand for others, then simpler layouts, because
// ZeRO and recomputation are pointless if they save no time.
static bool is_before(const item *x, const item *y)
{
    if (x->least_ns != y->least_ns) return x->least_ns < y->least_ns;
    if (x->g != NULL || y->g != NULL) return x->g != NULL && y->g == NULL;
    const search_layout *a = &x->c->layout, *b = &y->c->layout;
    if (a->recompute != b->recompute) return a->recompute < b->recompute;
    if (a->recompute_layers != b->recompute_layers) {
        return b->recompute_layers == 0 ||
               (a->recompute_layers > 0 && a->recompute_layers < b->recompute_layers);
    }
    if (a->zero != b->zero) return a->zero < b->zero;
    return a->pp < b->pp;
}

status search_push(search *s, const item *x)
{
    TRY(arena_grow(s->a, (void **)&s->heap, &s->heap_capacity, s->heap_count + 1,
                   (int64_t)sizeof(item)));
    int64_t at = s->heap_count++;
    for (; at > 0 && is_before(x, &s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = *x;
    return ST_OK;
}

item search_pop(search *s)
{
    ASSERT(s->heap_count > 0);
    const item first = s->heap[0], last = s->heap[--s->heap_count];
    int64_t at = 0;
    for (int64_t child = 1; child < s->heap_count; child = 2 * at + 1) {
        if (child + 1 < s->heap_count && is_before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!is_before(&s->heap[child], &last)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return first;
}

// ---- groups ------------------------------------------------------------------------------------

static void ruled_out(search *s, search_rule rule)
{
    s->out->ruled_out[rule]++;
}

static status group_measure(search *s, group *g, int64_t *least_ns)
{
    family *f = NULL;
    TRY(search_family_of(s, &g->layout, &f));
    TRY(search_measured_of(s, &g->layout, f, &g->m));
    *least_ns = max_i64(
        *least_ns, estimate_work_ns(g->m->prices, s->r->prices, g->microbatches, g->layout.pp));
    return ST_OK;
}

static int zero_most(const search *s)
{
    return s->r->codec != NULL && !s->r->sums_once ? 1 : 3;
}

static int zero_first(const search *s)
{
    return s->r->fixed.zero > 0 ? s->r->fixed.zero : 0;
}

static int zero_last(const search *s, const search_layout *l)
{
    const int most = l->dp * l->cp > 1 ? zero_most(s) : 0;
    return s->r->fixed.zero >= 0 ? (int)min_i64(most, s->r->fixed.zero) : most;
}

// A group that recomputes more takes at least the time of one that recomputes less, so it starts
// with that time.
static status group_add(search *s, const search_layout *l, int64_t *least_ns)
{
    group *g = NULL;
    way_list *w = NULL;
    const int64_t microbatches = s->r->global_batch / l->dp / l->micro_batch;
    const bool alone = l->dp == 1 && l->cp == 1;
    if (s->r->codec != NULL && (alone || s->r->fixed.zero > zero_most(s))) {
        ruled_out(s, RULE_CODEC);
        return ST_OK;
    }
    TRY(search_ways_of(s, l->pp, microbatches, &w));
    for (int i = 0; i < RULE_COUNT; i++) s->out->ruled_out[i] += w->ruled_out[i];
    const int64_t count = w->count * max_i64(zero_last(s, l) - zero_first(s) + 1, 0);
    if (count == 0) return ST_OK;
    s->out->layouts += count;
    TRY(arena_new(s->a, 1, &g));
    *g = (group){.layout = *l, .microbatches = microbatches, .ways = w};
    if (*least_ns == 0) TRY(group_measure(s, g, least_ns));
    const item x = {.least_ns = *least_ns, .g = g};
    return search_push(s, &x);
}

static status candidate_add(search *s, const group *g, const family *f, const way *how, int zero,
                            candidate *c)
{
    const estimate_links *links = NULL;
    *c = (candidate){.layout = g->layout, .m = g->m};
    c->layout.schedule = how->schedule;
    c->layout.chunks = how->chunks;
    c->layout.zero = zero;
    TRY(search_links_of(s, &c->layout, &links));
    TRY(search_cut_of(s, &c->layout, f->whole, how->depth, &c->first_layer));
    const estimate_layout layout = search_estimate_layout(s, &c->layout, c->first_layer);
    estimate_time_of(c->m->e, c->m->prices, s->r->prices, links, &layout, &c->least);
    const item x = {.least_ns = c->least.step_ns, .c = c};
    return search_push(s, &x);
}

status search_group_open(search *s, group *g, int64_t least_ns)
{
    family *f = NULL;
    candidate *all = NULL;
    if (g->m == NULL) {
        item again = {.least_ns = least_ns, .g = g};
        TRY(group_measure(s, g, &again.least_ns));
        return search_push(s, &again);
    }
    const int first = zero_first(s), last = zero_last(s, &g->layout);
    TRY(search_family_of(s, &g->layout, &f));
    TRY(arena_new(s->a, g->ways->count * (last - first + 1), &all));
    for (int64_t i = 0; i < g->ways->count; i++) {
        for (int zero = first; zero <= last; zero++) {
            TRY(candidate_add(s, g, f, &g->ways->ways[i], zero, all++));
        }
    }
    return ST_OK;
}

// ---- every layout -------------------------------------------------------------------------------

static int64_t shared_batch(const search_request *r)
{
    return r->batch_divisor > 0 ? r->batch_divisor : r->global_batch;
}

// All layers, or a part of them if that saves much; 0 means all.
static status recompute_layers_each(search *s, search_layout *l, int64_t *least_ns)
{
    enum { PARTS = 4 };
    const int32_t fixed = s->r->fixed.recompute_layers;
    int32_t before = 0;
    for (int32_t i = 1; i < PARTS && fixed < 0 && l->recompute == RECOMPUTE_FULL; i++) {
        l->recompute_layers = (int32_t)((int64_t)s->r->layers * i / PARTS);
        if (l->recompute_layers > before) TRY(group_add(s, l, least_ns));
        before = l->recompute_layers;
    }
    l->recompute_layers = fixed > 0 && l->recompute != RECOMPUTE_NONE ? fixed : 0;
    return group_add(s, l, least_ns);
}

static status recompute_each(search *s, search_layout *l)
{
    int64_t least_ns = 0;
    for (int k = RECOMPUTE_NONE; k <= RECOMPUTE_FULL; k++) {
        if (s->r->fixed.recompute >= 0 && s->r->fixed.recompute != k) continue;
        l->recompute = (op_recompute)k;
        TRY(recompute_layers_each(s, l, &least_ns));
    }
    return ST_OK;
}

static status micro_batch_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    const int64_t own = shared_batch(s->r) / l->dp;
    for (int64_t b = 1; b <= own; b++) {
        const bool is_asked = f->micro_batch == b;
        if (own % b != 0 || (f->micro_batch > 0 && !is_asked)) continue;
        if (b > SEARCH_MICRO_BATCH_MAX && !is_asked) break;
        l->micro_batch = b;
        TRY(recompute_each(s, l));
    }
    return ST_OK;
}

static status sp_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    for (int sp = 0; sp <= (l->tp > 1 ? 1 : 0); sp++) {
        if (f->sp >= 0 && l->tp > 1 && f->sp != sp) continue;
        if (l->whole_experts && sp == 0) continue; // all of tp would hold the same rows
        l->sp = sp == 1;
        if (l->sp && s->r->seq / l->cp % l->tp != 0) {
            ruled_out(s, RULE_SP_SEQ);
            continue;
        }
        TRY(micro_batch_each(s, l));
    }
    return ST_OK;
}

// Ranks that share experts out form whole rows (plan/mesh.h).
static status ep_each(search *s, search_layout *l)
{
    const search_fixed *f = &s->r->fixed;
    const int64_t experts = max_i64(s->r->experts, 1);
    plan_mesh mesh = {.size = {[AXIS_DP] = l->dp, [AXIS_CP] = l->cp, [AXIS_TP] = l->tp},
                      .whole_experts = l->whole_experts};
    for (int64_t ep = 1; ep <= min_i64(experts, plan_mesh_ranks(&mesh)); ep++) {
        mesh.ep = (int32_t)ep;
        if (experts % ep != 0 || !plan_ep_fits(&mesh) || (f->ep > 0 && f->ep != ep)) continue;
        l->ep = mesh.ep;
        TRY(sp_each(s, l));
    }
    return ST_OK;
}

// Experts cut by tp, and whole ones.
static status experts_each(search *s, search_layout *l)
{
    const search_request *r = s->r;
    for (int whole = 0; whole <= (r->experts > 0 && l->tp > 1 ? 1 : 0); whole++) {
        const bool is_asked = r->fixed.whole_experts < 0 || r->fixed.whole_experts == whole;
        const int64_t columns = whole == 1 ? r->shared_ffn_dim : r->expert_ffn_dim;
        if ((l->tp > 1 && !is_asked) || columns % l->tp != 0) continue;
        l->whole_experts = whole == 1;
        TRY(ep_each(s, l));
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
        if (pp > search_stages_most(s)) {
            ruled_out(s, RULE_PP_LAYERS);
            break;
        }
        if (shared_batch(s->r) % dp != 0) {
            ruled_out(s, RULE_DP_BATCH);
            continue;
        }
        l->pp = (int32_t)pp;
        l->dp = (int32_t)dp;
        TRY(experts_each(s, l));
    }
    return ST_OK;
}

// Columns of experts, cut or not.
static bool columns_divide(const search_request *r, int64_t tp)
{
    const bool can_be_whole = r->experts > 0 && r->fixed.whole_experts != 0;
    return r->expert_ffn_dim % tp == 0 || (can_be_whole && r->shared_ffn_dim % tp == 0);
}

status search_groups_make(search *s)
{
    const search_request *r = s->r;
    const search_fixed *f = &r->fixed;
    search_layout l = {.dp = 1, .chunks = 1};
    for (int64_t tp = 1; tp <= r->devices && tp <= max_i64(r->tp_max, f->tp); tp++) {
        if (r->devices % tp != 0 || (f->tp > 0 && f->tp != tp)) continue;
        const bool whole = r->ffn_dim % tp == 0 && columns_divide(r, tp);
        const bool keys = r->kv_heads % tp == 0 || tp % r->kv_heads == 0; // otherwise copies
        if (r->heads % tp != 0 || !keys || !whole) {
            ruled_out(s, RULE_TP_HEADS);
            continue;
        }
        l.tp = (int32_t)tp;
        const int64_t rest = r->devices / tp;
        for (int64_t cp = 1; cp <= rest && cp <= max_i64(SEARCH_CP_MAX, f->cp); cp++) {
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
