// Runs that are interrupted: how often, at what cost, how often to save, how many spares to keep.
// The closed forms hold for random interruptions that are equally likely at any time (exponential),
// which is what runs on thousands of devices show. Pure.
//
//   M   mean time between interruptions of the job: that of a device over their number
//   w   time for which a checkpoint holds the run
//   R   time from an interruption to the first new step
//   t   work between two checkpoints
//
// To do t of work, save it and restart after every interruption takes on average
//   T(t) = M e^(R/M) (e^((t + w)/M) - 1)      (Daly 2006, doi:10.1016/j.future.2004.11.016, eq. 13)
// so t / T(t) of the time is kept. It is largest where (1 - t/M) e^((t + w)/M) = 1; Young's (1974)
// sqrt(2 w M) is the limit for w and t much shorter than M.
#ifndef COST_FAILURE_H
#define COST_FAILURE_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// All arguments have one unit of time and are positive; writes and restarts may be 0. Returns the
// share of time that is kept, 0 to 1; t = 0 keeps nothing.
double cost_kept_share(double mtbf, double write, double restart, double interval);
double cost_interval_young(double mtbf, double write);
// The exact optimum; 0 if a checkpoint costs nothing.
double cost_interval_best(double mtbf, double write);

// P(N <= n) for a Poisson number of this mean: the number of machines in repair if they fail `mean`
// times during one repair (M/G/infinity, for any distribution of repair times).
double cost_poisson_below(double mean, int64_t n);
// The fewest spares that suffice with this probability.
int64_t cost_spares_for(double mean_out, double probability);
// The largest mean for which `spares` suffice with this probability.
double cost_out_for(int64_t spares, double probability);

// Mean of the largest of n standard normal numbers: the lag of the slowest of n ranks in standard
// deviations (Blom 1958: the quantile (n - 3/8)/(n + 1/4)). 0 for n = 1.
double cost_normal_slowest(double n);

#ifdef __cplusplus
}
#endif
#endif
