// Reducers against naive sums: every type, operation, number of inputs, odd sizes, odd addresses;
// scalar and vector loops to the bit; the tree gives the same bits however the shards are
// distributed.
#include "comm/reduce.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_INS = 65, MAX_COUNT = 5000, GUARD = 64 };

static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I8,  DTYPE_U8,
                              DTYPE_I16, DTYPE_U16,  DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_U64};

static bool is_float(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16 || type == DTYPE_F64;
}

static uint64_t state = 1;
static uint64_t word(void) // splitmix64
{
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// Plain values; with `wild` also infinities, NaN of any payload, denormals and zeros of both signs.
static void fill(dtype type, unsigned char *at, int64_t count, bool wild)
{
    const int64_t width = dtype_bytes(type);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = word();
        if (is_float(type) && !(wild && bits % 4 == 0)) {
            double v = ((double)(word() >> 11) * 0x1p-53 - 0.5) * 8;
            if (wild && bits % 16 == 1) v = bits & 64 ? -0.0 : 0.0;
            if (wild && bits % 16 == 3) v = bits & 64 ? (double)-INFINITY : (double)INFINITY;
            dtype_store(type, at, i, v);
        } else {
            bits = word();
            memcpy(at + i * width, &bits, (size_t)width);
        }
    }
}

// ---- the reference ------------------------------------------------------------------------------
static double float_of(dtype type, double x) // where sums are kept
{
    return type == DTYPE_F64 ? x : (double)(float)x;
}

static double pick(op_reduction reduction, double a, double b)
{
    if (isnan(a) || isnan(b)) return (double)NAN;
    if (a == 0 && b == 0) {
        const bool minus =
            reduction == REDUCTION_MAX ? signbit(a) && signbit(b) : signbit(a) || signbit(b);
        return minus ? -0.0 : 0.0;
    }
    return reduction == REDUCTION_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static double combine(dtype type, op_reduction reduction, double a, double b)
{
    if (reduction == REDUCTION_MAX || reduction == REDUCTION_MIN) return pick(reduction, a, b);
    if (type == DTYPE_F64) return a + b;
    return (double)((float)a + (float)b);
}

static void put(dtype type, void *out, int64_t i, double sum, double scale)
{
    const double v = type == DTYPE_F64 ? sum * scale : (double)((float)sum * (float)scale);
    if (type == DTYPE_F32) {
        const float f = isnan(v) ? NAN : (float)v;
        memcpy((char *)out + i * 4, &f, 4);
    } else {
        dtype_store(type, out, i, isnan(v) ? (double)NAN : float_of(type, v));
    }
}

// Integers as 128-bit ones, cut at the end.
static void integers(dtype type, op_reduction reduction, void *const *in, int n, int64_t i,
                     void *out)
{
    const int64_t width = dtype_bytes(type);
    const bool is_signed =
        type == DTYPE_I8 || type == DTYPE_I16 || type == DTYPE_I32 || type == DTYPE_I64;
    __extension__ typedef __int128 wide;
    wide total = 0;
    for (int k = 0; k < n; k++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)in[k] + i * width, (size_t)width);
        wide v = (wide)bits;
        if (is_signed && (bits >> (8 * width - 1) & 1) != 0) v -= (wide)1 << (8 * width);
        const bool wins = k == 0 || (reduction == REDUCTION_MAX ? v > total : v < total);
        if (reduction == REDUCTION_SUM) {
            total += v;
        } else if (wins) {
            total = v;
        }
    }
    const uint64_t bits = (uint64_t)total;
    memcpy((char *)out + i * width, &bits, (size_t)width);
}

static void reference_sequential(dtype type, op_reduction reduction, void *const *in, int n,
                                 int64_t count, void *out)
{
    for (int64_t i = 0; i < count; i++) {
        if (!is_float(type)) {
            integers(type, reduction, in, n, i, out);
            continue;
        }
        double sum = dtype_load(type, in[0], i);
        for (int k = 1; k < n; k++) {
            sum = combine(type, reduction, sum, dtype_load(type, in[k], i));
        }
        put(type, out, i, sum, reduction == REDUCTION_AVG ? 1.0 / n : 1.0);
    }
}

