// Taking shards, and loading them. A piece is copied past the caches, and hashed while they still
// have its source.
//
// A load moves as little as it can. Each rank is one of these:
//
//   holds   the state is on its device already, because no update has begun since the copy
//   has     all of its pieces are in its own shards
//   needs   the others send it those of its pieces that they have, a pair of ranks at a time
#include "base/copy.h"
#include "base/fault.h"
#include "base/hash.h"
#include "checkpoint/shard_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_MAX = 8 };

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

void ckpt_sharder_memory(ckpt_sharder *k, const char *memory)
{
    k->memory = memory;
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

// Where the parts of a shard begin.
typedef struct shard_layout {
    int64_t count;                 // pieces of its table
    int64_t block, pieces, bytes;  // step block; pieces; end
    int64_t lone_count, lone_at;   // of the lone shard in it; count 0: there is none
    int64_t lone_block, lone_from; // step block and pieces of that
} shard_layout;

static int64_t layout_pieces(const ckpt_sharder *k, int64_t rank, bool is_lone, int64_t *count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(k->s, item, rank);
        if (p.rows == 0 || has_replica(k, item, rank, &p) == is_lone) continue;
        for (int64_t r = 0; r < p.rows; (*count)++) {
            const plan_piece part = part_of(k, item, &p, r);
            bytes += align_up(piece_bytes(item, &part), SHARD_ALIGN);
            r += part.rows;
        }
    }
    return bytes;
}

static int64_t table_end(int64_t count)
{
    return (int64_t)sizeof(shard_head) + count * (int64_t)sizeof(shard_piece);
}

static shard_layout layout_of(const ckpt_sharder *k, int64_t rank)
{
    shard_layout x = {0};
    const int64_t others = layout_pieces(k, rank, false, &x.count);
    const int64_t lone = layout_pieces(k, rank, true, &x.lone_count);
    x.count += x.lone_count;
    x.block = table_end(x.count);
    x.pieces = align_up(x.block + k->block, SHARD_ALIGN);
    x.bytes = x.pieces + others;
    if (x.lone_count == 0) return x;
    x.lone_at = x.bytes;
    x.lone_block = x.lone_at + table_end(x.lone_count);
    x.lone_from = align_up(x.lone_block + k->block, SHARD_ALIGN);
    x.bytes = x.lone_from + lone;
    return x;
}

int64_t ckpt_sharder_lone_bytes(const ckpt_sharder *k, int64_t rank)
{
    const shard_layout x = layout_of(k, rank);
    return x.lone_count > 0 ? x.bytes - x.lone_at : 0;
}

int64_t ckpt_sharder_own_bytes(const ckpt_sharder *k)
{
    return layout_of(k, k->s->rank).bytes;
}

int64_t ckpt_sharder_kept_bytes(const ckpt_sharder *k)
{
    const int64_t from = (k->s->rank - k->domain + k->ranks) % k->ranks;
    const int64_t lone = k->ranks > 1 ? ckpt_sharder_lone_bytes(k, from) : 0;
    return CKPT_GENERATIONS * (ckpt_sharder_own_bytes(k) + lone);
}

void ckpt_sharder_rows(const ckpt_sharder *k, bool *rows)
{
    for (int64_t i = 0; i < k->list.count; i++) {
        if (k->list.items[i].run_row >= 0) rows[k->list.items[i].run_row] = true;
    }
}

// ---- taking -------------------------------------------------------------------------------------

static void text_put(char to[SHARD_NAME_BYTES], const char *from)
{
    (void)snprintf(to, SHARD_NAME_BYTES, "%s", from != NULL ? from : "");
}

// Where the next piece goes, and the hash of those before it.
typedef struct copying {
    ckpt_shard *to;
    int64_t at;
    uint64_t hash;
} copying;

// Copies a piece in parts, and hashes each.
static status piece_copy(const ckpt_sharder *k, int64_t row, int64_t from, int64_t bytes,
                         copying *c)
{
    char *to = c->to->bytes + c->at;
    const char *memory = to;
    if (k->memory == NULL) TRY(exec_read(k->s->e, row, from, to, bytes));
    if (k->memory != NULL) memory = k->memory + k->s->run->tensors[row].offset + from;
    for (int64_t at = 0; at < bytes; at += SHARD_HASH_PART) {
        const int64_t n = min_i64(SHARD_HASH_PART, bytes - at);
        if (k->memory != NULL) copy_past_cache(to + at, memory + at, n);
        c->hash = hash64(memory + at, n, c->hash);
    }
    const int64_t end = align_up(bytes, SHARD_ALIGN);
    memset(to + bytes, 0, (size_t)(end - bytes));
    c->at += end;
    return ST_OK;
}

