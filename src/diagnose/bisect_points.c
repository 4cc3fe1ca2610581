// Lists the tensors that bisect compares, in order, and locates a rank's piece of each in the
// whole.
//
// Points are the activations of all blocks in the order of the whole model's programs: forward
// upwards, then gradients downwards. A rank's program has the same tensors with the same ids
// (op/pass/partition.c), possibly with only some positions (sequence and context parallelism) or
// some columns, part by part.
#include "diagnose/bisect_internal.h"
#include "op/zigzag.h"

#include <string.h>

static bool is_rows_of_tokens(const op_tensor *t)
{
    const bool rows =
        t->ndim >= 1 && t->ndim <= 2 && t->dims[0].scale == 1 && t->dims[0].symbol == EXTENT_TOKENS;
    return rows && t->role == ROLE_ACTIVATION && (t->type <= DTYPE_F64) &&
           (t->ndim == 1 || t->dims[1].symbol == EXTENT_ONE);
}

static int64_t columns_of(const op_tensor *t)
{
    return t->ndim == 1 ? 1 : t->dims[1].scale;
}

// ---- parts --------------------------------------------------------------------------------------

static const op_node *writer_of(const op_program *p, tensor_id t)
{
    static const op_list lists[] = {OP_FORWARD, OP_BACKWARD_INPUT};
    for (int l = 0; l < COUNT_OF(lists); l++) {
        for (int64_t i = 0; i < p->lists[lists[l]].count; i++) {
            const op_node *node = &p->lists[lists[l]].nodes[i];
            for (int o = 0; o < OP_MAX_OUT; o++) {
                if (node->out[o] == t) return node;
            }
        }
    }
    return NULL;
}

// The parts of a tensor's columns: those of the weight that computed it, of the tensor whose
// gradient it is, or of an input of the same width; found as the partition finds them.
static void parts_find(const op_program *p, tensor_id t, bisect_point *out, int depth)
{
    enum { DEPTH = 12 };
    const op_tensor *tensor = &p->tensors[t];
    out->part_count = 1;
    out->part[0] = out->columns;
    out->heads[0] = 0;
    if (depth == DEPTH || tensor->ndim < 2) return;
    if (tensor->of != TENSOR_NONE && columns_of(&p->tensors[tensor->of]) == out->columns) {
        parts_find(p, tensor->of, out, depth + 1);
        return;
    }
    const op_node *node = writer_of(p, t);
    if (node == NULL) return;
    const op_kind *kind = op_kind_of(node->code);
    if (kind->gemm != NULL && kind->grad_of == GRAD_OF_NONE && kind->logits == LOGITS_NONE) {
        const op_tensor *w = &p->tensors[node->in[1]];
        if (w->part_count < 2) return;
        out->part_count = w->part_count;
        for (int i = 0; i < w->part_count; i++) {
            out->part[i] = w->parts[i].rows;
            out->heads[i] = w->parts[i].heads;
        }
        return;
    }
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE) continue;
        const op_tensor *in = &p->tensors[node->in[i]];
        if (in->ndim != 2 || in->role != ROLE_ACTIVATION || columns_of(in) != out->columns)
            continue;
        parts_find(p, node->in[i], out, depth + 1);
        return;
    }
}

// ---- points -------------------------------------------------------------------------------------

static bool stands_in(const tensor_id *list, int count, tensor_id t)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == t) return true;
    }
    return false;
}

static status point_add(arena *a, const op_model *m, bisect_points *points, bisect_point p)
{
    const op_layer *layer = &m->layers[p.layer];
    const op_program *program = m->programs[layer->program];
    int32_t *index = &points->index[(int64_t)p.layer * points->tensors + p.t];
    if (*index >= 0) return ST_OK;
    p.block = layer->name;
    p.name = program->tensors[p.t].name;
    p.columns = columns_of(&program->tensors[p.t]);
    parts_find(program, p.t, &p, 0);
    TRY(arena_grow(a, (void **)&points->rows, &points->capacity, points->count + 1,
                   (int64_t)sizeof(*points->rows)));
    *index = (int32_t)points->count;
    points->rows[points->count++] = p;
    return ST_OK;
}

