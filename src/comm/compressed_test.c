// Compressed sums: the result of every rank equals, to the bit, that of a plain loop over the same
// codec and the same pieces, for all numbers of ranks and cuts into tensors; the measured loss is
// the real one; a residual compensates for it over many steps.
#include "comm/compressed.h"
#include "fixtures/comm/test_ranks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { COUNT = 1500, STEPS = 4, MOST_RANKS = 5, TENSORS = 3, BAD = 321 };
static const int64_t counts[TENSORS] = {700, 1, 799};

typedef struct trial {
    const comm_codec *codec;
    int ranks, steps;
    int64_t piece; // 0: all_reduce
    bool streamed; // posted to a stream
    int32_t block;
    float (*results)[COUNT]; // [rank]: of the last step
    double (*reals)[COMM_REALS];
    bool bad;          // one rank has a value that is not finite
    double off[COUNT]; // rank 0: sum of decoded values minus sum of sent values
} trial;

// Values of a rank in a step, with a mean, so that a systematic loss shows.
static float value_at(int rank, int step, int64_t i)
{
    uint64_t z = (uint64_t)(rank * 31 + step) * 1000003u + (uint64_t)i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (float)((double)((z ^ (z >> 31)) >> 11) * 0x1p-53 - 0.4) * (i % 5 == 0 ? 3.0F : 1.0F);
}

static comm_cut cut_of(const trial *t)
{
    return (comm_cut){.codec = t->codec,
                      .bucket = {.count = COUNT,
                                 .block = t->block,
                                 .keep = 0.1,
                                 .vectors = comm_vectors_of_machine()},
                      .ranks = t->ranks,
                      .piece = t->piece};
}

static void fill(int rank, int step, float *values)
{
    for (int64_t i = 0; i < COUNT; i++) values[i] = value_at(rank, step, i);
}

// The ranks that get the sum of element i: if only its owner does, the others are not checked.
static int64_t piece_of(const trial *t)
{
    return t->piece > 0 ? t->piece : align_up((COUNT + t->ranks - 1) / t->ranks, 16);
}

// The sum, and a plain operation after it: their exchanges have different numbers.
static status post_and_wait(comm *c, device *d, device_stream *stream, const comm_args *args)
{
    bool posted = false;
    const float one = 1.0F;
    float mine = 1.0F, sum[MOST_RANKS];
    const comm_item item = {.in = &mine, .out = sum, .count = 1};
    const comm_args next = {
        .op = COLLECTIVE_ALL_GATHER, .type = DTYPE_F32, .items = &item, .item_count = 1};
    TRY(comm_post(comm_world(c), &device_cpu, stream, args, &posted));
    if (!posted) return fail_at(__FILE__, __LINE__, ST_INTERNAL, "an empty queue is full");
    TRY(comm_post(comm_world(c), &device_cpu, stream, &next, &posted));
    if (!posted) return fail_at(__FILE__, __LINE__, ST_INTERNAL, "an empty queue is full");
    TRY(device_cpu.sync(d));
    for (int r = 0; r < comm_ranks(c); r++) {
        if (memcmp(&sum[r], &one, sizeof(one)) != 0) {
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "rank %d is not there", r);
        }
    }
    return ST_OK;
}

