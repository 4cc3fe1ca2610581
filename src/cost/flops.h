// FLOPs of a token by the conventions that publications use. Pure.
//
// "45% MFU" says nothing without the count behind it: recomputed work counted or not moves it by a third, all
// of a causal attention or its half by 6% and more at long sequences. A convention is a row here; what is
// printed names its row. `causal` is the project's own (op_model_flops_per_token).
#ifndef COST_FLOPS_H
#define COST_FLOPS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the formulas read. For models with experts: parameters are those that a token meets.
typedef struct flops_model {
    double layers, dim, vocab;
    double attention_width; // of one layer: heads x head size
    double parameters;      // all
    double
        product_parameters; // those in matrix products: the head, not the embedding, no norms or biases
} flops_model;

typedef struct flops_rule {
    const char *name;  // as flops_convention has it
    const char *about; // the formula, who uses it
    bool recomputed;   // counts what a backward pass computes again: hardware FLOPs, no MFU
    double (*token)(const flops_model *m, double seq);
} flops_rule;

const flops_rule *plan_flops_find(const char *name); // NULL: there is none
const flops_rule *plan_flops_at(int row); // in table order, the default first; NULL after the last

// FLOP/s of one of `devices` that make a step of `batch` sequences in step_s.
double plan_flops_rate(const flops_rule *rule, const flops_model *m, double seq, double batch,
                       double devices, double step_s);
// Seconds for `tokens` at `rate` FLOP/s per device.
double plan_flops_time_s(const flops_rule *rule, const flops_model *m, double seq, double tokens,
                         double devices, double rate);

#ifdef __cplusplus
}
#endif
#endif
