// A run of the catalogue as an operand: supplies its model, its cluster and its settings, before
// the user's keys.
//
// Many runs have the names of their models. Such a name is the run, also on another cluster, which
// then keeps the layout and the batch of the run as far as that cluster has the devices. With
// --cluster and a layout of the user's own it is the model. A model without any layout gets the
// layout that the planner finds.
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "catalog/run.h"
#include "cli/explain/explain.h"
#include "cli/plan/simulate.h"
#include "cli/run_folder.h"
#include "model/preset.h"

#include <string.h>

enum { SETTING_KEYS = 8 };

static const char *value_of(const char *const *keys, int64_t count, const char *key)
{
    const size_t length = strlen(key);
    const char *found = NULL;
    for (int64_t i = 0; i < count; i++) { // the last one counts
        if (strncmp(keys[i], key, length) == 0 && keys[i][length] == '=') {
            found = keys[i] + length + 1;
        }
    }
    return found;
}

static bool is_given(const char *const *keys, int64_t count, const char *key)
{
    return value_of(keys, count, key) != NULL;
}

static int64_t number_of(const char *const *keys, int64_t count, const char *key, int64_t without)
{
    int64_t number = 0;
    const char *value = value_of(keys, count, key);
    return value != NULL && text_parse_i64(value, &number) ? number : without;
}

static bool has_layout(const simulate_request *w)
{
    for (int64_t i = 0; i < w->key_count; i++) {
        if (strncmp(w->keys[i], "layout.", 7) == 0 || strncmp(w->keys[i], "layout=", 7) == 0) {
            return true;
        }
    }
    return false;
}

// Settings that layout=auto looks for anew.
static bool is_searched(const char *setting)
{
    static const char *const keys[] = {"layout.", "train.micro_batch=", "train.recompute"};
    for (int64_t i = 0; i < COUNT_OF(keys); i++) {
        if (strncmp(setting, keys[i], strlen(keys[i])) == 0) return true;
    }
    return false;
}

// The user's layout.dp determines the devices, which would contradict the run's own number.
static status settings_join(arena *a, const catalog_run *r, simulate_request *w)
{
    const char **keys = NULL;
    int64_t n = 0;
    const bool has_dp = is_given(w->keys, w->key_count, "layout.dp");
    const char *mode = value_of(w->keys, w->key_count, "layout");
    const bool searched = mode != NULL && strcmp(mode, "auto") == 0;
    TRY(arena_new(a, r->setting_count + w->key_count + SETTING_KEYS, &keys));
    for (int64_t i = 0; i < r->setting_count; i++) {
        if (has_dp && strncmp(r->settings[i], "cluster.devices=", 16) == 0) continue;
        if (searched && is_searched(r->settings[i])) continue;
        keys[n++] = r->settings[i];
    }
    w->run_keys = n;
    for (int64_t i = 0; i < w->key_count; i++) keys[n++] = w->keys[i];
    w->keys = keys;
    w->key_count = n;
    return ST_OK;
}

// ---- on another cluster -------------------------------------------------------------------------

// Puts a key between those of the run and the user's.
static status setting_put(arena *a, simulate_request *w, const char *key, int64_t value)
{
    char *line = NULL;
    const char **keys = NULL;
    TRY(arena_new(a, w->key_count + SETTING_KEYS, &keys));
    TRY(arena_format(a, &line, "%s=%lld", key, (long long)value));
    memcpy(keys, w->keys, (size_t)w->run_keys * sizeof(*keys));
    keys[w->run_keys] = line;
    memcpy(keys + w->run_keys + 1, w->keys + w->run_keys,
           (size_t)(w->key_count - w->run_keys) * sizeof(*keys));
    w->keys = keys;
    w->run_keys++;
    w->key_count++;
    return ST_OK;
}

static status change_note(arena *a, simulate_request *w, const char *key, int64_t from, int64_t to)
{
    char n[2][32];
    text t = {.a = a};
    if (w->changes != NULL) TRY(text_add(&t, "%s, ", w->changes));
    TRY(text_add(&t, "%s from %s to %s", key, text_grouped(from, n[0]), text_grouped(to, n[1])));
    w->changes = t.bytes;
    return ST_OK;
}

// The largest dp of at most `most` whose ranks have equal shares of the batch.
static int64_t dp_of(const simulate_request *w, int64_t most)
{
    const int64_t batch = number_of(w->keys, w->key_count, "train.global_batch", 0);
    const int64_t each = number_of(w->keys, w->key_count, "train.micro_batch", 1);
    int64_t dp = most;
    while (batch > 0 && dp > 1 && batch % (dp * max_i64(each, 1)) != 0) dp--;
    return dp;
}

static status parts_fit(arena *a, simulate_request *w, int64_t dp)
{
    const int64_t cp = number_of(w->keys, w->key_count, "layout.cp", 1);
    const int64_t ep = number_of(w->keys, w->key_count, "layout.ep", 1);
    const int64_t group = number_of(w->keys, w->key_count, "layout.zero_group", 0);
    int64_t fits = ep;
    while (fits > 1 && (dp * cp) % fits != 0) fits /= 2;
    if (fits != ep) {
        TRY(change_note(a, w, "layout.ep", ep, fits));
        TRY(setting_put(a, w, "layout.ep", fits));
    }
    if (group == 0 || dp % group == 0) return ST_OK;
    TRY(change_note(a, w, "layout.zero_group", group, 0));
    return setting_put(a, w, "layout.zero_group", 0);
}

