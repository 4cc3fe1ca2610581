// Decides from several computations of one share of a step which rank was wrong.
//
// A value that two ranks have in common is right, because two faults do not give the same hash. If
// no value is common, but all ranks but one differ from themselves, that one is right; a rank that
// is alone is right where it repeats its value. Pure.
#ifndef TRAIN_REPLAYS_H
#define TRAIN_REPLAYS_H

#include "base/base.h"

typedef struct replay_value {
    int64_t rank; // that computed it
    uint64_t hash;
} replay_value;

typedef enum replay_verdict {
    REPLAY_AGREE,    // all values are equal
    REPLAY_ONCE,     // the rank has also computed the right value
    REPLAY_ALWAYS,   // each value of the rank is wrong, and there are several
    REPLAY_WRONG,    // its only value is wrong
    REPLAY_UNDECIDED // ranks repeat different values
} replay_verdict;
const char *replay_verdict_name(replay_verdict v);

typedef struct replay_finding {
    replay_verdict verdict;
    int64_t rank;   // that was wrong; UNDECIDED: the first one
    int64_t other;  // UNDECIDED: one that differs from it; -1
    uint64_t right; // AGREE, ONCE, ALWAYS, WRONG: the right hash
} replay_finding;
replay_finding train_replay_decide(const replay_value *values, int64_t count);

#endif