static status body(comm *c, void *context)
{
    trial *t = context;
    const int rank = comm_rank(c);
    const comm_cut cut = cut_of(t);
    comm_item items[TENSORS];
    float *values = malloc(COUNT * sizeof(float));
    void *state = calloc(1, (size_t)comm_compressed_state_bytes(&cut) + 1);
    void *work = aligned_alloc(64, (size_t)comm_compressed_work_bytes(&cut));
    for (int64_t i = 0, at = 0; i < TENSORS; at += counts[i++]) {
        items[i] = (comm_item){values + at, values + at, counts[i], 0};
    }
    if (t->piece > 0) items[0].count = COUNT;
    arena *a = NULL;
    kern_context *kernels = NULL;
    const kern_hint hint = {.threads = 1};
    TRY(arena_create("kernels", 0, &a));
    TRY(kern_context_create(a, "ref", &hint, &kernels));
    const device_config config = {
        .h = host_real(), .run = &kern_device_kernels, .kernels = kernels};
    device *d = NULL;
    device_stream *stream = NULL;
    status st = device_cpu.create(&config, &d);
    if (st == ST_OK) st = device_cpu.stream_create(d, "dp", 1, &stream);
    for (int step = 0; step < t->steps && st == ST_OK; step++) {
        fill(rank, step, values);
        if (t->bad && rank == 1 && step == 1) values[BAD] = INFINITY;
        const comm_compressed how = {.cut = cut,
                                     .state = t->codec->feedback ? state : NULL,
                                     .work = work,
                                     .reals = t->reals[rank]};
        const comm_args args = {.op = t->piece > 0 ? COLLECTIVE_REDUCE_SCATTER
                                                   : COLLECTIVE_ALL_REDUCE,
                                .type = DTYPE_F32,
                                .items = items,
                                .item_count = t->piece > 0 ? 1 : TENSORS,
                                .compressed = &how,
                                .tensor = "test",
                                .site = "here"};
        st = t->streamed ? post_and_wait(c, d, stream, &args) : comm_run(comm_world(c), &args);
        for (int64_t i = 0; i < COUNT && rank == 0; i++) {
            t->off[i] += (double)values[i];
            for (int r = 0; r < t->ranks; r++) t->off[i] -= (double)value_at(r, step, i);
        }
    }
    memcpy(t->results[rank], values, COUNT * sizeof(float));
    if (d != NULL) device_cpu.destroy(d);
    arena_destroy(a);
    free(values);
    free(state);
    free(work);
    return st;
}

// ---- the plain loop -----------------------------------------------------------------------------
static void through(const trial *t, float *values, int64_t count, void *state)
{
    comm_bucket b = cut_of(t).bucket;
    b.count = count;
    unsigned char *stream = malloc((size_t)comm_compress_bytes(t->codec, &b) + 1);
    comm_loss loss;
    int64_t bytes = 0, bad = 0;
    assert_int_equal(ST_OK, comm_compress(t->codec, &b, values, state, stream, &bytes, &loss));
    assert_int_equal(ST_OK, comm_decompress(t->codec, &b, stream, bytes, values, &bad));
    free(stream);
}

static void reference(const trial *t, float *out)
{
    const int64_t piece = piece_of(t);
    for (int64_t begin = 0; begin < COUNT; begin += piece) {
        const int64_t n = min_i64(piece, COUNT - begin);
        unsigned char *states[MOST_RANKS + 1];
        for (int r = 0; r <= t->ranks; r++) states[r] = calloc(1, (size_t)(64 + 4 * n));
        for (int step = 0; step < t->steps; step++) {
            float sum[COUNT], part[COUNT];
            for (int r = 0; r < t->ranks; r++) {
                for (int64_t i = 0; i < n; i++) part[i] = value_at(r, step, begin + i);
                through(t, part, n, t->codec->feedback ? states[r] : NULL);
                for (int64_t i = 0; i < n; i++) sum[i] = r == 0 ? part[i] : sum[i] + part[i];
            }
            if (t->piece == 0) through(t, sum, n, t->codec->feedback ? states[t->ranks] : NULL);
            memcpy(out + begin, sum, (size_t)n * sizeof(float));
        }
        for (int r = 0; r <= t->ranks; r++) free(states[r]);
    }
}

// ---- tests --------------------------------------------------------------------------------------
static float results[MOST_RANKS][COUNT];
static double reals[MOST_RANKS][COMM_REALS];

static void run(trial *t)
{
    fixture_job job = {
        .ranks = t->ranks, .deadline_ns = INT64_C(20) * 1000000000, .body = body, .context = t};
    t->results = results;
    t->reals = reals;
    memset(t->off, 0, sizeof(t->off));
    fixture_run(&job);
    for (int r = 0; r < t->ranks; r++) {
        const fixture_result *end = &job.results[r];
        if (end->st != ST_OK) print_error("%s, rank %d: %s\n", t->codec->name, r, end->text);
        assert_int_equal(end->st, ST_OK);
    }
}

