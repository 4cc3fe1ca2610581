// The length of a run: train.steps, train.tokens and train.epochs are three ways to give it.
#include "config/run_length.h"

#include <math.h>
#include <string.h>

static const int64_t steps_most = INT64_C(1000000000000); // the limit of train.steps

// The fewest steps that take so many sequences.
static int64_t steps_of_sequences(const run_config *r, double sequences)
{
    double taken = 0.0;
    int64_t step = 0, size = 0;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t next = steps_most, next_size = 0;
        run_config_ramp_at(r, i, &step, &size);
        if (i + 1 < run_config_ramp_count(r)) run_config_ramp_at(r, i + 1, &next, &next_size);
        const double whole = (double)(next - step) * (double)size;
        if (taken + whole < sequences) {
            taken += whole;
            continue;
        }
        const double more = ceil((sequences - taken) / (double)size);
        return max_i64(1, step + (int64_t)fmin(more, (double)(steps_most - step)));
    }
    return steps_most;
}

// train.steps, train.tokens and train.epochs give the length in three ways, of which a run has one.
// A key of the command line replaces those of the file.
static status one_choose(run_config *r, const config *c, arena *a)
{
    static const char *const keys[] = {"train.steps", "train.tokens", "train.epochs"};
    enum { WAYS = COUNT_OF(keys) };
    const bool set[WAYS] = {config_is_given(c, keys[0]), r->train.tokens > 0, r->train.epochs > 0};
    bool here[WAYS] = {0}, any_here = false;
    config_complaints *l = NULL;
    TRY(config_complaints_begin(c, a, &l));
    for (int i = 0; i < WAYS; i++) {
        here[i] = set[i] && strcmp(config_origin(c, keys[i]), "command line") == 0;
        any_here |= here[i];
    }
    int chosen = -1;
    for (int i = 0; i < WAYS; i++) {
        if (!(any_here ? here[i] : set[i])) continue;
        if (chosen >= 0) {
            config_complain(l, keys[i], ST_CONFIG_CONFLICT,
                            "%s and %s are both given; leave one of them out", keys[chosen],
                            keys[i]);
        }
        chosen = i;
    }
    TRY(config_complaints_end(l));
    if (chosen != 1) r->train.tokens = 0;
    if (chosen != 2) r->train.epochs = 0.0;
    return ST_OK;
}

status run_length_choose(run_config *r, const config *c, arena *a)
{
    TRY(one_choose(r, c, a));
    if (r->planned) return ST_OK;
    if (r->train.tokens > 0) {
        r->train.steps =
            steps_of_sequences(r, ceil((double)r->train.tokens / (double)r->train.seq));
        r->train.tokens = 0;
    }
    if (r->train.epochs > 0) r->train.steps = steps_most; // until the data is known
    return ST_OK;
}

status run_length_of_epochs(run_config *r, const config *c, arena *a, int64_t sequences)
{
    if (r->train.epochs <= 0) return ST_OK;
    r->train.steps = steps_of_sequences(r, ceil(r->train.epochs * (double)sequences));
    r->train.epochs = 0.0;
    return run_config_check(r, c, a);
}
