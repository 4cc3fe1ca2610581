// The loops around the GEMM micro-kernels: they decide how operands are packed, how the work is
// divided between threads, and where partial sums are kept.
//
// Four drivers, by the shape of C:
//
//   tall    B is packed once, by all threads, into a panel that all share (in the L3 cache); each
//           task packs some rows of A for itself and runs over the whole panel (gemm_tall.c).
//   short   few rows (a piece of a batch, one token each of some sequences; a chunk of the head,
//           whose columns are a vocabulary): A is packed once and shared; each task takes some
//           columns, packs B for itself and uses it at once, while it is in the L2 cache. B streams
//           through memory once, and no other core has cached its panels.
//   flat    up to 8 rows, B stored along k (a weight, in generation): no panels, each weight
//           is read once and transposed in registers.
//   deep    C narrower than fp32 and a very large k: each task packs what a tile of C needs.
//
// All panels are in the pool's scratch: each thread has a private part, and the remaining parts of
// all threads together are the shared panel. The k dimension is never split between threads, and
// successive blocks of k continue from fp32 sums in memory, so blocking changes no bit (gemm.h).
//
// Between shared panels the sums are kept in C if C is fp32. If C is narrower the panel must span
// all of k, or the sums would be rounded between panels; that is the driver `deep`.
//
// Source of the blocking: Goto & van de Geijn 2008, doi:10.1145/1356052.1356053.
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pool.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    SHORT_ROWS = 144,   // at most this many rows: the short driver
    SHORT_COLUMNS = 32, // per task; whole cache lines of C in every type
    WIDE_ROWS = 384,    // the same where C is so wide that tasks of more columns are enough for all
    WIDE_COLUMNS = 64,
    WIDE_TASKS = 8,    // at least, for each thread
    SHORT_K = 4096,    // of A, packed and shared, where C is fp32
    FLAT_COLUMNS = 64, // per task
    DEEP_ROWS = 360,   // the tile of the deep driver
    DEEP_COLUMNS = 768,
    DEEP_K = 16 * 1024,
    DEEP_B = DEEP_ROWS * GEMM_KC, // places in a thread's scratch
    DEEP_TILE = DEEP_B + DEEP_COLUMNS * GEMM_KC,
    STREAM_BYTES = 4 << 20, // of C, from which on it passes by the caches
};
_Static_assert(WIDE_COLUMNS *GEMM_KC <= GEMM_TILE, "the panels of a wide task fit");
_Static_assert(GEMM_TILE + WIDE_ROWS * WIDE_COLUMNS <= GEMM_SHARED, "its tile fits");
_Static_assert(DEEP_TILE + DEEP_ROWS * DEEP_COLUMNS <= GEMM_SCRATCH, "a deep task fits");
_Static_assert(GEMM_MAX_NR *DEEP_K <= GEMM_SCRATCH - GEMM_SHARED, "the deepest panel fits");

static const gemm_unit *const units[] = {&gemm_unit_avx512, &gemm_unit_avx2, &gemm_unit_scalar};

const gemm_unit *gemm_unit_of(kern_level level)
{
    for (int64_t i = 0; i < COUNT_OF(units); i++) {
        if (units[i]->level <= level) return units[i];
    }
    return &gemm_unit_scalar;
}

float *gemm_private(const gemm_job *job, int thread)
{
    return kern_pool_scratch(job->pool, thread);
}

// Returns shared panel `index`, of `floats` floats each. A panel is always in the scratch of one
// thread.
static float *shared_panel(const gemm_job *job, int64_t index, int64_t floats)
{
    const int64_t per_thread = (GEMM_SCRATCH - GEMM_SHARED) / floats;
    return gemm_private(job, (int)(index / per_thread)) + GEMM_SHARED + index % per_thread * floats;
}

static int64_t shared_panels(const gemm_job *job, int64_t floats)
{
    return (GEMM_SCRATCH - GEMM_SHARED) / floats * job->threads;
}

static const void *element_at(const void *data, dtype type, int64_t index)
{
    return (const char *)data + index * (type == DTYPE_F32 ? 4 : 2);
}

void *gemm_c_at(const gemm_args *g, int64_t i, int64_t j)
{
    return (char *)g->c + (i * g->ldc + j) * (g->c_type == DTYPE_F32 ? 4 : 2);
}

