// Rows of a built model: a decoder layer that is split into two rows has the weights and the
// operations of the whole layer.
#include "base/host.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static op_model *built(arena *a, const char *preset, const int32_t *halved, int32_t count)
{
    op_model *m = NULL;
    decoder_spec spec;
    const model_options options = {.purpose = PURPOSE_TRAIN,
                                   .compute = DTYPE_BF16,
                                   .grad = DTYPE_F32,
                                   .seq = 64,
                                   .halved = halved,
                                   .halved_count = count,
                                   .sizes_only = true};
    if (model_spec_preset(host_real(), a, preset, &spec) != ST_OK ||
        model_build(a, &spec, &options, &m) != ST_OK) {
        fail_msg("%s: %s", preset, error_last()->text);
    }
    return m;
}

// Counts the weights that a row's program reads.
static int64_t weights_of(const op_model *m, const op_layer *layer)
{
    const op_program *p = m->programs[layer->program];
    int64_t count = 0;
    for (int64_t t = 0; t < p->tensor_count; t++) count += layer->weight_of[t] >= 0;
    return count;
}

static int64_t nodes_of(const op_model *m, const op_layer *layer, int list)
{
    return m->programs[layer->program]->lists[list].count;
}

static void layers_in_two_rows(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-124m", "llama-135m"};
    static const int32_t halved[] = {0, 3, 11};
    for (int k = 0; k < COUNT_OF(presets); k++) {
        arena *a = NULL;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        const op_model *whole = built(a, presets[k], NULL, 0);
        const op_model *cut = built(a, presets[k], halved, COUNT_OF(halved));
        assert_int_equal(cut->layer_count, whole->layer_count + COUNT_OF(halved));
        assert_int_equal(cut->program_count, whole->program_count + 2);
        assert_int_equal(cut->parameters, whole->parameters);
        assert_int_equal(cut->weight_count, whole->weight_count);
        for (int64_t w = 0; w < whole->weight_count; w++) {
            assert_string_equal(cut->weights[w].name, whole->weights[w].name);
        }
        const op_layer *first = &cut->layers[1 + 3 + 1], *second = first + 1; // of layer 3
        const op_layer *both = &whole->layers[1 + 3];
        assert_string_equal(first->name, "layers.3.attn");
        assert_string_equal(second->name, "layers.3.mlp");
        assert_int_equal(first->index, 3); // dropout draws depend on it
        assert_int_equal(second->index, 3);
        assert_int_equal(weights_of(cut, first) + weights_of(cut, second), weights_of(whole, both));
        // Between two rows, the addition to the residual stream is a separate operation instead of
        // a part of the norm.
        assert_int_equal(nodes_of(cut, first, OP_FORWARD) + nodes_of(cut, second, OP_FORWARD),
                         nodes_of(whole, both, OP_FORWARD) + 1);
        for (int list = OP_BACKWARD_INPUT; list <= OP_BACKWARD_WEIGHT; list++) {
            assert_int_equal(nodes_of(cut, first, list) + nodes_of(cut, second, list),
                             nodes_of(whole, both, list));
        }
        assert_int_equal(second[1].part, LAYER_WHOLE);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_in_two_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
