// The only file that calls oneDNN. It supports both C APIs, 2.x and 3.x.
//
// A GEMM is cut into bands of rows of C, by its shape alone, never by the number of threads. Each
// band is one primitive that runs inside one of our threads: each thread tells oneDNN's own
// threading (OpenMP in Debian's build) to use one thread, so the cores are not oversubscribed. For
// one shape and type the order along k is fixed, so bits repeat from run to run and for any number
// of threads; but they may differ between shapes, so strict mode never uses oneDNN.
//
// Nothing is allocated after the first use of a shape: primitives, memory handles and streams are
// kept, and scratch is the pool's. Where m is a count that changes from call to call, the last band
// becomes bands of 128, 64, 32 ... rows, so few shapes serve every count. If C is narrower than
// fp32 or has an epilogue, a band is first computed in fp32 in the scratch of the thread.
#include "kernels/cpu/onednn.h"

#include "kernels/cpu/gemm_job.h"

#include <stdlib.h>
#include <string.h>

#if TRIREME_HAVE_DNNL

#    include <dlfcn.h>
#    include <oneapi/dnnl/dnnl.h>

enum {
    MAX_SHAPES = 192,
    BAND_ROWS = 256,     // of C; the last band of a product may be shorter
    BAND_BITS = 8,       // BAND_ROWS is 1 << BAND_BITS
    PAD_BYTES = 1 << 20, // oneDNN's scratch, at the end of a thread's
    TILE_FLOATS = (KERN_SCRATCH_BYTES - PAD_BYTES) / 4,
};

// The key of a primitive.
typedef struct shape_key {
    int64_t m, n, k, ldc;
    int64_t a_strides[2], b_strides[2];
    int32_t a_type, b_type, adds, unused;
} shape_key;

typedef struct shape_entry {
    shape_key key;
    dnnl_primitive_t primitive;                // NULL: oneDNN has none for it
    dnnl_memory_t memory[KERN_MAX_THREADS][4]; // A, B, C, scratch of each thread
} shape_entry;

struct onednn {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t streams[KERN_MAX_THREADS];
    void (*omp_threads)(int); // NULL: this build has no OpenMP
    int count;
    shape_entry *shapes[MAX_SHAPES];
};

static const int arg_ids[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};

// ---- the two APIs -------------------------------------------------------------------------------
#    if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t matrix_desc;

static bool desc_make(matrix_desc *d, int64_t rows, int64_t columns, dnnl_data_type_t type,
                      int64_t row_stride, int64_t column_stride)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}

static void desc_free(matrix_desc *d)
{
    if (*d != NULL) (void)dnnl_memory_desc_destroy(*d);
}

static bool sum_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef) == dnnl_success;
}

static bool product_desc_make(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                              dnnl_primitive_attr_t attr, const matrix_desc d[3])
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], attr) ==
           dnnl_success;
}

static bool memory_make(dnnl_memory_t *out, matrix_desc d, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool pad_make(dnnl_memory_t *out, const_dnnl_primitive_desc_t desc, dnnl_engine_t engine)
{
    const const_dnnl_memory_desc_t d =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    if (dnnl_memory_desc_get_size(d) > PAD_BYTES) return false;
    return dnnl_memory_create(out, d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}
#    else
typedef dnnl_memory_desc_t matrix_desc;

static bool desc_make(matrix_desc *d, int64_t rows, int64_t columns, dnnl_data_type_t type,
                      int64_t row_stride, int64_t column_stride)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

static void desc_free(matrix_desc *d)
{
    (void)d;
}

static bool sum_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f) == dnnl_success;
}

static bool product_desc_make(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                              dnnl_primitive_attr_t attr, const matrix_desc d[3])
{
    dnnl_matmul_desc_t product;
    return dnnl_matmul_desc_init(&product, &d[0], &d[1], NULL, &d[2]) == dnnl_success &&
           dnnl_primitive_desc_create(out, &product, attr, engine, NULL) == dnnl_success;
}

