// Repeated stretches of text, found with suffix arrays (Lee et al. 2022, arXiv:2107.06499): of
// equal stretches of L bytes the first one stays, and the bytes of the others are cut.
//
// A suffix array of a whole corpus would take five times its size. Fingerprints find the text that
// can repeat at all: of every L - K + 1 neighbouring runs of K bytes the one with the least hash is
// kept (winnowing, Schleimer, Wilkerson, Aiken 2003, doi:10.1145/872757.872770), so two equal
// stretches of L bytes have an equal fingerprint at the same place. Only text around fingerprints
// that occur twice goes into a suffix array, which decides by the bytes. Fingerprints are worked on
// in parts by their hashes, as small as `memory` asks for; equal stretches fall into one part.
#include "base/fault.h"
#include "data/corpus/cuts.h"
#include "data/corpus/suffix_array.h"

#include <stdlib.h>
#include <string.h>

enum { SPLITS_MAX = 24 };
#define BASE UINT64_C(0x9e3779b97f4a7c15)

// Bytes [begin, begin + count) of a document that may repeat, at `at` of the text of candidates.
typedef struct candidate {
    int64_t document, at;
    uint32_t begin, count;
} candidate;

typedef struct substring_pass {
    build *b;
    int64_t length, gram, window; // L, K, L - K + 1
    uint64_t top;                 // BASE to the power K - 1
    // The part of fingerprints whose low `bits` bits are `part`.
    int bits;
    uint64_t part;
    // The table of fingerprints: the lowest bit says that it occurred twice.
    uint64_t *table;
    int64_t capacity, count;
    bool collects, too_many; // the second sweep; the part must be split
    int64_t text_max;        // bytes of candidates that fit in `memory`
    data_bytes text_of_all;
    candidate *candidates;
    int64_t candidate_count, candidate_capacity;
    // The window of a document: a queue of places with ascending hashes.
    uint64_t *hashes;
    int64_t *places;
    int64_t fingerprints; // of the sweep that counts
    bool counts;
    int64_t known_runs; // of repeated lines
    cut_list known;     // their cuts of the frame
} substring_pass;

// ---- fingerprints -------------------------------------------------------------------------------

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x << 1 | 2; // never 0, and the lowest bit is free
}

static uint64_t *slot_of(const substring_pass *p, uint64_t hash)
{
    uint64_t at = hash / 2 * BASE % (uint64_t)p->capacity;
    while (p->table[at] != 0 && (p->table[at] & ~UINT64_C(1)) != hash) {
        at = at + 1 == (uint64_t)p->capacity ? 0 : at + 1;
    }
    return &p->table[at];
}

