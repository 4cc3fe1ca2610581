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
    int32_t last = -1;
    for (int32_t s = 0; s < t->shard_count; s++) {
        if (t->leaf[s] >= 0) {
            last = s;
            continue;
        }
        for (int k = 0; k < t->merge_count[s] && last >= 0; k++) {
            ASSERT(t->merge_count[last] < TREE_MAX_BUFFERS);
            t->merges[last][t->merge_count[last]++] = t->merges[s][k];
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

void shard_tree_make(shard_tree *t, int64_t sequences, bool strict, int32_t shards)
{
    memset(t, 0, sizeof(*t));
    t->shard_count = strict ? shards : 1;
    bool used[TREE_MAX_BUFFERS + 1] = {false};
    int8_t level[TREE_MAX_BUFFERS + 1]; // the tree node of 2^level shards that waits; -1: none
    memset(level, -1, sizeof(level));
    for (int32_t s = 0; s < t->shard_count; s++) {
        t->begin[s] = plan_shard_begin(sequences, t->shard_count, s);
        t->begin[s + 1] = plan_shard_begin(sequences, t->shard_count, s + 1);
        int8_t carry = leaf_take(t, used, s);
        t->leaf[s] = carry;
        const bool last = s + 1 == t->shard_count;
        int k = 0;
        for (; k < TREE_MAX_BUFFERS && (((s >> k) & 1) != 0 || last); k++) {
            if (level[k] >= 0 && carry >= 0) { // empty shards are absent: nothing to merge
                t->merges[s][t->merge_count[s]++] = (tree_merge){level[k], carry};
                used[carry] = false;
            }
            if (level[k] >= 0) carry = level[k];
            level[k] = -1;
        }
        if (last) {
            t->root = carry;
        } else {
            level[k] = carry;
        }
    }
    merges_settle(t);
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
    for (int k = 0; k < l->tree.buffer_count; k++) {
        if (first != NULL && !l->r->strict) {
            use.buffer[k] = first->buffer[k];
            continue;
        }
        plan_tensor tensor = lower_tensor_like(local, &l->bound);
        tensor.kind = BYTES_GRADIENTS;
        tensor.weight = use.weight;
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
