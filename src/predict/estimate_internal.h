// Declarations shared by the files of estimate: measurements of a program (estimate_program.c) and
// their sums (estimate.c for memory, estimate_time.c for time).
#ifndef PREDICT_ESTIMATE_INTERNAL_H
#define PREDICT_ESTIMATE_INTERNAL_H

#include "cost/habits.h"
#include "plan/lower/overlap.h"
#include "predict/estimate.h"

#include <string.h>

typedef struct kinds {
    int64_t at[PLAN_BYTES_COUNT];
} kinds;
static inline int64_t kinds_sum(const kinds *k)
{
    int64_t sum = 0;
    for (int i = 0; i < PLAN_BYTES_COUNT; i++) sum += k->at[i];
    return sum;
}
// to += times from
static inline void kinds_add(kinds *to, const kinds *from, int64_t times)
{
    for (int i = 0; i < PLAN_BYTES_COUNT; i++) to->at[i] += times * from->at[i];
}

// Phases of a layer.
typedef enum estimate_phase {
    PHASE_FORWARD,
    // first half: recomputation and gradient of the input; all of it in the layer with the loss
    PHASE_INPUT,
    PHASE_WEIGHT,   // second half
    PHASE_BACKWARD, // both halves, one right after the other
    PHASE_COUNT
} estimate_phase;

// A layer at a boundary of its chunk shares its input or output with a link, which holds it always;
// the first micro-batch creates gradients of weights.
enum { VARIANT_IN = 1, VARIANT_OUT = 2, VARIANT_FIRST = 4, VARIANT_COUNT = 8 };

// The layer's own bytes and those of its inputs.
typedef struct program_visits {
    kinds most[PHASE_COUNT]; // at the peak; of PHASE_BACKWARD: of its second half
    kinds saved;             // from forward to backward
    kinds left;              // from the first half to the second
} program_visits;

typedef struct program_weight {
    int32_t row;          // row of the model's weights, for the program's first layer
    int32_t other_holder; // an earlier program with the same weight; -1
    int32_t later;        // ... a later one: its gradient comes first; -1
    dtype type, grad;
    uint32_t read; // bit p: phase p reads it
    bool has_grad;
} program_weight;

typedef struct program_estimate {
    const op_program *program;
    program_visits *visits; // [VARIANT_COUNT]; NULL until estimate_measure()
    int64_t in_bytes, out_bytes, d_in_bytes, d_out_bytes; // of tensors that cross its boundaries
    program_weight *weights;
    int32_t weight_count;
    int32_t first_layer; // the first layer with it
} program_estimate;

struct estimate {
    estimate_request r;
    const op_model *m;
    int64_t local_seq;
    extent_binding bound;
    overlap_rule overlap;
    program_estimate *programs; // [program]
};
// The rule that decides which GEMMs of a list overlap with collectives.
static inline overlap_rule estimate_overlap_rule(const estimate *e, op_list list)
{
    overlap_rule rule = e->overlap;
    rule.is_whole = list != OP_BACKWARD_WEIGHT;
    return rule;
}

// A weight on a rank: the rows that ZeRO leaves, and the kept bytes.
typedef struct weight_bytes {
    int64_t kept, whole;           // of the weight
    int64_t grad_kept, grad_whole; // of its gradient
    int64_t master, moments;
    bool cut;
    bool gathered, grad_unsharded; // the whole tensor exists for a while only
} weight_bytes;
weight_bytes estimate_weight_bytes(const estimate *e, const estimate_layout *l,
                                   const program_weight *w);
// The mesh coordinates that decide which rows of a weight a rank holds.
static inline plan_mesh estimate_mesh(const estimate *e, const estimate_layout *l)
{
    plan_mesh m;
    memset(&m, 0, sizeof(m));
    m.size[AXIS_DP] = l->dp;
    m.size[AXIS_CP] = e->r.cp;
    m.size[AXIS_TP] = e->r.tp;
    m.zero_group = l->zero_group;
    m.ep = l->ep;
    m.whole_experts = e->r.whole_experts;
    return m;
}
// The stage of a rank's chunk.
int32_t estimate_stage_of(const estimate_layout *l, int32_t pp, int32_t chunk);

// ---- compressed gradients (estimate_codec.c) ---------------------------------------------------

