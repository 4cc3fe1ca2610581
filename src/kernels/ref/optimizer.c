// AdamW and Muon, in double, with the state rounded once where it is stored.
//
// The gradient operand is a raw accumulator; step->device.grad_factor scales it to the clipped
// mean. A skipped step and a halted run write nothing.
#include "op/optimizer.h"
#include "kernels/ref/ref.h"

bool ref_is_masked(const step_device *d)
{
    return d->skip != 0 || d->halt != 0;
}

void ref_put_update(const kern_call *c, const kern_tensor *t, int64_t i, int64_t j, double value,
                    uint32_t random_bits)
{
    if (!ref_has(t)) return;
    if (c->attrs.stochastic && t->type == DTYPE_BF16) {
        ((uint16_t *)t->data)[ref_offset(t, i, j)] =
            bf16_from_f32_stochastic((float)value, random_bits);
    } else if (c->attrs.stochastic && t->type == DTYPE_F16) {
        ((uint16_t *)t->data)[ref_offset(t, i, j)] =
            f16_from_f32_stochastic((float)value, random_bits);
    } else {
        ref_put(t, i, j, value);
    }
}

// Source: Loshchilov & Hutter 2019, arXiv:1711.05101. Decay uses the old value and comes first; eps
// is added outside the root, after bias correction. t counts applied updates, this one included.
status ref_adamw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const step_block *step = c->step;
    if (ref_is_masked(&step->device)) return ST_OK;
    const kern_tensor *grad = &c->in[0], *master = &c->in[1], *m = &c->in[2], *v = &c->in[3];
    const double beta1 = optimizer_beta(c->attrs.beta1), beta2 = optimizer_beta(c->attrs.beta2);
    const double lr = step->host.lr * (double)c->attrs.lr_scale;
    const double decay = c->attrs.decay ? lr * (double)c->attrs.weight_decay : 0.0;
    const double t = (double)step->device.applied;
    const double correction1 = 1.0 - pow(beta1, t), correction2 = 1.0 - pow(beta2, t);
    for (int64_t i = 0; i < ref_rows(grad); i++) {
        for (int64_t j = 0; j < ref_columns(grad); j++) {
            const double g = ref_get(grad, i, j) * step->device.grad_factor;
            const double m_new = beta1 * ref_get(m, i, j) + (1.0 - beta1) * g;
            const double v_new = beta2 * ref_get(v, i, j) + (1.0 - beta2) * g * g;
            const double update =
                m_new / correction1 / (sqrt(v_new / correction2) + (double)c->attrs.eps);
            const double p = ref_get(master, i, j) * (1.0 - decay) - lr * update;
            const int64_t columns = grad->ndim == 2 ? grad->dims[1] : 1;
            const int64_t at = (c->first_row + i) * columns + j;
            const optimizer_run run =
                optimizer_run_placed(&c->piece, &c->attrs, c->in[4].data, at, columns);
            const philox_words random =
                optimizer_random(&step->host, c->attrs.tensor_index, run.element);
            ref_put_update(c, &c->out[0], i, j, p, random.w[0]);
            ref_put_update(c, &c->out[1], i, j, m_new, random.w[1]);
            ref_put_update(c, &c->out[2], i, j, v_new, random.w[2]);
            ref_put_update(c, &c->out[3], i, j, p, random.w[3]);
        }
    }
    return ST_OK;
}

// ---- Muon ---------------------------------------------------------------------------------------
// Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon, with the conventions of
// torch.optim.Muon.

// Returns the first row and the number of rows of part `k` of the weight. Parts follow each other
// along dim 0.
static void part_rows(const kern_call *c, int32_t k, int64_t *begin, int64_t *rows)
{
    *begin = 0;
    *rows = c->in[0].dims[0];
    if (c->attrs.experts > 0) {
        *rows /= c->attrs.experts;
        *begin = k * *rows;
    }
    if (c->attrs.experts > 0 || c->piece.part_count <= 1) return;
    for (int32_t i = 0; i < k; i++) *begin += c->piece.part_rows[i];
    *rows = c->piece.part_rows[k];
}