// The tree, by its definition: over one element's terms; false where the node has none.
static bool node(dtype type, const comm_term *terms, int n, const double *x, int64_t b,
                 int64_t width, double *out)
{
    for (int k = 0; k < n; k++) {
        if (terms[k].begin == b && (terms[k].end - b == width || width == 1)) {
            *out = x[k];
            return true;
        }
    }
    if (width == 1) return false;
    double l, r;
    const bool left = node(type, terms, n, x, b, width / 2, &l);
    const bool right = node(type, terms, n, x, b + width / 2, width / 2, &r);
    if (left && right)
        *out = combine(type, REDUCTION_SUM, l, r);
    else if (left)
        *out = l;
    else if (right)
        *out = r;
    return left || right;
}

// ---- buffers at odd addresses, with guards -----------------------------------------------------
typedef struct bench {
    unsigned char *memory[MAX_INS + 3];
    void *in[MAX_INS], *out[3];
} bench;

static void bench_make(bench *b, int64_t bytes, int step)
{
    for (int k = 0; k < MAX_INS + 3; k++) {
        b->memory[k] = malloc((size_t)bytes + 2 * GUARD + 64);
        assert_non_null(b->memory[k]);
        memset(b->memory[k], 0xa5, (size_t)bytes + 2 * GUARD + 64);
        void *at = b->memory[k] + GUARD + (k * step) % 64;
        if (k < MAX_INS)
            b->in[k] = at;
        else
            b->out[k - MAX_INS] = at;
    }
}

static void bench_drop(bench *b)
{
    for (int k = 0; k < MAX_INS + 3; k++) free(b->memory[k]);
}

static void guards_check(const bench *b, int k, int64_t bytes)
{
    const unsigned char *at = b->out[k];
    for (int i = 1; i <= GUARD; i++) assert_int_equal(at[-i], 0xa5);
    for (int i = 0; i < 16; i++) assert_int_equal(at[bytes + i], 0xa5);
}

// By the scalar loops, the best ones, and the best ones streamed to three outputs.
static void sequential_check(bench *b, dtype type, op_reduction reduction, int n, int64_t count)
{
    static unsigned char want[1000 * 8];
    const int64_t bytes = count * dtype_bytes(type);
    reference_sequential(type, reduction, b->in, n, count, want);
    for (int v = 0; v < 3; v++) {
        comm_reducer red;
        assert_int_equal(ST_OK,
                         comm_reducer_sequential(v == 0 ? COMM_SCALAR : comm_vectors_of_machine(),
                                                 type, reduction, n, n, &red));
        const int outs = v == 2 ? 3 : 1;
        comm_reduce(&red,
                    &(comm_reduce_args){.in = (const void *const *)b->in,
                                        .out = b->out,
                                        .outs = outs,
                                        .stores = v == 2 ? COMM_STORE_STREAM : COMM_STORE_CACHED,
                                        .count = count});
        for (int k = 0; k < outs; k++) {
            assert_memory_equal(b->out[k], want, (size_t)bytes);
            guards_check(b, k, bytes);
            memset(b->out[k], 0xa5, (size_t)bytes);
        }
    }
}

static void sequential_counts_check(bench *b, dtype type, op_reduction reduction)
{
    static const int64_t counts[] = {0, 1, 7, 31, 33, 64, 129, 1000};
    for (int n = 1; n <= 9; n++) {
        for (int64_t c = 0; c < COUNT_OF(counts); c++) {
            for (int k = 0; k < n; k++) fill(type, b->in[k], counts[c], (n + c) % 2 == 0);
            sequential_check(b, type, reduction, n, counts[c]);
        }
    }
}

static void test_sequential(void **unused)
{
    (void)unused;
    for (int64_t t = 0; t < COUNT_OF(types); t++) {
        bench b;
        bench_make(&b, 1000 * 8, 7); // odd addresses for all but bytes
        for (int r = 0; r < REDUCTION_COUNT; r++) {
            if (comm_reduce_can(types[t], (op_reduction)r))
                sequential_counts_check(&b, types[t], (op_reduction)r);
        }
        bench_drop(&b);
    }
}

