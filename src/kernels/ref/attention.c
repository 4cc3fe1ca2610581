// Attention, one query at a time, all its scores in one array of doubles.
//
//            keys s ->  0 . . . . S-1            query t of T stands at position S - T + t of its
//   query 0             x x x                    sequence: without a cache S = T. It sees keys at
//                       or
//   query 1             . x x x                  before itself, not further back than the window
//   query T-1           . . . x x x  (window 3)  (0: no limit), and only those of its own document.
//
// Query head h reads key-value head h / (heads / kv_heads). Dropout acts on the probabilities.
// Backward computes the probabilities again from q and k instead of reading lse, whose fp32 has too
// few bits for scores in the thousands. In a ring it must read lse, because other ranks have the
// other keys.
//
// With context parallelism, op/zigzag.h gives the positions of a rank's queries, and the keys are
// gathered rows, or those of one rank of a ring; everything else depends on positions only.
#include "kernels/ref/ref.h"
#include "op/dropout.h"
#include "op/zigzag.h"

// The shape of one sequence of a call.
typedef struct span {
    int64_t sequence;             // within the call
    int64_t key_begin, key_count; // rows of k and v; S
    int64_t query_begin;          // row of q
    int64_t shift;                // position of query 0
    int64_t ways, at;             // of context parallelism
    const kern_tensor *pages;     // of all sequences; NULL: none
    double *slope;                // of a query's scores by their caps (keys); NULL: not wanted
} span;

static int64_t value_dim(const kern_call *c)
{
    return c->attrs.value_dim > 0 ? c->attrs.value_dim : c->attrs.head_dim;
}

static int64_t position_of(const kern_call *c, const span *s, int64_t t)
{
    if (s->ways <= 1) return s->shift + t;
    return zigzag_position(s->ways, c->piece.cp_turns, s->at, c->seq, t);
}

static int64_t key_row(const kern_call *c, const span *s, int64_t key)
{
    int64_t run = 0;
    if (s->pages != NULL) return ref_page_row(c, s->pages, s->sequence, key);
    const bool gathered = s->ways > 1 && !c->piece.ring;
    if (!gathered) return s->key_begin + key;
    return s->key_begin + zigzag_row(s->ways, c->piece.cp_turns, s->key_count, key, &run);
}

static int64_t key_position(const kern_call *c, const span *s, int64_t key)
{
    if (!c->piece.ring) return key;
    return zigzag_position(s->ways, c->piece.cp_turns, c->piece.key_at, c->seq, key);
}

static int64_t sequences(const kern_call *c)
{
    return c->seq > 0 ? c->in[0].dims[0] / c->seq : 0;
}

// Forward: lengths (operand 4) gives the valid part of a cache.
static span span_of(const kern_call *c, int64_t keys, const kern_tensor *lengths, int64_t b)
{
    span s = {
        .sequence = b, .query_begin = b * c->seq, .ways = c->piece.cp_ways, .at = c->piece.cp_at};
    if (lengths != NULL && ref_has(lengths)) {
        s.key_begin = b * c->cache_seq;
        s.key_count = ref_int(lengths, b);
        s.pages = ref_has(&c->in[6]) ? &c->in[6] : NULL;
    } else {
        s.key_count = keys / sequences(c);
        s.key_begin = b * s.key_count;
    }
    s.shift = s.key_count - c->seq;
    return s;
}

static bool is_visible(const kern_call *c, const kern_tensor *documents, const span *s, int64_t t,
                       int64_t key)
{
    const int64_t position = position_of(c, s, t), at = key_position(c, s, key);
    if (at > position) return false;
    if (c->attrs.window > 0 && at <= position - c->attrs.window) return false;
    if (!ref_has(documents)) return true;
    const int64_t all = s->key_count * (c->piece.ring ? s->ways : 1);
    const int64_t first = s->sequence * all; // they are by position
    return ref_int(documents, first + position) == ref_int(documents, first + at);
}

// Returns the score after the cap, x = cap * tanh(x / cap), and its slope.
static double capped(const kern_call *c, double x, double *slope)
{
    const double cap = (double)c->attrs.cap, part = cap > 0.0 ? tanh(x / cap) : 0.0;
    *slope = 1.0 - part * part;
    return cap > 0.0 ? cap * part : x;
}

