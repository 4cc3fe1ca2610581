// Tests the catalogue: every entry loads; published figures are met, stated here a second time and
// in other units; figures that are easily confused are kept apart; wrong entries are refused with
// their place and the nearest valid name.
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "catalog/run.h"
#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    arena *a;
    const host *h;
    char folder[64];
} fixture;

static int setup(void **state)
{
    static fixture f;
    if (arena_create("catalog test", 0, &f.a) != ST_OK) return 1;
    f.h = host_real();
    *state = &f;
    return test_scratch(f.folder) == NULL;
}

static int teardown(void **state)
{
    fixture *f = *state;
    test_scratch_remove(f->folder);
    arena_destroy(f->a);
    return 0;
}

static void load(fixture *f, const char *name, cluster *out)
{
    const status st = catalog_cluster_load(f->h, f->a, name, NULL, 0, out);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
}

static void load_device(fixture *f, const char *name, cluster_device *out)
{
    const status st = catalog_device_load(f->h, f->a, name, out);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
}

static bool near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

#define ASSERT_NEAR(a, b, share)                                                           \
    do {                                                                                   \
        if (!near((a), (b), (share))) fail_msg("%s is %.9g, expected %.9g", #a, (a), (b)); \
    } while (0)

// ---- all entries --------------------------------------------------------------------------------

static void clusters_load(void **state)
{
    fixture *f = *state;
    const char **names = NULL;
    int64_t count = 0;
    assert_int_equal(catalog_names(f->a, "clusters", &names, &count), ST_OK);
    assert_true(count >= 25);
    for (int64_t i = 0; i < count; i++) {
        cluster c;
        double shares = 0.0;
        load(f, names[i], &c);
        assert_string_equal(c.name, names[i]);
        assert_true(c.about[0] != '\0' && c.level_count >= 1 && c.devices >= 1);
        assert_true(c.failures.mtbf_device_h > 0.0 && c.failures.restart_s > 0.0 && c.pue >= 1.0);
        assert_true(c.prices.kwh_usd > 0.0 && c.node.host_bytes_s > 0.0);
        for (int k = 0; k < CAUSE_COUNT; k++) shares += c.failures.share[k];
        ASSERT_NEAR(shares, 1.0, 1e-9);
        for (int k = 1; k < c.level_count; k++) { // outer levels are not faster
            assert_true(c.levels[k].bytes_s <= c.levels[k - 1].bytes_s);
            assert_true(c.levels[k].devices > c.levels[k - 1].devices);
        }
    }
}

static void devices_load(void **state)
{
    fixture *f = *state;
    const char **names = NULL;
    int64_t count = 0;
    assert_int_equal(catalog_names(f->a, "devices", &names, &count), ST_OK);
    assert_true(count >= 24);
    for (int64_t i = 0; i < count; i++) {
        cluster_device d;
        load_device(f, names[i], &d);
        assert_string_equal(d.name, names[i]);
        assert_true(d.usable_bytes > 0.0 && d.memory_share > 0.5 && d.memory_share <= 1.0);
        for (int k = 0; k < MATH_COUNT; k++) assert_true(d.gemm_share[k] <= 1.0);
        // Wider types are never faster.
        assert_true(d.peak_flops[MATH_FP32] <=
                        fmax(d.peak_flops[MATH_BF16], d.peak_flops[MATH_FP16]) ||
                    d.peak_flops[MATH_FP32] == 0.0);
    }
}

static void runs_load(void **state)
{
    fixture *f = *state;
    const char **names = NULL;
    int64_t count = 0;
    assert_int_equal(catalog_names(f->a, "runs", &names, &count), ST_OK);
    assert_true(count >= 20);
    for (int64_t i = 0; i < count; i++) {
        catalog_run r;
        cluster c;
        if (catalog_run_load(f->h, f->a, names[i], &r) != ST_OK) fail_msg("%s", error_last()->text);
        assert_true(catalog_run_exists(names[i]));
        assert_int_equal(r.setting_count, r.told.count + r.reported.count + r.assumed.count);
        load(f, r.cluster, &c);
    }
    assert_false(catalog_run_exists("h100"));
}

// ---- published figures --------------------------------------------------------------------------

// Figures from data sheets; peaks dense, in TFLOP/s. 0: no such unit.
static const struct {
    const char *name;
    double bf16, fp16, fp8, memory_gb, gb_s, watts;
    int units;
} published[] = {
    {"v100-32", 0, 125, 0, 32, 900, 300, 80},
    {"a100-40", 312, 312, 0, 40, 1555, 400, 108},
    {"a100-80", 312, 312, 0, 80, 2039, 400, 108},
    {"h100", 989.4, 989.4, 1978.9, 80, 3350, 700, 132},
    {"h100-pcie", 756, 756, 1513, 80, 2000, 350, 114},
    {"h800", 989.4, 989.4, 1978.9, 80, 3350, 700, 132},
    {"h20", 148, 148, 296, 96, 4000, 400, 78},
    {"h200", 989.4, 989.4, 1978.9, 141, 4800, 700, 132},
    {"b200", 2250, 2250, 4500, 192, 8000, 1000, 148},
    {"gb200", 2500, 2500, 5000, 186, 8000, 1200, 152},
    {"gb300", 2500, 2500, 5000, 288, 8000, 1400, 160},
    {"mi250x", 383, 383, 0, 128, 3276.8, 560, 220},
    {"mi300x", 1307.4, 1307.4, 2614.9, 192, 5300, 750, 304},
    {"tpu-v4", 275, 0, 0, 32, 1200, 192, 8},
    {"tpu-v5e", 197, 0, 0, 16, 819, 200, 4},
    {"tpu-v5p", 459, 0, 0, 95, 2765, 540, 8},
    {"trainium1", 190, 190, 190, 32, 820, 350, 2},
    {"trainium2", 667, 667, 1299, 96, 2900, 500, 8},
    {"rtx-3090", 71, 71, 0, 24, 936, 350, 82},
    {"rtx-4090", 165.2, 165.2, 330.3, 24, 1008, 450, 128},
    {"rtx-5090", 209.5, 209.5, 419, 32, 1792, 575, 170},
    {"l40s", 362, 362, 733, 48, 864, 350, 142},
};

static void devices_meet_data_sheets(void **state)
{
    fixture *f = *state;
    for (int64_t i = 0; i < COUNT_OF(published); i++) {
        cluster_device d;
        load_device(f, published[i].name, &d);
        ASSERT_NEAR(d.peak_flops[MATH_BF16], published[i].bf16 * 1e12, 1e-9);
        ASSERT_NEAR(d.peak_flops[MATH_FP16], published[i].fp16 * 1e12, 1e-9);
        ASSERT_NEAR(d.peak_flops[MATH_FP8], published[i].fp8 * 1e12, 1e-9);
        ASSERT_NEAR(d.memory_bytes, published[i].memory_gb * 1e9, 1e-9);
        ASSERT_NEAR(d.memory_bytes_s, published[i].gb_s * 1e9, 1e-9);
        ASSERT_NEAR(d.watts, published[i].watts, 1e-9);
        assert_int_equal(d.units, published[i].units);
    }
}

// A peak is units x operations of a unit per cycle x clock, which reveals errors of a factor of
// two.
static void peaks_are_units_times_clock(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        cluster_math math;
        double per_cycle;
    } rows[] = {
        {"v100-16", MATH_FP16, 1024},  {"a100-80", MATH_BF16, 2048},  {"h100", MATH_BF16, 4096},
        {"h100-pcie", MATH_FP8, 8192}, {"b200", MATH_BF16, 8192},     {"gb300", MATH_BF16, 8192},
        {"mi250x", MATH_FP16, 1024},   {"mi300x", MATH_BF16, 2048},   {"tpu-v4", MATH_BF16, 32768},
        {"tpu-v5e", MATH_BF16, 32768}, {"tpu-v5p", MATH_BF16, 32768}, {"rtx-4090", MATH_BF16, 512},
        {"rtx-5090", MATH_BF16, 512},  {"rtx-3090", MATH_BF16, 512},  {"l40s", MATH_BF16, 1024},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        cluster_device d;
        load_device(f, rows[i].name, &d);
        const double peak = d.units * rows[i].per_cycle * d.clock_hz;
        if (!near(d.peak_flops[rows[i].math], peak, 0.012)) {
            fail_msg("%s: %.5g, units x clock give %.5g", rows[i].name, d.peak_flops[rows[i].math],
                     peak);
        }
    }
}

