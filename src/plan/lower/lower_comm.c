// Lowering, what ranks do together: data parallelism, and the optimizer's state cut over it (ZeRO-1; what
// the stages after it do otherwise is in lower_zero.c).
//
//   last micro-batch, layer by layer downwards: its gradients are complete -> summed over the ranks
//   (all of a layer in one operation; a weight that is cut goes to its owners by a reduce-scatter)
//   | sums of the step block | decide | optimizer on this rank's rows | -> all_gather of each weight
//
// All of it stands on a lane of its own: sums run while the layers below compute, and a weight comes
// back while the next step's layers below its own compute. In strict order a rank hands over the nodes
// of the tree over shards that lie wholly in its own shards, and the operation finishes the tree.
#include "plan/lower/lower.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

plan_rows plan_rows_of(const plan_mesh *mesh, int32_t zero, const op_weight *w, bool whole)
{
    const int64_t ways = plan_weight_ways(mesh, w), rows = w->rows;
    const plan_rows all = {.count = rows, .piece = rows, .kept = rows, .padded = rows};
    if (zero < 1 || ways == 1 || whole || w->ndim == 1 || rows == 0) return all;
    if (w->frozen && zero < 3) return all; // stages 1 and 2 cut what an update needs
    const int64_t piece = (rows + ways - 1) / ways;
    const int64_t first = min_i64(piece * plan_weight_place(mesh, w), rows);
    const int64_t count = min_i64(piece, rows - first);
    const bool ends = (ways - 1) * piece >= rows;
    return (plan_rows){.first = first,
                       .count = count,
                       .piece = piece,
                       .kept = ends ? count : piece,
                       .padded = ends ? rows : ways * piece,
                       .ends = ends,
                       .cut = true};
}

int64_t lower_pieces_end(const plan_rows *rows, int64_t columns)
{
    return rows->ends ? rows->padded * columns : 0;
}

plan_rows lower_rows(const lowering *l, int32_t weight)
{
    const bool whole = l->r->whole_units != NULL && l->r->whole_units[weight];
    return plan_rows_of(&l->r->mesh, l->r->zero, &l->m->weights[weight], whole);
}

int64_t lower_padded_bytes(const lowering *l, int32_t weight, const plan_tensor *t)
{
    const plan_rows rows = lower_rows(l, weight);
    if (!rows.cut) return t->bytes;
    return align_up(rows.padded * t->dims[1] * dtype_bytes(t->type), ALIGN_TENSOR);
}

status lower_part(lowering *l, int32_t whole, plan_rows rows, int32_t *out)
{
    *out = whole;
    if (!rows.cut) return ST_OK;
    plan_tensor t = *plan_tensor_at(l->p, whole);
    t.is_part = true;
    t.is_run = false;
    t.whole = whole;
    t.dims[0] = rows.count;
    t.offset = rows.first * t.dims[1] * dtype_bytes(t.type);
    t.bytes = rows.count * t.dims[1] * dtype_bytes(t.type);
    return plan_tensor_push(l->p, &t, out);
}

// ---- records ------------------------------------------------------------------------------------

status lower_comm_name(const lowering *l, plan_comm *c, const char *format, ...)
{
    char name[PLAN_NAME_BYTES], *copy = NULL;
    va_list args;
    c->name = "";
    if (l->r->use != PLAN_WHOLE) return ST_OK; // nobody reads it
    va_start(args, format);
    (void)vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    TRY(arena_strdup(l->p->run->a, name, &copy));
    c->name = copy;
    return ST_OK;
}

status lower_item_push(lowering *l, plan_comm *c, const plan_comm_item *item)
{
    plan *p = l->p;
    TRY(arena_grow(p->a, (void **)&p->items, &p->item_capacity, p->item_count + 1,
                   (int64_t)sizeof(*item)));
    if (c->items_count == 0) c->items_begin = (int32_t)p->item_count;
    p->items[p->item_count++] = *item;
    c->items_count++;
    return ST_OK;
}

// The nodes of the trees that this rank has; the same for every sum of a step.
static status leaves_push(lowering *l)
{
    plan *p = l->p;
    if (l->has_leaves) return ST_OK;
    l->has_leaves = true;
    for (int way = 0; way < (l->two_ways ? 2 : 1); way++) {
        const shard_tree *t = &l->trees[way];
        l->leaves_begin[way] = (int32_t)p->leaf_count;
        for (int i = 0; i < t->node_count && l->r->strict; i++) {
            TRY(arena_grow(p->a, (void **)&p->leaves, &p->leaf_capacity, p->leaf_count + 1,
                           (int64_t)sizeof(*p->leaves)));
            p->leaves[p->leaf_count++] = (plan_comm_leaf){t->node[i].begin, t->node[i].end};
        }
    }
    return ST_OK;
}

