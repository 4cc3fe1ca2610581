// The catalogue by kind: what kinds there are, the entries of one, and a page for each entry. Any
// page ends with its keys, where each is from, its sources, and what a profile was fitted on.
#include "catalog/entry.h"
#include "catalog/files.h"
#include "cli/explain/catalog_pages.h"
#include "cli/explain/explain.h"
#include "model/preset.h"

#include <string.h>
#include <strings.h>

typedef struct kind {
    const char *name; // the folder in catalog/
    const char *about;
    // NULL: the entry's keys are its page
    status (*page)(cli_context *cli, const char *name, text *t);
} kind;

// In this order a name without a kind is looked up.
static const kind kinds[] = {
    {"clusters", "devices, links, prices and failures of one installation", catalog_cluster_page},
    {"devices", "peaks, memory, kernels' best speeds", catalog_device_page},
    {"runs", "published and supposed runs, which `simulate NAME` predicts", catalog_run_page},
    {"models", "shapes of models, for `simulate MODEL --cluster NAME`", catalog_model_page},
    {"profiles", "speeds and habits of software, for profile=NAME", NULL},
    {"links", "ports and cables of clusters", NULL},
    {"prices", "of rented devices, by provider and region, for cluster.prices.list=NAME",
     catalog_prices_page},
};

static bool is_models(const kind *k)
{
    return strcmp(k->name, "models") == 0;
}

static status names_of(cli_context *cli, const kind *k, const char ***names, int64_t *count)
{
    int64_t all = 0;
    if (!is_models(k)) return catalog_names(cli->a, k->name, names, count);
    while (model_preset_files[all].name != NULL) all++;
    TRY(arena_new(cli->a, all + 1, names));
    for (int64_t i = 0; i < all; i++) (*names)[i] = model_preset_files[i].name;
    *count = all;
    return ST_OK;
}

static bool is_in(const kind *k, const char *name)
{
    if (is_models(k)) return model_preset_named(name) != NULL;
    return catalog_file_find(k->name, name) != NULL;
}

// ---- lists --------------------------------------------------------------------------------------

static status model_about(cli_context *cli, const char *name, const char **out)
{
    const model_preset_file *f = model_preset_named(name);
    if (f == NULL) return fail(ST_CONFIG, "there is no model \"%.64s\"", name);
    decoder_spec spec;
    model_preset_facts facts;
    TRY(model_preset_parse(cli->a, f->yaml, (int64_t)strlen(f->yaml), name, &spec, &facts));
    *out = facts.about;
    return ST_OK;
}

static status about_of(cli_context *cli, const kind *k, const char *name, const char **out)
{
    catalog_entry e;
    if (is_models(k)) return model_about(cli, name, out);
    TRY(catalog_entry_load(cli->h, cli->a, k->name, name, &e));
    *out = e.about;
    return ST_OK;
}

static status list_add(cli_context *cli, const kind *k, text *t)
{
    const char **names = NULL, *about = NULL;
    int64_t count = 0;
    size_t width = 20;
    TRY(names_of(cli, k, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        if (strlen(names[i]) + 4 > width) width = strlen(names[i]) + 4;
    }
    TRY(text_add(t, "%s\n", k->name));
    for (int64_t i = 0; i < count; i++) {
        char *name = NULL;
        TRY(about_of(cli, k, names[i], &about));
        TRY(arena_format(cli->a, &name, "  %s", names[i]));
        TRY(catalog_column_add(cli, t, name, (int)width, about));
    }
    return ST_OK;
}

static status kinds_add(cli_context *cli, text *t)
{
    TRY(text_add(t, "trireme catalog KIND lists one kind, trireme catalog KIND NAME shows an "
                    "entry:\n\n"));
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        const char **names = NULL;
        int64_t count = 0;
        char *head = NULL;
        TRY(names_of(cli, &kinds[i], &names, &count));
        TRY(arena_format(cli->a, &head, "  %-10s%4lld", kinds[i].name, (long long)count));
        TRY(catalog_column_add(cli, t, head, 18, kinds[i].about));
    }
    return ST_OK;
}

// ---- one entry ----------------------------------------------------------------------------------

// "catalog/profiles/fsdp.yaml:3:10" as "fsdp:3".
static int place_short(const char *place, const char **begin)
{
    const char *slash = strrchr(place, '/'), *end = strstr(place, ".yaml");
    *begin = slash != NULL ? slash + 1 : place;
    return end != NULL && end > *begin ? (int)(end - *begin) : (int)strlen(*begin);
}

static status keys_add(cli_context *cli, const kind *k, const char *name, text *t)
{
    catalog_entry e;
    TRY(catalog_entry_load(cli->h, cli->a, k->name, name, &e));
    if (k->page == NULL) {
        char *head = NULL;
        TRY(arena_format(cli->a, &head, "%.*s", (int)strlen(k->name) - 1, k->name));
        TRY(catalog_column_add(cli, t, head, 10, name));
        TRY(catalog_column_add(cli, t, "", 10, e.about));
    }
    TRY(text_add(t, "\nkeys of the entry and of those that it is based on\n"));
    for (int64_t i = 0; i < e.key_count; i++) {
        const catalog_key *c = &e.keys[i];
        const char *from = NULL;
        char *head = NULL, *line = NULL;
        const int length = place_short(c->place, &from);
        TRY(arena_format(cli->a, &head, "  %s: %s", c->key, c->value));
        TRY(arena_format(cli->a, &line, "%s (%.*s)", c->help, length, from));
        const bool is_short = strlen(head) < 34;
        if (!is_short) TRY(catalog_column_add(cli, t, "  ", 2, head + 2));
        TRY(catalog_column_add(cli, t, is_short ? head : "", 34, line));
    }
    if (k->page != NULL) return ST_OK;
    const catalog_notes notes = {.sources = e.sources, .assumed = e.assumed};
    TRY(catalog_notes_add(cli, t, "sources", &notes));
    if (strcmp(k->name, "profiles") != 0) return ST_OK;
    text fitted = {.a = cli->a};
    for (int64_t i = 0; i < e.fitted_on.count; i++) {
        TRY(text_add(&fitted, "%s%s", i == 0 ? "" : ", ", e.fitted_on.items[i]));
    }
    TRY(text_add(t, "\n"));
    return catalog_column_add(cli, t, "fitted on", 10,
                              e.fitted_on.count > 0
                                  ? fitted.bytes
                                  : "no table of published figures: its numbers are from the "
                                    "sources above, or assumed");
}