// Returns rows [first, first + count) of a matrix as lines along k; columns are the rows of the
// transposed matrix.
static gemm_lines lines_of(gemm_matrix m, int64_t first, int64_t count)
{
    return (gemm_lines){.data = element_at(m.data, m.type, first * m.row_stride),
                        .type = m.type,
                        .line_stride = m.row_stride,
                        .k_stride = m.column_stride,
                        .count = count};
}

// Returns places [k, k + kc) of the panels of lines that begin at k = 0. The last place may be half
// empty.
static gemm_lines lines_from(const gemm_job *job, gemm_lines lines, int64_t k, int64_t kc)
{
    const int64_t first = k * job->unit->steps;
    lines.data = element_at(lines.data, lines.type, first * lines.k_stride);
    lines.kc = min_i64(kc * job->unit->steps, job->steps - first);
    return lines;
}

static gemm_lines lines_of_a(const gemm_job *job, int64_t i, int64_t count, int64_t k, int64_t kc)
{
    return lines_from(job, lines_of(job->args->a, i, count), k, kc);
}

static gemm_lines lines_of_b(const gemm_job *job, int64_t j, int64_t count, int64_t k, int64_t kc)
{
    return lines_from(job, lines_of(gemm_transposed(job->args->b), j, count), k, kc);
}

void gemm_pack_a(const gemm_job *job, float *out, int64_t i, int64_t count, int64_t k, int64_t kc)
{
    const gemm_lines rows = lines_of_a(job, i, count, k, kc);
    job->unit->pack(out, job->unit->mr, &rows);
}

void gemm_pack_b(const gemm_job *job, float *out, int64_t j, int64_t count, int64_t k, int64_t kc)
{
    const gemm_lines columns = lines_of_b(job, j, count, k, kc);
    job->unit->pack(out, job->unit->nr, &columns);
}

// ---- prefetching --------------------------------------------------------------------------------
static gemm_region region_of(const void *at, dtype type, int64_t rows, int64_t stride,
                             int64_t columns)
{
    const int64_t width = type == DTYPE_F32 ? 4 : 2;
    return (gemm_region){.at = at,
                         .rows = rows,
                         .stride = stride * width,
                         .lines = (columns * width + 63) / 64 + ((stride * width) % 64 != 0)};
}

// Returns the memory region of lines that are contiguous along k or across it.
static gemm_region region_of_lines(gemm_lines l)
{
    return l.k_stride == 1 ? region_of(l.data, l.type, l.count, l.line_stride, l.kc)
                           : region_of(l.data, l.type, l.kc, l.k_stride, l.count);
}

gemm_region gemm_region_a(const gemm_job *job, int64_t i, int64_t count, int64_t k, int64_t kc)
{
    return region_of_lines(lines_of_a(job, i, count, k, kc));
}

gemm_region gemm_region_b(const gemm_job *job, int64_t j, int64_t count, int64_t k, int64_t kc)
{
    return region_of_lines(lines_of_b(job, j, count, k, kc));
}

gemm_region gemm_region_c(const gemm_job *job, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    const gemm_args *g = job->args;
    return region_of(gemm_c_at(g, i, j), g->c_type, rows, g->ldc, columns);
}

// Prefetches along rows if they are long, else down a column of lines. Prefetches beyond an end
// have no effect.
gemm_fetch gemm_queue_take(gemm_queue *q, int64_t kc)
{
    const int64_t lines = max_i64(kc / 4, 1);
    for (; q->region < q->count; q->region++, q->next = 0) {
        const gemm_region *r = &q->regions[q->region];
        const bool down = r->lines < lines;
        const int64_t shares = ((down ? r->rows : r->lines) + lines - 1) / lines;
        if (q->next >= shares * (down ? r->lines : r->rows)) continue;
        const int64_t outer = q->next / shares, inner = q->next % shares * lines;
        q->next++;
        if (down) return (gemm_fetch){r->at + outer * 64 + inner * r->stride, r->stride};
        return (gemm_fetch){r->at + outer * r->stride + inner * 64, 64};
    }
    return (gemm_fetch){(const char *)q, 0};
}

