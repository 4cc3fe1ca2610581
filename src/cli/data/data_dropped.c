// `data look CORPUS`: samples of the documents that each rule of a build dropped.
#include "base/format/json.h"
#include "cli/data/data_commands.h"
#include "cli/data/data_look.h"
#include "data/reader.h"

#include <string.h>

typedef struct dropped_look {
    cli_context *cli;
    const char *path;
    int64_t most; // samples of a rule
    const char **rules;
    int64_t *shown; // [rule]
    int64_t rule_count, rule_capacity, count_capacity;
} dropped_look;

// Counts a sample of the rule: how many were shown before.
static status count_rule(dropped_look *w, const char *rule, int64_t *before)
{
    int64_t i = 0;
    while (i < w->rule_count && strcmp(w->rules[i], rule) != 0) i++;
    if (i == w->rule_count) {
        void *names = w->rules, *counts = w->shown;
        char *name = NULL;
        TRY(arena_grow(w->cli->a, &names, &w->rule_capacity, i + 1, sizeof(*w->rules)));
        w->rules = names;
        TRY(arena_grow(w->cli->a, &counts, &w->count_capacity, i + 1, sizeof(*w->shown)));
        w->shown = counts;
        TRY(arena_strdup(w->cli->a, rule, &name));
        w->rules[i] = name;
        w->shown[i] = 0;
        w->rule_count++;
    }
    *before = w->shown[i]++;
    return ST_OK;
}

enum { KEY_RULE, KEY_SOURCE, KEY_FILE, KEY_N, KEY_ID, KEY_BYTES, KEY_TEXT, KEYS };

static status show_sample(dropped_look *w, json *const v[KEYS])
{
    const char *id = json_text(v[KEY_ID], NULL);
    const int64_t shown = json_text_bytes(v[KEY_TEXT]), whole = json_int(v[KEY_BYTES], 0);
    int64_t before = 0;
    data_bytes body = {0};
    TRY(count_rule(w, json_text(v[KEY_RULE], "?"), &before));
    if (before >= w->most) return ST_OK;
    cli_print(w->cli, "---- %s  %s  %s:%lld%s%s\n", json_text(v[KEY_RULE], "?"),
              json_text(v[KEY_SOURCE], ""), json_text(v[KEY_FILE], ""),
              (long long)json_int(v[KEY_N], -1), id != NULL ? "  " : "", id != NULL ? id : "");
    const status st = data_bytes_add(&body, json_text(v[KEY_TEXT], ""), shown);
    if (st == ST_OK) data_print_visible(w->cli, &body);
    data_bytes_deinit(&body);
    cli_print(w->cli, "\n");
    if (whole > shown) cli_print(w->cli, "... %lld more bytes\n", (long long)(whole - shown));
    return st;
}

static status show_line(dropped_look *w, const data_line *line)
{
    static const char *const keys[KEYS] = {"rule", "source", "file", "n", "id", "bytes", "text"};
    json *v[KEYS] = {NULL};
    TRY(json_parse_members(line->bytes, line->count, w->path, line->number, keys, KEYS, v));
    const status st = show_sample(w, v);
    for (int i = 0; i < KEYS; i++) json_free(v[i]);
    return st;
}

static status show_lines(dropped_look *w, data_documents *d)
{
    for (;;) {
        data_line line;
        TRY(data_documents_line(d, &line));
        if (line.bytes == NULL) return ST_OK;
        TRY(show_line(w, &line));
    }
}

status data_dropped(cli_context *cli, const char *folder, int64_t count)
{
    dropped_look w = {.cli = cli, .most = count};
    char *path = NULL;
    file_info info;
    data_documents *d = NULL;
    TRY(path_join(cli->a, folder, "dropped.jsonl", &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_REGULAR && info.bytes == 0) {
        cli_print(cli, "%s: no rule of a filter dropped a document\n", folder);
        return ST_OK;
    }
    w.path = path;
    TRY(data_documents_open(cli->h, path, 0, &d));
    const status st = show_lines(&w, d);
    data_documents_close(d);
    return st;
}
