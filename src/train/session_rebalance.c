// moe.rebalance: moves experts between the ranks that share them, between two steps.
//
// All ranks have the loads of the last steps (the step block), so each chooses the same places
// (rebalance.h) without a message. Two ranks then exchange the rows of their experts in every
// tensor of the run: weights, masters and moments, each rank as much of them as ZeRO and tp leave
// it. The table of slots in device memory, which PLACE_EXPERTS reads, changes last. Plans stay as
// they are, and checkpoints have experts in their logical order (ckpt_state.expert_of); a file next
// to their state, experts.json, has places and loads, for a resumed run of as many ranks. Otherwise
// a session begins with every expert in its own slot.
#include "train/rebalance.h"

#include "base/fault.h"
#include "train/rest.h"
#include "train/session.h"

#include <math.h>
#include <string.h>

enum { MOVE_CHUNK_BYTES = 4 << 20 };

// The rows of experts in a tensor of the run.
typedef struct moved_tensor {
    int64_t row;         // of the run's table
    int64_t first, rows; // which of the rank's rows of the weight it has
    int64_t each, width; // rows of an expert; bytes of a row
    int32_t layer;
} moved_tensor;

typedef struct rebalance {
    int64_t experts, ranks, own; // own: experts of a rank
    int32_t layers, place;       // place: this rank among those that share the experts
    int32_t *members;            // [ranks] numbers in the job
    int64_t *loads;              // [layer][expert] since experts moved last
    int32_t *expert_of;          // [layer][slot]
    int32_t *next;               // [slot] of the layer that is being moved
    float *slots;                // [layer][expert]
    moved_tensor *tensors;
    int64_t tensor_count;
    char *own_rows, *peer_rows; // MOVE_CHUNK_BYTES each
    text files[2];              // [session_copy] experts.json
} rebalance;

static status tensors_find(const session *s, rebalance *b)
{
    const plan_table *run = &s->plans.run;
    const op_model *m = s->plans.model;
    TRY(arena_new(s->a, run->count + 1, &b->tensors));
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->weight < 0 || !m->weights[t->weight].is_expert) continue;
        const op_weight *w = &m->weights[t->weight];
        int64_t width = dtype_bytes(t->type);
        for (int d = 1; d < t->ndim; d++) width *= t->dims[d];
        ASSERT(w->rows % b->own == 0);
        b->tensors[b->tensor_count++] =
            (moved_tensor){.row = i,
                           .first = t->piece_rows * plan_weight_place(&s->options.mesh, w),
                           .rows = t->dims[0],
                           .each = w->rows / b->own,
                           .width = width,
                           .layer = op_model_layer_of(m, t->weight)};
    }
    return ST_OK;
}

static status members_find(const session *s, rebalance *b)
{
    const plan_mesh *mesh = &s->options.mesh;
    const plan_group g = plan_group_of(mesh, MESH_AXIS(AXIS_EP), GROUP_INLINE);
    ASSERT(plan_group_size(mesh, &g) == b->ranks);
    TRY(arena_new(s->a, b->ranks, &b->members));
    plan_group_members(mesh, &g, b->members);
    b->place = plan_group_place(mesh, &g);
    return ST_OK;
}

