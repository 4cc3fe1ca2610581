// Walks that are taken in part. A walk tries rows (layouts, say) in turns (kinds of models, orders of sums): whole,
// each row in each turn. In part every row is tried in some turn and some row in every turn, so that what
// is left out are pairings, never a kind; and where there is one turn only, nothing.
//
//   TRIALS_PART=n  whole runs: one pairing of n (unset: all, as at night)
//   CASES_PART=n   small cases, of which sanitizers make long ones
#ifndef BASE_TEST_PART_H
#define BASE_TEST_PART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define TRIALS_PART "TRIALS_PART"
#define CASES_PART  "CASES_PART"

// n, 1 for all.
static inline int64_t part_of(const char *variable)
{
    const char *value = getenv(variable); // of the test, not of the program
    const int64_t n = value != NULL ? strtoll(value, NULL, 10) : 1;
    return n > 1 ? n : 1;
}

// Rows and turns count from 0. Of as many rows in sequence as there are ways, every turn has one; and the other way.
static inline bool part_skips(const char *variable, int64_t row, int64_t rows, int64_t turn,
                              int64_t turns)
{
    int64_t ways = part_of(variable);
    if (ways > rows) ways = rows;
    if (ways > turns) ways = turns;
    return ways > 1 && (row + turn) % ways != 0;
}

#endif
