// Codecs: errors stay within the theoretical bound, the measured loss is the real one, feedback
// makes the mean of many steps right, NaN is reported and stays in its place, and decoders check
// every stream.
#include "comm/compress/compress.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 5000, STREAM = 64 + MOST * 9 };

static uint64_t seed = 1;
static uint64_t word(void) // splitmix64
{
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static float normal(void) // nearly: the sum of four uniform numbers
{
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += (double)(word() >> 11) * 0x1p-53 - 0.5;
    return (float)(sum * 1.7);
}

typedef enum shape { NORMAL, ZEROS, SPIKE, DENORMAL, LARGEST, STEEP, SIGNS, SHAPE_COUNT } shape;

static void fill(shape s, float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float g = normal();
        x[i] = g;
        if (s == ZEROS) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
        if (s == SPIKE) x[i] = i % 97 == 3 ? 1e6F : g * 1e-6F;
        if (s == DENORMAL) x[i] = g * 1e-41F;
        if (s == LARGEST) x[i] = g < 0 ? -3e38F : 1e38F * fminf(g, 3);
        if (s == STEEP) x[i] = ldexpf(g, (int)(word() % 200) - 100);
        if (s == SIGNS) x[i] = g < 0 ? -0.125F : 0.125F;
    }
}

static comm_bucket bucket(int64_t count, comm_vectors vectors)
{
    return (comm_bucket){.count = count, .block = 64, .keep = 0.1, .vectors = vectors};
}

