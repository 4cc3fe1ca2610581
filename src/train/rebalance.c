// A greedy choice of ranks for experts (rebalance.h). All ranks compute it from the same loads, so
// it has no ties that depend on anything else.
#include "train/rebalance.h"

#include <string.h>

static void loads_add(const rebalance_case *c, const int32_t *expert_of, int64_t *of_rank)
{
    const int64_t own = c->experts / c->ranks;
    for (int64_t r = 0; r < c->ranks; r++) of_rank[r] = 0;
    for (int64_t s = 0; s < c->experts; s++) of_rank[s / own] += c->load[expert_of[s]];
}

int64_t rebalance_most(const rebalance_case *c, const int32_t *expert_of)
{
    int64_t of_rank[REBALANCE_MAX_RANKS], most = 0;
    ASSERT(c->ranks <= REBALANCE_MAX_RANKS && c->experts % c->ranks == 0);
    loads_add(c, expert_of, of_rank);
    for (int64_t r = 0; r < c->ranks; r++) most = max_i64(most, of_rank[r]);
    return most;
}

// The difference between the loads of the experts with this number.
static int64_t spread(const rebalance_case *c, const int32_t *expert_of, int64_t number)
{
    const int64_t own = c->experts / c->ranks;
    int64_t least = INT64_MAX, most = 0;
    for (int64_t r = 0; r < c->ranks; r++) {
        least = min_i64(least, c->load[expert_of[r * own + number]]);
        most = max_i64(most, c->load[expert_of[r * own + number]]);
    }
    return most - least;
}

// Gives the experts of one number to ranks: the heaviest that is left to the rank with the fewest
// tokens so far. With equal loads an expert stays where it is, or the lower number comes first.
static void number_give(const rebalance_case *c, const int32_t *before, int64_t number,
                        int64_t *of_rank, int32_t *after)
{
    const int64_t own = c->experts / c->ranks;
    bool given[REBALANCE_MAX_RANKS] = {false}, taken[REBALANCE_MAX_RANKS] = {false};
    for (int64_t i = 0; i < c->ranks; i++) {
        int64_t from = -1, to = -1, heaviest = -1;
        for (int64_t r = 0; r < c->ranks; r++) {
            if (given[r] || c->load[before[r * own + number]] <= heaviest) continue;
            heaviest = c->load[before[r * own + number]];
            from = r;
        }
        for (int64_t r = 0; r < c->ranks; r++) {
            const bool stays = !given[r] && c->load[before[r * own + number]] == heaviest;
            const bool fewer = to < 0 || of_rank[r] < of_rank[to];
            if (!taken[r] && (fewer || (stays && from != to && of_rank[r] == of_rank[to]))) {
                to = r;
                if (stays) from = r;
            }
        }
        given[from] = taken[to] = true;
        after[to * own + number] = before[from * own + number];
        of_rank[to] += c->load[before[from * own + number]];
    }
}

int64_t rebalance_choose(const rebalance_case *c, int32_t *expert_of)
{
    enum { GAIN = 50 };
    int32_t after[REBALANCE_MAX_EXPERTS];
    bool done[REBALANCE_MAX_EXPERTS] = {false};
    int64_t of_rank[REBALANCE_MAX_RANKS] = {0}, moved = 0;
    ASSERT(c->experts <= REBALANCE_MAX_EXPERTS);
    const int64_t own = c->experts / c->ranks, most = rebalance_most(c, expert_of);
    for (int64_t i = 0; i < own; i++) {
        int64_t next = -1;
        for (int64_t n = 0; n < own; n++) {
            if (done[n]) continue;
            if (next < 0 || spread(c, expert_of, n) > spread(c, expert_of, next)) next = n;
        }
        done[next] = true;
        number_give(c, expert_of, next, of_rank, after);
    }
    const int64_t less = most - rebalance_most(c, after);
    if (less <= 0 || less < most / GAIN) return 0;
    for (int64_t s = 0; s < c->experts; s++) moved += after[s] != expert_of[s];
    memcpy(expert_of, after, (size_t)c->experts * sizeof(*after));
    return moved;
}
