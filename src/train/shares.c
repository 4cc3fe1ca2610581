// Each further part goes to the rank that would have finished it first, the lower one of two. The
// result is the best one: a part that ends later than the longest share could have gone to no rank
// that would have ended it earlier.
#include "train/shares.h"

void train_shares_choose(int64_t parts, int64_t ranks, const double *slow, int64_t *shares)
{
    ASSERT(ranks > 0 && parts >= ranks);
    for (int64_t r = 0; r < ranks; r++) shares[r] = 1;
    for (int64_t given = ranks; given < parts; given++) {
        int64_t best = 0;
        for (int64_t r = 1; r < ranks; r++) {
            const double time = (double)(shares[r] + 1) * slow[r];
            if (time < (double)(shares[best] + 1) * slow[best]) best = r;
        }
        shares[best]++;
    }
}

double train_shares_time(int64_t ranks, const double *slow, const int64_t *shares)
{
    double longest = 0.0;
    for (int64_t r = 0; r < ranks; r++) {
        const double time = (double)shares[r] * slow[r];
        if (time > longest) longest = time;
    }
    return longest;
}
