// Mistakes with weights that are cut over ranks (ZeRO-3), planted one by one in a sound plan, like
// those of mistakes_test.c. The verifier follows gathered rows one by one, and its message names
// the layer that would have read the wrong ones.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// On all ranks a gather of a layer's weights brings those of another layer with the same shape.
static void gather_brings_another_weight(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        const int32_t one = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.1", 0);
        const int32_t other = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.0", 0);
        sample_item(p, one, 0)->in = sample_item(p, other, 0)->in;
    }
}

// One rank sends rows of the first weight, the others rows of the second, which has as many.
static void gather_takes_another_weight_of_one_rank(sample_job *j)
{
    plan *p = j->plans[1];
    const int32_t one = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.1", 1);
    const int32_t other = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.0", 0);
    sample_item(p, one, 0)->in = sample_item(p, other, 0)->in;
}

// Gathers each rank's first half, then each rank's second half: all bytes, but not in row order.
static void gather_brings_other_rows(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c =
            sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.1", 0));
        plan_comm_item *items = NULL;
        const int64_t n = c->items_count;
        assert_int_equal(arena_new(p->run->a, p->item_count + n + 1, &items), ST_OK);
        memcpy(items, p->items, (size_t)p->item_count * sizeof(*items));
        memcpy(items + p->item_count, p->items + c->items_begin, (size_t)n * sizeof(*items));
        plan_comm_item *first = &items[p->item_count], *last = &items[p->item_count + n];
        first->count /= 2;
        *last = *first;
        last->in_offset = first->count * dtype_bytes(c->type);
        last->out_offset = j->ranks * last->in_offset;
        c->items_begin = (int32_t)p->item_count;
        c->items_count++;
        p->items = items;
        p->item_count += n + 1;
    }
}

// The backward of a layer would read the gather for its forward, which other layers have
// overwritten.
static void gather_is_left_out(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        sample_leave_out(p, sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.0", 1));
    }
}

// Runs the first gather of a step before the last step's update.
static void gather_brings_stale_weights(sample_job *j)
{
    sample_forget_waits(j->plans[1],
                        sample_find_comm(j->plans[1], COLLECTIVE_ALL_GATHER, "weights, embed", 0));
}

static const struct {
    const char *name;
    void (*make)(sample_job *j);
    const char *says[3]; // parts of the message
} mistakes[] = {
    {"a gather that brings another layer's weight",
     gather_brings_another_weight,
     {"forward of layers.1, micro-batch 0", "reads whole.layers.1.", "are those of layers.0."}},
    {"a gather to which one rank gives another weight",
     gather_takes_another_weight_of_one_rank,
     {"backward_input of layers.1", "reads whole.layers.1.", "are those of layers.0."}},
    {"a gather of other rows",
     gather_brings_other_rows,
     {"forward of layers.1, micro-batch 0", "reads whole.layers.1.",
      "are other rows of layers.1."}},
    {"a gather left out",
     gather_is_left_out,
     {"layers.0, micro-batch 0", "reads", "whole.layers."}},
    {"a gather of stale weights",
     gather_brings_stale_weights,
     {"adamw of grad.embed", "all_gather of weights, embed", "rank 1"}},
};

static void each_mistake_is_found_and_named(void **state)
{
    (void)state;
    const sample_settings s = {.dp = 2, .layers = 2, .zero = 3, .sequences = 8, .micro_batch = 2};
    int missed = 0;
    for (int64_t i = 0; i < COUNT_OF(mistakes); i++) {
        arena *a = NULL;
        sample_job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &j), ST_OK);
        assert_int_equal(sample_verify(&j, &v), ST_OK);
        mistakes[i].make(&j);
        const status st = sample_verify(&j, &v);
        bool named = st == ST_BROKEN_PLAN;
        for (int k = 0; k < 3; k++) {
            named = named && strstr(error_last()->text, mistakes[i].says[k]) != NULL;
        }
        if (!named) {
            print_error("%s: %s\n", mistakes[i].name,
                        st == ST_OK ? "not found" : error_last()->text);
            missed++;
        }
        arena_destroy(a);
    }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_mistake_is_found_and_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
