// The pieces that training a Unigram tokenizer begins with: repeated substrings of the units.
//
// All ends of units are sorted (multikey quicksort: Bentley and Sedgewick 1997,
// doi:10.1145/314161.314321); neighbours share their beginning. A walk over these shared lengths
// with a stack visits each repeated substring that no longer one can stand for, as the inner nodes
// of a suffix tree, with the sum of its counts (Kasai et al. 2001, doi:10.1007/3-540-48194-X_17).
#include "data/tokenizer/train/train_pieces.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The end of a unit, from `at` on.
typedef struct ending {
    int32_t at, unit;
} ending;

typedef struct candidate {
    int64_t score;
    int32_t at, bytes;
} candidate;

typedef struct seeding {
    const train_units *u;
    const char *text;
    ending *endings;
    int64_t ending_count;
    int64_t min_count;
    candidate *candidates;
    int64_t candidate_count, capacity;
} seeding;

static bool begins_character(char c)
{
    return ((uint8_t)c & 0xc0) != 0x80;
}

static status list_endings(seeding *s)
{
    const train_units *u = s->u;
    int64_t n = 0;
    for (int64_t i = 0; i < u->count; i++) {
        for (int32_t k = 0; k < u->items[i].bytes; k++) {
            n += begins_character(s->text[u->items[i].at + k]);
        }
    }
    s->endings = malloc((size_t)(n + 1) * sizeof(*s->endings));
    if (s->endings == NULL) return train_no_memory();
    for (int64_t i = 0; i < u->count; i++) {
        for (int32_t k = 0; k < u->items[i].bytes; k++) {
            const int32_t at = u->items[i].at + k;
            if (!begins_character(s->text[at])) continue;
            s->endings[s->ending_count++] = (ending){.at = at, .unit = (int32_t)i};
        }
    }
    ASSERT(s->ending_count == n);
    return ST_OK;
}

static void swap(ending *x, ending *y)
{
    const ending kept = *x;
    *x = *y;
    *y = kept;
}

// Sorts endings that are equal in their first `depth` bytes. Each unit ends with NUL, so no two
// have equal bytes for more than UNIT_BYTES_MAX bytes, which bounds the depth of the recursion over
// equal bytes; of the two other parts the smaller one is sorted first.
static void sort_endings(const char *text, ending *list, int64_t count, int depth)
{
    while (count > 1) {
        const uint8_t x = (uint8_t)text[list[0].at + depth],
                      y = (uint8_t)text[list[count / 2].at + depth],
                      z = (uint8_t)text[list[count - 1].at + depth];
        const uint8_t pivot = x < y ? (y < z ? y : x < z ? z : x) : (x < z ? x : y < z ? z : y);
        int64_t low = 0, high = count, at = 0;
        while (at < high) {
            const uint8_t c = (uint8_t)text[list[at].at + depth];
            if (c < pivot) {
                swap(&list[low++], &list[at++]);
            } else if (c > pivot) {
                swap(&list[at], &list[--high]);
            } else {
                at++;
            }
        }
        if (pivot != 0) sort_endings(text, list + low, high - low, depth + 1);
        const bool is_left_small = low <= count - high;
        if (is_left_small) {
            sort_endings(text, list, low, depth);
            list += high;
            count -= high;
        } else {
            sort_endings(text, list + high, count - high, depth);
            count = low;
        }
    }
}

// The bytes of at most PIECE_CHARACTERS_MAX whole characters that both texts begin with; the same
// text twice: those before its end.
static int32_t shared_bytes(const char *x, const char *y)
{
    int32_t characters = 0, whole = 0;
    for (int32_t n = 0;; n++) {
        if (begins_character(x[n]) && begins_character(y[n])) {
            whole = n;
            if (characters++ == PIECE_CHARACTERS_MAX) break;
        }
        if (x[n] == 0 || x[n] != y[n]) break;
    }
    return whole;
}

