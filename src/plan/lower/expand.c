// Pass 1 of lowering: turns a schedule's coarse actions into visits of layers and runs of their
// lists.
//
//   schedule   F chunk 0, micro-batch 3           B chunk 0, micro-batch 3
//   visits     layer 0 forward, 1 forward, ...    layer 1 backward, layer 0 backward
//   runs       forward | forward                  recompute, backward input, backward weight | ...
//
// Within a layer's backward the recompute list runs first, then the backward-input list, then the
// backward-weight list; a layer without an output (the head) makes its gradient in the weight list,
// which then comes before the input list.
//
// In strict mode the weight list runs once for each shard that the micro-batch overlaps, on the
// rows of that shard, into the shard's own accumulators; when a shard is complete, its accumulators
// are merged along the one binary tree over shards (shards.h). So bits depend on the shards alone.
//
// Pure: schedule, model and layout in, two lists out.
#include "plan/lower/expand.h"

#include "op/zigzag.h"

#include <string.h>

// ---- lists --------------------------------------------------------------------------------------

static status action_add(arena *a, schedule_list *list, schedule_kind kind, int32_t chunk,
                         int32_t microbatch)
{
    TRY(arena_grow(a, (void **)&list->actions, &list->capacity, list->count + 1,
                   (int64_t)sizeof(schedule_action)));
    list->actions[list->count++] = (schedule_action){
        .kind = kind, .chunk = chunk, .microbatch = microbatch, .chunk_b = -1, .microbatch_b = -1};
    return ST_OK;
}

// A list without backward: as many micro-batches as there are ranks go through one chunk, then
// through the next. If the schedule has two directions, only the first is used.
static status forward_list(const lower_input *in, arena *a, schedule_list *out)
{
    const schedule_request *r = &in->pipe.shape;
    const bool two = in->pipe.schedule->shape == SHAPE_TWO;
    for (int32_t first = 0; first < r->microbatches; first += r->stages) {
        const int32_t end =
            first + r->stages < r->microbatches ? first + r->stages : r->microbatches;
        for (int32_t c = 0; c < (two ? 1 : r->chunks); c++) {
            for (int32_t m = first; m < end; m++) {
                TRY(action_add(a, out, SCHEDULE_FORWARD, c, m));
            }
        }
    }
    return ST_OK;
}

status expand_list(const lower_input *in, int32_t pp, arena *a, schedule_list *out)
{
    const plan_pipeline *p = &in->pipe;
    if (p->schedule != NULL && in->r->optimizer == NULL) return forward_list(in, a, out);
    if (p->schedule != NULL) return plan_schedule_emit(p->schedule, &p->shape, pp, a, out);
    for (int32_t m = 0; m < p->shape.microbatches; m++) {
        TRY(action_add(a, out, SCHEDULE_FORWARD, 0, m));
        if (in->r->optimizer != NULL) TRY(action_add(a, out, SCHEDULE_BACKWARD, 0, m));
    }
    return ST_OK;
}

bool expand_has_forward(const schedule_action *a)
{
    return a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BOTH;
}

bool expand_input_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch)
{
    if (a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BACKWARD_WEIGHT) return false;
    *chunk = a->kind == SCHEDULE_BOTH ? a->chunk_b : a->chunk;
    *microbatch = a->kind == SCHEDULE_BOTH ? a->microbatch_b : a->microbatch;
    return true;
}

bool expand_weight_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch)
{
    if (a->kind == SCHEDULE_FORWARD || a->kind == SCHEDULE_BACKWARD_INPUT) return false;
    *chunk = a->kind == SCHEDULE_BOTH ? a->chunk_b : a->chunk;
    *microbatch = a->kind == SCHEDULE_BOTH ? a->microbatch_b : a->microbatch;
    return true;
}

static int32_t stage_at(const lower_input *in, int32_t pp, int32_t chunk)
{
    if (in->pipe.schedule == NULL) return 0;
    return plan_schedule_stage(in->pipe.schedule, &in->pipe.shape, pp, chunk);
}

bool expand_neighbour(const lower_input *in, int32_t pp, int32_t chunk, int32_t step, int32_t *rank,
                      int32_t *its_chunk)
{
    const plan_pipeline *p = &in->pipe;
    const int32_t stage = stage_at(in, pp, chunk) + step;
    if (p->schedule == NULL || stage < 0 || stage >= p->depth) return false;
    plan_schedule_holder(p->schedule, &p->shape, stage, plan_schedule_direction(p->schedule, chunk),
                         rank, its_chunk);
    return true;
}

// ---- runs ---------------------------------------------------------------------------------------

