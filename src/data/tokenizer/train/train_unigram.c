// Learns the pieces of a Unigram tokenizer: expectation and maximization over all ways to write the
// units as pieces, in turns with dropping the pieces whose loss costs the least likelihood. Kudo
// 2018, arXiv:1804.10959; the steps and constants are those of SentencePiece.
//
// Threads share the units in chunks. All that they add up are integers (expected counts in units of
// 2^-20), whose sum does not depend on the order, so any number of threads gives the same pieces.
//
// Memory: the units and their sorted endings (13 bytes for each byte of different words), and at
// most SEEDS_MAX pieces with their tree.
#include "data/tokenizer/train/train_pieces.h"

#include "base/thread_pool.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, ROUNDS_OF_EM = 2, FRACTION_BITS = 20 };

static const double shrink = 0.75;             // of the pieces that one round keeps
static const double expected_least = 0.5;      // a piece with fewer goes
static const double character_ln_factor = 8.0; // see piece_factor

typedef struct unigram {
    const train_units *u;
    int32_t threads;
    train_pieces pieces;
    train_tree tree;
    double *factors;      // by piece: piece_factor
    atomic_llong *counts; // by piece: expected (EM, in 2^-20) or of the best ways
    atomic_llong next;    // unit of the next chunk
    void (*each)(struct unigram *g, const train_unit *unit); // what a pass does
} unigram;

// ---- ways to write a unit -----------------------------------------------------------------------

typedef struct edge {
    int32_t begin, end, piece;
} edge;

static int list_edges(const train_tree *t, const uint8_t *text, int32_t bytes,
                      edge edges[UNIT_EDGES_MAX])
{
    int n = 0;
    for (int32_t begin = 0; begin < bytes; begin++) {
        if ((text[begin] & 0xc0) == 0x80) continue;
        int32_t node = 0;
        for (int32_t end = begin; end < bytes;) {
            node = train_tree_step(t, node, text[end++]);
            if (node < 0) break;
            if (t->ids[node] < 0) continue;
            ASSERT(n < UNIT_EDGES_MAX);
            edges[n++] = (edge){.begin = begin, .end = end, .piece = t->ids[node]};
        }
    }
    return n;
}

// A piece's probability times e^8 for each of its characters. The factors of a unit's ways then all
// have the same power of e, which drops out, and their products neither overflow nor underflow:
// 32 characters of probability e^-28 to 1 give e^-640 to e^256.
static double piece_factor(const train_units *u, const train_piece *p)
{
    int characters = 0;
    for (int32_t i = 0; i < p->bytes; i++) {
        characters += ((uint8_t)u->text.items[p->at + i] & 0xc0) != 0x80;
    }
    return exp(p->score + character_ln_factor * characters);
}

// Adds to each piece how often it is expected in the unit, over all ways by their probability.
static void expect(unigram *g, const train_unit *unit)
{
    edge edges[UNIT_EDGES_MAX];
    double before[UNIT_BYTES_MAX + 1], after[UNIT_BYTES_MAX + 1];
    const uint8_t *text = (const uint8_t *)g->u->text.items + unit->at;
    const int n = list_edges(&g->tree, text, unit->bytes, edges);
    for (int32_t i = 0; i <= unit->bytes; i++) before[i] = after[i] = 0.0;
    before[0] = after[unit->bytes] = 1.0;
    for (int i = 0; i < n; i++) {
        before[edges[i].end] += before[edges[i].begin] * g->factors[edges[i].piece];
    }
    const double all = before[unit->bytes];
    if (!(all > 0.0) || isinf(all)) return;
    const double times = ldexp((double)unit->count, FRACTION_BITS) / all;
    for (int i = n - 1; i >= 0; i--) {
        const edge *e = &edges[i];
        const double rest = g->factors[e->piece] * after[e->end];
        const long long share = llrint(before[e->begin] * rest * times);
        after[e->begin] += rest;
        if (share > 0) atomic_fetch_add_explicit(&g->counts[e->piece], share, memory_order_relaxed);
    }
}

