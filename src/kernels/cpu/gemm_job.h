// Inside the GEMMs: one GEMM in progress, its scratch, and the operations on tiles that all drivers
// share.
#ifndef KERNELS_CPU_GEMM_JOB_H
#define KERNELS_CPU_GEMM_JOB_H

#include "kernels/cpu/gemm_unit.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GEMM_MAX_MR = 16,
    GEMM_MAX_NR = 32,
    GEMM_KC = 512, // steps of k between two visits to the sums; panels of A and B stream from L2
};

// A thread's scratch, in floats: panels, then a tile of sums, then its part of the shared panel.
enum {
    GEMM_SCRATCH = KERN_SCRATCH_BYTES / 4,
    GEMM_TILE = 128 * 1024,
    GEMM_DONE = 224 * 1024, // of thread 0: the tall driver's counters
    GEMM_SHARED = 256 * 1024,
};

typedef struct gemm_job {
    const gemm_args *args; // k in places of panels (gemm_unit.h)
    const gemm_unit *unit;
    int64_t steps; // of k in all
    kern_pool *pool;
    int threads;  // of the pool, or of the one that a plan counts on
    bool planned; // a plan asks: there is no pool yet, but there will be one with scratch
    int64_t m0, m1, n0, n1, k0, k1; // of this pass
    int64_t columns;                // short: of a task
    int64_t mc, pieces;             // deep: rows of a task, tasks in a row of C
    bool direct;                    // C can hold sums
    bool streams;                   // C is too large to be found in a cache later
    const float *kept;              // all panels of B, each of all k; NULL: they are made here
    const float *x;                 // flat: A in fp32
    int64_t x_stride;
} gemm_job;

void gemm_run_tall(const gemm_job *job);

// gemm_check.c: runs the product with gemm_run_once() and checks it; rounds: fp32 operands are
// rounded to bf16.
void gemm_run_checked(const kern_context *context, const gemm_args *g, bool rounds);
void gemm_run_once(const kern_context *context, const gemm_args *args);
// Takes finished sums C(i, j .. j + count - 1), before the epilogue gets them.
void gemm_check_row(const gemm_check *c, float *values, int64_t i, int64_t j, int64_t count);

float *gemm_private(const gemm_job *job, int thread);
void *gemm_c_at(const gemm_args *g, int64_t i, int64_t j);

// Pack rows [i, i + count) of A (columns [j, j + count) of B), places [k, k + kc) of their panels.
void gemm_pack_a(const gemm_job *job, float *out, int64_t i, int64_t count, int64_t k, int64_t kc);
void gemm_pack_b(const gemm_job *job, float *out, int64_t j, int64_t count, int64_t k, int64_t kc);

// Returns the kept panel of column j, from place k on.
static inline const float *gemm_kept_panel(const gemm_job *job, int64_t j, int64_t k)
{
    return job->kept + j * job->args->k + k * job->unit->nr;
}

typedef struct gemm_tile {
    const float *a, *b; // a panel of each
    int64_t kc;
    const float *ahead;    // the next operand, for prefetching
    int64_t rows, columns; // that are left of the piece
    gemm_fetch later;
} gemm_tile;

// The memory that a thread will read in its next task. It prefetches some lines of it with each
// tile of the present task, because packing and reading C would wait for memory while nothing is
// multiplied (the head's dw of 640 x 50257 x 768 in bf16 on a Zen 4: 139 ms without, 125 with).
typedef struct gemm_region {
    const char *at;
    int64_t rows, stride; // bytes from row to row
    int64_t lines;        // of a row
} gemm_region;
typedef struct gemm_queue {
    gemm_region regions[2];
    int count, region;
    int64_t next; // share of this region
} gemm_queue;

// Regions of rows [i, i + count) of A and columns [j, j + count) of B, places [k, k + kc), and of
// some rows of C.
gemm_region gemm_region_a(const gemm_job *job, int64_t i, int64_t count, int64_t k, int64_t kc);
gemm_region gemm_region_b(const gemm_job *job, int64_t j, int64_t count, int64_t k, int64_t kc);
gemm_region gemm_region_c(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t columns);
// Returns the lines to prefetch during a tile of kc places.
gemm_fetch gemm_queue_take(gemm_queue *q, int64_t kc);

// Runs the micro-kernel on a tile. If the tile exceeds the edge of the piece, the sums go through a
// buffer.
void gemm_multiply(const gemm_unit *u, const gemm_tile *t, gemm_sums from, gemm_sums to);

// Loads the values of C from which the GEMM continues.
void gemm_sums_load(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                    int64_t columns);
// Stores the sums of a pass to C, unless they are there already; those of the last pass are
// finished first.
void gemm_sums_finish(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                      int64_t columns);

static inline gemm_sums gemm_sums_at(gemm_sums s, int64_t i, int64_t j)
{
    if (s.at != NULL) s.at += i * s.stride + j;
    return s;
}

// Returns the block size that cuts [0, depth) into equal blocks of at most GEMM_KC.
static inline int64_t gemm_k_block(int64_t depth)
{
    const int64_t blocks = (depth + GEMM_KC - 1) / GEMM_KC;
    return align_up((depth + blocks - 1) / blocks, 8);
}

static inline bool gemm_starts_from_zero(const gemm_job *job, int64_t k)
{
    return k == 0 && !job->args->accumulate;
}

#ifdef __cplusplus
}
#endif
#endif
