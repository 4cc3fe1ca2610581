// The parts of a list are those that lowering makes (plan/lower/overlap.h); each begins when the
// one before is done:
//
//   sum      | GEMM 1 | GEMM 2 |                  all GEMMs and the last sum, or
//                     | sum 1  | sum 2 |          the first GEMM and all sums
//   gather            | GEMM 1 | GEMM 2 |         the first gather and all GEMMs, or
//            | gather 1 | gather 2 |              all gathers and the last GEMM
//   ring     | GEMM           |                   the GEMM, or
//            | send | receive |                   all shifts
//
// whichever takes longer. The pieces of a GEMM together take no less than the whole, and neither do
// the pieces of a collective.
#include "predict/estimate_internal.h"

typedef struct list_prices {
    const cost_model *m;
    const estimate_links *links;
    const op_program *p;
    const op_node *nodes;
    const extent_binding *bound;
} list_prices;

// ---- collectives -------------------------------------------------------------------------------

// The number of elements that cost_comm_bytes() would count.
static double collective_bytes(const list_prices *x, const op_node *node, int64_t ranks)
{
    const op_tensor *in = &x->p->tensors[node->in[0]], *out = &x->p->tensors[node->out[0]];
    const double width = (double)dtype_bytes(in->type);
    const op_collective collective = op_kind_of(node->code)->collective;
    if (collective != COLLECTIVE_REDUCE_SCATTER && collective != COLLECTIVE_ALL_GATHER) {
        return op_tensor_likely(in, x->bound) * width;
    }
    const op_tensor *piece = collective == COLLECTIVE_REDUCE_SCATTER ? out : in;
    return (double)op_tensor_elements(piece, x->bound) * width * (double)ranks;
}

static const cost_group *group_of(const list_prices *x, const op_node *node)
{
    if (node->attrs.axis == AXIS_EP) return &x->links->ep;
    if (node->attrs.axis != AXIS_CP) return &x->links->tp;
    const bool is_exchange = op_kind_of(node->code)->collective == COLLECTIVE_ALL_TO_ALL;
    return is_exchange ? &x->links->heads : &x->links->cp;
}

// Time of the collective over `share` of its rows; for a shift, of the send. Collectives among only
// some ranks of tp are left out.
static int64_t collective_ns(const list_prices *x, const op_node *node, double share)
{
    const cost_group *g = group_of(x, node);
    const op_collective op = op_kind_of(node->code)->collective;
    if (node->piece.inside > 0 || node->piece.across > 0) return 0;
    return cost_collective_ns(x->m, g, op, collective_bytes(x, node, g->ranks) * share);
}

// ---- parts --------------------------------------------------------------------------------------

static int64_t nodes_ns(const list_prices *x, int32_t begin, int32_t count, double share)
{
    int64_t ns = 0;
    extent_binding some = *x->bound;
    for (int s = 1; s < EXTENT_SYMBOL_COUNT; s++) {
        some.value[s] = (int64_t)((double)some.value[s] * share);
    }
    for (int32_t i = 0; i < count; i++) {
        ns += cost_node_ns(x->m, x->p, &x->nodes[begin + i], share < 1.0 ? &some : x->bound);
    }
    return ns;
}

// Share of rows in the first or the last piece; all rows are 1.
static double share_of(const overlap_rule *r, int32_t pieces, bool first)
{
    const int64_t all = plan_overlap_row(r, pieces, pieces);
    const int64_t rows =
        first ? plan_overlap_row(r, 1, pieces) : all - plan_overlap_row(r, pieces - 1, pieces);
    return (double)rows / (double)all;
}

static int64_t pieces_ns(const list_prices *x, const overlap_rule *r, const overlap_part *part,
                         int32_t begin)
{
    const bool sums = part->kind == OVERLAP_SUM;
    const int32_t gemms = part->nodes - 1, first = sums ? begin : begin + 1;
    const op_node *node = &x->nodes[sums ? begin + gemms : begin];
    const int64_t collective = collective_ns(x, node, 1.0);
    const int64_t held = estimate_held_ns(x->m, group_of(x, node), collective);
    // The collective that no GEMM overlaps, and the GEMMs that no collective overlaps.
    const int64_t alone = collective_ns(x, node, share_of(r, part->pieces, !sums));
    const int64_t free = nodes_ns(x, first, gemms, share_of(r, part->pieces, sums));
    return max_i64(nodes_ns(x, first, gemms, 1.0) + held + alone, collective + free);
}

static int64_t ring_ns(const list_prices *x, const overlap_part *part, int32_t begin)
{
    int64_t turn = 0, held = 0;
    for (int32_t i = 0; i < part->nodes - 1; i++) {
        const op_node *shift = &x->nodes[begin + i];
        const int64_t ns = collective_ns(x, shift, 1.0);
        turn += 2 * ns;
        held += estimate_held_ns(x->m, group_of(x, shift), ns); // delay by the send
    }
    return max_i64(nodes_ns(x, begin + part->nodes - 1, 1, 1.0) + held, turn);
}

static int64_t rows_ns(const list_prices *x, const overlap_part *part, int32_t begin)
{
    int64_t way = 0, held = 0;
    for (int32_t i = 0; i < part->sends; i++) {
        const op_node *exchange = &x->nodes[begin + i];
        const int64_t ns = collective_ns(x, exchange, 1.0);
        way += ns;
        held += estimate_held_ns(x->m, group_of(x, exchange), ns);
    }
    return max_i64(nodes_ns(x, begin + part->sends, part->nodes - part->sends, 1.0) + held, way);
}

static int64_t between_ns(const list_prices *x, int32_t begin)
{
    const op_node *node = &x->nodes[begin];
    const double overlap = cost_overlap(x->m->profile, group_of(x, node), false);
    const int64_t ns = (int64_t)((double)collective_ns(x, node, 1.0) * (1.0 - overlap));
    return op_kind_of(node->code)->collective == COLLECTIVE_SEND ? 2 * ns
                                                                 : ns; // a send and a receive
}

int64_t estimate_list_ns(const estimate *e, const cost_model *m, const estimate_links *links,
                         const op_program *p, op_list list, const extent_binding *bound)
{
    const overlap_rule rule = estimate_overlap_rule(e, list);
    const list_prices x = {
        .m = m, .links = links, .p = p, .nodes = p->lists[list].nodes, .bound = bound};
    const int32_t count = (int32_t)p->lists[list].count;
    int64_t ns = 0;
    for (int32_t i = 0; i < count;) {
        const overlap_part part = plan_overlap_next(&rule, p, list, i, count - i);
        switch (part.kind) {
        case OVERLAP_COLLECTIVE:
            ns += between_ns(&x, i);
            break;
        case OVERLAP_SUM:
        case OVERLAP_GATHER:
            ns += pieces_ns(&x, &rule, &part, i);
            break;
        case OVERLAP_RING:
            ns += ring_ns(&x, &part, i);
            break;
        case OVERLAP_ROWS:
            ns += rows_ns(&x, &part, i);
            break;
        case OVERLAP_COMPUTE:
        default:
            ns += nodes_ns(&x, i, part.nodes, 1.0);
            break;
        }
        i += part.nodes;
    }
    return ns;
}
