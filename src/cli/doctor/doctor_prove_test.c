// Trials of memory and products: sound ones pass, and a bit that flips is found.
#include "base/fault.h"
#include "base/host.h"
#include "cli/doctor/doctor.h"
#include "train/bench.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { WORDS = 5000 };

static void a_flipped_bit_of_memory_is_found(void **state)
{
    (void)state;
    static uint64_t words[WORDS];
    assert_int_equal(doctor_memory_prove(words, WORDS), -1);
    for (int pass = 1; pass <= 2; pass++) {
        char fault[32];
        (void)snprintf(fault, sizeof(fault), "doctor.memory=%d", pass);
        assert_int_equal(fault_arm(fault), ST_OK);
        assert_int_equal(doctor_memory_prove(words, WORDS), WORDS / 3);
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static void products_are_exact(void **state)
{
    (void)state;
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const char *const levels[] = {"scalar", NULL};
    arena *a = NULL;
    assert_int_equal(arena_create("prove", 0, &a), ST_OK);
    for (int i = 0; i < COUNT_OF(types) * COUNT_OF(levels); i++) {
        const kern_hint hint = {.threads = 1, .level = levels[i % COUNT_OF(levels)]};
        kern_context *kernels = NULL;
        int64_t wrong = -1;
        assert_int_equal(kern_context_create(a, "cpu", &hint, &kernels), ST_OK);
        const train_bench_on on = {
            .h = host_real(), .kernels = kernels, .type = types[i / COUNT_OF(levels)]};
        assert_int_equal(fault_arm(NULL), ST_OK);
        assert_int_equal(train_product_prove(&on, &wrong), ST_OK);
        assert_int_equal(wrong, 0);
        assert_int_equal(fault_arm("train.product.prove=1"), ST_OK);
        assert_int_equal(train_product_prove(&on, &wrong), ST_OK);
        assert_int_equal(wrong, 1);
    }
    assert_int_equal(fault_arm(NULL), ST_OK);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_of_memory_is_found),
        cmocka_unit_test(products_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