// The step block, from the host or from the device.
static status block_copy(const ckpt_sharder *k, const void *block, char *to)
{
    if (block == NULL)
        return exec_read(k->s->e, plan_table_find(k->s->run, "step"), 0, to, k->block);
    memcpy(to, block, (size_t)k->block);
    return ST_OK;
}

static status heads_make(const ckpt_sharder *k, const shard_layout *x, const void *block,
                         ckpt_shard *own)
{
    memset(own->bytes, 0, (size_t)x->pieces);
    *shard_head_of(own) = (shard_head){.bytes = x->bytes,
                                       .step = -1,
                                       .count = x->count,
                                       .block_at = x->block,
                                       .block = k->block,
                                       .lone_at = x->lone_at};
    TRY(block_copy(k, block, own->bytes + x->block));
    if (x->lone_count == 0) return ST_OK;
    const ckpt_shard lone = {.bytes = own->bytes + x->lone_at};
    memset(lone.bytes, 0, (size_t)(x->lone_from - x->lone_at));
    *shard_head_of(&lone) = (shard_head){.bytes = x->bytes - x->lone_at,
                                         .step = -1,
                                         .count = x->lone_count,
                                         .block_at = x->lone_block - x->lone_at,
                                         .block = k->block};
    memcpy(own->bytes + x->lone_block, own->bytes + x->block, (size_t)k->block);
    return ST_OK;
}

status ckpt_sharder_copy(const ckpt_sharder *k, const void *block, ckpt_shard *own)
{
    const ckpt_state *s = k->s;
    const shard_layout x = layout_of(k, s->rank);
    TRY(ckpt_shard_reserve(own, x.bytes));
    TRY(heads_make(k, &x, block, own));
    copying others = {.to = own, .at = x.pieces, .hash = 1};
    copying lone = {.to = own, .at = x.lone_from, .hash = 1};
    const ckpt_shard in = {.bytes = own->bytes + x.lone_at};
    shard_piece *piece = shard_table_of(own), *of_lone = shard_table_of(&in);
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(s, item, s->rank);
        const bool is_lone = p.rows > 0 && !has_replica(k, item, s->rank, &p);
        copying *c = is_lone ? &lone : &others;
        for (int64_t r = 0; r < p.rows;) {
            const plan_piece part = part_of(k, item, &p, r);
            const int64_t from = (p.at + r * p.columns) * dtype_bytes(item->type);
            const int64_t bytes = piece_bytes(item, &part);
            *piece = (shard_piece){.item = i, .at = c->at, .bytes = bytes, .piece = part};
            if (is_lone) { // the lone shard has a table of its own
                *of_lone = *piece;
                of_lone++->at -= x.lone_at;
            }
            piece++;
            TRY(piece_copy(k, item->run_row, from, bytes, c));
            r += part.rows;
        }
    }
    shard_head_of(own)->hash = others.hash;
    if (x.lone_count > 0) shard_head_of(&in)->hash = lone.hash;
    ASSERT(others.at == (x.lone_count > 0 ? x.lone_at : x.bytes));
    ASSERT(lone.at == (x.lone_count > 0 ? x.bytes : 0));
    return ST_OK;
}

// The whole of a shard that counts, or will.
static ckpt_shard counted(const ckpt_shard *k)
{
    ckpt_shard x = *k;
    x.used = shard_head_of(k)->bytes;
    return x;
}

char *ckpt_shard_lone(const ckpt_shard *own)
{
    const int64_t at = shard_head_of(own)->lone_at;
    return at > 0 ? own->bytes + at : NULL;
}

static void head_label(const ckpt_sharder *k, const ckpt_info *info, int64_t fork, ckpt_shard *to)
{
    shard_head *head = shard_head_of(to);
    head->step = info->step;
    head->fork = fork;
    head->tensors = k->tensors;
    head->all = k->all;
    head->sequences = info->sequences;
    head->tokens = info->tokens;
    head->seed = info->seed;
    head->whole_from = info->whole_from;
    head->val_loss = info->val_loss;
    head->best_val_loss = info->best_val_loss;
    text_put(head->best, info->best);
    text_put(head->data, info->data);
    const ckpt_shard whole = counted(to);
    head->head = shard_head_hash(&whole, shard_pieces_at(&whole));
}

