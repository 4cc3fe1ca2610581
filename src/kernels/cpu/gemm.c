// The loops around the micro-kernels: who packs what, who multiplies what, and where sums wait.
//
// Four drivers, by the shape of C:
//
//   tall    B is packed once, by all threads, into a panel that all share (in the L3 cache); then
//           each task takes up to 120 rows of A, packs them for itself and runs over the whole
//           panel, some columns at a time, whose sums lie in a private tile (L2):
//
//             for columns j of NP, TALL_COLUMNS at a time:  tile = C[rows, j] or 0
//               for k in KS, KC at a time:                  tile += A[rows, k] B[k, j]
//                                                           C[rows, j] = tile, by whole rows
//
//   short   few rows (a piece of a batch, one token each of some sequences): A is packed once and
//           shared; each task takes some columns, packs B for itself and uses it at once, while it
//           is in the L2 cache. B streams through memory once.
//   flat    up to 8 rows, B stored along k (a weight, in generation): no panels at all, each weight
//           is read once and turned in registers.
//   deep    C narrower than fp32 and a very large k: each task packs all it needs for a tile of C.
//
// All panels lie in the pool's scratch: each thread has a private part, the rest of all threads
// together is the shared panel. The k dimension is never split between threads, and blocks of it
// follow each other through fp32 sums in memory, so blocking changes no bit (gemm.h).
//
// From one shared panel to the next the sums wait in C where that is fp32. Where it is narrower the
// panel must span all of k, lest they be rounded between: hence `deep`.
//
// Source of the blocking: Goto & van de Geijn 2008, doi:10.1145/1356052.1356053.
#include "kernels/cpu/gemm_unit.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pool.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    MAX_MR = 16,
    MAX_NR = 32,
    KC = 512,           // steps of k between two visits to C; panels of A and B stream from L2
    MC_MAX = 120,       // rows of A per task: 120 KiB of panels beside C in an L2 of 512 KiB
    TALL_K = 1024,      // at most this much of k in the shared panel where C is fp32
    TALL_PANELS = 8,    // of B, packed by one task
    TALL_COLUMNS = 512, // of the private tile; 240 KiB in the L2 cache beside the panels of A
    TALL_STRIDE = TALL_COLUMNS + 16, // so that its rows do not fall on one set of a cache
    SHORT_ROWS = 144,                // at most this many rows: the short driver
    SHORT_COLUMNS = 32,              // per task; whole cache lines of C in every type
    SHORT_K = 4096,                  // as TALL_K
    FLAT_COLUMNS = 64,               // per task
    DEEP_ROWS = 360,                 // the tile of the deep driver
    DEEP_COLUMNS = 768,
    DEEP_K = 16 * 1024,
    STREAM_BYTES = 4 << 20, // of C, from which on it passes by the caches
};

// A thread's scratch, in floats.
enum {
    SCRATCH = KERN_SCRATCH_BYTES / 4,
    PRIVATE_PANELS = 0,
    PRIVATE_TILE = 128 * 1024,
    SHARED = 256 * 1024, // from here on: the shared panel
    DEEP_B = DEEP_ROWS * KC,
    DEEP_TILE = DEEP_B + DEEP_COLUMNS * KC,
};
_Static_assert(MC_MAX *TALL_K <= PRIVATE_TILE, "the panels of a tall task fit");
_Static_assert(PRIVATE_TILE + MC_MAX * TALL_STRIDE <= SHARED, "its tile fits");
_Static_assert(SHORT_COLUMNS *KC <= PRIVATE_TILE, "the panels of a short task fit");
_Static_assert(PRIVATE_TILE + SHORT_ROWS * SHORT_COLUMNS <= SHARED, "a short task fits");
_Static_assert(DEEP_TILE + DEEP_ROWS * DEEP_COLUMNS <= SCRATCH, "a deep task fits");
_Static_assert(MAX_NR *DEEP_K <= SCRATCH - SHARED, "a panel of the largest depth fits");

static const gemm_unit *const units[] = {&gemm_unit_avx512, &gemm_unit_avx2, &gemm_unit_scalar};

const gemm_unit *gemm_unit_of(kern_level level)
{
    for (int64_t i = 0; i < COUNT_OF(units); i++) {
        if (units[i]->level <= level) return units[i];
    }
    return &gemm_unit_scalar;
}

