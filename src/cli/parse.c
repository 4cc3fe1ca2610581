// Parses a command's arguments into a cli_call: flags by the command's option table, key.path=value
// pairs, and operands.
//
//   --flag VALUE   --flag=VALUE   --switch   -o VALUE   key.path=value   operand   -- operands
//   --item A --item B     a list flag takes one item each time, commas and spaces included
//
// A wrong argument is ST_USAGE, with the nearest valid word.
#include "cli/cli.h"
#include "config/run_config.h"

#include <stdlib.h>
#include <string.h>

typedef struct parsing {
    arena *a;
    const cli_command *command;
    const char *const *arguments;
    int64_t count, at;
    const char **operands, **keys;
    cli_call call;
    void *flags;
    bool *given; // [flag]
    bool only_operands, wants_help;
} parsing;

// The length of a word that can stand before "=" in a key.
static int64_t key_bytes(const char *argument)
{
    int64_t n = 0;
    for (; argument[n] != '='; n++) {
        const char c = argument[n];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        const bool is_inner = n > 0 && ((c >= '0' && c <= '9') || c == '.' || c == '-');
        if (!is_letter && !is_inner) return 0;
    }
    return n;
}

// A key of a configuration written as a flag, which is the form of other programs.
static status key_as_flag(const char *name, bool has_value)
{
    if (strcmp(name, "set") == 0) {
        return fail(ST_USAGE, "there is no --set; write key.path=value by itself");
    }
    return fail(ST_USAGE, "keys are written without dashes: %s%s", name, has_value ? "" : "=VALUE");
}

static status flag_unknown(const parsing *p, const char *name, bool has_value)
{
    const char *near = NULL;
    char *key = NULL;
    TRY(arena_format(p->a, &key, "%.*s", (int)strcspn(name, "="), name));
    if (p->command->takes_keys && (strcmp(key, "set") == 0 || strchr(key, '.') != NULL)) {
        return key_as_flag(name, has_value);
    }
    if (p->command->flags != NULL) {
        TRY(option_nearest(p->command->flags, p->a, key, &near));
        if (near != NULL) {
            return fail(ST_USAGE, "%s has no flag --%s; did you mean --%s?", p->command->name, key,
                        near);
        }
    }
    if (p->command->takes_keys) TRY(option_nearest(&run_config_table, p->a, key, &near));
    if (near != NULL) {
        return fail(ST_USAGE, "%s has no flag --%s; did you mean %s=VALUE?", p->command->name, key,
                    near);
    }
    return fail(ST_USAGE, "%s has no flag --%s; trireme help %s lists them", p->command->name, key,
                p->command->name);
}

// The shell expands ~ only at the beginning of a word, so --out=~/x and '~/x' arrive unexpanded.
static status home_expand(const parsing *p, const char **path)
{
    const char *home = getenv("HOME"), *variable = text_find_variable(*path);
    char *whole = NULL;
    if (variable != NULL) {
        return fail(ST_USAGE,
                    "%s: variables of the environment are expanded by the shell alone, outside "
                    "single quotes (%.40s)",
                    *path, variable);
    }
    if ((*path)[0] != '~' || ((*path)[1] != '/' && (*path)[1] != '\0')) return ST_OK;
    if (home == NULL || *home == '\0') {
        return fail(ST_USAGE, "%s: ~ cannot be expanded, because HOME is not set", *path);
    }
    TRY(arena_format(p->a, &whole, "%s%s", home, *path + 1));
    *path = whole;
    return ST_OK;
}

// Reports a value's error under the name of the flag.
static status flag_set(const parsing *p, const option *o, const char *value)
{
    if (*value == '\0') return fail(ST_USAGE, "--%s is empty; give a value", o->key);
    static const char *const free_texts[] = {"prompt", "system", "pattern", "key"};
    bool is_free = false; // all other texts are words or paths
    for (int64_t i = 0; i < COUNT_OF(free_texts); i++) {
        if (strcmp(o->key, free_texts[i]) == 0) is_free = true;
    }
    if (o->kind == OPTION_PATH || (o->kind == OPTION_TEXT && !is_free)) TRY(home_expand(p, &value));
    if (option_set(o, p->a, p->flags, value, NULL, NULL) == ST_OK) return ST_OK;
    return fail(ST_USAGE, "--%s", error_last()->text);
}

// The shell expands ~ neither in --task=~/x nor behind the name of --adapters NAME=~/x.
static status item_expand(const parsing *p, const option *o, const char **item)
{
    const bool is_path = strcmp(o->key, "data") == 0 || strcmp(o->key, "task") == 0;
    const char *equals = strcmp(o->key, "adapters") == 0 ? strchr(*item, '=') : NULL;
    if (is_path) return home_expand(p, item);
    if (equals == NULL) return ST_OK;
    const char *folder = equals + 1;
    char *whole = NULL;
    TRY(home_expand(p, &folder));
    TRY(arena_format(p->a, &whole, "%.*s=%s", (int)(equals - *item), *item, folder));
    *item = whole;
    return ST_OK;
}

// A list flag adds one item each time, exactly as written but for paths.
static status item_add(const parsing *p, const option *o, bool is_first, const char *value)
{
    if (*value == '\0') return fail(ST_USAGE, "--%s is empty; give a value", o->key);
    TRY(item_expand(p, o, &value));
    option_list *list = (option_list *)(void *)((char *)p->flags + o->offset);
    const char **items = NULL;
    const int64_t count = is_first ? 0 : list->count;
    TRY(arena_new(p->a, count + 1, &items));
    for (int64_t i = 0; i < count; i++) items[i] = list->items[i];
    items[count] = value;
    *list = (option_list){.items = items, .count = count + 1};
    return ST_OK;
}

