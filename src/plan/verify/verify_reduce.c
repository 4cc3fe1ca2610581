// The verifier: the effect of communication on sums. A sum over ranks joins the terms of its
// members, range of bytes by range, and no two members may have a term in common. Gathers,
// broadcasts and messages copy terms. The field at which an item begins identifies the sums of the
// step block.
#include "plan/verify/verify_sums.h"

// A range of one tensor of a sum over ranks, with the terms of all members.
typedef struct joined {
    int64_t begin, end; // from the tensor's first byte in the operation
    verify_terms terms;
} joined;

static verify_bytes input_of(const sums_walk *w, int32_t member, int32_t item, int32_t leaf)
{
    const verify_facts *f = w->facts[member];
    const plan_comm *c = verify_comm(f, w->action[member]);
    return verify_item_in(f, c, item * verify_leaves(c) + leaf);
}

static int32_t leaves_of(const sums_walk *w, int32_t member)
{
    return verify_leaves(verify_comm(w->facts[member], w->action[member]));
}

// Returns the first byte behind `from` where the terms of an input change.
static int64_t edge_behind(const sums_walk *w, int32_t member, verify_bytes in, int64_t from)
{
    const verify_facts *f = w->facts[member];
    const verify_values *values = verify_held(w, f, in.tensor);
    const int64_t base = verify_first(f, in);
    int64_t next = in.bytes;
    for (int64_t i = 0; i < values->count; i++) {
        const int64_t edges[] = {values->rows[i].begin - base, values->rows[i].end - base};
        for (int k = 0; k < 2; k++) {
            if (edges[k] > from && edges[k] < next) next = edges[k];
        }
    }
    return next;
}

// Cuts where the terms of any member's input change: between two cuts each member has one value.
static status stretches_make(sums_walk *w, int32_t item, joined **rows, int32_t *count)
{
    int64_t capacity = 0;
    const int64_t bytes = input_of(w, 0, item, 0).bytes;
    *count = 0;
    for (int64_t from = 0; from < bytes;) {
        int64_t next = bytes;
        for (int32_t i = 0; i < w->member_count; i++) {
            for (int32_t k = 0; k < leaves_of(w, i); k++) {
                next = min_i64(next, edge_behind(w, i, input_of(w, i, item, k), from));
            }
        }
        TRY(arena_grow(w->v->a, (void **)rows, &capacity, *count + 1, (int64_t)sizeof(joined)));
        (*rows)[(*count)++] = (joined){.begin = from, .end = next};
        from = next;
    }
    return ST_OK;
}

// Strict order: checks that an input is the node that its leaf names, or that two ranks add whole
// uses, which gives the same bits in either order.
static status comer_check(const sums_walk *w, const verify_facts *f, int32_t action, int32_t leaf,
                          const joined *s, const verify_value *value)
{
    const plan_comm *c = verify_comm(f, action);
    char name[VERIFY_NAME_BYTES];
    if (!f->p->strict || verify_are_counts(w, &value->terms)) return ST_OK;
    if (c->leaves_count == 0) {
        if (s->terms.count == 0 || verify_order_is_right(f, &s->terms, &value->terms) ||
            verify_order_is_right(f, &value->terms, &s->terms)) {
            return ST_OK;
        }
        return fail(ST_BROKEN_PLAN,
                    "%s adds an incomplete sum of a use, or not the next one, and the plan is "
                    "strict",
                    verify_name(w->v, f->rank, action, name));
    }
    const plan_comm_leaf *node = &f->p->leaves[c->leaves_begin + leaf];
    if (verify_leaf_is_right(f, node, &value->terms)) return ST_OK;
    return fail(ST_BROKEN_PLAN,
                "%s gives item %d as the sum of shards [%d, %d), and that is not what it holds",
                verify_name(w->v, f->rank, action, name), leaf, node->begin, node->end);
}

