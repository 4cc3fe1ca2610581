// The step block: all values that change from step to step, in device memory, read by kernels.
//
// The host part is written before a step starts (a copy on the copy stream). The device part is
// written by STEP_BEGIN, STEP_LOSS, GRAD_NORM and STEP_DECIDE only; it is part of checkpoint and
// digest. No action's presence or arguments depend on its values, so a step can be captured as a
// whole.
//
// Sums over tokens and parameters are exact: doubles are added into a wide fixed-point integer, so
// their order cannot matter (Kulisch accumulator: 32-bit digits in 64-bit words, carries settled
// lazily). 68 digits of 32 bits span all doubles.
#ifndef OP_STEP_H
#define OP_STEP_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EXACT_DIGITS = 68, STEP_HISTORY = 64 };

// digit[i] has weight 2^(32 i - 1074 - 22): an i64 takes 2^31 additions before carries must move.
typedef struct exact_sum {
    int64_t digit[EXACT_DIGITS];
    int64_t not_finite; // how many infinities or NaNs were added
} exact_sum;
void exact_zero(exact_sum *s);
void exact_add(exact_sum *s, double value);
void exact_merge(exact_sum *s, const exact_sum *other); // associative, commutative, exact
double exact_value(const exact_sum *s); // correctly rounded; NaN if anything added was not finite

typedef enum nan_policy { NAN_COUNT, NAN_SKIP, NAN_STOP } nan_policy;
typedef enum spike_policy { SPIKE_OFF, SPIKE_COUNT, SPIKE_SKIP, SPIKE_STOP } spike_policy;

typedef struct step_host {
    int64_t step; // from 1
    uint64_t seed;
    double lr;
    int64_t sequences;      // global batch of this step
    int64_t first_sequence; // consumed before this step
} step_host;

typedef struct step_settings { // constant through a run
    double clip;               // 0: none
    double loss_divisor;       // global_batch * seq of this step's plan
    nan_policy nan;
    spike_policy spike;
    double spike_threshold;   // times the median of the last spike_warmup norms
    int64_t spike_warmup;     // norms seen before the policy acts: 1 to STEP_HISTORY
    bool loss_scaling;        // fp16
    int64_t scale_window;     // good steps before the scale doubles
    int64_t scale_hysteresis; // overflows before it halves, and halves at each one after
    double scale_floor;
} step_settings;

typedef struct step_device {
    int64_t applied;          // updates applied
    int64_t skipped;          // steps whose update was masked, before any halt
    int64_t halt;             // 1: masks all later updates until the host acts
    double loss_scale;        // 1 without loss scaling
    int64_t scale_good_steps; // since the last overflow or growth
    int64_t scale_hysteresis_left;
    int64_t history_count; // norms ever put into the ring
    double history[STEP_HISTORY];
    // The current step:
    int64_t tokens;     // unmasked
    int64_t skip;       // 1: this step's update is masked
    int64_t bad_tensor; // lowest weight index whose gradient is not finite; -1: none
    double loss;        // mean over unmasked tokens; NaN if there are none
    double grad_norm;   // of the mean loss, before clipping
    double grad_factor; // the optimizer's factor for gradients: unscale * clip
    exact_sum loss_sum, norm_sum;
} step_device;

typedef struct step_block {
    step_host host;
    step_settings settings;
    step_device device;
} step_block;

// Loads of experts: whole numbers behind the block, in training plans of models with experts. The
// block has `layers` rows of this step and as many of the step before; a row has the tokens that
// chose each expert, then the words below. Ranks add them, so the sums are exact in every layout.
typedef enum step_load_word {
    LOAD_TOKENS,  // tokens that were routed
    LOAD_DROPPED, // choices that a limit left out
    LOAD_AUX,     // sums over tokens, in LOAD_UNITs: of the unweighted balancing loss
    LOAD_Z,       // of the squared logarithm of the router's sum
    LOAD_WORDS
} step_load_word;
enum { LOAD_UNIT_BITS = 24, LOAD_MOST_BITS = 10 }; // a token's loss: in 2^-24, at most 2^10

