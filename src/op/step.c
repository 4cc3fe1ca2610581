// Exact sums, and the decision at the end of a step.
//
// An exact sum is a fixed-point number wide enough for every double, in 32-bit digits that are held
// in 64-bit words. Adding a double adds at most three 32-bit pieces to three words; carries stay in
// the upper halves of the words until the value is read. Additions of integers commute, so the
// words themselves, not only the value, are equal for every order and every tree of merges. Source:
// Kulisch, "Computer Arithmetic and Validity", 2008.
//
// The decision uses + - * / and sqrt only, which IEEE 754 defines to the last bit.
#include "op/step.h"

#include <math.h>
#include <string.h>

int64_t step_field_begin(uint32_t field)
{
    static const size_t begins[] = {
        0,
        offsetof(step_block, device) + offsetof(step_device, applied),
        offsetof(step_block, device) + offsetof(step_device, loss_scale),
        offsetof(step_block, device) + offsetof(step_device, scale_good_steps),
        offsetof(step_block, device) + offsetof(step_device, tokens),
        offsetof(step_block, device) + offsetof(step_device, skip),
        offsetof(step_block, device) + offsetof(step_device, bad_tensor),
        offsetof(step_block, device) + offsetof(step_device, loss),
        offsetof(step_block, device) + offsetof(step_device, loss_sum),
        offsetof(step_block, device) + offsetof(step_device, norm_sum),
        sizeof(step_block),
    };
    int bit = 0;
    while (bit < COUNT_OF(begins) - 1 && (field >> bit & 1u) == 0) bit++;
    return (int64_t)begins[bit];
}

enum { DIGIT_BITS = 32, EXACT_LOW_BIT = 22 }; // bit 22 of digit 0 has weight 2^-1074

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

void exact_zero(exact_sum *s)
{
    memset(s, 0, sizeof(*s));
}

void exact_add(exact_sum *s, double value)
{
    const uint64_t bits = bits_of(value);
    const uint64_t exponent = bits >> 52 & 0x7ff;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent == 0x7ff) {
        s->not_finite++;
        return;
    }
    if (exponent > 0) mantissa |= UINT64_C(1) << 52;
    const uint64_t at = (exponent > 0 ? exponent - 1 : 0) + EXACT_LOW_BIT;
    const uint64_t digit = at / DIGIT_BITS, shift = at % DIGIT_BITS;
    const uint64_t low = mantissa << shift;
    const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
    const int64_t sign = bits >> 63 == 0 ? 1 : -1;
    s->digit[digit] += sign * (int64_t)(low & 0xffffffffu);
    s->digit[digit + 1] += sign * (int64_t)(low >> DIGIT_BITS);
    s->digit[digit + 2] += sign * (int64_t)high;
}

void exact_merge(exact_sum *s, const exact_sum *other)
{
    for (int i = 0; i < EXACT_DIGITS; i++) s->digit[i] += other->digit[i];
    s->not_finite += other->not_finite;
}

// Moves carries up, so that all digits but the top one are in [0, 2^32).
static void carries_normalize(int64_t digit[EXACT_DIGITS])
{
    for (int i = 0; i + 1 < EXACT_DIGITS; i++) {
        // Floor division by 2^32 without shifting a negative number.
        int64_t carry = digit[i] / (INT64_C(1) << DIGIT_BITS);
        int64_t rest = digit[i] % (INT64_C(1) << DIGIT_BITS);
        if (rest < 0) {
            rest += INT64_C(1) << DIGIT_BITS;
            carry -= 1;
        }
        digit[i] = rest;
        digit[i + 1] += carry;
    }
}

// Returns the 64 bits whose lowest is bit `at` of the normalized digits.
static uint64_t bits_at(const int64_t digit[EXACT_DIGITS], int64_t at)
{
    const int64_t i = at / DIGIT_BITS, shift = at % DIGIT_BITS;
    uint64_t out = (uint64_t)digit[i] >> shift;
    if (i + 1 < EXACT_DIGITS) out |= (uint64_t)digit[i + 1] << (DIGIT_BITS - shift);
    if (i + 2 < EXACT_DIGITS && shift > 0) out |= (uint64_t)digit[i + 2] << (64 - shift);
    return out;
}

static bool any_below(const int64_t digit[EXACT_DIGITS], int64_t at)
{
    for (int64_t i = 0; i < at / DIGIT_BITS; i++) {
        if (digit[i] != 0) return true;
    }
    const uint64_t mask = (UINT64_C(1) << (at % DIGIT_BITS)) - 1;
    return ((uint64_t)digit[at / DIGIT_BITS] & mask) != 0;
}

// Returns the highest set bit of the normalized digits; -1: none.
static int64_t highest_bit(const int64_t digit[EXACT_DIGITS])
{
    for (int64_t i = EXACT_DIGITS - 1; i >= 0; i--) {
        if (digit[i] == 0) continue;
        int64_t bit = 0;
        for (uint64_t rest = (uint64_t)digit[i]; rest > 1; rest >>= 1) bit++;
        return i * DIGIT_BITS + bit;
    }
    return -1;
}