static bool memory_make(dnnl_memory_t *out, matrix_desc d, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, &d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool pad_make(dnnl_memory_t *out, const_dnnl_primitive_desc_t desc, dnnl_engine_t engine)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    if (dnnl_memory_desc_get_size(d) > PAD_BYTES) return false;
    return dnnl_memory_create(out, d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}
#    endif

// ---- primitives ---------------------------------------------------------------------------------
static dnnl_data_type_t type_of(int32_t type)
{
    return type == DTYPE_F32 ? dnnl_f32 : type == DTYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

static bool attr_make(dnnl_primitive_attr_t *attr, bool adds)
{
    if (dnnl_primitive_attr_create(attr) != dnnl_success) return false;
    if (dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) != dnnl_success) {
        return false;
    }
    if (!adds) return true;
    dnnl_post_ops_t ops;
    if (dnnl_post_ops_create(&ops) != dnnl_success) return false;
    const bool made =
        sum_append(ops) && dnnl_primitive_attr_set_post_ops(*attr, ops) == dnnl_success;
    (void)dnnl_post_ops_destroy(ops);
    return made;
}

static bool memories_make(const onednn *o, shape_entry *e, const matrix_desc d[3],
                          const_dnnl_primitive_desc_t desc)
{
    for (int t = 0; t < o->threads; t++) {
        for (int i = 0; i < 3; i++) {
            if (!memory_make(&e->memory[t][i], d[i], o->engine)) return false;
        }
        if (!pad_make(&e->memory[t][3], desc, o->engine)) return false;
    }
    return true;
}

static void entry_clear(const onednn *o, shape_entry *e)
{
    for (int t = 0; t < o->threads; t++) {
        for (int i = 0; i < 4; i++) {
            if (e->memory[t][i] != NULL) (void)dnnl_memory_destroy(e->memory[t][i]);
            e->memory[t][i] = NULL;
        }
    }
    if (e->primitive != NULL) (void)dnnl_primitive_destroy(e->primitive);
    e->primitive = NULL;
}

static void entry_fill(const onednn *o, shape_entry *e)
{
    // A primitive is made for the number of threads that OpenMP would use now.
    if (o->omp_threads != NULL) o->omp_threads(1);
    const shape_key *k = &e->key;
    matrix_desc d[3];
    memset(d, 0, sizeof(d));
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    const bool made =
        desc_make(&d[0], k->m, k->k, type_of(k->a_type), k->a_strides[0], k->a_strides[1]) &&
        desc_make(&d[1], k->k, k->n, type_of(k->b_type), k->b_strides[0], k->b_strides[1]) &&
        desc_make(&d[2], k->m, k->n, dnnl_f32, k->ldc, 1) && attr_make(&attr, k->adds != 0) &&
        product_desc_make(&desc, o->engine, attr, d) &&
        dnnl_primitive_create(&e->primitive, desc) == dnnl_success && memories_make(o, e, d, desc);
    if (!made) entry_clear(o, e);
    if (desc != NULL) (void)dnnl_primitive_desc_destroy(desc);
    if (attr != NULL) (void)dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 3; i++) desc_free(&d[i]);
}

// Returns the entry of a shape, made if it is new; NULL: oneDNN does not compute it.
static shape_entry *entry_of(onednn *o, const shape_key *key)
{
    for (int i = 0; i < o->count; i++) {
        if (memcmp(&o->shapes[i]->key, key, sizeof(*key)) != 0) continue;
        return o->shapes[i]->primitive != NULL ? o->shapes[i] : NULL;
    }
    if (o->count == MAX_SHAPES) return NULL;
    shape_entry *e = calloc(1, sizeof(*e));
    if (e == NULL) return NULL;
    e->key = *key;
    entry_fill(o, e);
    o->shapes[o->count++] = e;
    return e->primitive != NULL ? e : NULL;
}

// ---- running ------------------------------------------------------------------------------------
typedef struct product {
    const onednn *o;
    const gemm_args *args;
    kern_pool *pool;
    shape_entry *whole;           // of bands of BAND_ROWS
    shape_entry *rest[BAND_BITS]; // of the bands behind them, the longest first
    int64_t rest_rows[BAND_BITS], rests;
    bool direct; // bands are made in C
    _Atomic(bool) failed;
} product;

static const void *at(const gemm_matrix *m, int64_t row)
{
    return (const char *)m->data + row * m->row_stride * dtype_bytes(m->type);
}

static void band_task(void *context, int64_t index, int thread)
{
    product *p = context;
    const gemm_args *g = p->args;
    const int64_t whole = g->m / BAND_ROWS;
    int64_t i = min_i64(index, whole) * BAND_ROWS;
    for (int64_t r = 0; r < index - whole; r++) i += p->rest_rows[r];
    const int64_t rows = index < whole ? BAND_ROWS : p->rest_rows[index - whole];
    shape_entry *e = index < whole ? p->whole : p->rest[index - whole];
    float *scratch = kern_pool_scratch(p->pool, thread);
    char *c = (char *)g->c + i * g->ldc * dtype_bytes(g->c_type);
    void *const handles[4] = {(void *)(uintptr_t)at(&g->a, i), (void *)(uintptr_t)g->b.data,
                              p->direct ? (void *)c : (void *)scratch, scratch + TILE_FLOATS};
    dnnl_exec_arg_t exec[4];
    bool ok = true;
    for (int a = 0; a < 4; a++) {
        exec[a] = (dnnl_exec_arg_t){.arg = arg_ids[a], .memory = e->memory[thread][a]};
        ok = ok && dnnl_memory_set_data_handle(exec[a].memory, handles[a]) == dnnl_success;
    }
    if (p->o->omp_threads != NULL) p->o->omp_threads(1);
    ok = ok && dnnl_primitive_execute(e->primitive, p->o->streams[thread], 4, exec) == dnnl_success;
    ok = ok && dnnl_stream_wait(p->o->streams[thread]) == dnnl_success;
    if (!ok) p->failed = true;
    for (int64_t r = 0; r < rows && p->direct && g->check != NULL; r++) {
        gemm_check_row(g->check, (float *)(void *)c + r * g->ldc, i + r, 0, g->n);
    }
    if (p->direct) return;
    for (int64_t r = 0; r < rows; r++) {
        float *row = scratch + r * g->n;
        if (g->check != NULL) gemm_check_row(g->check, row, i + r, 0, g->n);
        if (g->epilogue != NULL) g->epilogue(g->epilogue_context, row, i + r, 0, g->n);
        gemm_unit_of(KERN_AVX2)->store(c + r * g->ldc * dtype_bytes(g->c_type), g->c_type, row,
                                       g->n);
    }
}

