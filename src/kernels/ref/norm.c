// RMSNorm and LayerNorm, forward and backward, fused with the residual addition before them.
//
//   h = x + delta, rounded to its type, because backward reads the value that forward normalized
//   RMSNorm    y = h r (w + plus),         r = 1 / sqrt(mean(h^2) + eps)
//   LayerNorm  y = (h - mean) r w + b,     r = 1 / sqrt(var(h) + eps)
//
// Sources: Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450.
#include "kernels/ref/ref.h"

// Returns h of one element and stores it if it is wanted. Without delta, h is x.
static double residual(const kern_call *c, const kern_tensor *delta, const kern_tensor *h,
                       int64_t i, int64_t j)
{
    const double x = ref_get(&c->in[0], i, j);
    if (!ref_has(delta)) return x;
    const double sum = x + ref_get(delta, i, j);
    return ref_rounded(ref_has(h) ? h : &c->in[0], sum);
}

status ref_rmsnorm(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *w = &c->in[1], *delta = &c->in[2];
    const kern_tensor *y = &c->out[0], *r = &c->out[1], *h = &c->out[2];
    const int64_t dim = w->dims[0], groups = y->dims[1] / dim;
    const bool is_piece = ref_has(&c->in[3]);
    const double count = (double)(is_piece ? c->piece.whole_columns : dim);
    for (int64_t i = 0; i < y->dims[0]; i++) {
        for (int64_t g = 0; g < groups; g++) {
            double squares = 0.0;
            for (int64_t j = 0; j < dim && !is_piece; j++) {
                const double v = residual(c, delta, h, i, g * dim + j);
                squares += v * v;
            }
            if (is_piece) squares = ref_get(&c->in[3], i, 0);
            const double scale = 1.0 / sqrt(squares / count + (double)c->attrs.eps);
            for (int64_t j = 0; j < dim; j++) {
                const double v = residual(c, delta, h, i, g * dim + j);
                // h is stored first, because y may overlap x or delta.
                if (ref_has(h)) ref_put(h, i, g * dim + j, v);
                ref_put(y, i, g * dim + j, v * scale * (ref_get(w, 0, j) + (double)c->attrs.plus));
            }
            if (ref_has(r)) ref_put(r, i, g, scale);
        }
    }
    return ST_OK;
}

// Computes 1 / sqrt(mean(h^2) + eps) of one group again in double: if only eps keeps dx from 0 (one
// column), the 24 bits of the stored r are too few.
static double group_scale(const kern_call *c, const kern_tensor *h, int64_t i, int64_t begin,
                          int64_t dim)
{
    double squares = 0.0;
    for (int64_t j = begin; j < begin + dim; j++) squares += ref_get(h, i, j) * ref_get(h, i, j);
    return 1.0 / sqrt(squares / (double)dim + (double)c->attrs.eps);
}

// With u = dy (w + plus): dx = r (u - h r^2 mean(u h)) + dh.
status ref_rmsnorm_dx(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *h = &c->in[1], *w = &c->in[3];
    const kern_tensor *dh = &c->in[4], *dx = &c->out[0];
    const int64_t dim = w->dims[0], groups = dx->dims[1] / dim;
    const bool is_piece = ref_has(&c->in[5]);
    const double count = (double)(is_piece ? c->piece.whole_columns : dim);
    for (int64_t i = 0; i < dx->dims[0]; i++) {
        for (int64_t g = 0; g < groups; g++) {
            const double scale =
                is_piece ? ref_get(&c->in[2], i, 0) : group_scale(c, h, i, g * dim, dim);
            double dot = is_piece ? ref_get(&c->in[5], i, 0) : 0.0;
            for (int64_t j = 0; j < dim && !is_piece; j++) {
                const double u =
                    ref_get(dy, i, g * dim + j) * (ref_get(w, 0, j) + (double)c->attrs.plus);
                dot += u * ref_get(h, i, g * dim + j);
            }
            const double pull = scale * scale * dot / count;
            for (int64_t j = 0; j < dim; j++) {
                const int64_t at = g * dim + j;
                const double u = ref_get(dy, i, at) * (ref_get(w, 0, j) + (double)c->attrs.plus);
                const double past = ref_has(dh) ? ref_get(dh, i, at) : 0.0;
                ref_put(dx, i, at, scale * (u - ref_get(h, i, at) * pull) + past);
            }
        }
    }
    return ST_OK;
}

status ref_row_dots(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *dy = &c->in[1], *w = &c->in[2];
    const op_columns columns = op_columns_of(&c->piece, x->dims[1]);
    for (int64_t i = 0; i < x->dims[0]; i++) {
        double dot = 0.0;
        for (int64_t j = columns.begin; j < columns.end; j++) {
            const double v = ref_get(x, i, j);
            const double u =
                ref_has(dy) ? ref_get(dy, i, j) * (ref_get(w, 0, j) + (double)c->attrs.plus) : v;
            dot += u * v;
        }
        ref_put(&c->out[0], i, 0, dot);
    }
    return ST_OK;
}

