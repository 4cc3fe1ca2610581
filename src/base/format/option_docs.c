// Documents made from an option table: --help, man page, Markdown reference, JSON schema and the
// words of shell completion. They always agree with the program about keys, defaults and limits,
// because the table is the only place that defines these.
//
// Keys with a dot belong to a config ("train.steps=N"); others are flags of a subcommand ("--steps
// N").
#include "base/format/options_internal.h"

#include <string.h>

// ---- a row's value, default and limits ---------------------------------------------------------

static const char *kind_word(option_kind kind)
{
    switch (kind) {
    case OPTION_BOOL:
        return "true|false";
    case OPTION_INT:
        return "N";
    case OPTION_REAL:
        return "X";
    case OPTION_TEXT:
        return "TEXT";
    case OPTION_PATH:
        return "PATH";
    case OPTION_CHOICE:
        return "WORD";
    case OPTION_BYTES:
        return "SIZE";
    case OPTION_TIME:
        return "TIME";
    case OPTION_LIST:
        return "ITEM"; // a flag's list: one item each time it is given
    case OPTION_PATHS:
        return "PATH[=WEIGHT],...";
    case OPTION_RANGE:
        return "A:B";
    case OPTION_RAMP:
        return "STEP=SIZE,...";
    case OPTION_SHARE:
        return "SHARE|PATH,...";
    }
    return "?";
}

static status add_value_words(const option *o, text *out)
{
    if (o->kind == OPTION_INT && o->choices != NULL) return text_add(out, "N|%s", o->choices);
    if (o->kind != OPTION_CHOICE) return text_add(out, "%s", kind_word(o->kind));
    char word[OPTION_WORD_BYTES];
    const char *list = o->choices, *gap = "";
    while (option_next_word(&list, word)) {
        TRY(text_add(out, "%s%s", gap, word));
        gap = "|";
    }
    return ST_OK;
}

static bool has_limits(const option *o)
{
    return o->min != 0.0 || o->max != 0.0;
}

static const char *class_words(option_class on_resume)
{
    switch (on_resume) {
    case OPTION_FREE:
        return "may change";
    case OPTION_RECORDED:
        return "may change, is recorded";
    case OPTION_FIXED:
        return "fixed";
    }
    return "?";
}

// "how many ... (sequences; default 8; at least 1)"
static status add_sentence(const option *o, text *out)
{
    TRY(text_add(out, "%s (", o->help));
    if (o->unit != NULL && o->unit[0] != '\0') TRY(text_add(out, "%s; ", o->unit));
    if (o->default_text != NULL) {
        TRY(text_add(out, "default %s", o->default_text[0] == '\0' ? "empty" : o->default_text));
    } else {
        TRY(text_add(out, option_may_be_absent(o) ? "default: none" : "required"));
    }
    if (has_limits(o) && o->max >= OPTION_NO_MAX) {
        TRY(text_add(out, "; at least %.10g", o->min));
    } else if (has_limits(o)) {
        TRY(text_add(out, "; %.10g to %.10g", o->min, o->max));
    }
    return text_add(out, ")");
}

static status add_name(const option *o, text *out)
{
    const bool is_flag = strchr(o->key, '.') == NULL;
    TRY(text_add(out, "%s%s", is_flag ? "--" : "", o->key));
    if (is_flag && o->kind == OPTION_BOOL) return ST_OK;
    TRY(text_add(out, is_flag ? " " : "="));
    return add_value_words(o, out);
}

// ---- help --------------------------------------------------------------------------------------

// Breaks at blanks, so that no line is longer than `columns` unless one word is.
static status add_wrapped(const char *sentence, int indent, int columns, text *out)
{
    int at = indent;
    TRY(text_add(out, "%*s", indent, ""));
    const char *s = sentence;
    while (*s != '\0') {
        const int word = (int)strcspn(s, " ");
        if (at > indent && at + 1 + word > columns) {
            TRY(text_add(out, "\n%*s", indent, ""));
            at = indent;
        } else if (at > indent) {
            TRY(text_add(out, " "));
            at++;
        }
        TRY(text_add_bytes(out, s, word));
        at += word;
        s += word;
        while (*s == ' ') s++;
    }
    return text_add(out, "\n");
}

status option_print_help(const option_table *t, int columns, text *out)
{
    enum { INDENT = 2, HELP_INDENT = 8, COLUMNS_MIN = 40 };
    const int width = columns < COLUMNS_MIN ? COLUMNS_MIN : columns;
    if (t->title != NULL) TRY(text_add(out, "%s\n", t->title));
    for (int64_t i = 0; i < t->count; i++) {
        const option *o = &t->rows[i];
        text sentence = {.a = out->a};
        TRY(text_add(out, "%*s", INDENT, ""));
        TRY(add_name(o, out));
        TRY(text_add(out, "\n"));
        TRY(add_sentence(o, &sentence));
        TRY(add_wrapped(sentence.bytes, HELP_INDENT, width, out));
    }
    return ST_OK;
}

