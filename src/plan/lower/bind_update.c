// Pass 2 of lowering, the end of a step: gradients of several uses of one weight are added; then
// come the norm of this rank's share of the gradients, the decision, and the optimizer, weight by
// weight. Each is an action on a program of its own.
#include "plan/lower/bind_internal.h"

#include <string.h>

// ---- the norm -----------------------------------------------------------------------------------

// The norm of one gradient is computed in blocks that do not depend on how the weight is cut. A
// piece is the part of a block that this rank has.
enum { NORM_MAX_PIECES = 64 };
typedef struct norm_piece {
    int64_t row, rows;    // among the rows that this rank updates; a vector has one
    int64_t begin, count; // columns, or elements of a vector
} norm_piece;

// Block boundaries are where determinism.tp_shards cuts the columns of the whole weight, so they
// are the same for any number of ranks.
static int32_t columns_of_norm(const lower_input *in, const op_weight *w, norm_piece *out)
{
    const plan_request *r = in->r;
    const int32_t given = w->is_expert ? r->etp_shards : r->tp_shards;
    const int32_t shards = r->strict && given > 1 ? given : 1;
    const int64_t ways = plan_mesh_size(&r->mesh, AXIS_TP), at = r->mesh.at[AXIS_TP];
    const bool vector = w->ndim == 1;
    const bool cut = w->cut_dim[AXIS_TP] == (vector ? 0 : 1);
    int32_t count = 0;
    if (shards == 1 || !cut) {
        out[0] = (norm_piece){.count = vector ? w->rows : w->columns};
        return 1;
    }
    for (int i = 0; i < (vector ? w->part_count : 1); i++) {
        const weight_piece part = op_weight_piece(w, i);
        const int64_t whole = vector ? part.whole_rows : part.whole_columns;
        const int64_t from = vector ? w->parts[i].row_begin - part.row : -part.column;
        for (int64_t s = at * (shards / ways); s < (at + 1) * (shards / ways); s++) {
            const int64_t begin = whole * s / shards, end = whole * (s + 1) / shards;
            ASSERT(count < NORM_MAX_PIECES);
            if (end == begin) continue;
            out[count++] = (norm_piece){.begin = from + begin, .count = end - begin};
        }
    }
    return count;
}

static bool has_copies(const op_weight *w)
{
    for (int i = 0; i < w->part_count; i++) {
        if (w->ways > 1 && w->parts[i].copies > 1) return true;
    }
    return false;
}

// Lists the pieces that this rank counts. If several ranks hold a part, each counts its share.
static int32_t norm_pieces(const lower_input *in, int32_t weight, norm_piece out[NORM_MAX_PIECES])
{
    const op_weight *w = &in->m->weights[weight];
    const plan_rows own = lower_rows(in, weight);
    const bool vector = w->ndim == 1;
    if (own.count == 0) return 0;
    int32_t count = columns_of_norm(in, w, out);
    for (int32_t i = 0; i < count; i++) out[i].rows = vector ? 1 : own.count;
    if (!has_copies(w) || (vector && count > 1)) return count;
    ASSERT(count == 1);
    count = 0;
    for (int i = 0; i < w->part_count; i++) {
        int64_t rows = 0;
        const int64_t share =
            w->parts[i].row_begin + op_part_share(w, i, in->r->mesh.at[AXIS_TP], &rows);
        const int64_t begin = max_i64(share, own.first);
        const int64_t end = min_i64(share + rows, own.first + own.count);
        if (begin >= end) continue;
        out[count++] =
            vector
                ? (norm_piece){.rows = 1, .begin = begin, .count = end - begin}
                : (norm_piece){.row = begin - own.first, .rows = end - begin, .count = w->columns};
    }
    return count;
}

// True if this rank counts the weight in the norm. If several ranks update a weight and norms are
// summed over them, only the first rank counts it.
static bool norm_is_mine(const binder *b, int32_t weight)
{
    const lower_input *in = b->in;
    const op_weight *w = &in->m->weights[weight];
    const plan_mesh *mesh = &in->r->mesh;
    int32_t holders[PLAN_MAX_HOLDERS];
    if (!b->out->holds[weight] || w->frozen || w->is_history) return false;
    const bool others = w->is_expert && mesh->whole_experts; // ranks of tp have other experts
    if (w->ways <= 1 && !others && mesh->at[AXIS_TP] != 0) return false;
    (void)plan_pipeline_holders(&in->pipe, weight, holders);
    if (holders[0] != mesh->at[AXIS_PP]) return false;
    if (!lower_norm_is_summed(in)) return true;
    const bool is_cut = lower_rows(in, weight).cut;
    if (lower_kind_of(in, weight) == KIND_EXPERT) { // others along ep have other experts
        return is_cut || plan_expert_place(mesh) == 0;
    }
    return plan_zero_is_first(mesh, is_cut);
}

