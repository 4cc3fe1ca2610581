// Finds slow ranks. The margin of 20% over the peers, or of twice the usual time, and 20% of a span
// keep the noise of a shared machine out; five spans in a row keep single delays out.
#include "train/straggler.h"

#include <stdlib.h>
#include <string.h>

static const double slow_ratio = 1.2, usual_ratio = 2.0, least_share = 0.2;

struct stragglers {
    int64_t ranks, seen; // seen: spans
    bool is_equal;
    double *usual;     // [cause][ranks]: ratio or time that is usual for the rank
    double *learned;   // [cause][ranks][STRAGGLER_LEARN]: those of the first spans
    int32_t *in_a_row; // [cause + 1][ranks]: slow spans, of the last row faster ones than known;
                       // negative: others after a finding
    bool *is_told;     // [cause + 1][ranks]
    double *known;     // [ranks] factor that is known
    double *values;    // [ranks]
    straggler_times *span;                      // [ranks]: sums of the steps of this span
    int64_t steps, last_steps[STRAGGLER_SPANS]; // steps in this span, and in the last ones
};

const char *straggler_cause_name(straggler_cause c)
{
    static const char *const names[] = {"compute", "data", "network", "disk"};
    return names[c];
}

status stragglers_create(arena *a, int64_t ranks, bool is_equal, stragglers **out)
{
    stragglers *s = NULL;
    const int64_t cells = STRAGGLER_CAUSES * ranks;
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, cells, &s->usual));
    TRY(arena_new(a, cells * STRAGGLER_LEARN, &s->learned));
    TRY(arena_new(a, cells + ranks, &s->in_a_row));
    TRY(arena_new(a, cells + ranks, &s->is_told));
    TRY(arena_new(a, ranks, &s->known));
    TRY(arena_new(a, ranks, &s->values));
    TRY(arena_new(a, ranks, &s->span));
    for (int64_t r = 0; r < ranks; r++) s->known[r] = 1.0;
    s->ranks = ranks;
    s->is_equal = is_equal;
    *out = s;
    return ST_OK;
}

void stragglers_expect(stragglers *s, int64_t rank, double factor)
{
    ASSERT(rank >= 0 && rank < s->ranks);
    ASSERT(factor > 0.0);
    s->known[rank] = factor;
}

static int compare_reals(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static int64_t time_of(const straggler_times *t, straggler_cause c)
{
    const int64_t times[] = {t->compute, t->data, t->network, t->disk};
    return times[c];
}

// The lower median of the other ranks; at least a microsecond.
static double others(stragglers *s, const straggler_times *all, straggler_cause c, int64_t rank)
{
    int64_t n = 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        if (r != rank) s->values[n++] = (double)time_of(&all[r], c);
    }
    qsort(s->values, (size_t)n, sizeof(*s->values), compare_reals);
    const double middle = n > 0 ? s->values[(n - 1) / 2] : 0.0;
    return middle > 1e3 ? middle : 1e3;
}

static double least(const stragglers *s, const straggler_times *all, straggler_cause c)
{
    double found = (double)time_of(&all[0], c);
    for (int64_t r = 1; r < s->ranks; r++) {
        if ((double)time_of(&all[r], c) < found) found = (double)time_of(&all[r], c);
    }
    return found;
}

// The usual ratio to the peers is the median of the first spans, which are noisy. The usual time in
// saves and transfers is the largest one, because saves come at intervals.
static void learn(stragglers *s, double *usual, int64_t cell, bool of_peers, double value)
{
    double *first = &s->learned[cell * STRAGGLER_LEARN], sorted[STRAGGLER_LEARN];
    const int64_t n = s->seen + 1;
    first[s->seen] = value;
    memcpy(sorted, first, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_reals);
    *usual = of_peers ? sorted[n / 2] : sorted[n - 1];
}

// The ratio to its peers that is expected of a rank.
static double fair_ratio(const stragglers *s, straggler_cause c, int64_t rank)
{
    const double usual = s->usual[c * s->ranks + rank];
    if (s->is_equal) return c == STRAGGLER_COMPUTE ? s->known[rank] : 1.0;
    return usual < 1.0 ? 1.0 : usual;
}

// How many times as long as expected a rank computed that is known to be slow; 1: it is not known.
static double of_known(stragglers *s, const straggler_times *all, int64_t rank)
{
    const bool learns = !s->is_equal && s->seen < STRAGGLER_LEARN;
    if (s->known[rank] <= 1.0 || learns) return 1.0;
    const double time = (double)time_of(&all[rank], STRAGGLER_COMPUTE);
    const double fair = fair_ratio(s, STRAGGLER_COMPUTE, rank);
    return time / others(s, all, STRAGGLER_COMPUTE, rank) / fair;
}

