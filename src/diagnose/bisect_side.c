// One rank of bisect: its plans, its job, and the values recorded in a step.
//
// The executor copies values out during the step (exec_probe), right after the node that computed a
// tensor: the plan is the one that trains and shares bytes as usual, so mistakes of lifetimes and
// streams show as well as those of arithmetic. The copies take time and host memory.
#include "diagnose/bisect_internal.h"
#include "op/objective.h"
#include "op/zigzag.h"
#include "train/lr/lr.h"

#include <stdlib.h>
#include <string.h>

const char *const bisect_state_names[BISECT_STATES] = {"weight", "m", "v"};

status bisect_rank_plan(const bisect *b, bisect_rank *k)
{
    TRY(assemble_rank(k->a, &k->r, &b->spec, &k->options, &k->plans));
    if (b->order->tamper != NULL && b->ranks != NULL && b->ranks[k->rank] == k) {
        b->order->tamper(b->order->context, k->rank, &k->plans);
    }
    return ST_OK;
}

status bisect_rank_open(bisect_rank *k)
{
    const train_ranks ranks = {.all = k->all, .hosts = k->all != NULL ? comm_world(k->all) : NULL};
    TRY(train_job_create(k->h, k->a, &k->plans, &k->options, &ranks, NULL, &k->job));
    k->is_open = true;
    k->loss_scale = k->r.train.precision == RUN_FP16 ? k->r.precision.loss_scale.initial : 1.0;
    return train_job_weights(&k->job, k->a);
}

void bisect_rank_close(bisect_rank *k)
{
    if (k->is_open) train_job_destroy(&k->job);
    k->is_open = false;
    arena_destroy(k->seen_arena);
    k->seen_arena = NULL;
}

// ---- recorded values ----------------------------------------------------------------------------

static status probe_add(bisect_rank *k, exec_probe probe)
{
    TRY(arena_grow(k->seen_arena, (void **)&k->probes, &k->probe_capacity, k->probe_count + 1,
                   (int64_t)sizeof(*k->probes)));
    k->probes[k->probe_count++] = probe;
    return ST_OK;
}

// Copies a point's tensor when a node of micro-batch `mb` has computed all of it.
static status point_probe_add(bisect_rank *k, int32_t point, int32_t action, int32_t node,
                              const op_tensor *local, int32_t ref)
{
    const plan *p = k->p;
    const int64_t mb = p->actions[action].microbatch, batches = p->own_sequences / p->micro_batch;
    const plan_tensor *t = plan_tensor_at(p, ref);
    bisect_seen *s = &k->seen[point];
    ASSERT(mb >= 0 && mb < batches);
    if (s->data == NULL) {
        s->type = t->type;
        s->rows = t->dims[0];
        s->columns = t->ndim == 1 ? 1 : t->dims[1];
        s->by_positions = local->dims[0].symbol == EXTENT_TOKENS_CUT;
        TRY(arena_alloc(k->seen_arena, batches * s->rows * s->columns * dtype_bytes(s->type) + 1,
                        (void **)&s->data));
        TRY(arena_new(k->seen_arena, batches, &s->has));
    }
    s->has[mb] = true;
    const int64_t bytes = s->rows * s->columns * dtype_bytes(s->type);
    const exec_probe probe = {
        .action = action, .node = node, .ref = ref, .bytes = bytes, .to = s->data + mb * bytes};
    return probe_add(k, probe);
}

static bool writes(const op_program *p, const op_node *node, tensor_id owner)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] != TENSOR_NONE && op_owner(p, node->out[o]).id == owner) return true;
    }
    return false;
}

static status compute_watch(bisect_rank *k, const bisect_points *points, int32_t action)
{
    const plan_action *a = &k->p->actions[action];
    const plan_binding *b = &k->p->bindings[a->binding];
    const int64_t count = b->program->lists[a->list].count;
    const op_node *nodes = b->program->lists[a->list].nodes;
    for (int32_t i = 0; i < a->ops_count; i++) {
        const op_node *node = &nodes[a->ops_begin + i];
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (node->out[o] == TENSOR_NONE) continue;
            const tensor_id owner = op_owner(b->program, node->out[o]).id;
            const int32_t point = bisect_point_of(points, a->layer, owner);
            if (point < 0 || points->rows[point].list != (op_list)a->list) continue;
            bool again = false; // later nodes write more of its columns
            for (int64_t n = a->ops_begin + i + 1; n < count; n++) {
                again = again || writes(b->program, &nodes[n], owner);
            }
            if (again) continue;
            TRY(point_probe_add(k, point, action, i, &b->program->tensors[owner],
                                b->tensor[owner]));
            break;
        }
    }
    return ST_OK;
}