static status add_candidate(seeding *s, int32_t at, int32_t bytes, int64_t count)
{
    int64_t characters = 0;
    for (int32_t i = 0; i < bytes; i++) characters += begins_character(s->text[at + i]);
    if (characters < 2 || count < s->min_count) return ST_OK;
    if (s->candidate_count == s->capacity) {
        const int64_t grown = max_i64(1 << 12, 2 * s->capacity);
        candidate *moved = realloc(s->candidates, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return train_no_memory();
        s->candidates = moved;
        s->capacity = grown;
    }
    s->candidates[s->candidate_count++] =
        (candidate){.score = count * characters, .at = at, .bytes = bytes};
    return ST_OK;
}

// A substring whose endings are being visited.
typedef struct open_node {
    int64_t count;
    int32_t at, bytes;
} open_node;

static status walk(seeding *s)
{
    open_node stack[UNIT_BYTES_MAX + 2];
    int depth = 0;
    for (int64_t i = 0; i < s->ending_count; i++) {
        const ending *e = &s->endings[i];
        const char *here = s->text + e->at;
        const int32_t whole = shared_bytes(here, here);
        const int32_t next =
            i + 1 < s->ending_count ? shared_bytes(here, s->text + s->endings[i + 1].at) : 0;
        open_node node = {.count = s->u->items[e->unit].count, .at = e->at, .bytes = whole};
        if (depth > 0 && stack[depth - 1].bytes == whole) {
            stack[depth - 1].count += node.count;
        } else {
            stack[depth++] = node;
        }
        while (depth > 0 && stack[depth - 1].bytes > next) {
            node = stack[--depth];
            TRY(add_candidate(s, node.at, node.bytes, node.count));
            if (depth > 0 && stack[depth - 1].bytes >= next) {
                stack[depth - 1].count += node.count;
            } else if (next > 0) {
                stack[depth++] = (open_node){.count = node.count, .at = node.at, .bytes = next};
                break;
            }
        }
        ASSERT(depth <= UNIT_BYTES_MAX);
    }
    return ST_OK;
}

// ---- the best candidates ------------------------------------------------------------------------

// By score; of equal ones by their bytes, as the places of words depend on the threads.
static int compare_candidates(const void *x, const void *y, void *text)
{
    const candidate *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    const train_piece one = {.at = a->at, .bytes = a->bytes};
    const train_piece other = {.at = b->at, .bytes = b->bytes};
    return train_piece_compare(&one, &other, text);
}

int train_piece_compare(const void *x, const void *y, void *text)
{
    const train_piece *a = x, *b = y;
    const int32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order =
        memcmp((const char *)text + a->at, (const char *)text + b->at, (size_t)common);
    return order != 0 ? order : a->bytes - b->bytes;
}

// The place of a character among those that are kept.
static int64_t place_of(const data_ids *kept, int32_t point)
{
    int64_t low = 0, high = kept->count - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (kept->items[middle] < point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void add_characters(const seeding *s, train_pieces *out)
{
    const train_units *u = s->u;
    int32_t at = 0;
    for (int64_t i = 0; i < u->characters_kept.count; i++) {
        const int32_t bytes = (int32_t)strlen(s->text + at);
        out->items[out->count++] = (train_piece){.at = at, .bytes = bytes, .is_character = true};
        at += bytes + 1;
    }
    for (int64_t i = 0; i < s->ending_count; i++) {
        uint32_t point = 0;
        bool torn = false;
        (void)utf8_next((const uint8_t *)s->text + s->endings[i].at, 4, &point, &torn);
        out->items[place_of(&u->characters_kept, (int32_t)point)].score +=
            (double)u->items[s->endings[i].unit].count;
    }
}

// Scores to begin with: by how often a piece occurs times its length, whatever the others are.
static void score(train_pieces *p)
{
    double all = 0.0;
    for (int64_t i = 0; i < p->count; i++) {
        p->items[i].score = fmax(1.0, p->items[i].score);
        all += p->items[i].score;
    }
    for (int64_t i = 0; i < p->count; i++) p->items[i].score = log(p->items[i].score / all);
}

status train_seeds(const train_units *u, int64_t min_frequency, train_pieces *out)
{
    seeding s = {.u = u, .text = u->text.items, .min_count = max_i64(2, min_frequency)};
    const int64_t characters = u->characters_kept.count;
    status st = list_endings(&s);
    if (st == ST_OK) {
        sort_endings(s.text, s.endings, s.ending_count, 0);
        st = walk(&s);
    }
    const int64_t most = min_i64(s.candidate_count, SEEDS_MAX);
    if (st == ST_OK) {
        out->items = malloc((size_t)(characters + most + 1) * sizeof(*out->items));
        if (out->items == NULL) st = train_no_memory();
    }
    if (st == ST_OK) {
        if (most > 0) {
            qsort_r(s.candidates, (size_t)s.candidate_count, sizeof(candidate), compare_candidates,
                    u->text.items);
        }
        add_characters(&s, out);
        for (int64_t i = 0; i < most; i++) {
            const candidate *c = &s.candidates[i];
            out->items[out->count++] =
                (train_piece){.at = c->at, .bytes = c->bytes, .score = (double)c->score};
        }
        score(out);
        qsort_r(out->items, (size_t)out->count, sizeof(*out->items), train_piece_compare,
                u->text.items);
    }
    free(s.endings);
    free(s.candidates);
    return st;
}
