// The primitives of dev.h as calls into the emulator (tests/fixtures/kernels/cuda_emulator.c).
#ifndef KERNELS_CUDA_DEV_EMULATED_H
#define KERNELS_CUDA_DEV_EMULATED_H

#include "kernels/cuda/dev_types.h"

#include <math.h>
#include <string.h>

#define DEV_INLINE static inline __attribute__((unused))
// For functions that are large and not on the critical path: they are called, not inlined.
#define DEV_CALLED static __attribute__((unused))
// Loops whose counters must be constants on a GPU.
#define DEV_UNROLL
#define DEV_ROLLED
#define DEV_KERNEL(name, args_type, threads) \
    void name(const args_type a);            \
    void name(const args_type a)
#define DEV_KERNEL_ALONE(name, args_type, threads) DEV_KERNEL(name, args_type, threads)

// The thread that runs now.
typedef struct emu_place {
    int thread, threads;
    int64_t block[3], blocks[3];
    void *shared;
} emu_place;
#ifdef __cplusplus
extern "C" {
#endif

extern __thread emu_place emu_now;

// Operations of all lanes of a warp together: each lane hands over its operand and goes on when all
// 32 have.
typedef enum emu_collective {
    EMU_WARP_BARRIER,
    EMU_SHUFFLE_XOR,
    EMU_BALLOT,
    EMU_LOAD,
    EMU_LOAD_TRANSPOSED,
    EMU_MMA_BF16,
    EMU_MMA_F16,
    EMU_MMA_E4M3,
    EMU_MMA_E5M2,
    EMU_GROUP_FENCE, // of products of groups of warps (dev_sm90.h), which each warp does by itself
    EMU_GROUP_COMMIT,
    EMU_GROUP_WAIT,
    EMU_GROUP_PRODUCT_BF16,
    EMU_GROUP_PRODUCT_F16,
} emu_collective;
typedef union emu_operand {
    struct {
        uint64_t value, result;
        int mask;
    } shuffle;
    struct {
        const void *row;
        uint32_t *out;
    } load;
    struct {
        float *c;
        const uint32_t *a, *b;
    } mma;
    struct {
        float *c; // tiles of four
        const uint32_t *registers;
        uint64_t a, b; // matrices in shared memory; a: unless it is in registers
        int tiles, add, left;
    } group;
} emu_operand;
void emu_collect(emu_collective kind, emu_operand *operand);
void emu_barrier(void);
void emu_copy_async(void *shared, const void *global, int valid);
void emu_copy_async_commit(void);
void emu_copy_async_wait(int left);
void emu_index_check(const char *what, int64_t row, int64_t value, int64_t count);
void emu_aligned_check(const void *at, int64_t bytes);
void emu_atomic_add(int64_t *at, int64_t value);
void emu_atomic_min(int64_t *at, int64_t value);            // of unsigned numbers
void emu_access(const void *at, int64_t bytes, int writes); // to memory, by the thread that runs

#ifdef __cplusplus
}
#endif

// ---- place --------------------------------------------------------------------------------------
DEV_INLINE int dev_thread(void)
{
    return emu_now.thread;
}

DEV_INLINE int dev_threads(void)
{
    return emu_now.threads;
}

DEV_INLINE int64_t dev_block(int axis)
{
    return emu_now.block[axis];
}

DEV_INLINE int64_t dev_blocks(int axis)
{
    return emu_now.blocks[axis];
}

DEV_INLINE void *dev_shared(void)
{
    return emu_now.shared;
}

// ---- barriers, shuffles -------------------------------------------------------------------------
DEV_INLINE void dev_barrier(void)
{
    emu_barrier();
}

DEV_INLINE void dev_warp_barrier(void)
{
    emu_operand operand;
    operand.shuffle.value = 0;
    emu_collect(EMU_WARP_BARRIER, &operand);
}

DEV_INLINE double dev_shuffle_xor_wide(double x, int mask)
{
    emu_operand operand;
    operand.shuffle.value = 0;
    operand.shuffle.mask = mask;
    memcpy(&operand.shuffle.value, &x, sizeof(x));
    emu_collect(EMU_SHUFFLE_XOR, &operand);
    memcpy(&x, &operand.shuffle.result, sizeof(x));
    return x;
}

