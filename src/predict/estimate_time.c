// Least time of a step, from the moment when all ranks have summed the norm of one step to that of
// the next:
//
//   first stage's update | forwards of the stages below | all work of the rank | backwards below
//
// The rank cannot begin before its input has passed through the stages below, which begin with
// their update; it does all its work in sequence; and after its last gradient of an input the
// stages below still have theirs to do. The bound counts nothing else, except streams of
// collectives that are busy longer than all that, so no order of the same actions can be faster.
// Prices are those of cost/cost.h, list by list (estimate_lists.c).
#include "predict/estimate_internal.h"

// ---- prices -------------------------------------------------------------------------------------

static cost_group group_of(const cluster *c, const plan_mesh *mesh, uint32_t axes, group_use use)
{
    const plan_group g = plan_group_of(mesh, axes, use);
    cost_group out;
    cost_group_of(c, mesh, &g, &out);
    return out;
}

void estimate_links_of(const cluster *c, const plan_mesh *mesh, estimate_links *out)
{
    const int32_t stages = plan_mesh_size(mesh, AXIS_PP);
    *out = (estimate_links){.tp = group_of(c, mesh, MESH_AXIS(AXIS_TP), GROUP_INLINE),
                            .cp = group_of(c, mesh, MESH_CP_REST, GROUP_INLINE),
                            .heads = group_of(c, mesh, MESH_CP_HEADS, GROUP_INLINE),
                            .data = group_of(c, mesh, MESH_DATA, GROUP_OVERLAPPED),
                            .inside = group_of(c, mesh, MESH_ZERO, GROUP_OVERLAPPED),
                            .across = group_of(c, mesh, MESH_DP_ACROSS, GROUP_OVERLAPPED),
                            .pp = {.ranks = 1},
                            .ep = group_of(c, mesh, MESH_AXIS(AXIS_EP), GROUP_INLINE),
                            .expert_data = group_of(c, mesh, MESH_EXPERT_DATA, GROUP_OVERLAPPED),
                            .pairs = {{.ranks = 1}, {.ranks = 1}}};
    if (stages == 1) return;
    plan_mesh at = *mesh;
    for (int i = 0; i < 2 && stages % 2 == 0; i++) {
        at.at[AXIS_PP] = i == 0 ? 0 : stages / 2 - 1;
        const plan_group pair =
            plan_group_pair(mesh, at.at[AXIS_PP], stages - 1 - at.at[AXIS_PP], MESH_DATA);
        cost_group_of(c, &at, &pair, &out->pairs[i]);
    }
    const plan_group link = plan_group_stages(0, 1, GROUP_LINK_FORWARD);
    cost_group_of(c, mesh, &link, &out->pp);
}

// Its gradients of weights, piece by piece if it keeps logits.
static int64_t weights_ns(const estimate *e, const cost_model *m, const estimate_links *links,
                          const op_program *p)
{
    const int64_t piece = estimate_head_piece(e, p);
    int64_t ns = 0;
    for (int64_t at = 0; at < e->r.micro_batch; at += piece) {
        const int64_t count = min_i64(piece, e->r.micro_batch - at);
        extent_binding bound = e->bound;
        for (int s = 1; s < EXTENT_SYMBOL_COUNT; s++) {
            bound.value[s] = e->bound.value[s] / e->r.micro_batch * count;
        }
        ns += estimate_list_ns(e, m, links, p, OP_BACKWARD_WEIGHT, &bound);
    }
    return ns;
}

static status buffers_make(arena *a, const estimate *e, estimate_buffers **out)
{
    TRY(arena_new(a, 1, out));
    TRY(arena_new(a, e->m->layer_count, &(*out)->stages));
    return arena_new(a, e->m->layer_count, &(*out)->gathered);
}

