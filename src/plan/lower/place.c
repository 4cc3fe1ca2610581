// Pass 5 of lowering: which transient tensors share bytes, and their offsets.
//
// Every tensor has live intervals (live.h); two tensors may share bytes only if no interval of one
// overlaps an interval of the other. First, tensors that a node may overwrite in place are fused
// into one *unit*. Then equivalent units of a pipeline's slots may exchange intervals (the enum
// `distribution` lists the ways; place_copies.c). Without this step, a tensor that lives from the
// input half of a backward to its weight half overlaps the same tensor of every other slot at some
// time, and zb-h2 takes 25% more than the bound in any order of placement; in DualPipe a forward
// fills a slot while a backward empties one, which costs up to 60%. Unsharded weights and gradients
// may exchange intervals too (place_pools.c). Finally the units are placed in several orders, and
// the best result is kept (place_orders.c).
#include "plan/lower/place_internal.h"

#include <string.h>

int32_t lifetime_row_at(const lifetime_table *t, int32_t row, int64_t begin, int64_t end)
{
    if (row < 0 || row >= t->capacity || !t->rows[row].is_distributed) return row;
    const lifetime *l = &t->rows[row];
    int64_t low = 0, high = l->count; // the first interval that ends at `begin` or later
    while (low < high) {
        const int64_t i = low + (high - low) / 2;
        if (l->spans[i].end < begin) {
            low = i + 1;
        } else {
            high = i;
        }
    }
    // An interval that a communication ended when this action began does not hold a tensor that the
    // action's later nodes write anew.
    while (low + 1 < l->count && l->spans[low + 1].begin <= end &&
           l->spans[low + 1].begin > l->spans[low].end) {
        low++;
    }
    if (low == l->count || l->spans[low].begin > end) return row;
    return l->spans[low].copy >= 0 ? l->spans[low].copy : row;
}

// Fuses the units of `from` and `to` if they never hold data at the same time.
static status fuse(const plan *p, arena *a, placing *pl, const inplace_link *link)
{
    const int32_t x = unit_leader(pl, link->from), y = unit_leader(pl, link->to);
    if (x == y || pl->units[x].bytes != pl->units[y].bytes) return ST_OK;
    if (p->tensors[link->from].bytes != p->tensors[link->to].bytes) return ST_OK;
    int64_t touches = 0;
    if (intervals_overlap(&pl->units[x], &pl->units[y], link, &touches) || touches == 0)
        return ST_OK;
    unit *u = &pl->units[x], *v = &pl->units[y];
    live_interval *all = NULL;
    TRY(arena_new(a, u->span_count + v->span_count, &all));
    int64_t kept = 0;
    for (int64_t i = 0, k = 0; i < u->span_count || k < v->span_count;) {
        const bool is_first =
            k == v->span_count || (i < u->span_count && u->spans[i].begin <= v->spans[k].begin);
        const live_interval next = is_first ? u->spans[i++] : v->spans[k++];
        if (kept > 0 && next.begin <= all[kept - 1].end) {
            all[kept - 1].end = max_i64(all[kept - 1].end, next.end);
        } else {
            all[kept++] = next;
        }
    }
    u->spans = all;
    u->span_count = kept;
    v->leader = x;
    return ST_OK;
}

enum { MOST_UNITS = 4096 }; // limit of all attempts but the first: placing takes quadratic time

static int64_t area_of(const unit *u)
{
    int64_t area = 0;
    for (int64_t s = 0; s < u->span_count; s++) {
        area += (u->spans[s].end - u->spans[s].begin + 1) * (u->bytes / ALIGN_TENSOR);
    }
    return area;
}

// A way to make units: the distribution of intervals over slots, and that of unsharded tensors.
typedef struct attempt {
    distribution how;
    pooling pools;
} attempt;

