// Rewards of completions, a family: a rule reads a completion and the answer of its prompt.
//
// To add a rule: a file here with a row, the row in reward_table.c, and its name in
// config/run_rollout.h and config/run_config_table.c.
#ifndef TRAIN_REWARD_REWARD_H
#define TRAIN_REWARD_REWARD_H

#include "config/run_config.h"

typedef struct reward_case {
    const char *completion; // without the token that ended it
    const char *answer;     // NULL: the prompt has none
    const char *pattern;    // reward.pattern; NULL: none
} reward_case;

typedef struct reward_rule {
    const char *name;
    bool needs_answer;
    // Refuses a pattern before the first step; NULL: any will do.
    status (*check)(const char *pattern);
    status (*score)(const reward_case *c, double *out);
} reward_rule;

extern const reward_rule reward_exact, reward_regex, reward_numeric;

const reward_rule *reward_rule_at(int32_t kind); // run_reward_kind
// Whether the rule of numbers takes these two texts for the same number.
bool reward_numbers_equal(const char *a, const char *b);

#endif