// NULL: gradients between these ranks are not compressed.
const plan_codec *estimate_codec_of(const estimate *e, const estimate_layout *l);
// Time of a sum of `count` floats over the group, of which each rank gets `piece` (0: all).
int64_t estimate_sum_ns(const plan_codec *codec, const cost_model *m, const cost_group *g,
                        int64_t count, int64_t piece);
// Adds the bytes kept from step to step on rank `pp`; their workspaces are counted separately.
void estimate_codec_run(const estimate *e, const estimate_layout *l, int32_t pp, kinds *run);

// ---- time ---------------------------------------------------------------------------------------

typedef struct program_price {
    int64_t forward, input, weight; // of one micro-batch
} program_price;

// A layer's update and collectives.
typedef struct layer_time {
    int64_t update;     // on the compute stream
    int64_t sums;       // on the stream of all ranks with other rows, once in a step
    int64_t scatters;   // ... of ranks that share a copy of a cut tensor, once in a step
    int64_t gathers;    // ... the same ranks, after the update
    int64_t across;     // ... of ranks with copies of the same rows, after those
    int64_t visit_sums; // ... of every gradient that is created (ZeRO-2)
    // Delay of the compute stream by them (sim/price.c): once in a step, at updates, at every
    // visit.
    int64_t sums_held, gathers_held, visit_held;
    int64_t whole_late, rows_late; // part of sums and scatters after the backward pass
    int64_t forward_gathers;       // ... of every forward (ZeRO-3)
    int64_t input_gathers;         // ... of every gradient of an input
} layer_time;

typedef struct stage_time {
    int64_t forward, input, weight, update;
    int64_t sums, collectives; // of a step with its micro-batches, on two streams
    int64_t come, go;          // a forward through all stages below, a backward through them
} stage_time;

enum { ESTIMATE_PROGRAMS = 64 };

// Times of layers for one way to share weights and gradients out: for one kind of weights and for
// experts'.
enum { KINDS_OF_WEIGHTS = 2 };
typedef struct kept_times {
    const op_model *model; // NULL: empty
    int32_t dp, pp, zero, zero_group;
    bool bidirectional;
    layer_time of[KINDS_OF_WEIGHTS][ESTIMATE_PROGRAMS];
} kept_times;
enum { KEPT_TIMES = 8 }; // stages of ZeRO, in one and two directions

// Buffers in which times are computed.
typedef struct estimate_buffers {
    stage_time *stages; // [layer]: there are at most as many stages
    int64_t *gathered;  // [layer] time when its weights are gathered
    kept_times kept[KEPT_TIMES];
    layer_time layers[ESTIMATE_PROGRAMS]; // [program] of the last timed layout
} estimate_buffers;

struct estimate_prices {
    program_price *programs; // [program]
    int64_t all;             // of all layers, for one micro-batch
    estimate_buffers *buffers;
};

// Least time of a list for a micro-batch, or for the part of gradients of weights that `bound`
// gives; the simulator takes no less.
int64_t estimate_list_ns(const estimate *e, const cost_model *m, const estimate_links *links,
                         const op_program *p, op_list list, const extent_binding *bound);
// Fills the buffers' layers and stages; returns the number of virtual stages.
int32_t estimate_stages(const estimate *e, estimate_prices *prices, const cost_model *m,
                        const estimate_links *links, const estimate_layout *l);
// Delay of the compute stream by an overlapped collective.
int64_t estimate_held_ns(const cost_model *m, const cost_group *g, int64_t ns);
// A transfer between stages, and its delay of the sender.
typedef struct estimate_link {
    int64_t ns, held;
} estimate_link;
estimate_link estimate_link_of(const estimate *e, const cost_model *m, const estimate_links *links,
                               const estimate_layout *l, int32_t depth);

// Sequences that a head with kept logits processes at once (lower_head_piece); all, for other
// programs.
int64_t estimate_head_piece(const estimate *e, const op_program *p);
// Computes the bytes at a program's boundaries.
void estimate_boundary_bytes(const estimate *e, program_estimate *p);
// Computes lifetimes of a program's tensors around one micro-batch.
NODISCARD status estimate_visits(arena *a, const estimate *e, const program_estimate *p,
                                 program_visits visits[VARIANT_COUNT]);

#endif
