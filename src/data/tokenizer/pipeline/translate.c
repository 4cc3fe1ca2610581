// Rewrites a regular expression of a tokenizer for PCRE2. Sets of characters become explicit ranges
// (translate_class.c), anchors and \b become looks ahead and behind, and a sign after a count means
// what it means in the file's syntax. Groups, alternatives, looks and quantifiers mean the same in
// all engines. The reader refuses the rest (back references, \G, \K, \X and others) by name.
#include "data/tokenizer/pipeline/translate.h"

#include <stdio.h>
#include <string.h>

status translate_refuse(const translation *t, const char *what, int64_t from)
{
    const int64_t bytes = min_i64(t->count - from, 12);
    return fail(ST_UNSUPPORTED,
                "%s: %s in a regular expression is not supported, at character %lld (`%.*s`)",
                t->path, what, (long long)from + 1, (int)utf8_valid_prefix(t->in + from, bytes),
                t->in + from);
}

status translate_put(translation *t, const char *text)
{
    return data_bytes_add(t->out, text, (int64_t)strlen(text));
}

static bool begins(const translation *t, const char *with)
{
    const int64_t bytes = (int64_t)strlen(with);
    return t->count - t->at >= bytes && memcmp(t->in + t->at, with, (size_t)bytes) == 0;
}

// ---- groups -------------------------------------------------------------------------------------

static status open_group(translation *t)
{
    static const char *const starts[] = {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (t->depth == TRANSLATE_GROUPS_MAX) {
        return translate_refuse(t, "so deep a nest of groups", t->at);
    }
    const bool was_caseless = t->caseless[t->depth];
    t->group_at[++t->depth] = t->out->count;
    t->caseless[t->depth] = was_caseless;
    t->atom_at = -1;
    for (int64_t i = 0; i < COUNT_OF(starts); i++) {
        if (!begins(t, starts[i])) continue;
        if (i == 0) t->caseless[t->depth] = true;
        t->at += (int64_t)strlen(starts[i]);
        return translate_put(t, starts[i]);
    }
    if (t->at + 1 < t->count && (t->in[t->at + 1] == '?' || t->in[t->at + 1] == '*')) {
        return translate_refuse(t, "this group", t->at);
    }
    t->at++;
    return translate_put(t, "(?:");
}

static status close_group(translation *t)
{
    if (t->depth == 0) return translate_refuse(t, "a `)` without `(`", t->at);
    t->atom_at = t->group_at[t->depth--];
    t->at++;
    return translate_put(t, ")");
}

// ---- counts -------------------------------------------------------------------------------------

// Digits, at most 8; *value -1: none.
static status read_number(translation *t, int64_t from, int64_t *value)
{
    int digits = 0;
    *value = -1;
    for (; t->at < t->count && t->in[t->at] >= '0' && t->in[t->at] <= '9'; t->at++) {
        if (++digits > 8) return translate_refuse(t, "so large a count", from);
        *value = 10 * max_i64(*value, 0) + (t->in[t->at] - '0');
    }
    return ST_OK;
}

// Makes the last item and what follows it one group: out[atom_at..] becomes (?:...)sign.
static status wrap_atom(translation *t, const char *sign)
{
    static const char open[] = "(?:";
    TRY(translate_put(t, open)); // the bytes that the item moves into
    char *atom = t->out->items + t->atom_at;
    const int64_t bytes = t->out->count - 3 - t->atom_at;
    memmove(atom + 3, atom, (size_t)bytes);
    memcpy(atom, open, 3);
    TRY(translate_put(t, ")"));
    return translate_put(t, sign);
}

// {n}, {n,}, {,m} and {n,m}, perhaps with a sign. In Oniguruma `+` repeats the whole and {n}? makes
// it optional; in the Rust syntax `+` is possessive and `?` takes as few as it can.
static status put_count(translation *t)
{
    const int64_t from = t->at++;
    int64_t least = -1, most = -1;
    char text[64];
    TRY(read_number(t, from, &least));
    const bool has_comma = t->at < t->count && t->in[t->at] == ',';
    if (has_comma) {
        t->at++;
        TRY(read_number(t, from, &most));
    }
    const bool is_whole = t->at < t->count && t->in[t->at] == '}' && (least >= 0 || most >= 0);
    if (!is_whole || t->atom_at < 0 || (least < 0 && t->syntax == PATTERN_RUST)) {
        return translate_refuse(t, "this brace", from);
    }
    t->at++;
    (void)snprintf(text, sizeof(text), "{%lld%s", (long long)max_i64(least, 0),
                   has_comma ? "," : "");
    TRY(translate_put(t, text));
    if (most >= 0) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)most);
        TRY(translate_put(t, text));
    }
    TRY(translate_put(t, "}"));
    const char sign = t->at < t->count ? t->in[t->at] : 0;
    if (sign != '?' && sign != '+') return ST_OK;
    t->at++;
    if (t->syntax == PATTERN_RUST || (sign == '?' && has_comma)) {
        return translate_put(t, sign == '?' ? "?" : "+");
    }
    return wrap_atom(t, sign == '?' ? "?" : "+");
}

