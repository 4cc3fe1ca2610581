// A list of prompts longer than the number of slots: each starts as soon as a slot is free.
//
//   slot 0   prompt 0 . . . . . . . | prompt 3 . . .
//   slot 1   prompt 1 . . | prompt 2 . . . . . . . .
#include "infer/infer.h"

typedef struct seat {
    int64_t prompt; // -1: free
    int64_t drawn;
    int32_t last;
} seat;

typedef struct running {
    infer *g;
    const infer_prompt *prompts;
    int64_t count, entered;
    const infer_watcher *watcher;
    seat *seats;
    infer_turn *turns;
} running;

static bool stopped(const running *r)
{
    return r->watcher->stop != NULL && r->watcher->stop(r->watcher->context);
}

// Reports the token that a seat drew, and frees the seat if that was its last token.
static status told(running *r, seat *s, int32_t id)
{
    bool ends = false;
    s->last = id;
    s->drawn++;
    TRY(r->watcher->drawn(r->watcher->context, s->prompt, id, &ends));
    if (!ends && s->drawn < r->prompts[s->prompt].max_tokens) return ST_OK;
    s->prompt = -1;
    return infer_slot_end(r->g, s - r->seats);
}

// Starts prompts in free seats; one that ends with its first token frees the seat for the next.
static status enter(running *r)
{
    const int64_t slots = infer_slots(r->g);
    for (int64_t b = 0; b < slots; b++) {
        seat *s = &r->seats[b];
        while (s->prompt < 0 && r->entered < r->count && !stopped(r)) {
            const infer_prompt *p = &r->prompts[r->entered];
            int32_t id = 0;
            if (!infer_fits(r->g, p->ids, p->count)) return ST_OK;
            *s = (seat){.prompt = r->entered++};
            if (r->watcher->begun != NULL) TRY(r->watcher->begun(r->watcher->context, s->prompt));
            TRY(infer_slot_begin(r->g, b, &p->sampling, p->ids, p->count, &id));
            TRY(told(r, s, id));
        }
    }
    return ST_OK;
}

static status all(running *r)
{
    const int64_t slots = infer_slots(r->g);
    for (;;) {
        TRY(enter(r));
        int64_t n = 0;
        for (int64_t b = 0; b < slots; b++) {
            if (r->seats[b].prompt < 0) continue;
            r->turns[n++] = (infer_turn){.slot = b, .id = r->seats[b].last};
        }
        if (n == 0 || stopped(r)) return ST_OK;
        TRY(infer_slots_next(r->g, r->turns, n));
        for (int64_t i = 0; i < n; i++) {
            const infer_turn *turn = &r->turns[i];
            if (turn->next >= 0) TRY(told(r, &r->seats[turn->slot], turn->next));
        }
    }
}

status infer_run(infer *g, const infer_prompt *prompts, int64_t count, const infer_watcher *watcher)
{
    running r = {.g = g, .prompts = prompts, .count = count, .watcher = watcher};
    const int64_t slots = infer_slots(g);
    arena *work = NULL;
    TRY(arena_create("prompts", 0, &work));
    status st = arena_new(work, slots, &r.seats);
    if (st == ST_OK) st = arena_new(work, slots, &r.turns);
    for (int64_t b = 0; b < slots && st == ST_OK; b++) r.seats[b].prompt = -1;
    if (st == ST_OK) st = all(&r);
    arena_destroy(work);
    return st;
}
