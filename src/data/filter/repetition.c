// Repetition rules of Gopher (Rae et al. 2021, arXiv:2112.11446, table A1): lines, paragraphs and
// runs of words that repeat within a document.
#include "data/filter/family.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, repetition.field)
#define SHARE(k, f, def, h)                                                                \
    {                                                                                      \
        .key = (k), .kind = OPTION_REAL, .offset = AT(f), .default_text = (def), .max = 1, \
        .help = (h)                                                                        \
    }
static const option rows[] = {
    SHARE("repetition.max_lines", max_lines, "0.3", "largest share of lines that repeat one"),
    SHARE("repetition.max_line_chars", max_line_chars, "0.2",
          "largest share of bytes in lines that repeat one"),
    SHARE("repetition.max_paragraphs", max_paragraphs, "0.3",
          "largest share of paragraphs that repeat one"),
    SHARE("repetition.max_paragraph_chars", max_paragraph_chars, "0.2",
          "largest share of bytes in paragraphs that repeat one"),
    SHARE("repetition.max_top_2gram", top[0], "0.2",
          "largest share of bytes in the most frequent run of 2 words"),
    SHARE("repetition.max_top_3gram", top[1], "0.18", "the same of 3 words"),
    SHARE("repetition.max_top_4gram", top[2], "0.16", "the same of 4 words"),
    SHARE("repetition.max_5gram", repeated[0], "0.15",
          "largest share of bytes in runs of 5 words that repeat one"),
    SHARE("repetition.max_6gram", repeated[1], "0.14", "the same of 6 words"),
    SHARE("repetition.max_7gram", repeated[2], "0.13", "the same of 7 words"),
    SHARE("repetition.max_8gram", repeated[3], "0.12", "the same of 8 words"),
    SHARE("repetition.max_9gram", repeated[4], "0.11", "the same of 9 words"),
    SHARE("repetition.max_10gram", repeated[5], "0.1", "the same of 10 words"),
};
enum { RULE_LINES, RULE_LINE_CHARS, RULE_PARAGRAPHS, RULE_PARAGRAPH_CHARS, RULE_TOP, RULE_RUNS };
static const char *const rules[] = {"lines",     "line-chars", "paragraphs", "paragraph-chars",
                                    "top-ngram", "ngrams",     NULL};

typedef struct repeats {
    int64_t all, again, bytes, again_bytes;
} repeats;

static void count_span(filter_run *r, const char *bytes, int64_t count, repeats *out)
{
    const int64_t before = filter_hashes_count(r, hash64(bytes, count, 0));
    out->all++;
    out->bytes += count;
    out->again += before > 0;
    out->again_bytes += before > 0 ? count : 0;
}

static status rule_of_lines(filter_run *r, int *rule)
{
    const filter_spans *lines = NULL;
    repeats l = {0}, p = {0};
    TRY(filter_lines(r, &lines));
    TRY(filter_hashes_clear(r, lines->count));
    for (int64_t i = 0; i < lines->count; i++) {
        const filter_span *s = &lines->items[i];
        if (s->count > 0) count_span(r, r->text + s->begin, s->count, &l);
    }
    TRY(filter_hashes_clear(r, lines->count));
    for (int64_t i = 0; i < lines->count;) { // paragraphs: lines up to an empty one
        const int64_t begin = i;
        while (i < lines->count && lines->items[i].count > 0) i++;
        if (i > begin) {
            const filter_span *first = &lines->items[begin], *last = &lines->items[i - 1];
            count_span(r, r->text + first->begin, last->begin + last->count - first->begin, &p);
        }
        i += i == begin || i < lines->count;
    }
    const double all = (double)r->count;
    const filter_config *c = r->c;
    if ((double)l.again > c->repetition.max_lines * (double)l.all) {
        *rule = RULE_LINES;
    } else if ((double)p.again > c->repetition.max_paragraphs * (double)p.all) {
        *rule = RULE_PARAGRAPHS;
    } else if ((double)l.again_bytes > c->repetition.max_line_chars * all) {
        *rule = RULE_LINE_CHARS;
    } else if ((double)p.again_bytes > c->repetition.max_paragraph_chars * all) {
        *rule = RULE_PARAGRAPH_CHARS;
    }
    return ST_OK;
}

// The hash of words [i, i + n); wordwise, so that white space between them does not count.
static uint64_t run_hash(const uint64_t *words, int64_t i, int64_t n)
{
    uint64_t hash = 0;
    for (int64_t k = 0; k < n; k++)
        hash = (hash ^ words[i + k]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 31);
    return hash;
}

static int64_t run_bytes(const filter_spans *words, int64_t i, int64_t n)
{
    const filter_span *last = &words->items[i + n - 1];
    return last->begin + last->count - words->items[i].begin;
}

// The most frequent run of n words: its bytes times its count.
static int64_t top_bytes(filter_run *r, const filter_spans *words, const uint64_t *hashes,
                         int64_t n)
{
    int64_t best = 0, best_bytes = 0;
    for (int64_t i = 0; i + n <= words->count; i++) {
        const int64_t times = filter_hashes_count(r, run_hash(hashes, i, n)) + 1;
        const int64_t bytes = run_bytes(words, i, n);
        if (times > best || (times == best && bytes > best_bytes)) {
            best = times;
            best_bytes = bytes;
        }
    }
    return best > 1 ? best * best_bytes : 0;
}

// Bytes in runs of n words that were there before; a byte counts once.
static int64_t repeated_bytes(filter_run *r, const filter_spans *words, const uint64_t *hashes,
                              int64_t n)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i + n <= words->count;) {
        const bool again = filter_hashes_count(r, run_hash(hashes, i, n)) > 0;
        if (again) bytes += run_bytes(words, i, n);
        i += again ? n : 1;
    }
    return bytes;
}

static status rule_of_runs(filter_run *r, int *rule)
{
    const filter_spans *words = NULL;
    TRY(filter_words(r, &words));
    uint64_t *hashes = malloc((size_t)max_i64(1, words->count) * sizeof(*hashes));
    if (hashes == NULL)
        return fail(ST_NO_MEMORY, "no memory for %lld words", (long long)words->count);
    for (int64_t i = 0; i < words->count; i++) {
        hashes[i] = hash64(r->text + words->items[i].begin, words->items[i].count, 0);
    }
    status st = ST_OK;
    for (int64_t n = 2; n <= 10 && *rule < 0 && st == ST_OK; n++) {
        st = filter_hashes_clear(r, words->count);
        if (st != ST_OK) break;
        const bool is_top = n <= 4;
        const int64_t bytes =
            is_top ? top_bytes(r, words, hashes, n) : repeated_bytes(r, words, hashes, n);
        const double most = is_top ? r->c->repetition.top[n - 2] : r->c->repetition.repeated[n - 5];
        if ((double)bytes > most * (double)r->count) *rule = is_top ? RULE_TOP : RULE_RUNS;
    }
    free(hashes);
    return st;
}

static status apply(filter_run *r, int *rule)
{
    TRY(rule_of_lines(r, rule));
    return *rule < 0 ? rule_of_runs(r, rule) : ST_OK;
}

const data_filter data_filter_repetition = {
    .name = "repetition",
    .about = "drops documents that repeat their own lines, paragraphs or runs of words, by the "
             "rules of Gopher",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = NULL,
    .close = NULL,
    .apply = apply};
