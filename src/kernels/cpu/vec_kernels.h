// The leaves of the vector backend: loops over one row or a piece of it, once per level.
//
// A kernel (norm.c, pointwise.c, ...) divides the work and calls these functions through the table
// of the context's level. All tables are compiled from the same sources (*.inc), so their bits are
// equal.
#ifndef KERNELS_CPU_VEC_KERNELS_H
#define KERNELS_CPU_VEC_KERNELS_H

#include "kernels/kernels_internal.h"
#include "op/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

// Contiguous elements of a float type: fp32, bf16 or fp16. at = NULL: missing.
typedef struct cpu_span {
    void *at;
    dtype type;
} cpu_span;

static inline cpu_span cpu_span_at(const kern_tensor *t, int64_t element)
{
    cpu_span s;
    s.type = t->type;
    s.at = t->data == NULL ? NULL : (char *)t->data + element * (t->type == DTYPE_F32 ? 4 : 2);
    return s;
}

static inline cpu_span cpu_span_offset(cpu_span s, int64_t elements)
{
    s.at = (char *)s.at + elements * (s.type == DTYPE_F32 ? 4 : 2);
    return s;
}

static inline cpu_span cpu_span_fp32(float *values)
{
    return (cpu_span){.at = values, .type = DTYPE_F32};
}

// One row of a norm; operands that an operation does not have are NULL.
typedef struct cpu_norm_row {
    cpu_span x, delta, w, b, y, h; // forward
    cpu_span dy, dh, dx;           // backward, with h and w
    int64_t dim;
    int64_t whole;     // columns of the row of which this is a piece
    const float *dots; // the sum over them; NULL: the row is whole
    float eps, plus;
    float mean, r; // forward: results; backward: r is read
} cpu_norm_row;

// Columns column .. column + count - 1 of dw and db, summed over all rows and groups in order.
enum { CPU_SUM_COLUMNS = 64 };
typedef struct cpu_norm_sum {
    cpu_span dy, h;
    int64_t dy_stride, h_stride;
    const float *r;     // (rows, groups), row stride r_stride
    const double *mean; // (rows); NULL: 0
    int64_t r_stride;
    int64_t rows, groups, dim;
    int64_t column, count; // count <= CPU_SUM_COLUMNS
    cpu_span dw, db;
    bool accumulate;
} cpu_norm_sum;

// sum[j] = or += x[i][j] over the rows i, one sequential sum for each of `count` columns.
typedef struct cpu_row_sum {
    cpu_span sum, x; // of the first column
    int64_t rows, stride, count;
    bool accumulate;
} cpu_row_sum;

typedef struct cpu_rope_row {
    cpu_span x, y;
    const float *turn;  // dim/2 cosines, dim/2 sines
    int64_t heads, dim; // dim: rotated columns of a head
    int64_t head_dim;   // from one head to the next
    bool interleaved, inverse;
} cpu_rope_row;

// n elements of one tensor, the first of which is number `element` of the whole. Muon uses it
// twice: its first pass reads grad and m and writes m_out and `direction`, which the second pass
// reads.
typedef struct cpu_update_span {
    cpu_span grad, master, m, v;                   // read
    cpu_span master_out, m_out, v_out, weight_out; // written; weight_out may be missing
    int64_t n, element;
    float factor;                     // times the gradient
    float beta1, rest1, beta2, rest2; // rest = 1 - beta
    float keep;                       // 1 - lr * weight decay
    float rate;                       // lr / (1 - beta1^t)
    float unbias2;                    // 1 / (1 - beta2^t)
    float eps;
    bool stochastic;
    const step_host *step;
    int32_t tensor_index;
    float *direction; // Muon: input and result of the orthogonalization
    bool nesterov;
} cpu_update_span;

enum { CPU_SEAL_WORDS = 8 };
typedef struct cpu_seal_sums {
    uint64_t word[4][CPU_SEAL_WORDS]; // cpu/seal.c
} cpu_seal_sums;

struct cpu_attention_tile;
struct cpu_attention_chunk;

