// The verifier: every gradient is summed exactly once.
//
// The verifier walks the step and tracks the set of terms in the bytes of every accumulator. A node
// of a layer adds the term of its use of the weight for the sequences of its action. A sum over
// ranks joins the terms of its members. An optimizer, and the norm, must find every use of the
// weight on every sequence of the global batch exactly once. The same holds for tokens and losses
// when the step is decided, and for the elements of the norm. Optimizers and gathers must write
// every byte of weights and states exactly once. Every byte of a gathered weight (ZeRO-3) that a
// layer reads must belong to that weight and not be updated yet.
//
// In strict order the terms also have an order: a shard is a left-to-right sum, nodes of the tree
// over shards are joined left with right, and complete sums of uses in the order of their backward.
#include "plan/verify/verify_sums.h"

#include <string.h>

// ---- sources of terms ---------------------------------------------------------------------------

static status sources_make(sums_walk *w)
{
    const op_model *m = w->v->facts[0].p->model;
    int64_t capacity = 0;
    w->model = m;
    TRY(arena_new(w->v->a, m->layer_count + 1, &w->first_source));
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        w->first_source[i] = w->source_count;
        for (tensor_id t = 0; t < program->tensor_count; t++) {
            const op_tensor *local = &program->tensors[t];
            if (local->role != ROLE_WEIGHT_GRAD || local->view_of != TENSOR_NONE) continue;
            TRY(arena_grow(w->v->a, (void **)&w->sources, &capacity, w->source_count + 1,
                           (int64_t)sizeof(verify_source)));
            w->sources[w->source_count++] = (verify_source){i, m->layers[i].weight_of[local->of]};
        }
    }
    return ST_OK;
}

static int32_t source_of(const sums_walk *w, const op_program *program, int32_t layer, tensor_id t)
{
    int32_t source = w->first_source[layer];
    for (tensor_id i = 0; i < t; i++) {
        const op_tensor *local = &program->tensors[i];
        if (local->role == ROLE_WEIGHT_GRAD && local->view_of == TENSOR_NONE) source++;
    }
    return source;
}

