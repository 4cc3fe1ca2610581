// ZB-V: two chunks per rank in a V, so that the first and the last stage are on one rank. All ranks
// have equal work and equal activations, and none waits. Source: Qi et al. 2024, arXiv:2401.10241,
// section 6, whose greedy search finds these lists; this file writes its result directly.
//
// F, I and W belong to chunk 0, f, i and w to chunk 1. With equal times no list has a gap:
//
//   2 (P - r) - 1 times F, then f, r times F f        until the first gradient arrives
//   P - 1 - r times  i w f, then i w
//   m - P times      F I W f i w                      without F when there are no more
//   the last of them without its i w, then r + 1 times i I
//   P - 1 - r times  W I                              W: the oldest that waits, of either chunk
//   all W that are left
//
//   P = 2, m = 4   rank 0   F F F f i w f i w F I W f i w I W f i I w I W W
//                  rank 1   . F f F f i w F I W f i w F I W f i I i I w W w W
//
// Every rank holds at most 2 P micro-batches x chunks. Without the optimizer's barrier there is no
// bubble with 2 P - 1 micro-batches or more. With fewer, the lists skip actions that do not exist.
#include "plan/schedule/schedule_internal.h"

typedef struct writer {
    const schedule_request *r;
    arena *a;
    schedule_list *out;
    int32_t forwards[2], inputs[2], weights[2]; // [chunk] done
    uint8_t *waiting;                           // chunks with W pending, oldest first
    int64_t waiting_begin, waiting_end;
} writer;

static status forward(writer *w, int32_t chunk)
{
    if (w->forwards[chunk] == w->r->microbatches) return ST_OK;
    return schedule_push(w->a, w->out, SCHEDULE_FORWARD, chunk, w->forwards[chunk]++);
}

static status input(writer *w, int32_t chunk)
{
    if (w->inputs[chunk] == w->r->microbatches) return ST_OK;
    w->waiting[w->waiting_end++] = (uint8_t)chunk;
    return schedule_push(w->a, w->out, SCHEDULE_BACKWARD_INPUT, chunk, w->inputs[chunk]++);
}

static status weights(writer *w)
{
    if (w->waiting_begin == w->waiting_end) return ST_OK;
    const int32_t chunk = w->waiting[w->waiting_begin++];
    return schedule_push(w->a, w->out, SCHEDULE_BACKWARD_WEIGHT, chunk, w->weights[chunk]++);
}

static status fill(writer *w, int32_t rank)
{
    const int32_t ranks = w->r->stages;
    for (int32_t k = 0; k < 2 * (ranks - rank) - 1; k++) TRY(forward(w, 0));
    TRY(forward(w, 1));
    for (int32_t k = 0; k < rank; k++) {
        TRY(forward(w, 0));
        TRY(forward(w, 1));
    }
    for (int32_t k = 0; k < ranks - rank; k++) {
        TRY(input(w, 1));
        TRY(weights(w));
        if (k < ranks - rank - 1) TRY(forward(w, 1));
    }
    return ST_OK;
}

static status drain(writer *w, int32_t rank)
{
    const int32_t ranks = w->r->stages;
    for (int32_t k = 0; k <= rank; k++) {
        TRY(input(w, 1));
        TRY(input(w, 0));
    }
    for (int32_t k = 0; k < ranks - rank - 1; k++) {
        TRY(weights(w));
        TRY(input(w, 0));
    }
    while (w->waiting_begin < w->waiting_end) TRY(weights(w));
    return ST_OK;
}

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    (void)self;
    writer w = {.r = r, .a = a, .out = out};
    TRY(arena_new(a, 2 * (int64_t)r->microbatches, &w.waiting));
    TRY(fill(&w, rank));
    for (int32_t k = 0; k < r->microbatches - r->stages; k++) {
        TRY(forward(&w, 0));
        TRY(input(&w, 0));
        TRY(weights(&w));
        TRY(forward(&w, 1));
        if (k == r->microbatches - r->stages - 1) break; // the rest is done in drain()
        TRY(input(&w, 1));
        TRY(weights(&w));
    }
    return drain(&w, rank);
}

const plan_schedule plan_schedule_zb_v = {
    .name = "zb-v",
    .about = "two chunks per rank folded into a V, no bubble in 1F1B's memory (Qi et al. 2024, "
             "arXiv:2401.10241)",
    .shape = SHAPE_V,
    .chunks_min = 2,
    .chunks_max = 2,
    .splits_backward = true,
    .emit = emit,
};
