// Latent attention (op/latent.c): queries, keys and values from projections, and attention over a
// cache of latent rows.
#include "kernels/ref/ref.h"

typedef struct latent {
    int64_t heads, dim, rope, value; // columns of a head: all, the rotated ones, those of values
    int64_t plain;                   // columns of a head that are not rotated
} latent;

static latent latent_of(const kern_call *c, const kern_tensor *table)
{
    const int64_t rope = table->dims[1], dim = c->attrs.head_dim;
    return (latent){c->attrs.heads, dim, rope, c->attrs.value_dim, dim - rope};
}

static status positions_check(const kern_call *c, const kern_tensor *positions,
                              const kern_tensor *table)
{
    for (int64_t n = 0; n < positions->dims[0]; n++) {
        if (ref_int(positions, n) >= 0 && ref_int(positions, n) < table->dims[0]) continue;
        return fail(ST_DATA, "%s: row %lld has position %lld, the table ends at %lld",
                    op_kind_of(c->code)->name, (long long)n, (long long)ref_int(positions, n),
                    (long long)table->dims[0]);
    }
    return ST_OK;
}

// Rotates the pair i of the values x of row n, in place; `back`: the inverse.
static void pair_rotate(const kern_call *c, const kern_tensor *table, int64_t position, int64_t i,
                        bool back, double *x)
{
    const int64_t half = table->dims[1] / 2;
    const int64_t a = c->attrs.interleaved ? 2 * i : i, b = c->attrs.interleaved ? a + 1 : a + half;
    const double cosine = ref_get(table, position, i);
    const double sine =
        back ? -ref_get(table, position, half + i) : ref_get(table, position, half + i);
    const double xa = x[a], xb = x[b];
    x[a] = xa * cosine - xb * sine;
    x[b] = xb * cosine + xa * sine;
}

static void row_rotate(const kern_call *c, const kern_tensor *table, int64_t position, bool back,
                       double *x)
{
    for (int64_t i = 0; i < table->dims[1] / 2; i++) pair_rotate(c, table, position, i, back, x);
}

static void rotated_put(const kern_tensor *t, int64_t n, int64_t at, const double *x, int64_t count)
{
    for (int64_t j = 0; j < count; j++) ref_put(t, n, at + j, x[j]);
}

enum { ROPE_MOST = 256 };

status ref_latent(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *q = &c->in[0], *kv = &c->in[1], *r = &c->in[2], *table = &c->in[4];
    const latent l = latent_of(c, table);
    TRY(positions_check(c, &c->in[3], table));
    for (int64_t n = 0; n < q->dims[0]; n++) {
        const int64_t position = ref_int(&c->in[3], n);
        double key[ROPE_MOST], query[ROPE_MOST];
        for (int64_t j = 0; j < l.rope; j++) key[j] = ref_get(r, n, j);
        row_rotate(c, table, position, false, key);
        for (int64_t h = 0; h < l.heads; h++) {
            const int64_t at = h * l.dim, from = h * (l.plain + l.value);
            for (int64_t j = 0; j < l.plain; j++) {
                ref_put(&c->out[0], n, at + j, ref_get(q, n, at + j));
                ref_put(&c->out[1], n, at + j, ref_get(kv, n, from + j));
            }
            for (int64_t j = 0; j < l.rope; j++) query[j] = ref_get(q, n, at + l.plain + j);
            row_rotate(c, table, position, false, query);
            rotated_put(&c->out[0], n, at + l.plain, query, l.rope);
            rotated_put(&c->out[1], n, at + l.plain, key, l.rope);
            for (int64_t j = 0; j < l.value; j++) {
                ref_put(&c->out[2], n, h * l.value + j, ref_get(kv, n, from + l.plain + j));
            }
        }
    }
    return ST_OK;
}

status ref_latent_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dq = &c->in[0], *dk = &c->in[1], *dv = &c->in[2], *table = &c->in[4];
    const latent l = latent_of(c, table);
    TRY(positions_check(c, &c->in[3], table));
    for (int64_t n = 0; n < dq->dims[0]; n++) {
        for (int64_t h = 0; h < l.heads; h++) {
            const int64_t at = h * l.dim, to = h * (l.plain + l.value);
            double query[ROPE_MOST];
            for (int64_t j = 0; j < l.plain; j++) {
                ref_put(&c->out[0], n, at + j, ref_get(dq, n, at + j));
                ref_put(&c->out[1], n, to + j, ref_get(dk, n, at + j));
            }
            for (int64_t j = 0; j < l.rope; j++) query[j] = ref_get(dq, n, at + l.plain + j);
            row_rotate(c, table, ref_int(&c->in[3], n), true, query);
            rotated_put(&c->out[0], n, at + l.plain, query, l.rope);
            for (int64_t j = 0; j < l.value; j++) {
                ref_put(&c->out[1], n, to + l.plain + j, ref_get(dv, n, h * l.value + j));
            }
        }
    }
    return ST_OK;
}

