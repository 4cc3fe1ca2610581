// The NVIDIA GPUs that this process sees, before it opens one.
#ifndef DEVICE_GPUS_H
#define DEVICE_GPUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { DEVICE_GPU_ID_BYTES = 48 };
int device_cuda_count(void); // 0: there is none, or no driver
// The UUID of the GPU that rank `ordinal` of this host takes; "": there is none.
void device_cuda_id(int ordinal, char out[DEVICE_GPU_ID_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
