// Part of run_config.h: completions that a run draws, and their rewards.
#ifndef CONFIG_RUN_ROLLOUT_H
#define CONFIG_RUN_ROLLOUT_H

#include <stdint.h>

typedef enum run_reward_kind {
    RUN_REWARD_EXACT,
    RUN_REWARD_REGEX,
    RUN_REWARD_NUMERIC,
    RUN_REWARD_COMMAND,
    RUN_REWARD_MODEL,
    RUN_REWARD_HTTP
} run_reward_kind;

typedef struct run_rollout {
    const char *prompts; // JSON lines; NULL: the run draws nothing
    int64_t group;       // completions of a prompt
    int64_t max_tokens;  // of a completion
    double temperature, top_p;
    int64_t top_k; // 0: all
    int64_t seed;
    int64_t slots;     // completions that a rank draws at once; 0: chosen
    int64_t cache;     // tokens that a rank's cache holds for all of them; 0: each has its own
    int64_t staleness; // steps between the weights that draw and those that learn
} run_rollout;

typedef struct run_reward {
    int32_t kind;        // run_reward_kind
    const char *pattern; // NULL: none
    const char *command; // NULL: none
    const char *model;   // NULL: none; a folder of weights
    const char *url;     // NULL: none
    int64_t retries;     // of a request
    int64_t time_limit_ns, memory_limit;
} run_reward;

#endif
