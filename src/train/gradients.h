// Digests of gradients: a hash of every finished gradient that this rank applies, taken inside the
// step, after the gradients of all ranks were summed and before the weight is updated.
//
// Each hash continues that of the step before, so it covers all steps since the session began.
// Ranks that update the same rows of a weight have equal hashes as long as all of their sums were
// equal. A sum that one rank alone has is compared with its hash from right after the sum, if the
// host can touch the device's memory. Where it cannot, the gradient is copied to the host first.
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "train/rest.h"
#include "train/watch.h"

typedef struct train_gradients {
    exec *e;
    const kern_context *kernels; // of the plans
    char *base;                  // of the device's arena; NULL: the host cannot touch it
    int rank; // names the fault point "train.gradient.RANK", where tests flip a bit of a gradient
              // after it was summed and before it is hashed for the update
    uint64_t *hashes;        // [weight of the model], valid as long as the plans run
    const bool *is_compared; // [weight of the model] other ranks have the same sum
    train_rest *rest;        // its probes are set too, and it hears of sums that have changed
} train_gradients;

// Takes the hashes in all later steps of these plans, in addition to the values that each watch
// copies; the device is idle.
NODISCARD status train_gradients_watch(arena *a, const train_gradients *g, const train_watch *plans,
                                       int64_t count);
// Makes probes of a plan that hash a rank's own gradients instead, before those of other ranks are
// added. The fault point is "train.local.RANK".
NODISCARD status train_gradients_local(arena *a, const train_gradients *g, const plan *p,
                                       const exec_probe **out, int64_t *count);

#endif
