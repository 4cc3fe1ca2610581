// The task file, and the items of multiple choice tasks as ids.
//
// As lm-evaluation-harness encodes a pair: white space at the end of the context moves to the
// continuation; both are encoded as one text, and the continuation's ids are those after as many
// ids as the context has alone. An empty context is the prefix token.
#include "infer/task.h"

#include "base/format/config.h"
#include "base/format/json.h"
#include "data/dataset.h"
#include "data/jinja.h"
#include "data/reader.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(task_spec, field)
static const option rows[] = {
    {.key = "name", .kind = OPTION_TEXT, .offset = AT(name), .help = "name in the results"},
    {.key = "kind",
     .kind = OPTION_CHOICE,
     .offset = AT(kind),
     .default_text = "multiple_choice",
     .choices = "multiple_choice, perplexity",
     .help = "what is measured"},
    {.key = "data",
     .kind = OPTION_PATH,
     .offset = AT(data),
     .help = "JSON lines with an item each; for perplexity also a text"},
    {.key = "context",
     .kind = OPTION_TEXT,
     .offset = AT(context),
     .default_text = "{{ context }}",
     .help = "template of the text before a choice"},
    {.key = "choices",
     .kind = OPTION_TEXT,
     .offset = AT(choices),
     .default_text = "choices",
     .help = "member with the list of choices"},
    {.key = "labels",
     .kind = OPTION_TEXT,
     .offset = AT(labels),
     .help = "member with the list of the choices' labels"},
    {.key = "gold",
     .kind = OPTION_TEXT,
     .offset = AT(gold),
     .default_text = "gold",
     .help = "member with the right choice: its number from 0, its text or its label"},
    {.key = "delimiter",
     .kind = OPTION_TEXT,
     .offset = AT(delimiter),
     .default_text = " ",
     .help = "text between context and choice"},
    {.key = "prefix",
     .kind = OPTION_TEXT,
     .offset = AT(prefix),
     .help = "token before a text without context, such as <s>; without it the end-of-text token"},
    {.key = "shots",
     .kind = OPTION_INT,
     .offset = AT(shots),
     .default_text = "0",
     .max = 1000,
     .help = "number of solved items before each context"},
    {.key = "shots_data",
     .kind = OPTION_PATH,
     .offset = AT(shots_data),
     .help = "JSON lines whose first items are the solved ones"},
    {.key = "separator",
     .kind = OPTION_TEXT,
     .offset = AT(separator),
     .default_text = "\n\n",
     .help = "text after each solved item"},
};
static const option_table table = {
    .title = "Evaluation task", .rows = rows, .count = COUNT_OF(rows)};

static const char *or_empty(const char *s)
{
    return s != NULL ? s : "";
}

status task_load(const host *h, arena *a, const char *path, task_spec *out)
{
    config *c = NULL;
    TRY(config_load(h, a, &table, path, NULL, 0, out, &c));
    out->file = path;
    if (out->name == NULL) out->name = path_base_name(path);
    out->delimiter = or_empty(out->delimiter);
    if (out->data == NULL) return fail(ST_CONFIG_KEY, "%s: data is not given", path);
    if (out->kind == TASK_KIND_PERPLEXITY) {
        static const char *const keys[] = {"context",   "choices",    "labels",   "gold",
                                           "delimiter", "shots_data", "separator"};
        for (int64_t i = 0; i < COUNT_OF(keys); i++) {
            if (!config_is_given(c, keys[i])) continue;
            return fail(ST_CONFIG_CONFLICT, "%s: %s applies to kind: multiple_choice",
                        config_place(c, keys[i]), keys[i]);
        }
    }
    if ((out->shots > 0) == (out->shots_data != NULL)) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "%s: shots and shots_data belong together", path);
}

status task_prefix(const data_tokenizer *t, const task_spec *spec, int32_t *out)
{
    const bool is_given = spec->prefix != NULL && spec->prefix[0] != 0;
    *out = is_given ? data_tokenizer_find(t, spec->prefix) : data_tokenizer_eot(t);
    if (*out >= 0) return ST_OK;
    return fail(ST_DATA,
                "%s: the tokenizer has no %s, which stands before a text without context; set "
                "`prefix` to a token that it has",
                spec->file, is_given ? spec->prefix : "end-of-text token");
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct task_reading {
    arena *a, *scratch;
    data_tokenizer *t;
    const task_spec *spec;
    const char *path;
    jinja_template *context;
    int64_t line;
    const char *shots; // the solved items
    data_ids ids;
    task_items *out;
} task_reading;

static status refused(const task_reading *r, const char *what, const char *key)
{
    return fail(ST_DATA, "%s:%lld: %s%s%s", r->path, (long long)r->line, what,
                key != NULL ? ": " : "", or_empty(key));
}

// "a.b" of an object.
static const json *member(const json *of, const char *path)
{
    char key[128];
    while (of != NULL && *path != 0) {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof(key)) return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        of = json_get(of, key);
        path += n + (path[n] == '.' ? 1 : 0);
    }
    return of;
}