status estimate_price(arena *a, const estimate *e, const cost_model *m, const estimate_links *links,
                      const estimate_prices *reuse_from, estimate_prices **out)
{
    estimate_prices *x = NULL;
    TRY(arena_new(a, 1, &x));
    TRY(arena_new(a, e->m->program_count, &x->programs));
    if (reuse_from != NULL) x->buffers = reuse_from->buffers;
    if (reuse_from == NULL) TRY(buffers_make(a, e, &x->buffers));
    for (int32_t i = 0; i < e->m->program_count; i++) {
        const op_program *p = e->programs[i].program;
        program_price *price = &x->programs[i];
        const int64_t weight = weights_ns(e, m, links, p);
        const bool has_loss = p->output_count == 0;
        price->forward = estimate_list_ns(e, m, links, p, OP_FORWARD, &e->bound);
        price->input = estimate_list_ns(e, m, links, p, OP_RECOMPUTE, &e->bound) +
                       estimate_list_ns(e, m, links, p, OP_BACKWARD_INPUT, &e->bound) +
                       (has_loss ? weight : 0);
        price->weight = has_loss ? 0 : weight;
    }
    for (int32_t i = 0; i < e->m->layer_count; i++) {
        const program_price *price = &x->programs[e->m->layers[i].program];
        x->all += price->forward + price->input + price->weight;
    }
    *out = x;
    return ST_OK;
}

int64_t estimate_work_ns(const estimate_prices *prices, const cost_model *m, int64_t microbatches,
                         int32_t pp)
{
    return microbatches * prices->all / pp + cost_step_ns(m->profile);
}

// ---- a layer's update and collectives ----------------------------------------------------------

static int64_t update_ns(const estimate *e, const cost_model *m, const program_weight *w,
                         const weight_bytes *b, const plan_rows *rows)
{
    const op_weight *model = &e->m->weights[w->row];
    const double count = (double)(rows->count * model->columns);
    const bool has_copy = b->master > 0;
    const double kept = has_copy ? 4.0 : (double)dtype_bytes(w->type);
    const double moments = (double)dtype_bytes(e->r.states.moments);
    // Updates by matrices also have GEMMs, which are left out.
    const double states = (double)estimate_optimizer(&e->r.states, model)->moments;
    double bytes = (double)dtype_bytes(w->grad) + 2.0 * kept + 2.0 * states * moments;
    if (has_copy) bytes += (double)dtype_bytes(w->type);
    return cost_memory_ns(m, count * bytes);
}

int64_t estimate_held_ns(const cost_model *m, const cost_group *g, int64_t ns)
{
    const double overlap = cost_overlap(m->profile, g, true);
    return (int64_t)((double)ns * (1.0 - overlap + cost_crowding(m, g)));
}

// A sum once in a step delays compute only by crowding: its exposed part comes later.
static int64_t crowded_ns(const cost_model *m, const cost_group *g, int64_t ns)
{
    return (int64_t)((double)ns * cost_crowding(m, g));
}

static int64_t late_ns(const cost_model *m, const cost_group *g, int64_t ns)
{
    return (int64_t)((double)ns * (1.0 - cost_overlap(m->profile, g, true)));
}

// Least time on its stream: sums in buckets are fewer and take less (the habit sum_bytes).
static int64_t alone_ns(const cost_model *m, int64_t ns)
{
    return cost_habits_of(m->profile)->sum_bytes > 0 ? 0 : ns;
}

// Bytes that ranks exchange for a layer, of one kind of weights.
typedef struct kind_bytes {
    double together, visit, ahead, again;
    int64_t packed[SORT_COUNT]; // floats sent compressed, in a sum of each sort
} kind_bytes;

// data: [2], of which the faster one counts.
static void together_add(const cost_model *m, const cost_group *const *data, const int64_t ns[2],
                         layer_time *out)
{
    const int at = ns[1] < ns[0] ? 1 : 0;
    out->sums += alone_ns(m, ns[at]);
    out->sums_held += crowded_ns(m, data[at], ns[at]);
    out->whole_late += late_ns(m, data[at], ns[at]);
}

