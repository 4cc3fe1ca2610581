// The task file, lines of data, and the items of multiple choice tasks as ids.
//
// As lm-evaluation-harness encodes a pair: white space at the end of the context moves to the
// continuation; both are encoded as one text, and the continuation's ids are those after as many
// ids as the context has alone. An empty context is the prefix token.
#include "infer/task_internal.h"

#include "base/format/config.h"
#include "data/dataset.h"
#include "data/reader.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(task_spec, field)
static const option rows[] = {
    {.key = "name", .kind = OPTION_TEXT, .offset = AT(name), .help = "name in the results"},
    {.key = "kind",
     .kind = OPTION_CHOICE,
     .offset = AT(kind),
     .default_text = "multiple_choice",
     .choices = "multiple_choice, perplexity, generation",
     .help = "what is measured"},
    {.key = "data",
     .kind = OPTION_PATH,
     .offset = AT(data),
     .help = "JSON lines with an item each; for perplexity also a text"},
    {.key = "context",
     .kind = OPTION_TEXT,
     .offset = AT(context),
     .default_text = "{{ context }}",
     .help = "template of the text before a choice or an answer"},
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
     .help = "text between context and choice; for generation, between context and answer of a "
             "solved item"},
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
    {.key = "target",
     .kind = OPTION_TEXT,
     .offset = AT(target),
     .help = "template of the right answer"},
    {.key = "stop",
     .kind = OPTION_LIST,
     .offset = AT(stop),
     .help = "texts before which an answer ends"},
    {.key = "max_tokens",
     .kind = OPTION_INT,
     .offset = AT(max_tokens),
     .default_text = "256",
     .min = 1,
     .max = 1 << 20,
     .help = "largest number of tokens of an answer"},
    {.key = "temperature",
     .kind = OPTION_REAL,
     .offset = AT(temperature),
     .default_text = "0",
     .max = 100,
     .help = "sampling temperature; 0 takes the likeliest tokens"},
    {.key = "top_k",
     .kind = OPTION_INT,
     .offset = AT(top_k),
     .default_text = "0",
     .max = 1 << 24,
     .help = "number of likeliest tokens to sample from; 0 is all"},
    {.key = "top_p",
     .kind = OPTION_REAL,
     .offset = AT(top_p),
     .default_text = "1",
     .min = 1e-6,
     .max = 1,
     .help = "total probability of the likeliest tokens to sample from"},
    {.key = "samples",
     .kind = OPTION_INT,
     .offset = AT(samples),
     .default_text = "1",
     .min = 1,
     .max = 10000,
     .help = "number of answers to each item"},
    {.key = "seed",
     .kind = OPTION_INT,
     .offset = AT(seed),
     .default_text = "1",
     .max = 9007199254740992.0,
     .help = "seed of sampling; each answer has random draws of its own"},
    {.key = "pass",
     .kind = OPTION_LIST,
     .offset = AT(pass),
     .help = "list of k: the results have pass@k, the chance that one of k answers is right"},
    {.key = "extract",
     .kind = OPTION_TEXT,
     .offset = AT(extract),
     .help = "regular expression whose first match in an answer is compared with the target: its "
             "first group that is not empty, or all of it"},
    {.key = "extract_last",
     .kind = OPTION_TEXT,
     .offset = AT(extract_last),
     .help = "the same for the last match, as a second result"},
    {.key = "ignore",
     .kind = OPTION_LIST,
     .offset = AT(ignore),
     .help = "regular expressions whose matches are removed from answer and target before they "
             "are compared"},
    {.key = "ignore_case",
     .kind = OPTION_BOOL,
     .offset = AT(ignore_case),
     .default_text = "false",
     .help = "compares in lower case"},
    {.key = "ignore_punctuation",
     .kind = OPTION_BOOL,
     .offset = AT(ignore_punctuation),
     .default_text = "false",
     .help = "compares without punctuation of ASCII"},
    {.key = "ignore_numbers",
     .kind = OPTION_BOOL,
     .offset = AT(ignore_numbers),
     .default_text = "false",
     .help = "compares without digits"},
    {.key = "match",
     .kind = OPTION_LIST,
     .offset = AT(match),
     .help = "regular expressions; `matched` is the share of answers in which one of them matches; "
             "the word refusal stands for usual refusals in English"},
    {.key = "program",
     .kind = OPTION_TEXT,
     .offset = AT(program),
     .default_text = "{{ answer }}",
     .help = "template of a file for `command`; `answer` is the answer"},
    {.key = "program_file",
     .kind = OPTION_TEXT,
     .offset = AT(program_file),
     .default_text = "program.py",
     .help = "name of that file"},
    {.key = "command",
     .kind = OPTION_TEXT,
     .offset = AT(command),
     .help = "shell command, run confined in a folder with that file: an answer is right if it "
             "ends with exit code 0"},
    {.key = "time_limit",
     .kind = OPTION_TIME,
     .offset = AT(time_limit_ns),
     .default_text = "10s",
     .min = 1e6,
     .max = 3.6e12,
     .help = "longest time of the command"},
    {.key = "memory_limit",
     .kind = OPTION_BYTES,
     .offset = AT(memory_limit_bytes),
     .default_text = "1GiB",
     .min = 1 << 20,
     .max = OPTION_NO_MAX,
     .help = "largest address space of each of the command's processes"},
    {.key = "process_limit",
     .kind = OPTION_INT,
     .offset = AT(process_limit),
     .default_text = "32",
     .min = 1,
     .max = 4096,
     .help = "largest number of the command's processes and threads"},
};
static const option_table table = {
    .title = "Evaluation task", .rows = rows, .count = COUNT_OF(rows)};