typedef struct expander {
    const lower_input *in;
    expanded *out;
    int64_t *piece; // [program] sequences for which its weight list runs at once; 0: not known yet
} expander;

static status run_add(expander *e, layer_run run)
{
    expanded *x = e->out;
    TRY(arena_grow(e->in->a, (void **)&x->runs, &x->run_capacity, x->run_count + 1,
                   (int64_t)sizeof(run)));
    x->runs[x->run_count++] = run;
    x->visits[x->visit_count - 1].runs_count++;
    return ST_OK;
}

static status list_add(expander *e, int32_t layer, op_list list)
{
    const op_program *program = e->in->m->programs[e->in->m->layers[layer].program];
    if (program->lists[list].count == 0) return ST_OK;
    return run_add(e, (layer_run){.list = (int32_t)list,
                                  .source = -1,
                                  .sequence_count = (int32_t)e->in->r->micro_batch});
}

// Sequences that a head's weight list runs on at once. The statistics pass leaves logits of a piece
// of the vocabulary, which the losses can reuse if no more sequences are processed at once than a
// chunk of the head has.
static int64_t piece_of(expander *e, int32_t layer)
{
    int64_t *piece = &e->piece[e->in->m->layers[layer].program];
    const op_program *program = e->in->m->programs[e->in->m->layers[layer].program];
    if (*piece > 0) return *piece;
    *piece = e->in->r->micro_batch;
    for (int64_t i = 0; i < program->lists[OP_BACKWARD_WEIGHT].count; i++) {
        const op_node *node = &program->lists[OP_BACKWARD_WEIGHT].nodes[i];
        if (op_kind_of(node->code)->logits != LOGITS_STATS || !node->attrs.kept) continue;
        const int64_t rows = op_head_chunk_rows(program->tensors[node->in[1]].dims[0].scale);
        if (rows < e->in->r->seq) continue;
        *piece = rows / e->in->r->seq;
        break;
    }
    return *piece;
}

// Adds the runs of a leaf. They cover all rows of its sequences; if several shards of a sequence
// are on this rank, they cover the leaf's two pieces of each sequence, sequence after sequence, as
// a rank with a single shard would.
static status leaf_add(expander *e, const shard_tree *tree, int32_t leaf, layer_run run)
{
    const lower_input *in = e->in;
    const int32_t ways = plan_mesh_size(&in->r->mesh, AXIS_CP), at = in->r->mesh.at[AXIS_CP];
    const int32_t begin = run.sequence_begin, count = run.sequence_count;
    zigzag_run halves[2] = {{0}, {0}};
    run.list = OP_BACKWARD_WEIGHT;
    run.buffer = tree->leaf[leaf];
    run.source = -1;
    const int32_t own = tree->cp_shards / ways; // shards of a sequence of a rank
    if (own <= 1) return run_add(e, run);
    // Rows of experts may come from another rank, where the pieces of its shards lie like here.
    zigzag_shard(ways, at, in->p->seq, tree->cp_shards, at * own + leaf % own, halves);
    for (int32_t i = 0; i < 2 * count; i++) {
        run.sequence_begin = begin + i / 2;
        run.sequence_count = 1;
        run.position_begin = (int32_t)halves[i % 2].row;
        run.position_count = (int32_t)halves[i % 2].count;
        TRY(run_add(e, run));
    }
    return ST_OK;
}

static status merges_add(expander *e, const shard_tree *tree, int32_t leaf, int32_t nodes)
{
    for (int k = 0; k < tree->merge_count[leaf]; k++) {
        const tree_merge merge = tree->merges[leaf][k];
        TRY(run_add(
            e, (layer_run){
                   .list = -1, .nodes = nodes, .buffer = merge.target, .source = merge.source}));
    }
    return ST_OK;
}

// Adds the runs for the gradients of experts for shard k of each rank that shares them. `rows`: the
// sequences of the micro-batch; `ends`: they complete the shard.
static status experts_add(expander *e, int32_t layer, int32_t k, layer_run rows, bool ends)
{
    const shard_tree *tree = expand_tree(e->out, layer, KIND_EXPERT);
    const int32_t each = tree->cp_count, count = tree->ranks * each;
    const int32_t own = expand_tree(e->out, layer, KIND_DENSE)->cp_count;
    rows.nodes = NODES_EXPERT;
    for (int32_t i = 0; i < count; i++) {
        rows.rows_of = i / own + 1; // ranks are numbered by dp and then by cp, like the leaves
        TRY(leaf_add(e, tree, shard_of(tree, k, i / each) * each + i % each, rows));
    }
    for (int32_t i = 0; i < count && ends; i++) {
        const int32_t leaf = shard_of(tree, k, i / each) * each + i % each;
        TRY(merges_add(e, tree, leaf, NODES_EXPERT));
    }
    return ST_OK;
}

