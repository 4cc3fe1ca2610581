// Updates that work element by element: the common part of the optimizers (cpu/optimizer.c).
#ifndef KERNELS_CPU_CPU_UPDATE_H
#define KERNELS_CPU_CPU_UPDATE_H

#include "kernels/cpu/vec_call.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CPU_UPDATE_GRAD,
    CPU_UPDATE_MASTER,
    CPU_UPDATE_M,
    CPU_UPDATE_V,
    CPU_UPDATE_MASTER_OUT,
    CPU_UPDATE_M_OUT,
    CPU_UPDATE_V_OUT,
    CPU_UPDATE_WEIGHT_OUT,
    CPU_UPDATE_TENSORS
};

typedef struct cpu_update {
    const kern_call *call;
    void (*run)(const cpu_update_span *span);
    cpu_update_span constants;                      // without spans
    const kern_tensor *tensors[CPU_UPDATE_TENSORS]; // NULL: the update has none
} cpu_update;

// Returns the constants that follow from the attributes of the call and the step; rate is the
// learning rate, without a bias correction.
cpu_update_span cpu_update_constants(const kern_call *call);
NODISCARD status cpu_update_run(const kern_context *context, const cpu_update *u);

#ifdef __cplusplus
}
#endif
#endif