static status twice_fail(const sums_walk *w, const verify_facts *f, int32_t action,
                         const char *tensor, int32_t maker, const verify_term *twice)
{
    char name[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    return fail(ST_BROKEN_PLAN,
                "%s adds sequences [%lld, %lld) of %s to %s a second time; they were there from %s",
                verify_name(w->v, f->rank, action, name), verify_from(f, twice->begin),
                verify_upto(f, twice->end), verify_use_name(w, twice->source), tensor,
                verify_name(w->v, f->rank, maker, other));
}

static status order_fail(const sums_walk *w, const verify_facts *f, int32_t action,
                         const char *tensor, const verify_value *value)
{
    char name[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    return fail(ST_BROKEN_PLAN,
                "%s breaks the strict order of %s after %s: a shard is added from left to right, "
                "shards are a tree, uses come in the order of their backward",
                verify_name(w->v, f->rank, action, name), tensor,
                verify_name(w->v, f->rank, value->maker, other));
}

// ---- actions of one rank ------------------------------------------------------------------------

// Returns an accumulator as one value; NULL if it has none.
static verify_value *value_whole(const sums_walk *w, const verify_facts *f, int32_t tensor)
{
    verify_values *values = verify_held(w, f, tensor);
    return values->count == 1 ? &values->rows[0] : NULL;
}

// Adds the terms of a node to an accumulator, which starts anew or continues.
static status terms_add(sums_walk *w, const verify_facts *f, int32_t action, int32_t tensor,
                        const verify_terms *terms)
{
    const plan *p = f->p;
    const bool starts = !p->actions[action].accumulate;
    const char *name_of = verify_tensor(f, tensor)->name;
    char name[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    verify_value *old = value_whole(w, f, tensor);
    verify_value value = {.end = verify_tensor(f, tensor)->bytes, .maker = action, .terms = *terms};
    verify_term twice = {0};
    if (starts && old != NULL && old->terms.count > 0 && !old->taken) {
        return fail(ST_BROKEN_PLAN, "%s starts %s anew, and what %s put there is lost",
                    verify_name(w->v, f->rank, action, name), name_of,
                    verify_name(w->v, f->rank, old->maker, other));
    }
    if (!starts && (old == NULL || old->taken)) {
        return fail(ST_BROKEN_PLAN, "%s continues %s, %s", verify_name(w->v, f->rank, action, name),
                    name_of,
                    old == NULL ? "which no action has started" : "whose sum has been taken");
    }
    if (p->strict &&
        (terms->count != 1 ||
         !verify_shard_is_right(f, old != NULL ? &old->terms : NULL, &terms->rows[0], starts))) {
        const verify_value none = {.maker = action};
        return order_fail(w, f, action, name_of, old != NULL ? old : &none);
    }
    if (!starts) {
        TRY(verify_terms_add(w->v->a, &old->terms, terms, &value.terms, &twice));
        if (twice.source >= 0) return twice_fail(w, f, action, name_of, old->maker, &twice);
    }
    return verify_values_set(w->v->a, verify_held(w, f, tensor), &value);
}

// Adds source to target, range by range.
static status tree_add(sums_walk *w, const verify_facts *f, int32_t action, verify_bytes target,
                       verify_bytes source)
{
    verify_values *to = verify_held(w, f, target.tensor), *from = verify_held(w, f, source.tensor);
    const int64_t t0 = target.begin - f->where[target.tensor].begin;
    const int64_t s0 = source.begin - f->where[source.tensor].begin;
    const int64_t bytes = min_i64(target.bytes, source.bytes);
    const char *name_of = verify_tensor(f, target.tensor)->name;
    char name[VERIFY_NAME_BYTES];
    int64_t first = 0, last = 0;
    TRY(verify_values_cut(w->v->a, to, t0, t0 + bytes, &first, &last));
    for (int64_t i = first; i < last; i++) { // cuts the source where the target is cut
        int64_t a = 0, b = 0;
        const int64_t shift = s0 - t0;
        TRY(verify_values_cut(w->v->a, from, to->rows[i].begin + shift, to->rows[i].end + shift, &a,
                              &b));
    }
    int64_t s_first = 0, s_last = 0;
    TRY(verify_values_cut(w->v->a, from, s0, s0 + bytes, &s_first, &s_last));
    if (s_first == s_last || first == last) {
        return fail(ST_BROKEN_PLAN, "%s adds to %s, but one of the two has no terms",
                    verify_name(w->v, f->rank, action, name), name_of);
    }
    for (int64_t k = s_first; k < s_last; k++) {
        verify_value *part = &from->rows[k];
        verify_term twice = {0};
        TRY(verify_values_cut(w->v->a, to, part->begin - s0 + t0, part->end - s0 + t0, &first,
                              &last));
        if (last - first != 1)
            continue; // there is no sum to add to: a later check finds it missing
        verify_value *sum = &to->rows[first];
        if (f->p->strict && !verify_are_counts(w, &sum->terms) &&
            !verify_order_is_right(f, &sum->terms, &part->terms)) {
            return order_fail(w, f, action, name_of, sum);
        }
        const int32_t maker = sum->maker;
        TRY(verify_terms_add(w->v->a, &sum->terms, &part->terms, &sum->terms, &twice));
        if (twice.source >= 0) return twice_fail(w, f, action, name_of, maker, &twice);
        sum->maker = action;
        sum->taken = false;
        part->taken = true;
    }
    return ST_OK;
}

// Checks that every byte of a gradient has all uses of the weight on all sequences, once.
static status sum_is_whole(sums_walk *w, const verify_facts *f, int32_t action, verify_bytes grad)
{
    verify_values *values = verify_held(w, f, grad.tensor);
    const plan_tensor *t = verify_tensor(f, grad.tensor);
    const int64_t begin = grad.begin - f->where[grad.tensor].begin;
    const int64_t end = min_i64(begin + grad.bytes, max_i64(begin, plan_tensor_held_bytes(t)));
    char name[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    const int64_t all = f->p->sequences * verify_unit(f);
    int64_t reached = begin, first = 0, last = 0;
    TRY(verify_values_cut(w->v->a, values, begin, end, &first, &last));
    for (int64_t i = first; i < last && values->rows[i].begin == reached; i++) {
        verify_value *value = &values->rows[i];
        reached = value->end;
        value->taken = true;
        for (int32_t s = 0; s < w->source_count; s++) {
            if (w->sources[s].weight != t->weight) continue;
            for (int32_t cell = 0; cell < verify_cells(f, t->weight); cell++) {
                verify_term lack = {0};
                if (!verify_terms_lack(&value->terms, s, cell, 0, all, &lack)) continue;
                return fail(ST_BROKEN_PLAN,
                            "%s takes %s, which lacks sequences [%lld, %lld) of %s; it was made by "
                            "%s",
                            verify_name(w->v, f->rank, action, name), t->name,
                            verify_from(f, lack.begin), verify_upto(f, lack.end),
                            verify_use_name(w, s), verify_name(w->v, f->rank, value->maker, other));
            }
        }
    }
    if (reached >= end) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s takes %s, whose bytes from %lld on hold no gradient",
                verify_name(w->v, f->rank, action, name), t->name, (long long)reached);
}

// ---- the end of a step --------------------------------------------------------------------------

static status step_add(sums_walk *w, const verify_facts *f, int32_t action, int sum,
                       const verify_term *term)
{
    static const char *const words[STEP_SUMS] = {"the count of tokens", "the loss", "the norm",
                                                 "the loads of experts"};
    char name[VERIFY_NAME_BYTES];
    verify_terms *terms = &w->ranks[f->rank].step[sum];
    verify_term *own = NULL, twice = {0};
    TRY(arena_new(w->v->a, 1, &own));
    *own = *term;
    const verify_terms one = {own, 1};
    TRY(verify_terms_add(w->v->a, terms, &one, terms, &twice));
    if (twice.source < 0) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s adds %s [%lld, %lld) to %s a second time",
                verify_name(w->v, f->rank, action, name),
                sum == STEP_NORM ? "elements" : "sequences",
                sum == STEP_NORM ? (long long)twice.begin : verify_from(f, twice.begin),
                sum == STEP_NORM ? (long long)twice.end : verify_upto(f, twice.end), words[sum]);
}

static status loss_add(sums_walk *w, const verify_facts *f, int32_t action)
{
    verify_term terms[VERIFY_MAX_TERMS];
    const int count = verify_action_terms(f, action, -1, 0, terms);
    for (int i = 0; i < count; i++) {
        TRY(step_add(w, f, action, STEP_TOKENS, &terms[i]));
        TRY(step_add(w, f, action, STEP_LOSS, &terms[i]));
    }
    return ST_OK;
}

// Returns how many ranks of AXIS_TP count rows of their own; 1: all have the same rows, and one of
// them counts.
static int32_t routes_ways(const verify_facts *f, const op_program *p, const op_node *node)
{
    const bool is_cut = p->tensors[node->in[0]].dims[0].symbol == EXTENT_TOKENS_CUT;
    return is_cut ? plan_mesh_size(&f->at, AXIS_TP) : 1;
}

// Adds the loads of a layer's experts by some sequences; their source is the layer.
static status loads_add(sums_walk *w, const verify_facts *f, int32_t action, const plan_binding *b,
                        const op_node *node)
{
    verify_term terms[VERIFY_MAX_TERMS];
    const int32_t ways = routes_ways(f, b->program, node);
    const int32_t layer = f->p->model->layers[b->layer].index;
    const int count = verify_action_terms(f, action, -1, layer, terms);
    for (int i = 0; i < count; i++) {
        terms[i].cell = terms[i].cell * ways + (ways > 1 ? f->at.at[AXIS_TP] : 0);
        TRY(step_add(w, f, action, STEP_LOADS, &terms[i]));
    }
    return ST_OK;
}

static const op_node *routes_of(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (op_adds_loads(node->code)) return node;
    }
    return NULL;
}

// Checks that the loads of each layer are those of the whole batch.
static status loads_are_whole(const sums_walk *w, const verify_facts *f, int32_t action)
{
    char name[VERIFY_NAME_BYTES];
    verify_term lack = {0};
    const op_model *m = f->p->model;
    const int64_t all = f->p->sequences * verify_unit(f);
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *p = m->programs[m->layers[i].program];
        const op_node *node = routes_of(p);
        if (node == NULL) continue;
        const int32_t cells = verify_cells(f, -1) * routes_ways(f, p, node);
        for (int32_t cell = 0; cell < cells; cell++) {
            if (!verify_terms_lack(&w->ranks[f->rank].step[STEP_LOADS], m->layers[i].index, cell, 0,
                                   all, &lack)) {
                continue;
            }
            return fail(ST_BROKEN_PLAN,
                        "%s: the loads of experts of %s lack sequences [%lld, %lld)",
                        verify_name(w->v, f->rank, action, name), m->layers[i].name,
                        verify_from(f, lack.begin), verify_upto(f, lack.end));
        }
    }
    return ST_OK;
}

