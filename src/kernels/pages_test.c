// A cache in pages gives the bits of one in which every sequence has rows of its own: rows that are
// appended, and attention and latent attention over them, in `ref`, at all levels of `cpu`, and in
// `cuda`, whose other kernels for 16-bit types do not read pages: there only values are the same.
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, EXTRA_PAGES = 4 };

typedef struct shape {
    int64_t queries, keys, page; // keys: of the longest sequence
    int32_t heads, kv_heads, dim, window;
    dtype type;
    float cap;
    bool sinks, in_tiles, in_pairs;
} shape;

static const shape shapes[] = {
    {1, 40, 16, 4, 2, 16, 0, DTYPE_F32, 0.0F, false, false, false},
    {1, 1100, 16, 6, 2, 64, 0, DTYPE_BF16, 0.0F, false, false, false},
    {1, 700, 5, 2, 1, 33, 90, DTYPE_F16, 0.0F, true, false, false},
    {1, 150, 16, 2, 2, 130, 0, DTYPE_BF16, 20.0F, false, true, true},
    {7, 90, 16, 4, 1, 24, 0, DTYPE_F32, 0.0F, true, false, false},
    {70, 300, 16, 3, 3, 16, 40, DTYPE_BF16, 0.0F, false, false, false},
    {70, 290, 16, 2, 1, 64, 0, DTYPE_BF16, 0.0F, false, false, true},
    {33, 290, 7, 2, 1, 136, 0, DTYPE_BF16, 0.0F, false, false, true},
    {20, 64, 64, 2, 2, 80, 0, DTYPE_F16, 5.0F, false, false, false},
};

typedef struct fixture {
    arena *a;
    kern_context *kernels;
    const shape *s;
    uint64_t seed;
    kern_tensor lengths, pages;
    int64_t pool; // rows
} fixture;

