// Every algorithm over messages, 1 to 9 ranks, against naive results; strict ones give the same
// bits for any number of ranks, and the others do not.
#include "comm/algo/algo_messages.h"
#include "fixtures/comm/test_messages.h"
#include "fixtures/comm/test_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 65537, ITEMS = 3 };

static const comm_algorithm *const rows[] = {
    &comm_algorithm_all_reduce_gather,
    &comm_algorithm_all_reduce_pieces,
    &comm_algorithm_reduce_scatter_pieces,
    &comm_algorithm_reduce_gather,
    &comm_algorithm_reduce_pieces,
    &comm_algorithm_all_reduce_doubling,
    &comm_algorithm_all_reduce_halving,
    &comm_algorithm_all_reduce_ring,
    &comm_algorithm_reduce_scatter_halving,
    &comm_algorithm_reduce_scatter_ring,
    &comm_algorithm_reduce_tree,
    &comm_algorithm_all_gather_bruck,
    &comm_algorithm_all_gather_doubling,
    &comm_algorithm_all_gather_ring,
    &comm_algorithm_all_to_all_bruck,
    &comm_algorithm_all_to_all_pairwise,
    &comm_algorithm_all_to_allv_pairwise,
    &comm_algorithm_barrier_dissemination,
    &comm_algorithm_broadcast_tree,
    &comm_algorithm_gather_tree,
    &comm_algorithm_scatter_tree,
};

static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I8,  DTYPE_U8,
                              DTYPE_I16, DTYPE_U16,  DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_U64};

// ---- one operation of all ranks ----------------------------------------------------------------
typedef struct world {
    fixture_net net;
    pthread_barrier_t begin, end;
    const comm_algorithm *row; // NULL: the threads end
    int size;
    uint64_t sequence;
    comm_args args[FIXTURE_RANKS];
    status result[FIXTURE_RANKS];
    error_record why[FIXTURE_RANKS];
    pthread_t threads[FIXTURE_RANKS];
} world;

typedef struct seat {
    world *w;
    int rank;
} seat;

static void run_rank(world *w, int rank)
{
    fixture_port port = {
        .base = {.transport = &fixture_transport, .members = {.count = w->size, .me = rank}},
        .net = &w->net};
    const int64_t bytes = w->row->scratch == NULL ? 0 : w->row->scratch(&w->args[rank], w->size);
    void *scratch = NULL; // filled, so that unwritten bytes show
    if (posix_memalign(&scratch, 64, (size_t)bytes + 64) != 0) abort();
    memset(scratch, 0xa5, (size_t)bytes + 64);
    comm_call call = {.args = &w->args[rank],
                      .transport = &fixture_transport,
                      .port = &port.base,
                      .rank = rank,
                      .size = w->size,
                      .vectors = comm_vectors_of_machine(),
                      .contract = {.sequence = w->sequence},
                      .scratch = scratch,
                      .scratch_bytes = align_up(bytes, 64)};
    w->result[rank] = w->row->run(&call);
    if (w->result[rank] != ST_OK) w->why[rank] = *error_last();
    free(scratch);
}

static void *thread_main(void *context)
{
    const seat *s = context;
    for (;;) {
        (void)pthread_barrier_wait(&s->w->begin);
        if (s->w->row == NULL) return NULL;
        run_rank(s->w, s->rank);
        (void)pthread_barrier_wait(&s->w->end);
    }
}

static seat seats[FIXTURE_RANKS];

static void world_begin(world *w, int size)
{
    memset(w, 0, sizeof(*w));
    w->size = size;
    assert_int_equal(0, pthread_mutex_init(&w->net.lock, NULL));
    assert_int_equal(0, pthread_cond_init(&w->net.changed, NULL));
    assert_int_equal(0, pthread_barrier_init(&w->begin, NULL, (unsigned)size));
    assert_int_equal(0, pthread_barrier_init(&w->end, NULL, (unsigned)size));
    for (int r = 1; r < size; r++) {
        seats[r] = (seat){w, r};
        assert_int_equal(0, pthread_create(&w->threads[r], NULL, thread_main, &seats[r]));
    }
}

static void world_run(world *w, const comm_algorithm *row)
{
    w->row = row;
    w->sequence++;
    (void)pthread_barrier_wait(&w->begin);
    run_rank(w, 0);
    (void)pthread_barrier_wait(&w->end);
    for (int r = 0; r < w->size; r++) {
        if (w->result[r] == ST_OK) continue;
        fail_msg("%s %d, %d ranks, rank %d: %s", row->name, row->op, w->size, r, w->why[r].text);
    }
}