// Returns the double nearest to the normalized, non-negative digits, ties to even.
static double digits_round(const int64_t digit[EXACT_DIGITS])
{
    const int64_t top = highest_bit(digit);
    if (top < EXACT_LOW_BIT + 53) { // exact; subnormal numbers are stored like this too
        return top < 0 ? 0.0 : double_of(bits_at(digit, EXACT_LOW_BIT));
    }
    const int64_t at = top - 52; // lowest bit that is kept
    uint64_t mantissa = bits_at(digit, at) & ((UINT64_C(1) << 53) - 1);
    const bool half = (bits_at(digit, at - 1) & 1) != 0;
    if (half && ((mantissa & 1) != 0 || any_below(digit, at - 1))) mantissa++;
    int64_t exponent = at - EXACT_LOW_BIT + 1; // as stored
    if (mantissa >> 53 != 0) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent >= 0x7ff) return double_of(UINT64_C(0x7ff) << 52);
    return double_of((uint64_t)exponent << 52 | (mantissa & ((UINT64_C(1) << 52) - 1)));
}

double exact_value(const exact_sum *s)
{
    if (s->not_finite != 0) return double_of(UINT64_C(0x7ff8) << 48);
    int64_t digit[EXACT_DIGITS];
    memcpy(digit, s->digit, sizeof(digit));
    carries_normalize(digit);
    const bool negative = digit[EXACT_DIGITS - 1] < 0;
    if (negative) {
        for (int i = 0; i < EXACT_DIGITS; i++) digit[i] = -digit[i];
        carries_normalize(digit);
    }
    const double magnitude = digits_round(digit);
    return negative ? -magnitude : magnitude;
}

// ---- the decision -------------------------------------------------------------------------------

void step_device_init(step_device *d, double initial_loss_scale)
{
    memset(d, 0, sizeof(*d));
    d->loss_scale = initial_loss_scale;
    d->scale_hysteresis_left = INT64_MAX; // step_decide brings it down to the setting
    d->bad_tensor = -1;
}

static bool is_finite(double x)
{
    return x - x == 0.0;
}

// Above this value only gradients that are all zero would let the scale grow.
static const double scale_most = 0x1p64;

static void scale_update(const step_settings *s, step_device *d, bool overflow)
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
    if (d->loss_scale < scale_most) d->loss_scale *= 2.0;
}

// Returns the median of the last `count` norms of the ring, 1 <= count <= STEP_HISTORY.
static double history_median(const step_device *d, int64_t count)
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

static bool is_spike(const step_settings *s, const step_device *d)
{
    if (s->spike != SPIKE_SKIP && s->spike != SPIKE_STOP) return false;
    const int64_t window = min_i64(max_i64(s->spike_warmup, 1), STEP_HISTORY);
    if (d->history_count < window) return false;
    return d->grad_norm > s->spike_threshold * history_median(d, window);
}

// The decision about this step's update.
typedef enum verdict { VERDICT_APPLY, VERDICT_SKIP, VERDICT_HALT } verdict;

static verdict bad_verdict(const step_settings *s, const step_device *d)
{
    if (!s->loss_scaling) {
        if (s->nan == NAN_COUNT) return VERDICT_APPLY;
        return s->nan == NAN_STOP ? VERDICT_HALT : VERDICT_SKIP;
    }
    // Overflows are expected while the scale is found; NaN that a lower scale cannot cure is not
    // one.
    const bool helpless = !is_finite(d->loss) || d->loss_scale <= s->scale_floor;
    return s->nan == NAN_STOP && helpless ? VERDICT_HALT : VERDICT_SKIP;
}

static verdict verdict_of(step_block *b)
{
    const step_settings *s = &b->settings;
    step_device *d = &b->device;
    if (d->tokens <= 0) return VERDICT_SKIP;
    const bool bad = !is_finite(d->grad_norm) || !is_finite(d->loss);
    if (bad) {
        const verdict v = bad_verdict(s, d); // by the scale that this step ran with
        if (s->loss_scaling) scale_update(s, d, true);
        return v;
    }
    if (s->loss_scaling) scale_update(s, d, false);
    const bool spike = is_spike(s, d);
    d->history[d->history_count % STEP_HISTORY] = d->grad_norm;
    d->history_count++;
    if (!spike) return VERDICT_APPLY;
    return s->spike == SPIKE_STOP ? VERDICT_HALT : VERDICT_SKIP;
}

void step_decide(step_block *b)
{
    const step_settings *s = &b->settings;
    step_device *d = &b->device;
    double unscale = 0.0;
    d->loss = double_of(UINT64_C(0x7ff8) << 48);
    d->grad_norm = 0.0;
    if (d->tokens > 0) {
        const double tokens = (double)d->tokens;
        unscale = s->loss_divisor / (d->loss_scale * tokens);
        d->loss = exact_value(&d->loss_sum) / tokens;
        d->grad_norm = sqrt(exact_value(&d->norm_sum)) * unscale;
    }
    d->grad_factor = unscale;
    // A norm that is not finite cannot clip; its step is applied only if the user chose to count
    // NaNs.
    if (s->clip > 0.0 && is_finite(d->grad_norm)) {
        const double factor = s->clip / (d->grad_norm + 1e-6);
        if (factor < 1.0) d->grad_factor = unscale * factor;
    }
    if (d->halt != 0) {
        d->skip = 1;
        return;
    }
    const verdict v = verdict_of(b);
    d->skip = v == VERDICT_APPLY ? 0 : 1;
    d->halt = v == VERDICT_HALT ? 1 : 0;
    if (v == VERDICT_APPLY) {
        d->applied++;
    } else {
        d->skipped++;
    }
}
