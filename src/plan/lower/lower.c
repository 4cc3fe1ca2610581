// Lowering, the driver: checks the request and calls the passes (lower.h) one after the other.
#include "plan/lower/overlap.h"
#include "plan/lower/passes.h"

#include <string.h>

// ---- the request --------------------------------------------------------------------------------

static status cp_check(const plan_request *r)
{
    const int32_t ways = lower_cp(r);
    const int32_t shards = r->strict && r->cp_shards > 1 ? r->cp_shards : 1;
    if (ways == 1 && shards == 1) return ST_OK;
    if (r->strict && shards % ways != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.cp = %d does not divide determinism.cp_shards = %d, as strict order asks", ways,
            shards);
    }
    if (shards / ways > TREE_MAX_CP || shards > PLAN_MAX_CP_SHARDS) {
        return fail(
            ST_CONFIG_RANGE,
            "determinism.cp_shards = %d: expected at most %d, and at most %d for each rank of "
            "layout.cp = %d",
            shards, (int)PLAN_MAX_CP_SHARDS, (int)TREE_MAX_CP, ways);
    }
    const int64_t pieces = 2 * max_i64(ways, shards);
    if (r->seq % pieces == 0) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "train.seq = %lld: expected a multiple of %lld, the number of pieces that layout.cp and "
        "determinism.cp_shards make",
        (long long)r->seq, (long long)pieces);
}

static status request_check(const plan_request *r, int64_t *first, int64_t *own)
{
    const int32_t ranks = plan_mesh_size(&r->mesh, AXIS_DP);
    if (r->strict && (r->shards < 1 || r->shards > PLAN_MAX_SHARDS)) {
        return fail(ST_CONFIG_RANGE, "determinism.shards = %d is not between 1 and %d", r->shards,
                    PLAN_MAX_SHARDS);
    }
    if (r->sequences < 1) return fail(ST_CONFIG_RANGE, "a step has no sequences");
    TRY(cp_check(r));
    plan_own_sequences(&r->mesh, r->strict, r->shards, r->sequences, first, own);
    if (*own < 1) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.dp = %d leaves rank %d without one of the %lld sequences of a step%s; use "
            "fewer ranks or a larger train.global_batch",
            ranks, r->mesh.at[AXIS_DP], (long long)r->sequences,
            r->strict ? ": strict order needs whole shards (determinism.shards)" : "");
    }
    if (r->micro_batch <= 0 || *own % r->micro_batch != 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "train.micro_batch = %lld does not divide the %lld sequences of the step",
                    (long long)r->micro_batch, (long long)*own);
    }
    return ST_OK;
}

// Weight gradients of strict order are made shard by shard, each of two pieces of a sequence. `r`
// is of the rank's rows.
static int64_t cut_pieces_of(const plan_request *r)
{
    const int32_t own = r->strict ? r->cp_shards / lower_cp(r) : 0;
    if (own > 1) return 2 * (int64_t)own;
    if (r->strict || r->rows_inline) return 1;
    return plan_overlap_cut_pieces(r->model, plan_mesh_size(&r->mesh, AXIS_TP), r->micro_batch,
                                   r->seq);
}

