// The verifier: the bytes that an action accesses, and whether they are inside its tensors.
//
// plan/access lists the accesses of an action. This file maps them to ranges of the arena and
// checks them against the tensors. Accesses do not depend on the micro-batch (they cover all rows
// of batch tensors), so actions with the same accesses share a *pattern*, and a plan of many
// micro-batches costs little more.
#include "base/hash.h"
#include "plan/access.h"
#include "plan/verify/verify_internal.h"

#include <stdlib.h>
#include <string.h>

// ---- tensors ------------------------------------------------------------------------------------

const plan_tensor *verify_tensor(const verify_facts *f, int32_t tensor)
{
    return tensor < f->run_count ? &f->p->run->tensors[tensor]
                                 : &f->p->tensors[tensor - f->run_count];
}

static int32_t tensor_of(const verify_facts *f, int32_t ref)
{
    return (int32_t)plan_ref_row(ref) + (plan_ref_is_run(ref) ? 0 : f->run_count);
}

void verify_resolve(const verify_facts *f, int32_t ref, int32_t *tensor, int64_t *begin,
                    int64_t *bytes)
{
    int64_t within = 0;
    *bytes = plan_tensor_at(f->p, ref)->bytes;
    *tensor = tensor_of(f, plan_access_owner(f->p, ref, &within));
    *begin = f->where[*tensor].begin + within;
}

verify_bytes verify_access_bytes(const verify_facts *f, const plan_access *a)
{
    verify_bytes b = {0};
    if (a->ref == -1) return b;
    b.tensor = tensor_of(f, a->ref);
    b.begin = f->where[b.tensor].begin + a->begin;
    b.bytes = a->bytes;
    return b;
}

// Finds the place of each tensor in the arena.
static status tensors_make(verifier *v, verify_facts *f)
{
    const plan *p = f->p;
    f->run_count = (int32_t)p->run->count;
    f->tensor_count = f->run_count + (int32_t)p->tensor_count;
    TRY(arena_new(v->a, f->tensor_count + 1, &f->where));
    TRY(arena_new(v->a, f->tensor_count + 1, &f->cuts));
    TRY(arena_new(v->a, f->tensor_count + 1, &f->cut_count));
    TRY(arena_new(v->a, f->tensor_count + 1, &f->cut_capacity));
    for (int32_t t = 0; t < f->tensor_count; t++) {
        const plan_tensor *row = verify_tensor(f, t);
        if (row->is_part) continue;
        const int64_t begin = row->offset + (t < f->run_count ? 0 : p->run->run_bytes);
        f->where[t] = (verify_span){begin, begin + row->bytes};
    }
    return ST_OK;
}

// Checks that accessed tensors are in the arena; a tensor without accesses has no place.
static status arena_has_all(const verify_facts *f)
{
    const plan *p = f->p;
    for (int64_t i = 0; i < f->touch_count; i++) {
        const int32_t t = f->touches[i].tensor;
        const verify_span where = f->where[t];
        const bool is_run = t < f->run_count;
        const int64_t low = is_run ? 0 : p->run->run_bytes;
        const int64_t high = p->run->run_bytes + (is_run ? 0 : p->transient_bytes);
        if (where.begin >= low && where.end <= high) continue;
        return fail(ST_BROKEN_PLAN,
                    "rank %d: %s lies at [%lld, %lld), outside the arena's [%lld, %lld)", f->rank,
                    verify_tensor(f, t)->name, (long long)where.begin, (long long)where.end,
                    (long long)low, (long long)high);
    }
    return ST_OK;
}

