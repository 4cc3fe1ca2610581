// The vector code that sums and codecs on the host run: the bits are the same with each.
#ifndef COMM_VECTORS_H
#define COMM_VECTORS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum comm_vectors { COMM_SCALAR, COMM_AVX2 } comm_vectors; // AVX2 with FMA and F16C
static inline comm_vectors comm_vectors_of_machine(void) // asks the CPU, some microseconds
{
    return kern_machine_has_avx2() ? COMM_AVX2 : COMM_SCALAR;
}

#ifdef __cplusplus
}
#endif
#endif
