// The primitives of dev_sm90.h on a GPU.
#ifndef KERNELS_CUDA_DEV_SM90_CUDA_H
#define KERNELS_CUDA_DEV_SM90_CUDA_H

#ifdef __CUDACC__

#    include "device/cuda/tensor_map.h"
#    include "kernels/cuda/dev.h"

#    ifdef __CUDA_ARCH_FEAT_SM90_ALL
#        define DEV_SM90 1
#    else
#        define DEV_SM90 0
#    endif

DEV_INLINE uint32_t dev_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

// ---- barriers -----------------------------------------------------------------------------------
// A barrier of `threads` threads of the block, with a number from 1 to 15.
DEV_INLINE void dev_part_barrier(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// A barrier in shared memory. A phase ends when `count` arrivals and all bytes that were announced
// are there; then the next phase begins. Phases have the parities 0, 1, 0, ...
DEV_INLINE void dev_phase_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(dev_shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

// After the barriers' init, by the thread that did it, before others see them.
DEV_INLINE void dev_phase_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEV_INLINE void dev_phase_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(dev_shared_address(barrier))
                 : "memory");
}

// Arrives, and announces bytes that copies bring.
DEV_INLINE void dev_phase_expect(uint64_t *barrier, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(dev_shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

// Waits until the last phase of this parity is over.
DEV_INLINE void dev_phase_wait(uint64_t *barrier, int parity)
{
    uint32_t is_over = 0;
    while (is_over == 0) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(dev_shared_address(barrier)), "r"(parity)
                     : "memory");
    }
}

// ---- copies of tiles ----------------------------------------------------------------------------
// Copies a tile whose first number has these coordinates, later; its bytes then count as arrived at
// the barrier. By one thread. `shared` is a multiple of 1024 bytes.
DEV_INLINE void dev_tile_copy(void *shared, const cuda_tensor_map *map, int c0, int c1, int c2,
                              int c3, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(dev_shared_address(shared)),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(dev_shared_address(barrier))
                 : "memory");
}

// ---- products of groups of warps ----------------------------------------------------------------
// Registers per thread of a group from here on. The group of a producer gives some away first.
#    define dev_registers_give(count) \
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#    define dev_registers_take(count) \
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))

// Before the first product, and after other instructions wrote registers that a product reads.
DEV_INLINE void dev_group_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEV_INLINE void dev_group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `left` of the last groups are on their way. dev_group_sums must follow for
// all sums that are ready then, before they are used.
#    define dev_group_wait(left) \
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")

// Keeps the compiler from using sums before the wait.
DEV_INLINE void dev_group_sums(int tiles, float (*c)[4])
{
    DEV_UNROLL
    for (int i = 0; i < tiles; i++) {
        asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
    }
}

// Keeps the compiler from computing operands after this place; the fence of products follows.
DEV_INLINE void dev_group_operands(int count, uint32_t (*a)[4])
{
    DEV_UNROLL
    for (int i = 0; i < count; i++) {
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
    }
}

// The sums as operands; `how`: "+f", or "=f" where the product is the first one.
#    define DEV_SUMS_1(how, c, i) how(c[i][0]), how(c[i][1]), how(c[i][2]), how(c[i][3])
#    define DEV_SUMS_4(how, c, i)                                                    \
        DEV_SUMS_1(how, c, i), DEV_SUMS_1(how, c, i + 1), DEV_SUMS_1(how, c, i + 2), \
            DEV_SUMS_1(how, c, i + 3)
#    define DEV_SUMS_8(how, c)  DEV_SUMS_4(how, c, 0), DEV_SUMS_4(how, c, 4)
#    define DEV_SUMS_16(how, c) DEV_SUMS_8(how, c), DEV_SUMS_4(how, c, 8), DEV_SUMS_4(how, c, 12)
// The registers of these sums in an instruction, and the numbers of the operands after them.
#    define DEV_NAMES_8                                                          \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19," \
        "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#    define DEV_NAMES_16                                                           \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"   \
        "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37," \
        "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
        "%56,%57,%58,%59,%60,%61,%62,%63"

// c (64, 8 tiles) += a (64, 16) b (16, 8 tiles), or =; a and b are in shared memory with rows of k.
// a_at, b_at: numbers of operands.
#    define DEV_PRODUCT_SHARED(how, add, type, tiles, columns, a_at, b_at)                \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " add ", 0; "                        \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type         \
                     " {" DEV_NAMES_##tiles "}, %" #a_at ", %" #b_at ", p, 1, 1, 0, 0; }" \
                     : DEV_SUMS_##tiles(how, c)                                           \
                     : "l"(a), "l"(b))
#    define DEV_PRODUCT_OF(how, add)                                                               \
        if (type == DEV_BF16 && tiles == 8)                                                        \
            DEV_PRODUCT_SHARED(how, add, "bf16.bf16", 8, 64, 32, 33);                              \
        if (type == DEV_BF16 && tiles == 16)                                                       \
            DEV_PRODUCT_SHARED(how, add, "bf16.bf16", 16, 128, 64, 65);                            \
        if (type == DEV_F16 && tiles == 8) DEV_PRODUCT_SHARED(how, add, "f16.f16", 8, 64, 32, 33); \
        if (type == DEV_F16 && tiles == 16) DEV_PRODUCT_SHARED(how, add, "f16.f16", 16, 128, 64, 65)
// a is in registers (fragments of a, as dev_mma has them), rows of b go along n.
#    define DEV_PRODUCT(type, tiles, columns, a0, a1, a2, a3, b_at)                             \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type               \
                     " {" DEV_NAMES_##tiles "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b_at \
                                            ", p, 1, 1, 1; }"                                   \
                     : DEV_SUMS_##tiles("+f", c)                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// A lane has the sums of dev_mma for the 16 rows of its warp, for each eight columns. tiles: 8 or
// 16. add: a constant; 0: the product is the first one. The product is done later (dev_group_wait);
// until then its registers must not be used.
DEV_INLINE void dev_group_product_shared(dev_half type, int tiles, float (*c)[4], uint64_t a,
                                         uint64_t b, int add)
{
    if (add) {
        DEV_PRODUCT_OF("+f", "1");
    } else {
        DEV_PRODUCT_OF("=f", "0");
    }
}

DEV_INLINE void dev_group_product(dev_half type, int tiles, float (*c)[4], const uint32_t a[4],
                                  uint64_t b)
{
    if (type == DEV_BF16 && tiles == 8) DEV_PRODUCT("bf16.bf16", 8, 64, 32, 33, 34, 35, 36);
    if (type == DEV_BF16 && tiles == 16) DEV_PRODUCT("bf16.bf16", 16, 128, 64, 65, 66, 67, 68);
    if (type == DEV_F16 && tiles == 8) DEV_PRODUCT("f16.f16", 8, 64, 32, 33, 34, 35, 36);
    if (type == DEV_F16 && tiles == 16) DEV_PRODUCT("f16.f16", 16, 128, 64, 65, 66, 67, 68);
}

#endif
#endif
