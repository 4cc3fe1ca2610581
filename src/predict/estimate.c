// Estimates the memory of a layout: run tensors, weight by weight; and the live bytes, by one pass
// over the list of a rank. estimate.h describes the whole; estimate_program.c measures one layer.
//
// A chunk's forward and each half of its backward change the live bytes by the same amount every
// time, and their peak is the same distance above the bytes before (`chunk_move`). An action of the
// list therefore costs two additions, however many layers the chunk has.
#include "predict/estimate_internal.h"

#include "op/step.h"

#include <string.h>

// ---- measuring ----------------------------------------------------------------------------------

// Phases that read tensor t: bits 1 << phase.
static uint32_t phases_of(const op_program *p, tensor_id t)
{
    const bool has_loss = p->output_count == 0;
    uint32_t read = 0;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        const estimate_phase phase = list == OP_FORWARD                        ? PHASE_FORWARD
                                     : list == OP_BACKWARD_WEIGHT && !has_loss ? PHASE_WEIGHT
                                                                               : PHASE_INPUT;
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            for (int k = 0; k < OP_MAX_IN; k++) {
                if (op_owner(p, p->lists[list].nodes[i].in[k]).id == t) read |= 1u << phase;
            }
        }
    }
    if ((read & (1u << PHASE_INPUT | 1u << PHASE_WEIGHT)) != 0) read |= 1u << PHASE_BACKWARD;
    return read;
}

// The last program before this one whose first layer has the same weight; -1: there is none.
static int32_t other_holder_of(const estimate *e, int32_t program, int32_t row)
{
    for (int32_t q = program - 1; q >= 0; q--) {
        const program_estimate *p = &e->programs[q];
        for (int32_t k = 0; k < p->weight_count; k++) {
            if (p->weights[k].row == row) return q;
        }
    }
    return -1;
}

static status weights_list(arena *a, estimate *e, int32_t program)
{
    program_estimate *p = &e->programs[program];
    const op_program *q = p->program;
    const op_layer *layer = &e->m->layers[p->first_layer];
    TRY(arena_new(a, q->tensor_count + 1, &p->weights));
    for (tensor_id t = 0; t < q->tensor_count; t++) {
        if (q->tensors[t].role != ROLE_WEIGHT || q->tensors[t].view_of != TENSOR_NONE) continue;
        program_weight *w = &p->weights[p->weight_count];
        *w = (program_weight){.row = layer->weight_of[t], .type = q->tensors[t].type};
        w->other_holder = other_holder_of(e, program, w->row);
        w->later = -1;
        for (int32_t k = 0; w->other_holder >= 0 && k < e->programs[w->other_holder].weight_count;
             k++) {
            program_weight *other = &e->programs[w->other_holder].weights[k];
            if (other->row == w->row) other->later = program;
        }
        w->read = phases_of(q, t);
        for (tensor_id g = 0; g < q->tensor_count; g++) {
            const bool is_grad = q->tensors[g].role == ROLE_WEIGHT_GRAD &&
                                 q->tensors[g].view_of == TENSOR_NONE && q->tensors[g].of == t;
            if (!is_grad) continue;
            w->grad = q->tensors[g].type;
            w->has_grad = true;
        }
        p->weight_count++;
    }
    return ST_OK;
}

static void bound_set(estimate *e)
{
    const estimate_request *r = &e->r;
    e->bound = (extent_binding){
        .value = {[EXTENT_ONE] = 1,
                  [EXTENT_TOKENS] = r->micro_batch * e->local_seq,
                  [EXTENT_SEQS] = r->micro_batch,
                  [EXTENT_TOKENS_CUT] = r->micro_batch * (e->local_seq / max_i64(r->tp, 1))}};
}