DEV_INLINE float dev_shuffle_xor(float x, int mask)
{
    emu_operand operand;
    operand.shuffle.value = 0;
    operand.shuffle.mask = mask;
    memcpy(&operand.shuffle.value, &x, sizeof(x));
    emu_collect(EMU_SHUFFLE_XOR, &operand);
    memcpy(&x, &operand.shuffle.result, sizeof(x));
    return x;
}

DEV_INLINE uint32_t dev_ballot(int is_set)
{
    emu_operand operand;
    operand.shuffle.value = is_set != 0;
    emu_collect(EMU_BALLOT, &operand);
    return (uint32_t)operand.shuffle.result;
}

DEV_INLINE int dev_lowest_bit(uint32_t bits)
{
    return __builtin_ctz(bits);
}

// ---- atomics on integers ------------------------------------------------------------------------
DEV_INLINE void dev_atomic_add(int64_t *at, int64_t value)
{
    emu_atomic_add(at, value);
}

DEV_INLINE void dev_atomic_min(int64_t *at, int64_t value)
{
    emu_atomic_min(at, value);
}

// ---- bits and types -----------------------------------------------------------------------------
DEV_INLINE float dev_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

DEV_INLINE uint32_t dev_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(x));
    return bits;
}

DEV_INLINE int64_t dev_bits_of_wide(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof(x));
    return bits;
}

DEV_INLINE uint32_t dev_high_product(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

DEV_INLINE uint32_t dev_bf16_pair(float low, float high)
{
    return bf16_from_f32(low) | (uint32_t)bf16_from_f32(high) << 16;
}

DEV_INLINE uint32_t dev_f16_pair(float low, float high)
{
    return f16_from_f32(low) | (uint32_t)f16_from_f32(high) << 16;
}

DEV_INLINE float dev_f16_value(uint32_t bits)
{
    return f32_from_f16((uint16_t)bits);
}

// ---- memory -------------------------------------------------------------------------------------
DEV_INLINE dev_words dev_load16(const void *at)
{
    dev_words out;
    emu_aligned_check(at, 16);
    memcpy(&out, at, sizeof(out));
    return out;
}

DEV_INLINE void dev_store16(void *at, dev_words value)
{
    emu_aligned_check(at, 16);
    memcpy(at, &value, sizeof(value));
}

DEV_INLINE void dev_store4(void *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

DEV_INLINE void dev_copy_async16(void *shared, const void *global, int valid)
{
    emu_copy_async(shared, global, valid);
}

DEV_INLINE void dev_copy_async_commit(void)
{
    emu_copy_async_commit();
}

DEV_INLINE void dev_copy_async_wait(int left)
{
    emu_copy_async_wait(left);
}

// The product is exact in double. fmaf would be a call of a library on most CPUs.
DEV_INLINE float dev_fma(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

DEV_INLINE float dev_exp2(float x)
{
    return exp2f(x);
}

DEV_INLINE float dev_reciprocal(float x)
{
    return 1.0f / x;
}

// ---- matrices -----------------------------------------------------------------------------------
DEV_INLINE void dev_matrices_load(uint32_t out[4], const void *row)
{
    emu_operand operand;
    operand.load.row = row;
    operand.load.out = out;
    emu_collect(EMU_LOAD, &operand);
}

DEV_INLINE void dev_matrices_load_transposed(uint32_t out[4], const void *row)
{
    emu_operand operand;
    operand.load.row = row;
    operand.load.out = out;
    emu_collect(EMU_LOAD_TRANSPOSED, &operand);
}

DEV_INLINE void dev_mma(dev_half type, float c[4], const uint32_t a[4], const uint32_t b[2])
{
    emu_operand operand;
    operand.mma.c = c;
    operand.mma.a = a;
    operand.mma.b = b;
    emu_collect(type == DEV_BF16   ? EMU_MMA_BF16
                : type == DEV_F16  ? EMU_MMA_F16
                : type == DEV_E4M3 ? EMU_MMA_E4M3
                                   : EMU_MMA_E5M2,
                &operand);
}

// ---- errors -------------------------------------------------------------------------------------
DEV_INLINE void dev_index_check(const char *what, int64_t row, int64_t value, int64_t count)
{
    emu_index_check(what, row, value, count);
}

#endif
