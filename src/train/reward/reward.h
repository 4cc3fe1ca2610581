// Rewards of completions, a family: a rule reads a completion and the answer of its prompt.
//
// To add a rule: a file here with a row, the row in reward_table.c, and its name in
// config/run_rollout.h and config/run_config_table.c.
#ifndef TRAIN_REWARD_REWARD_H
#define TRAIN_REWARD_REWARD_H

#include "base/host.h"
#include "base/text.h"
#include "config/run_config.h"
#include "data/tokenizer.h"

typedef struct reward_context {
    const host *h;
    const run_config *run;
    const run_reward *keys; // of `run`
    const data_tokenizer *tokenizer;
    int64_t threads; // for commands and models
    int64_t most;    // completions of this rank at once
    int ordinal;     // of this rank's GPU, for models
    void *state;     // of a rule with `open`
} reward_context;

typedef struct reward_case {
    const char *prompt;                 // NULL unless the rule needs it
    const char *completion;             // without the token that ended it
    const char *answer;                 // NULL: the prompt has none
    const int32_t *prompt_ids, *tokens; // the same as ids, with the token that ended it
    int64_t prompt_count, token_count;
} reward_case;

typedef struct reward_rule {
    const char *name;
    bool needs_answer, needs_prompt;
    // Refuses keys or a machine before the first step; NULL: any will do. May add a warning.
    status (*check)(const reward_context *x, text *warning);
    // Before the first and after the last completion, on ranks that reward; NULL: nothing to do.
    status (*open)(reward_context *x, arena *a);
    void (*close)(reward_context *x);
    // One of these.
    status (*one)(const reward_context *x, const reward_case *c, double *out);
    status (*all)(const reward_context *x, const reward_case *cases, int64_t count, double *out);
} reward_rule;

extern const reward_rule reward_exact, reward_regex, reward_numeric, reward_command, reward_model,
    reward_http;

const reward_rule *reward_rule_at(int32_t kind); // run_reward_kind
// The rewards of some completions.
NODISCARD status reward_score(const reward_rule *rule, const reward_context *x,
                              const reward_case *cases, int64_t count, double *out);
// Whether the rule of numbers takes these two texts for the same number.
bool reward_numbers_equal(const char *a, const char *b);

#endif
