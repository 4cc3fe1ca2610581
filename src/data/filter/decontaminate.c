// Drops documents that hold a run of words of an evaluation set (GPT-3, Brown et al. 2020,
// arXiv:2005.14165, appendix C): n words in a row, in lower case and without punctuation.
//
// The evaluation files are read once for all threads: texts as one document a line, JSON lines with
// all their strings. An item shorter than n words counts as one run of its own length if it has at
// least decontaminate.min_words.
#include "base/fault.h"
#include "data/filter/family.h"
#include "data/reader.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(filter_config, decontaminate.field)
static const option rows[] = {
    {.key = "decontaminate.files",
     .kind = OPTION_PATHS,
     .offset = AT(files),
     .help = "evaluation sets whose items no document may hold: texts or JSON lines"},
    {.key = "decontaminate.ngram",
     .kind = OPTION_INT,
     .offset = AT(ngram),
     .default_text = "13",
     .min = 4,
     .max = 64,
     .unit = "words",
     .help = "length of a run of words that a document and an item share"},
    {.key = "decontaminate.min_words",
     .kind = OPTION_INT,
     .offset = AT(min_words),
     .default_text = "8",
     .min = 4,
     .max = 64,
     .unit = "words",
     .help = "shortest item that counts although it is shorter than a run"},
};
enum { RULE_OVERLAP };
static const char *const rules[] = {"overlap", NULL};

enum { NGRAM_MAX = 64 };
#define POWER UINT64_C(0x9e3779b97f4a7c15)

// A set of hashes; its lengths are the runs that were added.
typedef struct eval_set {
    uint64_t *hashes; // 0: free
    int64_t count, capacity;
    bool lengths[NGRAM_MAX + 1];
} eval_set;

static status set_add(eval_set *s, uint64_t hash)
{
    if (2 * (s->count + 1) > s->capacity) {
        eval_set grown = {.capacity = max_i64(1024, 2 * s->capacity)};
        grown.hashes = calloc((size_t)grown.capacity, sizeof(*grown.hashes));
        if (grown.hashes == NULL) return fail(ST_NO_MEMORY, "no memory for the evaluation sets");
        for (int64_t i = 0; i < s->capacity; i++) {
            if (s->hashes[i] == 0) continue;
            uint64_t at = s->hashes[i] & (uint64_t)(grown.capacity - 1);
            while (grown.hashes[at] != 0) at = (at + 1) & (uint64_t)(grown.capacity - 1);
            grown.hashes[at] = s->hashes[i];
        }
        free(s->hashes);
        s->hashes = grown.hashes;
        s->capacity = grown.capacity;
    }
    if (hash == 0) hash = 1;
    uint64_t at = hash & (uint64_t)(s->capacity - 1);
    while (s->hashes[at] != 0 && s->hashes[at] != hash) at = (at + 1) & (uint64_t)(s->capacity - 1);
    s->count += s->hashes[at] == 0;
    s->hashes[at] = hash;
    return ST_OK;
}

static bool set_has(const eval_set *s, uint64_t hash)
{
    if (s->capacity == 0) return false;
    if (hash == 0) hash = 1;
    uint64_t at = hash & (uint64_t)(s->capacity - 1);
    while (s->hashes[at] != 0 && s->hashes[at] != hash) at = (at + 1) & (uint64_t)(s->capacity - 1);
    return s->hashes[at] != 0;
}

// The last words of a text: their hashes in a ring, so that a run is hashed from its end.
typedef struct word_ring {
    uint64_t words[NGRAM_MAX];
    int64_t count; // words so far
    uint64_t word; // hash of the word under way
    int64_t length;
} word_ring;

// Takes one byte; true when a word has ended.
static bool ring_take(word_ring *w, int c)
{
    const bool is_letter =
        c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter) {
        const uint64_t lower = (uint64_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        w->word = (w->word + lower) * POWER;
        w->word ^= w->word >> 29;
        w->length++;
        return false;
    }
    const bool is_blank = c < 0 || c == ' ' || (c >= '\t' && c <= '\r');
    if (!is_blank || w->length == 0) return false;
    w->words[w->count++ % NGRAM_MAX] = w->word;
    w->word = 0;
    w->length = 0;
    return true;
}

static uint64_t ring_run(const word_ring *w, int64_t n)
{
    uint64_t hash = (uint64_t)n;
    for (int64_t k = w->count - n; k < w->count; k++) {
        hash = (hash ^ w->words[k % NGRAM_MAX]) * POWER;
        hash ^= hash >> 32;
    }
    return hash;
}