// Adds a norm node for each piece. Tensor 0 is the gradient; a vector is one row.
static status norm_nodes_add(const lower_input *in, op_program *program, int32_t grad,
                             int32_t weight)
{
    norm_piece pieces[NORM_MAX_PIECES];
    const plan_tensor *t = &in->p->tensors[grad];
    const int64_t rows = t->ndim == 1 ? 1 : t->dims[0], columns = t->dims[t->ndim - 1];
    const int32_t count = norm_pieces(in, weight, pieces);
    tensor_id whole = TENSOR_NONE;
    op_node node = op_node_of(OP_GRAD_NORM);
    node.attrs.tensor_index = weight;
    if (count == 0) return ST_OK;
    TRY(op_tensor_make(program, "grad", ROLE_WEIGHT_GRAD, t->type, 2, extent_of(rows),
                       extent_of(columns), &whole));
    for (int32_t i = 0; i < count; i++) {
        const norm_piece *piece = &pieces[i];
        node.in[0] = whole;
        if (piece->count < columns) {
            TRY(op_view(program, whole, "columns", piece->begin, piece->count, &node.in[0]));
        }
        if (piece->rows < rows) {
            TRY(op_view_rows(program, node.in[0], "rows", piece->row, piece->rows, &node.in[0]));
        }
        TRY(op_append(program, OP_FORWARD, &node, 0));
    }
    return ST_OK;
}

// ---- programs of the step -----------------------------------------------------------------------

// Adds an optimizer action that runs a whole program; `binding->tensor` maps its tensors.
static status program_bind(binder *b, const op_program *program, const char *name,
                           plan_binding *binding, int32_t *index)
{
    int32_t row = -1;
    binding->program = program;
    binding->layer = -1;
    TRY(bind_workspaces(b->in, program, name, binding->workspace));
    TRY(bind_add_binding(b->in, binding, &row));
    const plan_action action = {.kind = ACTION_OPTIMIZER,
                                .microbatch = -1,
                                .layer = -1,
                                .binding = row,
                                .list = OP_FORWARD,
                                .ops_count = (int32_t)program->lists[OP_FORWARD].count};
    return bind_action(b, &action, index);
}

// Binds a program whose only tensors are the step block and a gradient (-1: no gradient).
static status step_program_bind(binder *b, const op_program *program, op_code code, int32_t grad,
                                int32_t *index)
{
    plan_binding binding = {.layer = -1};
    int32_t *map = NULL;
    TRY(arena_new(b->in->p->run->a, program->tensor_count, &map));
    memset(map, -1, (size_t)program->tensor_count * sizeof(*map));
    if (grad >= 0) map[0] = grad;
    for (int64_t i = 0; i < program->tensor_count; i++) {
        if (program->tensors[i].role == ROLE_STEP) map[i] = b->out->step_ref;
    }
    binding.tensor = map;
    return program_bind(b, program, op_kind_of(code)->name, &binding, index);
}

status bind_step_node(binder *b, op_code code, int32_t *index)
{
    op_program *program = NULL;
    op_node node = op_node_of(code);
    node.attrs.load_layers = b->in->m->load_layers;
    node.attrs.experts = b->in->m->load_experts;
    TRY(op_program_create(b->in->p->run->a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &program));
    TRY(op_append(program, OP_FORWARD, &node, 0));
    return step_program_bind(b, program, code, -1, index);
}

static status norm_bind(binder *b, int32_t weight)
{
    op_program *program = NULL;
    const int32_t grad = b->out->update.final[weight];
    TRY(op_program_create(b->in->p->run->a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &program));
    TRY(norm_nodes_add(b->in, program, grad, weight));
    if (program->lists[OP_FORWARD].count == 0) return ST_OK; // other ranks count all of it
    return step_program_bind(b, program, OP_GRAD_NORM, grad, NULL);
}

// ---- the optimizer ------------------------------------------------------------------------------

static status optimizer_tensor(const binder *b, int32_t weight, const op_tensor *t,
                               const plan_rows *rows, int32_t *ref)
{
    const lower_input *in = b->in;
    const char *name = in->m->weights[weight].name;
    plan_tensor tensor = lower_tensor_like(t, &in->bound);
    lower_name(&tensor, t->name, ".", name);
    if (t->role == ROLE_STATE) {
        tensor.kind = strcmp(t->name, "master") == 0 ? PLAN_BYTES_MASTER : PLAN_BYTES_MOMENTS;
        tensor.weight = weight;
        if (rows->cut) tensor.piece_rows = rows->piece;
        return lower_run_tensor(in->p->run, &tensor, ref);
    }
    if (t->role == ROLE_CONSTANT) { // the same that layers read
        tensor.kind = PLAN_BYTES_BUFFERS;
        lower_name(&tensor, "constant", ".", t->name);
        return lower_run_tensor(in->p->run, &tensor, ref);
    }
    if (t->role != ROLE_ACTIVATION) {
        return fail(ST_INTERNAL, "optimizer of %s has a tensor %s of role %d", name, t->name,
                    (int)t->role);
    }
    tensor.kind = PLAN_BYTES_BUFFERS;
    return plan_tensor_push(in->p, &tensor, ref);
}

