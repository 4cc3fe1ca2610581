// Quality rules of Gopher (Rae et al. 2021, arXiv:2112.11446, table A1).
#include "data/filter/family.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, gopher.field)
#define INT(k, f, def, u, h)                                                                 \
    {                                                                                        \
        .key = (k), .kind = OPTION_INT, .offset = AT(f), .default_text = (def), .max = 1e12, \
        .unit = (u), .help = (h)                                                             \
    }
#define SHARE(k, f, def, h)                                                                   \
    {                                                                                         \
        .key = (k), .kind = OPTION_REAL, .offset = AT(f), .default_text = (def), .max = 1000, \
        .help = (h)                                                                           \
    }
static const option rows[] = {
    INT("gopher.min_words", min_words, "50", "words", "fewest words"),
    INT("gopher.max_words", max_words, "100000", "words", "most words"),
    SHARE("gopher.min_word_chars", min_word_chars, "3",
          "least mean length of words, in characters"),
    SHARE("gopher.max_word_chars", max_word_chars, "10",
          "largest mean length of words, in characters"),
    SHARE("gopher.max_symbols", max_symbols, "0.1",
          "largest ratio of \"#\" or of ellipses to words"),
    SHARE("gopher.max_bullets", max_bullets, "0.9",
          "largest share of lines that begin with a bullet"),
    SHARE("gopher.max_ellipses", max_ellipses, "0.3",
          "largest share of lines that end with an ellipsis"),
    SHARE("gopher.min_alphabetic", min_alphabetic, "0.8",
          "least share of words that hold a letter"),
    INT("gopher.min_stop_words", min_stop_words, "2", "words",
        "fewest of the words the, be, to, of, and, that, have, with"),
};
enum {
    RULE_FEW,
    RULE_MANY,
    RULE_LENGTH,
    RULE_SYMBOLS,
    RULE_BULLETS,
    RULE_ELLIPSES,
    RULE_LETTERS,
    RULE_STOP
};
static const char *const rules[] = {"too-few-words", "too-many-words", "word-length",
                                    "symbols",       "bullets",        "ellipses",
                                    "not-words",     "no-stop-words",  NULL};

static bool has_letter(const char *word, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t c = (uint8_t)word[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0xc3) return true;
    }
    return false;
}

// Number of the stop word, or -1. Punctuation around it does not count.
static int stop_word(const char *word, int64_t count)
{
    static const char *const stops[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    char lower[8];
    while (count > 0 && !has_letter(word + count - 1, 1)) count--;
    while (count > 0 && !has_letter(word, 1)) {
        word++;
        count--;
    }
    if (count < 2 || count > 4) return -1;
    for (int64_t i = 0; i < count; i++) lower[i] = (char)(word[i] | 0x20);
    for (int i = 0; i < COUNT_OF(stops); i++) {
        if ((int64_t)strlen(stops[i]) == count && memcmp(lower, stops[i], (size_t)count) == 0)
            return i;
    }
    return -1;
}

static int64_t count_of(const char *bytes, int64_t count, const char *part)
{
    const size_t n = strlen(part);
    int64_t found = 0;
    for (const char *at = bytes, *end = bytes + count; at < end; at += n, found++) {
        at = memmem(at, (size_t)(end - at), part, n);
        if (at == NULL) break;
    }
    return found;
}

static int rule_of_words(const filter_run *r, const filter_spans *words)
{
    int64_t chars = 0, with_letters = 0;
    unsigned stops = 0;
    for (int64_t i = 0; i < words->count; i++) {
        const char *word = r->text + words->items[i].begin;
        const int64_t count = words->items[i].count;
        chars += filter_chars(word, count);
        with_letters += has_letter(word, count);
        const int stop = stop_word(word, count);
        if (stop >= 0) stops |= 1u << stop;
    }
    const double n = (double)words->count;
    const double mean = (double)chars / n;
    if (mean < r->c->gopher.min_word_chars || mean > r->c->gopher.max_word_chars)
        return RULE_LENGTH;
    const double hashes = (double)count_of(r->text, r->count, "#");
    const double dots =
        (double)(count_of(r->text, r->count, "...") + count_of(r->text, r->count, "\u2026"));
    if (hashes / n > r->c->gopher.max_symbols || dots / n > r->c->gopher.max_symbols)
        return RULE_SYMBOLS;
    if ((double)with_letters / n < r->c->gopher.min_alphabetic) return RULE_LETTERS;
    return __builtin_popcount(stops) < r->c->gopher.min_stop_words ? RULE_STOP : -1;
}

static bool begins_with_bullet(const char *line, int64_t count)
{
    static const char *const bullets[] = {"\u2022", "-", "*", "\u25cf", "\u25aa", "\u2023"};
    while (count > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        count--;
    }
    for (int i = 0; i < COUNT_OF(bullets); i++) {
        const int64_t n = (int64_t)strlen(bullets[i]);
        if (count >= n && memcmp(line, bullets[i], (size_t)n) == 0) return true;
    }
    return false;
}

static bool ends_with(const char *line, int64_t count, const char *end)
{
    const int64_t n = (int64_t)strlen(end);
    while (count > 0 && (line[count - 1] == ' ' || line[count - 1] == '\t')) count--;
    return count >= n && memcmp(line + count - n, end, (size_t)n) == 0;
}

static int rule_of_lines(const filter_run *r, const filter_spans *lines)
{
    int64_t bullets = 0, ellipses = 0, all = 0;
    for (int64_t i = 0; i < lines->count; i++) {
        const char *line = r->text + lines->items[i].begin;
        const int64_t count = lines->items[i].count;
        if (count == 0) continue;
        all++;
        bullets += begins_with_bullet(line, count);
        ellipses += ends_with(line, count, "...") || ends_with(line, count, "\u2026");
    }
    if (all > 0 && (double)bullets / (double)all > r->c->gopher.max_bullets) return RULE_BULLETS;
    return all > 0 && (double)ellipses / (double)all > r->c->gopher.max_ellipses ? RULE_ELLIPSES
                                                                                 : -1;
}

static status apply(filter_run *r, int *rule)
{
    const filter_spans *words = NULL, *lines = NULL;
    TRY(filter_words(r, &words));
    if (words->count < r->c->gopher.min_words || words->count == 0) *rule = RULE_FEW;
    if (words->count > r->c->gopher.max_words) *rule = RULE_MANY;
    if (*rule >= 0) return ST_OK;
    *rule = rule_of_words(r, words);
    if (*rule >= 0) return ST_OK;
    TRY(filter_lines(r, &lines));
    *rule = rule_of_lines(r, lines);
    return ST_OK;
}

const data_filter data_filter_gopher = {.name = "gopher",
                                        .about = "drops documents by the quality rules of Gopher",
                                        .rows = rows,
                                        .row_count = COUNT_OF(rows),
                                        .rules = rules,
                                        .version = 1,
                                        .open = NULL,
                                        .close = NULL,
                                        .apply = apply};