static const char *or_empty(const char *s)
{
    return s != NULL ? s : "";
}

// The keys that apply to some kinds only.
enum {
    FOR_CHOICE = 1 << TASK_KIND_CHOICE,
    FOR_ANSWER = 1 << TASK_KIND_GENERATION,
    FOR_PERPLEXITY = 1 << TASK_KIND_PERPLEXITY
};
static const struct {
    const char *key;
    int kinds;
} uses[] = {{"context", FOR_CHOICE | FOR_ANSWER},
            {"choices", FOR_CHOICE},
            {"labels", FOR_CHOICE},
            {"gold", FOR_CHOICE},
            {"delimiter", FOR_CHOICE | FOR_ANSWER},
            {"prefix", FOR_CHOICE | FOR_PERPLEXITY},
            {"shots", FOR_CHOICE | FOR_ANSWER},
            {"shots_data", FOR_CHOICE | FOR_ANSWER},
            {"separator", FOR_CHOICE | FOR_ANSWER},
            {"target", FOR_ANSWER},
            {"stop", FOR_ANSWER},
            {"max_tokens", FOR_ANSWER},
            {"temperature", FOR_ANSWER},
            {"top_k", FOR_ANSWER},
            {"top_p", FOR_ANSWER},
            {"samples", FOR_ANSWER},
            {"seed", FOR_ANSWER},
            {"pass", FOR_ANSWER},
            {"extract", FOR_ANSWER},
            {"extract_last", FOR_ANSWER},
            {"ignore", FOR_ANSWER},
            {"ignore_case", FOR_ANSWER},
            {"ignore_punctuation", FOR_ANSWER},
            {"ignore_numbers", FOR_ANSWER},
            {"match", FOR_ANSWER},
            {"program", FOR_ANSWER},
            {"program_file", FOR_ANSWER},
            {"command", FOR_ANSWER},
            {"time_limit", FOR_ANSWER},
            {"memory_limit", FOR_ANSWER},
            {"process_limit", FOR_ANSWER}};

static status uses_check(const config *c, const task_spec *s)
{
    static const char *const kinds[] = {
        [FOR_CHOICE] = "multiple_choice",
        [FOR_ANSWER] = "generation",
        [FOR_PERPLEXITY] = "perplexity",
        [FOR_CHOICE | FOR_ANSWER] = "multiple_choice or generation",
        [FOR_CHOICE | FOR_PERPLEXITY] = "multiple_choice or perplexity",
    };
    for (int64_t i = 0; i < COUNT_OF(uses); i++) {
        if ((uses[i].kinds & 1 << s->kind) != 0 || !config_is_given(c, uses[i].key)) continue;
        return fail(ST_CONFIG_CONFLICT, "%s: %s applies to kind: %s", config_place(c, uses[i].key),
                    uses[i].key, kinds[uses[i].kinds]);
    }
    return ST_OK;
}

