// A shard is a head, a table of pieces, the step block and the pieces' bytes. Its hash covers all
// of it, so a value that changes in memory makes the shard unusable, not wrong. Pieces of experts
// are cut into those of each expert, with its rows in the logical tensor, because experts may move
// between ranks (moe.rebalance).
#include "checkpoint/shard.h"

#include "base/fault.h"
#include "base/hash.h"
#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, SHARDS_MAX = 8 };

typedef struct shard_head {
    uint64_t hash;           // of all bytes behind this field
    int64_t bytes;           // of the shard
    int64_t step, fork;      // step: -1: empty
    int64_t count;           // pieces
    uint64_t tensors, all;   // hashes of the list of logical tensors, and with residuals
    int64_t block_at, block; // of the step block
    int64_t sequences, tokens, seed, whole_from;
    double val_loss, best_val_loss;
    char best[NAME_BYTES], data[NAME_BYTES];
} shard_head;

typedef struct shard_piece {
    int64_t item, at; // at: in the shard
    plan_piece piece;
} shard_piece;

struct ckpt_sharder {
    const ckpt_state *s;
    state_list list;
    int64_t ranks, domain;
    uint64_t tensors, all; // as in shard_head
    int64_t block;         // bytes of the step block
};

// ---- memory -------------------------------------------------------------------------------------

void ckpt_shard_free(ckpt_shard *k)
{
    free(k->bytes);
    *k = (ckpt_shard){0};
}

status ckpt_shard_reserve(ckpt_shard *k, int64_t bytes)
{
    k->used = 0;
    if (bytes <= k->capacity) return ST_OK;
    free(k->bytes);
    k->capacity = 0;
    k->bytes = malloc((size_t)bytes);
    if (k->bytes == NULL) {
        return fail(ST_NO_MEMORY, "no memory for a copy of %lld bytes of the state",
                    (long long)bytes);
    }
    k->capacity = bytes;
    return ST_OK;
}

static shard_head *head_of(const ckpt_shard *k)
{
    return (shard_head *)(void *)k->bytes;
}

static uint64_t shard_hash(const ckpt_shard *k)
{
    const int64_t skip = (int64_t)sizeof(uint64_t);
    return hash64(k->bytes + skip, head_of(k)->bytes - skip, 1);
}

int64_t ckpt_shard_step(const ckpt_shard *k)
{
    const int64_t least = (int64_t)sizeof(shard_head);
    if (k->used < least || head_of(k)->bytes != k->used) return -1;
    return shard_hash(k) == head_of(k)->hash ? head_of(k)->step : -1;
}

// ---- the list of tensors ------------------------------------------------------------------------

status ckpt_sharder_create(const ckpt_state *s, arena *a, int64_t ranks, int64_t domain,
                           ckpt_sharder **out)
{
    ckpt_state all = *s;
    ckpt_sharder *k = NULL;
    all.derived_weights = false; // working copies are copied too
    TRY(arena_new(a, 1, &k));
    TRY(state_list_make(&all, a, &k->list));
    k->s = s;
    k->ranks = ranks;
    k->domain = domain;
    k->block = step_bytes(s->model->load_layers, s->model->load_experts);
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const int64_t facts[] = {item->type, item->ndim, item->dims[0], item->columns};
        const uint64_t name = hash64(item->name, (int64_t)strlen(item->name), k->all);
        k->all = hash64(facts, (int64_t)sizeof(facts), name);
        if (item->weight >= 0) k->tensors = k->all; // residuals come last
    }
    *out = k;
    return ST_OK;
}

// Whether a rank of another failure domain holds the same piece.
static bool has_replica(const ckpt_sharder *k, const state_item *item, int64_t rank,
                        const plan_piece *own)
{
    for (int64_t y = 0; y < k->ranks && item->weight >= 0; y++) {
        const plan_piece theirs = state_piece(k->s, item, y);
        if (y / k->domain != rank / k->domain && state_is_same_piece(own, &theirs)) return true;
    }
    return false;
}

