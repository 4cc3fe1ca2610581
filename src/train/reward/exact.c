// The completion is the answer, without white space at the ends of both.
#include "base/text.h"
#include "train/reward/reward.h"

#include <string.h>

static status score(const reward_context *x, const reward_case *c, double *out)
{
    (void)x;
    const char *said = c->completion, *wanted = c->answer;
    const int64_t count = text_trim(&said, (int64_t)strlen(said));
    const int64_t all = text_trim(&wanted, (int64_t)strlen(wanted));
    *out = count == all && memcmp(said, wanted, (size_t)count) == 0 ? 1.0 : 0.0;
    return ST_OK;
}

const reward_rule reward_exact = {.name = "exact", .needs_answer = true, .one = score};