static status entry_add(cli_context *cli, const kind *k, const char *name, text *t)
{
    if (k->page != NULL) TRY(k->page(cli, name, t));
    // A model's page has its file, and a run's has its settings.
    const bool is_shown = is_models(k) || strcmp(k->name, "runs") == 0;
    return is_shown ? ST_OK : keys_add(cli, k, name, t);
}

// Other kinds that have the same name.
static status others_add(const kind *shown, const char *name, text *t)
{
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        if (&kinds[i] == shown || !is_in(&kinds[i], name)) continue;
        TRY(text_add(t, "\nalso      trireme catalog %s %s\n", kinds[i].name, name));
    }
    return ST_OK;
}

static const kind *kind_find(const char *word)
{
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        const size_t length = strlen(kinds[i].name);
        const size_t given = strlen(word); // "profile" for "profiles", and "PROFILES"
        if (given != length && given != length - 1) continue;
        if (strncasecmp(kinds[i].name, word, given) == 0) return &kinds[i];
    }
    return NULL;
}

static status unknown_refuse(cli_context *cli, const char *name)
{
    const char **all = NULL;
    int64_t count = 0, presets = 0;
    while (catalog_files[count].name != NULL) count++;
    while (model_preset_files[presets].name != NULL) presets++;
    TRY(arena_new(cli->a, count + presets + COUNT_OF(kinds), &all));
    for (int64_t i = 0; i < count; i++) all[i] = catalog_files[i].name;
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) all[count++] = kinds[i].name;
    for (int64_t i = 0; model_preset_files[i].name != NULL; i++) {
        all[count++] = model_preset_files[i].name;
    }
    text near = {.a = cli->a};
    file_info info;
    TRY(cli->h->api->path_info(cli->h, name, &info));
    if (info.kind != FILE_KIND_NONE) {
        return fail(ST_CONFIG,
                    "the catalogue has no entry \"%.64s\"; for the file of this name write "
                    "./%.64s",
                    name, name);
    }
    TRY(text_add_nearest(&near, name, all, count));
    return fail(ST_CONFIG,
                "the catalogue has no kind and no entry \"%.64s\"%s `trireme catalog` lists the "
                "kinds, and a path to a cluster's YAML file does too",
                name, near.bytes);
}

// Two words, of which the first is no kind.
static status kind_refuse(cli_context *cli, const char *word, const char *name)
{
    text all = {.a = cli->a};
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        TRY(text_add(&all, "%s%s", i == 0 ? "" : ", ", kinds[i].name));
    }
    return fail(ST_USAGE,
                "\"%.64s\" is no kind; before \"%.64s\" the catalogue takes one of %s, and an "
                "entry alone is `trireme catalog NAME`",
                word, name, all.bytes);
}

static status unknown_of_kind(cli_context *cli, const kind *k, const char *name)
{
    const char **names = NULL;
    int64_t count = 0;
    TRY(names_of(cli, k, &names, &count));
    text near = {.a = cli->a};
    TRY(text_add_nearest(&near, name, names, count));
    return fail(ST_CONFIG,
                "there is no entry \"%.64s\" among the %s%s `trireme catalog %s` lists all", name,
                k->name, near.bytes, k->name);
}

static status word_add(cli_context *cli, const char *word, text *t)
{
    if (catalog_is_path(word)) return entry_add(cli, &kinds[0], word, t);
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        if (!is_in(&kinds[i], word)) continue;
        TRY(entry_add(cli, &kinds[i], word, t));
        return others_add(&kinds[i], word, t);
    }
    return unknown_refuse(cli, word);
}

static status all_add(cli_context *cli, text *t)
{
    TRY(kinds_add(cli, t));
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        TRY(text_add(t, "\n"));
        TRY(list_add(cli, &kinds[i], t));
    }
    return ST_OK;
}

status explain_catalog(cli_context *cli, const char *word, const char *name)
{
    text t = {.a = cli->a};
    const kind *k = word != NULL ? kind_find(word) : NULL;
    if (word == NULL) {
        TRY(all_add(cli, &t));
    } else if (k == NULL) {
        if (name != NULL) return kind_refuse(cli, word, name);
        TRY(word_add(cli, word, &t));
    } else if (name == NULL) {
        TRY(list_add(cli, k, &t));
        if (strcmp(k->name, "prices") == 0) TRY(catalog_prices_table(cli, &t));
    } else if (catalog_is_path(name) || is_in(k, name)) {
        TRY(entry_add(cli, k, name, &t));
    } else {
        return unknown_of_kind(cli, k, name);
    }
    cli_print_text(cli, &t);
    return ST_OK;
}
