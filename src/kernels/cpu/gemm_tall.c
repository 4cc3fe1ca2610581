// GEMMs with many rows: a stream of tasks without barriers.
//
// B is packed into the shared panel in passes: some columns, some steps of k. A pass has tasks that
// pack its part of B, and tasks that take up to 72 rows of A each, pack them for themselves and
// multiply them with the whole panel, some columns at a time, with sums in a private tile (L2):
//
//     for columns j of the pass, COLUMNS at a time:   tile = C[rows, j] or 0
//       for k of the pass, GEMM_KC at a time:         tile += A[rows, k] B[k, j]
//                                                     C[rows, j] = tile, by whole rows
//
// The panel has two halves, for this pass and the next one. All tasks of a GEMM form one list, and
// every thread takes the next task of it:
//
//     pack 0 | rows of pass 0, among them pack 1 | rows of pass 1, among them pack 2 | ..
//
// A task waits only for earlier ones (its panel is packed; the half that it packs is free; the pass
// before is done with its rows), so the first unfinished task of the list never waits: a thread
// that sleeps or is slow delays the others by one task at most. Waits are rare, because a task
// waits only for tasks that began a pass earlier. With packed weights that are kept
// (gemm_args.panels) the passes remain, for the caches, but no task packs. With barriers between
// the passes two threads of a Zen 3 waited 4% of the time of 4096 x 3072 x 768, 13% of 768 x 768 x
// 4096 and 16% of 320 x 768 x 50257 (2026-11).
#include "kernels/cpu/gemm_job.h"

#include "base/spin.h"

#include <sched.h>
#include <stdatomic.h>

enum {
    ROWS = 72,    // per task: panels of A of 147 KiB and a tile of sums of 152 KiB fit an L2 of 512
    DEPTH = 1024, // at most this much of k in a pass where C is fp32
    PANELS = 8,   // of B, packed by one task
    COLUMNS = GEMM_PIECE,  // of the private tile
    STRIDE = COLUMNS + 16, // so that its rows do not fall on one set of a cache
    SLOTS = 2,
    MOST_ROWS = 1 << 20, // of one stream
    MOST_BLOCKS = (GEMM_SHARED - GEMM_DONE) / 2,
};
_Static_assert(ROWS *DEPTH <= GEMM_TILE, "the panels of a task fit");
_Static_assert(GEMM_TILE + ROWS * STRIDE <= GEMM_DONE, "its tile fits");
_Static_assert(MOST_ROWS / ROWS + KERN_MAX_THREADS <= MOST_BLOCKS, "all blocks have a counter");
_Static_assert(sizeof(_Atomic(int64_t)) == 2 * sizeof(float), "of two places each");

typedef struct tall_stream {
    gemm_job job;         // of no pass
    int64_t depth, width; // of a pass: steps of k, columns
    int64_t k_passes, passes;
    int64_t slots;         // 1 where one pass is all, or where the panel is too deep for two
    int64_t slot_panels;   // in the scratch of each thread
    int64_t groups;        // tasks that pack a pass
    int64_t blocks;        // tasks that multiply in a pass, one below the other
    int64_t lead;          // of these come before the next pass is packed, and as many after
    _Atomic(int64_t) next; // task
    _Atomic(int64_t) packed[SLOTS], multiplied[SLOTS]; // tasks done in a slot, of all its passes
    _Atomic(int64_t) *done;                            // passes done with, by block
} tall_stream;

static gemm_job pass_of(const tall_stream *s, int64_t pass)
{
    gemm_job job = s->job;
    const gemm_args *g = job.args;
    job.n0 = pass / s->k_passes * s->width;
    job.n1 = min_i64(job.n0 + s->width, g->n);
    job.k0 = pass % s->k_passes * s->depth;
    job.k1 = min_i64(job.k0 + s->depth, g->k);
    return job;
}

// Panel `index` of a pass, in shared scratch. The panels of a slot are distributed over the
// threads' scratch, one after the other.
static float *shared_panel(const tall_stream *s, const gemm_job *job, int64_t slot, int64_t index)
{
    const int64_t nr = job->unit->nr, before = slot * s->slot_panels * nr * s->depth;
    const int64_t at = before + index % s->slot_panels * nr * (job->k1 - job->k0);
    return gemm_private(job, (int)(index / s->slot_panels)) + GEMM_SHARED + at;
}

static const float *panel_of(const tall_stream *s, const gemm_job *job, int64_t slot, int64_t index)
{
    if (job->kept != NULL) {
        return gemm_kept_panel(job, job->n0 + index * job->unit->nr, job->k0);
    }
    return shared_panel(s, job, slot, index);
}

static void await(const _Atomic(int64_t) *word, int64_t least)
{
    enum { SPINS = 1000 };
    for (int spins = 0; atomic_load_explicit(word, memory_order_acquire) < least;) {
        if (spins++ < SPINS) {
            spin_pause();
        } else {
            (void)sched_yield(); // the core may be wanted by the one that is waited for
        }
    }
}

