// Dropout's random bits: whether an element is dropped is a function of (seed, step, position)
// only, so layout, micro-batch, packing, threads and recomputation change no bit.
//
//   key      seed folded to 32 bits, step
//   counter  site << 12 | head, sequence, position, index / 4    one call gives four elements
//
// `site` is the use (layer * 4 + use), `sequence` its number in the global batch, `position` the
// row's place in that sequence, `index` the feature, or in attention the key's position. Every
// backend includes this file, so all of them drop the same elements.
#ifndef OP_DROPOUT_H
#define OP_DROPOUT_H

#include "base/rng.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dropout_stream {
    uint32_t key[2];
    uint32_t site_head;
    uint32_t sequence;
} dropout_stream;

// 2^12 heads and 2^20 sites fit, so no two uses share a counter.
static inline DEVICE_CODE dropout_stream dropout_stream_of(const step_host *h, int32_t site,
                                                           int32_t head, int64_t sequence)
{
    const uint32_t odd = 0x9E3779B9u; // 2^32 / golden ratio: spreads the seed's high half
    dropout_stream s;
    s.key[0] = (uint32_t)h->seed ^ ((uint32_t)(h->seed >> 32) * odd);
    s.key[1] = (uint32_t)h->step;
    s.site_head = (uint32_t)site << 12 | (uint32_t)head;
    s.sequence = (uint32_t)sequence;
    return s;
}

// Returns the words of elements 4 * quad .. 4 * quad + 3 of one row.
static inline DEVICE_CODE philox_words dropout_words(const dropout_stream *s, int64_t position,
                                                     int64_t quad)
{
    uint32_t counter[4];
    counter[0] = s->site_head;
    counter[1] = s->sequence;
    counter[2] = (uint32_t)position;
    counter[3] = (uint32_t)quad;
    return philox4x32_10(counter, s->key);
}

// Returns the factor of an element: 0, or 1 / (1 - p), which keeps the mean.
static inline DEVICE_CODE float dropout_factor(uint32_t word, float p)
{
    return rng_uniform(word) >= p ? 1.0f / (1.0f - p) : 0.0f;
}

// Returns the factor of one element; kernels that walk along a row take four at a time.
static inline DEVICE_CODE float dropout_factor_at(const dropout_stream *s, int64_t position,
                                                  int64_t index, float p)
{
    return dropout_factor(dropout_words(s, position, index / 4).w[index & 3], p);
}

#ifdef __cplusplus
}
#endif
#endif
