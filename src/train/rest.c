// Finds where each plan writes the state, and hashes the rows before the first and after the last
// write of a step.
#include "train/rest.h"

#include "base/fault.h"
#include "base/hash.h"
#include "plan/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 22 };

typedef struct rest_row {
    train_rest *all;
    int64_t row, bytes;
    uint64_t hash;
    bool is_residual;    // of compression, which a collective reads and writes
    bool is_sealed;      // the row has had this hash since it was written
    bool is_wanted;      // its hash is checked in steps
    bool is_written;     // some plan writes it
    bool is_completed;   // by a collective, or piece by piece: no single node has written all
    const char *in_step; // the bytes in a step: in the device's memory, or in the copy
    char *copy;          // of the row in a step, if the host cannot touch the device's memory
} rest_row;

struct train_rest {
    exec *e;
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

static uint64_t bytes_hash(const char *bytes, int64_t count)
{
    uint64_t hash = 0;
    for (int64_t at = 0; at < count; at += CHUNK_BYTES) {
        hash = hash64(bytes + at, min_i64(CHUNK_BYTES, count - at), hash);
    }
    return hash;
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

static void row_compare(rest_row *w, uint64_t hash)
{
    if (hash != w->hash) train_rest_tell(w->all, "", w->all->run->tensors[w->row].name);
}

// Before the first write of a step.
static status row_check(void *context)
{
    rest_row *w = context;
    if (!w->is_sealed) return ST_OK;
    flip_perhaps(w);
    row_compare(w, bytes_hash(w->in_step, w->bytes));
    w->is_sealed = false;
    return ST_OK;
}

// After the last write of a step.
static status row_seal(void *context)
{
    rest_row *w = context;
    w->hash = bytes_hash(w->in_step, w->bytes);
    w->is_sealed = true;
    return ST_OK;
}

static status row_hash_at_rest(const rest_row *w, uint64_t *out)
{
    const train_rest *r = w->all;
    *out = 0;
    if (r->base != NULL) {
        *out = bytes_hash(w->in_step, w->bytes);
        return ST_OK;
    }
    for (int64_t at = 0; at < w->bytes; at += CHUNK_BYTES) {
        const int64_t n = min_i64(CHUNK_BYTES, w->bytes - at);
        TRY(exec_read(r->e, w->row, at, r->copy, n));
        *out = hash64(r->copy, n, *out);
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
        uint64_t hash = 0;
        if (!is_due(r, w, which)) continue;
        if (w->is_sealed) flip_perhaps(w);
        TRY(row_hash_at_rest(w, &hash));
        if (w->is_sealed) row_compare(w, hash);
        if (!w->is_sealed) w->hash = hash;
        w->is_sealed = true;
    }
    return ST_OK;
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

typedef struct place_in_plan {
    int32_t action, node; // -1: none
} place_in_plan;

typedef struct row_writes {
    place_in_plan before; // the node of the compute stream before the first one that writes
    place_in_plan last;   // the node, or the sum of a residual, that writes last
    bool is_completed;
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

static void node_add(const train_rest *r, const plan *p, const plan_binding *b, const op_node *node,
                     place_in_plan at, place_in_plan before, row_writes *writes)
{
    for (int i = 0; i < COUNT_OF(node->out); i++) {
        bool is_part = false;
        if (node->out[i] == TENSOR_NONE) continue;
        const int64_t row = state_row_of(r, p, b->tensor[node->out[i]], &is_part);
        if (row < 0) continue;
        row_writes *w = &writes[row];
        if (w->last.action < 0 && !w->is_completed) w->before = before;
        w->last = at;
        w->is_completed = w->is_completed || is_part;
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
static place_in_plan node_before(const plan *p, const plan_action *a)
{
    int32_t last = -1;
    for (int32_t i = 0; i < a->waits_count; i++) {
        const int32_t on = p->waits[a->waits_begin + i];
        if (on < 0 || p->actions[on].stream != STREAM_COMPUTE) continue;
        if (p->actions[on].ops_count > 0 && on > last) last = on;
    }
    return (place_in_plan){last, last >= 0 ? p->actions[last].ops_count - 1 : -1};
}

// A sum that is compressed reads the residual and writes it, once a step, after it has waited for
// the gradients. first: what comes before all sums.
static void residual_add(const train_rest *r, const plan *p, int32_t action, place_in_plan first,
                         row_writes *writes)
{
    bool is_part = false;
    const plan_comm *c = &p->comms[p->actions[action].comm];
    const int64_t row = c->compressed ? state_row_of(r, p, c->feedback, &is_part) : -1;
    if (row < 0) return;
    const place_in_plan before = node_before(p, &p->actions[action]);
    if (writes[row].last.action < 0) writes[row].before = before.action >= 0 ? before : first;
    writes[row].last = (place_in_plan){action, 0};
}

// Finds the writes of a plan, [row of run]. A row that a collective writes before any node has no
// place where it can be checked, because the collective may be early.
static void writes_find(const train_rest *r, const plan *p, row_writes *writes)
{
    place_in_plan before = {-1, -1}, first = before;
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
            const place_in_plan at = {i, k};
            node_add(r, p, b, node, at, before, writes);
            if (a->stream == STREAM_COMPUTE) before = at;
            if (first.action < 0) first = before;
        }
    }
}

// ---- probes -------------------------------------------------------------------------------------

static exec_probe probe_of(rest_row *w, place_in_plan at, device_host_fn call)
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
    if (x->probe.action != y->probe.action) return x->probe.action < y->probe.action ? -1 : 1;
    if (x->probe.node != y->probe.node) return x->probe.node < y->probe.node ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void probe_add(ordered_probe *list, int64_t *count, exec_probe x)
{
    list[*count] = (ordered_probe){.probe = x, .order = *count};
    (*count)++;
}

status train_rest_add(const train_rest *r, arena *a, const plan *p, exec_probe **probes,
                      int64_t *count)
{
    const int64_t rows = r->run->count, before = *count;
    row_writes *writes = NULL;
    ordered_probe *list = NULL;
    TRY(arena_new(a, rows + 1, &writes));
    TRY(arena_new(a, before + 2 * rows + 1, &list));
    *count = 0;
    for (int64_t i = 0; i < before; i++) probe_add(list, count, (*probes)[i]);
    writes_find(r, p, writes);
    for (int64_t i = 0; i < rows; i++) {
        rest_row *w = &r->rows[i];
        const row_writes *x = &writes[i];
        if (w->all == NULL || !w->is_wanted) continue;
        if (x->before.action >= 0) probe_add(list, count, probe_of(w, x->before, row_check));
        if (x->last.action >= 0 && !w->is_completed) {
            probe_add(list, count, probe_of(w, x->last, row_seal));
        }
    }
    qsort(list, (size_t)*count, sizeof(*list), probes_compare);
    TRY(arena_new(a, *count + 1, probes));
    for (int64_t i = 0; i < *count; i++) (*probes)[i] = list[i].probe;
    return ST_OK;
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

// A value that an update reads, and that other ranks have too, makes the result differ, which they
// see; one that it only overwrites does not.
static bool is_wanted(const train_rest *r, const rest_row *w)
{
    const plan_tensor *t = &r->run->tensors[w->row];
    return !r->is_compared[w->row] || w->is_completed || has_master(r->run, t);
}

static status plans_read(train_rest *r, arena *a, const train_rest_config *c)
{
    row_writes *writes = NULL;
    TRY(arena_new(a, r->run->count + 1, &writes));
    for (int64_t i = 0; i < c->plan_count; i++) {
        writes_find(r, c->plans[i], writes);
        for (int64_t k = 0; k < r->run->count; k++) {
            rest_row *w = &r->rows[k];
            w->is_written = w->is_written || writes[k].is_completed || writes[k].last.action >= 0;
            w->is_completed = w->is_completed || writes[k].is_completed;
        }
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
    *r = (train_rest){.e = c->e, .run = run, .base = c->base, .is_compared = c->is_compared};
    (void)snprintf(r->fault, sizeof(r->fault), "train.rest.%d", c->rank);
    TRY(arena_new(a, run->count + 1, &r->rows));
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (!is_state(t)) continue;
        r->rows[i] = (rest_row){
            .all = r, .row = i, .bytes = plan_tensor_held_bytes(t), .is_residual = is_residual(t)};
        most = max_i64(most, r->rows[i].bytes);
    }
    if (r->base == NULL) TRY(arena_new(a, most, &r->copy));
    TRY(plans_read(r, a, c));
    for (int64_t i = 0; i < run->count; i++) {
        rest_row *w = &r->rows[i];
        if (w->all == NULL) continue;
        w->copy = r->copy;
        if (r->base == NULL && w->is_residual) TRY(arena_new(a, w->bytes, &w->copy));
        w->in_step = r->base != NULL ? r->base + run->tensors[i].offset : w->copy;
        w->is_wanted = is_wanted(r, w);
    }
    *out = r;
    return train_rest_verify(r, REST_NEW);
}
