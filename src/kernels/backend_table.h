// Declares the backends, one row of backend_table.c each.
#ifndef KERNELS_BACKEND_TABLE_H
#define KERNELS_BACKEND_TABLE_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERN_BACKEND_COUNT = 3 };
extern const kern_backend *const kern_backend_table[KERN_BACKEND_COUNT];

#ifdef __cplusplus
}
#endif
#endif