// ---- B ------------------------------------------------------------------------------------------
// Packs some neighbouring panels at once: if the columns of B are contiguous, it reads whole pieces
// of rows.
static void group_pack(tall_stream *s, int64_t pass, int64_t index)
{
    const gemm_job job = pass_of(s, pass);
    const int64_t nr = job.unit->nr, per_thread = (s->slot_panels + PANELS - 1) / PANELS;
    const int64_t at = index % per_thread * PANELS;
    const int64_t panel = index / per_thread * s->slot_panels + at, j = job.n0 + panel * nr;
    const int64_t panels = min_i64(PANELS, s->slot_panels - at), slot = pass % s->slots;
    await(&s->multiplied[slot], pass / s->slots * s->blocks);
    if (j < job.n1) {
        gemm_pack_b(&job, shared_panel(s, &job, slot, panel), j, min_i64(panels * nr, job.n1 - j),
                    job.k0, job.k1 - job.k0);
    }
    (void)atomic_fetch_add_explicit(&s->packed[slot], 1, memory_order_acq_rel);
}

// ---- rows ---------------------------------------------------------------------------------------
// The part of the result that a task computes at a time.
typedef struct tall_piece {
    const tall_stream *stream;
    const gemm_job *job;
    int64_t slot;
    int64_t i, rows, j, columns;
    float *a; // panels of A: of this pass (`is_strip`), or of a block of k
    bool is_strip, is_packed;
    gemm_sums tile;
    gemm_queue *later;
} tall_piece;

static void piece_block(const tall_piece *p, const float *a, int64_t k, int64_t kc, gemm_sums from)
{
    const gemm_job *job = p->job;
    const gemm_unit *u = job->unit;
    for (int64_t j = 0; j < p->columns; j += u->nr) {
        const int64_t panel = (p->j + j - job->n0) / u->nr;
        const int64_t next = p->j + j + u->nr < job->n1 ? panel + 1 : panel;
        const float *b = panel_of(p->stream, job, p->slot, panel) + k * u->nr;
        const float *ahead = panel_of(p->stream, job, p->slot, next) + k * u->nr;
        const float *const end = ahead + kc * u->nr;
        for (int64_t r = 0; r < p->rows; r += u->mr) {
            const gemm_tile t = {a + r * kc,
                                 b,
                                 kc,
                                 ahead,
                                 p->rows - r,
                                 p->columns - j,
                                 gemm_queue_take(p->later, kc)};
            gemm_multiply(u, &t, gemm_sums_at(from, r, j), gemm_sums_at(p->tile, r, j));
            ahead = ahead + u->ahead * kc < end ? ahead + u->ahead * kc : b;
        }
    }
}

// Between the blocks of k the sums are kept in the private tile, in the L2 cache. From there they
// are stored to C row by row: the micro-kernel would store lines of C in scattered order, which
// costs 4% of a GEMM of 1024 x 3072 x 768 (Zen 3, 2026-11).
static void piece_run(const tall_piece *p)
{
    const gemm_job *job = p->job;
    const int64_t depth = job->k1 - job->k0, block = gemm_k_block(depth);
    const bool from_zero = gemm_starts_from_zero(job, job->k0);
    const int64_t height = align_up(p->rows, job->unit->mr);
    if (!from_zero) gemm_sums_load(job, p->tile, p->i, p->j, p->rows, p->columns);
    for (int64_t k = 0; k < depth; k += block) {
        const int64_t kc = min_i64(block, depth - k);
        float *a = p->a + (p->is_strip ? height * k : 0);
        gemm_sums from = p->tile;
        if (k == 0 && from_zero) from.at = NULL;
        if (!p->is_packed) gemm_pack_a(job, a, p->i, p->rows, job->k0 + k, kc);
        piece_block(p, a, k, kc, from);
    }
    gemm_sums_finish(job, p->tile, p->i, p->j, p->rows, p->columns);
}

// Returns the first row of block `index`, in whole panels: blocks differ by one panel at most.
static int64_t block_row(const tall_stream *s, int64_t index)
{
    const int64_t mr = s->job.unit->mr, rows = s->job.m1 - s->job.m0, panels = (rows + mr - 1) / mr;
    return s->job.m0 + min_i64(panels * index / s->blocks * mr, rows);
}

// Returns the rows that this thread will probably take next.
static gemm_queue later_of(const tall_stream *s, const gemm_job *job, int64_t index)
{
    gemm_queue q = {.count = 0};
    const int64_t next = index + kern_pool_threads(job->pool);
    if (next >= s->blocks) return q;
    const int64_t i = block_row(s, next), rows = block_row(s, next + 1) - i;
    q.regions[q.count++] = gemm_region_a(job, i, rows, job->k0, job->k1 - job->k0);
    if (!gemm_starts_from_zero(job, job->k0)) {
        q.regions[q.count++] = gemm_region_c(job, i, rows, job->n0, job->n1 - job->n0);
    }
    return q;
}

