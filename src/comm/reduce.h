// Sums (and max, min, avg) of several buffers, in one pass over memory.
//
// Every collective that adds uses this module: out = in[0] (+) in[1] (+) ... , each element
// of each input read once, the result written to one or several outputs. The steps
// per element are decided once per operation, in a *reducer*: a small program of steps over blocks
// that stay in the L1 cache.
//
//   sequential  ((x0 + x1) + x2) + ..., for order `rank` and for all integers, max and min
//   tree        node [b, b + 2^k) = left half + right half, for order `shard`. The terms are tree
//               nodes over shards (comm_term). If one half is absent, the node is the other half.
//               plan/lower/shards.c makes the same tree.
//
// The bits depend on values and order only: not on the level of vector units, on how a range is
// cut, or on alignment. Floats narrower than fp32 are widened, summed in fp32 and rounded once. A
// result that is NaN is the one quiet NaN with sign and payload 0. max and min are NaN where any
// input is, and know that -0 < +0: so they do not depend on order at all. Sums of integers wrap.
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "comm/comm.h"
#include "comm/vectors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COMM_REDUCE_MAX_TERMS = 1024, // inputs of a tree; a sequential reduction takes any number
    COMM_REDUCE_MAX_SLOTS = 12    // blocks that wait for their other half
};

typedef enum comm_stores {
    COMM_STORE_CACHED,
    COMM_STORE_STREAM // past the caches: for large outputs that are not among the inputs
} comm_stores;

// A step makes dest from a.. ; operands are inputs (>= 0) or waiting blocks (~slot).
typedef struct comm_reduce_step {
    int16_t kind, dest; // dest: a slot; the last step's is the output
    int16_t a, b;       // the second operand, where the kind has one
} comm_reduce_step;

// Filled by the two functions below; plain data, may be copied and kept.
typedef struct comm_reducer {
    dtype type;
    op_reduction reduction;
    comm_vectors vectors;
    double scale; // of the result: 1 / divisor for avg, else 1
    int32_t inputs;
    int32_t step_count; // 0: sequential
    comm_reduce_step steps[COMM_REDUCE_MAX_TERMS];
} comm_reducer;

// True for a type that can be reduced so: fp8 and bool cannot, integers have no average.
bool comm_reduce_can(dtype type, op_reduction reduction);

// Makes a reducer that adds `inputs` >= 1 buffers from left to right. divisor: of avg, >= 1.
NODISCARD status comm_reducer_sequential(comm_vectors vectors, dtype type, op_reduction reduction,
                                         int32_t inputs, int64_t divisor, comm_reducer *out);
// By the tree over `shards`; input i is the node terms[i]. Terms ascend and do not overlap.
NODISCARD status comm_reducer_tree(comm_vectors vectors, dtype type, op_reduction reduction,
                                   const comm_term *terms, int32_t count, int32_t shards,
                                   int64_t divisor, comm_reducer *out);

// Elements [begin, begin + count) of every buffer. An output may be one of the inputs; else no
// overlap.
typedef struct comm_reduce_args {
    const void *const *in; // reducer's `inputs` of them
    void *const *out;
    int32_t outs;
    comm_stores stores;
    int64_t begin, count;
} comm_reduce_args;
void comm_reduce(const comm_reducer *r, const comm_reduce_args *args);

// ---- without a program: sums of two buffers, for algorithms over messages -----------------------
// out = a (+) b; out may be a or b. avg adds.
void comm_reduce_two(comm_vectors vectors, dtype type, op_reduction reduction, const void *a,
                     const void *b, void *out, int64_t count);
// out = in * scale, with the one NaN; out may be in. Of integers: a copy.
void comm_reduce_scale(comm_vectors vectors, dtype type, const void *in, void *out, int64_t count,
                       double scale);
// bf16 and fp16 to the fp32 in which they are summed, and back: times scale, rounded once.
void comm_reduce_widen(comm_vectors vectors, dtype type, const void *in, float *out, int64_t count);
void comm_reduce_narrow(comm_vectors vectors, dtype type, const float *in, void *out, int64_t count,
                        double scale);

#ifdef __cplusplus
}
#endif
#endif
