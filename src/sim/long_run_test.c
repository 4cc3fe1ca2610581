// Tests long-run simulation against closed forms and published figures, and the inputs that it must
// refuse.
#include "cost/failure.h"
#include "fixtures/base/test_paths.h"
#include "sim/long_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A month of work on devices that fail as the arguments say, without other effects.
static sim_long_run_input month(double mtbf_s, double write_s, double restart_s, double interval_s)
{
    sim_long_run_input in = {.step_s = 1.0,
                             .steps = 30 * 86400,
                             .devices = 1024,
                             .events = {{.name = "device", .rate_h = 3600.0 / mtbf_s}},
                             .event_count = 1,
                             .restart_s = restart_s,
                             .write_s = write_s,
                             .interval_s = interval_s,
                             .spares = -1,
                             .slowdown = 1.0,
                             .samples = 200,
                             .seed = 7};
    return in;
}

static arena *simulate(const sim_long_run_input *in, sim_long_run_result *out)
{
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    if (sim_long_run_simulate(a, in, out) != ST_OK) fail_msg("%s", error_last()->text);
    const double all = out->share.work + out->share.slow + out->share.rework + out->share.save +
                       out->share.restart + out->share.wait;
    if (fabs(all - 1.0) > 1e-9) fail_msg("the parts of the run's time are %.12g of it", all);
    return a;
}

static void near_to(double got, double wanted, double relative)
{
    if (fabs(got - wanted) > relative * fabs(wanted)) fail_msg("%.9g, expected %.9g", got, wanted);
}

// Compares samples with Daly's closed form: rare and frequent failures, short and long intervals.
static void samples_meet_the_closed_form(void **state)
{
    (void)state;
    static const double cases[][4] = {// mtbf, write, restart, interval
                                      {11124, 60, 300, 0},    {11124, 60, 300, 10800},
                                      {948, 10, 0, 1500},     {948, 10, 0, 0},
                                      {100000, 30, 600, 600}, {400, 20, 60, 100}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double *c = cases[i];
        sim_long_run_input in = month(c[0], c[1], c[2], c[3]);
        sim_long_run_result r;
        arena_destroy(simulate(&in, &r));
        const double kept = cost_kept_share(c[0], c[1], c[2], r.interval_s);
        near_to(r.kept, kept, 1e-12);
        // The means are over 200 samples of a month each; the closed form gives the mean of 1 /
        // goodput.
        near_to(30.0 / r.days.mean, kept, 0.01);
        assert_true(r.goodput.p10 <= r.goodput.p50 && r.goodput.p50 <= r.goodput.p90);
        // The number of failures agrees with the rate over the run's time.
        near_to(r.failures.mean, r.days.mean * 86400.0 / c[0], 0.02);
        if (c[3] > 0.0) assert_true(r.interval_s == c[3]);
    }
}

static void without_failures_it_is_exact(void **state)
{
    (void)state;
    sim_long_run_input in = month(1.0, 30.0, 60.0, 3600.0);
    sim_long_run_result r;
    in.event_count = 0;
    in.device_usd_h = 2.0;
    in.kwh_usd = 0.1;
    in.busy_watts = 1000.0;
    arena_destroy(simulate(&in, &r));
    const double days = 30.0 + 720.0 * 30.0 / 86400.0;
    near_to(r.days.p10, days, 1e-12);
    near_to(r.days.p90, days, 1e-12);
    near_to(r.device_hours.p50, days * 24.0 * 1024.0, 1e-12);
    near_to(r.energy_kwh.p50, days * 24.0 * 1024.0, 1e-12);
    near_to(r.cost_usd.p50, days * 24.0 * 1024.0 * 2.1, 1e-12);
    near_to(r.goodput.p50, 30.0 / days, 1e-12);
    assert_true(r.failures.p90 == 0.0 && r.spares.p90 == 0.0 && r.mtbf_s == 0.0);
    in.slowdown = 1.25;
    arena_destroy(simulate(&in, &r));
    near_to(r.share.slow / r.share.work, 0.25, 1e-9);
    in.interval_s = 0.0; // without failures there is one checkpoint, at the end
    arena_destroy(simulate(&in, &r));
    near_to(r.interval_s, 30.0 * 86400.0 * 1.25, 1e-9);
}