static void block_multiply(tall_stream *s, int64_t pass, int64_t index, int thread)
{
    const gemm_job job = pass_of(s, pass);
    gemm_queue later = later_of(s, &job, index);
    const int64_t i = block_row(s, index), rows = block_row(s, index + 1) - i;
    const int64_t slot = pass % s->slots;
    float *a = gemm_private(&job, thread);
    tall_piece p = {.stream = s,
                    .job = &job,
                    .slot = slot,
                    .i = i,
                    .rows = rows,
                    .a = a,
                    .tile = {.at = a + GEMM_TILE, .stride = STRIDE},
                    .later = &later};
    p.is_strip = align_up(rows, job.unit->mr) * (job.k1 - job.k0) <= GEMM_TILE;
    await(&s->packed[slot], (pass / s->slots + 1) * s->groups);
    await(&s->done[index], pass);
    for (p.j = job.n0; p.j < job.n1; p.j += p.columns) {
        p.columns = min_i64(COLUMNS, job.n1 - p.j);
        piece_run(&p);
        p.is_packed = p.is_strip;
    }
    (void)atomic_fetch_add_explicit(&s->done[index], 1, memory_order_acq_rel);
    (void)atomic_fetch_add_explicit(&s->multiplied[slot], 1, memory_order_acq_rel);
}

// ---- the list -----------------------------------------------------------------------------------
// Returns how many of the first x tasks of a pass pack the next pass. None of the first and none of
// the last tasks do, so that no task waits for one that has only just begun.
static int64_t packs_before(const tall_stream *s, int64_t x)
{
    const int64_t middle = s->blocks + s->groups - 2 * s->lead;
    const int64_t packs = s->slots == 1 ? x - s->blocks : (x - s->lead) * s->groups / middle;
    return packs < 0 ? 0 : min_i64(packs, s->groups);
}

static void stream_task(void *context, int64_t index, int thread)
{
    (void)index;
    tall_stream *s = context;
    const int64_t each = s->blocks + s->groups, count = s->passes * each;
    for (;;) {
        const int64_t at = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (at >= count) return;
        if (at < s->groups) {
            group_pack(s, 0, at);
            continue;
        }
        const int64_t pass = (at - s->groups) / each, x = (at - s->groups) % each;
        const bool is_last = pass == s->passes - 1;
        const int64_t packs = is_last ? 0 : packs_before(s, x);
        if (!is_last && packs_before(s, x + 1) > packs) {
            group_pack(s, pass + 1, packs);
        } else {
            block_multiply(s, pass, x - packs, thread);
        }
    }
}

// Returns the number of tasks of at most ROWS rows, the same for every thread.
static int64_t blocks_of(int64_t m, int64_t mr, int threads)
{
    const int64_t panels = (m + mr - 1) / mr, most = ROWS / mr;
    const int64_t rounds = (panels + threads * most - 1) / (threads * most);
    return min_i64(panels, rounds * threads);
}

static void stream_run(tall_stream *s)
{
    const gemm_job *job = &s->job;
    const gemm_args *g = job->args;
    const int threads = kern_pool_threads(job->pool);
    const int64_t nr = job->unit->nr;
    s->k_passes = job->direct ? (g->k + DEPTH - 1) / DEPTH : 1;
    s->depth = align_up((g->k + s->k_passes - 1) / s->k_passes, 8);
    const int64_t capacity =
        (GEMM_SCRATCH - GEMM_SHARED) / (nr * s->depth); // panels, in each thread's
    ASSERT(capacity > 0);
    s->slots = capacity >= SLOTS && (s->k_passes > 1 || g->n > capacity * threads * nr) ? SLOTS : 1;
    s->slot_panels = capacity / s->slots;
    const int64_t most = s->slot_panels * threads * nr, n_passes = (g->n + most - 1) / most;
    s->width = align_up((g->n + n_passes - 1) / n_passes, nr);
    s->passes = n_passes * s->k_passes;
    s->groups = job->kept != NULL ? 0 : (s->slot_panels + PANELS - 1) / PANELS * threads;
    s->blocks = blocks_of(job->m1 - job->m0, job->unit->mr, threads);
    s->lead = min_i64(threads, s->blocks / 4);
    s->done = (void *)(gemm_private(job, 0) + GEMM_DONE);
    ASSERT(s->blocks <= MOST_BLOCKS);
    for (int64_t i = 0; i < s->blocks; i++) atomic_init(&s->done[i], 0);
    kern_parallel(job->pool, threads, stream_task, s);
}

void gemm_run_tall(const gemm_job *job)
{
    for (int64_t m = 0; m < job->args->m; m += MOST_ROWS) {
        tall_stream s = {.job = *job};
        s.job.m0 = m;
        s.job.m1 = min_i64(m + MOST_ROWS, job->args->m);
        stream_run(&s);
    }
}