static int32_t norm_cell(const verify_facts *f, int32_t weight)
{
    const op_weight *w = &f->p->model->weights[weight];
    const int32_t tp = w->ways > 1 ? plan_mesh_size(&f->at, AXIS_TP) : 1;
    const int32_t at = tp > 1 ? f->at.at[AXIS_TP] : 0;
    return w->expert_ways > 1 ? plan_ep_place(&f->at) * tp + at : at;
}

// Counts the ranks that each count other elements of a weight.
static int32_t norm_cells(const verify_facts *f, const op_weight *w)
{
    const int32_t tp = w->ways > 1 ? plan_mesh_size(&f->at, AXIS_TP) : 1;
    return w->expert_ways > 1 ? w->expert_ways * tp : tp;
}

// A norm may be computed in pieces: all columns of a range of rows at once, or any elements of a
// vector.
static status norm_add(sums_walk *w, const verify_facts *f, int32_t index, verify_bytes grad)
{
    const plan_action *action = &f->p->actions[index];
    const plan_binding *b = &f->p->bindings[action->binding];
    const op_node *nodes = &b->program->lists[action->list].nodes[action->ops_begin];
    const plan_tensor *t = verify_tensor(f, grad.tensor);
    const op_weight *weight = &f->p->model->weights[t->weight];
    const bool vector = t->ndim == 1;
    const int64_t width = dtype_bytes(t->type), all = vector ? 1 : t->dims[1];
    const int64_t before = t->piece_rows * plan_weight_place(&f->at, weight) * all; // other ranks'
    const int64_t from = before + verify_first(f, grad) / width;
    verify_term term = {.source = t->weight, .cell = norm_cell(f, t->weight)};
    char name[VERIFY_NAME_BYTES];
    int64_t reached = 0, of_row = 0;
    for (int32_t i = 0; i < action->ops_count; i++) { // in the order of the list
        const op_tensor *view = &b->program->tensors[nodes[i].in[0]];
        const op_owned owned = op_owner(b->program, nodes[i].in[0]);
        const int64_t column = owned.column, row = owned.row;
        const int64_t rows = view->dims[0].scale, columns = view->dims[view->ndim - 1].scale;
        if (!vector && column != (reached == all ? 0 : reached)) break;
        if (column == 0) of_row = row;
        if (row != of_row) break;
        reached = column + columns;
        if (!vector && reached < all) continue;
        term.begin = from + (vector ? column : row * all);
        term.end =
            min_i64(term.begin + (vector ? columns : rows * all), weight->rows * weight->columns);
        TRY(step_add(w, f, index, STEP_NORM, &term));
    }
    if (vector || reached == all) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s: the norm takes columns up to %lld of %lld, then others",
                verify_name(w->v, f->rank, index, name), (long long)reached, (long long)all);
}

