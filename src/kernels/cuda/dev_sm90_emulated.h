// The primitives of dev_sm90.h as calls into the emulator
// (tests/fixtures/kernels/cuda_emulator_sm90.c).
#ifndef KERNELS_CUDA_DEV_SM90_EMULATED_H
#define KERNELS_CUDA_DEV_SM90_EMULATED_H

#include "device/cuda/tensor_map.h"
#include "kernels/cuda/dev.h"

#define DEV_SM90 1

#ifdef __cplusplus
extern "C" {
#endif

uint32_t emu_shared_address(const void *shared);
void emu_part_barrier(int number, int threads);
void emu_phase_init(uint64_t *barrier, int count);
void emu_phase_fence(void);
void emu_phase_arrive(uint64_t *barrier, int bytes); // announces bytes first
void emu_phase_wait(uint64_t *barrier, int parity);
void emu_tile_copy(void *shared, const cuda_tensor_map *map, const int at[CUDA_MAP_DIMS],
                   uint64_t *barrier);
void emu_registers_set(int count);
void emu_group_sums(int tiles, float (*c)[4]);

#ifdef __cplusplus
}
#endif

DEV_INLINE uint32_t dev_shared_address(const void *shared)
{
    return emu_shared_address(shared);
}

// ---- barriers -----------------------------------------------------------------------------------
DEV_INLINE void dev_part_barrier(int number, int threads)
{
    emu_part_barrier(number, threads);
}

DEV_INLINE void dev_phase_init(uint64_t *barrier, int count)
{
    emu_phase_init(barrier, count);
}

DEV_INLINE void dev_phase_fence(void)
{
    emu_phase_fence();
}

DEV_INLINE void dev_phase_arrive(uint64_t *barrier)
{
    emu_phase_arrive(barrier, 0);
}

DEV_INLINE void dev_phase_expect(uint64_t *barrier, int bytes)
{
    emu_phase_arrive(barrier, bytes);
}

DEV_INLINE void dev_phase_wait(uint64_t *barrier, int parity)
{
    emu_phase_wait(barrier, parity);
}

// ---- copies of tiles ----------------------------------------------------------------------------
DEV_INLINE void dev_tile_copy(void *shared, const cuda_tensor_map *map, int c0, int c1, int c2,
                              int c3, uint64_t *barrier)
{
    const int at[CUDA_MAP_DIMS] = {c0, c1, c2, c3};
    emu_tile_copy(shared, map, at, barrier);
}

// ---- products of groups of warps ----------------------------------------------------------------
#define dev_registers_give(count) emu_registers_set(count)
#define dev_registers_take(count) emu_registers_set(count)

DEV_INLINE void dev_group_fence(void)
{
    emu_operand operand;
    operand.group.left = 0;
    emu_collect(EMU_GROUP_FENCE, &operand);
}

DEV_INLINE void dev_group_commit(void)
{
    emu_operand operand;
    operand.group.left = 0;
    emu_collect(EMU_GROUP_COMMIT, &operand);
}

DEV_INLINE void dev_group_wait(int left)
{
    emu_operand operand;
    operand.group.left = left;
    emu_collect(EMU_GROUP_WAIT, &operand);
}

DEV_INLINE void dev_group_sums(int tiles, float (*c)[4])
{
    emu_group_sums(tiles, c);
}

DEV_INLINE void dev_group_operands(int count, uint32_t (*a)[4])
{
    (void)count;
    (void)a;
}

DEV_INLINE void dev_group_product_shared(dev_half type, int tiles, float (*c)[4], uint64_t a,
                                         uint64_t b, int add)
{
    emu_operand operand;
    operand.group.c = &c[0][0];
    operand.group.registers = NULL;
    operand.group.a = a;
    operand.group.b = b;
    operand.group.tiles = tiles;
    operand.group.add = add;
    emu_collect(type == DEV_BF16 ? EMU_GROUP_PRODUCT_BF16 : EMU_GROUP_PRODUCT_F16, &operand);
}

DEV_INLINE void dev_group_product(dev_half type, int tiles, float (*c)[4], const uint32_t a[4],
                                  uint64_t b)
{
    emu_operand operand;
    operand.group.c = &c[0][0];
    operand.group.registers = a;
    operand.group.a = 0;
    operand.group.b = b;
    operand.group.tiles = tiles;
    operand.group.add = 1;
    emu_collect(type == DEV_BF16 ? EMU_GROUP_PRODUCT_BF16 : EMU_GROUP_PRODUCT_F16, &operand);
}

#endif
