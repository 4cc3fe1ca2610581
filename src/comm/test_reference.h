// For tests of comm: what every operation must give, worked out naively from all ranks' inputs.
//
// Inputs are small whole numbers drawn from a seed: no order of summation rounds, and every type holds the
// sum of sixteen of them, so one reference serves all algorithms.
#ifndef COMM_TEST_REFERENCE_H
#define COMM_TEST_REFERENCE_H

#include "comm/comm.h"

typedef struct reference {
    comm_op op;
    dtype type;
    comm_reduction reduction;
    int size, root;
    uint64_t seed;
} reference;

// splitmix64
static inline uint64_t reference_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Element i of a rank's input.
static inline double reference_value(uint64_t seed, int rank, int64_t i)
{
    return (double)(reference_mix(seed * 1000003 + (uint64_t)rank * 7919 + (uint64_t)i * 31) % 8);
}

// How many pieces of `count` elements a rank gives, or gets; 0 for an operation that has no such operand.
static inline int reference_pieces(const reference *r, int rank, bool input)
{
    const bool is_root = rank == r->root;
    switch (r->op) {
    case COMM_ALL_REDUCE:
        return 1;
    case COMM_REDUCE_SCATTER:
        return input ? r->size : 1;
    case COMM_ALL_GATHER:
        return input ? 1 : r->size;
    case COMM_BROADCAST:
        return input && !is_root ? 0 : 1;
    case COMM_REDUCE:
        return input || is_root ? 1 : 0;
    case COMM_GATHER:
        return input ? 1 : is_root ? r->size : 0;
    case COMM_SCATTER:
        return !input ? 1 : is_root ? r->size : 0;
    case COMM_ALL_TO_ALL:
        return r->size;
    case COMM_ALL_TO_ALLV:
    case COMM_SEND:
    case COMM_RECEIVE:
    case COMM_BARRIER:
    case COMM_OP_COUNT:
        break;
    }
    return 0;
}

static inline double reference_reduced(const reference *r, int64_t i)
{
    double sum = reference_value(r->seed, 0, i);
    for (int rank = 1; rank < r->size; rank++) {
        const double v = reference_value(r->seed, rank, i);
        if (r->reduction == COMM_MAX)
            sum = v > sum ? v : sum;
        else if (r->reduction == COMM_MIN)
            sum = v < sum ? v : sum;
        else
            sum += v;
    }
    if (r->reduction != COMM_AVG) return sum;
    if (r->type == DTYPE_F64) return sum * (1.0 / r->size);
    return (double)((float)sum * (float)(1.0 / r->size));
}

// Element i of a rank's output; `count`: elements of a piece.
static inline double reference_output(const reference *r, int rank, int64_t count, int64_t i)
{
    const int64_t piece = count > 0 ? i / count : 0, at = count > 0 ? i % count : 0;
    switch (r->op) {
    case COMM_ALL_REDUCE:
    case COMM_REDUCE:
        return reference_reduced(r, i);
    case COMM_REDUCE_SCATTER:
        return reference_reduced(r, rank * count + i);
    case COMM_ALL_GATHER:
    case COMM_GATHER:
        return reference_value(r->seed, (int)piece, at);
    case COMM_BROADCAST:
        return reference_value(r->seed, r->root, i);
    case COMM_SCATTER:
        return reference_value(r->seed, r->root, rank * count + i);
    case COMM_ALL_TO_ALL:
        return reference_value(r->seed, (int)piece, rank * count + at);
    case COMM_ALL_TO_ALLV:
    case COMM_SEND:
    case COMM_RECEIVE:
    case COMM_BARRIER:
    case COMM_OP_COUNT:
        break;
    }
    return -1;
}

// The first element of `out` that is not what it must be, the type's rounding allowed for; -1: all are right.
static inline int64_t reference_differs(const reference *r, int rank, int64_t count,
                                        const void *out, double *wanted)
{
    const int64_t total = reference_pieces(r, rank, false) * count;
    for (int64_t i = 0; i < total; i++) {
        char rounded[8];
        dtype_store(r->type, rounded, 0, reference_output(r, rank, count, i));
        *wanted = dtype_load(r->type, rounded, 0);
        if (dtype_load(r->type, out, i) != *wanted) return i;
    }
    return -1;
}

static inline void reference_fill(const reference *r, int rank, int64_t count, void *in)
{
    const int64_t total = reference_pieces(r, rank, true) * count;
    for (int64_t i = 0; i < total; i++)
        dtype_store(r->type, in, i, reference_value(r->seed, rank, i));
}

// Where both operands lie in one: the smaller one is the rank's piece of the larger.
static inline void reference_in_place(const reference *r, int rank, int64_t count, char **in,
                                      char **out)
{
    const int ins = reference_pieces(r, rank, true), outs = reference_pieces(r, rank, false);
    if (ins == 0 || outs == 0) return;
    const int64_t at = rank * count * dtype_bytes(r->type);
    if (ins < outs)
        *in = *out + at;
    else
        *out = outs < ins ? *in + at : *in;
}

#endif
