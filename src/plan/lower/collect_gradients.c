// Pass 3 of lowering, sums of gradients over ranks for data parallelism and ZeRO-1.
//
//   last micro-batch, layer by layer downwards: its gradients are complete -> summed over the ranks
//   (all of a layer in one
//   collective; a weight that is cut goes to its owners by a reduce-scatter)
//
// All of it stands on streams of its own: sums run while the layers below compute. In strict order
// a rank hands over the nodes of the tree over shards that lie wholly in its own shards, and the
// collective finishes the tree. Gradients that are terms along tp (weights that every rank has,
// whose users are cut) are summed there first, on the compute stream.
#include "plan/lower/collect_internal.h"

// Adds the tree nodes that this rank has; they are the same for every sum of a step.
static status leaves_push(collector *c)
{
    plan *p = c->in->p;
    if (c->has_leaves) return ST_OK;
    c->has_leaves = true;
    for (int way = 0; way < 4; way++) { // of each direction, and of experts
        const shard_tree *trees = way < 2 ? c->x->trees : c->x->experts;
        if (trees == NULL || (way % 2 == 1 && !c->x->two_ways)) continue;
        const shard_tree *t = &trees[way % 2];
        c->leaves_begin[way] = (int32_t)p->leaf_count;
        for (int i = 0; i < t->node_count && c->in->r->strict; i++) {
            TRY(arena_grow(p->a, (void **)&p->leaves, &p->leaf_capacity, p->leaf_count + 1,
                           (int64_t)sizeof(*p->leaves)));
            p->leaves[p->leaf_count++] = (plan_comm_leaf){t->node[i].begin, t->node[i].end};
        }
    }
    return ST_OK;
}

static const weight_use *use_of(const collector *c, int32_t layer, int64_t u)
{
    return &c->b->uses[c->b->layers[layer].use_begin + u];
}

static const shard_tree *tree_of(const collector *c, const weight_use *use)
{
    return expand_tree(c->x, use->layer, lower_kind_of(c->in, use->weight));
}

// Adds the terms of one weight's sum; the first receives the result.
static status terms_push(collector *c, plan_comm *comm, const weight_use *use, plan_rows rows)
{
    const plan_tensor *t = &c->in->p->tensors[use->buffer[0]];
    const int64_t columns = t->ndim == 1 ? 1 : t->dims[1];
    const int64_t count = rows.piece * columns;
    const int64_t at = rows.first * columns * dtype_bytes(t->type);
    const shard_tree *tree = tree_of(c, use);
    for (int i = 0; i < tree->node_count; i++) {
        const int32_t buffer = use->buffer[tree->node[i].buffer];
        const plan_comm_item item = {.in = buffer,
                                     .out = buffer,
                                     .out_offset = at,
                                     .count = count,
                                     .total = lower_pieces_end(&rows, columns)};
        TRY(collect_item(c, comm, &item));
    }
    return ST_OK;
}

static plan_comm sum_of(const collector *c, const weight_use *use, op_collective op, int32_t group)
{
    const shard_tree *tree = tree_of(c, use);
    const bool is_apart = c->x->has_apart && lower_kind_of(c->in, use->weight) == KIND_EXPERT;
    const int way = (int)(tree - (is_apart ? c->x->experts : c->x->trees));
    return (plan_comm){.op = op,
                       .reduction = REDUCTION_SUM,
                       .group = group,
                       .type = c->in->p->tensors[use->buffer[0]].type,
                       .leaves_begin = c->leaves_begin[way + (is_apart ? 2 : 0)],
                       .leaves_count = c->in->r->strict ? tree->node_count : 0,
                       .shards = tree->leaf_count};
}

// A compressed gradient, without its padding, is one vector, of which a rank gets its rows.
static status rows_compress(collector *c, plan_comm *comm, comm_note *note, int32_t weight)
{
    const op_weight *w = &c->in->m->weights[weight];
    if (!collect_is_compressed(c, weight)) return ST_OK;
    ASSERT(comm->items_count == 1);
    plan_comm_item *item = &c->in->p->items[comm->items_begin];
    comm->piece = item->count;
    item->count = w->rows * w->columns;
    item->total = 0;
    item->out_offset = 0;
    return collect_codec_sum(c, comm, note, SUM_ROWS, NULL, weight);
}

static plan_rows whole_rows(const op_weight *w)
{
    return (plan_rows){.count = w->rows, .piece = w->rows};
}