static status list_add(arena *a, const op_model *m, bisect_points *points, bisect_point p,
                       bool inside)
{
    const op_program *program = m->programs[m->layers[p.layer].program];
    const bool has_loss = program->output_count == 0;
    for (int64_t i = 0; i < program->lists[p.list].count; i++) {
        const op_node *node = &program->lists[p.list].nodes[i];
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (node->out[o] == TENSOR_NONE) continue;
            bisect_point one = p;
            one.t = op_owner(program, node->out[o]).id;
            if (!is_rows_of_tokens(&program->tensors[one.t])) continue;
            one.is_boundary = stands_in(program->outputs, program->output_count, one.t) ||
                              stands_in(program->d_inputs, program->input_count, one.t);
            const bool is_head =
                has_loss && (op_kind_of(node->code)->step_reads & STEP_FIELD_LOSS_SCALE) != 0;
            if (is_head && o == 0) { // the loss of each token
                one.phase = BISECT_FORWARD;
                one.is_boundary = true;
            }
            if (!inside && !one.is_boundary && !has_loss) continue;
            TRY(point_add(a, m, points, one));
        }
    }
    return ST_OK;
}

status bisect_points_make(arena *a, const op_model *m, bool inside, bisect_points *out)
{
    *out = (bisect_points){0};
    for (int32_t i = 0; i < m->program_count; i++) {
        out->tensors = max_i64(out->tensors, m->programs[i]->tensor_count);
    }
    TRY(arena_new(a, m->layer_count * out->tensors, &out->index));
    memset(out->index, -1, (size_t)(m->layer_count * out->tensors) * sizeof(int32_t));
    bisect_point p = {.list = OP_FORWARD, .phase = BISECT_FORWARD};
    for (p.layer = 0; p.layer < m->layer_count; p.layer++) TRY(list_add(a, m, out, p, inside));
    p.phase = BISECT_BACKWARD;
    for (p.layer = m->layer_count - 1; p.layer >= 0; p.layer--) {
        // A layer without an output computes its loss and its gradient in the weight list.
        const op_program *program = m->programs[m->layers[p.layer].program];
        p.list = OP_BACKWARD_WEIGHT;
        if (program->output_count == 0) TRY(list_add(a, m, out, p, inside));
        p.list = OP_BACKWARD_INPUT;
        TRY(list_add(a, m, out, p, inside));
    }
    return ST_OK;
}

// ---- the position of a rank's piece -------------------------------------------------------------

int64_t bisect_row(const bisect_rank *k, const bisect_seen *s, int64_t mb, int64_t i)
{
    const plan *p = k->p;
    const plan_mesh *mesh = &k->options.mesh;
    const int64_t per = s->rows / p->micro_batch; // positions of a sequence on this rank
    const int64_t sequence = p->first_sequence + mb * p->micro_batch + i / per;
    const int64_t cuts = s->by_positions ? plan_mesh_size(mesh, AXIS_TP) : 1;
    const int64_t own = cut_position(cuts, p->cut_pieces, mesh->at[AXIS_TP], per, i % per);
    const int64_t cp_size = plan_mesh_size(mesh, AXIS_CP);
    const int64_t turns = run_config_cp_turns(&k->r);
    const int64_t position = zigzag_position(cp_size, turns, mesh->at[AXIS_CP], p->seq, own);
    return sequence * p->whole_seq + position;
}

int64_t bisect_column(const bisect_rank *k, const bisect_seen *s, const bisect_point *p, int64_t j)
{
    if (s->columns == p->columns) return j;
    const int32_t tp_size = plan_mesh_size(&k->options.mesh, AXIS_TP);
    const int64_t at = k->options.mesh.at[AXIS_TP];
    int64_t whole = 0; // columns of the parts before
    for (int i = 0; i < p->part_count; i++) {
        // Keys that several ranks hold: the width reveals a tensor with nothing else.
        const bool alone = p->part_count == 1 && s->columns * tp_size > p->columns;
        const int64_t copies =
            alone ? s->columns * tp_size / p->columns : op_part_copies(p->heads[i], tp_size);
        const int64_t pieces = tp_size / copies, piece = at / copies;
        const int64_t begin = p->part[i] * piece / pieces, end = p->part[i] * (piece + 1) / pieces;
        if (j < end - begin) return whole + begin + j;
        j -= end - begin;
        whole += p->part[i];
    }
    return -1;
}
