// Pass 3 of lowering, gradients that travel compressed: the same sums at the same places of the
// step, with a residual per sum (a run tensor, whose pieces are its ranks', so checkpoints have
// it), a tensor per stream that the sums of the stream work in, for they are in order, and a table
// of what each of them lost.
//
// The codec's loss must be the same on all ranks with the same weights. So ranks of tp have
// separate sums for weights that are cut and for weights that each of them holds whole, whose sums
// all of them compute. Weights with both cut and copied parts are not compressed.
//
// Rows that other ranks hold copies of (layout.zero_group) need two sums, one after the other, each
// with a codec: one inside the group, to the ranks that keep the rows, and one across the ranks
// that keep the same rows. A single sum over all ranks would lose less often. But the copies exist
// to send little between groups of ranks, and with a single sum a rank would send its whole
// gradient there instead of its rows.
//
// The table has a row for each sum of each stage; the model alone determines it:
//
//   rows   | sums of stage 0, as many as of the fullest stage | of stage 1 | ...
//
// Before the step's sums are added, the rows of a stage are summed over its ranks, gathered over
// the stages, and read back with the step's results. So every rank of the job sees the same numbers
// for the same step, and draws the same conclusion.
#include "plan/lower/collect_internal.h"

#include <stdio.h>
#include <string.h>

plan_sort plan_sort_of(const op_weight *w)
{
    if (w->is_history) return SORT_PLAIN; // a codec may round a small count to 0
    if (w->ways < 2) return SORT_WHOLE;
    for (int i = 0; i < w->part_count; i++) {
        if (w->parts[i].copies > 1) return SORT_PLAIN;
    }
    return SORT_CUT;
}

// ---- which sums there are -----------------------------------------------------------------------

// The weight as rank `at` of tp has it; only for weights that are whole or cut without copies. For
// experts, those of this rank of ep.
static op_weight weight_at(const collector *c, int32_t weight, int64_t at)
{
    op_weight w = c->in->m->weights[weight];
    const int64_t ways = w.ways;
    const int64_t shared =
        plan_is_shared_out(&c->in->r->mesh, &w) ? plan_mesh_ep(&c->in->r->mesh) : 1;
    if (ways < 2) return w;
    if (w.cut_dim[AXIS_TP] == 1) {
        w.columns = w.whole_columns * (at + 1) / ways - w.whole_columns * at / ways;
        return w;
    }
    w.rows = 0;
    for (int i = 0; i < w.part_count; i++) {
        const int64_t whole = w.parts[i].whole_rows / shared;
        w.rows += whole * (at + 1) / ways - whole * at / ways;
    }
    return w;
}

static int32_t sum_ranks(const collector *c, int32_t group)
{
    return (int32_t)plan_group_size(&c->in->r->mesh, &c->in->p->run->groups[group]);
}

// Names of sums: "layers.0"; for the rows of a weight "embed.rows"; with tp "layers.0.tp2.cut". If
// rows have copies the name states how they are cut, "embed.rows.zero2.cp1" and
// "embed.across.zero2.cp1", because the same number of ranks may cut them differently, and the
// residual then belongs to other elements.
static void sum_name(const collector *c, int stream, const char *layer, int32_t weight,
                     char out[PLAN_NAME_BYTES])
{
    const plan_mesh *m = &c->in->r->mesh;
    const op_weight *w = &c->in->m->weights[weight];
    const int32_t tp = plan_mesh_size(m, AXIS_TP);
    const char *what = stream == SUM_WHOLE ? "" : stream == SUM_ROWS ? ".rows" : ".across";
    const char *kind = lower_kind_of(c->in, weight) == KIND_EXPERT ? ".experts" : "";
    const char *sort = plan_sort_of(w) == SORT_CUT ? "cut" : "whole";
    char cut[32] = "", pieces[32] = "";
    if (stream != SUM_WHOLE && collect_groups_of(c, weight)->across >= 0) {
        (void)snprintf(cut, sizeof(cut), ".zero%d.cp%d", (int)plan_weight_size(m, w),
                       (int)plan_mesh_size(m, AXIS_CP));
    }
    if (tp > 1) (void)snprintf(pieces, sizeof(pieces), ".tp%d.%s", (int)tp, sort);
    (void)snprintf(out, PLAN_NAME_BYTES, "%.40s%s%s%s%s", stream == SUM_WHOLE ? layer : w->name,
                   what, cut, kind, pieces);
}

