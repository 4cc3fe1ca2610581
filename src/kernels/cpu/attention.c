// Attention, forward. Memory is linear in the sequence: scores exist only for one tile at a time.
//
//   many queries   a task is some tiles of queries of one head of one sequence (vec_attention.inc),
//                  which share its keys in fp32; long rows first, so that the last tasks are short
//   one query      (generation) a task is a piece of the cache of one key-value head, read once for
//                  its whole group of heads (vec_decode.inc); pieces are merged in their order
//
// Pieces and tiles begin at fixed positions of the sequence, so no bit depends on the number of
// threads or on the other sequences. Nor does a bit depend on which ranks have the queries, because
// keys of other ranks are copied here, a tile at a time.
#include "kernels/cpu/attention.h"

#include <math.h>

int64_t cpu_attention_scratch(int64_t dim, bool backward)
{
    const int64_t keys = attention_key_tile(dim), columns = 16;
    const int64_t tall = align_up(dim, 8), wide = align_up(dim, columns);
    const int64_t other = attention_bf16_scratch(dim, backward);
    if (!backward) {
        const int64_t rows = ATTENTION_QUERIES;
        return max_i64(other, 2 * rows * tall + keys * columns + 3 * rows + columns);
    }
    const int64_t rows = ATTENTION_QUERIES_BWD;
    return max_i64(other,
                   3 * rows * tall + 2 * rows * wide + 2 * keys * ATTENTION_STRIDE_BWD + 4 * rows);
}

// The size does not depend on type or level, so a plan has the same bytes on every machine.
int64_t cpu_attention_packed(int64_t keys, int64_t dim, int64_t runs)
{
    return max_i64(attention_bf16_packed(keys, dim, runs), 2 * align_up(keys * dim, 16));
}

void attention_pack_begin(cpu_attention_tile *tile, float *at, int64_t packed[ATTENTION_RUNS])
{
    tile->packed_k = at;
    tile->packed_v = at + align_up(tile->keys * tile->wide, 16);
    tile->packed = packed;
    for (int i = 0; i < ATTENTION_RUNS; i++) packed[i] = 0;
}

int64_t cpu_attention_chunk_scratch(int64_t dim, int64_t heads)
{
    enum { KEYS = 64 };
    return (heads + 2 * KEYS) * align_up(dim, 8) + KEYS;
}

int64_t attention_value_dim(const kern_call *call)
{
    return call->attrs.value_dim > 0 ? call->attrs.value_dim : call->attrs.head_dim;
}

int64_t attention_wide(const kern_call *call)
{
    return max_i64(call->attrs.head_dim, attention_value_dim(call));
}

int64_t attention_sequences(const kern_call *call)
{
    return call->seq > 0 ? call->out[0].dims[0] / call->seq : 0;
}

status attention_check(const kern_call *call, const kern_tensor *k, const kern_tensor *lengths)
{
    (void)k;
    TRY(cpu_call_check(call));
    if (attention_wide(call) > 256) {
        return fail(ST_UNSUPPORTED, "backend cpu: attention with heads of %lld, at most 256",
                    (long long)attention_wide(call));
    }
    for (int64_t b = 0; lengths != NULL && b < attention_sequences(call); b++) {
        const int64_t length = tensor_int(lengths, b);
        if (length < 0 || length > call->cache_seq) {
            return fail(ST_DATA, "attention over %lld cached positions: sequence %lld has %lld",
                        (long long)call->cache_seq, (long long)b, (long long)length);
        }
    }
    if (lengths == NULL) return ST_OK;
    return cpu_pages_check(call, &call->in[6], lengths, call->in[1].dims[0]);
}

attention_sequence attention_sequence_of(const kern_call *call, const kern_tensor *k,
                                         const kern_tensor *lengths, int64_t sequence)
{
    attention_sequence s = {.query_row = sequence * call->seq};
    if (lengths != NULL) {
        const kern_tensor *pages = &call->in[6];
        s.keys = tensor_int(lengths, sequence);
        if (tensor_has(pages)) {
            s.pages = cpu_pages_of(pages, sequence, attention_sequences(call));
        } else {
            s.key_row = sequence * call->cache_seq;
        }
    } else {
        ASSERT(call->seq > 0); // no rows, no task
        s.keys = k->dims[0] / attention_sequences(call);
        s.key_row = sequence * s.keys;
    }
    s.position = s.keys - call->seq;
    return s;
}

int64_t attention_key_runs(const kern_call *call)
{
    return call->piece.ring ? zigzag_pieces(call->piece.cp_turns) : 1;
}