static void bytes_price(const cost_model *m, const plan_codec *codec, const cost_group *const *data,
                        const cost_group *inside, const kind_bytes *b, layer_time *out)
{
    if (b->together > 0.0) {
        const int64_t ns[] = {cost_collective_ns(m, data[0], COLLECTIVE_ALL_REDUCE, b->together),
                              cost_collective_ns(m, data[1], COLLECTIVE_ALL_REDUCE, b->together)};
        together_add(m, data, ns, out);
    }
    for (int sort = 0; sort < SORT_COUNT; sort++) {
        if (b->packed[sort] == 0) continue;
        const int64_t ns[] = {estimate_sum_ns(codec, m, data[0], b->packed[sort], 0),
                              estimate_sum_ns(codec, m, data[1], b->packed[sort], 0)};
        together_add(m, data, ns, out);
    }
    if (b->visit > 0.0) {
        const int64_t ns = cost_collective_ns(m, inside, COLLECTIVE_REDUCE_SCATTER, b->visit);
        out->visit_sums += ns;
        out->visit_held += estimate_held_ns(m, inside, ns);
    }
    if (b->ahead > 0.0) {
        out->forward_gathers += cost_collective_ns(m, inside, COLLECTIVE_ALL_GATHER, b->ahead);
    }
    if (b->again > 0.0) {
        out->input_gathers += cost_collective_ns(m, inside, COLLECTIVE_ALL_GATHER, b->again);
    }
}

static int64_t collectives_of(const layer_time *t, int64_t microbatches)
{
    return t->sums + t->gathers + t->scatters +
           microbatches * (t->visit_sums + t->forward_gathers + t->input_gathers);
}

// One kind of weights of a layout: those of experts (`is_shared_out`) or the others.
typedef struct weight_kind {
    const estimate *e;
    const estimate_layout *l;
    const cost_model *m;
    const estimate_links *links;
    const cost_group *inside; // ranks that a weight of this kind is cut over
    const plan_codec *codec;  // NULL: gradients are sent uncompressed
    plan_mesh mesh;
    bool is_shared_out, bidirectional;
} weight_kind;

static void gather_add(const weight_kind *k, const program_weight *w, const weight_bytes *b,
                       double weight, kind_bytes *bytes, layer_time *out)
{
    if (b->gathered) {
        if ((w->read & 1u << PHASE_FORWARD) != 0) bytes->ahead += weight;
        if ((w->read & 1u << PHASE_INPUT) != 0) bytes->again += weight;
    } else if (b->cut) {
        const int64_t ns = cost_collective_ns(k->m, k->inside, COLLECTIVE_ALL_GATHER, weight);
        out->gathers += ns;
        out->gathers_held += estimate_held_ns(k->m, k->inside, ns);
    }
}

// Time of the sum of this rank's rows over the ranks that keep the same rows.
static int64_t across_ns(const weight_kind *k, plan_sort sort, const plan_rows *rows, double row,
                         double bytes)
{
    const cost_group *across = &k->links->across;
    if (k->codec == NULL || sort == SORT_PLAIN) {
        return cost_collective_ns(k->m, across, COLLECTIVE_ALL_REDUCE, bytes);
    }
    return estimate_sum_ns(k->codec, k->m, across, rows->count * (int64_t)row, 0);
}

// Time of the scatter to the ranks that keep the rows: with the ranks that make all pieces equal,
// or compressed without them.
static int64_t scatter_ns(const weight_kind *k, plan_sort sort, const op_weight *w,
                          const plan_rows *rows, double bytes)
{
    if (k->codec == NULL || sort == SORT_PLAIN) {
        return cost_collective_ns(k->m, k->inside, COLLECTIVE_REDUCE_SCATTER, bytes);
    }
    return estimate_sum_ns(k->codec, k->m, k->inside, w->rows * w->columns,
                           rows->piece * w->columns);
}

