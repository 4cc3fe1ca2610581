// Distributes the slots of a round to sources, and finds the place of a sequence.
#include "data/dataset/mix.h"

#include <math.h>
#include <string.h>

// The shortest round in which each share is a whole number of slots; otherwise the longest.
static int64_t round_of(const double *shares, int64_t n)
{
    for (int64_t round = 1; round < DATA_MIX_ROUND_MAX; round++) {
        bool is_whole = true;
        for (int64_t i = 0; i < n && is_whole; i++) {
            const double slots = shares[i] * (double)round;
            is_whole = fabs(slots - nearbyint(slots)) < 1e-9 * (double)round &&
                       (shares[i] == 0.0 || slots > 0.5);
        }
        if (is_whole) return round;
    }
    return DATA_MIX_ROUND_MAX;
}

// Shares the slots of a round by the largest remainder, at least one for each share above 0.
static void share_slots(const double *shares, int64_t n, int64_t round, int64_t *quota,
                        double *rest)
{
    int64_t left = round;
    for (int64_t i = 0; i < n; i++) {
        const double ideal = shares[i] * (double)round;
        quota[i] = shares[i] > 0.0 ? max_i64(1, (int64_t)(ideal + 1e-6)) : 0;
        rest[i] = ideal - (double)quota[i];
        left -= quota[i];
    }
    for (; left != 0; left += left > 0 ? -1 : 1) {
        // Gives to the source with the largest deficit, takes from the one with the largest
        // surplus.
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            if (shares[i] == 0.0 || (left < 0 && quota[i] == 1)) continue;
            const bool is_better =
                left > 0 ? best < 0 || rest[i] > rest[best] : best < 0 || rest[i] < rest[best];
            if (is_better) best = i;
        }
        quota[best] += left > 0 ? 1 : -1;
        rest[best] += left > 0 ? -1.0 : 1.0;
    }
}

// Slot t goes to a source that may take it without running ahead, and of these to the one whose
// next slot is due first. With n sources no count ever differs from its share by more than
// 1 - 1 / (2n - 2).
static void assign_slots(mix_phase *p, int64_t n, int64_t *given)
{
    const double slack = n > 1 ? 1.0 / (2.0 * (double)n - 2.0) : 0.0;
    memset(given, 0, (size_t)n * sizeof(*given));
    for (int64_t t = 0; t < p->round; t++) {
        int64_t best = -1;
        double best_due = 0.0;
        for (int64_t i = 0; i < n; i++) {
            if (given[i] == p->quota[i]) continue;
            const double share = (double)p->quota[i] / (double)p->round;
            const double owed = share * (double)(t + 1) - (double)given[i];
            if (owed < slack - 1e-12) continue;
            const double due = ((double)given[i] + 1.0 - slack) / share;
            if (best >= 0 && due >= best_due) continue;
            best = i;
            best_due = due;
        }
        ASSERT(best >= 0);
        p->slots[t] = (uint16_t)best;
        p->ranks[t] = (int32_t)given[best]++;
    }
}

// Sequences that each source has given when phase p has lasted `count` sequences.
static void count_given(const mix_phase *p, int64_t n, int64_t count, int64_t *given)
{
    for (int64_t i = 0; i < n; i++) given[i] = p->before[i] + count / p->round * p->quota[i];
    for (int64_t t = 0; t < count % p->round; t++) given[p->slots[t]]++;
}

status mix_add(arena *a, mix *m, int64_t first, const double *weights)
{
    const int64_t n = m->source_count;
    double *shares = NULL, *rest = NULL, sum = 0.0;
    int64_t *given = NULL;
    ASSERT(m->phase_count < DATA_PHASES_MAX);
    if (m->phases == NULL) TRY(arena_new(a, DATA_PHASES_MAX, &m->phases));
    mix_phase *p = &m->phases[m->phase_count];
    TRY(arena_new(a, n, &shares));
    TRY(arena_new(a, n, &rest));
    TRY(arena_new(a, n, &given));
    TRY(arena_new(a, n, &p->quota));
    TRY(arena_new(a, n, &p->before));
    for (int64_t i = 0; i < n; i++) sum += weights[i];
    ASSERT(sum > 0.0);
    for (int64_t i = 0; i < n; i++) shares[i] = weights[i] / sum;
    p->first = first;
    p->round = round_of(shares, n);
    TRY(arena_new(a, p->round, &p->slots));
    TRY(arena_new(a, p->round, &p->ranks));
    share_slots(shares, n, p->round, p->quota, rest);
    assign_slots(p, n, given);
    if (m->phase_count > 0) {
        const mix_phase *last = p - 1;
        ASSERT(first > last->first);
        count_given(last, n, first - last->first, p->before);
    }
    m->phase_count++;
    return ST_OK;
}

