// Seals of the state at rest, in the pass of an update (kern_seal).
#ifndef KERNELS_CPU_SEAL_H
#define KERNELS_CPU_SEAL_H

#include "kernels/cpu/vec_call.h"

// A pass over one tile of a call: `before` and `after` get the elements of the tile strip by strip,
// before they are updated and after that.
typedef struct cpu_seal {
    const kern_call *call;
    const cpu_vec *vec;
    int64_t tile;
    cpu_seal_sums before[OP_MAX_OUT + 1], after[OP_MAX_OUT]; // of outputs, and of the gradient
} cpu_seal;
enum { CPU_SEAL_STRIP = 128 }; // elements; the last strip may have fewer
void cpu_seal_begin(const kern_context *context, const kern_call *call, int64_t tile, cpu_seal *s);
// Elements element .. element + n - 1 of the operands.
void cpu_seal_before(cpu_seal *s, int64_t element, int64_t n);
void cpu_seal_after(cpu_seal *s, int64_t element, int64_t n);
// Compares the tile with its hashes and, if it was updated, keeps the new ones.
void cpu_seal_end(const cpu_seal *s, bool is_updated);

#endif
