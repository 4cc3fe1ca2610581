// A step in virtual time: the trainer's own plans, priced for a cluster and simulated.
//
// The plans are those that `train` would execute. The simulator does with their actions what the executor
// does: each lane in order, what an action waits for first, ranks meet in what they do together; only the
// work is replaced by its price (cost/cost.h). Ranks of one stage of the pipeline have plans of equal
// shape and work in lockstep, so one of each stage is simulated, whatever dp, tp and cp are.
//
//   sim_price()    plans + cluster -> nanoseconds of every action
//   sim_step_run() prices -> when each action of some steps begins and ends, and why it did not earlier
//   sim_execute()  the executor does the steps on virtual devices: the proof of the simulator
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/event_loop.h"
#include "cost/cost.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// A rank that stands for all of its stage.
typedef struct sim_rank {
    const plan *p;
    plan_mesh mesh;
    // Of a step with more micro-batches than its plan has: so many, whose batch is copied; 0: the plan's.
    int64_t microbatches;
    int32_t first, count; // micro-batches whose times are told apart too
} sim_rank;

// Of the actions of a rank's plan: how long each takes, and how long messages besides hold up the next
// action on the compute lane (what a software does not hide), by what they are for; what goes to other stages does
// so from the end of the last action on, while the next may be waiting. Gradients that are summed once in a step hold up
// nothing: what is not hidden of them comes after the backward pass, so the last sum of a group ends no sooner than `tail`
// after what it waits for.
typedef struct sim_prices {
    int64_t *ns;                  // [action]
    int64_t *held[TRAFFIC_COUNT]; // [kind][action]; NULL: nothing is
    int64_t *tail;                // [action] 0: it has none; NULL: none has
    // What the host takes to issue an action of the compute lane, one after the other; it begins a step with the device,
    // and goes on when one that it waits for is done. NULL: it is always ahead.
    int64_t *issue;
    bool *waits;
} sim_prices;
static inline int64_t sim_held(const sim_prices *p, int64_t action)
{
    int64_t ns = 0;
    for (int k = 0; k < TRAFFIC_COUNT; k++) ns += p->held[k] != NULL ? p->held[k][action] : 0;
    return ns;
}
static inline int64_t sim_tail(const sim_prices *p, int64_t action)
{
    return p->tail != NULL ? p->tail[action] : 0;
}
static inline int64_t sim_sent(const sim_prices *p, int64_t action)
{
    return p->held[TRAFFIC_PP] != NULL ? p->held[TRAFFIC_PP][action] : 0;
}
// out: [count]. jitter and failures are none: the same prices for all.
NODISCARD status sim_price(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                           sim_prices *out);

// For the host, once in a step, of software with such habits: step_s, and the pieces of weights that ZeRO-3 keeps whole
// (persistent).
int64_t sim_host_ns(const cost_model *m, const sim_rank *ranks, int32_t count);

// The groups of a rank's plan as prices want them. out: [row of run->groups].
void sim_groups_of(const cost_model *m, const sim_rank *rank, cost_group *out);

// Sums of gradients once in a step: the tails (all but the last of their groups 0), and what those take that go in
// buckets, the last of a bucket for all of it (the habit sum_bytes). [communication]; ns NULL: none goes in one.
enum { SIM_ALONE = -1 }; // no sum, or by itself
typedef struct sim_sums {
    int64_t *tail, *ns;
} sim_sums;
// groups: [row of run->groups].
NODISCARD status sim_sums_make(arena *a, const cost_model *m, const cost_group *groups,
                               const plan *p, sim_sums *out);
static inline int64_t sim_sum_ns(const sim_sums *s, int32_t number, int64_t alone)
{
    return s->ns != NULL && s->ns[number] != SIM_ALONE ? s->ns[number] : alone;
}
// What a message takes on its lane; `overlapped`: not the compute lane, of which it holds up the next action.
void sim_collective_price(const cost_model *m, const cost_group *g, const plan *p,
                          const plan_comm *c, bool overlapped, int64_t *ns, int64_t *held);

// The last step of one rank: from the end of its last work in the step before to that in this one.
// length = compute + the sum of exposed + bubble + data + host, to the nanosecond.
typedef struct sim_times {
    int64_t length;
    int64_t compute;                // products and all else on the compute lane
    int64_t exposed[TRAFFIC_COUNT]; // compute stands still, or is held up, for a message under way
    int64_t sent[TRAFFIC_COUNT];    // messages in all, hidden ones too
    int64_t bubble;                 // it waits for another stage
    int64_t data;                   // for the batch
    int64_t host;                   // for the host: the habit step_s, and what it has not issued
} sim_times;

typedef event_span sim_span;

typedef struct sim_step {
    int64_t first_ns; // of the first step, from nothing
    int64_t step_ns;  // of the last: from the end of the one before, the slowest rank's
    int32_t ranks;
    sim_times *times; // [rank]
    sim_times *
        some; // [rank] the part that is of its micro-batches [first, first + count), `sent` left out
    sim_span **spans; // [rank][action] of the last step
} sim_step;

enum {
    SIM_STEPS = 3
}; // until a step is like the one before: gathers of weights go on into the next one
// Fails with ST_INTERNAL where actions wait for each other; a plan that the verifier took never does.
NODISCARD status sim_step_run(arena *a, const sim_rank *ranks, int32_t count,
                              const sim_prices *prices, int64_t host_ns, int32_t steps,
                              sim_step **out);

// Micro-batches [first, first + count), and those `apart` later.
typedef struct sim_stretch {
    int32_t first, count, apart;
} sim_stretch;
// Does every rank do with the later ones what it did with these, on every lane, the same time later? *period_ns: that
// time; 0: it does not.
NODISCARD status sim_repeats(arena *a, const sim_rank *ranks, const sim_step *step,
                             const sim_stretch *s, int64_t *period_ns);

// The same by the executor itself, of a host that is always ahead, on devices in virtual time (sim/virtual.h), which ask for the price of each
// kernel's call: what the trainer does, with every address and wait. To the nanosecond what
// sim_step_run gives for sim_price's prices.
typedef struct sim_executed {
    int64_t first_ns, step_ns;
    int64_t calls; // kernels launched, on all ranks
    // Of the fullest rank: what was allocated, and the highest byte that an operand covered.
    int64_t arena_bytes, touched_bytes;
} sim_executed;
NODISCARD status sim_execute(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                             int64_t host_ns, int32_t steps, sim_executed *out);

// What layers of one kind take in a micro-batch, on one rank, alone on the machine.
typedef struct sim_layer {
    const char *name; // of the first of them
    int32_t count;    // layers of this kind on all stages
    int64_t forward_ns, recompute_ns, backward_ns, collective_ns;
    double flops;       // forward and backward of a micro-batch, recompute included
    int64_t parameters; // of one layer, on this rank
} sim_layer;
enum { SIM_LAYERS = 16 };
// One row for each program of the model. *count <= SIM_LAYERS.
NODISCARD status sim_layers(arena *a, const cost_model *m, const sim_rank *first,
                            sim_layer out[SIM_LAYERS], int32_t *count);

// Chrome trace of the last step: a process for each rank, a track for each lane.
NODISCARD status sim_trace_print(const sim_rank *ranks, const sim_step *step, text *out);

#ifdef __cplusplus
}
#endif
#endif
