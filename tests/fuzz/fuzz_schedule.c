// Fuzz entry: a pipeline schedule from any bytes. What is read is validated and played; what can be
// played must print and read back to the same text. What is refused must be the user's fault (exit
// 3).
#include "plan/schedule/timeline.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(status st)
{
    ASSERT(status_exit_code(st) == 3 || st == ST_NO_MEMORY);
    const char *message = error_last()->text;
    ASSERT(message[0] != '\0');
    ASSERT(text_is_utf8(message, (int64_t)strlen(message)));
}

// The sizes that the lists have: asked for until they fit.
static bool request_of(const plan_schedule *s, schedule_request *r)
{
    *r = (schedule_request){.chunks = s->chunks_min};
    for (r->stages = 1; r->stages <= 64; r->stages++) {
        for (r->microbatches = 1; r->microbatches <= 64; r->microbatches++) {
            if (plan_schedule_check(s, r) == ST_OK) return true;
        }
    }
    return false;
}

static status read_and_play(arena *a, const char *bytes, int64_t length)
{
    const timeline_costs costs = {.each = {1, 1, 1}};
    const plan_schedule *s, *again;
    schedule_request r;
    plan_timeline *t;
    text one = {.a = a}, two = {.a = a};
    TRY(plan_schedule_parse(a, "fuzz", bytes, length, &s));
    if (!request_of(s, &r)) return ST_OK;
    TRY(plan_timeline_simulate(a, s, &r, &costs, &t));
    ASSERT(t->length > 0 && t->bubble >= 0 && t->barrier >= 0);
    TRY(plan_schedule_print(s, &r, &one));
    const status st = plan_schedule_parse(a, "fuzz", one.bytes, one.length, &again);
    ASSERT(st == ST_OK);
    TRY(plan_schedule_print(again, &r, &two));
    ASSERT(strcmp(one.bytes, two.bytes) == 0);
    return ST_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a;
    if (arena_create("fuzz", (int64_t)1 << 28, &a) != ST_OK) return 0;
    const status st = read_and_play(a, (const char *)data, (int64_t)size);
    if (st != ST_OK) check_refusal(st);
    arena_destroy(a);
    return 0;
}
