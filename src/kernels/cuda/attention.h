// Which keys a query sees, and tiles in shared memory: shared by the attention kernels.
//
//   keys s ->  0 . . . . S-1     query t of T stands at position S - T + t of its sequence: without
//   query 0    x x x . . .       a cache S = T. It sees keys at or before itself, not further back
//   query 1    . x x x . .       than the window (0: no limit), and only those of its own document.
//
// With context parallelism the positions of a rank's queries rise with their rows (op/zigzag.h).
// Keys of all ranks are numbered by position and lie in other rows; those of one rank of a ring are
// numbered by row, and their positions rise too.
#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/view.h"
#include "op/dropout.h"
#include "op/zigzag.h"

// One sequence of a call.
typedef struct dev_span {
    int64_t sequence, query_begin; // number within the call; row of its first query
    int64_t key_begin, key_count;  // rows of k and v
    int64_t shift;                 // position of query 0
} dev_span;

DEV_INLINE dev_span dev_span_of(const cuda_attention_args *a, int64_t sequence)
{
    dev_span s;
    s.sequence = sequence;
    s.query_begin = sequence * a->seq;
    s.key_begin = sequence * a->keys;
    s.key_count = a->keys;
    if (a->lengths.data != NULL) {
        s.key_count = dev_index(&a->lengths, sequence);
        dev_index_check("attention over a cache", sequence, s.key_count, a->keys + 1);
    }
    s.shift = s.key_count - a->seq;
    return s;
}

// The position of query t, and that of a key.
DEV_INLINE int64_t dev_position(const cuda_attention_args *a, const dev_span *s, int64_t t)
{
    if (a->cp_ways <= 1) return s->shift + t;
    return zigzag_position(a->cp_ways, a->cp_turns, a->cp_at, a->seq, t);
}

DEV_INLINE int64_t dev_key_position(const cuda_attention_args *a, int64_t key)
{
    return a->ring ? zigzag_position(a->cp_ways, a->cp_turns, a->key_at, a->seq, key) : key;
}

// The row of a key in k and v, of `key` < key_count.
DEV_INLINE int64_t dev_key_row(const cuda_attention_args *a, const dev_span *s, int64_t key)
{
    int64_t run = 0;
    if (a->pages.data != NULL) {
        return dev_page_row(&a->pages, a->page, a->page_count, s->sequence, key, a->k.rows);
    }
    if (a->cp_ways <= 1 || a->ring) return s->key_begin + key;
    return s->key_begin + zigzag_row(a->cp_ways, a->cp_turns, s->key_count, key, &run);
}

// Whether a query and a key, by their positions, belong to the same document.
DEV_CALLED bool dev_same_document(const cuda_attention_args *a, const dev_span *s, int64_t position,
                                  int64_t at)
{
    const int64_t first = s->sequence * s->key_count * (a->ring ? a->cp_ways : 1);
    return dev_index(&a->documents, first + position) == dev_index(&a->documents, first + at);
}

DEV_INLINE bool dev_sees(const cuda_attention_args *a, const dev_span *s, int64_t t, int64_t key)
{
    if (t >= a->seq || key >= s->key_count) return false;
    const int64_t position = dev_position(a, s, t), at = dev_key_position(a, key);
    if (at > position) return false;
    if (a->window > 0 && at <= position - a->window) return false;
    return a->documents.data == NULL || dev_same_document(a, s, position, at);
}

// The keys that some query of t to t + count - 1 may see: [begin, end).
DEV_INLINE int64_t dev_keys_begin(const cuda_attention_args *a, const dev_span *s, int64_t t)
{
    if (a->window <= 0 || a->ring) return 0;
    return dev_max(dev_position(a, s, t) - a->window + 1, 0);
}

DEV_INLINE int64_t dev_keys_end(const cuda_attention_args *a, const dev_span *s, int64_t t,
                                int64_t count)
{
    if (a->ring) return s->key_count;
    return dev_min(s->key_count, dev_position(a, s, t + count - 1) + 1);
}

// The queries that may see some key of `key` to key + count - 1: [begin, end).
DEV_INLINE int64_t dev_queries_begin(const cuda_attention_args *a, const dev_span *s, int64_t key)
{
    return a->cp_ways > 1 || key <= s->shift ? 0 : key - s->shift;
}

DEV_INLINE int64_t dev_queries_end(const cuda_attention_args *a, const dev_span *s, int64_t key,
                                   int64_t count)
{
    if (a->window <= 0 || a->cp_ways > 1) return a->seq;
    return dev_min(a->seq, key + count - 1 - s->shift + a->window);
}

// Whether some query of t to t + rows - 1 may see a key of `key` to key + columns - 1; false leaves
// out tiles that the limits above do not.
DEV_INLINE bool dev_tiles_meet(const cuda_attention_args *a, const dev_span *s, int64_t t,
                               int64_t rows, int64_t key, int64_t columns)
{
    if (a->cp_ways <= 1) return true;
    const int64_t last_query = dev_min(t + rows, a->seq) - 1;
    const int64_t last_key = dev_min(key + columns, s->key_count) - 1;
    if (dev_key_position(a, key) > dev_position(a, s, last_query)) return false;
    return a->window <= 0 || dev_key_position(a, last_key) > dev_position(a, s, t) - a->window;
}

// Scores after their cap, and the slope there.
DEV_INLINE float dev_score(const cuda_attention_args *a, float x)
{
    return a->cap > 0.0f ? dev_capped(a->cap, x) : x;
}

DEV_INLINE float dev_score_slope(const cuda_attention_args *a, float score)
{
    const float part = a->cap > 0.0f ? score / a->cap : 0.0f;
    return 1.0f - part * part;
}

// The end of a query: a logarithm of the sum over its keys becomes one with the sink, if there is
// one. Returns the factor of the probabilities. A query that sees no key has no sink either.
DEV_INLINE float dev_sink_add(const cuda_attention_args *a, int64_t head, float *lse)
{
    if (a->sinks.data == NULL || *lse == -INFINITY) return 1.0f;
    const float sink = dev_load(&a->sinks, 0, head), highest = fmaxf(sink, *lse);
    const float all = highest + logf(expf(sink - highest) + expf(*lse - highest));
    const float factor = expf(*lse - all);
    *lse = all;
    return factor;
}

// The factor of dropout of one probability: 0, or 1 / (1 - p).
DEV_CALLED float dev_keep(const cuda_attention_args *a, const dev_span *s, int64_t head, int64_t t,
                          int64_t key)
{
    if (!(a->dropout > 0.0f)) return 1.0f;
    const dropout_stream stream = dropout_stream_of(
        a->step, a->site, (int32_t)(a->first_head + head), a->first_sequence + s->sequence);
    return dropout_factor_at(&stream, dev_position(a, s, t), dev_key_position(a, key), a->dropout);
}

#endif