status session_rebalance_open(session *s)
{
    const op_model *m = s->plans.whole;
    rebalance *b = NULL;
    if (s->r->moe.rebalance == 0) return ST_OK;
    TRY(arena_new(s->a, 1, &b));
    b->experts = m->load_experts;
    b->layers = m->load_layers;
    b->ranks = plan_mesh_ep(&s->options.mesh);
    b->own = b->experts / b->ranks;
    if (b->experts > REBALANCE_MAX_EXPERTS || b->ranks > REBALANCE_MAX_RANKS) {
        return fail(ST_UNSUPPORTED,
                    "moe.rebalance moves at most %d experts of %d ranks, and the run has %lld of "
                    "%lld; use moe.rebalance=off",
                    (int)REBALANCE_MAX_EXPERTS, (int)REBALANCE_MAX_RANKS, (long long)b->experts,
                    (long long)b->ranks);
    }
    const int64_t all = b->layers * b->experts;
    TRY(arena_new(s->a, all, &b->loads));
    TRY(arena_new(s->a, all, &b->expert_of));
    TRY(arena_new(s->a, all, &b->slots));
    TRY(arena_new(s->a, b->experts, &b->next));
    TRY(arena_alloc(s->a, MOVE_CHUNK_BYTES, (void **)&b->own_rows));
    TRY(arena_alloc(s->a, MOVE_CHUNK_BYTES, (void **)&b->peer_rows));
    for (int64_t i = 0; i < all; i++) b->expert_of[i] = (int32_t)(i % b->experts);
    b->files[COPY_ON_DISK].a = b->files[COPY_IN_MEMORY].a = s->a;
    TRY(members_find(s, b));
    TRY(tensors_find(s, b));
    s->rebalance = b;
    return ST_OK;
}

void session_rebalance_count(session *s, const int64_t *words)
{
    rebalance *b = s->rebalance;
    if (b == NULL) return;
    for (int32_t i = 0; i < b->layers; i++) {
        const int64_t *row = words + i * step_load_row(b->experts);
        for (int64_t e = 0; e < b->experts; e++) b->loads[i * b->experts + e] += row[e];
    }
}

// ---- the exchange -------------------------------------------------------------------------------

static status rows_pass(const session *s, op_collective op, int32_t peer, void *data, int64_t bytes)
{
    return comm_pass(s->ranks.hosts, op, peer, data, bytes, "rows of an expert", __func__);
}

// Exchanges the rows of the expert with this number in a tensor. Both ranks have the same rows of
// their own experts, because they have the same place among the ranks that cut them.
static status tensor_swap(session *s, const moved_tensor *t, int64_t number, int64_t place)
{
    rebalance *b = s->rebalance;
    const int32_t peer = b->members[place];
    const int64_t begin = max_i64(number * t->each, t->first);
    const int64_t end = min_i64((number + 1) * t->each, t->first + t->rows);
    const int64_t last = (end - t->first) * t->width;
    for (int64_t at = (begin - t->first) * t->width; at < last; at += MOVE_CHUNK_BYTES) {
        const int64_t bytes = min_i64(MOVE_CHUNK_BYTES, last - at);
        TRY(fault_point("train.rebalance.move"));
        TRY(exec_read(s->job.e, t->row, at, b->own_rows, bytes));
        if (b->place < place) TRY(rows_pass(s, COLLECTIVE_SEND, peer, b->own_rows, bytes));
        TRY(rows_pass(s, COLLECTIVE_RECEIVE, peer, b->peer_rows, bytes));
        if (b->place > place) TRY(rows_pass(s, COLLECTIVE_SEND, peer, b->own_rows, bytes));
        TRY(exec_write(s->job.e, t->row, at, b->peer_rows, bytes));
    }
    return ST_OK;
}

// Exchanges the experts of two slots of a layer; the ranks that have them call it.
static status experts_swap(session *s, int32_t layer, int64_t number, int64_t x, int64_t y)
{
    const rebalance *b = s->rebalance;
    if (b->place != x && b->place != y) return ST_OK;
    for (int64_t i = 0; i < b->tensor_count; i++) {
        const moved_tensor *t = &b->tensors[i];
        if (t->layer == layer) TRY(tensor_swap(s, t, number, b->place == x ? y : x));
    }
    return ST_OK;
}

