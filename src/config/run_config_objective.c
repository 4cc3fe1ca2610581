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

void check_objective(checker *k)
{
    const run_config *r = k->r;
    const run_objective_row *row = run_objective_at(r->train.objective);
    const int32_t form = run_config_objective(r).form;
    const bool smooths = form == FORM_SIGMOID || form == FORM_ROBUST;
    const bool is_group = row->kind == OBJECTIVE_GRPO;
    check_keys(k, row);
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
    if (r->layout.cp > 1) {
        CONFLICT("layout.cp",
                 "layout.cp = %lld cannot be used with train.objective = %s yet, whose loss needs "
                 "the whole sequence on a rank; use layout.dp or layout.tp",
                 (ll)r->layout.cp, row->name);
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