static void what_people_confuse(void **state)
{
    fixture *f = *state;
    cluster_device h100, mi300x, mi250x, v5p;
    cluster c;
    load_device(f, "h100", &h100);
    assert_int_equal(h100.units * h100.lanes_per_unit, 16896); // CUDA cores
    assert_int_equal(h100.units * h100.matrix_units_per_unit, 528);
    ASSERT_NEAR(h100.sparse_flops[MATH_FP8], 3958e12, 1e-3); // sparse is twice dense
    ASSERT_NEAR(h100.sparse_flops[MATH_FP8], 2 * h100.peak_flops[MATH_FP8], 1e-9);
    load_device(f, "mi300x", &mi300x);
    load_device(f, "mi250x", &mi250x);
    assert_int_equal(mi300x.units * mi300x.lanes_per_unit, 19456);
    assert_int_equal(mi250x.units * mi250x.lanes_per_unit, 14080);
    load_device(f, "tpu-v5p", &v5p);
    ASSERT_NEAR(v5p.peak_flops[MATH_INT8], 918e12, 1e-9); // it is not the bf16 peak
    // NVLink: "900 GB/s" counts both directions.
    load(f, "h100", &c);
    ASSERT_NEAR(c.levels[0].bytes_s, 450e9, 1e-9);
    ASSERT_NEAR(c.levels[1].bytes_s, 50e9, 1e-9); // NDR: 400 Gbit/s
    load(f, "a100-80", &c);
    ASSERT_NEAR(c.levels[0].bytes_s, 300e9, 1e-9);
    ASSERT_NEAR(c.levels[1].bytes_s, 25e9, 1e-9); // HDR: 200 Gbit/s
    load(f, "h800", &c);
    ASSERT_NEAR(c.levels[0].bytes_s, 200e9, 1e-9);
    load(f, "a800", &c);
    ASSERT_NEAR(c.levels[0].bytes_s, 200e9, 1e-9);
    load(f, "gb200", &c);
    assert_int_equal(c.levels[0].devices, 72);
    ASSERT_NEAR(c.levels[0].bytes_s, 900e9, 1e-9);
    ASSERT_NEAR(72 * c.device.memory_bytes, 13.4e12, 0.002); // of the rack
    load(f, "tpu-v5p", &c);
    ASSERT_NEAR(8 * c.levels[0].bytes_s, 4.8e12, 1e-9); // bits of a chip in one direction
    load(f, "tpu-v5e", &c);
    ASSERT_NEAR(8 * c.levels[0].bytes_s, 1.6e12, 1e-9);
    load(f, "v100", &c);
    ASSERT_NEAR(c.levels[1].bytes_s, 6.25e9, 1e-9); // half an EDR port per device
}

