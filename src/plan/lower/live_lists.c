// Pass 4 of lowering, lists of programs: which tensors each node touches, and how.
#include "plan/lower/live_lists.h"

static status list_make(arena *a, const op_program *program, int32_t list, list_use *out)
{
    const int64_t n = program->lists[list].count;
    int32_t uses = 0, inplaces = 0;
    *out = (list_use){.program = program, .list = list};
    TRY(arena_new(a, n + 1, &out->first));
    TRY(arena_new(a, n + 1, &out->first_inplace));
    TRY(arena_new(a, 2 * n * ACCESS_WORKSPACE + 1, &out->uses));
    TRY(arena_new(a, n * OP_MAX_OUT + 1, &out->inplaces));
    for (int64_t i = 0; i < n; i++) {
        const op_node *node = &program->lists[list].nodes[i];
        const op_kind *kind = op_kind_of(node->code);
        for (int k = 0; k < ACCESS_WORKSPACE; k++) {
            const operand_access is = plan_access_operand(program, node, k, true);
            if (is.owner == TENSOR_NONE) continue;
            out->uses[uses++] =
                (operand_use){is.owner, is.kind != ACCESS_READ, is.kind == ACCESS_UPDATE};
        }
        for (int k = 0; k < ACCESS_WORKSPACE; k++) { // a row count is a read
            const tensor_id count = plan_access_count(program, node, k);
            if (count == TENSOR_NONE) continue;
            out->uses[uses++] = (operand_use){.owner = op_owner(program, count).id};
        }
        for (int o = 0; o < OP_MAX_OUT; o++) {
            const tensor_id to = node->out[o];
            const tensor_id from = kind->inplace[o] >= 0 ? node->in[kind->inplace[o]] : TENSOR_NONE;
            if (to == TENSOR_NONE || from == TENSOR_NONE) continue;
            if (program->tensors[from].view_of != TENSOR_NONE ||
                program->tensors[to].view_of != TENSOR_NONE) {
                continue;
            }
            out->inplaces[inplaces++] = (inplace_use){from, to};
        }
        out->first[i + 1] = uses;
        out->first_inplace[i + 1] = inplaces;
    }
    return ST_OK;
}

static list_use *list_slot(list_use *lists, int64_t slots, const op_program *program, int32_t list)
{
    uint64_t at = (uint64_t)(uintptr_t)program / 64 * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)list;
    while (true) {
        list_use *l = &lists[at++ % (uint64_t)slots];
        if (l->program == NULL || (l->program == program && l->list == list)) return l;
    }
}

status list_use_of(list_uses *t, const op_program *program, int32_t list, const list_use **out)
{
    if (2 * (t->count + 1) > t->slots) {
        const int64_t slots = max_i64(4 * t->count, 256);
        list_use *grown = NULL;
        TRY(arena_new(t->a, slots, &grown));
        for (int64_t i = 0; i < t->slots; i++) {
            const list_use *l = &t->lists[i];
            if (l->program != NULL) *list_slot(grown, slots, l->program, l->list) = *l;
        }
        t->lists = grown;
        t->slots = slots;
    }
    list_use *l = list_slot(t->lists, t->slots, program, list);
    *out = l;
    if (l->program != NULL) return ST_OK;
    t->count++;
    return list_make(t->a, program, list, l);
}