// One product on its way.
typedef struct gemm_job {
    const gemm_args *args;
    const gemm_unit *unit;
    kern_pool *pool;
    int64_t m0, m1, n0, n1, k0, k1; // of this pass
    int64_t blocks;                 // tall: tasks one below the other
    int64_t mc, pieces;             // deep: rows of a task, tasks side by side
    bool direct;                    // C can hold sums
    bool streams;                   // C is too large to be found in a cache later
    const float *x;                 // flat: A in fp32
    int64_t x_stride;
} gemm_job;

static float *private_of(const gemm_job *job, int thread)
{
    return kern_pool_scratch(job->pool, thread);
}

// Shared panel `index` of those with `floats` floats. None lies in the scratch of two threads.
static float *shared_panel(const gemm_job *job, int64_t index, int64_t floats)
{
    const int64_t per_thread = (SCRATCH - SHARED) / floats;
    return private_of(job, (int)(index / per_thread)) + SHARED + index % per_thread * floats;
}

static int64_t shared_panels(const gemm_job *job, int64_t floats)
{
    return (SCRATCH - SHARED) / floats * kern_pool_threads(job->pool);
}

static const void *element_at(const void *data, dtype type, int64_t index)
{
    return (const char *)data + index * (type == DTYPE_F32 ? 4 : 2);
}

static void *c_at(const gemm_args *g, int64_t i, int64_t j)
{
    return (char *)g->c + (i * g->ldc + j) * (g->c_type == DTYPE_F32 ? 4 : 2);
}

// Rows [i, i + count) of A, columns [k, k + kc).
static void pack_a(const gemm_job *job, float *out, int64_t i, int64_t count, int64_t k, int64_t kc)
{
    const gemm_matrix *a = &job->args->a;
    const gemm_lines lines = {
        .data = element_at(a->data, a->type, i * a->row_stride + k * a->column_stride),
        .type = a->type,
        .line_stride = a->row_stride,
        .k_stride = a->column_stride,
        .count = count,
        .kc = kc};
    job->unit->pack(out, job->unit->mr, &lines);
}

static void pack_b(const gemm_job *job, float *out, int64_t j, int64_t count, int64_t k, int64_t kc)
{
    const gemm_matrix *b = &job->args->b;
    const gemm_lines lines = {
        .data = element_at(b->data, b->type, k * b->row_stride + j * b->column_stride),
        .type = b->type,
        .line_stride = b->column_stride,
        .k_stride = b->row_stride,
        .count = count,
        .kc = kc};
    job->unit->pack(out, job->unit->nr, &lines);
}

// ---- one tile -----------------------------------------------------------------------------------
typedef struct gemm_tile {
    const float *a, *b; // a panel of each
    int64_t kc;
    const float *ahead;    // what comes next, for the caches
    int64_t rows, columns; // that are left of the piece
} gemm_tile;

// The micro-kernel on a tile that may hang over the edge of the piece: then in a buffer.
static void multiply(const gemm_unit *u, const gemm_tile *t, gemm_sums from, gemm_sums to)
{
    if (t->rows >= u->mr && t->columns >= u->nr) {
        u->kernel(t->a, t->b, from, to, t->kc, t->ahead);
        return;
    }
    _Alignas(64) float tile[MAX_MR * MAX_NR] = {0};
    const gemm_sums buffer = {.at = tile, .stride = u->nr};
    const int64_t rows = min_i64(t->rows, u->mr), columns = min_i64(t->columns, u->nr);
    const size_t bytes = (size_t)columns * sizeof(float);
    for (int64_t i = 0; i < rows && from.at != NULL; i++) {
        memcpy(tile + i * u->nr, from.at + i * from.stride, bytes);
    }
    u->kernel(t->a, t->b, buffer, buffer, t->kc, t->ahead);
    for (int64_t i = 0; i < rows; i++) memcpy(to.at + i * to.stride, tile + i * u->nr, bytes);
}

static gemm_sums sums_at(gemm_sums s, int64_t i, int64_t j)
{
    if (s.at != NULL) s.at += i * s.stride + j;
    return s;
}

