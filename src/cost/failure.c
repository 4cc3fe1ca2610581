// Closed forms for interrupted runs. All results are exact except cost_normal_slowest(); those
// without a closed form are found by bisection, to within a few bits of the last.
#include "cost/failure.h"
#include "base/base.h"

#include <math.h>

double cost_kept_share(double mtbf, double write, double restart, double interval)
{
    ASSERT(mtbf > 0.0 && write >= 0.0 && restart >= 0.0);
    if (interval <= 0.0) return 0.0;
    // expm1 keeps the digits, because (t + w)/M is near 0 for a run of few devices.
    const double took = mtbf * exp(restart / mtbf) * expm1((interval + write) / mtbf);
    return interval / took;
}

double cost_interval_young(double mtbf, double write)
{
    return sqrt(2.0 * write * mtbf);
}

// With x = t/M and v = w/M: log1p(-x) + x + v, which falls from v at 0 to minus infinity at 1.
double cost_interval_best(double mtbf, double write)
{
    ASSERT(mtbf > 0.0 && write >= 0.0);
    double low = 0.0, high = 1.0;
    if (write == 0.0) return 0.0;
    for (int i = 0; i < 200; i++) {
        const double x = 0.5 * (low + high);
        if (log1p(-x) + x + write / mtbf > 0.0) {
            low = x;
        } else {
            high = x;
        }
    }
    return low * mtbf;
}

double cost_poisson_below(double mean, int64_t n)
{
    ASSERT(mean >= 0.0);
    double sum = 0.0;
    if (mean == 0.0) return n >= 0 ? 1.0 : 0.0;
    // Sums from the largest term down, each by its logarithm, because e^-mean underflows for a mean
    // of thousands.
    for (int64_t k = n; k >= 0; k--) {
        const double x = (double)k;
        const double term = exp(x * log(mean) - mean - lgamma(x + 1.0));
        sum += term;
        if (x < mean && term < 1e-18) break;
    }
    return fmin(sum, 1.0);
}

int64_t cost_spares_for(double mean_out, double probability)
{
    ASSERT(mean_out >= 0.0 && probability > 0.0 && probability < 1.0);
    int64_t low = -1, high = 1; // low is not enough, high is
    while (cost_poisson_below(mean_out, high) < probability) high *= 2;
    while (high - low > 1) {
        const int64_t n = low + (high - low) / 2;
        if (cost_poisson_below(mean_out, n) < probability) {
            low = n;
        } else {
            high = n;
        }
    }
    return high;
}

double cost_out_for(int64_t spares, double probability)
{
    ASSERT(spares >= 0 && probability > 0.0 && probability < 1.0);
    double low = 0.0, high = (double)spares + 1.0;
    for (int i = 0; i < 60; i++) {
        const double mean = 0.5 * (low + high);
        if (cost_poisson_below(mean, spares) >= probability) {
            low = mean;
        } else {
            high = mean;
        }
    }
    return low;
}

double cost_normal_slowest(double n)
{
    if (n <= 1.0) return 0.0;
    const double above = 0.625 / (n + 0.25); // share of all numbers that are larger
    double low = 0.0, high = 40.0;
    for (int i = 0; i < 100; i++) {
        const double z = 0.5 * (low + high);
        if (0.5 * erfc(z / sqrt(2.0)) > above) {
            low = z;
        } else {
            high = z;
        }
    }
    return low;
}
