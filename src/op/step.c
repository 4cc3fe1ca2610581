// Exact sums, and the decision at the end of a step.
//
// An exact sum is a fixed-point number wide enough for every double, in 32-bit digits that are held
// in 64-bit words. Adding a double adds at most three 32-bit pieces to three words; carries stay in
// the upper halves of the words until the value is read. Additions of integers commute, so the
// words themselves, not only the value, are equal for every order and every tree of merges. Source:
// Kulisch, "Computer Arithmetic and Validity", 2008.
//
// The rules that all backends share, the rounding of a sum and the decision, are in
// op/step_rules.h.
#include "op/step_rules.h"

#include <string.h>

int64_t step_field_begin(uint32_t field, int64_t loads)
{
    const size_t words = (size_t)loads * sizeof(int64_t);
    const size_t begins[] = {
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
        sizeof(step_block) + words,
        sizeof(step_block) + 2 * words,
    };
    int bit = 0;
    while (bit < COUNT_OF(begins) - 1 && (field >> bit & 1u) == 0) bit++;
    return (int64_t)begins[bit];
}

void exact_zero(exact_sum *s)
{
    memset(s, 0, sizeof(*s));
}

void exact_add(exact_sum *s, double value)
{
    const uint64_t bits = step_bits_of(value);
    if ((bits >> 52 & 0x7ff) == 0x7ff) {
        s->not_finite++;
        return;
    }
    const exact_pieces p = exact_pieces_of(bits);
    for (int i = 0; i < 3; i++) s->digit[p.digit + i] += p.piece[i];
}

void exact_merge(exact_sum *s, const exact_sum *other)
{
    for (int i = 0; i < EXACT_DIGITS; i++) s->digit[i] += other->digit[i];
    s->not_finite += other->not_finite;
}

double exact_value(const exact_sum *s)
{
    return exact_value_now(s);
}

void step_loads_turn(step_block *b, int64_t words)
{
    int64_t *first = (int64_t *)(void *)(b + 1);
    if (words == 0) return;
    memcpy(first + words, first, (size_t)words * sizeof(*first));
    memset(first, 0, (size_t)words * sizeof(*first));
}

void step_device_init(step_device *d, double initial_loss_scale)
{
    memset(d, 0, sizeof(*d));
    d->loss_scale = initial_loss_scale;
    d->scale_hysteresis_left = INT64_MAX; // step_decide brings it down to the setting
    d->bad_tensor = -1;
}

void step_decide(step_block *b)
{
    step_decide_now(b);
}
