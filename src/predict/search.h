// The search for a layout: every one that so many devices allow, each with its least time in closed form
// (predict/estimate.h), and the best few of those that fit simulated (predict/candidates.h).
//
//   every valid layout -> least time of a step -> in that order: may it fit? -> a tighter least time, which it
//   waits with until it is the least -> simulate it -> does it fit? -> until no other can be faster than the best
//   ones found
//
// So what is left out is left out for a reason that is kept: a rule that it breaks, the bytes that it is over,
// or that its least time is above the times of the best.
#ifndef PREDICT_SEARCH_H
#define PREDICT_SEARCH_H

#include "predict/candidates.h"

#ifdef __cplusplus
extern "C" {
#endif

// Which of an axis' values are looked at; a value of a layout that is fixed: that one alone.
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

typedef struct search_request {
    int64_t devices;
    int32_t layers; // of the decoder
    int64_t heads, kv_heads, ffn_dim;
    int64_t experts, expert_ffn_dim; // of a layer; 0: the model is dense
    int64_t shared_ffn_dim;          // of the experts that every token meets, together
    int64_t seq, global_batch;
    int64_t
        batch_divisor; // ranks and micro-batches divide it: of all sizes of a ramp; 0: global_batch
    const plan_pipeline_request *pipeline; // how the layout that is fixed cuts layers; NULL: evenly
    int32_t zero_group;                    // of it; 0: all of dp
    int32_t tp_max;                        // devices that are joined closely enough
    estimate_states states;
    const plan_codec *codec; // how gradients travel; NULL: as they are
    bool sums_once;          // as in plan_request
    int64_t scratch_bytes;
    plan_workspace_fn workspace;
    void *workspace_context;
    const cost_model *prices;
    int64_t usable_bytes;
    search_fixed fixed;
    int32_t wanted;      // plans, best first
    int32_t simulations; // at most; 0: none, memory alone decides
    int64_t rows;     // enough of all that are simulated, once there are `wanted`; 0: no number is
    candidates *each; // layouts are made into models and simulated by them
} search_request;

// Why a layout is none: counted as they are met, in this order.
typedef enum search_rule {
    RULE_TP_HEADS,  // tp does not divide heads or columns
    RULE_SP_SEQ,    // tp does not divide the sequence
    RULE_CP_SEQ,    // 2 cp does not divide the sequence
    RULE_PP_LAYERS, // more stages than layers
    RULE_DP_BATCH,  // dp does not divide the batch
    RULE_SCHEDULE,  // the schedule does not take so many micro-batches or chunks
    RULE_CODEC, // compressed are sums of a step between ranks: not of micro-batches, nor of one rank
    RULE_COUNT
} search_rule;
const char *search_rule_name(search_rule rule);

typedef struct search_found {
    search_layout layout;
    estimate_time least;
    estimate_memory memory;     // by estimate
    int64_t bytes;              // of it, as held
    search_simulated simulated; // step_ns 0: it was not
    bool fits;
    const char *why; // it was refused; NULL
} search_found;

typedef struct search_result {
    search_found *plans; // that fit, best first
    int32_t count;
    int64_t layouts; // that are valid
    int64_t ruled_out[RULE_COUNT];
    int64_t too_large, slower, refused, simulated; // of those that were looked at closely
    int64_t unknown;                // might be faster than the last plan, and were not simulated
    search_found fastest_too_large; // layout.dp 0: there is none
    search_found smallest;          // of all, if nothing fits
} search_result;

// Fails where no layout is valid at all (ST_CONFIG_CONFLICT, with the rules that are in the way). Nothing that
// fits is no failure: count is 0.
NODISCARD status search_run(arena *a, const search_request *r, search_result *out);

#ifdef __cplusplus
}
#endif
#endif
