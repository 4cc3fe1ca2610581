// Functions of the copier are called by a step's operations (exec_probe): on each stream one after
// the last write of what is copied, and on the compute stream one before the first. The thread that
// posts steps is in none of them, because it may wait for the device.
//
// The device part of the step block is taken after the last update, because the next step begins by
// writing it. What a collective completes after that (weights, with ZeRO-1 and -2) is waited for.
#include "train/buddy.h"

#include "base/fault.h"
#include "op/step.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = PROCESS_GENERATIONS, RECORDS = 4 };
typedef enum copier_state {
    COPIER_IDLE,
    COPIER_OPEN,   // the step block is taken; some streams still write the state
    COPIER_COPIES, // to the own shard
    COPIER_SENDS   // between ranks, or reserves memory; the state may change
} copier_state;

// The label of a copy.
typedef struct record {
    ckpt_info info;
    int64_t fork;
} record;

// The context of the probes of one plan.
typedef struct watched {
    buddy_copier *copier;
    int32_t streams; // that write the state
} watched;

struct buddy_copier {
    buddy_config config;
    const char *step; // the step block in the arena
    char *block;      // its device part as it was when the copy began
    int64_t block_bytes;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; // guards all below
    pthread_cond_t changed;
    copier_state state;
    bool is_stopped;         // no copy begins any more
    bool ends;               // the thread is to end
    int32_t ended;           // streams that have written all of a step, while others have not
    int slot;                // where the copy in progress goes, or the next one
    int64_t begun;           // newest step whose copy was begun, or taken by the session
    int64_t newest;          // the same, complete
    record records[RECORDS]; // of the steps posted last
    int64_t told, seen;      // of them, ever; of the steps that have ended
    int64_t tokens;          // of all steps so far
    record label;            // of the copy in progress
    error_record error;      // of a copy that failed; code ST_OK: none did
};

// ---- between ranks ------------------------------------------------------------------------------

// The rank whose buddy this one is.
static int64_t source_of(const buddy_route *x)
{
    return (x->rank - x->apart + x->ranks) % x->ranks;
}

static status lone_reserve(const buddy_route *x, ckpt_shard *lone)
{
    return ckpt_shard_reserve(lone, max_i64(x->bytes[source_of(x)], 1));
}

// Sends the lone pieces to the buddy, and gets those of the rank whose buddy this one is.
status buddy_exchange(const buddy_route *x, int64_t step, ckpt_shard *own, ckpt_shard *lone)
{
    const int64_t from = source_of(x);
    const int64_t buddy = (x->rank + x->apart) % x->ranks;
    if (x->is_lone) {
        memset(x->counts, 0, (size_t)(2 * x->ranks) * sizeof(*x->counts));
        x->counts[buddy] = x->bytes[x->rank];
        x->counts[x->ranks + from] = x->bytes[from];
        TRY(lone_reserve(x, lone));
        const comm_item item = {.in = ckpt_shard_lone(own), .out = lone->bytes};
        const comm_args args = {.op = COLLECTIVE_ALL_TO_ALLV,
                                .type = DTYPE_U8,
                                .items = &item,
                                .item_count = 1,
                                .send_counts = x->counts,
                                .receive_counts = x->counts + x->ranks,
                                .tensor = "copies for buddies",
                                .site = __func__,
                                .step = step};
        TRY(comm_run(x->group, &args));
    }
    TRY(fault_point("train.buddy.save"));
    if (x->is_lone) lone->used = x->bytes[from];
    return ST_OK;
}

// ---- the copier's side --------------------------------------------------------------------------

// Memory for a generation that has no copy yet, so that copies find their pages.
static status generation_reserve(const buddy_copier *c, int i)
{
    train_process *p = c->config.process;
    const buddy_route *x = &c->config.route;
    if (p->own[i].used == 0) {
        TRY(ckpt_shard_reserve(&p->own[i], ckpt_sharder_own_bytes(c->config.sharder)));
    }
    return p->lone[i].used > 0 || !x->is_lone ? ST_OK : lone_reserve(x, &p->lone[i]);
}

static status copy_take(const buddy_copier *c)
{
    ckpt_shard *own = &c->config.process->own[c->slot];
    own->used = c->config.process->lone[c->slot].used = 0;
    TRY(fault_point("train.buddy.save"));
    TRY(ckpt_sharder_copy(c->config.sharder, c->block, own));
    ckpt_sharder_label(c->config.sharder, &c->label.info, c->label.fork, own);
    ckpt_shard_count(own);
    return fault_point("train.buddy.save");
}

static status copy_send(const buddy_copier *c)
{
    train_process *p = c->config.process;
    const buddy_route *x = &c->config.route;
    TRY(buddy_exchange(x, c->label.info.step, &p->own[c->slot], &p->lone[c->slot]));
    if (!x->is_lone) return ST_OK;
    TRY(fault_point("train.buddy.save"));
    return comm_barrier(x->group, "copies for buddies");
}

static void state_set(buddy_copier *c, copier_state state)
{
    c->state = state;
    pthread_cond_broadcast(&c->changed);
}