static status loss_is_whole(const sums_walk *w, const verify_facts *f, int32_t action)
{
    char name[VERIFY_NAME_BYTES];
    verify_term lack = {0};
    const rank_sums *sums = &w->ranks[f->rank];
    const int64_t all = f->p->sequences * verify_unit(f);
    if (!sums->has_loss) return ST_OK;
    for (int sum = STEP_TOKENS; sum <= STEP_LOSS; sum++) {
        for (int32_t cell = 0; cell < verify_cells(f, -1); cell++) {
            if (!verify_terms_lack(&sums->step[sum], 0, cell, 0, all, &lack)) continue;
            return fail(ST_BROKEN_PLAN, "%s: %s lacks those of sequences [%lld, %lld)",
                        verify_name(w->v, f->rank, action, name),
                        sum == STEP_TOKENS ? "the count of tokens" : "the loss",
                        verify_from(f, lack.begin), verify_upto(f, lack.end));
        }
    }
    return ST_OK;
}

// Checks the elements of a weight that rank `cell` of tp counts, part by part. Other ranks may have
// a row or column more or less; an earlier check saw whether a rank counted all of its own.
static bool norm_lacks(const sums_walk *w, const verify_facts *f, int32_t index, int32_t cell,
                       verify_term *lack)
{
    const op_weight *weight = &f->p->model->weights[index];
    const verify_terms *norm = &w->ranks[f->rank].step[STEP_NORM];
    const bool own = cell == norm_cell(f, index);
    for (int i = 0; i < weight->part_count; i++) {
        int64_t rows = 0;
        const int64_t share = op_part_share(weight, i, cell, &rows);
        const int64_t begin = (weight->parts[i].row_begin + share) * weight->columns;
        const int64_t end = own ? begin + rows * weight->columns : begin + 1;
        if (rows > 0 && verify_terms_lack(norm, index, cell, begin, end, lack)) return true;
        if (!own) return false;
    }
    return false;
}

