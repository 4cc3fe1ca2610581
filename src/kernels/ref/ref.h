// The `ref` backend: a naive implementation of every operation.
//
// It is the reference of the tests, so it has no vector code, no blocking and no threads. Sums
// inside a row are computed in double and rounded once, to the type of the output. Every floating
// type is accepted, fp64 too, for finite differences. Sums over rows ("+=" outputs) are one
// sequential sum in the type of the accumulator that continues from memory: a cut between rows
// changes no bit.
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kernels_internal.h"

#include <math.h>

// ---- elements -----------------------------------------------------------------------------------
static inline bool ref_has(const kern_tensor *t)
{
    return t->data != NULL;
}

// A 1-dim tensor has one row.
static inline int64_t ref_rows(const kern_tensor *t)
{
    return t->ndim == 2 ? t->dims[0] : 1;
}

static inline int64_t ref_columns(const kern_tensor *t)
{
    return t->dims[t->ndim - 1];
}

static inline int64_t ref_offset(const kern_tensor *t, int64_t i, int64_t j)
{
    return t->ndim == 2 ? i * t->strides[0] + j : j;
}

static inline double ref_get(const kern_tensor *t, int64_t i, int64_t j)
{
    const int64_t at = ref_offset(t, i, j);
    if (t->type == DTYPE_F32) return (double)((const float *)t->data)[at];
    if (t->type == DTYPE_F64) return ((const double *)t->data)[at];
    return dtype_load(t->type, t->data, at);
}

static inline void ref_put(const kern_tensor *t, int64_t i, int64_t j, double value)
{
    const int64_t at = ref_offset(t, i, j);
    if (t->type == DTYPE_F32) {
        ((float *)t->data)[at] = (float)value;
    } else if (t->type == DTYPE_F64) {
        ((double *)t->data)[at] = value;
    } else {
        dtype_store(t->type, t->data, at, value);
    }
}

static inline int64_t ref_int(const kern_tensor *t, int64_t j)
{
    if (t->type == DTYPE_I32) return ((const int32_t *)t->data)[j];
    return ((const int64_t *)t->data)[j];
}

// Returns the row of a cache with position `at` of sequence b.
static inline int64_t ref_page_row(const kern_call *c, const kern_tensor *pages, int64_t b,
                                   int64_t at)
{
    const int64_t each = pages->dims[0] / (c->in[0].dims[0] / c->seq), page = c->attrs.page;
    return ref_int(pages, b * each + at / page) * page + at % page;
}

static inline int64_t ref_get_int(const kern_tensor *t, int64_t i, int64_t j)
{
    return ref_int(t, ref_offset(t, i, j));
}

static inline void ref_put_int(const kern_tensor *t, int64_t i, int64_t j, int64_t value)
{
    const int64_t at = ref_offset(t, i, j);
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[at] = (int32_t)value;
    } else {
        ((int64_t *)t->data)[at] = value;
    }
}

// Returns the value that a store to `t` leaves there.
static inline double ref_rounded(const kern_tensor *t, double value)
{
    double cell = 0.0; // wide and aligned enough for any type
    dtype_store(t->type, &cell, 0, value);
    return dtype_load(t->type, &cell, 0);
}

// ---- sequential sums over rows ------------------------------------------------------------------
// fp64 accumulators are summed in fp64, the others in fp32. (Accumulators narrower than fp32 are
// rounded where the sum goes back to memory, so for them, and only for them, a cut changes bits.)
typedef struct ref_total {
    bool wide;
    float narrow_sum;
    double wide_sum;
} ref_total;

static inline ref_total ref_total_begin(const kern_tensor *acc, bool accumulate, int64_t i,
                                        int64_t j)
{
    ref_total f;
    f.wide = acc->type == DTYPE_F64;
    f.wide_sum = accumulate ? ref_get(acc, i, j) : 0.0;
    f.narrow_sum = (float)f.wide_sum;
    return f;
}

static inline void ref_total_add(ref_total *f, double a, double b)
{
    if (f->wide) {
        f->wide_sum = fma(a, b, f->wide_sum);
    } else {
        f->narrow_sum = fmaf((float)a, (float)b, f->narrow_sum);
    }
}

static inline void ref_total_end(const ref_total *f, const kern_tensor *acc, int64_t i, int64_t j)
{
    ref_put(acc, i, j, f->wide ? f->wide_sum : (double)f->narrow_sum);
}

static inline void ref_zero(const kern_tensor *t)
{
    for (int64_t i = 0; i < ref_rows(t); i++) {
        for (int64_t j = 0; j < ref_columns(t); j++) ref_put(t, i, j, 0.0);
    }
}

// ---- functions of one number --------------------------------------------------------------------
double ref_activation_value(op_activation kind, double x);
double ref_activation_slope(op_activation kind, double x);

// ---- gated activations --------------------------------------------------------------------------
NODISCARD status ref_gate(const kern_call *c, op_activation kind);
NODISCARD status ref_gate_bwd(const kern_call *c, op_activation kind);

// ---- updates (ref/optimizer.c) ------------------------------------------------------------------
// The losses of a routed token, without their weights (route.c).
typedef struct ref_route_loss {
    double balance, z;
} ref_route_loss;
ref_route_loss ref_route_loss_of(const kern_call *c, const kern_tensor *logits,
                                 const kern_tensor *ids, int64_t n);
bool ref_is_masked(const step_device *d); // a skipped step and a halted run write nothing
// Stores one element, with stochastic rounding if it is on and the type is narrower than fp32.
void ref_put_update(const kern_call *c, const kern_tensor *t, int64_t i, int64_t j, double value,
                    uint32_t random_bits);

// ---- one function per operation -----------------------------------------------------------------
#define REF_DECLARE(upper, lower) \
    status ref_##lower(const kern_context *context, const kern_call *c);
OP_TABLE_COMPUTE(REF_DECLARE)
#undef REF_DECLARE
int64_t ref_attention_workspace(const kern_call *c, int threads);
int64_t ref_attention_bwd_workspace(const kern_call *c, int threads);
int64_t ref_layernorm_dw_workspace(const kern_call *c, int threads);
int64_t ref_head_loss_workspace(const kern_call *c, int threads);
int64_t ref_head_stats_workspace(const kern_call *c, int threads);
int64_t ref_objective_workspace(const kern_call *c, int threads);
int64_t ref_latent_cached_workspace(const kern_call *c, int threads);
int64_t ref_sample_workspace(const kern_call *c, int threads);
int64_t ref_muon_workspace(const kern_call *c, int threads);
int64_t ref_muon_update_workspace(const kern_call *c, int threads);
int64_t ref_fp8_workspace(const kern_call *c, int threads);

// If a product multiplies in 8 bits, makes *call `rounded`: the same with rounded operands in its
// workspace.
NODISCARD status ref_fp8_operands(const kern_call **call, kern_call *rounded);

#endif