// In place, over part of the range, to several outputs.
static void test_ranges(void **unused)
{
    (void)unused;
    enum { COUNT = 3000 };
    static unsigned char want[COUNT * 8], before[COUNT * 8];
    for (int64_t t = 0; t < COUNT_OF(types); t++) {
        bench b;
        bench_make(&b, COUNT * 8, 64);
        const int64_t width = dtype_bytes(types[t]);
        comm_term terms[6];
        for (int k = 0; k < 6; k++) {
            fill(types[t], b.in[k], COUNT, false);
            terms[k] = (comm_term){k, k + 1};
        }
        comm_reducer sequential, tree;
        const comm_vectors best = comm_vectors_of_machine();
        assert_int_equal(ST_OK,
                         comm_reducer_sequential(best, types[t], REDUCTION_SUM, 6, 6, &sequential));
        assert_int_equal(ST_OK,
                         comm_reducer_tree(best, types[t], REDUCTION_SUM, terms, 6, 6, 6, &tree));
        for (int v = 0; v < 2; v++) {
            const comm_reducer *r = v == 0 ? &sequential : &tree;
            void *all[1] = {want};
            comm_reduce(
                r, &(comm_reduce_args){
                       .in = (const void *const *)b.in, .out = all, .outs = 1, .count = COUNT});
            // The middle of it, onto inputs 1 and 4 and elsewhere.
            memcpy(before, b.in[1], (size_t)(COUNT * width));
            void *outs[3] = {b.in[1], b.out[0], b.in[4]};
            comm_reduce(r, &(comm_reduce_args){.in = (const void *const *)b.in,
                                               .out = outs,
                                               .outs = 3,
                                               .begin = 77,
                                               .count = 2001});
            for (int k = 0; k < 3; k++) {
                assert_memory_equal((char *)outs[k] + 77 * width, want + 77 * width,
                                    (size_t)(2001 * width));
            }
            assert_memory_equal(b.in[1], before, (size_t)(77 * width));
            assert_memory_equal((char *)b.in[1] + 2078 * width, before + 2078 * width,
                                (size_t)((COUNT - 2078) * width));
        }
        bench_drop(&b);
    }
}

// Random forests of terms: some shards joined to nodes, some absent.
static int terms_draw(comm_term *terms, int32_t shards, int absent_of_8)
{
    int n = 0;
    for (int32_t s = 0; s < shards;) {
        int32_t width = 1;
        while (s % (width * 2) == 0 && s + width < shards && word() % 3 == 0) width *= 2;
        const int32_t end = s + width < shards ? s + width : shards;
        if ((int)(word() % 8) >= absent_of_8 || (n == 0 && end == shards)) {
            terms[n++] = (comm_term){s, end};
        }
        s = end;
    }
    return n;
}

// By its definition, element by element.
static void reference_tree(dtype type, const comm_term *terms, int n, int32_t shards,
                           void *const *in, int64_t count, double scale, void *out)
{
    int64_t width = 1;
    while (width < shards) width *= 2;
    comm_term full[MAX_INS]; // a term that the last shard cuts short is the node of full width
    for (int k = 0; k < n; k++) {
        int32_t w = 1;
        while (w < terms[k].end - terms[k].begin) w *= 2;
        full[k] = (comm_term){terms[k].begin, terms[k].begin + w};
    }
    for (int64_t i = 0; i < count; i++) {
        double x[MAX_INS], sum = 0;
        for (int k = 0; k < n; k++) x[k] = dtype_load(type, in[k], i);
        assert_true(node(type, full, n, x, 0, width, &sum));
        put(type, out, i, sum, scale);
    }
}

static void tree_check(bench *b, dtype type, int trial)
{
    static unsigned char want[2100 * 8];
    const int32_t shards = 1 + (int32_t)(word() % (trial % 4 == 0 ? 64 : 17));
    const int64_t count = trial % 5 == 0 ? 2100 : (int64_t)(word() % 100);
    const op_reduction reduction = trial % 3 == 1 ? REDUCTION_AVG : REDUCTION_SUM;
    comm_term terms[MAX_INS];
    const int n = terms_draw(terms, shards, trial % 3);
    for (int k = 0; k < n; k++) fill(type, b->in[k], count, trial % 2 == 0);
    reference_tree(type, terms, n, shards, b->in, count,
                   reduction == REDUCTION_AVG ? 1.0 / shards : 1.0, want);
    for (int v = 0; v < 3; v++) {
        comm_reducer r;
        assert_int_equal(ST_OK, comm_reducer_tree(v == 0 ? COMM_SCALAR : comm_vectors_of_machine(),
                                                  type, reduction, terms, n, shards, shards, &r));
        comm_reduce(&r,
                    &(comm_reduce_args){.in = (const void *const *)b->in,
                                        .out = b->out,
                                        .outs = 2,
                                        .stores = v == 2 ? COMM_STORE_STREAM : COMM_STORE_CACHED,
                                        .count = count});
        for (int k = 0; k < 2; k++) {
            const int64_t bytes = count * dtype_bytes(type);
            assert_memory_equal(b->out[k], want, (size_t)bytes);
            guards_check(b, k, bytes);
            memset(b->out[k], 0xa5, (size_t)bytes);
        }
    }
}

