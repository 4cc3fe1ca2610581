// Functions that the algorithms over messages share (message.h).
#include "comm/algo/message.h"

#include "comm/args.h"

#include <string.h>

message_part message_part_of(int64_t total, int parts, int k)
{
    const int64_t each = total / parts, rest = total % parts;
    return (message_part){each * k + min_i64(k, rest), each + (k < rest)};
}

message_part message_cut_part(const message_cut *cut, int k)
{
    if (cut->piece == 0) return message_part_of(cut->total, cut->parts, k);
    const int64_t begin = min_i64(k * cut->piece, cut->total);
    return (message_part){begin, min_i64(cut->piece, cut->total - begin)};
}

message_cut message_cut_item(const comm_item *item, int ranks)
{
    return (message_cut){comm_item_whole(item, ranks), item->count, ranks};
}

message_part message_parts(int64_t total, int parts, int first, int last)
{
    const message_part a = message_part_of(total, parts, first);
    const message_part b = message_part_of(total, parts, last - 1);
    return (message_part){a.begin, b.begin + b.count - a.begin};
}

status message_trade(comm_call *call, int to, const void *source, int64_t source_bytes, int from,
                     void *target, int64_t target_bytes)
{
    const comm_message send = {.peer = to, .send = source, .bytes = source_bytes};
    const comm_message receive = {.peer = from, .receive = target, .bytes = target_bytes};
    return call->transport->exchange(call->port, &call->contract, send, receive);
}

status message_send(comm_call *call, int to, const void *source, int64_t bytes)
{
    return message_trade(call, to, source, bytes, -1, NULL, 0);
}

status message_receive(comm_call *call, int from, void *target, int64_t bytes)
{
    return message_trade(call, -1, NULL, 0, from, target, bytes);
}

status message_each(comm_call *call, message_run_one *run)
{
    for (int i = 0; i < call->args->item_count; i++) TRY(run(call, &call->args->items[i]));
    return ST_OK;
}

int64_t message_largest(const comm_args *args)
{
    const int64_t terms = comm_args_terms(args);
    int64_t largest = 0;
    for (int64_t i = 0; i < args->item_count; i++) {
        largest = max_i64(largest, args->items[i * terms].count);
    }
    return largest;
}

bool message_any_in_place(const comm_args *args)
{
    for (int i = 0; i < args->item_count; i++) {
        if (args->items[i].in == args->items[i].out) return true;
    }
    return false;
}

static bool sum_widens(const comm_args *args)
{
    return (args->type == DTYPE_BF16 || args->type == DTYPE_F16) &&
           (args->reduction == REDUCTION_SUM || args->reduction == REDUCTION_AVG);
}

message_sum message_sum_of(comm_call *call)
{
    const bool widens = sum_widens(call->args);
    const dtype type = call->args->type, wide = widens ? DTYPE_F32 : type;
    return (message_sum){.call = call,
                         .type = type,
                         .wide = wide,
                         .width = dtype_bytes(type),
                         .wide_width = dtype_bytes(wide),
                         .widens = widens};
}

int64_t message_wide_bytes(const comm_args *args)
{
    return sum_widens(args) ? 4 : dtype_bytes(args->type);
}

void message_widen(const message_sum *s, const void *in, void *out, int64_t count)
{
    if (s->widens) {
        comm_reduce_widen(s->call->vectors, s->type, in, out, count);
    } else if (in != out && count > 0) {
        memcpy(out, in, (size_t)(count * s->width));
    }
}

void message_add(const message_sum *s, const void *a, const void *b, void *out, int64_t count)
{
    comm_reduce_two(s->call->vectors, s->wide, s->call->args->reduction, a, b, out, count);
}

void message_finish(const message_sum *s, const void *sum, void *out, int64_t count)
{
    const bool average = s->call->args->reduction == REDUCTION_AVG;
    const double scale = average ? 1.0 / s->call->size : 1.0;
    if (s->widens) {
        comm_reduce_narrow(s->call->vectors, s->type, sum, out, count, scale);
    } else if (average) {
        comm_reduce_scale(s->call->vectors, s->type, sum, out, count, scale);
    } else if (sum != out && count > 0) {
        memcpy(out, sum, (size_t)(count * s->width));
    }
}

void message_alone(const message_sum *s, const void *in, void *out, int64_t count)
{
    comm_reduce_scale(s->call->vectors, s->type, in, out, count, 1.0);
}

void *message_scratch(comm_call *call, int64_t *offset, int64_t bytes)
{
    ASSERT(*offset + bytes <= call->scratch_bytes);
    void *at = comm_scratch_at(call, *offset);
    *offset = align_up(*offset + bytes, ALIGN_TENSOR);
    return at;
}
