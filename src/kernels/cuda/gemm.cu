// Matrix products (gemm.h).
#include "kernels/cuda/gemm.h"

#define GEMM_KERNEL(name, type, a_transposed, b_transposed)                       \
    DEV_KERNEL(name, cuda_gemm_args, CUDA_THREADS)                                \
    {                                                                             \
        gemm_half(type, a_transposed, b_transposed, &a, dev_block(1) * GEMM_SIDE, \
                  dev_block(0) * GEMM_SIDE);                                      \
    }
GEMM_KERNEL(cuda_gemm_bf16_nt, DEV_BF16, false, false)
GEMM_KERNEL(cuda_gemm_bf16_nn, DEV_BF16, false, true)
GEMM_KERNEL(cuda_gemm_bf16_tn, DEV_BF16, true, true)
GEMM_KERNEL(cuda_gemm_f16_nt, DEV_F16, false, false)
GEMM_KERNEL(cuda_gemm_f16_nn, DEV_F16, false, true)
GEMM_KERNEL(cuda_gemm_f16_tn, DEV_F16, true, true)

DEV_KERNEL(cuda_gemm_plain, cuda_gemm_args, CUDA_THREADS)
{
    const int64_t m0 = dev_block(1) * PLAIN_SIDE, n0 = dev_block(0) * PLAIN_SIDE;
    float c[4][4];
    plain_begin(&a, m0, n0, c);
    plain_sum(a.a_along_m != 0, a.b_along_n != 0, &a.a, &a.b, a.k, m0, n0, c);
    plain_end(&a, m0, n0, c);
}