// C itself, where sums can wait in it.
static gemm_sums sums_in_c(const gemm_job *job, int64_t i, int64_t j)
{
    return (gemm_sums){.at = c_at(job->args, i, j), .stride = job->args->ldc};
}

// What C holds, where the product continues.
static void sums_load(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                      int64_t columns)
{
    const gemm_args *g = job->args;
    for (int64_t r = 0; r < rows; r++) {
        job->unit->load(s.at + r * s.stride, c_at(g, i + r, j), g->c_type, columns);
    }
}

// The sums of a pass go to C, unless they are there; those of the last one are finished first.
static void sums_finish(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                        int64_t columns)
{
    const gemm_args *g = job->args;
    const gemm_epilogue epilogue = job->k1 == g->k ? g->epilogue : NULL;
    for (int64_t r = 0; r < rows; r++) {
        float *row = s.at + r * s.stride;
        void *target = c_at(g, i + r, j);
        if (epilogue != NULL) epilogue(g->epilogue_context, row, i + r, j, columns);
        if ((void *)row == target) continue;
        (job->streams ? job->unit->stream : job->unit->store)(target, g->c_type, row, columns);
    }
    if (job->streams) atomic_thread_fence(memory_order_seq_cst);
}

// Where a short or a deep task keeps its sums from its first to its last block of k.
static gemm_sums sums_begin(const gemm_job *job, float *tile, int64_t i, int64_t j, int64_t rows,
                            int64_t columns)
{
    if (job->direct) return sums_in_c(job, i, j);
    const gemm_sums s = {.at = tile, .stride = columns};
    if (job->args->accumulate) sums_load(job, s, i, j, rows, columns);
    return s;
}

// [0, depth) in equal blocks of at most KC.
static int64_t k_block(int64_t depth)
{
    const int64_t blocks = (depth + KC - 1) / KC;
    return align_up((depth + blocks - 1) / blocks, 8);
}

static bool starts_from_zero(const gemm_job *job, int64_t k)
{
    return k == 0 && !job->args->accumulate;
}

// ---- tall ---------------------------------------------------------------------------------------
// Some neighbouring panels at once: where B's columns lie side by side, whole pieces of rows are read.
static void tall_pack_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const gemm_job *job = context;
    const int64_t nr = job->unit->nr, depth = job->k1 - job->k0, floats = nr * depth;
    const int64_t per_thread = (SCRATCH - SHARED) / floats;
    const int64_t groups = (per_thread + TALL_PANELS - 1) / TALL_PANELS; // of one thread's part
    const int64_t at = index % groups * TALL_PANELS;
    const int64_t panel = index / groups * per_thread + at, j = job->n0 + panel * nr;
    const int64_t panels = min_i64(TALL_PANELS, per_thread - at);
    if (j >= job->n1) return;
    pack_b(job, shared_panel(job, panel, floats), j, min_i64(panels * nr, job->n1 - j), job->k0,
           depth);
}

static int64_t tall_pack_tasks(const gemm_job *job)
{
    const int64_t per_thread = (SCRATCH - SHARED) / (job->unit->nr * (job->k1 - job->k0));
    const int64_t groups = (per_thread + TALL_PANELS - 1) / TALL_PANELS;
    return groups * kern_pool_threads(job->pool);
}

// What a task computes at a time.
typedef struct tall_piece {
    int64_t i, rows, j, columns;
    float *a; // panels of A: of this pass (`is_strip`), or of a block of k
    bool is_strip, is_packed;
    gemm_sums tile;
} tall_piece;

static void tall_block(const gemm_job *job, const tall_piece *p, const float *a, int64_t k,
                       int64_t kc, gemm_sums from)
{
    const gemm_unit *u = job->unit;
    const int64_t depth = job->k1 - job->k0;
    for (int64_t j = 0; j < p->columns; j += u->nr) {
        const int64_t panel = (p->j + j - job->n0) / u->nr;
        const int64_t next = p->j + j + u->nr < job->n1 ? panel + 1 : panel;
        const float *b = shared_panel(job, panel, u->nr * depth) + k * u->nr;
        const float *ahead = shared_panel(job, next, u->nr * depth) + k * u->nr;
        const float *const end = ahead + kc * u->nr;
        for (int64_t r = 0; r < p->rows; r += u->mr) {
            const gemm_tile t = {a + r * kc, b, kc, ahead, p->rows - r, p->columns - j};
            multiply(u, &t, sums_at(from, r, j), sums_at(p->tile, r, j));
            ahead = ahead + 2 * kc < end ? ahead + 2 * kc : b;
        }
    }
}

