// Two functions of the copier are called by a step's operations (exec_probe): one wakes its thread,
// the other waits for it. The thread that posts steps is in neither, because it may wait for the
// device.
#include "train/buddy.h"

#include "base/fault.h"
#include "op/op_kind.h"
#include "op/step.h"

#include <pthread.h>
#include <string.h>

enum { COPIES = PROCESS_GENERATIONS, RECORDS = 4 };
typedef enum copier_state { COPIER_IDLE, COPIER_COPIES, COPIER_ENDS } copier_state;

// The label of a copy.
typedef struct record {
    ckpt_info info; // step -1: none
    int64_t fork;
} record;

struct buddy_copier {
    buddy_config config;
    const char *step; // the step block in the arena
    char *block;      // as it was when the copy began
    int64_t block_bytes;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; // guards all below
    pthread_cond_t changed;
    copier_state state;
    int slot;                // where the copy in progress goes, or the next one
    int64_t begun;           // newest step whose copy was begun, or taken by the session
    int64_t newest;          // the same, complete
    record records[RECORDS]; // of the steps posted last
    int64_t told;            // of them, ever
    int64_t tokens;          // of all steps so far
    record label;            // of the copy in progress
    error_record error;      // of a copy that failed; code ST_OK: none did
};

// ---- the copier's side --------------------------------------------------------------------------

static status copy_take(const buddy_copier *c)
{
    ckpt_shard *own = &c->config.process->own[c->slot];
    TRY(fault_point("train.buddy.save"));
    TRY(ckpt_sharder_copy(c->config.sharder, c->block, own));
    TRY(fault_point("train.buddy.save"));
    ckpt_sharder_mark(c->config.sharder, &c->label.info, c->label.fork, own);
    return ST_OK;
}

static void *copier(void *context)
{
    buddy_copier *c = context;
    pthread_mutex_lock(&c->lock);
    while (c->state != COPIER_ENDS) {
        if (c->state != COPIER_COPIES) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock); // the copy in progress is this thread's
        const status st = copy_take(c);
        pthread_mutex_lock(&c->lock);
        if (st != ST_OK && c->error.code == ST_OK) error_take(&c->error);
        error_clear();
        if (st == ST_OK) {
            c->newest = c->begun;
            c->slot = (c->slot + 1) % COPIES;
        }
        if (c->state == COPIER_COPIES) c->state = COPIER_IDLE;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- the device's side --------------------------------------------------------------------------

static const record *record_of(const buddy_copier *c, int64_t step)
{
    for (int i = 0; i < RECORDS; i++) {
        if (c->records[i].info.step == step) return &c->records[i];
    }
    return NULL;
}

static status copy_begin(void *context)
{
    buddy_copier *c = context;
    const step_block *now = (const step_block *)(const void *)c->step;
    const int64_t step = now->host.step;
    pthread_mutex_lock(&c->lock);
    ASSERT(c->state != COPIER_COPIES); // this step's update has waited
    c->tokens += now->device.tokens;
    const record *r = record_of(c, step);
    if (step % c->config.every == 0 && r != NULL) {
        c->label = *r;
        c->label.info.tokens = c->tokens;
        memcpy(c->block, c->step, (size_t)c->block_bytes);
        c->begun = step;
        c->state = COPIER_COPIES;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return ST_OK;
}

static status copy_wait(void *context)
{
    buddy_copier *c = context;
    pthread_mutex_lock(&c->lock);
    while (c->state == COPIER_COPIES) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return ST_OK;
}

// The node of an action that decides whether the step's update is made; -1: none.
static int32_t decide_find(const plan *p, const plan_action *a)
{
    if (a->kind != ACTION_OPTIMIZER || a->binding < 0) return -1;
    const op_node *nodes = p->bindings[a->binding].program->lists[a->list].nodes;
    for (int32_t i = 0; i < a->ops_count; i++) {
        if (op_decides(nodes[a->ops_begin + i].code)) return i;
    }
    return -1;
}

// After the last update the state is whole: its updates are on one stream, and no communication
// comes after them.
static bool is_last_update(const plan *p, int32_t action)
{
    const plan_action *at = &p->actions[action];
    if (at->kind != ACTION_OPTIMIZER || at->ops_count == 0) return false;
    for (int32_t i = action + 1; i < p->action_count; i++) {
        if (p->actions[i].kind == ACTION_OPTIMIZER) return false;
    }
    return true;
}

bool buddy_can_copy(const plan *p)
{
    bool has_updates = false;
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *at = &p->actions[i];
        if (at->kind == ACTION_OPTIMIZER && at->stream != STREAM_COMPUTE) return false;
        if (at->kind == ACTION_COMMUNICATE && has_updates) return false;
        has_updates = has_updates || decide_find(p, at) >= 0;
    }
    return has_updates;
}

static status plan_probe(buddy_copier *c, arena *a, const plan *p)
{
    exec_probe *probes = NULL;
    int64_t count = 0;
    TRY(arena_new(a, 2, &probes));
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *at = &p->actions[i];
        const int32_t decides = decide_find(p, at);
        exec_probe probe = {.action = i, .node = decides, .ref = p->step_ref, .context = c};
        probe.call = copy_wait;
        if (decides >= 0) probes[count++] = probe;
        if (!is_last_update(p, i)) continue;
        ASSERT(count == 1);
        probe.node = at->ops_count - 1;
        probe.call = copy_begin;
        probes[count++] = probe;
    }
    ASSERT(count == 2);
    exec_probes_set(c->config.e, p, probes, count);
    return ST_OK;
}