void ckpt_sharder_label(const ckpt_sharder *k, const ckpt_info *info, int64_t fork, ckpt_shard *own)
{
    ckpt_shard lone = {.bytes = ckpt_shard_lone(own)};
    head_label(k, info, fork, own);
    if (lone.bytes != NULL) head_label(k, info, fork, &lone);
}

void ckpt_shard_count(ckpt_shard *own)
{
    own->used = shard_head_of(own)->bytes;
}

// ---- loading ------------------------------------------------------------------------------------

// A piece, and where it is.
typedef struct source {
    shard_piece at;
    int rank, shard;
} source;

// How a rank gets the state that is looked at.
typedef enum rank_kind { RANK_HOLDS, RANK_HAS, RANK_NEEDS } rank_kind;

// Each rank tells the others these first. held: which of its shards has the state that is on its
// device; -1: none.
typedef struct rank_heads {
    shard_head heads[SHARDS_MAX]; // step -1: none
    int64_t held;
} rank_heads;

typedef struct gathering {
    ckpt_sharder *k;
    const ckpt_shard *const *have;
    int count;
    arena *a;
    rank_heads *heads;       // [ranks]
    source **sources;        // [item], distinct pieces
    int64_t *counts;         // of them
    ckpt_entry now;          // the state that is looked at; step -1: none yet
    const shard_head *first; // of its shards
    int first_rank, first_shard;
    int32_t *kinds;   // [ranks] rank_kind
    uint32_t reads;   // bit i: this rank reads the pieces of have[i]
    uint32_t damaged; // bit i: they are not what they were
} gathering;

// Whether the device still has the state of this shard.
static status is_held(const ckpt_sharder *k, const ckpt_shard *own, bool *out)
{
    const shard_head *head = shard_head_of(own);
    *out = false;
    if (head->all != k->all) return ST_OK;
    const step_block *then = (const step_block *)(const void *)(own->bytes + head->block_at);
    return state_is_held(k->s, head->step, then->device.applied, then->device.skipped, out);
}

// Every rank learns the heads of all shards.
static status heads_share(gathering *g)
{
    const ckpt_state *s = g->k->s;
    TRY(arena_new(g->a, g->k->ranks, &g->heads));
    TRY(arena_new(g->a, g->k->ranks, &g->kinds));
    rank_heads *mine = &g->heads[s->rank];
    for (int i = 0; i < SHARDS_MAX; i++) mine->heads[i].step = -1;
    mine->held = -1;
    for (int i = 0; i < g->count; i++) {
        bool holds = false;
        if (ckpt_shard_step(g->have[i]) < 0) continue;
        mine->heads[i] = *shard_head_of(g->have[i]);
        TRY(is_held(g->k, g->have[i], &holds));
        if (holds) mine->held = i;
    }
    for (int64_t r = 0; r < g->k->ranks; r++) {
        TRY(s->share(s->ranks, (int)r, &g->heads[r], (int64_t)sizeof(*g->heads)));
    }
    return ST_OK;
}

static const shard_head *head_at(const gathering *g, int64_t i)
{
    return &g->heads[i / SHARDS_MAX].heads[i % SHARDS_MAX];
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
        const shard_head *head = head_at(g, i);
        const ckpt_entry e = {.step = head->step, .fork = head->fork};
        if (e.step < 0 || head->tensors != g->k->tensors) continue;
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
        const shard_head *head = head_at(g, i);
        const int rank = (int)(i / SHARDS_MAX), shard = (int)(i % SHARDS_MAX);
        shard_piece *table = NULL;
        if (!is_now(g, head)) continue;
        TRY(arena_new(g->a, head->count + 1, &table));
        const int64_t bytes = head->count * (int64_t)sizeof(*table);
        if (rank == s->rank) memcpy(table, shard_table_of(g->have[shard]), (size_t)bytes);
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

// ---- who needs what -----------------------------------------------------------------------------

// Finds a piece of this state in this rank's own shards. *shard: which one.
static const shard_piece *own_find(const gathering *g, int64_t item, const plan_piece *p,
                                   int *shard)
{
    const rank_heads *mine = &g->heads[g->k->s->rank];
    for (int i = 0; i < g->count; i++) {
        if (!is_now(g, &mine->heads[i])) continue;
        // Tables are in the order of items.
        const shard_piece *table = shard_table_of(g->have[i]);
        int64_t low = 0, high = mine->heads[i].count;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (table[middle].item < item) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for (; low < mine->heads[i].count && table[low].item == item; low++) {
            if (!state_is_same_piece(&table[low].piece, p)) continue;
            *shard = i;
            return &table[low];
        }
    }
    return NULL;
}

// True if all pieces of this rank are in its own shards, which it then reads.
static bool has_all(gathering *g)
{
    const ckpt_sharder *k = g->k;
    uint32_t reads = 0;
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(k->s, item, k->s->rank);
        for (int64_t r = 0; r < p.rows && is_wanted(g, i);) {
            int shard = 0;
            const plan_piece part = part_of(k, item, &p, r);
            if (own_find(g, i, &part, &shard) == NULL) return false;
            reads |= UINT32_C(1) << shard;
            r += part.rows;
        }
    }
    g->reads |= reads;
    return true;
}

