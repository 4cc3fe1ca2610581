// Context parallelism as a pass over programs (context.h): it replaces attention nodes.
#include "op/pass/context_internal.h"
#include "op/zigzag.h"

#include <stdio.h>
#include <string.h>

static int32_t terms_of(const context_pass *c)
{
    return c->how->ordered ? c->how->shards / c->ways : 1;
}

status context_tensor(context_pass *c, const char *name, dtype type, int64_t rows, int64_t columns,
                      tensor_id *out)
{
    char full[OP_NAME_BYTES];
    op_name_unique(c->p, "", name, full);
    return op_tensor_make(c->p, full, ROLE_ACTIVATION, type, 2, extent_tokens(rows),
                          extent_of(columns), out);
}

status context_pair(context_pass *c, tensor_id k, tensor_id v, const char *name, int64_t ranks,
                    dtype type, key_values *out)
{
    char full[OP_NAME_BYTES], view[OP_NAME_BYTES];
    const int64_t rows = op_at(c->p, k)->dims[0].scale, columns = op_at(c->p, k)->dims[1].scale;
    const int64_t more = op_at(c->p, v)->dims[1].scale;
    (void)snprintf(full, sizeof(full), "%s", name);
    TRY(context_tensor(c, full, type, ranks * rows, columns + more, &out->both));
    (void)snprintf(full, sizeof(full), "%s", op_at(c->p, out->both)->name);
    (void)snprintf(view, sizeof(view), "%.40s.k", full);
    TRY(op_view(c->p, out->both, view, 0, columns, &out->k));
    (void)snprintf(view, sizeof(view), "%.40s.v", full);
    return op_view(c->p, out->both, view, columns, more, &out->v);
}

status context_sum(context_pass *c, op_list list, tensor_id a, tensor_id b, tensor_id to)
{
    op_node sum = op_node_of(OP_SUM);
    sum.in[0] = a;
    sum.in[1] = b;
    sum.out[0] = to;
    return op_append(c->p, list, &sum, 0);
}

// ---- keys and values gathered -------------------------------------------------------------------

// Gathers the keys and values that are operands first, first + 1 of the node; does nothing with one
// rank.
static status gather_push(context_pass *c, op_list list, const op_node *node, int first,
                          const char *name, key_values *all)
{
    key_values mine;
    const tensor_id k = node->in[first], v = node->in[first + 1];
    const dtype type = op_at(c->p, k)->type;
    *all = (key_values){TENSOR_NONE, k, v};
    if (c->ways == 1) return ST_OK;
    char whole[OP_NAME_BYTES];
    (void)snprintf(whole, sizeof(whole), "%.40s_all", name);
    TRY(context_pair(c, k, v, name, 1, type, &mine));
    TRY(context_pair(c, k, v, whole, c->ways, type, all));
    TRY(context_copy(c, list, k, mine.k));
    TRY(context_copy(c, list, v, mine.v));
    op_node gather = op_node_of(OP_ALL_GATHER);
    gather.attrs.axis = AXIS_CP;
    gather.attrs.zigzag = true;
    gather.piece.cp_turns = c->how->turns;
    gather.in[0] = mine.both;
    gather.out[0] = all->both;
    return op_append(c->p, list, &gather, 0);
}

static void rows_set(const context_pass *c, op_piece *piece)
{
    if (c->ways == 1) return;
    piece->cp_ways = c->ways;
    piece->cp_at = c->at;
    piece->cp_turns = c->how->turns;
}

// The same for operations on the rows as the batch has them, which are cut among all ranks, also
// where attention exchanges rows for heads.
static void rows_all_set(const context_pass *c, op_piece *piece)
{
    piece->cp_ways = c->how->ways;
    piece->cp_at = c->how->at;
    piece->cp_turns = c->how->turns;
}

status context_attend(context_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    key_values all;
    if (c->ways > 1 && c->how->ring) return context_ring_forward(c, list, node);
    TRY(gather_push(c, list, node, 1, "kv", &all));
    rows_set(c, &local.piece);
    local.in[1] = all.k;
    local.in[2] = all.v;
    return op_append(c->p, list, &local, 0);
}

// Sums dk or dv over the terms of this rank and over all ranks.
static status sum_push(context_pass *c, const key_values *terms, int32_t count, bool of_v,
                       tensor_id out)
{
    op_node sum = op_node_of(OP_SUM);
    for (int32_t i = 0; i < count; i++) sum.in[i] = of_v ? terms[i].v : terms[i].k;
    sum.out[0] = out;
    return op_append(c->p, OP_BACKWARD_INPUT, &sum, 0);
}

