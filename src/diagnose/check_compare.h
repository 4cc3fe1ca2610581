// Compares tensors of the run with tensors of a reference file. Internal to check.
#ifndef DIAGNOSE_CHECK_COMPARE_H
#define DIAGNOSE_CHECK_COMPARE_H

#include "diagnose/check.h"

// max |got - want| / max |want|, accumulated piece by piece. A value that is not finite makes it
// infinite.
typedef struct check_relative {
    double difference, largest;
} check_relative;
// want: fp32, at any address.
void check_relative_add(check_relative *r, const float *got, const void *want, int64_t count);
double check_relative_value(const check_relative *r);

// Errors of the losses of single tokens; want: logits, fp32, at any address.
typedef struct check_noise {
    double squares;
    int64_t count;
} check_noise;
void check_noise_add(check_noise *n, const float *got, const void *want, const int32_t *labels,
                     int64_t rows, int64_t vocab);
// The standard error of their mean if they were independent.
double check_noise_of_mean(const check_noise *n);

typedef struct check_source {
    arena *a;
    const ckpt_state *state;
    const plan *p; // of the last training step, with gradients kept
    const decoder_spec *spec;
    const safetensors *golden;
    double factor; // factor from the accumulated gradient to the gradient of the mean loss
} check_source;
// Compares every "grad.<name>" of the file, in the model's order. A missing one is an error.
NODISCARD status check_gradients_compare(const check_source *s, check_gradient **out,
                                         int64_t *count);
// Root mean square of the difference between a file's tensor and the current weight `name`.
NODISCARD status check_final_compare(arena *a, const ckpt_state *state, const decoder_spec *spec,
                                     const char *name, const safetensors_entry *final, double *out);

#endif