// Moves the experts of a layer to the slots in b->next. Every rank goes through the same exchanges
// in the same order, so two ranks that exchange never wait for each other in a circle.
static status layer_move(session *s, int32_t layer)
{
    const rebalance *b = s->rebalance;
    int32_t *now = b->expert_of + (int64_t)layer * b->experts;
    for (int64_t number = 0; number < b->own; number++) {
        for (int64_t x = 0; x < b->ranks; x++) {
            const int64_t slot = x * b->own + number;
            int64_t y = x;
            while (now[y * b->own + number] != b->next[slot]) y++;
            if (y == x) continue;
            TRY(experts_swap(s, layer, number, x, y));
            now[y * b->own + number] = now[slot];
            now[slot] = b->next[slot];
        }
    }
    return ST_OK;
}

// ---- after a number of steps --------------------------------------------------------------------

typedef struct moves {
    int64_t experts, layers;
    double before, after; // tokens of the fullest rank, as a multiple of the mean, in any layer
} moves;

static double ratio(const rebalance *b, int64_t most, int64_t all)
{
    return all > 0 ? (double)most * (double)b->ranks / (double)all : 0.0;
}

static status layer_rebalance(session *s, int32_t layer, moves *m)
{
    const rebalance *b = s->rebalance;
    const int32_t *now = b->expert_of + (int64_t)layer * b->experts;
    const rebalance_case c = {
        .load = b->loads + layer * b->experts, .experts = b->experts, .ranks = b->ranks};
    int64_t all = 0;
    for (int64_t e = 0; e < b->experts; e++) all += c.load[e];
    memcpy(b->next, now, (size_t)b->experts * sizeof(*now));
    m->before = fmax(m->before, ratio(b, rebalance_most(&c, now), all));
    const int64_t moved = rebalance_choose(&c, b->next);
    m->after = fmax(m->after, ratio(b, rebalance_most(&c, b->next), all));
    m->experts += moved;
    m->layers += moved > 0;
    return moved > 0 ? layer_move(s, layer) : ST_OK;
}

static status moves_tell(session *s, const moves *m)
{
    text line = {.a = s->a};
    session_say(s, LOG_INFO,
                "step %lld: %lld experts of %lld layers moved between ranks; the fullest rank had "
                "%.2f times the mean number of tokens, and would have had %.2f",
                (long long)s->step, (long long)m->experts, (long long)m->layers, m->before,
                m->after);
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"rebalance\", \"experts\": %lld, \"layers\": %lld, "
                 "\"rank_load_max\": %.4g, \"rank_load_max_after\": %.4g}\n",
                 (long long)s->step, (long long)m->experts, (long long)m->layers, m->before,
                 m->after));
    return session_event(s, &line);
}

static status slots_write(session *s)
{
    const rebalance *b = s->rebalance;
    const int64_t row = plan_table_find(&s->plans.run, "constant." OP_SLOTS);
    const int64_t all = b->layers * b->experts;
    for (int64_t i = 0; i < all; i++) {
        const int64_t first = i - i % b->experts;
        b->slots[first + b->expert_of[i]] = (float)(i - first);
    }
    s->job.state.expert_of = b->expert_of;
    if (row < 0) return ST_OK; // a stage without experts
    return exec_write(s->job.e, row, 0, b->slots, all * (int64_t)sizeof(float));
}

status session_rebalance(session *s)
{
    rebalance *b = s->rebalance;
    train_rest *rest = s->replicas.rest;
    moves m = {0};
    if (b == NULL || s->step == 0 || s->step % s->r->moe.rebalance != 0) return ST_OK;
    if (rest != NULL) TRY(train_rest_verify(rest, REST_LONE));
    for (int32_t i = 0; i < b->layers; i++) {
        if (model_has_experts(&s->spec, i)) TRY(layer_rebalance(s, i, &m));
    }
    memset(b->loads, 0, (size_t)(b->layers * b->experts) * sizeof(*b->loads));
    if (m.experts == 0) return ST_OK;
    if (rest != NULL) TRY(train_rest_renew(rest));
    TRY(slots_write(s));
    return session_is_first(s) ? moves_tell(s, &m) : ST_OK;
}