// The functions of a level: result, name and arguments. To add one, add a line here and vec_<name>
// in an .inc file. finish: values = activation of (values + bias). dropout: columns begin .. begin
// + n - 1, begin % 4 = 0. attention: see attention.h. block_squares: op/block_sum.h, n <=
// BLOCK_SUM_ELEMENTS. check_dot: adds the sums of x[i] factors[i] (NULL: 1) and of x[i]^2.
// check_columns: sums[i] += x[i], returns the sum of x[i]^2. check_add: sums[i] += factor x[i],
// squares[i] += x[i]^2. seal: adds the words of bytes; only the last ones of a tile may be less
// than 64. function: y[i] = f(x[i]); 0 exp, 1 exp2_neg, 2 tanh, 3 erf, 4 sigmoid.
#define CPU_VEC_TABLE(X)                                                                           \
    X(void, add, (cpu_span y, cpu_span a, cpu_span b, int64_t n))                                  \
    X(void, scale, (cpu_span y, cpu_span x, float factor, int64_t n))                              \
    X(void, soft_cap, (cpu_span y, cpu_span x, float cap, int64_t n))                              \
    X(void, cast, (cpu_span y, cpu_span x, int64_t n))                                             \
    X(void, activation, (op_activation kind, cpu_span y, cpu_span x, int64_t n))                   \
    X(void, finish, (op_activation kind, float *values, cpu_span bias, int64_t n))                 \
    X(void, activation_bwd, (op_activation kind, cpu_span dx, cpu_span x, cpu_span dy, int64_t n)) \
    X(void, swiglu, (cpu_span a, cpu_span gate, cpu_span up, int64_t n))                           \
    X(void, swiglu_bwd,                                                                            \
      (cpu_span dgate, cpu_span dup, cpu_span gate, cpu_span up, cpu_span da, int64_t n))          \
    X(void, geglu, (op_activation gelu, cpu_span a, cpu_span gate, cpu_span up, int64_t n))        \
    X(void, geglu_bwd,                                                                             \
      (op_activation gelu, cpu_span dgate, cpu_span dup, cpu_span gate, cpu_span up, cpu_span da,  \
       int64_t n))                                                                                 \
    X(void, dropout,                                                                               \
      (cpu_span y, cpu_span x, int64_t begin, int64_t n, const dropout_stream *stream,             \
       int64_t position, float p))                                                                 \
    X(void, rope, (const cpu_rope_row *row))                                                       \
    X(void, rmsnorm, (cpu_norm_row * row))                                                         \
    X(void, rmsnorm_dx, (const cpu_norm_row *row))                                                 \
    X(double, row_dot, (const cpu_norm_row *row))                                                  \
    X(void, layernorm, (cpu_norm_row * row))                                                       \
    X(void, layernorm_dx, (const cpu_norm_row *row))                                               \
    X(void, norm_dw, (const cpu_norm_sum *sum))                                                    \
    X(double, row_mean, (cpu_span x, int64_t n))                                                   \
    X(void, sum_rows, (const cpu_row_sum *sum))                                                    \
    X(void, attention, (const struct cpu_attention_tile *tile))                                    \
    X(void, attention_bwd, (const struct cpu_attention_tile *tile))                                \
    X(void, attention_chunk, (const struct cpu_attention_chunk *chunk))                            \
    X(void, adamw, (const cpu_update_span *span))                                                  \
    X(void, lion, (const cpu_update_span *span))                                                   \
    X(void, muon_begin, (const cpu_update_span *span))                                             \
    X(void, muon_end, (const cpu_update_span *span))                                               \
    X(double, block_squares, (cpu_span x, int64_t n))                                              \
    X(double, check_sum, (const float *x, int64_t n))                                              \
    X(void, check_dot, (cpu_span x, const double *factors, int64_t n, double out[2]))              \
    X(double, check_columns, (cpu_span x, int64_t n, double *sums))                                \
    X(void, check_add, (cpu_span x, double factor, int64_t n, double *sums, double *squares))      \
    X(void, seal, (cpu_seal_sums * sums, const void *data, int64_t bytes))                         \
    X(void, function, (int which, float *y, const float *x, int64_t n))

typedef struct cpu_vec {
#define CPU_VEC_MEMBER(result, name, arguments) result(*name) arguments;
    CPU_VEC_TABLE(CPU_VEC_MEMBER)
#undef CPU_VEC_MEMBER
} cpu_vec;

extern const cpu_vec cpu_vec_scalar, cpu_vec_avx2, cpu_vec_avx512;

static inline const cpu_vec *cpu_vec_of(kern_level level)
{
    if (level >= KERN_AVX512) return &cpu_vec_avx512;
    return level >= KERN_AVX2 ? &cpu_vec_avx2 : &cpu_vec_scalar;
}

#ifdef __cplusplus
}
#endif
#endif
