// The loops of a reducer, one table per level of vector units: between reduce.c and
// reduce_{scalar,avx2}.c.
#ifndef COMM_REDUCE_STEPS_H
#define COMM_REDUCE_STEPS_H

#include "comm/reduce.h"

// With slots of fp32 (fp64 for fp64): x are inputs, s are slots.
typedef enum reduce_kind {
    REDUCE_PAIR,  // x[a] + x[a + 1]
    REDUCE_QUAD,  // (x[a] + x[a + 1]) + (x[a + 2] + x[a + 3])
    REDUCE_ADD,   // s[a] + x[b]
    REDUCE_MERGE, // s[a] + s[b]
    REDUCE_BOTH,  // x[a] + x[b]
    REDUCE_KIND_COUNT
} reduce_kind;

typedef struct reduce_sequential_args {
    const void *const *in;
    void *const *out;
    int32_t ins, outs;
    int64_t begin, end;
    int64_t out_shift; // element i goes to out[i + out_shift]
    double scale;
} reduce_sequential_args;

// Operands at their first element; elements [begin, end) of them.
typedef struct reduce_step_args {
    reduce_kind kind;
    const void *operand[4];
    void *slot; // the destination; NULL: out
    void *const *out;
    int64_t out_begin; // where element 0 of the operands goes
    int32_t outs;
    int64_t begin, end;
    double scale;
} reduce_step_args;

typedef void reduce_sequential_fn(const reduce_sequential_args *args);
typedef void reduce_step_fn(const reduce_step_args *args);

typedef struct reduce_table {
    reduce_sequential_fn
        *sequential[DTYPE_COUNT][REDUCTION_COUNT]; // NULL: cannot. avg is sum with a scale
    reduce_step_fn *step[DTYPE_COUNT];             // sums of floats
    // [0]: bf16, [1]: fp16.
    void (*widen[2])(const uint16_t *in, float *out, int64_t count);
    void (*narrow[2])(const float *in, uint16_t *out, int64_t count, float scale);
    void (*stream)(void *to, const void *from, int64_t bytes); // a copy past the caches
    void (*streamed)(void);                                    // after the last of them
} reduce_table;
extern const reduce_table comm_reduce_scalar, comm_reduce_avx2;

#endif
