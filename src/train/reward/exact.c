// The completion is the answer, without white space at the ends of both.
#include "base/text.h"
#include "train/reward/reward.h"

#include <string.h>

static int64_t trimmed(const char *s, const char **begin)
{
    int64_t count = (int64_t)strlen(s);
    for (; count > 0 && text_is_blank(*s); count--) s++;
    while (count > 0 && text_is_blank(s[count - 1])) count--;
    *begin = s;
    return count;
}

static status score(const reward_context *x, const reward_case *c, double *out)
{
    (void)x;
    const char *said = NULL, *wanted = NULL;
    const int64_t count = trimmed(c->completion, &said), all = trimmed(c->answer, &wanted);
    *out = count == all && memcmp(said, wanted, (size_t)count) == 0 ? 1.0 : 0.0;
    return ST_OK;
}

const reward_rule reward_exact = {.name = "exact", .needs_answer = true, .one = score};