static void failures_are_those_of_llama_3(void **state)
{
    fixture *f = *state;
    cluster c;
    load(f, "llama3-24k", &c);
    ASSERT_NEAR(c.failures.mtbf_device_h, 54.0 * 24 * 16384 / 419, 1e-4);
    ASSERT_NEAR(c.failures.share[CAUSE_DEVICE] + c.failures.share[CAUSE_DEVICE_MEMORY],
                (148 + 72 + 19 + 17 + 6 + 6) / 419.0, 1e-3);
    ASSERT_NEAR(c.levels[3].taper, 7.0, 1e-9);
    load(f, "meta-rsc", &c); // 6.50 in 1,000 node-days
    ASSERT_NEAR(8 * 24 * 1000 / c.failures.mtbf_device_h, 6.5, 1e-3);
}

// ---- entries of users ---------------------------------------------------------------------------

static const char *file_with(fixture *f, const char *name, const char *yaml)
{
    static char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    assert_int_equal(host_write_all(f->h, path, yaml, (int64_t)strlen(yaml)), ST_OK);
    return path;
}

static void users_change_what_differs(void **state)
{
    fixture *f = *state;
    cluster base, c;
    load(f, "h100", &base);
    load(f,
         file_with(f, "mine.yaml",
                   "base: h100\ndevices: 64\ndevice.watts: 500\nprices: {on_demand_usd_h: 1.5}\n"
                   "levels:\n  2: {link: xdr}\n"),
         &c);
    assert_string_equal(c.name, "mine");
    assert_int_equal(c.devices, 64);
    ASSERT_NEAR(c.device.watts, 500.0, 1e-9);
    ASSERT_NEAR(c.prices.on_demand_usd_h, 1.5, 1e-9);
    ASSERT_NEAR(c.levels[1].bytes_s, 100e9, 1e-9);
    ASSERT_NEAR(c.levels[0].bytes_s, base.levels[0].bytes_s, 1e-12);
    ASSERT_NEAR(c.device.peak_flops[MATH_BF16], base.device.peak_flops[MATH_BF16], 1e-12);
    const char *const keys[] = {"devices=12", "failures.repair_h=2", "device=h200"};
    assert_int_equal(catalog_cluster_load(f->h, f->a, "h100", keys, 3, &c), ST_OK);
    assert_int_equal(c.devices, 12);
    ASSERT_NEAR(c.failures.repair_h, 2.0, 1e-12);
    ASSERT_NEAR(c.device.memory_bytes, 141e9, 1e-12);
    assert_string_equal(c.device.entry, "h200");
    // A path is relative to the file that names it.
    (void)file_with(f, "chip.yaml", "base: h100\nmemory_gb: 160\nusable_gib: 150\n");
    load(f, file_with(f, "with_chip.yaml", "base: mine.yaml\ndevice: chip.yaml\n"), &c);
    ASSERT_NEAR(c.device.memory_bytes, 160e9, 1e-12);
    assert_string_equal(c.device.name, "chip");
    assert_string_equal(c.device.entry, "h100"); // it selects a profile's variant
    assert_int_equal(c.devices, 64);
}

