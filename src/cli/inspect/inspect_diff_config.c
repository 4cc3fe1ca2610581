// Compares two config.json key by key, by the meaning of each key whatever its spelling.
#include "cli/inspect/inspect.h"
#include "model/model.h"

#include <string.h>

typedef struct comparing {
    cli_context *cli;
    inspect_tell *tell;
    void *context;
} comparing;

static status value_text(const json *v, text *t)
{
    switch (json_kind_of(v)) {
    case JSON_NONE:
        return text_add(t, "(not there)");
    case JSON_NULL_VALUE:
        return text_add(t, "null");
    case JSON_BOOL:
        return text_add(t, "%s", json_bool(v, false) ? "true" : "false");
    case JSON_INT:
        return text_add(t, "%lld", (long long)json_int(v, 0));
    case JSON_REAL:
        return text_add(t, "%.17g", json_real(v, 0.0));
    case JSON_TEXT:
        return text_add_json(t, json_text(v, ""));
    case JSON_LIST:
        return text_add(t, "a list of %lld", (long long)json_count(v));
    case JSON_MAP:
        return text_add(t, "a map of %lld", (long long)json_count(v));
    }
    return ST_OK;
}

static status values_differ(const comparing *c, const char *key, const json *a, const json *b);

static status members_differ(const comparing *c, const char *key, const json *a, const json *b)
{
    char *name = NULL;
    for (int64_t i = 0; i < json_count(a); i++) {
        const json *value = NULL;
        const char *member = json_key_at(a, i, &value);
        TRY(arena_format(c->cli->a, &name, "%s.%s", key, member));
        TRY(values_differ(c, name, value, json_get(b, member)));
    }
    for (int64_t i = 0; i < json_count(b); i++) {
        const json *value = NULL;
        const char *member = json_key_at(b, i, &value);
        if (json_get(a, member) != NULL) continue;
        TRY(arena_format(c->cli->a, &name, "%s.%s", key, member));
        TRY(values_differ(c, name, NULL, value));
    }
    return ST_OK;
}

// JSON files here have a depth of at most 64.
static status values_differ(const comparing *c, const char *key, const json *a, const json *b)
{
    const json_kind kind = json_kind_of(a);
    text was = {.a = c->cli->a}, is = {.a = c->cli->a};
    char *name = NULL;
    if (kind == JSON_MAP && json_kind_of(b) == JSON_MAP) return members_differ(c, key, a, b);
    if (kind == JSON_LIST && json_kind_of(b) == JSON_LIST && json_count(a) == json_count(b)) {
        for (int64_t i = 0; i < json_count(a); i++) {
            TRY(arena_format(c->cli->a, &name, "%s[%lld]", key, (long long)i));
            TRY(values_differ(c, name, json_at(a, i), json_at(b, i)));
        }
        return ST_OK;
    }
    TRY(value_text(a, &was));
    TRY(value_text(b, &is));
    if (strcmp(was.bytes, is.bytes) == 0) return ST_OK;
    TRY(arena_format(c->cli->a, &name, "%s: %s -> %s", key, was.bytes, is.bytes));
    return c->tell(c->context, name);
}

// A model has several spellings, even in transformers 4 and 5. A known configuration is therefore
// compared after it was parsed.
static status spelling_drop(cli_context *cli, const char *path, json **root)
{
    decoder_spec spec;
    text t = {.a = cli->a};
    const status st = model_spec_from_json(cli->a, *root, path, &spec);
    if (st == ST_MODEL) {
        error_clear(); // unknown: compares the text as it is
        return ST_OK;
    }
    TRY(st);
    TRY(model_spec_print_json(&spec, &t));
    json_free(*root);
    *root = NULL;
    return json_parse(t.bytes, t.length, path, root);
}

static status config_read(cli_context *cli, const char *folder, json **out)
{
    char *path = NULL;
    file_info info;
    *out = NULL;
    TRY(path_join(cli->a, folder, "config.json", &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(json_read(cli->h, path, 1 << 24, out));
    return spelling_drop(cli, path, out);
}

status inspect_diff_configs(cli_context *cli, const char *folder_a, const char *folder_b,
                            inspect_tell *tell, void *context)
{
    const comparing c = {.cli = cli, .tell = tell, .context = context};
    json *a = NULL, *b = NULL;
    status st = config_read(cli, folder_a, &a);
    if (st == ST_OK) st = config_read(cli, folder_b, &b);
    if (st == ST_OK && a != NULL && b != NULL) st = values_differ(&c, "config", a, b);
    json_free(a);
    json_free(b);
    return st;
}
