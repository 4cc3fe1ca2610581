// Accumulators of weight gradients, and the one binary tree in which shards are summed.
//
// Strict order (design.md): a shard's gradient is one left fold over its tokens; shards are summed by
// a fixed binary tree over their numbers. Written as a binary counter that carries, at most
// 1 + log2 S accumulators are alive: after shard s there are as many merges as s has trailing ones.
//
//   shard      0    1          2    3
//   buffer     a    b          b    c
//   then            a += b          b += c, a += b          the sum is in a
#include "plan/lower.h"

#include <stdio.h>
#include <string.h>

// A merge may come after trailing empty shards; those are done when the last full shard is.
static void merges_settle(shard_tree *t)
{
    int32_t full = -1;
    for (int32_t s = t->first; s < t->last; s++) {
        if (t->leaf[s] >= 0) {
            full = s;
            continue;
        }
        for (int k = 0; k < t->merge_count[s] && full >= 0; k++) {
            ASSERT(t->merge_count[full] < TREE_MAX_BUFFERS);
            t->merges[full][t->merge_count[full]++] = t->merges[s][k];
        }
        t->merge_count[s] = 0;
    }
}

// The accumulator of shard s: the lowest free buffer; -1 for an empty shard.
static int8_t leaf_take(shard_tree *t, bool *used, int32_t s)
{
    if (t->begin[s + 1] == t->begin[s]) return -1;
    int8_t buffer = 0;
    while (used[buffer]) buffer++;
    ASSERT(buffer < TREE_MAX_BUFFERS);
    used[buffer] = true;
    if (buffer + 1 > t->buffer_count) t->buffer_count = buffer + 1;
    return buffer;
}

static void node_add(shard_tree *t, int32_t begin, int k, int8_t buffer)
{
    if (buffer < 0) return; // all of its shards are empty: it is absent
    ASSERT(t->node_count < TREE_MAX_BUFFERS);
    const int32_t end = begin + (1 << k) < t->shard_count ? begin + (1 << k) : t->shard_count;
    t->node[t->node_count++] = (tree_node){begin, end, buffer};
}

// Shard by shard; level[k] is the node of 2^k shards that waits for its right neighbour. A node whose
// left neighbour is another rank's stays as it is, and so does what waits at the end, unless these are
// the last shards of all: then there is no right neighbour to come.
static void tree_walk(shard_tree *t)
{
    enum { NOTHING = -2 }; // -1 is a node that is absent
    bool used[TREE_MAX_BUFFERS + 1] = {false};
    int8_t level[TREE_MAX_BUFFERS + 1];
    int32_t begin[TREE_MAX_BUFFERS + 1]; // of the node that waits
    memset(level, NOTHING, sizeof(level));
    for (int32_t s = t->first; s < t->last; s++) {
        int8_t carry = leaf_take(t, used, s);
        t->leaf[s] = carry;
        const bool ends = s + 1 == t->shard_count;
        int k = 0;
        bool mine = true; // the left neighbour, where there is one
        for (; k < TREE_MAX_BUFFERS && (((s >> k) & 1) != 0 || ends); k++) {
            if (((s >> k) & 1) == 0) continue; // no right neighbour will come
            mine = (((s >> k) - 1) << k) >= t->first;
            if (!mine) break;
            if (level[k] >= 0 && carry >= 0) { // empty shards are absent: nothing to merge
                t->merges[s][t->merge_count[s]++] = (tree_merge){level[k], carry};
                used[carry] = false;
            }
            if (level[k] >= 0) carry = level[k];
            level[k] = NOTHING;
        }
        if (!mine || k == TREE_MAX_BUFFERS) {
            node_add(t, k == TREE_MAX_BUFFERS ? 0 : (s >> k) << k, k, carry);
        } else {
            level[k] = carry;
            begin[k] = (s >> k) << k;
        }
    }
    // What waits, from the largest node on: they lie in this order.
    for (int k = TREE_MAX_BUFFERS - 1; k >= 0; k--) {
        if (level[k] != NOTHING) node_add(t, begin[k], k, level[k]);
    }
}