void attention_keys(const kern_call *call, const kern_tensor *documents, int64_t sequence,
                    int64_t keys, cpu_attention_tile *tile)
{
    const op_piece *piece = &call->piece;
    const int64_t pieces = zigzag_pieces(piece->cp_turns), size = keys / pieces;
    tile->keys = keys;
    tile->ways = piece->ring ? 1 : piece->cp_ways;
    tile->turns = piece->cp_turns;
    tile->key_run_count = attention_key_runs(call);
    tile->key_runs[0] = (zigzag_run){.count = keys};
    for (int64_t i = 0; i < pieces && piece->ring; i++) {
        tile->key_runs[i] = (zigzag_run){.row = i * size, .count = size};
        tile->key_runs[i].position =
            zigzag_position(piece->cp_ways, piece->cp_turns, piece->key_at, keys, i * size);
    }
    tile->documents = tensor_has(documents) ? documents : NULL;
    tile->document_row = sequence * keys * (piece->ring ? piece->cp_ways : 1);
}

int attention_runs(const kern_call *call, int64_t position, zigzag_run runs[ATTENTION_RUNS])
{
    const op_piece *piece = &call->piece;
    const int64_t pieces = zigzag_pieces(piece->cp_turns), size = call->seq / pieces;
    if (piece->shards > 0) { // backward of one shard
        zigzag_shard(piece->cp_ways, piece->cp_at, call->seq, piece->shards, piece->first_shard,
                     runs);
        return 2;
    }
    runs[0] = (zigzag_run){.position = position, .count = call->seq};
    if (piece->cp_ways <= 1) return 1;
    for (int64_t i = 0; i < pieces; i++) {
        runs[i] = (zigzag_run){.row = i * size, .count = size};
        runs[i].position =
            zigzag_position(piece->cp_ways, piece->cp_turns, piece->cp_at, call->seq, runs[i].row);
    }
    return (int)pieces;
}

static const kern_tensor *lengths_of(const kern_call *call)
{
    return tensor_has(&call->in[4]) ? &call->in[4] : NULL;
}

// Reads the sink of a head; NULL: there is none. In a ring it belongs to the rank's own keys.
static const float *sink_of(const kern_call *call, int64_t head, float *value)
{
    const kern_tensor *sinks = &call->in[5];
    const op_piece *piece = &call->piece;
    if (!tensor_has(sinks) || (piece->ring && piece->key_at != piece->cp_at)) return NULL;
    *value = (float)dtype_load(sinks->type, sinks->data, head);
    return value;
}

// ---- many queries -------------------------------------------------------------------------------
typedef struct tile_job {
    const kern_call *call;
    attention_leaf leaf;
    int64_t rows, tiles; // of a tile; of a sequence
    int64_t group;       // tiles of a task
    int64_t scratch;
} tile_job;

static int64_t tile_count(const kern_call *call, int64_t rows)
{
    zigzag_run runs[ATTENTION_RUNS];
    int64_t tiles = 0;
    const int count = attention_runs(call, 0, runs);
    for (int i = 0; i < count; i++) tiles += (runs[i].count + rows - 1) / rows;
    return tiles;
}

// Returns the queries of tile `tile` of a sequence.
static zigzag_run tile_run(const tile_job *job, int64_t position, int64_t tile)
{
    zigzag_run runs[ATTENTION_RUNS];
    const int count = attention_runs(job->call, position, runs);
    for (int i = 0;; i++) {
        const int64_t tiles = (runs[i].count + job->rows - 1) / job->rows;
        if (tile >= tiles) {
            tile -= tiles;
            ASSERT(i + 1 < count);
            continue;
        }
        const int64_t first = tile * job->rows;
        return (zigzag_run){runs[i].row + first, runs[i].position + first,
                            min_i64(job->rows, runs[i].count - first)};
    }
}

// Returns the number of queries of a tile. Each tile reads all keys, so larger tiles read less in
// total. But with wide heads a large tile would leave the L2 cache, and each thread needs several
// tiles, or it waits for the last tile of another. No bit depends on the number.
static int64_t tile_rows_of(const kern_call *call, int threads)
{
    enum { TILES_OF_A_THREAD = 8 };
    const int64_t rows = attention_wide(call) <= 128 ? ATTENTION_QUERIES : ATTENTION_QUERIES / 2;
    const int64_t heads = attention_sequences(call) * call->attrs.heads;
    const bool few = heads * tile_count(call, rows) < TILES_OF_A_THREAD * (int64_t)threads;
    return few ? ATTENTION_QUERIES / 2 : rows;
}

