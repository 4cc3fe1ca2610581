// Drops documents that are too short or too long.
#include "data/filter/family.h"

#define AT(field) (int64_t) offsetof(filter_config, length.field)
static const option rows[] = {
    {.key = "length.min_chars",
     .kind = OPTION_INT,
     .offset = AT(min_chars),
     .default_text = "1",
     .max = OPTION_NO_MAX,
     .unit = "characters",
     .help = "shortest document that the filter length keeps"},
    {.key = "length.max_chars",
     .kind = OPTION_INT,
     .offset = AT(max_chars),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .unit = "characters",
     .help = "longest document that the filter length keeps; 0 is no limit"},
    {.key = "length.min_words",
     .kind = OPTION_INT,
     .offset = AT(min_words),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .unit = "words",
     .help = "fewest words, separated by white space, that the filter length keeps"},
    {.key = "length.max_words",
     .kind = OPTION_INT,
     .offset = AT(max_words),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .unit = "words",
     .help = "most words that the filter length keeps; 0 is no limit"},
};
enum { RULE_SHORT, RULE_LONG };
static const char *const rules[] = {"too-short", "too-long", NULL};

static status apply(filter_run *r, int *rule)
{
    const int64_t chars = filter_chars(r->text, r->count);
    const int64_t most = r->c->length.max_chars, most_words = r->c->length.max_words;
    if (chars < r->c->length.min_chars) *rule = RULE_SHORT;
    if (most > 0 && chars > most) *rule = RULE_LONG;
    if (*rule >= 0 || (r->c->length.min_words == 0 && most_words == 0)) return ST_OK;
    const filter_spans *words = NULL;
    TRY(filter_words(r, &words));
    if (words->count < r->c->length.min_words) *rule = RULE_SHORT;
    if (most_words > 0 && words->count > most_words) *rule = RULE_LONG;
    return ST_OK;
}

const data_filter data_filter_length = {.name = "length",
                                        .about = "drops documents that are too short or too long",
                                        .rows = rows,
                                        .row_count = COUNT_OF(rows),
                                        .rules = rules,
                                        .version = 1,
                                        .open = NULL,
                                        .close = NULL,
                                        .apply = apply};