status estimate_make(arena *a, const estimate_request *r, estimate **out)
{
    estimate *e = NULL;
    const op_model *m = r->model;
    TRY(arena_new(a, 1, &e));
    *e = (estimate){.r = *r, .m = m, .local_seq = r->seq / max_i64(r->cp, 1)};
    bound_set(e);
    e->overlap = (overlap_rule){.sequences = r->micro_batch,
                                .seq = e->local_seq,
                                .cut_pieces = 1,
                                .gathers = !r->rows_inline};
    if (!r->rows_inline) {
        e->overlap.cut_pieces =
            plan_overlap_cut_pieces(m, max_i64(r->tp, 1), r->micro_batch, e->local_seq);
    }
    TRY(arena_new(a, m->program_count, &e->programs));
    for (int32_t i = m->layer_count - 1; i >= 0; i--) {
        e->programs[m->layers[i].program].first_layer = i;
    }
    ASSERT(r->reuse_from == NULL || r->reuse_from->m == m);
    for (int32_t p = 0; p < m->program_count; p++) {
        program_estimate *x = &e->programs[p];
        x->program = m->programs[p];
        if (r->reuse_from == NULL) {
            TRY(weights_list(a, e, p));
        } else {
            x->weights = r->reuse_from->programs[p].weights;
            x->weight_count = r->reuse_from->programs[p].weight_count;
        }
        estimate_boundary_bytes(e, x);
    }
    *out = e;
    return ST_OK;
}

status estimate_measure(arena *a, estimate *e)
{
    arena *work = NULL;
    status st = ST_OK;
    if (e->m->program_count == 0 || e->programs[0].visits != NULL) return ST_OK;
    TRY(arena_create("estimate", 0, &work));
    for (int32_t p = e->m->program_count;
         p-- > 0;) { // the first program last: its results mark all as measured
        program_visits *visits = NULL;
        TRY_TO(done, arena_new(a, VARIANT_COUNT, &visits));
        TRY_TO(done, estimate_visits(work, e, &e->programs[p], visits));
        e->programs[p].visits = visits;
        arena_reset(work);
    }
done:
    arena_destroy(work);
    return st;
}

// ---- lists --------------------------------------------------------------------------------------

static schedule_request request_of(const estimate_layout *l)
{
    return (schedule_request){
        .stages = l->pp, .microbatches = l->microbatches, .chunks = l->chunks};
}

int32_t estimate_stage_of(const estimate_layout *l, int32_t pp, int32_t chunk)
{
    const schedule_request r = request_of(l);
    return l->schedule == NULL ? 0 : plan_schedule_stage(l->schedule, &r, pp, chunk);
}

static int32_t depth_of(const estimate_layout *l)
{
    const schedule_request r = request_of(l);
    return l->schedule == NULL ? 1 : plan_schedule_depth(l->schedule, &r);
}

// The rank of the stage after (step 1) or before (-1) the chunk; -1: there is none.
static int32_t neighbour_of(const estimate_layout *l, int32_t pp, int32_t chunk, int32_t step,
                            int32_t *its)
{
    int32_t rank = -1;
    const schedule_request r = request_of(l);
    const int32_t stage = estimate_stage_of(l, pp, chunk) + step;
    if (l->schedule == NULL || stage < 0 || stage >= depth_of(l)) return -1;
    plan_schedule_holder(l->schedule, &r, stage, plan_schedule_direction(l->schedule, chunk), &rank,
                         its);
    return rank;
}

status estimate_times_of(const estimate_layout *l, arena *a, boundary_timelines *out)
{
    schedule_list *lists = NULL;
    const schedule_request r = request_of(l);
    *out = (boundary_timelines){.schedule = l->schedule, .shape = r};
    if (l->schedule == NULL) return ST_OK;
    TRY(arena_new(a, l->pp, &lists));
    for (int32_t pp = 0; pp < l->pp; pp++) {
        TRY(plan_schedule_emit(l->schedule, &r, pp, a, &lists[pp]));
    }
    return plan_boundary_simulate(a, l->schedule, &r, lists, false, out);
}