// The group that sums along dp. If the pipeline has two directions, it includes the stage that has
// the layer for the other direction, whose terms are those of other shards. Then every rank gets
// the whole sum, even if it updates only some rows.
status collect_sum_group(collector *c, lower_kind kind, int32_t *group)
{
    const lower_input *in = c->in;
    *group = c->groups[kind].data;
    if (!c->x->two_ways) return ST_OK;
    const int32_t me = in->r->mesh.at[AXIS_PP], other = in->pipe.shape.stages - 1 - me;
    const uint32_t axes = kind == KIND_EXPERT ? MESH_EXPERT_DATA : MESH_DATA;
    const plan_group g = plan_group_pair(&in->r->mesh, me, other, axes);
    return plan_table_group(in->p->run, &g, group);
}

// False in strict order if several ranks hold the same rows: one operation among all ranks then
// completes the tree over shards.
bool collect_is_scattered(const collector *c, int32_t weight)
{
    const bool one_copy = collect_groups_of(c, weight)->across < 0 || !c->in->r->strict;
    return lower_rows(c->in, weight).cut && !c->x->two_ways && one_copy;
}

// Adds the sum of a weight whose rows go to the ranks that update them.
static status rows_reduce(collector *c, const weight_use *use, int32_t last)
{
    const plan_rows rows = lower_rows(c->in, use->weight);
    const lower_kind kind = lower_kind_of(c->in, use->weight);
    int32_t *last_sum = &c->last_sum[kind][SUM_ROWS];
    plan_comm comm = sum_of(c, use, COLLECTIVE_REDUCE_SCATTER, c->groups[kind].cut);
    comm_note note = {
        .before = "gradients, ", .text = c->in->m->weights[use->weight].name, .from = -1};
    TRY(terms_push(c, &comm, use, rows));
    TRY(rows_compress(c, &comm, &note, use->weight));
    TRY(collect_comm(c, &comm, &note, last, last_sum));
    if (c->groups[kind].across < 0) return ST_OK;
    int32_t mine = -1;
    TRY(lower_part(c->in, use->buffer[0], rows, &mine));
    return collect_across_sum(c, use->weight, mine, *last_sum);
}

// True if the whole gradient is summed together with those of its kind and sort.
static bool is_together(const collector *c, const weight_use *use, lower_kind kind, plan_sort sort)
{
    const int32_t w = use->weight;
    if (use->shared || bind_is_unsharded(c->b, w) || collect_is_scattered(c, w)) return false;
    if (lower_kind_of(c->in, w) != kind) return false;
    return c->in->r->codec == NULL || plan_sort_of(&c->in->m->weights[w]) == sort;
}

// Adds one operation for all whole gradients of one kind of a layer; if some are compressed, for
// those of one sort.
static status together_reduce(collector *c, int32_t layer, lower_kind kind, plan_sort sort,
                              int32_t last)
{
    const char *name = c->in->m->layers[layer].name;
    plan_comm together = {0};
    comm_note note = {.before = "gradients, ", .text = name, .from = -1};
    int32_t group = -1, first = -1;
    TRY(collect_sum_group(c, kind, &group));
    for (int64_t u = 0; u < c->b->layers[layer].use_count && group >= 0; u++) {
        const weight_use *use = use_of(c, layer, u);
        if (!is_together(c, use, kind, sort)) continue;
        if (together.items_count == 0) {
            first = use->weight;
            together = sum_of(c, use, COLLECTIVE_ALL_REDUCE, group);
        }
        ASSERT(c->in->p->tensors[use->buffer[0]].type == together.type);
        TRY(terms_push(c, &together, use, whole_rows(&c->in->m->weights[use->weight])));
    }
    if (together.items_count == 0) return ST_OK;
    TRY(collect_codec_sum(c, &together, &note, SUM_WHOLE, name, first));
    return collect_comm(c, &together, &note, last, &c->last_sum[kind][SUM_WHOLE]);
}

// ---- gradients that are terms -------------------------------------------------------------------

// Adds a sum of terms that are equal on `copies` neighbouring ranks: it takes one of each. This
// holds for all such sums of a model.
static status tp_sum(const collector *c, int32_t copies, plan_comm *comm)
{
    const plan_group group = plan_group_tp(&c->in->r->mesh, 0, copies, GROUP_INLINE);
    *comm = (plan_comm){.op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM};
    ASSERT(group.axes != 0); // op_model_partition makes no sum without an axis
    return plan_table_group(c->in->p->run, &group, &comm->group);
}

static int32_t copies_of(const collector *c, int32_t weight)
{
    const op_weight *w = &c->in->m->weights[weight];
    return w->partial_grad ? w->partial_copies : 0;
}

