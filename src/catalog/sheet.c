// Reads sheets: rows of fields from YAML files and their bases.
//
// Values are in slots of 16 bytes, the size of the largest value of an option, so the slots of a
// file can be copied over those of its base.
#include "catalog/sheet.h"
#include "base/format/config.h"

#include <string.h>

enum { BASE_DEPTH_MAX = 8 };

typedef union slot {
    int64_t whole;
    double real;
    const char *text;
    option_list list;
    int32_t choice;
    bool yes;
} slot;

typedef struct sheet_row {
    const catalog_field *field;
    int64_t offset; // in the target, -1: none
    bool is_optional, is_given;
    const char *place, *folder;
} sheet_row;

struct catalog_sheet {
    arena *a;
    option_table table;
    option *options;
    sheet_row *rows;
    slot *slots;
    const char *shown; // the file's name
    const char *entry; // the first entry of the chain that the program has; NULL: none
    const char *wanted_of;
    int64_t count, options_capacity, rows_capacity, slots_capacity;
};

enum { OWN_SOURCES = 2, OWN_ASSUMED = 3 };
static const catalog_field own_rows[] = {
    {.key = "base", .kind = OPTION_TEXT, .help = "the entry, or file, that this one changes"},
    {.key = "about", .kind = OPTION_TEXT, .help = "one line"},
    {.key = "sources", .kind = OPTION_LIST, .help = "where the figures are from"},
    {.key = "assumed", .kind = OPTION_LIST, .help = "keys without a public source"},
};
static const catalog_fields own = {own_rows, COUNT_OF(own_rows), ""};

status catalog_sheet_create(arena *a, const char *title, catalog_sheet **out)
{
    catalog_sheet *s = NULL;
    TRY(arena_new(a, 1, &s));
    s->a = a;
    s->table.title = title;
    TRY(catalog_sheet_add(s, "", &own, -1, false));
    *out = s;
    return ST_OK;
}

static status row_add(catalog_sheet *s, const char *prefix, const catalog_field *f, int64_t offset,
                      bool is_optional)
{
    const int64_t n = s->count;
    char *key = NULL;
    TRY(arena_grow(s->a, (void **)&s->options, &s->options_capacity, n + 1, sizeof(option)));
    TRY(arena_grow(s->a, (void **)&s->rows, &s->rows_capacity, n + 1, sizeof(sheet_row)));
    TRY(arena_grow(s->a, (void **)&s->slots, &s->slots_capacity, n + 1, sizeof(slot)));
    TRY(arena_format(s->a, &key, "%s%s", prefix, f->key));
    const bool is_number = f->kind == OPTION_REAL || f->kind == OPTION_INT;
    const bool has_limits = f->min != 0.0 || f->max != 0.0;
    s->options[n] = (option){.key = key,
                             .kind = f->kind,
                             .offset = n * (int64_t)sizeof(slot),
                             .choices = f->choices,
                             .default_text = f->value,
                             .min = has_limits ? f->min : 0.0,
                             .max = has_limits  ? f->max
                                    : is_number ? 1e18
                                                : 0.0,
                             .unit = "",
                             .help = f->help};
    if (f->value == NULL && is_number) s->options[n].default_text = "0";
    if (f->value == NULL && f->kind == OPTION_BOOL) s->options[n].default_text = "false";
    s->rows[n] =
        (sheet_row){.field = f, .offset = offset, .is_optional = is_optional, .folder = ""};
    s->count++;
    s->table.rows = s->options;
    s->table.count = s->count;
    return ST_OK;
}

status catalog_sheet_add(catalog_sheet *s, const char *prefix, const catalog_fields *fields,
                         int64_t offset, bool is_optional)
{
    for (int64_t i = 0; i < fields->count; i++) {
        const catalog_field *f = &fields->rows[i];
        TRY(row_add(s, prefix, f, offset < 0 ? -1 : offset + f->offset, is_optional));
    }
    if (!is_optional && offset >= 0) s->wanted_of = fields->wanted_of;
    return ST_OK;
}

