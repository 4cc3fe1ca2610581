// Rows of experts between ranks: random routings, most of them skewed, on ranks that are threads.
// Each token must come back with the sum over its experts, computed where the experts are: no row
// is lost, doubled or sent to another expert. A rank whose experts get no row takes part too.
#include "base/rng.h"
#include "fixtures/comm/test_ranks.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
// after the above, which it needs
#include <cmocka.h>

enum { LOCAL = 3, TAKEN = 2, SEQS = 2, SEQ = 6, TOKENS = SEQS * SEQ, DIM = 5 };
enum { RANKS_MOST = 4, EXPERTS_MOST = RANKS_MOST * LOCAL, SENT = TOKENS * TAKEN };
enum { COME = RANKS_MOST * TOKENS * TAKEN, KINDS = 6 };

typedef struct buffers {
    int32_t ids[SENT], row_of[SENT], sent_offsets[EXPERTS_MOST + 1], offsets[EXPERTS_MOST + 1];
    int32_t sent_counts[RANKS_MOST * SEQS * LOCAL], counts[RANKS_MOST * SEQS * LOCAL];
    float x[TOKENS * DIM], sent[SENT * DIM], come[COME * DIM], back[SENT * DIM], y[TOKENS * DIM];
} buffers;

typedef struct trial {
    comm *c;
    kern_context *kernels;
    buffers *b;
    int rank, ranks, experts;
} trial;

// The kinds of routings: even; all to one expert; all to one rank; few experts; some tokens take
// none; only one rank has tokens that take any.
static int32_t id_of(const trial *t, int64_t routing, int token, int k)
{
    const uint64_t at = (uint64_t)routing, of = (uint64_t)(t->rank * TOKENS + token);
    const uint32_t u = rng_word(12, at, of), experts = (uint32_t)t->experts;
    const int32_t first = (int32_t)(rng_word(11, at, of) % experts);
    const int32_t second = (int32_t)(u % (experts - 1));
    const int32_t one = (int32_t)(rng_word(13, at, 0) % experts);
    switch (routing % KINDS) {
    case 1:
        return k == 0 ? one : (one + 1 + second) % t->experts;
    case 2:
        return one / LOCAL * LOCAL + (first + k) % LOCAL;
    case 3:
        return (one + (int32_t)(u >> 16) % 2 + 2 * k) % t->experts;
    case 4:
        return (u >> 16) % 3 == 0 ? -1 : (first + k) % t->experts;
    case 5:
        return t->rank == one / LOCAL ? (first + k) % t->experts : -1;
    default:
        return k == 0 ? first : (first + 1 + second) % t->experts;
    }
}

static kern_tensor tensor(void *data, dtype type, int64_t rows, int64_t columns)
{
    kern_tensor out = {.data = data, .type = type, .ndim = 2, .dims = {rows, columns}};
    if (columns == 0) out = (kern_tensor){.data = data, .type = type, .ndim = 1, .dims = {rows}};
    out.strides[0] = columns == 0 ? 1 : columns;
    out.strides[1] = 1;
    return out;
}

static status route(const trial *t)
{
    buffers *b = t->b;
    kern_call permute = {.code = OP_PERMUTE, .attrs = {.experts = t->experts}, .seq = SEQ};
    kern_call count = {.code = OP_COUNT_ROWS, .attrs = {.experts = LOCAL, .ranks = t->ranks}};
    permute.in[0] = tensor(b->x, DTYPE_F32, TOKENS, DIM);
    permute.in[1] = count.in[0] = tensor(b->ids, DTYPE_I32, TOKENS, TAKEN);
    permute.out[0] = tensor(b->sent, DTYPE_F32, SENT, DIM);
    permute.out[1] = tensor(b->row_of, DTYPE_I32, TOKENS, TAKEN);
    permute.out[2] = tensor(b->sent_offsets, DTYPE_I32, t->experts + 1, 0);
    count.out[0] = tensor(b->sent_counts, DTYPE_I32, t->ranks * SEQS, LOCAL);
    count.seq = SEQ;
    TRY(kern_run(t->kernels, &permute));
    return kern_run(t->kernels, &count);
}

static status counts_exchange(const trial *t)
{
    buffers *b = t->b;
    kern_call sum = {.code = OP_ROW_OFFSETS, .attrs = {.experts = LOCAL, .ranks = t->ranks}};
    const comm_item item = {.in = b->sent_counts, .out = b->counts, .count = SEQS * LOCAL};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALL,
                            .type = DTYPE_I32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "counts",
                            .step = -1};
    TRY(comm_run(comm_world(t->c), &args));
    sum.in[0] = tensor(b->counts, DTYPE_I32, t->ranks * SEQS, LOCAL);
    sum.out[0] = tensor(b->offsets, DTYPE_I32, t->experts + 1, 0);
    sum.seq = SEQ;
    return kern_run(t->kernels, &sum);
}