static bool has_experts(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_BACKWARD_WEIGHT].count; i++) {
        if (op_kind_of(p->lists[OP_BACKWARD_WEIGHT].nodes[i].code)->finds_rows) return true;
    }
    return false;
}

// Adds the runs for the weight gradients of a layer for a micro-batch, shard by shard.
static status weights_add(expander *e, int32_t layer, int32_t microbatch)
{
    const plan_request *r = e->in->r;
    const op_program *program = e->in->m->programs[e->in->m->layers[layer].program];
    const int64_t first = e->in->p->first_sequence + microbatch * r->micro_batch;
    const int64_t end = first + r->micro_batch, piece = piece_of(e, layer);
    const shard_tree *tree = expand_tree(e->out, layer, KIND_DENSE);
    const bool apart = r->strict && e->out->has_apart && has_experts(program);
    const int32_t nodes = apart ? NODES_DENSE : NODES_ALL;
    if (program->lists[OP_BACKWARD_WEIGHT].count == 0) return ST_OK;
    for (int32_t s = tree->first; s < tree->last; s++) {
        const int64_t from = max_i64(first, tree->begin[s]);
        const int64_t to = min_i64(end, tree->begin[s + 1]);
        const int32_t leaf = s * tree->cp_count;
        const bool ends = to == tree->begin[s + 1];
        layer_run rows = {.sequence_begin = (int32_t)(from - first),
                          .sequence_count = (int32_t)(to - from)};
        if (from >= to) continue;
        if (apart) TRY(experts_add(e, layer, s - tree->first, rows, ends));
        for (int64_t at = from; at < to; at += piece) {
            rows.nodes = nodes;
            rows.sequence_begin = (int32_t)(at - first);
            rows.sequence_count = (int32_t)min_i64(to - at, piece);
            for (int32_t k = 0; k < tree->cp_count; k++) TRY(leaf_add(e, tree, leaf + k, rows));
        }
        for (int32_t k = 0; k < tree->cp_count && ends; k++) {
            TRY(merges_add(e, tree, leaf + k, nodes));
        }
    }
    return ST_OK;
}

// ---- visits -------------------------------------------------------------------------------------

static status visit_add(expander *e, layer_visit visit)
{
    expanded *x = e->out;
    TRY(arena_grow(e->in->a, (void **)&x->visits, &x->visit_capacity, x->visit_count + 1,
                   (int64_t)sizeof(visit)));
    visit.runs_begin = (int32_t)x->run_count;
    x->visits[x->visit_count++] = visit;
    return ST_OK;
}

static status forward_add(expander *e, int32_t chunk, int32_t microbatch)
{
    const expand_chunk *c = &e->out->chunks[chunk];
    for (int32_t layer = c->first_layer; layer < c->end_layer; layer++) {
        TRY(visit_add(e, (layer_visit){.layer = layer,
                                       .chunk = chunk,
                                       .microbatch = microbatch,
                                       .forward = true,
                                       .opens = layer == c->first_layer,
                                       .closes = layer + 1 == c->end_layer}));
        TRY(list_add(e, layer, OP_FORWARD));
    }
    return ST_OK;
}

// True for the last micro-batch that goes through the chunk. If the pipeline has two directions,
// two stages finish their layers in different orders, and all gradients are summed at the end.
static bool is_last(const expander *e, int32_t chunk, int32_t microbatch)
{
    const plan_pipeline *p = &e->in->pipe;
    int32_t first = 0, count = p->shape.microbatches;
    if (e->out->two_ways) return false;
    if (p->schedule != NULL) {
        plan_schedule_share(p->schedule, &p->shape, chunk, &first, &count);
    }
    return microbatch + 1 == first + count;
}

static status backward_add(expander *e, int32_t chunk, int32_t microbatch, bool input, bool weight)
{
    const op_model *m = e->in->m;
    const expand_chunk *c = &e->out->chunks[chunk];
    for (int32_t layer = c->end_layer - 1; layer >= c->first_layer; layer--) {
        // A layer with a loss does all of its backward in the input half.
        const bool has_loss = m->programs[m->layers[layer].program]->output_count == 0;
        TRY(visit_add(e, (layer_visit){.layer = layer,
                                       .chunk = chunk,
                                       .microbatch = microbatch,
                                       .input = input,
                                       .weight = weight,
                                       .opens = layer + 1 == c->end_layer,
                                       .closes = layer == c->first_layer,
                                       .makes_gradients = has_loss ? input : weight,
                                       .completes = weight && is_last(e, chunk, microbatch)}));
        if (input) TRY(list_add(e, layer, OP_RECOMPUTE));
        if (input && has_loss) TRY(weights_add(e, layer, microbatch));
        if (input) TRY(list_add(e, layer, OP_BACKWARD_INPUT));
        if (weight && !has_loss) TRY(weights_add(e, layer, microbatch));
    }
    return ST_OK;
}

