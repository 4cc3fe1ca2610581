#include "train/replays.h"

const char *replay_verdict_name(replay_verdict v)
{
    static const char *const names[] = {"agree", "once", "always", "wrong", "undecided"};
    return names[v];
}

// Whether two ranks have computed this hash.
static bool is_common(const replay_value *v, int64_t count, int64_t at)
{
    for (int64_t i = 0; i < count; i++) {
        if (v[i].hash == v[at].hash && v[i].rank != v[at].rank) return true;
    }
    return false;
}

// How often a rank has computed anything, and this hash.
static int64_t times_of(const replay_value *v, int64_t count, int64_t rank, uint64_t hash,
                        int64_t *all)
{
    int64_t same = 0;
    *all = 0;
    for (int64_t i = 0; i < count; i++) {
        if (v[i].rank != rank) continue;
        (*all)++;
        same += v[i].hash == hash;
    }
    return same;
}

// The value that is right; -1: not known.
static int64_t right_find(const replay_value *v, int64_t count)
{
    int64_t found = -1, found_same = 0, twice = -1;
    bool is_lone = true;
    for (int64_t i = 0; i < count; i++) {
        if (is_common(v, count, i)) return i;
        is_lone = is_lone && v[i].rank == v[0].rank;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t all = 0;
        const int64_t same = times_of(v, count, v[i].rank, v[i].hash, &all);
        if (same > 1) twice = i;
        if (same < all) continue; // it differs from itself
        if (found >= 0 && v[found].rank != v[i].rank) return -1;
        found = i;
        found_same = same;
    }
    if (is_lone) return twice;
    return found_same > 1 ? found : -1;
}

replay_finding train_replay_decide(const replay_value *v, int64_t count)
{
    ASSERT(count > 0);
    const int64_t right = right_find(v, count);
    replay_finding out = {REPLAY_AGREE, -1, -1, v[right >= 0 ? right : 0].hash};
    int64_t differs = -1;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (v[i].hash != out.right) differs = i;
    }
    if (differs < 0) return out;
    if (right < 0) {
        out.verdict = REPLAY_UNDECIDED;
        out.rank = v[0].rank;
        for (int64_t i = count - 1; i >= 0; i--) {
            if (v[i].rank != v[0].rank) out.other = v[i].rank;
        }
        return out;
    }
    int64_t all = 0;
    out.rank = v[differs].rank;
    const int64_t same = times_of(v, count, out.rank, out.right, &all);
    out.verdict = same > 0 ? REPLAY_ONCE : all > 1 ? REPLAY_ALWAYS : REPLAY_WRONG;
    return out;
}