static void check(status st)
{
    if (st != ST_OK) printf("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static kern_tensor matrix(fixture *f, dtype type, int64_t rows, int64_t columns)
{
    const int64_t dims[] = {rows, columns};
    return kt_make(f->a, type, 2, dims);
}

static kern_tensor random_matrix(fixture *f, int64_t rows, int64_t columns)
{
    kern_tensor m = matrix(f, f->s->type, rows, columns);
    f->seed++;
    for (int64_t i = 0; i < kt_elements(&m); i++) kt_put(&m, i, test_uniform(f->seed, 0, i));
    return m;
}

// A cache in which no row was written.
static kern_tensor cache(fixture *f, int64_t rows, int64_t columns)
{
    kern_tensor m = matrix(f, f->s->type, rows, columns);
    for (int64_t i = 0; i < kt_elements(&m); i++) kt_put(&m, i, (double)NAN);
    return m;
}

static void run(fixture *f, kern_call *call)
{
    void *space = NULL;
    call->workspace_bytes = kern_workspace_bytes(f->kernels, call);
    check(arena_alloc(f->a, call->workspace_bytes + ALIGN_TENSOR, &space));
    call->workspace = (char *)space + ALIGN_TENSOR - (uintptr_t)space % ALIGN_TENSOR;
    check(kern_run(f->kernels, call));
}

// Lengths of sequences, and pages in random order.
static void tables_make(fixture *f)
{
    const shape *s = f->s;
    const int64_t each = (s->keys + s->page - 1) / s->page, all = SEQUENCES * each + EXTRA_PAGES;
    const int64_t rows[] = {SEQUENCES}, entries[] = {SEQUENCES * each};
    f->lengths = kt_make(f->a, DTYPE_I32, 1, rows);
    f->pages = kt_make(f->a, DTYPE_I32, 1, entries);
    f->pool = all * s->page;
    int32_t *lengths = f->lengths.data, *pages = f->pages.data, *order = NULL;
    lengths[0] = (int32_t)s->keys;
    lengths[1] = (int32_t)(s->keys / 2 + 1);
    lengths[2] = (int32_t)max_i64(1, s->queries / 2); // rows in front of it are padding
    check(arena_new(f->a, all, &order));
    for (int64_t i = 0; i < all; i++) {
        const int64_t at =
            (int64_t)(test_uniform(99, 1, i) * 0.499 * (double)(i + 1) + 0.5 * (double)(i + 1));
        order[i] = order[at];
        order[at] = (int32_t)i;
    }
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const int64_t used = (lengths[b] + s->page - 1) / s->page;
        // No page of a row behind the length is read.
        for (int64_t i = 0; i < each; i++) {
            pages[b * each + i] = i < used ? order[b * each + i] : INT32_MAX;
        }
    }
}

// Appends the same rows to a cache of each kind.
static void caches_fill(fixture *f, int64_t columns, kern_tensor *plain, kern_tensor *paged)
{
    const shape *s = f->s;
    kern_call call = {.code = OP_CACHE_APPEND, .seq = s->keys, .cache_seq = s->keys};
    *plain = cache(f, SEQUENCES * s->keys, columns);
    *paged = cache(f, f->pool, columns);
    call.in[0] = random_matrix(f, SEQUENCES * s->keys, columns);
    call.in[1] = f->lengths;
    call.out[0] = *plain;
    run(f, &call);
    call.in[2] = f->pages;
    call.attrs.page = (int32_t)s->page;
    call.out[0] = *paged;
    run(f, &call);
    int64_t written = 0;
    for (int64_t i = 0; i < f->pool; i++) written += isnan(kt_get(paged, i * columns)) ? 0 : 1;
    const int32_t *lengths = f->lengths.data;
    assert_int_equal(written, lengths[0] + lengths[1] + lengths[2]);
}

static void same(const fixture *f, const kern_tensor *a, const kern_tensor *b)
{
    const bool has_bits = !f->kernels->backend->on_gpu || f->s->type == DTYPE_F32;
    for (int64_t i = 0; !has_bits && i < kt_elements(a); i++) {
        const double x = kt_get(a, i), y = kt_get(b, i);
        assert_true(x == y || fabs(x - y) <= 0.02 * (1.0 + fabs(x))); // or both are infinite
    }
    if (!has_bits) return;
    assert_memory_equal(a->data, b->data, (size_t)(kt_elements(a) * dtype_bytes(a->type)));
}

// A call without keys, values, pages and results.
static kern_call attention_call(fixture *f)
{
    const shape *s = f->s;
    const int64_t rows = SEQUENCES * s->queries, columns = (int64_t)s->heads * s->dim;
    step_block *step = NULL;
    check(arena_new(f->a, 1, &step));
    kern_call call = {.code = OP_ATTENTION, .seq = s->queries, .cache_seq = s->keys, .step = step};
    call.strict = call.in_pairs = s->in_pairs;
    call.attrs = (op_attrs){.heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->dim,
                            .window = s->window,
                            .cap = s->cap,
                            .in_tiles = s->in_tiles,
                            .scale = 0.3F};
    call.in[0] = random_matrix(f, rows, columns);
    call.in[4] = f->lengths;
    if (s->sinks) {
        const int64_t heads[] = {s->heads};
        call.in[5] = kt_make(f->a, DTYPE_F32, 1, heads);
        for (int64_t h = 0; h < s->heads; h++) kt_put(&call.in[5], h, 0.5 + (double)h);
    }
    return call;
}

static void results_make(fixture *f, kern_call *call)
{
    const int64_t rows = call->in[0].dims[0];
    call->out[0] = matrix(f, f->s->type, rows, (int64_t)f->s->heads * f->s->dim);
    call->out[1] = matrix(f, DTYPE_F32, rows, f->s->heads);
}

static void attention(fixture *f)
{
    const shape *s = f->s;
    kern_tensor k[2], v[2], y, lse;
    caches_fill(f, (int64_t)s->kv_heads * s->dim, &k[0], &k[1]);
    caches_fill(f, (int64_t)s->kv_heads * s->dim, &v[0], &v[1]);
    kern_call call = attention_call(f);
    for (int kind = 0; kind < 2; kind++) {
        call.in[1] = k[kind];
        call.in[2] = v[kind];
        results_make(f, &call);
        if (kind == 1) {
            call.in[6] = f->pages;
            call.attrs.page = (int32_t)s->page;
        } else {
            y = call.out[0];
            lse = call.out[1];
        }
        run(f, &call);
    }
    same(f, &y, &call.out[0]);
    same(f, &lse, &call.out[1]);
    for (int64_t i = 0; i < kt_elements(&y); i++) assert_true(kt_get(&y, i) == kt_get(&y, i));
}

static void latent(fixture *f)
{
    enum { RANK = 24, ROPE = 8, VALUE = 12 };
    const shape *s = f->s;
    const int64_t rows = SEQUENCES * s->queries, at[] = {rows};
    const int64_t plain = s->dim - ROPE, width = (int64_t)s->heads * VALUE;
    kern_tensor c[2], r[2], y;
    caches_fill(f, RANK, &c[0], &c[1]);
    caches_fill(f, ROPE, &r[0], &r[1]);
    kern_call call = {.code = OP_LATENT_CACHED, .seq = s->queries, .cache_seq = s->keys};
    call.attrs =
        (op_attrs){.heads = s->heads, .head_dim = s->dim, .value_dim = VALUE, .scale = 0.2F};
    call.in[0] = random_matrix(f, rows, (int64_t)s->heads * s->dim);
    call.in[1] = random_matrix(f, s->heads * (plain + VALUE), RANK);
    call.in[4] = f->lengths;
    call.in[5] = kt_make(f->a, DTYPE_I32, 1, at);
    memset(call.in[5].data, 0, (size_t)rows * sizeof(int32_t));
    call.in[6] = matrix(f, DTYPE_F32, 1, ROPE);
    for (int64_t i = 0; i < ROPE; i++) kt_put(&call.in[6], i, 0.7);
    for (int kind = 0; kind < 2; kind++) {
        call.in[2] = c[kind];
        call.in[3] = r[kind];
        call.out[0] = matrix(f, s->type, rows, width);
        if (kind == 1) {
            call.in[7] = f->pages;
            call.attrs.page = (int32_t)s->page;
        } else {
            y = call.out[0];
        }
        run(f, &call);
    }
    same(f, &y, &call.out[0]);
}

static void backend_check(const char *backend, const char *level)
{
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        fixture f = {.s = &shapes[i]};
        kern_context *made = NULL;
        if (level == NULL && f.s->keys > 200) continue; // `ref` is slow
        const kern_hint hint = {.threads = 1, .level = level};
        check(arena_create("test", 0, &f.a));
        check(kern_context_create(f.a, backend, &hint, &made));
        check(kern_context_open(made, 0, &f.kernels));
        tables_make(&f);
        attention(&f);
        if (f.s->dim < 40 && f.s->keys < 800) latent(&f);
        kern_context_close(f.kernels);
        arena_destroy(f.a);
    }
}