static int32_t part_count(const kern_call *c)
{
    if (c->attrs.experts > 0) return c->attrs.experts;
    return c->piece.part_count > 1 ? c->piece.part_count : 1;
}

// Returns the bytes of two matrices (small, large) and two (small, small), where small is the
// shorter side of a part.
static int64_t part_bytes(int64_t rows, int64_t columns)
{
    const int64_t low = min_i64(rows, columns);
    return (2 * rows * columns + 2 * low * low) * (int64_t)sizeof(double);
}

int64_t ref_muon_workspace(const kern_call *c, int threads)
{
    (void)threads;
    int64_t most = 0;
    for (int32_t k = 0; k < part_count(c); k++) {
        int64_t begin, rows;
        part_rows(c, k, &begin, &rows);
        most = max_i64(most, part_bytes(rows, c->in[0].dims[1]));
    }
    return most;
}

int64_t ref_muon_update_workspace(const kern_call *c, int threads)
{
    (void)threads;
    int64_t most = 0;
    for (int32_t k = 0; k < c->piece.part_count; k++) {
        most = max_i64(most, part_bytes(c->piece.part_whole[k], c->in[0].dims[1]));
    }
    return most;
}

// Performs five steps of x <- a x + (b A + c A^2) x with A = x x^T; x (rows, columns), rows <=
// columns.
static void newton_schulz(double *x, double *next, double *a, double *b, int64_t rows,
                          int64_t columns)
{
    static const double ka = 3.4445, kb = -4.775, kc = 2.0315;
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < rows; j++) {
                double sum = 0.0;
                for (int64_t k = 0; k < columns; k++)
                    sum += x[i * columns + k] * x[j * columns + k];
                a[i * rows + j] = sum;
            }
        }
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < rows; j++) {
                double sum = 0.0;
                for (int64_t k = 0; k < rows; k++) sum += a[i * rows + k] * a[k * rows + j];
                b[i * rows + j] = kb * a[i * rows + j] + kc * sum;
            }
        }
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t k = 0; k < columns; k++) {
                double sum = 0.0;
                for (int64_t j = 0; j < rows; j++) sum += b[i * rows + j] * x[j * columns + k];
                next[i * columns + k] = ka * x[i * columns + k] + sum;
            }
        }
        for (int64_t i = 0; i < rows * columns; i++) x[i] = next[i];
    }
}

// Updates the momentum of one element of the rank's piece and returns its direction.
static double direction(const kern_call *c, const kern_tensor *m, int64_t i, int64_t j)
{
    const double mu = optimizer_beta(c->attrs.momentum);
    const double g = ref_get(&c->in[0], i, j) * c->step->device.grad_factor;
    const double m_new = mu * ref_get(m, i, j) + (1.0 - mu) * g;
    return c->attrs.nesterov ? (1.0 - mu) * g + mu * m_new : m_new;
}

static void momentum_put(const kern_call *c, const kern_tensor *m, const kern_tensor *out,
                         int64_t i, int64_t j, int64_t element)
{
    const double mu = optimizer_beta(c->attrs.momentum);
    const double g = ref_get(&c->in[0], i, j) * c->step->device.grad_factor;
    const philox_words random = optimizer_random(&c->step->host, c->attrs.tensor_index, element);
    ref_put_update(c, out, i, j, mu * ref_get(m, i, j) + (1.0 - mu) * g, random.w[1]);
}

// Makes the matrix at the beginning of the workspace orthogonal, in place; its shorter side comes
// first.
static void orthogonalise(const kern_call *c, int64_t rows, int64_t columns)
{
    const int64_t low = min_i64(rows, columns), high = max_i64(rows, columns);
    double *x = c->workspace, *next = x + rows * columns;
    double *a = next + rows * columns, *b = a + low * low;
    double squares = 0.0;
    const bool tall = rows > columns;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const double u = x[tall ? j * rows + i : i * columns + j];
            squares += u * u;
        }
    }
    const double norm = fmax(sqrt(squares), (double)c->attrs.eps);
    for (int64_t i = 0; i < rows * columns; i++) x[i] /= norm;
    newton_schulz(x, next, a, b, low, high);
}