// ---- the session's side -------------------------------------------------------------------------

status buddy_copier_create(const buddy_config *wanted, arena *a, buddy_copier **out)
{
    buddy_copier *c = NULL;
    TRY(arena_new(a, 1, &c));
    c->config = *wanted;
    const plan_table *run = wanted->plans[0]->run;
    const plan_tensor *step = &run->tensors[plan_table_find(run, "step")];
    c->step = wanted->memory + step->offset;
    c->block_bytes = step->bytes;
    TRY(arena_new(a, step->bytes, &c->block));
    c->begun = c->newest = wanted->step;
    c->slot = wanted->process->next;
    c->tokens = wanted->tokens;
    for (int i = 0; i < RECORDS; i++) c->records[i].info.step = -1;
    if (pthread_mutex_init(&c->lock, NULL) != 0 || pthread_cond_init(&c->changed, NULL) != 0) {
        return fail(ST_NO_MEMORY, "no memory for a lock");
    }
    const int error = pthread_create(&c->thread, NULL, copier, c);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the thread that copies the state (error %d)%s",
                    error, host_limit_remedy(error));
    }
    c->has_thread = true;
    for (int64_t i = 0; i < wanted->count; i++) {
        const status st = plan_probe(c, a, wanted->plans[i]);
        if (st == ST_OK) continue;
        buddy_copier_destroy(c);
        return st;
    }
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

void buddy_copier_info(buddy_copier *c, const ckpt_info *info, int64_t fork)
{
    pthread_mutex_lock(&c->lock);
    c->records[c->told++ % RECORDS] = (record){*info, fork};
    pthread_mutex_unlock(&c->lock);
}

status buddy_copier_see(buddy_copier *c, bool waits, int64_t *newest)
{
    pthread_mutex_lock(&c->lock);
    while (waits && c->state == COPIER_COPIES) pthread_cond_wait(&c->changed, &c->lock);
    if (c->state != COPIER_COPIES) c->config.process->next = c->slot;
    *newest = c->newest;
    const status st = c->error.code != ST_OK ? error_put(&c->error) : ST_OK;
    pthread_mutex_unlock(&c->lock);
    return st;
}

void buddy_copier_close(buddy_copier *c)
{
    if (!c->has_thread) return;
    pthread_mutex_lock(&c->lock);
    while (c->state == COPIER_COPIES) pthread_cond_wait(&c->changed, &c->lock);
    c->state = COPIER_ENDS;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) (void)pthread_join(c->thread, NULL);
    c->has_thread = false;
}

void buddy_copier_destroy(buddy_copier *c)
{
    if (c == NULL) return;
    buddy_copier_close(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}
