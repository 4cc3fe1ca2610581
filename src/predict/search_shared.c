// Parts that many layouts share, made once and looked up: models, measured programs and prices of
// each way to cut the model and each micro-batch; groups of ranks; layers of stages; actions of a
// schedule's ranks.
#include "predict/habits.h"
#include "predict/search_internal.h"

status search_family_of(search *s, const search_layout *l, family **out)
{
    const bool ring = l->cp > 1 && candidates_ring(s->r->each, l);
    for (int64_t i = s->family_count - 1; i >= 0; i--) {
        family *f = &s->families[i];
        if (f->tp != l->tp || f->cp != l->cp || f->ep != l->ep || f->sp != l->sp) continue;
        if (!search_recompute_equals(l, f->recompute, f->recompute_layers)) continue;
        if (f->ring != ring || f->whole_experts != l->whole_experts) continue;
        *out = f;
        return ST_OK;
    }
    TRY(arena_grow(s->a, (void **)&s->families, &s->family_capacity, s->family_count + 1,
                   (int64_t)sizeof(family)));
    family *f = &s->families[s->family_count];
    *f = (family){.tp = l->tp,
                  .cp = l->cp,
                  .ep = l->ep,
                  .sp = l->sp,
                  .ring = ring,
                  .whole_experts = l->whole_experts,
                  .recompute = l->recompute,
                  .recompute_layers = l->recompute_layers};
    TRY(candidates_model(s->r->each, s->a, l, &f->whole, &f->local));
    s->family_count++;
    *out = f;
    return ST_OK;
}

