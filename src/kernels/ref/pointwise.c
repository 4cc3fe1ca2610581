// Operations that work element by element: sums, activations, dropout, casts, rotations.
//
// An output may be one of the inputs (operation rows say which): every element is read before the
// element at the same position is written.
#include "kernels/ref/ref.h"
#include "op/dropout.h"
#include "op/zigzag.h"

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x)); // exp may be infinite: then this is 0, as it should be
}

// tanh GELU is x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for x << 0.
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;
static const double normal_peak = 0.39894228040143267794; // 1 / sqrt(2 pi)

double ref_activation_value(op_activation kind, double x)
{
    switch (kind) {
    case ACT_NONE:
        return x;
    case ACT_GELU_TANH:
        return x * sigmoid(2.0 * sqrt_2_over_pi * (x + 0.044715 * x * x * x));
    case ACT_GELU_ERF:
        return 0.5 * x * erfc(-x * sqrt_half);
    case ACT_SILU:
        return x * sigmoid(x);
    case ACT_RELU:
        return x > 0.0 ? x : (isnan(x) ? x : 0.0);
    }
    return 0.0; // not reached: the enum has no more
}

double ref_activation_slope(op_activation kind, double x)
{
    switch (kind) {
    case ACT_NONE:
        return 1.0;
    case ACT_GELU_TANH: {
        const double two_u = 2.0 * sqrt_2_over_pi * (x + 0.044715 * x * x * x);
        const double slope = 2.0 * sqrt_2_over_pi * (1.0 + 3.0 * 0.044715 * x * x);
        return sigmoid(two_u) + x * (sigmoid(two_u) * sigmoid(-two_u)) * slope;
    }
    case ACT_GELU_ERF:
        return 0.5 * erfc(-x * sqrt_half) + x * (normal_peak * exp(-0.5 * x * x));
    case ACT_SILU:
        return sigmoid(x) + x * (sigmoid(x) * sigmoid(-x));
    case ACT_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    }
    return 0.0; // not reached: the enum has no more
}

status ref_add(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            ref_put(y, i, j, ref_get(a, i, j) + ref_get(b, i, j));
        }
    }
    return ST_OK;
}

status ref_activation(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) {
            ref_put(y, i, j, ref_activation_value(c->attrs.activation, ref_get(x, i, j)));
        }
    }
    return ST_OK;
}

status ref_activation_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *dy = &c->in[1], *dx = &c->out[0];
    for (int64_t i = 0; i < ref_rows(dx); i++) {
        for (int64_t j = 0; j < ref_columns(dx); j++) {
            const double slope = ref_activation_slope(c->attrs.activation, ref_get(x, i, j));
            ref_put(dx, i, j, ref_get(dy, i, j) * slope);
        }
    }
    return ST_OK;
}

// Computes a = act(gate) * up, where gate and up are the halves of h. Source: Shazeer 2020,
// arXiv:2002.05202.
status ref_gate(const kern_call *c, op_activation kind)
{
    const kern_tensor *h = &c->in[0], *a = &c->out[0];
    const int64_t width = a->dims[1];
    for (int64_t i = 0; i < a->dims[0]; i++) {
        for (int64_t j = 0; j < width; j++) {
            const double gate = ref_get(h, i, j), up = ref_get(h, i, width + j);
            ref_put(a, i, j, ref_activation_value(kind, gate) * up);
        }
    }
    return ST_OK;
}

status ref_gate_bwd(const kern_call *c, op_activation kind)
{
    const kern_tensor *h = &c->in[0], *da = &c->in[1], *dh = &c->out[0];
    const int64_t width = da->dims[1];
    for (int64_t i = 0; i < da->dims[0]; i++) {
        for (int64_t j = 0; j < width; j++) {
            const double gate = ref_get(h, i, j), up = ref_get(h, i, width + j);
            const double d = ref_get(da, i, j);
            ref_put(dh, i, j, d * up * ref_activation_slope(kind, gate));
            ref_put(dh, i, width + j, d * ref_activation_value(kind, gate));
        }
    }
    return ST_OK;
}

status ref_swiglu(const kern_context *context, const kern_call *c)
{
    (void)context;
    return ref_gate(c, ACT_SILU);
}

status ref_swiglu_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    return ref_gate_bwd(c, ACT_SILU);
}

status ref_dropout(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        const int64_t sequence = c->first_sequence + i / c->seq;
        const op_piece *piece = &c->piece;
        const int64_t whole = c->seq * max_i64(c->cut_ways, 1);
        const int64_t row = cut_position(c->cut_ways, c->cut_pieces, c->cut_at, c->seq, i % c->seq);
        const int64_t position =
            zigzag_position(piece->cp_ways, piece->cp_turns, piece->cp_at, whole, row);
        const dropout_stream stream = dropout_stream_of(&c->step->host, c->attrs.site, 0, sequence);
        for (int64_t j = 0; j < y->dims[1]; j++) {
            const int64_t at = piece->first_column + j;
            const float factor = dropout_factor_at(&stream, position, at, c->attrs.dropout);
            ref_put(y, i, j, ref_get(x, i, j) * (double)factor);
        }
    }
    return ST_OK;
}

status ref_cast(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *y = &c->out[0];
    for (int64_t i = 0; i < ref_rows(y); i++) {
        for (int64_t j = 0; j < ref_columns(y); j++) ref_put(y, i, j, ref_get(x, i, j));
    }
    return ST_OK;
}

status ref_tree_add(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *source = &c->in[0], *sum = &c->out[0];
    for (int64_t i = 0; i < ref_rows(sum); i++) {
        for (int64_t j = 0; j < ref_columns(sum); j++) {
            ref_total total = ref_total_begin(sum, c->accumulate, i, j);
            ref_total_add(&total, ref_get(source, i, j), 1.0);
            ref_total_end(&total, sum, i, j);
        }
    }
    return ST_OK;
}

// Rotates pairs of features by the angle of their position; columns past the rotated heads are
// copied. Source: Su et al. 2021, arXiv:2104.09864.
status ref_rope(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *positions = &c->in[1], *table = &c->in[2], *y = &c->out[0];
    const int64_t dim = c->attrs.head_dim, half = table->dims[1] / 2;
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const int64_t position = ref_int(positions, n);
        if (position < 0 || position >= table->dims[0]) {
            return fail(ST_DATA, "rope: row %lld has position %lld, the table ends at %lld",
                        (long long)n, (long long)position, (long long)table->dims[0]);
        }
        for (int64_t h = 0; h < c->attrs.heads; h++) {
            for (int64_t i = 0; i < half; i++) {
                const int64_t a = h * dim + (c->attrs.interleaved ? 2 * i : i);
                const int64_t b = c->attrs.interleaved ? a + 1 : a + half;
                const double cosine = ref_get(table, position, i);
                const double sine = ref_get(table, position, half + i);
                const double turn = c->attrs.inverse ? -sine : sine;
                const double xa = ref_get(x, n, a), xb = ref_get(x, n, b);
                ref_put(y, n, a, xa * cosine - xb * turn);
                ref_put(y, n, b, xb * cosine + xa * turn);
            }
            for (int64_t j = h * dim + 2 * half; j < (h + 1) * dim; j++) {
                ref_put(y, n, j, ref_get(x, n, j));
            }
        }
        for (int64_t j = c->attrs.heads * dim; j < x->dims[1]; j++) {
            ref_put(y, n, j, ref_get(x, n, j));
        }
    }
    return ST_OK;
}
