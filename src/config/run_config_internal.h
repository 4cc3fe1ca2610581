// Shared by the files that check a run's configuration: run_config_check.c, run_config_layout.c.
#ifndef CONFIG_RUN_CONFIG_INTERNAL_H
#define CONFIG_RUN_CONFIG_INTERNAL_H

#include "config/run_config.h"
#include "plan/plan.h"

typedef struct checker {
    const run_config *r;
    run_config defaults;
    const config *c;
    config_complaints *l;
    arena *a;
} checker;

#define CONFLICT(key, ...) config_complain(k->l, (key), ST_CONFIG_CONFLICT, __VA_ARGS__)

typedef long long ll; // a type for printf

// True if the key is given and not its default value.
bool check_is_changed(const checker *k, const char *key);
// Complains that each changed key of `keys` (NULL-terminated) has no effect, for this reason.
void check_refuse_keys(checker *k, const char *const *keys, const char *reason);
// The divisors of n next to m: "2 or 5". n > 0, m > 0, m does not divide n.
const char *check_near_divisors(int64_t n, int64_t m, char buffer[64]);

// True if the word is one of "a, b, c".
bool check_is_listed(const char *list, const char *word, size_t length);

// run_config_objective.c: keys that the run's objective does not read, and what its loss does not
// go with.
void check_objective(checker *k);

// run_config_layout.c
void check_layout(checker *k);

#endif