// Between the blocks of k the sums wait in the private tile, in the L2 cache. From there they go to C
// row by row: the micro-kernel would write it a line here and a line there, which costs 4% of a
// product of 1024 x 3072 x 768 (Zen 3, 2026-11).
static void tall_piece_run(const gemm_job *job, const tall_piece *p)
{
    const int64_t depth = job->k1 - job->k0, block = k_block(depth);
    const bool from_zero = starts_from_zero(job, job->k0);
    const int64_t height = align_up(p->rows, job->unit->mr);
    if (!from_zero) sums_load(job, p->tile, p->i, p->j, p->rows, p->columns);
    for (int64_t k = 0; k < depth; k += block) {
        const int64_t kc = min_i64(block, depth - k);
        float *a = p->a + (p->is_strip ? height * k : 0);
        gemm_sums from = p->tile;
        if (k == 0 && from_zero) from.at = NULL;
        if (!p->is_packed) pack_a(job, a, p->i, p->rows, job->k0 + k, kc);
        tall_block(job, p, a, k, kc, from);
    }
    sums_finish(job, p->tile, p->i, p->j, p->rows, p->columns);
}

// Rows of task `index`, in whole panels: shares that differ by one panel at most.
static int64_t tall_row(const gemm_job *job, int64_t index)
{
    const int64_t mr = job->unit->mr, panels = (job->args->m + mr - 1) / mr;
    return min_i64(panels * index / job->blocks * mr, job->args->m);
}

static void tall_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const int64_t i = tall_row(job, index), rows = tall_row(job, index + 1) - i;
    float *a = private_of(job, thread) + PRIVATE_PANELS, *tile = a + PRIVATE_TILE;
    tall_piece p = {.i = i, .rows = rows, .a = a, .tile = {.at = tile, .stride = TALL_STRIDE}};
    p.is_strip = align_up(rows, job->unit->mr) * (job->k1 - job->k0) <= PRIVATE_TILE;
    for (p.j = job->n0; p.j < job->n1; p.j += p.columns) {
        p.columns = min_i64(TALL_COLUMNS, job->n1 - p.j);
        tall_piece_run(job, &p);
        p.is_packed = p.is_strip;
    }
}

// Tasks of at most MC_MAX rows, as many for one thread as for another.
static int64_t tall_blocks(int64_t m, int64_t mr, int threads)
{
    const int64_t panels = (m + mr - 1) / mr, most = MC_MAX / mr;
    const int64_t rounds = (panels + threads * most - 1) / (threads * most);
    return min_i64(panels, rounds * threads);
}

static void run_tall(gemm_job *job)
{
    const gemm_args *g = job->args;
    const int64_t nr = job->unit->nr, depth = job->direct ? min_i64(g->k, TALL_K) : g->k;
    const int64_t width = shared_panels(job, nr * depth) * nr;
    ASSERT(width > 0);
    job->blocks = tall_blocks(g->m, job->unit->mr, kern_pool_threads(job->pool));
    for (job->n0 = 0; job->n0 < g->n; job->n0 = job->n1) {
        job->n1 = min_i64(job->n0 + width, g->n);
        for (job->k0 = 0; job->k0 < g->k; job->k0 = job->k1) {
            job->k1 = min_i64(job->k0 + depth, g->k);
            kern_parallel(job->pool, tall_pack_tasks(job), tall_pack_task, job);
            kern_parallel(job->pool, job->blocks, tall_task, job);
        }
    }
}

// ---- short --------------------------------------------------------------------------------------
static void short_pack_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const gemm_job *job = context;
    const int64_t mr = job->unit->mr, depth = job->k1 - job->k0, i = job->m0 + index * mr;
    float *panel = shared_panel(job, index, mr * depth);
    pack_a(job, panel, i, min_i64(mr, job->m1 - i), job->k0, depth);
}