static void gradient_add(const weight_kind *k, const program_weight *w, const weight_bytes *b,
                         const plan_rows *rows, kind_bytes *bytes, layer_time *out)
{
    const op_weight *model = &k->e->m->weights[w->row];
    const plan_sort sort = plan_sort_of(model);
    const double row = (double)model->columns, width = (double)dtype_bytes(w->grad);
    const double padded = (double)rows->padded * row * width;
    const double own = (double)rows->count * row * width;
    if (b->cut && !k->is_shared_out && own > 0.0 && (b->grad_unsharded || !k->bidirectional)) {
        const int64_t ns = across_ns(k, sort, rows, row, own);
        out->across += alone_ns(k->m, ns);
        out->sums_held += crowded_ns(k->m, &k->links->across, ns);
    }
    if (b->grad_unsharded) {
        bytes->visit += padded;
    } else if (k->bidirectional && k->is_shared_out) {
        return; // pairs with experts are left out
    } else if (b->cut && !k->bidirectional) {
        const int64_t ns = scatter_ns(k, sort, model, rows, padded);
        out->scatters += alone_ns(k->m, ns);
        out->sums_held += crowded_ns(k->m, k->inside, ns);
        out->rows_late += late_ns(k->m, k->inside, ns);
    } else if (k->codec != NULL && sort != SORT_PLAIN) {
        bytes->packed[sort] += model->rows * model->columns;
    } else {
        bytes->together += (double)model->rows * row * width;
    }
}

static layer_time time_of_kind(const weight_kind *k, const program_estimate *p)
{
    layer_time out = {0};
    kind_bytes bytes = {0};
    const estimate *e = k->e;
    for (int32_t i = 0; i < p->weight_count; i++) {
        const program_weight *w = &p->weights[i];
        const op_weight *model = &e->m->weights[w->row];
        if (plan_is_shared_out(&k->mesh, model) != k->is_shared_out) continue;
        const weight_bytes b = estimate_weight_bytes(e, k->l, w);
        const bool whole = estimate_updates_whole(&e->r.states, model);
        const plan_rows rows = plan_rows_of(&k->mesh, k->l->zero, model, whole);
        const double row = (double)model->columns;
        if (w->other_holder >= 0 || (!w->has_grad && !b.gathered)) continue;
        if (w->has_grad) out.update += update_ns(e, k->m, w, &b, &rows);
        gather_add(k, w, &b, (double)rows.padded * row * (double)dtype_bytes(w->type), &bytes,
                   &out);
        if (w->has_grad) gradient_add(k, w, &b, &rows, &bytes, &out);
    }
    const cost_group *one = k->is_shared_out ? &k->links->expert_data : &k->links->data;
    const cost_group *const pairs[] = {&k->links->pairs[0], &k->links->pairs[1]};
    const cost_group *const same[] = {one, one};
    bytes_price(k->m, k->codec, k->bidirectional ? pairs : same, k->inside, &bytes, &out);
    return out;
}

// Times of both kinds of weights, for any number of micro-batches.
static void kinds_time(const estimate *e, const estimate_layout *l, const cost_model *m,
                       const estimate_links *links, kept_times *out)
{
    weight_kind kind = {.e = e,
                        .l = l,
                        .m = m,
                        .links = links,
                        .inside = &links->inside,
                        .codec = estimate_codec_of(e, l),
                        .mesh = estimate_mesh(e, l),
                        .bidirectional = out->bidirectional};
    for (int32_t i = 0; i < e->m->program_count; i++) {
        out->of[0][i] = time_of_kind(&kind, &e->programs[i]);
    }
    if (!plan_experts_apart(&kind.mesh)) return;
    kind.is_shared_out = true;
    kind.inside = &links->expert_data;
    for (int32_t i = 0; i < e->m->program_count; i++) {
        out->of[1][i] = time_of_kind(&kind, &e->programs[i]);
    }
}

static const kept_times *kinds_of(const estimate *e, const estimate_layout *l, const cost_model *m,
                                  const estimate_links *links, estimate_buffers *buffers)
{
    const bool bidirectional = l->schedule != NULL && l->schedule->shape == SHAPE_TWO;
    kept_times *x = &buffers->kept[(l->zero * 2 + (bidirectional ? 1 : 0)) % KEPT_TIMES];
    const bool is_same = x->model == e->m && x->dp == l->dp && x->pp == l->pp &&
                         x->zero == l->zero && x->zero_group == l->zero_group &&
                         x->bidirectional == bidirectional;
    if (is_same) return x;
    x->model = e->m; // there is one model for each tp, cp and ep
    x->dp = l->dp;
    x->pp = l->pp;
    x->zero = l->zero;
    x->zero_group = l->zero_group;
    x->bidirectional = bidirectional;
    kinds_time(e, l, m, links, x);
    return x;
}

