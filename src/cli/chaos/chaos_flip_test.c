// Flips in the memory of this process, as a rank describes its own: each kind meets its bytes only.
#include "cli/chaos/chaos.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PART = 64, PARTS = 6 };
// The arena's parts: weights, moments, gradients, activations, masters, a gathered weight.
static const char *const lines[PARTS] = {
    "{\"kind\": \"weights\", \"lifetime\": \"run\"",
    "{\"kind\": \"moments\", \"lifetime\": \"run\"",
    "{\"kind\": \"gradients\", \"lifetime\": \"actions\"",
    "{\"kind\": \"activations\", \"lifetime\": \"actions\"",
    "{\"kind\": \"master\", \"lifetime\": \"run\"",
    "{\"kind\": \"weights\", \"lifetime\": \"actions\"",
};
static uint8_t memory[PARTS * PART];
static char folder[64];

static void file_put(const char *name, const char *bytes)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(host_write_all(host_real(), path, bytes, (int64_t)strlen(bytes)), ST_OK);
}

// Writes the description that rank 3 gives of its memory.
static void arena_put(pid_t process)
{
    char out[2048];
    int n = snprintf(out, sizeof(out), "{\"process\": %d, \"address\": %llu, \"tensors\": [{}",
                     (int)process, (unsigned long long)(uintptr_t)memory);
    for (int i = 0; i < PARTS; i++) {
        n += snprintf(out + n, sizeof(out) - (size_t)n, ", %s, \"offset\": %d, \"bytes\": %d}",
                      lines[i], i * PART, PART);
    }
    (void)snprintf(out + n, sizeof(out) - (size_t)n, "]}\n");
    file_put(CHAOS_ARENAS "/3.json", out);
}

// Bit i: part i was met by one of many flips, each of which changes one bit.
static int parts_met(bool (*inject)(const chaos_target *), int rank, int64_t *done)
{
    int met = 0;
    *done = 0;
    for (uint64_t i = 0; i < 200; i++) {
        const chaos_target t = {.h = host_real(),
                                .process = getpid(),
                                .rank = rank,
                                .run_dir = folder,
                                .word = i * UINT64_C(0x9e3779b97f4a7c15)};
        int bits = 0;
        memset(memory, 0, sizeof(memory));
        *done += inject(&t);
        for (int64_t k = 0; k < PARTS * PART; k++) {
            bits += __builtin_popcount(memory[k]);
            if (memory[k] != 0) met |= 1 << (k / PART);
        }
        assert_true(bits <= 1);
    }
    return met;
}

static void each_kind_meets_its_bytes(void **state)
{
    (void)state;
    char path[192];
    int64_t done = 0;
    (void)snprintf(path, sizeof(path), "%s/" CHAOS_ARENAS, folder);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), path), ST_OK);
    arena_put(getpid());
    assert_int_equal(parts_met(chaos_inject_flip, 3, &done), 0); // before the first step
    file_put("metrics.jsonl", "{}\n");
    assert_int_equal(parts_met(chaos_inject_flip_weight, 3, &done), 1 << 0 | 1 << 4);
    assert_int_equal(done, 200);
    assert_int_equal(parts_met(chaos_inject_flip_moment, 3, &done), 1 << 1);
    assert_int_equal(parts_met(chaos_inject_flip_gradient, 3, &done), 1 << 2);
    assert_int_equal(parts_met(chaos_inject_flip, 3, &done), 1 << 0 | 1 << 1 | 1 << 4);
    // Another rank has said nothing.
    assert_int_equal(parts_met(chaos_inject_flip, 2, &done), 0);
    assert_int_equal(done, 0);
}

// An address of the process that had the place before means nothing in this one.
static void an_earlier_process_is_not_believed(void **state)
{
    (void)state;
    int64_t done = 0;
    const chaos_target own = {.h = host_real(), .process = getpid(), .rank = 3, .run_dir = folder};
    assert_true(chaos_has_begun(&own));
    arena_put(getppid());
    assert_false(chaos_has_begun(&own));
    assert_int_equal(parts_met(chaos_inject_flip, 3, &done), 0);
    assert_int_equal(done, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_meets_its_bytes),
        cmocka_unit_test(an_earlier_process_is_not_believed),
    };
    if (test_scratch(folder) == NULL) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_scratch_remove(folder);
    return failed;
}