// Sets p[s] to the score of key s for head h of query t, -infinity if the query does not see it.
// Returns the highest.
static double scores(const kern_call *c, const kern_tensor *q, const kern_tensor *k,
                     const kern_tensor *documents, const span *s, int64_t t, int64_t h, double *p)
{
    const int64_t dim = c->attrs.head_dim, kv = h / (c->attrs.heads / c->attrs.kv_heads);
    double highest = -HUGE_VAL;
    for (int64_t key = 0; key < s->key_count; key++) {
        p[key] = -HUGE_VAL;
        if (!is_visible(c, documents, s, t, key)) continue;
        double dot = 0.0;
        for (int64_t d = 0; d < dim; d++) {
            dot += ref_get(q, s->query_begin + t, h * dim + d) *
                   ref_get(k, key_row(c, s, key), kv * dim + d);
        }
        double slope = 1.0;
        p[key] = capped(c, dot * (double)c->attrs.scale, &slope);
        if (s->slope != NULL) s->slope[key] = slope;
        highest = fmax(highest, p[key]); // passes over a NaN, which then spoils the sum
    }
    return highest;
}

// Sets p[s] to the probability of key s, 0 if the query does not see it. Returns log-sum-exp,
// -infinity if the query sees no key.
static double probabilities(const kern_call *c, const kern_tensor *q, const kern_tensor *k,
                            const kern_tensor *documents, const span *s, int64_t t, int64_t h,
                            double *p)
{
    const double highest = scores(c, q, k, documents, s, t, h, p);
    double sum = 0.0;
    bool seen = false;
    for (int64_t key = 0; key < s->key_count; key++) seen = seen || p[key] != -HUGE_VAL;
    if (!seen) {
        for (int64_t key = 0; key < s->key_count; key++) p[key] = 0.0;
        return highest;
    }
    for (int64_t key = 0; key < s->key_count; key++) {
        p[key] = exp(p[key] - highest);
        sum += p[key];
    }
    for (int64_t key = 0; key < s->key_count; key++) p[key] /= sum;
    return highest + log(sum);
}

// Returns 0 or 1 / (1 - p) for one probability.
static double keep_factor(const kern_call *c, const span *s, int64_t t, int64_t h, int64_t key)
{
    if (!(c->attrs.dropout > 0.0f)) return 1.0;
    const dropout_stream stream =
        dropout_stream_of(&c->step->host, c->attrs.site, (int32_t)(c->first_head + h),
                          c->first_sequence + s->sequence);
    return (double)dropout_factor_at(&stream, position_of(c, s, t), key_position(c, s, key),
                                     c->attrs.dropout);
}

int64_t ref_attention_workspace(const kern_call *c, int threads)
{
    (void)threads;
    return c->in[1].dims[0] * (int64_t)sizeof(double);
}

// A ring has the sink at the rank's own keys.
static bool has_sink(const kern_call *c)
{
    return ref_has(&c->in[5]) && (!c->piece.ring || c->piece.key_at == c->piece.cp_at);
}

// Adds a key without a value to the sum of a query. Returns the log-sum-exp of all.
static double sink_add(const span *s, double sink, double lse, double *p)
{
    if (lse == -HUGE_VAL) return lse; // the query sees no key
    const double highest = fmax(sink, lse);
    const double all = highest + log(exp(sink - highest) + exp(lse - highest));
    for (int64_t key = 0; key < s->key_count; key++) p[key] *= exp(lse - all);
    return all;
}

// Computes one query of one head: y and its log-sum-exp.
static void query_forward(const kern_call *c, const span *s, int64_t t, int64_t h, double *p)
{
    const kern_tensor *v = &c->in[2], *y = &c->out[0], *lse = &c->out[1];
    const int64_t dim = value_dim(c), kv = h / (c->attrs.heads / c->attrs.kv_heads);
    const int64_t row = s->query_begin + t;
    double sum = probabilities(c, &c->in[0], &c->in[1], &c->in[3], s, t, h, p);
    if (has_sink(c)) sum = sink_add(s, ref_get(&c->in[5], 0, h), sum, p);
    if (ref_has(lse)) ref_put(lse, row, h, sum);
    for (int64_t key = 0; key < s->key_count; key++) {
        if (p[key] != 0.0) p[key] *= keep_factor(c, s, t, h, key);
    }
    for (int64_t d = 0; d < dim; d++) {
        double out = 0.0;
        for (int64_t key = 0; key < s->key_count; key++) {
            if (p[key] == 0.0) continue; // unseen rows of a cache hold anything
            out += p[key] * ref_get(v, key_row(c, s, key), kv * dim + d);
        }
        ref_put(y, row, h * dim + d, out);
    }
}

