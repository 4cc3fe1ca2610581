// Tables of layouts, each trained as test_trial.h has it and compared with one rank.
#ifndef EXEC_TEST_TRIALS_H
#define EXEC_TEST_TRIALS_H

#include "base/test_part.h"
#include "exec/test_trial.h"

// Each of these layouts against one rank; by day in some of the four: both orders, both kinds of tables. A table
// that has strict order only (`turns` is 2 then) has both kinds.
static inline void trials_run(const trial *rows, int count, int turns, bool strict, bool tied,
                              int32_t shards, int32_t cp_shards)
{
    static reference one;
    reference_make(&one, strict, tied, shards, cp_shards);
    for (int i = 0; i < count; i++) {
        static trial t;
        const int turn = (tied ? 1 : 0) + (strict && turns > 2 ? 2 : 0);
        if (part_skips(TRIALS_PART, i, count, turn, turns)) continue;
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
