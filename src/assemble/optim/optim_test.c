// Tests the contract of the optimizer family over all rows: their programs do what
// config/optimizers.h says.
#include "assemble/optim/optim.h"

#include "op/optimizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

enum { ROWS = 12, COLUMNS = 6, WEIGHTS = 2 };

// One layer with a matrix and a vector, which no optimizer takes by matrices.
static op_model *model_make(arena *a)
{
    static op_weight weights[WEIGHTS];
    static op_layer layer;
    static op_model model;
    static op_program *programs[1];
    static const int32_t weight_of[WEIGHTS] = {0, 1};
    assert_int_equal(op_program_create(a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &programs[0]),
                     ST_OK);
    for (int i = 0; i < WEIGHTS; i++) {
        const char *name = i == 0 ? "matrix" : "vector";
        tensor_id t = TENSOR_NONE;
        weights[i] = (op_weight){.name = name,
                                 .ndim = 2 - i,
                                 .rows = ROWS,
                                 .columns = i == 0 ? COLUMNS : 1,
                                 .part_count = 1,
                                 .parts = {{.name = name, .rows = ROWS}},
                                 .is_matrix = i == 0};
        memset(weights[i].cut_dim, -1, sizeof(weights[i].cut_dim));
        assert_int_equal(op_tensor_make(programs[0], name, ROLE_WEIGHT, DTYPE_BF16, 2 - i,
                                        extent_of(ROWS), extent_of(i == 0 ? COLUMNS : 0), &t),
                         ST_OK);
    }
    layer = (op_layer){.name = "layer", .weight_of = weight_of};
    model = (op_model){.purpose = PURPOSE_TRAIN,
                       .programs = programs,
                       .program_count = 1,
                       .layers = &layer,
                       .layer_count = 1,
                       .weights = weights,
                       .weight_count = WEIGHTS};
    return &model;
}

static void test_programs_are_as_their_rows_say(void **state)
{
    (void)state;
    for (int o = 0; o < RUN_OPTIMIZER_COUNT; o++) {
        arena *a = NULL;
        assert_int_equal(arena_create("optimizers", 0, &a), ST_OK);
        run_config r;
        memset(&r, 0, sizeof(r));
        assert_int_equal(option_set_defaults(&run_config_table, a, &r), ST_OK);
        r.optimizer.name = o;
        r.train.precision = RUN_BF16;
        const plan_mesh mesh = {.size = {0}};
        op_program *const *programs = NULL;
        const bool *whole = NULL;
        const op_model *m = model_make(a);
        assert_int_equal(assemble_optimizer_programs(a, m, &r, &mesh, &programs, &whole), ST_OK);
        for (int i = 0; i < WEIGHTS; i++) {
            const op_program *p = programs[i];
            const run_optimizer_row *row = run_optimizer_for((run_optimizer)o, i == 0);
            int moments = 0, masters = 0, updates = 0;
            for (int64_t t = 0; t < p->tensor_count; t++) {
                if (p->tensors[t].role != ROLE_STATE) continue;
                if (strcmp(p->tensors[t].name, "master") == 0)
                    masters++;
                else
                    moments++;
            }
            for (int64_t n = 0; n < p->lists[OP_FORWARD].count; n++) {
                updates += op_kind_of(p->lists[OP_FORWARD].nodes[n].code)->updates_state;
            }
            assert_int_equal(moments, row->moments);
            assert_int_equal(masters, run_config_types(&r).has_master ? 1 : 0);
            assert_true(updates >= 1);
            assert_int_equal(whole[i], row->unit == RUN_UNIT_MATRIX);
        }
        arena_destroy(a);
    }
}

// A rank's piece of a weight of six experts: the three of the second of two ranks, in two parts,
// each with half of the rows of a stripe. Whatever slots the experts are in, an element's number is
// that which the expert has in the whole weight, and a run ends with the rows of its expert.
static void test_numbers_of_elements_follow_experts(void **state)
{
    (void)state;
    enum { EXPERTS = 6, OWN = 3, EACH = 4, HALF = 2, WIDE = 5, PART = OWN * HALF };
    static const float slots[2][EXPERTS] = {{0, 1, 2, 3, 4, 5}, {3, 1, 5, 0, 4, 2}};
    static const int expert_in[2][EXPERTS] = {{0, 1, 2, 3, 4, 5}, {3, 1, 5, 0, 4, 2}};
    const op_piece piece = {.whole_columns = WIDE,
                            .part_count = 2,
                            .part_rows = {PART, PART},
                            .part_first = {OWN * EACH, EXPERTS * EACH + OWN * EACH},
                            .part_whole = {EXPERTS * EACH, EXPERTS * EACH},
                            .stripe = EACH,
                            .stripe_own = HALF,
                            .stripe_first = HALF};
    for (int layer = 0; layer < 2; layer++) {
        const op_attrs attrs = {.experts = EXPERTS, .load_row = layer};
        for (int64_t at = 0; at < 2 * PART * WIDE; at++) {
            const int64_t row = at / WIDE, part = row / PART, number = row % PART / HALF;
            const int64_t expert = expert_in[layer][OWN + number];
            const int64_t whole =
                (part * EXPERTS + expert) * EACH + HALF + row % HALF; // row of the whole weight
            const optimizer_run run = optimizer_run_placed(&piece, &attrs, slots[0], at, WIDE);
            assert_int_equal(run.element, whole * WIDE + at % WIDE);
            assert_int_equal(run.count, (HALF - row % HALF) * WIDE - at % WIDE);
        }
    }
    const op_piece even = {.whole_columns = WIDE,
                           .part_count = 1,
                           .part_rows = {OWN * EACH},
                           .part_first = {OWN * EACH},
                           .part_whole = {EXPERTS * EACH}};
    const op_attrs attrs = {.experts = EXPERTS, .load_row = 1};
    const optimizer_run run = optimizer_run_placed(&even, &attrs, slots[0], 7, WIDE);
    assert_int_equal(run.element, 7); // expert 0 is in slot 3
    assert_int_equal(run.count, EACH * WIDE - 7);
    assert_int_equal(optimizer_run_placed(&even, &attrs, NULL, 7, WIDE).element,
                     OWN * EACH * WIDE + 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_are_as_their_rows_say),
        cmocka_unit_test(test_numbers_of_elements_follow_experts),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
