// A configuration: a YAML text and `key.path=value` words, bound to the fields of a struct by an
// option table. The binder ignores no key: every key of the text matches a row or gives a
// complaint, and all complaints are reported at once.
//
//   text --config_yaml.c--> tree --bind--> option_set() per scalar --> target
//                                  \--> origin per row             \--> complaints
//
// Lists and maps become the same text that the command line would hold ("a,b", "0=8,100=16"), so
// option_value.c is the only reader of values.
#include "base/format/config.h"

#include "base/format/config_internal.h"
#include "base/format/options_internal.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

typedef struct row_origin {
    bool is_given;
    config_mark mark;
    const char *text; // "run.yaml:14:3", "command line"
} row_origin;

struct config {
    const option_table *table;
    row_origin *origins; // [row]
    const char **places; // [row]
    config_source source;
};

typedef struct binder {
    arena *a;
    config *c;
    config_complaints l;
    void *target;
    const char *folder, *override_folder;
    const char *home; // NULL: unknown
} binder;

// ---- values ------------------------------------------------------------------------------------

static bool is_null(const config_node *n)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (n->kind != CONFIG_SCALAR || !n->is_plain) return false;
    for (int64_t i = 0; i < COUNT_OF(nulls); i++) {
        if (strcmp(n->text, nulls[i]) == 0) return true;
    }
    return false;
}

static bool is_list_kind(option_kind kind)
{
    return kind == OPTION_LIST || kind == OPTION_PATHS || kind == OPTION_SHARE ||
           kind == OPTION_RAMP;
}

static bool takes_map(option_kind kind)
{
    return kind == OPTION_PATHS || kind == OPTION_SHARE || kind == OPTION_RAMP;
}

// True for errors that the user must fix; any other error stops the reading.
static bool is_complaint(status st)
{
    return status_exit_code(st) == 3;
}

// Writes the home folder in place of "~" at the beginning of a path, or of each path of a list.
// Refuses variables, which would become names of folders.
static status expand_home(binder *b, const option *o, const char *value, const char **out)
{
    const bool is_list = o->kind == OPTION_PATHS || o->kind == OPTION_SHARE;
    text t = {.a = b->a};
    *out = value;
    if (!is_list && o->kind != OPTION_PATH) return ST_OK;
    const char *variable = text_find_variable(value);
    if (variable != NULL) {
        return fail(
            ST_CONFIG_TYPE,
            "%s = %s: variables of the environment are not expanded here (%.40s); write "
            "the path, or give the key on the command line, where the shell expands \"$NAME\"",
            o->key, value, variable);
    }
    if (strchr(value, '~') == NULL) return ST_OK;
    bool is_begin = true; // of a path
    for (const char *s = value; *s != '\0'; s++) {
        if (is_begin && *s == '~') {
            if (s[1] != '\0' && s[1] != '/' && s[1] != ',') {
                return fail(ST_CONFIG_TYPE,
                            "%s = %s: only ~ and ~/ are expanded; write the whole path, or ./~ for "
                            "a file of that name",
                            o->key, value);
            }
            if (b->home == NULL || *b->home == '\0') {
                return fail(ST_CONFIG_TYPE,
                            "%s = %s: ~ cannot be expanded, because HOME is not set", o->key,
                            value);
            }
            const int64_t bytes = (int64_t)strlen(b->home);
            text home = {.a = b->a};
            TRY(is_list ? option_add_item(&home, b->home, bytes)
                        : text_add_bytes(&home, b->home, bytes));
            TRY(text_add_bytes(&t, home.bytes, home.length));
            is_begin = false;
            continue;
        }
        is_begin = is_list && (*s == ',' || (is_begin && *s == ' '));
        TRY(text_add_bytes(&t, s, 1));
        if (is_list && *s == '\\' && s[1] != '\0') TRY(text_add_bytes(&t, ++s, 1));
    }
    *out = t.bytes;
    return ST_OK;
}

// Sets one row; a refused value becomes a complaint.
static status set_row(binder *b, const option *o, const char *value, config_mark mark,
                      const char *folder)
{
    row_origin *origin = &b->c->origins[o - b->c->table->rows];
    status st = expand_home(b, o, value, &value);
    if (st == ST_OK) st = option_set(o, b->a, b->target, value, NULL, folder);
    if (st != ST_OK && !is_complaint(st)) return st;
    if (st != ST_OK) config_complain_at(&b->l, mark, st, "%s", error_last()->text);
    char *place;
    TRY(config_mark_text(b->a, &b->c->source, mark, &place));
    *origin = (row_origin){.is_given = true, .mark = mark, .text = place};
    return ST_OK;
}

