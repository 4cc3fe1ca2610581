// The rate falls with the inverse square root of the steps since the warm-up. Source: Vaswani et
// al. 2017, arXiv:1706.03762, with the timescale as a key.
#include "train/lr/lr.h"

#include <math.h>

static double rate(const lr_settings *s, int64_t finished)
{
    if (finished < s->warmup) return s->peak * lr_warmup_share(s, finished);
    const double t = (double)max_i64(1, s->timescale);
    return s->peak / sqrt(((double)(finished - s->warmup) + t) / t);
}

const lr_rule lr_rule_inverse_sqrt = {.name = "inverse_sqrt", .rate = rate};