static status add_candidate(substring_pass *p, int64_t document, const char *body, int64_t begin,
                            int64_t end)
{
    candidate *last = p->candidate_count > 0 ? &p->candidates[p->candidate_count - 1] : NULL;
    if (last != NULL && last->document == document && begin <= (int64_t)last->begin + last->count) {
        const int64_t known = (int64_t)last->begin + last->count;
        if (end <= known) return ST_OK;
        p->text_of_all.count--; // the mark behind it
        TRY(data_bytes_add(&p->text_of_all, body + known, end - known));
        last->count = (uint32_t)(end - last->begin);
        return data_bytes_add(&p->text_of_all, "", 1);
    }
    if (p->candidate_count == p->candidate_capacity) {
        const int64_t grown = max_i64(1024, 2 * p->candidate_capacity);
        candidate *moved = realloc(p->candidates, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for repeated text");
        p->candidates = moved;
        p->candidate_capacity = grown;
    }
    p->candidates[p->candidate_count++] = (candidate){.document = document,
                                                      .at = p->text_of_all.count,
                                                      .begin = (uint32_t)begin,
                                                      .count = (uint32_t)(end - begin)};
    TRY(data_bytes_add(&p->text_of_all, body + begin, end - begin));
    return data_bytes_add(&p->text_of_all, "", 1); // stretches do not cross it
}

// A stretch [first, last) of a document, and a fingerprint at byte `place` of the document.
static status take_fingerprint(substring_pass *p, int64_t document, const char *body, int64_t first,
                               int64_t last, int64_t place, uint64_t hash)
{
    if (p->counts) {
        p->fingerprints++;
        return ST_OK;
    }
    if ((hash >> 1 & ((UINT64_C(1) << p->bits) - 1)) != p->part) return ST_OK;
    uint64_t *slot = slot_of(p, hash);
    if (!p->collects) {
        if (*slot == 0) {
            *slot = hash;
            p->too_many = p->too_many || ++p->count >= p->capacity - p->capacity / 8;
        } else {
            *slot |= 1;
        }
        return ST_OK;
    }
    if ((*slot & 1) == 0) return ST_OK;
    const int64_t begin = max_i64(first, place - p->window + 1);
    const int64_t end = min_i64(last, place + p->length);
    TRY(add_candidate(p, document, body, begin, end));
    p->too_many = p->text_of_all.count > p->text_max;
    return ST_OK;
}

// Finds the fingerprints of bytes [first, last) of a document.
static status sweep_stretch(substring_pass *p, int64_t document, const char *body, int64_t first,
                            int64_t last)
{
    const int64_t k = p->gram, w = p->window;
    uint64_t rolling = 0;
    int64_t head = 0, tail = 0, taken = -1; // the queue is a ring of w + 1 places
    if (last - first < p->length) return ST_OK;
    for (int64_t i = first; i < last && !p->too_many; i++) {
        if (i - first >= k) rolling -= p->top * (uint8_t)body[i - k];
        rolling = rolling * BASE + (uint8_t)body[i];
        const int64_t place = i - k + 1;
        if (place < first) continue;
        const uint64_t hash = mix(rolling);
        while (tail > head && p->hashes[(tail - 1) % (w + 1)] >= hash) tail--; // the last of equals
        p->hashes[tail % (w + 1)] = hash;
        p->places[tail++ % (w + 1)] = place;
        if (p->places[head % (w + 1)] <= place - w) head++;
        if (place - first < w - 1) continue;
        const int64_t least = p->places[head % (w + 1)];
        if (least == taken) continue;
        taken = least;
        TRY(take_fingerprint(p, document, body, first, last, least, p->hashes[head % (w + 1)]));
    }
    return ST_OK;
}

static status sweep_frame(void *context, int64_t file_idx, int64_t frame, const spill_batch *docs)
{
    substring_pass *p = context;
    const int64_t first = p->b->files[file_idx].spill.frames[frame].first;
    int64_t next = 0;
    TRY(cuts_read(p->b, p->known_runs, file_idx, frame, &p->known));
    for (int64_t i = 0; i < docs->count && !p->too_many; i++) {
        const spill_document *d = &docs->documents[i];
        const char *body = d->text_bytes > 0 ? docs->bytes.items + d->text_at : "";
        int64_t at = 0;
        if (p->b->fates[first + i] != FATE_KEEP) continue;
        while (next < p->known.count && p->known.items[next].document < first + i) next++;
        for (; next < p->known.count && p->known.items[next].document == first + i; next++) {
            const text_cut *c = &p->known.items[next];
            TRY(sweep_stretch(p, first + i, body, at, c->begin));
            at = (int64_t)c->begin + c->count;
        }
        TRY(sweep_stretch(p, first + i, body, at, d->text_bytes));
    }
    return p->too_many ? fail(ST_STOPPED, "a part of the fingerprints is too large") : ST_OK;
}

// ---- stretches ----------------------------------------------------------------------------------

// Whether L bytes without a mark begin here; `next_zero` is the first mark from here on.
static bool is_stretch(int64_t begin, int64_t length, int64_t next_zero)
{
    return begin + length <= next_zero;
}

// Sets the bit of each place at which a stretch begins that occurred before.
static void mark_repeats(const substring_pass *p, const int32_t *suffixes, const uint8_t *valid,
                         uint8_t *repeats)
{
    const int64_t n = p->text_of_all.count;
    const char *body = p->text_of_all.items;
    int64_t first = -1, least = -1; // of a run of equal stretches: the first, and the earliest
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = suffixes[i];
        if ((valid[at >> 3] >> (at & 7) & 1) == 0) continue;
        if (first < 0 || memcmp(body + first, body + at, (size_t)p->length) != 0) {
            first = least = at;
            continue;
        }
        const int64_t later = max_i64(least, at);
        least = min_i64(least, at);
        repeats[later >> 3] = (uint8_t)(repeats[later >> 3] | 1 << (later & 7));
    }
}

static void mark_valid(const substring_pass *p, uint8_t *valid)
{
    int64_t next_zero = p->text_of_all.count;
    for (int64_t i = p->text_of_all.count; i-- > 0;) {
        if (p->text_of_all.items[i] == 0) next_zero = i;
        if (is_stretch(i, p->length, next_zero)) {
            valid[i >> 3] = (uint8_t)(valid[i >> 3] | 1 << (i & 7));
        }
    }
}

// Cuts the repeated bytes of a candidate.
static status cut_candidate(substring_pass *p, const candidate *c, const uint8_t *repeats,
                            cut_run *run)
{
    for (int64_t i = 0; i < c->count;) {
        if ((repeats[(c->at + i) >> 3] >> ((c->at + i) & 7) & 1) == 0) {
            i++;
            continue;
        }
        const int64_t begin = i;
        int64_t end = i + p->length;
        for (; i < c->count && i <= end; i++) {
            if ((repeats[(c->at + i) >> 3] >> ((c->at + i) & 7) & 1) != 0) end = i + p->length;
        }
        ASSERT(end <= c->count);
        i = end;
        TRY(cuts_add(p->b, run,
                     &(const text_cut){.document = c->document,
                                       .begin = c->begin + (uint32_t)begin,
                                       .count = (uint32_t)(end - begin)}));
    }
    return ST_OK;
}

