// The quality rules that FineWeb adds (Penedo et al. 2024, arXiv:2406.17557, section 3.6).
#include "data/filter/family.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, fineweb.field)
#define SHARE(k, f, def, h)                                                                \
    {                                                                                      \
        .key = (k), .kind = OPTION_REAL, .offset = AT(f), .default_text = (def), .max = 1, \
        .help = (h)                                                                        \
    }
static const option rows[] = {
    SHARE("fineweb.min_end_marks", min_end_marks, "0.12",
          "least share of lines that end with a mark (. ! ? \")"),
    SHARE("fineweb.max_short_lines", max_short_lines, "0.67",
          "largest share of lines with fewer than fineweb.short_line_chars characters"),
    {.key = "fineweb.short_line_chars",
     .kind = OPTION_INT,
     .offset = AT(short_line_chars),
     .default_text = "30",
     .max = 1e6,
     .unit = "characters",
     .help = "length below which a line is short"},
    SHARE("fineweb.max_duplicate_chars", max_duplicate_chars, "0.01",
          "largest share of bytes in lines that repeat one"),
    SHARE("fineweb.max_newlines", max_newlines, "0.3", "largest ratio of line ends to words"),
};
enum { RULE_MARKS, RULE_SHORT, RULE_DUPLICATE, RULE_LIST };
static const char *const rules[] = {"no-end-marks", "short-lines", "duplicate-lines", "list", NULL};

static bool ends_sentence(const char *line, int64_t count)
{
    static const char *const marks[] = {".",      "!",      "?",      "\"",    "'",
                                        "\u201d", "\u3002", "\uff01", "\uff1f"};
    return filter_ends_with(line, count, marks, COUNT_OF(marks));
}

static status apply(filter_run *r, int *rule)
{
    const filter_spans *lines = NULL, *words = NULL;
    int64_t all = 0, marks = 0, shorts = 0, again_bytes = 0;
    TRY(filter_lines(r, &lines));
    TRY(filter_hashes_clear(r, lines->count));
    for (int64_t i = 0; i < lines->count; i++) {
        const char *line = r->text + lines->items[i].begin;
        const int64_t count = lines->items[i].count;
        if (count == 0) continue;
        all++;
        marks += ends_sentence(line, count);
        shorts += filter_chars(line, count) < r->c->fineweb.short_line_chars;
        if (filter_hashes_count(r, hash64(line, count, 0)) > 0) again_bytes += count;
    }
    if (all == 0) *rule = RULE_MARKS;
    if ((double)marks < r->c->fineweb.min_end_marks * (double)all) *rule = RULE_MARKS;
    if ((double)shorts > r->c->fineweb.max_short_lines * (double)all) *rule = RULE_SHORT;
    if ((double)again_bytes > r->c->fineweb.max_duplicate_chars * (double)r->count) {
        *rule = RULE_DUPLICATE;
    }
    if (*rule >= 0) return ST_OK;
    TRY(filter_words(r, &words));
    const double ends = (double)(lines->count - 1);
    if (ends > r->c->fineweb.max_newlines * (double)words->count) *rule = RULE_LIST;
    return ST_OK;
}

const data_filter data_filter_fineweb = {
    .name = "fineweb",
    .about = "drops documents by the rules that FineWeb adds to those of Gopher and C4",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = NULL,
    .close = NULL,
    .apply = apply};