// Returns the number of tiles of a task. Each task packs the keys of its head again, so several
// tiles share them, but each thread needs several tasks. No bit depends on the number.
static int64_t tile_group_of(int64_t tiles, int threads)
{
    enum { TASKS_OF_A_THREAD = 8, MOST = 4 };
    return min_i64(MOST, max_i64(1, tiles / (TASKS_OF_A_THREAD * (int64_t)threads)));
}

static int64_t call_keys(const kern_call *call)
{
    return lengths_of(call) != NULL ? call->cache_seq
                                    : call->in[1].dims[0] / max_i64(1, attention_sequences(call));
}

static int64_t tile_floats(const kern_call *call)
{
    const int64_t wide = attention_wide(call);
    const int64_t packed = cpu_attention_packed(call_keys(call), wide, attention_key_runs(call));
    return align_up(cpu_attention_scratch(wide, false), 16) + packed;
}

static void tile_run_forward(const tile_job *job, cpu_attention_tile *t,
                             const attention_sequence *s, zigzag_run run, int64_t head)
{
    const kern_call *c = job->call;
    const kern_tensor *q = &c->in[0], *y = &c->out[0], *lse = &c->out[1];
    const int64_t row = s->query_row + run.row;
    t->rows = run.count;
    t->position = run.position;
    t->q = cpu_span_at(q, row * q->strides[0] + head * t->dim);
    t->y = cpu_span_at(y, row * y->strides[0] + head * t->value_dim);
    if (tensor_has(lse)) {
        t->lse = (float *)lse->data + row * lse->strides[0] + head;
        t->lse_stride = lse->strides[0];
    }
    job->leaf(t);
}

static void tile_task(void *context, int64_t index, int thread)
{
    const tile_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *y = &c->out[0];
    const int64_t heads = c->attrs.heads, dim = c->attrs.head_dim,
                  sequences = attention_sequences(c), value = attention_value_dim(c);
    float sink = 0.0F;
    ASSERT(heads > 0 && sequences > 0); // else there are no tasks
    // The longest rows of all heads and sequences come first.
    const int64_t end = job->tiles - index / (heads * sequences) * job->group;
    const int64_t sequence = index / heads % sequences, head = index % heads;
    const attention_sequence s = attention_sequence_of(c, k, lengths_of(c), sequence);
    const int64_t kv = head / (heads / c->attrs.kv_heads);
    cpu_attention_tile t = {
        .dim = dim,
        .value_dim = value,
        .wide = attention_wide(c),
        .window = c->attrs.window,
        .scale = c->attrs.scale,
        .cap = c->attrs.cap,
        .sink = sink_of(c, head, &sink),
        .k = cpu_span_at(k, s.key_row * k->strides[0] + kv * dim),
        .v = cpu_span_at(v, s.key_row * v->strides[0] + kv * value),
        .q_stride = q->strides[0],
        .k_stride = k->strides[0],
        .v_stride = v->strides[0],
        .y_stride = y->strides[0],
        .pages = s.pages,
        .page = c->attrs.page,
        .dropout = c->attrs.dropout,
        .scratch = (float *)c->workspace + thread * job->scratch,
    };
    int64_t packed[ATTENTION_RUNS];
    float *const keys_at = t.scratch + align_up(cpu_attention_scratch(t.wide, false), 16);
    attention_keys(c, &c->in[3], sequence, s.keys, &t);
    attention_pack_begin(&t, keys_at, packed);
    if (t.dropout > 0.0F) {
        t.stream = dropout_stream_of(&c->step->host, c->attrs.site, (int32_t)(c->first_head + head),
                                     c->first_sequence + sequence);
    }
    for (int64_t tile = max_i64(0, end - job->group); tile < end; tile++) {
        const zigzag_run run = tile_run(job, s.position, tile);
        if (run.position < t.position) attention_pack_begin(&t, keys_at, packed);
        tile_run_forward(job, &t, &s, run, head);
    }
}

// ---- one query ----------------------------------------------------------------------------------
// Results of a piece for one head: highest score, sum, then the output from PIECE_OUT on.
enum { PIECE_OUT = 16 };

typedef struct decode_job {
    const kern_call *call;
    const cpu_vec *vec;
    int64_t pieces;          // of the longest cache
    int64_t scratch, result; // floats: per thread; per head and piece
    float *results;          // [sequence][kv head][piece][head of the group]
} decode_job;

