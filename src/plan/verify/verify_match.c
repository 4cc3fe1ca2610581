// The verifier: matches the collectives and messages of ranks and compares their arguments.
//
// The collectives of a group are numbered in the order of each member's list, and the messages of a
// direction likewise: the n-th of all members match. Each rank has its own table of groups, so
// groups are compared by value.
#include "base/hash.h"
#include "plan/verify/verify_internal.h"

#include <stdio.h>
#include <string.h>

static bool is_message(op_collective op)
{
    return op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE;
}

// Whether plans use this operation.
static bool is_planned(const plan_comm *c)
{
    static const bool planned[COLLECTIVE_COUNT] = {
        [COLLECTIVE_ALL_REDUCE] = true, [COLLECTIVE_REDUCE_SCATTER] = true,
        [COLLECTIVE_ALL_GATHER] = true, [COLLECTIVE_ALL_TO_ALL] = true,
        [COLLECTIVE_BROADCAST] = true,  [COLLECTIVE_SEND] = true,
        [COLLECTIVE_RECEIVE] = true,    [COLLECTIVE_ALL_TO_ALLV] = true};
    return (unsigned)c->op < COLLECTIVE_COUNT && planned[c->op] &&
           (unsigned)c->reduction < REDUCTION_AVG;
}

// Hashes everything that members must agree on. The leaves may differ between ranks.
static uint64_t what_of(const plan *p, const plan_comm *c)
{
    const int32_t leaves = verify_leaves(c);
    const int64_t words[] = {is_message(c->op) ? COLLECTIVE_SEND : c->op,
                             is_message(c->op) || c->op == COLLECTIVE_ALL_GATHER ? 0 : c->reduction,
                             c->type,
                             c->items_count / leaves,
                             c->leaves_count > 0,
                             c->compressed,
                             c->op == COLLECTIVE_BROADCAST ? c->peer : 0,
                             c->piece,
                             c->stride,
                             c->row_elements};
    uint64_t hash = hash64(words, sizeof(words), 0);
    for (int32_t i = 0; i < c->items_count; i += leaves) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        const int64_t counts[] = {item->count, item->total};
        hash = hash64(counts, sizeof(counts), hash);
    }
    return hash64(c->name, (int64_t)strlen(c->name), hash);
}

static status place_find(verifier *v, const plan_mesh *at, const plan_group *g, const int32_t *pair,
                         int32_t *row)
{
    const int64_t size = plan_group_size(at, g);
    int32_t *members = NULL;
    TRY(arena_new(v->a, size, &members));
    plan_group_members(at, g, members);
    verify_place place = {.group = *g, .from = -1, .to = -1, .members = members};
    place.member_count = (int32_t)size;
    if (pair != NULL) {
        place.from = members[pair[0]];
        place.to = members[pair[1]];
        place.member_count = 2;
        place.members[0] = place.from < place.to ? place.from : place.to;
        place.members[1] = place.from < place.to ? place.to : place.from;
    }
    for (*row = 0; *row < v->place_count; (*row)++) {
        const verify_place *other = &v->places[*row];
        if (plan_group_equal(&other->group, g) && other->members[0] == place.members[0] &&
            other->member_count == place.member_count && other->from == place.from &&
            other->to == place.to) {
            return ST_OK;
        }
    }
    TRY(arena_grow(v->a, (void **)&v->places, &v->place_capacity, v->place_count + 1,
                   (int64_t)sizeof(place)));
    v->places[v->place_count++] = place;
    return ST_OK;
}

// Checks the group of a communication: it is in the table, has other ranks, and contains the peer.
status verify_group(const verifier *v, const verify_facts *f, int32_t action)
{
    char name[VERIFY_NAME_BYTES];
    const plan_comm *c = verify_comm(f, action);
    if (!is_planned(c)) {
        return fail(ST_BROKEN_PLAN, "%s: no plan has operation %d with reduction %d",
                    verify_name(v, f->rank, action, name), (int)c->op, (int)c->reduction);
    }
    if (c->group < 0 || c->group >= f->p->run->group_count) {
        return fail(ST_BROKEN_PLAN, "%s: there is no group %d",
                    verify_name(v, f->rank, action, name), c->group);
    }
    const plan_group *g = &f->p->run->groups[c->group];
    const int64_t size = plan_group_size(&f->at, g);
    const int32_t stage = f->at.at[AXIS_PP];
    if (size < 2 || (plan_group_is_stages(g) && stage != g->from && stage != g->to)) {
        return fail(ST_BROKEN_PLAN, "%s: no other rank is in this group",
                    verify_name(v, f->rank, action, name));
    }
    const bool is_rooted = is_message(c->op) || c->op == COLLECTIVE_BROADCAST;
    const bool is_self = is_message(c->op) && c->peer == plan_group_place(&f->at, g);
    if (is_rooted && (c->peer < 0 || c->peer >= size || is_self)) {
        return fail(ST_BROKEN_PLAN, "%s: its peer is number %d of a group of %lld",
                    verify_name(v, f->rank, action, name), c->peer, (long long)size);
    }
    return ST_OK;
}