// Updates one element of the master weight and its copy; the update is of a part of (rows,
// columns).
static void master_put(const kern_call *c, const kern_tensor *master, const kern_tensor out[2],
                       const int64_t at[2], int64_t element, double update, double size)
{
    const double lr = c->step->host.lr * (double)c->attrs.lr_scale;
    const double decay = c->attrs.decay ? lr * (double)c->attrs.weight_decay : 0.0;
    const double p = ref_get(master, at[0], at[1]) * (1.0 - decay) - lr * size * update;
    const philox_words random = optimizer_random(&c->step->host, c->attrs.tensor_index, element);
    ref_put_update(c, &out[0], at[0], at[1], p, random.w[0]);
    ref_put_update(c, &out[1], at[0], at[1], p, random.w[3]);
}

static double size_of(const kern_call *c, int64_t rows, int64_t columns)
{
    return c->attrs.match_rms ? 0.2 * sqrt((double)max_i64(rows, columns))
                              : sqrt(fmax(1.0, (double)rows / (double)columns));
}

// Processes one part: momentum, orthogonalization, update. In the buffer x is stored with its
// shorter side first.
static void muon_part(const kern_call *c, int64_t begin, int64_t rows)
{
    const int64_t columns = c->in[0].dims[1];
    const kern_tensor out[2] = {c->out[0], c->out[2]};
    const bool tall = rows > columns;
    double *x = c->workspace;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            x[tall ? j * rows + i : i * columns + j] = direction(c, &c->in[2], begin + i, j);
            momentum_put(c, &c->in[2], &c->out[1], begin + i, j, (begin + i) * columns + j);
        }
    }
    orthogonalise(c, rows, columns);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const int64_t at[2] = {begin + i, j};
            master_put(c, &c->in[1], out, at, (begin + i) * columns + j,
                       x[tall ? j * rows + i : i * columns + j], size_of(c, rows, columns));
        }
    }
}

static int64_t element_of(const kern_call *c, int64_t i, int64_t j, int64_t columns)
{
    return optimizer_run_of(&c->piece, i * columns + j, columns).element;
}

status ref_muon_direction(const kern_context *context, const kern_call *c)
{
    (void)context;
    const int64_t columns = c->in[0].dims[1];
    if (ref_is_masked(&c->step->device)) return ST_OK;
    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        for (int64_t j = 0; j < columns; j++) {
            ref_put(&c->out[1], i, j, direction(c, &c->in[1], i, j));
            momentum_put(c, &c->in[1], &c->out[0], i, j, element_of(c, i, j, columns));
        }
    }
    return ST_OK;
}

status ref_muon_update(const kern_context *context, const kern_call *c)
{
    (void)context;
    const op_piece *piece = &c->piece;
    const int64_t all = c->in[0].dims[1], columns = c->in[1].dims[1];
    int64_t begin = 0, own = 0; // of the part in the whole, and here
    double *x = c->workspace;
    if (ref_is_masked(&c->step->device)) return ST_OK;
    for (int32_t k = 0; k < piece->part_count; k++) {
        const int64_t rows = piece->part_whole[k], first = piece->part_first[k] - begin;
        const bool tall = rows > all;
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < all; j++) {
                x[tall ? j * rows + i : i * all + j] = ref_get(&c->in[0], begin + i, j);
            }
        }
        orthogonalise(c, rows, all);
        for (int64_t i = 0; i < piece->part_rows[k]; i++) {
            for (int64_t j = 0; j < columns; j++) {
                const int64_t at[2] = {own + i, j}, row = first + i,
                              column = piece->first_column + j;
                master_put(c, &c->in[1], c->out, at, element_of(c, own + i, j, columns),
                           x[tall ? column * rows + row : row * all + column],
                           size_of(c, rows, all));
            }
        }
        begin += rows;
        own += piece->part_rows[k];
    }
    return ST_OK;
}

status ref_muon(const kern_context *context, const kern_call *c)
{
    (void)context;
    if (ref_is_masked(&c->step->device)) return ST_OK;
    for (int32_t k = 0; k < part_count(c); k++) {
        int64_t begin, rows;
        part_rows(c, k, &begin, &rows);
        muon_part(c, begin, rows);
    }
    return ST_OK;
}