static void world_end(world *w)
{
    w->row = NULL;
    (void)pthread_barrier_wait(&w->begin);
    for (int r = 1; r < w->size; r++) assert_int_equal(0, pthread_join(w->threads[r], NULL));
    (void)pthread_barrier_destroy(&w->begin);
    (void)pthread_barrier_destroy(&w->end);
    (void)pthread_cond_destroy(&w->net.changed);
    (void)pthread_mutex_destroy(&w->net.lock);
}

// ---- trials ------------------------------------------------------------------------------------
typedef struct trial {
    reference r; // of the first item; the others' seeds follow
    bool in_place;
    int64_t counts[ITEMS];
    int items;
} trial;

static reference reference_of(const trial *t, int item)
{
    reference r = t->r;
    r.seed += (uint64_t)item;
    return r;
}

// ---- buffers -----------------------------------------------------------------------------------
static unsigned char *in_memory[FIXTURE_RANKS][ITEMS], *out_memory[FIXTURE_RANKS][ITEMS];
static comm_item item_list[FIXTURE_RANKS][ITEMS];

static void item_make(const trial *t, int rank, int item)
{
    const reference r = reference_of(t, item);
    const int64_t count = t->counts[item];
    char *in = (char *)in_memory[rank][item], *out = (char *)out_memory[rank][item];
    if (t->in_place) reference_in_place(&r, rank, count, &in, &out);
    reference_fill(&r, rank, count, in);
    const bool has_in = count > 0 && reference_pieces(&r, rank, true) > 0;
    const bool has_out = count > 0 && reference_pieces(&r, rank, false) > 0;
    item_list[rank][item] = (comm_item){has_in ? in : NULL, has_out ? out : NULL, count, 0};
}

static void item_check(const trial *t, const comm_algorithm *row, int rank, int item)
{
    const reference r = reference_of(t, item);
    const void *out = item_list[rank][item].out;
    const int64_t count = t->counts[item];
    double wanted = 0;
    const int64_t wrong = reference_differs(&r, rank, count, out, &wanted);
    if (wrong < 0) return;
    fail_msg("%s, op %d, %s, reduction %d, %d ranks, root %d, %lld elements, in place %d: rank %d "
             "item %d element %lld is %g, expected %g",
             row->name, r.op, dtype_name(r.type), r.reduction, r.size, r.root, (long long)count,
             t->in_place, rank, item, (long long)wrong, dtype_load(r.type, out, wrong), wanted);
}

static void trial_run(world *w, const comm_algorithm *row, trial *t)
{
    const reference *all = &t->r;
    for (int r = 0; r < w->size; r++) {
        for (int k = 0; k < t->items; k++) item_make(t, r, k);
        w->args[r] = (comm_args){.op = all->op,
                                 .reduction = all->reduction,
                                 .order = row->order,
                                 .type = all->type,
                                 .root = all->root,
                                 .items = item_list[r],
                                 .item_count = t->items};
    }
    world_run(w, row);
    for (int r = 0; r < w->size; r++) {
        for (int k = 0; k < t->items; k++) item_check(t, row, r, k);
    }
}

static bool fits(const comm_algorithm *row, int size)
{
    return !row->power_of_two || (size & (size - 1)) == 0;
}

static bool adds(const comm_algorithm *row)
{
    return row->op == COLLECTIVE_ALL_REDUCE || row->op == COLLECTIVE_REDUCE ||
           row->op == COLLECTIVE_REDUCE_SCATTER;
}

static void row_run(world *w, const comm_algorithm *row)
{
    static const int64_t counts[] = {0, 1, 7, 1000};
    trial t = {.r = {.op = row->op, .size = w->size}, .items = 1};
    for (int64_t k = 0; k < COUNT_OF(types); k++) {
        t.r.type = types[k];
        if (!adds(row) && dtype_bytes(types[k]) == dtype_bytes(types[max_i64(k, 1) - 1]) && k > 0) {
            continue; // nothing but its width matters
        }
        for (int r = 0; r < (adds(row) ? REDUCTION_COUNT : 1); r++) {
            t.r.reduction = (op_reduction)r;
            if (adds(row) && !comm_reduce_can(t.r.type, t.r.reduction)) continue;
            for (int64_t c = 0; c < COUNT_OF(counts); c++) {
                if (r + k > 1 && c != (k + w->size) % 4) continue; // all sizes: fp32, bf16 sums
                if (k > 1 && (k + r + w->size) % 3 != 0) continue; // others: not with every size
                const uint64_t seed = ++t.r.seed;
                t.r.root = (int)(seed % (uint64_t)w->size);
                t.in_place = seed % 2 == 0;
                t.items = seed % 3 == 0 ? ITEMS : 1;
                t.counts[0] = counts[c];
                t.counts[1] = 3;
                t.counts[2] = counts[c] / 2;
                trial_run(w, row, &t);
            }
        }
    }
}