static void short_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const gemm_unit *u = job->unit;
    const int64_t j0 = index * SHORT_COLUMNS, columns = min_i64(SHORT_COLUMNS, job->n1 - j0);
    const int64_t rows = job->m1 - job->m0;
    const int64_t depth = job->k1 - job->k0, block = k_block(depth);
    float *b = private_of(job, thread) + PRIVATE_PANELS;
    const gemm_sums c =
        sums_begin(job, private_of(job, thread) + PRIVATE_TILE, job->m0, j0, rows, columns);
    for (int64_t k = 0; k < depth; k += block) {
        const int64_t kc = min_i64(block, depth - k);
        const gemm_sums from = starts_from_zero(job, job->k0 + k) ? (gemm_sums){0} : c;
        pack_b(job, b, j0, columns, job->k0 + k, kc);
        for (int64_t j = 0; j < columns; j += u->nr) {
            for (int64_t r = 0; r < rows; r += u->mr) {
                const float *a = shared_panel(job, r / u->mr, u->mr * depth) + k * u->mr;
                const gemm_tile t = {a, b + j * kc, kc, a, rows - r, columns - j};
                multiply(u, &t, sums_at(from, r, j), sums_at(c, r, j));
            }
        }
    }
    sums_finish(job, c, job->m0, j0, rows, columns);
}

static void run_short(gemm_job *job)
{
    const gemm_args *g = job->args;
    const int64_t mr = job->unit->mr, depth = job->direct ? min_i64(g->k, SHORT_K) : g->k;
    const int64_t height = min_i64(SHORT_ROWS / mr, shared_panels(job, mr * depth)) * mr;
    ASSERT(height > 0);
    job->n1 = g->n;
    for (job->m0 = 0; job->m0 < g->m; job->m0 = job->m1) {
        job->m1 = min_i64(job->m0 + height, g->m);
        for (job->k0 = 0; job->k0 < g->k; job->k0 = job->k1) {
            job->k1 = min_i64(job->k0 + depth, g->k);
            kern_parallel(job->pool, (job->m1 - job->m0 + mr - 1) / mr, short_pack_task, job);
            kern_parallel(job->pool, (g->n + SHORT_COLUMNS - 1) / SHORT_COLUMNS, short_task, job);
        }
    }
}

// ---- flat ---------------------------------------------------------------------------------------
static void flat_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const gemm_args *g = job->args;
    const int64_t j = index * FLAT_COLUMNS, columns = min_i64(FLAT_COLUMNS, g->n - j);
    float *y = private_of(job, thread) + PRIVATE_TILE;
    const void *w = element_at(g->b.data, g->b.type, j * g->b.column_stride);
    const gemm_flat flat = {.y = y,
                            .y_stride = columns,
                            .x = job->x,
                            .x_stride = job->x_stride,
                            .rows = g->m,
                            .w = w,
                            .w_type = g->b.type,
                            .w_stride = g->b.column_stride,
                            .n = columns,
                            .k = g->k};
    job->unit->flat(&flat);
    for (int64_t i = 0; i < g->m; i++) {
        float *row = y + i * columns;
        if (g->epilogue != NULL) g->epilogue(g->epilogue_context, row, i, j, columns);
        job->unit->store(c_at(g, i, j), g->c_type, row, columns);
    }
}

static bool is_flat(const gemm_job *job)
{
    const gemm_args *g = job->args;
    return job->unit->flat != NULL && g->m <= GEMM_FLAT_ROWS && g->b.row_stride == 1 &&
           g->a.column_stride == 1 && !g->accumulate && g->m * g->k <= SCRATCH - SHARED;
}

static void run_flat(gemm_job *job)
{
    const gemm_args *g = job->args;
    float *x = private_of(job, 0) + SHARED;
    for (int64_t i = 0; i < g->m; i++) {
        const void *row = element_at(g->a.data, g->a.type, i * g->a.row_stride);
        job->unit->load(x + i * g->k, row, g->a.type, g->k);
    }
    job->x = x;
    job->x_stride = g->k;
    kern_parallel(job->pool, (g->n + FLAT_COLUMNS - 1) / FLAT_COLUMNS, flat_task, job);
}

