// The data loader: every step's batch, in order, equal to filling it in place; ramps, errors, early
// ends. The thread sanitizer runs this test too.
#include "base/fault.h"
#include "data/loader.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 8, TOKENS = 801, MAX_COUNT = 6 };
static char folder[64];
static arena *memory;
static data_dataset *dataset;

// A ramp: 2, 3, ... 6 sequences a step, then 6.
static void ramp(void *context, int64_t step, int64_t *first, int64_t *count)
{
    assert_null(context);
    const int64_t grown = step - 1 < 4 ? step - 1 : 4;
    *first = 2 * (step - 1) + grown * (grown - 1) / 2 + (step - 1 - grown) * 4;
    *count = 2 + grown;
}

static data_loader_args args_of(bool no_thread)
{
    return (data_loader_args){.h = host_real(),
                              .dataset = dataset,
                              .split = DATA_TRAIN,
                              .first_step = 1,
                              .last_step = 40,
                              .max_count = MAX_COUNT,
                              .range = ramp,
                              .no_thread = no_thread};
}

static void check_batch(const data_batch *b, int64_t step)
{
    int64_t first = 0, count = 0;
    ramp(NULL, step, &first, &count);
    assert_int_equal(b->step, step);
    assert_int_equal(b->first, first);
    assert_int_equal(b->count, count);
    int32_t wanted[4][MAX_COUNT * SEQ];
    const data_rows rows = {wanted[0], wanted[1], wanted[2], wanted[3]};
    assert_int_equal(data_batch_fill(dataset, DATA_TRAIN, first, count, &rows), ST_OK);
    const size_t bytes = (size_t)(count * SEQ) * sizeof(int32_t);
    assert_memory_equal(b->rows.ids, wanted[0], bytes);
    assert_memory_equal(b->rows.labels, wanted[1], bytes);
    assert_memory_equal(b->rows.positions, wanted[2], bytes);
    assert_memory_equal(b->rows.documents, wanted[3], bytes);
}

static void test_every_step_in_order(void **state)
{
    (void)state;
    for (int no_thread = 0; no_thread < 2; no_thread++) {
        data_loader_args args = args_of(no_thread == 1);
        data_loader *l = NULL;
        assert_int_equal(data_loader_create(&args, &l), ST_OK);
        data_batch b;
        for (int64_t step = 1; step <= 40; step++) {
            assert_int_equal(data_loader_next(l, &b), ST_OK);
            check_batch(&b, step);
            assert_true(b.wait_ns >= 0);
        }
        assert_int_equal(data_loader_next(l, &b), ST_INTERNAL);
        data_loader_destroy(l);
        // From the middle, as after a restart.
        args.first_step = 17;
        assert_int_equal(data_loader_create(&args, &l), ST_OK);
        assert_int_equal(data_loader_next(l, &b), ST_OK);
        check_batch(&b, 17);
        data_loader_destroy(l); // with a batch in hand and one being filled
    }
}

static void test_destroyed_at_once(void **state)
{
    (void)state;
    const data_loader_args args = args_of(false);
    for (int i = 0; i < 50; i++) {
        data_loader *l = NULL;
        assert_int_equal(data_loader_create(&args, &l), ST_OK);
        data_loader_destroy(l);
    }
    data_loader_destroy(NULL);
}

// next() reports an error of the thread, with its text, at its step and at every later call.
static void test_error_crosses_the_threads(void **state)
{
    (void)state;
    for (int no_thread = 0; no_thread < 2; no_thread++) {
        const data_loader_args args = args_of(no_thread == 1);
        data_loader *l = NULL;
        data_batch b;
        assert_int_equal(fault_arm("data.loader.fill=3+"), ST_OK);
        assert_int_equal(data_loader_create(&args, &l), ST_OK);
        for (int64_t step = 1; step < 3; step++) {
            assert_int_equal(data_loader_next(l, &b), ST_OK);
            check_batch(&b, step);
        }
        for (int i = 0; i < 2; i++) {
            error_clear();
            assert_int_not_equal(data_loader_next(l, &b), ST_OK);
            assert_non_null(strstr(error_last()->text, "data.loader.fill"));
        }
        data_loader_destroy(l);
        assert_int_equal(fault_arm(NULL), ST_OK);
    }
    const data_loader_args args = args_of(false);
    data_loader *l = NULL;
    assert_int_equal(fault_arm("data.loader.thread=1"), ST_OK);
    assert_int_not_equal(data_loader_create(&args, &l), ST_OK);
    assert_int_equal(fault_arm(NULL), ST_OK);
}

static int set_up(void **state)
{
    (void)state;
    if (test_scratch(folder) == NULL || arena_create("test", 0, &memory) != ST_OK) return -1;
    char *path = NULL;
    if (path_join(memory, folder, "a.bin", &path) != ST_OK) return -1;
    uint16_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = (uint16_t)i;
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(tokens, sizeof(tokens), 1, f) != 1 || fclose(f) != 0) return -1;
    const char *const train[] = {path};
    const data_dataset_spec spec = {
        .train = train, .train_count = 1, .seq = SEQ, .seed = 1, .vocab = TOKENS};
    return data_dataset_open(host_real(), memory, &spec, &dataset) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    data_dataset_close(dataset);
    test_scratch_remove(folder);
    arena_destroy(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_in_order),
        cmocka_unit_test(test_destroyed_at_once),
        cmocka_unit_test(test_error_crosses_the_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
