// Places an operation's buffers in host memory. Where input and output share bytes on the device,
// they share them on the host too: an operation in place stays in place.
//
// A compressed sum computes on the host: its vectors and residuals travel as they are, and the
// codec works in the group's buffer.
//
// Rows that are exchanged by counts on the device travel with their offsets, and as many as there
// may be travel each time: the host does not know how many there are when it posts the copies.
#include "exec/bounce.h"

#include "comm/args.h"
#include "comm/compressed.h"

#include <string.h>

// Buffers of one item: addresses on the device, bytes, and offsets in the group's buffer.
typedef struct item_place {
    char *in, *out;
    int64_t in_bytes, out_bytes, in_at, out_at;
} item_place;

static int64_t side_bytes(const comm_args *args, const comm_item *item, int pieces,
                          const comm_group *group)
{
    const int64_t one =
        item->total != 0 ? comm_item_piece(item, comm_group_rank(group)) : item->count;
    const int64_t whole = comm_item_whole(item, comm_group_size(group));
    return (pieces == 0 ? 0 : pieces == 1 ? one : whole) * dtype_bytes(args->type);
}

// Returns the end of the item's bytes in the buffer, if it begins at `at`.
static int64_t item_place_make(const comm_args *args, const comm_item *item,
                               const comm_group *group, int64_t at, item_place *p)
{
    const bool is_root = args->root == comm_group_rank(group);
    const comm_shape shape = comm_shape_of(args->op, comm_group_size(group), is_root);
    memset(p, 0, sizeof(*p));
    memcpy(&p->in, &item->in, sizeof(p->in));
    p->out = item->out;
    if (args->compressed != NULL) { // a vector in place
        p->in = p->out;
        p->in_bytes = p->out_bytes = item->count * dtype_bytes(args->type);
    } else if (args->op == COLLECTIVE_ALL_TO_ALLV) {
        p->in_bytes = item->count * dtype_bytes(args->type);
        p->out_bytes = args->receive_most * dtype_bytes(args->type);
    } else {
        p->in_bytes = p->in != NULL ? side_bytes(args, item, shape.in_pieces, group) : 0;
        p->out_bytes = p->out != NULL ? side_bytes(args, item, shape.out_pieces, group) : 0;
    }
    p->in_at = at;
    const bool meets = p->in_bytes > 0 && p->out_bytes > 0 && p->in < p->out + p->out_bytes &&
                       p->out < p->in + p->in_bytes;
    if (meets) {
        const char *first = p->in < p->out ? p->in : p->out;
        p->in_at = at + (p->in - first);
        p->out_at = at + (p->out - first);
    } else {
        p->out_at = at + align_up(p->in_bytes, ALIGN_TENSOR);
    }
    return align_up(max_i64(p->in_at + p->in_bytes, p->out_at + p->out_bytes), ALIGN_TENSOR);
}

// Bytes of the offsets of rows in one direction.
static int64_t offsets_bytes(const comm_args *args, const comm_group *group)
{
    if (args->send_offsets == NULL) return 0;
    return ((int64_t)comm_group_size(group) * args->stride + 1) * (int64_t)sizeof(int32_t);
}

// The parts of a codec in the buffer, from `at` on.
typedef struct codec_place {
    int64_t work, state, reals, state_bytes, end; // state_bytes 0: no residuals
} codec_place;

static codec_place codec_place_of(const comm_compressed *c, int64_t at)
{
    codec_place p = {.work = at, .end = at};
    if (c == NULL) return p;
    if (c->state != NULL) p.state_bytes = comm_compressed_state_bytes(&c->cut);
    p.state = p.work + align_up(comm_compressed_work_bytes(&c->cut), ALIGN_TENSOR);
    p.reals = p.state + align_up(p.state_bytes, ALIGN_TENSOR);
    p.end = p.reals + align_up(COMM_REALS * (int64_t)sizeof(double), ALIGN_TENSOR);
    return p;
}

int64_t exec_bounce_bytes(const comm_args *args, const comm_group *group)
{
    int64_t at = 0;
    item_place p;
    for (int i = 0; i < args->item_count * comm_args_terms(args) && !args->on_device; i++) {
        at = item_place_make(args, &args->items[i], group, at, &p);
    }
    at = codec_place_of(args->compressed, at).end;
    return at + 2 * align_up(offsets_bytes(args, group), ALIGN_TENSOR);
}