status ref_attention(const kern_context *context, const kern_call *c)
{
    (void)context;
    for (int64_t b = 0; b < sequences(c); b++) {
        const span s = span_of(c, c->in[1].dims[0], &c->in[4], b);
        if (ref_has(&c->in[4]) && (s.key_count < 0 || s.key_count > c->cache_seq)) {
            return fail(ST_DATA, "attention over %lld cached positions: sequence %lld has %lld",
                        (long long)c->cache_seq, (long long)b, (long long)s.key_count);
        }
        for (int64_t t = 0; t < c->seq; t++) {
            for (int64_t h = 0; h < c->attrs.heads; h++) query_forward(c, &s, t, h, c->workspace);
        }
    }
    return ST_OK;
}

// Merges the results over two sets of keys, whose sums are exp(lse); -infinity means that the query
// saw no key.
status ref_attention_merge(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *a = &c->in[0], *b = &c->in[2], *y = &c->out[0];
    const int64_t heads = c->in[1].dims[1], dim = heads > 0 ? a->dims[1] / heads : 0;
    for (int64_t i = 0; i < y->dims[0]; i++) {
        for (int64_t h = 0; h < heads; h++) {
            const double la = ref_get(&c->in[1], i, h), lb = ref_get(&c->in[3], i, h);
            const double highest = fmax(la, lb);
            const bool sees_none = highest == -HUGE_VAL;
            const double wa = sees_none ? 0.0 : exp(la - highest),
                         wb = sees_none ? 0.0 : exp(lb - highest);
            for (int64_t j = h * dim; j < (h + 1) * dim; j++) {
                const double sum = wa * ref_get(a, i, j) + wb * ref_get(b, i, j);
                ref_put(y, i, j, sees_none ? 0.0 : sum / (wa + wb));
            }
            ref_put(&c->out[1], i, h, sees_none ? highest : highest + log(wa + wb));
        }
    }
    return ST_OK;
}

// Workspace: p, dp, slopes (keys), dk (keys, head_dim), dv (keys, value_dim) of one key-value head.
int64_t ref_attention_bwd_workspace(const kern_call *c, int threads)
{
    (void)threads;
    const int64_t count = sequences(c);
    const int64_t keys = count > 0 ? c->in[2].dims[0] / count : 0;
    return keys * (3 + (int64_t)c->attrs.head_dim + value_dim(c)) * (int64_t)sizeof(double);
}

// Computes probabilities relative to the keys of all ranks, from the sum that forward saved.
static void ring_probabilities(const kern_call *c, const span *s, int64_t t, int64_t h, double *p)
{
    const double lse = ref_get(&c->in[5], s->query_begin + t, h);
    (void)scores(c, &c->in[1], &c->in[2], &c->in[6], s, t, h, p);
    for (int64_t key = 0; key < s->key_count; key++) {
        p[key] = p[key] == -HUGE_VAL ? 0.0 : exp(p[key] - lse);
    }
}

// Returns the sum of p dp over the keys of all ranks, which is dy y.
static double ring_mean(const kern_call *c, int64_t row, int64_t h)
{
    const int64_t dim = value_dim(c);
    double sum = 0.0;
    for (int64_t d = h * dim; d < (h + 1) * dim; d++) {
        sum += ref_get(&c->in[0], row, d) * ref_get(&c->in[4], row, d);
    }
    return sum;
}

