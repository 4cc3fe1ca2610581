// Routing with sigmoids, groups, a bias or a factor (route.c); experts.c has the plain form.
#ifndef KERNELS_CPU_ROUTE_H
#define KERNELS_CPU_ROUTE_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns whether a ROUTE or ROUTE_BWD needs the functions below.
bool cpu_route_is_scored(const kern_call *call);
NODISCARD status cpu_route_scored(const kern_context *context, const kern_call *call);
// Adds the gradients of the losses that balance experts, of a ROUTE_BWD that has any.
NODISCARD status cpu_route_losses(const kern_context *context, const kern_call *call);
NODISCARD status cpu_route_scored_bwd(const kern_context *context, const kern_call *call);

#ifdef __cplusplus
}
#endif
#endif