// The shards [first, last) of strict order; else all that there is, one shard.
static void shards_set(shard_tree *t, const plan_request *r, int64_t own_begin, int64_t own_end)
{
    memset(t, 0, sizeof(*t));
    if (!r->strict) {
        t->shard_count = t->last = 1;
        t->begin[0] = own_begin;
        t->begin[1] = own_end;
        return;
    }
    const int64_t ranks = plan_mesh_size(&r->mesh, AXIS_DP), me = r->mesh.at[AXIS_DP];
    t->shard_count = r->shards;
    t->first = (int32_t)plan_shard_begin(r->shards, ranks, me);
    t->last = (int32_t)plan_shard_begin(r->shards, ranks, me + 1);
    for (int32_t s = 0; s <= r->shards; s++) {
        t->begin[s] = plan_shard_begin(r->sequences, r->shards, s);
    }
}

void shard_tree_make(shard_tree *t, const plan_request *r, int64_t own_begin, int64_t own_end)
{
    shards_set(t, r, own_begin, own_end);
    tree_walk(t);
    merges_settle(t);
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
            return fail(ST_CONFIG_CONFLICT,
                        "determinism = strict: each direction of the pipeline takes whole shards, "
                        "but %lld of %lld sequences are none (determinism.shards = %d)",
                        (long long)(middle - own_begin), (long long)(own_end - own_begin),
                        (int)r->shards);
        }
        trees[0].last = trees[1].first = cut;
    }
    for (int i = 0; i < 2; i++) {
        tree_walk(&trees[i]);
        merges_settle(&trees[i]);
    }
    return ST_OK;
}

const shard_tree *lower_tree(const lowering *l, int32_t layer_row)
{
    return &l->trees[l->two_ways ? l->layers[layer_row].chunk : 0];
}

static const grad_use *use_of_weight(const lowering *l, int32_t weight)
{
    for (int64_t i = 0; i < l->use_count; i++) {
        if (l->uses[i].weight == weight) return &l->uses[i];
    }
    return NULL;
}

status lower_use_add(lowering *l, int32_t layer_row, tensor_id t)
{
    const op_layer *layer = &l->m->layers[layer_row];
    const op_tensor *local = &l->m->programs[layer->program]->tensors[t];
    grad_use use = {.layer = layer_row, .local = t, .weight = layer->weight_of[local->of]};
    const grad_use *first = use_of_weight(l, use.weight);
    use.shared = first != NULL && !l->r->strict;
    for (int k = 0; k < lower_tree(l, layer_row)->buffer_count; k++) {
        if (first != NULL && !l->r->strict) {
            use.buffer[k] = first->buffer[k];
            continue;
        }
        plan_tensor tensor = lower_tensor_like(local, &l->bound);
        tensor.kind = BYTES_GRADIENTS;
        tensor.weight = use.weight;
        tensor.bytes = lower_padded_bytes(l, use.weight, &tensor);
        if (l->cuts_gradients && lower_rows(l, use.weight).cut) {
            TRY(lower_passing_add(l, &tensor, &use.buffer[k]));
            continue;
        }
        (void)snprintf(tensor.name, sizeof(tensor.name), "grad.%s%s%s",
                       l->m->weights[use.weight].name, first != NULL ? "@" : "",
                       first != NULL ? layer->name : "");
        const size_t length = strlen(tensor.name);
        if (k > 0) (void)snprintf(tensor.name + length, sizeof(tensor.name) - length, "#%d", k);
        TRY(plan_tensor_push(l->p, &tensor, &use.buffer[k]));
    }
    TRY(arena_grow(l->a, (void **)&l->uses, &l->use_capacity, l->use_count + 1,
                   (int64_t)sizeof(grad_use)));
    l->uses[l->use_count++] = use;
    l->layers[layer_row].use_count++;
    return ST_OK;
}
