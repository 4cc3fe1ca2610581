// Compressed sums: the layout of their workspace, and their two exchanges.
//
//   work   a piece of floats | another | streams out, a slot per rank | streams in, likewise
//   state  residuals of the pieces, one per rank | all_reduce: that of the sum
//
// A slot holds the stream of a whole piece. The stream of a shorter piece is padded with zeros.
#include "comm/compressed.h"

#include "comm/comm_internal.h"

#include "comm/reduce.h"

#include <math.h>
#include <string.h>

typedef struct layout {
    int64_t piece, slot, state; // floats, bytes, bytes
} layout;

static comm_bucket bucket_of(const comm_cut *c, int64_t count)
{
    comm_bucket b = c->bucket;
    b.count = count;
    b.warm_steps = 0; // the warm-up steps use another plan
    return b;
}

static layout layout_of(const comm_cut *c)
{
    enum { PIECE_ALIGN = 16 };
    layout l = {.piece = c->piece};
    if (l.piece == 0) {
        l.piece = align_up((c->bucket.count + c->ranks - 1) / c->ranks, PIECE_ALIGN);
    }
    const comm_bucket whole = bucket_of(c, l.piece);
    l.slot = align_up(comm_compress_bytes(c->codec, &whole), ALIGN_TENSOR);
    l.state = align_up(comm_compress_state_bytes(c->codec, &whole), ALIGN_TENSOR);
    return l;
}

int64_t comm_compressed_state_bytes(const comm_cut *c)
{
    return layout_of(c).state * (c->ranks + (c->piece == 0 ? 1 : 0));
}

static int64_t floats_bytes(const layout *l)
{
    return align_up(l->piece * (int64_t)sizeof(float), ALIGN_TENSOR);
}

int64_t comm_compressed_work_bytes(const comm_cut *c)
{
    const layout l = layout_of(c);
    return 2 * floats_bytes(&l) + 2 * c->ranks * l.slot;
}

int64_t comm_compressed_stream_bytes(const comm_cut *c)
{
    return layout_of(c).slot;
}

double comm_compressed_error(const double reals[COMM_REALS])
{
    const comm_loss own = {reals[COMM_LOSS_OWN], reals[COMM_NORM_OWN], 0};
    const comm_loss sum = {reals[COMM_LOSS_SUM], reals[COMM_NORM_SUM], 0};
    return fmax(comm_loss_relative(&own), comm_loss_relative(&sum));
}

// ---- one operation ------------------------------------------------------------------------------
typedef struct exchange {
    const comm_compressed *c;
    const comm_args *args;
    comm_group *g;
    comm_memo *memo;
    uint64_t sequence; // of the next exchange
    int64_t posted_ns;
    layout l;
    int rank, ranks;
    float *part, *sum;
    unsigned char *sent, *received;
} exchange;

static int64_t begin_of(const exchange *x, int64_t piece)
{
    return min_i64(piece * x->l.piece, x->c->cut.bucket.count);
}

static int64_t length_of(const exchange *x, int64_t piece)
{
    return begin_of(x, piece + 1) - begin_of(x, piece);
}

// Returns the address of a range of the vector that lies in one tensor; NULL: it spans several.
static float *range_at(const exchange *x, int64_t begin, int64_t count)
{
    const comm_item *items = x->args->items;
    for (int i = 0; i < x->args->item_count; begin -= items[i++].count) {
        if (begin >= items[i].count) continue;
        return begin + count <= items[i].count ? (float *)items[i].out + begin : NULL;
    }
    return NULL;
}

typedef enum direction { FROM_ITEMS, TO_ITEMS } direction;

static void range_copy(const exchange *x, int64_t begin, int64_t count, float *values, direction d)
{
    const comm_item *items = x->args->items;
    for (int i = 0; i < x->args->item_count && count > 0; i++) {
        if (begin < items[i].count) {
            const int64_t n = min_i64(count, items[i].count - begin);
            float *here = (float *)items[i].out + begin;
            const size_t bytes = (size_t)n * sizeof(float);
            memcpy(d == FROM_ITEMS ? values : here, d == FROM_ITEMS ? here : values, bytes);
            begin += n;
            values += n;
            count -= n;
        }
        begin -= items[i].count;
    }
    ASSERT(count == 0);
}

// Returns the residual of encoding number `at`: one per piece, then one for the sum.
static void *state_at(const exchange *x, int64_t at)
{
    if (x->c->state == NULL) return NULL;
    return (unsigned char *)x->c->state + at * x->l.state;
}

static status encode(const exchange *x, int64_t piece, int64_t state, const float *values,
                     unsigned char *out, double losses[2])
{
    const comm_bucket b = bucket_of(&x->c->cut, length_of(x, piece));
    int64_t bytes = 0;
    comm_loss loss;
    TRY(comm_compress(x->c->cut.codec, &b, values, state_at(x, state), out, &bytes, &loss));
    ASSERT(bytes == comm_compress_bytes(x->c->cut.codec, &b));
    memset(out + bytes, 0, (size_t)(x->l.slot - bytes));
    losses[0] += loss.error_squared;
    losses[1] += loss.norm_squared;
    return ST_OK;
}