static void test_values_on_gpus(void **state)
{
    (void)state;
    backend_run cuda;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    for (int64_t i = 0; i < COUNT_OF(shapes); i++) {
        fixture f = {.s = &shapes[i], .kernels = &cuda.context};
        if (f.s->in_pairs || f.s->in_tiles || f.s->keys > 200) continue; // emulation is slow
        check(arena_create("test", 0, &f.a));
        tables_make(&f);
        attention(&f);
        if (f.s->dim < 40) latent(&f);
        arena_destroy(f.a);
    }
    backend_runs_deinit(&cuda, 1);
}

// ---- one query on GPUs --------------------------------------------------------------------------
// Sums over parts of 128 keys; more queries than eight share keys; windows begin within a part.
static const shape decodes[] = {
    {1, 300, 16, 4, 2, 16, 0, DTYPE_F32, 0.0F, false, false, false},
    {1, 270, 16, 9, 1, 40, 150, DTYPE_F32, 5.0F, true, false, false},
    {1, 200, 7, 2, 1, 130, 0, DTYPE_BF16, 0.0F, false, false, false},
    {1, 140, 16, 3, 3, 72, 0, DTYPE_F16, 0.0F, true, false, false},
};

static void near(const kern_tensor *a, const kern_tensor *b, double bound)
{
    for (int64_t i = 0; i < kt_elements(a); i++) {
        assert_true(fabs(kt_get(a, i) - kt_get(b, i)) <= bound * (1.0 + fabs(kt_get(a, i))));
    }
}