// ---- one tile -----------------------------------------------------------------------------------
void gemm_multiply(const gemm_unit *u, const gemm_tile *t, gemm_sums from, gemm_sums to)
{
    if (t->rows >= u->mr && t->columns >= u->nr) {
        u->kernel(t->a, t->b, from, to, t->kc, t->ahead, t->later);
        return;
    }
    _Alignas(64) float tile[GEMM_MAX_MR * GEMM_MAX_NR] = {0};
    const gemm_sums buffer = {.at = tile, .stride = u->nr};
    const int64_t rows = min_i64(t->rows, u->mr), columns = min_i64(t->columns, u->nr);
    const size_t bytes = (size_t)columns * sizeof(float);
    for (int64_t i = 0; i < rows && from.at != NULL; i++) {
        memcpy(tile + i * u->nr, from.at + i * from.stride, bytes);
    }
    u->kernel(t->a, t->b, buffer, buffer, t->kc, t->ahead, t->later);
    for (int64_t i = 0; i < rows; i++) memcpy(to.at + i * to.stride, tile + i * u->nr, bytes);
}

// Returns C itself, if C can hold the sums.
static gemm_sums sums_in_c(const gemm_job *job, int64_t i, int64_t j)
{
    return (gemm_sums){.at = gemm_c_at(job->args, i, j), .stride = job->args->ldc};
}

void gemm_sums_load(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                    int64_t columns)
{
    const gemm_args *g = job->args;
    for (int64_t r = 0; r < rows; r++) {
        job->unit->load(s.at + r * s.stride, gemm_c_at(g, i + r, j), g->c_type, columns);
    }
}

void gemm_sums_finish(const gemm_job *job, gemm_sums s, int64_t i, int64_t j, int64_t rows,
                      int64_t columns)
{
    const gemm_args *g = job->args;
    const bool is_last = job->k1 == g->k;
    for (int64_t r = 0; r < rows; r++) {
        float *row = s.at + r * s.stride;
        void *target = gemm_c_at(g, i + r, j);
        if (is_last && g->check != NULL) gemm_check_row(g->check, row, i + r, j, columns);
        if (is_last && g->epilogue != NULL) {
            g->epilogue(g->epilogue_context, row, i + r, j, columns);
        }
        if ((void *)row == target) continue;
        (job->streams ? job->unit->stream : job->unit->store)(target, g->c_type, row, columns);
    }
    if (job->streams) atomic_thread_fence(memory_order_seq_cst);
}

// Returns where a short or a deep task keeps its sums from its first block of k to its last.
static gemm_sums sums_begin(const gemm_job *job, float *tile, int64_t i, int64_t j, int64_t rows,
                            int64_t columns)
{
    if (job->direct && !job->streams) return sums_in_c(job, i, j);
    const gemm_sums s = {.at = tile, .stride = columns};
    if (!gemm_starts_from_zero(job, job->k0)) gemm_sums_load(job, s, i, j, rows, columns);
    return s;
}

// ---- short --------------------------------------------------------------------------------------
static void short_pack_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const gemm_job *job = context;
    const int64_t mr = job->unit->mr, depth = job->k1 - job->k0, i = job->m0 + index * mr;
    float *panel = shared_panel(job, index, mr * depth);
    gemm_pack_a(job, panel, i, min_i64(mr, job->m1 - i), job->k0, depth);
}

