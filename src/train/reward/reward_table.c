// The table of rewards.
#include "train/reward/reward.h"

static const reward_rule *const rules[] = {
    [RUN_REWARD_EXACT] = &reward_exact,     [RUN_REWARD_REGEX] = &reward_regex,
    [RUN_REWARD_NUMERIC] = &reward_numeric, [RUN_REWARD_COMMAND] = &reward_command,
    [RUN_REWARD_MODEL] = &reward_model,     [RUN_REWARD_HTTP] = &reward_http};

const reward_rule *reward_rule_at(int32_t kind)
{
    ASSERT(kind >= 0 && kind < COUNT_OF(rules));
    return rules[kind];
}

status reward_score(const reward_rule *rule, const reward_context *x, const reward_case *cases,
                    int64_t count, double *out)
{
    if (rule->all != NULL) return rule->all(x, cases, count, out);
    for (int64_t i = 0; i < count; i++) TRY(rule->one(x, &cases[i], &out[i]));
    return ST_OK;
}