// Adds the terms of one input to the sum of a range.
static status input_add(sums_walk *w, int32_t member, int32_t item, int32_t leaf, joined *s)
{
    const verify_facts *f = w->facts[member];
    const int32_t action = w->action[member];
    const verify_bytes in = input_of(w, member, item, leaf);
    const int64_t at = verify_first(f, in) + s->begin;
    const verify_values *values = verify_held(w, f, in.tensor);
    const char *tensor = verify_tensor(f, in.tensor)->name;
    char name[VERIFY_NAME_BYTES];
    verify_value *value = NULL;
    verify_term twice = {0};
    for (int64_t i = 0; i < values->count; i++) {
        if (values->rows[i].begin <= at && at < values->rows[i].end) value = &values->rows[i];
    }
    if (value == NULL) return ST_OK; // it has no terms
    TRY(comer_check(w, f, action, leaf, s, value));
    TRY(verify_terms_add(w->v->a, &s->terms, &value->terms, &s->terms, &twice));
    value->taken = true;
    if (twice.source < 0) return ST_OK;
    return fail(ST_BROKEN_PLAN,
                "%s adds sequences [%lld, %lld) of %s to %s, which another rank of it has given "
                "already",
                verify_name(w->v, f->rank, action, name), verify_from(f, twice.begin),
                verify_upto(f, twice.end), verify_use_name(w, twice.source), tensor);
}

static status stretch_sum(sums_walk *w, int32_t item, joined *s)
{
    for (int32_t i = 0; i < w->member_count; i++) {
        for (int32_t k = 0; k < leaves_of(w, i); k++) TRY(input_add(w, i, item, k, s));
    }
    return ST_OK;
}

static status stretches_put(sums_walk *w, int32_t item, const joined *rows, int32_t count)
{
    for (int32_t i = 0; i < w->member_count; i++) {
        const verify_facts *f = w->facts[i];
        const plan_comm *c = verify_comm(f, w->action[i]);
        const int32_t leaves = verify_leaves(c);
        const verify_bytes out = verify_item_out(f, c, item * leaves);
        int64_t from = 0; // where the output begins in the sum
        if (out.bytes == 0) continue;
        if (c->op == COLLECTIVE_REDUCE_SCATTER) {
            const int32_t me = plan_group_place(&f->at, &f->p->run->groups[c->group]);
            from = me * verify_piece_bytes(f, c, item * leaves);
        }
        for (int32_t k = 0; k < count; k++) {
            const int64_t begin = max_i64(rows[k].begin, from);
            const int64_t end = min_i64(rows[k].end, from + out.bytes);
            if (begin >= end) continue;
            const int64_t shift = verify_first(f, out) - from;
            const verify_value value = {.begin = begin + shift,
                                        .end = end + shift,
                                        .terms = rows[k].terms,
                                        .maker = w->action[i]};
            TRY(verify_values_set(w->v->a, verify_held(w, f, out.tensor), &value));
        }
    }
    return ST_OK;
}

static status gradients_sum(sums_walk *w, int32_t item)
{
    joined *rows = NULL;
    int32_t count = 0;
    TRY(stretches_make(w, item, &rows, &count));
    for (int32_t k = 0; k < count; k++) TRY(stretch_sum(w, item, &rows[k]));
    return stretches_put(w, item, rows, count);
}

// Whether all items of a sum are counts of histories.
static bool sums_counts(const verify_facts *f, const plan_comm *c)
{
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_tensor *t = verify_tensor(f, verify_item_in(f, c, i).tensor);
        if (t->weight < 0 || !f->p->model->weights[t->weight].is_history) return false;
    }
    return true;
}

// Strict order: checks that a sum of rounding values has an order.
static status sum_has_order(const sums_walk *w)
{
    const verify_facts *f = w->facts[0];
    const plan_comm *c = verify_comm(f, w->action[0]);
    char name[VERIFY_NAME_BYTES];
    const bool rounds = c->type == DTYPE_F32 || c->type == DTYPE_BF16 || c->type == DTYPE_F16 ||
                        c->type == DTYPE_F64;
    const bool adds = (c->op == COLLECTIVE_ALL_REDUCE || c->op == COLLECTIVE_REDUCE_SCATTER) &&
                      c->reduction == REDUCTION_SUM;
    if (!f->p->strict || !rounds || !adds || (c->leaves_count > 0 && !c->compressed)) return ST_OK;
    // Two terms have one order; a later check looks at their contents.
    if (w->member_count == 2 && c->op == COLLECTIVE_ALL_REDUCE && !c->compressed) return ST_OK;
    if (sums_counts(f, c)) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s adds %s in no fixed order, and the plan is strict",
                verify_name(w->v, f->rank, w->action[0], name), dtype_name(c->type));
}

