// The search for a layout: it computes the least time of every layout that the devices allow in
// closed form (predict/estimate.h) and simulates the best few that fit (predict/candidates.h).
//
//   every valid layout -> least time of a step -> in that order: may it fit? -> a tighter least
//   time, with which it waits until it is the least -> simulate it -> does it fit? -> until no
//   other layout can be faster than the best ones found
//
// Every layout that is left out has a recorded reason: a rule that it breaks, the bytes that it
// exceeds, or a least time above the times of the best.
#ifndef PREDICT_SEARCH_H
#define PREDICT_SEARCH_H

#include "predict/candidates.h"

#ifdef __cplusplus
extern "C" {
#endif

// Values of an axis to search; a fixed layout has one value for each.
typedef struct search_fixed {
    int32_t dp, tp, pp, cp, ep, chunks; // 0: any
    int32_t zero, sp, recompute;        // -1: any
    int32_t whole_experts;              // the same
    int32_t recompute_layers;           // -1: any quarter of them, and all
    const plan_schedule *schedule;      // NULL: any
    int64_t micro_batch;                // 0: any
} search_fixed;
search_fixed search_fixed_none(void);

enum { SEARCH_MICRO_BATCH_MAX = 64, SEARCH_CP_MAX = 64, SEARCH_CHUNKS_MAX = 8 };

// How far a search is, for a caller that shows it.
typedef struct search_progress {
    int64_t devices;
    int32_t layers;
    int64_t layouts, looked, simulated; // layouts: valid ones; looked: those judged one by one
} search_progress;
typedef void (*search_progress_fn)(void *context, const search_progress *now);

typedef struct search_request {
    int64_t devices;
    int32_t layers; // of the decoder
    int64_t heads, kv_heads, ffn_dim;
    int64_t experts, expert_ffn_dim; // per layer; 0: the model is dense
    int64_t shared_ffn_dim;          // of the experts that every token uses, together
    int64_t seq, global_batch;
    // ranks and micro-batches divide it: of all sizes of a ramp; 0: global_batch
    int64_t batch_divisor;
    const plan_pipeline_request *pipeline; // stages of the fixed layout; NULL: even ones
    int32_t zero_group;                    // of the fixed layout; 0: all of dp
    int32_t tp_max;                        // number of devices that are joined closely enough
    estimate_states states;
    const plan_codec *codec; // codec of gradients; NULL: uncompressed
    bool sums_once;          // as in plan_request
    int64_t scratch_bytes;
    plan_workspace_fn workspace;
    void *workspace_context;
    const cost_model *prices;
    int64_t usable_bytes;
    search_fixed fixed;
    int32_t wanted;              // number of plans, best first
    int32_t simulations;         // at most; 0: none, memory alone decides
    int64_t limit_ns;            // layouts with a least time above it are left out; 0: none are
    int64_t rows;                // limit on all simulated rows, once there are `wanted`; 0: none
    candidates *each;            // makes models of layouts and simulates them
    search_progress_fn progress; // called between two layouts; NULL: never
    void *progress_context;
} search_request;

// Reasons why a layout is invalid, counted in this order.
typedef enum search_rule {
    RULE_TP_HEADS,  // tp does not divide heads or columns
    RULE_SP_SEQ,    // tp does not divide the sequence
    RULE_CP_SEQ,    // 2 cp does not divide the sequence
    RULE_PP_LAYERS, // more stages than layers
    RULE_DP_BATCH,  // dp does not divide the batch
    RULE_SCHEDULE,  // the schedule does not take so many micro-batches or chunks
    // compression applies to sums of a step between ranks: not to micro-batches, nor to one rank
    RULE_CODEC,
    RULE_COUNT
} search_rule;
const char *search_rule_name(search_rule rule);

typedef struct search_found {
    search_layout layout;
    estimate_time least;
    estimate_memory memory;     // by estimate
    int64_t bytes;              // of it, as held
    search_simulated simulated; // step_ns 0: not simulated
    bool fits;
    const char *why; // reason of a refusal; NULL
} search_found;

typedef struct search_result {
    search_found *plans; // plans that fit, best first
    int32_t count;
    int64_t layouts; // number of valid layouts
    int64_t ruled_out[RULE_COUNT];
    int64_t too_large, slower, refused, simulated; // of the layouts that were examined
    bool limited;                                  // layouts above limit_ns were left out
    int64_t unknown;                // might be faster than the last plan and were not simulated
    search_found fastest_too_large; // layout.dp 0: there is none
    search_found smallest;          // of all layouts if none fits
} search_result;

// Fails if no layout is valid (ST_CONFIG_CONFLICT, with the rules that exclude them). It is no
// failure if none fits: count is 0.
NODISCARD status search_run(arena *a, const search_request *r, search_result *out);

#ifdef __cplusplus
}
#endif
#endif
