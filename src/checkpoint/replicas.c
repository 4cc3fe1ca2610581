// Replicas of the state: pieces that several ranks hold, which must be equal to the bit. Each rank
// hashes its pieces; the ranks exchange the hashes (8 bytes a piece) and compare them.
#include "base/hash.h"
#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Working copies that are roundings of their masters are state here, too.
static status list_make(const ckpt_state *s, arena *a, state_list *out)
{
    ckpt_state all = *s;
    all.derived_weights = false;
    return state_list_make(&all, a, out);
}

static status piece_hash(const ckpt_state *s, const state_item *item, char *chunk, uint64_t *out)
{
    const plan_piece p = state_piece(s, item, s->rank);
    const int64_t width = dtype_bytes(item->type), bytes = p.rows * p.columns * width;
    *out = 0;
    for (int64_t at = 0; at < bytes; at += STATE_CHUNK_BYTES) {
        const int64_t n = min_i64(STATE_CHUNK_BYTES, bytes - at);
        TRY(exec_read(s->e, item->run_row, p.at * width + at, chunk, n));
        *out = hash64(chunk, n, *out);
    }
    return ST_OK;
}

status ckpt_replicas_hash(const ckpt_state *s, arena *a, uint64_t **out, int64_t *count)
{
    state_list list = {0};
    TRY(list_make(s, a, &list));
    TRY(arena_new(a, list.count + 1, out));
    *count = list.count;
    char *chunk = malloc(STATE_CHUNK_BYTES);
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to hash the state");
    status st = ST_OK;
    for (int64_t i = 0; i < list.count && st == ST_OK; i++) {
        const bool is_shared = list.items[i].weight >= 0; // a residual has one holder
        if (is_shared) st = piece_hash(s, &list.items[i], chunk, &(*out)[i]);
    }
    free(chunk);
    return st;
}

static bool is_same_piece(const plan_piece *x, const plan_piece *y)
{
    return x->rows > 0 && x->row == y->row && x->rows == y->rows && x->column == y->column &&
           x->columns == y->columns;
}

// Finds, for an item, a rank that fewer ranks agree with than with another holder of its piece.
static bool item_compare(const ckpt_state *s, const state_item *item, const uint64_t *hashes,
                         int64_t stride, int64_t ranks, ckpt_replica_fault *out)
{
    bool found = false;
    for (int64_t x = 0; x < ranks; x++) {
        const plan_piece piece = state_piece(s, item, x);
        int64_t with = 0, against = 0, other = -1;
        for (int64_t y = 0; y < ranks; y++) {
            const plan_piece theirs = state_piece(s, item, y);
            if (!is_same_piece(&piece, &theirs)) continue;
            const bool agrees = hashes[x * stride] == hashes[y * stride];
            with += agrees;
            against += !agrees;
            if (!agrees && other < 0) other = y;
        }
        if (against == 0 || (found && with >= out->with)) continue;
        found = true;
        *out = (ckpt_replica_fault){
            .rank = x, .other = other, .with = with, .against = against, .found = true};
        (void)snprintf(out->name, sizeof(out->name), "%s", item->name);
    }
    return found;
}

status ckpt_replicas_compare(const ckpt_state *s, arena *a, const uint64_t *hashes, int64_t ranks,
                             ckpt_replica_fault *out)
{
    state_list list = {0};
    *out = (ckpt_replica_fault){.rank = -1};
    TRY(list_make(s, a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const state_item *item = &list.items[i];
        if (item->weight < 0) continue;
        if (item_compare(s, item, hashes + i, list.count, ranks, out)) return ST_OK;
    }
    return ST_OK;
}