// Appends one term for the queries of each shard, or one for all queries.
static status terms_push(context_pass *c, const op_node *node, const key_values *all,
                         key_values terms[OP_CONTEXT_MAX_TERMS])
{
    const int32_t count = terms_of(c);
    const dtype type = op_at(c->p, node->in[2])->type;
    for (int32_t i = 0; i < count; i++) {
        op_node term = *node;
        TRY(context_pair(c, node->in[2], node->in[3], "d_kv", c->ways, type, &terms[i]));
        rows_set(c, &term.piece);
        if (c->how->ordered) {
            term.piece.shards = c->how->shards;
            term.piece.first_shard = c->at * count + i;
        }
        term.in[2] = all->k;
        term.in[3] = all->v;
        term.out[1] = terms[i].k;
        term.out[2] = terms[i].v;
        TRY(op_append(c->p, OP_BACKWARD_INPUT, &term, 0));
    }
    return ST_OK;
}

status context_attend_bwd(context_pass *c, const op_node *node)
{
    key_values all, terms[OP_CONTEXT_MAX_TERMS], sum;
    int32_t count = terms_of(c);
    const key_values *from = terms;
    if (c->ways > 1 && c->how->ring) return context_ring_backward(c, node);
    if (c->ways == 1 && !c->how->ordered) { // all keys are here
        op_node local = *node;
        return op_append(c->p, OP_BACKWARD_INPUT, &local, 0);
    }
    TRY(gather_push(c, OP_BACKWARD_INPUT, node, 2, "kv_again", &all));
    TRY(terms_push(c, node, &all, terms));
    if (c->ways > 1) {
        op_node scatter = op_node_of(OP_REDUCE_SCATTER);
        const dtype type = op_at(c->p, node->in[2])->type;
        TRY(context_pair(c, node->in[2], node->in[3], "d_kv_sum", 1, type, &sum));
        scatter.attrs.axis = AXIS_CP;
        scatter.attrs.zigzag = true;
        scatter.piece.cp_turns = c->how->turns;
        for (int32_t i = 0; i < count; i++) scatter.in[i] = terms[i].both;
        scatter.out[0] = sum.both;
        if (c->how->ordered) {
            scatter.piece.shards = c->how->shards;
            scatter.piece.first_shard = c->at * count;
        }
        TRY(op_append(c->p, OP_BACKWARD_INPUT, &scatter, 0));
        from = &sum;
        count = 1;
    }
    TRY(sum_push(c, from, count, false, node->out[1]));
    return sum_push(c, from, count, true, node->out[2]);
}

// ---- the pass -----------------------------------------------------------------------------------

// A loss that is even over whole sequences counts the choices of all of a sequence's rows: those in
// operand `own` of each rank, or in operand `whole`, if tp cuts the rows too.
static status choices_add(context_pass *c, op_list list, int own, int whole, op_node *local)
{
    if (!op_balances_sequences(&local->attrs) || c->how->ways == 1) return ST_OK;
    op_node gather = op_node_of(OP_ALL_GATHER);
    gather.attrs.axis = AXIS_CP;
    gather.attrs.zigzag = true;
    gather.piece.cp_turns = c->how->turns;
    gather.piece.cp_ways = c->how->ways;
    gather.in[0] = local->in[whole] != TENSOR_NONE ? local->in[whole] : local->in[own];
    const op_tensor ids = *op_at(c->p, gather.in[0]);
    TRY(context_tensor(c, "choices", ids.type, c->how->ways * ids.dims[0].scale, ids.dims[1].scale,
                       &gather.out[0]));
    local->in[whole] = gather.out[0];
    return op_append(c->p, list, &gather, 0);
}

// Gathers one number of each row of all ranks, whether or not they distribute heads.
static status numbers_gather(context_pass *c, op_list list, const char *name, tensor_id *t)
{
    op_node gather = op_node_of(OP_ALL_GATHER);
    const op_tensor own = *op_at(c->p, *t);
    char full[OP_NAME_BYTES];
    gather.attrs.axis = AXIS_CP;
    gather.attrs.zigzag = true;
    gather.piece.cp_turns = c->how->turns;
    gather.piece.cp_ways = c->how->ways;
    gather.in[0] = *t;
    op_name_unique(c->p, "", name, full);
    TRY(op_tensor_make(c->p, full, ROLE_ACTIVATION, own.type, 1,
                       extent_tokens(c->how->ways * own.dims[0].scale), extent_of(1),
                       &gather.out[0]));
    *t = gather.out[0];
    return op_append(c->p, list, &gather, 0);
}

