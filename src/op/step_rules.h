// The rules of the step block that all backends follow to the bit: the pieces that a double adds to
// an exact sum, the rounding of the sum, and the decision at the end of a step (op/step.h).
//
// Kernels for GPUs compile these functions too. They use + - * / and sqrt only, which IEEE 754
// defines to the last bit.
#ifndef OP_STEP_RULES_H
#define OP_STEP_RULES_H

#include "op/step.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EXACT_DIGIT_BITS = 32, EXACT_LOW_BIT = 22 }; // bit 22 of digit 0 has weight 2^-1074

static inline DEVICE_CODE uint64_t step_bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline DEVICE_CODE double step_double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The three 32-bit pieces, with their sign, that a finite double adds to neighbouring digits.
typedef struct exact_pieces {
    int64_t digit;
    int64_t piece[3];
} exact_pieces;

static inline DEVICE_CODE exact_pieces exact_pieces_of(uint64_t bits)
{
    exact_pieces p;
    const uint64_t exponent = bits >> 52 & 0x7ff;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent > 0) mantissa |= UINT64_C(1) << 52;
    const uint64_t at = (exponent > 0 ? exponent - 1 : 0) + EXACT_LOW_BIT;
    const uint64_t shift = at % EXACT_DIGIT_BITS, low = mantissa << shift;
    const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
    const int64_t sign = bits >> 63 == 0 ? 1 : -1;
    p.digit = (int64_t)(at / EXACT_DIGIT_BITS);
    p.piece[0] = sign * (int64_t)(low & 0xffffffffu);
    p.piece[1] = sign * (int64_t)(low >> EXACT_DIGIT_BITS);
    p.piece[2] = sign * (int64_t)high;
    return p;
}

// Moves carries up, so that all digits but the top one are in [0, 2^32).
static inline DEVICE_CODE void exact_carries_normalize(int64_t digit[EXACT_DIGITS])
{
    for (int i = 0; i + 1 < EXACT_DIGITS; i++) {
        // Floor division by 2^32 without shifting a negative number.
        int64_t carry = digit[i] / (INT64_C(1) << EXACT_DIGIT_BITS);
        int64_t rest = digit[i] % (INT64_C(1) << EXACT_DIGIT_BITS);
        if (rest < 0) {
            rest += INT64_C(1) << EXACT_DIGIT_BITS;
            carry -= 1;
        }
        digit[i] = rest;
        digit[i + 1] += carry;
    }
}

// Returns the 64 bits whose lowest is bit `at` of the normalized digits.
static inline DEVICE_CODE uint64_t exact_bits_at(const int64_t digit[EXACT_DIGITS], int64_t at)
{
    const int64_t i = at / EXACT_DIGIT_BITS, shift = at % EXACT_DIGIT_BITS;
    uint64_t out = (uint64_t)digit[i] >> shift;
    if (i + 1 < EXACT_DIGITS) out |= (uint64_t)digit[i + 1] << (EXACT_DIGIT_BITS - shift);
    if (i + 2 < EXACT_DIGITS && shift > 0) out |= (uint64_t)digit[i + 2] << (64 - shift);
    return out;
}

static inline DEVICE_CODE bool exact_any_below(const int64_t digit[EXACT_DIGITS], int64_t at)
{
    for (int64_t i = 0; i < at / EXACT_DIGIT_BITS; i++) {
        if (digit[i] != 0) return true;
    }
    const uint64_t mask = (UINT64_C(1) << (at % EXACT_DIGIT_BITS)) - 1;
    return ((uint64_t)digit[at / EXACT_DIGIT_BITS] & mask) != 0;
}

// Returns the highest set bit of the normalized digits; -1: none.
static inline DEVICE_CODE int64_t exact_highest_bit(const int64_t digit[EXACT_DIGITS])
{
    for (int64_t i = EXACT_DIGITS - 1; i >= 0; i--) {
        if (digit[i] == 0) continue;
        int64_t bit = 0;
        for (uint64_t rest = (uint64_t)digit[i]; rest > 1; rest >>= 1) bit++;
        return i * EXACT_DIGIT_BITS + bit;
    }
    return -1;
}

// Returns the double nearest to the normalized, non-negative digits, ties to even.
static inline DEVICE_CODE double exact_digits_round(const int64_t digit[EXACT_DIGITS])
{
    const int64_t top = exact_highest_bit(digit);
    if (top < EXACT_LOW_BIT + 53) { // exact; subnormal numbers are stored like this too
        return top < 0 ? 0.0 : step_double_of(exact_bits_at(digit, EXACT_LOW_BIT));
    }
    const int64_t at = top - 52; // lowest bit that is kept
    uint64_t mantissa = exact_bits_at(digit, at) & ((UINT64_C(1) << 53) - 1);
    const bool half = (exact_bits_at(digit, at - 1) & 1) != 0;
    if (half && ((mantissa & 1) != 0 || exact_any_below(digit, at - 1))) mantissa++;
    int64_t exponent = at - EXACT_LOW_BIT + 1; // as stored
    if (mantissa >> 53 != 0) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent >= 0x7ff) return step_double_of(UINT64_C(0x7ff) << 52);
    return step_double_of((uint64_t)exponent << 52 | (mantissa & ((UINT64_C(1) << 52) - 1)));
}

static inline DEVICE_CODE double exact_value_now(const exact_sum *s)
{
    if (s->not_finite != 0) return step_double_of(UINT64_C(0x7ff8) << 48);
    int64_t digit[EXACT_DIGITS];
    memcpy(digit, s->digit, sizeof(digit));
    exact_carries_normalize(digit);
    const bool negative = digit[EXACT_DIGITS - 1] < 0;
    if (negative) {
        for (int i = 0; i < EXACT_DIGITS; i++) digit[i] = -digit[i];
        exact_carries_normalize(digit);
    }
    const double magnitude = exact_digits_round(digit);
    return negative ? -magnitude : magnitude;
}