// Takes as many of the run's devices as the cluster has, in whole copies of the model.
static status devices_fit(cli_context *cli, const catalog_run *r, simulate_request *w)
{
    cluster *c = NULL;
    const int64_t wanted = number_of(w->keys, w->key_count, "cluster.devices", 0);
    const int64_t own =
        number_of(w->keys + w->run_keys, w->key_count - w->run_keys, "cluster.devices", 0);
    int64_t inner = number_of(w->keys, w->key_count, "layout.tp", 1);
    if (is_given(w->keys, w->key_count, "layout.dp")) return ST_OK;
    TRY(arena_new(cli->a, 1, &c));
    TRY(catalog_cluster_load(cli->h, cli->a, w->cluster, NULL, 0, c));
    inner *= number_of(w->keys, w->key_count, "layout.pp", 1) *
             number_of(w->keys, w->key_count, "layout.cp", 1);
    const int64_t most = own > 0 ? own : min_i64(c->devices, wanted > 0 ? wanted : c->devices);
    const int64_t dp = dp_of(w, most / max_i64(inner, 1));
    if (dp < 1) {
        return fail(ST_CONFIG_CONFLICT,
                    "the run %.64s keeps its layout, whose tp x pp x cp = %lld devices are more "
                    "than the %lld of %.64s; take a larger cluster.devices, or layout=auto",
                    r->name, (long long)inner, (long long)most, w->cluster);
    }
    if (own > 0 && dp * inner != own) {
        return fail(ST_CONFIG_CONFLICT,
                    "cluster.devices = %lld does not hold whole copies of the run's layout (tp x "
                    "pp x cp = %lld) with equal shares of its batch; the nearest number below is "
                    "%lld; layout=auto takes any",
                    (long long)own, (long long)inner, (long long)(dp * inner));
    }
    if (dp * inner != wanted) {
        TRY(change_note(cli->a, w, "cluster.devices", wanted, dp * inner));
        if (own == 0) TRY(setting_put(cli->a, w, "cluster.devices", dp * inner));
    } else if (own > 0) {
        TRY(change_note(cli->a, w, "cluster.devices",
                        number_of(w->keys, w->run_keys, "cluster.devices", own), own));
    }
    return parts_fit(cli->a, w, dp);
}

// ---- models -------------------------------------------------------------------------------------

static status model_is(cli_context *cli, const char *name, bool *is)
{
    decoder_spec spec;
    file_info info;
    *is = true;
    TRY(cli->h->api->path_info(cli->h, name, &info));
    if (info.kind != FILE_KIND_NONE) return ST_OK;
    *is = model_spec_preset(cli->h, cli->a, name, &spec) == ST_OK;
    if (!*is) error_clear();
    return ST_OK;
}

// A run file says its layout; a model without one gets the planner's.
static status layout_open(cli_context *cli, simulate_request *w)
{
    const char **keys = NULL;
    file_info info;
    bool is_hf = false;
    TRY(cli->h->api->path_info(cli->h, w->operand, &info));
    if (info.kind == FILE_KIND_FOLDER) TRY(cli_has_file(cli, w->operand, "config.json", &is_hf));
    if ((info.kind != FILE_KIND_NONE && !is_hf) || has_layout(w)) return ST_OK;
    TRY(arena_new(cli->a, w->key_count + 1, &keys));
    for (int64_t i = 0; i < w->key_count; i++) keys[i] = w->keys[i];
    keys[w->key_count++] = "layout=auto";
    w->keys = keys;
    w->layout_open = true;
    return ST_OK;
}

// Refuses a name that is no file, no run of the catalogue and no preset.
static status model_known(cli_context *cli, const char *name)
{
    const char **names = NULL, **all = NULL;
    int64_t runs = 0, presets = 0, count = 0;
    text near = {.a = cli->a};
    file_info info;
    TRY(cli->h->api->path_info(cli->h, name, &info));
    if (info.kind != FILE_KIND_NONE || model_preset_named(name) != NULL) return ST_OK;
    if (strchr(name, '/') != NULL) return fail(ST_NOT_FOUND, "%s is not there", name);
    TRY(catalog_names(cli->a, "runs", &names, &runs));
    while (model_preset_files[presets].name != NULL) presets++;
    TRY(arena_new(cli->a, runs + presets, &all));
    for (; count < runs; count++) all[count] = names[count];
    for (int64_t i = 0; i < presets; i++) { // many runs have the names of their models
        const char *preset = model_preset_files[i].name;
        if (text_find_name(preset, names, runs) < 0) all[count++] = preset;
    }
    TRY(text_add_nearest(&near, name, all, count));
    return fail(ST_NOT_FOUND, "there is no run, model or file \"%.64s\"%s", name, near.bytes);
}

status simulate_named(cli_context *cli, simulate_request *w)
{
    catalog_run *r = NULL;
    bool is_model = false;
    if (!catalog_run_exists(w->operand)) {
        if (w->cluster != NULL) return layout_open(cli, w);
        TRY(model_known(cli, w->operand));
        return fail(ST_USAGE,
                    "%.64s needs --cluster NAME or a YAML file; only runs of the catalogue have "
                    "their own (trireme catalog runs)",
                    w->operand);
    }
    TRY(arena_new(cli->a, 1, &r));
    TRY(catalog_run_load(cli->h, cli->a, w->operand, r));
    if (w->cluster == NULL) {
        w->run = r;
        w->cluster = r->cluster;
        w->operand = r->model;
        return settings_join(cli->a, r, w);
    }
    TRY(model_is(cli, w->operand, &is_model));
    if (is_model && has_layout(w)) {
        w->run_unused = r->name;
        return ST_OK;
    }
    w->run = r;
    w->moved = true;
    w->operand = r->model;
    TRY(settings_join(cli->a, r, w));
    if (is_given(w->keys + w->run_keys, w->key_count - w->run_keys, "layout")) return ST_OK;
    return devices_fit(cli, r, w);
}
