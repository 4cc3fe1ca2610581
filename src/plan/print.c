// Prints a plan: the memory table, and plan.json.
#include "plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

// Transient bytes by kind are those at the fullest moment, when they determine the peak. Tensors
// share bytes, so the table counts the tensors that are live then.
void plan_memory_by_kind(const plan *p, int64_t bytes[PLAN_BYTES_COUNT])
{
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) bytes[k] = p->live_by_kind[k];
    for (int64_t i = 0; i < p->run->count; i++) {
        bytes[p->run->tensors[i].kind] += p->run->tensors[i].bytes;
    }
}

typedef struct row {
    const plan_tensor *t;
} row;

static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->t->bytes != y->t->bytes) return x->t->bytes > y->t->bytes ? -1 : 1;
    return strcmp(x->t->name, y->t->name);
}

static status print_largest(const plan *p, text *out)
{
    enum { SHOWN = 6 };
    char human[32];
    row *rows = malloc((size_t)(p->run->count + p->tensor_count) * sizeof(*rows));
    if (rows == NULL) return fail(ST_NO_MEMORY, "no memory for the memory table");
    int64_t n = 0;
    for (int64_t i = 0; i < p->run->count; i++) rows[n++].t = &p->run->tensors[i];
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (!p->tensors[i].is_part) rows[n++].t = &p->tensors[i];
    }
    qsort(rows, (size_t)n, sizeof(*rows), compare_rows);
    status st = text_add(out, "  largest tensors\n");
    for (int64_t i = 0; i < n && i < SHOWN && st == ST_OK; i++) {
        st = text_add(out, "    %-40s %-5s %10s\n", rows[i].t->name, dtype_name(rows[i].t->type),
                      text_bytes_human(rows[i].t->bytes, human));
    }
    free(rows);
    return st;
}

status plan_print_memory(const plan *p, int64_t arena_bytes, int64_t snapshot_bytes,
                         int64_t copies_bytes, int64_t outside_bytes, text *out)
{
    char human[32];
    int64_t bytes[PLAN_BYTES_COUNT], sum = 0;
    const int64_t all = arena_bytes + snapshot_bytes + copies_bytes;
    plan_memory_by_kind(p, bytes);
    TRY(text_add(out, "  where the bytes go\n"));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        sum += bytes[k];
        TRY(text_add(out, "    %-12s %10s  %4.1f%%\n", plan_bytes_name((plan_kind_of_bytes)k),
                     text_bytes_human(bytes[k], human),
                     100.0 * (double)bytes[k] / (double)max_i64(all, 1)));
    }
    TRY(text_add(out, "    %-12s %10s  %4.1f%%  unused between tensors\n", "gaps",
                 text_bytes_human(arena_bytes - sum, human),
                 100.0 * (double)(arena_bytes - sum) / (double)max_i64(all, 1)));
    if (snapshot_bytes > 0) {
        TRY(text_add(out, "    %-12s %10s  %4.1f%%  the state, while it is saved during training\n",
                     "snapshot", text_bytes_human(snapshot_bytes, human),
                     100.0 * (double)snapshot_bytes / (double)max_i64(all, 1)));
    }
    if (copies_bytes > 0) {
        TRY(text_add(out, "    %-12s %10s  %4.1f%%  the state, kept for a lost rank\n", "copies",
                     text_bytes_human(copies_bytes, human),
                     100.0 * (double)copies_bytes / (double)max_i64(all, 1)));
    }
    TRY(text_add(out, "    %-12s %10s\n", "together", text_bytes_human(all, human)));
    if (outside_bytes > 0) {
        TRY(text_add(out, "    %-12s %10s         more: context, code and libraries of the GPU\n",
                     "context", text_bytes_human(outside_bytes, human)));
    }
    return print_largest(p, out);
}

static const char *action_name(action_kind kind)
{
    static const char *const names[ACTION_KIND_COUNT] = {
        [ACTION_COMPUTE] = "compute",   [ACTION_COMMUNICATE] = "communicate",
        [ACTION_COPY] = "copy",         [ACTION_OPTIMIZER] = "optimizer",
        [ACTION_READBACK] = "readback",
    };
    return names[kind];
}

static const char *list_name(int32_t list)
{
    static const char *const names[OP_LIST_COUNT] = {
        [OP_FORWARD] = "forward",
        [OP_RECOMPUTE] = "recompute",
        [OP_BACKWARD_INPUT] = "backward_input",
        [OP_BACKWARD_WEIGHT] = "backward_weight",
    };
    return names[list];
}