void mix_place(const mix *m, int64_t n, int64_t *source, int64_t *number)
{
    int64_t k = 0;
    while (k + 1 < m->phase_count && m->phases[k + 1].first <= n) k++;
    const mix_phase *p = &m->phases[k];
    const int64_t at = n - p->first, slot = at % p->round;
    *source = p->slots[slot];
    *number = p->before[*source] + at / p->round * p->quota[*source] + p->ranks[slot];
}

void mix_hash(const mix *m, hash_stream *hash)
{
    for (int64_t k = 0; k < m->phase_count; k++) {
        const mix_phase *p = &m->phases[k];
        const int64_t facts[2] = {p->first, p->round};
        hash_add(hash, facts, sizeof(facts));
        hash_add(hash, p->quota, m->source_count * (int64_t)sizeof(*p->quota));
    }
}

// ---- datasets -----------------------------------------------------------------------------------

// Epochs times sequences where any entry has a number of epochs, or the weight of the entry; with a
// temperature, the weight, or the tokens where no entry has one, to the power 1 / temperature.
static double weight_of(const data_dataset_spec *spec, const mix_source *sources, int64_t count,
                        int64_t i)
{
    bool any_weight = false, any_epochs = false;
    for (int64_t k = 0; k < count; k++) {
        any_weight = any_weight || sources[k].has_weight;
        any_epochs = any_epochs || sources[k].has_epochs;
    }
    double weight = sources[i].weight; // 1 without a number
    if (any_epochs) weight *= (double)sources[i].sequences;
    if (spec->temperature <= 0.0) return weight;
    if (!any_weight && !any_epochs) weight = (double)sources[i].tokens;
    return pow(weight, 1.0 / spec->temperature);
}

static status check_phase(const data_phase *p, int64_t source_count, int64_t after)
{
    double sum = 0.0;
    if (p->weight_count != source_count) {
        return fail(ST_CONFIG_CONFLICT,
                    "data.curriculum: a phase has %lld weights, but data.train has %lld sources",
                    (long long)p->weight_count, (long long)source_count);
    }
    for (int64_t i = 0; i < p->weight_count; i++) sum += p->weights[i];
    if (!(sum > 0.0)) return fail(ST_CONFIG_RANGE, "data.curriculum: a phase without any weight");
    if (p->first > after) return ST_OK;
    return fail(ST_CONFIG_RANGE, "data.curriculum: the steps of its phases must ascend");
}

status mix_open(arena *a, const data_dataset_spec *spec, const mix_source *sources, int64_t count,
                mix *out)
{
    double *weights = NULL;
    out->source_count = count;
    if (count == 1) {
        if (spec->phase_count == 0) return ST_OK;
        return fail(ST_CONFIG_CONFLICT, "data.curriculum: data.train has one source");
    }
    TRY(arena_new(a, count, &weights));
    for (int64_t i = 0; i < count; i++) weights[i] = weight_of(spec, sources, count, i);
    if (spec->phase_count >= DATA_PHASES_MAX) {
        return fail(ST_CONFIG_RANGE, "data.curriculum: more than %d phases", DATA_PHASES_MAX - 1);
    }
    if (spec->phase_count == 0 || spec->phases[0].first > 0) TRY(mix_add(a, out, 0, weights));
    for (int64_t k = 0; k < spec->phase_count; k++) {
        const data_phase *p = &spec->phases[k];
        TRY(check_phase(p, count, k > 0 ? spec->phases[k - 1].first : -1));
        TRY(mix_add(a, out, p->first, p->weights));
    }
    return ST_OK;
}