static status add_item(eval_set *s, const filter_config *c, const char *bytes, int64_t count)
{
    word_ring w = {.count = 0};
    const int64_t n = c->decontaminate.ngram;
    bool has_run = false;
    for (int64_t i = 0; i <= count; i++) {
        if (!ring_take(&w, i < count ? (uint8_t)bytes[i] : -1) || w.count < n) continue;
        TRY(set_add(s, ring_run(&w, n)));
        s->lengths[n] = has_run = true;
    }
    if (has_run || w.count < c->decontaminate.min_words) return ST_OK;
    s->lengths[w.count] = true;
    return set_add(s, ring_run(&w, w.count));
}

// Adds the strings of a line of JSON, or the line. Escapes end a string only where a quote does;
// escaped characters count as punctuation, except line ends, which are blanks.
static status add_line(eval_set *s, const filter_config *c, char *line, int64_t count)
{
    int64_t begin = -1;
    int64_t first = 0;
    while (first < count && (line[first] == ' ' || line[first] == '\t')) first++;
    if (first == count) return ST_OK;
    if (line[first] != '{' && line[first] != '[') return add_item(s, c, line, count);
    for (int64_t i = first; i < count; i++) {
        if (line[i] == '\\' && begin >= 0 && i + 1 < count) {
            const char next = line[i + 1];
            line[i] = next == 'n' || next == 't' || next == 'r' ? ' ' : '\'';
            line[i + 1] = next == 'n' || next == 't' || next == 'r' ? ' ' : '\'';
            i++;
            continue;
        }
        if (line[i] != '"') continue;
        if (begin >= 0) TRY(add_item(s, c, line + begin, i - begin));
        begin = begin >= 0 ? -1 : i + 1;
    }
    return ST_OK;
}

static status read_lines(eval_set *s, const filter_config *c, data_reader *reader, const char *path)
{
    enum { LINE_MAX_BYTES = 1 << 24, PIECE = 1 << 16 };
    data_bytes line = {0};
    char piece[PIECE];
    status st = ST_OK;
    for (int64_t got = 1; st == ST_OK && got > 0;) {
        st = data_reader_read(reader, piece, PIECE, &got);
        for (int64_t at = 0; st == ST_OK && at < got;) {
            const char *newline = memchr(piece + at, '\n', (size_t)(got - at));
            const int64_t end = newline != NULL ? newline - piece : got;
            st = data_bytes_add(&line, piece + at, end - at);
            at = end + 1;
            if (st == ST_OK && line.count > LINE_MAX_BYTES) {
                st = fail(ST_DATA, "%s: a line of more than %d bytes; an item a line expected",
                          path, LINE_MAX_BYTES);
            }
            if (st != ST_OK || newline == NULL) continue;
            st = add_line(s, c, line.items, line.count);
            line.count = 0;
        }
    }
    if (st == ST_OK && line.count > 0) st = add_line(s, c, line.items, line.count);
    data_bytes_deinit(&line);
    return st;
}

static void close_state(void *state)
{
    eval_set *s = state;
    if (s == NULL) return;
    free(s->hashes);
    free(s);
}

static status add_file(eval_set *s, const host *h, const filter_config *c, const char *path)
{
    data_reader *reader = NULL;
    TRY(data_reader_open(h, path, &reader));
    const status st = read_lines(s, c, reader, path);
    data_reader_close(reader);
    return st;
}

static status open_state(const host *h, const filter_config *c, void **out)
{
    const option_list *files = &c->decontaminate.files;
    if (files->count == 0) {
        return fail(ST_CONFIG_KEY, "the filter decontaminate needs decontaminate.files");
    }
    eval_set *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for the evaluation sets");
    for (int64_t i = 0; i < files->count; i++) {
        const status st = add_file(s, h, c, files->items[i]);
        if (st == ST_OK) continue;
        close_state(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

static status apply(filter_run *r, int *rule)
{
    const eval_set *s = r->state;
    word_ring w = {.count = 0};
    for (int64_t i = 0; i <= r->count && *rule < 0; i++) {
        if (!ring_take(&w, i < r->count ? (uint8_t)r->text[i] : -1)) continue;
        for (int64_t n = 4; n <= NGRAM_MAX && n <= w.count; n++) {
            if (s->lengths[n] && set_has(s, ring_run(&w, n))) *rule = RULE_OVERLAP;
        }
    }
    return ST_OK;
}

const data_filter data_filter_decontaminate = {
    .name = "decontaminate",
    .about = "drops documents that hold a run of words of an evaluation set",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = open_state,
    .close = close_state,
    .apply = apply};
