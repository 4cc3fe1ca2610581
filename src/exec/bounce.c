// Places an operation's buffers in host memory. Where input and output share bytes on the device,
// they share them on the host too: an operation in place stays in place.
//
// Rows that are exchanged by counts on the device travel with their offsets, and as many as there
// may be travel each time: the host does not know how many there are when it posts the copies.
#include "exec/bounce.h"

#include "comm/args.h"

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
    if (args->op == COLLECTIVE_ALL_TO_ALLV) {
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

int64_t exec_bounce_bytes(const comm_args *args, const comm_group *group)
{
    int64_t at = 0;
    item_place p;
    for (int i = 0; i < args->item_count * comm_args_terms(args) && !args->on_device; i++) {
        at = item_place_make(args, &args->items[i], group, at, &p);
    }
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

status exec_bounce_make(arena *a, const comm_args *args, const comm_group *group, char *buffer,
                        exec_bounce *out)
{
    const int count = args->on_device ? 0 : args->item_count * comm_args_terms(args);
    comm_item *items = NULL;
    int64_t at = 0;
    *out = (exec_bounce){.args = *args};
    if (args->compressed != NULL) {
        return fail(ST_UNSUPPORTED,
                    "%s of %s computes on the host, which cannot reach a GPU's "
                    "memory; train without it, or with kernels.device = cpu",
                    op_collective_name(args->op), args->tensor);
    }
    TRY(arena_new(a, count + 1, &items));
    TRY(arena_new(a, count + 2, &out->out));
    TRY(arena_new(a, count + 1, &out->in));
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
            out->in[out->in_count++] = (exec_bounce_copy){p.out, buffer + p.out_at, p.out_bytes};
        }
    }
    if (!args->on_device) out->args.items = items;
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