// Each of 3.8 failures per hour takes a node out for a day: 125 spares suffice; with repairs of two
// days they do not.
static void spares_hold_as_long_as_they_can(void **state)
{
    (void)state;
    sim_long_run_input in = month(948.0, 10.0, 60.0, 0.0);
    sim_long_run_result r;
    in.devices = 100000;
    in.events[0].devices = 8;
    in.spares = 1000;
    in.events[0].repair_h = 24.0;
    arena_destroy(simulate(&in, &r));
    assert_true(r.never_lacks > 0.99 && r.share.wait < 0.01);
    near_to(r.never_lacks, cost_poisson_below(3600.0 / 948.0 * 24.0, 125), 1e-12);
    in.events[0].repair_h = 48.0;
    arena_destroy(simulate(&in, &r));
    assert_true(r.never_lacks < 1e-3 && r.share.wait > 0.2);
    assert_true(r.spares.p90 <= 1008.0); // the job waits as soon as one device is missing
    // With enough spares the number in repair varies around its mean, rate x repair.
    in.spares = -1;
    arena_destroy(simulate(&in, &r));
    assert_true(r.share.wait == 0.0 && r.spares.p10 > 8.0 * 3600.0 / 948.0 * 48.0);
    in.spares = 0; // each failure waits for its own repair
    in.steps = 86400;
    in.events[0].rate_h = 0.1;
    in.events[0].repair_h = 5.0;
    arena_destroy(simulate(&in, &r));
    near_to(r.share.wait * r.days.mean * 24.0, 5.0 * r.failures.mean, 0.1);
}

// Found spares are paid as given ones are, and so is their energy; devices that a provider took
// back are not paid until they return.
static void spares_cost_the_same_found_or_given(void **state)
{
    (void)state;
    sim_long_run_input in = month(36000.0, 10.0, 60.0, 0.0);
    sim_long_run_result found, given;
    in.events[0].devices = 8;
    in.events[0].repair_h = 24.0;
    in.device_usd_h = 2.0;
    in.kwh_usd = 0.1;
    in.busy_watts = in.idle_watts = 1000.0;
    arena_destroy(simulate(&in, &found));
    in.spares = (int64_t)found.spares.p50;
    arena_destroy(simulate(&in, &given));
    near_to(found.cost_usd.p50, given.cost_usd.p50, 0.005);
    near_to(found.device_hours.p50, given.device_hours.p50, 0.005);
    near_to(given.spare_hours.p50, given.days.p50 * 24.0 * (double)in.spares, 1e-3);
    assert_true(found.bill.spares > 0.0 && found.bill.idle > 0.0 && found.bill.energy > 0.0);
    in.events[0].is_unpaid = true;
    arena_destroy(simulate(&in, &found));
    assert_true(found.cost_usd.p50 < given.cost_usd.p50);
}

// The store must have taken a checkpoint before the next one begins.
static void the_interval_has_a_floor(void **state)
{
    (void)state;
    sim_long_run_input in = month(1000.0, 0.1, 60.0, 0.0);
    sim_long_run_result r;
    in.least_interval_s = 60.0;
    in.checkpoint_bytes = 60e9;
    arena_destroy(simulate(&in, &r));
    assert_true(r.interval_s >= 59.9 && !r.interval_raised);
    near_to(r.store_bytes_s, 60e9 / (r.interval_s + 0.1), 1e-9);
    in.interval_s = 5.0;
    arena_destroy(simulate(&in, &r));
    assert_true(r.interval_s >= 59.9 && r.interval_raised);
}

// A job that is warned two minutes before saves its work.
static void spot_nodes_lose_no_work(void **state)
{
    (void)state;
    sim_long_run_input in = month(7200.0, 60.0, 300.0, 1800.0);
    sim_long_run_result announced, unannounced;
    arena_destroy(simulate(&in, &unannounced));
    in.events[0].warning_s = 120.0;
    arena_destroy(simulate(&in, &announced));
    assert_true(announced.share.rework < 0.01 * unannounced.share.rework + 0.001);
    assert_true(announced.goodput.p50 > unannounced.goodput.p50);
    near_to(announced.goodput.p50, announced.kept, 0.01);
    // Failures come often and the checkpoint interval is longer than the time between them; the run
    // advances nevertheless.
    in = month(1000.0, 10.0, 60.0, 100000.0);
    in.events[0].warning_s = 120.0;
    arena_destroy(simulate(&in, &announced));
    near_to(announced.goodput.p50, announced.kept, 0.02);
    assert_true(announced.kept > 0.9);
}