status plan_lower_begin(arena *a, arena *work, const plan_request *request, plan_table *run,
                        lower_passes *s)
{
    int64_t first = 0, own = 0;
    plan *p = NULL;
    TRY(request_check(request, &first, &own));
    *s = (lower_passes){.local = *request};
    plan_request *local = &s->local;
    local->seq /= lower_cp(request);
    TRY(arena_new(a, 1, &p));
    *p = (plan){.purpose = request->model->purpose,
                .model = request->model,
                .run = run,
                .a = work,
                .sequences = request->sequences,
                .first_sequence = first,
                .own_sequences = own,
                .losses = -1,
                .shards = request->shards,
                .micro_batch = request->micro_batch,
                .cp_shards = request->strict && request->cp_shards > 1 ? request->cp_shards : 1,
                .seq = local->seq,
                .whole_seq = request->seq,
                .cache_seq = request->cache_seq,
                .seq_cut = local->seq / plan_mesh_size(&request->mesh, AXIS_TP),
                .cut_pieces = cut_pieces_of(local),
                .loss_divisor = (double)request->sequences * (double)request->seq,
                .strict = request->strict,
                .in_pairs = request->in_pairs,
                .poison = request->poison};
    s->in = (lower_input){.r = local, .m = request->model, .a = work, .p = p};
    s->in.bound = plan_bound(p, request->micro_batch, 0);
    const int32_t count = (int32_t)(own / request->micro_batch);
    TRY(plan_pipeline_make(work, request->model, &request->mesh, &request->pipeline,
                           request->optimizer != NULL ? count : 0, &s->in.pipe));
    // Evaluation goes forward only, in an order of its own.
    s->in.pipe.shape.microbatches = count;
    return ST_OK;
}

// ---- lists --------------------------------------------------------------------------------------

// Reserves memory for as many entries as a similar plan has, plus a sixteenth, so that the lists do
// not move.
static status lists_reserve(plan *p, const plan *similar)
{
    if (similar == NULL) return ST_OK;
    p->a = p->run->a;
    const struct {
        void **items;
        int64_t *capacity, count, bytes;
    } lists[] = {
        {(void **)&p->actions, &p->action_capacity, similar->action_count, sizeof(*p->actions)},
        {(void **)&p->tensors, &p->tensor_capacity, similar->tensor_count, sizeof(*p->tensors)},
        {(void **)&p->bindings, &p->binding_capacity, similar->binding_count, sizeof(*p->bindings)},
        {(void **)&p->comms, &p->comm_capacity, similar->comm_count, sizeof(*p->comms)},
        {(void **)&p->items, &p->item_capacity, similar->item_count, sizeof(*p->items)}};
    for (int64_t i = 0; i < COUNT_OF(lists); i++) {
        TRY(arena_grow(p->a, lists[i].items, lists[i].capacity, lists[i].count / 16 * 17 + 64,
                       lists[i].bytes));
    }
    return ST_OK;
}

// Copies a complete list into arena `a`.
static status list_keep(arena *a, void **items, int64_t count, int64_t *capacity,
                        int64_t item_bytes)
{
    void *kept = NULL;
    TRY(arena_alloc_array(a, count + 1, item_bytes, &kept));
    if (count > 0) memcpy(kept, *items, (size_t)(count * item_bytes));
    *items = kept;
    *capacity = count + 1;
    return ST_OK;
}

// Copies the plan's lists into the arena of the plan. A growing list leaves its old copies in
// `work`; with them, plans of a step with many micro-batches were three times as large.
status plan_lower_keep(plan *p)
{
    if (p->a == p->run->a) return ST_OK; // the lists are there already
    p->a = p->run->a;
    TRY(list_keep(p->a, (void **)&p->tensors, p->tensor_count, &p->tensor_capacity,
                  (int64_t)sizeof(*p->tensors)));
    TRY(list_keep(p->a, (void **)&p->actions, p->action_count, &p->action_capacity,
                  (int64_t)sizeof(*p->actions)));
    TRY(list_keep(p->a, (void **)&p->bindings, p->binding_count, &p->binding_capacity,
                  (int64_t)sizeof(*p->bindings)));
    TRY(list_keep(p->a, (void **)&p->comms, p->comm_count, &p->comm_capacity,
                  (int64_t)sizeof(*p->comms)));
    TRY(list_keep(p->a, (void **)&p->items, p->item_count, &p->item_capacity,
                  (int64_t)sizeof(*p->items)));
    return list_keep(p->a, (void **)&p->leaves, p->leaf_count, &p->leaf_capacity,
                     (int64_t)sizeof(*p->leaves));
}

// ---- passes -------------------------------------------------------------------------------------

status plan_lower_collect(lower_passes *s)
{
    TRY(plan_expand(&s->in, &s->x));
    TRY(plan_bind(&s->in, &s->x, &s->b));
    return plan_collect(&s->in, &s->x, &s->b, &s->c);
}