// Gradients and weights of experts have streams of their own, and two streams work at once: the
// times are those of one kind, with the updates of both.
static void times_of_layers(const estimate *e, const estimate_layout *l, const cost_model *m,
                            const estimate_links *links, estimate_buffers *buffers)
{
    int64_t collectives[KINDS_OF_WEIGHTS] = {0};
    const plan_mesh mesh = estimate_mesh(e, l);
    const kept_times *x = kinds_of(e, l, m, links, buffers);
    layer_time *out = buffers->layers;
    memcpy(out, x->of[0], (size_t)e->m->program_count * sizeof(*out));
    if (!plan_experts_apart(&mesh)) return;
    for (int32_t i = 0; i < e->m->layer_count; i++) {
        for (int k = 0; k < KINDS_OF_WEIGHTS; k++) {
            collectives[k] += collectives_of(&x->of[k][e->m->layers[i].program], l->microbatches);
        }
    }
    for (int32_t i = 0; i < e->m->program_count; i++) {
        if (collectives[1] > collectives[0]) out[i] = x->of[1][i];
        out[i].update = x->of[0][i].update + x->of[1][i].update;
    }
}

// ---- stages ------------------------------------------------------------------------------------

static stage_time time_of_stage(const estimate *e, const estimate_prices *x,
                                const estimate_layout *l, const layer_time *layers, int32_t stage,
                                int64_t microbatches)
{
    stage_time out = {0};
    const int32_t begin = l->first_layer[stage], end = l->first_layer[stage + 1];
    for (int32_t i = begin; i < end;) { // layers of one kind are adjacent
        const int32_t p = e->m->layers[i].program;
        int64_t n = 0;
        while (i < end && e->m->layers[i].program == p) {
            i++;
            n++;
        }
        const layer_time *t = &layers[p];
        const program_price *price = &x->programs[p];
        const bool splits = l->schedule != NULL && l->schedule->splits_backward;
        out.forward += n * price->forward;
        out.input += n * price->input;
        out.weight += n * price->weight;
        // A layer's weights are gathered while the one before it works, not earlier
        // (collect_zero.c): the longer of the two counts.
        if (end - begin >= 3) {
            const int64_t overlapped = price->input + (splits ? 0 : price->weight);
            out.forward += (n - 1) * max_i64(t->forward_gathers - price->forward, 0);
            out.input += (n - 1) * max_i64(t->input_gathers - overlapped, 0);
        }
        out.update += n * t->update;
        out.sums += n * t->sums;
        out.collectives += n * (t->gathers + t->scatters) + n * microbatches * t->visit_sums;
        // Weights that are still there are not gathered again; with few layers per stage that may
        // be all.
        if (end - begin > 3) {
            out.collectives += (n - 1) * microbatches * (t->forward_gathers + t->input_gathers);
        }
    }
    return out;
}

typedef struct pipe_time {
    const estimate_layout *l;
    stage_time *stages; // [virtual stage]
    int64_t link_ns;
    int32_t depth;
    int64_t share[SCHEDULE_MAX_CHUNKS]; // micro-batches that pass through a chunk
} pipe_time;

// Adds the stages below each stage.
static void ways_set(pipe_time *p)
{
    const schedule_shape shape = p->l->schedule != NULL ? p->l->schedule->shape : SHAPE_LOOP;
    const bool splits = p->l->schedule != NULL && p->l->schedule->splits_backward;
    const int64_t link = shape == SHAPE_V ? 0 : p->link_ns; // in a V, two stages may be on one rank
    for (int32_t s = 1; s < p->depth; s++) {
        const stage_time *below = &p->stages[s - 1];
        p->stages[s].come = below->come + below->forward + link;
        p->stages[s].go = below->go + below->input + (splits ? 0 : below->weight) + link;
    }
}

// Micro-batches that pass through a chunk.
static int64_t share_of(const estimate_layout *l, int32_t chunk)
{
    int32_t first = 0, count = l->microbatches;
    const schedule_request r = {
        .stages = l->pp, .microbatches = l->microbatches, .chunks = l->chunks};
    if (l->schedule != NULL) plan_schedule_share(l->schedule, &r, chunk, &first, &count);
    return count;
}