static status print_tensor(const plan *p, int32_t ref, text *out, bool last)
{
    const plan_tensor *t = plan_tensor_at(p, ref);
    TRY(text_add(out, "  {\"name\": "));
    TRY(text_add_json(out, t->name));
    TRY(text_add(out, ", \"type\": \"%s\", \"shape\": [", dtype_name(t->type)));
    for (int i = 0; i < t->ndim; i++) {
        TRY(text_add(out, i == 0 ? "%lld" : ", %lld", (long long)t->dims[i]));
    }
    return text_add(out,
                    "], \"kind\": \"%s\", \"lifetime\": \"%s\", \"offset\": %lld, \"bytes\": "
                    "%lld}%s\n",
                    plan_bytes_name(t->kind), t->is_run ? "run" : "actions",
                    (long long)plan_tensor_offset(p, ref), (long long)t->bytes, last ? "" : ",");
}

// Lists the operations whose launch includes the next one.
static status print_fused(const plan *p, const plan_action *a, text *out)
{
    const bool *fused = p->bindings[a->binding].fused[a->list];
    int32_t count = 0;
    for (int32_t k = 0; fused != NULL && k + 1 < a->ops_count; k++) {
        if (!fused[a->ops_begin + k]) continue;
        TRY(text_add(out, count++ == 0 ? ", \"fused\": [%d" : ", %d", k));
    }
    return count > 0 ? text_add(out, "]") : ST_OK;
}

static status print_action(const plan *p, int64_t i, text *out)
{
    const plan_action *a = &p->actions[i];
    TRY(text_add(out, "  {\"kind\": \"%s\", \"lane\": %d", action_name(a->kind), a->stream));
    if (a->microbatch >= 0) TRY(text_add(out, ", \"microbatch\": %d", a->microbatch));
    if (a->layer >= 0) TRY(text_add(out, ", \"layer\": \"%s\"", p->model->layers[a->layer].name));
    if (a->ops_count > 0) {
        const op_program *program = p->bindings[a->binding].program;
        TRY(text_add(out, ", \"list\": \"%s\", \"operations\": [", list_name(a->list)));
        for (int32_t k = 0; k < a->ops_count; k++) {
            const op_node *node = &program->lists[a->list].nodes[a->ops_begin + k];
            TRY(text_add(out, "%s\"%s\"", k == 0 ? "" : ", ", op_kind_of(node->code)->name));
        }
        TRY(text_add(out, "]"));
        TRY(print_fused(p, a, out));
    }
    for (int32_t k = 0; k < a->waits_count; k++) {
        TRY(text_add(out, k == 0 ? ", \"waits\": [%d" : ", %d", p->waits[a->waits_begin + k]));
    }
    if (a->waits_count > 0) TRY(text_add(out, "]"));
    return text_add(out, "}%s\n", i + 1 < p->action_count ? "," : "");
}

status plan_print_json(const plan *p, text *out)
{
    int64_t bytes[PLAN_BYTES_COUNT];
    plan_memory_by_kind(p, bytes);
    TRY(text_add(out,
                 "{\n \"sequences\": %lld,\n \"micro_batch\": %lld,\n \"seq\": %lld,\n \"strict\": "
                 "%s,\n \"run_bytes\": %lld,\n \"transient_bytes\": %lld,\n \"live_bytes\": "
                 "%lld,\n \"memory\": {",
                 (long long)p->sequences, (long long)p->micro_batch, (long long)p->whole_seq,
                 p->strict ? "true" : "false", (long long)p->run->run_bytes,
                 (long long)p->transient_bytes, (long long)p->live_bytes));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        TRY(text_add(out, "%s\"%s\": %lld", k == 0 ? "" : ", ",
                     plan_bytes_name((plan_kind_of_bytes)k), (long long)bytes[k]));
    }
    TRY(text_add(out, "},\n \"tensors\": [\n"));
    for (int64_t i = 0; i < p->run->count; i++) {
        TRY(print_tensor(p, plan_run_ref(i), out, i + 1 == p->run->count && p->tensor_count == 0));
    }
    for (int64_t i = 0; i < p->tensor_count; i++) {
        TRY(print_tensor(p, (int32_t)i, out, i + 1 == p->tensor_count));
    }
    TRY(text_add(out, " ],\n \"actions\": [\n"));
    for (int64_t i = 0; i < p->action_count; i++) TRY(print_action(p, i, out));
    return text_add(out, " ]\n}\n");
}