status estimate_work_of(const estimate_layout *l, const boundary_timelines *times, int32_t pp,
                        arena *a, estimate_work *out)
{
    *out = (estimate_work){.list = {0}};
    if (l->schedule == NULL) return ST_OK;
    arena *work = NULL;
    boundary_timelines own;
    plan_boundary_buffers boundary = {.count = 0};
    const schedule_request r = request_of(l);
    TRY(plan_schedule_emit(l->schedule, &r, pp, a, &out->list));
    TRY(arena_create("boundary buffers", 0, &work));
    status st = times == NULL ? estimate_times_of(l, work, &own) : ST_OK;
    if (st == ST_OK)
        st = plan_boundary_assign(work, times == NULL ? &own : times, pp, NULL, &boundary);
    out->boundary_buffers = boundary.count;
    arena_destroy(work);
    return st;
}

// ---- weights ------------------------------------------------------------------------------------

static int64_t rows_bytes(const op_weight *w, int64_t count, dtype type)
{
    return align_up(count * w->columns * dtype_bytes(type), ALIGN_TENSOR);
}

weight_bytes estimate_weight_bytes(const estimate *e, const estimate_layout *l,
                                   const program_weight *w)
{
    const op_weight *model = &e->m->weights[w->row];
    const plan_mesh mesh = estimate_mesh(e, l);
    const bool whole = estimate_updates_whole(&e->r.states, model);
    const plan_rows rows = plan_rows_of(&mesh, l->zero, model, whole);
    weight_bytes out = {.whole = rows_bytes(model, rows.padded, w->type),
                        .grad_whole = rows_bytes(model, rows.padded, w->grad)};
    out.cut = rows.cut;
    out.gathered = rows.cut && l->zero >= 3;
    out.grad_unsharded = rows.cut && l->zero >= 2 && !e->r.sums_once;
    out.kept = out.gathered ? rows_bytes(model, rows.kept, w->type) : out.whole;
    out.grad_kept = out.grad_unsharded ? rows_bytes(model, rows.kept, w->grad) : out.grad_whole;
    if (!w->has_grad) return out; // frozen: it has no optimizer state
    out.moments = estimate_optimizer(&e->r.states, model)->moments *
                  rows_bytes(model, rows.count, e->r.states.moments);
    if (e->r.states.has_master && w->type != DTYPE_F32) {
        out.master = rows_bytes(model, rows.count, DTYPE_F32);
    }
    return out;
}

// Bytes of one layer's weights on the rank.
typedef struct layer_bytes {
    kinds run; // weights, master, moments
    // Gradients from their first write to the update: those that the first micro-batch creates
    // here; and whether one of them exists already because another layer has the same weight.
    int64_t held;
    bool is_ahead;
    bool cuts_grads;                       // whole gradients exist for a visit only
    int64_t grads_unsharded;               // whole (unsharded) gradients of one visit
    int64_t weights_gathered[PHASE_COUNT]; // whole (gathered) weights that a visit reads
} layer_bytes;

enum { PROGRAMS_MAX = 64 }; // per model: layers differ only in their windows

// Layers of one program on a rank, chunk by chunk, from first to last.
typedef struct rank_layers {
    const estimate *e;
    const estimate_layout *l;
    layer_bytes *of; // [program]
    bool has_program[PROGRAMS_MAX];
    int32_t pp;
} rank_layers;

static layer_bytes bytes_of_layer(const rank_layers *k, int32_t program)
{
    layer_bytes out = {.held = 0};
    const program_estimate *p = &k->e->programs[program];
    for (int32_t i = 0; i < p->weight_count; i++) {
        const program_weight *w = &p->weights[i];
        const weight_bytes b = estimate_weight_bytes(k->e, k->l, w);
        for (int phase = 0; phase < PHASE_COUNT && b.gathered; phase++) {
            if ((w->read & 1u << phase) != 0) out.weights_gathered[phase] += b.whole;
        }
        if (w->has_grad && b.grad_unsharded) out.grads_unsharded += b.grad_whole;
        out.cuts_grads = out.grads_unsharded > 0;
        const bool is_there = w->later >= 0 && k->has_program[w->later];
        if (w->has_grad && !is_there) out.held += b.grad_kept;
        out.is_ahead = out.is_ahead || is_there;
        if (w->other_holder >= 0 && k->has_program[w->other_holder]) continue; // counted there
        out.run.at[PLAN_BYTES_WEIGHTS] += b.kept;
        out.run.at[PLAN_BYTES_MASTER] += b.master;
        out.run.at[PLAN_BYTES_MOMENTS] += b.moments;
    }
    return out;
}

