// Interleaved 1F1B: each rank has V chunks of the model, P stages apart, and works on P
// micro-batches of one chunk before it goes on to the next. The bubble is that of 1F1B divided by
// V, with V times its messages. Source: Narayanan et al. 2021, section 2.2.2, arXiv:2104.04473 (the
// order is Megatron's).
//
//   P = 2, V = 2        chunk.micro-batch
//   rank 0   F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 ...
//
// The k-th forward of a rank is of chunk (k / P) mod V; its k-th backward is of the chunk as far
// from the end. Rounds of P V actions take P micro-batches through all chunks, so their number must
// be a multiple of P.
#include "plan/schedule/schedule_internal.h"

static status check(const plan_schedule *self, const schedule_request *r)
{
    const int32_t ranks = r->stages, m = r->microbatches, below = m / ranks * ranks;
    if (below == m) return ST_OK;
    if (below == 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.schedule: %s works on layout.pp=%d micro-batches at a time, and the step "
            "has %d; take a multiple (%d), or layout.schedule=1f1b",
            self->name, ranks, m, ranks);
    }
    return fail(
        ST_CONFIG_CONFLICT,
        "layout.schedule: %s works on layout.pp=%d micro-batches at a time, and the step has "
        "%d; take a multiple (%d or %d), or layout.schedule=1f1b",
        self->name, ranks, m, below, below + ranks);
}

static status push(arena *a, schedule_list *out, const schedule_request *r, schedule_kind kind,
                   int64_t k)
{
    const int64_t ranks = r->stages, chunks = r->chunks, round = k / (ranks * chunks);
    const int64_t chunk = k % (ranks * chunks) / ranks;
    return schedule_push(a, out, kind,
                         (int32_t)(kind == SCHEDULE_FORWARD ? chunk : chunks - 1 - chunk),
                         (int32_t)(round * ranks + k % ranks));
}

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    (void)self;
    const int64_t ranks = r->stages, chunks = r->chunks, total = r->microbatches * chunks;
    const int64_t ahead = min_i64(total, (ranks - 1 - rank) * 2 + (chunks - 1) * ranks);
    for (int64_t k = 0; k < ahead; k++) TRY(push(a, out, r, SCHEDULE_FORWARD, k));
    for (int64_t k = 0; k < total; k++) {
        if (ahead + k < total) TRY(push(a, out, r, SCHEDULE_FORWARD, ahead + k));
        TRY(push(a, out, r, SCHEDULE_BACKWARD, k));
    }
    return ST_OK;
}

const plan_schedule plan_schedule_interleaved = {
    .name = "interleaved",
    .about = "1F1B with several chunks of the model per rank (Narayanan et al. 2021, "
             "arXiv:2104.04473)",
    .shape = SHAPE_LOOP,
    .chunks_min = 2,
    .chunks_max = SCHEDULE_MAX_CHUNKS,
    .check = check,
    .emit = emit,
};
