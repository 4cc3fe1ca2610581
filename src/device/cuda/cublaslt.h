// Matrix products by NVIDIA's cuBLASLt, which is loaded at run time.
//
// cuBLASLt's matrices are stored by columns, so a product of ours, stored by rows, is computed as
// its transpose: C' = op(B)' op(A)'. For each shape the library is asked once for an algorithm; the
// answer depends on shape, types, alignment, GPU and version only, so a run repeats its bits.
#ifndef DEVICE_CUDA_CUBLASLT_H
#define DEVICE_CUDA_CUBLASLT_H

#include "device/cuda/driver.h"
#include "device/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

// Numbers of cublasLt.h and library_types.h.
enum {
    LT_TYPE_F32 = 0,
    LT_TYPE_F16 = 2,
    LT_TYPE_BF16 = 14,
    LT_TYPE_E4M3 = 28,
    LT_TYPE_E5M2 = 29,
    LT_COMPUTE_F32 = 68,
    LT_TRANSPOSE_A = 3, // attributes of a product
    LT_TRANSPOSE_B = 4,
    LT_EPILOGUE = 7,
    LT_BIAS = 8,
    LT_AUX = 11, // what GELU is of, as an output
    LT_AUX_STRIDE = 12,
    LT_FACTORS_A = 17, // of an operand in 8 bits: their address
    LT_FACTORS_B = 18,
    LT_BIAS_TYPE = 26,
    LT_BLOCKS_A = 31, // which numbers share a factor
    LT_BLOCKS_B = 32,
    LT_BLOCKS_VECTOR = 4, // 128 of the summed dim
    LT_BLOCKS_SQUARE = 5, // 128 x 128
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_GELU_AUX = 160,
    LT_EPILOGUE_GELU_AUX_BIAS = 164,
    LT_WORKSPACE_BYTES = 1, // attributes of a preference
    LT_ALIGNMENT_A = 5,     // and of B, C, D
    LT_MAX_ALIGNMENT = 256,
    LT_VERSION_OF_BLOCKS = 120900 // the first one with blocks of 128
};

typedef struct lt_handle_struct *lt_handle;
typedef struct lt_product_struct *lt_product;
typedef struct lt_layout_struct *lt_layout;
typedef struct lt_preference_struct *lt_preference;
typedef struct lt_algorithm {
    uint64_t data[8];
} lt_algorithm;
typedef struct lt_choice { // cublasLtMatmulHeuristicResult_t
    lt_algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} lt_choice;

// Parameters of the library's two long functions.
#define LT_CHOOSE_PARAMETERS                                                       \
    lt_handle h, lt_product p, lt_layout a, lt_layout b, lt_layout c, lt_layout d, \
        lt_preference preference, int wanted, lt_choice *out, int *count
#define LT_MULTIPLY_PARAMETERS                                                                  \
    lt_handle h, lt_product p, const void *alpha, const void *a, lt_layout a_layout,            \
        const void *b, lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout, \
        void *d, lt_layout d_layout, const lt_algorithm *algorithm, void *workspace,            \
        size_t workspace_bytes, cuda_stream stream

// X(field, symbol, parameters): every function returns a status; 0: success.
#define LT_FUNCTIONS(X)                                                                          \
    X(create, cublasLtCreate, (lt_handle * out))                                                 \
    X(destroy, cublasLtDestroy, (lt_handle h))                                                   \
    X(product_create, cublasLtMatmulDescCreate, (lt_product * out, int compute, int scale_type)) \
    X(product_destroy, cublasLtMatmulDescDestroy, (lt_product p))                                \
    X(product_set, cublasLtMatmulDescSetAttribute,                                               \
      (lt_product p, int attribute, const void *value, size_t bytes))                            \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                 \
      (lt_layout * out, int type, uint64_t rows, uint64_t columns, int64_t stride))              \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (lt_layout l))                                \
    X(preference_create, cublasLtMatmulPreferenceCreate, (lt_preference * out))                  \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (lt_preference p))                    \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                      \
      (lt_preference p, int attribute, const void *value, size_t bytes))                         \
    X(choose, cublasLtMatmulAlgoGetHeuristic, (LT_CHOOSE_PARAMETERS))                            \
    X(multiply, cublasLtMatmul, (LT_MULTIPLY_PARAMETERS))

typedef struct lt_library {
#define LT_FIELD(field, symbol, parameters) int(*field) parameters;
    LT_FUNCTIONS(LT_FIELD)
#undef LT_FIELD
    size_t (*version)(void); // 130100 for 13.1.0
} lt_library;

// Loads libcublasLt.so.13 or .12; false, with the remedy in *why: it is not there.
bool lt_library_open(lt_library *out, const char **why);

// The products of a device: handles and the algorithm of each shape.
typedef struct lt_products lt_products;
NODISCARD status lt_products_create(const lt_library *library, int64_t workspace_bytes,
                                    lt_products **out);
void lt_products_destroy(lt_products *p); // NULL is legal
// Whether the library has products in 8 bits for GPUs of this architecture, with one factor for an
// operand, and with factors of blocks. It may still refuse a shape.
bool lt_has_fp8_tensors(const lt_library *library, int arch);
bool lt_has_fp8_blocks(const lt_library *library, int arch);
const lt_library *lt_products_library(const lt_products *p);
// Posts a product to the stream. ST_UNSUPPORTED: the library has no algorithm for it.
NODISCARD status lt_products_post(lt_products *p, const cuda_product *product, cuda_stream stream,
                                  void *workspace);

#ifdef __cplusplus
}
#endif
#endif