static status add_pair(arena *a, const config_node *entry, text *list)
{
    if (is_null(entry)) {
        return option_add_item(list, entry->key->text, (int64_t)strlen(entry->key->text));
    }
    char *pair;
    TRY(arena_format(a, &pair, "%s=%s", entry->key->text, entry->text));
    return option_add_item(list, pair, (int64_t)strlen(pair));
}

// Writes a list or map as the text that the command line would hold. False if that cannot hold it.
static status flatten(arena *a, const config_node *n, bool maps, text *list, bool *is_flat)
{
    *is_flat = true;
    TRY(text_add(list, "%s", ""));
    if (n->kind == CONFIG_MAP && !maps) *is_flat = false;
    for (const config_node *item = n->first; item != NULL && *is_flat; item = item->next) {
        if (n->kind == CONFIG_MAP) {
            *is_flat = item->kind == CONFIG_SCALAR;
            if (*is_flat) TRY(add_pair(a, item, list));
        } else if (item->kind == CONFIG_SCALAR) {
            *is_flat = !is_null(item);
            if (*is_flat) TRY(option_add_item(list, item->text, (int64_t)strlen(item->text)));
        } else if (item->kind == CONFIG_MAP && maps) { // - a.txt: 0.7
            text inner = {.a = a};
            TRY(flatten(a, item, true, &inner, is_flat));
            if (*is_flat && inner.length > 0) {
                TRY(text_add(list, "%s%s", list->length > 0 ? "," : "", inner.bytes));
            }
        } else {
            *is_flat = false;
        }
    }
    return ST_OK;
}

static status bind_row(binder *b, const option *o, const config_node *n)
{
    const row_origin *origin = &b->c->origins[o - b->c->table->rows];
    if (is_null(n)) return ST_OK;
    // Given once nested and once with dots, which config_yaml.c saw as two different keys.
    if (origin->is_given) {
        config_complain_at(&b->l, n->mark, ST_CONFIG_SYNTAX, "%s is given twice, first at %s",
                           o->key, origin->text);
        return ST_OK;
    }
    if (n->kind == CONFIG_SCALAR) return set_row(b, o, n->text, n->mark, b->folder);
    const char *found = n->kind == CONFIG_MAP ? "a map" : "a list";
    if (!is_list_kind(o->kind)) {
        config_complain_at(&b->l, n->mark, ST_CONFIG_TYPE, "%s: expected one value, found %s",
                           o->key, found);
        return ST_OK;
    }
    text list = {.a = b->a};
    bool is_flat;
    TRY(flatten(b->a, n, takes_map(o->kind), &list, &is_flat));
    if (!is_flat) {
        config_complain_at(&b->l, n->mark, ST_CONFIG_TYPE, "%s: expected %s, found something else",
                           o->key,
                           takes_map(o->kind) ? "items or pairs of them" : "a list of items");
        return ST_OK;
    }
    return set_row(b, o, list.bytes, n->mark, b->folder);
}

// ---- keys --------------------------------------------------------------------------------------

static status complain_of_key(binder *b, const char *key, config_mark mark)
{
    const char *near = NULL;
    char shown[OPTION_SHOWN_BYTES];
    if (config_complaints_has_space(&b->l)) {
        TRY(option_nearest(b->c->table, b->a, key, &near));
    }
    config_complain_at(&b->l, mark, ST_CONFIG_KEY, "unknown key %s%s%s%s", option_shown(key, shown),
                       near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
                       near == NULL ? "" : "\"?");
    return ST_OK;
}

// The row that a scalar at `key` sets: the key's own row, or the `mode` below a heading. NULL:
// none.
static status scalar_row(binder *b, const char *key, const option **out)
{
    char *mode;
    *out = option_find(b->c->table, key);
    if (*out != NULL) return ST_OK;
    TRY(arena_format(b->a, &mode, "%s.mode", key));
    *out = option_find(b->c->table, mode);
    return ST_OK;
}

// The first row below a heading, as an example of a valid key.
static const char *first_below(const option_table *t, const char *heading)
{
    int64_t bytes;
    bool is_heading;
    for (int64_t i = 0; i < t->count; i++) {
        if (option_part(t->rows[i].key, heading, &bytes, &is_heading) != NULL) {
            return t->rows[i].key;
        }
    }
    return "";
}

static void complain_of_heading(binder *b, const char *key, config_mark mark)
{
    config_complain_at(&b->l, mark, ST_CONFIG_TYPE,
                       "%s has no value of its own, it heads keys such as %s", key,
                       first_below(b->c->table, key));
}

