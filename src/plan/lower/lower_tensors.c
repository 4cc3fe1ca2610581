// Lowering, helpers of several passes: rows of weights, and tensors of a plan.
#include "plan/lower/lower.h"

#include <string.h>

status plan_tensor_push(plan *p, const plan_tensor *tensor, int32_t *row)
{
    TRY(arena_grow(p->a, (void **)&p->tensors, &p->tensor_capacity, p->tensor_count + 1,
                   (int64_t)sizeof(plan_tensor)));
    *row = (int32_t)p->tensor_count;
    p->tensors[p->tensor_count++] = *tensor;
    return ST_OK;
}

status lower_run_tensor(plan_table *run, const plan_tensor *want, int32_t *ref)
{
    int64_t row = plan_table_find(run, want->name);
    if (row < 0) {
        plan_tensor tensor = *want;
        tensor.is_run = true;
        row = run->count;
        TRY(plan_table_push(run, &tensor));
    }
    plan_tensor *have = &run->tensors[row];
    if (have->type != want->type) {
        return fail(ST_INTERNAL, "run tensor %s is wanted as %s and as %s", want->name,
                    dtype_name(have->type), dtype_name(want->type));
    }
    if (want->bytes > have->bytes) {
        have->bytes = want->bytes;
        memcpy(have->dims, want->dims, sizeof(have->dims));
    }
    *ref = plan_run_ref(row);
    return ST_OK;
}

plan_tensor lower_tensor_like(const op_tensor *t, const extent_binding *bound)
{
    plan_tensor out = {.type = t->type, .ndim = t->ndim, .role = t->role, .weight = -1};
    out.bytes = dtype_bytes(t->type);
    for (int i = 0; i < t->ndim; i++) {
        out.dims[i] = extent_value(t->dims[i], bound);
        out.bytes *= out.dims[i];
    }
    out.bytes = align_up(out.bytes, ALIGN_TENSOR);
    return out;
}

// Formats "%s%s%s", truncated to the size of the name, without snprintf: a plan names tens of
// thousands of tensors.
void lower_name(plan_tensor *t, const char *a, const char *separator, const char *b)
{
    const char *const parts[] = {a, separator, b};
    size_t at = 0;
    for (int i = 0; i < COUNT_OF(parts); i++) {
        const size_t left = sizeof(t->name) - 1 - at, length = strnlen(parts[i], left);
        memcpy(t->name + at, parts[i], length);
        at += length;
    }
    t->name[at] = '\0';
}

// ---- rows of weights ----------------------------------------------------------------------------

plan_rows plan_rows_of(const plan_mesh *mesh, int32_t zero, const op_weight *w, bool whole)
{
    const int64_t ways = plan_weight_size(mesh, w), rows = w->rows;
    const plan_rows all = {.count = rows, .piece = rows, .kept = rows, .padded = rows};
    if (zero < 1 || ways == 1 || whole || w->ndim == 1 || rows == 0) return all;
    if (w->frozen && zero < 3) return all; // stages 1 and 2 shard only tensors of an update
    const int64_t piece = (rows + ways - 1) / ways;
    const int64_t first = min_i64(piece * plan_weight_place(mesh, w), rows);
    const int64_t count = min_i64(piece, rows - first);
    const bool ends = (ways - 1) * piece >= rows;
    return (plan_rows){.first = first,
                       .count = count,
                       .piece = piece,
                       .kept = ends ? count : piece,
                       .padded = ends ? rows : ways * piece,
                       .ends = ends,
                       .cut = true};
}

int64_t lower_pieces_end(const plan_rows *rows, int64_t columns)
{
    return rows->ends ? rows->padded * columns : 0;
}

plan_rows lower_rows(const lower_input *in, int32_t weight)
{
    const bool whole = in->r->whole_units != NULL && in->r->whole_units[weight];
    return plan_rows_of(&in->r->mesh, in->r->zero, &in->m->weights[weight], whole);
}

int64_t lower_padded_bytes(const lower_input *in, int32_t weight, const plan_tensor *t)
{
    const plan_rows rows = lower_rows(in, weight);
    if (!rows.cut) return t->bytes;
    return align_up(rows.padded * t->dims[1] * dtype_bytes(t->type), ALIGN_TENSOR);
}

status lower_part(const lower_input *in, int32_t whole, plan_rows rows, int32_t *out)
{
    *out = whole;
    if (!rows.cut) return ST_OK;
    plan_tensor t = *plan_tensor_at(in->p, whole);
    t.is_part = true;
    t.is_run = false;
    t.whole = whole;
    t.dims[0] = rows.count;
    t.offset = rows.first * t.dims[1] * dtype_bytes(t.type);
    t.bytes = rows.count * t.dims[1] * dtype_bytes(t.type);
    return plan_tensor_push(in->p, &t, out);
}

void lower_own_rows(const lower_input *in, int32_t weight, plan_tensor *t)
{
    const plan_rows rows = lower_rows(in, weight);
    t->dims[0] = rows.count;
    t->piece_rows = rows.piece;
    t->bytes = align_up(rows.kept * t->dims[1] * dtype_bytes(t->type), ALIGN_TENSOR);
}

bool lower_norm_is_summed(const lower_input *in)
{
    const plan_mesh *m = &in->r->mesh;
    const bool parts =
        plan_mesh_size(m, AXIS_PP) > 1 || plan_mesh_size(m, AXIS_TP) > 1 || plan_experts_apart(m);
    return in->r->optimizer != NULL && (in->r->zero > 0 || parts);
}
