// Estimates the memory and the least time of a layout in closed form: no plan, no action, no
// search. Pure.
//
// A model's programs are measured once for each way to cut them and each micro-batch
// (estimate_make): the bytes that a layer's forward, the halves of its backward and the time
// between them hold, and their times. Any number of layouts is then evaluated by sums over layers
// and one pass over a schedule's list:
//
//   memory   run tensors, exact; live bytes at the peak: exact without transient tensors (ZeRO 0
//            and 1), otherwise too high by at most two layers' weights and gradients
//   time     of the rank with the most work, never above the simulated time of the same actions
//
// A layout that fits by estimate is still made into a plan and simulated before it is reported
// (predict/search.h).
#ifndef PREDICT_ESTIMATE_H
#define PREDICT_ESTIMATE_H

#include "config/optimizers.h"
#include "cost/cost.h"
#include "plan/lower/boundary.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Optimizer state of each parameter.
typedef struct estimate_states {
    dtype moments;
    bool has_master; // an fp32 copy of narrower weights
    run_optimizer optimizer;
} estimate_states;

static inline const run_optimizer_row *estimate_optimizer(const estimate_states *s,
                                                          const op_weight *w)
{
    return run_optimizer_for(s->optimizer, w->is_matrix);
}
// True if a rank needs the whole weight to update it.
static inline bool estimate_updates_whole(const estimate_states *s, const op_weight *w)
{
    return estimate_optimizer(s, w)->unit == RUN_UNIT_MATRIX;
}

// A model as one rank along tp and cp holds it, and a micro-batch of it.
typedef struct estimate_request {
    const op_model *model;    // after op_model_partition and op_model_context, for training
    int64_t micro_batch, seq; // seq: of all ranks along cp
    int32_t tp, cp;
    bool whole_experts; // as in plan_mesh
    estimate_states states;
    int64_t scratch_bytes;
    plan_workspace_fn workspace; // NULL: operations need none
    void *workspace_context;
    plan_unsharded_limits limits; // of other software
    bool rows_inline;             // as in plan_request
    bool sums_once;               // the same
    const plan_codec *codec;      // the same; for layouts with several ranks of dp or cp
    // an estimate of the same model with another micro-batch, which must live as long; NULL
    const struct estimate *reuse_from;
} estimate_request;

typedef struct estimate estimate; // measured programs, in the arena of estimate_make()
// Keeps `model`, which must live as long.
NODISCARD status estimate_make(arena *a, const estimate_request *r, estimate **out);
// Measures the bytes of its programs for estimate_memory_of(). Call it once; estimates used only
// for times do not need it.
NODISCARD status estimate_measure(arena *a, estimate *e);

// The rest of a layout.
typedef struct estimate_layout {
    int32_t dp, pp, zero, zero_group; // zero_group 0: all of dp
    int32_t ep;                       // 0: 1
    const plan_schedule *schedule;    // NULL where pp is 1
    int32_t chunks;                   // per rank of pp; 1 where pp is 1
    const int32_t *first_layer;       // [virtual stages + 1] rows of the model's layers
    int32_t microbatches;             // of a step, on the rank of dp with the most
} estimate_layout;

// The actions of one pp rank in a step; empty if pp is 1. They depend only on the schedule and the
// numbers of pp ranks, chunks and micro-batches.
typedef struct estimate_work {
    schedule_list list;
    int32_t boundary_buffers; // buffers for tensors from and to other stages
} estimate_work;
// `times`: simulated lists of the layout's schedule (estimate_times_of); NULL: simulated here.
NODISCARD status estimate_work_of(const estimate_layout *l, const boundary_timelines *times,
                                  int32_t pp, arena *a, estimate_work *out);
NODISCARD status estimate_times_of(const estimate_layout *l, arena *a, boundary_timelines *out);

typedef struct estimate_memory {
    int64_t kind[PLAN_BYTES_COUNT]; // at the peak
    int64_t run_bytes, live_bytes;  // their sum is the peak
    int32_t pp;                     // the rank of the pipeline
} estimate_memory;
static inline int64_t estimate_memory_bytes(const estimate_memory *m)
{
    return m->run_bytes + m->live_bytes;
}
// For the first rank of dp on stage `pp`, which has as much as any.
void estimate_memory_of(const estimate *e, const estimate_layout *l, int32_t pp,
                        const estimate_work *work, estimate_memory *out);
