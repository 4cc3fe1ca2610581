// Warm-up, stable, decay: the rate is constant until the last decay_steps, then falls to min_ratio
// of the peak. Source: Hu et al. 2024, arXiv:2404.06395. Its warm-up starts at min_ratio.
#include "train/lr/lr.h"

#include <math.h>

static double falling(run_decay shape, double x)
{
    switch (shape) {
    case RUN_DECAY_COSINE:
        return (1.0 + cos(acos(-1.0) * x)) / 2.0;
    case RUN_DECAY_ONE_MINUS_SQRT:
        return 1.0 - sqrt(x);
    case RUN_DECAY_LINEAR:
    default:
        return 1.0 - x;
    }
}

static double rate(const lr_settings *s, int64_t finished)
{
    const double m = s->min_ratio;
    if (finished < s->warmup) {
        return s->peak * (m + (1.0 - m) * lr_warmup_share(s, finished));
    }
    const int64_t decay_begin = s->steps - s->decay_steps;
    if (finished < decay_begin) return s->peak;
    if (finished >= s->steps) return s->peak * m;
    const double x = (double)(finished - decay_begin) / (double)s->decay_steps;
    return s->peak * (m + (1.0 - m) * falling(s->decay_shape, x));
}

const lr_rule lr_rule_wsd = {.name = "wsd", .rate = rate};
