// A process that outlives its sessions keeps what the next one would have to make again.
#include "train/process.h"

#include <stdlib.h>
#include <string.h>

status train_process_create(train_process **out)
{
    train_process *p = calloc(1, sizeof(*p));
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for what a process keeps");
    p->state_step = -1;
    *out = p;
    return ST_OK;
}

// Several plans may lie in one arena.
static bool has_plans_in(const train_process *p, const arena *a)
{
    for (int i = 0; i < PROCESS_PLANS_MAX; i++) {
        if (p->plans[i].a != NULL && p->plans[i].a == a) return true;
    }
    return false;
}

void train_process_destroy(train_process *p)
{
    if (p == NULL) return;
    for (int i = 0; i < PROCESS_GENERATIONS; i++) {
        ckpt_shard_free(&p->own[i]);
        ckpt_shard_free(&p->lone[i]);
    }
    comm_memory_destroy(p->memory);
    for (int i = 0; i < PROCESS_PLANS_MAX; i++) {
        arena *a = p->plans[i].a;
        p->plans[i].a = NULL;
        if (!has_plans_in(p, a)) arena_destroy(a);
    }
    free(p);
}

const assemble_plans *process_plans_find(train_process *p, hash128 key)
{
    for (int i = 0; i < PROCESS_PLANS_MAX; i++) {
        process_plans *e = &p->plans[i];
        if (e->a == NULL || hash128_compare(e->key, key) != 0) continue;
        e->used = ++p->uses;
        return &e->plans;
    }
    return NULL;
}

void process_plans_keep(train_process *p, hash128 key, arena *a, const assemble_plans *plans)
{
    process_plans *to = &p->plans[0]; // a free one, or the one that was not used for longest
    if (a != p->given) return;
    for (int i = 0; i < PROCESS_PLANS_MAX; i++) {
        process_plans *e = &p->plans[i];
        if (to->a != NULL && (e->a == NULL || e->used < to->used)) to = e;
    }
    arena *gone = to->a;
    *to = (process_plans){.a = a, .key = key, .plans = *plans, .used = ++p->uses};
    if (!has_plans_in(p, gone)) arena_destroy(gone); // NULL is legal
}

void train_process_begin(train_process *p, arena *a)
{
    p->given = a;
}

void train_process_end(train_process *p, arena *a)
{
    p->given = NULL;
    if (!has_plans_in(p, a)) arena_destroy(a);
}

// True if no plan depends on the key, which a run may take from its folder or from its data.
static bool is_of_no_plan(const char *key)
{
    return strncmp(key, "schedule.", 9) == 0 || strncmp(key, "log.", 4) == 0 ||
           strcmp(key, "train.steps") == 0;
}

// The keys of the configuration, the model's shape and the options, as text and numbers.
status process_key(arena *a, const run_config *r, const decoder_spec *spec,
                   const assemble_options *options, const plan_mesh *mesh, hash128 *out)
{
    const option_table *t = &run_config_table;
    text all = {.a = a};
    for (int64_t i = 0; i < t->count; i++) {
        if (is_of_no_plan(t->rows[i].key)) continue;
        TRY(text_add(&all, "%s=", t->rows[i].key));
        TRY(option_print(&t->rows[i], r, &all));
        TRY(text_add(&all, "\n"));
    }
    TRY(model_spec_print_json(spec, &all));
    for (int64_t i = 0; i < r->layout.part_count; i++) {
        TRY(text_add(&all, " %lld", (long long)r->layout.parts[i]));
    }
    TRY(text_add(&all, "\n%s %s %d %d %d %d %d", options->device, options->backend,
                 options->threads, options->documents, options->evaluate, options->rollouts,
                 options->snapshots));
    for (int i = 0; mesh != NULL && i < AXIS_COUNT; i++) {
        TRY(text_add(&all, " %lld", (long long)mesh->at[i]));
    }
    *out = hash128_of(all.bytes, all.length);
    return ST_OK;
}