// Programs get the entry's share of a memory that alone is changed; usable_gib in GiB overrides it.
static void usable_memory_follows(void **state)
{
    fixture *f = *state;
    cluster base, c;
    load(f, "h100", &base);
    const double share = base.device.usable_bytes / base.device.memory_bytes;
    const char *const keys[] = {"device.memory_gb=141", "device.usable_gib=100"};
    assert_int_equal(catalog_cluster_load(f->h, f->a, "h100", keys, 1, &c), ST_OK);
    ASSERT_NEAR(c.device.usable_bytes, 141e9 * share, 1e-9);
    assert_int_equal(catalog_cluster_load(f->h, f->a, "H100", keys, 2, &c), ST_OK);
    ASSERT_NEAR(c.device.usable_bytes, 100.0 * 1073741824.0, 1e-9);
    (void)file_with(f, "larger.yaml", "base: h100\nmemory_gb: 160\n");
    load(f, file_with(f, "with_larger.yaml", "base: h100\ndevice: larger.yaml\n"), &c);
    ASSERT_NEAR(c.device.usable_bytes, 160e9 * share, 1e-9);
}

static const struct {
    const char *yaml, *said;
} wrong[] = {
    {"base: h100\ndevcies: 8\n", "bad.yaml:2:1"},
    {"base: h100\ndevcies: 8\n", "did you mean \"devices\""},
    {"base: h100\nprices:\n  on_demand_usd: 8\n", "prices.on_demand_usd_h"},
    {"base: h100\ndevices: many\n", "expected a whole number"},
    {"base: h10\n", "did you mean h100"},
    {"base: h100\ndevice: h101\n", "did you mean h100"},
    {"base: h100\nlevels:\n  2: {link: hrd}\n", "did you mean hdr"},
    {"base: h100\nlevels:\n  2: {devices: 100}\n", "multiple of the level below it, 8"},
    {"base: h100\nlevels:\n  5: {link: ndr, devices: 65536}\n", "but not levels.4.devices"},
    {"base: h100\nlevels:\n  2: {taper: 0.5}\n", "expected 1 to"},
    {"base: h100\nfailures: {share: {other: 0.5}}\n", "add up to"},
    {"base: h100\ndevice.usable_gib: 90\n", "more than memory_gb"},
    {"base: h100\ndevice.limit_watts: 60\n", "no more than idle_watts = 70"},
    {"base: h100\ndevice.sparse_tflops.bf16: 10\n", "sparse peak is below"},
    {"base: tpu-v4\nlevels:\n  1: {dims: {x: 8}}\n", "dims make 2048 places"},
    {"base: h200-4\nlevels:\n  1: {shape: cube}\n", "a cube joins eight, its group has 4"},
    {"base: bad.yaml\n", "circle"},
    {"devices: 8\nnode: {devices: 8}\n", "a cluster needs \"device\""},
    {"device: h100\ndevices: 8\nnode: {devices: 8}\n", "levels.1.devices"},
    {"device: h100\nnode: {devices: 8}\n", "needs \"devices\""},
    {"device: h100\ndevices: 8\nnode: {devices: 8}\nlevels:\n  1: {devices: 8}\n", "needs a link"},
    {"- 1\n", "expected keys"},
    {"base: [h100]\n", "expected one value"},
};

