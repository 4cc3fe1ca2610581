// Compares training with reference results: a folder with a model and with the results of trusted
// software (logits, loss, every gradient, ten optimizer steps), as the documentation and
// tools/make_golden.py describe. Runs the trainer's own plans on its own executor.
#ifndef DIAGNOSE_CHECK_H
#define DIAGNOSE_CHECK_H

#include "train/train.h"

typedef enum check_what {
    CHECK_LOGITS,    // relative to the largest value
    CHECK_LOSS,      // absolute
    CHECK_GRAD,      // relative to the tensor's largest value
    CHECK_LOSSES,    // of the steps, absolute
    CHECK_GRAD_NORM, // of the steps, relative
    CHECK_FINAL,     // parameters after the steps, root mean square of the difference
    CHECK_WHAT_COUNT
} check_what;
const char *check_what_name(check_what what); // "logits", "loss", "grad", ...

typedef struct check_item {
    bool is_there; // the folder has the reference
    double error;  // the worst; infinite if a value was not finite
    double limit;
    double ref_error;  // of backend ref with the same roundings; NaN if it was not needed
    const char *where; // the worst tensor or step; NULL
} check_item;

typedef struct check_gradient {
    const char *name; // of the file's tensor
    double error;
} check_gradient;

typedef struct diagnose_check {
    check_item items[CHECK_WHAT_COUNT];
    check_gradient *gradients;
    int64_t gradient_count;
    bool is_narrow; // GEMMs in bf16 or fp16: limits are 4 x ref's errors
    const run_config *config;
    const char *arch;
    int64_t parameters, sequences, seq;
} diagnose_check;

// keys: "key.path=value" in addition to the folder's settings: train.precision, kernels.backend,
// train.micro_batch, train.recompute, determinism, layout.tp ...
NODISCARD status diagnose_check_run(const host *h, arena *a, const char *folder,
                                    const char *const *keys, int64_t key_count,
                                    diagnose_check *out);

#endif