status lower_comm_again(lowering *l, int32_t comm, int32_t after, int32_t *action)
{
    const plan *p = l->p;
    const int32_t group = p->comms[comm].group;
    const bool is_inline = p->run->groups[group].use == GROUP_INLINE;
    const plan_action a = {.kind = ACTION_COMMUNICATE,
                           .lane = is_inline ? LANE_COMPUTE : LANE_GROUPS + group,
                           .microbatch = l->microbatch,
                           .layer = -1,
                           .binding = -1,
                           .comm = comm};
    TRY(lower_action_push(l, &a, action));
    return after >= 0 ? lower_wait(l, *action, after) : ST_OK;
}

status lower_comm_push(lowering *l, const plan_comm *c, int32_t after, int32_t *action)
{
    plan *p = l->p;
    TRY(arena_grow(p->a, (void **)&p->comms, &p->comm_capacity, p->comm_count + 1,
                   (int64_t)sizeof(*c)));
    p->comms[p->comm_count++] = *c;
    return lower_comm_again(l, (int32_t)(p->comm_count - 1), after, action);
}

// ---- gradients ----------------------------------------------------------------------------------

// The terms of one weight's sum, the result in the first.
static status terms_push(lowering *l, plan_comm *c, const grad_use *use, plan_rows rows)
{
    const plan_tensor *t = &l->p->tensors[use->buffer[0]];
    const int64_t columns = t->ndim == 1 ? 1 : t->dims[1];
    const int64_t count = rows.piece * columns;
    const int64_t at = rows.first * columns * dtype_bytes(t->type);
    const shard_tree *tree = lower_tree(l, use->layer);
    for (int i = 0; i < tree->node_count; i++) {
        const int32_t buffer = use->buffer[tree->node[i].buffer];
        const plan_comm_item item = {.in = buffer,
                                     .out = buffer,
                                     .out_offset = at,
                                     .count = count,
                                     .total = lower_pieces_end(&rows, columns)};
        TRY(lower_item_push(l, c, &item));
    }
    return ST_OK;
}

static plan_comm sum_of(const lowering *l, const grad_use *use, op_collective op, int32_t group)
{
    const shard_tree *tree = lower_tree(l, use->layer);
    return (plan_comm){.op = op,
                       .reduction = REDUCTION_SUM,
                       .group = group,
                       .type = l->p->tensors[use->buffer[0]].type,
                       .leaves_begin = l->leaves_begin[tree - l->trees],
                       .leaves_count = l->r->strict ? tree->node_count : 0,
                       .shards = tree->leaf_count};
}

// Compressed, the whole gradient without what pads it is one vector, of which a rank gets its rows.
static status rows_compress(lowering *l, plan_comm *c, int32_t weight)
{
    const op_weight *w = &l->m->weights[weight];
    if (!lower_is_compressed(l, weight)) return ST_OK;
    ASSERT(c->items_count == 1);
    plan_comm_item *item = &l->p->items[c->items_begin];
    c->piece = item->count;
    item->count = w->rows * w->columns;
    item->total = 0;
    item->out_offset = 0;
    return lower_codec_sum(l, c, SUM_ROWS, NULL, weight);
}

static plan_rows whole_rows(const op_weight *w)
{
    return (plan_rows){.count = w->rows, .piece = w->rows};
}

// Along dp; where the pipeline goes both ways, with the stage that has the layer for the other way too,
// whose terms are those of other shards: then every rank gets the whole sum, also where it updates some
// rows only.
status lower_sum_group(lowering *l, lower_kind kind, int32_t *group)
{
    *group = l->groups[kind].data;
    if (!l->two_ways) return ST_OK;
    const int32_t me = l->r->mesh.at[AXIS_PP], other = l->pipe.shape.stages - 1 - me;
    const uint32_t axes = kind == KIND_EXPERT ? MESH_EXPERT_DATA : MESH_DATA;
    const plan_group g = plan_group_pair(&l->r->mesh, me, other, axes);
    return plan_table_group(l->p->run, &g, group);
}

// Not in strict order where several ranks hold the same rows: the tree over shards is finished in one operation
// among all.
bool lower_is_scattered(const lowering *l, int32_t weight)
{
    const bool one_copy = lower_groups(l, weight)->across < 0 || !l->r->strict;
    return lower_rows(l, weight).cut && !l->two_ways && one_copy;
}