// The best way to write [text, text + bytes): its pieces from the last to the first. without: a
// piece that may not be used; -1: none. 0: there is no way.
static int best_way(const unigram *g, const uint8_t *text, int32_t bytes, int32_t without,
                    int32_t way[UNIT_BYTES_MAX])
{
    edge edges[UNIT_EDGES_MAX];
    double score[UNIT_BYTES_MAX + 1];
    int32_t last[UNIT_BYTES_MAX + 1];
    const int n = list_edges(&g->tree, text, bytes, edges);
    for (int32_t i = 0; i <= bytes; i++) last[i] = -1;
    score[0] = 0.0;
    for (int i = 0; i < n; i++) {
        const edge *e = &edges[i];
        if (e->piece == without || (e->begin > 0 && last[e->begin] < 0)) continue;
        const double sum = score[e->begin] + g->pieces.items[e->piece].score;
        if (last[e->end] >= 0 && !(sum > score[e->end])) continue;
        score[e->end] = sum;
        last[e->end] = i;
    }
    int count = 0;
    for (int32_t end = bytes; end > 0; end = edges[last[end]].begin) {
        if (last[end] < 0) return 0;
        way[count++] = edges[last[end]].piece;
    }
    return count;
}

static void count_best(unigram *g, const train_unit *unit)
{
    int32_t way[UNIT_BYTES_MAX];
    const uint8_t *text = (const uint8_t *)g->u->text.items + unit->at;
    const int n = best_way(g, text, unit->bytes, -1, way);
    for (int i = 0; i < n; i++) {
        atomic_fetch_add_explicit(&g->counts[way[i]], unit->count, memory_order_relaxed);
    }
}

// ---- all units, on all threads ------------------------------------------------------------------

static status chunks(void *context, int32_t worker)
{
    unigram *g = context;
    (void)worker;
    for (;;) {
        const int64_t from = atomic_fetch_add(&g->next, CHUNK);
        if (from >= g->u->count) return ST_OK;
        const int64_t to = min_i64(from + CHUNK, g->u->count);
        for (int64_t i = from; i < to; i++) g->each(g, &g->u->items[i]);
    }
}

static status pass(unigram *g, void (*each)(unigram *g, const train_unit *unit))
{
    g->each = each;
    train_tree_deinit(&g->tree);
    TRY(train_tree_make(g->u, &g->pieces, &g->tree));
    for (int64_t i = 0; i < g->pieces.count; i++) {
        g->factors[i] = piece_factor(g->u, &g->pieces.items[i]);
        atomic_store_explicit(&g->counts[i], 0, memory_order_relaxed);
    }
    atomic_store(&g->next, 0);
    return thread_pool_run(g->threads, chunks, g);
}

// ---- expectation and maximization ---------------------------------------------------------------