// Gives the piece of the state that begins with row r of a rank's piece of an item: to its end, or
// of experts to the end of one of them.
static plan_piece part_of(const ckpt_sharder *k, const state_item *item, const plan_piece *p,
                          int64_t r)
{
    const int64_t experts = k->s->model->load_experts, rest = p->rows - r;
    const bool is_expert = item->weight >= 0 && k->s->model->weights[item->weight].is_expert;
    if (!is_expert || experts == 0 || item->dims[0] % experts != 0) return *p;
    return state_rows_of_expert(k->s, item, p, r, rest);
}

static int64_t piece_bytes(const state_item *item, const plan_piece *p)
{
    return p->rows * p->columns * dtype_bytes(item->type);
}

// The size of a shard: of all pieces of a rank, or of its lone ones.
static int64_t shard_bytes(const ckpt_sharder *k, int64_t rank, bool is_lone, int64_t *pieces)
{
    int64_t bytes = 0, count = 0;
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(k->s, item, rank);
        if (p.rows == 0 || (is_lone && has_replica(k, item, rank, &p))) continue;
        for (int64_t r = 0; r < p.rows; count++) {
            const plan_piece part = part_of(k, item, &p, r);
            bytes += align_up(piece_bytes(item, &part), 8);
            r += part.rows;
        }
    }
    if (pieces != NULL) *pieces = count;
    return (int64_t)sizeof(shard_head) + count * (int64_t)sizeof(shard_piece) +
           align_up(k->block, 8) + bytes;
}

int64_t ckpt_sharder_lone_bytes(const ckpt_sharder *k, int64_t rank)
{
    int64_t pieces = 0;
    const int64_t bytes = shard_bytes(k, rank, true, &pieces);
    return pieces > 0 ? bytes : 0;
}

// ---- taking -------------------------------------------------------------------------------------

static void text_put(char to[NAME_BYTES], const char *from)
{
    (void)snprintf(to, NAME_BYTES, "%s", from != NULL ? from : "");
}

static shard_piece *table_of(const ckpt_shard *k)
{
    return (shard_piece *)(void *)(k->bytes + sizeof(shard_head));
}

static void shard_end(ckpt_shard *k)
{
    k->used = head_of(k)->bytes;
    head_of(k)->hash = shard_hash(k);
}

static status own_take(ckpt_sharder *k, const ckpt_info *info, int64_t fork, ckpt_shard *own)
{
    const ckpt_state *s = k->s;
    int64_t count = 0;
    const int64_t bytes = shard_bytes(k, s->rank, false, &count);
    TRY(ckpt_shard_reserve(own, bytes));
    memset(own->bytes, 0, sizeof(shard_head) + (size_t)count * sizeof(shard_piece));
    int64_t at = (int64_t)sizeof(shard_head) + count * (int64_t)sizeof(shard_piece);
    *head_of(own) = (shard_head){.bytes = bytes,
                                 .step = info->step,
                                 .fork = fork,
                                 .count = count,
                                 .tensors = k->tensors,
                                 .all = k->all,
                                 .block_at = at,
                                 .block = k->block,
                                 .sequences = info->sequences,
                                 .tokens = info->tokens,
                                 .seed = info->seed,
                                 .whole_from = info->whole_from,
                                 .val_loss = info->val_loss,
                                 .best_val_loss = info->best_val_loss};
    text_put(head_of(own)->best, info->best);
    text_put(head_of(own)->data, info->data);
    memset(own->bytes + at, 0, (size_t)(bytes - at));
    TRY(exec_read(s->e, plan_table_find(s->run, "step"), 0, own->bytes + at, k->block));
    at += align_up(k->block, 8);
    shard_piece *piece = table_of(own);
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(s, item, s->rank);
        for (int64_t r = 0; r < p.rows;) {
            const plan_piece part = part_of(k, item, &p, r);
            const int64_t from = (p.at + r * p.columns) * dtype_bytes(item->type);
            *piece++ = (shard_piece){.item = i, .at = at, .piece = part};
            TRY(exec_read(s->e, item->run_row, from, own->bytes + at, piece_bytes(item, &part)));
            at += align_up(piece_bytes(item, &part), 8);
            r += part.rows;
        }
    }
    ASSERT(at == bytes);
    shard_end(own);
    return ST_OK;
}

