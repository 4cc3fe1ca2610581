// The rows of the optimizer family, and the programs that they write.
#include "assemble/optim/optim.h"

#include <string.h>

static const train_optimizer *const rows[] = {
    [RUN_ADAMW] = &train_optimizer_adamw,
    [RUN_MUON] = &train_optimizer_muon,
};

const train_optimizer *train_optimizer_for(const run_config *r, const op_weight *w)
{
    ASSERT(r->optimizer.name >= 0 && r->optimizer.name < COUNT_OF(rows));
    const train_optimizer *wanted = rows[r->optimizer.name];
    return wanted->takes(w) ? wanted : &train_optimizer_adamw;
}

static extent columns_of(const op_weight *w)
{
    return extent_of(w->ndim == 1 ? 0 : w->columns);
}

status train_optimizer_state(op_program *p, const char *name, const op_weight *w, dtype type,
                             tensor_id *out)
{
    return op_tensor_make(p, name, ROLE_STATE, type, w->ndim, extent_of(w->rows), columns_of(w),
                          out);
}

// The type of the working copy is what the layers' programs declare.
static dtype working_type(const op_model *m, int64_t weight)
{
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *program = m->programs[m->layers[i].program];
        for (int64_t t = 0; t < program->tensor_count; t++) {
            if (program->tensors[t].role == ROLE_WEIGHT && m->layers[i].weight_of[t] == weight) {
                return program->tensors[t].type;
            }
        }
    }
    panic_at(__FILE__, __LINE__, "a weight that no layer uses");
}

status train_optimizer_programs(arena *a, const op_model *m, const run_config *r,
                                const plan_mesh *mesh, op_program *const **out, const bool **whole)
{
    const run_types types = run_config_types(r);
    op_program **programs = NULL;
    bool *wholes = NULL;
    TRY(arena_new(a, m->weight_count + 1, &programs));
    TRY(arena_new(a, m->weight_count + 1, &wholes));
    for (int32_t i = 0; i < m->weight_count; i++) {
        if (m->weights[i].frozen) continue;
        op_weight piece = m->weights[i];
        const op_weight *w = &piece;
        tensor_id weight = TENSOR_NONE, grad = TENSOR_NONE;
        wholes[i] = train_optimizer_for(r, w)->whole;
        piece.rows = plan_rows_of(mesh, (int32_t)r->layout.zero, w, wholes[i]).count;
        TRY(op_program_create(a, PURPOSE_TRAIN, types.compute, types.grads, &programs[i]));
        TRY(op_tensor_make(programs[i], "weight", ROLE_WEIGHT, working_type(m, i), w->ndim,
                           extent_of(w->rows), columns_of(w), &weight));
        TRY(op_tensor_make(programs[i], "grad", ROLE_WEIGHT_GRAD, types.grads, w->ndim,
                           extent_of(w->rows), columns_of(w), &grad));
        TRY(train_optimizer_for(r, w)->emit(programs[i], w, i, r, weight, grad));
    }
    *out = programs;
    *whole = wholes;
    return ST_OK;
}