static void equal_inputs_give_equal_bits(void **state)
{
    (void)state;
    sim_long_run_input in = month(3000.0, 20.0, 100.0, 0.0);
    sim_long_run_result x, y, z;
    memset(&x, 0, sizeof(x));
    memset(&y, 0, sizeof(y));
    arena_destroy(simulate(&in, &x));
    arena_destroy(simulate(&in, &y));
    assert_memory_equal(&x, &y, sizeof(x));
    in.seed = 8;
    arena_destroy(simulate(&in, &z));
    assert_true(x.days.mean != z.days.mean);
    near_to(x.days.mean, z.days.mean, 0.01);
}

static void what_never_ends_is_refused(void **state)
{
    (void)state;
    sim_long_run_input in = month(60.0, 30.0, 600.0, 3600.0);
    sim_long_run_result r;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    assert_int_equal(sim_long_run_simulate(a, &in, &r), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "interrupted every 60 s"));
    in = month(6000.0, 30.0, 600.0, 3600.0);
    in.spares = 8;
    in.events[0].devices = 2048;
    in.events[0].repair_h = 1.0;
    assert_int_equal(sim_long_run_simulate(a, &in, &r), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "takes out 2048 devices, and there are only 1032"));
    in.step_s = 0.0;
    assert_int_equal(sim_long_run_simulate(a, &in, &r), ST_CONFIG_RANGE);
    arena_destroy(a);
}

// A cluster like the one of the Llama 3 report: 419 interruptions of 16,384 devices in 54 days.
static cluster cluster_like_llama3(void)
{
    cluster c = {.devices = 16384, .pue = 1.1};
    c.node.devices = 8;
    c.node.host_bytes_s = 50e9;
    c.device.watts = 700.0;
    c.failures.mtbf_device_h = 54.0 * 24.0 * 16384.0 / 419.0;
    c.failures.share[CAUSE_DEVICE] = 0.6;
    c.failures.share[CAUSE_NETWORK] = 0.1;
    c.failures.share[CAUSE_SOFTWARE] = 0.3;
    c.failures.repair_h = 24.0;
    c.failures.detect_s = 60.0;
    c.failures.restart_s = 240.0;
    c.prices.on_demand_usd_h = 2.0;
    return c;
}

static run_config run_of(int64_t steps)
{
    run_config r = {.train = {.steps = steps, .seq = 8192, .global_batch = 2048, .seed = 1}};
    r.fleet.spares = -1;
    r.checkpoint.async = true;
    return r;
}

static void published_failures_are_met(void **state)
{
    (void)state;
    const cluster c = cluster_like_llama3();
    run_config r = run_of(864000); // steps of 5 s: 50 days
    const sim_long_run_step step = {.step_s = 5.0, .devices = 16384, .state_bytes = 405e9 * 14.0};
    sim_long_run_input in;
    sim_long_run_result out;
    sim_long_run_input_make(&r, &c, &step, &in);
    assert_int_equal(in.event_count, 3);
    near_to(in.write_s, 405e9 * 14.0 / 16384.0 / 50e9, 1e-12);
    near_to(in.restart_s, 300.0, 1e-12);
    arena_destroy(simulate(&in, &out));
    near_to(out.failures.mean / out.days.mean * 54.0, 419.0, 0.02);
    assert_true(out.goodput.p50 > 0.9); // the report gives this value
    near_to(out.by_event[2], 0.3 * out.failures.mean, 0.02);
    near_to(out.cost_usd.mean, (out.device_hours.mean + out.spare_hours.mean) * 2.0, 1e-9);
    near_to(out.bill.work + out.bill.idle + out.bill.spares, out.cost_usd.mean, 1e-9);
    assert_true(in.least_interval_s == 60.0 && out.interval_s >= 60.0);
    // 100,000 devices: one interruption every 30.4 minutes.
    const sim_long_run_step large = {.step_s = 5.0, .devices = 100000, .state_bytes = 405e9 * 14.0};
    sim_long_run_input_make(&r, &c, &large, &in);
    arena_destroy(simulate(&in, &out));
    near_to(out.mtbf_s / 60.0, 30.4, 0.001);
}