static status norm_is_whole(const sums_walk *w, const verify_facts *f, int32_t action)
{
    char name[VERIFY_NAME_BYTES];
    verify_term lack = {0};
    for (int32_t i = 0; i < f->p->model->weight_count; i++) {
        const op_weight *weight = &f->p->model->weights[i];
        const int32_t cells = norm_cells(f, weight);
        const bool counts = !weight->frozen && !weight->is_history;
        for (int32_t cell = 0; cell < cells && counts; cell++) {
            if (!norm_lacks(w, f, i, cell, &lack)) continue;
            return fail(ST_BROKEN_PLAN, "%s: the norm lacks elements [%lld, %lld) of %s",
                        verify_name(w->v, f->rank, action, name), (long long)lack.begin,
                        (long long)lack.end, weight->name);
        }
    }
    return ST_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

static bool operand_bytes(const verify_facts *f, const plan_binding *b, tensor_id t,
                          verify_bytes *out)
{
    if (t == TENSOR_NONE) return false;
    const int32_t ref = b->tensor[op_owner(b->program, t).id];
    if (ref == -1) return false;
    verify_resolve(f, ref, &out->tensor, &out->begin, &out->bytes);
    return true;
}

// Checks the gradients that an optimizer's node reads, and records the bytes that it updates.
static status update_walk(sums_walk *w, const verify_facts *f, int32_t action,
                          const plan_binding *b, const op_node *node)
{
    const plan_action *a = &f->p->actions[action];
    const bool is_first = node == &b->program->lists[a->list].nodes[a->ops_begin];
    char name[VERIFY_NAME_BYTES];
    for (int k = 0; k < OP_MAX_IN; k++) {
        verify_bytes in = {0};
        if (!operand_bytes(f, b, node->in[k], &in) || !verify_accumulates(f, in.tensor)) continue;
        if (op_kind_of(node->code)->takes_grad &&
            verify_tensor(f, in.tensor)->weight != node->attrs.tensor_index) {
            return fail(ST_BROKEN_PLAN, "%s takes %s for weight %d of the model",
                        verify_name(w->v, f->rank, action, name), verify_tensor(f, in.tensor)->name,
                        node->attrs.tensor_index);
        }
        TRY(sum_is_whole(w, f, action, in));
        if (op_adds_norm(node->code) && is_first) TRY(norm_add(w, f, action, in));
        w->v->out->sums += is_first ? 1 : 0;
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        verify_bytes out = {0};
        if (!operand_bytes(f, b, node->out[k], &out) || out.tensor >= f->run_count) continue;
        const plan_tensor *t = verify_tensor(f, out.tensor);
        if (t->role == ROLE_STEP) continue;
        const int64_t begin = out.begin - f->where[out.tensor].begin;
        const int64_t row = t->ndim == 1 ? 1 : t->dims[1];
        verify_value value = {.begin = begin,
                              .end = begin + out.bytes,
                              .maker = action,
                              .weight = t->weight,
                              .kind = (int32_t)t->kind,
                              .shift = b->first_row * row * dtype_bytes(t->type) - begin,
                              .updated = true};
        int64_t first = 0, last = 0;
        verify_values *values = verify_held(w, f, out.tensor);
        TRY(verify_values_cut(w->v->a, values, value.begin, value.end, &first, &last));
        if (first != last) {
            char other[VERIFY_NAME_BYTES];
            return fail(ST_BROKEN_PLAN, "%s updates %s, which %s has updated already",
                        verify_name(w->v, f->rank, action, name), t->name,
                        verify_name(w->v, f->rank, values->rows[first].maker, other));
        }
        TRY(verify_values_set(w->v->a, values, &value));
    }
    return ST_OK;
}

// Checks a gathered weight (ZeRO-3): every byte belongs to it and is from the beginning of the
// step.
static status gathered_check(const sums_walk *w, const verify_facts *f, int32_t action,
                             verify_bytes in)
{
    const plan_tensor *t = verify_tensor(f, in.tensor);
    const verify_values *held = verify_held(w, f, in.tensor);
    char name[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    const int64_t bytes = plan_tensor_held_bytes(t);
    int64_t reached = 0;
    for (int64_t k = 0; k < held->count && held->rows[k].begin <= reached && reached < bytes; k++) {
        const verify_value *v = &held->rows[k];
        reached = max_i64(reached, v->end);
        if (v->weight == t->weight && v->shift == 0 && !v->updated) continue;
        return fail(ST_BROKEN_PLAN, "%s reads %s, and bytes [%lld, %lld) of it are %s of %s, by %s",
                    verify_name(w->v, f->rank, action, name), t->name, (long long)v->begin,
                    (long long)v->end,
                    v->updated      ? "updated ones"
                    : v->shift != 0 ? "other rows"
                                    : "those",
                    f->p->model->weights[v->weight].name,
                    verify_name(w->v, f->rank, v->maker, other));
    }
    if (reached >= bytes) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s reads %s, and no gather of the step brings bytes [%lld, %lld)",
                verify_name(w->v, f->rank, action, name), t->name, (long long)reached,
                (long long)bytes);
}

static status layer_walk(sums_walk *w, const verify_facts *f, int32_t action, const plan_binding *b,
                         const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    for (int k = 0; k < OP_MAX_IN; k++) {
        verify_bytes in = {0};
        if (!operand_bytes(f, b, node->in[k], &in) || in.tensor < f->run_count) continue;
        const plan_tensor *t = verify_tensor(f, in.tensor);
        if (t->is_unsharded && t->kind == PLAN_BYTES_WEIGHTS) TRY(gathered_check(w, f, action, in));
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        verify_bytes out = {0}, in = {0};
        if ((kind->accumulates >> k & 1u) == 0 || !operand_bytes(f, b, node->out[k], &out))
            continue;
        if (!verify_accumulates(f, out.tensor)) continue;
        if (kind->merges_sums) {
            if (operand_bytes(f, b, node->in[0], &in)) TRY(tree_add(w, f, action, out, in));
            continue;
        }
        verify_term terms[VERIFY_MAX_TERMS], *kept = NULL;
        const int32_t source = source_of(w, b->program, b->layer, node->out[k]);
        const int32_t weight = verify_tensor(f, out.tensor)->weight;
        const int count = verify_action_terms(f, action, weight, source, terms);
        TRY(arena_new(w->v->a, count, &kept));
        memcpy(kept, terms, (size_t)count * sizeof(*kept));
        const verify_terms mine = {kept, count};
        TRY(terms_add(w, f, action, out.tensor, &mine));
    }
    if (op_adds_loads(node->code)) return loads_add(w, f, action, b, node);
    return op_adds_loss(node->code) ? loss_add(w, f, action) : ST_OK;
}

static status action_walk(sums_walk *w, const verify_facts *f, int32_t index)
{
    const plan_action *action = &f->p->actions[index];
    if (action->kind == ACTION_READBACK && f->p->purpose == PURPOSE_EVALUATE) {
        return loss_is_whole(w, f, index);
    }
    if (action->kind != ACTION_COMPUTE && action->kind != ACTION_OPTIMIZER) return ST_OK;
    const plan_binding *b = &f->p->bindings[action->binding];
    for (int32_t i = 0; i < action->ops_count; i++) {
        const op_node *node = &b->program->lists[action->list].nodes[action->ops_begin + i];
        if (action->kind == ACTION_COMPUTE) {
            TRY(layer_walk(w, f, index, b, node));
            continue;
        }
        if (op_decides(node->code)) {
            TRY(loss_is_whole(w, f, index));
            TRY(norm_is_whole(w, f, index));
            TRY(loads_are_whole(w, f, index));
        }
        TRY(update_walk(w, f, index, b, node));
    }
    return ST_OK;
}

// ---- the entry ----------------------------------------------------------------------------------

static status value_is_own(const sums_walk *w, const verify_facts *f, const plan_tensor *t,
                           const verify_value *value)
{
    char name[VERIFY_NAME_BYTES];
    // A piece is shifted by the rows before it.
    const bool in_place = t->piece_rows > 0 || value->shift == 0;
    if (value->weight == t->weight && value->kind == (int32_t)t->kind && in_place) return ST_OK;
    return fail(ST_BROKEN_PLAN,
                "%s brings bytes [%lld, %lld) of %s, and they are those of %s of %s",
                verify_name(w->v, f->rank, value->maker, name), (long long)value->begin,
                (long long)value->end, t->name,
                value->weight == t->weight && value->kind == (int32_t)t->kind
                    ? "other rows"
                    : plan_bytes_name((plan_kind_of_bytes)value->kind),
                f->p->model->weights[value->weight].name);
}

// Checks that no action of a step writes a frozen weight.
static status frozen_is_kept(const sums_walk *w, const verify_facts *f, int32_t tensor)
{
    const verify_values *values = verify_held(w, f, tensor);
    char name[VERIFY_NAME_BYTES];
    if (values->count == 0) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s writes %s, which is frozen",
                verify_name(w->v, f->rank, values->rows[0].maker, name),
                verify_tensor(f, tensor)->name);
}

