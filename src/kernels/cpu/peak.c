// Measures the arithmetic peak of a core with a loop of independent multiply-adds on registers.
//
// The MFU of a step is relative to this peak. The loop has more accumulators than latency times
// ports, so only the units limit it; all threads run it at the same time, as in a step. The clock
// is that of the thread, so other programs on the core do not lower the peak.
#include "kernels/cpu/pool.h"

#include <immintrin.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

// A try takes half a millisecond. A neighbour on the other hyperthread of the core halves the
// speed, at irregular times; with few tries the peak of one run was half of the next one's.
enum { PEAK_ROUNDS = 200000, PEAK_TRIES = 32 };

typedef struct peak_task {
    kern_level level;
    bool bf16;
    int threads;
    atomic_int here; // tasks that have begun
    double cpu_s[KERN_MAX_THREADS];
    float sink[KERN_MAX_THREADS];
} peak_task;

static double seconds(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Each round is 12 accumulators x 8 lanes x 2 FLOPs.
__attribute__((target("avx2,fma"))) static float loop_avx2(void)
{
    __m256 acc[12];
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < 12; i++) acc[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < PEAK_ROUNDS; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
    }
    float sum = 0.0f;
    for (int i = 0; i < 12; i++) sum += _mm256_cvtss_f32(acc[i]);
    return sum;
}

__attribute__((target("avx512f"))) static float loop_avx512(void)
{
    __m512 acc[16];
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < 16; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < PEAK_ROUNDS; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
    }
    float sum = 0.0f;
    for (int i = 0; i < 16; i++) sum += _mm512_cvtss_f32(acc[i]);
    return sum;
}

// Each instruction is 16 lanes x 2 products x 2 FLOPs.
__attribute__((target("avx512f,avx512bf16"))) static float loop_avx512_bf16(void)
{
    __m512 acc[16];
    __m512i bits = _mm512_set1_epi32(0x3f003f00); // 0.5, 0.5
    __m512bh a;
    memcpy(&a, &bits, sizeof(a));
    for (int i = 0; i < 16; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < PEAK_ROUNDS; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, a);
    }
    float sum = 0.0f;
    for (int i = 0; i < 16; i++) sum += _mm512_cvtss_f32(acc[i]);
    return sum;
}

// Four 16 x 16 tiles; each round is a GEMM of 16 x 32 by 32 x 16: 16384 multiply-adds a tile.
__attribute__((target("amx-tile,amx-bf16"))) static float loop_amx(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t column_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) tiles;
    memset(&tiles, 0, sizeof(tiles));
    tiles.palette = 1;
    for (int i = 0; i < 6; i++) {
        tiles.column_bytes[i] = 64;
        tiles.rows[i] = 16;
    }
    _tile_loadconfig(&tiles);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int r = 0; r < PEAK_ROUNDS / 8; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    float out[256];
    _tile_stored(0, out, 64);
    _tile_release();
    return out[0];
}

static float loop_scalar(void)
{
    float acc[8];
    for (int i = 0; i < 8; i++) acc[i] = (float)i;
    for (int r = 0; r < PEAK_ROUNDS; r++) {
        for (int i = 0; i < 8; i++) acc[i] = acc[i] * 0.999f + 1e-3f;
    }
    float sum = 0.0f;
    for (int i = 0; i < 8; i++) sum += acc[i];
    return sum;
}

// Waits until all tasks have begun, each on its own thread: a thread that finishes before another
// wakes up would run both tasks, and two cores would count as one. The wait is bounded, because
// other programs may occupy a core.
static void rendezvous(peak_task *t)
{
    const double limit = seconds(CLOCK_MONOTONIC) + 0.05;
    atomic_fetch_add(&t->here, 1);
    while (atomic_load(&t->here) < t->threads && seconds(CLOCK_MONOTONIC) < limit) sched_yield();
}

static void run(void *context, int64_t index, int thread)
{
    peak_task *t = context;
    (void)thread;
    rendezvous(t);
    float *sink = &t->sink[index];
    const double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
    if (t->bf16 && t->level >= KERN_AMX) {
        *sink = loop_amx();
    } else if (t->bf16 && t->level >= KERN_AVX512_BF16) {
        *sink = loop_avx512_bf16();
    } else if (t->level >= KERN_AVX512) {
        *sink = loop_avx512();
    } else if (t->level >= KERN_AVX2) {
        *sink = loop_avx2();
    } else {
        *sink = loop_scalar();
    }
    t->cpu_s[index] = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static double flops_of_loop(kern_level level, bool bf16)
{
    const double rounds = PEAK_ROUNDS;
    if (bf16 && level >= KERN_AMX) return rounds / 8.0 * 4.0 * 2.0 * 16.0 * 16.0 * 32.0;
    if (bf16 && level >= KERN_AVX512_BF16) return rounds * 16.0 * 16.0 * 4.0;
    if (level >= KERN_AVX512) return rounds * 16.0 * 16.0 * 2.0;
    if (level >= KERN_AVX2) return rounds * 12.0 * 8.0 * 2.0;
    return rounds * 8.0 * 2.0;
}

double kern_loop_flops(kern_level level, int threads, bool bf16)
{
    kern_pool *pool = NULL;
    if (kern_pool_create(threads, &pool) != ST_OK) {
        error_clear();
        return 0.0;
    }
    kern_pool_lead(pool);
    peak_task task = {.level = level, .bf16 = bf16, .threads = threads};
    const double flops = flops_of_loop(level, bf16);
    double best = 0.0;
    for (int i = 0; i < PEAK_TRIES; i++) {
        double all = 0.0;
        atomic_store(&task.here, 0);
        kern_parallel(pool, threads, run, &task);
        for (int t = 0; t < threads; t++) all += flops / fmax(task.cpu_s[t], 1e-9);
        best = fmax(best, all);
    }
    kern_pool_destroy(pool);
    return best;
}