// The ports of a group of the table: of its collectives, its last sends and its last receives.
typedef struct known_place {
    int32_t row[3], peer[3];
} known_place;

static status places_of_rank(verifier *v, verify_facts *f)
{
    known_place *known = NULL;
    TRY(arena_new(v->a, f->p->run->group_count + 1, &known));
    memset(known, -1, (size_t)f->p->run->group_count * sizeof(*known));
    for (int32_t i = 0; i < f->p->action_count; i++) {
        verify_action *action = &f->actions[i];
        action->port = -1;
        if (f->p->actions[i].kind != ACTION_COMMUNICATE) continue;
        const plan_comm *c = verify_comm(f, i);
        const plan_group *g = &f->p->run->groups[c->group];
        action->what = what_of(f->p, c);
        const int kind = !is_message(c->op) ? 0 : c->op == COLLECTIVE_SEND ? 1 : 2;
        const int32_t peer = kind == 0 ? 0 : c->peer, me = plan_group_place(&f->at, g);
        const int32_t pair[] = {kind == 1 ? me : peer, kind == 1 ? peer : me};
        known_place *k = &known[c->group];
        if (k->row[kind] < 0 || k->peer[kind] != peer) {
            TRY(place_find(v, &f->at, g, kind == 0 ? NULL : pair, &k->row[kind]));
            k->peer[kind] = peer;
        }
        action->port = k->row[kind];
    }
    return ST_OK;
}

status verify_places(verifier *v)
{
    verify_port *ports = NULL;
    for (int32_t r = 0; r < v->rank_count; r++) TRY(places_of_rank(v, &v->facts[r]));
    TRY(arena_new(v->a, v->place_count + 1, &ports));
    for (int64_t i = 0; i < v->place_count; i++) {
        ports[i] = (verify_port){v->places[i].members, v->places[i].member_count};
    }
    v->graph.ports = ports;
    v->graph.port_count = (int32_t)v->place_count;
    return ST_OK;
}

// Describes the first difference between two communications.
static void difference(const plan *p, const plan_comm *x, const plan *q, const plan_comm *y,
                       char *out, size_t bytes)
{
    const int32_t own = verify_leaves(x), others = verify_leaves(y);
    if (x->op != y->op && !(is_message(x->op) && is_message(y->op))) {
        (void)snprintf(out, bytes, "%s and %s", op_collective_name(x->op),
                       op_collective_name(y->op));
    } else if (strcmp(x->name, y->name) != 0) {
        (void)snprintf(out, bytes, "%s and %s", x->name, y->name);
    } else if (x->type != y->type) {
        (void)snprintf(out, bytes, "%s and %s", dtype_name(x->type), dtype_name(y->type));
    } else if (x->items_count / own != y->items_count / others) {
        (void)snprintf(out, bytes, "%d tensors and %d", x->items_count / own,
                       y->items_count / others);
    } else {
        (void)snprintf(out, bytes, "their reductions, roots or orders of summation differ");
        for (int32_t i = 0; i < x->items_count / own; i++) {
            const plan_comm_item *a = &p->items[x->items_begin + i * own];
            const plan_comm_item *b = &q->items[y->items_begin + i * others];
            const bool counts = a->count != b->count;
            if (!counts && a->total == b->total) continue;
            (void)snprintf(out, bytes, "%lld and %lld elements of%s tensor %d of them",
                           (long long)(counts ? a->count : a->total),
                           (long long)(counts ? b->count : b->total),
                           counts ? "" : " all pieces of", i);
            return;
        }
    }
}

status verify_differs(const verifier *v, const verify_finding *found)
{
    char one[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES], why[2 * PLAN_NAME_BYTES + 64];
    const verify_facts *f = &v->facts[found->a.rank], *g = &v->facts[found->b.rank];
    difference(f->p, verify_comm(f, found->a.action), g->p, verify_comm(g, found->b.action), why,
               sizeof(why));
    return fail(ST_BROKEN_PLAN, "%s matches %s, but they differ: %s",
                verify_name(v, found->a.rank, found->a.action, one),
                verify_name(v, found->b.rank, found->b.action, other), why);
}

status verify_misses(const verifier *v, const verify_finding *found)
{
    char one[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    const char *name = verify_name(v, found->a.rank, found->a.action, one);
    if (found->b.action < 0) {
        return fail(ST_BROKEN_PLAN,
                    "%s waits for rank %d for ever, which posts no matching operation", name,
                    found->b.rank);
    }
    return fail(ST_BROKEN_PLAN,
                "%s waits for rank %d for ever, whose last operation in this group is earlier: %s",
                name, found->b.rank, verify_name(v, found->b.rank, found->b.action, other));
}