static bool same_bytes(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static int64_t encode(const comm_codec *c, const comm_bucket *b, const float *x, void *state,
                      unsigned char *out, comm_loss *loss)
{
    int64_t bytes = 0;
    assert_true(comm_compress_bytes(c, b) <= STREAM);
    assert_int_equal(ST_OK, comm_compress(c, b, x, state, out, &bytes, loss));
    assert_true(bytes <= comm_compress_bytes(c, b));
    return bytes;
}

static void *state_new(const comm_codec *c, const comm_bucket *b)
{
    const int64_t bytes = comm_compress_state_bytes(c, b);
    if (bytes == 0) return NULL;
    void *state = calloc(1, (size_t)bytes);
    assert_non_null(state);
    return state;
}

// The most that a value may be off, in a block whose largest magnitude is `largest`; below 0: no
// bound per value.
static double allowed(const comm_codec *c, double x, double largest)
{
    const double slack = 1 + 1e-4; // products with the scale round, in fp32
    if (strcmp(c->name, "bf16") == 0) return fmax(fabs(x) * 0x1p-8, 0x1p-134);
    if (strcmp(c->name, "int8") == 0) return largest / 254 * slack + 0x1p-149;
    if (strcmp(c->name, "fp8") == 0) {
        return fmax(fabs(x) * 0x1p-4, largest / 448 * 0x1p-10) * slack + 0x1p-149;
    }
    return -1;
}

static void errors_are_bounded(void **unused)
{
    (void)unused;
    static const int64_t counts[] = {0, 1, 31, 64, 65, 1000, MOST};
    static float x[MOST], y[MOST];
    static unsigned char stream[STREAM];
    for (int k = 0; k < comm_codec_count(); k++) {
        const comm_codec *c = comm_codec_table[k];
        assert_ptr_equal(c, comm_codec_find(c->name));
        for (int64_t t = 0; t < COUNT_OF(counts) * SHAPE_COUNT; t++) {
            const comm_bucket b = bucket(counts[t / SHAPE_COUNT], comm_vectors_of_machine());
            fill((shape)(t % SHAPE_COUNT), x, b.count);
            void *state = state_new(c, &b);
            comm_loss loss;
            const int64_t bytes = encode(c, &b, x, state, stream, &loss);
            int64_t bad = -1;
            assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
            assert_int_equal(bad, 0);
            double error = 0, norm = 0;
            for (int64_t i = 0; i < b.count; i++) {
                double largest = 0;
                for (int64_t j = i / 64 * 64; j < b.count && j < i / 64 * 64 + 64; j++) {
                    largest = fmax(largest, fabs((double)x[j]));
                }
                const double off = fabs((double)x[i] - (double)y[i]);
                const double most = allowed(c, (double)x[i], largest);
                if (most >= 0 && off > most)
                    fail_msg("%s shape %d count %d i %d: %.9g -> %.9g off %g, %g; largest %g",
                             c->name, (int)(t % SHAPE_COUNT), (int)b.count, (int)i, (double)x[i],
                             (double)y[i], off, most, largest);
                error += off * off;
                norm += (double)x[i] * (double)x[i];
            }
            assert_true(fabs(loss.error_squared - error) <= 1e-9 * error);
            assert_true(fabs(loss.norm_squared - norm) <= 1e-9 * norm);
            // The contractions that feedback rests on.
            if (strcmp(c->name, "topk") == 0) assert_true(error <= 0.9 * norm * (1 + 1e-12));
            if (c->feedback) assert_true(error <= norm * (1 + 1e-6));
            assert_true(comm_loss_relative(&loss) <= 1.000001);
            if (t % SHAPE_COUNT == ZEROS) assert_true(comm_loss_relative(&loss) == 0);
            if (t % SHAPE_COUNT == SIGNS && strcmp(c->name, "onebit") == 0) assert_true(error == 0);
            free(state);
        }
    }
}

static void levels_agree(void **unused)
{
    (void)unused;
    static float x[MOST], y[2][MOST];
    static unsigned char stream[2][STREAM];
    for (int k = 0; k < comm_codec_count(); k++) {
        const comm_codec *c = comm_codec_table[k];
        for (int s = 0; s < SHAPE_COUNT * 4; s++) {
            int64_t bytes[2], bad;
            comm_loss losses[2];
            void *states[2];
            for (int v = 0; v < 2; v++) {
                const comm_bucket b = bucket(MOST - (int64_t)s * 13,
                                             v == 0 ? COMM_SCALAR : comm_vectors_of_machine());
                if (v == 0) fill((shape)(s % SHAPE_COUNT), x, b.count);
                if (s >= SHAPE_COUNT * 2) x[(size_t)s * 31] = s % 2 == 0 ? NAN : -INFINITY;
                void *state = state_new(c, &b);
                memset(stream[v], 0, sizeof(stream[v]));
                bytes[v] = encode(c, &b, x, state, stream[v], &losses[v]);
                states[v] = state;
                assert_int_equal(ST_OK, comm_decompress(c, &b, stream[v], bytes[v], y[v], &bad));
            }
            const comm_bucket last = bucket(MOST - (int64_t)s * 13, COMM_SCALAR);
            const int64_t state_bytes = comm_compress_state_bytes(c, &last);
            if (state_bytes > 0) assert_memory_equal(states[0], states[1], (size_t)state_bytes);
            for (int v = 0; v < 2; v++) free(states[v]);
            assert_memory_equal(&losses[0], &losses[1], sizeof(comm_loss));
            assert_int_equal(bytes[0], bytes[1]);
            assert_memory_equal(stream[0], stream[1], (size_t)bytes[0]);
            assert_memory_equal(y[0], y[1], (size_t)MOST * 4 - (size_t)s * 52);
        }
    }
}

static void nan_stays_where_it_is(void **unused)
{
    (void)unused;
    enum { COUNT = 1000 };
    static float x[COUNT], clean[COUNT], y[COUNT], without[COUNT];
    static unsigned char stream[STREAM];
    for (int k = 0; k < comm_codec_count(); k++) {
        const comm_codec *c = comm_codec_table[k];
        const comm_bucket b = bucket(COUNT, comm_vectors_of_machine());
        fill(NORMAL, clean, COUNT);
        clean[70] = clean[500] = clean[999] = 0; // where it will be: so that scales are the same
        memcpy(x, clean, sizeof(x));
        x[70] = NAN;
        x[500] = INFINITY;
        x[999] = -INFINITY;
        void *state = state_new(c, &b), *other = state_new(c, &b);
        comm_loss loss;
        int64_t bytes = encode(c, &b, clean, other, stream, &loss), bad = -1;
        assert_int_equal(loss.non_finite, 0);
        assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, without, &bad));
        bytes = encode(c, &b, x, state, stream, &loss);
        assert_int_equal(loss.non_finite, 3);
        assert_true(isfinite(loss.error_squared) != 0);
        assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
        assert_int_equal(bad, 3);
        const bool by_block = strcmp(c->name, "onebit") == 0;
        int64_t differ = 0;
        for (int64_t i = 0; i < COUNT; i++) {
            const bool hit = i == 70 || i == 500 || i == 999;
            const bool near = i / 64 == 70 / 64 || i / 64 == 500 / 64 || i / 64 == 999 / 64;
            if (hit)
                assert_true(!isfinite(y[i]));
            else if (!by_block || !near)
                differ += y[i] != without[i];
        }
        // top-k sends three values less, for the three that are not numbers.
        assert_true(differ <= (strcmp(c->name, "topk") == 0 ? 3 : 0));
        const float *residual = state;
        for (int64_t i = 16; state != NULL && i < 16 + COUNT; i++)
            assert_true(isfinite(residual[i]) != 0);
        // The next step has no trace of it.
        bytes = encode(c, &b, clean, state, stream, &loss);
        assert_int_equal(loss.non_finite, 0);
        assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
        for (int64_t i = 0; i < COUNT; i++) assert_true(isfinite(y[i]) != 0);
        free(state);
        free(other);
    }
}