// ---- in checkpoints -----------------------------------------------------------------------------
// The checkpoints of an adapter do not hold the experts of its base, which is loaded before them: a
// session with one begins with each expert in its own slot.

static status row_print(text *out, const char *name, int64_t experts, const int32_t *places,
                        const int64_t *loads)
{
    TRY(text_add(out, "%s\"%s\": [", places != NULL ? "" : ", ", name));
    for (int64_t e = 0; e < experts; e++) {
        const int64_t value = places != NULL ? places[e] : loads[e];
        TRY(text_add(out, "%s%lld", e > 0 ? ", " : "", (long long)value));
    }
    return text_add(out, "]");
}

status session_rebalance_print(session *s, session_copy where, const char **out)
{
    rebalance *b = s->rebalance;
    *out = NULL;
    if (b == NULL || train_job_has_base(&s->job)) return ST_OK;
    text *t = &b->files[where];
    t->length = 0;
    TRY(text_add(t, "{\"ranks\": %lld, \"layers\": [", (long long)b->ranks));
    for (int32_t i = 0; i < b->layers; i++) {
        TRY(text_add(t, "%s\n{", i > 0 ? "," : ""));
        TRY(row_print(t, "expert_of", b->experts, b->expert_of + i * b->experts, NULL));
        TRY(row_print(t, "loads", b->experts, NULL, b->loads + i * b->experts));
        TRY(text_add(t, "}"));
    }
    TRY(text_add(t, "\n]}\n"));
    *out = t->bytes;
    return ST_OK;
}

// Takes a layer's places, each expert once, and only in slots of its own number; and its loads.
static bool layer_take(const rebalance *b, const json *row, int64_t *loads, int32_t *expert_of)
{
    bool seen[REBALANCE_MAX_EXPERTS] = {false};
    const json *places = json_get(row, "expert_of"), *counts = json_get(row, "loads");
    if (json_count(places) != b->experts || json_count(counts) != b->experts) return false;
    for (int64_t e = 0; e < b->experts; e++) {
        const int64_t expert = json_int(json_at(places, e), -1);
        loads[e] = json_int(json_at(counts, e), -1);
        if (expert < 0 || expert >= b->experts || loads[e] < 0 || seen[expert]) return false;
        if (expert % b->own != e % b->own) return false;
        seen[expert] = true;
        expert_of[e] = (int32_t)expert;
    }
    return true;
}

static status file_take(session *s, const json *root, const char *path)
{
    const rebalance *b = s->rebalance;
    const json *layers = json_get(root, "layers");
    bool is_right = json_count(layers) == b->layers;
    if (json_int(json_get(root, "ranks"), 0) != b->ranks) return ST_OK; // of other ranks
    for (int32_t i = 0; i < b->layers && is_right; i++) {
        const int64_t first = i * b->experts;
        is_right = layer_take(b, json_at(layers, i), b->loads + first, b->expert_of + first);
    }
    if (is_right) return slots_write(s);
    return fail(ST_DAMAGED,
                "%s/experts.json: the places of %lld experts in each of %d layers are "
                "expected",
                path, (long long)b->experts, (int)b->layers);
}

status session_rebalance_load(session *s, const char *path)
{
    char *bytes = NULL;
    int64_t count = 0;
    json *root = NULL;
    rebalance *b = s->rebalance;
    if (b == NULL || train_job_has_base(&s->job)) return ST_OK;
    for (int64_t i = 0; i < b->layers * b->experts; i++) {
        b->expert_of[i] = (int32_t)(i % b->experts);
        b->loads[i] = 0;
    }
    TRY(slots_write(s));
    TRY(ckpt_extra_read(s->h, s->a, path, "experts.json", &bytes, &count));
    if (bytes == NULL) return ST_OK;
    TRY(json_parse(bytes, count, path, &root));
    const status st = file_take(s, root, path);
    json_free(root);
    return st;
}
