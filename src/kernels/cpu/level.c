// Finds the vector units of this machine: by cpuid, and by the registers that the operating system
// saves.
//
// A bit in cpuid alone is not enough: the system must save the wide registers at a task switch
// (XCR0, read by xgetbv), and for AMX tiles the process must request permission.
#include "kernels/kernels_internal.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
_Static_assert(COUNT_OF(names) == KERN_LEVEL_COUNT, "a name for every level");

enum {
    XCR0_AVX = 0x6,           // SSE and the upper halves of ymm
    XCR0_AVX512 = 0xe6,       // and opmask, upper zmm, zmm16-31
    XCR0_AMX = 0x60000 | 0xe6 // and tile configuration, tile data
};
enum { ARCH_REQUEST_PERMISSION = 0x1023, XFEATURE_TILE_DATA = 18 };

const char *kern_level_name(kern_level level)
{
    ASSERT(level >= 0 && level < KERN_LEVEL_COUNT);
    return names[level];
}

static uint64_t xcr0_read(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool has_all(uint64_t word, uint64_t bits)
{
    return (word & bits) == bits;
}

kern_level kern_level_of_machine(void)
{
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0) return KERN_SCALAR;
    const bool osxsave = (c >> 27) & 1, fma = (c >> 12) & 1, f16c = (c >> 29) & 1;
    if (!osxsave || !fma || !f16c) return KERN_SCALAR;
    const uint64_t xcr0 = xcr0_read();
    if (!has_all(xcr0, XCR0_AVX)) return KERN_SCALAR;

    uint32_t b7, c7, d7, a71;
    if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0 || !((b7 >> 5) & 1)) return KERN_SCALAR;
    if (__get_cpuid_count(7, 1, &a71, &b, &c, &d) == 0) a71 = 0;

    // F, DQ, BW, VL, which every server core with AVX-512 has.
    const uint64_t avx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    if (!has_all(b7, avx512) || !has_all(xcr0, XCR0_AVX512)) return KERN_AVX2;
    if (!((a71 >> 5) & 1)) return KERN_AVX512;

    const bool amx = ((d7 >> 22) & 1) && ((d7 >> 24) & 1); // AMX-BF16, AMX-TILE
    if (!amx || !has_all(xcr0, XCR0_AMX)) return KERN_AVX512_BF16;
    if (syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, XFEATURE_TILE_DATA) != 0) {
        return KERN_AVX512_BF16;
    }
    return KERN_AMX;
}

// Intel's cores with tile units (AMX) multiply pairs of bf16 in vectors at half of the speed of
// fp32 (196 to 210 against 383 GFLOP/s on two cores of a virtual machine that hides the tile
// units), so unpacking to fp32 is faster there. Intel's older cores, without AVX-VNNI, and AMD's
// are twice as fast in pairs.
kern_level kern_level_fastest(void)
{
    uint32_t a, b, c, d, most;
    const kern_level machine = kern_level_of_machine();
    if (machine != KERN_AVX512_BF16) return machine;
    if (__get_cpuid(0, &most, &b, &c, &d) == 0 || b != signature_INTEL_ebx) return machine;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return machine;
    return (a >> 4) & 1 ? KERN_AVX512 : machine;
}
