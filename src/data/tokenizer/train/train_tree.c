// A tree of pieces, level by level: the pieces are in the order of their bytes, so each node is a
// range of them.
#include "data/tokenizer/train/train_pieces.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    int32_t begin, end;
} range;

// The pieces below a node that are longer than its depth, from `begin` on, with the same next byte.
static int32_t same_byte(const char *text, const train_pieces *p, int32_t begin, int32_t end,
                         int32_t depth)
{
    const char byte = text[p->items[begin].at + depth];
    int32_t at = begin + 1;
    while (at < end && text[p->items[at].at + depth] == byte) at++;
    return at;
}

static status reserve(train_tree *t, range **ranges, int64_t *capacity)
{
    if (t->count + 256 < *capacity) return ST_OK;
    const int64_t grown = max_i64(1 << 12, 2 * *capacity);
    uint8_t *labels = realloc(t->labels, (size_t)grown);
    if (labels != NULL) t->labels = labels;
    int32_t *first = realloc(t->first, (size_t)(grown + 1) * sizeof(*first));
    if (first != NULL) t->first = first;
    int32_t *ids = realloc(t->ids, (size_t)grown * sizeof(*ids));
    if (ids != NULL) t->ids = ids;
    range *moved = realloc(*ranges, (size_t)grown * sizeof(*moved));
    if (moved != NULL) *ranges = moved;
    if (labels == NULL || first == NULL || ids == NULL || moved == NULL) return train_no_memory();
    *capacity = grown;
    return ST_OK;
}

static status build(const char *text, const train_pieces *p, train_tree *t, range **ranges,
                    int64_t *capacity)
{
    int32_t depth = 0;
    int64_t level_end = 1; // of the nodes of this depth
    TRY(reserve(t, ranges, capacity));
    (*ranges)[0] = (range){.begin = 0, .end = (int32_t)p->count};
    t->ids[0] = -1;
    t->labels[0] = 0;
    t->count = 1;
    for (int64_t node = 0; node < t->count; node++) {
        if (node == level_end) {
            depth++;
            level_end = t->count;
        }
        TRY(reserve(t, ranges, capacity));
        if (t->count > INT32_MAX - 512) return fail(ST_UNSUPPORTED, "too many pieces");
        t->first[node] = (int32_t)t->count;
        range r = (*ranges)[node];
        if (r.begin < r.end && p->items[r.begin].bytes == depth) { // the piece that ends here
            t->ids[node] = r.begin++;
        }
        while (r.begin < r.end) {
            const int32_t end = same_byte(text, p, r.begin, r.end, depth);
            t->labels[t->count] = (uint8_t)text[p->items[r.begin].at + depth];
            t->ids[t->count] = -1;
            (*ranges)[t->count++] = (range){.begin = r.begin, .end = end};
            r.begin = end;
        }
    }
    t->first[t->count] = (int32_t)t->count;
    return ST_OK;
}

status train_tree_make(const train_units *u, const train_pieces *p, train_tree *out)
{
    range *ranges = NULL;
    int64_t capacity = 0;
    *out = (train_tree){.count = 0};
    const status st = build(u->text.items, p, out, &ranges, &capacity);
    free(ranges);
    if (st != ST_OK) {
        train_tree_deinit(out);
        return st;
    }
    for (int byte = 0; byte < 256; byte++) out->roots[byte] = -1;
    for (int32_t i = out->first[0]; i < out->first[1]; i++) out->roots[out->labels[i]] = i;
    return ST_OK;
}

void train_tree_deinit(train_tree *t)
{
    free(t->labels);
    free(t->first);
    free(t->ids);
    *t = (train_tree){.count = 0};
}
