// The words of the texts as units: cut where a character has no piece, and where they are long.
#include "data/tokenizer/train/train_pieces.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { POINTS = 0x110000 };

// Characters beyond this part of all occurrences get no piece; their bytes are tokens in any case.
// The value is SentencePiece's.
static const double coverage = 0.9995;

// The characters that spell the tokens of bytes and the unknown token, so that a text that spells
// one of those is a text.
static const char always[] = "<0x123456789ABCDEF>unk";

status train_no_memory(void)
{
    return fail(ST_NO_MEMORY, "no memory to train a tokenizer; give it fewer texts");
}

typedef struct character {
    int64_t count;
    int32_t point;
} character;

static int compare_counts(const void *x, const void *y)
{
    const character *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return a->point < b->point ? -1 : a->point > b->point;
}

static int compare_points(const void *x, const void *y)
{
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return a < b ? -1 : a > b;
}

static int64_t count_points(const train_words *w, int64_t *counts)
{
    int64_t all = 0;
    for (int64_t i = 0; w->slots != NULL && i <= w->mask; i++) {
        const train_word *word = &w->slots[i];
        if (word->hash == 0) continue;
        const uint8_t *bytes = (const uint8_t *)w->bytes.items + word->at;
        for (int64_t at = 0; at < word->bytes;) {
            uint32_t point = 0;
            bool torn = false;
            const int length = utf8_next(bytes + at, word->bytes - at, &point, &torn);
            ASSERT(length > 0);
            at += length;
            if (point == 0) continue; // separates units
            counts[point] += word->count;
            all += word->count;
        }
    }
    return all;
}

// counts[p] becomes 1 for characters that have a piece, else 0.
static status choose_characters(int64_t *counts, int64_t all, int64_t most, train_units *u)
{
    int64_t n = 0, sum = 0;
    character *list = calloc(POINTS, sizeof(*list));
    if (list == NULL) return train_no_memory();
    for (const char *c = always; *c != 0; c++) counts[(uint8_t)*c] = INT64_MAX; // the first ones
    for (int32_t p = 1; p < POINTS; p++) {
        if (counts[p] > 0) list[n++] = (character){.count = counts[p], .point = p};
    }
    qsort(list, (size_t)n, sizeof(*list), compare_counts);
    memset(counts, 0, POINTS * sizeof(*counts));
    status st = ST_OK;
    for (int64_t i = 0; i < n && st == ST_OK; i++) {
        const bool is_always = list[i].count == INT64_MAX;
        if (!is_always && (i >= most || (double)sum >= coverage * (double)all)) break;
        if (!is_always) sum += list[i].count;
        counts[list[i].point] = 1;
        st = data_ids_add(&u->characters_kept, &list[i].point, 1);
    }
    free(list);
    if (st == ST_OK) {
        qsort(u->characters_kept.items, (size_t)u->characters_kept.count, sizeof(int32_t),
              compare_points);
    }
    return st;
}

static status add_unit(train_units *u, const uint8_t *bytes, int64_t count, int64_t times)
{
    if (count == 0) return ST_OK;
    if (u->count == u->capacity) {
        const int64_t grown = max_i64(1 << 12, 2 * u->capacity);
        train_unit *moved = realloc(u->items, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return train_no_memory();
        u->items = moved;
        u->capacity = grown;
    }
    if (u->text.count + count + 1 >= INT32_MAX) {
        return fail(ST_UNSUPPORTED,
                    "the different words of the texts have more than 2 GiB; give fewer texts");
    }
    u->items[u->count++] =
        (train_unit){.count = times, .at = (int32_t)u->text.count, .bytes = (int32_t)count};
    TRY(data_bytes_add(&u->text, bytes, count));
    return data_bytes_add(&u->text, "", 1);
}

static status add_word(train_units *u, const uint8_t *word, int64_t bytes, int64_t times,
                       const int64_t *kept)
{
    int64_t begin = 0, characters = 0;
    for (int64_t at = 0; at < bytes;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next(word + at, bytes - at, &point, &torn);
        if (kept[point] == 0 || characters == UNIT_CHARACTERS_MAX) {
            TRY(add_unit(u, word + begin, at - begin, times));
            begin = kept[point] == 0 ? at + length : at;
            characters = 0;
        }
        if (kept[point] != 0) {
            characters++;
            u->characters += times;
        }
        at += length;
    }
    return add_unit(u, word + begin, bytes - begin, times);
}

// The characters stand at the front of the text, each on its own, with no occurrence of that unit.
static status add_characters(train_units *u)
{
    for (int64_t i = 0; i < u->characters_kept.count; i++) {
        uint8_t bytes[4];
        TRY(data_bytes_add(&u->text, bytes,
                           utf8proc_encode_char(u->characters_kept.items[i], bytes)));
        TRY(data_bytes_add(&u->text, "", 1));
    }
    return ST_OK;
}

status train_units_make(const train_words *w, int64_t characters_max, train_units *out)
{
    int64_t *counts = calloc(POINTS, sizeof(*counts));
    if (counts == NULL) return train_no_memory();
    status st = choose_characters(counts, count_points(w, counts), characters_max, out);
    if (st == ST_OK) st = add_characters(out);
    for (int64_t i = 0; w->slots != NULL && i <= w->mask && st == ST_OK; i++) {
        const train_word *word = &w->slots[i];
        if (word->hash == 0) continue;
        st = add_word(out, (const uint8_t *)w->bytes.items + word->at, word->bytes, word->count,
                      counts);
    }
    free(counts);
    return st;
}

void train_units_deinit(train_units *u)
{
    data_bytes_deinit(&u->text);
    data_ids_deinit(&u->characters_kept);
    free(u->items);
    *u = (train_units){.count = 0};
}
