// The overlap rule: splits a list into parts. Rows are independent in GEMMs and in sums, so
// splitting changes no bit. Pieces are sequences of the micro-batch, or positions of its only
// sequence. A gather or scatter over positions needs every rank to have a part of every piece, so
// one sequence is cut into such pieces. A collective of less than a MiB costs more than it hides.
#include "plan/lower/overlap.h"

enum { PIECE_BYTES = 1 << 20, PIECE_POSITIONS = 64 };

static const op_node *node_at(const op_program *p, op_list list, int32_t at)
{
    return &p->lists[list].nodes[at];
}

static bool is_op(const op_node *node, op_collective op)
{
    const op_kind *kind = op_kind_of(node->code);
    return kind->communicates && kind->collective == op;
}

// True for a GEMM in which each row of the result depends on the same row of the input alone.
static bool is_gemm(const op_program *p, const op_node *node)
{
    if (node->code != OP_MATMUL && node->code != OP_MATMUL_DX) return false;
    const extent from = p->tensors[node->in[0]].dims[0], to = p->tensors[node->out[0]].dims[0];
    return from.symbol == EXTENT_TOKENS && to.symbol == EXTENT_TOKENS && from.scale == 1 &&
           to.scale == 1;
}

static bool reads(const op_node *node, tensor_id t)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == t) return t != TENSOR_NONE;
    }
    return false;
}

// ---- pieces -------------------------------------------------------------------------------------

// Number of pieces into which a collective of this size may be split, at most `most`.
static int64_t pieces_below(int64_t bytes, int64_t most)
{
    return min_i64(most, min_i64(bytes / PIECE_BYTES, OVERLAP_PIECES_MAX));
}

// `all`: the tensor that the communication sums, scatters or gathers, with all its rows. Below 2:
// no split.
static int32_t pieces_of(const overlap_rule *r, const op_program *p, const op_node *node,
                         tensor_id all)
{
    const op_tensor *t = &p->tensors[all];
    const int64_t bytes = r->sequences * r->seq * t->dims[1].scale * dtype_bytes(t->type);
    const bool cut = r->sequences == 1 && !is_op(node, COLLECTIVE_ALL_REDUCE);
    int64_t most = r->sequences > 1 ? r->sequences : r->seq / PIECE_POSITIONS;
    if (cut) most = r->cut_pieces;
    int64_t pieces = pieces_below(bytes, most);
    while (cut && pieces > 1 && most % pieces != 0)
        pieces--; // each piece is a whole number of cut pieces
    return (int32_t)pieces;
}

// True if the node gathers or scatters, over all of tp, rows that are cut by positions.
static bool cuts_positions(const op_program *p, const op_node *node)
{
    const bool gathers = is_op(node, COLLECTIVE_ALL_GATHER);
    const bool scatters = is_op(node, COLLECTIVE_REDUCE_SCATTER);
    if ((!gathers && !scatters) || node->attrs.axis != AXIS_TP) return false;
    const op_tensor *own = &p->tensors[gathers ? node->in[0] : node->out[0]];
    return own->ndim == 2 && own->dims[0].symbol == EXTENT_TOKENS_CUT && own->dims[0].scale == 1;
}

int64_t plan_overlap_cut_pieces(const op_model *m, int64_t tp, int64_t sequences, int64_t seq)
{
    int64_t bytes = 0;
    if (tp == 1 || sequences > 1) return 1;
    for (int32_t i = 0; i < m->program_count; i++) {
        const op_program *p = m->programs[i];
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            for (int64_t k = 0; k < p->lists[list].count; k++) {
                const op_node *node = &p->lists[list].nodes[k];
                if (!cuts_positions(p, node)) continue;
                const op_tensor *t = &p->tensors[node->in[0]];
                bytes = max_i64(bytes, seq * t->dims[1].scale * dtype_bytes(t->type));
            }
        }
    }
    int64_t pieces = max_i64(pieces_below(bytes, seq / PIECE_POSITIONS), 1);
    while (seq / tp % pieces != 0) pieces--;
    return pieces;
}

// ---- parts --------------------------------------------------------------------------------------

// Number of GEMMs at the end of `run` nodes whose results the collective after them sums. No other
// node needs these results before the sum.
static int32_t summed(const overlap_rule *r, const op_program *p, op_list list, int32_t begin,
                      int32_t run)
{
    const op_node *sum = node_at(p, list, begin + run);
    const bool sums = is_op(sum, COLLECTIVE_ALL_REDUCE) || is_op(sum, COLLECTIVE_REDUCE_SCATTER);
    if (!r->is_whole || !sums || sum->attrs.axis != AXIS_TP || sum->piece.inside > 0) return 0;
    int32_t gemms = 0;
    while (gemms < run) {
        const op_node *node = node_at(p, list, begin + run - 1 - gemms);
        if (!is_gemm(p, node) || !reads(sum, node->out[0])) break;
        gemms++;
    }
    return gemms > 0 && pieces_of(r, p, sum, sum->in[0]) > 1 ? gemms : 0;
}