static status rows_exchange(const trial *t, const float *in, float *out, bool back)
{
    const buffers *b = t->b;
    const int64_t sent = SENT * DIM, come = (int64_t)t->ranks * SENT * DIM;
    const comm_item item = {.in = in, .out = out, .count = back ? come : sent};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALLV,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .send_offsets = back ? b->offsets : b->sent_offsets,
                            .receive_offsets = back ? b->sent_offsets : b->offsets,
                            .stride = LOCAL,
                            .row_elements = DIM,
                            .receive_most = back ? sent : come,
                            .tensor = "rows",
                            .step = -1};
    return comm_run(comm_world(t->c), &args);
}

// Expert e adds 1000 (e + 1) to each of its rows.
static void experts_run(const trial *t)
{
    buffers *b = t->b;
    for (int g = 0; g < t->experts; g++) {
        const float more = 1000.0f * (float)(t->rank * LOCAL + g % LOCAL + 1);
        for (int i = b->offsets[g] * DIM; i < b->offsets[g + 1] * DIM; i++) b->come[i] += more;
    }
}

static status tokens_check(const trial *t, int64_t routing)
{
    const buffers *b = t->b;
    for (int i = 0; i < TOKENS * DIM; i++) {
        float want = 0.0f;
        for (int k = 0; k < TAKEN; k++) {
            const int32_t id = b->ids[i / DIM * TAKEN + k];
            if (id >= 0) want += b->x[i] + 1000.0f * (float)(id + 1);
        }
        if (b->y[i] == want) continue;
        print_error("routing %lld, rank %d, token %d: %g, expected %g\n", (long long)routing,
                    t->rank, i / DIM, (double)b->y[i], (double)want);
        return ST_INTERNAL;
    }
    return ST_OK;
}

static status routing_run(const trial *t, int64_t routing)
{
    buffers *b = t->b;
    for (int i = 0; i < SENT; i++) b->ids[i] = id_of(t, routing, i / TAKEN, i % TAKEN);
    for (int i = 0; i < TOKENS * DIM; i++) b->x[i] = (float)(t->rank * TOKENS * DIM + i);
    TRY(route(t));
    TRY(counts_exchange(t));
    TRY(rows_exchange(t, b->sent, b->come, false));
    experts_run(t);
    TRY(rows_exchange(t, b->come, b->back, true));
    kern_call sum = {.code = OP_UNPERMUTE, .seq = SEQ};
    sum.in[0] = tensor(b->back, DTYPE_F32, SENT, DIM);
    sum.in[1] = tensor(b->row_of, DTYPE_I32, TOKENS, TAKEN);
    sum.out[0] = tensor(b->y, DTYPE_F32, TOKENS, DIM);
    TRY(kern_run(t->kernels, &sum));
    return tokens_check(t, routing);
}

// Routings of each case; the night's test asks for more.
static int64_t routings(void)
{
    const char *many = getenv("ROUTINGS");
    return many != NULL ? atoll(many) : 60;
}

static status rank_run(comm *c, void *context)
{
    const kern_hint hint = {.threads = 1};
    arena *a = NULL;
    comm_memory *memory = NULL;
    trial t = {.c = c, .rank = comm_rank(c), .ranks = comm_ranks(c)};
    t.experts = t.ranks * LOCAL;
    TRY(arena_create("exchange", 0, &a));
    TRY(kern_context_create(a, "cpu", &hint, &t.kernels));
    TRY(comm_memory_create(c, (int64_t)sizeof(buffers), &memory));
    // Peers copy from shared memory; other buffers go through staging buffers.
    const bool is_shared = *(const bool *)context;
    if (is_shared) {
        t.b = comm_memory_at(memory);
    } else {
        TRY(arena_new(a, 1, &t.b));
    }
    status st = ST_OK;
    for (int64_t i = 0; i < routings() && st == ST_OK; i++) st = routing_run(&t, i);
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    comm_memory_destroy(memory);
    arena_destroy(a);
    return st;
}

static void no_row_is_lost(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks += 2) {
        bool is_shared = ranks == 2;
        fixture_job job = {.ranks = ranks, .body = rank_run, .context = &is_shared};
        fixture_run(&job);
        for (int i = 0; i < ranks; i++) {
            if (job.results[i].st != ST_OK) print_error("rank %d: %s\n", i, job.results[i].text);
            assert_int_equal(job.results[i].st, ST_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_row_is_lost)};
    return cmocka_run_group_tests_name("expert_exchange", tests, NULL, NULL);
}