static void test_tree(void **unused)
{
    (void)unused;
    static const dtype floats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64};
    for (int64_t t = 0; t < COUNT_OF(floats); t++) {
        bench b;
        bench_make(&b, 2100 * 8, 3);
        for (int trial = 0; trial < 60; trial++) tree_check(&b, floats[t], trial);
        bench_drop(&b);
    }
}

// ---- any owners, the same bits -----------------------------------------------------------------
// The terms of an owner of shards [begin, end): the sums of the nodes of the tree that are
// completely inside its shards.
static int nodes_of(int32_t begin, int32_t end, int32_t shards, comm_term *terms)
{
    int n = 0;
    while (begin < end) {
        int32_t width = 1;
        while (begin % (2 * width) == 0 &&
               (begin + 2 * width <= end || (end == shards && begin + width < end))) {
            width *= 2;
        }
        const int32_t to = begin + width < shards ? begin + width : shards;
        terms[n++] = (comm_term){begin, to};
        begin = to;
    }
    return n;
}

// Shards `lo` to `hi` of them, absent one left out, summed into one buffer by the tree.
static bool shards_sum(float (*x)[37], uint64_t present, comm_term range, int32_t shards,
                       float *out)
{
    comm_term terms[MAX_INS];
    const void *in[MAX_INS];
    int n = 0;
    for (int32_t s = range.begin; s < range.end; s++) {
        if ((present >> s & 1) == 0) continue;
        terms[n] = (comm_term){s, s + 1};
        in[n++] = x[s];
    }
    if (n == 0) return false;
    comm_reducer r;
    assert_int_equal(ST_OK, comm_reducer_tree(comm_vectors_of_machine(), DTYPE_F32, REDUCTION_SUM,
                                              terms, n, shards, 1, &r));
    void *to = out;
    comm_reduce(&r, &(comm_reduce_args){.in = in, .out = &to, .outs = 1, .count = 37});
    return true;
}

// Owner o of n has shards [cut[o], cut[o + 1]).
static void owners_sum(float (*x)[37], uint64_t present, const int32_t *cut, int owners, float *out)
{
    static float sums[MAX_INS][37];
    comm_term terms[MAX_INS], mine[MAX_INS];
    const void *in[MAX_INS];
    int n = 0;
    for (int o = 0; o < owners; o++) {
        const int count = nodes_of(cut[o], cut[o + 1], cut[owners], mine);
        for (int k = 0; k < count; k++) {
            if (!shards_sum(x, present, mine[k], cut[owners], sums[n])) continue;
            in[n] = sums[n];
            terms[n++] = mine[k];
        }
    }
    comm_reducer r;
    assert_int_equal(ST_OK, comm_reducer_tree(comm_vectors_of_machine(), DTYPE_F32, REDUCTION_SUM,
                                              terms, n, cut[owners], 1, &r));
    void *to = out;
    comm_reduce(&r, &(comm_reduce_args){.in = in, .out = &to, .outs = 1, .count = 37});
}