// The lock is held, but not while it works. Other ranks wait for this one's pieces, and this one's
// session may wait for them, so an error ends all waits of this rank.
static void result_take(buddy_copier *c, status st)
{
    pthread_mutex_lock(&c->lock);
    if (st == ST_OK || c->error.code != ST_OK) return;
    error_take(&c->error);
    error_clear();
    if (c->config.route.all != NULL) comm_abort(c->config.route.all, ST_PEER_LOST, c->error.text);
}

static void *copier(void *context)
{
    buddy_copier *c = context;
    status st = generation_reserve(c, c->slot);
    if (st == ST_OK) st = generation_reserve(c, (c->slot + 1) % COPIES);
    result_take(c, st);
    state_set(c, COPIER_IDLE);
    while (!c->ends) {
        if (c->state != COPIER_COPIES) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock); // the copy in progress is this thread's
        st = copy_take(c);
        result_take(c, st);
        if (st == ST_OK) {
            state_set(c, COPIER_SENDS);
            pthread_mutex_unlock(&c->lock);
            st = copy_send(c);
            result_take(c, st);
        }
        if (st == ST_OK) {
            c->newest = c->begun;
            c->slot = (c->slot + 1) % COPIES;
        }
        state_set(c, COPIER_IDLE);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- the device's side --------------------------------------------------------------------------

// One more stream has written all of a step. All do so before any of them does in the next step,
// because the first write of that one waits for them.
static void stream_end(watched *w)
{
    buddy_copier *c = w->copier;
    if (++c->ended < w->streams) return;
    c->ended = 0;
    if (c->state == COPIER_OPEN) state_set(c, c->is_stopped ? COPIER_IDLE : COPIER_COPIES);
    pthread_cond_broadcast(&c->changed);
}

// The device writes no more of the step block.
static void copy_open(buddy_copier *c, const record *r)
{
    const int64_t head = (int64_t)offsetof(step_block, device);
    c->label = *r;
    c->label.info.tokens = c->tokens;
    memcpy(c->block + head, c->step + head, (size_t)(c->block_bytes - head));
    c->begun = r->info.step;
}

// After the last update.
static void step_end(buddy_copier *c)
{
    const step_block *now = (const step_block *)(const void *)c->step;
    ASSERT(c->seen < c->told);
    const record *r = &c->records[c->seen++ % RECORDS];
    c->tokens += now->device.tokens;
    if (r->info.step % c->config.every != 0 || c->error.code != ST_OK) return;
    copy_open(c, r);
    state_set(c, COPIER_OPEN);
}

static status compute_end(void *context)
{
    watched *w = context;
    buddy_copier *c = w->copier;
    pthread_mutex_lock(&c->lock);
    while (c->state != COPIER_IDLE && !c->is_stopped) pthread_cond_wait(&c->changed, &c->lock);
    if (!c->is_stopped) step_end(c);
    stream_end(w);
    pthread_mutex_unlock(&c->lock);
    return ST_OK;
}

static status other_end(void *context)
{
    watched *w = context;
    pthread_mutex_lock(&w->copier->lock);
    stream_end(w);
    pthread_mutex_unlock(&w->copier->lock);
    return ST_OK;
}

// Before the first write.
static status copy_wait(void *context)
{
    buddy_copier *c = ((watched *)context)->copier;
    pthread_mutex_lock(&c->lock);
    while (c->state == COPIER_COPIES || (c->ended > 0 && !c->is_stopped)) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    if (c->state == COPIER_OPEN) state_set(c, COPIER_IDLE); // it is stopped, and some stream is not
    pthread_mutex_unlock(&c->lock);
    return ST_OK;
}

// ---- plans --------------------------------------------------------------------------------------

static plan_place compute_last(const plan *p, const plan_writes *w)
{
    for (int32_t i = w->count - 1; i >= 0; i--) {
        if (p->actions[w->last[i].action].stream == STREAM_COMPUTE) return w->last[i];
    }
    return (plan_place){-1, -1};
}

status buddy_can_copy(arena *a, const plan *p, const plan_mesh *mesh, const bool *rows,
                      buddy_plan *out, bool *can)
{
    buddy_plan x = {.p = p};
    plan_writes block;
    bool *of_block = NULL;
    TRY(plan_writes_find(a, p, mesh, rows, &x.writes));
    *can = x.writes.count == 0;
    if (p->purpose != PURPOSE_TRAIN) return ST_OK;
    TRY(arena_new(a, p->run->count + 1, &of_block));
    of_block[plan_ref_row(p->step_ref)] = true;
    TRY(plan_writes_find(a, p, mesh, of_block, &block));
    x.last = compute_last(p, &x.writes);
    const plan_place decided = compute_last(p, &block);
    *can = x.last.action >= 0 && x.writes.before.action >= 0 && decided.action >= 0 &&
           decided.action == block.last[block.count - 1].action;
    if (plan_place_is_before(x.last, decided)) x.last = decided;
    *out = x;
    return ST_OK;
}

static int probes_compare(const void *left, const void *right)
{
    const exec_probe *x = left, *y = right;
    return plan_place_compare((plan_place){x->action, x->node}, (plan_place){y->action, y->node});
}

static status plan_probe(buddy_copier *c, arena *a, const buddy_plan *x)
{
    const plan_place before = x->writes.before;
    exec_probe *probes = NULL;
    watched *w = NULL;
    int64_t count = 0;
    TRY(arena_new(a, 1, &w));
    TRY(arena_new(a, x->writes.count + 1, &probes));
    w->copier = c;
    w->streams = x->writes.count;
    probes[count++] =
        (exec_probe){.action = before.action, .node = before.node, .call = copy_wait, .context = w};
    for (int32_t i = 0; i < x->writes.count; i++) {
        plan_place at = x->writes.last[i];
        const bool computes = x->p->actions[at.action].stream == STREAM_COMPUTE;
        if (computes) at = x->last;
        probes[count++] = (exec_probe){.action = at.action,
                                       .node = at.node,
                                       .call = computes ? compute_end : other_end,
                                       .context = w};
    }
    qsort(probes, (size_t)count, sizeof(*probes), probes_compare);
    for (int64_t i = 0; i < count; i++) probes[i].ref = x->p->step_ref;
    exec_probes_set(c->config.e, x->p, probes, count);
    return ST_OK;
}

// ---- the session's side -------------------------------------------------------------------------

static status thread_begin(buddy_copier *c)
{
    if (pthread_mutex_init(&c->lock, NULL) != 0 || pthread_cond_init(&c->changed, NULL) != 0) {
        return fail(ST_NO_MEMORY, "no memory for a lock");
    }
    const int error = pthread_create(&c->thread, NULL, copier, c);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the thread that copies the state (error %d)%s",
                    error, host_limit_remedy(error));
    }
    c->has_thread = true;
    return ST_OK;
}

