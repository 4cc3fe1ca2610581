// Effects of habits of other software (cost/habits.h) on a step's plans and bytes. Without habits
// there are none.
#ifndef PREDICT_HABITS_H
#define PREDICT_HABITS_H

#include "cost/habits.h"
#include "predict/step.h"

// Limits of gathered weights and unsharded gradients.
plan_unsharded_limits predict_habit_limits(const cost_profile *p);
// Rows that layout.sp gathers stand between GEMMs (plan_request.rows_inline).
bool predict_habit_rows_inline(const cost_profile *p);
// Full recomputation runs all of a layer again (assemble_options.whole_again).
bool predict_habit_whole_again(const cost_profile *p);
// Bytes kept for the backward pass if the plan keeps this many.
double predict_habit_activations(const cost_profile *p, int64_t bytes);
// True if there are bytes in addition to the plan's, which differ from stage to stage.
bool predict_habit_adds_bytes(const cost_profile *p);
// Additional bytes of a stage's layers (score_bytes, mask_bytes, logit_bytes, fp8_inputs).
int64_t predict_kept_bytes(const predict_step *x, int32_t stage);
// Bytes of a stage's weights that are not kept (fp8_weights).
int64_t predict_spared_weights(const predict_step *x, int32_t stage);

#endif
