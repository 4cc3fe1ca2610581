// The arguments of every CUDA kernel, one struct each, and the list of kernels.
//
// The rows of the backend (C) fill the structs, the kernels (.cu) get them by value. The list names
// a kernel with its struct: the emulator's table and the tests read it.
#ifndef KERNELS_CUDA_ARGS_H
#define KERNELS_CUDA_ARGS_H

#include "op/op_program.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// A kernel's block has so many threads unless its comment says otherwise.
enum { CUDA_THREADS = 256, CUDA_MAX_TERMS = 8 };

// Rows of elements; a tensor with one dim is one row. type: a dtype. data NULL: missing.
typedef struct cuda_view {
    void *data;
    int64_t rows, columns, stride;
    int32_t type, unused;
} cuda_view;

// ---- element by element (pointwise.cu) ----------------------------------------------------------
typedef enum cuda_map_kind {
    CUDA_MAP_SUM, // the terms by a tree, in fp32; one term: a cast
    CUDA_MAP_ADD_BIAS,
    CUDA_MAP_ACTIVATION,
    CUDA_MAP_ACTIVATION_BWD,
    CUDA_MAP_ACCUMULATE // out += in
} cuda_map_kind;
typedef struct cuda_map_args {
    cuda_view in[CUDA_MAX_TERMS], out;
    int32_t kind, terms, activation, unused;
} cuda_map_args;

// h (rows, 2 F), a (rows, F); backward: da too, and dh.
typedef struct cuda_gate_args {
    cuda_view h, a, dh;
    int32_t activation, unused;
} cuda_gate_args;

#define CUDA_KERNELS(X)          \
    X(cuda_map, cuda_map_args)   \
    X(cuda_gate, cuda_gate_args) \
    X(cuda_gate_bwd, cuda_gate_args)

#ifdef __cplusplus
}
#endif
#endif