static status pass_check(const config *c, const task_spec *s)
{
    for (int64_t i = 0; i < s->pass.count; i++) {
        int64_t k = 0;
        if (i < TASK_PASS_MAX && text_parse_i64(s->pass.items[i], &k) && k >= 1 &&
            k <= s->samples) {
            continue;
        }
        return fail(ST_CONFIG_RANGE,
                    "%s: pass: expected at most %d numbers from 1 to `samples` (%lld), got \"%s\"",
                    config_place(c, "pass"), (int)TASK_PASS_MAX, (long long)s->samples,
                    s->pass.items[i]);
    }
    return ST_OK;
}

static status answer_check(const config *c, const task_spec *s)
{
    static const char *const of_command[] = {"program", "program_file", "time_limit",
                                             "memory_limit", "process_limit"};
    static const char *const of_target[] = {"extract",     "extract_last",       "ignore",
                                            "ignore_case", "ignore_punctuation", "ignore_numbers"};
    if (s->target == NULL && s->command == NULL && s->match.count == 0) {
        return fail(ST_CONFIG_KEY,
                    "%s: a generation task needs `target`, `command` or `match`: the right answer, "
                    "how an answer is tried, or what is looked for in it",
                    s->file);
    }
    if (s->shots > 0 && s->target == NULL) {
        return fail(ST_CONFIG_CONFLICT, "%s: shots: solved items need `target`",
                    config_place(c, "shots"));
    }
    for (int64_t i = 0; i < COUNT_OF(of_command) && s->command == NULL; i++) {
        if (!config_is_given(c, of_command[i])) continue;
        return fail(ST_CONFIG_CONFLICT, "%s: %s applies with `command` only",
                    config_place(c, of_command[i]), of_command[i]);
    }
    for (int64_t i = 0; i < COUNT_OF(of_target) && s->target == NULL; i++) {
        if (!config_is_given(c, of_target[i])) continue;
        return fail(ST_CONFIG_CONFLICT, "%s: %s applies with `target` only",
                    config_place(c, of_target[i]), of_target[i]);
    }
    if (s->samples > 1 && s->temperature <= 0.0) {
        return fail(ST_CONFIG_CONFLICT,
                    "%s: samples: with temperature 0 all answers to an item are equal",
                    config_place(c, "samples"));
    }
    if (strchr(s->program_file, '/') != NULL || strspn(s->program_file, ".") > 0) {
        return fail(ST_CONFIG_RANGE, "%s: program_file: expected a name without folders, got %s",
                    config_place(c, "program_file"), s->program_file);
    }
    return pass_check(c, s);
}

