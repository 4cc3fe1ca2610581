// Declarations shared by verify_sums.c (the effect of a rank's actions on sums), verify_reduce.c
// (the effect of communication) and verify_order.c (strict order).
#ifndef PLAN_VERIFY_VERIFY_SUMS_H
#define PLAN_VERIFY_VERIFY_SUMS_H

#include "plan/verify/verify_internal.h"
#include "plan/verify/verify_terms.h"

enum { STEP_TOKENS, STEP_LOSS, STEP_NORM, STEP_LOADS, STEP_SUMS };

typedef struct rank_sums {
    verify_values *held; // [tensor]: the terms of accumulators, the updated bytes of run tensors
    verify_terms step[STEP_SUMS];
    bool decides, has_loss; // it is a training plan; the model counts tokens
} rank_sums;

// A use of a weight: a layer's accumulator.
typedef struct verify_source {
    int32_t layer, weight;
} verify_source;

typedef struct sums_walk {
    verifier *v;
    rank_sums *ranks;
    int32_t *rank_of; // [action over all ranks]
    // Uses are numbered by layer and then by tensor of its program: the order of their forward.
    const op_model *model;
    verify_source *sources;
    int32_t source_count;
    int32_t *first_source; // [layer]
    // The current rendezvous.
    const verify_facts **facts;
    int32_t *action, member_count;
} sums_walk;

static inline verify_values *verify_held(const sums_walk *w, const verify_facts *f, int32_t tensor)
{
    return &w->ranks[f->rank].held[tensor];
}
// Returns the offset from the tensor's first byte.
static inline int64_t verify_first(const verify_facts *f, verify_bytes b)
{
    return b.begin - f->where[b.tensor].begin;
}
static inline bool verify_accumulates(const verify_facts *f, int32_t tensor)
{
    const plan_tensor *t = verify_tensor(f, tensor);
    return tensor >= f->run_count && t->kind == PLAN_BYTES_GRADIENTS && t->weight >= 0;
}
static inline const char *verify_use_name(const sums_walk *w, int32_t source)
{
    return w->model->layers[w->sources[source].layer].name;
}
// Whether the terms are numbers of calls, whose sum is exact, so it needs no order.
static inline bool verify_are_counts(const sums_walk *w, const verify_terms *terms)
{
    if (terms->count == 0) return false;
    return w->model->weights[w->sources[terms->rows[0].source].weight].is_history;
}

// verify_reduce.c
NODISCARD status verify_rendezvous_sums(sums_walk *w);
// verify_order.c: rows are cut into cells and numbered in each, `unit` rows for a sequence.
enum { VERIFY_MAX_TERMS = 256 };
int64_t verify_unit(const verify_facts *f);
static inline long long verify_from(const verify_facts *f, int64_t row) // sequences, for messages
{
    return (long long)(row / verify_unit(f));
}
static inline long long verify_upto(const verify_facts *f, int64_t row)
{
    return (long long)((row - 1) / verify_unit(f) + 1);
}
// Counts the cells in the sums of a weight's gradient; weight -1: in those of tokens.
int32_t verify_cells(const verify_facts *f, int32_t weight);
// Lists the terms of an action on its rows: one for each cell.
int verify_action_terms(const verify_facts *f, int32_t index, int32_t weight, int32_t source,
                        verify_term out[VERIFY_MAX_TERMS]);
// Strict order: whether `next` continues the left-to-right sum over a shard's rows, from its first.
bool verify_shard_is_right(const verify_facts *f, const verify_terms *held, const verify_term *next,
                           bool starts);
// Whether two sums are the children of one node of the tree over shards, or `from` is a complete
// use after earlier ones.
bool verify_order_is_right(const verify_facts *f, const verify_terms *to, const verify_terms *from);
// Whether the terms are those that the leaf names.
bool verify_leaf_is_right(const verify_facts *f, const plan_comm_leaf *leaf,
                          const verify_terms *held);

#endif