static status flag_take(parsing *p, const char *name)
{
    const size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const option_table *t = p->command->flags;
    if (length == 4 && strncmp(name, "help", 4) == 0) {
        p->wants_help = true;
        return ST_OK;
    }
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        const option *o = &t->rows[i];
        if (strlen(o->key) != length || strncmp(o->key, name, length) != 0) continue;
        if (value == NULL && o->kind == OPTION_BOOL) value = "true";
        if (value == NULL) {
            if (p->at == p->count) return fail(ST_USAGE, "--%s needs a value", o->key);
            value = p->arguments[p->at++];
        }
        const bool is_first = !p->given[i];
        p->given[i] = true;
        return o->kind == OPTION_LIST ? item_add(p, o, is_first, value) : flag_set(p, o, value);
    }
    return flag_unknown(p, name, value != NULL);
}

// "-o": the flag that `shorts` gives for it.
static status short_take(parsing *p, const char *argument)
{
    const char *s = p->command->shorts;
    if (strcmp(argument, "-h") == 0) {
        p->wants_help = true;
        return ST_OK;
    }
    for (; s != NULL && *s != '\0'; s += strcspn(s, " ")) {
        while (*s == ' ') s++;
        if (s[0] != argument[1] || argument[2] != '\0') continue;
        char *name = NULL;
        TRY(arena_format(p->a, &name, "%.*s", (int)strcspn(s + 2, " "), s + 2));
        return flag_take(p, name);
    }
    return fail(ST_USAGE, "%s has no flag %s; trireme help %s lists them", p->command->name,
                argument, p->command->name);
}

// True for a path such as lr=3/config.yaml: a file that exists and whose beginning is no key.
static bool is_file_with_equals(const char *argument)
{
    char key[128];
    file_info info = {.kind = FILE_KIND_NONE};
    const int64_t length = key_bytes(argument);
    if (length >= (int64_t)sizeof(key)) return false;
    memcpy(key, argument, (size_t)length);
    key[length] = '\0';
    if (option_find(&run_config_table, key) != NULL || option_is_heading(&run_config_table, key)) {
        return false;
    }
    const host *h = host_real();
    if (h->api->path_info(h, argument, &info) != ST_OK) error_clear();
    return info.kind != FILE_KIND_NONE;
}

static status argument_take(parsing *p)
{
    const char *argument = p->arguments[p->at++];
    if (!p->only_operands && strcmp(argument, "--") == 0) {
        p->only_operands = true;
        return ST_OK;
    }
    if (!p->only_operands && argument[0] == '-' && argument[1] != '\0') {
        return argument[1] == '-' ? flag_take(p, argument + 2) : short_take(p, argument);
    }
    if (!p->only_operands && p->command->takes_keys && strchr(argument, '=') != NULL &&
        key_bytes(argument) > 0 && !is_file_with_equals(argument)) {
        p->keys[p->call.key_count++] = argument;
        return ST_OK;
    }
    if (*argument == '\0') return fail(ST_USAGE, "an argument of %s is empty", p->command->name);
    if (!p->only_operands) TRY(home_expand(p, &argument));
    p->operands[p->call.operand_count++] = argument;
    return ST_OK;
}

static status all_there(const parsing *p)
{
    const cli_command *c = p->command;
    const option_table *t = c->flags;
    if (p->call.operand_count < c->operand_min) {
        return fail(ST_USAGE, "too few arguments; usage: trireme %s %s", c->name, c->synopsis);
    }
    if (c->operand_max >= 0 && p->call.operand_count > c->operand_max) {
        return fail(ST_USAGE, "one argument too many: \"%s\"; usage: trireme %s %s",
                    p->operands[c->operand_max], c->name, c->synopsis);
    }
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        const option *o = &t->rows[i];
        const bool may_miss =
            o->default_text != NULL ||
            (o->kind != OPTION_INT && o->kind != OPTION_REAL && o->kind != OPTION_CHOICE);
        if (!p->given[i] && !may_miss) return fail(ST_USAGE, "%s needs --%s", c->name, o->key);
    }
    return ST_OK;
}

status cli_parse(arena *a, const cli_command *command, const char *const *arguments, int64_t count,
                 cli_call *out, bool *wants_help)
{
    parsing p = {.a = a, .command = command, .arguments = arguments, .count = count};
    memset(out, 0, sizeof(*out));
    *wants_help = false;
    TRY(arena_new(a, count + 1, &p.operands));
    TRY(arena_new(a, count + 1, &p.keys));
    TRY(arena_alloc(a, command->flags_bytes, &p.flags));
    if (command->flags != NULL) {
        TRY(arena_new(a, command->flags->count, &p.given));
        TRY(option_set_defaults(command->flags, a, p.flags));
    }
    while (p.at < p.count && !p.wants_help) TRY(argument_take(&p));
    *wants_help = p.wants_help;
    if (p.wants_help) return ST_OK;
    TRY(all_there(&p));
    *out = p.call;
    out->operands = p.operands;
    out->keys = p.keys;
    out->flags = p.flags;
    return ST_OK;
}