static codec_bucket *bucket_find(const collector *c, int32_t stage, const char *name)
{
    for (int64_t i = 0; i < c->codec.bucket_count; i++) {
        codec_bucket *b = &c->codec.buckets[i];
        if (b->stage == stage && strcmp(b->name, name) == 0) return b;
    }
    return NULL;
}

// Adds a weight's share to a sum; the first weight creates the sum.
static status share_add(collector *c, int32_t stage, int stream, int32_t group, const char *layer,
                        int32_t weight)
{
    char name[PLAN_NAME_BYTES];
    const int32_t tp = plan_mesh_size(&c->in->r->mesh, AXIS_TP);
    const bool whole = c->in->r->whole_units != NULL && c->in->r->whole_units[weight];
    sum_name(c, stream, layer, weight, name);
    codec_bucket *b = bucket_find(c, stage, name);
    if (b == NULL) {
        TRY(arena_grow(c->in->a, (void **)&c->codec.buckets, &c->codec.bucket_capacity,
                       c->codec.bucket_count + 1, (int64_t)sizeof(*b)));
        b = &c->codec.buckets[c->codec.bucket_count++];
        *b = (codec_bucket){.stage = stage, .ranks = sum_ranks(c, group), .feedback = -1};
        memcpy(b->name, name, sizeof(name));
        TRY(arena_new(c->in->a, tp, &b->cuts));
    }
    for (int32_t at = 0; at < tp; at++) {
        const op_weight w = weight_at(c, weight, at);
        const int64_t piece =
            plan_rows_of(&c->in->r->mesh, c->in->r->zero, &w, whole).piece * w.columns;
        b->cuts[at].count += stream == SUM_ACROSS ? piece : w.rows * w.columns;
        if (stream == SUM_ROWS) b->cuts[at].piece = piece;
    }
    return ST_OK;
}

static status weight_add(collector *c, int32_t stage, const char *layer, int32_t weight)
{
    const collect_groups *groups = collect_groups_of(c, weight);
    int32_t group = -1;
    if (plan_sort_of(&c->in->m->weights[weight]) == SORT_PLAIN) return ST_OK;
    if (!collect_is_scattered(c, weight)) {
        TRY(collect_sum_group(c, lower_kind_of(c->in, weight), &group));
        return group >= 0 ? share_add(c, stage, SUM_WHOLE, group, layer, weight) : ST_OK;
    }
    TRY(share_add(c, stage, SUM_ROWS, groups->cut, layer, weight));
    if (groups->across < 0) return ST_OK;
    return share_add(c, stage, SUM_ACROSS, groups->across, layer, weight);
}

// Adds the sums of one stage, from the lowest layer upwards: a weight that several layers of it use
// is summed with the lowest.
static status stage_add(collector *c, int32_t stage, int32_t *seen)
{
    for (int32_t i = 0; i < c->in->m->layer_count; i++) {
        const op_layer *layer = &c->in->m->layers[i];
        const op_program *program = c->in->m->programs[layer->program];
        if (plan_pipeline_chunk_of(&c->in->pipe, stage, i) < 0) continue;
        for (int64_t t = 0; t < program->tensor_count; t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->role != ROLE_WEIGHT_GRAD || local->view_of != TENSOR_NONE) continue;
            const int32_t w = layer->weight_of[local->of];
            if (seen[w] == stage + 1) continue;
            seen[w] = stage + 1;
            TRY(weight_add(c, stage, layer->name, w));
        }
    }
    return ST_OK;
}

// ---- what they need -----------------------------------------------------------------------------