// Every way to cut S shards among up to 9 consecutive owners (S <= 10: all; above: many).
static void test_owners(void **unused)
{
    (void)unused;
    static float x[16][37], want[37], got[37];
    int64_t ways = 0;
    for (int32_t shards = 1; shards <= 16; shards++) {
        for (int s = 0; s < shards; s++) fill(DTYPE_F32, (unsigned char *)x[s], 37, false);
        const uint64_t all = (UINT64_C(1) << shards) - 1;
        const uint64_t present[2] = {
            all, shards > 1 ? all & ~(UINT64_C(1) << (word() % (uint64_t)shards)) : all};
        for (int p = 0; p < 2; p++) {
            assert_true(shards_sum(x, present[p], (comm_term){0, shards}, shards, want));
            for (uint32_t cuts = 0; cuts < UINT32_C(1) << (shards - 1); cuts++) {
                if (__builtin_popcount(cuts) > 8 || (shards > 10 && word() % 32 != 0)) continue;
                int32_t cut[17] = {0};
                int owners = 0;
                for (int32_t s = 1; s < shards; s++) {
                    if ((cuts >> (s - 1) & 1) != 0) cut[++owners] = s;
                }
                cut[++owners] = shards;
                owners_sum(x, present[p], cut, owners, got);
                assert_memory_equal(got, want, sizeof(want));
                ways++;
            }
        }
    }
    assert_true(ways > 2000);
}

// Pairwise reduction through fp32, as messages do it, equals the sequential reduction of two.
static void test_two(void **unused)
{
    (void)unused;
    enum { COUNT = 777 };
    static unsigned char want[COUNT * 8], got[COUNT * 8];
    static float wide[2][COUNT];
    for (int64_t t = 0; t < COUNT_OF(types); t++) {
        bench b;
        bench_make(&b, COUNT * 8, 5);
        for (int k = 0; k < 2; k++) fill(types[t], b.in[k], COUNT, true);
        for (int v = 0; v < 2; v++) {
            const comm_vectors vectors = v == 0 ? COMM_SCALAR : comm_vectors_of_machine();
            const size_t bytes = (size_t)(COUNT * dtype_bytes(types[t]));
            for (int r = 0; r < REDUCTION_AVG; r++) {
                reference_sequential(types[t], (op_reduction)r, b.in, 2, COUNT, want);
                comm_reduce_two(vectors, types[t], (op_reduction)r, b.in[0], b.in[1], got, COUNT);
                assert_memory_equal(got, want, bytes);
            }
            if (types[t] == DTYPE_F32 || types[t] == DTYPE_F64) {
                reference_sequential(types[t], REDUCTION_AVG, b.in, 2, COUNT, want);
                comm_reduce_two(vectors, types[t], REDUCTION_SUM, b.in[0], b.in[1], got, COUNT);
                comm_reduce_scale(vectors, types[t], got, got, COUNT, 0.5);
                assert_memory_equal(got, want, bytes);
            }
            if (types[t] != DTYPE_BF16 && types[t] != DTYPE_F16) continue;
            reference_sequential(types[t], REDUCTION_AVG, b.in, 2, COUNT, want);
            for (int k = 0; k < 2; k++)
                comm_reduce_widen(vectors, types[t], b.in[k], wide[k], COUNT);
            comm_reduce_two(vectors, DTYPE_F32, REDUCTION_AVG, wide[0], wide[1], wide[0], COUNT);
            comm_reduce_narrow(vectors, types[t], wide[0], got, COUNT, 0.5);
            assert_memory_equal(got, want, bytes);
        }
        bench_drop(&b);
    }
}

static void test_refused(void **unused)
{
    (void)unused;
    comm_reducer r;
    assert_int_equal(ST_UNSUPPORTED,
                     comm_reducer_sequential(COMM_SCALAR, DTYPE_BOOL, REDUCTION_SUM, 2, 1, &r));
    assert_int_equal(ST_UNSUPPORTED,
                     comm_reducer_sequential(COMM_SCALAR, DTYPE_I32, REDUCTION_AVG, 2, 2, &r));
    static const comm_term bad[][2] = {{{1, 3}, {3, 4}}, {{0, 3}, {4, 5}}, {{4, 5}, {0, 1}},
                                       {{0, 4}, {2, 4}}, {{0, 0}, {1, 2}}, {{0, 4}, {7, 9}}};
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(ST_INTERNAL, comm_reducer_tree(COMM_SCALAR, DTYPE_F32, REDUCTION_SUM,
                                                        bad[i], 2, 8, 1, &r));
    }
    assert_int_equal(ST_INTERNAL,
                     comm_reducer_tree(COMM_SCALAR, DTYPE_F32, REDUCTION_SUM, bad[0], 0, 8, 1, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_tree),       cmocka_unit_test(test_owners),
        cmocka_unit_test(test_two),        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