// Records the results of sums and gathers along tp between the nodes of a list; recomputed values
// were recorded before.
static status inline_watch(bisect_rank *k, const bisect_points *points, int32_t action)
{
    const plan *p = k->p;
    const plan_action *a = &p->actions[action];
    const plan_comm *c = &p->comms[a->comm];
    if (c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECEIVE || c->items_count == 0)
        return ST_OK;
    if (c->more) return ST_OK; // the last piece shows all
    const int32_t ref = p->items[c->items_begin].out;
    for (int64_t i = 0; i < p->binding_count; i++) {
        const plan_binding *b = &p->bindings[i];
        if (b->layer != a->layer) continue;
        for (tensor_id t = 0; t < min_i64(points->tensors, b->program->tensor_count); t++) {
            const int32_t point = bisect_point_of(points, a->layer, t);
            if (point < 0 || b->tensor[t] != ref) continue;
            const bisect_seen *s = &k->seen[point];
            const bool first = s->data == NULL || !s->has[a->microbatch];
            if (!first && points->rows[point].list == OP_FORWARD) return ST_OK;
            return point_probe_add(k, point, action, 0, &b->program->tensors[t], ref);
        }
    }
    return ST_OK;
}

static status optimizer_watch(bisect_rank *k, int32_t action)
{
    const plan_action *a = &k->p->actions[action];
    const plan_binding *b = &k->p->bindings[a->binding];
    for (int32_t i = 0; i < a->ops_count; i++) {
        const op_node *node = &b->program->lists[a->list].nodes[a->ops_begin + i];
        const op_kind *kind = op_kind_of(node->code);
        if (!kind->updates_state || !kind->takes_grad) continue;
        bisect_seen *s = &k->grads[node->attrs.tensor_index];
        const int32_t ref = b->tensor[node->in[0]];
        const plan_tensor *t = plan_tensor_at(k->p, ref);
        s->type = t->type;
        s->rows = t->dims[0];
        s->columns = t->ndim == 1 ? 1 : t->dims[1];
        const int64_t bytes = s->rows * s->columns * dtype_bytes(s->type);
        TRY(arena_alloc(k->seen_arena, bytes + 1, (void **)&s->data));
        TRY(probe_add(
            k,
            (exec_probe){.action = action, .node = i, .ref = ref, .bytes = bytes, .to = s->data}));
    }
    return ST_OK;
}

static status plan_watch(const bisect *b, bisect_rank *k, const plan *p)
{
    if (k->p == p) return ST_OK;
    if (k->p != NULL) exec_probes_set(k->job.e, k->p, NULL, 0);
    arena_destroy(k->seen_arena);
    k->seen_arena = NULL;
    k->p = p;
    k->probes = NULL;
    k->cells = NULL;
    k->probe_count = k->probe_capacity = 0;
    TRY(arena_create("seen of a step", 0, &k->seen_arena));
    TRY(arena_new(k->seen_arena, b->points.count + 1, &k->seen));
    TRY(arena_new(k->seen_arena, p->model->weight_count + 1, &k->grads));
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind == ACTION_OPTIMIZER) TRY(optimizer_watch(k, i));
        if (a->layer < 0 || a->microbatch < 0) continue;
        if (a->kind == ACTION_COMPUTE) TRY(compute_watch(k, &b->points, i));
        if (a->kind == ACTION_COMMUNICATE) TRY(inline_watch(k, &b->points, i));
    }
    exec_probes_set(k->job.e, p, k->probes, k->probe_count);
    return ST_OK;
}

// ---- a step -------------------------------------------------------------------------------------

// Takes the positions of every sequence that a rank along cp holds.
static void positions_take(const bisect_rank *k, const plan *p, const int32_t *from, int32_t *to)
{
    const int64_t cp_size = plan_mesh_size(&k->options.mesh, AXIS_CP);
    const int64_t turns = run_config_cp_turns(&k->r), pieces = zigzag_pieces(turns);
    const int64_t size = p->seq / pieces, at = k->options.mesh.at[AXIS_CP];
    for (int64_t i = 0; i < pieces * p->own_sequences; i++) {
        const int64_t first = zigzag_position(cp_size, turns, at, p->seq, i % pieces * size);
        memcpy(to + i * size, from + i / pieces * p->whole_seq + first, (size_t)size * sizeof(*to));
    }
}

static status input_of(const bisect *b, bisect_rank *k, const plan *p, exec_input *out)
{
    const int64_t cp_size = plan_mesh_size(&k->options.mesh, AXIS_CP);
    const int64_t own = p->own_sequences * p->seq;
    *out = (exec_input){.settings = train_step_settings(&k->r), .batch_count = b->batch_count};
    out->host = (step_host){.step = b->step,
                            .seed = (uint64_t)k->r.train.seed,
                            .lr = lr_rate(b->r, b->step - 1),
                            .sequences = b->sequences,
                            .first_sequence = b->consumed};
    if (cp_size > 1 && k->cells == NULL) {
        TRY(arena_new(k->seen_arena, BISECT_BATCHES * own, &k->cells));
    }
    for (int i = 0; i < b->batch_count; i++) {
        const int32_t *all = b->batch[i].data;
        // Each rank has the documents of all positions, and what is given of them.
        const bool is_given = strcmp(b->batch[i].name, "given") == 0;
        const bool is_whole = is_given || strcmp(b->batch[i].name, "documents") == 0;
        const int64_t columns = is_given ? GIVEN_COLUMNS : 1;
        const int32_t *rows = all + p->first_sequence * p->whole_seq * columns;
        const bool is_cut = cp_size > 1 && !is_whole;
        const int64_t cells = is_cut ? own : own * cp_size * columns;
        if (is_cut) {
            positions_take(k, p, rows, k->cells + i * own);
            rows = k->cells + i * own;
        }
        out->batch[i] = (exec_batch){b->batch[i].name, rows, cells * (int64_t)sizeof(int32_t)};
    }
    return ST_OK;
}