// ---- anchors ------------------------------------------------------------------------------------

// The edge of a word: a character of \w on one side only.
static status put_word_edge(translation *t, bool negated)
{
    static const char *const parts[2][5] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"},
                                            {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"}};
    point_set words = {0};
    status st = point_set_add_named(&words, UNICODE_NAME_WORD);
    point_set_order(&words);
    for (int i = 0; i < 5 && st == ST_OK; i++) {
        st = translate_put(t, parts[negated ? 1 : 0][i]);
        if (st == ST_OK && i < 4) st = translate_put_set(t, &words);
    }
    point_set_deinit(&words);
    t->at += 2;
    return st;
}

// *found is false where no anchor stands. Oniguruma's ^ and $ are those of lines.
static status put_anchor(translation *t, bool *found)
{
    static const struct {
        const char *from, *onig, *rust; // rust NULL: there is no such anchor
    } rows[] = {{"^", "(?:\\A|(?<=\\n)(?!\\z))", "\\A"},
                {"$", "(?=\\n|\\z)", "\\z"},
                {"\\A", "\\A", "\\A"},
                {"\\z", "\\z", "\\z"},
                {"\\Z", "(?=\\n?\\z)", NULL}};
    *found = true;
    t->atom_at = -1;
    if (begins(t, "\\b") || begins(t, "\\B")) return put_word_edge(t, t->in[t->at + 1] == 'B');
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *text = t->syntax == PATTERN_RUST ? rows[i].rust : rows[i].onig;
        if (text == NULL || !begins(t, rows[i].from)) continue;
        t->at += (int64_t)strlen(rows[i].from);
        return translate_put(t, text);
    }
    *found = false;
    return ST_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static status put_item(translation *t)
{
    bool found = false;
    TRY(put_anchor(t, &found));
    if (found) return ST_OK;
    translate_item i;
    t->atom_at = t->out->count;
    status st = translate_read_item(t, &i);
    if (st == ST_OK) st = i.is_set ? translate_put_set(t, &i.set) : translate_put_point(t, i.point);
    point_set_deinit(&i.set);
    return st;
}

static status put_next(translation *t)
{
    const char c = t->in[t->at];
    switch (c) {
    case '[':
        t->atom_at = t->out->count;
        return translate_class(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '{':
        return put_count(t);
    case '|':
        t->atom_at = -1;
        break;
    case '.':
        t->atom_at = t->out->count;
        break;
    case '?':
    case '*':
    case '+':
        break;
    case ']':
    case '}':
        return translate_refuse(t, "a bracket alone", t->at);
    default:
        return put_item(t);
    }
    t->at++;
    return data_bytes_add(t->out, &c, 1);
}

status pattern_translate(pattern_syntax syntax, const char *path, const char *text, int64_t bytes,
                         data_bytes *out)
{
    translation t = {
        .path = path, .in = text, .count = bytes, .syntax = syntax, .out = out, .atom_at = -1};
    if (begins(&t, "(?i)")) { // for the whole expression
        t.caseless[0] = true;
        t.at = 4;
        TRY(translate_put(&t, "(?i)"));
    }
    while (t.at < t.count) TRY(put_next(&t));
    return t.depth == 0 ? ST_OK : translate_refuse(&t, "a group without end", 0);
}