// A weight's sum, row by row to those that update them.
static status rows_reduce(lowering *l, const grad_use *use, int32_t last)
{
    const op_weight *w = &l->m->weights[use->weight];
    const plan_rows rows = lower_rows(l, use->weight);
    const lower_kind kind = lower_kind_of(l, use->weight);
    int32_t *last_sum = &l->last_sum[kind][SUM_ROWS];
    plan_comm c = sum_of(l, use, COLLECTIVE_REDUCE_SCATTER, l->groups[kind].cut);
    TRY(lower_comm_name(l, &c, "gradients, %s", w->name));
    TRY(terms_push(l, &c, use, rows));
    TRY(rows_compress(l, &c, use->weight));
    TRY(lower_comm_push(l, &c, last, last_sum));
    if (l->groups[kind].across < 0) return ST_OK;
    int32_t mine = -1;
    TRY(lower_part(l, use->buffer[0], rows, &mine));
    return lower_across_sum(l, use->weight, mine, *last_sum);
}

// All whole gradients of one kind of a layer, in one operation; where some travel compressed, of one sort.
static status together_reduce(lowering *l, int32_t layer_row, lower_kind kind, plan_sort sort,
                              int32_t last)
{
    const layer_state *state = &l->layers[layer_row];
    plan_comm together = {0};
    int32_t group = -1, first = -1;
    TRY(lower_sum_group(l, kind, &group));
    for (int64_t u = 0; u < state->use_count && group >= 0; u++) {
        const grad_use *use = &l->uses[state->use_begin + u];
        const int32_t w = use->weight;
        if (use->shared || lower_passes(l, w) || lower_is_scattered(l, w)) continue;
        if (lower_kind_of(l, w) != kind) continue;
        if (l->r->codec != NULL && plan_sort_of(&l->m->weights[w]) != sort) continue;
        if (together.items_count == 0) {
            first = w;
            together = sum_of(l, use, COLLECTIVE_ALL_REDUCE, group);
        }
        ASSERT(l->p->tensors[use->buffer[0]].type == together.type);
        TRY(terms_push(l, &together, use, whole_rows(&l->m->weights[w])));
    }
    if (together.items_count == 0) return ST_OK;
    TRY(lower_comm_name(l, &together, "gradients, %s", l->m->layers[layer_row].name));
    TRY(lower_codec_sum(l, &together, SUM_WHOLE, l->m->layers[layer_row].name, first));
    return lower_comm_push(l, &together, last, &l->last_sum[kind][SUM_WHOLE]);
}

status lower_gradients_reduce(lowering *l, int32_t layer_row)
{
    TRY(lower_terms_reduce(l, layer_row));
    const layer_state *state = &l->layers[layer_row];
    const int32_t last = l->last_compute;
    int32_t group = -1;
    TRY(lower_sum_group(l, KIND_DENSE, &group));
    if (group < 0) return ST_OK;
    TRY(leaves_push(l));
    for (int64_t u = 0; u < state->use_count; u++) {
        const grad_use *use = &l->uses[state->use_begin + u];
        const int32_t w = use->weight;
        if (use->shared) continue; // complete when the lowest layer that uses it is
        if (lower_passes(l, w)) {
            TRY(lower_across_sum(l, w, l->rows_of[w], l->summed_by[w]));
        } else if (lower_is_scattered(l, w)) {
            TRY(rows_reduce(l, use, last));
        }
    }
    for (int sort = l->r->codec != NULL ? 0 : SORT_PLAIN; sort < SORT_COUNT; sort++) {
        TRY(together_reduce(l, layer_row, KIND_DENSE, (plan_sort)sort, last));
        TRY(together_reduce(l, layer_row, KIND_EXPERT, (plan_sort)sort, last));
    }
    return ST_OK;
}

status lower_sums_wait(lowering *l, int32_t action)
{
    for (int i = 0; i < KIND_COUNT * SUM_LANES; i++) {
        const int32_t sum = l->last_sum[i / SUM_LANES][i % SUM_LANES];
        if (sum >= 0) TRY(lower_wait(l, action, sum));
    }
    return ST_OK;
}

// ---- the step block -----------------------------------------------------------------------------

static status word_push(lowering *l, plan_comm *c, int64_t offset, int64_t words)
{
    const int64_t at = (int64_t)offsetof(step_block, device) + offset;
    const plan_comm_item item = {
        .in = l->step_ref, .out = l->step_ref, .in_offset = at, .out_offset = at, .count = words};
    return lower_item_push(l, c, &item);
}

bool lower_norm_is_summed(const lowering *l)
{
    const plan_mesh *m = &l->r->mesh;
    const bool parts = plan_mesh_size(m, AXIS_PP) > 1 || plan_mesh_size(m, AXIS_TP) > 1;
    return l->r->optimizer != NULL && (l->r->zero > 0 || parts);
}

// A sum, or the like, that the decision waits for.
static status step_sum_push(lowering *l, const plan_comm *c, int32_t after)
{
    int32_t action = -1;
    TRY(lower_comm_push(l, c, after, &action));
    return lower_wait_next(l, action);
}