static void buffers_make(void)
{
    for (int r = 0; r < FIXTURE_RANKS; r++) {
        for (int k = 0; k < ITEMS; k++) {
            const size_t bytes = k == 0 ? (size_t)MOST * 8 * 9 : (size_t)1000 * 8 * 9;
            in_memory[r][k] = malloc(bytes);
            out_memory[r][k] = malloc(bytes);
            assert_true(in_memory[r][k] != NULL && out_memory[r][k] != NULL);
        }
    }
}

static void buffers_drop(void)
{
    for (int r = 0; r < FIXTURE_RANKS; r++) {
        for (int k = 0; k < ITEMS; k++) {
            free(in_memory[r][k]);
            free(out_memory[r][k]);
        }
    }
}

static void test_all(void **unused)
{
    (void)unused;
    static world w;
    buffers_make();
    for (int size = 1; size <= FIXTURE_RANKS; size++) {
        world_begin(&w, size);
        for (int64_t i = 0; i < COUNT_OF(rows); i++) {
            if (rows[i]->op == COLLECTIVE_ALL_TO_ALLV || !fits(rows[i], size)) continue;
            row_run(&w, rows[i]);
        }
        world_end(&w);
    }
    buffers_drop();
}

static void test_large(void **unused)
{
    (void)unused;
    static const int sizes[] = {2, 3, 8};
    static world w;
    buffers_make();
    for (int64_t s = 0; s < COUNT_OF(sizes); s++) {
        world_begin(&w, sizes[s]);
        for (int64_t i = 0; i < COUNT_OF(rows); i++) {
            if (rows[i]->op == COLLECTIVE_ALL_TO_ALLV || !fits(rows[i], sizes[s])) continue;
            trial t = {.r = {.op = rows[i]->op,
                             .type = i % 2 == 0 ? DTYPE_BF16 : DTYPE_F32,
                             .size = sizes[s],
                             .root = 1},
                       .items = 1,
                       .in_place = i % 3 == 0,
                       .counts = {sizes[s] == 8 ? MOST / 8 : MOST}};
            trial_run(&w, rows[i], &t);
        }
        world_end(&w);
    }
    buffers_drop();
}

// Rank a sends (a + 2 b) mod 5 elements to rank b, times a factor.
static int32_t v_in[FIXTURE_RANKS][4000], v_out[FIXTURE_RANKS][4000];
static int64_t v_sends[FIXTURE_RANKS][FIXTURE_RANKS], v_receives[FIXTURE_RANKS][FIXTURE_RANKS];
static comm_item v_items[FIXTURE_RANKS];

static void v_make(world *w, int a, int64_t factor)
{
    int64_t at = 0;
    for (int b = 0; b < w->size; b++) {
        v_sends[a][b] = (a + 2 * b) % 5 * factor;
        v_receives[a][b] = (b + 2 * a) % 5 * factor;
        for (int64_t i = 0; i < v_sends[a][b]; i++) {
            v_in[a][at++] = (int32_t)(a * 1000000 + b * 10000 + i);
        }
    }
    memset(v_out[a], 0, sizeof(v_out[a]));
    v_items[a] = (comm_item){v_in[a], v_out[a], 0, 0};
    w->args[a] = (comm_args){.op = COLLECTIVE_ALL_TO_ALLV,
                             .type = DTYPE_I32,
                             .items = &v_items[a],
                             .item_count = 1,
                             .send_counts = v_sends[a],
                             .receive_counts = v_receives[a]};
}

static void v_check(int size, int b)
{
    int64_t at = 0;
    for (int a = 0; a < size; a++) {
        for (int64_t i = 0; i < v_receives[b][a]; i++) {
            assert_int_equal(v_out[b][at++], a * 1000000 + b * 10000 + i);
        }
    }
}

static void test_all_to_allv(void **unused)
{
    (void)unused;
    static world w;
    static const int64_t factors[] = {0, 1, 70};
    for (int size = 1; size <= FIXTURE_RANKS; size++) {
        world_begin(&w, size);
        for (int64_t f = 0; f < COUNT_OF(factors); f++) {
            for (int a = 0; a < size; a++) v_make(&w, a, factors[f]);
            world_run(&w, &comm_algorithm_all_to_allv_pairwise);
            for (int b = 0; b < size; b++) v_check(size, b);
        }
        world_end(&w);
    }
}