// Copies the lone pieces out of the rank's own shard.
static status lone_take(const ckpt_sharder *k, const ckpt_shard *own, ckpt_shard *lone)
{
    int64_t count = 0;
    const int64_t bytes = shard_bytes(k, k->s->rank, true, &count);
    TRY(ckpt_shard_reserve(lone, bytes));
    if (count == 0) return ST_OK;
    int64_t at = (int64_t)sizeof(shard_head) + count * (int64_t)sizeof(shard_piece);
    *head_of(lone) = *head_of(own);
    head_of(lone)->bytes = bytes;
    head_of(lone)->count = count;
    head_of(lone)->block_at = at;
    memcpy(lone->bytes + at, own->bytes + head_of(own)->block_at, (size_t)align_up(k->block, 8));
    at += align_up(k->block, 8);
    shard_piece *to = table_of(lone);
    for (int64_t i = 0; i < head_of(own)->count; i++) {
        const shard_piece *from = &table_of(own)[i];
        const state_item *item = &k->list.items[from->item];
        const plan_piece whole = state_piece(k->s, item, k->s->rank);
        if (has_replica(k, item, k->s->rank, &whole)) continue;
        const int64_t n = align_up(piece_bytes(item, &from->piece), 8);
        *to = *from;
        to->at = at;
        to++;
        memcpy(lone->bytes + at, own->bytes + from->at, (size_t)n);
        at += n;
    }
    ASSERT(at == bytes);
    shard_end(lone);
    return ST_OK;
}

status ckpt_sharder_take(ckpt_sharder *k, const ckpt_info *info, int64_t fork, ckpt_shard *own,
                         ckpt_shard *lone)
{
    TRY(own_take(k, info, fork, own));
    return lone_take(k, own, lone);
}

// ---- loading ------------------------------------------------------------------------------------

// A piece, and where it is.
typedef struct source {
    shard_piece at;
    int rank, shard;
} source;

typedef struct gathering {
    ckpt_sharder *k;
    const ckpt_shard *const *have;
    int count;
    arena *a;
    shard_head *heads;       // [ranks][SHARDS_MAX]; step -1: none
    source **sources;        // [item], distinct pieces
    int64_t *counts;         // of them
    ckpt_entry now;          // the state that is looked at; step -1: none yet
    const shard_head *first; // of its shards
    int first_rank, first_shard;
} gathering;

// Every rank learns the heads of all shards.
static status heads_share(gathering *g)
{
    const ckpt_state *s = g->k->s;
    TRY(arena_new(g->a, g->k->ranks * SHARDS_MAX, &g->heads));
    for (int64_t i = 0; i < g->k->ranks * SHARDS_MAX; i++) g->heads[i].step = -1;
    for (int i = 0; i < g->count; i++) {
        shard_head *mine = &g->heads[s->rank * SHARDS_MAX + i];
        if (ckpt_shard_step(g->have[i]) >= 0) *mine = *head_of(g->have[i]);
    }
    for (int64_t r = 0; r < g->k->ranks; r++) {
        TRY(s->share(s->ranks, (int)r, &g->heads[r * SHARDS_MAX],
                     SHARDS_MAX * (int64_t)sizeof(shard_head)));
    }
    return ST_OK;
}

// By fork, then by step.
static bool is_newer(const ckpt_entry *x, const ckpt_entry *y)
{
    return x->fork != y->fork ? x->fork > y->fork : x->step > y->step;
}

// The newest state before g->now that some rank has a part of; false: none.
static bool state_before(gathering *g)
{
    ckpt_entry found = {.step = -1};
    for (int64_t i = 0; i < g->k->ranks * SHARDS_MAX; i++) {
        const ckpt_entry e = {.step = g->heads[i].step, .fork = g->heads[i].fork};
        if (e.step < 0 || g->heads[i].tensors != g->k->tensors) continue;
        if (g->now.step >= 0 && !is_newer(&g->now, &e)) continue;
        if (found.step < 0 || is_newer(&e, &found)) found = e;
    }
    g->now = found;
    return found.step >= 0;
}