status bisect_rank_step(const bisect *b, bisect_rank *k)
{
    int64_t number = 0;
    bool any = false;
    const plan *p = assemble_plan_of(&k->plans, b->sequences, false);
    ASSERT(p != NULL);
    TRY(plan_watch(b, k, p));
    if (b->step > 1 && k->r.train.precision == RUN_FP16) k->loss_scale = k->results.loss_scale;
    exec_input input;
    TRY(input_of(b, k, p, &input));
    TRY(exec_begin(k->job.e, p, &input));
    TRY(exec_finish(k->job.e));
    TRY(exec_results(k->job.e, &k->results, &number, &any));
    ASSERT(any && number == b->step);
    return ST_OK;
}

// ---- state --------------------------------------------------------------------------------------

static int64_t row_of(const bisect_rank *k, int32_t weight, const char *kept)
{
    char name[PLAN_NAME_BYTES * 2] = "";
    const char *w = k->plans.whole->weights[weight].name;
    if (kept != NULL) {
        (void)strncat(name, kept, 16);
        (void)strncat(name, ".", 2);
    }
    (void)strncat(name, w, PLAN_NAME_BYTES);
    return plan_table_find(&k->plans.run, name);
}

static int64_t state_row(const bisect_rank *k, int32_t weight, int kind)
{
    const int64_t master = row_of(k, weight, "master");
    if (kind > 0) return row_of(k, weight, bisect_state_names[kind]);
    if (kind == 0 && master >= 0) return master;
    return kind == 0 || master >= 0 ? row_of(k, weight, NULL) : -1;
}

bool bisect_state_is_kept(const bisect_rank *k, int32_t weight, int kind)
{
    return state_row(k, weight, kind) >= 0;
}

dtype bisect_state_type(const bisect_rank *k, int32_t weight, int kind)
{
    return k->plans.run.tensors[state_row(k, weight, kind)].type;
}

plan_piece bisect_state_piece(const bisect_rank *k, int32_t weight, int part, int kind)
{
    const int64_t row = state_row(k, weight, kind);
    const plan_piece nothing = {0};
    if (row < 0) return nothing;
    const bool is_state = k->plans.run.tensors[row].role == ROLE_STATE;
    return plan_piece_of(&k->plans.places, plan_mesh_rank(&k->options.mesh), weight, part,
                         is_state ? PLACE_STATE : PLACE_WEIGHT);
}

status bisect_state_read(const bisect_rank *k, int32_t weight, int kind, const plan_piece *piece,
                         double *out)
{
    const int64_t row = state_row(k, weight, kind), count = piece->rows * piece->columns;
    const dtype type = k->plans.run.tensors[row].type;
    const int64_t width = dtype_bytes(type);
    void *raw = malloc((size_t)(count * width) + 1);
    if (raw == NULL) return fail(ST_NO_MEMORY, "no memory to look at a weight");
    const status st = exec_read(k->job.e, row, piece->at * width, raw, count * width);
    for (int64_t i = 0; i < count && st == ST_OK; i++) out[i] = dtype_load(type, raw, i);
    free(raw);
    return st;
}

static status tensor_write(const bisect_rank *k, int64_t row, const double *values, int64_t count)
{
    const dtype type = k->plans.run.tensors[row].type;
    void *raw = malloc((size_t)(count * dtype_bytes(type)) + 1);
    if (raw == NULL) return fail(ST_NO_MEMORY, "no memory to set a weight");
    for (int64_t i = 0; i < count; i++) dtype_store(type, raw, i, values[i]);
    const status st = exec_write(k->job.e, row, 0, raw, count * dtype_bytes(type));
    free(raw);
    return st;
}

status bisect_state_write(const bisect *b, bisect_rank *k)
{
    const op_model *m = k->plans.whole;
    for (int32_t w = 0; w < m->weight_count; w++) {
        const int64_t count = bisect_state_elements(&m->weights[w]);
        for (int kind = -1; kind < BISECT_STATES; kind++) {
            const int64_t row = state_row(k, w, kind);
            if (row < 0) continue;
            const double *values = b->state[w] + max_i64(kind, 0) * count;
            TRY(tensor_write(k, row, values, count));
        }
    }
    return ST_OK;
}
