// Declarations shared by the files of the search: parts that layouts share (search_shared.c), the
// list of layouts (search_layouts.c), and the best of them (search.c).
#ifndef PREDICT_SEARCH_INTERNAL_H
#define PREDICT_SEARCH_INTERNAL_H

#include "predict/search.h"

// Measurements for one way to cut the model and one micro-batch.
typedef struct measured {
    int64_t micro_batch;
    estimate *e;
    estimate_prices *prices;
} measured;

// Parts shared by layouts with the same tp, cp, ep, etp, sp, ring and recomputation.
typedef struct family {
    int32_t tp, cp, ep;
    bool sp, ring, whole_experts;
    op_recompute recompute;
    int32_t recompute_layers;
    op_model *whole, *local;
    measured *each;
    int64_t count, capacity;
} family;

// Layers of stages, balanced by the costs of the whole model.
typedef struct cut {
    op_recompute recompute;
    int32_t recompute_layers, depth;
    const int32_t *first_layer;
} cut;

typedef struct joined {
    int32_t tp, cp, pp, ep;
    bool whole_experts;
    estimate_links links;
} joined;

// Schedules and chunks that this number of pp ranks allows for this number of micro-batches.
typedef struct way {
    const plan_schedule *schedule; // NULL where pp is 1
    int32_t chunks, depth;
} way;
typedef struct way_list {
    int32_t pp;
    int64_t microbatches;
    way *ways;
    int64_t count, capacity;
    int64_t ruled_out[RULE_COUNT];
} way_list;

// Layouts with equal schedule, ranks, chunks and micro-batches have the same actions in the same
// order.
enum { WORK_RANKS = 4 };
typedef struct shared_pipe {
    const plan_schedule *schedule;
    int32_t pp, chunks, microbatches;
    estimate_pipe *pipe; // NULL: not yet
    int32_t rank_count, ranks[WORK_RANKS];
    estimate_work works[WORK_RANKS];
} shared_pipe;
enum { PIPE_ACTIONS_MOST = 1 << 22 }; // limit on kept actions: about 200 MB

typedef struct candidate {
    search_layout layout;
    estimate_time least;
    const measured *m;
    const int32_t *first_layer;
    search_found *found; // set once it may fit and its least time is the tighter one
} candidate;

// Layouts that differ only in schedule, chunks and ZeRO: none takes less time than their work.
typedef struct group {
    search_layout layout; // the common part
    const measured *m;    // NULL: its least time is that of a group that recomputes less
    int64_t microbatches;
    way_list *ways;
} group;

// The next thing to examine: the one with the least time.
typedef struct item {
    int64_t least_ns;
    group *g; // a group to open; else NULL
    candidate *c;
} item;

// A layout to be simulated; rows: candidates_rows() of it.
typedef struct waiting {
    search_found *found;
    int64_t rows;
} waiting;
enum { WAITING_MOST = 2 };

typedef struct search {
    arena *a, *work;
    const search_request *r;
    search_result *out;
    family *families;
    int64_t family_count, family_capacity;
    const estimate_prices *first_prices; // all prices share its buffers
    cut *cuts;
    int64_t cut_count, cut_capacity;
    joined *links;
    int64_t link_count, link_capacity;
    way_list **ways;
    int64_t way_count, way_capacity;
    arena *pipe_arena;
    shared_pipe *pipes;
    int64_t pipe_count, pipe_capacity, pipe_actions;
    item *heap;
    int64_t heap_count, heap_capacity;
    waiting waits[WAITING_MOST]; // in order of arrival
    int32_t wait_count;
    int64_t simulated_rows; // candidates_rows() of all
    int64_t looked;         // layouts judged by more than a least time
    int64_t plan_capacity;
} search;

// ---- shared parts ------------------------------------------------------------------------------
NODISCARD status search_family_of(search *s, const search_layout *l, family **out);
NODISCARD status search_links_of(search *s, const search_layout *l, const estimate_links **out);
NODISCARD status search_measured_of(search *s, const search_layout *l, family *f,
                                    const measured **out);
// Rows of the model's layers, stage by stage.
NODISCARD status search_cut_of(search *s, const search_layout *l, const op_model *whole,
                               int32_t depth, const int32_t **out);
// Stages of a whole pipeline: with a given cut, the ends may have no layer, and halves count.
static inline int64_t search_stages_most(const search *s)
{
    return s->r->pipeline != NULL ? INT32_MAX : s->r->layers;
}
NODISCARD status search_ways_of(search *s, int32_t pp, int64_t microbatches, way_list **out);
NODISCARD status search_pipe_of(search *s, const estimate_layout *l, shared_pipe **out);
estimate_layout search_estimate_layout(const search *s, const search_layout *l,
                                       const int32_t *first_layer);

// ---- every layout ------------------------------------------------------------------------------
// Makes groups of all valid layouts on the heap; counts them and the excluded ones.
NODISCARD status search_groups_make(search *s);
// Replaces a group by its layouts, or puts it back with a least time of its own.
NODISCARD status search_group_open(search *s, group *g, int64_t least_ns);
NODISCARD status search_push(search *s, const item *x);
item search_pop(search *s); // takes the first one

#endif