// The text of a file of ../shared; NULL if it does not exist.
static char *shared_read(arena *a, const char *name)
{
    char path[1024], *bytes = NULL;
    int64_t count = 0;
    file_info info;
    const host *h = host_real();
    assert_int_equal(h->api->path_info(h, test_shared(name, path), &info), ST_OK);
    if (info.kind != FILE_KIND_REGULAR) {
        printf("skipped: %s is not there\n", path);
        return NULL;
    }
    assert_int_equal(host_read_all(h, a, path, 1 << 20, &bytes, &count), ST_OK);
    return bytes;
}

// Returns the number in the column `metric` of the first row that begins with "system,gpus".
static double published(const char *csv, const char *system, const char *metric)
{
    const char *row = strstr(csv, system);
    const char *cell = row == NULL ? NULL : strstr(row, metric);
    if (cell == NULL) fail_msg("no row of %s with %s", system, metric);
    return cell == NULL ? 0.0 : strtod(cell + strlen(metric) + 1, NULL);
}

// Compares published rates with published or measured results of larger jobs.
static void published_statistics_are_met(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    const char *csv = shared_read(a, "validation/failure_statistics.csv");
    const char *mix = csv == NULL ? NULL : shared_read(a, "validation/llama3_interruptions.csv");
    if (csv == NULL || mix == NULL) {
        arena_destroy(a);
        skip();
        return;
    }
    const double all = published(csv, "Llama 3 405B,16384", "total interruptions");
    const double unplanned = published(csv, "Llama 3 405B,16384", "unexpected interruptions");
    near_to(54.0 * 24.0 / all,
            published(csv, "Llama 3 405B,16384", "between any interruptions (derived)"), 0.002);
    double sum = 0.0;
    for (const char *p = strchr(mix, '\n'); p != NULL && p[1] != '\0'; p = strchr(p + 1, '\n')) {
        for (int comma = 0; comma < 3 && p != NULL; comma++) p = strchr(p + 1, ',');
        if (p != NULL)
            sum += strtod(p + 1, NULL); // the number follows the third comma: no cell has one in it
    }
    near_to(sum, unplanned, 1e-12);

    // RSC-1: failures per 1,000 nodes and day, and their effect on 131,072 GPUs.
    cluster c = {.devices = 16384, .pue = 1.0};
    const double rate = published(csv, "Meta RSC-1,16384", "failure rate");
    c.node.devices = 8;
    c.failures.mtbf_node_h = 1000.0 * 24.0 / rate;
    c.failures.restart_s = 300.0;
    run_config r = run_of(100000);
    const sim_long_run_step step = {.step_s = 5.0, .devices = 131072, .state_bytes = 1e12};
    sim_long_run_input in;
    sim_long_run_result out;
    r.checkpoint.write_s = 5.0;
    sim_long_run_input_make(&r, &c, &step, &in);
    arena_destroy(simulate(&in, &out));
    near_to(out.mtbf_s / 3600.0, published(csv, "Meta RSC,131072", "job MTTF"), 0.025);
    // The report's formula for the share of time kept equals ours to first order.
    const double nodes = 256.0, of_day = nodes * rate / 1000.0, wait = 300.0, every = 3600.0;
    const double theirs = (1.0 - of_day / 86400.0 * (wait + every / 2.0)) / (1.0 + 5.0 / every);
    near_to(cost_kept_share(86400.0 / of_day, 5.0, wait, every), theirs, 0.002);
    arena_destroy(a);
}

