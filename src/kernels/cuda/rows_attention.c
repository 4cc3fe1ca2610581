// Rows of attention, forward and backward.
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/rows.h"

#include <stdio.h>

// MMA_ROWS, MMA_KEYS and BWD_SIDE: those of the kernels.
enum { TILE = 32, MAX_HEAD = 256, MMA_ROWS = 128, MMA_KEYS = 64, BWD_SIDE = 32 };

static int64_t sequences_of(const kern_call *c, const kern_tensor *q)
{
    return c->seq > 0 ? q->dims[0] / c->seq : 0;
}

static status attention_check(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const int wide =
        c->attrs.head_dim > c->attrs.value_dim ? c->attrs.head_dim : c->attrs.value_dim;
    if (wide > MAX_HEAD) {
        return fail(ST_UNSUPPORTED, "backend cuda: attention with heads of %d columns, at most %d",
                    wide, MAX_HEAD);
    }
    return ST_OK;
}

static cuda_attention_args args_of(const kern_call *c)
{
    return (cuda_attention_args){.step = &c->step->host,
                                 .seq = c->seq,
                                 .first_sequence = c->first_sequence,
                                 .first_head = c->first_head,
                                 .heads = c->attrs.heads,
                                 .kv_heads = c->attrs.kv_heads,
                                 .head_dim = c->attrs.head_dim,
                                 .value_dim = c->attrs.value_dim > 0 ? c->attrs.value_dim
                                                                     : c->attrs.head_dim,
                                 .cp_ways = c->piece.cp_ways,
                                 .cp_turns = c->piece.cp_turns,
                                 .cp_at = c->piece.cp_at,
                                 .key_at = c->piece.key_at,
                                 .ring = c->piece.ring,
                                 .cap = c->attrs.cap,
                                 .window = c->attrs.window,
                                 .site = c->attrs.site,
                                 .scale = c->attrs.scale,
                                 .dropout = c->attrs.dropout};
}

// `tiles` of rows of queries and keys in shared memory, and `squares` of probabilities.
static cuda_shape plain_shape(const cuda_attention_args *a, int64_t rows, int64_t heads,
                              int64_t sequences, int tiles, int squares)
{
    const int wide = a->head_dim > a->value_dim ? a->head_dim : a->value_dim;
    const int64_t stride = align_up(wide, 8) + 1;
    return (cuda_shape){.grid = {sequences > 0 ? (rows + TILE - 1) / TILE : 0, heads, sequences},
                        .threads = CUDA_THREADS,
                        .shared_bytes = (tiles * TILE * stride + squares * TILE * TILE) *
                                        (int64_t)sizeof(float)};
}

// ---- mma instructions ---------------------------------------------------------------------------
static bool is_aligned(const cuda_view *v, int64_t head_dim)
{
    return v->data == NULL ||
           (((uintptr_t)v->data & 15) == 0 && v->stride % 8 == 0 && head_dim % 8 == 0);
}

// Columns of a head in tiles: of queries and keys, and of values; bytes of all tiles in shared
// memory. 0: mma instructions cannot do the call.
typedef struct mma_tiles {
    int dim, wide;
    int64_t bytes;
} mma_tiles;

// Shared memory has the block's rows of the first, value_rows of the second, and two stages of
// `stage` rows of each.
static mma_tiles mma_tiles_of(const kern_context *context, cuda_attention_args *a,
                              int64_t value_rows, int64_t stage)
{
    static const mma_tiles all[] = {{64, 64, 0}, {128, 128, 0}, {192, 128, 0}, {256, 256, 0}};
    const cuda_view *views[] = {&a->q, &a->k, &a->v, &a->y, &a->dy, &a->dq, &a->dk, &a->dv};
    a->aligned = 1;
    // Places of keys and queries are 32-bit numbers.
    if (a->seq > INT32_MAX / 4 || a->keys > INT32_MAX / 4) return (mma_tiles){0};
    if (a->cp_ways > 1 || a->shards > 0 || a->pages.data != NULL) return (mma_tiles){0};
    for (int64_t i = 0; i < COUNT_OF(views); i++) {
        if (views[i]->data == NULL) continue;
        if (views[i]->type == DTYPE_F32 || views[i]->type != a->q.type) return (mma_tiles){0};
        if (!is_aligned(views[i], a->head_dim) || a->value_dim % 8 != 0) a->aligned = 0;
    }
    for (int64_t i = 0; i < COUNT_OF(all); i++) {
        mma_tiles t = all[i];
        if (a->head_dim > t.dim || a->value_dim > t.wide) continue;
        t.bytes = (MMA_ROWS * t.dim + value_rows * t.wide + 2 * stage * (t.dim + t.wide)) *
                  (int64_t)sizeof(uint16_t);
        return t.bytes + 1024 > context->queue->max_shared_bytes ? (mma_tiles){0} : t;
    }
    return (mma_tiles){0};
}