static shape_key key_of(const gemm_args *g, int64_t rows, bool direct)
{
    shape_key key;
    memset(&key, 0, sizeof(key)); // it is compared by its bytes
    key.m = rows;
    key.n = g->n;
    key.k = g->k;
    key.ldc = direct ? g->ldc : g->n;
    key.a_strides[0] = g->a.row_stride;
    key.a_strides[1] = g->a.column_stride;
    key.b_strides[0] = g->b.row_stride;
    key.b_strides[1] = g->b.column_stride;
    key.a_type = (int32_t)g->a.type;
    key.b_type = (int32_t)g->b.type;
    key.adds = g->accumulate;
    return key;
}

// Cuts what is left behind the whole bands. False: oneDNN does not compute it.
static bool rests_make(onednn *o, product *p)
{
    const gemm_args *g = p->args;
    int64_t left = g->m % BAND_ROWS;
    for (int64_t rows = BAND_ROWS / 2; left > 0; rows /= 2) {
        if (g->counted_m && left < rows) continue;
        const int64_t taken = g->counted_m ? rows : left;
        const shape_key key = key_of(g, taken, p->direct);
        p->rest_rows[p->rests] = taken;
        p->rest[p->rests] = entry_of(o, &key);
        if (p->rest[p->rests++] == NULL) return false;
        left -= taken;
    }
    return true;
}

bool onednn_run(onednn *o, kern_pool *pool, const gemm_args *g)
{
    product p = {.o = o, .args = g, .pool = pool};
    p.direct = g->c_type == DTYPE_F32 && g->epilogue == NULL;
    const int64_t whole = g->m / BAND_ROWS;
    if (!p.direct && (g->accumulate || min_i64(g->m, BAND_ROWS) * g->n > TILE_FLOATS)) {
        return false;
    }
    if (whole > 0) {
        const shape_key key = key_of(g, BAND_ROWS, p.direct);
        if ((p.whole = entry_of(o, &key)) == NULL) return false;
    }
    if (!rests_make(o, &p)) return false;
    kern_parallel(pool, whole + p.rests, band_task, &p);
    ASSERT(!p.failed); // a primitive that was made does not fail
    return true;
}

onednn *onednn_create(int threads)
{
    onednn *o = calloc(1, sizeof(*o));
    if (o == NULL) return NULL;
    o->threads = threads;
    bool ok = dnnl_engine_create(&o->engine, dnnl_cpu, 0) == dnnl_success;
    for (int t = 0; t < threads && ok; t++) {
        ok = dnnl_stream_create(&o->streams[t], o->engine, dnnl_stream_default_flags) ==
             dnnl_success;
    }
    // Debian's oneDNN loads the OpenMP runtime; other builds may use none.
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&o->omp_threads, &symbol, sizeof(symbol));
    if (ok) return o;
    onednn_destroy(o);
    return NULL;
}

void onednn_destroy(onednn *o)
{
    if (o == NULL) return;
    for (int i = 0; i < o->count; i++) {
        entry_clear(o, o->shapes[i]);
        free(o->shapes[i]);
    }
    for (int t = 0; t < o->threads; t++) {
        if (o->streams[t] != NULL) (void)dnnl_stream_destroy(o->streams[t]);
    }
    if (o->engine != NULL) (void)dnnl_engine_destroy(o->engine);
    free(o);
}

bool kern_onednn_version(int version[3])
{
    const dnnl_version_t *v = dnnl_version();
    version[0] = v->major;
    version[1] = v->minor;
    version[2] = v->patch;
    return true;
}

#else

onednn *onednn_create(int threads)
{
    (void)threads;
    return NULL;
}

void onednn_destroy(onednn *o)
{
    ASSERT(o == NULL);
}

bool onednn_run(onednn *o, kern_pool *pool, const gemm_args *g)
{
    (void)o;
    (void)pool;
    (void)g;
    return false;
}

bool kern_onednn_version(int version[3])
{
    (void)version;
    return false;
}

#endif