static void same_bits(const kern_call *a, const kern_call *b)
{
    for (int o = 0; o < 2; o++) {
        const kern_tensor *x = &a->out[o], *y = &b->out[o];
        assert_memory_equal(x->data, y->data, (size_t)(kt_elements(x) * dtype_bytes(x->type)));
    }
}

// The rows of one sequence.
static kern_tensor part(const kern_tensor *t, int64_t sequence)
{
    kern_tensor one = *t;
    one.dims[0] = t->dims[0] / SEQUENCES;
    const int64_t at = sequence * one.dims[0] * (t->ndim == 2 ? t->strides[0] : 1);
    one.data = (char *)t->data + at * dtype_bytes(t->type);
    return one;
}

// The table of a cache with more pages for each sequence.
static kern_tensor table_widen(fixture *f, int64_t more)
{
    const int64_t each = f->pages.dims[0] / SEQUENCES, entries[] = {SEQUENCES * (each + more)};
    const kern_tensor wide = kt_make(f->a, DTYPE_I32, 1, entries);
    for (int64_t b = 0; b < SEQUENCES; b++) {
        for (int64_t i = 0; i < each + more; i++) {
            ((int32_t *)wide.data)[b * (each + more) + i] =
                i < each ? ((const int32_t *)f->pages.data)[b * each + i] : INT32_MAX;
        }
    }
    return wide;
}

// `ref` has its values; neither the schedule, nor pages, nor a larger cache, nor the other
// sequences change a bit.
static void decode(fixture *f, backend_run *cuda, kern_context *ref)
{
    const shape *s = f->s;
    const int64_t width = (int64_t)s->kv_heads * s->dim;
    kern_tensor k[2], v[2];
    kern_context *const gpu = f->kernels;
    caches_fill(f, width, &k[0], &k[1]);
    caches_fill(f, width, &v[0], &v[1]);
    kern_call first = attention_call(f);
    first.in[1] = k[0];
    first.in[2] = v[0];
    kern_call other = first, paged = first, one = first;
    results_make(f, &first);
    run(f, &first);
    results_make(f, &other);
    cuda->emulator.schedule = 5;
    run(f, &other);
    same_bits(&first, &other);
    results_make(f, &paged);
    paged.in[1] = k[1];
    paged.in[2] = v[1];
    paged.in[6] = table_widen(f, 300 / s->page);
    paged.attrs.page = (int32_t)s->page;
    paged.cache_seq += 300 / s->page * s->page;
    run(f, &paged);
    same_bits(&first, &paged);
    one.in[0] = part(&first.in[0], 1);
    one.in[1] = part(&first.in[1], 1);
    one.in[2] = part(&first.in[2], 1);
    one.in[4] = part(&first.in[4], 1);
    results_make(f, &one);
    run(f, &one);
    kern_call its = first;
    its.out[0] = part(&first.out[0], 1);
    its.out[1] = part(&first.out[1], 1);
    same_bits(&its, &one);
    f->kernels = ref;
    results_make(f, &other);
    run(f, &other);
    f->kernels = gpu;
    const double bound = s->type == DTYPE_F32 ? 1e-5 : s->type == DTYPE_BF16 ? 0.012 : 0.002;
    near(&other.out[0], &first.out[0], bound);
    near(&other.out[1], &first.out[1], bound);
}

static void test_one_query_on_gpus(void **state)
{
    (void)state;
    backend_run cuda;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    for (int64_t i = 0; i < COUNT_OF(decodes); i++) {
        fixture f = {.s = &decodes[i], .kernels = &cuda.context};
        kern_context *made = NULL, *ref = NULL;
        const kern_hint hint = {.threads = 1};
        check(arena_create("test", 0, &f.a));
        check(kern_context_create(f.a, "ref", &hint, &made));
        check(kern_context_open(made, 0, &ref));
        tables_make(&f);
        decode(&f, &cuda, ref);
        kern_context_close(ref);
        arena_destroy(f.a);
    }
    backend_runs_deinit(&cuda, 1);
}

// ---- strict order on GPUs -----------------------------------------------------------------------
// Windows that begin within a tile of keys, of 32 and of 64.
static const shape cuts[] = {
    {37, 150, 16, 2, 1, 24, 45, DTYPE_F32, 5.0F, true, false, false},
    {70, 200, 16, 2, 1, 24, 75, DTYPE_BF16, 0.0F, true, false, false},
    {40, 140, 16, 1, 1, 72, 30, DTYPE_F16, 0.0F, false, false, false},
};

