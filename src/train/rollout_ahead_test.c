// Batches that were drawn ahead: what a checkpoint says of them is read back to the bit, and damage
// is refused.
#include "train/rollout_ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, TOKENS = 4 };

static void fill(rollout_ahead *q, int64_t step, int64_t count)
{
    rollout_batch *b = rollout_ahead_at(q, step);
    b->step = q->last = step;
    b->count = count;
    for (int64_t i = 0; i < count; i++) {
        b->rewards[i] = 1.0 / (double)(step + i);
        b->prompts[i] = (int32_t)(8 - i);
        b->lengths[i] = (int32_t)(1 + (step + i) % TOKENS);
        b->ended[i] = (int32_t)(i % 2);
        for (int64_t t = 0; t < b->lengths[i]; t++) {
            b->ids[i * TOKENS + t] = (int32_t)(100 * step + 10 * i + t);
            b->losses[i * TOKENS + t] = 1.0F / (float)(3 + step + t);
        }
    }
}

static void made(arena **a, rollout_ahead *q)
{
    assert_int_equal(arena_create("queue", 0, a), ST_OK);
    *q = (rollout_ahead){.capacity = 3, .rows = ROWS, .tokens = TOKENS, .prompts = 9};
    assert_int_equal(rollout_ahead_init(*a, q), ST_OK);
}

static void test_read_back(void **state)
{
    (void)state;
    arena *a = NULL, *b = NULL;
    rollout_ahead q, r;
    made(&a, &q);
    made(&b, &r);
    for (int64_t step = 4; step <= 6; step++) fill(&q, step, step == 5 ? ROWS - 1 : ROWS);
    text t = {.a = a};
    json *root = NULL;
    assert_int_equal(rollout_ahead_print(&q, 4, &t), ST_OK);
    assert_int_equal(json_parse(t.bytes, t.length, "queue", &root), ST_OK);
    assert_int_equal(rollout_ahead_read(&r, 4, root, "step-4"), ST_OK);
    assert_int_equal(r.last, 6);
    for (int64_t step = 5; step <= 6; step++) {
        const rollout_batch *x = rollout_ahead_at(&q, step), *y = rollout_ahead_at(&r, step);
        assert_int_equal(y->step, step);
        assert_int_equal(x->count, y->count);
        for (int64_t i = 0; i < x->count; i++) {
            const size_t bytes = (size_t)x->lengths[i] * sizeof(int32_t);
            assert_int_equal(x->lengths[i], y->lengths[i]);
            assert_int_equal(x->prompts[i], y->prompts[i]);
            assert_int_equal(x->ended[i], y->ended[i]);
            assert_memory_equal(&x->rewards[i], &y->rewards[i], sizeof(double));
            assert_memory_equal(x->ids + i * TOKENS, y->ids + i * TOKENS, bytes);
            assert_memory_equal(x->losses + i * TOKENS, y->losses + i * TOKENS, bytes);
        }
    }
    json_free(root);
    arena_destroy(a);
    arena_destroy(b);
}

static void test_damage_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "{\"batches\": 1}",
        "{\"batches\": [{\"step\": 5, \"sequences\": [{\"prompt\": 9, \"ids\": [1], "
        "\"losses\": [1]}]}]}",
        "{\"batches\": [{\"step\": 9, \"sequences\": []}]}",
        "{\"batches\": [{\"step\": 5, \"sequences\": []}]}",
        "{\"batches\": [{\"step\": 5, \"sequences\": [{\"prompt\": 0, \"ids\": [1], "
        "\"losses\": []}]}]}",
        "{\"batches\": [{\"step\": 5, \"sequences\": [{\"prompt\": 0, \"ids\": [-1], "
        "\"losses\": [1]}]}]}",
        "{\"batches\": [{\"step\": 5, \"sequences\": [{\"prompt\": 0, \"ids\": [1,2,3,4,5], "
        "\"losses\": [1,2,3,4,5]}]}]}",
    };
    arena *a = NULL;
    rollout_ahead q;
    made(&a, &q);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json *root = NULL;
        assert_int_equal(json_parse(wrong[i], (int64_t)strlen(wrong[i]), "queue", &root), ST_OK);
        assert_int_equal(rollout_ahead_read(&q, 4, root, "step-4"), ST_DAMAGED);
        error_clear();
        json_free(root);
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