static void short_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const gemm_unit *u = job->unit;
    const int64_t j0 = index * job->columns, columns = min_i64(job->columns, job->n1 - j0);
    const int64_t rows = job->m1 - job->m0;
    const int64_t depth = job->k1 - job->k0, block = gemm_k_block(depth);
    float *b = gemm_private(job, thread);
    const int64_t next = j0 + kern_pool_threads(job->pool) * job->columns;
    gemm_queue later = {.count = job->kept == NULL && next + job->columns <= job->n1 ? 1 : 0};
    if (later.count > 0) later.regions[0] = gemm_region_b(job, next, job->columns, job->k0, depth);
    const gemm_sums c =
        sums_begin(job, gemm_private(job, thread) + GEMM_TILE, job->m0, j0, rows, columns);
    for (int64_t k = 0; k < depth; k += block) {
        const int64_t kc = min_i64(block, depth - k);
        const gemm_sums from = gemm_starts_from_zero(job, job->k0 + k) ? (gemm_sums){0} : c;
        const float *panels = b;
        int64_t stride = u->nr * kc; // from panel to panel
        if (job->kept == NULL) {
            gemm_pack_b(job, b, j0, columns, job->k0 + k, kc);
        } else {
            panels = gemm_kept_panel(job, j0, job->k0 + k);
            stride = u->nr * job->args->k;
        }
        // A panel of A stays in the L1 cache, those of B in the L2 cache. In the opposite order all
        // of A would pass through L1 once for every panel of B (3% of 320 x 50257 x 768, Zen 3,
        // 2026-11).
        for (int64_t r = 0; r < rows; r += u->mr) {
            const float *a = shared_panel(job, r / u->mr, u->mr * depth) + k * u->mr;
            const float *panel = panels;
            for (int64_t j = 0; j < columns; j += u->nr, panel += stride) {
                const float *ahead = j + u->nr < columns ? panel + stride : panels;
                const gemm_tile t = {
                    a, panel, kc, ahead, rows - r, columns - j, gemm_queue_take(&later, kc)};
                gemm_multiply(u, &t, gemm_sums_at(from, r, j), gemm_sums_at(c, r, j));
            }
        }
    }
    gemm_sums_finish(job, c, job->m0, j0, rows, columns);
}

// Returns whether all of A fits into the shared panel, and B is so wide that there are enough tasks
// for all threads.
static bool is_wide(const gemm_job *job)
{
    const gemm_args *g = job->args;
    const int64_t mr = job->unit->mr;
    return g->m <= WIDE_ROWS && g->m <= shared_panels(job, mr * g->k) * mr &&
           g->n >= (int64_t)WIDE_TASKS * WIDE_COLUMNS * job->threads;
}

static void run_short(gemm_job *job)
{
    const gemm_args *g = job->args;
    const bool wide = is_wide(job);
    const int64_t mr = job->unit->mr, depth = job->direct && !wide ? min_i64(g->k, SHORT_K) : g->k;
    const int64_t rows = wide ? WIDE_ROWS + mr : SHORT_ROWS;
    const int64_t height = min_i64(rows / mr, shared_panels(job, mr * depth)) * mr;
    ASSERT(height > 0);
    job->columns = wide ? WIDE_COLUMNS : SHORT_COLUMNS;
    job->n1 = g->n;
    for (job->m0 = 0; job->m0 < g->m; job->m0 = job->m1) {
        job->m1 = min_i64(job->m0 + height, g->m);
        for (job->k0 = 0; job->k0 < g->k; job->k0 = job->k1) {
            job->k1 = min_i64(job->k0 + depth, g->k);
            kern_parallel(job->pool, (job->m1 - job->m0 + mr - 1) / mr, short_pack_task, job);
            kern_parallel(job->pool, (g->n + job->columns - 1) / job->columns, short_task, job);
        }
    }
}

// ---- flat ---------------------------------------------------------------------------------------
static void flat_task(void *context, int64_t index, int thread)
{
    const gemm_job *job = context;
    const gemm_args *g = job->args;
    const int64_t j = index * FLAT_COLUMNS, columns = min_i64(FLAT_COLUMNS, g->n - j);
    float *y = gemm_private(job, thread) + GEMM_TILE;
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
        if (g->check != NULL) gemm_check_row(g->check, row, i, j, columns);
        if (g->epilogue != NULL) g->epilogue(g->epilogue_context, row, i, j, columns);
        job->unit->store(gemm_c_at(g, i, j), g->c_type, row, columns);
    }
}

static bool is_flat(const gemm_job *job)
{
    const gemm_args *g = job->args;
    return job->unit->flat != NULL && g->m <= GEMM_FLAT_ROWS && g->b.row_stride == 1 &&
           g->a.column_stride == 1 && !g->accumulate && g->m * g->k <= GEMM_SCRATCH - GEMM_SHARED;
}