static status layer_terms_reduce(collector *c, int32_t layer, int32_t copies)
{
    plan_comm comm;
    const comm_note note = {.text = c->in->m->layers[layer].name,
                            .between = copies > 1 ? ", gradients that some have terms of"
                                                  : ", gradients that all have terms of",
                            .from = -1};
    TRY(tp_sum(c, copies, &comm));
    for (int64_t u = 0; u < c->b->layers[layer].use_count; u++) {
        const weight_use *use = use_of(c, layer, u);
        if (copies_of(c, use->weight) != copies || bind_is_unsharded(c->b, use->weight)) continue;
        // In strict order counts alone have terms: their sum is exact (op_model_partition).
        ASSERT(!c->in->r->strict || c->in->m->weights[use->weight].is_history);
        for (int32_t i = 0; i < use->buffers; i++) {
            const int32_t buffer = use->buffer[i];
            const plan_tensor *t = &c->in->p->tensors[buffer];
            const int64_t count = t->ndim == 1 ? t->dims[0] : t->dims[0] * t->dims[1];
            const plan_comm_item item = {.in = buffer, .out = buffer, .count = count};
            comm.type = t->type;
            TRY(collect_item(c, &comm, &item));
        }
    }
    return comm.items_count > 0 ? collect_comm(c, &comm, &note, -1, &c->last_compute) : ST_OK;
}

static status terms_reduce(collector *c, int32_t layer)
{
    for (int32_t copies = 1; copies < plan_mesh_size(&c->in->r->mesh, AXIS_TP); copies++) {
        bool any = false;
        for (int64_t u = 0; u < c->b->layers[layer].use_count; u++) {
            any = any || copies_of(c, use_of(c, layer, u)->weight) == copies;
        }
        if (any) TRY(layer_terms_reduce(c, layer, copies));
    }
    return ST_OK;
}

// Weights with copies (norms of heads) are vectors, so they have no rows to cut.
status collect_terms_end(collector *c)
{
    const op_model *m = c->in->m;
    const comm_note note = {.before = "rows of gradients that all have terms of", .from = -1};
    plan_comm comm;
    int32_t action = -1;
    bool any = false;
    for (int32_t w = 0; w < m->weight_count; w++) {
        any = any || (m->weights[w].partial_grad && bind_is_unsharded(c->b, w) &&
                      lower_rows(c->in, w).count > 0);
    }
    if (!any) return ST_OK;
    TRY(tp_sum(c, 1, &comm));
    for (int32_t w = 0; w < m->weight_count; w++) {
        if (!m->weights[w].partial_grad || !bind_is_unsharded(c->b, w)) continue;
        ASSERT(m->weights[w].partial_copies == 1);
        const int32_t rows = c->b->rows_of[w];
        const plan_tensor *t = &c->in->p->tensors[rows];
        if (t->dims[0] == 0) continue;
        const plan_comm_item item = {.in = rows, .out = rows, .count = t->dims[0] * t->dims[1]};
        comm.type = t->type;
        TRY(collect_item(c, &comm, &item));
    }
    TRY(collect_comm(c, &comm, &note, -1, &action));
    c->last_compute = action;
    return collect_sums_wait(c, action);
}

// ---- a layer ------------------------------------------------------------------------------------

status collect_gradients(collector *c, int32_t layer)
{
    TRY(terms_reduce(c, layer));
    const int32_t last = c->last_compute;
    int32_t dense = -1, expert = -1;
    TRY(collect_sum_group(c, KIND_DENSE, &dense));
    TRY(collect_sum_group(c, KIND_EXPERT, &expert));
    if (dense < 0 && expert < 0) return ST_OK;
    TRY(leaves_push(c));
    for (int64_t u = 0; u < c->b->layers[layer].use_count; u++) {
        const weight_use *use = use_of(c, layer, u);
        const int32_t w = use->weight;
        if (use->shared) continue; // it is complete when the lowest layer that uses it is
        if (bind_is_unsharded(c->b, w)) {
            TRY(collect_across_sum(c, w, c->b->rows_of[w], c->zero.summed_by[w]));
        } else if (collect_is_scattered(c, w)) {
            TRY(rows_reduce(c, use, last));
        }
    }
    for (int sort = c->in->r->codec != NULL ? 0 : SORT_PLAIN; sort < SORT_COUNT; sort++) {
        TRY(together_reduce(c, layer, KIND_DENSE, (plan_sort)sort, last));
        TRY(together_reduce(c, layer, KIND_EXPERT, (plan_sort)sort, last));
    }
    return ST_OK;
}

status collect_sums_wait(collector *c, int32_t action)
{
    for (int i = 0; i < KIND_COUNT * SUM_STREAMS; i++) {
        const int32_t sum = c->last_sum[i / SUM_STREAMS][i % SUM_STREAMS];
        if (sum >= 0) TRY(collect_wait(c, action, sum));
    }
    return ST_OK;
}
