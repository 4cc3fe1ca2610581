// The one binary tree that sums the gradients of shards, and the accumulators that it needs.
//
// Strict order: a shard's gradient is one left-to-right sum over its tokens; shards are summed by a
// fixed binary tree over their numbers. The tree is evaluated like an incrementing binary counter,
// so at most 1 + log2 S accumulators are live: after shard s there are as many merges as s has
// trailing ones.
//
//   shard      0    1          2    3
//   buffer     a    b          b    c
//   then            a += b          b += c, a += b          the sum is in a
//
// With determinism.cp_shards there is one such tree for each shard of a sequence (op/zigzag.h), and
// another tree sums their sums. So a rank with one of these shards has as few accumulators, and
// sends as little, as without cp_shards. (With shards of a sequence summed first and then those of
// the batch, each shard would need an accumulator.)
#include "plan/lower/shards.h"

#include <stdlib.h>
#include <string.h>

static int32_t power_above(int32_t count)
{
    int32_t size = 1;
    while (size < count) size *= 2;
    return size;
}

// The number of a leaf in the tree: first all shards of the batch for the first shard of a
// sequence, then all for the second, and so on. Subtrees are padded to full size; padding leaves
// are empty, and empty leaves are absent.
static int32_t leaf_number(const shard_tree *t, int32_t shard, int32_t cp)
{
    return t->cp_shards > 1 ? cp * power_above(t->shard_count) + shard : shard;
}

static bool leaves_are_empty(const shard_tree *t, int32_t begin, int32_t end)
{
    const int32_t size = power_above(t->shard_count);
    for (int32_t i = begin; i < end && i < t->leaf_count; i++) {
        const int32_t s = i % size;
        if (s < t->shard_count && t->begin[s + 1] > t->begin[s]) return false;
    }
    return true;
}

// A node of 2^level leaves that waits for its neighbour.
typedef struct waiting_node {
    int32_t begin;
    int level;
    int16_t buffer;
} waiting_node;

typedef struct tree_walk {
    shard_tree *t;
    bool used[TREE_MAX_BUFFERS];
    waiting_node nodes[TREE_MAX_BUFFERS];
    int count, top; // nodes that wait; level of the root
} tree_walk;

// Takes the lowest free buffer as the accumulator of a leaf.
static status leaf_take(tree_walk *w, int16_t *buffer)
{
    int16_t b = 0;
    while (b < TREE_MAX_BUFFERS && w->used[b]) b++;
    if (b == TREE_MAX_BUFFERS) {
        return fail(ST_CONFIG_RANGE,
                    "determinism.shards = %d with determinism.cp_shards = %d leaves one rank with "
                    "more than %d sums of each gradient; use fewer shards",
                    (int)w->t->shard_count, (int)w->t->cp_shards, (int)TREE_MAX_BUFFERS);
    }
    w->used[b] = true;
    if (b + 1 > w->t->buffer_count) w->t->buffer_count = b + 1;
    *buffer = b;
    return ST_OK;
}

static int waiting_find(const tree_walk *w, int32_t begin, int level)
{
    for (int i = 0; i < w->count; i++) {
        if (w->nodes[i].begin == begin && w->nodes[i].level == level) return i;
    }
    return -1;
}

// Completes a leaf: merges up the tree while the sibling is complete on this rank or absent
// everywhere.
static void leaf_end(tree_walk *w, int at, waiting_node n)
{
    shard_tree *t = w->t;
    for (; n.level < w->top; n.level++) {
        const int32_t size = 1 << n.level, other = n.begin ^ size, low = n.begin & ~size;
        const int found = waiting_find(w, other, n.level);
        if (found < 0 && !leaves_are_empty(t, other, other + size)) break;
        if (found >= 0) {
            const int16_t theirs = w->nodes[found].buffer;
            const tree_merge m =
                other < n.begin ? (tree_merge){theirs, n.buffer} : (tree_merge){n.buffer, theirs};
            ASSERT(t->merge_count[at] < TREE_MAX_MERGES);
            t->merges[at][t->merge_count[at]++] = m;
            w->used[m.source] = false;
            n.buffer = m.target;
            w->nodes[found] = w->nodes[--w->count];
        }
        n.begin = low;
    }
    ASSERT(w->count < TREE_MAX_BUFFERS);
    w->nodes[w->count++] = n;
}

