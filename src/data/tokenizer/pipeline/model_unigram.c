// Unigram: the sequence of tokens with the highest sum of scores (Viterbi). Source: Kudo 2018,
// arXiv:1804.10959. Of equal sums the first that is found wins, in the reference's order: by the
// place where a token begins, then the shortest token.
#include "data/tokenizer/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

static const double unknown_penalty = 10.0; // below the lowest score

// ---- the tree of all tokens: an open-addressed table of edges -----------------------------------

static uint64_t edge_hash(uint64_t key)
{
    const uint64_t mixed = key * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 31;
}

static token_edge *edge_of(const token_tree *t, int32_t node, uint8_t byte)
{
    const uint64_t key = ((uint64_t)(uint32_t)node << 8 | byte) + 1;
    for (uint64_t at = edge_hash(key);; at++) {
        token_edge *e = &t->edges[at & (uint64_t)t->mask];
        if (e->key == 0 || e->key == key) return e;
    }
}

static status tree_grow(token_tree *t)
{
    const int64_t size = t->edges == NULL ? 1024 : 2 * (t->mask + 1);
    token_tree grown = {.mask = size - 1, .count = t->count};
    grown.edges = calloc((size_t)size, sizeof(*grown.edges));
    if (grown.edges == NULL) return fail(ST_NO_MEMORY, "no memory for a tokenizer's vocabulary");
    for (int64_t i = 0; t->edges != NULL && i <= t->mask; i++) {
        const token_edge *e = &t->edges[i];
        if (e->key == 0) continue;
        *edge_of(&grown, (int32_t)((e->key - 1) >> 8), (uint8_t)((e->key - 1) & 0xff)) = *e;
    }
    free(t->edges);
    *t = grown;
    return ST_OK;
}

status pipeline_tree_add(token_tree *t, const char *bytes, int64_t count, int32_t id)
{
    int32_t node = 0;
    for (int64_t i = 0; i < count; i++) {
        if (t->edges == NULL || 2 * t->count >= t->mask) TRY(tree_grow(t));
        token_edge *e = edge_of(t, node, (uint8_t)bytes[i]);
        if (e->key == 0) {
            if (t->count == INT32_MAX - 1) return fail(ST_UNSUPPORTED, "a vocabulary too large");
            *e = (token_edge){.key = ((uint64_t)(uint32_t)node << 8 | (uint8_t)bytes[i]) + 1,
                              .node = (int32_t)++t->count,
                              .id = -1};
        }
        node = e->node;
        if (i + 1 == count) e->id = id;
    }
    return ST_OK;
}

// ---- the best path ------------------------------------------------------------------------------

static status reserve(pipeline *p, int64_t count)
{
    if (count + 1 > p->path_capacity) {
        const int64_t grown = max_i64(count + 1, 2 * p->path_capacity);
        path_node *moved = realloc(p->path, (size_t)grown * sizeof(*moved));
        if (moved == NULL) {
            return fail(ST_NO_MEMORY, "no memory for a word of %lld bytes", (long long)count);
        }
        p->path = moved;
        p->path_capacity = grown;
    }
    for (int64_t i = 0; i <= count; i++) p->path[i] = (path_node){.begin = -1};
    return ST_OK;
}

static void improve(path_node *end, double score, int64_t begin, int32_t id)
{
    if (end->begin >= 0 && !(score > end->score)) return;
    *end = (path_node){.score = score, .begin = (int32_t)begin, .id = id};
}

static int character_bytes(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static status find_path(pipeline *p, const char *word, int64_t count)
{
    TRY(reserve(p, count));
    for (int64_t at = 0; at < count;) {
        const double before = p->path[at].score;
        const int length = character_bytes((uint8_t)word[at]);
        bool has_single = false;
        int32_t node = 0;
        for (int64_t end = at; end < count && p->tree.edges != NULL;) {
            const token_edge *e = edge_of(&p->tree, node, (uint8_t)word[end]);
            if (e->key == 0) break;
            node = e->node;
            end++;
            if (e->id < 0) continue;
            improve(&p->path[end], p->scores[e->id] + before, at, e->id);
            has_single = has_single || end - at == length;
        }
        if (!has_single) {
            if (p->unknown < 0) {
                return fail(ST_DATA,
                            "the text has a character (%.*s) for which the tokenizer has no token, "
                            "and it has no unknown token; take it out of the text",
                            length, word + at);
            }
            const double score = p->lowest_score - unknown_penalty + before;
            improve(&p->path[at + length], score, at, p->unknown);
        }
        at += length;
    }
    return ST_OK;
}

// Unknown neighbours are one piece, which may still be a token by its text.
static status add_piece(pipeline *p, const char *text, int64_t count, data_ids *out)
{
    const int32_t id = bpe_find(p->vocab, text, count);
    const int64_t before = out->count;
    if (id >= 0) return data_ids_add(out, &id, 1);
    for (int64_t i = 0; i < count && p->byte_fallback; i++) {
        const int32_t byte = p->byte_tokens[(uint8_t)text[i]];
        if (byte < 0) {
            out->count = before;
            break;
        }
        TRY(data_ids_add(out, &byte, 1));
    }
    return out->count > before ? ST_OK : data_ids_add(out, &p->unknown, 1);
}

status pipeline_unigram(pipeline *p, const char *word, int64_t count, data_ids *out)
{
    TRY(find_path(p, word, count));
    p->matches.count = 0;
    for (int64_t end = count; end > 0;) {
        const path_node *n = &p->path[end];
        const bool is_unknown = n->id == p->unknown;
        piece *last = p->matches.count > 0 ? &p->matches.items[p->matches.count - 1] : NULL;
        if (is_unknown && last != NULL && last->is_match) {
            last->begin = n->begin;
        } else {
            TRY(pieces_add(&p->matches, n->begin, end, is_unknown));
        }
        end = n->begin;
    }
    for (int64_t i = p->matches.count - 1; i >= 0; i--) {
        const piece *one = &p->matches.items[i];
        TRY(add_piece(p, word + one->begin, one->end - one->begin, out));
    }
    return ST_OK;
}
