// A context is a backend with its hints; this file also says how a device runs calls in it.
//
// A device has one context, which is only queried. For each of its streams the device opens a copy
// with threads: all threads for stream 0, one thread for every other stream.
#include "kernels/cpu/pool.h"

#include <stdlib.h>
#include <string.h>

static status level_of(const char *name, kern_level *out)
{
    if (name == NULL) {
        *out = kern_level_fastest();
        return ST_OK;
    }
    for (int level = 0; level < KERN_LEVEL_COUNT; level++) {
        if (strcmp(kern_level_name((kern_level)level), name) != 0) continue;
        *out = (kern_level)level;
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "there is no level %s of kernels", name);
}

const char *kern_level_highest(void)
{
    return kern_level_name(kern_level_of_machine());
}

const char *kern_level_default(void)
{
    return kern_level_name(kern_level_fastest());
}

status kern_level_check(const char *level)
{
    const kern_level machine = kern_level_of_machine();
    kern_level wanted = KERN_SCALAR;
    TRY(level_of(level, &wanted));
    if (wanted <= machine) return ST_OK;
    return fail(ST_DEVICE, "kernels.level = %s, this machine has only %s", level,
                kern_level_name(machine));
}

bool kern_machine_has_avx2(void)
{
    return kern_level_of_machine() >= KERN_AVX2;
}

status kern_context_create(arena *a, const char *backend, const kern_hint *hint, kern_context **out)
{
    const kern_backend *found = kern_backend_find(backend);
    kern_level level = KERN_SCALAR;
    if (found == NULL) return fail(ST_UNSUPPORTED, "there is no backend %s", backend);
    TRY(level_of(hint->level, &level));
    TRY(arena_new(a, 1, out));
    const int threads = hint->threads > 0 ? hint->threads : kern_core_count();
    **out = (kern_context){
        .backend = found, .level = level, .threads = (int)min_i64(threads, KERN_MAX_THREADS)};
    if (hint->checked > 0.0) TRY(kern_checks_create(a, hint->checked, &(*out)->checks));
    return ST_OK;
}

int kern_context_threads(const kern_context *c)
{
    return c->pool != NULL ? kern_pool_threads(c->pool) : (int)max_i64(c->threads, 1);
}

int64_t kern_scratch_bytes(const kern_context *c)
{
    if (c->backend->on_gpu) return 0;
    return (int64_t)kern_context_threads(c) * KERN_SCRATCH_BYTES;
}

int64_t kern_workspace_plain(const kern_context *c, const kern_call *call)
{
    ASSERT((int)call->code >= 0 && call->code < OP_CODE_COUNT);
    if (c->backend->workspace_bytes[call->code] == NULL) return 0;
    return c->backend->workspace_bytes[call->code](call, kern_context_threads(c));
}

int64_t kern_workspace_bytes(const kern_context *c, const kern_call *call)
{
    const int64_t plain = kern_workspace_plain(c, call);
    if (c->checks == NULL || c->backend->check_bytes[call->code] == NULL) return plain;
    return align_up(plain, ALIGN_TENSOR) + c->backend->check_bytes[call->code](call);
}

kern_checks *kern_context_checks(const kern_context *c)
{
    return c->checks;
}

int64_t kern_packed_bytes(const kern_context *c, const kern_call *call)
{
    ASSERT((int)call->code >= 0 && call->code < OP_CODE_COUNT);
    if (c->backend->packed_bytes[call->code] == NULL) return 0;
    return c->backend->packed_bytes[call->code](call, c->level);
}

bool kern_has(const kern_context *c, op_code code)
{
    ASSERT((int)code >= 0 && code < OP_CODE_COUNT);
    return c->backend->run[code] != NULL;
}

// Runs both calls of a fused launch. If the operands do not allow the backend to fuse them, the
// calls run one after the other, which gives the same bits.
static status run_both(const kern_context *c, const kern_call *call)
{
    kern_call first = *call;
    first.then = NULL;
    TRY(kern_run(c, &first));
    return kern_run(c, call->then);
}

