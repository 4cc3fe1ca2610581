// Half a cosine from the peak to min_ratio of the peak. Source: Loshchilov & Hutter 2017,
// arXiv:1608.03983. Beyond the last step the formula continues, as in other software.
#include "train/lr/lr.h"

#include <math.h>

static double rate(const lr_settings *s, int64_t finished)
{
    if (finished < s->warmup) return s->peak * lr_warmup_share(s, finished);
    const double x = (double)(finished - s->warmup) / (double)max_i64(1, s->steps - s->warmup);
    const double factor = s->min_ratio + (1.0 - s->min_ratio) * (1.0 + cos(acos(-1.0) * x)) / 2.0;
    return s->peak * fmax(0.0, factor);
}

const lr_rule lr_rule_cosine = {.name = "cosine", .rate = rate};