static int64_t piece_count(const kern_call *call)
{
    const int64_t keys = lengths_of(call) != NULL
                             ? call->cache_seq
                             : call->in[1].dims[0] / max_i64(1, call->out[0].dims[0]);
    return max_i64(1, (keys + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK);
}

static int64_t piece_floats(const kern_call *call)
{
    return PIECE_OUT + align_up(attention_wide(call), 16);
}

static void piece_task(void *context, int64_t index, int thread)
{
    const decode_job *job = context;
    const kern_call *c = job->call;
    const kern_tensor *q = &c->in[0], *k = &c->in[1], *v = &c->in[2];
    const int64_t kv_heads = c->attrs.kv_heads, group = c->attrs.heads / kv_heads;
    const int64_t dim = c->attrs.head_dim, value = attention_value_dim(c);
    const int64_t piece = index % job->pieces;
    const int64_t kv = index / job->pieces % kv_heads, b = index / job->pieces / kv_heads;
    const attention_sequence s = attention_sequence_of(c, k, lengths_of(c), b);
    const int64_t first = c->attrs.window > 0 ? max_i64(0, s.keys - c->attrs.window) : 0;
    float *result = job->results + index * group * job->result;
    const cpu_attention_chunk chunk = {
        .dim = dim,
        .value_dim = value,
        .heads = group,
        .begin = max_i64(first, piece * ATTENTION_CHUNK),
        .end = min_i64(s.keys, (piece + 1) * ATTENTION_CHUNK),
        .scale = c->attrs.scale,
        .cap = c->attrs.cap,
        .q = cpu_span_at(q, s.query_row * q->strides[0] + kv * group * dim),
        .k = cpu_span_at(k, s.key_row * k->strides[0] + kv * dim),
        .v = cpu_span_at(v, s.key_row * v->strides[0] + kv * value),
        .k_stride = k->strides[0],
        .v_stride = v->strides[0],
        .pages = s.pages,
        .page = c->attrs.page,
        .highest = result,
        .sum = result + 1,
        .out = result + PIECE_OUT,
        .head_stride = job->result,
        .scratch = (float *)c->workspace + thread * job->scratch,
    };
    if (chunk.begin < chunk.end) job->vec->attention_chunk(&chunk);
}

// Merges the pieces of one head that have a visible key, in their order.
static void merge_head(const decode_job *job, int64_t b, int64_t head)
{
    const kern_call *c = job->call;
    const kern_tensor *y = &c->out[0], *lse = &c->out[1];
    const int64_t kv_heads = c->attrs.kv_heads, group = c->attrs.heads / kv_heads;
    const int64_t dim = attention_value_dim(c);
    const attention_sequence s = attention_sequence_of(c, &c->in[1], lengths_of(c), b);
    const int64_t first = c->attrs.window > 0 ? max_i64(0, s.keys - c->attrs.window) : 0;
    const int64_t begin = first / ATTENTION_CHUNK;
    const int64_t end = (s.keys + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK;
    const float *pieces =
        job->results +
        ((b * kv_heads + head / group) * job->pieces * group + head % group) * job->result;
    float highest = -INFINITY, out[256] = {0};
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) {
        const float h = pieces[i * group * job->result];
        // This form of the comparison keeps a NaN.
        if (!(h <= highest)) highest = h;
    }
    for (int64_t i = begin; i < end; i++) {
        const float *piece = pieces + i * group * job->result;
        const float below = piece[0] - highest;
        float weight;
        job->vec->function(1, &weight, &below, 1); // no libm: the same bits on every machine
        sum += (double)weight * (double)piece[1];
        for (int64_t d = 0; d < dim; d++) out[d] = fmaf(weight, piece[PIECE_OUT + d], out[d]);
    }
    float value = 0.0F;
    const float *sink = sink_of(c, head, &value);
    if (sink != NULL && begin < end) sum += attention_sink(*sink, highest);
    const float factor = begin < end ? (float)(1.0 / sum) : 0.0F;
    for (int64_t d = 0; d < dim; d++) out[d] *= factor;
    const cpu_span to = cpu_span_at(y, b * y->strides[0] + head * dim);
    job->vec->cast(to, (cpu_span){out, DTYPE_F32}, dim);
    if (!tensor_has(lse)) return;
    const double log_sum = ((double)highest + log2(sum)) * 0.69314718055994530942;
    ((float *)lse->data)[b * lse->strides[0] + head] = begin < end ? (float)log_sum : -INFINITY;
}

static void merge_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const decode_job *job = context;
    const int64_t heads = job->call->attrs.heads;
    merge_head(job, index / heads, index % heads);
}

static bool is_decode(const kern_call *call)
{
    return call->seq == 1 && call->piece.cp_ways <= 1 && !tensor_has(&call->in[3]) &&
           !(call->attrs.dropout > 0.0F) && !call->attrs.in_tiles;
}