status ref_latent_dr(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *dk = &c->in[0], *table = &c->in[2];
    const latent l = latent_of(c, table);
    TRY(positions_check(c, &c->in[1], table));
    for (int64_t n = 0; n < dk->dims[0]; n++) {
        double sum[ROPE_MOST] = {0.0};
        for (int64_t h = 0; h < l.heads; h++) {
            for (int64_t j = 0; j < l.rope; j++) {
                sum[j] += ref_get(dk, n, h * l.dim + l.plain + j);
            }
        }
        row_rotate(c, table, ref_int(&c->in[1], n), true, sum);
        rotated_put(&c->out[0], n, 0, sum, l.rope);
    }
    return ST_OK;
}

// ---- a cache of latent rows ---------------------------------------------------------------------

// Workspace: the probabilities of a query, and its weighted sum of latent rows.
int64_t ref_latent_cached_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return (c->cache_seq + c->in[2].dims[1]) * (int64_t)sizeof(double);
}

// Returns the row with key s of the sequence of query n.
static int64_t cached_row(const kern_call *c, int64_t n, int64_t s)
{
    const int64_t b = n / c->seq;
    return ref_has(&c->in[7]) ? ref_page_row(c, &c->in[7], b, s) : b * c->cache_seq + s;
}

// Sets p[s] to the score of cached row s for head h of query n, by the key that the latent row
// stands for: w c, and r.
static double cached_scores(const kern_call *c, const latent *l, int64_t n, int64_t h, int64_t keys,
                            double *p)
{
    const kern_tensor *q = &c->in[0], *w = &c->in[1], *rows = &c->in[2], *r = &c->in[3];
    const int64_t of = h * (l->plain + l->value);
    double query[ROPE_MOST], highest = -HUGE_VAL;
    for (int64_t j = 0; j < l->rope; j++) query[j] = ref_get(q, n, h * l->dim + l->plain + j);
    row_rotate(c, &c->in[6], ref_int(&c->in[5], n), false, query);
    for (int64_t s = 0; s < keys; s++) {
        double dot = 0.0;
        for (int64_t j = 0; j < l->plain; j++) {
            double key = 0.0;
            for (int64_t k = 0; k < rows->dims[1]; k++) {
                key += ref_get(w, of + j, k) * ref_get(rows, cached_row(c, n, s), k);
            }
            dot += ref_get(q, n, h * l->dim + j) * key;
        }
        for (int64_t j = 0; j < l->rope; j++) dot += query[j] * ref_get(r, cached_row(c, n, s), j);
        p[s] = dot * (double)c->attrs.scale;
        highest = fmax(highest, p[s]);
    }
    return highest;
}

static void cached_query(const kern_call *c, const latent *l, int64_t n, int64_t h, int64_t keys)
{
    const kern_tensor *w = &c->in[1], *rows = &c->in[2];
    const int64_t of = h * (l->plain + l->value) + l->plain;
    double *p = c->workspace, *mean = p + c->cache_seq, sum = 0.0;
    const double highest = cached_scores(c, l, n, h, keys, p);
    for (int64_t s = 0; s < keys; s++) sum += p[s] = exp(p[s] - highest);
    for (int64_t k = 0; k < rows->dims[1]; k++) {
        mean[k] = 0.0;
        for (int64_t s = 0; s < keys; s++)
            mean[k] += p[s] / sum * ref_get(rows, cached_row(c, n, s), k);
    }
    for (int64_t j = 0; j < l->value; j++) {
        double y = 0.0;
        for (int64_t k = 0; k < rows->dims[1]; k++) y += ref_get(w, of + j, k) * mean[k];
        ref_put(&c->out[0], n, h * l->value + j, y);
    }
}

status ref_latent_cached(const kern_context *context, const kern_call *c)
{
    (void)context;
    const latent l = latent_of(c, &c->in[6]);
    TRY(positions_check(c, &c->in[5], &c->in[6]));
    for (int64_t n = 0; n < c->in[0].dims[0]; n++) {
        const int64_t length = ref_int(&c->in[4], n / c->seq);
        if (length < 0 || length > c->cache_seq) {
            return fail(ST_DATA, "latent_cached over %lld positions: sequence %lld has %lld",
                        (long long)c->cache_seq, (long long)(n / c->seq), (long long)length);
        }
        for (int64_t h = 0; h < l.heads; h++) {
            cached_query(c, &l, n, h, max_i64(length - c->seq + n % c->seq + 1, 0));
        }
    }
    return ST_OK;
}
