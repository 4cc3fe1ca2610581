// Finds where each plan writes the state. A row that one update writes gets a seal, which its
// kernel compares and renews (kernels/cpu/seal.c); others are hashed before the first and after the
// last write of a step. All hashes are those of tiles.
#include "train/rest.h"

#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "exec/call.h"
#include "plan/access.h"
#include "plan/writes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 22 };

typedef struct rest_row {
    train_rest *all;
    int64_t row, bytes;
    dtype type;
    kern_tile *tiles;  // [kern_seal_tiles]
    bool is_residual;  // of compression, which a collective reads and writes
    bool is_sealed;    // the row has had this hash since it was written
    bool is_wanted;    // its hash is checked in steps
    bool is_written;   // some plan writes it
    bool is_completed; // by a collective, or piece by piece: no single node has written all
    bool is_unchecked; // a collective writes it before any node does, as where a rank updates none
    bool is_in_pass;   // all plans that write it do so by one update, which takes its seal
    const char *in_step; // the bytes in a step: in the device's memory, or in the copy
    char *copy;          // of the row in a step, if the host cannot touch the device's memory
} rest_row;

struct train_rest {
    exec *e;
    const kern_context *kernels;
    const plan_table *run;
    char *base;
    char *copy; // of a row, if the host cannot touch the device's memory; in a step the compute
                // stream's, so a residual has one of its own
    char fault[32];
    const bool *is_compared;
    rest_row *rows;              // [row of run]; all == NULL: no state
    char found[PLAN_NAME_BYTES]; // the first thing that has changed; "": none has
};

// ---- hashes -------------------------------------------------------------------------------------

typedef enum tiles_use { TILES_COMPARE, TILES_KEEP } tiles_use;

// Hashes bytes [at, at + count) of the row, which begin and end with tiles.
static void tiles_hash(const rest_row *w, const char *bytes, int64_t at, int64_t count,
                       tiles_use use)
{
    const int64_t width = dtype_bytes(w->type);
    kern_tile *tiles = &w->tiles[at / (width * KERN_SEAL_ELEMENTS)];
    for (int64_t k = 0; k < kern_seal_tiles(count / width); k++) {
        const uint64_t hash = kern_seal_hash(w->all->kernels, bytes, count, w->type, k);
        if (use == TILES_COMPARE && hash != tiles[k].hash) tiles[k].has_changed = true;
        if (use == TILES_KEEP) tiles[k].hash = hash;
    }
}

static void flip_perhaps(const rest_row *w)
{
    const train_rest *r = w->all;
    if (r->base == NULL) return;
    fault_flip(r->fault, &r->base[r->run->tensors[w->row].offset + w->bytes / 2]);
}

void train_rest_tell(train_rest *r, const char *kind, const char *name)
{
    if (r->found[0] == '\0') (void)snprintf(r->found, sizeof(r->found), "%s%s", kind, name);
}

static int64_t tiles_of(const rest_row *w)
{
    return kern_seal_tiles(w->bytes / dtype_bytes(w->type));
}

static void row_tell(const rest_row *w)
{
    bool has_changed = false;
    for (int64_t k = 0; k < tiles_of(w); k++) {
        has_changed = has_changed || w->tiles[k].has_changed;
    }
    if (has_changed) train_rest_tell(w->all, "", w->all->run->tensors[w->row].name);
}

// Before the first write of a step.
static status row_check(void *context)
{
    rest_row *w = context;
    if (!w->is_sealed) return ST_OK;
    flip_perhaps(w);
    if (w->is_in_pass) return ST_OK; // the update compares it
    tiles_hash(w, w->in_step, 0, w->bytes, TILES_COMPARE);
    row_tell(w);
    w->is_sealed = false;
    return ST_OK;
}

// After the last write of a step.
static status row_seal(void *context)
{
    rest_row *w = context;
    tiles_hash(w, w->in_step, 0, w->bytes, TILES_KEEP);
    w->is_sealed = true;
    return ST_OK;
}