status buddy_copier_create(const buddy_config *wanted, arena *a, buddy_copier **out)
{
    buddy_copier *c = NULL;
    TRY(arena_new(a, 1, &c));
    c->config = *wanted;
    const plan_table *run = wanted->plans[0].p->run;
    const plan_tensor *step = &run->tensors[plan_table_find(run, "step")];
    c->step = wanted->memory + step->offset;
    c->block_bytes = step->bytes;
    TRY(arena_new(a, step->bytes, &c->block));
    c->state = COPIER_SENDS; // it reserves memory
    c->begun = c->newest = wanted->step;
    c->slot = wanted->process->next;
    c->tokens = wanted->tokens;
    for (int64_t i = 0; i < wanted->count; i++) TRY(plan_probe(c, a, &wanted->plans[i]));
    TRY(thread_begin(c));
    *out = c;
    return ST_OK;
}

void buddy_copier_has(buddy_copier *c, int64_t step)
{
    pthread_mutex_lock(&c->lock);
    ASSERT(c->state == COPIER_IDLE);
    c->begun = c->newest = step;
    c->slot = c->config.process->next;
    pthread_mutex_unlock(&c->lock);
}

void buddy_copier_begin(buddy_copier *c, const ckpt_info *info, int64_t fork)
{
    const record now = {*info, fork};
    pthread_mutex_lock(&c->lock);
    while (c->state != COPIER_IDLE) pthread_cond_wait(&c->changed, &c->lock);
    copy_open(c, &now);
    state_set(c, COPIER_COPIES);
    pthread_mutex_unlock(&c->lock);
}

void buddy_copier_info(buddy_copier *c, const ckpt_info *info, int64_t fork)
{
    pthread_mutex_lock(&c->lock);
    c->records[c->told++ % RECORDS] = (record){*info, fork};
    pthread_mutex_unlock(&c->lock);
}

status buddy_copier_see(buddy_copier *c, bool waits, int64_t *newest)
{
    pthread_mutex_lock(&c->lock);
    while (waits && c->state != COPIER_IDLE) pthread_cond_wait(&c->changed, &c->lock);
    if (c->state == COPIER_IDLE) c->config.process->next = c->slot;
    *newest = c->newest;
    const status st = c->error.code != ST_OK ? error_put(&c->error) : ST_OK;
    pthread_mutex_unlock(&c->lock);
    return st;
}

status buddy_copier_error(buddy_copier *c, status st)
{
    pthread_mutex_lock(&c->lock);
    if (st == ST_PEER_LOST && c->error.code != ST_OK) st = error_put(&c->error);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void buddy_copier_rest(buddy_copier *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->state == COPIER_OPEN || c->state == COPIER_COPIES) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

void buddy_copier_stop(buddy_copier *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_stopped = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void buddy_copier_close(buddy_copier *c)
{
    if (!c->has_thread) return;
    pthread_mutex_lock(&c->lock);
    while (c->state == COPIER_COPIES || c->state == COPIER_SENDS) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    state_set(c, COPIER_IDLE);
    c->ends = true;
    pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    c->has_thread = false;
}

void buddy_copier_destroy(buddy_copier *c)
{
    if (c == NULL) return;
    buddy_copier_close(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}