static bool is_now(const gathering *g, const shard_head *head)
{
    return head->step == g->now.step && head->fork == g->now.fork && head->tensors == g->k->tensors;
}

static status source_add(gathering *g, const shard_piece *p, int rank, int shard)
{
    const int64_t i = p->item;
    if (i < 0 || i >= g->k->list.count)
        return fail(ST_DAMAGED, "a shard names tensor %lld", (long long)i);
    for (int64_t k = 0; k < g->counts[i]; k++) {
        if (state_is_same_piece(&g->sources[i][k].at.piece, &p->piece)) return ST_OK;
    }
    int64_t capacity = g->counts[i];
    TRY(arena_grow(g->a, (void **)&g->sources[i], &capacity, g->counts[i] + 1,
                   (int64_t)sizeof(source)));
    g->sources[i][g->counts[i]++] = (source){*p, rank, shard};
    return ST_OK;
}

// Every rank learns which pieces of this state there are.
static status tables_share(gathering *g)
{
    const ckpt_state *s = g->k->s;
    memset(g->counts, 0, (size_t)g->k->list.count * sizeof(*g->counts));
    g->first = NULL;
    for (int64_t i = 0; i < g->k->ranks * SHARDS_MAX; i++) {
        const shard_head *head = &g->heads[i];
        const int rank = (int)(i / SHARDS_MAX), shard = (int)(i % SHARDS_MAX);
        shard_piece *table = NULL;
        if (!is_now(g, head)) continue;
        TRY(arena_new(g->a, head->count + 1, &table));
        const int64_t bytes = head->count * (int64_t)sizeof(*table);
        if (rank == s->rank) memcpy(table, table_of(g->have[shard]), (size_t)bytes);
        if (bytes > 0) TRY(s->share(s->ranks, rank, table, bytes));
        for (int64_t p = 0; p < head->count; p++) TRY(source_add(g, &table[p], rank, shard));
        if (g->first != NULL) continue;
        g->first = head;
        g->first_rank = rank;
        g->first_shard = shard;
    }
    return ST_OK;
}

// Residuals of compression are worth nothing in another layout.
static bool is_wanted(const gathering *g, int64_t i)
{
    return g->k->list.items[i].weight >= 0 || g->first->all == g->k->all;
}

static bool is_complete(const gathering *g)
{
    for (int64_t i = 0; i < g->k->list.count && g->first != NULL; i++) {
        const state_item *item = &g->k->list.items[i];
        int64_t elements = 0;
        for (int64_t k = 0; k < g->counts[i]; k++) {
            elements += g->sources[i][k].at.piece.rows * g->sources[i][k].at.piece.columns;
        }
        if (is_wanted(g, i) && elements != item->dims[0] * item->columns) return false;
    }
    return g->first != NULL;
}

// Brings a piece to all ranks, a few rows at a time, into the whole tensor.
static status piece_share(const gathering *g, const state_item *item, const source *from,
                          char *chunk, int64_t chunk_bytes, char *whole)
{
    const ckpt_state *s = g->k->s;
    const plan_piece *p = &from->at.piece;
    const int64_t width = dtype_bytes(item->type), row = p->columns * width;
    const int64_t most = max_i64(1, chunk_bytes / row);
    for (int64_t r = 0; r < p->rows; r += most) {
        const int64_t rows = min_i64(most, p->rows - r);
        const plan_piece now = plan_piece_rows(p, r, rows);
        const int64_t begin = plan_piece_row(&now, 0), end = plan_piece_row(&now, rows - 1) + 1;
        if (from->rank == s->rank) {
            memcpy(chunk, g->have[from->shard]->bytes + from->at.at + r * row,
                   (size_t)(rows * row));
        }
        TRY(fault_point("checkpoint.shard.share"));
        TRY(s->share(s->ranks, from->rank, chunk, rows * row));
        (void)plan_piece_put(&now, item->columns, begin * item->columns,
                             (end - begin) * item->columns, width, chunk,
                             whole + begin * item->columns * width);
    }
    return ST_OK;
}