static status mma_run(const kern_context *context, cuda_attention_args *a, const char *what,
                      int dim, const cuda_shape *shape)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "cuda_attention%s_%s_%d", what,
                   a->q.type == DTYPE_BF16 ? "bf16" : "f16", dim);
    return cuda_launch_run(context, name, shape, a, sizeof(*a));
}

// A grid of blocks of 128 rows; shared memory for rows of the block and for two stages.
static cuda_shape mma_shape(int64_t rows, int64_t heads, int64_t sequences, int64_t bytes)
{
    return (cuda_shape){
        .grid = {sequences > 0 ? (rows + MMA_ROWS - 1) / MMA_ROWS : 0, heads, sequences},
        .threads = CUDA_THREADS,
        .shared_bytes = bytes};
}

// ---- one query over a cache ---------------------------------------------------------------------
// In strict order a query has the bits that it has among others.
static bool decodes(const kern_call *c)
{
    return !c->strict && c->seq == 1 && c->cache_seq > 0 && cuda_has(&c->in[4]) &&
           !cuda_has(&c->in[3]) && c->piece.cp_ways <= 1 && !(c->attrs.dropout > 0.0f);
}

static int64_t parts_of(const kern_call *c)
{
    return (c->cache_seq + CUDA_PART_KEYS - 1) / CUDA_PART_KEYS;
}

// Counts the parts of all sequences and heads.
static int64_t part_count(const kern_call *c)
{
    return c->in[0].dims[0] * c->attrs.heads * parts_of(c);
}

int64_t cuda_attention_workspace(const kern_call *call, int threads)
{
    (void)threads;
    if (!decodes(call)) return 0;
    const int64_t value = call->attrs.value_dim > 0 ? call->attrs.value_dim : call->attrs.head_dim;
    return part_count(call) * (value + 2) * (int64_t)sizeof(float);
}

static status decode_run(const kern_context *context, const kern_call *c,
                         const cuda_attention_args *all)
{
    const int64_t group = all->heads / max_i64(all->kv_heads, 1);
    const int64_t blocks = (group + CUDA_PART_HEADS - 1) / CUDA_PART_HEADS;
    float *const space = c->workspace;
    cuda_decode_args args = {.all = *all,
                             .highest = space,
                             .sums = space + part_count(c),
                             .values = space + 2 * part_count(c),
                             .parts = parts_of(c)};
    const int64_t numbers =
        CUDA_PART_HEADS * (align_up(all->head_dim, 8) + CUDA_PART_KEYS + CUDA_THREADS);
    const cuda_shape shape = {.grid = {args.parts, all->kv_heads * blocks, all->q.rows},
                              .threads = CUDA_THREADS,
                              .shared_bytes = numbers * (int64_t)sizeof(float)};
    const cuda_shape join = cuda_shape_of_warps(all->q.rows * all->heads);
    TRY(cuda_launch_run(context, "cuda_attention_parts", &shape, &args, sizeof(args)));
    return cuda_launch_run(context, "cuda_attention_join", &join, &args, sizeof(args));
}