status ref_rmsnorm_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *h = &c->in[1], *r = &c->in[2], *dw = &c->out[0];
    const int64_t dim = dw->dims[0], groups = dy->dims[1] / dim;
    for (int64_t j = 0; j < dim; j++) {
        ref_total total = ref_total_begin(dw, c->accumulate, 0, j);
        for (int64_t i = 0; i < dy->dims[0]; i++) {
            for (int64_t g = 0; g < groups; g++) {
                const int64_t at = g * dim + j;
                ref_total_add(&total, ref_get(dy, i, at), ref_get(h, i, at) * ref_get(r, i, g));
            }
        }
        ref_total_end(&total, dw, 0, j);
    }
    return ST_OK;
}

status ref_layernorm(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *w = &c->in[1], *b = &c->in[2], *delta = &c->in[3];
    const kern_tensor *y = &c->out[0], *mean = &c->out[1], *r = &c->out[2], *h = &c->out[3];
    const int64_t dim = y->dims[1];
    for (int64_t i = 0; i < y->dims[0]; i++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < dim; j++) sum += residual(c, delta, h, i, j);
        const double middle = sum / (double)dim;
        for (int64_t j = 0; j < dim; j++) {
            const double v = residual(c, delta, h, i, j) - middle;
            squares += v * v;
        }
        const double scale = 1.0 / sqrt(squares / (double)dim + (double)c->attrs.eps);
        for (int64_t j = 0; j < dim; j++) {
            const double v = residual(c, delta, h, i, j);
            const double shift = ref_has(b) ? ref_get(b, 0, j) : 0.0;
            if (ref_has(h)) ref_put(h, i, j, v);
            ref_put(y, i, j, (v - middle) * scale * ref_get(w, 0, j) + shift);
        }
        if (ref_has(mean)) ref_put(mean, 0, i, middle);
        if (ref_has(r)) ref_put(r, 0, i, scale);
    }
    return ST_OK;
}

// Computes the mean of a row of h again in double: the stored one has 24 bits, too few if the mean
// is far larger than the deviation from it.
static double row_mean(const kern_tensor *h, int64_t i)
{
    double sum = 0.0;
    for (int64_t j = 0; j < h->dims[1]; j++) sum += ref_get(h, i, j);
    return sum / (double)h->dims[1];
}

// With u = dy w and n = (h - mean) r: dx = r (u - mean(u) - n mean(u n)) + dh.
status ref_layernorm_dx(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *h = &c->in[1], *r = &c->in[3], *w = &c->in[4];
    const kern_tensor *dh = &c->in[5], *dx = &c->out[0];
    const int64_t dim = dx->dims[1];
    for (int64_t i = 0; i < dx->dims[0]; i++) {
        const double middle = row_mean(h, i), scale = ref_get(r, 0, i);
        double sum = 0.0, dot = 0.0;
        for (int64_t j = 0; j < dim; j++) {
            const double u = ref_get(dy, i, j) * ref_get(w, 0, j);
            sum += u;
            dot += u * (ref_get(h, i, j) - middle) * scale;
        }
        for (int64_t j = 0; j < dim; j++) {
            const double u = ref_get(dy, i, j) * ref_get(w, 0, j);
            const double n = (ref_get(h, i, j) - middle) * scale;
            const double past = ref_has(dh) ? ref_get(dh, i, j) : 0.0;
            ref_put(dx, i, j, scale * (u - sum / (double)dim - n * dot / (double)dim) + past);
        }
    }
    return ST_OK;
}

int64_t ref_layernorm_dw_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return c->in[0].dims[0] * (int64_t)sizeof(double); // the rows' means
}

status ref_layernorm_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dy = &c->in[0], *h = &c->in[1], *r = &c->in[3];
    const kern_tensor *dw = &c->out[0], *db = &c->out[1];
    const int64_t rows = dy->dims[0];
    double *means = c->workspace;
    for (int64_t i = 0; i < rows; i++) means[i] = row_mean(h, i);
    for (int64_t j = 0; j < dy->dims[1]; j++) {
        ref_total total = ref_total_begin(dw, c->accumulate, 0, j);
        for (int64_t i = 0; i < rows; i++) {
            const double n = (ref_get(h, i, j) - means[i]) * ref_get(r, 0, i);
            ref_total_add(&total, ref_get(dy, i, j), n);
        }
        ref_total_end(&total, dw, 0, j);
        if (!ref_has(db)) continue;
        total = ref_total_begin(db, c->accumulate, 0, j);
        for (int64_t i = 0; i < rows; i++) ref_total_add(&total, ref_get(dy, i, j), 1.0);
        ref_total_end(&total, db, 0, j);
    }
    return ST_OK;
}