// ---- man page ----------------------------------------------------------------------------------

// Escapes what roff interprets: backslashes and a leading dot or quote. A plain hyphen does not
// copy.
static status add_roff(text *out, const char *s)
{
    ASSERT(s != NULL);
    if (*s == '.' || *s == '\'') TRY(text_add(out, "\\&"));
    for (; *s != '\0'; s++) {
        if (*s == '\\') {
            TRY(text_add(out, "\\e"));
        } else if (*s == '-') {
            TRY(text_add(out, "\\-"));
        } else {
            TRY(text_add_bytes(out, s, 1));
        }
    }
    return ST_OK;
}

status option_print_man(const option_table *t, text *out)
{
    TRY(text_add(out, ".SH OPTIONS\n"));
    for (int64_t i = 0; i < t->count; i++) {
        const option *o = &t->rows[i];
        text name = {.a = out->a}, sentence = {.a = out->a};
        TRY(add_name(o, &name));
        TRY(add_sentence(o, &sentence));
        TRY(text_add(out, ".TP\n.B "));
        TRY(add_roff(out, name.bytes));
        TRY(text_add(out, "\n"));
        TRY(add_roff(out, sentence.bytes));
        TRY(text_add(out, ".\n"));
    }
    return ST_OK;
}

// ---- Markdown ----------------------------------------------------------------------------------

// A bar would end the table cell; angle brackets would be read as HTML.
static status add_cell(text *out, const char *s)
{
    ASSERT(s != NULL);
    for (; *s != '\0'; s++) {
        if (*s == '|') TRY(text_add(out, "\\"));
        if (*s == '<') {
            TRY(text_add(out, "&lt;"));
        } else {
            TRY(text_add_bytes(out, s, 1));
        }
    }
    return ST_OK;
}

static status add_markdown_row(const option *o, text *out)
{
    text words = {.a = out->a};
    TRY(add_value_words(o, &words));
    TRY(text_add(out, "| `%s` | ", o->key));
    TRY(add_cell(out, words.bytes));
    TRY(text_add(out, " | "));
    if (o->default_text != NULL && o->default_text[0] != '\0') {
        TRY(text_add(out, "`%s`", o->default_text));
    } else if (!option_may_be_absent(o)) {
        TRY(text_add(out, "required"));
    }
    TRY(text_add(out, " | "));
    if (has_limits(o) && o->max >= OPTION_NO_MAX) {
        TRY(text_add(out, "at least %.10g", o->min));
    } else if (has_limits(o)) {
        TRY(text_add(out, "%.10g to %.10g", o->min, o->max));
    }
    TRY(text_add(out, " | %s | ", class_words(o->on_resume)));
    TRY(add_cell(out, o->help));
    if (o->unit != NULL && o->unit[0] != '\0') TRY(text_add(out, " (%s)", o->unit));
    return text_add(out, " |\n");
}

status option_print_markdown(const option_table *t, text *out)
{
    if (t->title != NULL) TRY(text_add(out, "# %s\n", t->title));
    const char *heading = "";
    int64_t heading_bytes = -1;
    for (int64_t i = 0; i < t->count; i++) {
        const char *key = t->rows[i].key;
        const int64_t bytes = (int64_t)strcspn(key, ".");
        if (bytes != heading_bytes || strncmp(key, heading, (size_t)bytes) != 0) {
            const bool is_flag = key[bytes] == '\0';
            TRY(text_add(out, "\n"));
            if (!is_flag) TRY(text_add(out, "## %.*s\n\n", (int)bytes, key));
            TRY(text_add(out, "| key | value | default | limits | on resume | what it does |\n"
                              "| --- | --- | --- | --- | --- | --- |\n"));
            heading = key;
            heading_bytes = bytes;
        }
        TRY(add_markdown_row(&t->rows[i], out));
    }
    return ST_OK;
}

// ---- JSON schema -------------------------------------------------------------------------------

static status add_schema_number(const option *o, const char *type, text *out)
{
    TRY(text_add(out, "\"type\": \"%s\"", type));
    if (!has_limits(o)) return ST_OK;
    TRY(text_add(out, ", \"minimum\": %.17g", o->min));
    if (o->max < OPTION_NO_MAX) TRY(text_add(out, ", \"maximum\": %.17g", o->max));
    return ST_OK;
}

static status add_schema_choice(const option *o, text *out)
{
    char word[OPTION_WORD_BYTES];
    const char *list = o->choices, *gap = "";
    TRY(text_add(out, "\"enum\": ["));
    while (option_next_word(&list, word)) {
        TRY(text_add(out, "%s\"%s\"", gap, word));
        gap = ", ";
    }
    return text_add(out, "]");
}

