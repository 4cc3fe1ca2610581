// Products by cuBLASLt: loading the library, and a table of the shapes that were asked for.
#include "device/cuda/cublaslt.h"

#include "base/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHAPES = 1024 };

// All that an algorithm may depend on.
typedef struct shape {
    int64_t rows[3], columns[3], stride[3]; // of a, b, c as they are stored
    int32_t type[3], alignment[3];
    int32_t a_transposed, b_transposed, accumulate;
    int32_t bias_type, bias_alignment; // -1: no bias
    int32_t gelu_alignment;            // -1: no gelu
    int64_t gelu_stride;
    int32_t blocks[2]; // of operands in 8 bits
} shape;

typedef struct prepared {
    bool used, works; // works: the library has an algorithm
    shape key;
    lt_product product;
    lt_layout layout[3];
    lt_algorithm algorithm;
} prepared;

struct lt_products {
    lt_library library;
    lt_handle handle;
    lt_preference preference;
    int64_t workspace_bytes;
    prepared all[MAX_SHAPES];
};

bool lt_library_open(lt_library *out, const char **why)
{
    static const char *const places[] = {
        "libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
        "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.13", "libcublasLt.so.12"};
    void *library = NULL;
    for (int64_t i = 0; library == NULL && i < COUNT_OF(places); i++) {
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        *why = "neither the loader nor /usr/local/cuda has libcublasLt.so.13; put its folder in "
               "LD_LIBRARY_PATH";
        return false;
    }
    bool all = library_find(library, "cublasLtGetVersion", &out->version);
#define FIND(field, symbol, parameters) all = all && library_find(library, #symbol, &out->field);
    LT_FUNCTIONS(FIND)
#undef FIND
    *why = all ? NULL : "this libcublasLt is too old; 12.0 or later is needed";
    return all;
}

// ---- shapes -------------------------------------------------------------------------------------
static int type_of(dtype t)
{
    return t == DTYPE_F32      ? LT_TYPE_F32
           : t == DTYPE_BF16   ? LT_TYPE_BF16
           : t == DTYPE_F8E4M3 ? LT_TYPE_E4M3
           : t == DTYPE_F8E5M2 ? LT_TYPE_E5M2
                               : LT_TYPE_F16;
}

static bool is_narrow(dtype t)
{
    return t == DTYPE_F8E4M3 || t == DTYPE_F8E5M2;
}

static bool is_known(dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16;
}

// The largest power of two that divides the address, at most LT_MAX_ALIGNMENT.
static int32_t alignment_of(const void *data)
{
    const uintptr_t at = (uintptr_t)data | LT_MAX_ALIGNMENT;
    return (int32_t)(at & (~at + 1));
}

static shape shape_of(const cuda_product *p)
{
    const cuda_matrix *const m[] = {&p->a, &p->b, &p->c};
    shape s;
    memset(&s, 0, sizeof(s)); // the key is compared byte by byte
    for (int i = 0; i < 3; i++) {
        s.rows[i] = m[i]->rows;
        s.columns[i] = m[i]->columns;
        s.stride[i] = m[i]->stride;
        s.type[i] = type_of(m[i]->type);
        s.alignment[i] = alignment_of(m[i]->data);
    }
    s.a_transposed = p->a_transposed;
    s.b_transposed = p->b_transposed;
    s.accumulate = p->accumulate;
    s.bias_type = p->bias != NULL ? type_of(p->bias_type) : -1;
    s.bias_alignment = p->bias != NULL ? alignment_of(p->bias) : -1;
    s.gelu_alignment = p->gelu != NULL ? alignment_of(p->gelu) : -1;
    s.gelu_stride = p->gelu != NULL ? p->gelu_stride : 0;
    for (int i = 0; i < 2 && is_narrow(p->a.type); i++) s.blocks[i] = (int32_t)p->blocks[i];
    return s;
}