// The last `count` rows of each sequence.
static kern_tensor last_rows(fixture *f, const kern_tensor *t, int64_t count)
{
    const int64_t rows = t->dims[0] / SEQUENCES, columns = t->dims[1];
    const kern_tensor out = matrix(f, t->type, SEQUENCES * count, columns);
    const int64_t bytes = columns * dtype_bytes(t->type);
    for (int64_t i = 0; i < SEQUENCES * count; i++) {
        const int64_t from = (i / count + 1) * rows - count + i % count;
        memcpy((char *)out.data + i * bytes, (const char *)t->data + from * bytes, (size_t)bytes);
    }
    return out;
}

// A query has its bits among those before it, and alone.
static void cut(fixture *f)
{
    static const int64_t counts[] = {1, 5, 34};
    const int64_t width = (int64_t)f->s->kv_heads * f->s->dim;
    kern_tensor k[2], v[2];
    caches_fill(f, width, &k[0], &k[1]);
    caches_fill(f, width, &v[0], &v[1]);
    kern_call whole = attention_call(f);
    whole.strict = true;
    whole.in[1] = k[0];
    whole.in[2] = v[0];
    results_make(f, &whole);
    run(f, &whole);
    for (int64_t i = 0; i < COUNT_OF(counts); i++) {
        kern_call part = whole, its = whole;
        part.seq = counts[i];
        part.in[0] = last_rows(f, &whole.in[0], counts[i]);
        its.out[0] = last_rows(f, &whole.out[0], counts[i]);
        its.out[1] = last_rows(f, &whole.out[1], counts[i]);
        results_make(f, &part);
        run(f, &part);
        same_bits(&its, &part);
    }
}

static void test_cuts_on_gpus(void **state)
{
    (void)state;
    backend_run cuda;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    for (int64_t i = 0; i < COUNT_OF(cuts); i++) {
        fixture f = {.s = &cuts[i], .kernels = &cuda.context};
        check(arena_create("test", 0, &f.a));
        tables_make(&f);
        cut(&f);
        arena_destroy(f.a);
    }
    backend_runs_deinit(&cuda, 1);
}

static void test_bits_of_plain_caches(void **state)
{
    (void)state;
    static const char *const levels[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
    backend_check("ref", NULL);
    for (int64_t l = 0; l < COUNT_OF(levels); l++) {
        if (kern_level_check(levels[l]) == ST_OK) {
            backend_check("cpu", levels[l]);
        } else {
            error_clear();
        }
    }
}

// A table with a page that the cache does not have is refused, before a row is touched.
static void test_pages_of_nothing(void **state)
{
    (void)state;
    fixture f = {.s = &shapes[0]};
    kern_context *made = NULL;
    const kern_hint hint = {.threads = 1};
    check(arena_create("test", 0, &f.a));
    check(kern_context_create(f.a, "cpu", &hint, &made));
    check(kern_context_open(made, 0, &f.kernels));
    tables_make(&f);
    const int64_t rows = SEQUENCES * f.s->keys;
    for (int i = 0; i < 2; i++) {
        kern_call call = {.code = OP_CACHE_APPEND, .seq = f.s->keys, .cache_seq = f.s->keys};
        ((int32_t *)f.pages.data)[0] = i == 0 ? -1 : (int32_t)(f.pool / f.s->page);
        call.attrs.page = (int32_t)f.s->page;
        call.in[0] = random_matrix(&f, rows, 8);
        call.in[1] = f.lengths;
        call.in[2] = f.pages;
        call.out[0] = cache(&f, f.pool, 8);
        assert_int_equal(kern_run(f.kernels, &call), ST_DATA);
        error_clear();
    }
    kern_context_close(f.kernels);
    arena_destroy(f.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_plain_caches), cmocka_unit_test(test_values_on_gpus),
        cmocka_unit_test(test_one_query_on_gpus),    cmocka_unit_test(test_cuts_on_gpus),
        cmocka_unit_test(test_pages_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
