// Declarations shared by the files of cost: seconds of the parts of a price, and the effects of
// habits of other software.
#ifndef COST_COST_INTERNAL_H
#define COST_COST_INTERNAL_H

#include "cost/cost.h"
#include "cost/habits.h"

#include <math.h>

static inline int64_t cost_ns_of(double seconds)
{
    ASSERT(seconds >= 0.0 && seconds < 1e9);
    return (int64_t)ceil(seconds * 1e9);
}

static inline double cost_over(double amount, double rate)
{
    return amount <= 0.0 || rate <= 0.0 ? 0.0 : amount / rate;
}

// ---- operations (cost.c) -----------------------------------------------------------------------

double cost_memory_s(const cost_model *m, double bytes);
double cost_copy_s(const cost_model *m, double bytes);
double cost_launch_s(const cost_model *m);
double cost_dim_of(const op_program *p, tensor_id t, int dim, const extent_binding *bound);

// ---- collectives (cost_collective.c) -----------------------------------------------------------

double cost_level_rate(const cost_model *m, const cost_group *g, int32_t level);
int64_t cost_units_below(const cost_group *g, int32_t level);
double cost_pieces_latency(const cost_model *m, const cost_group *g);
double cost_gather_s(const cost_model *m, const cost_group *g, double bytes, bool sums);
int64_t cost_sent_ns(const cost_model *m, const cost_group *g, op_collective op, double bytes);

// ---- habits (habits.c) -------------------------------------------------------------------------

// Bytes that an element-wise operation moves, relative to those of the plan's operation.
double cost_habit_moved(const cost_profile *p, op_code code);
// Columns of logits that a rank of tp computes, and those of which it computes the loss, if the
// plan has `vocab` of them.
typedef struct cost_columns {
    double made, lost;
} cost_columns;
cost_columns cost_habit_columns(const cost_model *m, const op_node *node, double vocab);
// Time before the loss if those columns are more than the rank's own.
double cost_habit_logits_s(const cost_model *m, double rows, double vocab, double columns);
// Time of kernels in addition to the operation's own.
double cost_habit_node_s(const cost_model *m, const op_program *p, const op_node *node,
                         const extent_binding *bound);
double cost_habit_most_rate(const cost_profile *p,
                            const cost_group *g); // bytes per second; 0: no limit
// Latency of the hops of a gather or scatter; false: the latency of the links applies.
bool cost_habit_hops(const cost_profile *p, const cost_group *g, double *s);
// Experts' rows in an all-to-all of this many bytes: their bytes, the share that leaves a node, and
// the least time.
typedef struct cost_exchange {
    double bytes, outside, least_s;
} cost_exchange;
cost_exchange cost_habit_exchange(const cost_model *m, const cost_group *g, double bytes);
// Bytes that a collective sends.
double cost_habit_sent_bytes(const cost_model *m, const cost_group *g, op_collective op,
                             double bytes);
// Additional time of a gather or scatter that goes tensor by tensor.
int64_t cost_habit_gathered_ns(const cost_model *m, const cost_group *g, const plan *p,
                               const plan_comm *c);

#endif