// The derivative of ln(gamma(x)), x > 0: the recurrence, then the asymptotic series. Abramowitz and
// Stegun 1964, 6.3.5 and 6.3.18.
static double digamma(double x)
{
    double sum = 0.0;
    while (x < 7.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    const double y = 1.0 / (x * x);
    return sum + log(x) - 0.5 / x - y * (1.0 / 12.0 - y * (1.0 / 120.0 - y / 252.0));
}

// Scores from expected counts; digamma in place of the logarithm favours few pieces. Characters
// stay whatever their count.
static status maximize(unigram *g)
{
    train_pieces *p = &g->pieces;
    double sum = 0.0;
    int64_t n = 0;
    TRY(pass(g, expect));
    for (int64_t i = 0; i < p->count; i++) {
        double expected = ldexp((double)atomic_load(&g->counts[i]), -FRACTION_BITS);
        if (expected < expected_least) {
            if (!p->items[i].is_character) continue;
            expected = expected_least;
        }
        p->items[n] = p->items[i];
        p->items[n++].score = digamma(expected);
        sum += expected;
    }
    p->count = n;
    const double whole = digamma(sum);
    for (int64_t i = 0; i < n; i++) p->items[i].score -= whole;
    return ST_OK;
}

// ---- dropping pieces ----------------------------------------------------------------------------

typedef struct loss {
    double value;
    int64_t piece;
} loss;

static int compare_losses(const void *x, const void *y)
{
    const loss *a = x, *b = y;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

// How much the logarithm of the likelihood falls without the piece: its occurrences become the best
// other way to write it.
static double loss_of(const unigram *g, int64_t piece, double all)
{
    int32_t way[UNIT_BYTES_MAX];
    const train_piece *p = &g->pieces.items[piece];
    const double count = (double)atomic_load(&g->counts[piece]);
    if (p->is_character) return HUGE_VAL;
    if (count <= 0.0) return 0.0;
    const int n =
        best_way(g, (const uint8_t *)g->u->text.items + p->at, p->bytes, (int32_t)piece, way);
    if (n == 0) return HUGE_VAL;
    const double whole = log(all + count * (n - 1));
    double other = 0.0;
    for (int i = 0; i < n; i++) {
        other += log((double)atomic_load(&g->counts[way[i]]) + count) - whole;
    }
    return count / all * (log(count) - log(all) - other);
}

static status prune(unigram *g, int64_t wanted)
{
    train_pieces *p = &g->pieces;
    const int64_t before = p->count;
    double all = 0.0;
    TRY(pass(g, count_best));
    loss *losses = malloc((size_t)(before + 1) * sizeof(*losses));
    if (losses == NULL) return train_no_memory();
    for (int64_t i = 0; i < before; i++) all += (double)atomic_load(&g->counts[i]);
    for (int64_t i = 0; i < before; i++) {
        losses[i] = (loss){.value = loss_of(g, i, all), .piece = i};
    }
    qsort(losses, (size_t)before, sizeof(*losses), compare_losses);
    for (int64_t i = 0; i < before; i++) atomic_store(&g->counts[i], 0); // 1: stays
    for (int64_t i = 0; i < min_i64(wanted, before); i++) {
        atomic_store(&g->counts[losses[i].piece], 1);
    }
    p->count = 0;
    for (int64_t i = 0; i < before; i++) {
        if (atomic_load(&g->counts[i]) != 0) p->items[p->count++] = p->items[i];
    }
    free(losses);
    return ST_OK;
}

static status run(unigram *g, int64_t wanted, int64_t min_frequency)
{
    enum { CHARACTERS_LOG2_MAX = 43 }; // the sum of all shares stays within 63 bits
    if (g->u->characters >> CHARACTERS_LOG2_MAX != 0) {
        return fail(ST_UNSUPPORTED, "more than 2^43 characters of text to train a tokenizer");
    }
    TRY(train_seeds(g->u, min_frequency, &g->pieces));
    const int64_t most = g->pieces.count;
    g->factors = malloc((size_t)(most + 1) * sizeof(*g->factors));
    g->counts = malloc((size_t)(most + 1) * sizeof(*g->counts));
    if (g->factors == NULL || g->counts == NULL) return train_no_memory();
    for (;;) {
        for (int i = 0; i < ROUNDS_OF_EM; i++) TRY(maximize(g));
        if (g->pieces.count <= wanted) return ST_OK;
        TRY(prune(g, max_i64(wanted, (int64_t)(shrink * (double)g->pieces.count))));
    }
}

static int compare_scores(const void *x, const void *y, void *text)
{
    const train_piece *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return train_piece_compare(x, y, text);
}

status train_unigram(const train_words *w, int64_t wanted, const data_train_options *o,
                     train_units *u, train_pieces *out)
{
    unigram g = {.u = u, .threads = o->threads};
    // At most half of the pieces are single characters; those beyond are tokens of bytes.
    status st = train_units_make(w, max_i64(32, wanted / 2), u);
    if (st == ST_OK) st = run(&g, wanted, o->min_frequency);
    train_tree_deinit(&g.tree);
    free(g.factors);
    free(g.counts);
    *out = g.pieces;
    if (st == ST_OK) {
        qsort_r(out->items, (size_t)out->count, sizeof(*out->items), compare_scores, u->text.items);
    }
    return st;
}
