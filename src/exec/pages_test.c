// Random calls of the pages of a cache, and a model in which no slot shares its tokens: the tables
// find each slot's tokens, no page is lost or used twice, and counts of users are right.
#include "exec/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 9, CONTEXT = 150, EACH = (CONTEXT + EXEC_PAGE - 1) / EXEC_PAGE, MOST = 60 };

typedef struct trial {
    arena *a;
    exec_pages p;
    uint64_t state;
    int32_t next;                   // the number of the token that is written next
    int32_t pool[MOST][EXEC_PAGE];  // what the cache's rows hold
    int32_t tokens[SLOTS][CONTEXT]; // what the slots have
    int64_t length[SLOTS];
    int64_t shared, copied, refused; // how often
} trial;

static int64_t below(trial *t, int64_t count)
{
    t->state = t->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)(t->state >> 33) % count;
}

// Everything that must hold between two calls.
static void check(const trial *t)
{
    const exec_pages *p = &t->p;
    int32_t users[MOST] = {0};
    bool unused[MOST] = {false};
    int64_t free_count = 0;
    for (int64_t b = 0; b < SLOTS; b++) {
        const int32_t *table = p->tables + b * p->each;
        assert_int_equal(p->held[b], exec_pages_of(t->length[b]));
        for (int64_t i = 0; i < p->each; i++) {
            if (i >= p->held[b]) assert_int_equal(table[i], 0);
            if (i >= p->held[b]) continue;
            assert_true(table[i] >= 0 && table[i] < p->count);
            users[table[i]]++;
            for (int64_t k = 0; k < i; k++) assert_int_not_equal(table[i], table[k]);
        }
        for (int64_t i = 0; i < t->length[b]; i++) {
            assert_int_equal(t->pool[table[i / EXEC_PAGE]][i % EXEC_PAGE], t->tokens[b][i]);
        }
    }
    for (int64_t i = 0; i < p->unused_count; i++) {
        assert_false(unused[p->unused[i]]);
        unused[p->unused[i]] = true;
    }
    for (int64_t i = 0; i < p->count; i++) {
        assert_int_equal(p->users[i], users[i]);
        assert_int_equal(unused[i], users[i] == 0);
        free_count += users[i] == 0 ? 1 : 0;
    }
    assert_int_equal(p->unused_count, free_count);
}

// Appends tokens, as a step does after the slot has its pages.
static void append(trial *t, int64_t b, int64_t count)
{
    exec_page_copy copy;
    const int64_t length = t->length[b], left = t->p.unused_count;
    const int32_t *table = t->p.tables + b * t->p.each;
    if (!exec_pages_grow(&t->p, b, length, length + count, &copy)) {
        assert_true(left < exec_pages_of(length + count) - exec_pages_of(length) + 1);
        assert_int_equal(t->p.unused_count, left);
        t->refused++;
        return;
    }
    if (copy.from >= 0) {
        memcpy(t->pool[copy.to], t->pool[copy.from], (size_t)copy.tokens * sizeof(int32_t));
        t->copied++;
    }
    for (int64_t i = length; i < length + count; i++) {
        assert_int_equal(t->p.users[table[i / EXEC_PAGE]], 1);
        t->pool[table[i / EXEC_PAGE]][i % EXEC_PAGE] = t->tokens[b][i] = t->next++;
    }
    t->length[b] += count;
}

static void cut(trial *t, int64_t b, int64_t tokens)
{
    exec_pages_cut(&t->p, b, tokens);
    t->length[b] = min_i64(t->length[b], tokens);
}

// Pages that only the slots in `gone` have, counted one by one.
static void check_freed(trial *t)
{
    bool gone[SLOTS];
    int64_t freed = 0;
    for (int64_t b = 0; b < SLOTS; b++) gone[b] = below(t, 2) == 0;
    for (int64_t page = 0; page < t->p.count; page++) {
        bool by_gone = false, by_others = false;
        for (int64_t b = 0; b < SLOTS; b++) {
            for (int64_t i = 0; i < t->p.held[b]; i++) {
                if (t->p.tables[b * t->p.each + i] != page) continue;
                by_gone = by_gone || gone[b];
                by_others = by_others || !gone[b];
            }
        }
        freed += by_gone && !by_others ? 1 : 0;
    }
    assert_int_equal(exec_pages_freed(&t->p, gone), freed);
}

static void step(trial *t)
{
    const int64_t b = below(t, SLOTS), other = below(t, SLOTS), left = CONTEXT - t->length[b];
    switch (below(t, 8)) {
    case 0:
        cut(t, b, 0);
        break;
    case 1:
        cut(t, b, t->length[b] > 0 ? 1 + below(t, t->length[b]) : 0);
        break;
    case 2:
    case 3:
        if (b == other || t->length[other] == 0) break;
        cut(t, b, 0);
        t->length[b] = 1 + below(t, t->length[other]);
        exec_pages_share(&t->p, other, b, t->length[b]);
        memcpy(t->tokens[b], t->tokens[other], sizeof(t->tokens[b]));
        t->shared++;
        break;
    case 4:
        if (left > 0) append(t, b, 1 + below(t, left));
        break;
    default:
        if (left > 0) append(t, b, 1);
        break;
    }
}

static void test_against_a_model(void **state)
{
    (void)state;
    for (int64_t count = EACH; count <= MOST; count += 10) {
        trial t = {.state = (uint64_t)count};
        assert_int_equal(arena_create("test", 0, &t.a), ST_OK);
        assert_int_equal(exec_pages_create(t.a, count, SLOTS, CONTEXT, &t.p), ST_OK);
        for (int i = 0; i < 4000; i++) {
            step(&t);
            check(&t);
            if (i % 40 == 0) check_freed(&t);
        }
        assert_true(t.shared > 200 && t.copied > 50);
        if (count == EACH) assert_true(t.refused > 100);
        for (int64_t b = 0; b < SLOTS; b++) cut(&t, b, 0);
        assert_int_equal(t.p.unused_count, count); // nothing is lost
        arena_destroy(t.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