status search_links_of(search *s, const search_layout *l, const estimate_links **out)
{
    for (int64_t i = s->link_count - 1; i >= 0; i--) {
        const joined *j = &s->links[i];
        const bool is_equivalent = j->tp == l->tp && j->cp == l->cp && j->pp == l->pp;
        if (is_equivalent && j->ep == l->ep && j->whole_experts == l->whole_experts) {
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
    j->whole_experts = l->whole_experts;
    const plan_mesh mesh = {
        .size = {[AXIS_PP] = l->pp, [AXIS_DP] = l->dp, [AXIS_CP] = l->cp, [AXIS_TP] = l->tp},
        .ep = l->ep,
        .whole_experts = l->whole_experts};
    estimate_links_of(s->r->prices->c, &mesh, &j->links);
    s->link_count++;
    *out = &j->links;
    return ST_OK;
}

status search_measured_of(search *s, const search_layout *l, family *f, const measured **out)
{
    for (int64_t i = f->count - 1; i >= 0; i--) {
        if (f->each[i].micro_batch != l->micro_batch) continue;
        *out = &f->each[i];
        return ST_OK;
    }
    if (f->each == NULL) { // other entries point to them
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
                                      .whole_experts = l->whole_experts,
                                      .states = r->states,
                                      .scratch_bytes = r->scratch_bytes,
                                      .workspace = r->workspace,
                                      .workspace_context = r->workspace_context,
                                      .limits = predict_habit_limits(r->prices->profile),
                                      .rows_inline = predict_habit_rows_inline(r->prices->profile),
                                      .sums_once = r->sums_once,
                                      .codec = r->codec,
                                      .reuse_from = f->count > 0 ? f->each[0].e : NULL};
    TRY(search_links_of(s, l, &links));
    TRY(estimate_make(s->a, &request, &m->e));
    TRY(estimate_price(s->a, m->e, r->prices, links, s->first_prices, &m->prices));
    if (s->first_prices == NULL) s->first_prices = m->prices;
    m->micro_batch = l->micro_batch;
    f->count++;
    *out = m;
    return ST_OK;
}

status search_cut_of(search *s, const search_layout *l, const op_model *whole, int32_t depth,
                     const int32_t **out)
{
    for (int64_t i = s->cut_count - 1; i >= 0; i--) {
        const cut *x = &s->cuts[i];
        if (!search_recompute_equals(l, x->recompute, x->recompute_layers)) continue;
        if (x->depth != depth) continue;
        *out = x->first_layer;
        return ST_OK;
    }
    plan_pipeline pipe;
    const plan_mesh mesh = {.size = {[AXIS_PP] = l->pp}};
    const plan_pipeline_request evenly = {.schedule = l->schedule, .chunks = l->chunks};
    const plan_pipeline_request request = s->r->pipeline != NULL ? *s->r->pipeline : evenly;
    TRY(plan_pipeline_make(s->a, whole, &mesh, &request, 0, &pipe));
    ASSERT(pipe.depth == depth);
    TRY(arena_grow(s->a, (void **)&s->cuts, &s->cut_capacity, s->cut_count + 1,
                   (int64_t)sizeof(cut)));
    s->cuts[s->cut_count++] = (cut){.recompute = l->recompute,
                                    .recompute_layers = l->recompute_layers,
                                    .depth = depth,
                                    .first_layer = pipe.first_layer};
    *out = pipe.first_layer;
    return ST_OK;
}

estimate_layout search_estimate_layout(const search *s, const search_layout *l,
                                       const int32_t *first_layer)
{
    return (estimate_layout){.dp = l->dp,
                             .pp = l->pp,
                             .ep = l->ep,
                             .zero = l->zero,
                             .zero_group = s->r->zero_group,
                             .schedule = l->schedule,
                             .chunks = l->chunks,
                             .first_layer = first_layer,
                             .microbatches =
                                 (int32_t)(s->r->global_batch / l->dp / l->micro_batch)};
}

// True if the schedule allows it; sets no error text because it is called often.
static bool is_taken(const plan_schedule *schedule, int32_t pp, int32_t chunks,
                     int64_t microbatches)
{
    const schedule_request shape = {
        .stages = pp, .microbatches = (int32_t)microbatches, .chunks = chunks};
    if (microbatches > SCHEDULE_MAX_MICROBATCHES) return false;
    const bool taken = plan_schedule_check(schedule, &shape) == ST_OK;
    if (!taken) error_clear();
    return taken;
}

static status way_add(search *s, way_list *w, const plan_schedule *schedule, int32_t chunks)
{
    const search_fixed *f = &s->r->fixed;
    const schedule_request shape = {.stages = w->pp, .microbatches = 1, .chunks = chunks};
    if (f->chunks > 0 && f->chunks != chunks) return ST_OK;
    const int32_t depth = plan_schedule_depth(schedule, &shape);
    if (depth > search_stages_most(s)) {
        w->ruled_out[RULE_PP_LAYERS]++;
        return ST_OK;
    }
    if (!is_taken(schedule, w->pp, chunks, w->microbatches)) {
        w->ruled_out[RULE_SCHEDULE]++;
        return ST_OK;
    }
    TRY(arena_grow(s->a, (void **)&w->ways, &w->capacity, w->count + 1, (int64_t)sizeof(way)));
    w->ways[w->count++] = (way){schedule, chunks, depth};
    return ST_OK;
}

static status ways_find(search *s, way_list *w)
{
    const plan_schedule *fixed = s->r->fixed.schedule;
    if (w->pp == 1) {
        TRY(arena_new(s->a, 1, &w->ways));
        w->ways[w->count++] = (way){NULL, 1, 1};
        return ST_OK;
    }
    for (int row = 0; fixed != NULL ? row == 0 : plan_schedule_at(row) != NULL; row++) {
        const plan_schedule *x = fixed != NULL ? fixed : plan_schedule_at(row);
        const int64_t most = min_i64(x->chunks_max, max_i64(SEARCH_CHUNKS_MAX, s->r->fixed.chunks));
        for (int32_t c = x->chunks_min; c <= most; c++) TRY(way_add(s, w, x, c));
    }
    return ST_OK;
}

status search_ways_of(search *s, int32_t pp, int64_t microbatches, way_list **out)
{
    for (int64_t i = s->way_count - 1; i >= 0; i--) {
        if (s->ways[i]->pp != pp || s->ways[i]->microbatches != microbatches) continue;
        *out = s->ways[i];
        return ST_OK;
    }
    TRY(arena_grow(s->a, (void **)&s->ways, &s->way_capacity, s->way_count + 1,
                   (int64_t)sizeof(way_list *)));
    TRY(arena_new(s->a, 1, out));
    (*out)->pp = pp;
    (*out)->microbatches = microbatches;
    TRY(ways_find(s, *out));
    s->ways[s->way_count++] = *out;
    return ST_OK;
}

// Actions of the four ranks that may be the fullest: the first has most in flight, the last has the
// head; if chunks go both ways, others too.
static status pipe_works(search *s, const estimate_layout *l, shared_pipe *p)
{
    const int32_t last = l->pp - 1, ranks[WORK_RANKS] = {0, last, 1, last / 2};
    boundary_timelines times;
    arena_reset(s->work);
    TRY(estimate_times_of(l, s->work, &times));
    for (int i = 0; i < WORK_RANKS; i++) {
        if (i > 0 && (ranks[i] == 0 || ranks[i] > last)) continue;
        if (i > 1 && ranks[i] == last) continue;
        TRY(estimate_work_of(l, &times, ranks[i], s->pipe_arena, &p->works[p->rank_count]));
        s->pipe_actions += p->works[p->rank_count].list.count;
        p->ranks[p->rank_count++] = ranks[i];
    }
    return ST_OK;
}

status search_pipe_of(search *s, const estimate_layout *l, shared_pipe **out)
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