// Adds the residual: a row for each rank of the stages that have such a sum, all as long as the
// longest. Other ranks have only its name.
static status feedback_add(collector *c, codec_bucket *b)
{
    const plan_codec *codec = c->in->r->codec;
    const int32_t tp = plan_mesh_size(&c->in->r->mesh, AXIS_TP), me = c->in->r->mesh.at[AXIS_PP];
    const int64_t of_stage =
        plan_mesh_ranks(&c->in->r->mesh) / plan_mesh_size(&c->in->r->mesh, AXIS_PP);
    int64_t bytes = 0;
    int32_t count = 0;
    for (int32_t at = 0; at < tp; at++) {
        const codec_cut *cut = &b->cuts[at];
        bytes =
            max_i64(bytes, codec->feedback_bytes(codec->context, cut->count, b->ranks, cut->piece));
    }
    if (bytes == 0) return ST_OK;
    plan_tensor t = {.type = DTYPE_U8,
                     .ndim = 2,
                     .dims = {1, bytes},
                     .kind = PLAN_BYTES_GRADIENTS,
                     .role = ROLE_STATE,
                     .weight = -1,
                     .piece_rows = 1,
                     .stages = {-1, -1}};
    for (int32_t s = 0; s < plan_mesh_size(&c->in->r->mesh, AXIS_PP); s++) {
        if (bucket_find(c, s, b->name) == NULL) continue;
        ASSERT(count < PLAN_MAX_HOLDERS);
        t.stages[count++] = s;
        if (s == me) t.bytes = align_up(bytes, ALIGN_TENSOR);
    }
    t.pieces = (int32_t)(count * of_stage);
    (void)snprintf(t.name, sizeof(t.name), PLAN_FEEDBACK "%s.%.70s", codec->name, b->name);
    return lower_run_tensor(c->in->p->run, &t, &b->feedback);
}

status collect_codec_begin(collector *c)
{
    plan *p = c->in->p;
    const int32_t stages = plan_mesh_size(&c->in->r->mesh, AXIS_PP);
    const int32_t tp = plan_mesh_size(&c->in->r->mesh, AXIS_TP);
    int32_t *seen = NULL;
    int64_t most = 0;
    if (c->in->r->codec == NULL) return ST_OK;
    TRY(arena_new(c->in->a, c->in->m->weight_count + 1, &seen));
    for (int32_t s = 0; s < stages; s++) {
        const int64_t before = c->codec.bucket_count;
        TRY(stage_add(c, s, seen));
        most = max_i64(most, c->codec.bucket_count - before);
    }
    p->bucket_count = (int32_t)(stages * most);
    TRY(arena_new(p->run->a, p->bucket_count + 1, &p->buckets));
    for (int64_t i = 0, n = 0; i < c->codec.bucket_count; i++, n++) {
        codec_bucket *b = &c->codec.buckets[i];
        if (i > 0 && b->stage != c->codec.buckets[i - 1].stage) n = 0;
        b->row = (int32_t)(b->stage * most + n);
        plan_bucket *out = &p->buckets[b->row];
        memcpy(out->name, b->name, sizeof(out->name));
        for (int32_t at = 0; at < tp; at++) out->count = max_i64(out->count, b->cuts[at].count);
        TRY(feedback_add(c, b));
    }
    return ST_OK;
}

// The workspace of the stream on which a group's sums run.
static status work_of(collector *c, int32_t group, int32_t *out)
{
    int i = 0;
    while (i < c->codec.work_count && c->codec.works[i].group != group) i++;
    if (i == c->codec.work_count) {
        const plan_tensor t = {.name = "compression.work",
                               .type = DTYPE_U8,
                               .ndim = 1,
                               .kind = PLAN_BYTES_GRADIENTS,
                               .weight = -1};
        ASSERT(i < COUNT_OF(c->codec.works));
        c->codec.works[i].group = group;
        TRY(plan_tensor_push(c->in->p, &t, &c->codec.works[i].tensor));
        c->codec.work_count++;
    }
    *out = c->codec.works[i].tensor;
    return ST_OK;
}

static status work_add(collector *c, plan_comm *comm)
{
    const plan_codec *codec = c->in->r->codec;
    const int64_t bytes =
        codec->work_bytes(codec->context, comm->total, sum_ranks(c, comm->group), comm->piece);
    TRY(work_of(c, comm->group, &comm->work));
    plan_tensor *t = &c->in->p->tensors[comm->work];
    t->dims[0] = max_i64(t->dims[0], bytes);
    t->bytes = align_up(t->dims[0], ALIGN_TENSOR);
    return ST_OK;
}

bool collect_is_compressed(const collector *c, int32_t weight)
{
    return c->in->r->codec != NULL && plan_sort_of(&c->in->m->weights[weight]) != SORT_PLAIN;
}