// ---- run tensors --------------------------------------------------------------------------------

// Batch and constants are shared by name.
static int64_t named_bytes(const rank_layers *k)
{
    const estimate *e = k->e;
    const op_tensor *seen[32];
    int32_t n = 0;
    int64_t bytes = 0;
    extent_binding all = e->bound;
    for (int s = 1; s < EXTENT_SYMBOL_COUNT; s++) all.value[s] *= k->l->microbatches;
    for (int32_t p = 0; p < e->m->program_count; p++) {
        const op_program *q = e->programs[p].program;
        for (int64_t t = 0; t < q->tensor_count && k->has_program[p]; t++) {
            const op_tensor *x = &q->tensors[t];
            if (x->view_of != TENSOR_NONE) continue;
            if (x->role != ROLE_BATCH && x->role != ROLE_CONSTANT) continue;
            int32_t i = 0;
            while (i < n && (seen[i]->role != x->role || strcmp(seen[i]->name, x->name) != 0)) i++;
            if (i < n || n == COUNT_OF(seen)) continue;
            seen[n++] = x;
            bytes += align_up(op_tensor_bytes(x, x->role == ROLE_BATCH ? &all : &e->bound),
                              ALIGN_TENSOR);
        }
    }
    return bytes;
}

static kinds run_tensors(const rank_layers *k)
{
    kinds run = {{0}};
    for (int32_t c = 0; c < k->l->chunks; c++) {
        const int32_t s = estimate_stage_of(k->l, k->pp, c);
        for (int32_t i = k->l->first_layer[s]; i < k->l->first_layer[s + 1]; i++) {
            kinds_add(&run, &k->of[k->e->m->layers[i].program].run, 1);
        }
    }
    run.at[PLAN_BYTES_BUFFERS] += named_bytes(k);
    run.at[PLAN_BYTES_BUFFERS] +=
        align_up(step_bytes(k->e->m->load_layers, k->e->m->load_experts), ALIGN_TENSOR);
    estimate_codec_run(k->e, k->l, k->pp, &run);
    if (k->e->r.scratch_bytes > 0) {
        run.at[PLAN_BYTES_BUFFERS] += align_up(k->e->r.scratch_bytes, 4096);
    }
    return run;
}

// ---- one chunk ----------------------------------------------------------------------------------

// Effect of a phase of a chunk on the live bytes.
typedef struct chunk_move {
    kinds most;        // above the bytes before
    kinds first, last; // of its first and last visit, which the neighbouring moves extend
    kinds change;      // after the move
    int64_t behind;    // whole gradients still being summed at its end
    int64_t ahead;     // whole weights that its first visit reads
    int32_t first_layer, last_layer;
} chunk_move;

// Gradients that a chunk has created before: those of the layer with the loss come with the first
// gradient of an input, all others later, in the same micro-batch or, with separate halves, in
// another.
typedef enum chunk_made { MADE_NOTHING, MADE_LOSS, MADE_ALL, MADE_COUNT } chunk_made;

typedef struct chunk_moves {
    chunk_move phase[MADE_COUNT][PHASE_COUNT];
    bool link_in, link_out;     // to another rank
    bool joined_in, joined_out; // to another chunk of this rank
    int64_t boundary;           // bytes that cross a boundary to another rank: equal for all
} chunk_moves;

typedef struct chunk_walk {
    const rank_layers *k;
    const chunk_moves *moves;
    int32_t begin, end; // rows of layers
    chunk_made made;
} chunk_walk;

static void raise_to(kinds *most, const kinds *now)
{
    if (kinds_sum(now) > kinds_sum(most)) *most = *now;
}

// True if its gradients are the first.
static bool is_first(const chunk_walk *w, const program_estimate *p)
{
    return w->made == MADE_NOTHING || (w->made == MADE_LOSS && p->program->output_count > 0);
}