static int node_compare(const void *a, const void *b)
{
    const tree_node *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

int32_t shard_of(const shard_tree *t, int32_t k, int32_t rank)
{
    return t->first + rank * t->stride + k;
}

// Fills the tree shard by shard; if it has the shards of several ranks, the k-th of each. All
// leaves of these are open at the same time and end together.
static status leaves_walk(tree_walk *w)
{
    shard_tree *t = w->t;
    const int32_t ranks = t->ranks > 0 ? t->ranks : 1, each = t->cp_count;
    const int32_t count = t->ranks > 0 ? t->each : t->last - t->first;
    for (int32_t k = 0; k < count; k++) {
        for (int32_t i = 0; i < ranks * each; i++) {
            const int32_t s = shard_of(t, k, i / each);
            int16_t *leaf = &t->leaf[s * each + i % each];
            *leaf = -1;
            if (t->begin[s + 1] > t->begin[s]) TRY(leaf_take(w, leaf));
        }
        for (int32_t i = 0; i < ranks * each; i++) {
            const int32_t at = shard_of(t, k, i / each) * each + i % each;
            if (t->leaf[at] < 0) continue;
            const int32_t number = leaf_number(t, at / each, t->cp_first + i % each);
            leaf_end(w, at, (waiting_node){number, 0, t->leaf[at]});
        }
    }
    return ST_OK;
}

static status tree_make(shard_tree *t)
{
    tree_walk w = {.t = t};
    while ((1 << w.top) < t->leaf_count) w.top++;
    TRY(leaves_walk(&w));
    for (int i = 0; i < w.count; i++) {
        const int32_t begin = w.nodes[i].begin;
        const int64_t end = min_i64(begin + (1 << w.nodes[i].level), t->leaf_count);
        t->node[i] = (tree_node){begin, (int32_t)end, w.nodes[i].buffer};
    }
    if (w.count > TREE_MAX_NODES) {
        return fail(ST_CONFIG_RANGE,
                    "determinism.shards = %d and determinism.cp_shards = %d leave a rank with %d "
                    "partial sums, expected at most %d; use fewer shards",
                    (int)t->shard_count, (int)t->cp_shards, w.count, (int)TREE_MAX_NODES);
    }
    t->node_count = w.count;
    qsort(t->node, (size_t)t->node_count, sizeof(t->node[0]), node_compare);
    return ST_OK;
}

// Sets the shards [first, last) of strict order; in fast order there is one shard.
static void shards_set(shard_tree *t, const plan_request *r, int64_t own_begin, int64_t own_end)
{
    memset(t, 0, sizeof(*t));
    if (!r->strict) {
        t->shard_count = t->last = t->leaf_count = t->cp_shards = t->cp_count = 1;
        t->begin[0] = own_begin;
        t->begin[1] = own_end;
        return;
    }
    const int64_t me = r->mesh.at[AXIS_DP];
    t->shard_count = r->shards;
    t->first = (int32_t)plan_share_begin(&r->mesh, r->shards, me);
    t->last = (int32_t)plan_share_begin(&r->mesh, r->shards, me + 1);
    for (int32_t s = 0; s <= r->shards; s++) {
        t->begin[s] = plan_shard_begin(r->sequences, r->shards, s);
    }
    const int32_t ways = plan_mesh_size(&r->mesh, AXIS_CP);
    t->cp_shards = r->cp_shards > 1 ? r->cp_shards : ways;
    t->cp_count = t->cp_shards / ways;
    t->cp_first = r->mesh.at[AXIS_CP] * t->cp_count;
    ASSERT(t->cp_count <= TREE_MAX_CP);
    const bool is_one = t->cp_shards == 1;
    t->leaf_count = is_one ? r->shards : t->cp_shards * power_above(r->shards);
}

status shard_tree_make(shard_tree *t, const plan_request *r, int64_t own_begin, int64_t own_end)
{
    shards_set(t, r, own_begin, own_end);
    return tree_make(t);
}

status shard_tree_experts(shard_tree *t, const shard_tree *own, const plan_request *r)
{
    const int32_t dp = plan_ep_dp(&r->mesh), cp = plan_ep_cp(&r->mesh);
    const int32_t at = r->mesh.at[AXIS_DP] % dp;
    *t = *own;
    memset(t->merge_count, 0, sizeof(t->merge_count));
    t->buffer_count = t->node_count = 0;
    if (!r->strict) return tree_make(t);
    t->ranks = dp;
    t->each = own->last - own->first;
    t->stride = r->shards / plan_mesh_size(&r->mesh, AXIS_DP);
    t->first = own->first - at * t->stride;
    t->last = t->first + (dp - 1) * t->stride + t->each;
    t->cp_first = own->cp_first - own->cp_first % (cp * own->cp_count);
    t->cp_count = cp * own->cp_count;
    ASSERT(t->first >= 0 && t->last <= t->shard_count);
    if (t->cp_count > TREE_MAX_CP) {
        return fail(
            ST_CONFIG_RANGE,
            "layout.ep = %d: the experts of a rank get rows of %d pieces of a sequence, and "
            "strict order takes at most %d; use a smaller layout.ep or layout.cp",
            (int)plan_mesh_ep(&r->mesh), (int)t->cp_count, (int)TREE_MAX_CP);
    }
    return tree_make(t);
}

status shard_trees_make(shard_tree trees[2], const plan_request *r, int64_t own_begin,
                        int64_t middle, int64_t own_end)
{
    shards_set(&trees[0], r, own_begin, middle);
    shards_set(&trees[1], r, middle, own_end);
    if (r->strict) {
        int32_t cut = trees[0].first;
        while (cut < trees[0].last && trees[0].begin[cut] < middle) cut++;
        if (trees[0].begin[cut] != middle) {
            return fail(
                ST_CONFIG_CONFLICT,
                "determinism = strict: each direction of the pipeline needs whole shards, but "
                "%lld of %lld sequences are not a whole number of shards; change "
                "determinism.shards = %d",
                (long long)(middle - own_begin), (long long)(own_end - own_begin), (int)r->shards);
        }
        trees[0].last = trees[1].first = cut;
    }
    TRY(tree_make(&trees[0]));
    return tree_make(&trees[1]);
}

void plan_own_sequences(const plan_mesh *mesh, bool strict, int32_t shards, int64_t sequences,
                        int64_t *first, int64_t *count)
{
    const int64_t me = mesh->at[AXIS_DP];
    const int64_t parts = strict ? shards : sequences;
    const int64_t begin = plan_share_begin(mesh, parts, me);
    const int64_t end = plan_share_begin(mesh, parts, me + 1);
    *first = plan_shard_begin(sequences, parts, begin);
    *count = plan_shard_begin(sequences, parts, end) - *first;
}