static void keys_replace_the_clusters_figures(void **state)
{
    (void)state;
    cluster c = cluster_like_llama3();
    run_config r = run_of(1000);
    const sim_long_run_step step = {.step_s = 5.0, .devices = 20480, .state_bytes = 1e12};
    sim_long_run_input in;
    c.failures.mtbf_switch_h = 1e5;
    c.failures.switch_devices = 256;
    c.prices.spot_usd_h = 1.0;
    c.prices.spot_interruptions_h = 0.001;
    r.train.tokens = INT64_C(2048) * 8192 * 100 + 1;
    r.price.kind = RUN_PRICE_SPOT;
    sim_long_run_input_make(&r, &c, &step, &in);
    assert_int_equal(in.steps, 101);
    assert_int_equal(in.event_count, 5);
    assert_int_equal(in.events[3].devices, 256);
    near_to(in.events[3].rate_h, 80.0 / 1e5, 1e-12);
    assert_string_equal(in.events[4].name, "spot");
    assert_true(in.events[4].warning_s > 0.0 && in.device_usd_h == 1.0 && in.kwh_usd == 0.0);
    r.price.kind = RUN_PRICE_AUTO;
    r.price.device_hour = 3.0;
    r.price.kwh = 0.07;
    r.fleet.mtbf_device_h = 20480.0;
    r.fleet.repair_h = 2.0;
    r.fleet.spares = 16;
    r.checkpoint.write_s = 60.0;
    r.checkpoint.restart_s = 100.0;
    r.checkpoint.interval_s = 1000.0;
    sim_long_run_input_make(&r, &c, &step, &in);
    double rate = 0.0;
    for (int32_t e = 0; e < in.event_count; e++) rate += in.events[e].rate_h;
    near_to(rate, 1.0, 1e-12);
    assert_true(in.events[0].repair_h == 2.0 && in.spares == 16 && in.write_s == 60.0);
    assert_true(in.restart_s == 100.0 && in.interval_s == 1000.0 && in.device_usd_h == 3.0);
    assert_true(in.kwh_usd == 0.07 && in.slowdown == 1.0);
    c.failures.jitter = 0.01;
    sim_long_run_input_make(&r, &c, &step, &in);
    near_to(in.slowdown, 1.04, 0.005); // the slowest of 20,480 is 4 deviations behind
}

// 90 days of 200,000 devices. The default of 1,000 samples takes 1.7 s on a busy core of a Zen 3;
// this test takes fewer samples.
static void a_large_machine_is_simulated(void **state)
{
    (void)state;
    const cluster c = cluster_like_llama3();
    run_config r = run_of(90 * 86400 / 10);
    const sim_long_run_step step = {.step_s = 8.0, .devices = 200000, .state_bytes = 14e12};
    sim_long_run_input in;
    sim_long_run_result out;
    sim_long_run_input_make(&r, &c, &step, &in);
    in.samples = 60;
    arena_destroy(simulate(&in, &out));
    assert_int_equal(out.samples, 60);
    assert_true(out.failures.p50 > 6000.0);
    near_to(out.goodput.p50, out.kept, 0.01);
}

static void both_prints_say_the_same(void **state)
{
    (void)state;
    const cluster c = cluster_like_llama3();
    run_config r = run_of(100000);
    const sim_long_run_step step = {.step_s = 5.0, .devices = 16384, .state_bytes = 5e12};
    sim_long_run_input in;
    sim_long_run_result out;
    sim_long_run_input_make(&r, &c, &step, &in);
    arena *a = simulate(&in, &out);
    text lines = {.a = a}, members = {.a = a};
    assert_int_equal(sim_long_run_print(&in, &out, &lines), ST_OK);
    for (const char *s = lines.bytes; *s != '\0'; s = strchr(s, '\n') + 1) {
        assert_true(strchr(s, '\n') - s <= 84); // 80 columns: a middle dot has two bytes
    }
    assert_int_equal(sim_long_run_json(&out, &members), ST_OK);
    static const char *const names[] = {
        "days",     "gpu_hours",  "cost_usd", "goodput",
        "failures", "energy_kwh", "spares",   "checkpoint_interval_s"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_non_null(strstr(members.bytes, names[i]));
    }
    assert_non_null(strstr(lines.bytes, "software 30%"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_meet_the_closed_form),
        cmocka_unit_test(without_failures_it_is_exact),
        cmocka_unit_test(spares_hold_as_long_as_they_can),
        cmocka_unit_test(spares_cost_the_same_found_or_given),
        cmocka_unit_test(the_interval_has_a_floor),
        cmocka_unit_test(spot_nodes_lose_no_work),
        cmocka_unit_test(equal_inputs_give_equal_bits),
        cmocka_unit_test(what_never_ends_is_refused),
        cmocka_unit_test(published_failures_are_met),
        cmocka_unit_test(published_statistics_are_met),
        cmocka_unit_test(keys_replace_the_clusters_figures),
        cmocka_unit_test(a_large_machine_is_simulated),
        cmocka_unit_test(both_prints_say_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
