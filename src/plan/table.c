// The tensor table: names, offsets and the memory by kind.
#include "base/hash.h"
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

const char *plan_bytes_name(plan_kind_of_bytes kind)
{
    static const char *const names[PLAN_BYTES_COUNT] = {
        [PLAN_BYTES_WEIGHTS] = "weights", [PLAN_BYTES_GRADIENTS] = "gradients",
        [PLAN_BYTES_MASTER] = "master",   [PLAN_BYTES_MOMENTS] = "moments",
        [PLAN_BYTES_BUFFERS] = "buffers", [PLAN_BYTES_ACTIVATIONS] = "activations",
    };
    ASSERT(kind >= 0 && kind < PLAN_BYTES_COUNT);
    return names[kind];
}

// Returns the slot of a name's row, or the free slot for it.
static int64_t slot_of(const plan_table *run, const char *name)
{
    int64_t at = (int64_t)(hash64(name, (int64_t)strlen(name), 0) % (uint64_t)run->by_name_slots);
    while (run->by_name[at] > 0 && strcmp(run->tensors[run->by_name[at] - 1].name, name) != 0) {
        at = (at + 1) % run->by_name_slots;
    }
    return at;
}

int64_t plan_load_words(const plan *p)
{
    return p->model != NULL ? step_load_words(p->model->load_layers, p->model->load_experts) : 0;
}

int64_t plan_readback_bytes(const plan *p)
{
    return (int64_t)sizeof(step_device) + plan_load_words(p) * (int64_t)sizeof(int64_t);
}

int64_t plan_table_find(const plan_table *run, const char *name)
{
    return run->by_name_slots > 0 ? (int64_t)run->by_name[slot_of(run, name)] - 1 : -1;
}

status plan_table_push(plan_table *run, const plan_tensor *tensor)
{
    if (2 * (run->count + 1) > run->by_name_slots) { // at most half of the slots are in use
        const int64_t slots = max_i64(4 * run->count, 64);
        TRY(arena_new(run->a, slots, &run->by_name));
        run->by_name_slots = slots;
        for (int32_t i = 0; i < run->count; i++) {
            run->by_name[slot_of(run, run->tensors[i].name)] = i + 1;
        }
    }
    TRY(arena_grow(run->a, (void **)&run->tensors, &run->capacity, run->count + 1,
                   (int64_t)sizeof(*tensor)));
    run->tensors[run->count] = *tensor;
    run->by_name[slot_of(run, tensor->name)] = (int32_t)++run->count;
    return ST_OK;
}

status plan_table_group(plan_table *run, const plan_group *group, int32_t *row)
{
    for (*row = 0; *row < run->group_count; (*row)++) {
        if (plan_group_equal(&run->groups[*row], group)) return ST_OK;
    }
    TRY(arena_grow(run->a, (void **)&run->groups, &run->group_capacity, run->group_count + 1,
                   (int64_t)sizeof(*group)));
    run->groups[run->group_count++] = *group;
    return ST_OK;
}

void plan_table_place(plan_table *run)
{
    int64_t at = 0;
    for (int64_t i = 0; i < run->count; i++) {
        run->tensors[i].offset = at;
        at += align_up(run->tensors[i].bytes, ALIGN_TENSOR);
    }
    run->run_bytes = at;
}

extent_binding plan_bound(const plan *p, int64_t sequences, int64_t positions)
{
    extent_binding b = {{0}};
    b.value[EXTENT_ONE] = 1;
    b.value[EXTENT_SEQS] = sequences;
    b.value[EXTENT_TOKENS] = positions > 0 ? positions : sequences * p->seq;
    b.value[EXTENT_CACHE] = sequences * p->cache_seq;
    b.value[EXTENT_TOKENS_CUT] =
        positions > 0 ? positions * p->seq_cut / p->seq : sequences * p->seq_cut;
    return b;
}

const plan_tensor *plan_tensor_at(const plan *p, int32_t ref)
{
    const int64_t row = plan_ref_row(ref);
    ASSERT(row < (plan_ref_is_run(ref) ? p->run->count : p->tensor_count));
    return plan_ref_is_run(ref) ? &p->run->tensors[row] : &p->tensors[row];
}

int64_t plan_tensor_offset(const plan *p, int32_t ref)
{
    const plan_tensor *t = plan_tensor_at(p, ref);
    if (t->is_part) return plan_tensor_offset(p, t->whole) + t->offset;
    return plan_ref_is_run(ref) ? t->offset : p->run->run_bytes + t->offset;
}

int64_t plan_tensor_held_bytes(const plan_tensor *t)
{
    int64_t bytes = dtype_bytes(t->type);
    for (int i = 0; i < t->ndim; i++) bytes *= t->dims[i];
    return bytes;
}

int64_t plan_arena_bytes(const plan_table *run, const plan *const *plans, int64_t count)
{
    int64_t transient = 0;
    for (int64_t i = 0; i < count; i++) {
        transient = max_i64(transient, plans[i]->transient_bytes);
    }
    return run->run_bytes + transient;
}
