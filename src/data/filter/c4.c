// Rules of C4 (Raffel et al. 2020, arXiv:1910.10683, section 2.2): lines that are no sentences are
// removed, and documents with few sentences or with traces of programs or of fillers are dropped.
#include "data/filter/family.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, c4.field)
static const option rows[] = {
    {.key = "c4.min_line_words",
     .kind = OPTION_INT,
     .offset = AT(min_line_words),
     .default_text = "5",
     .max = 1e6,
     .unit = "words",
     .help = "lines with fewer words are removed"},
    {.key = "c4.min_sentences",
     .kind = OPTION_INT,
     .offset = AT(min_sentences),
     .default_text = "3",
     .max = 1e6,
     .help = "fewest sentences of a document"},
    {.key = "c4.end_mark",
     .kind = OPTION_BOOL,
     .offset = AT(end_mark),
     .default_text = "true",
     .help = "whether lines that end without a mark (. ! ? \") are removed"},
    {.key = "c4.braces",
     .kind = OPTION_BOOL,
     .offset = AT(braces),
     .default_text = "true",
     .help = "whether documents with a curly brace are dropped"},
};
enum { RULE_SENTENCES, RULE_BRACE, RULE_FILLER };
static const char *const rules[] = {"few-sentences", "curly-brace", "lorem-ipsum", NULL};

static int64_t words_of(const char *line, int64_t count)
{
    int64_t words = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool is_blank = line[i] == ' ' || line[i] == '\t';
        words += !is_blank && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t');
    }
    return words;
}

static bool ends_sentence(const char *line, int64_t count)
{
    static const char *const dots[] = {"..."};
    static const char *const marks[] = {".",      "!",      "?",      "\"",
                                        "\u201d", "\u3002", "\uff01", "\uff1f"};
    return !filter_ends_with(line, count, dots, COUNT_OF(dots)) &&
           filter_ends_with(line, count, marks, COUNT_OF(marks));
}

// Ends of sentences: a mark that white space or the end follows.
static int64_t sentences_of(const char *bytes, int64_t count)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (bytes[i] != '.' && bytes[i] != '!' && bytes[i] != '?') continue;
        found +=
            i + 1 == count || bytes[i + 1] == ' ' || bytes[i + 1] == '\n' || bytes[i + 1] == '"';
    }
    return found;
}

static bool keeps_line(const filter_run *r, const char *line, int64_t count)
{
    if (r->c->c4.end_mark && !ends_sentence(line, count)) return false;
    if (words_of(line, count) < r->c->c4.min_line_words) return false;
    return !filter_holds(line, count, "javascript") && !filter_holds(line, count, "terms of use") &&
           !filter_holds(line, count, "privacy policy") &&
           !filter_holds(line, count, "cookie policy") &&
           !filter_holds(line, count, "use of cookies") &&
           !filter_holds(line, count, "use cookies");
}

static status apply(filter_run *r, int *rule)
{
    const filter_spans *lines = NULL;
    if (filter_holds(r->text, r->count, "lorem ipsum")) *rule = RULE_FILLER;
    if (r->c->c4.braces && memchr(r->text, '{', (size_t)r->count) != NULL) *rule = RULE_BRACE;
    if (*rule >= 0) return ST_OK;
    TRY(filter_lines(r, &lines));
    data_bytes *out = filter_output(r);
    int64_t kept = 0;
    for (int64_t i = 0; i < lines->count; i++) {
        const char *line = r->text + lines->items[i].begin;
        const int64_t count = lines->items[i].count;
        if (!keeps_line(r, line, count)) continue;
        if (kept++ > 0) TRY(data_bytes_add(out, "\n", 1));
        TRY(data_bytes_add(out, line, count));
    }
    if (out->count == 0 || sentences_of(out->items, out->count) < r->c->c4.min_sentences) {
        *rule = RULE_SENTENCES;
    } else if (kept < lines->count) {
        filter_replace(r);
    }
    return ST_OK;
}

const data_filter data_filter_c4 = {
    .name = "c4",
    .about = "removes lines that are no sentences, and drops documents, by the rules of C4",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = NULL,
    .close = NULL,
    .apply = apply};