// ---- order -------------------------------------------------------------------------------------
enum { SHARDS_MOST = 16, COUNT = 1003 };
static float shard_values[SHARDS_MOST][COUNT];

// The tree's nodes that lie wholly in [begin, end), their sums made by the tree.
static int nodes_make(int32_t begin, int32_t end, int32_t shards, comm_term *terms,
                      float (*sums)[COUNT])
{
    int n = 0;
    while (begin < end) {
        int32_t width = 1;
        while (begin % (2 * width) == 0 &&
               (begin + 2 * width <= end || (end == shards && begin + width < end))) {
            width *= 2;
        }
        terms[n] = (comm_term){begin, begin + width < shards ? begin + width : shards};
        comm_term single[SHARDS_MOST];
        const void *in[SHARDS_MOST];
        const int32_t count = terms[n].end - terms[n].begin;
        for (int32_t k = 0; k < count; k++) {
            single[k] = (comm_term){begin + k, begin + k + 1};
            in[k] = shard_values[begin + k];
        }
        comm_reducer r;
        assert_int_equal(ST_OK, comm_reducer_tree(COMM_SCALAR, DTYPE_F32, REDUCTION_SUM, single,
                                                  count, shards, 1, &r));
        void *out = sums[n];
        comm_reduce(&r, &(comm_reduce_args){.in = in, .out = &out, .outs = 1, .count = COUNT});
        begin = terms[n++].end;
    }
    return n;
}

static void shards_draw(int32_t shards)
{
    for (int32_t s = 0; s < shards; s++) {
        for (int i = 0; i < COUNT; i++) {
            const uint64_t bits = reference_mix((uint64_t)(s * 100000 + i));
            shard_values[s][i] = ((float)(bits >> 40) - 0x1p23F) * 0x1p-20F;
        }
    }
}

// The sum of all shards on `size` ranks, each with its consecutive share, as rank `rank` gets it.
static void strict_run(const comm_algorithm *row, int size, int32_t shards, float *out)
{
    static world w;
    static float sums[FIXTURE_RANKS][SHARDS_MOST][COUNT], outs[FIXTURE_RANKS][COUNT];
    static comm_term terms[FIXTURE_RANKS][SHARDS_MOST];
    static comm_item items[FIXTURE_RANKS][SHARDS_MOST];
    world_begin(&w, size);
    const int root = size - 1;
    const int64_t part = row->op == COLLECTIVE_REDUCE_SCATTER ? COUNT / size : COUNT;
    for (int r = 0; r < size; r++) {
        const int n =
            nodes_make(shards * r / size, shards * (r + 1) / size, shards, terms[r], sums[r]);
        for (int k = 0; k < n; k++) {
            items[r][k] = (comm_item){sums[r][k], outs[r], part, 0};
            if (row->op == COLLECTIVE_REDUCE && r != root) items[r][k].out = NULL;
        }
        w.args[r] = (comm_args){.op = row->op,
                                .order = COMM_ORDER_SHARD,
                                .type = DTYPE_F32,
                                .root = root,
                                .items = items[r],
                                .item_count = 1,
                                .terms = terms[r],
                                .term_count = n,
                                .shards = shards};
    }
    world_run(&w, row);
    for (int r = 0; r < size && row->op == COLLECTIVE_REDUCE_SCATTER; r++) {
        memcpy(out + r * part, outs[r], (size_t)part * 4);
    }
    for (int r = 0; r < size && row->op == COLLECTIVE_ALL_REDUCE; r++) {
        assert_memory_equal(outs[r], outs[0], sizeof(outs[r]));
    }
    if (row->op != COLLECTIVE_REDUCE_SCATTER) memcpy(out, outs[root], sizeof(outs[root]));
    world_end(&w);
}

static void test_strict(void **unused)
{
    (void)unused;
    static float want[COUNT], got[COUNT];
    static const int32_t shard_counts[] = {16, 13, 9};
    for (int64_t s = 0; s < COUNT_OF(shard_counts); s++) {
        const int32_t shards = shard_counts[s];
        shards_draw(shards);
        strict_run(&comm_algorithm_all_reduce_pieces, 1, shards, want);
        int strict = 0;
        for (int64_t i = 0; i < COUNT_OF(rows); i++) {
            if (!adds(rows[i]) || rows[i]->order != COMM_ORDER_SHARD) continue;
            strict++;
            for (int size = 1; size <= FIXTURE_RANKS; size++) {
                strict_run(rows[i], size, shards, got);
                const int64_t count =
                    rows[i]->op == COLLECTIVE_REDUCE_SCATTER ? COUNT / size * size : COUNT;
                assert_memory_equal(got, want, (size_t)count * 4);
            }
        }
        assert_int_equal(strict, 5);
    }
}