status kern_run(const kern_context *c, const kern_call *call)
{
    const bool joins = call->then != NULL && kern_joins(c, call, call->then);
    // A product that is checked may run twice.
    if (call->then != NULL && (!joins || (c->checks != NULL && kern_eats_operand(call->then)))) {
        return run_both(c, call);
    }
    return kern_call_run(c, call);
}

// ---- for a device -------------------------------------------------------------------------------
// Returns the level that the context was set up for, if this machine has it.
static kern_level level_here(const kern_context *of)
{
    const kern_level machine = kern_level_of_machine();
    return of->level < machine ? of->level : machine;
}

void kern_context_close(kern_context *c)
{
    if (c == NULL) return;
    kern_pool_destroy(c->pool);
    free(c->scratch);
    free(c);
}

status kern_context_open(const kern_context *of, int32_t stream, kern_context **out)
{
    const int threads = stream == 0 ? of->threads : 1;
    const int64_t bytes = (int64_t)threads * KERN_SCRATCH_BYTES;
    kern_context *c = calloc(1, sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for the kernels of stream %d", stream);
    c->backend = of->backend;
    c->level = level_here(of);
    c->threads = threads;
    c->checks = of->checks;
    status st;
    TRY_TO(close_context, kern_pool_create(threads, &c->pool));
    c->scratch = aligned_alloc(4096, (size_t)bytes);
    if (c->scratch == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for the scratch of %d threads", threads);
        goto close_context;
    }
#ifdef TRIREME_DEBUG
    memset(c->scratch, 0xff, (size_t)bytes);
#endif
    kern_pool_scratch_set(c->pool, c->scratch);
    *out = c;
    return ST_OK;
close_context:
    kern_context_close(c);
    return st;
}

status kern_context_open_queue(const kern_context *of, cuda_queue *queue, kern_context **out)
{
    if (!of->backend->on_gpu) {
        return fail(ST_UNSUPPORTED, "backend %s runs on the host's cores, not on a GPU",
                    of->backend->name);
    }
    kern_context *c = calloc(1, sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for the kernels of a stream");
    *c = (kern_context){.backend = of->backend, .threads = 1, .queue = queue};
    *out = c;
    return ST_OK;
}

void kern_context_lead(kern_context *c)
{
    kern_pool_lead(c->pool);
}

static void context_enter(const kern_context *c)
{
    pool_pin_leader(c->pool);
}

void kern_parallel_in(const kern_context *c, int64_t count, device_task task, void *context)
{
    kern_parallel(c->pool, count, task, context);
}

static void context_scratch_set(kern_context *c, void *scratch)
{
    kern_pool_scratch_set(c->pool, scratch);
    free(c->scratch);
    c->scratch = NULL;
}

const char *kern_context_level(const kern_context *c)
{
    return kern_level_name(level_here(c));
}

double kern_peak_flops(const kern_context *c, int threads, dtype type)
{
    return kern_loop_flops(level_here(c), threads > 0 ? threads : kern_context_threads(c),
                           dtype_bytes(type) < dtype_bytes(DTYPE_F32));
}

static double peak_flops(const kern_context *of, dtype type)
{
    return kern_peak_flops(of, 0, type);
}

// Measured: two threads of a Zen 3 reach 207 GFLOP/s and 19 to 31 GB/s, two with AMX 2.3 TFLOP/s of
// bf16 and 10 GB/s (2026-11).
double kern_flops_per_byte(const kern_context *c, dtype type)
{
    const kern_level level = level_here(c);
    if (level >= KERN_AMX && dtype_bytes(type) == 2) return 200.0;
    return level >= KERN_AVX512 ? 20.0 : 10.0;
}

const device_kernels kern_device_kernels = {
    .open = kern_context_open,
    .open_queue = kern_context_open_queue,
    .close = kern_context_close,
    .enter = context_enter,
    .run = kern_run,
    .parallel = kern_parallel_in,
    .scratch_set = context_scratch_set,
    .threads = kern_context_threads,
    .level = kern_context_level,
    .peak_flops = peak_flops,
};