// Checks that the step has updated every byte of a trained weight and of its optimizer's state.
static status update_is_whole(sums_walk *w, const verify_facts *f)
{
    for (int32_t i = 0; i < f->run_count; i++) {
        const plan_tensor *t = verify_tensor(f, i);
        const bool is_state = t->kind == PLAN_BYTES_MASTER || t->kind == PLAN_BYTES_MOMENTS;
        if (t->weight < 0 || (t->kind != PLAN_BYTES_WEIGHTS && !is_state)) continue;
        const op_weight *weight = &f->p->model->weights[t->weight];
        if (weight->frozen && !weight->balanced) {
            TRY(frozen_is_kept(w, f, i));
            continue;
        }
        const int64_t bytes = plan_tensor_held_bytes(t);
        int64_t reached = 0;
        const verify_values *values = verify_held(w, f, i);
        for (int64_t k = 0; k < values->count && values->rows[k].begin <= reached; k++) {
            reached = max_i64(reached, values->rows[k].end);
            TRY(value_is_own(w, f, t, &values->rows[k]));
        }
        if (reached >= bytes) continue;
        return fail(ST_BROKEN_PLAN,
                    "rank %d: no action of the step brings bytes [%lld, %lld) of %s up to date",
                    f->rank, (long long)reached, (long long)bytes, t->name);
    }
    return ST_OK;
}