static status decode(const exchange *x, int64_t piece, const unsigned char *in, float *values)
{
    const comm_bucket b = bucket_of(&x->c->cut, length_of(x, piece));
    int64_t bad = 0; // these values become NaN, which the norm of the gradients detects
    return comm_decompress(x->c->cut.codec, &b, in, comm_compress_bytes(x->c->cut.codec, &b),
                           values, &bad);
}

static status own_encode(const exchange *x)
{
    for (int p = 0; p < x->ranks; p++) {
        const int64_t begin = begin_of(x, p), count = length_of(x, p);
        const float *values = range_at(x, begin, count);
        if (values == NULL) {
            range_copy(x, begin, count, x->part, FROM_ITEMS);
            values = x->part;
        }
        TRY(encode(x, p, p, values, x->sent + p * x->l.slot, &x->c->reals[COMM_LOSS_OWN]));
    }
    return ST_OK;
}

// Exchanges streams of bytes, as an operation of the group with its own contract.
static status exchange_run(exchange *x, op_collective op, const void *in)
{
    const comm_item item = {.in = in, .out = x->received, .count = x->l.slot};
    comm_contract contract;
    const comm_args args = {.op = op,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .tensor = x->args->tensor,
                            .site = x->args->site,
                            .step = x->args->step};
    TRY(comm_args_check(&args, x->rank, x->ranks));
    TRY(comm_contract_make(x->g, x->memo, &args, x->sequence++, &contract));
    return comm_algorithm_run(x->g, x->memo, &args, &contract, x->posted_ns);
}

// Adds this rank's piece over all ranks, left to right.
static status own_sum(exchange *x, float *sum)
{
    TRY(exchange_run(x, COLLECTIVE_ALL_TO_ALL, x->sent));
    TRY(decode(x, x->rank, x->received, sum));
    for (int r = 1; r < x->ranks; r++) {
        TRY(decode(x, x->rank, x->received + r * x->l.slot, x->part));
        comm_reduce_two(x->c->cut.bucket.vectors, DTYPE_F32, REDUCTION_SUM, sum, x->part, sum,
                        length_of(x, x->rank));
    }
    return ST_OK;
}

static status sums_gather(exchange *x)
{
    unsigned char *mine = x->received + x->rank * x->l.slot;
    TRY(encode(x, x->rank, x->ranks, x->sum, mine, &x->c->reals[COMM_LOSS_SUM]));
    TRY(exchange_run(x, COLLECTIVE_ALL_GATHER, mine));
    for (int p = 0; p < x->ranks; p++) {
        const int64_t begin = begin_of(x, p), count = length_of(x, p);
        float *values = range_at(x, begin, count);
        TRY(decode(x, p, x->received + p * x->l.slot, values != NULL ? values : x->part));
        if (values == NULL) range_copy(x, begin, count, x->part, TO_ITEMS);
    }
    return ST_OK;
}

static status items_check(const comm_args *args, int size)
{
    const comm_compressed *c = args->compressed;
    int64_t count = 0;
    for (int i = 0; i < args->item_count; i++) count += args->items[i].count;
    const bool one = c->cut.piece == 0 || args->item_count == 1;
    const bool fits = c->cut.piece == 0 || c->cut.piece * size >= c->cut.bucket.count;
    const bool cut = (c->cut.piece > 0) == (args->op == COLLECTIVE_REDUCE_SCATTER);
    const bool whole = cut && c->cut.codec != NULL && args->type == DTYPE_F32;
    if (whole && c->cut.ranks == size && count == c->cut.bucket.count && one && fits) return ST_OK;
    return fail(
        ST_INTERNAL,
        "%s: %lld elements of %s in %d tensors over %d ranks, %lld of fp32 over %d expected",
        args->tensor, (long long)count, dtype_name(args->type), args->item_count, size,
        (long long)c->cut.bucket.count, c->cut.ranks);
}

status comm_compressed_run(comm_group *g, comm_memo *memo, const comm_args *args, uint64_t sequence,
                           int64_t posted_ns)
{
    const comm_compressed *c = args->compressed;
    exchange x = {
        .c = c, .args = args, .g = g, .memo = memo, .sequence = sequence, .posted_ns = posted_ns};
    TRY(items_check(args, g->size));
    x.l = layout_of(&c->cut);
    x.rank = g->rank;
    x.ranks = g->size;
    unsigned char *at = c->work;
    x.part = (float *)(void *)at;
    x.sum = (float *)(void *)(at + floats_bytes(&x.l));
    x.sent = at + 2 * floats_bytes(&x.l);
    x.received = x.sent + x.ranks * x.l.slot;
    memset(c->reals, 0, COMM_REALS * sizeof(double));
    TRY(own_encode(&x));
    const bool scatters = c->cut.piece > 0;
    float *own = scatters ? range_at(&x, begin_of(&x, x.rank), length_of(&x, x.rank)) : NULL;
    TRY(own_sum(&x, own != NULL ? own : x.sum));
    if (!scatters) TRY(sums_gather(&x));
    c->reals[COMM_BYTES_SENT] = (double)((x.ranks - 1) * x.l.slot) * (scatters ? 1 : 2);
    return ST_OK;
}