status task_load(const host *h, arena *a, const char *path, task_spec *out)
{
    config *c = NULL;
    TRY(config_load(h, a, &table, path, NULL, 0, out, &c));
    out->file = path;
    if (out->name == NULL) out->name = path_base_name(path);
    out->delimiter = or_empty(out->delimiter);
    if (out->data == NULL) return fail(ST_CONFIG_KEY, "%s: data is not given", path);
    TRY(uses_check(c, out));
    if (out->kind == TASK_KIND_GENERATION) TRY(answer_check(c, out));
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

status task_refused(const task_reading *r, const char *what, const char *key)
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

status task_render(task_reading *r, const jinja_template *t, const json *item, const char *answer,
                   text *out)
{
    jinja_variable *variables = NULL;
    jinja_result result;
    const int64_t count = json_count(item);
    TRY(arena_new(r->scratch, count + 1, &variables));
    for (int64_t i = 0; i < count; i++) {
        variables[i].name = json_key_at(item, i, &variables[i].value);
    }
    variables[count] = (jinja_variable){.name = "answer", .string = answer};
    const jinja_context c = {.variables = variables,
                             .variable_count = count + (answer != NULL ? 1 : 0)};
    const status st = jinja_render(t, r->scratch, &c, &result);
    if (st != ST_OK) note("while a template was filled from %s:%lld", r->path, (long long)r->line);
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
    task_items *list = r->out;
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
    if (r->ids.count <= context) return task_refused(r, "a choice has no token", NULL);
    *out = (task_choice){.count = r->ids.count + (has_prefix ? 1 : 0),
                         .context = has_prefix ? 1 : context,
                         .characters = characters_of(bytes, count),
                         .bytes = count};
    TRY(arena_new(r->a, out->count, &out->ids));
    if (has_prefix) out->ids[0] = prefix;
    memcpy(out->ids + (has_prefix ? 1 : 0), r->ids.items, (size_t)r->ids.count * sizeof(int32_t));
    list->longest = max_i64(list->longest, out->count);
    return ST_OK;
}

static status choices_check(const task_reading *r, const json *item, const json **out,
                            int64_t *gold)
{
    const json *choices = member(item, r->spec->choices);
    const int64_t count = json_kind_of(choices) == JSON_LIST ? json_count(choices) : 0;
    if (count < 2 || count > TASK_CHOICES_MAX) {
        return task_refused(r, "no list of 2 to 64 choices", r->spec->choices);
    }
    for (int64_t i = 0; i < count; i++) {
        if (json_text_bytes(json_at(choices, i)) > 0) continue;
        return task_refused(r, "a choice is no text, or empty", r->spec->choices);
    }
    *gold = gold_of(r, item, choices);
    if (*gold < 0)
        return task_refused(r, "this is not the number, text or label of a choice", r->spec->gold);
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
    TRY(task_render(r, r->context, item, NULL, &own));
    TRY(text_add_bytes(&whole, r->shots.bytes, r->shots.length));
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

static status shot_add(task_reading *r, const json *item)
{
    text *shots = &r->shots;
    const json *choices = NULL;
    text own;
    int64_t gold = 0;
    TRY(choices_check(r, item, &choices, &gold));
    TRY(task_render(r, r->context, item, NULL, &own));
    TRY(text_add_bytes(shots, own.bytes, own.length));
    TRY(text_add(shots, "%s", r->spec->delimiter));
    TRY(text_add_bytes(shots, json_text(json_at(choices, gold), ""),
                       json_text_bytes(json_at(choices, gold))));
    return text_add(shots, "%s", or_empty(r->spec->separator));
}

// Reads a file's items, until there are `limit`.
static status lines_read(task_reading *r, data_documents *d, int64_t limit, task_take take)
{
    data_line line;
    for (int64_t n = 0; limit == 0 || n < limit; n++) {
        json *item = NULL;
        TRY(data_documents_line(d, &line));
        if (line.bytes == NULL) return ST_OK;
        r->line = line.number;
        r->line_text = line.bytes;
        r->line_bytes = line.count;
        arena_reset(r->scratch);
        TRY(json_parse_row(line.bytes, line.count, r->path, r->line, r->used, &item));
        status st =
            json_kind_of(item) == JSON_MAP ? ST_OK : task_refused(r, "no JSON object", NULL);
        if (st == ST_OK) st = take(r, item);
        json_free(item);
        TRY(st);
    }
    return ST_OK;
}

static status file_read(task_reading *r, const host *h, const char *path, int64_t limit,
                        task_take take)
{
    data_documents *d = NULL;
    r->path = path;
    TRY(data_path_check(path));
    TRY(data_documents_open(h, path, 0, &d));
    const status st = data_documents_are_lines(d) ? lines_read(r, d, limit, take)
                                                  : fail(ST_DATA, "%s: no JSON lines", path);
    data_documents_close(d);
    return st;
}

status task_lines_read(task_reading *r, const host *h, int64_t limit, task_take shot,
                       task_take item)
{
    const task_spec *s = r->spec;
    const char *const named[] = {"context choices gold label answer target id text", s->context,
                                 s->choices, s->gold, s->target};
    text used = {.a = r->a};
    r->shots = (text){.a = r->a};
    for (int64_t i = 0; i < COUNT_OF(named); i++) {
        if (named[i] != NULL) TRY(text_add(&used, "%s\n", named[i]));
    }
    // The template of a program, which has a default, is not looked into.
    r->used = s->command != NULL ? NULL : used.bytes;
    TRY(jinja_parse(r->a, s->context, (int64_t)strlen(s->context), "context", &r->context));
    if (s->shots > 0) TRY(file_read(r, h, s->shots_data, s->shots, shot));
    return file_read(r, h, s->data, limit, item);
}

status task_read(const host *h, arena *a, data_tokenizer *t, const task_spec *spec, int64_t limit,
                 task_items *out)
{
    task_reading r = {.a = a, .t = t, .spec = spec, .out = out};
    TRY(arena_create("task", TASK_SCRATCH_BYTES_MAX, &r.scratch));
    const status st = task_lines_read(&r, h, limit, shot_add, item_add);
    data_ids_deinit(&r.ids);
    arena_destroy(r.scratch);
    TRY(st);
    return out->count > 0 ? ST_OK : fail(ST_DATA, "%s holds no item", spec->data);
}
