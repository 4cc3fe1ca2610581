// Ranks that disagree: every field of the contract in turn, on a rank that the seed picks, among
// two to four ranks, as threads or processes, over descriptors (direct) or messages (ring). Every
// rank must report the same error, which names two ranks, their values and their call sites.
//
// Job, epoch, group and sequence are the library's own: no caller can get them wrong alone, so they
// are changed inside.
#include "base/rng.h"
#include "comm/comm_internal.h"
#include "fixtures/comm/test_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
// after the above, which it needs
#include <cmocka.h>

enum { TRIALS = 39, COUNT = 4, ODD_COUNT = 3 };

typedef enum field {
    FIELD_JOB,
    FIELD_EPOCH,
    FIELD_GROUP,
    FIELD_SEQUENCE,
    FIELD_OPERATION,
    FIELD_TYPE,
    FIELD_COUNT_OF_ELEMENTS,
    FIELD_ROOT,
    FIELD_TENSOR,
    FIELD_REDUCTION,
    FIELD_ORDER,
    FIELD_ITEMS,
    FIELD_ALGORITHM,
    FIELDS
} field;

typedef struct field_row {
    const char *words;         // in the text
    const char *usual, *other; // values; NULL: a number that is not known here
    bool direct_only;
} field_row;

static const field_row fields[FIELDS] = {
    [FIELD_JOB] = {"differ in job", " has 7 in ", " has 8 in ", false},
    [FIELD_EPOCH] = {"differ in epoch", " has 0 in ", " has 1 in ", false},
    [FIELD_GROUP] = {"differ in group", " has 1 in ", " has 2 in ", false},
    [FIELD_SEQUENCE] = {"differ in sequence number", " has 2 in ", " has 3 in ", false},
    [FIELD_OPERATION] = {"differ in operation", " has all_reduce in ", " has all_gather in ",
                         false},
    [FIELD_TYPE] = {"differ in type", " has fp32 in ", " has int32 in ", false},
    [FIELD_COUNT_OF_ELEMENTS] = {"differ in count", " has 4 in ", " has 3 in ", false},
    [FIELD_ROOT] = {"differ in root", " has 0 in ", " has 1 in ", true},
    [FIELD_TENSOR] = {"differ in tensor", " has gradients, bucket 4 in ",
                      " has gradients, bucket 5 in ", false},
    [FIELD_REDUCTION] = {"differ in reduction", " has sum in ", " has max in ", false},
    [FIELD_ORDER] = {"differ in order of summation", " has any in ", " has shard in ", true},
    [FIELD_ITEMS] = {"differ in number of tensors", " has 1 in ", " has 2 in ", false},
    [FIELD_ALGORITHM] = {"differ in algorithm", NULL, NULL, false},
};

typedef struct trial {
    field f;
    int ranks, odd;
    bool processes, messages;
} trial;

static comm_args args_of(const trial *t, bool is_odd, const comm_item *items, char *site)
{
    const char *way = t->messages ? "ring" : "direct";
    comm_args a = {.op = t->f == FIELD_ROOT ? COLLECTIVE_BROADCAST : COLLECTIVE_ALL_REDUCE,
                   .type = DTYPE_F32,
                   .items = items,
                   .item_count = 1,
                   .algorithm = t->f == FIELD_ORDER ? NULL : way,
                   .tensor = "gradients, bucket 4",
                   .site = site,
                   .step = 3};
    if (!is_odd) return a;
    if (t->f == FIELD_OPERATION) a.op = COLLECTIVE_ALL_GATHER;
    if (t->f == FIELD_TYPE) a.type = DTYPE_I32;
    if (t->f == FIELD_ROOT) a.root = 1;
    if (t->f == FIELD_TENSOR) a.tensor = "gradients, bucket 5";
    if (t->f == FIELD_REDUCTION) a.reduction = REDUCTION_MAX;
    if (t->f == FIELD_ORDER) a.order = COMM_ORDER_SHARD;
    if (t->f == FIELD_ITEMS) a.item_count = 2;
    if (t->f == FIELD_ALGORITHM) a.algorithm = t->messages ? "direct" : "ring";
    return a;
}

static status body(comm *c, void *context)
{
    const trial *t = context;
    const bool is_odd = comm_rank(c) == t->odd;
    comm_group *g = comm_world(c);
    float x[COUNT] = {0}, y[COUNT * 4] = {0};
    const bool fewer = is_odd && t->f == FIELD_COUNT_OF_ELEMENTS;
    const comm_item items[2] = {{.in = x, .out = y, .count = fewer ? ODD_COUNT : COUNT},
                                {.in = x, .out = y, .count = 1}};
    char site[32];
    (void)snprintf(site, sizeof(site), "of_rank_%d.c:%d", comm_rank(c), 10 + comm_rank(c));
    TRY(comm_barrier(g, "before"));
    if (is_odd) {
        if (t->f == FIELD_JOB) c->config.job++;
        if (t->f == FIELD_EPOCH) c->config.epoch++;
        if (t->f == FIELD_GROUP) g->port->members.group++;
        if (t->f == FIELD_SEQUENCE) g->port->sequence++;
    }
    const comm_args a = args_of(t, is_odd, items, site);
    return comm_run(g, &a);
}

static int ranks_named(const char *words, int ranks)
{
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        char rank[32], site[48];
        (void)snprintf(rank, sizeof(rank), "rank %d has ", r);
        (void)snprintf(site, sizeof(site), " at of_rank_%d.c:%d", r, 10 + r);
        const bool is_named = strstr(words, rank) != NULL;
        assert_int_equal(is_named, strstr(words, site) != NULL);
        count += is_named;
    }
    return count;
}

static void check(const trial *t, const fixture_result *results)
{
    const field_row *row = &fields[t->f];
    char odd[32];
    (void)snprintf(odd, sizeof(odd), "rank %d has ", t->odd);
    for (int r = 0; r < t->ranks; r++) {
        const char *words = results[r].text;
        const bool is_right = results[r].st == ST_DIVERGED && strcmp(words, results[0].text) == 0 &&
                              strstr(words, row->words) != NULL && strstr(words, odd) != NULL;
        if (!is_right) {
            printf("%s, rank %d of %d differs, %s, %s: rank %d says %s: %s\n", row->words, t->odd,
                   t->ranks, t->processes ? "processes" : "threads",
                   t->messages ? "messages" : "direct", r, status_name(results[r].st), words);
        }
        assert_true(is_right);
        assert_int_equal(ranks_named(words, t->ranks), 2);
        if (row->usual == NULL) continue;
        assert_non_null(strstr(words, row->usual));
        assert_non_null(strstr(words, row->other));
    }
}

static void every_rank_names_both_sides(void **state)
{
    (void)state;
    for (int i = 0; i < TRIALS; i++) {
        uint32_t words[4];
        for (int k = 0; k < 4; k++) words[k] = rng_word(6, (uint64_t)k, (uint64_t)i);
        trial t = {.f = (field)(i % FIELDS), .ranks = 2 + (int)(words[0] % 3)};
        t.odd = (int)(words[1] % (uint32_t)t.ranks);
        t.processes = words[2] % 2 == 0;
        t.messages = words[3] % 2 == 0 && !fields[t.f].direct_only;
        fixture_job job = {.ranks = t.ranks,
                           .processes = t.processes,
                           .body = body,
                           .context = &t,
                           .deadline_ns = INT64_C(10000000000)};
        fixture_run(&job);
        check(&t, job.results);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_names_both_sides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