static inline DEVICE_CODE int64_t step_load_row(int64_t experts)
{
    return experts + LOAD_WORDS;
}

// Returns the words of one step: two times as many lie behind the block.
static inline DEVICE_CODE int64_t step_load_words(int64_t layers, int64_t experts)
{
    return layers > 0 ? layers * step_load_row(experts) : 0;
}

static inline int64_t step_bytes(int64_t layers, int64_t experts)
{
    return (int64_t)sizeof(step_block) +
           2 * step_load_words(layers, experts) * (int64_t)sizeof(int64_t);
}

// Returns the row of a layer in this step, or in the one before.
static inline DEVICE_CODE int64_t *step_loads(step_block *b, int64_t layers, int64_t experts,
                                              int64_t layer, bool before)
{
    int64_t *first = (int64_t *)(void *)(b + 1);
    return first + ((before ? layers : 0) + layer) * step_load_row(experts);
}

// The parts of the block that operations read or write; one bit each in their rows (op/op.h).
enum step_field {
    STEP_FIELD_HOST = 1 << 0,       // host and settings
    STEP_FIELD_COUNTS = 1 << 1,     // applied, skipped, halt
    STEP_FIELD_LOSS_SCALE = 1 << 2, //
    STEP_FIELD_HISTORY = 1 << 3,    // of the loss scale and of norms
    STEP_FIELD_TOKENS = 1 << 4,
    STEP_FIELD_SKIP = 1 << 5,
    STEP_FIELD_BAD_TENSOR = 1 << 6,
    STEP_FIELD_RESULT = 1 << 7, // loss, grad_norm, grad_factor
    STEP_FIELD_LOSS_SUM = 1 << 8,
    STEP_FIELD_NORM_SUM = 1 << 9,
    STEP_FIELD_LOADS = 1 << 10,        // of experts in this step
    STEP_FIELD_LOADS_BEFORE = 1 << 11, // and in the step before
    STEP_FIELD_END = 1 << 12,
    // Unions: the fields that STEP_DECIDE passes to the optimizers, those that STEP_BEGIN writes,
    // and the device part without loads.
    STEP_FIELD_DECIDED = STEP_FIELD_LOSS_SUM - STEP_FIELD_COUNTS,
    STEP_FIELD_OF_THIS = STEP_FIELD_END - STEP_FIELD_TOKENS,
    STEP_FIELD_DEVICE = STEP_FIELD_LOADS - STEP_FIELD_COUNTS
};
// Returns the first byte of a field in the block and the `loads` words of a step behind it; for
// STEP_FIELD_END their size.
int64_t step_field_begin(uint32_t field, int64_t loads);

// Begins the loads of a step: those that were of this step are of the step before.
void step_loads_turn(step_block *b, int64_t words);
void step_device_init(step_device *d, double initial_loss_scale);
// Computes STEP_DECIDE, in one function for every backend. Pure.
// True gradient = accumulated * loss_divisor / (loss_scale * tokens); grad_norm is its 2-norm;
// grad_factor = loss_divisor / (loss_scale * tokens) * min(1, clip / (norm + 1e-6)).
// tokens = 0: the update is masked but not counted as bad.
// Not finite (norm or loss): NAN_COUNT updates anyway, NAN_SKIP masks, NAN_STOP masks and
// halts. With loss scaling an overflow always masks and lowers the scale; NAN_STOP halts only where
// a lower scale cannot help: the loss itself is not finite, or the scale is at its floor.
// SPIKE_COUNT changes nothing here: the host compares the norms. Every finite norm enters the ring,
// so after a lasting change the median follows. While halted only the last group of fields changes,
// so the state does not depend on when the host reads it.
void step_decide(step_block *b);

#ifdef __cplusplus
}
#endif
#endif
