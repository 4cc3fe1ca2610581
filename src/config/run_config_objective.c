// The rules of objectives in the configuration of a run.
#include "config/run_config_internal.h"

#include <stdio.h>
#include <string.h>

static void check_keys(checker *k, const run_objective_row *row)
{
    static const char *const all[] = {
        "objective.beta",      "objective.loss",      "objective.label_smoothing",
        "objective.reference", "objective.wanted",    "objective.unwanted",
        "objective.clip",      "objective.clip_high", "objective.kl",
        "objective.scale",     "objective.length",    "data.format"};
    char reason[80];
    (void)snprintf(reason, sizeof(reason), "train.objective = %s does not read it", row->name);
    for (int i = 0; i < COUNT_OF(all); i++) {
        const char *const keys[] = {all[i], NULL};
        const bool is_format = i == COUNT_OF(all) - 1; // of texts, check_data refuses it
        if (is_format && row->samples == RUN_SAMPLES_TEXT) continue;
        if (!check_is_listed(row->keys, all[i], strlen(all[i]))) check_refuse_keys(k, keys, reason);
    }
}

// How a run that draws completions cannot run.
static void check_rollouts_layout(checker *k)
{
    const run_config *r = k->r;
    if (r->kernels.device == RUN_DEVICE_CUDA && r->determinism.mode == RUN_STRICT &&
        r->rollout.cache > 0 && run_config_types(r).compute != DTYPE_F32) {
        CONFLICT("rollout.cache",
                 "rollout.cache = %lld cannot be used with kernels.device = cuda in strict order: "
                 "in 16 bits attention over pages has other bits there than that of training; "
                 "leave it out, or train in fp32",
                 (ll)r->rollout.cache);
    }
    if (r->resilience.mode == RUN_RESILIENCE_LIVE) {
        CONFLICT("resilience.mode",
                 "resilience.mode = live cannot be used with rollout.prompts yet; use restart");
    }
    if (r->sdc.replay > 0.0) {
        CONFLICT("sdc.replay",
                 "sdc.replay = %g cannot be used with rollout.prompts yet, because replay does not "
                 "draw completions",
                 r->sdc.replay);
    }
}

static void check_reward(checker *k)
{
    static const char *const of_pattern[] = {"reward.pattern", NULL};
    static const char *const of_command[] = {"reward.command", "reward.memory_limit", NULL};
    static const char *const of_both[] = {"reward.time_limit", NULL};
    static const char *const of_model[] = {"reward.model", NULL};
    static const char *const of_http[] = {"reward.url", "reward.retries", NULL};
    const run_config *r = k->r;
    const int32_t kind = r->reward.kind;
    const bool is_command = kind == RUN_REWARD_COMMAND, is_http = kind == RUN_REWARD_HTTP;
    const struct {
        int32_t kind;
        const char *key, *name, *value;
    } needed[] = {{RUN_REWARD_REGEX, "reward.pattern", "regex", r->reward.pattern},
                  {RUN_REWARD_COMMAND, "reward.command", "command", r->reward.command},
                  {RUN_REWARD_MODEL, "reward.model", "model", r->reward.model},
                  {RUN_REWARD_HTTP, "reward.url", "http", r->reward.url}};
    if (kind != RUN_REWARD_REGEX && kind != RUN_REWARD_NUMERIC) {
        check_refuse_keys(k, of_pattern, "only reward.kind = regex and numeric read a pattern");
    }
    if (!is_command) check_refuse_keys(k, of_command, "only reward.kind = command runs a command");
    if (!is_command && !is_http) {
        check_refuse_keys(k, of_both, "only reward.kind = command and http take that long");
    }
    if (kind != RUN_REWARD_MODEL) {
        check_refuse_keys(k, of_model, "only reward.kind = model reads a model");
    }
    if (!is_http) check_refuse_keys(k, of_http, "only reward.kind = http asks a service");
    for (int i = 0; i < COUNT_OF(needed); i++) {
        if (kind != needed[i].kind || needed[i].value != NULL) continue;
        config_complain(k->l, needed[i].key, ST_CONFIG_KEY,
                        "%s is not given, which reward.kind = %s needs", needed[i].key,
                        needed[i].name);
    }
}