// ---- two sets of keys ---------------------------------------------------------------------------

// Returns the weight of one of two sets whose sums are exp(lse). The argument of exp is never above
// 0.
static float merge_weight(const cpu_vec *vec, float lse, float highest)
{
    const float below = (lse - highest) * 1.44269504088896340736F;
    float weight;
    if (lse == highest) return 1.0F;
    vec->function(1, &weight, &below, 1); // no libm: the same bits on every machine
    return weight;
}

static void merge_row(const kern_call *c, const cpu_vec *vec, int64_t row)
{
    const int64_t heads = c->in[1].dims[1], dim = c->out[0].dims[1] / heads;
    const float *la = (const float *)tensor_row(&c->in[1], row).at;
    const float *lb = (const float *)tensor_row(&c->in[3], row).at;
    float *lse = (float *)tensor_row(&c->out[1], row).at;
    for (int64_t h = 0; h < heads; h++) {
        const float highest = la[h] >= lb[h] ? la[h] : lb[h];
        const bool sees_none = highest == -INFINITY;
        const float wa = sees_none ? 0.0F : merge_weight(vec, la[h], highest);
        const float wb = sees_none ? 0.0F : merge_weight(vec, lb[h], highest), sum = wa + wb;
        float a[256], b[256];
        const cpu_span to_a = {a, DTYPE_F32}, to_b = {b, DTYPE_F32};
        vec->scale(to_a, cpu_span_offset(tensor_row(&c->in[0], row), h * dim),
                   sees_none ? 0.0F : wa / sum, dim);
        vec->scale(to_b, cpu_span_offset(tensor_row(&c->in[2], row), h * dim),
                   sees_none ? 0.0F : wb / sum, dim);
        vec->add(cpu_span_offset(tensor_row(&c->out[0], row), h * dim), to_a, to_b, dim);
        lse[h] = sees_none ? highest : (float)((double)highest + log((double)sum));
    }
}

static void rows_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) merge_row(job->call, job->vec, i);
}

status cpu_attention_merge(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    if (call->out[0].dims[1] > 256 * call->in[1].dims[1]) {
        return fail(ST_UNSUPPORTED, "backend cpu: attention_merge of heads of more than 256");
    }
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], rows_task);
    return ST_OK;
}

// ---- the kernel ---------------------------------------------------------------------------------
int64_t cpu_attention_workspace(const kern_call *call, int threads)
{
    const int64_t dim = attention_wide(call), width = (int64_t)sizeof(float);
    if (!is_decode(call)) {
        return threads * tile_floats(call) * width;
    }
    const int64_t group = call->attrs.heads / call->attrs.kv_heads;
    const int64_t scratch = align_up(cpu_attention_chunk_scratch(dim, group), 16);
    const int64_t results =
        call->out[0].dims[0] * call->attrs.heads * piece_count(call) * piece_floats(call);
    return (threads * scratch + results) * width;
}

status cpu_attention(const kern_context *context, const kern_call *call)
{
    TRY(attention_check(call, &call->in[1], lengths_of(call)));
    const int threads = kern_pool_threads(context->pool);
    ASSERT(call->workspace_bytes >= cpu_attention_workspace(call, threads));
    const int64_t sequences = attention_sequences(call), dim = attention_wide(call);
    if (!is_decode(call)) {
        const int64_t rows = tile_rows_of(call, threads);
        tile_job job = {.call = call,
                        .leaf = attention_is_bf16(context, call)
                                    ? attention_bf16
                                    : cpu_vec_of(context->level)->attention,
                        .rows = rows,
                        .tiles = tile_count(call, rows),
                        .scratch = tile_floats(call)};
        const int64_t heads = sequences * call->attrs.heads;
        job.group = tile_group_of(heads * job.tiles, threads);
        kern_parallel(context->pool, heads * ((job.tiles + job.group - 1) / job.group), tile_task,
                      &job);
        return ST_OK;
    }
    const int64_t group = call->attrs.heads / call->attrs.kv_heads;
    decode_job job = {.call = call,
                      .vec = cpu_vec_of(context->level),
                      .pieces = piece_count(call),
                      .scratch = align_up(cpu_attention_chunk_scratch(dim, group), 16),
                      .result = piece_floats(call)};
    job.results = (float *)call->workspace + threads * job.scratch;
    kern_parallel(context->pool, sequences * call->attrs.kv_heads * job.pieces, piece_task, &job);
    kern_parallel(context->pool, sequences * call->attrs.heads, merge_task, &job);
    return ST_OK;
}
