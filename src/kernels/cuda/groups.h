// The rows of each expert, as offsets and counts in device memory say (kernels/expert_rows.h).
#ifndef KERNELS_CUDA_GROUPS_H
#define KERNELS_CUDA_GROUPS_H

#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/view.h"

typedef struct group_rows {
    int64_t expert, begin, count;
} group_rows;

// The rows of expert e that have come from a rank.
DEV_INLINE group_rows groups_rows_of(const cuda_groups *g, int64_t rank, int64_t e)
{
    group_rows r;
    int64_t begin = g->rows * e / g->experts, end = g->rows * (e + 1) / g->experts;
    if (g->offsets.data != NULL) {
        begin = dev_index(&g->offsets, rank * g->experts + e);
        end = dev_index(&g->offsets, rank * g->experts + e + 1);
        dev_index_check("offsets of experts", e, end, g->rows + 1);
        dev_index_check("offsets of experts", e, begin, end + 1);
    }
    r.expert = e;
    r.begin = begin;
    r.count = end - begin;
    return r;
}

// Finds tile `*tile` of `side` rows; on return *tile is its number within the rows of its expert.
// count 0: there are not so many tiles.
DEV_INLINE group_rows groups_find(const cuda_groups *g, int64_t side, int64_t *tile)
{
    group_rows r;
    for (int64_t i = 0; i < g->ranks * g->experts; i++) {
        r = groups_rows_of(g, i / g->experts, i % g->experts);
        const int64_t tiles = (r.count + side - 1) / side;
        if (*tile < tiles) return r;
        *tile -= tiles;
    }
    r.expert = r.begin = r.count = 0;
    return r;
}

// The rows that are added up for an expert, in their order: rank by rank, or, where sequences are
// counted and ranks have pieces of sequences, sequence by sequence.
DEV_INLINE bool groups_by_sequence(const cuda_groups *g)
{
    return g->counts.data != NULL && (g->sequence_count > 0 || g->pieces > 1);
}

DEV_INLINE int64_t groups_sequences(const cuda_groups *g) // of which segments are made
{
    if (!groups_by_sequence(g)) return 1;
    return g->sequence_count > 0 ? g->sequence_count : g->counts.rows / g->ranks;
}

DEV_INLINE int64_t groups_segments(const cuda_groups *g)
{
    const int64_t sources = g->rows_of > 0 ? 1 : g->ranks / g->pieces;
    return sources * groups_sequences(g) * g->pieces;
}

// Segment i of expert e.
DEV_INLINE group_rows groups_segment(const cuda_groups *g, int64_t e, int64_t i)
{
    const int64_t sequences = groups_sequences(g), source = i / g->pieces / sequences;
    const int64_t first = g->rows_of > 0 ? g->rows_of - 1 : 0;
    const int64_t rank = (first + source) * g->pieces + i % g->pieces;
    group_rows r = groups_rows_of(g, rank, e);
    if (!groups_by_sequence(g)) return r;
    const int64_t all = g->counts.rows / g->ranks, end = r.begin + r.count;
    const int64_t sequence =
        (g->sequence_count > 0 ? g->sequence_begin : 0) + i / g->pieces % sequences;
    for (int64_t q = 0; q < sequence; q++) {
        r.begin += dev_index(&g->counts, (rank * all + q) * g->counts.stride + e);
    }
    r.count = dev_index(&g->counts, (rank * all + sequence) * g->counts.stride + e);
    dev_index_check("rows of a sequence", sequence, r.begin + r.count, end + 1);
    return r;
}

DEV_INLINE cuda_view groups_view(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    out.data = (char *)v->data + first * v->stride * dev_width(v->type);
    out.rows = count;
    out.count = NULL;
    return out;
}

#endif
