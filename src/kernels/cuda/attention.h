// Which keys a query sees, and tiles in shared memory: shared by the attention kernels.
//
//   keys s ->  0 . . . . S-1     query t of T stands at position S - T + t of its sequence: without
//   query 0    x x x . . .       a cache S = T. It sees keys at or before itself, not further back
//   query 1    . x x x . .       than the window (0: no limit), and only those of its own document.
#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/view.h"
#include "op/dropout.h"

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

// Whether a query and a key belong to the same document.
DEV_CALLED bool dev_same_document(const cuda_attention_args *a, const dev_span *s, int64_t t,
                                  int64_t key)
{
    const int64_t first = s->sequence * s->key_count;
    return dev_index(&a->documents, first + s->shift + t) == dev_index(&a->documents, first + key);
}

DEV_INLINE bool dev_sees(const cuda_attention_args *a, const dev_span *s, int64_t t, int64_t key)
{
    const int64_t position = s->shift + t;
    if (t >= a->seq || key >= s->key_count || key > position) return false;
    if (a->window > 0 && key <= position - a->window) return false;
    return a->documents.data == NULL || dev_same_document(a, s, t, key);
}

// The keys that some query of t to t + count - 1 may see: [begin, end).
DEV_INLINE int64_t dev_keys_begin(const cuda_attention_args *a, const dev_span *s, int64_t t)
{
    const int64_t begin = a->window > 0 ? s->shift + t - a->window + 1 : 0;
    return begin > 0 ? begin : 0;
}

DEV_INLINE int64_t dev_keys_end(const dev_span *s, int64_t t, int64_t count)
{
    return dev_min(s->key_count, s->shift + t + count);
}

// The queries that may see some key of `key` to key + count - 1: [begin, end).
DEV_INLINE int64_t dev_queries_begin(const dev_span *s, int64_t key)
{
    return key > s->shift ? key - s->shift : 0;
}

DEV_INLINE int64_t dev_queries_end(const cuda_attention_args *a, const dev_span *s, int64_t key,
                                   int64_t count)
{
    if (a->window <= 0) return a->seq;
    return dev_min(a->seq, key + count - 1 - s->shift + a->window);
}

// The factor of dropout of one probability: 0, or 1 / (1 - p).
DEV_CALLED float dev_keep(const cuda_attention_args *a, const dev_span *s, int64_t head, int64_t t,
                          int64_t key)
{
    if (!(a->dropout > 0.0f)) return 1.0f;
    const dropout_stream stream = dropout_stream_of(
        a->step, a->site, (int32_t)(a->first_head + head), a->first_sequence + s->sequence);
    return dropout_factor_at(&stream, s->shift + t, key, a->dropout);
}

#endif