// One rank's least time between two norms.
static void rank_time(const pipe_time *p, int32_t pp, estimate_time *out)
{
    const estimate_layout *l = p->l;
    int64_t work = 0, ordered = 0, update = 0, collectives = 0, sums = 0;
    int64_t before = INT64_MAX, after = INT64_MAX;
    const bool splits = l->schedule != NULL && l->schedule->splits_backward;
    for (int32_t c = 0; c < l->chunks; c++) {
        const int32_t s = estimate_stage_of(l, pp, c);
        const stage_time *t = &p->stages[s];
        const int64_t n = p->share[c];
        before = min_i64(before, t->come);
        after = min_i64(after, t->go);
        work += n * (t->forward + t->input + t->weight);
        ordered += n * (t->forward + t->input);
        update += t->update;
        collectives += t->collectives;
        sums += t->sums;
    }
    const int64_t begins = before == 0 ? update : max_i64(update, p->stages[0].update + before);
    // Its last gradient of an input or whole backward, then those of the stages below.
    const int64_t least = begins + max_i64(work, (splits ? ordered : work) + after);
    collectives = max_i64(collectives, sums);
    out->work_ns = max_i64(out->work_ns, work + update);
    const int64_t step = max_i64(least, collectives);
    const estimate_reason reason = collectives > least ? REASON_COLLECTIVES : REASON_WORK;
    if (step <= out->step_ns) return;
    out->step_ns = step;
    out->reason = reason;
    out->pp = pp;
}

int32_t estimate_stages(const estimate *e, estimate_prices *prices, const cost_model *m,
                        const estimate_links *links, const estimate_layout *l)
{
    const schedule_request r = {
        .stages = l->pp, .microbatches = l->microbatches, .chunks = l->chunks};
    const int32_t depth = l->schedule != NULL ? plan_schedule_depth(l->schedule, &r) : 1;
    const bool bidirectional = l->schedule != NULL && l->schedule->shape == SHAPE_TWO;
    estimate_buffers *buffers = prices->buffers;
    ASSERT(e->m->program_count <= ESTIMATE_PROGRAMS && depth <= e->m->layer_count);
    times_of_layers(e, l, m, links, buffers);
    for (int32_t s = 0; s < depth; s++) {
        buffers->stages[s] = time_of_stage(e, prices, l, buffers->layers, s,
                                           bidirectional ? l->microbatches / 2 : l->microbatches);
    }
    return depth;
}

estimate_link estimate_link_of(const estimate *e, const cost_model *m, const estimate_links *links,
                               const estimate_layout *l, int32_t depth)
{
    cost_group link = links->pp;
    if (depth == 1 || link.ranks == 1) return (estimate_link){0, 0};
    const program_estimate *top = &e->programs[e->m->layers[l->first_layer[1] - 1].program];
    const double bytes = (double)top->out_bytes;
    link.same_rows = cost_same_rows(e->m, links->tp.ranks);
    const int64_t ns = cost_collective_ns(m, &link, COLLECTIVE_SEND, bytes);
    return (estimate_link){ns, estimate_held_ns(m, &link, ns - cost_pieces_ns(m, &link, bytes))};
}

void estimate_time_of(const estimate *e, estimate_prices *prices, const cost_model *m,
                      const estimate_links *links, const estimate_layout *l, estimate_time *out)
{
    pipe_time p = {.l = l, .stages = prices->buffers->stages};
    p.depth = estimate_stages(e, prices, m, links, l);
    p.link_ns = estimate_link_of(e, m, links, l, p.depth).ns;
    ways_set(&p);
    for (int32_t c = 0; c < l->chunks; c++) p.share[c] = share_of(l, c);
    *out = (estimate_time){.step_ns = 0};
    for (int32_t pp = 0; pp < l->pp; pp++) rank_time(&p, pp, out);
    const int64_t host = cost_step_ns(m->profile);
    out->step_ns += host;
    out->work_ns += host;
}
