// The verifier: the order of summation in strict plans. What a sum holds is a range of sequences, and the
// fixed cut into shards and the fixed tree over them say which ranges may follow, and be joined.
#include "plan/verify_sums.h"

static int64_t shard_begin(const plan *p, int64_t shard)
{
    return plan_shard_begin(p->sequences, p->shards, min_i64(shard, p->shards));
}

bool verify_fold_is_right(const plan *p, const verify_terms *held, const verify_term *next,
                          bool starts)
{
    int32_t shard = 0;
    while (shard < p->shards && shard_begin(p, shard + 1) <= next->begin) shard++;
    if (next->end > shard_begin(p, shard + 1)) return false;
    if (starts) return next->begin == shard_begin(p, shard);
    if (held->count != 1) return false;
    const verify_term *last = &held->rows[0];
    return last->source == next->source && last->cell == next->cell && last->end == next->begin &&
           last->begin == shard_begin(p, shard);
}

// Left and right of one node of the tree over shards: sequences [begin, middle) and [middle, end).
static bool are_siblings(const plan *p, int64_t begin, int64_t middle, int64_t end)
{
    int64_t size = 1, low = 0;
    while (size < p->shards) size *= 2;
    for (; size > 1; size /= 2) {
        const int64_t from = shard_begin(p, low), half = shard_begin(p, low + size / 2);
        const int64_t to = shard_begin(p, low + size);
        if (from == begin && half == middle && to == end) return true;
        if (begin >= half) {
            low += size / 2;
        } else if (end > half) {
            return false;
        }
    }
    return false;
}

static bool is_node(const plan *p, const plan_comm_leaf *leaf)
{
    int64_t size = 1;
    if (leaf->begin < 0 || leaf->begin >= leaf->end || leaf->end > p->shards) return false;
    while (leaf->begin + size < leaf->end) size *= 2;
    return leaf->begin % size == 0 && leaf->end == min_i64(leaf->begin + size, p->shards);
}

static bool is_whole(const plan *p, const verify_term *t)
{
    return t->begin == 0 && t->end == p->sequences;
}

bool verify_order_is_right(const plan *p, const verify_terms *to, const verify_terms *from)
{
    if (to->count == 0 || from->count != 1) return false;
    const verify_term *last = &to->rows[to->count - 1], *next = &from->rows[0];
    if (to->count == 1 && last->source == next->source) {
        return last->end == next->begin && are_siblings(p, last->begin, last->end, next->end);
    }
    for (int32_t i = 0; i < to->count; i++) {
        if (!is_whole(p, &to->rows[i])) return false;
    }
    return is_whole(p, next) && next->source > last->source;
}

bool verify_leaf_is_right(const plan *p, const plan_comm_leaf *leaf, const verify_terms *held)
{
    if (!is_node(p, leaf) || held->count != 1) return false;
    return held->rows[0].begin == shard_begin(p, leaf->begin) &&
           held->rows[0].end == shard_begin(p, leaf->end);
}
