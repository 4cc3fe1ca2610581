// Compression of gradients for slow links: a family, one file and one row of compress_table.c each.
//
//   bf16     halves, no state
//   int8     blocks of 8-bit integers with one scale
//   fp8      blocks of e4m3 with one scale
//   topk     the largest few values; the rest is fed back
//   onebit   signs and one scale per block, fed back; the first steps travel whole (warm-up)
//
// The loss is measured: each call returns ||v - decoded(v)||^2 and ||v||^2 of its bucket, so
// callers can check a bound. v is x, and with *feedback* x plus the loss of earlier steps (Seide et
// al. 2014; Karimireddy et al. 2019, arXiv:1901.09847): the sum of all decoded values then differs
// from the sum of all x by the present residual only. The residual is in `state`: plain bytes for
// the checkpoint, zeros at the start.
//
// Values that are not finite never hide: both sides count them, they arrive as NaN (in onebit their
// whole block does; bf16 keeps infinities), and they leave no trace in the state. They do not
// change other values of the bucket.
//
// The bits of a stream depend on x, state and settings only. Decoders trust nothing: they check
// every length, scale and index before they write a byte, and return ST_DAMAGED.
#ifndef COMM_COMPRESS_H
#define COMM_COMPRESS_H

#include "comm/vectors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COMM_BLOCK_LEAST = 32,
    COMM_BLOCK_MOST = 4096 // a power of two between the two
};

// The settings that both sides know: part of the layout, the same on all ranks.
typedef struct comm_bucket {
    int64_t count;      // elements, < 2^31
    int32_t block;      // that share a scale; 0: 256
    double keep;        // topk: share that travels, 0 < keep <= 1
    int64_t warm_steps; // onebit: that travel whole
    comm_vectors vectors;
} comm_bucket;

typedef struct comm_loss {
    double error_squared, norm_squared; // over finite values
    int64_t non_finite;
} comm_loss;
double comm_loss_relative(const comm_loss *loss); // ||v - v'|| / ||v||; 0 where v is 0

typedef struct comm_codec {
    const char *name;
    uint8_t id;    // in the stream
    bool feedback; // keeps a residual
    bool warms;    // heeds warm_steps
    // of the relative error of gradients, unless a run says otherwise; 0: none, it is fed back
    double bound;
    // Blocks: bytes of n elements; from v to bytes (non-finite values as the top of this file
    // says); and back: false if the bytes cannot have come from encode. Or, where NULL, whole
    // buckets:
    int64_t (*block_bytes)(int64_t n);
    void (*encode_block)(comm_vectors vectors, const float *v, int64_t n, unsigned char *out);
    bool (*decode_block)(comm_vectors vectors, const unsigned char *in, int64_t n, float *v);
    int64_t (*most_bytes)(const comm_bucket *b);
    // Encodes a block; v becomes the loss. Returns the bytes.
    int64_t (*encode)(const comm_bucket *b, float *v, unsigned char *out, comm_loss *loss);
    bool (*decode)(const comm_bucket *b, const unsigned char *in, int64_t bytes, float *v);
} comm_codec;

extern const comm_codec *const comm_codec_table[];
int comm_codec_count(void);
const comm_codec *comm_codec_find(const char *name); // NULL: none

int64_t comm_compress_bytes(const comm_codec *c,
                            const comm_bucket *b); // the most that encode writes
int64_t comm_compress_state_bytes(const comm_codec *c, const comm_bucket *b); // 0: none

// out: comm_compress_bytes of it. state: zeros before the first step; NULL without feedback.
NODISCARD status comm_compress(const comm_codec *c, const comm_bucket *b, const float *x,
                               void *state, void *out, int64_t *out_bytes, comm_loss *loss);
// x: b->count floats. non_finite: the sender's count of values that are not finite.
NODISCARD status comm_decompress(const comm_codec *c, const comm_bucket *b, const void *in,
                                 int64_t in_bytes, float *x, int64_t *non_finite);

#ifdef __cplusplus
}
#endif
#endif
