// Bounded rows: operands whose dims[0] is a bound, with the live count in device memory.
//
// Runs the samples of operations that work row by row on every backend. With a count of k the
// result equals, to the bit, that of the first k rows alone; inputs hold NaN after them, and
// outputs are unchanged there, or poisoned if the call says so. Counts have both integer types and
// include no row and all rows; a count above the bound is refused.
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/sample_values.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct trial {
    arena *a;
    sample s;
    const backend_run *run;
    int turn, turns; // this backend's number
    int64_t compared;
} trial;

static const op_code codes[] = {
    OP_MATMUL,     OP_MATMUL_DX,  OP_MATMUL_DW,     OP_BIAS_DW,    OP_ADD,        OP_RMSNORM,
    OP_RMSNORM_DX, OP_RMSNORM_DW, OP_SWIGLU,        OP_SWIGLU_BWD, OP_ACTIVATION, OP_ACTIVATION_BWD,
    OP_CAST,       OP_SCALE_ROWS, OP_SCALE_ROWS_DS, OP_ROUTE,      OP_ROUTE_BWD};

static bool has_rows(const trial *t, tensor_id id)
{
    return id != TENSOR_NONE && t->s.program->tensors[id].role != ROLE_STEP &&
           t->s.program->tensors[id].dims[0].symbol == EXTENT_TOKENS;
}

static kern_tensor *operand(kern_call *c, int k)
{
    return k < OP_MAX_IN ? &c->in[k] : &c->out[k - OP_MAX_IN];
}

static tensor_id operand_id(const trial *t, int k)
{
    return k < OP_MAX_IN ? t->s.node.in[k] : t->s.node.out[k - OP_MAX_IN];
}

static int64_t columns_of(const kern_tensor *k)
{
    return k->ndim == 2 ? k->dims[1] : 1;
}

static bool same_element(const kern_tensor *a, const kern_tensor *b, int64_t e)
{
    const double x = kt_get(a, e), y = kt_get(b, e);
    return memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y));
}

// Compares the first `rows` rows alone with the same rows of the whole.
static void try_count(trial *t, int64_t rows, const void *count, dtype type, bool poison)
{
    sample_memory *alone = sample_memory_create(t->a, &t->s, 3);
    sample_memory *counted = sample_memory_create(t->a, &t->s, 3);
    sample_fill(alone, 4, true);
    sample_fill(counted, 4, true);
    kern_call first = alone->call, all = counted->call;
    for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
        kern_tensor *x = operand(&all, k);
        if (x->data == NULL || !has_rows(t, operand_id(t, k))) continue;
        for (int64_t e = rows * columns_of(x); e < kt_elements(x); e++) {
            if (kt_is_floating(x)) kt_put(x, e, k < OP_MAX_IN ? (double)NAN : 7.0);
        }
        operand(&first, k)->dims[0] = rows;
        x->count = count;
        x->count_type = type;
    }
    first.accumulate = all.accumulate = true;
    first.strict = all.strict = true;
    all.poison = poison;
    const status st = sample_run_call(counted, t->run, &all);
    if (st == ST_UNSUPPORTED && t->run->backend->on_gpu) return; // of operations outside of experts
    must(st);
    must(sample_run_call(alone, t->run, &first));
    for (int k = OP_MAX_IN; k < OP_MAX_IN + OP_MAX_OUT; k++) {
        const kern_tensor *want = operand(&first, k), *got = operand(&all, k);
        if (got->data == NULL) continue;
        for (int64_t e = 0; e < kt_elements(want); e++) assert_true(same_element(want, got, e));
        for (int64_t e = kt_elements(want); e < kt_elements(got) && kt_is_floating(got); e++) {
            assert_true(poison ? isnan(kt_get(got, e)) : kt_get(got, e) == 7.0);
        }
        t->compared += kt_elements(want);
    }
}

