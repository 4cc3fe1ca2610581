// The load of experts: figures of a layer, for metrics.jsonl and people.
#include "observe/observe.h"

#include <math.h>

obs_load obs_load_of(const int64_t *row, int64_t experts, int32_t layer)
{
    obs_load out = {.layer = layer};
    int64_t all = 0, most = 0;
    double entropy = 0.0;
    for (int64_t e = 0; e < experts; e++) {
        all += row[e];
        most = max_i64(most, row[e]);
        out.idle += row[e] == 0;
    }
    if (all == 0) return out;
    for (int64_t e = 0; e < experts; e++) {
        const double p = (double)row[e] / (double)all;
        if (p > 0.0) entropy -= p * log(p);
    }
    out.max = (double)most * (double)experts / (double)all;
    out.dropped = (double)row[experts + LOAD_DROPPED] / (double)all;
    out.entropy = experts > 1 ? entropy / log((double)experts) : 1.0;
    return out;
}