static uint32_t variant_at(const chunk_walk *w, int32_t i)
{
    // Transient whole gradients are counted separately; so are those that exist already.
    const int32_t program = w->k->e->m->layers[i].program;
    const layer_bytes *b = &w->k->of[program];
    const bool first = is_first(w, &w->k->e->programs[program]);
    uint32_t v = first && !b->cuts_grads && !b->is_ahead ? VARIANT_FIRST : 0;
    if (i == w->begin && w->moves->link_in) v |= VARIANT_IN;
    if (i == w->end - 1 && w->moves->link_out) v |= VARIANT_OUT;
    return v;
}

static bool makes_gradients(const program_estimate *p, estimate_phase phase)
{
    if (phase == PHASE_BACKWARD) return true;
    return phase == (p->program->output_count == 0 ? PHASE_INPUT : PHASE_WEIGHT);
}

// The peak of one visit; of a whole backward, the peak of either half.
static kinds visit_most(const program_estimate *p, const program_visits *v, const layer_bytes *b,
                        estimate_phase phase)
{
    kinds first = v->most[phase == PHASE_BACKWARD ? PHASE_INPUT : phase];
    const estimate_phase half = phase == PHASE_BACKWARD ? PHASE_INPUT : phase;
    first.at[PLAN_BYTES_WEIGHTS] += b->weights_gathered[half];
    if (makes_gradients(p, half)) first.at[PLAN_BYTES_GRADIENTS] += b->grads_unsharded;
    if (phase != PHASE_BACKWARD || p->program->output_count == 0) return first;
    kinds second = v->most[PHASE_BACKWARD];
    second.at[PLAN_BYTES_WEIGHTS] += b->weights_gathered[PHASE_WEIGHT];
    second.at[PLAN_BYTES_GRADIENTS] += b->grads_unsharded;
    raise_to(&first, &second);
    return first;
}

// Adds the change that a visit leaves behind.
static void visit_change(const chunk_walk *w, const program_estimate *p, const program_visits *v,
                         const layer_bytes *b, estimate_phase phase, kinds *base)
{
    const bool has_loss = p->program->output_count == 0;
    if (phase == PHASE_FORWARD) kinds_add(base, &v->saved, 1);
    if (phase == PHASE_INPUT && !has_loss) kinds_add(base, &v->left, 1);
    if (makes_gradients(p, phase) && is_first(w, p)) base->at[PLAN_BYTES_GRADIENTS] += b->held;
}

static chunk_move move_of(const chunk_walk *w, estimate_phase phase)
{
    const rank_layers *k = w->k;
    chunk_move out = {.behind = 0};
    kinds base = {{0}};
    const int32_t count = w->end - w->begin;
    for (int32_t n = 0; n < count; n++) {
        const int32_t i = phase == PHASE_FORWARD ? w->begin + n : w->end - 1 - n;
        const int32_t next = phase == PHASE_FORWARD ? i + 1 : i - 1;
        const int32_t program = k->e->m->layers[i].program;
        const program_estimate *p = &k->e->programs[program];
        const program_visits *v = &p->visits[variant_at(w, i)];
        const layer_bytes *b = &k->of[program];
        if (phase == PHASE_INPUT || phase == PHASE_BACKWARD) kinds_add(&base, &v->saved, -1);
        if (phase == PHASE_WEIGHT && p->program->output_count > 0) kinds_add(&base, &v->left, -1);
        kinds now = visit_most(p, v, b, phase);
        kinds_add(&now, &base, 1);
        if (is_first(w, p) && b->is_ahead && makes_gradients(p, phase)) {
            now.at[PLAN_BYTES_GRADIENTS] += b->held;
        }
        if (n > 0) now.at[PLAN_BYTES_GRADIENTS] += out.behind;
        if (n + 1 < count) {
            now.at[PLAN_BYTES_WEIGHTS] +=
                k->of[k->e->m->layers[next].program].weights_gathered[phase];
        }
        if (n == 0) {
            out.first = now;
            out.ahead = b->weights_gathered[phase];
            out.first_layer = i;
        }
        if (n + 1 == count) out.last = now;
        raise_to(&out.most, &now);
        out.last_layer = i;
        out.behind = makes_gradients(p, phase) ? b->grads_unsharded : 0;
        visit_change(w, p, v, b, phase, &base);
    }
    out.change = base;
    return out;
}