static bool ranges_meet(int64_t a, int64_t a_count, int64_t b, int64_t b_count)
{
    return a < b + b_count && b < a + a_count;
}

// False only if the pieces have no element in common.
static bool pieces_meet(const plan_piece *x, const plan_piece *y)
{
    if (x->rows == 0 || y->rows == 0) return false;
    if (!ranges_meet(x->column, x->columns, y->column, y->columns)) return false;
    const int64_t x_begin = plan_piece_row(x, 0), y_begin = plan_piece_row(y, 0);
    return ranges_meet(x_begin, plan_piece_row(x, x->rows - 1) + 1 - x_begin, y_begin,
                       plan_piece_row(y, y->rows - 1) + 1 - y_begin);
}

static bool is_target(const gathering *g, int64_t i, const source *from, int64_t rank)
{
    if (g->kinds[rank] != RANK_NEEDS || !is_wanted(g, i)) return false;
    const plan_piece p = state_piece(g->k->s, &g->k->list.items[i], rank);
    return pieces_meet(&from->at.piece, &p);
}

static status kinds_share(gathering *g)
{
    const ckpt_state *s = g->k->s;
    const int64_t held = g->heads[s->rank].held;
    const bool holds = held >= 0 && is_now(g, &g->heads[s->rank].heads[held]);
    g->reads = 0;
    g->kinds[s->rank] = holds ? RANK_HOLDS : has_all(g) ? RANK_HAS : RANK_NEEDS;
    for (int64_t r = 0; r < g->k->ranks; r++) {
        TRY(s->share(s->ranks, (int)r, &g->kinds[r], (int64_t)sizeof(*g->kinds)));
    }
    for (int64_t i = 0; i < g->k->list.count; i++) {
        for (int64_t n = 0; n < g->counts[i]; n++) {
            const source *from = &g->sources[i][n];
            for (int64_t r = 0; r < g->k->ranks && from->rank == s->rank; r++) {
                if (is_target(g, i, from, r)) g->reads |= UINT32_C(1) << from->shard;
            }
        }
    }
    return ST_OK;
}

// Every rank checks the shards that it reads. If one is damaged, all ranks forget it.
static status shards_check(gathering *g, bool *are_sound)
{
    const ckpt_state *s = g->k->s;
    *are_sound = true;
    for (int64_t r = 0; r < g->k->ranks; r++) {
        uint32_t bad = 0;
        for (int i = 0; i < g->count && r == s->rank; i++) {
            const bool is_read = (g->reads >> i & 1U) != 0;
            if (is_read && !shard_is_sound(g->have[i])) bad |= UINT32_C(1) << i;
        }
        if (r == s->rank) g->damaged |= bad;
        TRY(s->share(s->ranks, (int)r, &bad, (int64_t)sizeof(bad)));
        for (int i = 0; i < SHARDS_MAX; i++) {
            if ((bad >> i & 1U) == 0) continue;
            g->heads[r].heads[i].step = -1;
            *are_sound = false;
        }
    }
    return ST_OK;
}

// ---- moving -------------------------------------------------------------------------------------