static uint64_t hash(const shape *s)
{
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof(*s); i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

// ---- preparing a shape --------------------------------------------------------------------------
// Returns whether a call of the library did what was asked.
static bool set(const lt_products *p, lt_product product, int attribute, const void *value,
                size_t bytes)
{
    return p->library.product_set(product, attribute, value, bytes) == 0;
}

// The library's work after the sums. With GELU its D is gelu of what it also writes to its
// auxiliary matrix, our c. The addresses tell their alignment to the library's choice.
static bool epilogue_set(const lt_products *p, const prepared *s, const cuda_product *of)
{
    const shape *k = &s->key;
    const bool biased = k->bias_type >= 0, gelu = of->gelu != NULL;
    const uint32_t epilogue = !gelu    ? LT_EPILOGUE_BIAS
                              : biased ? LT_EPILOGUE_GELU_AUX_BIAS
                                       : LT_EPILOGUE_GELU_AUX;
    bool ok = true;
    if (biased || gelu) ok = set(p, s->product, LT_EPILOGUE, &epilogue, sizeof(epilogue));
    if (biased) {
        ok = ok && set(p, s->product, LT_BIAS_TYPE, &k->bias_type, sizeof(k->bias_type));
        ok = ok && set(p, s->product, LT_BIAS, &of->bias, sizeof(of->bias));
    }
    if (gelu) {
        ok = ok && set(p, s->product, LT_AUX_STRIDE, &k->stride[2], sizeof(k->stride[2]));
        ok = ok && set(p, s->product, LT_AUX, &of->c.data, sizeof(of->c.data));
    }
    return ok;
}

// Sets where the factors of operands in 8 bits are. Their A is our b.
static bool factors_set(const lt_products *p, lt_product product, const cuda_product *of)
{
    return set(p, product, LT_FACTORS_A, &of->factors[1], sizeof(of->factors[1])) &&
           set(p, product, LT_FACTORS_B, &of->factors[0], sizeof(of->factors[0]));
}

// One factor for a whole operand is the library's default, which older versions have no word for.
static bool blocks_set(const lt_products *p, lt_product product, const cuda_product *of)
{
    bool ok = factors_set(p, product, of);
    for (int i = 0; i < 2 && ok; i++) {
        const fp8_block block = of->blocks[1 - i];
        const int32_t mode = block == FP8_OF_ROW ? LT_BLOCKS_VECTOR : LT_BLOCKS_SQUARE;
        if (block != FP8_OF_ALL) ok = set(p, product, LT_BLOCKS_A + i, &mode, sizeof(mode));
    }
    return ok;
}

// Stored by columns, our matrix is its transpose: rows and columns change places. Their A is our B.
static bool prepare(lt_products *p, prepared *s, const cuda_product *of)
{
    const shape *k = &s->key;
    const int32_t transpose_a = k->b_transposed, transpose_b = k->a_transposed;
    lt_choice choice;
    int count = 0;
    memset(&choice, 0, sizeof(choice));
    bool ok = p->library.product_create(&s->product, LT_COMPUTE_F32, LT_TYPE_F32) == 0;
    ok = ok && set(p, s->product, LT_TRANSPOSE_A, &transpose_a, sizeof(transpose_a));
    ok = ok && set(p, s->product, LT_TRANSPOSE_B, &transpose_b, sizeof(transpose_b));
    ok = ok && epilogue_set(p, s, of);
    if (is_narrow(of->a.type)) ok = ok && blocks_set(p, s->product, of);
    for (int i = 0; i < 3 && ok; i++) {
        const int64_t stride = i == 2 && of->gelu != NULL ? k->gelu_stride : k->stride[i];
        ok = p->library.layout_create(&s->layout[i], k->type[i], (uint64_t)k->columns[i],
                                      (uint64_t)k->rows[i], stride) == 0;
    }
    for (int i = 0; i < 4 && ok; i++) { // their A, B, C, D
        const bool of_gelu = i >= 2 && k->gelu_alignment >= 0;
        const int32_t ours = k->alignment[i == 0 ? 1 : i == 1 ? 0 : 2];
        const uint32_t bytes = (uint32_t)(of_gelu ? k->gelu_alignment : ours);
        ok = p->library.preference_set(p->preference, LT_ALIGNMENT_A + i, &bytes, sizeof(bytes)) ==
             0;
    }
    ok = ok && p->library.choose(p->handle, s->product, s->layout[1], s->layout[0], s->layout[2],
                                 s->layout[2], p->preference, 1, &choice, &count) == 0;
    ok = ok && count == 1 && choice.state == 0;
    ok = ok && choice.workspace_bytes <= (size_t)p->workspace_bytes;
    s->algorithm = choice.algorithm;
    return ok;
}

static prepared *prepared_of(lt_products *p, const cuda_product *product)
{
    const shape key = shape_of(product);
    for (uint64_t i = hash(&key), n = 0; n < MAX_SHAPES; i++, n++) {
        prepared *s = &p->all[i % MAX_SHAPES];
        if (s->used && memcmp(&s->key, &key, sizeof(key)) == 0) return s;
        if (s->used) continue;
        s->used = true;
        s->key = key;
        s->works = prepare(p, s, product);
        return s;
    }
    return NULL;
}

// ---- products -----------------------------------------------------------------------------------
status lt_products_create(const lt_library *library, int64_t workspace_bytes, lt_products **out)
{
    const uint64_t bytes = (uint64_t)workspace_bytes;
    lt_products *p = calloc(1, sizeof(*p));
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for the products of a GPU");
    p->library = *library;
    p->workspace_bytes = workspace_bytes;
    if (library->create(&p->handle) != 0 || library->preference_create(&p->preference) != 0 ||
        library->preference_set(p->preference, LT_WORKSPACE_BYTES, &bytes, sizeof(bytes)) != 0) {
        lt_products_destroy(p);
        return fail(ST_DEVICE, "cuBLASLt does not start on this GPU");
    }
    *out = p;
    return ST_OK;
}

void lt_products_destroy(lt_products *p)
{
    if (p == NULL) return;
    for (int i = 0; i < MAX_SHAPES; i++) {
        prepared *s = &p->all[i];
        for (int k = 0; k < 3; k++) {
            if (s->layout[k] != NULL) (void)p->library.layout_destroy(s->layout[k]);
        }
        if (s->product != NULL) (void)p->library.product_destroy(s->product);
    }
    if (p->preference != NULL) (void)p->library.preference_destroy(p->preference);
    if (p->handle != NULL) (void)p->library.destroy(p->handle);
    free(p);
}

static status refuse(const cuda_product *product)
{
    return fail(ST_UNSUPPORTED,
                "cuBLASLt has no algorithm for a product (%lld, %lld) x (%lld, "
                "%lld)",
                (long long)product->a.rows, (long long)product->a.columns,
                (long long)product->b.rows, (long long)product->b.columns);
}

// The library's rules for operands in 8 bits: rows along the summed dim, multiples of 16 bytes, not
// both e5m2, not both in squares, factors of blocks for multiples of four rows only.
static bool narrow_fits(const cuda_product *p)
{
    const int64_t width = dtype_bytes(p->c.type), n = p->b.rows;
    const bool blocks = p->blocks[0] != FP8_OF_ALL || p->blocks[1] != FP8_OF_ALL;
    const bool mixed = blocks && (p->blocks[0] == FP8_OF_ALL || p->blocks[1] == FP8_OF_ALL);
    const bool squares = p->blocks[0] == FP8_OF_SQUARE && p->blocks[1] == FP8_OF_SQUARE;
    const uintptr_t addresses = (uintptr_t)p->a.data | (uintptr_t)p->b.data | (uintptr_t)p->c.data |
                                (uintptr_t)p->factors[0] | (uintptr_t)p->factors[1];
    const int64_t bytes =
        p->a.columns | p->a.stride | p->b.stride | n * width | p->c.stride * width;
    if (!is_narrow(p->a.type) || !is_narrow(p->b.type) || p->a_transposed || !p->b_transposed) {
        return false;
    }
    if (p->a.type == DTYPE_F8E5M2 && p->b.type == DTYPE_F8E5M2) return false;
    if (mixed || squares || (blocks && (p->a.rows % 4 != 0 || n % 4 != 0))) return false;
    if (p->bias != NULL && p->bias_type != (p->c.type == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16)) {
        return false;
    }
    return p->gelu == NULL && bytes % 16 == 0 && addresses % 16 == 0;
}

bool lt_has_fp8_tensors(const lt_library *library, int arch)
{
    (void)library; // any version that is loaded
    return arch >= 89;
}

bool lt_has_fp8_blocks(const lt_library *library, int arch)
{
    return arch == 90 && library->version() >= LT_VERSION_OF_BLOCKS;
}

const lt_library *lt_products_library(const lt_products *p)
{
    return &p->library;
}

status lt_products_post(lt_products *p, const cuda_product *product, cuda_stream stream,
                        void *workspace)
{
    const float alpha = 1.0f, beta = product->accumulate ? 1.0f : 0.0f;
    const bool narrow = is_narrow(product->a.type) || is_narrow(product->b.type);
    if (narrow && !narrow_fits(product)) return refuse(product);
    if ((!narrow && (!is_known(product->a.type) || !is_known(product->b.type))) ||
        !is_known(product->c.type) || (product->bias != NULL && !is_known(product->bias_type))) {
        return refuse(product);
    }
    // The library's rule for the auxiliary matrix of GELU.
    if (product->gelu != NULL && (product->c.stride % 8 != 0 || product->accumulate ||
                                  ((uintptr_t)product->c.data & 15) != 0)) {
        return refuse(product);
    }
    const prepared *s = prepared_of(p, product);
    if (s == NULL || !s->works) return refuse(product);
    if (product->only_asks) return ST_OK;
    if (narrow && !factors_set(p, s->product, product)) return refuse(product);
    if (product->bias != NULL &&
        !set(p, s->product, LT_BIAS, &product->bias, sizeof(product->bias))) {
        return refuse(product);
    }
    if (product->gelu != NULL &&
        !set(p, s->product, LT_AUX, &product->c.data, sizeof(product->c.data))) {
        return refuse(product);
    }
    void *const out = product->gelu != NULL ? product->gelu : product->c.data;
    const int r = p->library.multiply(p->handle, s->product, &alpha, product->b.data, s->layout[1],
                                      product->a.data, s->layout[0], &beta, out, s->layout[2], out,
                                      s->layout[2], &s->algorithm, workspace,
                                      (size_t)p->workspace_bytes, stream);
    if (r == 0) return ST_OK;
    return fail(ST_DEVICE, "cuBLASLt fails with status %d on a product (%lld, %lld) x (%lld, %lld)",
                r, (long long)product->a.rows, (long long)product->a.columns,
                (long long)product->b.rows, (long long)product->b.columns);
}