static void bytes_shift(chunk_move *m, int64_t most, int64_t change)
{
    m->most.at[PLAN_BYTES_ACTIVATIONS] += most;
    m->first.at[PLAN_BYTES_ACTIVATIONS] += most;
    m->last.at[PLAN_BYTES_ACTIVATIONS] += most;
    m->change.at[PLAN_BYTES_ACTIVATIONS] += change;
}

// A tensor handed to another chunk of the same rank stays alive between the two.
static void chunk_joins(chunk_moves *c, const program_estimate *bottom, const program_estimate *top,
                        chunk_move moves[PHASE_COUNT])
{
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        if (phase == PHASE_WEIGHT) continue;
        const bool ahead = phase == PHASE_FORWARD;
        const bool takes = ahead ? c->joined_in : c->joined_out;
        const bool gives = ahead ? c->joined_out : c->joined_in;
        const int64_t taken = takes ? (ahead ? bottom->in_bytes : top->d_out_bytes) : 0;
        const int64_t given = gives ? (ahead ? top->out_bytes : bottom->d_in_bytes) : 0;
        bytes_shift(&moves[phase], -taken, given - taken);
    }
}

static void chunk_measure(const rank_layers *k, int32_t chunk, chunk_moves *out)
{
    const estimate_layout *l = k->l;
    const estimate *e = k->e;
    const int32_t stage = estimate_stage_of(l, k->pp, chunk);
    int32_t its = 0;
    *out = (chunk_moves){.boundary = 0};
    chunk_walk w = {
        .k = k, .moves = out, .begin = l->first_layer[stage], .end = l->first_layer[stage + 1]};
    const int32_t below = neighbour_of(l, k->pp, chunk, -1, &its);
    const int32_t above = neighbour_of(l, k->pp, chunk, 1, &its);
    out->joined_in = below == k->pp;
    out->joined_out = above == k->pp;
    out->link_in = below >= 0 && !out->joined_in;
    out->link_out = above >= 0 && !out->joined_out;
    const program_estimate *bottom = &e->programs[e->m->layers[w.begin].program];
    const program_estimate *top = &e->programs[e->m->layers[w.end - 1].program];
    if (out->link_in) out->boundary = bottom->in_bytes;
    if (out->link_out) out->boundary = top->out_bytes;
    for (int made = 0; made < MADE_COUNT; made++) {
        w.made = (chunk_made)made;
        for (int phase = 0; phase < PHASE_COUNT; phase++) {
            out->phase[made][phase] = move_of(&w, (estimate_phase)phase);
        }
        chunk_joins(out, bottom, top, out->phase[made]);
    }
}

// ---- one rank -----------------------------------------------------------------------------------

typedef struct rank_walk {
    kinds now, most;
    chunk_moves chunks[SCHEDULE_MAX_CHUNKS];
    chunk_made made[SCHEDULE_MAX_CHUNKS];
    const chunk_move *before; // the move whose end is still open
    kinds before_at;          // live bytes when it began
    int64_t behind;           // of the move before it
} rank_walk;

// Computes the peaks of the last move once the next move is known; next NULL: there is none.
static void move_end(rank_walk *w, const chunk_move *next)
{
    const chunk_move *m = w->before;
    if (m == NULL) return;
    const bool is_same = next == NULL || next->first_layer == m->last_layer;
    const int64_t ahead = is_same ? 0 : next->ahead;
    kinds full[3] = {m->most, m->first, m->last};
    full[1].at[PLAN_BYTES_GRADIENTS] += w->behind;
    full[2].at[PLAN_BYTES_WEIGHTS] += ahead;
    if (m->first_layer == m->last_layer) full[1].at[PLAN_BYTES_WEIGHTS] += ahead;
    for (int i = 0; i < 3; i++) {
        kinds_add(&full[i], &w->before_at, 1);
        raise_to(&w->most, &full[i]);
    }
    w->behind = m->behind;
}

