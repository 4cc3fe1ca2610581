// Splits the time of a step: spans of operations inside windows of time, and their bounds. All
// functions are pure.
//
// The executor works ahead, so the first operations of a step may begin before the results of the
// step before are read back. A window therefore counts the part of each span that lies inside it:
// no instant is counted twice or lost, and the parts of a step add up to its length exactly.
#include "train/bench.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

train_time train_time_of(double *seconds, int64_t count)
{
    ASSERT(count >= 1);
    qsort(seconds, (size_t)count, sizeof(*seconds), ascending);
    const train_time t = {.median_s = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2.0,
                          .min_s = seconds[0],
                          .max_s = seconds[count - 1],
                          .count = count};
    return t;
}

double train_part_bound_s(const train_part *part, double peak_flops, double bytes_per_s)
{
    const double compute_s = peak_flops > 0.0 ? part->flops / peak_flops : 0.0;
    const double memory_s = bytes_per_s > 0.0 ? part->bytes / bytes_per_s : 0.0;
    return compute_s > memory_s ? compute_s : memory_s;
}

// ---- windows ------------------------------------------------------------------------------------

void train_windows_init(train_windows *w, arena *a, int64_t first_ns)
{
    memset(w, 0, sizeof(*w));
    w->a = a;
    w->last_ns = first_ns;
}

static double window_s(const train_window *w)
{
    return (double)(w->end_ns - w->begin_ns) / 1e9;
}

static void overlap_add(train_window *w, const struct train_span *span)
{
    const int64_t begin = max_i64(span->begin_ns, w->begin_ns);
    const int64_t end = min_i64(span->end_ns, w->end_ns);
    if (end > begin) w->in_operation[span->code] += (double)(end - begin) / 1e9;
}

status train_windows_span(train_windows *w, op_code code, int64_t begin_ns, int64_t end_ns)
{
    ASSERT(end_ns >= begin_ns);
    const struct train_span span = {code, begin_ns, end_ns};
    // The span may reach into windows that are closed by now; visits the latest first.
    for (int64_t i = w->count - 1; i >= 0 && begin_ns < w->all[i].end_ns; i--) {
        overlap_add(&w->all[i], &span);
    }
    if (end_ns <= w->last_ns) return ST_OK;
    TRY(arena_grow(w->a, (void **)&w->open, &w->open_capacity, w->open_count + 1,
                   (int64_t)sizeof(*w->open)));
    w->open[w->open_count++] = span;
    return ST_OK;
}

status train_windows_close(train_windows *w, int64_t end_ns)
{
    ASSERT(end_ns >= w->last_ns);
    TRY(arena_grow(w->a, (void **)&w->all, &w->capacity, w->count + 1, (int64_t)sizeof(*w->all)));
    train_window *window = &w->all[w->count++];
    memset(window, 0, sizeof(*window));
    window->begin_ns = w->last_ns;
    window->end_ns = end_ns;
    int64_t kept = 0;
    for (int64_t i = 0; i < w->open_count; i++) {
        const struct train_span *span = &w->open[i];
        overlap_add(window, span);
        if (span->end_ns > end_ns) w->open[kept++] = *span;
    }
    w->open_count = kept;
    w->last_ns = end_ns;
    return ST_OK;
}

void train_windows_resume(train_windows *w, int64_t begin_ns)
{
    ASSERT(begin_ns >= w->last_ns);
    w->last_ns = begin_ns;
}

// Returns the operation with this span name; OP_CODE_COUNT if there is none.
static op_code code_of(const char *name)
{
    for (int i = 0; i < OP_CODE_COUNT; i++) {
        if (strcmp(op_kind_of((op_code)i)->name, name) == 0) return (op_code)i;
    }
    return OP_CODE_COUNT;
}

int64_t train_trace_capacity(const plan *p)
{
    enum { STEPS = 4, SLACK = 64 };
    int64_t calls = 0;
    for (int64_t i = 0; i < p->action_count; i++) calls += p->actions[i].ops_count;
    return STEPS * calls + SLACK;
}

status train_windows_trace(train_windows *w, trace_ring *trace)
{
    trace_record chunk[64];
    for (;;) {
        const int64_t n = trace_take(trace, chunk, COUNT_OF(chunk));
        if (n == 0) break;
        for (int64_t i = 0; i < n; i++) {
            const trace_record *r = &chunk[i];
            if (r->kind != TRACE_SPAN || r->stream != STREAM_COMPUTE) continue;
            const op_code code = code_of(r->name);
            ASSERT(code != OP_CODE_COUNT);
            TRY(train_windows_span(w, code, r->begin_ns, r->end_ns));
        }
    }
    if (trace_dropped(trace) == 0) return ST_OK;
    return fail(ST_INTERNAL, "%lld spans of operations were lost: the trace ring is too small",
                (long long)trace_dropped(trace));
}

// ---- parts --------------------------------------------------------------------------------------

// Adds FLOPs and bytes of the plan's actions in one step, by kind of operation.
static void costs_add(const plan *p, train_part parts[OP_CODE_COUNT])
{
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *action = &p->actions[i];
        if (action->kind != ACTION_COMPUTE && action->kind != ACTION_OPTIMIZER) continue;
        const op_program *program = p->bindings[action->binding].program;
        const int64_t sequences =
            action->sequence_count > 0 ? action->sequence_count : p->micro_batch;
        const extent_binding bound = plan_bound(p, sequences, action->position_count);
        for (int64_t k = 0; k < action->ops_count; k++) {
            const op_node *node = &program->lists[action->list].nodes[action->ops_begin + k];
            const op_cost cost = op_node_cost(program, node, &bound);
            parts[node->code].calls++;
            parts[node->code].flops += cost.flops;
            parts[node->code].bytes += cost.bytes_read + cost.bytes_written;
        }
    }
}

static int window_order(const void *x, const void *y)
{
    const train_window *const *a = x, *const *b = y;
    return (window_s(*a) > window_s(*b)) - (window_s(*a) < window_s(*b));
}

static int longest_first(const void *x, const void *y)
{
    const train_part *a = x, *b = y;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

status train_parts_make(const plan *p, const train_windows *w, train_parts *out)
{
    ASSERT(w->count >= 1);
    const train_window **order = NULL;
    train_part parts[OP_CODE_COUNT] = {{0}};
    TRY(arena_new(w->a, w->count, &order));
    for (int64_t i = 0; i < w->count; i++) order[i] = &w->all[i];
    qsort(order, (size_t)w->count, sizeof(*order), window_order);
    const train_window *low = order[(w->count - 1) / 2], *high = order[w->count / 2];
    costs_add(p, parts);
    memset(out, 0, sizeof(*out));
    out->step_s = (window_s(low) + window_s(high)) / 2.0;
    double outside = out->step_s;
    for (int i = 0; i < OP_CODE_COUNT; i++) {
        parts[i].name = op_kind_of((op_code)i)->name;
        parts[i].seconds = (low->in_operation[i] + high->in_operation[i]) / 2.0;
        outside -= parts[i].seconds;
        if (parts[i].calls > 0 || parts[i].seconds > 0.0) out->rows[out->count++] = parts[i];
    }
    qsort(out->rows, (size_t)out->count, sizeof(out->rows[0]), longest_first);
    out->rows[out->count++] = (train_part){.name = "no operation", .seconds = outside};
    return ST_OK;
}
