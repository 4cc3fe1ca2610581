// The primitives of dev.h on a GPU.
#ifndef KERNELS_CUDA_DEV_CUDA_H
#define KERNELS_CUDA_DEV_CUDA_H

#ifdef __CUDACC__

#    include "kernels/cuda/dev_types.h"

#    include <string.h>

#    define DEV_INLINE static __device__ __forceinline__
#    define DEV_CALLED static __device__ __noinline__
#    define DEV_UNROLL _Pragma("unroll")
#    define DEV_ROLLED _Pragma("unroll 1")
#    define DEV_KERNEL(name, args_type, threads)              \
        extern "C" __global__ void __launch_bounds__(threads) \
            name(const __grid_constant__ args_type a)

// One block of it at a time in a multiprocessor, with all registers.
#    define DEV_KERNEL_ALONE(name, args_type, threads)           \
        extern "C" __global__ void __launch_bounds__(threads, 1) \
            name(const __grid_constant__ args_type a)

// Aligned as copies of tiles want it (dev_sm90.h).
extern __shared__ __align__(1024) uint4 dev_shared_memory[];

// ---- place --------------------------------------------------------------------------------------
DEV_INLINE int dev_thread(void)
{
    return (int)threadIdx.x;
}

DEV_INLINE int dev_threads(void)
{
    return (int)blockDim.x;
}

DEV_INLINE int64_t dev_block(int axis)
{
    return axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z;
}

DEV_INLINE int64_t dev_blocks(int axis)
{
    return axis == 0 ? gridDim.x : axis == 1 ? gridDim.y : gridDim.z;
}

DEV_INLINE void *dev_shared(void)
{
    return dev_shared_memory;
}

// ---- barriers, shuffles -------------------------------------------------------------------------
DEV_INLINE void dev_barrier(void)
{
    __syncthreads();
}

DEV_INLINE void dev_warp_barrier(void)
{
    __syncwarp();
}

DEV_INLINE float dev_shuffle_xor(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}

DEV_INLINE double dev_shuffle_xor_wide(double x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}

DEV_INLINE uint32_t dev_ballot(int is_set)
{
    return __ballot_sync(0xffffffffu, is_set);
}

DEV_INLINE int dev_lowest_bit(uint32_t bits) // of bits != 0
{
    return __ffs((int)bits) - 1;
}

// ---- atomics on integers ------------------------------------------------------------------------
DEV_INLINE void dev_atomic_add(int64_t *at, int64_t value)
{
    atomicAdd((unsigned long long *)at, (unsigned long long)value);
}

// Unsigned: -1 counts as the highest number.
DEV_INLINE void dev_atomic_min(int64_t *at, int64_t value)
{
    atomicMin((unsigned long long *)at, (unsigned long long)value);
}

// ---- bits and types -----------------------------------------------------------------------------
DEV_INLINE float dev_float_of(uint32_t bits)
{
    return __uint_as_float(bits);
}

DEV_INLINE uint32_t dev_bits_of(float x)
{
    return __float_as_uint(x);
}

DEV_INLINE int64_t dev_bits_of_wide(double x)
{
    return __double_as_longlong(x);
}

DEV_INLINE uint32_t dev_high_product(uint32_t a, uint32_t b)
{
    return __umulhi(a, b);
}

// Two bf16 in a register, `low` in the lower half; nearest even.
DEV_INLINE uint32_t dev_bf16_pair(float low, float high)
{
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

DEV_INLINE uint32_t dev_f16_pair(float low, float high)
{
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

DEV_INLINE float dev_f16_value(uint32_t bits)
{
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"((unsigned short)bits));
    return out;
}

// ---- memory -------------------------------------------------------------------------------------
DEV_INLINE dev_words dev_load16(const void *at) // aligned to 16 bytes
{
    const uint4 v = *(const uint4 *)at;
    dev_words out;
    out.w[0] = v.x;
    out.w[1] = v.y;
    out.w[2] = v.z;
    out.w[3] = v.w;
    return out;
}

DEV_INLINE void dev_store16(void *at, dev_words value)
{
    *(uint4 *)at = make_uint4(value.w[0], value.w[1], value.w[2], value.w[3]);
}

DEV_INLINE void dev_store4(void *at, uint32_t value) // aligned to 4 bytes
{
    *(uint32_t *)at = value;
}

// Copies 16 bytes from global to shared memory later; both are aligned. Of these the first
// `valid` bytes are read, the others become zero.
DEV_INLINE void dev_copy_async16(void *shared, const void *global, int valid)
{
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid)
                 : "memory");
}

DEV_INLINE void dev_copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `left` of the last groups are on their way.
#    define dev_copy_async_wait(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

DEV_INLINE float dev_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

DEV_INLINE float dev_exp2(float x)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

DEV_INLINE float dev_reciprocal(float x) // a division is a call, which products on their way forbid
{
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// ---- matrices -----------------------------------------------------------------------------------
// Four matrices of 8 x 8 16-bit numbers: lane l names row l % 8 of matrix l / 8 (16 bytes in shared
// memory, aligned) and gets the numbers 2 (l % 4) and the next one of row l / 4 of each.
DEV_INLINE void dev_matrices_load(uint32_t out[4], const void *row)
{
    const unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
}

// The same of the transposed matrices.
DEV_INLINE void dev_matrices_load_transposed(uint32_t out[4], const void *row)
{
    const unsigned from = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
}

// c (16, 8) += a (16, 16) b (16, 8). With g = lane / 4 and t = lane % 4 a lane has
//   a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with the next column
//   b: (2t, g), (2t + 8, g), each with the next row    c: (g, 2t), (g, 2t + 1), (g + 8, ...)
DEV_INLINE void dev_mma(dev_half type, float c[4], const uint32_t a[4], const uint32_t b[2])
{
#    if __CUDA_ARCH__ >= 890
#        define DEV_MMA_NARROW(a_type)                                            \
            asm("mma.sync.aligned.m16n8k32.row.col.f32." a_type                   \
                ".e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                  \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if (type == DEV_E4M3) {
        DEV_MMA_NARROW("e4m3");
        return;
    }
    if (type == DEV_E5M2) {
        DEV_MMA_NARROW("e5m2");
        return;
    }
#        undef DEV_MMA_NARROW
#    else
    if (type == DEV_E4M3 || type == DEV_E5M2) __trap(); // no row launches such a kernel here
#    endif
    if (type == DEV_BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

// ---- errors -------------------------------------------------------------------------------------
// An index from data lies outside its table: the launch fails. `what` names the operation.
DEV_INLINE void dev_index_check(const char *what, int64_t row, int64_t value, int64_t count)
{
    (void)what;
    (void)row;
    if (value < 0 || value >= count) __trap();
}

#endif
#endif