static void step(rank_walk *w, int32_t chunk, estimate_phase phase)
{
    const chunk_move *m = &w->chunks[chunk].phase[w->made[chunk]][phase];
    move_end(w, m);
    w->before = m;
    w->before_at = w->now;
    kinds_add(&w->now, &m->change, 1);
    if (phase == PHASE_INPUT && w->made[chunk] == MADE_NOTHING) w->made[chunk] = MADE_LOSS;
    if (phase == PHASE_WEIGHT || phase == PHASE_BACKWARD) w->made[chunk] = MADE_ALL;
}

static estimate_phase phase_of(schedule_kind kind)
{
    if (kind == SCHEDULE_BACKWARD_INPUT) return PHASE_INPUT;
    return kind == SCHEDULE_BACKWARD_WEIGHT ? PHASE_WEIGHT : PHASE_BACKWARD;
}

static void list_walk(rank_walk *w, const estimate_layout *l, const schedule_list *list)
{
    for (int32_t m = 0; l->schedule == NULL && m < l->microbatches && m < 3; m++) {
        step(w, 0, PHASE_FORWARD);
        step(w, 0, PHASE_BACKWARD);
    }
    for (int64_t i = 0; l->schedule != NULL && i < list->count; i++) {
        const schedule_action *a = &list->actions[i];
        const bool both = a->kind == SCHEDULE_BOTH;
        if (a->kind == SCHEDULE_FORWARD || both) step(w, a->chunk, PHASE_FORWARD);
        if (both) step(w, a->chunk_b, PHASE_BACKWARD);
        if (!both && a->kind != SCHEDULE_FORWARD) step(w, a->chunk, phase_of(a->kind));
    }
    move_end(w, NULL);
}

static void layers_measure(rank_layers *k)
{
    const estimate *e = k->e;
    for (int32_t c = 0; c < k->l->chunks; c++) {
        const int32_t s = estimate_stage_of(k->l, k->pp, c);
        for (int32_t i = k->l->first_layer[s]; i < k->l->first_layer[s + 1]; i++) {
            k->has_program[e->m->layers[i].program] = true;
        }
    }
    for (int32_t p = 0; p < e->m->program_count; p++) {
        if (k->has_program[p]) k->of[p] = bytes_of_layer(k, p);
    }
}

// Measures the live bytes at the peak.
static void live_measure(const rank_layers *k, const estimate_work *work, kinds *out)
{
    rank_walk w;
    memset(&w, 0, sizeof(w));
    for (int32_t c = 0; c < k->l->chunks; c++) chunk_measure(k, c, &w.chunks[c]);
    list_walk(&w, k->l, &work->list);
    w.most.at[PLAN_BYTES_ACTIVATIONS] += work->boundary_buffers * w.chunks[0].boundary;
    *out = w.most;
}

