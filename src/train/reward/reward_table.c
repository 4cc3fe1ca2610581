// The table of rewards.
#include "train/reward/reward.h"

static const reward_rule *const rules[] = {[RUN_REWARD_EXACT] = &reward_exact,
                                           [RUN_REWARD_REGEX] = &reward_regex,
                                           [RUN_REWARD_NUMERIC] = &reward_numeric};

const reward_rule *reward_rule_at(int32_t kind)
{
    ASSERT(kind >= 0 && kind < COUNT_OF(rules));
    return rules[kind];
}