// The run tensors alone, with live_bytes 0; needs neither list nor estimate_measure().
void estimate_memory_run(const estimate *e, const estimate_layout *l, int32_t pp,
                         estimate_memory *out);

// ---- time ---------------------------------------------------------------------------------------

// Placement of a mesh's groups in the cluster, seen from rank 0.
typedef struct estimate_links {
    cost_group tp, cp, heads, data, inside, across,
        pp; // heads: of cp, cp: the rest of it; data: dp and cp; inside, across: of ZeRO's copies
    cost_group ep, expert_data; // ranks that share experts out; ranks with the same experts
    // In a bidirectional pipeline: data group of the two ranks with a stage, for the outermost and
    // the innermost pair.
    cost_group pairs[2];
} estimate_links;
void estimate_links_of(const cluster *c, const plan_mesh *mesh, estimate_links *out);

// Prices of a model's programs on a cluster, in the arena of estimate_price(). `reuse_from`: prices
// of the same cluster and a model with as many layers, whose buffers are shared; NULL.
typedef struct estimate_prices estimate_prices;
NODISCARD status estimate_price(arena *a, const estimate *e, const cost_model *m,
                                const estimate_links *links, const estimate_prices *reuse_from,
                                estimate_prices **out);
// The work of a step alone, divided by `pp` ranks: no step of any schedule, chunks and ZeRO is
// shorter.
int64_t estimate_work_ns(const estimate_prices *prices, const cost_model *m, int64_t microbatches,
                         int32_t pp);

// The reason why a step cannot be shorter.
typedef enum estimate_reason {
    REASON_WORK, // of the rank with the most, with the time before it begins and after it ends
    REASON_COLLECTIVES, // sums and gathers over dp, on a stream of their own
    REASON_COUNT
} estimate_reason;
typedef struct estimate_time {
    int64_t step_ns; // no step is shorter
    int64_t work_ns; // on the compute stream of the rank with the most
    estimate_reason reason;
    int32_t pp; // that rank
} estimate_time;
// `prices` of the layout's mesh; the function works in their buffers and keeps a layer's updates
// and collectives there for the next layout that differs only in schedule, chunks or micro-batch.
void estimate_time_of(const estimate *e, estimate_prices *prices, const cost_model *m,
                      const estimate_links *links, const estimate_layout *l, estimate_time *out);

// The actions of all ranks of a pipeline in a feasible order, which depends only on the schedule
// and the numbers of ranks, chunks and micro-batches. It lives in the arena of
// estimate_pipe_make(), with buffers for the times.
typedef struct estimate_pipe estimate_pipe;
NODISCARD status estimate_pipe_make(arena *a, const estimate_layout *l, estimate_pipe **out);
int64_t estimate_pipe_actions(const estimate_pipe *p);
// A tighter least time by one pass over the actions; still at most the simulated time.
int64_t estimate_pipe_time(const estimate *e, estimate_prices *prices, const cost_model *m,
                           const estimate_links *links, const estimate_layout *l, estimate_pipe *p);

// ---- activations of other software -------------------------------------------------------------

// Activations of one transformer layer in bytes, by the formulas of Korthikanti et al. 2022
// (arXiv:2205.05198), Table 2: 16-bit activations, dropout masks of one byte, softmax kept. They
// describe other software, not this program.
typedef enum estimate_technique {
    TECHNIQUE_NONE,               // s b h (34 + 5 a s / h)
    TECHNIQUE_TENSOR,             // s b h (10 + 24 / t + 5 a s / (h t))
    TECHNIQUE_TENSOR_SEQUENCE,    // s b h / t (34 + 5 a s / h)
    TECHNIQUE_TENSOR_SELECTIVE,   // s b h (10 + 24 / t)
    TECHNIQUE_SEQUENCE_SELECTIVE, // 34 s b h / t
    TECHNIQUE_FULL,               // 2 s b h
    TECHNIQUE_COUNT
} estimate_technique;
double estimate_korthikanti_layer(estimate_technique how, double seq, double micro_batch,
                                  double dim, double heads, double tp);
// All layers of the first stage: 1F1B holds as many as the model has, interleaved 1 + (p - 1) / (p
// v) times.
double estimate_korthikanti_first_stage(double layer, double layers, double pp, double vpp);

#ifdef __cplusplus
}
#endif
#endif
