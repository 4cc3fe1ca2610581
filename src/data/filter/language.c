// Keeps documents in given languages, by rules: the script tells languages that have one of their
// own, and frequent short words tell those that share the Latin or the Cyrillic script.
//
// The score of a document is the share of its words that are frequent words of the language; plain
// prose has 0.3 to 0.5 of them. The rules know prose of a few sentences or more. To add a language:
// a row in `languages`.
#include "data/filter/family.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, language.field)
static const option rows[] = {
    {.key = "language.keep",
     .kind = OPTION_LIST,
     .offset = AT(keep),
     .default_text = "en",
     .help =
         "languages to keep: de, en, es, fr, it, nl, pl, pt, sv, ru, uk, el, he, ar, hi, th, ja, "
         "ko, zh"},
    {.key = "language.min_score",
     .kind = OPTION_REAL,
     .offset = AT(min_score),
     .default_text = "0.15",
     .max = 1,
     .help = "least share of a document's words that are frequent words of the language or, for "
             "languages with a script of their own, least share of letters in it"},
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
    const char *words; // frequent ones, between blanks; "" where the script decides
} language;

static const language languages[] = {
    {"en", LATIN,
     " the of and to in a is that it for was on are as with be by this not have from or at "
     "which but his they had you were he she we an all their there been has will would "
     "what if can more when who no so out up i my your me do its our them "},
    {"de", LATIN,
     " der die und in den von zu das mit sich des auf f\u00fcr ist im dem nicht ein eine als "
     "auch es an werden aus er hat dass sie nach wird bei einer um am sind noch wie einem "
     "\u00fcber einen so zum war haben nur oder aber vor zur bis mehr durch man ich wir "},
    {"fr", LATIN,
     " de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se "
     "ce il sont avec son ou elle aux nous cette vous je mais comme leur tout ses \u00e0 l' d' "
     "\u00eatre fait on sa y "},
    {"es", LATIN,
     " de la que el en y a los se del las un por con no una su para es al lo como m\u00e1s o "
     "pero sus le ha me si sin sobre este ya entre cuando todo esta ser son dos tambi\u00e9n "
     "fue hab\u00eda era muy "},
    {"it", LATIN,
     " di e il la che in a per un \u00e8 del non una le si con da dei al come sono i della "
     "nel alla pi\u00f9 gli anche ma lo ha o questo su se delle era io mi ci "},
    {"pt", LATIN,
     " de a o que e do da em um para com n\u00e3o uma os no se na por mais as dos como mas "
     "ao ele das \u00e0 seu sua ou quando muito nos j\u00e1 eu tamb\u00e9m s\u00f3 pelo pela at\u00e9 "
     "isso ela entre era foi s\u00e3o "},
    {"nl", LATIN,
     " de van een het en in is dat op te zijn met voor niet aan er om ook als dan maar bij "
     "uit nog door naar heeft hij wordt of tot je ik werd over ze die deze we hebben was "},
    {"pl", LATIN,
     " w i na z do si\u0119 nie jest to \u017ce o jak za od po przez co dla przy tym ale jego "
     "s\u0105 by\u0142 tak czy tylko jej mo\u017ce oraz ju\u017c kt\u00f3re kt\u00f3ry tego "},
    {"sv", LATIN,
     " och i att det som en p\u00e5 \u00e4r av f\u00f6r med den till inte har de om ett han men var "
     "jag sig fr\u00e5n vi s\u00e5 kan man n\u00e4r \u00e5r hon under ska vid "},
    {"ru", CYRILLIC,
     " \u0438 \u0432 \u043d\u0435 \u043d\u0430 \u044f \u0447\u0442\u043e \u0441 \u043e\u043d \u043a\u0430\u043a \u044d\u0442\u043e \u043f\u043e "
     "\u043d\u043e \u043e\u043d\u0438 \u043c\u044b \u0432\u0441\u0435 \u043e\u043d\u0430 \u0442\u0430\u043a \u0435\u0433\u043e \u0437\u0430 \u0431\u044b\u043b "
     "\u043e\u0442 \u0442\u043e \u0438\u0437 \u0430 \u043a \u0443 \u0436\u0435 \u0434\u043b\u044f \u043e \u0434\u043e "},
    {"uk", CYRILLIC,
     " \u0456 \u0432 \u043d\u0435 \u043d\u0430 \u0449\u043e \u0437 \u0442\u0430 \u0434\u043e \u0446\u0435 \u044f\u043a \u0443 "
     "\u0454 \u0430\u043b\u0435 \u0432\u0456\u043d \u0437\u0430 \u0432\u0456\u0434 \u043f\u0440\u043e \u0439\u043e\u0433\u043e "
     "\u0432\u043e\u043d\u0438 \u0439 \u0434\u043b\u044f \u0431\u0443\u043b\u043e \u044f\u043a\u0456 "},
    {"el", GREEK, ""},
    {"he", HEBREW, ""},
    {"ar", ARABIC, ""},
    {"hi", DEVANAGARI, ""},
    {"th", THAI, ""},
    {"ja", KANA, ""},
    {"ko", HANGUL, ""},
    {"zh", HAN, ""},
};