// Adds the sums of the step block; the field at which the item begins identifies the sum.
static status step_sum(sums_walk *w, int32_t item)
{
    static const int64_t fields[STEP_SUMS] = {
        [STEP_TOKENS] = (int64_t)(offsetof(step_block, device) + offsetof(step_device, tokens)),
        [STEP_LOSS] = (int64_t)(offsetof(step_block, device) + offsetof(step_device, loss_sum)),
        [STEP_NORM] = (int64_t)(offsetof(step_block, device) + offsetof(step_device, norm_sum)),
        [STEP_LOADS] = (int64_t)sizeof(step_block)};
    static const char *const words[STEP_SUMS] = {"tokens", "the loss", "the norm",
                                                 "the loads of experts"};
    const plan_comm *c = verify_comm(w->facts[0], w->action[0]);
    const int64_t at = verify_first(w->facts[0], verify_item_in(w->facts[0], c, item));
    char name[VERIFY_NAME_BYTES];
    for (int sum = 0; sum < STEP_SUMS; sum++) {
        verify_terms all = {0};
        if (fields[sum] != at) continue;
        for (int32_t i = 0; i < w->member_count; i++) {
            verify_term twice = {0};
            TRY(verify_terms_add(w->v->a, &all, &w->ranks[w->facts[i]->rank].step[sum], &all,
                                 &twice));
            if (twice.source < 0) continue;
            return fail(ST_BROKEN_PLAN,
                        "%s adds [%lld, %lld) to %s, which other ranks of it have given",
                        verify_name(w->v, w->facts[i]->rank, w->action[i], name),
                        (long long)twice.begin, (long long)twice.end, words[sum]);
        }
        for (int32_t i = 0; i < w->member_count; i++) w->ranks[w->facts[i]->rank].step[sum] = all;
    }
    return ST_OK;
}

// The input of one member to a gather, broadcast or message, before any output is written.
typedef struct given {
    verify_value *rows;
    int64_t count;
    verify_bytes in;
} given;

// Adds the rows of a weight that a rank keeps (ZeRO-3): they are valid from the beginning of the
// step until they are updated.
static status kept_rows_add(sums_walk *w, const verify_facts *f, const verify_bytes *in)
{
    const plan_tensor *t = verify_tensor(f, in->tensor);
    verify_values *held = verify_held(w, f, in->tensor);
    const int64_t row = t->ndim == 1 ? 1 : t->dims[1];
    const int32_t place = plan_weight_place(&f->at, &f->p->model->weights[t->weight]);
    const int64_t before = t->piece_rows * place * row * dtype_bytes(t->type);
    int64_t at = verify_first(f, *in), first = 0, last = 0;
    const int64_t end = at + in->bytes;
    while (at < end) {
        TRY(verify_values_cut(w->v->a, held, at, end, &first, &last));
        const int64_t next = first < last ? held->rows[first].begin : end;
        if (next > at) {
            const verify_value value = {.begin = at,
                                        .end = next,
                                        .maker = -1,
                                        .weight = t->weight,
                                        .kind = (int32_t)t->kind,
                                        .shift = before};
            TRY(verify_values_set(w->v->a, held, &value));
        }
        at = first < last && next == at ? held->rows[first].end : next;
    }
    return ST_OK;
}

// Removes these rows after the transfer, because after the step each byte must be an updated one.
static status kept_rows_drop(sums_walk *w, const verify_facts *f, const verify_bytes *in)
{
    verify_values *held = verify_held(w, f, in->tensor);
    for (int64_t i = held->count - 1; i >= 0; i--) {
        const verify_value v = held->rows[i];
        if (v.maker < 0) TRY(verify_values_clear(w->v->a, held, v.begin, v.end));
    }
    return ST_OK;
}

// Whether the item gathers a weight for the layers into a transient tensor.
static bool is_gathered(const verify_facts *f, const plan_comm *c, int32_t item,
                        const verify_bytes *in)
{
    const verify_bytes out = verify_item_out(f, c, item);
    return in->tensor < f->run_count && out.bytes > 0 && out.tensor >= f->run_count &&
           verify_tensor(f, in->tensor)->kind == PLAN_BYTES_WEIGHTS;
}

static status given_take(sums_walk *w, int32_t member, int32_t item, given *g)
{
    const verify_facts *f = w->facts[member];
    int64_t first = 0, last = 0;
    g->in = verify_item_in(f, verify_comm(f, w->action[member]), item);
    if (g->in.bytes == 0) return ST_OK;
    const bool kept = is_gathered(f, verify_comm(f, w->action[member]), item, &g->in);
    if (kept) TRY(kept_rows_add(w, f, &g->in));
    verify_values *held = verify_held(w, f, g->in.tensor);
    const int64_t begin = verify_first(f, g->in);
    TRY(verify_values_cut(w->v->a, held, begin, begin + g->in.bytes, &first, &last));
    g->count = last - first;
    TRY(arena_new(w->v->a, g->count, &g->rows));
    for (int64_t i = 0; i < g->count; i++) {
        g->rows[i] = held->rows[first + i];
        held->rows[first + i].taken = true;
    }
    return kept ? kept_rows_drop(w, f, &g->in) : ST_OK;
}