static status items_load(gathering *g)
{
    const ckpt_state *s = g->k->s;
    int64_t chunk_bytes = STATE_CHUNK_BYTES, most = 1;
    for (int64_t i = 0; i < g->k->list.count; i++) {
        const state_item *item = &g->k->list.items[i];
        most = max_i64(most, item->bytes);
        chunk_bytes = max_i64(chunk_bytes, item->columns * dtype_bytes(item->type));
    }
    chunk_bytes = min_i64(chunk_bytes, most);
    char *chunk = malloc((size_t)chunk_bytes), *whole = malloc((size_t)most);
    status st = chunk != NULL && whole != NULL
                    ? ST_OK
                    : fail(ST_NO_MEMORY, "no memory to bring pieces of the state together");
    for (int64_t i = 0; i < g->k->list.count && st == ST_OK; i++) {
        const state_item *item = &g->k->list.items[i];
        if (!is_wanted(g, i)) continue;
        for (int64_t k = 0; k < g->counts[i] && st == ST_OK; k++) {
            st = piece_share(g, item, &g->sources[i][k], chunk, chunk_bytes, whole);
        }
        if (st == ST_OK && state_is_here(s, item)) st = state_write(s, item, 0, whole, item->bytes);
    }
    free(chunk);
    free(whole);
    return st;
}

// The counters of the step block, and the loads of experts behind it.
static status block_load(gathering *g)
{
    const ckpt_state *s = g->k->s;
    char *bytes = NULL;
    step_block *was = NULL, *block = NULL;
    int64_t counts[STEP_COUNTS];
    double reals[STEP_REALS];
    TRY(arena_alloc(g->a, g->k->block, (void **)&bytes));
    TRY(arena_alloc(g->a, g->k->block, (void **)&block));
    if (g->first_rank == s->rank) {
        memcpy(bytes, g->have[g->first_shard]->bytes + g->first->block_at, (size_t)g->k->block);
    }
    TRY(s->share(s->ranks, g->first_rank, bytes, g->k->block));
    was = (step_block *)(void *)bytes;
    memcpy(block, bytes, (size_t)g->k->block);
    memset(block, 0, sizeof(*block));
    step_flatten(&was->device, counts, reals);
    step_device_init(&block->device, 1.0);
    step_unflatten(&block->device, counts, reals);
    return exec_write(s->e, plan_table_find(s->run, "step"), 0, block, g->k->block);
}

static status info_make(const gathering *g, ckpt_info *out)
{
    const shard_head *head = g->first;
    char *best = NULL, *data = NULL;
    TRY(arena_strdup(g->a, head->best, &best));
    TRY(arena_strdup(g->a, head->data, &data));
    *out = (ckpt_info){.step = head->step,
                       .sequences = head->sequences,
                       .tokens = head->tokens,
                       .seed = head->seed,
                       .val_loss = head->val_loss,
                       .best_val_loss = head->best_val_loss,
                       .best = best[0] != '\0' ? best : NULL,
                       .data = data[0] != '\0' ? data : NULL,
                       .whole_from = head->whole_from};
    for (int64_t i = 0; i < g->k->list.count; i++) {
        if (g->k->list.items[i].weight >= 0) continue;
        out->residuals += is_wanted(g, i);
        out->residuals_missing += !is_wanted(g, i);
    }
    return ST_OK;
}

status ckpt_shards_load(ckpt_sharder *k, const ckpt_shard *const *have, int count,
                        const ckpt_entry *newest, arena *a, ckpt_info *info, ckpt_entry *found)
{
    gathering g = {.k = k, .have = have, .count = count, .a = a, .now = {.step = -1}};
    ASSERT(count <= SHARDS_MAX);
    found->step = -1;
    TRY(arena_new(a, k->list.count + 1, &g.sources));
    TRY(arena_new(a, k->list.count + 1, &g.counts));
    TRY(heads_share(&g));
    do {
        if (!state_before(&g)) return ST_OK;
        if (newest != NULL && is_newer(newest, &g.now)) return ST_OK;
        TRY(tables_share(&g));
    } while (!is_complete(&g));
    TRY(items_load(&g));
    TRY(block_load(&g));
    TRY(info_make(&g, info));
    *found = g.now;
    return ST_OK;
}