// How many times more than its peers, or than usual, the rank took; below 1: it is well.
static double excess(stragglers *s, const straggler_times *all, straggler_cause c, int64_t rank)
{
    double *usual = &s->usual[c * s->ranks + rank];
    const double step = (double)all[rank].step;
    const bool of_peers = c == STRAGGLER_COMPUTE || c == STRAGGLER_DATA;
    const double time = c == STRAGGLER_NETWORK ? least(s, all, c) : (double)time_of(&all[rank], c);
    const double value = of_peers ? time / others(s, all, c, rank) : time;
    const bool learns = s->seen < STRAGGLER_LEARN;
    if (learns && !(of_peers && s->is_equal)) {
        learn(s, usual, c * s->ranks + rank, of_peers, value);
        return 0.0;
    }
    if (of_peers) {
        const double fair = fair_ratio(s, c, rank);
        const double more = time - time / (value / fair);
        return value > slow_ratio * fair && more > least_share / 2.0 * step ? value / fair : 0.0;
    }
    const double before = *usual > 1e3 ? *usual : 1e3;
    const bool is_slow = time > usual_ratio * before && time - before > least_share * step;
    return is_slow ? time / before : 0.0;
}

// Counts a slow or a well span. True: this one makes a finding.
static bool count(stragglers *s, int64_t cell, bool is_slow)
{
    int32_t *n = &s->in_a_row[cell];
    if (!is_slow) {
        *n = *n > 0 ? -1 : *n - 1;
        if (*n <= -STRAGGLER_SPANS) s->is_told[cell] = false;
        return false;
    }
    *n = *n < 0 ? 1 : *n + 1;
    if (*n < STRAGGLER_SPANS || s->is_told[cell]) return false;
    s->is_told[cell] = true;
    return true;
}

// Adds a step to the span. True: the span is complete.
static bool span_add(stragglers *s, const straggler_times *all)
{
    for (int64_t r = 0; r < s->ranks; r++) {
        straggler_times *t = &s->span[r];
        if (s->steps == 0) *t = (straggler_times){0};
        t->step += all[r].step;
        t->compute += all[r].compute;
        t->data += all[r].data;
        t->network += all[r].network;
        t->disk += all[r].disk;
    }
    s->steps++;
    if (s->span[0].step < STRAGGLER_SPAN_NS) return false;
    memmove(s->last_steps, s->last_steps + 1, (STRAGGLER_SPANS - 1) * sizeof(*s->last_steps));
    s->last_steps[STRAGGLER_SPANS - 1] = s->steps;
    s->steps = 0;
    return true;
}

bool stragglers_see(stragglers *s, const straggler_times *all, straggler *out)
{
    bool found = false, is_one_slow = false;
    for (int64_t r = 0; r < s->ranks; r++) {
        if (all[r].step <= 0) return false;
    }
    if (!span_add(s, all)) return false;
    for (int c = 0; c < STRAGGLER_CAUSES; c++) {
        const int64_t ranks = c == STRAGGLER_NETWORK ? 1 : s->ranks;
        for (int64_t r = 0; r < ranks && s->ranks > 1; r++) {
            const double ratio = excess(s, s->span, (straggler_cause)c, r);
            // A rank that stands still inside a transfer lets all ranks wait there.
            if (c == STRAGGLER_NETWORK && is_one_slow) continue;
            is_one_slow = is_one_slow || ratio > 0.0;
            if (!count(s, c * s->ranks + r, ratio > 0.0) || found) continue;
            found = true;
            *out = (straggler){.rank = c == STRAGGLER_NETWORK ? -1 : r,
                               .cause = (straggler_cause)c,
                               .ratio = ratio};
        }
    }
    for (int64_t r = 0; r < s->ranks && s->ranks > 1; r++) {
        const double ratio = of_known(s, s->span, r);
        const bool is_faster = ratio > 0.0 && ratio * slow_ratio < 1.0;
        if (!count(s, STRAGGLER_CAUSES * s->ranks + r, is_faster) || found) continue;
        found = true;
        *out = (straggler){.rank = r, .cause = STRAGGLER_COMPUTE, .ratio = ratio, .is_well = true};
    }
    for (int i = 0; i < STRAGGLER_SPANS && found; i++) out->steps += s->last_steps[i];
    s->seen++;
    return found;
}
