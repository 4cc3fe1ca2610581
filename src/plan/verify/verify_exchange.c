// The verifier: rows of experts that ranks exchange pair up under every count.
//
// No plan knows how many rows a rank sends to another one: both read offsets in device memory. They
// agree whatever the router does if each exchange has, on one side, the offsets of the PERMUTE that
// ordered the rows, and on the other side those that ROW_OFFSETS has made from the counts of just
// these rows, which an ALL_TO_ALL among the same ranks has exchanged. All rows fit if the tensor
// that they come to holds every token of each rank as often as the token can take experts of one
// rank, or as often as a limit of rows allows.
#include "plan/verify/verify_internal.h"

static const op_node *maker_of(const op_program *p, tensor_id t, op_code code, int out)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            if (node->code == code && node->out[out] == t) return node;
        }
    }
    return NULL;
}

// Returns the PERMUTE whose rows the offsets count where they come from.
static const op_node *permute_behind(const op_program *p, tensor_id offsets, const op_node *node)
{
    const op_node *sum = maker_of(p, offsets, OP_ROW_OFFSETS, 0);
    const op_node *swap = sum != NULL ? maker_of(p, sum->in[0], OP_ALL_TO_ALL, 0) : NULL;
    const op_node *count = swap != NULL ? maker_of(p, swap->in[0], OP_COUNT_ROWS, 0) : NULL;
    if (count == NULL || swap->attrs.axis != AXIS_EP) return NULL;
    const bool same =
        count->attrs.experts == node->attrs.experts && sum->attrs.experts == node->attrs.experts &&
        count->attrs.ranks == node->attrs.ranks && sum->attrs.ranks == node->attrs.ranks;
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count && same; i++) {
        const op_node *permute = &p->lists[OP_FORWARD].nodes[i];
        const bool sorts = op_kind_of(permute->code)->sorts == SORTS_OUTPUT;
        if (sorts && permute->in[1] == count->in[0]) return permute;
    }
    return NULL;
}

// Returns the most rows that may come to a rank, for these numbers of tokens and sequences.
static int64_t most_rows(const op_program *p, const op_node *node, const op_node *permute,
                         const extent_binding *bound)
{
    const op_tensor *ids = &p->tensors[permute->in[1]];
    const int64_t tokens = extent_value(ids->dims[0], bound), taken = ids->dims[1].scale;
    const int64_t each = min_i64(taken, node->attrs.experts);
    const op_node *place = maker_of(p, permute->in[1], OP_PLACE_EXPERTS, 0);
    const tensor_id chosen = place != NULL ? place->in[0] : permute->in[1];
    const op_node *limit = maker_of(p, chosen, OP_LIMIT_ROWS, 0);
    int64_t most = tokens * each;
    if (limit != NULL) {
        const int64_t rows = bound->value[EXTENT_SEQS] * node->attrs.experts * limit->attrs.limit;
        most = min_i64(most, rows);
    }
    return node->attrs.ranks * most;
}

static status exchange_check(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const char *name = p->tensors[node->out[0]].name;
    const bool back = maker_of(p, node->in[1], OP_ROW_OFFSETS, 0) != NULL;
    const tensor_id here = node->in[back ? 2 : 1], there = node->in[back ? 1 : 2];
    const op_node *sorted = maker_of(p, here, OP_PERMUTE, 2);
    const op_node *permute = permute_behind(p, there, node);
    if (permute == NULL || sorted == NULL || sorted->out[2] != permute->out[2]) {
        return fail(ST_BROKEN_PLAN,
                    "the exchange of %s has offsets on its two sides that are not of the same rows",
                    name);
    }
    const op_tensor *rows = &p->tensors[back ? node->in[0] : node->out[0]];
    const int64_t fit = extent_value(rows->dims[0], bound);
    const int64_t most = most_rows(p, node, permute, bound);
    if (fit >= most) return ST_OK;
    return fail(ST_BROKEN_PLAN, "the exchange of %s may bring %lld rows, and %s has %lld", name,
                (long long)most, rows->name, (long long)fit);
}

status verify_exchange_program(const op_program *p, const extent_binding *bound)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            const op_kind *kind = op_kind_of(node->code);
            if (kind->communicates && kind->collective == COLLECTIVE_ALL_TO_ALLV) {
                TRY(exchange_check(p, node, bound));
            }
        }
    }
    return ST_OK;
}

status verify_exchanges(const verifier *v)
{
    for (int32_t r = 0; r < v->rank_count; r++) {
        const plan *p = v->plans[r];
        const extent_binding bound = plan_bound(p, p->micro_batch, 0);
        if (r > 0 && p->model == v->plans[r - 1]->model) continue;
        for (int32_t i = 0; i < p->model->program_count; i++) {
            TRY(verify_exchange_program(p->model->programs[i], &bound));
        }
    }
    return ST_OK;
}
