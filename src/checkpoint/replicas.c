// Replicas of the state: pieces that several ranks hold, which must be equal to the bit. Each rank
// hashes its pieces; the ranks exchange the hashes (8 bytes a piece) and compare them. Behind the
// pieces of the state are the hashes of gradients, one for each weight, if a session takes them:
// ranks that update the same rows must have had the same gradient of them.
#include "base/hash.h"
#include "checkpoint/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct ckpt_replicas {
    const ckpt_state *s;
    state_list list;
    uint64_t *mine; // [item], then [weight] of gradients
    int64_t count, ranks;
    const char *memory; // NULL: pieces are copied to `chunk`
    char *chunk;        // STATE_CHUNK_BYTES
    bool *is_hashed;    // [item]
};

// Whether two ranks hold the same piece of an entry of the state.
static bool is_same_piece(const ckpt_replicas *r, int64_t i, int64_t x, int64_t y)
{
    const state_item *item = &r->list.items[i];
    const plan_piece p = state_piece(r->s, item, x), q = state_piece(r->s, item, y);
    return item->weight >= 0 && state_is_same_piece(&p, &q);
}

static bool is_held_twice(const ckpt_replicas *r, int64_t i)
{
    if (r->s->places == NULL) return r->ranks > 1;
    for (int64_t y = 0; y < r->ranks; y++) {
        if (y != r->s->rank && is_same_piece(r, i, r->s->rank, y)) return true;
    }
    return false;
}

// A piece that no other rank holds is compared with none, so only a recording needs its hash.
static bool is_wanted(const ckpt_replicas *r, const ckpt_replicas_config *c, int64_t i)
{
    return c->has_all || r->s->places == NULL || is_held_twice(r, i);
}

bool ckpt_replicas_compares(const ckpt_replicas *r, int64_t run_row)
{
    bool has_any = false;
    for (int64_t i = 0; i < r->list.count; i++) {
        const state_item *item = &r->list.items[i];
        if (item->run_row != run_row || item->weight < 0) continue;
        if (state_piece(r->s, item, r->s->rank).rows == 0) continue;
        if (!is_held_twice(r, i)) return false;
        has_any = true;
    }
    return has_any;
}

status ckpt_replicas_create(const ckpt_replicas_config *config, arena *a, ckpt_replicas **out)
{
    // Working copies that are roundings of their masters are state here, too, and so is a base
    // model.
    const ckpt_state *s = config->s;
    ckpt_state all = *s;
    ckpt_replicas *r = NULL;
    all.derived_weights = false;
    all.part = CKPT_ALL;
    TRY(arena_new(a, 1, &r));
    TRY(state_list_make(&all, a, &r->list));
    r->count = r->list.count + (config->has_gradients ? s->model->weight_count : 0);
    TRY(arena_new(a, r->count + 1, &r->mine));
    TRY(arena_new(a, STATE_CHUNK_BYTES, &r->chunk));
    TRY(arena_new(a, r->list.count + 1, &r->is_hashed));
    r->s = s;
    r->ranks = config->ranks;
    r->memory = config->memory;
    for (int64_t i = 0; i < r->list.count; i++) { // a residual has one holder
        r->is_hashed[i] = r->list.items[i].weight >= 0 && is_wanted(r, config, i);
    }
    *out = r;
    return ST_OK;
}

int64_t ckpt_replicas_count(const ckpt_replicas *r)
{
    return r->count;
}

uint64_t *ckpt_replicas_gradients(ckpt_replicas *r)
{
    return r->mine + r->list.count;
}

static uint64_t bytes_hash(const ckpt_known *known, const state_item *item, const char *bytes,
                           int64_t count, uint64_t hash)
{
    if (known == NULL) return hash64(bytes, count, hash);
    for (int64_t k = 0; k < kern_seal_tiles(count / dtype_bytes(item->type)); k++) {
        hash = ckpt_tile_add(hash, kern_seal_hash(known->kernels, bytes, count, item->type, k));
    }
    return hash;
}

static status piece_hash(const ckpt_replicas *r, const state_item *item, const ckpt_known *known,
                         uint64_t *out)
{
    const plan_piece p = state_piece(r->s, item, r->s->rank);
    const int64_t width = dtype_bytes(item->type), bytes = p.rows * p.columns * width;
    *out = 0;
    if (bytes == 0) return ST_OK;
    const plan_tensor *row = &r->s->run->tensors[item->run_row];
    const bool is_row = known != NULL && p.at == 0 && bytes == plan_tensor_held_bytes(row);
    if (is_row && known->hash(known->context, item->run_row, out)) return ST_OK;
    for (int64_t at = 0; at < bytes; at += STATE_CHUNK_BYTES) {
        const int64_t n = min_i64(STATE_CHUNK_BYTES, bytes - at);
        const char *piece = r->chunk;
        if (r->memory != NULL) {
            piece = r->memory + row->offset + p.at * width + at;
        } else {
            TRY(exec_read(r->s->e, item->run_row, p.at * width + at, r->chunk, n));
        }
        *out = bytes_hash(known, item, piece, n, *out);
    }
    return ST_OK;
}

