// The peak rate after a linear warm-up.
#include "train/lr/lr.h"

static double rate(const lr_settings *s, int64_t finished)
{
    if (finished < s->warmup) return s->peak * lr_warmup_share(s, finished);
    return s->peak;
}

const lr_rule lr_rule_constant = {.name = "constant", .rate = rate};
