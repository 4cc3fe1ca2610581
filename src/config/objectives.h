// The objectives of a run: a row each, with what configuration, data and the session need to know.
// op/objective.h has their losses.
//
// To add one: a row here and its rule, a file in op/objective/.
#ifndef CONFIG_OBJECTIVES_H
#define CONFIG_OBJECTIVES_H

#include "op/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

// The form of a line of data.train.
typedef enum run_samples {
    RUN_SAMPLES_TEXT,     // whole texts
    RUN_SAMPLES_CHAT,     // data.format says
    RUN_SAMPLES_PAIRS,    // a prompt with a chosen and a rejected answer
    RUN_SAMPLES_LABELLED, // a prompt, an answer, and whether it is wanted
    RUN_SAMPLES_ROLLOUTS  // completions of a prompt with rewards and log-probabilities
} run_samples;

// upper, lower: its names, the second as written in train.objective. kind: of the loss. keys: the
// options that it reads and not every objective does.
#define RUN_OBJECTIVES(X)                           \
    X(PRETRAIN, pretrain, TEXT, OBJECTIVE_NONE, "") \
    RUN_OBJECTIVES_OTHER(X)
#define RUN_OBJECTIVES_OTHER(X)                                                              \
    X(SFT, sft, CHAT, OBJECTIVE_NONE, "data.format")                                         \
    X(DPO, dpo, PAIRS, OBJECTIVE_DPO,                                                        \
      "objective.beta, objective.loss, objective.label_smoothing, objective.reference")      \
    X(ORPO, orpo, PAIRS, OBJECTIVE_ORPO, "objective.beta")                                   \
    X(KTO, kto, LABELLED, OBJECTIVE_KTO,                                                     \
      "objective.beta, objective.reference, objective.wanted, objective.unwanted")           \
    X(GRPO, grpo, ROLLOUTS, OBJECTIVE_GRPO,                                                  \
      "objective.loss, objective.clip, objective.clip_high, objective.kl, objective.scale, " \
      "objective.length")                                                                    \
    X(REWARD, reward, PAIRS, OBJECTIVE_REWARD, "")

#define RUN_OBJECTIVE_OTHER_NAME(upper, lower, ...) ", " #lower
#define RUN_OBJECTIVE_NAMES                         "pretrain" RUN_OBJECTIVES_OTHER(RUN_OBJECTIVE_OTHER_NAME)

typedef enum run_objective {
#define RUN_OBJECTIVE_ENUM(upper, lower, ...) RUN_OBJECTIVE_##upper,
    RUN_OBJECTIVES(RUN_OBJECTIVE_ENUM)
#undef RUN_OBJECTIVE_ENUM
        RUN_OBJECTIVE_COUNT
} run_objective;

typedef struct run_objective_row {
    const char *name;
    run_samples samples;
    op_objective_kind kind;
    const char *keys;
} run_objective_row;
const run_objective_row *run_objective_at(int32_t objective);

#ifdef __cplusplus
}
#endif
#endif
