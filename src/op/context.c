// Context parallelism as a pass over programs: what becomes of attention. See context.h.
#include "op/context.h"

#include "op/op_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct context_pass {
    arena *a;
    const op_context *how;
    const op_program *whole;
    op_program *p; // the rank's; tensors have the same ids in both
} context_pass;

// Keys and values of an attention side by side, and where each begins.
typedef struct key_values {
    tensor_id both, k, v;
} key_values;

static int32_t terms_of(const op_context *how)
{
    return how->ordered ? how->shards / how->ways : 1;
}

// (ways * tokens, k and v's columns), with a view for each.
static status pair_make(context_pass *c, const op_node *like, int first, const char *name,
                        int64_t ways, key_values *out)
{
    char names[3][OP_NAME_BYTES];
    const op_tensor k = *op_at(c->p, like->in[first]), v = *op_at(c->p, like->in[first + 1]);
    const int64_t columns = k.dims[1].scale, more = v.dims[1].scale;
    op_name_unique(c->p, "", name, names[0]);
    TRY(op_tensor_make(c->p, names[0], ROLE_ACTIVATION, k.type, 2, extent_tokens(ways),
                       extent_of(columns + more), &out->both));
    (void)snprintf(names[1], sizeof(names[1]), "%.40s.k", names[0]);
    (void)snprintf(names[2], sizeof(names[2]), "%.40s.v", names[0]);
    TRY(op_view(c->p, out->both, names[1], 0, columns, &out->k));
    return op_view(c->p, out->both, names[2], columns, more, &out->v);
}

static status copy_push(context_pass *c, op_list list, tensor_id from, tensor_id to)
{
    op_node copy = op_node_of(OP_SUM);
    copy.in[0] = from;
    copy.out[0] = to;
    return op_append(c->p, list, &copy, 0);
}

// All keys and values of the node's operands first, first + 1; nothing moves where there is one rank.
static status gather_push(context_pass *c, op_list list, const op_node *node, int first,
                          const char *name, key_values *all)
{
    key_values mine;
    *all = (key_values){TENSOR_NONE, node->in[first], node->in[first + 1]};
    if (c->how->ways == 1) return ST_OK;
    char whole[OP_NAME_BYTES];
    (void)snprintf(whole, sizeof(whole), "%.40s_all", name);
    TRY(pair_make(c, node, first, name, 1, &mine));
    TRY(pair_make(c, node, first, whole, c->how->ways, all));
    TRY(copy_push(c, list, node->in[first], mine.k));
    TRY(copy_push(c, list, node->in[first + 1], mine.v));
    op_node gather = op_node_of(OP_ALL_GATHER);
    gather.attrs.axis = AXIS_CP;
    gather.attrs.zigzag = true;
    gather.in[0] = mine.both;
    gather.out[0] = all->both;
    return op_append(c->p, list, &gather, 0);
}

static void rows_set(const context_pass *c, op_attrs *attrs)
{
    if (c->how->ways == 1) return;
    attrs->cp_ways = c->how->ways;
    attrs->cp_at = c->how->at;
}

static status forward_push(context_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    key_values all;
    TRY(gather_push(c, list, node, 1, "kv", &all));
    rows_set(c, &local.attrs);
    local.in[1] = all.k;
    local.in[2] = all.v;
    return op_append(c->p, list, &local, 0);
}

// dk, or dv: a sum of terms that this rank has, or what a rank has of everybody's.
static status sum_push(context_pass *c, const key_values *terms, int32_t count, bool of_v,
                       tensor_id out)
{
    op_node sum = op_node_of(OP_SUM);
    for (int32_t i = 0; i < count; i++) sum.in[i] = of_v ? terms[i].v : terms[i].k;
    sum.out[0] = out;
    return op_append(c->p, OP_BACKWARD_INPUT, &sum, 0);
}