static double norm_of(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

// e' = v - C(v), v = e + x, ||e'|| <= q ||v||: so ||e|| <= q / (1 - q) max ||x||, and the mean of
// the decoded values differs from the mean of x by ||e|| / steps.
static void feedback_loses_nothing(void **unused)
{
    (void)unused;
    enum { COUNT = 512, STEPS = 300 };
    static float x[COUNT], y[COUNT];
    static double sent[COUNT], arrived[COUNT], off[COUNT];
    static unsigned char stream[STREAM];
    for (int k = 0; k < comm_codec_count(); k++) {
        const comm_codec *c = comm_codec_table[k];
        if (!c->feedback) continue;
        const comm_bucket b = bucket(COUNT, comm_vectors_of_machine());
        void *state = state_new(c, &b);
        memset(sent, 0, sizeof(sent));
        memset(arrived, 0, sizeof(arrived));
        double largest = 0, worst = 0;
        for (int step = 0; step < STEPS; step++) {
            double norm = 0;
            for (int64_t i = 0; i < COUNT; i++) { // a mean per value, and noise
                x[i] = (float)(i % 7) * 0.1F + normal();
                norm += (double)x[i] * (double)x[i];
                sent[i] += (double)x[i];
            }
            comm_loss loss;
            int64_t bad;
            const int64_t bytes = encode(c, &b, x, state, stream, &loss);
            assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
            for (int64_t i = 0; i < COUNT; i++) arrived[i] += (double)y[i];
            largest = fmax(largest, sqrt(norm));
            worst = fmax(worst, comm_loss_relative(&loss));
        }
        assert_true(worst < 1);
        const float *residual = (const float *)state + 16;
        for (int64_t i = 0; i < COUNT; i++) {
            off[i] = sent[i] - arrived[i];
            assert_true(fabs(off[i] - (double)residual[i]) < 1e-3); // roundings of fp32
        }
        assert_true(norm_of(off, COUNT) <= worst / (1 - worst) * largest);
        assert_true(norm_of(off, COUNT) / STEPS < 0.2 * largest); // useful, not only true
        free(state);
    }
}

static void warm_up_travels_whole(void **unused)
{
    (void)unused;
    enum { COUNT = 300 };
    static float x[COUNT], y[COUNT];
    static unsigned char stream[STREAM], again[STREAM];
    const comm_codec *c = comm_codec_find("onebit");
    comm_bucket b = bucket(COUNT, comm_vectors_of_machine());
    b.warm_steps = 3;
    void *state = state_new(c, &b), *copy = state_new(c, &b);
    for (int step = 0; step < 6; step++) {
        fill(NORMAL, x, COUNT);
        memcpy(copy, state, (size_t)comm_compress_state_bytes(c, &b)); // a checkpoint
        comm_loss loss;
        int64_t bad;
        const int64_t bytes = encode(c, &b, x, state, stream, &loss);
        assert_int_equal(ST_OK, comm_decompress(c, &b, stream, bytes, y, &bad));
        assert_int_equal(step < 3, same_bytes(x, y, sizeof(x)));
        assert_int_equal(step < 3, comm_loss_relative(&loss) == 0);
        assert_int_equal(bytes < COUNT, step >= 3);
        assert_int_equal(bytes, encode(c, &b, x, copy, again, &loss));
        assert_memory_equal(stream, again, (size_t)bytes);
        assert_memory_equal(state, copy, (size_t)comm_compress_state_bytes(c, &b));
    }
    free(state);
    free(copy);
}

// Cut, grown and changed in every byte: refused, or values of the right number; never memory
// beyond.
static void streams_are_not_believed(void **unused)
{
    (void)unused;
    enum { COUNT = 150 };
    static float x[COUNT];
    static unsigned char stream[STREAM];
    for (int k = 0; k < comm_codec_count(); k++) {
        const comm_codec *c = comm_codec_table[k];
        comm_bucket b = bucket(COUNT, comm_vectors_of_machine());
        fill(NORMAL, x, COUNT);
        void *state = state_new(c, &b);
        comm_loss loss;
        const int64_t bytes = encode(c, &b, x, state, stream, &loss);
        free(state);
        float *y = malloc(sizeof(x)); // exact sizes, for the address sanitizer
        unsigned char *cut = malloc((size_t)bytes + 1);
        if (y == NULL || cut == NULL) abort();
        int64_t bad, refused = 0;
        for (int64_t n = 0; n <= bytes + 1; n++) {
            unsigned char *exact = malloc((size_t)n + 1);
            assert_non_null(exact);
            memcpy(exact + 1, stream, (size_t)min_i64(n, bytes));
            if (n > bytes) exact[n] = 0;
            const status st = comm_decompress(c, &b, exact + 1, n, y, &bad);
            assert_int_equal(st, n == bytes ? ST_OK : ST_DAMAGED);
            free(exact);
        }
        for (int64_t n = 0; n < bytes * 8; n++) {
            memcpy(cut, stream, (size_t)bytes);
            cut[n / 8] ^= (unsigned char)(1u << (n % 8));
            const status st = comm_decompress(c, &b, cut, bytes, y, &bad);
            assert_true(st == ST_OK || st == ST_DAMAGED || st == ST_DIVERGED);
            refused += st != ST_OK;
        }
        assert_true(refused > 200); // of the header's 320 bits nearly all
        b.count = COUNT + 1;
        assert_int_equal(ST_DIVERGED, comm_decompress(c, &b, stream, bytes, y, &bad));
        b.count = COUNT;
        b.block = 48;
        assert_int_equal(ST_CONFIG_RANGE, comm_decompress(c, &b, stream, bytes, y, &bad));
        free(y);
        free(cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_bounded),    cmocka_unit_test(levels_agree),
        cmocka_unit_test(nan_stays_where_it_is), cmocka_unit_test(feedback_loses_nothing),
        cmocka_unit_test(warm_up_travels_whole), cmocka_unit_test(streams_are_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
