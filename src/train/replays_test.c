// The decision of several computations of one share.
#include "train/replays.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static replay_finding decide(int count, const int64_t *ranks, const uint64_t *hashes)
{
    replay_value v[8];
    for (int i = 0; i < count; i++) v[i] = (replay_value){ranks[i], hashes[i]};
    return train_replay_decide(v, count);
}

static void the_wrong_rank_is_found(void **state)
{
    (void)state;
    static const struct {
        int count;
        int64_t ranks[6];
        uint64_t hashes[6];
        replay_verdict verdict;
        int64_t rank;
    } cases[] = {
        {1, {3}, {7}, REPLAY_AGREE, -1},
        {2, {3, 4}, {7, 7}, REPLAY_AGREE, -1},
        {2, {3, 4}, {7, 8}, REPLAY_UNDECIDED, 3},
        {3, {3, 4, 3}, {8, 7, 7}, REPLAY_ONCE, 3},
        {3, {3, 4, 3}, {7, 8, 7}, REPLAY_UNDECIDED, 3}, // not yet: 4 has not repeated it
        {4, {3, 4, 3, 4}, {7, 8, 7, 7}, REPLAY_ONCE, 4},
        {4, {3, 4, 3, 4}, {8, 7, 8, 7}, REPLAY_UNDECIDED, 3},
        {4, {3, 4, 3, 4}, {8, 7, 9, 7}, REPLAY_ALWAYS, 3}, // it does not repeat its own
        {5, {3, 4, 3, 4, 5}, {8, 7, 8, 7, 7}, REPLAY_ALWAYS, 3},
        {5, {3, 4, 3, 4, 5}, {7, 8, 7, 8, 7}, REPLAY_ALWAYS, 4},
        {5, {3, 4, 3, 4, 5}, {7, 7, 7, 7, 9}, REPLAY_WRONG, 5},
        {2, {3, 3}, {7, 8}, REPLAY_UNDECIDED, 3},
        {3, {3, 3, 3}, {7, 7, 8}, REPLAY_ONCE, 3},
        {3, {3, 3, 3}, {7, 9, 8}, REPLAY_UNDECIDED, 3},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const replay_finding j = decide(cases[i].count, cases[i].ranks, cases[i].hashes);
        if (j.verdict != cases[i].verdict) print_error("case %d\n", i);
        assert_int_equal(j.verdict, cases[i].verdict);
        assert_int_equal(j.rank, cases[i].rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_wrong_rank_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