static int64_t row_of(const catalog_sheet *s, const char *key)
{
    const option *o = option_find(&s->table, key);
    return o == NULL ? -1 : o - s->options;
}

// Appends one list to another.
static status list_join(arena *a, const option_list *more, option_list *to)
{
    const char **items = NULL;
    TRY(arena_new(a, to->count + more->count + 1, &items));
    for (int64_t i = 0; i < to->count; i++) items[i] = to->items[i];
    for (int64_t i = 0; i < more->count; i++) items[to->count + i] = more->items[i];
    *to = (option_list){items, to->count + more->count};
    return ST_OK;
}

// Applies the file's values. Sources of figures accumulate over the chain.
static status take_given(catalog_sheet *s, const config *c, const slot *slots, const char *folder)
{
    for (int64_t i = 0; i < s->count; i++) {
        const char *key = s->options[i].key;
        if (!config_is_given(c, key)) continue;
        if (s->rows[i].is_given && (s->rows[i].field == &own_rows[OWN_SOURCES] ||
                                    s->rows[i].field == &own_rows[OWN_ASSUMED])) {
            TRY(list_join(s->a, &slots[i].list, &s->slots[i].list));
            continue;
        }
        s->slots[i] = slots[i];
        s->rows[i].is_given = true;
        s->rows[i].place = config_place(c, key);
        s->rows[i].folder = folder;
    }
    return ST_OK;
}

typedef struct file_args {
    const host *h;
    const char *folder, *what;
    const char *const *overrides;
    int64_t override_count;
} file_args;

// The chain of bases is short and is read from its end.
// NOLINTNEXTLINE(misc-no-recursion)
static status file_read(catalog_sheet *s, const file_args *args, const char *name, const char *from,
                        int depth)
{
    catalog_source source;
    config *c = NULL;
    slot *slots = NULL;
    TRY(catalog_source_read(args->h, s->a, args->folder, args->what, name, from, &source));
    if (s->entry == NULL && !catalog_is_path(name)) {
        char *copy = NULL;
        TRY(arena_strdup(s->a, name, &copy));
        s->entry = copy;
    }
    TRY(arena_new(s->a, s->count, &slots));
    TRY(config_parse(s->a, &s->table,
                     &(const config_input){.yaml = source.yaml,
                                           .bytes = source.bytes,
                                           .name = source.shown,
                                           .folder = source.folder,
                                           .overrides = depth == 0 ? args->overrides : NULL,
                                           .override_count = depth == 0 ? args->override_count : 0},
                     slots, &c));
    const char *base = slots[row_of(s, "base")].text;
    if (base == NULL || *base == '\0') {
        memcpy(s->slots, slots, (size_t)s->count * sizeof(slot)); // the defaults
    } else {
        if (depth == BASE_DEPTH_MAX) {
            return fail(ST_CONFIG, "%s  base: %s is the %dth of a chain: perhaps it is a circle",
                        config_place(c, "base"), base, BASE_DEPTH_MAX + 1);
        }
        const status st = file_read(s, args, base, source.folder, depth + 1);
        if (st != ST_OK) {
            note("while reading %s, the base of %s", base, source.shown);
            return st;
        }
    }
    TRY(take_given(s, c, slots, source.folder));
    s->shown = source.shown;
    return ST_OK;
}

static bool is_zero(const catalog_field *f, const slot *v)
{
    if (f->kind == OPTION_REAL) return !(v->real > 0.0);
    if (f->kind == OPTION_INT) return v->whole == 0;
    if (f->kind == OPTION_TEXT) return v->text == NULL || *v->text == '\0';
    return false;
}