static status cut_repeats(substring_pass *p, cut_run *run)
{
    const int64_t n = p->text_of_all.count;
    if (n == 0) return ST_OK;
    int32_t *suffixes = malloc((size_t)n * sizeof(*suffixes));
    uint8_t *valid = calloc((size_t)n / 8 + 1, 1), *repeats = calloc((size_t)n / 8 + 1, 1);
    status st = suffixes == NULL || valid == NULL || repeats == NULL
                    ? fail(ST_NO_MEMORY, "no memory for a suffix array; set memory to less")
                    : suffix_array((const uint8_t *)p->text_of_all.items, n, suffixes);
    if (st == ST_OK) {
        mark_valid(p, valid);
        mark_repeats(p, suffixes, valid, repeats);
    }
    for (int64_t i = 0; i < p->candidate_count && st == ST_OK; i++) {
        st = cut_candidate(p, &p->candidates[i], repeats, run);
    }
    free(suffixes);
    free(valid);
    free(repeats);
    return st;
}

// ---- parts --------------------------------------------------------------------------------------

static status sweep(substring_pass *p)
{
    const status st = cuts_each_frame(p->b, sweep_frame, p);
    if (!p->too_many) return st;
    error_clear();
    return ST_OK;
}

// Works on the part, or on its halves where it is too large.
static status do_part(substring_pass *p, int bits, uint64_t part)
{
    cut_run *run = NULL;
    p->bits = bits;
    p->part = part;
    p->count = p->candidate_count = p->text_of_all.count = 0;
    p->collects = p->too_many = false;
    memset(p->table, 0, (size_t)p->capacity * sizeof(*p->table));
    TRY(sweep(p));
    p->collects = true;
    if (!p->too_many) TRY(sweep(p));
    if (p->too_many) {
        if (bits == SPLITS_MAX) {
            return fail(ST_NO_MEMORY, "dedup.substring: one text repeats too often for the memory; "
                                      "set memory to more");
        }
        TRY(do_part(p, bits + 1, part));
        return do_part(p, bits + 1, part | UINT64_C(1) << bits);
    }
    TRY(cuts_begin(p->b, &run));
    const status st = cut_repeats(p, run);
    const status ended = cuts_end(p->b, run);
    return st != ST_OK ? st : ended;
}

static status do_all(substring_pass *p)
{
    p->counts = true;
    TRY(sweep(p));
    p->counts = false;
    const int64_t memory = p->b->c->memory_bytes;
    // A half for the table; of the rest, the text of candidates, their suffix array and the
    // workspace of its sorting take 12 bytes for each byte.
    int bits = 0;
    const int64_t wanted = p->fingerprints + p->fingerprints / 2 + 1024;
    while (bits < SPLITS_MAX && (wanted >> bits) * 8 > max_i64(memory / 2, 1 << 16)) bits++;
    p->capacity = (wanted >> bits) + 1024;
    p->text_max = max_i64(1 << 12, min_i64(INT32_MAX - 1, memory / 2 / 12));
    p->table = malloc((size_t)p->capacity * sizeof(*p->table));
    if (p->table == NULL) {
        return fail(ST_NO_MEMORY, "no memory for a table of %lld fingerprints; set memory to less",
                    (long long)p->capacity);
    }
    p->b->all = p->b->done + (int64_t)2 * p->b->file_count * ((int64_t)1 << bits);
    for (uint64_t part = 0; part < UINT64_C(1) << bits; part++) TRY(do_part(p, bits, part));
    return ST_OK;
}

status dedup_substrings(build *b)
{
    const int64_t length = b->c->dedup.substring;
    substring_pass p = {.b = b, .length = length, .gram = max_i64(16, length / 4), .top = 1};
    TRY(fault_point("corpus.substrings"));
    p.window = length - p.gram + 1;
    p.known_runs = b->cut_run_count;
    for (int64_t i = 1; i < p.gram; i++) p.top *= BASE;
    p.hashes = malloc((size_t)(p.window + 1) * sizeof(*p.hashes));
    p.places = malloc((size_t)(p.window + 1) * sizeof(*p.places));
    b->done = 0;
    b->all = 3 * b->file_count;
    const status st = p.hashes == NULL || p.places == NULL
                          ? fail(ST_NO_MEMORY, "no memory for fingerprints")
                          : do_all(&p);
    free(p.hashes);
    free(p.places);
    free(p.table);
    free(p.candidates);
    data_bytes_deinit(&p.text_of_all);
    cut_list_deinit(&p.known);
    return st;
}