// A term each of one shard's queries, or of all of them.
static status terms_push(context_pass *c, const op_node *node, const key_values *all,
                         key_values terms[OP_CONTEXT_MAX_TERMS])
{
    const int32_t count = terms_of(c->how);
    for (int32_t i = 0; i < count; i++) {
        op_node term = *node;
        TRY(pair_make(c, node, 2, "d_kv", c->how->ways, &terms[i]));
        rows_set(c, &term.attrs);
        if (c->how->ordered) {
            term.attrs.shards = c->how->shards;
            term.attrs.first_shard = c->how->at * count + i;
        }
        term.in[2] = all->k;
        term.in[3] = all->v;
        term.out[1] = terms[i].k;
        term.out[2] = terms[i].v;
        TRY(op_append(c->p, OP_BACKWARD_INPUT, &term, 0));
    }
    return ST_OK;
}

static status backward_push(context_pass *c, const op_node *node)
{
    key_values all, terms[OP_CONTEXT_MAX_TERMS], sum;
    int32_t count = terms_of(c->how);
    const key_values *from = terms;
    TRY(gather_push(c, OP_BACKWARD_INPUT, node, 2, "kv_again", &all));
    TRY(terms_push(c, node, &all, terms));
    if (c->how->ways > 1) {
        op_node scatter = op_node_of(OP_REDUCE_SCATTER);
        TRY(pair_make(c, node, 2, "d_kv_sum", 1, &sum));
        scatter.attrs.axis = AXIS_CP;
        scatter.attrs.zigzag = true;
        for (int32_t i = 0; i < count; i++) scatter.in[i] = terms[i].both;
        scatter.out[0] = sum.both;
        if (c->how->ordered) {
            scatter.attrs.shards = c->how->shards;
            scatter.attrs.first_shard = c->how->at * count;
        }
        TRY(op_append(c->p, OP_BACKWARD_INPUT, &scatter, 0));
        from = &sum;
        count = 1;
    }
    TRY(sum_push(c, from, count, false, node->out[1]));
    return sum_push(c, from, count, true, node->out[2]);
}

static status node_push(context_pass *c, op_list list, const op_node *node)
{
    if (node->code == OP_ATTENTION) return forward_push(c, list, node);
    if (node->code == OP_ATTENTION_BWD) return backward_push(c, node);
    op_node local = *node;
    if (node->code == OP_DROPOUT) rows_set(c, &local.attrs);
    return op_append(c->p, list, &local, 0);
}

static status list_walk(context_pass *c, op_list list)
{
    const int64_t count = c->whole->lists[list].count;
    for (int64_t i = 0; i < count; i++) {
        TRY(node_push(c, list, &c->whole->lists[list].nodes[i]));
    }
    return ST_OK;
}

// Which batch tensor is documents: they keep all rows.
static void documents_widen(context_pass *c)
{
    static const struct {
        op_code code;
        int operand;
    } readers[] = {{OP_ATTENTION, 3}, {OP_ATTENTION_BWD, 6}};
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < c->whole->lists[list].count; i++) {
            const op_node *node = &c->whole->lists[list].nodes[i];
            for (int k = 0; k < COUNT_OF(readers); k++) {
                if (node->code != readers[k].code) continue;
                const tensor_id t = node->in[readers[k].operand];
                if (t != TENSOR_NONE) c->p->tensors[t].dims[0] = extent_tokens(c->how->ways);
            }
        }
    }
}

static status program_cut(context_pass *c)
{
    TRY(op_program_copy(c->a, c->whole, &c->p));
    documents_widen(c);
    for (int list = 0; list < OP_LIST_COUNT; list++) TRY(list_walk(c, (op_list)list));
    return ST_OK;
}

status op_model_context(arena *a, op_model *whole, const op_context *how, op_model **local)
{
    TRY(op_ways_check("cp", how->ways, how->at, how->ordered, how->shards, OP_CONTEXT_MAX_TERMS));
    *local = whole;
    if (how->ways == 1 && (!how->ordered || how->shards == 1)) return ST_OK;
    op_model *m = NULL;
    op_program **programs = NULL;
    op_layer *layers = NULL;
    TRY(arena_new(a, 1, &m));
    TRY(arena_new(a, whole->program_count, &programs));
    *m = *whole;
    for (int32_t i = 0; i < whole->program_count; i++) {
        context_pass c = {.a = a, .how = how, .whole = whole->programs[i]};
        TRY(program_cut(&c));
        programs[i] = c.p;
    }
    m->programs = programs;
    TRY(op_layers_widen(a, whole, programs, &layers));
    m->layers = layers;
    *local = m;
    return ST_OK;
}