status cuda_row_attention(const kern_context *context, const kern_call *c)
{
    TRY(attention_check(context, c));
    const int64_t sequences = sequences_of(c, &c->in[0]);
    cuda_attention_args args = args_of(c);
    args.q = cuda_view_of(&c->in[0]);
    args.k = cuda_view_of(&c->in[1]);
    args.v = cuda_view_of(&c->in[2]);
    args.documents = cuda_view_of(&c->in[3]);
    args.lengths = cuda_view_of(&c->in[4]);
    args.pages = cuda_view_of(&c->in[6]);
    args.page = c->attrs.page;
    args.page_count = args.pages.columns / max_i64(sequences, 1);
    // A ring has the sink at the rank's own keys.
    if (!args.ring || args.key_at == args.cp_at) args.sinks = cuda_view_of(&c->in[5]);
    args.shards = c->cp_shards > 1 ? c->cp_shards : 0;
    args.y = cuda_view_of(&c->out[0]);
    args.lse = cuda_view_of(&c->out[1]);
    args.keys = cuda_has(&c->in[4]) ? c->cache_seq : args.k.rows / max_i64(sequences, 1);
    if (decodes(c)) return decode_run(context, c, &args);
    const mma_tiles tiles = mma_tiles_of(context, &args, 0, MMA_KEYS);
    const int dim = cuda_wgmma_dim(context, &args);
    if (dim > 0) return cuda_wgmma_forward(context, &args, sequences, dim);
    if (tiles.dim > 0) {
        const cuda_shape mma = mma_shape(args.seq, args.heads, sequences, tiles.bytes);
        return mma_run(context, &args, "", tiles.dim, &mma);
    }
    const cuda_shape shape = plain_shape(&args, args.seq, args.heads, sequences, 3, 1);
    return cuda_launch_run(context, "cuda_attention_plain", &shape, &args, sizeof(args));
}

int64_t cuda_attention_bwd_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return call->in[0].dims[0] * call->attrs.heads * (int64_t)sizeof(float);
}

static status mma_backward(const kern_context *context, cuda_attention_args *a, int64_t sequences,
                           mma_tiles tiles)
{
    const int64_t bytes = tiles.bytes + 2 * BWD_SIDE * 8; // two numbers of each query of a stage
    const cuda_shape queries = mma_shape(a->seq, a->heads, sequences, bytes);
    const cuda_shape keys = mma_shape(a->keys, a->kv_heads, sequences, bytes);
    TRY(mma_run(context, a, "_dq", tiles.dim, &queries));
    if (tiles.dim <= 128) return mma_run(context, a, "_dkv", tiles.dim, &keys);
    TRY(mma_run(context, a, "_dk", tiles.dim, &keys));
    return mma_run(context, a, "_dv", tiles.dim, &keys);
}

status cuda_row_attention_bwd(const kern_context *context, const kern_call *c)
{
    TRY(attention_check(context, c));
    const int64_t sequences = sequences_of(c, &c->in[1]);
    cuda_attention_args args = args_of(c);
    args.dy = cuda_view_of(&c->in[0]);
    args.q = cuda_view_of(&c->in[1]);
    args.k = cuda_view_of(&c->in[2]);
    args.v = cuda_view_of(&c->in[3]);
    args.y = cuda_view_of(&c->in[4]);
    args.lse = cuda_view_of(&c->in[5]);
    args.documents = cuda_view_of(&c->in[6]);
    args.dq = cuda_view_of(&c->out[0]);
    args.dk = cuda_view_of(&c->out[1]);
    args.dv = cuda_view_of(&c->out[2]);
    args.keys = args.k.rows / max_i64(sequences, 1);
    args.delta = c->workspace;
    args.shards = c->piece.shards;
    args.shard = c->piece.first_shard;
    const cuda_shape delta = cuda_shape_of_warps(args.y.rows * args.heads);
    TRY(cuda_launch_run(context, "cuda_attention_delta", &delta, &args, sizeof(args)));
    const mma_tiles tiles = mma_tiles_of(context, &args, MMA_ROWS, BWD_SIDE);
    const int dim = cuda_wgmma_dim(context, &args);
    if (dim > 0) return cuda_wgmma_backward(context, &args, sequences, dim);
    if (tiles.dim > 0) return mma_backward(context, &args, sequences, tiles);
    const int64_t runs = args.shards > 0 ? 2 : 1; // of as many queries
    const int64_t of_rank = args.shards > 0 ? args.shards / max_i64(args.cp_ways, 1) : 1;
    const int64_t queries = args.seq / (runs * of_rank);
    const cuda_shape dq =
        plain_shape(&args, runs * align_up(queries, TILE), args.heads, sequences, 4, 1);
    TRY(cuda_launch_run(context, "cuda_attention_dq_plain", &dq, &args, sizeof(args)));
    const cuda_shape dkv = plain_shape(&args, args.keys, args.kv_heads, sequences, 4, 2);
    return cuda_launch_run(context, "cuda_attention_dkv_plain", &dkv, &args, sizeof(args));
}

