// The rate falls linearly from the peak to min_ratio of it over the steps after the warm-up.
#include "train/lr/lr.h"

static double rate(const lr_settings *s, int64_t finished)
{
    if (finished < s->warmup) return s->peak * lr_warmup_share(s, finished);
    const double left = (double)max_i64(0, s->steps - finished);
    const double x = left / (double)max_i64(1, s->steps - s->warmup);
    return s->peak * (s->min_ratio + (1.0 - s->min_ratio) * x);
}

const lr_rule lr_rule_linear = {.name = "linear", .rate = rate};
