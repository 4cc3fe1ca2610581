// A suffix is of type S if it is smaller than the next one, otherwise of type L. A suffix of type S
// behind one of type L begins a piece (LMS). Sorted pieces induce the order of all suffixes in two
// scans; equal pieces get equal names, and where names repeat, the text of names is sorted first,
// by the same method.
#include "data/corpus/suffix_array.h"

#include <stdlib.h>
#include <string.h>

// A text of bytes or of names.
typedef struct symbols {
    const uint8_t *bytes; // NULL: names
    const int32_t *names;
    int32_t count, alphabet;
    const uint8_t *types; // bit i: suffix i is of type S
} symbols;

static int32_t at(const symbols *t, int32_t i)
{
    return t->bytes != NULL ? t->bytes[i] : t->names[i];
}

static bool is_s(const symbols *t, int32_t i)
{
    return (t->types[i >> 3] >> (i & 7) & 1) != 0;
}

static bool is_lms(const symbols *t, int32_t i)
{
    return i > 0 && is_s(t, i) && !is_s(t, i - 1);
}

// The end behind the last suffix is smaller than all, so the last suffix is of type L.
static void find_types(const symbols *t, uint8_t *types)
{
    memset(types, 0, (size_t)(t->count / 8 + 1));
    bool next_is_s = false;
    for (int32_t i = t->count - 2; i >= 0; i--) {
        const int32_t own = at(t, i), next = at(t, i + 1);
        next_is_s = own < next || (own == next && next_is_s);
        if (next_is_s) types[i >> 3] = (uint8_t)(types[i >> 3] | 1 << (i & 7));
    }
}

// The place of the first (or behind the last) suffix of each symbol.
static void find_buckets(const symbols *t, const int32_t *counts, int32_t *buckets, bool ends)
{
    int32_t sum = 0;
    for (int32_t c = 0; c < t->alphabet; c++) {
        sum += counts[c];
        buckets[c] = ends ? sum : sum - counts[c];
    }
}

static void induce(const symbols *t, const int32_t *counts, int32_t *buckets, int32_t *sa)
{
    const int32_t n = t->count;
    find_buckets(t, counts, buckets, false);
    sa[buckets[at(t, n - 1)]++] = n - 1; // the suffix before the end
    for (int32_t i = 0; i < n; i++) {
        const int32_t j = sa[i] - 1;
        if (sa[i] > 0 && !is_s(t, j)) sa[buckets[at(t, j)]++] = j;
    }
    find_buckets(t, counts, buckets, true);
    for (int32_t i = n; i-- > 0;) {
        const int32_t j = sa[i] - 1;
        if (sa[i] > 0 && is_s(t, j)) sa[--buckets[at(t, j)]] = j;
    }
}

static bool same_piece(const symbols *t, int32_t a, int32_t b)
{
    for (int32_t i = 0;; i++) {
        const bool a_ends = i > 0 && (a + i >= t->count || is_lms(t, a + i));
        const bool b_ends = i > 0 && (b + i >= t->count || is_lms(t, b + i));
        if (a + i >= t->count || b + i >= t->count) return false; // only one piece reaches the end
        if (at(t, a + i) != at(t, b + i) || a_ends != b_ends) return false;
        if (a_ends) return true;
    }
}

// Puts suffixes of type S at the ends of their buckets, in the order of `order` if it is given.
static void place_lms(const symbols *t, const int32_t *counts, int32_t *buckets, int32_t *sa,
                      const int32_t *order, int32_t lms_count)
{
    for (int32_t i = 0; i < t->count; i++) sa[i] = -1;
    find_buckets(t, counts, buckets, true);
    for (int32_t i = lms_count; i-- > 0;) sa[--buckets[at(t, order[i])]] = order[i];
}

// Names the sorted pieces: names[i / 2] is that of the piece at i. Returns the number of names.
static int32_t name_pieces(const symbols *t, const int32_t *sa, int32_t *names)
{
    int32_t name = -1, before = -1;
    for (int32_t i = 0; i < t->count; i++) {
        const int32_t j = sa[i];
        if (j < 0 || !is_lms(t, j)) continue;
        if (before < 0 || !same_piece(t, before, j)) name++;
        names[j / 2] = name;
        before = j;
    }
    return name + 1;
}

static status sort_symbols(symbols *t, int32_t *sa);

// The order of the pieces, from the suffix array of their names.
static status order_pieces(const int32_t *positions, const int32_t *piece_names, int32_t lms_count,
                           int32_t name_count, int32_t *order)
{
    int32_t *names = malloc((size_t)lms_count * sizeof(*names));
    int32_t *ranks = malloc((size_t)lms_count * sizeof(*ranks));
    status st =
        names == NULL || ranks == NULL ? fail(ST_NO_MEMORY, "no memory for a suffix array") : ST_OK;
    for (int32_t i = 0; i < lms_count && st == ST_OK; i++) names[i] = piece_names[positions[i] / 2];
    if (st == ST_OK && name_count == lms_count) {
        for (int32_t i = 0; i < lms_count; i++) ranks[names[i]] = i;
    } else if (st == ST_OK) {
        symbols next = {.names = names, .count = lms_count, .alphabet = name_count};
        st = sort_symbols(&next, ranks);
    }
    for (int32_t i = 0; i < lms_count && st == ST_OK; i++) order[i] = positions[ranks[i]];
    free(names);
    free(ranks);
    return st;
}

static status sort_symbols(symbols *t, int32_t *sa)
{
    const int32_t n = t->count;
    ASSERT(n > 0 && t->alphabet > 0);
    uint8_t *types = malloc((size_t)n / 8 + 1);
    int32_t *counts = calloc((size_t)t->alphabet, sizeof(*counts));
    int32_t *buckets = malloc((size_t)t->alphabet * sizeof(*buckets));
    int32_t *lms = calloc((size_t)n / 2 + 1, sizeof(*lms));
    int32_t *names = calloc((size_t)n / 2 + 1, sizeof(*names));
    status st = ST_OK;
    if (types == NULL || counts == NULL || buckets == NULL || lms == NULL || names == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for a suffix array of %d positions", n);
        goto free_all;
    }
    t->types = types;
    find_types(t, types);
    int32_t lms_count = 0;
    for (int32_t i = 0; i < n; i++) {
        counts[at(t, i)]++;
        if (is_lms(t, i)) lms[lms_count++] = i;
    }
    place_lms(t, counts, buckets, sa, lms, lms_count);
    induce(t, counts, buckets, sa);
    const int32_t name_count = name_pieces(t, sa, names);
    if (lms_count > 0) {
        int32_t *order = malloc((size_t)lms_count * sizeof(*order));
        st = order == NULL ? fail(ST_NO_MEMORY, "no memory for a suffix array")
                           : order_pieces(lms, names, lms_count, name_count, order);
        if (st == ST_OK) place_lms(t, counts, buckets, sa, order, lms_count);
        free(order);
    } else {
        place_lms(t, counts, buckets, sa, lms, 0);
    }
    if (st == ST_OK) induce(t, counts, buckets, sa);
free_all:
    free(types);
    free(counts);
    free(buckets);
    free(lms);
    free(names);
    return st;
}

status suffix_array(const uint8_t *text_bytes, int64_t count, int32_t *suffixes)
{
    ASSERT(count >= 0 && count < INT32_MAX);
    if (count == 0) return ST_OK;
    ASSERT(text_bytes != NULL);
    symbols t = {.bytes = text_bytes, .count = (int32_t)count, .alphabet = 256};
    return sort_symbols(&t, suffixes);
}