// Fuses tensors that a node may overwrite in place; once for all attempts.
static status units_fuse(const plan *p, arena *a, const lifetime_table *lifetimes, placing *pl)
{
    *pl = (placing){.count = p->tensor_count, .unit_count = p->tensor_count};
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->count + 1,
                   (int64_t)sizeof(unit)));
    for (int64_t i = 0; i < pl->count; i++) {
        pl->units[i] = (unit){.leader = (int32_t)i, .bytes = p->tensors[i].bytes};
        if (i >= lifetimes->capacity) continue;
        pl->units[i].spans = lifetimes->rows[i].spans;
        pl->units[i].span_count = lifetimes->rows[i].count;
    }
    for (int64_t i = 0; i < lifetimes->link_count; i++) TRY(fuse(p, a, pl, &lifetimes->links[i]));
    return ST_OK;
}

static status units_order(arena *a, placing *pl)
{
    TRY(arena_new(a, pl->unit_count + 1, &pl->order));
    TRY(arena_new(a, pl->unit_count + 1, &pl->best));
    for (int64_t i = 0; i < pl->unit_count; i++) {
        unit *u = &pl->units[i];
        if (u->leader != i || u->span_count == 0 || u->bytes == 0) continue;
        pl->order[pl->order_count++] = (int32_t)i;
        u->area = area_of(u);
    }
    return ST_OK;
}

// Makes the units of an attempt from the fused ones.
static status units_make(const plan *p, arena *a, const lifetime_table *lifetimes,
                         const placing *fused, const attempt *how, placing *pl)
{
    *pl = (placing){.count = fused->count, .unit_count = fused->count};
    TRY(arena_grow(a, (void **)&pl->units, &pl->unit_capacity, pl->count + 1,
                   (int64_t)sizeof(unit)));
    memcpy(pl->units, fused->units, (size_t)pl->count * sizeof(unit));
    for (int64_t i = 0; i < pl->count; i++) {
        unit *u = &pl->units[i];
        for (int64_t k = 0; k < u->span_count; k++) u->spans[k].copy = -1;
    }
    TRY(copies_make(a, lifetimes, how->how, pl));
    TRY(pools_make(p, a, lifetimes, how->pools, pl));
    return units_order(a, pl);
}

static status units_place(arena *a, placing *pl, int64_t enough, int64_t *total)
{
    TRY(overlaps_find(a, pl));
    *total = INT64_MAX;
    return orders_try(a, pl, 0, ORDERS_PLAIN, enough, total);
}

// Bytes of all units placed one after the other: an upper bound.
static int64_t units_bytes(const placing *pl)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < pl->order_count; i++) bytes += pl->units[pl->order[i]].bytes;
    return bytes;
}

// If the best attempt is still far from the bound, perturbed orders are tried, but not for more
// units than this, because placing takes quadratic time.
enum { MOST_PERTURBED = 1500 };
static status units_perturb(arena *a, placing *pl, int64_t enough, int64_t *total)
{
    if (pl->order_count > MOST_PERTURBED) return ST_OK;
    return orders_try(a, pl, ORDERS_PLAIN, ORDERS_PERTURBED, enough, total);
}

// True if the result is so far from the bound (in thousandths) that another distribution is tried.
static bool is_far(const plan *p, distribution how, int64_t enough)
{
    if (p->transient_bytes <= enough) return false;
    static const int64_t most[DISTRIBUTE_COUNT] = {
        [DISTRIBUTE_SLOTS] = 5, [DISTRIBUTE_SHARE] = 20, [DISTRIBUTE_PIECES] = 40};
    const int64_t over = p->transient_bytes - p->live_bytes;
    return p->transient_bytes == INT64_MAX || over > p->live_bytes / 1000 * most[how];
}

static bool has_unsharded(const plan *p)
{
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (p->tensors[i].is_unsharded) return true;
    }
    return false;
}

static bool has_pools(const place_input *in)
{
    return in->pools && has_unsharded(in->p);
}

