// Compares what NCCL will post for a group between its ranks once, before any of it is posted. NCCL
// takes no contract with an operation, and ranks that disagree would wait for ever.
//
// The contracts are hashed in the order in which a rank posts them. All ranks of a group post the
// same collectives. Messages belong to two ranks, and have an order in each direction only: a stage
// may send before it receives while its neighbour does the same. So each rank tells each other one
// three hashes: of its collectives, of the messages to that rank and of those from it.
#include "comm/args.h"
#include "comm/comm_internal.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define REASON "the ranks were started with different configurations or programs"

typedef struct told { // by one rank to another
    uint64_t collectives, sent, received;
} told;

enum { TOLD_WORDS = sizeof(told) / sizeof(uint64_t) };

// The algorithm is that of the transport, and the site of a message is another one on each side.
static status contract_add(comm_group *g, const comm_args *args, told *all, uint64_t *collectives)
{
    comm_contract k;
    TRY(comm_args_check(args, g->rank, g->size));
    TRY(comm_contract_make(g, &g->caller, args, 0, &k));
    k.algorithm = 0;
    uint64_t *to = args->op == COLLECTIVE_SEND      ? &all[args->root].sent
                   : args->op == COLLECTIVE_RECEIVE ? &all[args->root].received
                                                    : collectives;
    *to = hash64(&k, (int64_t)offsetof(comm_contract, site), *to);
    return ST_OK;
}

static void plan_end(const comm_group *g, told *all, uint64_t *collectives)
{
    const uint64_t end = 0;
    *collectives = hash64(&end, (int64_t)sizeof(end), *collectives);
    for (int r = 0; r < g->size; r++) {
        all[r].sent = hash64(&end, (int64_t)sizeof(end), all[r].sent);
        all[r].received = hash64(&end, (int64_t)sizeof(end), all[r].received);
    }
}

static status plans_hash(comm_group *g, const device_api *api, const comm_args *const *plans,
                         int64_t count, told *all)
{
    uint64_t collectives = 0;
    for (int64_t i = 0; i < count; i++) {
        if (plans[i] == NULL) {
            plan_end(g, all, &collectives);
        } else if (comm_group_library_posts(g, api, plans[i])) {
            TRY(contract_add(g, plans[i], all, &collectives));
        }
    }
    for (int r = 0; r < g->size; r++) all[r].collectives = collectives;
    return ST_OK;
}

// Names the ranks whose collectives are not those of the group's first rank.
static status collectives_compare(const comm_group *g, const told *theirs)
{
    enum { NAMED = 8 };
    const int32_t *ranks = g->port->members.ranks;
    char others[NAMED * 16] = "", more[32] = "";
    int count = 0;
    size_t at = 0;
    for (int r = 1; r < g->size; r++) {
        if (theirs[r].collectives == theirs[0].collectives) continue;
        if (count++ >= NAMED) continue;
        at += (size_t)snprintf(others + at, sizeof(others) - at, "%s%d", count > 1 ? ", " : "",
                               ranks[r]);
    }
    if (count == 0) return ST_OK;
    if (count > NAMED) (void)snprintf(more, sizeof(more), " and %d others", count - NAMED);
    return fail(ST_DIVERGED,
                "collectives of group %s that NCCL would run differ between rank %d and rank%s "
                "%s%s: " REASON,
                g->name, ranks[0], count > 1 ? "s" : "", others, more);
}

static status messages_compare(const comm_group *g, const told *mine, const told *theirs)
{
    const int32_t *ranks = g->port->members.ranks;
    for (int r = 0; r < g->size; r++) {
        const bool sends = mine[r].sent != theirs[r].received;
        if (!sends && mine[r].received == theirs[r].sent) continue;
        return fail(ST_DIVERGED,
                    "messages of group %s that NCCL would send differ: rank %d sends others than "
                    "rank %d expects: " REASON,
                    g->name, ranks[sends ? g->rank : r], ranks[sends ? r : g->rank]);
    }
    return ST_OK;
}

status comm_plans_compare(comm_group *g, const device_api *api, const comm_args *const *plans,
                          int64_t count)
{
    told *mine = calloc((size_t)g->size * 2, sizeof(*mine));
    if (mine == NULL) return fail(ST_NO_MEMORY, "no memory for the hashes of %d ranks", g->size);
    told *theirs = mine + g->size;
    const comm_item item = {.in = mine, .out = theirs, .count = TOLD_WORDS};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALL,
                            .type = DTYPE_U64,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "contracts of plans",
                            .site = __func__,
                            .step = -1};
    status st = plans_hash(g, api, plans, count, mine);
    if (st == ST_OK) st = comm_run(g, &args);
    if (st == ST_OK) st = collectives_compare(g, theirs);
    if (st == ST_OK) st = messages_compare(g, mine, theirs);
    free(mine);
    return st;
}
