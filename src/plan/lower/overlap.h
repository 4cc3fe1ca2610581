// Decides which GEMMs of a list overlap with their collective, and into how many row chunks
// ("pieces") each is split. Pure. Lowering (plan/lower/collect_nodes.c) and the least times of a
// search (predict/estimate_lists.c) use the same rule.
#ifndef PLAN_LOWER_OVERLAP_H
#define PLAN_LOWER_OVERLAP_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OVERLAP_PIECES_MAX = 4 };

typedef struct overlap_rule {
    int64_t sequences, seq; // of the micro-batch; rows of a sequence on this rank
    // For one sequence whose positions are cut over AXIS_TP: number of pieces of which each rank
    // has a part; 1: the sequence is not cut into pieces.
    int64_t cut_pieces;
    bool gathers; // gathers are split into pieces too
    // The action covers all rows of the micro-batch, forward or for gradients of inputs; otherwise
    // nothing is split.
    bool is_whole;
} overlap_rule;

typedef enum overlap_kind {
    OVERLAP_COMPUTE,    // nodes without a collective
    OVERLAP_COLLECTIVE, // a collective between GEMMs, without overlap
    OVERLAP_SUM,        // GEMMs, and a sum or scatter of their results
    OVERLAP_GATHER,     // a gather, and the GEMMs that read it
    OVERLAP_RING,       // shifts, and a node that reads none of the received tensors
    OVERLAP_ROWS        // rows that go to experts, and nodes that need none of those that come
} overlap_kind;
typedef struct overlap_part {
    overlap_kind kind;
    int32_t nodes;  // number of nodes of the list
    int32_t pieces; // into which OVERLAP_SUM and OVERLAP_GATHER are split
    int32_t sends;  // OVERLAP_ROWS: exchanges, at its beginning
} overlap_part;
// The first part of nodes [begin, begin + count) of the list.
overlap_part plan_overlap_next(const overlap_rule *r, const op_program *p, op_list list,
                               int32_t begin, int32_t count);

// First row of piece i of n, in sequences if the micro-batch has several, otherwise in rows of its
// only one.
static inline int64_t plan_overlap_row(const overlap_rule *r, int32_t i, int32_t n)
{
    return (r->sequences > 1 ? r->sequences : r->seq) * i / n;
}

// Value of overlap_rule.cut_pieces in fast order, if a rank has `seq` rows of each of `sequences`
// sequences.
int64_t plan_overlap_cut_pieces(const op_model *m, int64_t tp, int64_t sequences, int64_t seq);

#ifdef __cplusplus
}
#endif
#endif