static status rank_make(sums_walk *w, int32_t rank)
{
    const verify_facts *f = &w->v->facts[rank];
    const op_model *m = f->p->model;
    rank_sums *sums = &w->ranks[rank];
    TRY(arena_new(w->v->a, f->tensor_count + 1, &sums->held));
    for (int64_t i = 0; i < f->p->action_count; i++) {
        const plan_action *a = &f->p->actions[i];
        if (a->kind != ACTION_OPTIMIZER) continue;
        const op_program *program = f->p->bindings[a->binding].program;
        sums->decides |= op_decides(program->lists[a->list].nodes[a->ops_begin].code);
    }
    for (int32_t i = 0; i < m->program_count; i++) {
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            for (int64_t k = 0; k < m->programs[i]->lists[list].count; k++) {
                sums->has_loss |= op_adds_loss(m->programs[i]->lists[list].nodes[k].code);
            }
        }
    }
    for (int32_t i = w->v->result.base[rank]; i < w->v->result.base[rank + 1]; i++) {
        w->rank_of[i] = rank;
    }
    return ST_OK;
}

status verify_sums(verifier *v)
{
    const verify_result *r = &v->result;
    sums_walk w = {.v = v};
    TRY(arena_new(v->a, v->rank_count, &w.facts));
    TRY(arena_new(v->a, v->rank_count, &w.action));
    TRY(arena_new(v->a, v->rank_count, &w.ranks));
    TRY(arena_new(v->a, r->base[v->rank_count] + 1, &w.rank_of));
    TRY(sources_make(&w));
    for (int32_t i = 0; i < v->rank_count; i++) TRY(rank_make(&w, i));
    for (int32_t i = 0; i < r->order_count; i++) {
        const int32_t one = r->order[i];
        if (one >= 0) {
            const int32_t rank = w.rank_of[one];
            TRY(action_walk(&w, &v->facts[rank], one - r->base[rank]));
            continue;
        }
        const verify_rendezvous *rendezvous = &r->rendezvous[-1 - one];
        w.member_count = rendezvous->member_count;
        for (int32_t k = 0; k < w.member_count; k++) {
            const int32_t rank = w.rank_of[rendezvous->members[k]];
            w.facts[k] = &v->facts[rank];
            w.action[k] = rendezvous->members[k] - r->base[rank];
        }
        TRY(verify_rendezvous_sums(&w));
    }
    for (int32_t i = 0; i < v->rank_count; i++) {
        if (w.ranks[i].decides) TRY(update_is_whole(&w, &v->facts[i]));
    }
    return ST_OK;
}
