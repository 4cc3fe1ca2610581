// The Lion optimizer (op/lion.c), in one pass over memory.
#include "kernels/cpu/cpu_update.h"

status cpu_lion(const kern_context *context, const kern_call *call)
{
    const cpu_update u = {.call = call,
                          .run = cpu_vec_of(context->level)->lion,
                          .constants = cpu_update_constants(call),
                          .tensors = {[CPU_UPDATE_GRAD] = &call->in[0],
                                      [CPU_UPDATE_MASTER] = &call->in[1],
                                      [CPU_UPDATE_M] = &call->in[2],
                                      [CPU_UPDATE_MASTER_OUT] = &call->out[0],
                                      [CPU_UPDATE_M_OUT] = &call->out[1],
                                      [CPU_UPDATE_WEIGHT_OUT] = &call->out[2]}};
    return cpu_update_run(context, &u);
}