// Copies offsets out too; they lie from `at` on.
static void offsets_make(const comm_args *args, const comm_group *group, char *at, exec_bounce *out)
{
    const int64_t bytes = offsets_bytes(args, group), step = align_up(bytes, ALIGN_TENSOR);
    const int32_t *from[2] = {args->send_offsets, args->receive_offsets};
    if (bytes == 0) return;
    for (int i = 0; i < 2; i++) {
        exec_bounce_copy copy = {.on_host = at + i * step, .bytes = bytes};
        memcpy(&copy.on_device, &from[i], sizeof(copy.on_device));
        out->out[out->out_count++] = copy;
    }
    out->args.send_offsets = (const int32_t *)(const void *)at;
    out->args.receive_offsets = (const int32_t *)(const void *)(at + step);
}

// Moves a codec to the buffer: its residuals go out and come back, what it measured comes back.
static status codec_make(arena *a, const comm_args *args, char *buffer, int64_t at,
                         exec_bounce *out)
{
    const comm_compressed *given = args->compressed;
    const codec_place p = codec_place_of(given, at);
    comm_compressed *codec = NULL;
    if (given == NULL) return ST_OK;
    TRY(arena_new(a, 1, &codec));
    *codec = *given;
    codec->work = buffer + p.work;
    codec->reals = (double *)(void *)(buffer + p.reals);
    if (p.state_bytes > 0) {
        codec->state = buffer + p.state;
        const exec_bounce_copy state = {given->state, codec->state, p.state_bytes};
        out->out[out->out_count++] = state;
        out->in[out->in_count++] = state;
    }
    out->in[out->in_count++] = (exec_bounce_copy){(char *)given->reals, buffer + p.reals,
                                                  COMM_REALS * (int64_t)sizeof(double)};
    out->args.compressed = codec;
    return ST_OK;
}

// A compressed reduce_scatter leaves the sum in this rank's piece only.
static exec_bounce_copy result_of(const comm_args *args, const comm_group *group,
                                  const item_place *p, char *buffer)
{
    exec_bounce_copy copy = {p->out, buffer + p->out_at, p->out_bytes};
    const int64_t piece = args->compressed != NULL ? args->compressed->cut.piece : 0;
    if (piece == 0) return copy;
    const int64_t width = dtype_bytes(args->type), rank = comm_group_rank(group);
    const int64_t begin = min_i64(rank * piece * width, p->out_bytes);
    copy.on_device += begin;
    copy.on_host += begin;
    copy.bytes = min_i64(piece * width, p->out_bytes - begin);
    return copy;
}

status exec_bounce_make(arena *a, const comm_args *args, const comm_group *group, char *buffer,
                        exec_bounce *out)
{
    const int count = args->on_device ? 0 : args->item_count * comm_args_terms(args);
    comm_item *items = NULL;
    int64_t at = 0;
    *out = (exec_bounce){.args = *args};
    TRY(arena_new(a, count + 1, &items));
    TRY(arena_new(a, count + 3, &out->out)); // offsets twice, or residuals
    TRY(arena_new(a, count + 2, &out->in));  // residuals and what was measured
    for (int i = 0; i < count; i++) {
        item_place p;
        items[i] = args->items[i];
        at = item_place_make(args, &args->items[i], group, at, &p);
        items[i].in = p.in != NULL ? buffer + p.in_at : NULL;
        items[i].out = p.out != NULL ? buffer + p.out_at : NULL;
        if (p.in_bytes > 0) {
            out->out[out->out_count++] = (exec_bounce_copy){p.in, buffer + p.in_at, p.in_bytes};
        }
        if (p.out_bytes > 0) {
            const exec_bounce_copy result = result_of(args, group, &p, buffer);
            if (result.bytes > 0) out->in[out->in_count++] = result;
        }
    }
    if (!args->on_device) out->args.items = items;
    TRY(codec_make(a, args, buffer, at, out));
    offsets_make(args, group, buffer + at, out);
    return ST_OK;
}

status exec_bounce_post(const exec_bounce *b, comm_group *group, const device_api *api,
                        device_stream *stream, int64_t step, int64_t *at, bool *posted)
{
    *posted = true;
    for (; *at < b->out_count; ++*at) {
        const exec_bounce_copy *c = &b->out[*at];
        TRY(api->copy_out(stream, c->on_host, c->on_device, c->bytes, posted));
        if (!*posted) return ST_OK;
    }
    if (*at == b->out_count) {
        comm_args args = b->args;
        args.step = step;
        TRY(comm_post(group, api, stream, &args, posted));
        if (!*posted) return ST_OK;
        ++*at;
    }
    for (; *at < b->out_count + 1 + b->in_count; ++*at) {
        const exec_bounce_copy *c = &b->in[*at - b->out_count - 1];
        TRY(api->copy_in(stream, c->on_device, c->on_host, c->bytes, posted));
        if (!*posted) return ST_OK;
    }
    return ST_OK;
}