static void run_flat(gemm_job *job)
{
    const gemm_args *g = job->args;
    float *x = gemm_private(job, 0) + GEMM_SHARED;
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
    const int64_t columns = min_i64(DEEP_COLUMNS, g->n - j0), block = gemm_k_block(g->k);
    float *a = gemm_private(job, thread), *b = a + DEEP_B;
    const gemm_sums c = sums_begin(job, a + DEEP_TILE, i, j0, rows, columns);
    for (int64_t k = 0; k < g->k; k += block) {
        const int64_t kc = min_i64(block, g->k - k);
        gemm_pack_a(job, a, i, rows, k, kc);
        gemm_pack_b(job, b, j0, columns, k, kc);
        const gemm_sums from = gemm_starts_from_zero(job, k) ? (gemm_sums){0} : c;
        for (int64_t j = 0; j < columns; j += u->nr) {
            for (int64_t r = 0; r < rows; r += u->mr) {
                const gemm_tile t = {.a = a + r * kc,
                                     .b = b + j * kc,
                                     .kc = kc,
                                     .ahead = a,
                                     .rows = rows - r,
                                     .columns = columns - j,
                                     .later = {(const char *)a, 0}};
                gemm_multiply(u, &t, gemm_sums_at(from, r, j), gemm_sums_at(c, r, j));
            }
        }
    }
    gemm_sums_finish(job, c, i, j0, rows, columns);
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
            if (g->accumulate) u->load(row, gemm_c_at(g, i, j), g->c_type, columns);
            for (int64_t k = 0; k < g->k; k++) {
                const int64_t a_at = i * g->a.row_stride + k * g->a.column_stride;
                const float x = gemm_load_one(g->a.type, g->a.data, a_at);
                for (int64_t c = 0; c < columns; c++) {
                    const int64_t b_at = k * g->b.row_stride + (j + c) * g->b.column_stride;
                    row[c] = fmaf(x, gemm_load_one(g->b.type, g->b.data, b_at), row[c]);
                }
            }
            if (g->check != NULL) gemm_check_row(g->check, row, i, j, columns);
            if (g->epilogue != NULL) g->epilogue(g->epilogue_context, row, i, j, columns);
            u->store(gemm_c_at(g, i, j), g->c_type, row, columns);
        }
    }
}

static bool has_scratch(const gemm_job *job)
{
    return job->planned || kern_pool_scratch(job->pool, 0) != NULL;
}

// Whether a unit for bf16 computes the product: AMX through oneDNN, AVX-512 bf16 with our own
// kernels, because 4096 x 3072 x 768 and its gradients take 11 to 23% less time than with oneDNN
// 2.6 (Zen 4, 2026-11: bench/RESULTS.md).
static bool is_for_bf16_unit(const gemm_job *job, kern_level level)
{
    const gemm_args *g = job->args;
    const bool narrow = g->a.type == DTYPE_BF16 && g->b.type == DTYPE_BF16;
    const bool rounds = g->rounds && g->a.type != DTYPE_F16 && g->b.type != DTYPE_F16;
    // Sums by pairs use the unit whatever m is, because m depends on the layout.
    return (g->in_pairs || (g->any_order && g->m > GEMM_FLAT_ROWS)) && level >= KERN_AVX512_BF16 &&
           (narrow || rounds) && g->k > 0 && has_scratch(job);
}

static bool has_onednn(const gemm_job *job)
{
    int version[3];
    return job->planned ? kern_onednn_version(version) : pool_onednn(job->pool) != NULL;
}

static bool is_for_onednn(const gemm_job *job, kern_level level)
{
    const gemm_args *g = job->args;
    // There would be a primitive for every k, and the first ones alone would be kept.
    if (g->counted_k) return false;
    return is_for_bf16_unit(job, level) && g->any_order && level >= KERN_AMX &&
           g->a.type == DTYPE_BF16 && g->b.type == DTYPE_BF16 && has_onednn(job);
}

// ---- packed weights that are kept ---------------------------------------------------------------
enum { KEPT_PANELS = 8 }; // of a task

// Returns the unit whose panels GEMMs with such a B take at this level; NULL: no panels are kept
// for them.
static const gemm_unit *unit_of_kept(kern_level level, dtype type, bool any_order)
{
    if (type == DTYPE_F32) return gemm_unit_of(level);
    const bool narrow = type == DTYPE_BF16 && any_order && level == KERN_AVX512_BF16;
    return narrow ? &gemm_unit_avx512_bf16 : NULL;
}

int64_t gemm_panels_bytes(kern_level level, dtype type, bool any_order, int64_t n, int64_t k)
{
    const gemm_unit *u = unit_of_kept(level, type, any_order);
    if (u == NULL) return 0;
    return align_up(n, u->nr) * ((k + u->steps - 1) / u->steps) * (int64_t)sizeof(float);
}

