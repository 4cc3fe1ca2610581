// Questions about a whole model (op/model.h).
#include "op/model.h"

int32_t op_model_layer_of(const op_model *m, int64_t weight)
{
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_layer *layer = &m->layers[i];
        for (int64_t t = 0; t < m->programs[layer->program]->tensor_count; t++) {
            if (layer->weight_of[t] == weight) return layer->index;
        }
    }
    panic_at(__FILE__, __LINE__, "a weight that no layer uses");
}