static bool is_same_text(const json *a, const json *b)
{
    return json_kind_of(a) == JSON_TEXT && json_kind_of(b) == JSON_TEXT &&
           json_text_bytes(a) == json_text_bytes(b) &&
           memcmp(json_text(a, ""), json_text(b, ""), (size_t)json_text_bytes(a)) == 0;
}

// The number of the right choice; -1: none.
static int64_t gold_of(const task_reading *r, const json *item, const json *choices)
{
    const json *gold = member(item, r->spec->gold);
    const json *labels = r->spec->labels != NULL ? member(item, r->spec->labels) : NULL;
    const int64_t count = json_count(choices);
    int64_t number = json_int(gold, -1);
    for (int64_t i = 0; i < count && json_kind_of(gold) == JSON_TEXT; i++) {
        if (is_same_text(json_at(labels != NULL ? labels : choices, i), gold)) return i;
    }
    if (json_kind_of(gold) == JSON_TEXT &&
        (labels != NULL || !text_parse_i64(json_text(gold, ""), &number))) {
        return -1;
    }
    return number >= 0 && number < count ? number : -1;
}

static status context_render(task_reading *r, const json *item, text *out)
{
    jinja_variable *variables = NULL;
    jinja_result result;
    const int64_t count = json_count(item);
    TRY(arena_new(r->scratch, count, &variables));
    for (int64_t i = 0; i < count; i++) {
        variables[i].name = json_key_at(item, i, &variables[i].value);
    }
    const jinja_context c = {.variables = variables, .variable_count = count};
    const status st = jinja_render(r->context, r->scratch, &c, &result);
    if (st != ST_OK) note("while the context of %s:%lld was rendered", r->path, (long long)r->line);
    *out = result.out;
    return st;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static status encode(task_reading *r, const char *bytes, int64_t count)
{
    r->ids.count = 0;
    return data_tokenizer_encode(r->t, bytes, count, data_tokenizer_flags(r->t), &r->ids);
}

static int64_t characters_of(const char *bytes, int64_t count)
{
    int64_t characters = 0;
    for (int64_t i = 0; i < count; i++) characters += (bytes[i] & 0xc0) != 0x80 ? 1 : 0;
    return characters;
}

// context: without white space at its end, which stands in `blanks`.
typedef struct pair_text {
    const char *context, *blanks;
    int64_t context_bytes, blank_bytes;
} pair_text;

static status choice_encode(task_reading *r, const pair_text *p, const json *choice,
                            task_choice *out)
{
    text all = {.a = r->scratch};
    int32_t prefix = -1;
    const char *bytes = json_text(choice, "");
    const int64_t count = json_text_bytes(choice);
    TRY(encode(r, p->context, p->context_bytes));
    int64_t context = r->ids.count;
    const bool has_prefix = p->context_bytes == 0;
    if (has_prefix) TRY(task_prefix(r->t, r->spec, &prefix));
    TRY(text_add_bytes(&all, p->context, p->context_bytes));
    TRY(text_add_bytes(&all, p->blanks, p->blank_bytes));
    TRY(text_add(&all, "%s", r->spec->delimiter));
    TRY(text_add_bytes(&all, bytes, count));
    TRY(encode(r, all.bytes, all.length));
    if (r->ids.count <= context) return refused(r, "a choice has no token", NULL);
    *out = (task_choice){.count = r->ids.count + (has_prefix ? 1 : 0),
                         .context = has_prefix ? 1 : context,
                         .characters = characters_of(bytes, count),
                         .bytes = count};
    TRY(arena_new(r->a, out->count, &out->ids));
    if (has_prefix) out->ids[0] = prefix;
    memcpy(out->ids + (has_prefix ? 1 : 0), r->ids.items, (size_t)r->ids.count * sizeof(int32_t));
    r->out->longest = max_i64(r->out->longest, out->count);
    return ST_OK;
}

static status choices_check(const task_reading *r, const json *item, const json **out,
                            int64_t *gold)
{
    const json *choices = member(item, r->spec->choices);
    const int64_t count = json_kind_of(choices) == JSON_LIST ? json_count(choices) : 0;
    if (count < 2 || count > TASK_CHOICES_MAX) {
        return refused(r, "no list of 2 to 64 choices", r->spec->choices);
    }
    for (int64_t i = 0; i < count; i++) {
        if (json_text_bytes(json_at(choices, i)) > 0) continue;
        return refused(r, "a choice is no text, or empty", r->spec->choices);
    }
    *gold = gold_of(r, item, choices);
    if (*gold < 0)
        return refused(r, "this is not the number, text or label of a choice", r->spec->gold);
    *out = choices;
    return ST_OK;
}

static status item_add(task_reading *r, const json *item)
{
    const json *choices = NULL;
    task_items *list = r->out;
    text whole = {.a = r->scratch}, own;
    task_item x = {.gold = 0};
    TRY(choices_check(r, item, &choices, &x.gold));
    TRY(context_render(r, item, &own));
    TRY(text_add(&whole, "%s", r->shots));
    TRY(text_add_bytes(&whole, own.bytes, own.length));
    pair_text p = {.context = whole.bytes, .context_bytes = whole.length};
    while (p.context_bytes > 0 && is_blank(whole.bytes[p.context_bytes - 1])) p.context_bytes--;
    p.blanks = whole.bytes + p.context_bytes;
    p.blank_bytes = whole.length - p.context_bytes;
    x.choice_count = json_count(choices);
    TRY(arena_new(r->a, x.choice_count, &x.choices));
    for (int64_t i = 0; i < x.choice_count; i++) {
        TRY(choice_encode(r, &p, json_at(choices, i), &x.choices[i]));
    }
    TRY(arena_grow(r->a, (void **)&list->items, &list->capacity, list->count + 1,
                   sizeof(task_item)));
    list->items[list->count++] = x;
    return ST_OK;
}

static status shot_add(task_reading *r, const json *item, text *shots)
{
    const json *choices = NULL;
    text own;
    int64_t gold = 0;
    TRY(choices_check(r, item, &choices, &gold));
    TRY(context_render(r, item, &own));
    TRY(text_add_bytes(shots, own.bytes, own.length));
    TRY(text_add(shots, "%s", r->spec->delimiter));
    TRY(text_add_bytes(shots, json_text(json_at(choices, gold), ""),
                       json_text_bytes(json_at(choices, gold))));
    return text_add(shots, "%s", or_empty(r->spec->separator));
}

// Reads a file's items, until there are `limit`; with `shots` they become solved ones.
static status lines_read(task_reading *r, data_documents *d, int64_t limit, text *shots)
{
    data_line line;
    for (int64_t n = 0; limit == 0 || n < limit; n++) {
        json *item = NULL;
        TRY(data_documents_line(d, &line));
        if (line.bytes == NULL) return ST_OK;
        r->line = line.number;
        arena_reset(r->scratch);
        TRY(json_parse(line.bytes, line.count, r->path, &item));
        status st = json_kind_of(item) == JSON_MAP ? ST_OK : refused(r, "no JSON object", NULL);
        if (st == ST_OK) st = shots != NULL ? shot_add(r, item, shots) : item_add(r, item);
        json_free(item);
        TRY(st);
    }
    return ST_OK;
}

static status file_read(task_reading *r, const host *h, const char *path, int64_t limit,
                        text *shots)
{
    data_documents *d = NULL;
    r->path = path;
    TRY(data_path_check(path));
    TRY(data_documents_open(h, path, 0, &d));
    const status st = data_documents_are_lines(d) ? lines_read(r, d, limit, shots)
                                                  : fail(ST_DATA, "%s: no JSON lines", path);
    data_documents_close(d);
    return st;
}

static status all_read(task_reading *r, const host *h, int64_t limit)
{
    const task_spec *s = r->spec;
    text shots = {.a = r->a};
    TRY(text_add(&shots, "%s", ""));
    TRY(jinja_parse(r->a, s->context, (int64_t)strlen(s->context), "context", &r->context));
    if (s->shots > 0) TRY(file_read(r, h, s->shots_data, s->shots, &shots));
    r->shots = shots.bytes;
    TRY(file_read(r, h, s->data, limit, NULL));
    return r->out->count > 0 ? ST_OK : fail(ST_DATA, "%s holds no item", s->data);
}

status task_read(const host *h, arena *a, data_tokenizer *t, const task_spec *spec, int64_t limit,
                 task_items *out)
{
    enum { SCRATCH_BYTES_MAX = 1 << 29 };
    task_reading r = {.a = a, .t = t, .spec = spec, .out = out};
    TRY(arena_create("task", SCRATCH_BYTES_MAX, &r.scratch));
    const status st = all_read(&r, h, limit);
    data_ids_deinit(&r.ids);
    arena_destroy(r.scratch);
    return st;
}