// y and lse over the keys of two calls.
status cuda_row_attention_merge(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_merge_args args = {.a = cuda_view_of(&c->in[0]),
                            .lse_a = cuda_view_of(&c->in[1]),
                            .b = cuda_view_of(&c->in[2]),
                            .lse_b = cuda_view_of(&c->in[3]),
                            .y = cuda_view_of(&c->out[0]),
                            .lse = cuda_view_of(&c->out[1])};
    const cuda_shape shape = cuda_shape_of_warps(args.y.rows * args.lse.columns);
    return cuda_launch_run(context, "cuda_attention_merge", &shape, &args, sizeof(args));
}

// ---- sinks --------------------------------------------------------------------------------------
enum { SINK_ROWS = 64, MAX_SINK_PARTS = 128, STRICT_SINK_ROWS = 4096 };

// Rows that are summed by one launch. In strict order each is a part.
static int64_t sink_rows(const kern_call *c)
{
    return c->strict ? min_i64(c->in[1].dims[0], STRICT_SINK_ROWS) : c->in[1].dims[0];
}

static int64_t sink_parts(const kern_call *c)
{
    if (c->strict) return max_i64(1, sink_rows(c));
    const int64_t parts = (c->in[1].dims[0] + SINK_ROWS - 1) / SINK_ROWS;
    return max_i64(1, min_i64(parts, MAX_SINK_PARTS));
}

int64_t cuda_sinks_dw_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return sink_parts(call) * call->out[0].dims[0] * (int64_t)sizeof(float);
}

// Adds the rows first to first + count - 1.
static status sinks_run(const kern_context *context, const kern_call *c, int64_t first,
                        int64_t count)
{
    const cuda_view dy = cuda_view_of(&c->in[0]), y = cuda_view_of(&c->in[1]);
    const cuda_view lse = cuda_view_of(&c->in[2]);
    cuda_sinks_args args = {.dy = cuda_view_rows(&dy, first, count),
                            .y = cuda_view_rows(&y, first, count),
                            .lse = cuda_view_rows(&lse, first, count),
                            .sinks = cuda_view_of(&c->in[3]),
                            .out = cuda_view_of(&c->out[0]),
                            .partial = c->workspace,
                            .parts = c->strict ? count : sink_parts(c),
                            .accumulate = c->accumulate || first > 0};
    args.part_rows = (count + args.parts - 1) / max_i64(args.parts, 1);
    args.heads = args.out.columns;
    args.dim = args.y.columns / max_i64(args.heads, 1);
    const cuda_shape terms = {.grid = {args.heads, args.parts, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = CUDA_THREADS / 32 * (int64_t)sizeof(float)};
    TRY(cuda_launch_run(context, "cuda_sinks_terms", &terms, &args, sizeof(args)));
    const cuda_shape finish = {.grid = {(args.heads + CUDA_THREADS - 1) / CUDA_THREADS, 1, 1},
                               .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_sinks_finish", &finish, &args, sizeof(args));
}

status cuda_row_sinks_dw(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const int64_t rows = c->in[1].dims[0], most = sink_rows(c);
    int64_t first = 0;
    do {
        const int64_t count = min_i64(rows - first, most);
        TRY(sinks_run(context, c, first, count));
        first += count;
    } while (first < rows);
    return ST_OK;
}
