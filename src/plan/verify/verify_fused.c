// Fused pairs: two nodes that are one launch, where the second reads each tile of the first one's
// result as soon as it is made (plan/lower/fuse.c). Because the first node still reads its operands
// then, the second must not write to their bytes. The bits would differ, and no wait could help.
#include "plan/access.h"
#include "plan/verify/verify_internal.h"

// The bytes that one node touches.
typedef struct touched {
    plan_access each[ACCESS_NODE_MAX];
    int32_t count;
} touched;

static verify_span span_of(const verify_facts *f, const plan_access *a)
{
    const verify_bytes b = verify_access_bytes(f, a);
    return (verify_span){b.begin, b.begin + b.bytes};
}

static bool takes_tiles(const op_node *first, const op_node *second)
{
    const int at = op_tiled_input(second->code);
    return at >= 0 && second->in[at] != TENSOR_NONE && second->in[at] == first->out[0];
}

static status pair_fail(const verifier *v, const verify_facts *f, int32_t action, int64_t at,
                        const char *what)
{
    char name[VERIFY_NAME_BYTES];
    const plan_action *a = &f->p->actions[action];
    const op_node *nodes = &f->p->bindings[a->binding].program->lists[a->list].nodes[at];
    return fail(ST_BROKEN_PLAN, "%s fuses node %lld (%s) with the node before (%s), but %s",
                verify_name(v, f->rank, action, name), (long long)at + 1,
                op_kind_of(nodes[1].code)->name, op_kind_of(nodes[0].code)->name, what);
}

// The first node may update its result in place: then both write the same bytes in the same order.
static bool disturbs(const verify_facts *f, const plan_access *write, const plan_access *of_first,
                     const verify_span *result)
{
    const verify_span w = span_of(f, write), r = span_of(f, of_first);
    if (w.begin >= r.end || r.begin >= w.end) return false;
    const bool is_result = r.begin == result->begin && r.end == result->end;
    const bool in_place = w.begin == result->begin && w.end == result->end;
    return !(is_result && in_place);
}

static status pair_verify(const verifier *v, const verify_facts *f, int32_t action, int64_t at)
{
    const plan_action *a = &f->p->actions[action];
    const op_node *nodes = f->p->bindings[a->binding].program->lists[a->list].nodes;
    const plan_access *result = NULL;
    touched first, second;
    if (!takes_tiles(&nodes[at], &nodes[at + 1])) {
        return pair_fail(v, f, action, at, "the one does not read the other's result by tiles");
    }
    first.count = plan_access_node(f->p, a, at, first.each);
    second.count = plan_access_node(f->p, a, at + 1, second.each);
    for (int32_t i = 0; i < first.count; i++) {
        if (first.each[i].operand == ACCESS_OUT) result = &first.each[i];
    }
    if (result == NULL) return pair_fail(v, f, action, at, "the other has no result");
    const verify_span made = span_of(f, result);
    for (int32_t i = 0; i < second.count; i++) {
        const plan_access *write = &second.each[i];
        for (int32_t k = 0; k < first.count && write->kind != ACCESS_READ; k++) {
            if (!disturbs(f, write, &first.each[k], &made)) continue;
            return pair_fail(v, f, action, at, "writes bytes that the other still uses");
        }
    }
    return ST_OK;
}

// The marks of an action whose pairs no action before it had.
static status marks_verify(const verifier *v, const verify_facts *f, int32_t action)
{
    const plan_action *a = &f->p->actions[action];
    const bool *fused = f->p->bindings[a->binding].fused[a->list];
    for (int32_t k = 0; k + 1 < a->ops_count && fused != NULL; k++) {
        const int64_t at = (int64_t)a->ops_begin + k;
        if (!fused[at]) continue;
        if (k + 2 < a->ops_count && fused[at + 1]) {
            return pair_fail(v, f, action, at, "the one is fused with its successor too");
        }
        TRY(pair_verify(v, f, action, at));
    }
    return ST_OK;
}

status verify_fused(const verifier *v)
{
    for (int32_t r = 0; r < v->rank_count; r++) {
        const verify_facts *f = &v->facts[r];
        bool *seen = NULL; // [binding][list]: an action's nodes touch the same in each micro-batch
        TRY(arena_new(v->a, max_i64(f->p->binding_count, 1) * OP_LIST_COUNT, &seen));
        for (int32_t i = 0; i < f->p->action_count; i++) {
            const plan_action *a = &f->p->actions[i];
            if (a->kind != ACTION_COMPUTE || a->ops_count < 2) continue;
            bool *of_list = &seen[(int64_t)a->binding * OP_LIST_COUNT + a->list];
            if (*of_list) continue;
            TRY(marks_verify(v, f, i));
            *of_list = a->ops_begin == 0 &&
                       a->ops_count == f->p->bindings[a->binding].program->lists[a->list].count;
        }
    }
    return ST_OK;
}
