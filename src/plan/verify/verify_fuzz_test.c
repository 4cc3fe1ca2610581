// Changes one value of a plan at random: the verifier refuses the plan or finds the change
// harmless, and it never crashes.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct dice {
    uint64_t state;
} dice;

static int32_t roll(dice *d, int64_t sides)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return sides <= 0 ? 0 : (int32_t)((d->state >> 33) % (uint64_t)sides);
}

// Returns a number near the old one, or any number.
static int32_t other(dice *d, int32_t old)
{
    static const int32_t steps[] = {1, -1, 2, -2, 7, -7};
    if (roll(d, 4) != 0) return old + steps[roll(d, COUNT_OF(steps))];
    return roll(d, 3) == 0 ? roll(d, 2000) - 1000 : roll(d, 40) - 8;
}

static int64_t other_64(dice *d, int64_t old)
{
    static const int64_t steps[] = {64, -64, 4, -4, 4096, -4096, 1, 1 << 20};
    return roll(d, 4) != 0 ? old + steps[roll(d, COUNT_OF(steps))] : old * 2;
}

static void action_change(plan_action *a, dice *d)
{
    switch (roll(d, 12)) {
    case 0:
        a->stream = other(d, a->stream);
        return;
    case 1:
        a->microbatch = other(d, a->microbatch);
        return;
    case 2:
        a->binding = other(d, a->binding);
        return;
    case 3:
        a->list = other(d, a->list);
        return;
    case 4:
        a->ops_begin = other(d, a->ops_begin);
        return;
    case 5:
        a->ops_count = other(d, a->ops_count);
        return;
    case 6:
        a->sequence_begin = other(d, a->sequence_begin);
        return;
    case 7:
        a->sequence_count = other(d, a->sequence_count);
        return;
    case 8:
        a->accumulate = !a->accumulate;
        return;
    case 9:
        a->waits_count = other(d, a->waits_count);
        return;
    case 10:
        a->kind = (action_kind)roll(d, ACTION_KIND_COUNT + 1);
        return;
    default:
        a->comm = other(d, a->comm);
        return;
    }
}

static void comm_change(plan_comm *c, dice *d)
{
    switch (roll(d, 9)) {
    case 0:
        c->op = (op_collective)roll(d, COLLECTIVE_COUNT);
        return;
    case 1:
        c->reduction = (op_reduction)roll(d, REDUCTION_COUNT);
        return;
    case 2:
        c->group = other(d, c->group);
        return;
    case 3:
        c->peer = other(d, c->peer);
        return;
    case 4:
        c->type = (dtype)roll(d, DTYPE_COUNT);
        return;
    case 5:
        c->items_begin = other(d, c->items_begin);
        return;
    case 6:
        c->items_count = other(d, c->items_count);
        return;
    case 7:
        c->leaves_begin = other(d, c->leaves_begin);
        return;
    default:
        c->leaves_count = other(d, c->leaves_count);
        return;
    }
}

static void item_change(plan_comm_item *i, dice *d)
{
    switch (roll(d, 5)) {
    case 0:
        i->in = other(d, i->in);
        return;
    case 1:
        i->out = other(d, i->out);
        return;
    case 2:
        i->in_offset = other_64(d, i->in_offset);
        return;
    case 3:
        i->out_offset = other_64(d, i->out_offset);
        return;
    default:
        i->count = other_64(d, i->count);
        return;
    }
}

static void plan_change(plan *p, dice *d)
{
    const int what = roll(d, 12);
    if (what < 4) {
        action_change(&p->actions[roll(d, p->action_count)], d);
    } else if (what < 6) {
        comm_change(&p->comms[roll(d, p->comm_count)], d);
    } else if (what < 8) {
        item_change(&p->items[roll(d, p->item_count)], d);
    } else if (what < 10) {
        int32_t *wait = &p->waits[roll(d, p->wait_count)];
        *wait = other(d, *wait);
    } else {
        plan_tensor *t = what == 10 ? &p->tensors[roll(d, p->tensor_count)]
                                    : &p->run->tensors[roll(d, p->run->count)];
        t->offset = other_64(d, t->offset);
    }
}

static void what_is_changed_is_refused_or_harmless(void **state)
{
    (void)state;
    enum { PLANS = 600 };
    int refused = 0;
    for (int k = 0; k < PLANS; k++) {
        dice d = {.state = (uint64_t)k * 7919 + 3};
        for (int i = 0; i < 4; i++) (void)roll(&d, 2);
        const int kind = roll(&d, 4);
        const sample_settings s = {.dp = kind == 3 ? 1 : 2,
                                   .pp = kind == 3 ? 2 : 1,
                                   .schedule = "1f1b",
                                   .layers = kind == 3 ? 4 : 2,
                                   .zero = kind == 1,
                                   .strict = kind == 2,
                                   .sequences = 8,
                                   .micro_batch = 2,
                                   .shards = 4};
        arena *a = NULL;
        sample_job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &j), ST_OK);
        plan_change(j.plans[roll(&d, j.ranks)], &d);
        const status st = sample_verify(&j, &v);
        assert_true(st == ST_OK || st == ST_BROKEN_PLAN);
        if (st == ST_BROKEN_PLAN) {
            assert_non_null(strstr(error_last()->text, "rank "));
            refused++;
        }
        arena_destroy(a);
    }
    // The other changes were to unused values (such as the peer of a sum), or moved bytes to an
    // unused place.
    assert_true(refused > PLANS * 2 / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_changed_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