static status check_wanted(const catalog_sheet *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        const sheet_row *r = &s->rows[i];
        if (r->is_optional || !r->field->is_wanted || !is_zero(r->field, &s->slots[i])) continue;
        return fail(ST_CONFIG_KEY,
                    "%s: a %s needs \"%s\": %s; give it, or `base:` with an entry like this one",
                    s->rows[i].is_given && s->rows[i].place != NULL ? s->rows[i].place : s->shown,
                    s->wanted_of, s->options[i].key, r->field->help);
    }
    return ST_OK;
}

status catalog_sheet_read(catalog_sheet *s, const host *h, const char *folder, const char *what,
                          const char *name, const char *from, const char *const *overrides,
                          int64_t override_count)
{
    const file_args args = {h, folder, what, overrides, override_count};
    const status st = file_read(s, &args, name, from, 0);
    if (st != ST_OK && override_count > 0 && strstr(error_last()->text, "command line") != NULL) {
        note("while reading keys such as %s.KEY=VALUE; `trireme help %s` lists them", what, what);
    }
    TRY(st);
    return check_wanted(s);
}

static void value_apply(const catalog_field *f, const slot *v, char *to)
{
    switch (f->kind) {
    case OPTION_REAL:
        *(double *)(void *)to = v->real * (f->scale != 0.0 ? f->scale : 1.0);
        break;
    case OPTION_INT:
        if (f->bytes == 4) {
            *(int32_t *)(void *)to = (int32_t)v->whole;
        } else {
            *(int64_t *)(void *)to = v->whole;
        }
        break;
    case OPTION_BOOL:
        *(bool *)to = v->yes;
        break;
    case OPTION_CHOICE:
        *(int32_t *)(void *)to = v->choice;
        break;
    case OPTION_TEXT:
        *(const char **)(void *)to = v->text != NULL ? v->text : "";
        break;
    case OPTION_LIST:
    case OPTION_PATH:
    case OPTION_BYTES:
    case OPTION_TIME:
    case OPTION_PATHS:
    case OPTION_RANGE:
    case OPTION_RAMP:
    case OPTION_SHARE:
        break;
    }
}

void catalog_sheet_apply(const catalog_sheet *s, void *target)
{
    for (int64_t i = 0; i < s->count; i++) {
        const sheet_row *r = &s->rows[i];
        if (r->offset < 0 || (r->is_optional && !r->is_given)) continue;
        value_apply(r->field, &s->slots[i], (char *)target + r->offset);
    }
}

const option_table *catalog_sheet_table(const catalog_sheet *s)
{
    return &s->table;
}

int64_t catalog_sheet_count(const catalog_sheet *s)
{
    return s->count;
}

const option *catalog_sheet_option(const catalog_sheet *s, int64_t row)
{
    ASSERT(row >= 0 && row < s->count);
    return &s->options[row];
}

status catalog_sheet_print(const catalog_sheet *s, int64_t row, text *out)
{
    ASSERT(row >= 0 && row < s->count);
    // A figure as people write it: 200, not 2e2.
    if (s->options[row].kind == OPTION_REAL) return text_add(out, "%.10g", s->slots[row].real);
    return option_print(&s->options[row], s->slots, out);
}

bool catalog_sheet_is_given(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 && s->rows[i].is_given;
}

int64_t catalog_sheet_whole(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 ? s->slots[i].whole : 0;
}

double catalog_sheet_real(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 ? s->slots[i].real : 0.0;
}

const char *catalog_sheet_entry(const catalog_sheet *s)
{
    return s->entry;
}

const char *catalog_sheet_text(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 && s->slots[i].text != NULL ? s->slots[i].text : "";
}

const option_list *catalog_sheet_list(const catalog_sheet *s, const char *key)
{
    static const option_list none = {0};
    const int64_t i = row_of(s, key);
    return i >= 0 ? &s->slots[i].list : &none;
}

const char *catalog_sheet_place(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 && s->rows[i].place != NULL ? s->rows[i].place : s->shown;
}

const char *catalog_sheet_folder(const catalog_sheet *s, const char *key)
{
    const int64_t i = row_of(s, key);
    return i >= 0 ? s->rows[i].folder : "";
}