// Number of GEMMs after the gather that begins the range, which read only the gathered rows and
// weights.
static int32_t gathered(const overlap_rule *r, const op_program *p, op_list list, int32_t begin,
                        int32_t count)
{
    const op_node *gather = node_at(p, list, begin);
    if (!r->is_whole || !r->gathers || !is_op(gather, COLLECTIVE_ALL_GATHER)) return 0;
    if (!cuts_positions(p, gather)) return 0;
    int32_t gemms = 0;
    while (gemms + 1 < count) {
        const op_node *node = node_at(p, list, begin + gemms + 1);
        if (!is_gemm(p, node) || node->in[0] != gather->out[0]) break;
        gemms++;
    }
    return gemms > 0 && pieces_of(r, p, gather, gather->out[0]) > 1 ? gemms : 0;
}

static bool is_operand(const op_program *p, const op_node *node, tensor_id of)
{
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        if (op_owner(p, op_operand(node, i)).id == of) return true;
    }
    return false;
}

// Number of shifts that begin the range, if the node after them does not read the received tensors.
static int32_t shifted(const op_program *p, op_list list, int32_t begin, int32_t count)
{
    int32_t shifts = 0;
    while (shifts < count && is_op(node_at(p, list, begin + shifts), COLLECTIVE_SEND)) shifts++;
    if (shifts == 0 || shifts + 1 >= count) return 0; // a later node must wait for them
    const op_node *next = node_at(p, list, begin + shifts);
    if (op_communicates(next->code)) return 0;
    for (int32_t i = 0; i < shifts; i++) {
        if (is_operand(p, next, node_at(p, list, begin + i)->out[0])) return 0;
    }
    return shifts;
}

// Nodes after `sends` exchanges that begin the range, which neither use what comes nor write what
// goes. One later node must wait for the exchanges, so there is none if they reach the end.
static int32_t independent(const op_program *p, op_list list, int32_t begin, int32_t count,
                           int32_t sends)
{
    int32_t nodes = 0;
    for (; sends + nodes < count; nodes++) {
        const op_node *next = node_at(p, list, begin + sends + nodes);
        if (op_communicates(next->code)) return nodes;
        for (int32_t i = 0; i < sends; i++) {
            const op_node *exchange = node_at(p, list, begin + i);
            if (is_operand(p, next, op_owner(p, exchange->out[0]).id)) return nodes;
            for (int o = 0; o < OP_MAX_OUT; o++) {
                const tensor_id to = op_owner(p, next->out[o]).id;
                if (to != TENSOR_NONE && is_operand(p, exchange, to)) return nodes;
            }
        }
    }
    return 0;
}

static bool moves_rows(const op_node *node)
{
    return op_kind_of(node->code)->collective == COLLECTIVE_ALL_TO_ALLV;
}

static overlap_part rows_part(const op_program *p, op_list list, int32_t begin, int32_t count)
{
    int32_t sends = 0, nodes = 0;
    while (sends < count && moves_rows(node_at(p, list, begin + sends))) sends++;
    if (sends > 0) nodes = independent(p, list, begin, count, sends);
    if (nodes == 0) return (overlap_part){OVERLAP_COLLECTIVE, 1, 1, 0};
    return (overlap_part){OVERLAP_ROWS, sends + nodes, 1, sends};
}

static overlap_part collective_part(const overlap_rule *r, const op_program *p, op_list list,
                                    int32_t begin, int32_t count)
{
    const op_node *node = node_at(p, list, begin);
    const int32_t shifts = shifted(p, list, begin, count);
    if (shifts > 0) return (overlap_part){OVERLAP_RING, shifts + 1, 1, 0};
    const int32_t gemms = gathered(r, p, list, begin, count);
    if (gemms == 0) return rows_part(p, list, begin, count);
    return (overlap_part){OVERLAP_GATHER, gemms + 1, pieces_of(r, p, node, node->out[0]), 0};
}

overlap_part plan_overlap_next(const overlap_rule *r, const op_program *p, op_list list,
                               int32_t begin, int32_t count)
{
    int32_t run = 0, gemms = 0;
    ASSERT(count > 0 && begin + count <= p->lists[list].count);
    while (run < count && !op_communicates(node_at(p, list, begin + run)->code)) run++;
    if (run == 0) return collective_part(r, p, list, begin, count);
    if (run + 1 < count) gemms = summed(r, p, list, begin, run); // a later node must wait
    if (gemms == 0 || gemms < run) return (overlap_part){OVERLAP_COMPUTE, run - gemms, 1, 0};
    const op_node *sum = node_at(p, list, begin + run);
    return (overlap_part){OVERLAP_SUM, run + 1, pieces_of(r, p, sum, sum->in[0]), 0};
}
