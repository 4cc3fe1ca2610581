// A run of the catalogue as an operand: supplies its model, its cluster and its settings, before
// the user's keys.
//
// Many runs have the names of their models. A name with --cluster is therefore a model first, and
// on its own it is the run of that model: `simulate llama3.1-405b` is Meta's.
#include "catalog/run.h"
#include "cli/plan/simulate.h"

#include <string.h>

static bool is_given(const char *const *keys, int64_t count, const char *key)
{
    const size_t length = strlen(key);
    for (int64_t i = 0; i < count; i++) {
        if (strncmp(keys[i], key, length) == 0 && keys[i][length] == '=') return true;
    }
    return false;
}

// The user's layout.dp determines the devices, which would contradict the run's own number.
static status settings_join(arena *a, const catalog_run *r, simulate_request *w)
{
    const char **keys = NULL;
    int64_t n = 0;
    const bool has_dp = is_given(w->keys, w->key_count, "layout.dp");
    TRY(arena_new(a, r->setting_count + w->key_count + 1, &keys));
    for (int64_t i = 0; i < r->setting_count; i++) {
        if (has_dp && strncmp(r->settings[i], "cluster.devices=", 16) == 0) continue;
        keys[n++] = r->settings[i];
    }
    for (int64_t i = 0; i < w->key_count; i++) keys[n++] = w->keys[i];
    w->keys = keys;
    w->key_count = n;
    return ST_OK;
}

status simulate_named(cli_context *cli, simulate_request *w)
{
    catalog_run r;
    if (!catalog_run_exists(w->operand)) {
        if (w->cluster != NULL) return ST_OK;
        return fail(ST_USAGE,
                    "%.64s needs --cluster NAME or a YAML file; only runs of the catalogue have "
                    "their own (trireme explain catalog)",
                    w->operand);
    }
    TRY(catalog_run_load(cli->h, cli->a, w->operand, &r));
    if (w->cluster != NULL) {
        decoder_spec spec;
        file_info info;
        TRY(cli->h->api->path_info(cli->h, w->operand, &info));
        if (info.kind != FILE_KIND_NONE) return ST_OK;
        if (model_spec_preset(cli->h, cli->a, w->operand, &spec) == ST_OK) return ST_OK;
        error_clear();
    } else {
        w->cluster = r.cluster;
    }
    w->operand = r.model;
    return settings_join(cli->a, &r, w);
}
