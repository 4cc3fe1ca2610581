// Tests the closed forms against brute force, limits and published figures.
#include "cost/failure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void near_to(double got, double wanted, double relative)
{
    if (fabs(got - wanted) > relative * fabs(wanted)) fail_msg("%.9g, expected %.9g", got, wanted);
}

// No interval on a fine grid keeps more than the best one; Young's is its limit for short writes.
static void the_best_interval_keeps_most(void **state)
{
    (void)state;
    static const double writes[] = {1e-3, 0.5, 10.0, 60.0, 300.0, 3000.0};
    static const double mtbfs[] = {200.0, 948.0, 11124.0, 1e6};
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
        for (size_t j = 0; j < sizeof(mtbfs) / sizeof(mtbfs[0]); j++) {
            const double w = writes[i], m = mtbfs[j], best = cost_interval_best(m, w);
            const double most = cost_kept_share(m, w, 100.0, best);
            assert_true(best > 0.0 && best < m && most > 0.0 && most < 1.0);
            for (int k = 0; k < 600; k++) { // from a fiftieth of it to eight times
                const double t = best / 50.0 * pow(1.01, k);
                assert_true(cost_kept_share(m, w, 100.0, t) <= most * (1.0 + 1e-12));
            }
            if (w < 1e-4 * m) near_to(best, cost_interval_young(m, w), 0.01);
        }
    }
    assert_true(cost_interval_best(100.0, 0.0) == 0.0);
    near_to(cost_kept_share(1e12, 0.0, 0.0, 1.0), 1.0, 1e-9);
    assert_true(cost_kept_share(1.0, 1.0, 1.0, 5000.0) == 0.0); // the run never ends
}

// 419 unexpected interruptions of 16,384 devices in 54 days, and the share that several intervals
// keep on a cluster with that rate.
static void published_rates_are_met(void **state)
{
    (void)state;
    const double every_h = 54.0 * 24.0 / 419.0;
    near_to(every_h, 3.09, 0.002);
    near_to(every_h * 16384.0, 50677.0, 1e-4);
    near_to(50677.0 / 100000.0 * 60.0, 30.4,
            0.001); // minutes between interruptions of 100,000 devices
    near_to(cost_kept_share(3.09 * 3600.0, 60.0, 300.0, 3.0 * 3600.0), 0.57, 0.005);
    assert_true(round(cost_interval_best(3.09 * 3600.0, 60.0) / 60.0) == 19.0);
    near_to(cost_kept_share(3.09 * 3600.0, 60.0, 300.0, 1140.0), 0.88, 0.006);
}

static void poisson_is_summed(void **state)
{
    (void)state;
    near_to(cost_poisson_below(2.0, 0), exp(-2.0), 1e-12);
    near_to(cost_poisson_below(2.0, 3), exp(-2.0) * (1 + 2 + 2 + 8.0 / 6.0), 1e-12);
    assert_true(cost_poisson_below(3.0, -1) == 0.0 && cost_poisson_below(0.0, 0) == 1.0);
    near_to(cost_poisson_below(1e6, 1000000), 0.5, 1e-3);
    for (int k = 0; k < 9; k++) {
        const double mean = 0.5 * pow(3.0, k);
        const int64_t n = cost_spares_for(mean, 0.99);
        assert_true(cost_poisson_below(mean, n) >= 0.99);
        assert_true(cost_poisson_below(mean, n - 1) < 0.99);
        const double out = cost_out_for(n, 0.99);
        assert_true(out >= mean && cost_spares_for(out * 1.000001, 0.99) > n);
    }
    assert_true(cost_spares_for(0.0, 0.99) == 0);
}

static void the_slowest_of_many_is_met(void **state)
{
    (void)state;
    // Means of the largest of n standard normal numbers, from tables.
    near_to(cost_normal_slowest(2.0), 0.5642, 0.05);
    near_to(cost_normal_slowest(10.0), 1.5388, 0.01);
    near_to(cost_normal_slowest(100.0), 2.5076, 0.01);
    near_to(cost_normal_slowest(1000.0), 3.2414, 0.01);
    assert_true(cost_normal_slowest(1.0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_interval_keeps_most),
        cmocka_unit_test(published_rates_are_met),
        cmocka_unit_test(poisson_is_summed),
        cmocka_unit_test(the_slowest_of_many_is_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