static status row_hash_at_rest(const rest_row *w, tiles_use use)
{
    const train_rest *r = w->all;
    if (r->base != NULL) {
        tiles_hash(w, w->in_step, 0, w->bytes, use);
        return ST_OK;
    }
    for (int64_t at = 0; at < w->bytes; at += CHUNK_BYTES) {
        const int64_t n = min_i64(CHUNK_BYTES, w->bytes - at);
        TRY(exec_read(r->e, w->row, at, r->copy, n));
        tiles_hash(w, r->copy, at, n, use);
    }
    return ST_OK;
}

// A row that steps write and seal is compared by the next step.
static bool is_due(const train_rest *r, const rest_row *w, train_rest_rows which)
{
    if (w->all == NULL || (w->is_written && !w->is_wanted)) return false;
    if (!w->is_sealed || which == REST_ALL) return true;
    return !r->is_compared[w->row] && (which == REST_LONE || !w->is_written);
}

status train_rest_verify(train_rest *r, train_rest_rows which)
{
    for (int64_t i = 0; i < r->run->count; i++) {
        rest_row *w = &r->rows[i];
        const bool is_due_now = is_due(r, w, which);
        if (is_due_now && w->is_sealed) flip_perhaps(w);
        if (is_due_now) TRY(row_hash_at_rest(w, w->is_sealed ? TILES_COMPARE : TILES_KEEP));
        w->is_sealed = w->is_sealed || is_due_now;
        if (is_due_now || w->is_in_pass) row_tell(w);
    }
    return ST_OK;
}

bool train_rest_hash(const void *rest, int64_t row, uint64_t *out)
{
    const train_rest *r = rest;
    const rest_row *w = &r->rows[row];
    if (w->all == NULL || !w->is_sealed) return false;
    *out = 0;
    for (int64_t k = 0; k < tiles_of(w); k++) *out = ckpt_tile_add(*out, w->tiles[k].hash);
    return true;
}

status train_rest_renew(train_rest *r)
{
    for (int64_t i = 0; i < r->run->count; i++) r->rows[i].is_sealed = false;
    return train_rest_verify(r, REST_NEW);
}

const char *train_rest_found(const train_rest *r)
{
    return r->found[0] != '\0' ? r->found : NULL;
}

// ---- writes of a plan ---------------------------------------------------------------------------

typedef struct row_writes {
    plan_place before; // the node of the compute stream before the first one that writes
    plan_place last;   // the node, or the sum of a residual, that writes last
    bool is_completed;
    int32_t nodes; // that write it; of the last one:
    int out;
    bool is_sealed; // its kernel takes a seal of the row
} row_writes;

// The row of the state that a reference is, or is a part of; -1: none.
static int64_t state_row_of(const train_rest *r, const plan *p, int32_t ref, bool *is_part)
{
    int64_t begin = 0;
    *is_part = false;
    if (ref == -1) return -1;
    const int32_t owner = plan_access_owner(p, ref, &begin);
    *is_part = owner != ref;
    if (!plan_ref_is_run(owner)) return -1;
    const int64_t row = plan_ref_row(owner);
    return r->rows[row].all != NULL ? row : -1;
}

bool train_rest_seals(const train_rest *r, const plan *p, const plan_action *action,
                      const op_node *node, tensor_id operand, const char *data, int64_t bytes)
{
    if (r->base == NULL || !kern_seals(r->kernels, node->code)) return false;
    const kern_tensor t = exec_operand(p, action, operand, r->base);
    int64_t held = dtype_bytes(t.type);
    for (int i = 0; i < t.ndim; i++) held *= t.dims[i];
    const bool is_dense = t.ndim < 2 || t.dims[0] <= 1 || t.strides[0] == t.dims[1];
    return t.data == (const void *)data && held == bytes && is_dense;
}