// Copies the values of the sender's bytes to the receiver.
static status given_put(sums_walk *w, const given *g, int32_t giver, int32_t taker, int32_t item)
{
    const verify_facts *f = w->facts[taker], *from = w->facts[giver];
    const plan_comm *c = verify_comm(f, w->action[taker]);
    verify_bytes out = verify_item_out(f, c, item);
    if (g->in.bytes == 0 || out.bytes == 0) return ST_OK;
    if (c->op == COLLECTIVE_ALL_GATHER) out.begin += giver * verify_piece_bytes(f, c, item);
    const int64_t shift = verify_first(f, out) - verify_first(from, g->in);
    if (giver == taker && shift == 0 && out.tensor == g->in.tensor) return ST_OK;
    const int64_t begin = verify_first(from, g->in) + shift;
    verify_values *held = verify_held(w, f, out.tensor);
    TRY(verify_values_clear(w->v->a, held, begin, begin + g->in.bytes));
    for (int64_t i = 0; i < g->count; i++) {
        verify_value value = g->rows[i];
        value.begin += shift;
        value.end += shift;
        value.shift -= shift;
        value.maker = w->action[taker];
        value.taken = false;
        TRY(verify_values_set(w->v->a, held, &value));
    }
    return ST_OK;
}

static status copies_walk(sums_walk *w, int32_t item)
{
    given *all = NULL;
    TRY(arena_new(w->v->a, w->member_count, &all));
    for (int32_t i = 0; i < w->member_count; i++) TRY(given_take(w, i, item, &all[i]));
    for (int32_t i = 0; i < w->member_count; i++) {
        for (int32_t k = 0; k < w->member_count; k++) TRY(given_put(w, &all[i], i, k, item));
    }
    return ST_OK;
}

// Checks that run tensors are summed in place, and accumulators only into accumulators.
static status sum_stays(const sums_walk *w, int32_t item)
{
    char name[VERIFY_NAME_BYTES];
    for (int32_t i = 0; i < w->member_count; i++) {
        const verify_facts *f = w->facts[i];
        const plan_comm *c = verify_comm(f, w->action[i]);
        const verify_bytes in = input_of(w, i, item, 0);
        const verify_bytes out = verify_item_out(f, c, item * verify_leaves(c));
        const bool is_run = in.tensor < f->run_count || out.tensor < f->run_count;
        const bool is_like = verify_accumulates(f, in.tensor) == verify_accumulates(f, out.tensor);
        if (out.bytes == 0 || out.begin == in.begin || (!is_run && is_like)) continue;
        return fail(ST_BROKEN_PLAN, "%s writes its sum of %s over %s",
                    verify_name(w->v, f->rank, w->action[i], name),
                    verify_tensor(f, in.tensor)->name, verify_tensor(f, out.tensor)->name);
    }
    return ST_OK;
}

status verify_rendezvous_sums(sums_walk *w)
{
    const verify_facts *f = w->facts[0];
    const plan_comm *c = verify_comm(f, w->action[0]);
    const bool adds = c->op == COLLECTIVE_ALL_REDUCE || c->op == COLLECTIVE_REDUCE_SCATTER;
    const int32_t leaves = verify_leaves(c);
    TRY(sum_has_order(w));
    for (int32_t item = 0; item < c->items_count / leaves; item++) {
        if (!adds) {
            const bool copies = c->op != COLLECTIVE_ALL_TO_ALL && c->op != COLLECTIVE_ALL_TO_ALLV;
            if (copies) TRY(copies_walk(w, item));
            continue;
        }
        const verify_bytes in = verify_item_in(f, c, item * leaves);
        TRY(sum_stays(w, item));
        if (c->reduction == REDUCTION_SUM && verify_tensor(f, in.tensor)->role == ROLE_STEP) {
            TRY(step_sum(w, item));
        } else if (verify_accumulates(f, in.tensor)) {
            TRY(gradients_sum(w, item));
        }
    }
    return ST_OK;
}
