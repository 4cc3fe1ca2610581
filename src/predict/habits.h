// What habits of other software (cost/habits.h) change about a step's plans and bytes. Without them none is changed.
#ifndef PREDICT_HABITS_H
#define PREDICT_HABITS_H

#include "cost/habits.h"
#include "predict/step.h"

// Weights and gradients that pass by.
plan_passing_limits predict_habit_limits(const cost_profile *p);
// Rows that layout.sp gathers stand between products (plan_request.rows_inline).
bool predict_habit_rows_inline(const cost_profile *p);
// Full recomputation runs all of a layer again (assemble_options.whole_again).
bool predict_habit_whole_again(const cost_profile *p);
// Bytes that are kept for the backward pass, where the plan keeps so many.
double predict_habit_activations(const cost_profile *p, int64_t bytes);
// Are there bytes besides those of a plan, which differ from stage to stage?
bool predict_habit_adds_bytes(const cost_profile *p);
// Bytes of a stage that are kept of layers besides (score_bytes, mask_bytes, logit_bytes, fp8_inputs), in them.
int64_t predict_kept_bytes(const predict_step *x, int32_t stage);
// Bytes of a stage's weights that are not kept (fp8_weights).
int64_t predict_spared_weights(const predict_step *x, int32_t stage);

#endif
