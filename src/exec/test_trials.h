// Tables of layouts, each trained as test_trial.h has it and compared with one rank.
#ifndef EXEC_TEST_TRIALS_H
#define EXEC_TEST_TRIALS_H

#include "exec/test_trial.h"

// TRIALS_PART=n  one trial of n, up to 4 (sanitizers): those of an index that `turn` picks.
static inline bool trials_skip(int i, int turn)
{
    const char *value = getenv("TRIALS_PART"); // of the test, not of the program
    const long asked = value != NULL ? strtol(value, NULL, 10) : 1;
    return (i + turn) % (asked > 1 && asked <= 4 ? (int)asked : 1) != 0;
}

// Each of these layouts against one rank; in parts each has its turn over the orders and both kinds of tables.
static inline void trials_run(const trial *rows, int count, bool strict, bool tied, int32_t shards,
                              int32_t cp_shards)
{
    static reference one;
    reference_make(&one, strict, tied, shards, cp_shards);
    for (int i = 0; i < count; i++) {
        static trial t;
        if (trials_skip(i, (tied ? 1 : 0) + (strict ? 2 : 0))) continue;
        t = rows[i];
        t.strict = strict;
        t.tied = tied;
        t.shards = shards;
        t.cp_shards = cp_shards;
        trial_run(&t, &one);
    }
    reference_free(&one);
}

#endif