typedef struct keeping {
    const gemm_job *job;
    float *panels;
} keeping;

static void keep_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const keeping *all = context;
    const gemm_args *g = all->job->args;
    const int64_t columns = (int64_t)KEPT_PANELS * all->job->unit->nr, j = index * columns;
    gemm_pack_b(all->job, all->panels + j * g->k, j, min_i64(columns, g->n - j), 0, g->k);
}

static void panels_fill(const kern_context *context, const gemm_args *args)
{
    const gemm_unit *u = unit_of_kept(context->level, args->b.type, args->any_order);
    ASSERT(u != NULL);
    gemm_args places = *args;
    places.k = (args->k + u->steps - 1) / u->steps;
    const gemm_job job = {.args = &places, .unit = u, .steps = args->k};
    keeping all = {&job, args->panels};
    const int64_t columns = (int64_t)KEPT_PANELS * u->nr;
    kern_parallel(context->pool, (args->n + columns - 1) / columns, keep_task, &all);
}

// ---- which driver -------------------------------------------------------------------------------
typedef enum driver { PLAIN, FLAT, SHORT, DEEP, TALL, DRIVER_COUNT } driver;

// Chooses the driver and the unit, and converts k to places: `places` lives as long as the job.
static driver driver_choose(gemm_job *job, kern_level level, gemm_args *places)
{
    const bool in_pairs = is_for_bf16_unit(job, level);
    *places = *job->args;
    job->args = places;
    if (in_pairs) {
        job->unit = &gemm_unit_avx512_bf16;
        places->k = (places->k + 1) / 2;
    }
    const gemm_args *g = places;
    if (g->k == 0 || !has_scratch(job)) return PLAIN;
    if (!in_pairs && is_flat(job)) return FLAT;
    if (!job->direct && g->k > DEEP_K) return DEEP;
    return g->m <= SHORT_ROWS || is_wide(job) ? SHORT : TALL;
}

static gemm_job job_of(const kern_context *context, const gemm_args *args)
{
    return (gemm_job){.args = args,
                      .unit = gemm_unit_of(context->level),
                      .steps = args->k,
                      .pool = context->pool,
                      .threads = kern_context_threads(context),
                      .planned = context->pool == NULL && context->threads > 0,
                      .direct = args->c_type == DTYPE_F32,
                      .streams = args->m * args->n * dtype_bytes(args->c_type) >= STREAM_BYTES};
}

bool gemm_may_finish(const kern_context *context, const gemm_args *args, bool along_rows)
{
    gemm_args places;
    gemm_job job = job_of(context, args);
    if (is_for_onednn(&job, context->level)) {
        return !along_rows && !job.direct; // else it may leave the product to us
    }
    const driver d = driver_choose(&job, context->level, &places);
    return !along_rows || d == PLAIN || d == TALL;
}

void gemm_run(const kern_context *context, const gemm_args *args)
{
    if (args->check == NULL || args->check->all == NULL || args->m == 0 || args->n == 0) {
        gemm_run_once(context, args);
        return;
    }
    const gemm_job job = job_of(context, args);
    gemm_run_checked(context, args, is_for_bf16_unit(&job, context->level));
}

void gemm_run_once(const kern_context *context, const gemm_args *args)
{
    ASSERT(args->m >= 0 && args->n >= 0 && args->k >= 0);
    ASSERT(args->ldc >= args->n);
    if (args->panels != NULL && args->fills) panels_fill(context, args);
    if (args->m == 0 || args->n == 0) return;
    gemm_args places;
    gemm_job job = job_of(context, args);
    if (is_for_onednn(&job, context->level) && onednn_run(pool_onednn(job.pool), job.pool, args)) {
        return;
    }
    const driver d = driver_choose(&job, context->level, &places);
    if (job.unit == unit_of_kept(context->level, args->b.type, args->any_order)) {
        job.kept = args->panels;
    }
    switch (d) {
    case PLAIN:
        run_plain(args, job.unit);
        return;
    case FLAT:
        run_flat(&job);
        return;
    case SHORT:
        run_short(&job);
        return;
    case DEEP:
        run_deep(&job);
        return;
    case TALL:
        gemm_run_tall(&job);
        return;
    case DRIVER_COUNT:
    default:
        ASSERT(false);
    }
}