status ckpt_replicas_hash(ckpt_replicas *r, const ckpt_known *known, const uint64_t **out)
{
    for (int64_t i = 0; i < r->list.count; i++) {
        if (r->is_hashed[i]) TRY(piece_hash(r, &r->list.items[i], known, &r->mine[i]));
    }
    *out = r->mine;
    return ST_OK;
}

// Whether two ranks hold the same piece of entry i; of a gradient, whether they update the same
// rows of all parts of the weight.
static bool is_shared(const ckpt_replicas *r, int64_t i, int64_t x, int64_t y)
{
    const ckpt_state *s = r->s;
    bool has_rows = false;
    if (i < r->list.count) return is_same_piece(r, i, x, y);
    const int32_t weight = (int32_t)(i - r->list.count);
    for (int part = 0; part < s->model->weights[weight].part_count && s->places != NULL; part++) {
        const plan_piece p = plan_piece_of(s->places, x, weight, part, PLACE_STATE);
        const plan_piece q = plan_piece_of(s->places, y, weight, part, PLACE_STATE);
        if (p.rows == 0 && q.rows == 0) continue;
        if (!state_is_same_piece(&p, &q)) return false;
        has_rows = true;
    }
    return has_rows;
}

bool ckpt_replicas_compares_gradient(const ckpt_replicas *r, int64_t weight)
{
    for (int64_t y = 0; y < r->ranks; y++) {
        if (y != r->s->rank && is_shared(r, r->list.count + weight, r->s->rank, y)) return true;
    }
    return false;
}

// Compares rank x's piece of an entry with all equal ones. True if a rank differs from it.
static bool holder_compare(const ckpt_replicas *r, int64_t i, const uint64_t *hashes, int64_t ranks,
                           int64_t x, ckpt_replica_fault *out)
{
    *out = (ckpt_replica_fault){.rank = x, .other = -1};
    for (int64_t y = 0; y < ranks; y++) {
        if (!is_shared(r, i, x, y)) continue;
        const bool agrees = hashes[x * r->count + i] == hashes[y * r->count + i];
        out->with += agrees;
        out->against += !agrees;
        if (!agrees && out->other < 0) out->other = y;
    }
    return out->against > 0;
}

bool ckpt_replicas_differ(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks)
{
    ckpt_replica_fault fault;
    for (int64_t i = 0; i < r->count; i++) {
        if (holder_compare(r, i, hashes, ranks, r->s->rank, &fault)) return true;
    }
    return false;
}

static void entry_name(const ckpt_replicas *r, int64_t i, char name[PLAN_NAME_BYTES + 16])
{
    const bool is_gradient = i >= r->list.count;
    if (is_gradient) {
        (void)snprintf(name, PLAN_NAME_BYTES + 16, "gradient/%.*s", PLAN_NAME_BYTES - 1,
                       r->s->model->weights[i - r->list.count].name);
    } else {
        memcpy(name, r->list.items[i].name, PLAN_NAME_BYTES + 16);
    }
}

bool ckpt_replicas_find(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                        ckpt_replica_fault *out)
{
    bool found = false;
    for (int64_t k = 0; k < r->count && !found; k++) {
        const int64_t i = (k + r->list.count) % r->count; // gradients first: weights follow them
        for (int64_t x = 0; x < ranks; x++) {
            ckpt_replica_fault fault;
            if (!holder_compare(r, i, hashes, ranks, x, &fault)) continue;
            if (found && fault.with >= out->with) continue;
            found = true;
            *out = fault;
            entry_name(r, i, out->name);
        }
    }
    return found;
}

// Prints which expert each slot has, if experts may have moved.
static status experts_print(const ckpt_state *s, const state_item *item, text *out)
{
    const int64_t experts = s->model->load_experts;
    if (s->expert_of == NULL || !s->model->weights[item->weight].is_expert) return ST_OK;
    const int32_t *row = s->expert_of + op_model_layer_of(s->model, item->weight) * experts;
    for (int64_t e = 0; e < experts; e++) {
        TRY(text_add(out, "%s%d", e == 0 ? ", \"expert_of\": [" : ", ", (int)row[e]));
    }
    return text_add(out, "]");
}

static status piece_print(const ckpt_state *s, int64_t rank, const state_item *item,
                          const plan_piece *p, uint64_t hash, text *out)
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
    TRY(experts_print(s, item, out));
    return text_add(out, ", \"hash\": \"%016" PRIx64 "\"}\n", hash);
}

status ckpt_replicas_record(const ckpt_replicas *r, const uint64_t *hashes, int64_t ranks,
                            int64_t step, text *out)
{
    TRY(text_add(out, "{\"step\": %lld, \"ranks\": %lld}\n", (long long)step, (long long)ranks));
    for (int64_t k = 0; k < ranks * r->count; k++) {
        const int64_t rank = k / r->count, i = k % r->count;
        if (i >= r->list.count || r->list.items[i].weight < 0) continue; // of the state alone
        const state_item *item = &r->list.items[i];
        const plan_piece p = state_piece(r->s, item, rank);
        if (p.rows > 0) TRY(piece_print(r->s, rank, item, &p, hashes[k], out));
    }
    return ST_OK;
}