// The losses of answers are functions of whole sequences: each rank computes those of all of its
// rows, with the same numbers, and keeps what belongs to its rows.
static status objective_push(context_pass *c, op_list list, op_node *local)
{
    TRY(numbers_gather(c, list, "all_losses", &local->in[0]));
    rows_all_set(c, &local->piece);
    return op_append(c->p, list, local, 0);
}

static status node_push(context_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    if (node->code == OP_OBJECTIVE && c->how->ways > 1) return objective_push(c, list, &local);
    if (node->code == OP_ATTENTION) {
        return c->heads > 1 ? context_heads_forward(c, list, node) : context_attend(c, list, node);
    }
    if (node->code == OP_ATTENTION_BWD) {
        return c->heads > 1 ? context_heads_backward(c, node) : context_attend_bwd(c, node);
    }
    if (node->code == OP_DROPOUT && c->how->ways > 1) rows_all_set(c, &local.piece);
    if (node->code == OP_ROUTE_BWD) TRY(choices_add(c, list, 2, 4, &local));
    const bool has_losses = node->code == OP_STEP_ROUTES && node->in[2] != TENSOR_NONE;
    if (has_losses) TRY(choices_add(c, list, 0, 3, &local));
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

// Finds the batch tensors with the documents and what is known of them, which keep all rows.
static void documents_widen(context_pass *c)
{
    static const struct {
        op_code code;
        int operand;
    } readers[] = {{OP_ATTENTION, 3}, {OP_ATTENTION_BWD, 6}, {OP_OBJECTIVE, 1}, {OP_OBJECTIVE, 2}};
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
    TRY(arena_new(c->a, c->whole->tensor_count + 1, &c->lse_of));
    memset(c->lse_of, -1, (size_t)c->whole->tensor_count * sizeof(*c->lse_of));
    documents_widen(c);
    for (int list = 0; list < OP_LIST_COUNT; list++) TRY(list_walk(c, (op_list)list));
    return ST_OK;
}

static status how_check(const op_context *how)
{
    const int32_t heads = how->heads > 1 ? how->heads : 1;
    TRY(op_ways_check("cp", how->ways, how->at, how->ordered, how->shards,
                      heads * OP_CONTEXT_MAX_TERMS));
    if (how->ways % heads != 0) {
        return fail(ST_CONFIG_CONFLICT, "layout.cp_heads = %d does not divide layout.cp = %d",
                    heads, how->ways);
    }
    if (how->turns < 0 || how->turns > ZIGZAG_MAX_TURNS || (how->ordered && how->turns > 1)) {
        return fail(ST_INTERNAL, "%d turns", how->turns);
    }
    if (how->ordered && how->ring) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.cp_ring = yes: a ring adds in the order of its ranks, strict order "
                    "asks for layout.cp_ring = no");
    }
    const int32_t terms = how->shards / (how->ways / heads);
    if (!how->ordered || terms <= OP_CONTEXT_MAX_TERMS) return ST_OK;
    return fail(ST_CONFIG_RANGE,
                "determinism.cp_shards = %d is more than %d for each rank of layout.cp = %d over "
                "layout.cp_heads = %d",
                how->shards, OP_CONTEXT_MAX_TERMS, how->ways, heads);
}

status op_model_context(arena *a, op_model *whole, const op_context *how, op_model **local)
{
    TRY(how_check(how));
    *local = whole;
    if (how->ways == 1 && (!how->ordered || how->shards == 1)) return ST_OK;
    op_model *m = NULL;
    op_program **programs = NULL;
    op_layer *layers = NULL;
    TRY(arena_new(a, 1, &m));
    TRY(arena_new(a, whole->program_count, &programs));
    *m = *whole;
    const int32_t heads = how->heads > 1 ? how->heads : 1;
    for (int32_t i = 0; i < whole->program_count; i++) {
        context_pass c = {.a = a,
                          .how = how,
                          .whole = whole->programs[i],
                          .ways = how->ways / heads,
                          .at = how->at / heads,
                          .heads = heads,
                          .head_at = how->at % heads};
        TRY(program_cut(&c));
        programs[i] = c.p;
    }
    m->programs = programs;
    TRY(op_layers_widen(a, whole, programs, &layers));
    m->layers = layers;
    *local = m;
    return ST_OK;
}