// Keys of rollouts, and what a run that draws completions cannot do.
static void check_rollouts(checker *k, const run_objective_row *row)
{
    static const char *const of_rollouts[] = {
        "rollout.group",     "rollout.max_tokens",  "rollout.temperature",
        "rollout.top_p",     "rollout.top_k",       "rollout.seed",
        "rollout.slots",     "rollout.cache",       "rollout.staleness",
        "reward.kind",       "reward.pattern",      "reward.command",
        "reward.time_limit", "reward.memory_limit", "reward.model",
        "reward.url",        "reward.retries",      NULL};
    static const char *const of_data[] = {"data.train",
                                          "data.valid",
                                          "eval.every",
                                          "data.packing",
                                          "data.positions",
                                          "data.temperature",
                                          "data.curriculum",
                                          "data.on_error",
                                          "train.epochs",
                                          "data.trained",
                                          NULL};
    const run_config *r = k->r;
    if (!run_config_has_rollouts(r)) {
        check_refuse_keys(k, of_rollouts, "the run draws no completions; see rollout.prompts");
        return;
    }
    if (row->kind != OBJECTIVE_GRPO) {
        CONFLICT("rollout.prompts",
                 "rollout.prompts: only train.objective = grpo draws completions");
    }
    check_refuse_keys(k, of_data, "the run learns from the completions of rollout.prompts");
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        if (size % r->rollout.group == 0) continue;
        CONFLICT("rollout.group",
                 "rollout.group = %lld does not divide a batch of %lld sequences, of which each is "
                 "a completion",
                 (ll)r->rollout.group, (ll)size);
    }
    if (r->rollout.max_tokens >= r->train.seq) {
        CONFLICT("rollout.max_tokens",
                 "rollout.max_tokens = %lld leaves no place for a prompt in train.seq = %lld",
                 (ll)r->rollout.max_tokens, (ll)r->train.seq);
    }
    const int64_t least = align_up(r->train.seq, OP_PAGE) + OP_PAGE;
    if (r->rollout.cache > 0 && r->rollout.cache < least) {
        CONFLICT("rollout.cache",
                 "rollout.cache = %lld cannot hold one completion and its prompt; "
                 "train.seq = %lld needs at least %lld",
                 (ll)r->rollout.cache, (ll)r->train.seq, (ll)least);
    }
    if (r->objective.kl > 0.0) {
        CONFLICT("objective.kl",
                 "objective.kl = %g cannot be used with rollout.prompts yet: the run holds no "
                 "second model for reference",
                 r->objective.kl);
    }
    check_reward(k);
    check_rollouts_layout(k);
}

void check_objective(checker *k)
{
    const run_config *r = k->r;
    const run_objective_row *row = run_objective_at(r->train.objective);
    const int32_t form = run_config_objective(r).form;
    const bool smooths = form == FORM_SIGMOID || form == FORM_ROBUST;
    const bool is_group = row->kind == OBJECTIVE_GRPO;
    check_keys(k, row);
    check_rollouts(k, row);
    if (row->kind == OBJECTIVE_NONE) return;
    if (r->objective.label_smoothing > 0.0 && !smooths) {
        CONFLICT("objective.label_smoothing",
                 "objective.label_smoothing has no effect: objective.loss is neither sigmoid nor "
                 "robust");
    }
    if ((row->kind == OBJECTIVE_DPO || is_group) && is_group != (form >= FORM_GRPO)) {
        CONFLICT("objective.loss", "objective.loss is no loss of train.objective = %s", row->name);
    }
    if (r->objective.length > 0 && form != FORM_DR_GRPO) {
        CONFLICT("objective.length",
                 "objective.length has no effect: objective.loss is not dr_grpo");
    }
    if (r->data.packing == RUN_PACKING_PLAIN) {
        CONFLICT("data.packing",
                 "data.packing = plain cannot be used with train.objective = %s: the answers of a "
                 "sequence would see each other",
                 row->name);
    }
    if (r->train.z_loss > 0.0) {
        CONFLICT("train.z_loss",
                 "train.z_loss = %g cannot be used with train.objective = %s, whose loss is not "
                 "one of single tokens",
                 r->train.z_loss, row->name);
    }
}
