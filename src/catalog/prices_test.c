// Tests the lists of prices: each has a day, sources and devices of the catalogue; a cluster takes
// the prices of its list, a price of the command line stays, and a device that a list does not have
// is refused by name.
#include "catalog/catalog.h"
#include "catalog/entry.h"
#include "catalog/files.h"
#include "catalog/prices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state)
{
    static arena *a;
    if (arena_create("prices test", 0, &a) != ST_OK) return 1;
    *state = a;
    return 0;
}

static int teardown(void **state)
{
    arena_destroy(*state);
    return 0;
}

static void lists_have_day_and_source(void **state)
{
    arena *a = *state;
    const char **names = NULL;
    int64_t count = 0;
    assert_int_equal(catalog_names(a, "prices", &names, &count), ST_OK);
    assert_true(count >= 10);
    for (int64_t i = 0; i < count; i++) {
        catalog_prices p;
        catalog_entry e;
        assert_int_equal(catalog_prices_load(host_real(), a, names[i], "", &p), ST_OK);
        assert_int_equal(catalog_entry_load(host_real(), a, "prices", names[i], &e), ST_OK);
        assert_int_equal(strlen(p.date), strlen("2026-11-26"));
        assert_true(p.row_count > 0);
        assert_true(e.sources.count > 0);
        for (int64_t k = 0; k < p.row_count; k++) {
            const catalog_price *row = &p.rows[k];
            // A spot price is at most that on demand; none is a price of a whole machine of eight.
            if (row->on_demand > 0.0) assert_true(row->spot <= row->on_demand + 1e-4);
            assert_true(row->on_demand < (strcmp(row->device, "gb200") == 0 ? 40.0 : 20.0));
            assert_true(row->reserved < 20.0);
            // A longer commitment is cheaper.
            if (row->reserved_1y > 0.0) assert_true(row->reserved_1y < row->on_demand);
            if (row->reserved_3y > 0.0) assert_true(row->reserved_3y < row->reserved_1y);
        }
    }
}

static void load(arena *a, const char *const *keys, int64_t count, cluster *out)
{
    assert_int_equal(catalog_cluster_load(host_real(), a, "h100", keys, count, out), ST_OK);
}

static void a_cluster_takes_its_list(void **state)
{
    arena *a = *state;
    cluster own, listed, given;
    const char *keys[] = {"prices.list=nebius.eu-north-1", "prices.spot_usd_h=0.5"};
    load(a, NULL, 0, &own);
    load(a, keys, 1, &listed);
    load(a, keys, 2, &given);
    assert_true(own.prices.list == NULL || *own.prices.list == '\0');
    assert_true(fabs(listed.prices.on_demand_usd_h - 2.95) < 1e-9);
    assert_true(fabs(listed.prices.spot_usd_h - 1.25) < 1e-9);
    assert_true(listed.prices.reserved_usd_h <= 0.0); // the list has none, and none is made up
    assert_true(fabs(listed.prices.owned_usd_h - own.prices.owned_usd_h) < 1e-9);
    assert_string_equal(listed.prices.list, "nebius.eu-north-1");
    assert_true(fabs(given.prices.spot_usd_h - 0.5) < 1e-9);
    assert_true(fabs(given.prices.on_demand_usd_h - 2.95) < 1e-9);
}

static void what_a_list_lacks_is_refused(void **state)
{
    arena *a = *state;
    cluster c;
    const char *device[] = {"prices.list=aws.eu-west-1"};
    const char *name[] = {"prices.list=aws.mars"};
    assert_int_equal(catalog_cluster_load(host_real(), a, "h100", device, 1, &c), ST_CONFIG_RANGE);
    assert_non_null(strstr(error_last()->text, "have no h100, only a100-40"));
    assert_int_equal(catalog_cluster_load(host_real(), a, "h100", name, 1, &c), ST_CONFIG);
    assert_non_null(strstr(error_last()->text, "aws.eu-west-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_have_day_and_source),
        cmocka_unit_test(a_cluster_takes_its_list),
        cmocka_unit_test(what_a_list_lacks_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
