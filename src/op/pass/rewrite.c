// Functions that passes from whole models to those of one rank share (partition.c, context.c).
#include "op/op_internal.h"

#include <string.h>

status op_program_copy(arena *a, const op_program *from, op_program **out)
{
    op_program *p = NULL;
    TRY(op_program_create(a, from->purpose, from->compute, from->grad, &p));
    for (int64_t t = 0; t < from->tensor_count; t++) {
        tensor_id same = TENSOR_NONE;
        TRY(op_tensor_add(p, &from->tensors[t], &same));
    }
    p->step = from->step;
    p->input_count = from->input_count;
    p->output_count = from->output_count;
    memcpy(p->inputs, from->inputs, sizeof(from->inputs));
    memcpy(p->outputs, from->outputs, sizeof(from->outputs));
    memcpy(p->d_inputs, from->d_inputs, sizeof(from->d_inputs));
    memcpy(p->d_outputs, from->d_outputs, sizeof(from->d_outputs));
    *out = p;
    return ST_OK;
}

status op_layers_widen(arena *a, const op_model *whole, op_program *const *programs, op_layer **out)
{
    op_layer *layers = NULL;
    TRY(arena_new(a, whole->layer_count, &layers));
    for (int32_t i = 0; i < whole->layer_count; i++) {
        const op_layer *from = &whole->layers[i];
        const int64_t had = whole->programs[from->program]->tensor_count;
        const int64_t has = programs[from->program]->tensor_count;
        int32_t *map = NULL;
        TRY(arena_new(a, has + 1, &map));
        memset(map, -1, (size_t)has * sizeof(*map));
        memcpy(map, from->weight_of, (size_t)had * sizeof(*map));
        layers[i] = *from;
        layers[i].weight_of = map;
    }
    *out = layers;
    return ST_OK;
}

status op_ways_check(const char *axis, int32_t ways, int32_t at, bool ordered, int32_t shards,
                     int32_t most)
{
    if (ways < 1 || at < 0 || at >= ways) return fail(ST_INTERNAL, "rank %d of %d", at, ways);
    if (!ordered) return ST_OK;
    if (shards < 1 || shards % ways != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.%s = %d does not divide determinism.%s_shards = %d, as strict order asks", axis,
            ways, axis, shards);
    }
    if (shards / ways <= most) return ST_OK;
    return fail(ST_CONFIG_RANGE,
                "determinism.%s_shards = %d is more than %d for each rank of layout.%s = %d", axis,
                shards, most, axis, ways);
}
