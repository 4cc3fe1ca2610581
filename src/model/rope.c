// Frequencies of rotary positions, and the table of their cosines and sines (interface: rope.h).
#include "model/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586

static double or_else(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static double original_context(const decoder_spec *s)
{
    return (double)(s->rope.original_context > 0 ? s->rope.original_context : s->context);
}

static void plain(const decoder_spec *s, double theta, double *f)
{
    for (int64_t i = 0; i < model_rope_dim(s) / 2; i++) {
        f[i] = 1.0 / pow(theta, (double)(2 * i) / (double)model_rope_dim(s));
    }
}

// Linear interpolation (Chen et al. 2023, arXiv:2306.15595): positions are divided by the factor.
static void linear(const decoder_spec *s, double *f)
{
    plain(s, s->rope.theta, f);
    for (int64_t i = 0; i < model_rope_dim(s) / 2; i++) f[i] /= s->rope.factor;
}

// NTK-aware: beyond the original context, the base grows with the longest sequence.
static void dynamic(const decoder_spec *s, int64_t seq, double *f)
{
    const double context = (double)s->context, dim = (double)model_rope_dim(s);
    const double longest = (double)max_i64(seq, s->context);
    const double stretch = s->rope.factor * longest / context - (s->rope.factor - 1.0);
    plain(s, s->rope.theta * pow(stretch, dim / (dim - 2.0)), f);
}

// Llama 3.1: keeps short wavelengths, stretches long ones, and interpolates between them.
static void llama3(const decoder_spec *s, double *f)
{
    const model_rope *r = &s->rope;
    const double context = original_context(s);
    plain(s, r->theta, f);
    for (int64_t i = 0; i < model_rope_dim(s) / 2; i++) {
        const double wave = TWO_PI / f[i];
        if (wave < context / r->high_freq_factor) continue;
        const double share = wave > context / r->low_freq_factor
                                 ? 0.0
                                 : (context / wave - r->low_freq_factor) /
                                       (r->high_freq_factor - r->low_freq_factor);
        f[i] = (1.0 - share) * f[i] / r->factor + share * f[i];
    }
}

// Returns the pair index whose wave makes this many turns within the original context.
static double pair_of_turns(const decoder_spec *s, double turns)
{
    return (double)model_rope_dim(s) * log(original_context(s) / (turns * TWO_PI)) /
           (2.0 * log(s->rope.theta));
}

static double mscale_of(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

// YaRN, Peng et al. 2023, arXiv:2309.00071. The ramp is over pair indices, but clipped at D - 1.
static void yarn(const decoder_spec *s, double *f, double *attention)
{
    const model_rope *r = &s->rope;
    const double factor = or_else(r->factor, (double)s->context / original_context(s));
    const double fast = or_else(r->beta_fast, 32.0), slow = or_else(r->beta_slow, 1.0);
    // As in transformers, a beta of 0 counts as absent; so does an mscale of 0.
    double low = pair_of_turns(s, fast == 0.0 ? 32.0 : fast);
    double high = pair_of_turns(s, slow == 0.0 ? 1.0 : slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(model_rope_dim(s) - 1));
    if (low == high) high += 0.001;
    plain(s, r->theta, f);
    for (int64_t i = 0; i < model_rope_dim(s) / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        f[i] = f[i] / factor * ramp + f[i] * (1.0 - ramp);
    }
    const double mscale = or_else(r->mscale, 0.0), all = or_else(r->mscale_all_dim, 0.0);
    const double usual = mscale != 0.0 && all != 0.0
                             ? mscale_of(factor, mscale) / mscale_of(factor, all)
                             : mscale_of(factor, 1.0);
    *attention = or_else(r->attention_factor, usual);
}

// LongRoPE (Ding et al. 2024, arXiv:2402.13753): one factor per pair, with another set for long
// sequences.
static void longrope(const decoder_spec *s, int64_t seq, double *f, double *attention)
{
    const model_rope *r = &s->rope;
    const double context = original_context(s);
    const double factor = or_else(r->factor, (double)s->context / context);
    const double *stretch = (double)seq > context ? r->long_factor : r->short_factor;
    plain(s, r->theta, f);
    for (int64_t i = 0; i < model_rope_dim(s) / 2; i++) f[i] /= stretch[i];
    const double usual =
        factor <= 1.0 || context <= 1.0 ? 1.0 : sqrt(1.0 + log(factor) / log(context));
    *attention = or_else(r->attention_factor, usual);
}

void model_rope_frequencies(const decoder_spec *spec, int64_t seq, double *frequencies,
                            double *attention_factor)
{
    *attention_factor = 1.0;
    switch (spec->rope.kind) {
    case MODEL_ROPE_LINEAR:
        linear(spec, frequencies);
        return;
    case MODEL_ROPE_DYNAMIC:
        dynamic(spec, seq, frequencies);
        return;
    case MODEL_ROPE_LLAMA3:
        llama3(spec, frequencies);
        return;
    case MODEL_ROPE_YARN:
        yarn(spec, frequencies, attention_factor);
        return;
    case MODEL_ROPE_LONGROPE:
        longrope(spec, seq, frequencies, attention_factor);
        return;
    case MODEL_ROPE_DEFAULT:
    default:
        plain(spec, spec->rope.theta, frequencies);
        return;
    }
}

bool model_rope_changes(const decoder_spec *spec, int64_t seq_before, int64_t seq_after)
{
    if (spec->position != MODEL_POSITION_ROPE) return false;
    if (spec->rope.kind == MODEL_ROPE_DYNAMIC) {
        return max_i64(seq_before, spec->context) != max_i64(seq_after, spec->context);
    }
    const double context = original_context(spec);
    return spec->rope.kind == MODEL_ROPE_LONGROPE &&
           ((double)seq_before > context) != ((double)seq_after > context);
}

// The angle is a double, so that position 1,000,000 is exact to 1e-10.
void model_rope_row(const double *frequencies, int64_t pairs, double attention_factor,
                    int64_t position, float *row)
{
    for (int64_t i = 0; i < pairs; i++) {
        const double angle = (double)position * frequencies[i];
        row[i] = (float)(cos(angle) * attention_factor);
        row[pairs + i] = (float)(sin(angle) * attention_factor);
    }
}

status model_rope_table(arena *a, const decoder_spec *spec, int64_t rows, int64_t seq, float **out)
{
    const int64_t pairs = model_rope_dim(spec) / 2;
    double *frequencies = NULL, attention = 1.0;
    float *table = NULL;
    ASSERT(pairs > 0 && rows > 0);
    TRY(arena_new(a, pairs, &frequencies));
    TRY(arena_new(a, rows * model_rope_dim(spec), &table));
    model_rope_frequencies(spec, seq, frequencies, &attention);
    for (int64_t i = 0; i < rows; i++) {
        model_rope_row(frequencies, pairs, attention, i, table + i * model_rope_dim(spec));
    }
    *out = table;
    return ST_OK;
}
