// The table of optimizers, and the programs that they write.
#include "assemble/optim/optim.h"

#include "op/op_kind.h"
#include "op/pass/expert_ranks.h"

static const assemble_optimizer *const rows[] = {
#define ROW(upper, lower, ...) [RUN_##upper] = &assemble_optimizer_##lower,
    RUN_OPTIMIZERS(ROW)
#undef ROW
};

static extent columns_of(const op_weight *w)
{
    return extent_of(w->ndim == 1 ? 0 : w->columns);
}

status assemble_optimizer_state(op_program *p, const char *name, const op_weight *w, dtype type,
                                tensor_id *out)
{
    return op_tensor_make(p, name, ROLE_STATE, type, w->ndim, extent_of(w->rows), columns_of(w),
                          out);
}

status assemble_optimizer_master(op_program *p, const op_weight *w, const run_config *r,
                                 tensor_id weight, tensor_id *master, tensor_id *copy)
{
    *master = weight;
    *copy = TENSOR_NONE;
    if (!run_config_types(r).has_master || p->tensors[weight].type == DTYPE_F32) return ST_OK;
    *copy = weight;
    return assemble_optimizer_state(p, "master", w, DTYPE_F32, master);
}

op_node assemble_optimizer_node(op_code code, const op_weight *w, int32_t weight_index,
                                const run_config *r)
{
    op_node node = op_node_of(code);
    node.attrs = (op_attrs){.tensor_index = weight_index,
                            .decay = w->decay,
                            .stochastic = r->optimizer.stochastic_rounding,
                            .weight_decay = (float)r->optimizer.weight_decay,
                            .lr_scale = 1.0f};
    int64_t begin = 0; // of the part within the whole weight
    if (!op_weight_is_piece(w)) return node;
    node.piece.part_count = w->part_count;
    for (int i = 0; i < w->part_count; i++) {
        const weight_piece piece = op_weight_piece(w, i);
        node.piece.part_rows[i] = piece.rows;
        node.piece.part_first[i] = begin + piece.row;
        node.piece.part_whole[i] = piece.whole_rows;
        node.piece.whole_columns = piece.whole_columns;
        node.piece.first_column = piece.column;
        begin += piece.whole_rows;
    }
    if (op_weight_is_striped(w)) {
        node.piece.stripe = w->stripe;
        node.piece.stripe_own = w->stripe / w->ways;
        node.piece.stripe_first = node.piece.stripe_own * w->at;
    }
    return node;
}

// With stochastic rounding the update of a weight whose experts may move reads their slots.
static status slots_give(op_program *p, const op_model *m, const run_config *r, int32_t weight)
{
    const op_weight *w = &m->weights[weight];
    tensor_id slots = TENSOR_NONE;
    if (r->moe.rebalance == 0 || !r->optimizer.stochastic_rounding || !w->is_expert) return ST_OK;
    if (w->expert_ways < 2) return ST_OK;
    TRY(op_tensor_make(p, OP_SLOTS, ROLE_CONSTANT, DTYPE_F32, 2, extent_of(m->load_layers),
                       extent_of(m->load_experts), &slots));
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        op_node *node = &p->lists[OP_FORWARD].nodes[i];
        const int slots_in = op_kind_of(node->code)->slots_in;
        if (slots_in == 0) continue;
        node->attrs.experts = m->load_experts;
        node->attrs.load_row = op_model_layer_of(m, weight);
        node->in[slots_in] = slots;
    }
    return ST_OK;
}

// The layers' programs declare the type of the working copy.
static dtype working_type(const op_model *m, int64_t weight)
{
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        for (int64_t t = 0; t < program->tensor_count; t++) {
            if (program->tensors[t].role == ROLE_WEIGHT && m->layers[i].weight_of[t] == weight) {
                return program->tensors[t].type;
            }
        }
    }
    panic_at(__FILE__, __LINE__, "a weight that no layer uses");
}

// The bias of a router has no gradient: the load of its experts moves it.
static status balance_program(arena *a, const op_model *m, const run_config *r, int32_t weight,
                              op_program **out)
{
    const op_weight *w = &m->weights[weight];
    op_node node = op_node_of(OP_BALANCE);
    node.attrs.experts = m->load_experts;
    node.attrs.load_layers = m->load_layers;
    node.attrs.load_row = op_model_layer_of(m, weight);
    node.attrs.bias_rate = (float)r->model.router.bias_rate;
    ASSERT(w->rows == m->load_experts);
    TRY(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, out));
    TRY(op_tensor_make(*out, "weight", ROLE_WEIGHT, working_type(m, weight), w->ndim,
                       extent_of(w->rows), columns_of(w), &node.in[1]));
    return op_append(*out, OP_FORWARD, &node, 0);
}

// No optimizer moves the history of factors in 8 bits: the counts of a step do.
static status history_emit(op_program *p, const run_config *r, int32_t index, const tensor_id in[2])
{
    op_node node = op_node_of(OP_FP8_HISTORY);
    node.attrs.tensor_index = index;
    node.attrs.fp8_steps = (int32_t)r->precision.fp8_history;
    node.in[0] = in[0];
    node.in[1] = in[1];
    return op_append(p, OP_FORWARD, &node, 0);
}

status assemble_optimizer_programs(arena *a, const op_model *m, const run_config *r,
                                   const plan_mesh *mesh, op_program *const **out,
                                   const bool **whole)
{
    const run_types types = run_config_types(r);
    op_program **programs = NULL;
    bool *wholes = NULL;
    TRY(arena_new(a, m->weight_count + 1, &programs));
    TRY(arena_new(a, m->weight_count + 1, &wholes));
    for (int32_t i = 0; i < m->weight_count; i++) {
        if (m->weights[i].balanced) TRY(balance_program(a, m, r, i, &programs[i]));
        if (m->weights[i].frozen) continue;
        op_weight piece = m->weights[i];
        const op_weight *w = &piece;
        tensor_id weight = TENSOR_NONE, grad = TENSOR_NONE;
        const run_optimizer name = (run_optimizer)r->optimizer.name;
        const run_optimizer_row *row = run_optimizer_for(name, w->is_matrix);
        const assemble_optimizer *optimizer =
            rows[row == run_optimizer_at(name) ? name : RUN_ADAMW];
        wholes[i] = row->unit == RUN_UNIT_MATRIX;
        piece.rows = plan_rows_of(mesh, (int32_t)r->layout.zero, w, wholes[i]).count;
        TRY(op_program_create(a, PURPOSE_TRAIN, types.compute, types.grads, &programs[i]));
        TRY(op_tensor_make(programs[i], "weight", ROLE_WEIGHT, working_type(m, i), w->ndim,
                           extent_of(w->rows), columns_of(w), &weight));
        TRY(op_tensor_make(programs[i], "grad", ROLE_WEIGHT_GRAD, types.grads, w->ndim,
                           extent_of(w->rows), columns_of(w), &grad));
        if (w->is_history) {
            TRY(history_emit(programs[i], r, i, (const tensor_id[]){grad, weight}));
            continue;
        }
        TRY(optimizer->emit(programs[i], w, i, r, weight, grad));
        TRY(slots_give(programs[i], m, r, i));
    }
    *out = programs;
    *whole = wholes;
    return ST_OK;
}