// Ranks with more micro-batches gather weights in the additional ones too, and every rank takes
// part. The additional visits repeat those of the first micro-batches.
static status remote_add(expander *e)
{
    expanded *x = e->out;
    const plan_request *r = e->in->r;
    const int64_t own = e->in->pipe.shape.microbatches, each = x->visit_count / max_i64(own, 1);
    const int64_t count = lower_gathers_weights(r) ? (r->most_microbatches - own) * each : 0;
    for (int64_t i = 0; i < count; i++) {
        layer_visit visit = x->visits[i % each];
        visit.microbatch = -1;
        visit.makes_gradients = false;
        visit.completes = visit.weight && i >= count - each;
        visit.runs_count = 0;
        TRY(visit_add(e, visit));
    }
    for (int64_t i = 0; i < x->visit_count - count && count > 0; i++) {
        x->visits[i].completes = false; // another rank has the last micro-batch
    }
    return ST_OK;
}

static status visits_make(expander *e)
{
    for (int64_t i = 0; i < e->out->list.count; i++) {
        const schedule_action a = e->out->list.actions[i];
        int32_t chunk = -1, microbatch = -1;
        if (expand_has_forward(&a)) TRY(forward_add(e, a.chunk, a.microbatch));
        const bool input = expand_input_half(&a, &chunk, &microbatch);
        const bool weight = expand_weight_half(&a, &chunk, &microbatch);
        if (input || weight) TRY(backward_add(e, chunk, microbatch, input, weight));
    }
    return remote_add(e);
}

// ---- the whole ----------------------------------------------------------------------------------

status plan_expand_chunks(const lower_input *in, expanded *out)
{
    const int32_t me = in->r->mesh.at[AXIS_PP];
    *out = (expanded){.chunk_count = in->pipe.shape.chunks};
    TRY(expand_list(in, me, in->a, &out->list));
    TRY(arena_new(in->a, out->chunk_count, &out->chunks));
    for (int32_t c = 0; c < out->chunk_count; c++) {
        const int32_t stage = stage_at(in, me, c);
        out->chunks[c] = (expand_chunk){.stage = stage,
                                        .first_layer = in->pipe.first_layer[stage],
                                        .end_layer = in->pipe.first_layer[stage + 1]};
    }
    TRY(arena_new(in->a, in->m->layer_count, &out->chunk_of));
    for (int32_t i = 0; i < in->m->layer_count; i++) {
        out->chunk_of[i] = plan_pipeline_chunk_of(&in->pipe, me, i);
    }
    return ST_OK;
}

static status experts_make(const lower_input *in, expanded *out)
{
    if (!plan_experts_apart(&in->r->mesh)) return ST_OK;
    out->has_apart = true;
    TRY(arena_new(in->a, 2, &out->experts));
    for (int way = 0; way < (out->two_ways ? 2 : 1); way++) {
        TRY(shard_tree_experts(&out->experts[way], &out->trees[way], in->r));
    }
    return ST_OK;
}

static status trees_make(const lower_input *in, expanded *out)
{
    const plan_request *r = in->r;
    const int64_t first = in->p->first_sequence, end = first + in->p->own_sequences;
    int32_t none = 0, share = 0; // micro-batches of the first direction
    if (r->optimizer == NULL) return ST_OK;
    out->two_ways = in->pipe.schedule != NULL && in->pipe.schedule->shape == SHAPE_TWO;
    if (out->two_ways) {
        plan_schedule_share(in->pipe.schedule, &in->pipe.shape, 0, &none, &share);
        TRY(shard_trees_make(out->trees, r, first, first + share * r->micro_batch, end));
    } else {
        TRY(shard_tree_make(&out->trees[0], r, first, end));
    }
    return experts_make(in, out);
}

status plan_expand(const lower_input *in, expanded *out)
{
    expander e = {.in = in, .out = out};
    TRY(arena_new(in->a, in->m->program_count, &e.piece));
    TRY(plan_expand_chunks(in, out));
    TRY(trees_make(in, out));
    return visits_make(&e);
}