status lower_step_reduce(lowering *l)
{
    enum { SUM_WORDS = (int64_t)(sizeof(exact_sum) / sizeof(int64_t)) };
    if (plan_mesh_ranks(&l->r->mesh) == 1) return ST_OK;
    const int32_t last = l->last_compute;
    const plan_group all = plan_group_of(&l->r->mesh, MESH_ALL, GROUP_ASIDE);
    TRY(lower_codec_losses(l));
    plan_comm sums = {.op = COLLECTIVE_ALL_REDUCE,
                      .reduction = REDUCTION_SUM,
                      .type = DTYPE_I64,
                      .name = "sums of the step"};
    TRY(plan_table_group(l->p->run, &all, &sums.group));
    TRY(word_push(l, &sums, (int64_t)offsetof(step_device, tokens), 1));
    TRY(word_push(l, &sums, (int64_t)offsetof(step_device, loss_sum), SUM_WORDS));
    const bool norms = lower_norm_is_summed(l);
    if (norms) TRY(word_push(l, &sums, (int64_t)offsetof(step_device, norm_sum), SUM_WORDS));
    TRY(step_sum_push(l, &sums, last));
    if (!norms) return ST_OK;
    // None is -1: as an unsigned number above all others.
    plan_comm bad = {.op = COLLECTIVE_ALL_REDUCE,
                     .reduction = REDUCTION_MIN,
                     .group = sums.group,
                     .type = DTYPE_U64,
                     .name = "lowest bad tensor"};
    TRY(word_push(l, &bad, (int64_t)offsetof(step_device, bad_tensor), 1));
    return step_sum_push(l, &bad, last);
}

// ---- holders ------------------------------------------------------------------------------------

status lower_holders_reduce(lowering *l, const int32_t *final)
{
    plan_comm c = {
        .op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM, .name = "weights of two stages"};
    const int32_t last = l->last_compute;
    for (int32_t w = 0; w < l->m->weight_count; w++) {
        int32_t holders[PLAN_MAX_HOLDERS];
        if (!l->holds[w] || l->m->weights[w].frozen) continue;
        if (plan_pipeline_holders(&l->pipe, w, holders) < 2) continue;
        if (l->two_ways && !lower_passes(l, w)) continue; // they are summed already
        const plan_group pair = plan_group_pair(&l->r->mesh, holders[0], holders[1], 0);
        const plan_tensor *t = plan_tensor_at(l->p, final[w]);
        if (t->dims[0] == 0) continue; // on both stages: rows go by dp
        const plan_comm_item item = {
            .in = final[w], .out = final[w], .count = t->dims[0] * (t->ndim > 1 ? t->dims[1] : 1)};
        TRY(plan_table_group(l->p->run, &pair, &c.group));
        c.type = t->type;
        TRY(lower_item_push(l, &c, &item));
    }
    if (c.items_count == 0) return ST_OK;
    int32_t action = -1;
    TRY(lower_comm_push(l, &c, last, &action));
    TRY(lower_sums_wait(l, action));
    return lower_wait_next(l, action);
}

// ---- weights ------------------------------------------------------------------------------------

status lower_weight_gather(lowering *l, int32_t weight, int32_t ref, int32_t after)
{
    const plan_rows rows = lower_rows(l, weight);
    if (!rows.cut || l->cuts_weights) return ST_OK;
    const plan_tensor *t = plan_tensor_at(l->p, ref);
    plan_comm c = {.op = COLLECTIVE_ALL_GATHER,
                   .group = lower_groups(l, weight)->cut,
                   .type = t->type,
                   .name = l->m->weights[weight].name};
    const plan_comm_item item = {.in = ref,
                                 .out = ref,
                                 .in_offset = rows.first * t->dims[1] * dtype_bytes(t->type),
                                 .count = rows.piece * t->dims[1],
                                 .total = lower_pieces_end(&rows, t->dims[1])};
    TRY(lower_item_push(l, &c, &item));
    return lower_comm_push(l, &c, after, &l->gather_of[weight]);
}

// A layer's first forward waits for its weights of the step before; each lane is in order.
status lower_forward_waits(lowering *l)
{
    for (int32_t i = 0; i < l->m->layer_count; i++) {
        const op_layer *layer = &l->m->layers[i];
        const op_program *program = l->m->programs[layer->program];
        int32_t latest[KIND_COUNT] = {-1, -1};
        for (int64_t t = 0; t < program->tensor_count && l->layers[i].is_here; t++) {
            if (program->tensors[t].role != ROLE_WEIGHT) continue;
            const int32_t w = layer->weight_of[t];
            if (w < 0) continue;
            int32_t *last = &latest[lower_kind_of(l, w)];
            if (l->gather_of[w] > *last) *last = l->gather_of[w];
        }
        for (int k = 0; k < KIND_COUNT; k++) {
            if (latest[k] >= 0) TRY(lower_wait(l, l->layers[i].first_forward, -1 - latest[k]));
        }
    }
    return ST_OK;
}