// Bytes of whole weights and gradients that the limits allow at most.
static void limits_set(const rank_layers *k, int64_t most[2])
{
    int64_t largest[2] = {0};
    dtype type[2] = {DTYPE_F32, DTYPE_F32};
    for (int32_t p = 0; p < k->e->m->program_count; p++) {
        const program_estimate *x = &k->e->programs[p];
        for (int32_t n = 0; n < x->weight_count && k->has_program[p]; n++) {
            const program_weight *w = &x->weights[n];
            const weight_bytes b = estimate_weight_bytes(k->e, k->l, w);
            const int64_t whole[2] = {b.gathered ? b.whole : 0,
                                      b.grad_unsharded ? b.grad_whole : 0};
            for (int i = 0; i < 2; i++) {
                if (whole[i] <= largest[i]) continue;
                largest[i] = whole[i];
                type[i] = i == 0 ? w->type : w->grad;
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        most[i] = plan_unsharded_most(&k->e->r.limits, i, largest[i], type[i]);
    }
}

// Subtracts gathered weights and unsharded gradients that other software does not hold
// (plan/unsharded_limit.c).
static void transient_limit(rank_layers *k, const estimate_work *work, kinds *live)
{
    const plan_kind_of_bytes kind[2] = {PLAN_BYTES_WEIGHTS, PLAN_BYTES_GRADIENTS};
    layer_bytes with[PROGRAMS_MAX];
    int64_t without[PLAN_UNSHARDED_COUNT] = {kinds_sum(live)}, transient[2], most[2], spared[2];
    limits_set(k, most);
    memcpy(with, k->of, sizeof(with));
    for (uint32_t bits = 1; bits < PLAN_UNSHARDED_COUNT; bits++) {
        kinds rest;
        for (int32_t p = 0; p < k->e->m->program_count; p++) {
            k->of[p] = with[p];
            if ((bits & PLAN_UNSHARDED_GRADIENTS) != 0) k->of[p].grads_unsharded = 0;
            if ((bits & PLAN_UNSHARDED_WEIGHTS) == 0) continue;
            memset(k->of[p].weights_gathered, 0, sizeof(k->of[p].weights_gathered));
        }
        live_measure(k, work, &rest);
        without[bits] = kinds_sum(&rest);
        for (int i = 0; i < 2; i++) {
            if (bits == 1u << i) transient[i] = max_i64(live->at[kind[i]] - rest.at[kind[i]], 0);
        }
    }
    memcpy(k->of, with, sizeof(with));
    plan_unsharded_spare(without, transient, most, spared);
    for (int i = 0; i < 2; i++) live->at[kind[i]] -= spared[i];
}

static void memory_sum(const kinds *run, const kinds *live, int32_t pp, estimate_memory *out)
{
    *out = (estimate_memory){.run_bytes = kinds_sum(run), .live_bytes = kinds_sum(live), .pp = pp};
    for (int i = 0; i < PLAN_BYTES_COUNT; i++) out->kind[i] = run->at[i] + live->at[i];
}

void estimate_memory_run(const estimate *e, const estimate_layout *l, int32_t pp,
                         estimate_memory *out)
{
    layer_bytes of[PROGRAMS_MAX];
    rank_layers k = {.e = e, .l = l, .of = of, .pp = pp};
    const kinds live = {{0}};
    memset(of, 0, sizeof(of));
    layers_measure(&k);
    const kinds run = run_tensors(&k);
    memory_sum(&run, &live, pp, out);
}

void estimate_memory_of(const estimate *e, const estimate_layout *l, int32_t pp,
                        const estimate_work *work, estimate_memory *out)
{
    layer_bytes of[PROGRAMS_MAX];
    rank_layers k = {.e = e, .l = l, .of = of, .pp = pp};
    kinds live;
    ASSERT(e->m->program_count <= PROGRAMS_MAX && e->programs[0].visits != NULL);
    memset(of, 0, sizeof(of));
    layers_measure(&k);
    live_measure(&k, work, &live);
    const bool limited = e->r.limits.weights > 0 || e->r.limits.gradients > 0;
    if (limited && l->zero >= 2) transient_limit(&k, work, &live);
    const kinds run = run_tensors(&k);
    memory_sum(&run, &live, pp, out);
}

// ---- the published formulas --------------------------------------------------------------------

double estimate_korthikanti_layer(estimate_technique how, double seq, double micro_batch,
                                  double dim, double heads, double tp)
{
    const double sbh = seq * micro_batch * dim, scores = 5.0 * heads * seq / dim;
    switch (how) {
    case TECHNIQUE_NONE:
        return sbh * (34.0 + scores);
    case TECHNIQUE_TENSOR:
        return sbh * (10.0 + 24.0 / tp + scores / tp);
    case TECHNIQUE_TENSOR_SEQUENCE:
        return sbh / tp * (34.0 + scores);
    case TECHNIQUE_TENSOR_SELECTIVE:
        return sbh * (10.0 + 24.0 / tp);
    case TECHNIQUE_SEQUENCE_SELECTIVE:
        return 34.0 * sbh / tp;
    case TECHNIQUE_FULL:
        return 2.0 * sbh;
    case TECHNIQUE_COUNT:
    default:
        return 0.0;
    }
}

double estimate_korthikanti_first_stage(double layer, double layers, double pp, double vpp)
{
    return layer * layers * (vpp > 1.0 ? 1.0 + (pp - 1.0) / (pp * vpp) : 1.0);
}
