// FLOPs per token by the conventions that publications use. Pure.
//
// "45% MFU" is meaningless without the count behind it: counting recomputed work changes it by a
// third, counting all or half of a causal attention by 6% and more at long sequences. A convention
// is a row here, and printed figures name their row. `causal` is the project's own
// (op_model_flops_per_token).
#ifndef COST_FLOPS_H
#define COST_FLOPS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The inputs of the formulas. For models with experts, parameters are those that a token uses.
typedef struct flops_model {
    double layers, dim, vocab;
    double attention_width; // per layer: heads x head size
    double parameters;      // all
    // parameters in GEMMs: the head, but not the embedding, norms or biases
    double gemm_parameters;
} flops_model;

typedef struct flops_rule {
    const char *name;  // as in flops_convention
    const char *about; // the formula, who uses it
    bool recomputed;   // counts work that a backward pass recomputes: hardware FLOPs, not MFU
    double (*token)(const flops_model *m, double seq);
} flops_rule;

const flops_rule *cost_flops_find(const char *name); // NULL: unknown name
const flops_rule *cost_flops_at(int row); // in table order, the default first; NULL after the last

// FLOP/s of one of `devices` that compute a step of `batch` sequences in step_s.
double cost_flops_rate(const flops_rule *rule, const flops_model *m, double seq, double batch,
                       double devices, double step_s);
// Seconds for `tokens` at `rate` FLOP/s per device.
double cost_flops_time_s(const flops_rule *rule, const flops_model *m, double seq, double tokens,
                         double devices, double rate);

#ifdef __cplusplus
}
#endif
#endif