// One term per rank: the orders `any` and `rank` round otherwise than the tree, and all ranks agree
// on how.
static void test_orders_differ(void **unused)
{
    (void)unused;
    static world w;
    static float outs[FIXTURE_RANKS][COUNT], tree[COUNT], sequential[COUNT];
    enum { SIZE = 8 };
    shards_draw(SIZE);
    strict_run(&comm_algorithm_all_reduce_pieces, SIZE, SIZE, tree);
    const void *in[SIZE];
    for (int r = 0; r < SIZE; r++) in[r] = shard_values[r];
    comm_reducer r;
    assert_int_equal(ST_OK,
                     comm_reducer_sequential(COMM_SCALAR, DTYPE_F32, REDUCTION_SUM, SIZE, 1, &r));
    void *out = sequential;
    comm_reduce(&r, &(comm_reduce_args){.in = in, .out = &out, .outs = 1, .count = COUNT});
    assert_memory_not_equal(sequential, tree, sizeof(sequential));

    world_begin(&w, SIZE);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i]->op != COLLECTIVE_ALL_REDUCE || rows[i]->order == COMM_ORDER_SHARD) continue;
        comm_item items[SIZE];
        for (int k = 0; k < SIZE; k++) {
            items[k] = (comm_item){shard_values[k], outs[k], COUNT, 0};
            w.args[k] = (comm_args){.op = COLLECTIVE_ALL_REDUCE,
                                    .type = DTYPE_F32,
                                    .items = &items[k],
                                    .item_count = 1};
        }
        world_run(&w, rows[i]);
        for (int k = 1; k < SIZE; k++) assert_memory_equal(outs[k], outs[0], sizeof(outs[k]));
        if (rows[i] == &comm_algorithm_all_reduce_doubling)
            continue; // is the tree for 8; see below
        assert_memory_not_equal(outs[0], tree, sizeof(tree));
        assert_memory_not_equal(outs[0], sequential, sizeof(sequential));
    }
    world_end(&w);
}

// Doubling of 8 ranks is the tree over 8 terms; 5 ranks make ((0 + 1) + 2) + (3 + 4).
static void test_doubling_differs(void **unused)
{
    (void)unused;
    static world w;
    static float outs[FIXTURE_RANKS][COUNT], tree[COUNT];
    enum { SIZE = 5 };
    shards_draw(SIZE);
    strict_run(&comm_algorithm_all_reduce_gather, SIZE, SIZE, tree);
    world_begin(&w, SIZE);
    comm_item items[SIZE];
    for (int k = 0; k < SIZE; k++) {
        items[k] = (comm_item){shard_values[k], outs[k], COUNT, 0};
        w.args[k] = (comm_args){
            .op = COLLECTIVE_ALL_REDUCE, .type = DTYPE_F32, .items = &items[k], .item_count = 1};
    }
    world_run(&w, &comm_algorithm_all_reduce_doubling);
    for (int k = 1; k < SIZE; k++) assert_memory_equal(outs[k], outs[0], sizeof(outs[k]));
    assert_memory_not_equal(outs[0], tree, sizeof(tree));
    world_end(&w);
}

// The bytes of a row: a ring moves 2 (n - 1) / n of them per rank.
static void test_bytes(void **unused)
{
    (void)unused;
    static world w;
    static float outs[FIXTURE_RANKS][COUNT];
    enum { SIZE = 4, EVEN = 1000 };
    shards_draw(SIZE);
    world_begin(&w, SIZE);
    static const comm_algorithm *const best[] = {&comm_algorithm_all_reduce_ring,
                                                 &comm_algorithm_all_reduce_halving,
                                                 &comm_algorithm_all_reduce_pieces};
    for (int64_t i = 0; i < COUNT_OF(best); i++) {
        comm_item items[SIZE];
        for (int k = 0; k < SIZE; k++) {
            items[k] = (comm_item){shard_values[k], outs[k], EVEN, 0};
            w.args[k] = (comm_args){.op = COLLECTIVE_ALL_REDUCE,
                                    .type = DTYPE_F32,
                                    .items = &items[k],
                                    .item_count = 1};
        }
        const int64_t before = w.net.bytes;
        world_run(&w, best[i]);
        assert_int_equal(w.net.bytes - before, 2 * (SIZE - 1) * EVEN * 4);
    }
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),           cmocka_unit_test(test_large),
        cmocka_unit_test(test_all_to_allv),   cmocka_unit_test(test_strict),
        cmocka_unit_test(test_orders_differ), cmocka_unit_test(test_doubling_differs),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