// The blocks of Unicode that these scripts have, [first, end).
static const struct {
    uint32_t first, end;
    script of;
} blocks[] = {
    {'A', 'Z' + 1, LATIN},  {'a', 'z' + 1, LATIN},      {0xc0, 0x250, LATIN},
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

// The script of that character; SCRIPTS: none of a language.
static script script_of(const uint8_t *c, int64_t left)
{
    const uint32_t character = character_of(c, left);
    for (int64_t i = 0; i < COUNT_OF(blocks); i++) {
        if (character >= blocks[i].first && character < blocks[i].end) return blocks[i].of;
    }
    return SCRIPTS;
}

static void count_scripts(const filter_run *r, int64_t counts[SCRIPTS + 1], int64_t *letters)
{
    memset(counts, 0, (SCRIPTS + 1) * sizeof(*counts));
    for (int64_t i = 0; i < r->count; i++) {
        const uint8_t c = (uint8_t)r->text[i];
        if ((c & 0xc0) == 0x80) continue;
        counts[script_of((const uint8_t *)r->text + i, r->count - i)]++;
    }
    *letters = 0;
    for (int i = 0; i < SCRIPTS; i++) *letters += counts[i];
}

// Writes the word between blanks, in lower case (ASCII only), without marks around it.
static bool spell(const char *word, int64_t count, char out[24])
{
    while (count > 0 && (uint8_t)word[count - 1] < 0x80 &&
           strchr(".,;:!?\"')]}", word[count - 1]) != NULL)
        count--;
    while (count > 0 && strchr("\"'([{", *word) != NULL) {
        word++;
        count--;
    }
    if (count == 0 || count > 20) return false;
    out[0] = ' ';
    for (int64_t i = 0; i < count; i++) {
        const char c = word[i];
        out[i + 1] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[count + 1] = ' ';
    out[count + 2] = 0;
    return true;
}

// The score of each language of the script, by its frequent words in the first words of the text.
static status score_words(filter_run *r, script of, double scores[])
{
    enum { WORDS = 2000 };
    const filter_spans *words = NULL;
    int64_t hits[COUNT_OF(languages)] = {0};
    char spelled[24];
    TRY(filter_words(r, &words));
    const int64_t n = min_i64(words->count, WORDS);
    for (int64_t i = 0; i < n; i++) {
        if (!spell(r->text + words->items[i].begin, words->items[i].count, spelled)) continue;
        for (int k = 0; k < COUNT_OF(languages); k++) {
            if (languages[k].script == of) hits[k] += strstr(languages[k].words, spelled) != NULL;
        }
    }
    for (int k = 0; k < COUNT_OF(languages); k++) {
        scores[k] = n > 0 ? (double)hits[k] / (double)n : 0.0;
    }
    return ST_OK;
}

static status find_language(filter_run *r, int *best, double *score)
{
    int64_t counts[SCRIPTS + 1], letters = 0;
    double scores[COUNT_OF(languages)] = {0};
    *best = -1;
    *score = 0.0;
    count_scripts(r, counts, &letters);
    if (letters == 0) return ST_OK;
    script most = LATIN;
    for (int i = 0; i < SCRIPTS; i++) {
        if (counts[i] > counts[most]) most = (script)i;
    }
    if (most == HAN && counts[KANA] * 10 > counts[HAN]) most = KANA; // Japanese writes both
    const bool by_words = most == LATIN || most == CYRILLIC;
    if (by_words) TRY(score_words(r, most, scores));
    for (int k = 0; k < COUNT_OF(languages); k++) {
        if (languages[k].script != most) continue;
        if (!by_words) {
            const int64_t own = counts[most] + (most == KANA ? counts[HAN] : 0);
            scores[k] = (double)own / (double)letters;
        }
        if (*best >= 0 && scores[k] <= *score) continue;
        *best = k;
        *score = scores[k];
    }
    return ST_OK;
}

static status open_state(const host *h, const filter_config *c, void **out)
{
    (void)h; // it reads no file
    *out = NULL;
    for (int64_t i = 0; i < c->language.keep.count; i++) {
        bool found = false;
        for (int k = 0; k < COUNT_OF(languages); k++) {
            found = found || strcmp(c->language.keep.items[i], languages[k].name) == 0;
        }
        if (!found) {
            return fail(ST_CONFIG_RANGE, "language.keep: the rules do not know \"%.20s\"",
                        c->language.keep.items[i]);
        }
    }
    return ST_OK;
}

static status apply(filter_run *r, int *rule)
{
    int best = -1;
    double score = 0.0;
    TRY(find_language(r, &best, &score));
    if (best < 0 || score < r->c->language.min_score) {
        *rule = RULE_UNSURE;
        return ST_OK;
    }
    *rule = RULE_OTHER;
    for (int64_t i = 0; i < r->c->language.keep.count; i++) {
        if (strcmp(r->c->language.keep.items[i], languages[best].name) == 0) *rule = -1;
    }
    return ST_OK;
}

const data_filter data_filter_language = {
    .name = "language",
    .about = "keeps documents in given languages, by their script and their frequent words",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = open_state,
    .close = NULL,
    .apply = apply};