static status bind_map(binder *b, const char *prefix, const config_node *map);

static status bind_entry(binder *b, const char *prefix, const config_node *n)
{
    char *key;
    TRY(arena_format(b->a, &key, "%s%s%s", prefix, *prefix == '\0' ? "" : ".", n->key->text));
    const option *o = option_find(b->c->table, key);
    if (o != NULL) return bind_row(b, o, n);
    const bool is_heading = option_is_heading(b->c->table, key);
    // Below an unknown heading each key gets its own complaint with the nearest known key.
    if (n->kind == CONFIG_MAP && (is_heading || n->count > 0)) return bind_map(b, key, n);
    if (!is_heading) return complain_of_key(b, key, n->key->mark);
    if (is_null(n)) return ST_OK;
    TRY(scalar_row(b, key, &o));
    if (o != NULL && n->kind == CONFIG_SCALAR) return bind_row(b, o, n);
    complain_of_heading(b, key, n->mark);
    return ST_OK;
}

static status bind_map(binder *b, const char *prefix, const config_node *map)
{
    for (const config_node *n = map->first; n != NULL; n = n->next) {
        TRY(bind_entry(b, prefix, n));
    }
    return ST_OK;
}

// ---- command line ------------------------------------------------------------------------------

static const config_mark command_line = {0, 0, 0};

// key.path=value or a usage error. All words must have this form before any file is read.
static bool is_override(const char *word)
{
    const size_t key = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789_.-");
    return key > 0 && word[key] == '=' && word[0] != '-' && word[0] != '.';
}

static status check_overrides(arena *a, const char *const *words, int64_t count)
{
    text bad = {.a = a};
    char shown[OPTION_SHOWN_BYTES];
    for (int64_t i = 0; i < count && bad.length < ERROR_TEXT_BYTES / 2; i++) {
        if (is_override(words[i])) continue;
        TRY(text_add(&bad, "%scommand line  error[%s] %s is not key.path=value",
                     bad.length == 0 ? "" : "\n", status_code(ST_USAGE),
                     option_shown(words[i], shown)));
    }
    return bad.length == 0 ? ST_OK : fail(ST_USAGE, "%s", bad.bytes);
}

// A list or map as YAML writes it on one line, [a, b] or {a: 1}, becomes what the file's would. Any
// other value, also a glob such as [ab].txt, stays.
static status flow_value(binder *b, const option *o, const char *value, const char **out)
{
    const size_t length = strlen(value);
    const char last = length > 1 ? value[length - 1] : '\0';
    const bool is_flow = (value[0] == '[' && last == ']') || (value[0] == '{' && last == '}');
    config_source source = {.name = "command line", .bytes = value, .count = (int64_t)length};
    config_complaints l;
    config_node *root = NULL;
    text list = {.a = b->a};
    bool is_flat = false;
    *out = value;
    if (!is_flow || !is_list_kind(o->kind)) return ST_OK;
    config_complaints_init(&l, b->a, &source);
    TRY(config_tree_read(&l, &root));
    if (root == NULL || root->kind == CONFIG_SCALAR) return ST_OK;
    TRY(flatten(b->a, root, takes_map(o->kind), &list, &is_flat));
    if (is_flat) *out = list.bytes;
    return ST_OK;
}

static status bind_override(binder *b, const char *word)
{
    const char *value = strchr(word, '=') + 1;
    char *key;
    TRY(arena_format(b->a, &key, "%.*s", (int)(value - 1 - word), word));
    const option *o;
    TRY(scalar_row(b, key, &o));
    if (o == NULL && option_is_heading(b->c->table, key)) {
        complain_of_heading(b, key, command_line);
        return ST_OK;
    }
    if (o == NULL) return complain_of_key(b, key, command_line);
    if (!text_is_utf8(value, (int64_t)strlen(value))) {
        config_complain_at(&b->l, command_line, ST_CONFIG_TYPE, "%s: the value is not UTF-8",
                           o->key);
        return ST_OK;
    }
    if (*value == '\0') {
        config_complain_at(&b->l, command_line, ST_CONFIG_TYPE,
                           "%s: the value is empty; %s=null gives the default", o->key, o->key);
        return ST_OK;
    }
    const config_node node = {.kind = CONFIG_SCALAR, .text = value, .is_plain = true};
    if (!is_null(&node)) {
        TRY(flow_value(b, o, value, &value));
        return set_row(b, o, value, command_line, b->override_folder);
    }
    // Removes the file's value.
    b->c->origins[o - b->c->table->rows] = (row_origin){0};
    return option_set_default(o, b->a, b->target, b->folder);
}

