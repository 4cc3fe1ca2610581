// Counts of faults in a folder that looks like /sys.
#include "base/host_errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/trireme-test-XXXXXX";

static void file_put(const char *path, const char *value)
{
    char at[256];
    (void)snprintf(at, sizeof(at), "%s%s", root, path);
    for (char *slash = strchr(at + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(at, 0700);
        *slash = '/';
    }
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    (void)fputs(value, f);
    (void)fclose(f);
}

static void counts_are_added(void **state)
{
    (void)state;
    host_errors e;
    assert_non_null(mkdtemp(root));
    host_errors_read(root, &e);
    assert_int_equal(e.memory_corrected, -1);
    assert_int_equal(e.links, -1);
    file_put("/sys/devices/system/edac/mc/mc0/ce_count", "3\n");
    file_put("/sys/devices/system/edac/mc/mc1/ce_count", "4\n");
    file_put("/sys/devices/system/edac/mc/mc1/ue_count", "x");
    file_put("/sys/devices/system/cpu/cpu11/thermal_throttle/core_throttle_count", "20\n");
    file_put("/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "5");
    file_put("/sys/class/net/eth0/statistics/rx_crc_errors", "6\n");
    host_errors_read(root, &e);
    assert_int_equal(e.memory_corrected, 7);
    assert_int_equal(e.memory_uncorrected, -1);
    assert_int_equal(e.throttled, 20);
    assert_int_equal(e.links, 11);
    char remove[64];
    (void)snprintf(remove, sizeof(remove), "rm -rf %s", root);
    assert_int_equal(system(remove), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_added)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
