// DualPipe and DualPipe-V: every rank has two flows of micro-batches in opposite directions. A
// forward of one overlaps with a backward of the other, so that each hides the other's
// communication. Sources: DeepSeek-V3 report 2024, arXiv:2412.19437, section 3.2.1; the V is
// DualPipe cut in half: Sea AI Lab 2025; phases and their lengths are those of
// github.com/deepseek-ai/DualPipe.
//
//   dualpipe     two copies of the stages: chunk 0 of rank r is stage r of the flow down, chunk 1
//                stage P - 1 - r of the flow up. The first half of the micro-batches goes down.
//   dualpipe-v   one pipeline of 2 P stages in a V: all micro-batches go down through
//                chunks 0 and up through chunks 1. The lists are those of dualpipe without
//                the ranks of the lower half.
//
// A flow has D stages and n micro-batches; h is the distance from the nearer end of the ranks (in
// the V: the rank). A rank calls the nearer flow a and the other b, and its list is
//
//   2 (D/2 - h - 1)  Fa               D/2 - h - 1   Bb, Fb+Ba
//   h + 1            Fa Fb            h + 1         Bb Ba, the second half of them as Ib Ia
//   D/2 - h - 1      Ib Wb Fb         D/2 - h - 1   W Ia
//   n - D + h + 1    Fa+Bb, Fb+Ba     h + 1         W
//
// where the middle rank begins its fourth phase with a separate Fa and Bb. It holds at most D + 1
// micro-batches, and its bubble is (D/2 - 1) (F+B together + B - 3 W).
#include "plan/schedule/schedule_internal.h"

typedef struct writer {
    arena *a;
    schedule_list *out;
    int32_t chunk[2];   // of flows a and b
    int32_t base[2];    // [flow] its first micro-batch
    int32_t forward[2]; // [flow] forwards so far
    int32_t backward[2];
    schedule_action *waiting; // I with W pending, oldest first
    int64_t waiting_begin, waiting_end;
} writer;

enum { A, B };

static status forward(writer *w, int flow)
{
    return schedule_push(w->a, w->out, SCHEDULE_FORWARD, w->chunk[flow],
                         w->base[flow] + w->forward[flow]++);
}

static status backward(writer *w, int flow, bool put_off)
{
    const int32_t chunk = w->chunk[flow], i = w->base[flow] + w->backward[flow]++;
    if (!put_off) return schedule_push(w->a, w->out, SCHEDULE_BACKWARD, chunk, i);
    w->waiting[w->waiting_end++] = (schedule_action){.chunk = chunk, .microbatch = i};
    return schedule_push(w->a, w->out, SCHEDULE_BACKWARD_INPUT, chunk, i);
}

static status weights(writer *w)
{
    ASSERT(w->waiting_begin < w->waiting_end);
    const schedule_action x = w->waiting[w->waiting_begin++];
    return schedule_push(w->a, w->out, SCHEDULE_BACKWARD_WEIGHT, x.chunk, x.microbatch);
}

static status both(writer *w, int flow_f, int flow_b)
{
    return schedule_push_both(w->a, w->out, w->chunk[flow_f],
                              w->base[flow_f] + w->forward[flow_f]++, w->chunk[flow_b],
                              w->base[flow_b] + w->backward[flow_b]++);
}

// n: micro-batches of each flow. h: see above. far: D/2 - h - 1, ranks from here to the middle.
static status fill(writer *w, int32_t n, int32_t h, int32_t far)
{
    for (int32_t i = 0; i < 2 * far; i++) TRY(forward(w, A));
    for (int32_t i = 0; i <= h; i++) {
        TRY(forward(w, A));
        TRY(forward(w, B));
    }
    for (int32_t i = 0; i < far; i++) {
        TRY(backward(w, B, true));
        TRY(weights(w));
        TRY(forward(w, B));
    }
    const int32_t depth = 2 * (far + h + 1);
    for (int32_t i = 0; i < n - depth + h + 1; i++) {
        if (i == 0 && far == 0) {
            TRY(forward(w, A));
            TRY(backward(w, B, false));
        } else {
            TRY(both(w, A, B));
        }
        TRY(both(w, B, A));
    }
    return ST_OK;
}

static status drain(writer *w, int32_t h, int32_t far)
{
    for (int32_t i = 0; i < far; i++) {
        TRY(backward(w, B, false));
        TRY(both(w, B, A));
    }
    // The last h + 1 of these 2 (h + 1) backwards put off their weight gradients.
    for (int32_t i = 0; i < 2 * (h + 1); i++) {
        TRY(backward(w, i % 2 == 0 ? B : A, i >= h + 1));
    }
    for (int32_t i = 0; i < far; i++) {
        TRY(weights(w));
        TRY(backward(w, A, true));
    }
    while (w->waiting_begin < w->waiting_end) TRY(weights(w));
    return ST_OK;
}

static status emit(const plan_schedule *self, const schedule_request *r, int32_t rank, arena *a,
                   schedule_list *out)
{
    const bool two = self->shape == SHAPE_TWO;
    const bool lower = two && rank >= r->stages / 2; // nearer to the last rank: flow a goes up
    const int32_t h = lower ? r->stages - 1 - rank : rank;
    const int32_t far = (two ? r->stages / 2 : r->stages) - h - 1;
    const int32_t n = two ? r->microbatches / 2 : r->microbatches;
    writer w = {.a = a, .out = out};
    w.chunk[A] = lower ? 1 : 0;
    w.chunk[B] = 1 - w.chunk[A];
    if (two) w.base[lower ? A : B] = n;
    TRY(arena_new(a, 2 * far + h + 1, &w.waiting));
    TRY(fill(&w, n, h, far));
    TRY(drain(&w, h, far));
    ASSERT(w.forward[A] == n && w.forward[B] == n && w.backward[A] == n && w.backward[B] == n);
    return ST_OK;
}

static status check_two(const plan_schedule *self, const schedule_request *r)
{
    const int32_t ranks = r->stages, m = r->microbatches;
    if (ranks % 2 != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.pp: %s has pipelines that meet in the middle of an even number of stages, and "
            "%d is odd; take %d or %d, or layout.schedule=dualpipe-v",
            self->name, ranks, ranks > 1 ? ranks - 1 : 2, ranks + 1);
    }
    if (m < 2 * ranks || m % 2 != 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.schedule: %s needs an even number of micro-batches, twice layout.pp=%d or "
            "more, and the step has %d; the nearest is %d",
            self->name, ranks, m, m < 2 * ranks ? 2 * ranks : m + 1);
    }
    return ST_OK;
}

static status check_v(const plan_schedule *self, const schedule_request *r)
{
    if (r->microbatches >= 2 * r->stages) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "layout.schedule: %s needs twice layout.pp=%d micro-batches or more, and the step has "
        "%d; the nearest is %d",
        self->name, r->stages, r->microbatches, 2 * r->stages);
}

const plan_schedule plan_schedule_dualpipe = {
    .name = "dualpipe",
    .about = "two copies of the stages, a stream in each direction (DeepSeek-V3 2024, "
             "arXiv:2412.19437)",
    .shape = SHAPE_TWO,
    .chunks_min = 2,
    .chunks_max = 2,
    .splits_backward = true,
    .check = check_two,
    .emit = emit,
};

const plan_schedule plan_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .about = "DualPipe cut in half: one pipeline folded into a V (Sea AI Lab and DeepSeek 2025)",
    .shape = SHAPE_V,
    .chunks_min = 2,
    .chunks_max = 2,
    .splits_backward = true,
    .check = check_v,
    .emit = emit,
};