// ---- deep ---------------------------------------------------------------------------------------
static void deep_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const gemm_args *g = job->args;
    const gemm_unit *u = job->unit;
    const int64_t i = index / job->pieces * job->mc, rows = min_i64(job->mc, g->m - i);
    const int64_t j0 = index % job->pieces * DEEP_COLUMNS;
    const int64_t columns = min_i64(DEEP_COLUMNS, g->n - j0), block = k_block(g->k);
    float *a = private_of(job, thread), *b = a + DEEP_B;
    const gemm_sums c = sums_begin(job, a + DEEP_TILE, i, j0, rows, columns);
    for (int64_t k = 0; k < g->k; k += block) {
        const int64_t kc = min_i64(block, g->k - k);
        pack_a(job, a, i, rows, k, kc);
        pack_b(job, b, j0, columns, k, kc);
        const gemm_sums from = starts_from_zero(job, k) ? (gemm_sums){0} : c;
        for (int64_t j = 0; j < columns; j += u->nr) {
            for (int64_t r = 0; r < rows; r += u->mr) {
                const gemm_tile t = {a + r * kc, b + j * kc, kc, a, rows - r, columns - j};
                multiply(u, &t, sums_at(from, r, j), sums_at(c, r, j));
            }
        }
    }
    sums_finish(job, c, i, j0, rows, columns);
}

static void run_deep(gemm_job *job)
{
    const gemm_args *g = job->args;
    job->mc = DEEP_ROWS - DEEP_ROWS % job->unit->mr;
    job->pieces = (g->n + DEEP_COLUMNS - 1) / DEEP_COLUMNS;
    job->k1 = g->k;
    kern_parallel(job->pool, (g->m + job->mc - 1) / job->mc * job->pieces, deep_task, job);
}

// ---- without scratch ----------------------------------------------------------------------------
static void run_plain(const gemm_args *g, const gemm_unit *u)
{
    enum { COLUMNS = 64 };
    float row[COLUMNS];
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j += COLUMNS) {
            const int64_t columns = min_i64(COLUMNS, g->n - j);
            memset(row, 0, sizeof(row));
            if (g->accumulate) u->load(row, c_at(g, i, j), g->c_type, columns);
            for (int64_t k = 0; k < g->k; k++) {
                const int64_t a_at = i * g->a.row_stride + k * g->a.column_stride;
                const float x = gemm_load_one(g->a.type, g->a.data, a_at);
                for (int64_t c = 0; c < columns; c++) {
                    const int64_t b_at = k * g->b.row_stride + (j + c) * g->b.column_stride;
                    row[c] = fmaf(x, gemm_load_one(g->b.type, g->b.data, b_at), row[c]);
                }
            }
            if (g->epilogue != NULL) g->epilogue(g->epilogue_context, row, i, j, columns);
            u->store(c_at(g, i, j), g->c_type, row, columns);
        }
    }
}

// oneDNN drives the units for bf16 (AVX-512 bf16, AMX) where the CPU has them.
static bool is_for_bf16_unit(const gemm_job *job, kern_level level)
{
    const gemm_args *g = job->args;
    return g->any_order && level >= KERN_AVX512_BF16 && g->a.type == DTYPE_BF16 &&
           g->b.type == DTYPE_BF16 && g->m > GEMM_FLAT_ROWS && g->k > 0 &&
           kern_pool_scratch(job->pool, 0) != NULL && pool_onednn(job->pool) != NULL;
}

void gemm_run(const kern_context *context, const gemm_args *args)
{
    ASSERT(args->m >= 0 && args->n >= 0 && args->k >= 0);
    ASSERT(args->ldc >= args->n);
    if (args->m == 0 || args->n == 0) return;
    gemm_job job = {.args = args,
                    .unit = gemm_unit_of(context->level),
                    .pool = context->pool,
                    .direct = args->c_type == DTYPE_F32,
                    .streams = args->m * args->n * dtype_bytes(args->c_type) >= STREAM_BYTES};
    if (is_for_bf16_unit(&job, context->level) &&
        onednn_run(pool_onednn(job.pool), job.pool, args)) {
        return;
    }
    if (args->k == 0 || kern_pool_scratch(context->pool, 0) == NULL) {
        run_plain(args, job.unit);
    } else if (is_flat(&job)) {
        run_flat(&job);
    } else if (!job.direct && args->k > DEEP_K) {
        run_deep(&job);
    } else if (args->m <= SHORT_ROWS) {
        run_short(&job);
    } else {
        run_tall(&job);
    }
}
