// Arenas against a simple model: every object is zero at first, keeps its bytes and overlaps no
// other.
#include "base/arena.h"
#include "base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct object {
    unsigned char *at;
    int64_t bytes;
} object;

static uint32_t random_word(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*x >> 32);
}

static bool all_are(const unsigned char *at, int64_t bytes, int value)
{
    for (int64_t i = 0; i < bytes; i++) {
        if (at[i] != value) return false;
    }
    return true;
}

static void objects_are_zeroed_and_apart(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    static object objects[COUNT];
    uint64_t seed = 4;
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int round = 0; round < 5; round++) { // later rounds reuse the blocks
        int64_t used = 0;
        for (int i = 0; i < COUNT; i++) {
            const uint32_t r = random_word(&seed);
            const int64_t bytes = r % 50 == 0 ? r % 200000 : r % 300;
            void *at;
            assert_int_equal(arena_alloc(a, bytes, &at), ST_OK);
            assert_int_equal((uintptr_t)at % 16, 0);
            assert_true(all_are(at, bytes, 0));
            memset(at, i % 255 + 1, (size_t)bytes);
            objects[i] = (object){.at = at, .bytes = bytes};
            used += align_up(max_i64(bytes, 1), 16);
            assert_int_equal(arena_used_bytes(a), used);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_true(all_are(objects[i].at, objects[i].bytes, i % 255 + 1));
        }
        arena_reset(a);
        assert_int_equal(arena_used_bytes(a), 0);
    }
    arena_destroy(a);
    arena_destroy(NULL);
}

static void limits_are_kept(void **state)
{
    (void)state;
    arena *a;
    void *at;
    assert_int_equal(arena_create("small", 1000, &a), ST_OK);
    assert_int_equal(arena_alloc(a, 900, &at), ST_OK);
    assert_int_equal(arena_alloc(a, 100, &at), ST_NO_MEMORY);
    assert_string_equal(error_last()->text, "arena small: 100 bytes wanted, 912 of 1000 in use");
    assert_int_equal(arena_alloc(a, 80, &at), ST_OK);
    arena_reset(a);
    assert_int_equal(arena_alloc(a, 900, &at), ST_OK);
    arena_destroy(a);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    arena *a;
    void *at;
    double *numbers;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(arena_alloc(a, -1, &at), ST_NO_MEMORY);
    assert_int_equal(arena_alloc(a, INT64_MAX, &at), ST_NO_MEMORY);
    assert_int_equal(arena_new(a, INT64_C(1) << 61, &numbers), ST_NO_MEMORY);
    assert_int_equal(arena_new(a, -3, &numbers), ST_NO_MEMORY);
    assert_int_equal(arena_new(a, 3, &numbers), ST_OK);
    assert_int_equal(arena_used_bytes(a), 32);
    arena_destroy(a);
}

static void lists_grow(void **state)
{
    (void)state;
    arena *a;
    struct {
        int32_t *items;
        int64_t count, capacity;
    } list = {0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    for (int32_t i = 0; i < 10000; i++) {
        void *items = list.items;
        assert_int_equal(arena_grow(a, &items, &list.capacity, list.count + 1, sizeof(int32_t)),
                         ST_OK);
        list.items = items;
        list.items[list.count++] = i;
    }
    for (int32_t i = 0; i < 10000; i++) assert_int_equal(list.items[i], i);
    assert_true(arena_used_bytes(a) < 10000 * 4 * 4 + 4096);
    for (int64_t i = list.count; i < list.capacity; i++) assert_int_equal(list.items[i], 0);
    arena_destroy(a);
}

static void texts_are_copied(void **state)
{
    (void)state;
    arena *a;
    char *text;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(arena_strdup(a, "", &text), ST_OK);
    assert_string_equal(text, "");
    assert_int_equal(arena_format(a, &text, "%s-%05d", "rank", 7), ST_OK);
    assert_string_equal(text, "rank-00007");
    arena_destroy(a);
}

static void fault_is_out_of_memory(void **state)
{
    (void)state;
    arena *a;
    void *at = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(fault_arm("arena.alloc=2"), ST_OK);
    assert_int_equal(arena_alloc(a, 1, &at), ST_OK);
    void *const before = at;
    assert_int_equal(arena_alloc(a, 1, &at), ST_NO_MEMORY);
    assert_ptr_equal(at, before); // results are written on success only
    assert_int_equal(arena_alloc(a, 1, &at), ST_OK);
    assert_int_equal(fault_arm(NULL), ST_OK);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_zeroed_and_apart),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(lists_grow),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(fault_is_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
