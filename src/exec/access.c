// Reads and writes tensors of the run between steps, when the device is idle.
#include "exec/exec_internal.h"

#include <stdlib.h>
#include <string.h>

status exec_write(exec *e, int64_t run_row, int64_t offset, const void *data, int64_t bytes)
{
    const plan_tensor *t = &e->config.run->tensors[run_row];
    ASSERT(run_row >= 0 && run_row < e->config.run->count);
    ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= t->bytes);
    bool posted = false;
    while (!posted) {
        TRY(e->config.api->copy_in(e->streams[STREAM_COMPUTE], e->base + t->offset + offset, data,
                                   bytes, &posted));
        if (!posted) TRY(e->config.api->sync(e->device));
    }
    return e->config.api->sync(e->device);
}

status exec_zero(exec *e, int64_t run_row)
{
    ASSERT(run_row >= 0 && run_row < e->config.run->count);
    ASSERT(e->running == NULL);
    if (e->config.api->fresh_is_zero && !e->config.device.memory_is_used) return ST_OK;
    const plan_tensor *t = &e->config.run->tensors[run_row];
    bool posted = false;
    TRY(e->config.api->fill(e->streams[STREAM_COMPUTE], e->base + t->offset, 0, t->bytes, &posted));
    ASSERT(posted); // the stream is idle: nothing was begun
    return e->config.api->sync(e->device);
}

static status read_at(exec *e, int64_t offset, void *data, int64_t bytes)
{
    bool posted = false;
    while (!posted) {
        TRY(e->config.api->copy_out(e->streams[STREAM_COMPUTE], data, e->base + offset, bytes,
                                    &posted));
        if (!posted) TRY(e->config.api->sync(e->device));
    }
    return e->config.api->sync(e->device);
}

status exec_constants_write(exec *e, const op_model *m)
{
    for (int32_t i = 0; i < m->constant_count; i++) {
        const op_constant *c = &m->constants[i];
        char name[PLAN_NAME_BYTES] = "constant.";
        strncat(name, c->name, sizeof(name) - strlen(name) - 1);
        const int64_t row = plan_table_find(e->config.run, name);
        if (row < 0) continue;
        TRY(exec_write(e, row, 0, c->data, c->rows * c->columns * (int64_t)sizeof(float)));
    }
    return ST_OK;
}

status exec_step_reset(exec *e, double loss_scale)
{
    const int64_t row = plan_table_find(e->config.run, "step");
    ASSERT(row >= 0);
    step_block *block = calloc(1, (size_t)e->config.run->tensors[row].bytes);
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    step_device_init(&block->device, loss_scale);
    const status st = exec_write(e, row, 0, block, e->config.run->tensors[row].bytes);
    free(block);
    return st;
}

status exec_read(exec *e, int64_t run_row, int64_t offset, void *data, int64_t bytes)
{
    const plan_tensor *t = &e->config.run->tensors[run_row];
    ASSERT(run_row >= 0 && run_row < e->config.run->count);
    ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= t->bytes);
    return read_at(e, t->offset + offset, data, bytes);
}

status exec_read_transient(exec *e, const plan *p, int32_t row, void *data, int64_t bytes)
{
    ASSERT(row >= 0 && row < p->tensor_count && !p->tensors[row].is_part);
    ASSERT(bytes <= p->tensors[row].bytes);
    return read_at(e, p->run->run_bytes + p->tensors[row].offset, data, bytes);
}

status exec_host_memory(exec *e, int64_t bytes, void **out)
{
    exec_taken *t = NULL;
    TRY(arena_new(e->a, 1, &t));
    TRY(e->config.api->host_alloc(e->device, bytes, &t->memory));
    t->next = e->host_memory;
    e->host_memory = t;
    *out = t->memory;
    return ST_OK;
}

void exec_host_memory_free(exec *e)
{
    for (const exec_taken *t = e->host_memory; t != NULL; t = t->next) {
        e->config.api->host_free(e->device, t->memory);
    }
}

void exec_settle(exec *e)
{
    (void)e->config.api->sync(e->device);
}
