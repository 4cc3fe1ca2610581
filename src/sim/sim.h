// Simulates a step in virtual time: the trainer's own plans, priced for a cluster.
//
// The plans are those that `train` would execute. The simulator does with their actions what the
// executor does: each stream runs in order, actions wait for their dependencies, and ranks
// rendezvous in collectives; only the work is replaced by its price (cost/cost.h). The ranks of one
// pipeline stage have plans of equal shape and work in lockstep, so one rank per stage is
// simulated, whatever dp, tp and cp are.
//
//   sim_price()    plans + cluster -> nanoseconds of every action
//   sim_step_run() prices -> begin and end of each action of some steps, and the causes of waits
//   sim_execute()  the executor does the steps on virtual devices: the proof of the simulator
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/event_loop.h"
#include "cost/cost.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// A rank that stands for all ranks of its stage.
typedef struct sim_rank {
    const plan *p;
    plan_mesh mesh;
    // Number of micro-batches of the step whose batch is copied, if it has more than the plan; 0:
    // the plan's.
    int64_t microbatches;
    int32_t first, count; // micro-batches whose times are reported separately
} sim_rank;

// Prices of a rank's actions: how long each takes, and how long overlapped collectives delay the
// next action on the compute stream (the part that a profile does not hide), by kind of traffic. A
// transfer to another stage delays from the end of the last action on, even while the next one
// waits. Sums of gradients that run once in a step delay no compute: their exposed part comes after
// the backward pass, so the last sum of a group ends at least `tail` after its dependencies.
typedef struct sim_prices {
    int64_t *ns;                  // [action]
    int64_t *held[TRAFFIC_COUNT]; // [kind][action]; NULL: no delay
    int64_t *tail;                // [action] 0: none; NULL: no action has one
    // Time that the host takes to issue an action of the compute stream. Actions are issued one
    // after the other, beginning with the step; the host continues when an action that it waits for
    // is done. NULL: the host is always ahead.
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
// out: [count]. Jitter and failures are left out: all ranks have the same prices.
NODISCARD status sim_price(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                           sim_prices *out);

// Time of the host once in a step, for profiles with such habits: step_s, and the pieces of weights
// that ZeRO-3 keeps whole (persistent).
int64_t sim_host_ns(const cost_model *m, const sim_rank *ranks, int32_t count);

// The groups of a rank's plan in the form that prices take. out: [row of run->groups].
void sim_groups_of(const cost_model *m, const sim_rank *rank, cost_group *out);

// Sums of gradients once in a step: the tails (0 for all but the last of a group), and the times of
// sums that go in buckets; the last of a bucket carries the time of all (the habit sum_bytes).
// Indexed by [communication]; ns is NULL if none goes in a bucket.
enum { SIM_ALONE = -1 }; // not a sum, or a sum of its own
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
// Price of a collective on its stream; `overlapped`: it overlaps the compute stream and delays
// that stream's next action.
void sim_collective_price(const cost_model *m, const cost_group *g, const plan *p,
                          const plan_comm *c, bool overlapped, int64_t *ns, int64_t *held);

// The last step of one rank: from the end of its last work in the step before to the end of its
// last work in this one. length = compute + sum of exposed + bubble + data + host, to the
// nanosecond.
typedef struct sim_times {
    int64_t length;
    int64_t compute; // GEMMs and all other work on the compute stream
    int64_t
        exposed[TRAFFIC_COUNT];  // the compute stream waits for a collective or is delayed by one
    int64_t sent[TRAFFIC_COUNT]; // all collectives and transfers, hidden ones included
    int64_t bubble;              // waits for another stage
    int64_t data;                // waits for the batch
    int64_t host;                // waits for the host: the habit step_s, and actions not yet issued
} sim_times;

typedef event_span sim_span;

typedef struct sim_step {
    int64_t first_ns; // of the first step, from an idle start
    int64_t step_ns;  // of the last step, between ends of steps on the slowest rank
    int32_t ranks;
    sim_times *times; // [rank]
    sim_times *some;  // [rank] the part of its micro-batches [first, first + count), without `sent`
    sim_span **spans; // [rank][action] of the last step
} sim_step;

enum {
    SIM_STEPS = 3
}; // after this many, a step equals the one before: gathers of weights extend into the next step
// Fails with ST_INTERNAL if actions wait for each other, which never happens in a plan that the
// verifier accepted.
NODISCARD status sim_step_run(arena *a, const sim_rank *ranks, int32_t count,
                              const sim_prices *prices, int64_t host_ns, int32_t steps,
                              sim_step **out);

// Micro-batches [first, first + count), and the same number `apart` later.
typedef struct sim_stretch {
    int32_t first, count, apart;
} sim_stretch;
// Decides whether every rank does with the later micro-batches what it did with these, on every
// stream and the same time later. *period_ns: that time; 0: it does not.
NODISCARD status sim_repeats(arena *a, const sim_rank *ranks, const sim_step *step,
                             const sim_stretch *s, int64_t *period_ns);

// The same by the executor itself with a host that is always ahead, on devices in virtual time
// (sim/virtual.h) that ask for the price of each kernel call. It runs what the trainer runs, with
// every address and wait, and its time equals that of sim_step_run() with the prices of
// sim_price(), to the nanosecond.
typedef struct sim_executed {
    int64_t first_ns, step_ns;
    int64_t calls; // kernels launched, on all ranks
    // The bytes allocated on the fullest rank, and its highest byte that an operand covered.
    int64_t arena_bytes, touched_bytes;
} sim_executed;
NODISCARD status sim_execute(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                             int64_t host_ns, int32_t steps, sim_executed *out);

// The cores of a host that all ranks share: each rank runs `threads` threads, and so many threads
// of other programs always want to run. Prices are those of a rank's share of the cores; `speed`:
// the time of work on its threads, over that.
typedef struct sim_cores {
    int32_t cores, threads, others;
    double speed;
} sim_cores;
// The last steps of a rank, as its compute stream sees them: length is the sum of the others. A
// thread that sleeps has waited until it has a core again. cores: work that has begun waits for its
// next turn; data: waits for the batch.
typedef struct sim_turn {
    int64_t length, compute, cores, data;
    int64_t waits[TRAFFIC_COUNT]; // for transfers, and for ranks that come late to them
} sim_turn;
typedef struct sim_turns {
    int64_t step_ns;
    int32_t count;
    sim_turn *ranks; // [rank of the job]
} sim_turns;
enum { SIM_TURNS_RANKS = 16 }; // most
// Simulates each rank of one host with its turns on the cores. prices: [stage].
NODISCARD status sim_turns_run(arena *a, const sim_rank *stages, int32_t count,
                               const sim_prices *prices, const sim_cores *how, sim_turns *out);

// Times of the layers of one kind in a micro-batch, on one rank, without interference.
typedef struct sim_layer {
    const char *name; // of the first one
    int32_t count;    // layers of this kind on all stages
    int64_t forward_ns, recompute_ns, backward_ns, collective_ns;
    double flops;       // of a micro-batch's forward and backward, recompute included
    int64_t parameters; // of one layer, on this rank
} sim_layer;
enum { SIM_LAYERS = 16 };
// One row per program of the model. *count <= SIM_LAYERS.
NODISCARD status sim_layers(arena *a, const cost_model *m, const sim_rank *first,
                            sim_layer out[SIM_LAYERS], int32_t *count);

// Writes a Chrome trace of the last step: a process for each rank, a track for each stream.
NODISCARD status sim_trace_print(const sim_rank *ranks, const sim_step *step, text *out);

#ifdef __cplusplus
}
#endif
#endif