// ---- binding ---------------------------------------------------------------------------------

static status check_required(binder *b)
{
    const option_table *t = b->c->table;
    for (int64_t i = 0; i < t->count; i++) {
        const option *o = &t->rows[i];
        if (b->c->origins[i].is_given || option_may_be_absent(o)) continue;
        const config_mark top = {.line = b->c->source.count > 0 ? 1 : 0, .column = 1, .width = 1};
        config_complain_at(&b->l, top, ST_CONFIG_KEY, "key \"%s\" must be given: %s", o->key,
                           o->help);
    }
    return ST_OK;
}

static status make_places(binder *b)
{
    const option_table *t = b->c->table;
    for (int64_t i = 0; i < t->count; i++) {
        b->c->places[i] = b->c->origins[i].text;
        if (b->c->origins[i].is_given) continue;
        char *place;
        TRY(arena_format(b->a, &place, "default of %s", t->rows[i].key));
        b->c->places[i] = place;
    }
    return ST_OK;
}

static status bind_text(binder *b)
{
    config_node *root;
    TRY(config_tree_read(&b->l, &root));
    if (root == NULL || is_null(root)) return ST_OK;
    if (root->kind == CONFIG_MAP) return bind_map(b, "", root);
    config_complain_at(&b->l, root->mark, ST_CONFIG_SYNTAX,
                       "expected keys with values, such as \"%s: %s\"", b->c->table->rows[0].key,
                       "...");
    return ST_OK;
}

typedef struct load_args {
    const option_table *table;
    const char *yaml;
    int64_t bytes;
    const char *name, *folder, *override_folder, *home;
    const char *const *overrides;
    int64_t override_count;
    void *target;
} load_args;

static status load(arena *a, const load_args *args, config **out)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    TRY(check_overrides(a, args->overrides, args->override_count));
    config *c;
    TRY(arena_new(a, 1, &c));
    TRY(arena_new(a, args->table->count, &c->origins));
    TRY(arena_new(a, args->table->count, &c->places));
    c->table = args->table;
    c->source = (config_source){.name = args->name, .bytes = args->yaml, .count = args->bytes};
    if (args->bytes >= 3 && memcmp(args->yaml, byte_order_mark, 3) == 0) {
        c->source.bytes += 3;
        c->source.count -= 3;
    }
    binder b = {.a = a,
                .c = c,
                .target = args->target,
                .folder = args->folder,
                .override_folder = args->override_folder,
                .home = args->home};
    config_complaints_init(&b.l, a, &c->source);
    for (int64_t i = 0; i < c->table->count; i++) {
        TRY(option_set_default(&c->table->rows[i], a, args->target, args->folder));
    }
    TRY(bind_text(&b));
    for (int64_t i = 0; i < args->override_count; i++) TRY(bind_override(&b, args->overrides[i]));
    TRY(check_required(&b));
    TRY(config_complaints_end(&b.l));
    TRY(make_places(&b));
    *out = c;
    return ST_OK;
}

// Ten arguments: two texts with their folders, a table and its target. Callers name each.
// NOLINTNEXTLINE(readability-function-size)
status config_parse(arena *a, const option_table *t, const config_input *source, void *target,
                    config **out)
{
    const load_args args = {.table = t,
                            .yaml = source->yaml,
                            .bytes = source->bytes,
                            .name = source->name,
                            .folder = source->folder,
                            .overrides = source->overrides,
                            .override_count = source->override_count,
                            .target = target};
    return load(a, &args, out);
}

// The folder of the file, absolute, so that a run can continue from any folder. Relative paths
// start at the current folder. The folder is not time, randomness or content, so this does not go
// through the host.
static status absolute_folders(arena *a, const char *yaml_path, char **folder, char **current)
{
    char buffer[PATH_MAX];
    if (getcwd(buffer, sizeof(buffer)) == NULL) {
        return fail(ST_IO, "the current folder has no path");
    }
    TRY(arena_strdup(a, buffer, current));
    const char *slash = yaml_path == NULL ? NULL : strrchr(yaml_path, '/');
    if (slash == NULL) return arena_strdup(a, buffer, folder);
    const int length = slash == yaml_path ? 1 : (int)(slash - yaml_path);
    if (yaml_path[0] == '/') return arena_format(a, folder, "%.*s", length, yaml_path);
    while (yaml_path[0] == '.' && yaml_path[1] == '/' && yaml_path + 1 < slash) yaml_path += 2;
    if (slash - yaml_path == 1 && yaml_path[0] == '.') return arena_strdup(a, buffer, folder);
    const char *gap = strcmp(buffer, "/") == 0 ? "" : "/";
    return arena_format(a, folder, "%s%s%.*s", buffer, gap, (int)(slash - yaml_path), yaml_path);
}

