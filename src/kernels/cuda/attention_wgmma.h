// Parts of the attention kernels for GPUs of compute capability 9.0 (attention_wgmma.cu and
// attention_bwd_wgmma.cu). Their lanes have the rows and columns of scores that those of
// attention_mma.h have: a group of four warps has 64 rows, a block two groups that compute.
#ifndef KERNELS_CUDA_ATTENTION_WGMMA_H
#define KERNELS_CUDA_ATTENTION_WGMMA_H

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/dev_sm90.h"

enum {
    WGMMA_ROWS = 128, // of a block
    WGMMA_GROUP_ROWS = 64,
    WGMMA_KEYS = 128, // of a tile
    WGMMA_KEY_TILES = WGMMA_KEYS / 8,
    WGMMA_CONSUMERS = 2 * DEV_GROUP,
    WGMMA_WARPS = WGMMA_CONSUMERS / DEV_WARP,
    WGMMA_THREADS = WGMMA_CONSUMERS + DEV_GROUP // with the producer's
};

// The tiles of keys that the queries of a block may see.
typedef struct wgmma_walk {
    dev_span span;
    int first, head, kv;
    int begin, tiles; // first key; number of tiles
} wgmma_walk;

DEV_INLINE wgmma_walk wgmma_walk_of(const cuda_attention_args *a, int first, int keys)
{
    wgmma_walk w;
    w.span = dev_span_of(a, dev_block(2));
    w.first = first;
    w.head = (int)dev_block(1);
    w.kv = w.head / (a->heads / a->kv_heads);
    const int shift = (int)w.span.shift, count = (int)w.span.key_count;
    const int last = (int)dev_min(first + WGMMA_ROWS, a->seq) - 1;
    const int end = (int)dev_min(count, shift + last + 1);
    w.begin = a->window > 0 ? (int)dev_max(shift + first - a->window + 1, 0) / keys * keys : 0;
    w.tiles = (end - w.begin + keys - 1) / keys;
    return w;
}

// The documents of a lane's two queries.
DEV_INLINE void wgmma_documents(const cuda_attention_args *a, const dev_span *s, int64_t t,
                                int64_t out[2])
{
    if (a->documents.data == NULL) return;
    DEV_UNROLL
    for (int r = 0; r < 2; r++) {
        const int64_t query = t + mma_lane_row(r);
        if (query >= a->seq) continue;
        out[r] = dev_index(&a->documents, s->sequence * s->key_count + s->shift + query);
    }
}

#endif
