// Keeps documents in given languages. The script tells languages that have one of their own; those
// that share the Latin or the Cyrillic script are told apart by a language model: a distribution
// over trigrams of letters for each of them (share/language/trigrams.txt, which
// tools/make_language_model.py trains).
//
// The model's answer is the language under which the text's trigrams take the fewest bits. The
// score is its probability among the languages of the script, for 64 trigrams of the text's
// mean: more of them would make every answer certain. A text in no language that the model knows
// has few trigrams that are frequent in any (`language.min_known`). To add a language: a row in
// `languages`, and a line in the tool.
#include "data/filter/family.h"
#include "data/filter/trigrams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, language.field)
static const option rows[] = {
    {.key = "language.keep",
     .kind = OPTION_LIST,
     .offset = AT(keep),
     .default_text = "en",
     .help = "languages to keep: en, ca, cs, da, de, es, fi, fr, hr, hu, id, it, lv, nb, nl, pl, "
             "pt, ro, sv, tr, vi, ru, uk, sr, sk, sl, lt, gl, bg, el, he, ar, hi, th, ja, ko, zh"},
    {.key = "language.min_score",
     .kind = OPTION_REAL,
     .offset = AT(min_score),
     .default_text = "0.65",
     .max = 1,
     .help = "least probability of the language among those of its script or, for languages "
             "with a script of their own, least share of letters in it"},
    {.key = "language.min_known",
     .kind = OPTION_REAL,
     .offset = AT(min_known),
     .default_text = "0.4",
     .max = 1,
     .help = "least share of a document's trigrams of letters that are frequent in any language "
             "with the Latin or the Cyrillic script; prose has 0.5 to 0.95, random letters 0.2"},
};
enum { RULE_OTHER, RULE_UNSURE };
static const char *const rules[] = {"other", "unsure", NULL};

typedef enum script {
    LATIN,
    CYRILLIC,
    GREEK,
    HEBREW,
    ARABIC,
    DEVANAGARI,
    THAI,
    KANA,
    HANGUL,
    HAN,
    SCRIPTS
} script;

typedef struct language {
    const char *name;
    script script;
} language;

static const language languages[] = {
    {"en", LATIN},  {"ca", LATIN},    {"cs", LATIN},      {"da", LATIN},    {"de", LATIN},
    {"es", LATIN},  {"fi", LATIN},    {"fr", LATIN},      {"hr", LATIN},    {"hu", LATIN},
    {"id", LATIN},  {"it", LATIN},    {"lv", LATIN},      {"nb", LATIN},    {"nl", LATIN},
    {"pl", LATIN},  {"pt", LATIN},    {"ro", LATIN},      {"sv", LATIN},    {"tr", LATIN},
    {"vi", LATIN},  {"ru", CYRILLIC}, {"uk", CYRILLIC},   {"sr", CYRILLIC}, {"sk", LATIN},
    {"sl", LATIN},  {"lt", LATIN},    {"gl", LATIN},      {"bg", CYRILLIC}, {"el", GREEK},
    {"he", HEBREW}, {"ar", ARABIC},   {"hi", DEVANAGARI}, {"th", THAI},     {"ja", KANA},
    {"ko", HANGUL}, {"zh", HAN},
};

// The blocks of Unicode that these scripts have, [first, end).
static const struct {
    uint32_t first, end;
    script of;
} blocks[] = {
    {'A', 'Z' + 1, LATIN},  {'a', 'z' + 1, LATIN},      {0xc0, 0xd7, LATIN},
    {0xd8, 0xf7, LATIN},    {0xf8, 0x250, LATIN},       {0x1e00, 0x1f00, LATIN},
    {0x370, 0x400, GREEK},  {0x400, 0x530, CYRILLIC},   {0x590, 0x600, HEBREW},
    {0x600, 0x780, ARABIC}, {0x900, 0x980, DEVANAGARI}, {0xe00, 0xe80, THAI},
    {0x3040, 0x3100, KANA}, {0x4e00, 0xa000, HAN},      {0xac00, 0xd7b0, HANGUL},
};

// The number of the character that begins with these bytes; 0: it has more than three, or is cut.
static uint32_t character_of(const uint8_t *c, int64_t left)
{
    if (*c < 0x80) return *c;
    if (left < 2 || *c < 0xc3) return 0;
    if (*c < 0xe0) return (uint32_t)(*c & 0x1f) << 6 | (c[1] & 0x3f);
    if (left < 3 || *c >= 0xf0) return 0;
    return (uint32_t)(*c & 0xf) << 12 | (uint32_t)(c[1] & 0x3f) << 6 | (c[2] & 0x3f);
}

// The script of a character; SCRIPTS: none of a language.
static script script_of(uint32_t character)
{
    if (character < 'A') return SCRIPTS;
    for (int64_t i = 0; i < COUNT_OF(blocks); i++) {
        if (character >= blocks[i].first && character < blocks[i].end) return blocks[i].of;
    }
    return SCRIPTS;
}