static void node_add(const train_rest *r, const plan *p, const op_node *node, plan_place at,
                     plan_place before, row_writes *writes)
{
    const plan_action *action = &p->actions[at.action];
    const plan_binding *b = &p->bindings[action->binding];
    for (int i = 0; i < COUNT_OF(node->out); i++) {
        bool is_part = false;
        if (node->out[i] == TENSOR_NONE) continue;
        const int64_t row = state_row_of(r, p, b->tensor[node->out[i]], &is_part);
        if (row < 0) continue;
        row_writes *w = &writes[row];
        if (w->last.action < 0 && !w->is_completed) w->before = before;
        w->last = at;
        w->is_completed = w->is_completed || is_part;
        w->nodes++;
        w->out = i;
        w->is_sealed = train_rest_seals(r, p, action, node, node->out[i], r->rows[row].in_step,
                                        r->rows[row].bytes);
    }
}

static void comm_add(const train_rest *r, const plan *p, const plan_comm *c, row_writes *writes)
{
    for (int32_t i = 0; i < c->items_count; i++) {
        bool is_part = false;
        const int32_t out = p->items[c->items_begin + i].out;
        const int64_t row = state_row_of(r, p, out, &is_part);
        if (row >= 0) writes[row].is_completed = true;
    }
}

// The last node of the compute stream that an action waits for; -1: it waits for none.
static plan_place node_before(const plan *p, const plan_action *a)
{
    int32_t last = -1;
    for (int32_t i = 0; i < a->waits_count; i++) {
        const int32_t on = p->waits[a->waits_begin + i];
        if (on < 0 || p->actions[on].stream != STREAM_COMPUTE) continue;
        if (p->actions[on].ops_count > 0 && on > last) last = on;
    }
    return (plan_place){last, last >= 0 ? p->actions[last].ops_count - 1 : -1};
}

// A sum that is compressed reads the residual and writes it, once a step, after it has waited for
// the gradients. first: what comes before all sums.
static void residual_add(const train_rest *r, const plan *p, int32_t action, plan_place first,
                         row_writes *writes)
{
    bool is_part = false;
    const plan_comm *c = &p->comms[p->actions[action].comm];
    const int64_t row = c->compressed ? state_row_of(r, p, c->feedback, &is_part) : -1;
    if (row < 0) return;
    const plan_place before = node_before(p, &p->actions[action]);
    if (writes[row].last.action < 0) writes[row].before = before.action >= 0 ? before : first;
    writes[row].last = (plan_place){action, 0};
}

// Finds the writes of a plan, [row of run]. A row that a collective writes before any node has no
// place where it can be checked, because the collective may be early.
static void writes_find(const train_rest *r, const plan *p, row_writes *writes)
{
    plan_place before = {-1, -1}, first = before;
    for (int64_t i = 0; i < r->run->count; i++) {
        writes[i] = (row_writes){.before = {-1, -1}, .last = {-1, -1}};
    }
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind == ACTION_COMMUNICATE) {
            comm_add(r, p, &p->comms[a->comm], writes);
            residual_add(r, p, i, first, writes);
        }
        if ((a->kind != ACTION_COMPUTE && a->kind != ACTION_OPTIMIZER) || a->binding < 0) continue;
        const plan_binding *b = &p->bindings[a->binding];
        for (int32_t k = 0; k < a->ops_count; k++) {
            const op_node *node = &b->program->lists[a->list].nodes[a->ops_begin + k];
            const plan_place at = {i, k};
            node_add(r, p, node, at, before, writes);
            if (a->stream == STREAM_COMPUTE) before = at;
            if (first.action < 0) first = before;
        }
    }
}

// ---- probes -------------------------------------------------------------------------------------

static exec_probe probe_of(rest_row *w, plan_place at, device_host_fn call)
{
    exec_probe x = {.action = at.action,
                    .node = at.node,
                    .ref = plan_run_ref(w->row),
                    .call = call,
                    .context = w};
    if (w->all->base == NULL) {
        x.bytes = w->bytes;
        x.to = w->copy;
    }
    return x;
}

