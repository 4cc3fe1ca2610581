// Work for a queue of a GPU, defined by its device (device/cuda/launch.h).
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include "device/cuda/launch.h"

#endif