static int compare_rows(const void *a, const void *b)
{
    const verify_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// Run tensors are always live: no two may share a byte.
static status run_is_apart(verifier *v, const verify_facts *f)
{
    verify_span *sorted = NULL;
    TRY(arena_new(v->a, f->run_count + 1, &sorted));
    memcpy(sorted, f->where, (size_t)f->run_count * sizeof(*sorted));
    qsort(sorted, (size_t)f->run_count, sizeof(*sorted), compare_rows);
    for (int32_t i = 1; i < f->run_count; i++) {
        if (sorted[i - 1].end <= sorted[i].begin) continue;
        int32_t one = 0, other = 0;
        while (f->where[one].begin != sorted[i - 1].begin) one++;
        while (f->where[other].begin != sorted[i].begin || other == one) other++;
        return fail(ST_BROKEN_PLAN, "rank %d: the run tensors %s and %s share bytes from %lld on",
                    f->rank, verify_tensor(f, one)->name, verify_tensor(f, other)->name,
                    (long long)sorted[i].begin);
    }
    return ST_OK;
}

// ---- columns ------------------------------------------------------------------------------------

static status cut_add(verifier *v, verify_facts *f, int32_t tensor, int64_t column)
{
    int32_t at = 0;
    while (at < f->cut_count[tensor] && f->cuts[tensor][at] < column) at++;
    if (at < f->cut_count[tensor] && f->cuts[tensor][at] == column) return ST_OK;
    int64_t capacity = f->cut_capacity[tensor];
    TRY(arena_grow(v->a, (void **)&f->cuts[tensor], &capacity, f->cut_count[tensor] + 1,
                   (int64_t)sizeof(int64_t)));
    f->cut_capacity[tensor] = (int32_t)capacity;
    int64_t *cuts = f->cuts[tensor];
    memmove(&cuts[at + 1], &cuts[at], (size_t)(f->cut_count[tensor] - at) * sizeof(*cuts));
    cuts[at] = column;
    f->cut_count[tensor]++;
    return ST_OK;
}

static status cuts_make(verifier *v, verify_facts *f)
{
    for (int64_t i = 0; i < f->p->binding_count; i++) {
        const plan_binding *b = &f->p->bindings[i];
        for (tensor_id t = 0; t < b->program->tensor_count; t++) {
            const op_tensor *local = &b->program->tensors[t];
            if (local->view_of == TENSOR_NONE) continue;
            int64_t begin = 0, bytes = 0;
            int32_t tensor = 0;
            const op_owned owned = op_owner(b->program, t);
            if (b->tensor[owned.id] == -1) continue;
            verify_resolve(f, b->tensor[owned.id], &tensor, &begin, &bytes);
            TRY(cut_add(v, f, tensor, owned.column));
            TRY(cut_add(v, f, tensor, owned.column + local->dims[1].scale));
        }
    }
    return ST_OK;
}

// Returns columns [begin, end) as bits: bit k stands for the columns between cuts k - 1 and k.
static uint64_t columns_of(const verify_facts *f, int32_t tensor, int64_t begin, int64_t end)
{
    uint64_t bits = 0;
    const int32_t count = f->cut_count[tensor];
    const plan_tensor *t = verify_tensor(f, tensor);
    const int64_t width = t->dims[t->ndim > 1 ? 1 : 0];
    if (count == 0 || count >= VERIFY_COLUMNS) return ~UINT64_C(0);
    for (int32_t k = 0; k <= count; k++) {
        const int64_t from = k == 0 ? 0 : f->cuts[tensor][k - 1];
        const int64_t to = k == count ? width : f->cuts[tensor][k];
        if (from < to && begin <= from && to <= end) bits |= UINT64_C(1) << k;
    }
    return bits;
}

// ---- the lists of accesses ----------------------------------------------------------------------

static status span_find(verifier *v, verify_facts *f, int32_t tensor, verify_span where,
                        int32_t *span)
{
    const verify_span whole = f->where[tensor];
    *span = tensor;
    if (where.begin <= whole.begin && where.end >= whole.end) return ST_OK;
    // A span of a part may be among those added last.
    for (int64_t i = f->span_count - 1; i >= f->tensor_count && i >= f->span_count - 32; i--) {
        *span = (int32_t)i;
        if (f->spans[i].begin == where.begin && f->spans[i].end == where.end &&
            f->span_tensor[i] == tensor) {
            return ST_OK;
        }
    }
    TRY(arena_grow(v->a, (void **)&f->spans, &f->span_capacity, f->span_count + 1,
                   (int64_t)sizeof(verify_span)));
    TRY(arena_grow(v->a, (void **)&f->span_tensor, &f->span_tensor_capacity, f->span_count + 1,
                   (int64_t)sizeof(int32_t)));
    *span = (int32_t)f->span_count;
    f->spans[f->span_count] = where;
    f->span_tensor[f->span_count++] = tensor;
    return ST_OK;
}

static status touch_push(verifier *v, verify_facts *f, const verify_touch *touch)
{
    TRY(arena_grow(v->a, (void **)&f->touches, &f->touch_capacity, f->touch_count + 1,
                   (int64_t)sizeof(*touch)));
    f->touches[f->touch_count++] = *touch;
    return ST_OK;
}

// An update is a read and then a write.
static status touches_push(verifier *v, verify_facts *f, const verify_touch *touch,
                           access_kind kind)
{
    verify_touch one = *touch;
    one.writes = false;
    if (kind != ACCESS_WRITE) TRY(touch_push(v, f, &one));
    one.writes = true;
    return kind != ACCESS_READ ? touch_push(v, f, &one) : ST_OK;
}

static status bytes_touch(verifier *v, verify_facts *f, const verify_bytes *b, access_kind kind)
{
    verify_touch touch = {.tensor = b->tensor};
    if (b->bytes == 0) return ST_OK;
    touch.columns = columns_of(f, b->tensor, 0, INT64_MAX);
    const verify_span where = {b->begin, b->begin + b->bytes};
    TRY(span_find(v, f, b->tensor, where, &touch.span));
    return touches_push(v, f, &touch, kind);
}

// Makes a pattern of the accesses since `begin`; the check of order needs each span once.
static status pattern_push(verifier *v, verify_facts *f, int64_t begin, int32_t *use_of,
                           int32_t *pattern)
{
    const int64_t first = f->use_count;
    for (int64_t i = begin; i < f->touch_count; i++) {
        const verify_touch *touch = &f->touches[i];
        int32_t at = use_of[touch->span];
        if (at < first || at >= f->use_count || f->uses[at].span != touch->span) {
            TRY(arena_grow(v->a, (void **)&f->uses, &f->use_capacity, f->use_count + 1,
                           (int64_t)sizeof(verify_use)));
            at = use_of[touch->span] = (int32_t)f->use_count++;
            f->uses[at] = (verify_use){.span = touch->span};
        }
        f->uses[at].writes |= touch->writes;
    }
    TRY(arena_grow(v->a, (void **)&f->patterns, &f->pattern_capacity, f->pattern_count + 1,
                   (int64_t)sizeof(verify_pattern)));
    *pattern = (int32_t)f->pattern_count;
    f->patterns[f->pattern_count++] =
        (verify_pattern){.touches_begin = (int32_t)begin,
                         .touches_count = (int32_t)(f->touch_count - begin),
                         .uses_begin = (int32_t)first,
                         .uses_count = (int32_t)(f->use_count - first)};
    return ST_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

typedef struct operand {
    verify_touch touch;
    verify_span where;
    tensor_id local; // the program's tensor; a number of its own if the program does not name it
    access_kind kind;
    int32_t number; // index of the operand
} operand;

static tensor_id local_of(const op_program *program, const op_node *node, int32_t number)
{
    if (number >= ACCESS_COUNT) {
        return op_count_of(program, local_of(program, node, number - ACCESS_COUNT));
    }
    if (number >= ACCESS_WORKSPACE) return INT32_MAX - number;
    return op_operand(node, number);
}

// Checks that all operands of a node have tensors of the plan.
static status refs_check(const verifier *v, const verify_facts *f, int32_t index,
                         const op_node *node)
{
    const plan *p = f->p;
    const plan_action *action = &p->actions[index];
    const plan_binding *b = &p->bindings[action->binding];
    for (int k = 0; k < ACCESS_WORKSPACE; k++) {
        char name[VERIFY_NAME_BYTES];
        const operand_access is = plan_access_operand(b->program, node, k, action->accumulate);
        const int32_t ref = is.owner != TENSOR_NONE ? b->tensor[is.owner] : -1;
        const int64_t rows = plan_ref_is_run(ref) ? p->run->count : p->tensor_count;
        if (ref == -1 || plan_ref_row(ref) < rows) continue;
        return fail(ST_BROKEN_PLAN, "%s: %s stands for no tensor of the plan",
                    verify_name(v, f->rank, index, name),
                    b->program->tensors[local_of(b->program, node, k)].name);
    }
    return ST_OK;
}

static status operand_make(verifier *v, verify_facts *f, int32_t index, const op_node *node,
                           const plan_access *a, operand *out)
{
    const plan_action *action = &f->p->actions[index];
    const op_program *program = f->p->bindings[action->binding].program;
    const verify_bytes b = verify_access_bytes(f, a);
    char name[VERIFY_NAME_BYTES];
    *out = (operand){
        .local = local_of(program, node, a->operand), .kind = a->kind, .number = a->operand};
    if (a->needs > a->has) {
        return fail(ST_BROKEN_PLAN, "%s: %s needs %lld bytes of %s, which has %lld",
                    verify_name(v, f->rank, index, name), program->tensors[out->local].name,
                    (long long)a->needs, verify_tensor(f, b.tensor)->name, (long long)a->has);
    }
    out->touch.tensor = b.tensor;
    out->where = (verify_span){b.begin, b.begin + b.bytes};
    out->touch.columns =
        columns_of(f, b.tensor, a->column, a->columns > 0 ? a->column + a->columns : INT64_MAX);
    if (a->operand > ACCESS_OUT + OP_MAX_OUT - 1 && a->operand < ACCESS_STEP) {
        out->touch.columns = ~UINT64_C(0);
    }
    return span_find(v, f, b.tensor, out->where, &out->touch.span);
}

static bool spans_meet(verify_span a, verify_span b)
{
    return a.begin < b.end && b.begin < a.end;
}

// Whether a kernel may write `out` while it reads or writes `other`.
static bool is_allowed(const op_node *node, const operand *out, const operand *other)
{
    const op_kind *kind = op_kind_of(node->code);
    const bool inplace = out->number < ACCESS_WORKSPACE && other->number < ACCESS_OUT &&
                         kind->inplace[out->number - ACCESS_OUT] == other->number;
    if (!spans_meet(out->where, other->where)) return true;
    if (out->touch.tensor == other->touch.tensor &&
        (out->touch.columns & other->touch.columns) == 0) {
        return true;
    }
    if (out->local == other->local) return true; // in place by the program itself, as in optimizers
    return inplace && out->where.begin == other->where.begin && out->where.end == other->where.end;
}

static status overlap_fail(const verifier *v, const verify_facts *f, int32_t index,
                           const op_node *node, const operand *out, const operand *other)
{
    char name[VERIFY_NAME_BYTES];
    return fail(
        ST_BROKEN_PLAN, "%s: %s writes %s over %s, which it needs: they share bytes [%lld, %lld)",
        verify_name(v, f->rank, index, name), op_kind_of(node->code)->name,
        verify_tensor(f, out->touch.tensor)->name, verify_tensor(f, other->touch.tensor)->name,
        (long long)max_i64(out->where.begin, other->where.begin),
        (long long)min_i64(out->where.end, other->where.end));
}

static status node_touch(verifier *v, verify_facts *f, int32_t index, int64_t at)
{
    const plan_action *action = &f->p->actions[index];
    const op_program *program = f->p->bindings[action->binding].program;
    const op_node *node = &program->lists[action->list].nodes[at];
    plan_access all[ACCESS_NODE_MAX];
    operand operands[ACCESS_NODE_MAX];
    TRY(refs_check(v, f, index, node));
    const int32_t count = plan_access_node(f->p, action, at, all);
    int32_t n = 0;
    while (n < count && all[n].operand != ACCESS_STEP) {
        TRY(operand_make(v, f, index, node, &all[n], &operands[n]));
        n++;
    }
    for (int32_t o = 0; o < n; o++) {
        for (int32_t k = 0; k < o && operands[o].number >= ACCESS_OUT; k++) {
            if (is_allowed(node, &operands[o], &operands[k])) continue;
            return overlap_fail(v, f, index, node, &operands[o], &operands[k]);
        }
    }
    for (int32_t k = 0; k < n; k++) {
        TRY(touches_push(v, f, &operands[k].touch, operands[k].kind));
    }
    for (int32_t k = n; k < count; k++) {
        const verify_bytes b = verify_access_bytes(f, &all[k]);
        TRY(bytes_touch(v, f, &b, all[k].kind));
    }
    return ST_OK;
}

// ---- communications -----------------------------------------------------------------------------

int64_t verify_piece_bytes(const verify_facts *f, const plan_comm *c, int32_t item)
{
    return plan_access_piece_bytes(f->p, c, item);
}

verify_bytes verify_item_in(const verify_facts *f, const plan_comm *c, int32_t item)
{
    const plan_access a = plan_access_item_in(f->p, &f->at, c, item);
    return verify_access_bytes(f, &a);
}

verify_bytes verify_item_out(const verify_facts *f, const plan_comm *c, int32_t item)
{
    const plan_access a = plan_access_item_out(f->p, &f->at, c, item);
    return verify_access_bytes(f, &a);
}

static status item_check(const verifier *v, const verify_facts *f, int32_t index, int32_t item,
                         const verify_bytes *b, int64_t offset)
{
    char name[VERIFY_NAME_BYTES];
    const verify_span whole = f->where[b->tensor];
    if (b->bytes == 0 || (offset >= 0 && b->begin >= whole.begin && b->bytes > 0 &&
                          b->begin + b->bytes <= whole.end)) {
        return ST_OK;
    }
    return fail(ST_BROKEN_PLAN, "%s: item %d covers bytes [%lld, %lld) of %s, which has %lld",
                verify_name(v, f->rank, index, name), item, (long long)(b->begin - whole.begin),
                (long long)(b->begin - whole.begin + b->bytes), verify_tensor(f, b->tensor)->name,
                (long long)(whole.end - whole.begin));
}

static status ref_check(const verifier *v, const verify_facts *f, int32_t index, int32_t item,
                        int32_t ref)
{
    char name[VERIFY_NAME_BYTES];
    const int64_t rows = plan_ref_is_run(ref) ? f->p->run->count : f->p->tensor_count;
    if (ref == -1 || plan_ref_row(ref) < rows) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s: item %d is of no tensor of the plan",
                verify_name(v, f->rank, index, name), item);
}

static status items_check(const verifier *v, const verify_facts *f, int32_t index)
{
    const plan *p = f->p;
    const plan_comm *c = verify_comm(f, index);
    char name[VERIFY_NAME_BYTES];
    if (c->leaves_count >= 0 && c->items_count >= 1 && c->items_count % verify_leaves(c) == 0 &&
        c->items_begin >= 0 && c->items_begin + c->items_count <= p->item_count &&
        c->leaves_begin >= 0 && c->leaves_begin + c->leaves_count <= p->leaf_count) {
        return ST_OK;
    }
    return fail(ST_BROKEN_PLAN, "%s: %d items for %d terms, of %lld and %lld in the plan",
                verify_name(v, f->rank, index, name), c->items_count, verify_leaves(c),
                (long long)p->item_count, (long long)p->leaf_count);
}

static bool is_exchange(op_collective op)
{
    return op == COLLECTIVE_ALL_TO_ALL || op == COLLECTIVE_ALL_TO_ALLV;
}

// Checks that an input and an output that share bytes are in place: equal, or one is this rank's
// piece of the other.
static status inplace_check(const verifier *v, const verify_facts *f, int32_t index, int32_t item)
{
    const plan_comm *c = verify_comm(f, index);
    const int32_t me = plan_group_place(&f->at, &f->p->run->groups[c->group]);
    const int32_t first = item / verify_leaves(c) * verify_leaves(c);
    const verify_bytes in = verify_item_in(f, c, item), out = verify_item_out(f, c, first);
    char name[VERIFY_NAME_BYTES];
    int64_t right = out.begin; // expected begin of the input
    const int64_t before = me * verify_piece_bytes(f, c, first);
    if (c->op == COLLECTIVE_ALL_GATHER) right += before;
    if (c->op == COLLECTIVE_REDUCE_SCATTER) right -= before;
    const bool overlap = in.bytes > 0 && out.bytes > 0 && in.begin < out.begin + out.bytes &&
                         out.begin < in.begin + in.bytes;
    if (!overlap || (in.begin == right && item == first && !is_exchange(c->op))) return ST_OK;
    return fail(
        ST_BROKEN_PLAN,
        "%s: item %d reads %s from byte %lld on and writes it from byte %lld on, which is not "
        "in place for member %d of the group",
        verify_name(v, f->rank, index, name), item, verify_tensor(f, in.tensor)->name,
        (long long)(in.begin - f->where[in.tensor].begin),
        (long long)(out.begin - f->where[out.tensor].begin), me);
}

// Checks the offsets of rows that are exchanged: one for each expert of each rank, and one more.
static status offsets_check(const verifier *v, const verify_facts *f, int32_t index)
{
    const plan_comm *c = verify_comm(f, index);
    char name[VERIFY_NAME_BYTES];
    if (c->op != COLLECTIVE_ALL_TO_ALLV) return ST_OK;
    const int64_t ranks = plan_group_size(&f->at, &f->p->run->groups[c->group]);
    for (int32_t i = 1; i <= 2; i++) {
        const int32_t ref = c->items_count == 3 ? f->p->items[c->items_begin + i].in : -1;
        TRY(ref_check(v, f, index, i, ref));
        const plan_tensor *t = ref != -1 ? plan_tensor_at(f->p, ref) : NULL;
        if (t != NULL && t->type == DTYPE_I32 && t->dims[0] == ranks * c->stride + 1 &&
            c->stride > 0) {
            continue;
        }
        return fail(ST_BROKEN_PLAN,
                    "%s exchanges rows by offsets that are not those of %d experts on each of %lld "
                    "ranks",
                    verify_name(v, f->rank, index, name), (int)c->stride, (long long)ranks);
    }
    return ST_OK;
}

static status items_are_right(verifier *v, verify_facts *f, int32_t index)
{
    const plan_comm *c = verify_comm(f, index);
    TRY(verify_group(v, f, index));
    TRY(items_check(v, f, index));
    TRY(offsets_check(v, f, index));
    for (int writes = 0; writes < 2; writes++) {
        for (int32_t i = 0; i < c->items_count; i++) {
            const plan_comm_item *item = &f->p->items[c->items_begin + i];
            TRY(ref_check(v, f, index, i, writes ? item->out : item->in));
            const verify_bytes b = writes ? verify_item_out(f, c, i) : verify_item_in(f, c, i);
            TRY(item_check(v, f, index, i, &b, writes ? item->out_offset : item->in_offset));
            if (writes) TRY(inplace_check(v, f, index, i));
        }
    }
    return ST_OK;
}

// ---- actions ------------------------------------------------------------------------------------

typedef struct touching {
    verifier *v;
    verify_facts *f;
} touching;

static status access_touch(void *context, const plan_access *a)
{
    const touching *t = context;
    verify_bytes b = verify_access_bytes(t->f, a);
    // The padding of an item's tensor belongs to its last element, if that is written.
    const verify_span whole = t->f->where[b.tensor];
    const int64_t end = b.begin + b.bytes - whole.begin, all = whole.end - whole.begin;
    const bool writes = a->operand == ACCESS_ITEM && a->kind != ACCESS_READ;
    if (writes && b.bytes > 0 && align_up(end, ALIGN_TENSOR) == all) {
        b.bytes += all - end;
    }
    return bytes_touch(t->v, t->f, &b, a->kind);
}

static status action_check(const verifier *v, const verify_facts *f, int32_t index)
{
    const plan *p = f->p;
    const plan_action *a = &p->actions[index];
    char name[VERIFY_NAME_BYTES];
    const int64_t microbatches = p->own_sequences / max_i64(p->micro_batch, 1);
    bool right = a->stream >= 0 && a->stream < STREAM_GROUPS + p->run->group_count;
    right = right && a->microbatch >= (a->layer >= 0 ? 0 : -1) && a->microbatch < microbatches;
    right = right && a->waits_begin >= 0 && a->waits_count >= 0 &&
            a->waits_begin + a->waits_count <= p->wait_count;
    if (a->kind == ACTION_COMMUNICATE) {
        right = right && a->comm >= 0 && a->comm < p->comm_count;
    } else if (a->kind == ACTION_COMPUTE || a->kind == ACTION_OPTIMIZER) {
        right = right && a->binding >= 0 && a->binding < p->binding_count && a->list >= 0 &&
                a->list < OP_LIST_COUNT;
        right =
            right && a->ops_begin >= 0 &&
            a->ops_begin + a->ops_count <= p->bindings[a->binding].program->lists[a->list].count;
        right = right && a->sequence_begin >= 0 && a->sequence_count >= 0 &&
                a->sequence_begin + a->sequence_count <= p->micro_batch;
        right = right && a->position_begin >= 0 && a->position_count >= 0 &&
                a->position_begin + a->position_count <= p->seq &&
                (a->position_count == 0 || a->sequence_count == 1);
    }
    if (right) return ST_OK;
    return fail(ST_BROKEN_PLAN, "%s: its stream, waits, operations or rows are not of this plan",
                verify_name(v, f->rank, index, name));
}

static status action_touch(verifier *v, verify_facts *f, int32_t index)
{
    const plan_action *action = &f->p->actions[index];
    touching t = {v, f};
    switch (action->kind) {
    case ACTION_COMMUNICATE:
        TRY(items_are_right(v, f, index));
        return plan_access_each(f->p, &f->at, action, access_touch, &t);
    case ACTION_COPY:
    case ACTION_READBACK:
        return plan_access_each(f->p, &f->at, action, access_touch, &t);
    case ACTION_COMPUTE:
    case ACTION_OPTIMIZER:
        for (int32_t i = 0; i < action->ops_count; i++) {
            TRY(node_touch(v, f, index, action->ops_begin + i));
        }
        return ST_OK;
    case ACTION_KIND_COUNT:
    default:
        return fail(ST_BROKEN_PLAN, "rank %d, action %d is of no known kind", f->rank, index);
    }
}

// Returns the slot of the pattern of an equivalent action, or a free slot.
static int32_t *pattern_slot(const verify_facts *f, int32_t *table, int64_t slots, int32_t index)
{
    const plan_action *a = &f->p->actions[index];
    const int32_t key[] = {
        a->binding,        a->list,           a->ops_begin,      a->ops_count,  a->sequence_begin,
        a->sequence_count, a->position_begin, a->position_count, a->accumulate, a->fills};
    for (uint64_t at = hash64(key, sizeof(key), 0);; at++) {
        int32_t *slot = &table[at % (uint64_t)slots];
        if (*slot < 0) return slot;
        const plan_action *b = &f->p->actions[*slot];
        const int32_t other[] = {b->binding,        b->list,           b->ops_begin,
                                 b->ops_count,      b->sequence_begin, b->sequence_count,
                                 b->position_begin, b->position_count, b->accumulate,
                                 b->fills};
        if (memcmp(key, other, sizeof(key)) == 0) return slot;
    }
}

static status patterns_make(verifier *v, verify_facts *f)
{
    const int32_t count = (int32_t)f->p->action_count;
    const int64_t slots = 2 * (int64_t)count + 1;
    int32_t *table = NULL, *use_of = NULL;
    int64_t use_capacity = 0;
    TRY(arena_new(v->a, slots, &table));
    memset(table, -1, (size_t)slots * sizeof(*table));
    for (int32_t i = 0; i < count; i++) {
        const plan_action *a = &f->p->actions[i];
        TRY(action_check(v, f, i));
        const bool shares_pattern = a->kind == ACTION_COMPUTE || a->kind == ACTION_OPTIMIZER;
        int32_t *slot = shares_pattern ? pattern_slot(f, table, slots, i) : NULL;
        if (slot != NULL && *slot >= 0) {
            f->pattern_of[i] = f->pattern_of[*slot];
            continue;
        }
        const int64_t begin = f->touch_count;
        TRY(action_touch(v, f, i));
        // New rows are zero: the pattern has no uses yet.
        TRY(arena_grow(v->a, (void **)&use_of, &use_capacity, f->span_count + 1,
                       (int64_t)sizeof(int32_t)));
        TRY(pattern_push(v, f, begin, use_of, &f->pattern_of[i]));
        if (slot != NULL) *slot = i;
    }
    return ST_OK;
}

// Counts the queue entries of an action: its waits, its work, an event for actions that wait for
// it.
static int32_t items_of(const verify_facts *f, const plan_action *a, bool is_awaited)
{
    enum { COPIES = 10 }; // the step block and the batch tensors, at most
    const int32_t around = a->waits_count + (is_awaited ? 1 : 0);
    if (a->kind == ACTION_COPY) return around + COPIES;
    if (a->kind == ACTION_READBACK) return around + (f->p->bucket_count > 0 ? 3 : 2);
    return around + (a->kind == ACTION_COMMUNICATE ? 1 : a->ops_count);
}

status verify_touches(verifier *v, verify_facts *f)
{
    const int32_t count = (int32_t)f->p->action_count;
    TRY(tensors_make(v, f));
    TRY(run_is_apart(v, f));
    TRY(cuts_make(v, f));
    f->span_count = f->tensor_count;
    f->span_capacity = f->span_tensor_capacity = f->tensor_count + 64;
    TRY(arena_new(v->a, f->span_capacity, &f->spans));
    TRY(arena_new(v->a, f->span_capacity, &f->span_tensor));
    memcpy(f->spans, f->where, (size_t)f->tensor_count * sizeof(*f->spans));
    for (int32_t t = 0; t < f->tensor_count; t++) f->span_tensor[t] = t;
    TRY(arena_new(v->a, count + 1, &f->pattern_of));
    TRY(arena_new(v->a, count + 1, &f->actions));
    bool *awaited = NULL;
    TRY(arena_new(v->a, count + 1, &awaited));
    TRY(patterns_make(v, f));
    TRY(arena_has_all(f));
    for (int64_t i = 0; i < f->p->wait_count; i++) {
        const int64_t on = f->p->waits[i] >= 0 ? f->p->waits[i] : -1 - (int64_t)f->p->waits[i];
        if (on < count) awaited[on] = true; // a wait for no action is reported later
    }
    for (int32_t i = 0; i < count; i++) {
        const plan_action *a = &f->p->actions[i];
        const verify_pattern *pattern = &f->patterns[f->pattern_of[i]];
        f->actions[i] = (verify_action){.stream = a->stream,
                                        .waits_begin = a->waits_begin,
                                        .waits_count = a->waits_count,
                                        .port = -1,
                                        .items = items_of(f, a, awaited[i]),
                                        .uses_begin = pattern->uses_begin,
                                        .uses_count = pattern->uses_count};
    }
    return ST_OK;
}