// An integer may also be written 4e6 or 4M, a real 3e-4, which some YAML readers take for texts. So
// numbers allow texts that begin as numbers do.
static status add_schema_type(const option *o, text *out)
{
    static const char number_text[] = "{\"type\": \"string\", \"pattern\": \"^[-+.0-9]\"}";
    switch (o->kind) {
    case OPTION_BOOL:
        return text_add(out, "\"type\": \"boolean\"");
    case OPTION_INT:
    case OPTION_REAL:
        TRY(text_add(out, "\"anyOf\": [{"));
        TRY(add_schema_number(o, o->kind == OPTION_INT ? "integer" : "number", out));
        if (o->kind == OPTION_INT && o->choices != NULL) {
            TRY(text_add(out, "}, {\"enum\": [\"%s\"]", o->choices));
        }
        if (option_is_share(o)) TRY(text_add(out, "}, {\"type\": \"boolean\""));
        return text_add(out, "}, %s]", number_text);
    case OPTION_TEXT:
    case OPTION_PATH:
        return text_add(out, "\"type\": [\"string\", \"number\", \"null\"]");
    case OPTION_CHOICE:
        return add_schema_choice(o, out);
    case OPTION_BYTES:
    case OPTION_TIME:
    case OPTION_RANGE:
        return text_add(out, "\"anyOf\": [{\"type\": [\"integer\", \"null\"]}, %s]", number_text);
    case OPTION_LIST:
        return text_add(out, "\"anyOf\": [{\"type\": [\"string\", \"null\"]}, {\"type\": "
                             "\"array\", \"items\": {\"type\": [\"string\", \"number\"]}}]");
    case OPTION_PATHS:
    case OPTION_SHARE:
        return text_add(out, "\"type\": [\"string\", \"number\", \"array\", \"object\", \"null\"]");
    case OPTION_RAMP:
        return text_add(out, "\"type\": [\"string\", \"array\", \"object\", \"null\"]");
    }
    return ST_OK;
}

static status add_schema_row(const option *o, text *out)
{
    text sentence = {.a = out->a};
    TRY(add_sentence(o, &sentence));
    TRY(text_add(out, "{\"description\": "));
    TRY(text_add_json(out, sentence.bytes));
    TRY(text_add(out, ", "));
    TRY(add_schema_type(o, out));
    return text_add(out, "}");
}

static status add_schema_group(const option_table *t, const char *prefix, int indent, text *out)
{
    TRY(text_add(out, "{\"type\": [\"object\", \"null\"], \"additionalProperties\": false, "
                      "\"properties\": {"));
    const char *gap = "";
    for (int64_t i = 0; i < t->count; i++) {
        int64_t bytes;
        bool is_heading;
        const char *part = option_part(t->rows[i].key, prefix, &bytes, &is_heading);
        if (part == NULL || option_part_seen(t, i, prefix)) continue;
        TRY(text_add(out, "%s\n%*s\"%.*s\": ", gap, indent + 2, "", (int)bytes, part));
        gap = ",";
        if (!is_heading) {
            TRY(add_schema_row(&t->rows[i], out));
            continue;
        }
        char *below, *mode_key;
        TRY(arena_format(out->a, &below, "%s%s%.*s", prefix, *prefix == '\0' ? "" : ".", (int)bytes,
                         part));
        TRY(arena_format(out->a, &mode_key, "%s.mode", below));
        const option *mode = option_find(t, mode_key);
        if (mode != NULL) { // a scalar sets the mode
            TRY(text_add(out, "{\"anyOf\": ["));
            TRY(add_schema_row(mode, out));
            TRY(text_add(out, ", "));
        }
        TRY(add_schema_group(t, below, indent + 2, out));
        if (mode != NULL) TRY(text_add(out, "]}"));
    }
    return text_add(out, "\n%*s}}", indent, "");
}

status option_print_json_schema(const option_table *t, text *out)
{
    TRY(text_add(out, "{\"$schema\": \"http://json-schema.org/draft-07/schema#\",\n\"title\": "));
    TRY(text_add_json(out, t->title == NULL ? "" : t->title));
    TRY(text_add(out, ",\n\"allOf\": ["));
    TRY(add_schema_group(t, "", 0, out));
    return text_add(out, "]}\n");
}

// ---- completion --------------------------------------------------------------------------------

status option_print_words(const option_table *t, text *out)
{
    char word[OPTION_WORD_BYTES];
    for (int64_t i = 0; i < t->count; i++) {
        const option *o = &t->rows[i];
        const bool is_flag = strchr(o->key, '.') == NULL;
        const char *dashes = is_flag ? "--" : "", *equals = is_flag ? "" : "=";
        TRY(text_add(out, "%s%s%s\n", dashes, o->key, equals));
        const char *list = o->choices;
        while (!is_flag && option_next_word(&list, word)) {
            TRY(text_add(out, "%s=%s\n", o->key, word));
        }
    }
    return ST_OK;
}