// The attempts in order, the quickest first.
static const attempt plain_attempts[] = {{DISTRIBUTE_SLOTS, POOL_NONE}};
static const attempt slot_attempts[] = {
    {DISTRIBUTE_SHARE, POOL_NONE}, {DISTRIBUTE_SLOTS, POOL_NONE}, {DISTRIBUTE_PIECES, POOL_NONE}};
static const attempt unsharded_attempts[] = {{DISTRIBUTE_SHARE, POOL_SHARE},
                                             {DISTRIBUTE_SHARE, POOL_PIECES},
                                             {DISTRIBUTE_PIECES, POOL_PIECES}};

// Sets the tensors' offsets, and the tensor of each interval.
static status places_apply(plan *p, arena *a, const lifetime_table *lifetimes, const placing *pl)
{
    for (int64_t i = 0; i < pl->count; i++) {
        if (p->tensors[i].is_part) continue;
        p->tensors[i].offset = pl->best[unit_leader(pl, (int32_t)i)];
    }
    TRY(copies_apply(p, a, lifetimes, pl));
    return pools_apply(p, a, lifetimes, pl);
}

// Runs the attempts: `best` gets the units and offsets of the best one, `taken` how it was made.
static status attempts_try(const place_input *in, arena *a, bool sizes_only, placing *fused,
                           placing *best, attempt *taken)
{
    plan *p = in->p;
    const int64_t enough = in->enough;
    const bool copies = in->lifetimes->copies.count > 0;
    const attempt *all = has_pools(in) ? unsharded_attempts
                         : copies      ? slot_attempts
                                       : plain_attempts;
    const int count = has_pools(in) ? COUNT_OF(unsharded_attempts)
                      : copies      ? COUNT_OF(slot_attempts)
                                    : COUNT_OF(plain_attempts);
    placing pl = {0};
    p->transient_bytes = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t total = 0;
        const attempt next = all[i];
        if (!is_far(p, next.how, enough)) break;
        TRY(units_make(p, a, in->lifetimes, fused, &next, &pl));
        if (i > 0 && pl.order_count > MOST_UNITS) continue;
        total = units_bytes(&pl);
        const bool is_enough = sizes_only && total <= enough; // for any placement
        if (!is_enough) TRY(units_place(a, &pl, max_i64(p->live_bytes, enough), &total));
        if (total >= p->transient_bytes) continue;
        p->transient_bytes = total;
        *best = pl;
        *taken = next;
    }
    const int64_t near = max_i64(p->live_bytes / 100 * 103, enough);
    return units_perturb(a, best, near, &p->transient_bytes);
}

static status place(const place_input *in, arena *a, bool sizes_only)
{
    placing fused = {0}, best = {0};
    attempt taken = {0};
    TRY(units_fuse(in->p, a, in->lifetimes, &fused));
    TRY(units_order(a, &fused));
    TRY(place_bound(in->p, a, &fused));
    TRY(attempts_try(in, a, sizes_only, &fused, &best, &taken));
    if (sizes_only) return ST_OK;
    const int64_t *offsets = best.best;
    if (has_pools(in) ||
        in->lifetimes->copies.count > 0) { // attempts_try() has overwritten the intervals
        TRY(units_make(in->p, a, in->lifetimes, &fused, &taken, &best));
    }
    for (int64_t i = 0; i < best.unit_count; i++) best.best[i] = offsets[i];
    return places_apply(in->p, a, in->lifetimes, &best);
}

static status place_in(const place_input *in, bool sizes_only)
{
    arena *a = in->scratch;
    if (a == NULL) TRY(arena_create("plan memory", 0, &a));
    const status st = place(in, a, sizes_only);
    plan_arena_release(a, in->scratch);
    return st;
}

status plan_place_sizes(const place_input *in)
{
    return place_in(in, true);
}

status plan_place_offsets(const place_input *in)
{
    return place_in(in, false);
}