status collect_codec_sum(collector *c, plan_comm *comm, comm_note *note, int stream,
                         const char *layer, int32_t weight)
{
    const plan_codec *codec = c->in->r->codec;
    const plan_mesh *mesh = &c->in->r->mesh;
    char name[PLAN_NAME_BYTES];
    if (!collect_is_compressed(c, weight)) return ST_OK;
    sum_name(c, stream, layer, weight, name);
    if (comm->type != DTYPE_F32 || comm->leaves_count > 0) {
        return fail(ST_INTERNAL, "%s of %s in order cannot be compressed", name,
                    dtype_name(comm->type));
    }
    for (int32_t i = 0; i < comm->items_count; i++) {
        comm->total += c->in->p->items[comm->items_begin + i].count;
    }
    const codec_bucket *b = bucket_find(c, mesh->at[AXIS_PP], name);
    const codec_cut *cut = b != NULL ? &b->cuts[mesh->at[AXIS_TP]] : NULL;
    ASSERT(cut != NULL && b->ranks == sum_ranks(c, comm->group));
    ASSERT(stream == SUM_ACROSS ? cut->count >= comm->total : cut->count == comm->total);
    ASSERT(cut->piece == comm->piece);
    *note = (comm_note){.before = b->name, .from = -1};
    comm->compressed = true;
    comm->stream_bytes = codec->stream_bytes(codec->context, comm->total, b->ranks, comm->piece);
    comm->bucket = b->row;
    comm->feedback = b->feedback;
    return work_add(c, comm);
}

// ---- what they lost -----------------------------------------------------------------------------

status collect_codec_losses(collector *c)
{
    enum { WIDTH = (int64_t)sizeof(double) };
    plan *p = c->in->p;
    const plan_mesh *mesh = &c->in->r->mesh;
    const int32_t stages = plan_mesh_size(mesh, AXIS_PP), me = mesh->at[AXIS_PP];
    int32_t action = -1;
    if (c->in->r->codec == NULL || p->bucket_count == 0) return ST_OK;
    const int64_t reals = c->in->r->codec->reals, piece = reals * (p->bucket_count / stages);
    plan_tensor t = {.name = "compression.losses",
                     .type = DTYPE_F64,
                     .ndim = 2,
                     .dims = {p->bucket_count, reals},
                     .kind = PLAN_BYTES_BUFFERS,
                     .role = ROLE_ACTIVATION,
                     .weight = -1,
                     .bytes = align_up(stages * piece * WIDTH, ALIGN_TENSOR)};
    TRY(lower_run_tensor(p->run, &t, &p->losses));
    p->codec = c->in->r->codec->name;
    p->codec_reals = (int32_t)reals;
    const plan_group stage = plan_group_of(mesh, MESH_ALL & ~MESH_AXIS(AXIS_PP), GROUP_OVERLAPPED);
    plan_comm sum = {.op = COLLECTIVE_ALL_REDUCE, .reduction = REDUCTION_SUM, .type = DTYPE_F64};
    const comm_note sum_note = {.before = "losses of compression", .from = -1};
    plan_comm_item item = {.in = p->losses,
                           .out = p->losses,
                           .in_offset = me * piece * WIDTH,
                           .out_offset = me * piece * WIDTH,
                           .count = piece};
    TRY(plan_table_group(p->run, &stage, &sum.group));
    TRY(collect_item(c, &sum, &item));
    TRY(collect_comm(c, &sum, &sum_note, c->last_compute, &action));
    TRY(collect_sums_wait(c, action));
    TRY(collect_wait_next(c, action));
    if (stages == 1) return ST_OK;
    const plan_group across = plan_group_of(mesh, MESH_AXIS(AXIS_PP), GROUP_OVERLAPPED);
    const comm_note note = {.before = "losses of compression, of all stages", .from = -1};
    plan_comm gather = {.op = COLLECTIVE_ALL_GATHER, .type = DTYPE_F64};
    item.out_offset = 0;
    TRY(plan_table_group(p->run, &across, &gather.group));
    TRY(collect_item(c, &gather, &item));
    TRY(collect_comm(c, &gather, &note, action, &action));
    return collect_wait_next(c, action);
}