static void try_operation(trial *t, op_code code)
{
    for (int variant = 0; variant < op_sample_count(code); variant++) {
        assert_int_equal(arena_create("bounded", 0, &t->a), ST_OK);
        sample_open(t->a, code, variant, &t->s);
        const int64_t rows = t->s.bound.value[EXTENT_TOKENS];
        const int64_t counts[] = {0, rows / 2, rows};
        const bool by_sequence = t->s.node.attrs.aux_loss > 0.0f; // no row may be missing
        const bool slow = t->run->backend->on_gpu; // in the emulator: one count, some shapes
        if (!slow &&
            part_skips(CASES_PART, variant, op_sample_count(code), t->turn + (int)code, t->turns)) {
            arena_destroy(t->a);
            continue;
        }
        for (int64_t i = 0; i < COUNT_OF(counts) && !sample_is_big(&t->s) && !by_sequence; i++) {
            const int32_t narrow = (int32_t)counts[i];
            if (slow && (i != 1 || variant > 2)) continue;
            if (!slow) try_count(t, counts[i], &narrow, DTYPE_I32, false);
            try_count(t, counts[i], &counts[i], DTYPE_I64, true);
        }
        arena_destroy(t->a);
    }
}

static void kernels_stop_at_the_count(void **state)
{
    (void)state;
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    trial t = {.turns = count};
    for (int r = 0; r < count; r++) {
        t.run = &runs[r];
        t.turn = r;
        for (int64_t i = 0; i < COUNT_OF(codes); i++) try_operation(&t, codes[i]);
    }
    backend_runs_deinit(runs, count);
    print_message("%lld elements compared\n", (long long)t.compared);
    assert_true(t.compared > 0);
}

static const kern_context ref = {.backend = &kern_backend_ref};

static void a_count_beyond_the_bound_is_refused(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    int32_t count = 5;
    kern_call call = {.code = OP_ADD};
    call.in[0] = (kern_tensor){.data = x,
                               .ndim = 2,
                               .dims = {4, 1},
                               .strides = {1, 1},
                               .count = &count,
                               .count_type = DTYPE_I32};
    call.in[1] = call.out[0] = call.in[0];
    call.out[0].data = y;
    assert_int_equal(kern_run(&ref, &call), ST_DATA);
    count = -1;
    assert_int_equal(kern_run(&ref, &call), ST_DATA);
    count = 3;
    assert_int_equal(kern_run(&ref, &call), ST_OK);
    assert_true(y[2] == 6.0f && y[3] == 0.0f);
}

// PERMUTE writes the count of its own rows, so the value before the call does not matter.
static void a_count_may_be_made_by_the_call(void **state)
{
    (void)state;
    float x[3] = {1, 2, 3}, rows[6] = {0};
    int32_t ids[6] = {1, 0, -1, -1, 1, -1}, row_of[6] = {0}, offsets[3] = {99, 99, 99};
    kern_call call = {.code = OP_PERMUTE, .poison = true};
    call.attrs.experts = 2;
    call.in[0] = (kern_tensor){.data = x, .ndim = 2, .dims = {3, 1}, .strides = {1, 1}};
    call.in[1] =
        (kern_tensor){.data = ids, .type = DTYPE_I32, .ndim = 2, .dims = {3, 2}, .strides = {2, 1}};
    call.out[0] = (kern_tensor){.data = rows,
                                .ndim = 2,
                                .dims = {6, 1},
                                .strides = {1, 1},
                                .count = &offsets[2],
                                .count_type = DTYPE_I32};
    call.out[1] = call.in[1];
    call.out[1].data = row_of;
    call.out[2] =
        (kern_tensor){.data = offsets, .type = DTYPE_I32, .ndim = 1, .dims = {3}, .strides = {1}};
    assert_int_equal(kern_run(&ref, &call), ST_OK);
    assert_true(offsets[0] == 0 && offsets[1] == 1 && offsets[2] == 3);
    assert_true(rows[0] == 1.0f && rows[1] == 1.0f && rows[2] == 3.0f && isnan(rows[3]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_stop_at_the_count),
        cmocka_unit_test(a_count_beyond_the_bound_is_refused),
        cmocka_unit_test(a_count_may_be_made_by_the_call),
    };
    return cmocka_run_group_tests_name("bounded", tests, NULL, NULL);
}
