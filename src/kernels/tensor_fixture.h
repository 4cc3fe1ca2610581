// For tests: tensors as kernels see them, made, read and filled element by element.
#ifndef KERNELS_TENSOR_FIXTURE_H
#define KERNELS_TENSOR_FIXTURE_H

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(status st)
{
    if (st == ST_OK) return;
    fprintf(stderr, "%s:%d: %s\n", error_last()->file, error_last()->line, error_last()->text);
    abort();
}

static inline int64_t kt_elements(const kern_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= t->dims[d];
    return count;
}

static inline int64_t kt_offset(const kern_tensor *t, int64_t index)
{
    if (t->ndim != 2) return index;
    return index / t->dims[1] * t->strides[0] + index % t->dims[1];
}

static inline double kt_get(const kern_tensor *t, int64_t index)
{
    return dtype_load(t->type, t->data, kt_offset(t, index));
}

static inline void kt_put(const kern_tensor *t, int64_t index, double value)
{
    dtype_store(t->type, t->data, kt_offset(t, index), value);
}

static inline bool kt_is_floating(const kern_tensor *t)
{
    return t->type <= DTYPE_F64;
}

static inline kern_tensor kt_make(arena *a, dtype type, int ndim, const int64_t *dims)
{
    kern_tensor t;
    memset(&t, 0, sizeof(t));
    t.type = type;
    t.ndim = ndim;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        t.dims[d] = dims[d];
        t.strides[d] = stride;
        stride *= dims[d];
    }
    const int64_t bytes = stride * dtype_bytes(type);
    char *data;
    must(arena_alloc(a, bytes + ALIGN_TENSOR, (void **)&data));
    data += (ALIGN_TENSOR - (int64_t)((uintptr_t)data % ALIGN_TENSOR)) % ALIGN_TENSOR;
    memset(data, 0xFF, (size_t)bytes);
    t.data = data;
    return t;
}

// A hash that is cheaper than Philox; tests make millions of values. Source: SplitMix64.
static inline uint64_t test_bits(uint64_t seed, int operand, int64_t index)
{
    uint64_t z = (seed * 64 + (uint64_t)operand) * UINT64_C(0xD1342543DE82EF95) + (uint64_t)index;
    z = (z ^ (z >> 32)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 29)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// In [-1, 1).
static inline double test_uniform(uint64_t seed, int operand, int64_t index)
{
    return (double)(test_bits(seed, operand, index) >> 11) * 0x1p-52 - 1.0;
}

#endif