// If a stage runs one micro-batch after the other, all but the first two repeat the one before,
// except those that overlap several shards, whose weight lists run several times.
static status repeats_find(const lower_passes *s, const bool **out)
{
    enum { FIRST = 2 };
    const plan *p = s->in.p;
    const int64_t count = p->own_sequences / p->micro_batch;
    const shard_tree *tree = &s->x.trees[0];
    bool *repeats = NULL;
    *out = NULL;
    if (s->in.pipe.schedule != NULL || count <= FIRST) return ST_OK;
    TRY(arena_new(s->in.a, count, &repeats));
    for (int64_t m = FIRST; m < count; m++) {
        const int64_t begin = p->first_sequence + m * p->micro_batch;
        repeats[m] = true;
        for (int32_t k = tree->first + 1; k < tree->last; k++) {
            const int64_t shard_begin = tree->begin[k];
            if (shard_begin > begin && shard_begin < begin + p->micro_batch) repeats[m] = false;
        }
    }
    *out = repeats;
    return ST_OK;
}

status plan_lower_live(lower_passes *s)
{
    const plan *p = s->in.p;
    live_input in = {.p = p, .kept = s->b.kept, .kept_count = s->b.kept_count};
    TRY(arena_new(s->in.a, p->action_count + 1, &s->begins));
    for (int64_t i = 0; i < p->action_count; i++) {
        s->begins[i + 1] = s->begins[i] + s->c.ticks[i];
    }
    in.begins = s->begins;
    TRY(repeats_find(s, &in.repeats));
    s->lifetimes = (lifetime_table){.a = s->in.a};
    return plan_live(&in, &s->lifetimes);
}

status plan_lower_place_input(lower_passes *s, place_input *out)
{
    const plan_request *r = s->in.r;
    plan *p = s->in.p;
    TRY(place_find_copies(&s->in, &s->x, &s->b, &s->lifetimes.copies));
    plan_table_place(p->run); // for run_bytes; the caller repeats it after the last plan
    *out = (place_input){.p = p,
                         .lifetimes = &s->lifetimes,
                         .pools = s->in.pipe.schedule != NULL &&
                                  (lower_gathers_weights(r) || lower_scatters_gradients(r)),
                         .enough = r->enough_bytes - p->run->run_bytes,
                         .scratch = r->scratch != NULL ? r->scratch->places : NULL};
    return ST_OK;
}

static status plan_make(arena *a, arena *work, const plan_request *request, plan_table *run,
                        plan **out)
{
    lower_passes *s = NULL;
    place_input place;
    TRY(arena_new(work, 1, &s));
    TRY(plan_lower_begin(a, work, request, run, s));
    *out = s->in.p;
    TRY(lists_reserve(s->in.p, request->scratch != NULL ? request->scratch->similar : NULL));
    TRY(plan_lower_collect(s));
    if (request->last == PLAN_COLLECTED) return plan_lower_keep(s->in.p);
    TRY(plan_lower_live(s));
    TRY(plan_lower_place_input(s, &place));
    if (request->last == PLAN_PLACED) {
        TRY(plan_place_sizes(&place));
        return plan_lower_keep(s->in.p);
    }
    TRY(plan_place_offsets(&place));
    TRY(plan_collect_names(&s->in, &s->c));
    if (s->lifetimes.copies.count > 0 || place.pools)
        TRY(place_moves(&s->in, &s->lifetimes, s->begins));
    TRY(plan_lower_keep(s->in.p));
    return plan_fuse(request, s->in.p);
}

status plan_create(arena *a, const plan_request *request, plan_table *run, plan **out)
{
    arena *const lent = request->scratch != NULL ? request->scratch->lists : NULL, *work = lent;
    plan *p = NULL;
    if (work == NULL) TRY(arena_create("lowering", 0, &work));
    const status st = plan_make(a, work, request, run, &p);
    if (st == ST_OK) *out = p;
    plan_arena_release(work, lent);
    return st;
}
