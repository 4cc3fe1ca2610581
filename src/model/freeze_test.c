// Frozen weights in a model's programs: the gradients that are appended, and the patterns that are
// refused.
#include "base/host.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("freeze", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

static status build(const char **patterns, int64_t count, op_model **m)
{
    decoder_spec spec;
    TRY(model_spec_preset(host_real(), a, "tiny", &spec)); // 6 layers, embedding tied to the head
    const model_options options = {.purpose = PURPOSE_TRAIN,
                                   .compute = DTYPE_F32,
                                   .grad = DTYPE_F32,
                                   .seq = 32,
                                   .freeze = {.items = patterns, .count = count}};
    return model_build(a, &spec, &options, m);
}

static const op_program *program_of(const op_model *m, int32_t layer)
{
    return m->programs[m->layers[layer].program];
}

static int64_t gradients(const op_program *p)
{
    int64_t count = 0;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        count += p->tensors[t].role == ROLE_WEIGHT_GRAD ? 1 : 0;
    }
    return count;
}

static int64_t backward_nodes(const op_program *p)
{
    return p->lists[OP_RECOMPUTE].count + p->lists[OP_BACKWARD_INPUT].count +
           p->lists[OP_BACKWARD_WEIGHT].count;
}

static void nothing_is_computed_below_the_first_trained_weight(void **state)
{
    (void)state;
    const char *patterns[] = {"embed.*", "layers.[01].*", "layers.2.attn*"};
    op_model *m = NULL, *all = NULL;
    assert_int_equal(build(patterns, COUNT_OF(patterns), &m), ST_OK);
    assert_int_equal(build(NULL, 0, &all), ST_OK);
    for (int32_t i = 0; i < 3; i++) { // embedding, layers 0 and 1
        assert_int_equal(backward_nodes(program_of(m, i)), 0);
        assert_int_equal(gradients(program_of(m, i)), 0);
        assert_int_equal(program_of(m, i)->d_outputs[0], TENSOR_NONE);
    }
    const op_program *half = program_of(m, 3), *whole = program_of(all, 3);
    assert_int_equal(half->d_inputs[0], TENSOR_NONE);
    assert_true(gradients(half) > 0 && gradients(half) < gradients(whole));
    for (int64_t i = 0; i < half->lists[OP_BACKWARD_INPUT].count; i++) {
        assert_int_not_equal(half->lists[OP_BACKWARD_INPUT].nodes[i].code, OP_ATTENTION_BWD);
    }
    assert_int_equal(gradients(program_of(m, 4)), gradients(whole)); // layer 3 trains all
    assert_int_equal(gradients(program_of(m, 7)), 1); // only the head's norm: its matrix is frozen
    assert_true(op_model_flops_per_token(m, 32) < op_model_flops_per_token(all, 32));
}

// A frozen layer above trained ones still passes the gradient down, though it trains no weight.
static void a_gradient_passes_through_a_frozen_layer(void **state)
{
    (void)state;
    const char *patterns[] = {"layers.3.*"};
    op_model *m = NULL;
    assert_int_equal(build(patterns, COUNT_OF(patterns), &m), ST_OK);
    const op_program *frozen = program_of(m, 4), *trained = program_of(m, 3);
    assert_int_equal(gradients(frozen), 0);
    assert_int_equal(frozen->lists[OP_BACKWARD_WEIGHT].count, 0);
    assert_int_equal(frozen->lists[OP_BACKWARD_INPUT].count,
                     trained->lists[OP_BACKWARD_INPUT].count);
    assert_int_not_equal(frozen->d_inputs[0], TENSOR_NONE);
    for (int64_t i = 0; i < m->weight_count; i++) {
        assert_int_equal(m->weights[i].frozen, strncmp(m->weights[i].name, "layers.3.", 9) == 0);
    }
}

static void refused(const char *pattern, const char *words)
{
    error_record why;
    op_model *m = NULL;
    assert_int_not_equal(build(&pattern, 1, &m), ST_OK);
    error_take(&why);
    assert_non_null(strstr(why.text, words));
}

static void patterns_that_cannot_hold_are_refused(void **state)
{
    (void)state;
    refused("layer.3.*", "no weight of the model has a name like \"layer.3.*\"");
    refused("layers.3.attn.q", "layers.3.attn.qkv, which is trained as a whole");
    refused("*", "nothing is left to train");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_computed_below_the_first_trained_weight, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gradient_passes_through_a_frozen_layer, setup, teardown),
        cmocka_unit_test_setup_teardown(patterns_that_cannot_hold_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