// Processes one query of one head: adds to dk and dv, writes dq.
//   dv += m p dy,  dp = m (dy . v),  ds = p (dp - sum p dp),  dq = scale ds k,  dk += scale ds q
static void query_backward(const kern_call *c, const span *s, int64_t t, int64_t h, double *buffer)
{
    const kern_tensor *dy = &c->in[0], *q = &c->in[1], *k = &c->in[2], *v = &c->in[3];
    const int64_t dim = c->attrs.head_dim, kv = h / (c->attrs.heads / c->attrs.kv_heads);
    const int64_t row = s->query_begin + t, value = value_dim(c);
    const bool from_lse = c->piece.ring || c->attrs.sinks; // the sum has terms that are not here
    double *p = buffer, *dp = p + s->key_count;
    double *dk = dp + 2 * s->key_count, *dv = dk + s->key_count * dim;
    if (from_lse) {
        ring_probabilities(c, s, t, h, p);
    } else {
        (void)probabilities(c, q, k, &c->in[6], s, t, h, p);
    }
    double mean = 0.0;
    for (int64_t key = 0; key < s->key_count; key++) {
        if (p[key] == 0.0) continue;
        const double keep = keep_factor(c, s, t, h, key);
        double dot = 0.0;
        for (int64_t d = 0; d < value; d++) {
            const double g = ref_get(dy, row, h * value + d);
            dot += g * ref_get(v, key_row(c, s, key), kv * value + d);
            dv[key * value + d] += keep * p[key] * g;
        }
        dp[key] = keep * dot;
        mean += p[key] * dp[key];
    }
    if (from_lse) mean = ring_mean(c, row, h);
    for (int64_t key = 0; key < s->key_count; key++) {
        const double factor = (double)c->attrs.scale * s->slope[key];
        dp[key] = p[key] == 0.0 ? 0.0 : p[key] * (dp[key] - mean) * factor;
        for (int64_t d = 0; d < dim; d++)
            dk[key * dim + d] += dp[key] * ref_get(q, row, h * dim + d);
    }
    for (int64_t d = 0; d < dim; d++) {
        double sum = 0.0;
        for (int64_t key = 0; key < s->key_count; key++) {
            if (p[key] != 0.0) sum += dp[key] * ref_get(k, key_row(c, s, key), kv * dim + d);
        }
        ref_put(&c->out[0], row, h * dim + d, sum);
    }
}

// Returns the runs of queries whose gradients are wanted, in order: all, or the two pieces of a
// shard.
static int runs_of(const kern_call *c, zigzag_run runs[2])
{
    const op_piece *piece = &c->piece;
    runs[0] = (zigzag_run){.count = c->seq};
    if (piece->shards == 0) return 1;
    zigzag_shard(piece->cp_ways, piece->cp_at, c->seq, piece->shards, piece->first_shard, runs);
    return 2;
}

// Processes one query head: adds to dk and dv.
static void head_backward(const kern_call *c, const span *s, int64_t h)
{
    zigzag_run runs[2];
    const int count = runs_of(c, runs);
    for (int i = 0; i < count; i++) {
        for (int64_t t = runs[i].row; t < runs[i].row + runs[i].count; t++) {
            query_backward(c, s, t, h, c->workspace);
        }
    }
}

// Writes the sums (keys, columns) of one key-value head.
static void sums_put(const kern_call *c, const span *s, const kern_tensor *out, int64_t kv,
                     int64_t columns, const double *sums)
{
    for (int64_t i = 0; i < s->key_count * columns; i++) {
        ref_put(out, key_row(c, s, i / columns), kv * columns + i % columns, sums[i]);
    }
}

status ref_attention_bwd(const kern_context *context, const kern_call *c)
{
    (void)context;
    const int64_t dim = c->attrs.head_dim, group = c->attrs.heads / c->attrs.kv_heads;
    const int64_t value = value_dim(c);
    for (int64_t b = 0; b < sequences(c); b++) {
        span s = span_of(c, c->in[2].dims[0], NULL, b);
        s.slope = (double *)c->workspace + 2 * s.key_count;
        double *sums = s.slope + s.key_count;
        for (int64_t kv = 0; kv < c->attrs.kv_heads; kv++) {
            for (int64_t i = 0; i < s.key_count * (dim + value); i++) sums[i] = 0.0;
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) head_backward(c, &s, h);
            sums_put(c, &s, &c->out[1], kv, dim, sums);
            sums_put(c, &s, &c->out[2], kv, value, sums + s.key_count * dim);
        }
    }
    return ST_OK;
}
