// Operations that select rows: embedding tables, gathers, caches.
//
// A row number outside its table comes from data, not from a bug, so it is an error status.
#include "kernels/ref/ref.h"

static status check_row(const char *what, int64_t row, int64_t value, int64_t count)
{
    if (value >= 0 && value < count) return ST_OK;
    return fail(ST_DATA, "%s: row %lld asks for %lld, the table has %lld rows", what,
                (long long)row, (long long)value, (long long)count);
}

// Returns the rows of the whole table, of which `table` may be a piece.
static int64_t vocabulary_of(const kern_call *c, const kern_tensor *table)
{
    return c->piece.whole_rows > 0 ? c->piece.whole_rows : table->dims[0];
}

status ref_embedding(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *ids = &c->in[0], *table = &c->in[1], *positions = &c->in[2];
    const kern_tensor *position_table = &c->in[3], *x = &c->out[0];
    for (int64_t n = 0; n < x->dims[0]; n++) {
        const int64_t id = ref_int(ids, n) - c->piece.first_row;
        TRY(check_row("embedding", n, ref_int(ids, n), vocabulary_of(c, table)));
        const int64_t position = ref_has(positions) ? ref_int(positions, n) : 0;
        if (ref_has(positions)) {
            TRY(check_row("position embedding", n, position, position_table->dims[0]));
        }
        const bool is_here = id >= 0 && id < table->dims[0];
        for (int64_t j = 0; j < x->dims[1] && !is_here; j++) ref_put(x, n, j, -0.0);
        for (int64_t j = 0; j < x->dims[1] && is_here; j++) {
            double sum = ref_get(table, id, j);
            if (ref_has(positions)) sum += ref_get(position_table, position, j);
            ref_put(x, n, j, sum);
        }
    }
    return ST_OK;
}

static bool came_before(const kern_tensor *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ref_int(ids, i) == ref_int(ids, n)) return true;
    }
    return false;
}

// Each table row is one sequential sum over the rows that name it.
status ref_embedding_dw(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *ids = &c->in[0], *dx = &c->in[1], *table = &c->out[0];
    if (!c->accumulate) ref_zero(table);
    for (int64_t n = 0; n < dx->dims[0]; n++) {
        const int64_t id = ref_int(ids, n), row = id - c->piece.first_row;
        TRY(check_row("embedding", n, id, vocabulary_of(c, table)));
        if (came_before(ids, n) || row < 0 || row >= table->dims[0]) continue;
        if (id + 1 == c->attrs.skipped) continue;
        for (int64_t j = 0; j < dx->dims[1]; j++) {
            ref_total total = ref_total_begin(table, true, row, j);
            for (int64_t i = n; i < dx->dims[0]; i++) {
                if (ref_int(ids, i) == id) ref_total_add(&total, ref_get(dx, i, j), 1.0);
            }
            ref_total_end(&total, table, row, j);
        }
    }
    return ST_OK;
}

status ref_gather(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *rows = &c->in[1], *y = &c->out[0];
    for (int64_t b = 0; b < y->dims[0]; b++) {
        const int64_t row = ref_int(rows, b);
        TRY(check_row("gather", b, row, x->dims[0]));
        for (int64_t j = 0; j < y->dims[1]; j++) ref_put(y, b, j, ref_get(x, row, j));
    }
    return ST_OK;
}

// Row t of T goes to cached position lengths[b] - T + t. Positions before 0 are padding at the
// front of a prompt that is shorter than T and are skipped.
status ref_cache_append(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *x = &c->in[0], *lengths = &c->in[1], *cache = &c->out[0];
    for (int64_t b = 0; b < lengths->dims[0]; b++) {
        const int64_t length = ref_int(lengths, b);
        if (length < 0 || length > c->cache_seq) {
            return fail(ST_DATA, "cache of %lld positions: sequence %lld has length %lld",
                        (long long)c->cache_seq, (long long)b, (long long)length);
        }
        for (int64_t t = max_i64(0, c->seq - length); t < c->seq; t++) {
            const int64_t position = length - c->seq + t;
            const int64_t target = ref_has(&c->in[2]) ? ref_page_row(c, &c->in[2], b, position)
                                                      : b * c->cache_seq + position;
            for (int64_t j = 0; j < x->dims[1]; j++) {
                ref_put(cache, target, j, ref_get(x, b * c->seq + t, j));
            }
        }
    }
    return ST_OK;
}