static void count_scripts(const filter_run *r, int64_t counts[SCRIPTS + 1], int64_t *letters)
{
    memset(counts, 0, (SCRIPTS + 1) * sizeof(*counts));
    for (int64_t i = 0; i < r->count; i++) {
        const uint8_t *c = (const uint8_t *)r->text + i;
        if ((*c & 0xc0) != 0x80) counts[script_of(character_of(c, r->count - i))]++;
    }
    *letters = 0;
    for (int i = 0; i < SCRIPTS; i++) *letters += counts[i];
}

// ---- the language model -------------------------------------------------------------------------

typedef struct found {
    int best; // of `languages`; -1: none
    double score, known;
} found;

// Adds up the bits of the first trigrams: runs of letters with a blank before, between and behind.
static int64_t sum_trigrams(const filter_run *r, const trigrams *t, int64_t sums[], int64_t *known)
{
    enum { TRIGRAMS_MAX = 4000 };
    uint32_t last = ' ', before = 0;
    int64_t count = 0;
    *known = 0;
    for (int64_t i = 0; i <= r->count && count < TRIGRAMS_MAX; i++) {
        const uint8_t *c = (const uint8_t *)r->text + i;
        if (i < r->count && (*c & 0xc0) == 0x80) continue;
        uint32_t this = i < r->count ? character_of(c, r->count - i) : ' ';
        const script of = script_of(this);
        this = of == LATIN || of == CYRILLIC ? trigrams_lower(this) : ' ';
        if (this == ' ' && last == ' ') continue;
        if (before != 0) {
            *known += trigrams_add(t, before, last, this, sums);
            count++;
        }
        before = last;
        last = this;
    }
    return count;
}

static void find_by_model(const filter_run *r, const trigrams *t, script of, found *out)
{
    enum { EVIDENCE = 64 };
    int64_t sums[TRIGRAMS_LANGUAGES] = {0}, known = 0;
    const int64_t count = sum_trigrams(r, t, sums, &known);
    if (count == 0) return;
    double others = 0.0;
    for (int k = 0; k < COUNT_OF(languages); k++) {
        if (languages[k].script != of) continue;
        if (out->best < 0 || sums[k] < sums[out->best]) out->best = k;
    }
    for (int k = 0; k < COUNT_OF(languages); k++) {
        if (languages[k].script != of) continue;
        const double bits = (double)(sums[k] - sums[out->best]) / (double)count / TRIGRAMS_PER_BIT;
        others += exp2(-bits * (double)min_i64(count, EVIDENCE));
    }
    out->score = 1.0 / others;
    out->known = (double)known / (double)count;
}

static void find_language(const filter_run *r, const trigrams *t, found *out)
{
    int64_t counts[SCRIPTS + 1], letters = 0;
    *out = (found){.best = -1};
    count_scripts(r, counts, &letters);
    if (letters == 0) return;
    script most = LATIN;
    for (int i = 0; i < SCRIPTS; i++) {
        if (counts[i] > counts[most]) most = (script)i;
    }
    if (most == HAN && counts[KANA] * 10 > counts[HAN]) most = KANA; // Japanese writes both
    if (most == LATIN || most == CYRILLIC) {
        find_by_model(r, t, most, out);
        return;
    }
    for (int k = 0; k < COUNT_OF(languages); k++) {
        if (languages[k].script == most) out->best = k;
    }
    const int64_t own = counts[most] + (most == KANA ? counts[HAN] : 0);
    out->score = (double)own / (double)letters;
    out->known = 1.0;
}

// ---- the filter ---------------------------------------------------------------------------------

static status open_state(const host *h, const filter_config *c, void **out)
{
    (void)h; // the model is in the program
    for (int64_t i = 0; i < c->language.keep.count; i++) {
        bool known = false;
        for (int k = 0; k < COUNT_OF(languages); k++) {
            known = known || strcmp(c->language.keep.items[i], languages[k].name) == 0;
        }
        if (!known) {
            return fail(ST_CONFIG_RANGE, "language.keep: the filter does not know \"%.20s\"",
                        c->language.keep.items[i]);
        }
    }
    const char *names[COUNT_OF(languages)];
    for (int k = 0; k < COUNT_OF(languages); k++) names[k] = languages[k].name;
    trigrams *t = NULL;
    TRY(trigrams_open(names, TRIGRAMS_LANGUAGES, &t));
    *out = t;
    return ST_OK;
}

static void close_state(void *state)
{
    trigrams_close(state);
}

static status apply(filter_run *r, int *rule)
{
    found f;
    find_language(r, r->state, &f);
    if (f.best < 0 || f.score < r->c->language.min_score || f.known < r->c->language.min_known) {
        *rule = RULE_UNSURE;
        return ST_OK;
    }
    *rule = RULE_OTHER;
    for (int64_t i = 0; i < r->c->language.keep.count; i++) {
        if (strcmp(r->c->language.keep.items[i], languages[f.best].name) == 0) *rule = -1;
    }
    return ST_OK;
}

const data_filter data_filter_language = {
    .name = "language",
    .about = "keeps documents in given languages, by their script and a model of their letters",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 3,
    .open = open_state,
    .close = close_state,
    .apply = apply};
