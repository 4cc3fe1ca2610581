// GEMMs by oneDNN, where it is faster: bf16 on CPUs with bf16 or AMX units.
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include "kernels/cpu/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

// Primitives by shape, made on first use (in the first step) and kept. One per pool.
typedef struct onednn onednn;
onednn *onednn_create(int threads); // NULL: not built in, or it does not start
void onednn_destroy(onednn *o);     // NULL is legal

// Runs a GEMM. False: oneDNN does not compute it (type, shape, too many shapes), and nothing was
// done.
bool onednn_run(onednn *o, kern_pool *pool, const gemm_args *args);

#ifdef __cplusplus
}
#endif
#endif
