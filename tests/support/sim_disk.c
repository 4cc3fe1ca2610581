// A disk that forgets. See sim_disk.h.
#include "tests/support/sim_disk.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void *sim_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    ASSERT(memory != NULL);
    return memory;
}

char *sim_text(const char *s)
{
    char *copy = strdup(s);
    ASSERT(copy != NULL);
    return copy;
}

sim_disk *sim_disk_create(void)
{
    sim_disk *d = (sim_disk *)sim_alloc(sizeof(*d));
    d->count = 1;
    d->nodes[SIM_ROOT].kind = SIM_FOLDER;
    return d;
}

void sim_disk_destroy(sim_disk *d)
{
    if (d == NULL) return;
    for (int32_t i = 0; i < d->count; i++) {
        sim_node *n = &d->nodes[i];
        for (int32_t k = 0; k < n->entry_count; k++) free(n->entries[k].name);
        free(n->entries);
        free(n->data);
    }
    free(d);
}

sim_disk *sim_disk_copy(const sim_disk *from)
{
    sim_disk *d = (sim_disk *)malloc(sizeof(*d));
    ASSERT(d != NULL);
    memcpy(d, from, offsetof(sim_disk, nodes) + sizeof(sim_node) * (size_t)from->count);
    d->count = from->count;
    for (int32_t i = 0; i < d->count; i++) {
        sim_node *n = &d->nodes[i];
        const sim_entry *entries = n->entries;
        const char *data = n->data;
        n->data = (char *)sim_alloc((size_t)n->capacity);
        if (n->bytes > 0) memcpy(n->data, data, (size_t)n->bytes);
        n->entries = (sim_entry *)sim_alloc(sizeof(sim_entry) * (size_t)n->entry_count);
        for (int32_t k = 0; k < n->entry_count; k++) {
            n->entries[k] = (sim_entry){sim_text(entries[k].name), entries[k].node};
        }
    }
    return d;
}

static int32_t sim_entry_find(const sim_disk *d, int32_t folder, const char *name)
{
    const sim_node *n = &d->nodes[folder];
    for (int32_t k = 0; k < n->entry_count; k++) {
        if (strcmp(n->entries[k].name, name) == 0) return k;
    }
    return -1;
}

int32_t sim_child(const sim_disk *d, int32_t folder, const char *name)
{
    const int32_t k = sim_entry_find(d, folder, name);
    return k < 0 ? -1 : d->nodes[folder].entries[k].node;
}

static void sim_entry_drop(sim_disk *d, int32_t folder, const char *name)
{
    const int32_t k = sim_entry_find(d, folder, name);
    if (k < 0) return; // its making was lost
    sim_node *n = &d->nodes[folder];
    free(n->entries[k].name);
    n->entries[k] = n->entries[--n->entry_count];
}

static void sim_entry_set(sim_disk *d, int32_t folder, const char *name, int32_t node)
{
    sim_entry_drop(d, folder, name);
    sim_node *n = &d->nodes[folder];
    sim_entry *entries =
        (sim_entry *)realloc(n->entries, sizeof(sim_entry) * (size_t)(n->entry_count + 1));
    ASSERT(entries != NULL);
    n->entries = entries;
    n->entries[n->entry_count++] = (sim_entry){sim_text(name), node};
}

static void sim_resize(sim_node *n, int64_t bytes)
{
    if (bytes > n->capacity) {
        const int64_t capacity = max_i64(bytes, 2 * n->capacity);
        char *data = (char *)realloc(n->data, (size_t)capacity);
        ASSERT(data != NULL);
        n->data = data;
        n->capacity = capacity;
    }
    if (bytes > n->bytes) memset(n->data + n->bytes, 0, (size_t)(bytes - n->bytes));
    n->bytes = bytes;
}

static void sim_write_apply(sim_node *n, const sim_op *op, sim_fate fate)
{
    const int64_t bytes = fate == SIM_TORN ? op->bytes / 2 : op->bytes;
    sim_resize(n, max_i64(n->bytes, op->offset + op->bytes)); // the size may be there before bytes
    if (fate != SIM_HOLE && bytes > 0) memcpy(n->data + op->offset, op->data, (size_t)bytes);
}

// A node's number is its place in the table; it is made even where its name was lost.
void sim_apply(sim_disk *d, const sim_op *op, sim_fate fate)
{
    if (op->kind == SIM_ADD && op->node >= d->count) {
        ASSERT(op->node == d->count && d->count < SIM_MAX_NODES);
        sim_node *n = &d->nodes[d->count++];
        *n = (sim_node){.kind = op->node_kind};
        if (op->data != NULL) {
            sim_resize(n, op->bytes);
            memcpy(n->data, op->data, (size_t)op->bytes);
        }
    }
    if (fate == SIM_LOST) return;
    switch (op->kind) {
    case SIM_WRITE:
        sim_write_apply(&d->nodes[op->node], op, fate);
        break;
    case SIM_TRUNCATE:
        sim_resize(&d->nodes[op->node], op->bytes);
        break;
    case SIM_ADD:
        sim_entry_set(d, op->folder, op->name, op->node);
        break;
    case SIM_DROP:
        sim_entry_drop(d, op->folder, op->name);
        break;
    case SIM_RENAME:
        sim_entry_drop(d, op->folder, op->name);
        sim_entry_set(d, op->to_folder, op->to_name, op->node);
        break;
    case SIM_SYNC_FILE:
    case SIM_SYNC_FOLDER:
    default:
        break;
    }
}

// Is change i of the first `count` certain to be on the disk after a power cut?
bool sim_is_durable(const sim_log *log, int64_t i, int64_t count)
{
    const sim_op *op = &log->ops[i];
    bool from = false, to = op->kind != SIM_RENAME || op->folder == op->to_folder;
    for (int64_t j = i + 1; j < count; j++) {
        const sim_op *sync = &log->ops[j];
        if (op->kind == SIM_WRITE || op->kind == SIM_TRUNCATE) {
            if (sync->kind == SIM_SYNC_FILE && sync->node == op->node) return true;
        } else if (sync->kind == SIM_SYNC_FOLDER) {
            if (sync->node == op->folder) from = true;
            if (sync->node == op->to_folder) to = true;
            if (from && to) return true;
        }
    }
    return op->kind == SIM_SYNC_FILE || op->kind == SIM_SYNC_FOLDER;
}

void sim_log_clear(sim_log *log)
{
    for (int64_t i = 0; i < log->count; i++) {
        free(log->ops[i].name);
        free(log->ops[i].to_name);
        free(log->ops[i].data);
    }
    log->count = 0;
}
