// Expert parallelism as a pass over programs (expert_ranks.h).
#include "op/pass/expert_ranks.h"

#include "op/op_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct expert_pass {
    int32_t ways;
    const op_program *whole;
    op_program *p; // the rank's; tensors have the same ids in both
    // [tensor of the whole] rows as the other side has them; TENSOR_NONE: not made yet
    tensor_id *on_the_way;
} expert_pass;

// Returns a tensor like t, for the rows before they are sent, or after they came back.
static status sent_copy(expert_pass *c, tensor_id t, tensor_id *out)
{
    if (c->on_the_way[t] == TENSOR_NONE) {
        op_tensor copy = *op_at(c->p, t);
        char wanted[OP_NAME_BYTES];
        (void)snprintf(wanted, sizeof(wanted), "%.36s.sent", copy.name);
        op_name_unique(c->p, "", wanted, copy.name);
        copy.role = ROLE_ACTIVATION;
        copy.of = TENSOR_NONE;
        TRY(op_tensor_add(c->p, &copy, &c->on_the_way[t]));
    }
    *out = c->on_the_way[t];
    return ST_OK;
}

static status exchange_push(expert_pass *c, op_list list, tensor_id from, tensor_id to)
{
    op_node node = op_node_of(OP_ALL_TO_ALL);
    node.attrs.axis = AXIS_EP;
    node.in[0] = from;
    node.out[0] = to;
    return op_append(c->p, list, &node, 0);
}

static status node_push(expert_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    switch ((int)node->code) {
    case OP_PERMUTE:
    case OP_UNPERMUTE_BWD: // made here, read where the expert is
        TRY(sent_copy(c, node->out[0], &local.out[0]));
        TRY(op_append(c->p, list, &local, 0));
        return exchange_push(c, list, local.out[0], node->out[0]);
    case OP_UNPERMUTE:
    case OP_PERMUTE_BWD: // made where the expert is, read here
        TRY(sent_copy(c, node->in[0], &local.in[0]));
        TRY(exchange_push(c, list, node->in[0], local.in[0]));
        return op_append(c->p, list, &local, 0);
    case OP_GROUPED_MATMUL:
    case OP_GROUPED_MATMUL_DX:
    case OP_GROUPED_MATMUL_DW:
        local.attrs.experts /= c->ways;
        local.in[2] = TENSOR_NONE; // evenly loaded
        return op_append(c->p, list, &local, 0);
    default:
        return op_append(c->p, list, &local, 0);
    }
}

// Cuts the weights of experts and their gradients: each part keeps the rows of the rank's experts.
static status weights_cut(expert_pass *c)
{
    for (tensor_id t = 0; t < c->p->tensor_count; t++) {
        op_tensor *x = &c->p->tensors[t];
        const bool is_weight = x->role == ROLE_WEIGHT || x->role == ROLE_WEIGHT_GRAD;
        if (!is_weight || x->cut_dim[AXIS_EP] < 0) continue;
        ASSERT(x->view_of == TENSOR_NONE && x->dims[0].symbol == EXTENT_ONE);
        if (x->dims[0].scale % c->ways != 0) {
            return fail(ST_CONFIG_CONFLICT, "layout.ep = %d does not divide the %lld rows of %s",
                        (int)c->ways, (long long)x->dims[0].scale, x->name);
        }
        x->dims[0].scale /= c->ways;
        for (int i = 0; i < x->part_count; i++) x->parts[i].rows /= c->ways;
    }
    return ST_OK;
}

// Makes the numbers of sent and received rows equal, at the bound.
static void rows_even(expert_pass *c)
{
    for (tensor_id t = 0; t < c->p->tensor_count; t++) {
        op_tensor *x = &c->p->tensors[t];
        if (x->role == ROLE_ACTIVATION) x->dims[0] = extent_exact(x->dims[0]);
    }
}

static bool has_experts(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        if (p->lists[OP_FORWARD].nodes[i].code == OP_PERMUTE) return true;
    }
    return false;
}

static status program_cut(arena *a, const op_program *whole, int32_t ways, op_program **out)
{
    expert_pass c = {.ways = ways, .whole = whole};
    TRY(op_program_copy(a, whole, &c.p));
    TRY(arena_new(a, whole->tensor_count + 1, &c.on_the_way));
    memset(c.on_the_way, -1, (size_t)whole->tensor_count * sizeof(tensor_id));
    TRY(weights_cut(&c));
    rows_even(&c);
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < whole->lists[list].count; i++) {
            TRY(node_push(&c, (op_list)list, &whole->lists[list].nodes[i]));
        }
    }
    *out = c.p;
    return ST_OK;
}

static void weight_cut(int32_t ways, op_weight *w)
{
    int64_t begin = 0;
    if (!w->is_expert) return;
    for (int i = 0; i < w->part_count; i++) {
        w->parts[i].rows /= ways;
        w->parts[i].row_begin = begin;
        begin += w->parts[i].rows;
    }
    w->rows = begin;
}

status op_model_experts(arena *a, op_model *whole, int32_t ways, op_model **local)
{
    op_model *m = NULL;
    op_program **programs = NULL;
    op_weight *weights = NULL;
    op_layer *layers = NULL;
    *local = whole;
    if (ways <= 1) return ST_OK;
    TRY(arena_new(a, 1, &m));
    TRY(arena_new(a, whole->program_count, &programs));
    TRY(arena_new(a, whole->weight_count + 1, &weights));
    *m = *whole;
    for (int32_t i = 0; i < whole->program_count; i++) {
        programs[i] = whole->programs[i];
        if (has_experts(programs[i])) {
            TRY(program_cut(a, whole->programs[i], ways, &programs[i]));
        }
    }
    for (int64_t w = 0; w < whole->weight_count; w++) {
        weights[w] = whole->weights[w];
        weight_cut(ways, &weights[w]);
    }
    m->programs = programs;
    m->weights = weights;
    TRY(op_layers_widen(a, whole, programs, &layers));
    m->layers = layers;
    *local = m;
    return ST_OK;
}