static void all_ranks_have_the_plain_loops_bits(void **unused)
{
    (void)unused;
    for (int k = 0; k < comm_codec_count(); k++) {
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
            for (int scatter = 0; scatter < 2; scatter++) {
                static float expected[COUNT];
                static trial t;
                t = (trial){.codec = comm_codec_table[k], .ranks = ranks, .steps = STEPS};
                t.block = 64;
                t.streamed = ranks % 2 == 1;
                t.piece = scatter ? (COUNT + ranks - 1) / ranks : 0;
                run(&t);
                reference(&t, expected);
                for (int r = 0; r < ranks; r++) {
                    const int64_t begin = scatter ? min_i64(r * t.piece, COUNT) : 0;
                    const int64_t n = scatter ? min_i64(t.piece, COUNT - begin) : COUNT;
                    assert_memory_equal(results[r] + begin, expected + begin, (size_t)n * 4);
                    assert_true(reals[r][COMM_NORM_OWN] > 0);
                    assert_true(comm_compressed_error(reals[r]) < 1);
                    assert_int_equal(reals[r][COMM_BYTES_SENT] > 0, ranks > 1);
                }
            }
        }
    }
}

// Without feedback every step loses the same part of the mean; with it the missing part does not
// grow.
static void feedback_makes_up_for_it(void **unused)
{
    (void)unused;
    static trial t;
    for (int k = 0; k < comm_codec_count(); k++) {
        if (!comm_codec_table[k]->feedback) continue;
        double off[2] = {0, 0}, most = 0;
        for (int i = 0; i < 2; i++) {
            t = (trial){.codec = comm_codec_table[k], .ranks = 2, .steps = i == 0 ? 100 : 400};
            run(&t);
            for (int64_t j = 0; j < COUNT; j++) off[i] += t.off[j] * t.off[j];
        }
        for (int64_t j = 0; j < COUNT; j++) { // the total that is sent
            double sent = 0;
            for (int s = 0; s < 400; s++) sent += (double)(value_at(0, s, j) + value_at(1, s, j));
            most += sent * sent;
        }
        assert_true(sqrt(off[1]) < 2 * sqrt(off[0]));  // 4 times the steps, no more is missing
        assert_true(sqrt(off[1]) < 0.25 * sqrt(most)); // which is little of all that was sent
    }
}

// The same values every step through a top-k that forgets: all but the same few are lost for ever.
static void without_feedback_it_is_lost(void **unused)
{
    (void)unused;
    const comm_codec *c = comm_codec_find("topk");
    const comm_bucket b = {.count = 256, .keep = 0.1};
    static float x[256], y[256];
    static unsigned char state[64 + 4 * 256], stream[4096];
    for (int remembers = 0; remembers < 2; remembers++) {
        double missing[2] = {0, 0}, arrived[256] = {0};
        memset(state, 0, sizeof(state));
        for (int step = 1; step <= 400; step++) {
            comm_loss loss;
            int64_t bytes = 0, bad = 0;
            for (int i = 0; i < 256; i++) x[i] = 1.0F + 0.01F * (float)i;
            if (!remembers) memset(state, 0, sizeof(state));
            assert_int_equal(ST_OK, comm_compress(c, &b, x, state, stream, &bytes, &loss));
            assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
            for (int i = 0; i < 256; i++) arrived[i] += (double)y[i];
            if (step != 100 && step != 400) continue;
            for (int i = 0; i < 256; i++) {
                const double d = (double)x[i] * step - arrived[i];
                missing[step == 400] += d * d;
            }
        }
        const double grown = sqrt(missing[1] / missing[0]);
        assert_true(remembers ? grown < 1.5 : grown > 3.9);
    }
}

// Where one rank's value is not finite all ranks see none (in onebit its block, in bf16 infinity),
// and two steps later nothing of it is left.
static void what_is_not_finite_shows(void **unused)
{
    (void)unused;
    static trial t;
    for (int k = 0; k < comm_codec_count(); k++) {
        for (int steps = 2; steps <= 3; steps++) {
            t = (trial){.codec = comm_codec_table[k], .ranks = 3, .steps = steps, .bad = true};
            run(&t);
            for (int r = 0; r < 3; r++) {
                int64_t bad = 0;
                for (int64_t i = 0; i < COUNT; i++) bad += !isfinite(results[r][i]);
                assert_int_equal(isfinite(results[r][BAD]), steps == 3);
                assert_true(bad <= (steps == 3                             ? 0
                                    : strcmp(t.codec->name, "onebit") == 0 ? 256
                                                                           : 1));
                assert_memory_equal(results[r], results[0], sizeof(results[r]));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_the_plain_loops_bits),
        cmocka_unit_test(feedback_makes_up_for_it),
        cmocka_unit_test(without_feedback_it_is_lost),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