static void wrong_entries_are_refused(void **state)
{
    fixture *f = *state;
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        cluster c;
        const char *path = file_with(f, "bad.yaml", wrong[i].yaml);
        const status st = catalog_cluster_load(f->h, f->a, path, NULL, 0, &c);
        assert_int_equal(status_exit_code(st), 3);
        if (strstr(error_last()->text, wrong[i].said) == NULL) {
            fail_msg("entry %d: \"%s\" is not in: %s", (int)i, wrong[i].said, error_last()->text);
        }
    }
    cluster c;
    assert_int_equal(status_exit_code(catalog_cluster_load(f->h, f->a, "h1000", NULL, 0, &c)), 3);
    assert_non_null(strstr(error_last()->text, "did you mean h100"));
    assert_int_equal(catalog_cluster_load(f->h, f->a, "no/such.yaml", NULL, 0, &c), ST_NOT_FOUND);
}

// Random changes of bytes give a status and no crash.
static void hostile_entries(void **state)
{
    fixture *f = *state;
    uint64_t refused = 0, entries = 0;
    for (const catalog_file *e = catalog_files; e->name != NULL; e++) {
        if (strcmp(e->folder, "clusters") != 0) continue;
        for (uint32_t trial = 0; trial < 2; trial++) {
            arena *a = NULL;
            char *yaml = NULL;
            cluster c;
            assert_int_equal(arena_create("hostile", 0, &a), ST_OK);
            assert_int_equal(arena_strdup(a, e->yaml, &yaml), ST_OK);
            const size_t length = strlen(yaml);
            for (uint32_t k = 0; k < 3; k++) {
                const uint64_t r =
                    (entries * 7919 + trial * 104729 + k) * UINT64_C(0x9E3779B97F4A7C15);
                yaml[(r >> 20) % length] = "0:{-\n\"x]9."[(r >> 50) % 10];
            }
            const char *path = file_with(f, "hostile.yaml", yaml);
            const status st = catalog_cluster_load(f->h, a, path, NULL, 0, &c);
            if (st != ST_OK) {
                refused++;
                assert_int_equal(status_exit_code(st), 3);
            }
            arena_destroy(a);
        }
        entries++;
    }
    assert_true(refused > entries); // the changes reach the keys
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_load),
        cmocka_unit_test(devices_load),
        cmocka_unit_test(runs_load),
        cmocka_unit_test(devices_meet_data_sheets),
        cmocka_unit_test(peaks_are_units_times_clock),
        cmocka_unit_test(what_people_confuse),
        cmocka_unit_test(failures_are_those_of_llama_3),
        cmocka_unit_test(users_change_what_differs),
        cmocka_unit_test(usable_memory_follows),
        cmocka_unit_test(wrong_entries_are_refused),
        cmocka_unit_test(hostile_entries),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