// Brings a piece to another rank, a few rows at a time, into the whole tensor.
static status piece_pass(const gathering *g, const state_item *item, const source *from, int to,
                         char *chunk, int64_t chunk_bytes, char *whole)
{
    const ckpt_state *s = g->k->s;
    const plan_piece *p = &from->at.piece;
    const int64_t width = dtype_bytes(item->type), row = p->columns * width;
    const int64_t most = max_i64(1, chunk_bytes / row);
    for (int64_t r = 0; r < p->rows; r += most) {
        const int64_t rows = min_i64(most, p->rows - r);
        char *bytes = chunk;
        if (from->rank == s->rank) bytes = g->have[from->shard]->bytes + from->at.at + r * row;
        TRY(fault_point("checkpoint.shard.share"));
        if (from->rank != to) TRY(s->pass(s->ranks, from->rank, to, bytes, rows * row));
        if (to != s->rank) continue;
        const plan_piece now = plan_piece_rows(p, r, rows);
        const int64_t begin = plan_piece_row(&now, 0), end = plan_piece_row(&now, rows - 1) + 1;
        (void)plan_piece_put(&now, item->columns, begin * item->columns,
                             (end - begin) * item->columns, width, bytes,
                             whole + begin * item->columns * width);
    }
    return ST_OK;
}

// Gives each rank that needs pieces of an item those, in which this rank takes part.
static status item_pass(const gathering *g, int64_t i, char *chunk, int64_t chunk_bytes,
                        char *whole)
{
    const ckpt_state *s = g->k->s;
    const state_item *item = &g->k->list.items[i];
    for (int64_t n = 0; n < g->counts[i]; n++) {
        const source *from = &g->sources[i][n];
        for (int to = 0; to < g->k->ranks; to++) {
            if ((from->rank != s->rank && to != s->rank) || !is_target(g, i, from, to)) continue;
            TRY(piece_pass(g, item, from, to, chunk, chunk_bytes, whole));
        }
    }
    if (g->kinds[s->rank] != RANK_NEEDS || !is_wanted(g, i) || !state_is_here(s, item))
        return ST_OK;
    return state_write(s, item, 0, whole, item->bytes);
}

static status items_pass(const gathering *g)
{
    int64_t chunk_bytes = STATE_CHUNK_BYTES, most = 1;
    bool needs = false;
    for (int64_t r = 0; r < g->k->ranks; r++) needs = needs || g->kinds[r] == RANK_NEEDS;
    if (!needs) return ST_OK;
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
        st = item_pass(g, i, chunk, chunk_bytes, whole);
    }
    free(chunk);
    free(whole);
    return st;
}

// Puts the pieces of this rank's own shards where they were taken.
static status items_put(const gathering *g)
{
    const ckpt_sharder *k = g->k;
    const ckpt_state *s = k->s;
    if (g->kinds[s->rank] != RANK_HAS) return ST_OK;
    for (int64_t i = 0; i < k->list.count; i++) {
        const state_item *item = &k->list.items[i];
        const plan_piece p = state_piece(s, item, s->rank);
        for (int64_t r = 0; r < p.rows && is_wanted(g, i);) {
            int shard = 0;
            const plan_piece part = part_of(k, item, &p, r);
            const shard_piece *from = own_find(g, i, &part, &shard);
            ASSERT(from != NULL);
            const int64_t to = (p.at + r * p.columns) * dtype_bytes(item->type);
            TRY(exec_write(s->e, item->run_row, to, g->have[shard]->bytes + from->at, from->bytes));
            r += part.rows;
        }
    }
    return ST_OK;
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
                        const ckpt_entry *newest, arena *a, ckpt_info *info, ckpt_gathered *found)
{
    gathering g = {.k = k, .have = have, .count = count, .a = a, .now = {.step = -1}};
    bool is_found = false;
    ASSERT(count <= SHARDS_MAX);
    *found = (ckpt_gathered){.entry = {.step = -1}};
    TRY(arena_new(a, k->list.count + 1, &g.sources));
    TRY(arena_new(a, k->list.count + 1, &g.counts));
    TRY(heads_share(&g));
    while (!is_found) {
        if (!state_before(&g)) break;
        if (newest != NULL && is_newer(newest, &g.now)) break;
        TRY(tables_share(&g));
        if (!is_complete(&g)) continue;
        TRY(kinds_share(&g));
        TRY(shards_check(&g, &is_found));
        if (!is_found) g.now.step = -1; // without the damaged shards
    }
    found->damaged = g.damaged;
    if (!is_found) return ST_OK;
    TRY(items_put(&g));
    TRY(items_pass(&g));
    TRY(block_load(&g));
    TRY(info_make(&g, info));
    found->entry = g.now;
    found->was_held = g.kinds[k->s->rank] == RANK_HOLDS;
    for (int64_t r = 0; r < k->ranks; r++) found->needy += g.kinds[r] == RANK_NEEDS;
    return ST_OK;
}