typedef struct ordered_probe {
    exec_probe probe;
    int64_t order;
} ordered_probe;

// By place in the plan; what was added first stays first.
static int probes_compare(const void *left, const void *right)
{
    const ordered_probe *x = left, *y = right;
    const int by_place = plan_place_compare((plan_place){x->probe.action, x->probe.node},
                                            (plan_place){y->probe.action, y->probe.node});
    if (by_place != 0) return by_place;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void probe_add(ordered_probe *list, int64_t *count, exec_probe x)
{
    list[*count] = (ordered_probe){.probe = x, .order = *count};
    (*count)++;
}

// ---- seals --------------------------------------------------------------------------------------

static bool is_one_pass(const row_writes *x)
{
    return x->nodes == 1 && x->is_sealed && !x->is_completed;
}

static int seals_compare(const void *left, const void *right)
{
    const exec_seal *x = left, *y = right;
    return plan_place_compare((plan_place){x->action, x->node}, (plan_place){y->action, y->node});
}

// Gives the update that writes a row the row's tiles.
static void seal_add(const rest_row *w, const row_writes *x, exec_seal *list, int64_t *count)
{
    int64_t i = 0;
    while (i < *count && (list[i].action != x->last.action || list[i].node != x->last.node)) i++;
    if (i == *count) {
        list[i] = (exec_seal){.action = x->last.action, .node = x->last.node};
        (*count)++;
    }
    list[i].seal.out[x->out] = w->tiles;
}

static status seals_make(const train_rest *r, arena *a, const row_writes *writes,
                         train_marks *marks)
{
    exec_seal *list = NULL;
    int64_t count = marks->seal_count;
    TRY(arena_new(a, count + r->run->count + 1, &list));
    if (count > 0) memcpy(list, marks->seals, (size_t)count * sizeof(*list));
    for (int64_t i = 0; i < r->run->count; i++) {
        const rest_row *w = &r->rows[i];
        const bool has_seal = w->all != NULL && w->is_wanted && w->is_in_pass;
        if (has_seal && writes[i].nodes > 0) seal_add(w, &writes[i], list, &count);
    }
    qsort(list, (size_t)count, sizeof(*list), seals_compare);
    marks->seals = list;
    marks->seal_count = count;
    return ST_OK;
}

static status probes_make(const train_rest *r, arena *a, const row_writes *writes,
                          train_marks *marks)
{
    ordered_probe *list = NULL;
    int64_t count = 0;
    TRY(arena_new(a, marks->probe_count + 2 * r->run->count + 1, &list));
    for (int64_t i = 0; i < marks->probe_count; i++) probe_add(list, &count, marks->probes[i]);
    for (int64_t i = 0; i < r->run->count; i++) {
        rest_row *w = &r->rows[i];
        const row_writes *x = &writes[i];
        if (w->all == NULL || !w->is_wanted) continue;
        if (x->before.action >= 0) probe_add(list, &count, probe_of(w, x->before, row_check));
        if (x->last.action >= 0 && !w->is_completed && !w->is_in_pass) {
            probe_add(list, &count, probe_of(w, x->last, row_seal));
        }
    }
    qsort(list, (size_t)count, sizeof(*list), probes_compare);
    TRY(arena_new(a, count + 1, &marks->probes));
    for (int64_t i = 0; i < count; i++) marks->probes[i] = list[i].probe;
    marks->probe_count = count;
    return ST_OK;
}

status train_rest_add(const train_rest *r, arena *a, const plan *p, train_marks *marks)
{
    row_writes *writes = NULL;
    TRY(arena_new(a, r->run->count + 1, &writes));
    writes_find(r, p, writes);
    TRY(probes_make(r, a, writes, marks));
    return seals_make(r, a, writes, marks);
}

// ---- which rows ---------------------------------------------------------------------------------

static bool is_residual(const plan_tensor *t)
{
    return strncmp(t->name, PLAN_FEEDBACK, strlen(PLAN_FEEDBACK)) == 0;
}

static bool is_state(const plan_tensor *t)
{
    const bool holds = t->role == ROLE_WEIGHT || t->role == ROLE_STATE;
    return holds && t->is_run && (t->weight >= 0 || is_residual(t)) && t->bytes > 0;
}

static bool has_master(const plan_table *run, const plan_tensor *t)
{
    char name[PLAN_NAME_BYTES + 8];
    (void)snprintf(name, sizeof(name), "master.%s", t->name);
    return t->role == ROLE_WEIGHT && plan_table_find(run, name) >= 0;
}

// The seal of an update costs little. Else, a value that it reads, and that other ranks have too,
// makes the result differ, which they see; one that it only overwrites does not.
static bool is_wanted(const train_rest *r, const rest_row *w)
{
    const plan_tensor *t = &r->run->tensors[w->row];
    return !w->is_unchecked &&
           (w->is_in_pass || !r->is_compared[w->row] || w->is_completed || has_master(r->run, t));
}

static status plans_read(train_rest *r, arena *a, const train_rest_config *c)
{
    row_writes *writes = NULL;
    TRY(arena_new(a, r->run->count + 1, &writes));
    for (int64_t k = 0; k < r->run->count; k++) r->rows[k].is_in_pass = r->base != NULL;
    for (int64_t i = 0; i < c->plan_count; i++) {
        writes_find(r, c->plans[i], writes);
        for (int64_t k = 0; k < r->run->count; k++) {
            rest_row *w = &r->rows[k];
            const bool is_written = writes[k].is_completed || writes[k].last.action >= 0;
            w->is_in_pass = w->is_in_pass && (!is_written || is_one_pass(&writes[k]));
            w->is_written = w->is_written || is_written;
            w->is_completed = w->is_completed || writes[k].is_completed;
            w->is_unchecked = w->is_unchecked || (is_written && writes[k].before.action < 0);
        }
    }
    for (int64_t k = 0; k < r->run->count; k++) {
        r->rows[k].is_in_pass = r->rows[k].is_in_pass && r->rows[k].is_written;
    }
    return ST_OK;
}

status train_rest_create(const train_rest_config *config, arena *a, train_rest **out)
{
    const train_rest_config *c = config;
    const plan_table *run = c->run;
    train_rest *r = NULL;
    int64_t most = CHUNK_BYTES;
    TRY(arena_new(a, 1, &r));
    *r = (train_rest){.e = c->e,
                      .kernels = c->kernels,
                      .run = run,
                      .base = c->base,
                      .is_compared = c->is_compared};
    (void)snprintf(r->fault, sizeof(r->fault), "train.rest.%d", c->rank);
    TRY(arena_new(a, run->count + 1, &r->rows));
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (!is_state(t)) continue;
        r->rows[i] = (rest_row){.all = r,
                                .row = i,
                                .bytes = plan_tensor_held_bytes(t),
                                .type = t->type,
                                .is_residual = is_residual(t)};
        TRY(arena_new(a, tiles_of(&r->rows[i]), &r->rows[i].tiles));
        most = max_i64(most, r->rows[i].bytes);
    }
    if (r->base == NULL) TRY(arena_new(a, most, &r->copy));
    for (int64_t i = 0; i < run->count; i++) {
        rest_row *w = &r->rows[i];
        if (w->all == NULL) continue;
        w->copy = r->copy;
        if (r->base == NULL && w->is_residual) TRY(arena_new(a, w->bytes, &w->copy));
        w->in_step = r->base != NULL ? r->base + run->tensors[i].offset : w->copy;
    }
    TRY(plans_read(r, a, c));
    for (int64_t i = 0; i < run->count; i++) {
        r->rows[i].is_wanted = r->rows[i].all != NULL && is_wanted(r, &r->rows[i]);
    }
    *out = r;
    return train_rest_verify(r, REST_NEW);
}
