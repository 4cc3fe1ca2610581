// Replicas of the state: pieces that several ranks hold, which must be equal to the bit. Each rank
// hashes its pieces; the ranks exchange the hashes (8 bytes a piece) and compare them.
#include "base/hash.h"
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>

struct ckpt_replicas {
    const ckpt_state *s;
    state_list list;
    uint64_t *mine; // [item]
    char *chunk;    // STATE_CHUNK_BYTES
};

status ckpt_replicas_create(const ckpt_state *s, arena *a, ckpt_replicas **out)
{
    // Working copies that are roundings of their masters are state here, too, and so is a base
    // model.
    ckpt_state all = *s;
    ckpt_replicas *r = NULL;
    all.derived_weights = false;
    all.part = CKPT_ALL;
    TRY(arena_new(a, 1, &r));
    TRY(state_list_make(&all, a, &r->list));
    TRY(arena_new(a, r->list.count + 1, &r->mine));
    TRY(arena_new(a, STATE_CHUNK_BYTES, &r->chunk));
    r->s = s;
    *out = r;
    return ST_OK;
}

int64_t ckpt_replicas_count(const ckpt_replicas *r)
{
    return r->list.count;
}

static status piece_hash(const ckpt_replicas *r, const state_item *item, uint64_t *out)
{
    const plan_piece p = state_piece(r->s, item, r->s->rank);
    const int64_t width = dtype_bytes(item->type), bytes = p.rows * p.columns * width;
    *out = 0;
    for (int64_t at = 0; at < bytes; at += STATE_CHUNK_BYTES) {
        const int64_t n = min_i64(STATE_CHUNK_BYTES, bytes - at);
        TRY(exec_read(r->s->e, item->run_row, p.at * width + at, r->chunk, n));
        *out = hash64(r->chunk, n, *out);
    }
    return ST_OK;
}

status ckpt_replicas_hash(ckpt_replicas *r, const uint64_t **out)
{
    for (int64_t i = 0; i < r->list.count; i++) {
        const bool is_shared = r->list.items[i].weight >= 0; // a residual has one holder
        if (is_shared) TRY(piece_hash(r, &r->list.items[i], &r->mine[i]));
    }
    *out = r->mine;
    return ST_OK;
}

static bool is_same_piece(const plan_piece *x, const plan_piece *y)
{
    return x->rows > 0 && x->row == y->row && x->rows == y->rows && x->column == y->column &&
           x->columns == y->columns && x->stripe == y->stripe && x->own == y->own &&
           x->offset == y->offset && x->first == y->first;
}

// Compares rank x's piece of an item with all equal ones. True if a rank differs from it.
static bool holder_compare(const ckpt_replicas *r, int64_t i, const uint64_t *hashes, int64_t ranks,
                           int64_t x, ckpt_replica_fault *out)
{
    const state_item *item = &r->list.items[i];
    const plan_piece piece = state_piece(r->s, item, x);
    *out = (ckpt_replica_fault){.rank = x, .other = -1};
    for (int64_t y = 0; y < ranks && item->weight >= 0 && piece.rows > 0; y++) {
        const plan_piece theirs = state_piece(r->s, item, y);
        if (!is_same_piece(&piece, &theirs)) continue;
        const bool agrees = hashes[x * r->list.count + i] == hashes[y * r->list.count + i];
        out->with += agrees;
        out->against += !agrees;
        if (!agrees && out->other < 0) out->other = y;
    }
    return out->against > 0;
}

bool ckpt_replicas_differ(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks)
{
    ckpt_replica_fault fault;
    for (int64_t i = 0; i < r->list.count; i++) {
        if (holder_compare(r, i, hashes, ranks, r->s->rank, &fault)) return true;
    }
    return false;
}

bool ckpt_replicas_find(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                        ckpt_replica_fault *out)
{
    bool found = false;
    for (int64_t i = 0; i < r->list.count && !found; i++) {
        for (int64_t x = 0; x < ranks; x++) {
            ckpt_replica_fault fault;
            if (!holder_compare(r, i, hashes, ranks, x, &fault)) continue;
            if (found && fault.with >= out->with) continue;
            found = true;
            *out = fault;
            (void)snprintf(out->name, sizeof(out->name), "%s", r->list.items[i].name);
        }
    }
    return found;
}

static status piece_print(int64_t rank, const state_item *item, const plan_piece *p, uint64_t hash,
                          text *out)
{
    TRY(text_add(out, "{\"rank\": %lld, \"name\": ", (long long)rank));
    TRY(text_add_json(out, item->name));
    TRY(text_add(out, ", \"row\": %lld, \"rows\": %lld, \"column\": %lld, \"columns\": %lld",
                 (long long)p->row, (long long)p->rows, (long long)p->column,
                 (long long)p->columns));
    if (p->stripe > 0) {
        TRY(text_add(out, ", \"stripe\": %lld, \"own\": %lld, \"offset\": %lld, \"first\": %lld",
                     (long long)p->stripe, (long long)p->own, (long long)p->offset,
                     (long long)p->first));
    }
    return text_add(out, ", \"hash\": \"%016" PRIx64 "\"}\n", hash);
}

status ckpt_replicas_record(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                            int64_t step, text *out)
{
    TRY(text_add(out, "{\"step\": %lld, \"ranks\": %lld}\n", (long long)step, (long long)ranks));
    for (int64_t i = 0; i < ranks * r->list.count; i++) {
        const state_item *item = &r->list.items[i % r->list.count];
        if (item->weight < 0) continue;
        const plan_piece p = state_piece(r->s, item, i / r->list.count);
        if (p.rows > 0) TRY(piece_print(i / r->list.count, item, &p, hashes[i], out));
    }
    return ST_OK;
}