status config_load(const host *h, arena *a, const option_table *t, const char *yaml_path,
                   const char *const *overrides, int64_t override_count, void *target, config **out)
{
    char *folder, *current, *yaml = NULL;
    int64_t bytes = 0;
    TRY(absolute_folders(a, yaml_path, &folder, &current));
    if (yaml_path != NULL) {
        file_info info;
        TRY(h->api->path_info(h, yaml_path, &info));
        if (info.kind == FILE_KIND_FOLDER) {
            return fail(ST_CONFIG_SYNTAX, "%s is a folder, a file of YAML expected", yaml_path);
        }
        if (info.bytes > CONFIG_BYTES_MAX) {
            return fail(ST_CONFIG_SYNTAX, "%s: more than %d bytes, which no configuration has",
                        yaml_path, CONFIG_BYTES_MAX);
        }
        TRY(host_read_text(h, a, yaml_path, CONFIG_BYTES_MAX, &yaml, &bytes));
    }
    const load_args args = {.table = t,
                            .yaml = yaml == NULL ? "" : yaml,
                            .bytes = bytes,
                            .name = yaml_path == NULL ? "command line" : yaml_path,
                            .folder = folder,
                            .override_folder = current,
                            .home = h->home,
                            .overrides = overrides,
                            .override_count = override_count,
                            .target = target};
    return load(a, &args, out);
}

// ---- queries ------------------------------------------------------------------------------------

static int64_t row_of(const config *c, const char *key)
{
    const option *o = option_find(c->table, key);
    return o == NULL ? -1 : o - c->table->rows;
}

bool config_is_given(const config *c, const char *key)
{
    const int64_t row = row_of(c, key);
    return row >= 0 && c->origins[row].is_given;
}

const char *config_origin(const config *c, const char *key)
{
    return config_is_given(c, key) ? c->origins[row_of(c, key)].text : "default";
}

const char *config_place(const config *c, const char *key)
{
    const int64_t row = row_of(c, key);
    return row < 0 ? "default" : c->places[row];
}

const config_mark *config_mark_of(const config *c, const char *key)
{
    const int64_t row = row_of(c, key);
    return row >= 0 && c->origins[row].is_given ? &c->origins[row].mark : NULL;
}

status config_complaints_begin(const config *c, arena *a, config_complaints **out)
{
    config_complaints *l;
    TRY(arena_new(a, 1, &l));
    config_complaints_init(l, a, &c->source);
    l->c = c;
    *out = l;
    return ST_OK;
}

// ---- the resolved file -------------------------------------------------------------------------

// A comment ends with its line, so a file's name must not break it.
static status add_origin(const row_origin *origin, text *out)
{
    TRY(text_add(out, "  # "));
    for (const char *s = origin->is_given ? origin->text : "default"; *s != '\0'; s++) {
        const unsigned char byte = (unsigned char)*s;
        TRY(text_add_bytes(out, byte < 0x20 || byte >= 0x7F ? "?" : s, 1));
    }
    return text_add(out, "\n");
}

static status print_group(const config *c, const void *target, const char *prefix, int indent,
                          text *out)
{
    const option_table *t = c->table;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t bytes;
        bool is_heading;
        const char *part = option_part(t->rows[i].key, prefix, &bytes, &is_heading);
        if (part == NULL || option_part_seen(t, i, prefix)) continue;
        TRY(text_add(out, "%*s%.*s:", indent, "", (int)bytes, part));
        if (is_heading) {
            char *below;
            TRY(arena_format(out->a, &below, "%.*s", (int)(part - t->rows[i].key + bytes),
                             t->rows[i].key));
            TRY(text_add(out, "\n"));
            TRY(print_group(c, target, below, indent + 2, out));
        } else {
            TRY(text_add(out, " "));
            TRY(option_print(&t->rows[i], target, out));
            TRY(add_origin(&c->origins[i], out));
        }
    }
    return ST_OK;
}

status config_print_resolved(const config *c, const void *target, text *out)
{
    TRY(text_add(out, "# All values, each with where it came from. Read as a configuration, this "
                      "gives the same run.\n"));
    return print_group(c, target, "", 0, out);
}
