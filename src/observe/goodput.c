// Goodput: which share of a run's time went into steps that count, and where the rest went.
//
//   first step ... last record = steps that count + recovery + redone + copies + saves + ...
//
// The sums are in every record of metrics.jsonl, so a run that goes on, in another process or after
// days, continues from those of its last record that counts.
#include "observe/observe.h"

#include <stdio.h>
#include <string.h>

const char *const obs_cause_names[OBS_CAUSE_COUNT] = {
    [OBS_RECOVERY] = "recovery", [OBS_REDONE] = "redone",   [OBS_COPIES] = "copies",
    [OBS_SAVES] = "saves",       [OBS_DIGESTS] = "digests", [OBS_EVALUATION] = "evaluation",
    [OBS_OTHER] = "other",
};

double obs_goodput_seconds(const obs_goodput *g)
{
    double sum = g->steps_s;
    for (int i = 0; i < OBS_CAUSE_COUNT; i++) sum += g->lost_s[i];
    return sum;
}

double obs_goodput_share(const obs_goodput *g)
{
    const double all = obs_goodput_seconds(g);
    return all > 0.0 ? g->steps_s / all : 1.0;
}

status obs_goodput_print_json(const obs_goodput *g, text *out)
{
    const char *before = "";
    TRY(text_add(out, "\"goodput\": %.5f, \"steps_s\": %.4f, \"lost_s\": {", obs_goodput_share(g),
                 g->steps_s));
    for (int i = 0; i < OBS_CAUSE_COUNT; i++) {
        if (!(g->lost_s[i] > 0.0)) continue;
        TRY(text_add(out, "%s\"%s\": %.4f", before, obs_cause_names[i], g->lost_s[i]));
        before = ", ";
    }
    return text_add(out, "}");
}

bool obs_goodput_read(const json *record, obs_goodput *out)
{
    if (json_get(record, "goodput") == NULL) return false;
    const json *lost = json_get(record, "lost_s");
    *out = (obs_goodput){.steps_s = json_real(json_get(record, "steps_s"), 0.0)};
    for (int i = 0; i < OBS_CAUSE_COUNT && lost != NULL; i++) {
        out->lost_s[i] = json_real(json_get(lost, obs_cause_names[i]), 0.0);
    }
    return true;
}

void obs_goodput_print(const obs_goodput *g, char *out, int64_t bytes)
{
    const double all = obs_goodput_seconds(g);
    const char *before = " (";
    int64_t at = snprintf(out, (size_t)bytes, "goodput %.1f%%", 100.0 * obs_goodput_share(g));
    for (int i = 0; i < OBS_CAUSE_COUNT; i++) {
        const double percent = all > 0.0 ? 100.0 * g->lost_s[i] / all : 0.0;
        if (percent < 0.05) continue;
        at += snprintf(out + at, (size_t)(bytes - at), "%s%s %.1f%%", before, obs_cause_names[i],
                       percent);
        before = ", ";
    }
    if (before[0] == ',') (void)snprintf(out + at, (size_t)(bytes - at), ")");
}