static status optimizer_bind(binder *b, int32_t weight, int32_t weight_ref, int32_t *index)
{
    const lower_input *in = b->in;
    const op_program *program = in->r->optimizer[weight];
    const plan_rows rows = lower_rows(in, weight);
    int32_t *map = NULL;
    TRY(arena_new(in->p->run->a, program->tensor_count + 1, &map));
    for (int64_t i = 0; i < program->tensor_count; i++) {
        const op_tensor *t = &program->tensors[i];
        map[i] = t->role == ROLE_WEIGHT        ? weight_ref
                 : t->role == ROLE_WEIGHT_GRAD ? b->out->update.final[weight]
                 : t->role == ROLE_STEP        ? b->out->step_ref
                                               : -1;
        if (map[i] == -1) TRY(optimizer_tensor(b, weight, t, &rows, &map[i]));
    }
    if (rows.count == 0) return ST_OK; // its states have names but no rows here
    plan_binding binding = {.tensor = map, .first_row = rows.first};
    return program_bind(b, program, in->m->weights[weight].name, &binding, index);
}

// ---- the whole ----------------------------------------------------------------------------------

// Finds the tensor with each weight's complete gradient. Uses are added in the order of their
// backward, on the rows that this rank updates: the last stage of a pipeline may have several uses
// of the embedding, and their sum comes first there too.
static status gradients_finish(binder *b)
{
    const lower_input *in = b->in;
    int32_t *final = b->out->update.final;
    for (int64_t u = b->out->use_count - 1; u >= 0; u--) {
        const weight_use *use = &b->out->uses[u];
        const shard_tree *tree = expand_tree(b->x, use->layer, lower_kind_of(in, use->weight));
        plan_rows own = lower_rows(in, use->weight);
        int32_t mine = -1, *to = &final[use->weight];
        if (bind_is_unsharded(b->out, use->weight)) {
            own.first = 0; // the padding of the last rank's rows has no sum
            TRY(lower_part(in, b->out->rows_of[use->weight], own, to));
            continue;
        }
        if (use->shared) continue;
        TRY(lower_part(in, use->buffer[tree->node[0].buffer], own, &mine));
        if (*to < 0) {
            *to = mine;
        } else if (own.count > 0) {
            TRY(bind_tree_add(b, NULL, *to, mine, -1, NULL));
        }
    }
    for (int32_t w = 0; w < in->m->weight_count; w++) {
        if (final[w] < 0 && b->out->holds[w] && !in->m->weights[w].frozen) {
            return fail(ST_INTERNAL, "weight %s has no gradient", in->m->weights[w].name);
        }
    }
    return ST_OK;
}

status bind_update(binder *b)
{
    const lower_input *in = b->in;
    bound_update *update = &b->out->update;
    const int64_t weights = in->m->weight_count;
    TRY(arena_new(in->a, weights + 1, &update->final));
    TRY(arena_new(in->a, weights + 1, &update->optimize));
    memset(update->final, -1, (size_t)weights * sizeof(int32_t));
    memset(update->optimize, -1, (size_t)weights * sizeof(int32_t));
    update->adds_begin = (int32_t)b->out->action_count;
    TRY(gradients_finish(b));
    update->adds_count = (int32_t)b->out->action_count - update->adds_begin;
    update->norms_begin = (int32_t)b->out->action_count;
    for (int32_t w = 0; w < weights; w++) {
        if (norm_is_mine(b, w)) TRY(norm_bind(b, w));
    }
    update->norms_count = (int32_t)b->out->action_count - update->norms_begin;
    TRY(bind_step_node(b, OP_STEP_DECIDE, &update->decide));
    for (int32_t w = 0; w < weights; w++) {
        const int64_t row = plan_table_find(in->p->run, in->m->weights[w].name);
        const bool is_updated = !in->m->weights[w].frozen || in->m->weights[w].balanced;
        if (!b->out->holds[w] || !is_updated) continue;
        int32_t mine =
            plan_run_ref(row); // this rank's rows if weights are gathered, else the whole weight
        ASSERT(row >= 0);
        if (!lower_gathers_weights(in->r)) {
            TRY(lower_part(in, plan_run_ref(row), lower_rows(in, w), &mine));
        }
        TRY(optimizer_bind(b, w, mine, &update->optimize[w]));
    }
    return ST_OK;
}
