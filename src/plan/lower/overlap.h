// What goes beside what: which nodes of a list are products that a message of theirs is sent
// beside, and in how many pieces of rows. Pure. One rule for plans (plan/lower/collect_nodes.c) and
// for the least times of a search (predict/estimate_lists.c).
#ifndef PLAN_LOWER_OVERLAP_H
#define PLAN_LOWER_OVERLAP_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OVERLAP_PIECES_MAX = 4 };

typedef struct overlap_rule {
    int64_t sequences, seq; // of the micro-batch; rows of a sequence on this rank
    // Of one sequence whose positions are cut over AXIS_TP: pieces of which each rank has a part;
    // 1: it goes whole.
    int64_t cut_pieces;
    bool gathers; // what is gathered goes in pieces too
    // All rows of the micro-batch, forward or gradients of inputs: else nothing goes in pieces.
    bool is_whole;
} overlap_rule;

typedef enum overlap_kind {
    OVERLAP_COMPUTE,    // nodes without a message
    OVERLAP_COLLECTIVE, // one, between products
    OVERLAP_SUM,        // products, and a sum or scatter of what they make
    OVERLAP_GATHER,     // a gather, and the products that read it
    OVERLAP_RING        // shifts, and a node that reads nothing of what comes
} overlap_kind;
typedef struct overlap_part {
    overlap_kind kind;
    int32_t nodes;  // of the list
    int32_t pieces; // of OVERLAP_SUM and OVERLAP_GATHER: that they go in
} overlap_part;
// The first part of nodes [begin, begin + count) of the list.
overlap_part plan_overlap_next(const overlap_rule *r, const op_program *p, op_list list,
                               int32_t begin, int32_t count);

// Piece i of n begins here: sequences of several, else rows of the one.
static inline int64_t plan_overlap_row(const overlap_rule *r, int32_t i, int32_t n)
{
    return (r->sequences > 1 ? r->sequences : r->seq) * i / n;
}

// overlap_rule.cut_pieces in fast order, where a rank has `seq` rows of each of so many sequences.
int64_t plan_overlap_cut_pieces(const op_model *m, int64_t tp, int64_t sequences, int64_t seq);

#ifdef __cplusplus
}
#endif
#endif
