// checkpoint.tiers: "buddy:1, memory:20, disk:1000, durable:5000:/mnt/store". Each tier has its own
// interval; a recovery takes the newest state of the fastest tier that has it.
#include "config/run_config.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static status number_read(const char *tier, const char *value, bool may_be_auto, int64_t *out)
{
    if (may_be_auto && strcmp(value, "auto") == 0) {
        *out = RUN_EVERY_AUTO;
        return ST_OK;
    }
    if (text_parse_i64(value, out) && *out >= 1 && *out <= INT64_C(1000000000000)) return ST_OK;
    return fail(ST_CONFIG_RANGE,
                "checkpoint.tiers: %s:%s; expected %s:STEPS, a number of steps from 1%s", tier,
                value, tier, may_be_auto ? ", or auto" : "");
}

// Paths are those of other keys: ~ is the home folder, and a relative path begins at the folder
// that the run's folder is in, wherever a later command is given.
static status folder_read(const host *h, const run_config *r, arena *a, const char *given,
                          const char **out)
{
    char *path = NULL;
    const char *variable = text_find_variable(given), *slash = strrchr(r->run.dir, '/');
    const bool is_home = given[0] == '~' && (given[1] == '/' || given[1] == '\0');
    if (variable != NULL) {
        return fail(ST_CONFIG_TYPE,
                    "checkpoint.tiers: %s: variables of the environment are not expanded here "
                    "(%.40s); write the path",
                    given, variable);
    }
    if (is_home && (h->home == NULL || *h->home == '\0')) {
        return fail(ST_CONFIG_TYPE,
                    "checkpoint.tiers: %s: ~ cannot be expanded, because HOME is not set", given);
    }
    if (is_home) {
        TRY(arena_format(a, &path, "%s%s", h->home, given + 1));
    } else if (given[0] == '/' || slash == NULL) {
        TRY(arena_strdup(a, given, &path));
    } else {
        TRY(arena_format(a, &path, "%.*s/%s", (int)(slash - r->run.dir), r->run.dir, given));
    }
    *out = path;
    return ST_OK;
}

static status tier_read(const host *h, run_config *r, arena *a, char *word)
{
    char *colon = strchr(word, ':'), *path = NULL;
    if (colon != NULL) *colon++ = '\0';
    const char *value = colon != NULL ? colon : "";
    if (strcmp(word, "memory") == 0) {
        if (r->resilience.mode == RUN_RESILIENCE_OFF) {
            return fail(ST_CONFIG_CONFLICT, "checkpoint.tiers: memory has no effect with "
                                            "resilience.mode = off; take live or restart");
        }
        return number_read(word, value, false, &r->resilience.buddy.every);
    }
    if (strcmp(word, "buddy") == 0) {
        if (r->resilience.mode != RUN_RESILIENCE_LIVE) {
            return fail(ST_CONFIG_CONFLICT, "checkpoint.tiers: buddy has an effect only with "
                                            "resilience.mode = live");
        }
        return number_read(word, value, false, &r->resilience.buddy.ranks);
    }
    if (strcmp(word, "disk") == 0) {
        return number_read(word, value, true, &r->checkpoint.every);
    }
    if (strcmp(word, "durable") == 0) {
        path = strchr(value, ':');
        if (path == NULL || path[1] == '\0') {
            return fail(ST_CONFIG_RANGE,
                        "checkpoint.tiers: durable:%s; expected "
                        "durable:STEPS:FOLDER",
                        value);
        }
        *path++ = '\0';
        TRY(number_read(word, value, false, &r->checkpoint.durable_every));
        return folder_read(h, r, a, path, &r->checkpoint.durable);
    }
    return fail(
        ST_CONFIG_RANGE,
        "checkpoint.tiers: there is no tier \"%s\"; there are buddy (the memory of other ranks), "
        "memory (of this machine, which its ranks share), disk and durable",
        word);
}

status run_config_tiers(const host *h, run_config *r, arena *a)
{
    char *words = NULL, *rest = NULL;
    r->checkpoint.durable = NULL;
    r->checkpoint.durable_every = 0;
    if (r->checkpoint.tiers == NULL || r->checkpoint.tiers[0] == '\0') return ST_OK;
    TRY(arena_strdup(a, r->checkpoint.tiers, &words));
    for (char *word = strtok_r(words, ", ", &rest); word != NULL;
         word = strtok_r(NULL, ", ", &rest)) {
        TRY(tier_read(h, r, a, word));
    }
    const int64_t durable = r->checkpoint.durable_every, disk = r->checkpoint.every;
    if (durable == 0 || disk == RUN_EVERY_AUTO || (disk > 0 && durable % disk == 0)) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "checkpoint.tiers: durable:%lld copies checkpoints of the disk, which are written "
                "every %lld steps; take a multiple of that",
                (long long)durable, (long long)disk);
}