// ---- the decision -------------------------------------------------------------------------------
static inline DEVICE_CODE bool step_is_number(double x)
{
    return x - x == 0.0;
}

static inline DEVICE_CODE void step_scale_update(const step_settings *s, step_device *d,
                                                 bool overflow)
{
    d->scale_hysteresis_left = min_i64(d->scale_hysteresis_left, s->scale_hysteresis);
    if (overflow) {
        d->scale_good_steps = 0;
        d->scale_hysteresis_left = max_i64(d->scale_hysteresis_left - 1, 0);
        if (d->scale_hysteresis_left > 0) return;
        const double half = d->loss_scale * 0.5;
        // A floor above the initial scale must not raise it.
        if (half >= s->scale_floor) {
            d->loss_scale = half;
        } else if (d->loss_scale > s->scale_floor) {
            d->loss_scale = s->scale_floor;
        }
        return;
    }
    d->scale_good_steps++;
    if (s->scale_window <= 0 || d->scale_good_steps < s->scale_window) return;
    d->scale_good_steps = 0;
    d->scale_hysteresis_left = s->scale_hysteresis;
    // Above 2^64 only gradients that are all zero would let the scale grow.
    if (d->loss_scale < 18446744073709551616.0) d->loss_scale *= 2.0;
}

// Returns the median of the last `count` norms of the ring, 1 <= count <= STEP_HISTORY.
static inline DEVICE_CODE double step_history_median(const step_device *d, int64_t count)
{
    double sorted[STEP_HISTORY];
    for (int64_t i = 0; i < count; i++) {
        const double norm = d->history[(d->history_count - 1 - i) % STEP_HISTORY];
        int64_t at = i;
        for (; at > 0 && sorted[at - 1] > norm; at--) sorted[at] = sorted[at - 1];
        sorted[at] = norm;
    }
    const double upper = sorted[count / 2];
    return count % 2 != 0 ? upper : (sorted[count / 2 - 1] + upper) * 0.5;
}

static inline DEVICE_CODE bool step_is_spike(const step_settings *s, const step_device *d)
{
    if (s->spike != SPIKE_SKIP && s->spike != SPIKE_STOP) return false;
    const int64_t window = min_i64(max_i64(s->spike_warmup, 1), STEP_HISTORY);
    if (d->history_count < window) return false;
    return d->grad_norm > s->spike_threshold * step_history_median(d, window);
}

// The decision about this step's update.
typedef enum step_verdict { STEP_VERDICT_APPLY, STEP_VERDICT_SKIP, STEP_VERDICT_HALT } step_verdict;

static inline DEVICE_CODE step_verdict step_bad_verdict(const step_settings *s,
                                                        const step_device *d)
{
    if (!s->loss_scaling) {
        if (s->nan == NAN_COUNT) return STEP_VERDICT_APPLY;
        return s->nan == NAN_STOP ? STEP_VERDICT_HALT : STEP_VERDICT_SKIP;
    }
    // Overflows are expected while the scale is found; NaN that a lower scale cannot cure is not
    // one.
    const bool helpless = !step_is_number(d->loss) || d->loss_scale <= s->scale_floor;
    return s->nan == NAN_STOP && helpless ? STEP_VERDICT_HALT : STEP_VERDICT_SKIP;
}

static inline DEVICE_CODE step_verdict step_verdict_of(step_block *b)
{
    const step_settings *s = &b->settings;
    step_device *d = &b->device;
    if (d->tokens <= 0) return STEP_VERDICT_SKIP;
    const bool bad = !step_is_number(d->grad_norm) || !step_is_number(d->loss);
    if (bad) {
        const step_verdict v = step_bad_verdict(s, d); // by the scale that this step ran with
        if (s->loss_scaling) step_scale_update(s, d, true);
        return v;
    }
    if (s->loss_scaling) step_scale_update(s, d, false);
    const bool spike = step_is_spike(s, d);
    d->history[d->history_count % STEP_HISTORY] = d->grad_norm;
    d->history_count++;
    if (!spike) return STEP_VERDICT_APPLY;
    return s->spike == SPIKE_STOP ? STEP_VERDICT_HALT : STEP_VERDICT_SKIP;
}

static inline DEVICE_CODE void step_decide_now(step_block *b)
{
    const step_settings *s = &b->settings;
    step_device *d = &b->device;
    double unscale = 0.0;
    d->loss = step_double_of(UINT64_C(0x7ff8) << 48);
    d->grad_norm = 0.0;
    if (d->tokens > 0) {
        const double tokens = (double)d->tokens;
        unscale = s->loss_divisor / (d->loss_scale * tokens);
        d->loss = exact_value_now(&d->loss_sum) / tokens;
        d->grad_norm = sqrt(exact_value_now(&d->norm_sum)) * unscale;
    }
    d->grad_factor = unscale;
    // A norm that is not finite cannot clip; its step is applied only if the user chose to count
    // NaNs.
    if (s->clip > 0.0 && step_is_number(d->grad_norm)) {
        const double factor = s->clip / (d->grad_norm + 1e-6);
        if (factor < 1.0) d->grad_factor = unscale * factor;
    }
    if (d->halt != 0) {
        d->skip = 1;
        return;
    }
    const step_verdict v = step_verdict_of(b);
    d->skip = v == STEP_VERDICT_APPLY ? 0 : 1;
    d->halt = v == STEP_VERDICT_HALT ? 1 : 0;
    if (v == STEP_VERDICT_APPLY) {
        d->applied++;
    } else {
        d->skipped++;
    }
}

#ifdef __cplusplus
}
#endif
#endif
