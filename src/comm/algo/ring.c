// Rings: reduce-scatter and all-gather in n - 1 hops each, in which every rank sends to the next
// one.
//
//   hop 0     rank r sends its term of part r - 1
//   hop h     it receives part r - h - 2, adds its own term, and sends the sum
//   at last   it has all of part r
//
//   n = 4, part 0 on its way to rank 0:   1 -> 2 -> 3 -> 0
//
// A rank sends (n - 1) / n of the buffer, the least possible. Source: Patarasuk & Yuan 2009,
// doi:10.1016/j.jpdc.2008.09.002. Each part is summed along one chain, so all ranks get the same
// bits, but the chain begins at another rank for each part: order `any`.
#include "comm/algo/message.h"

int64_t ring_scratch(const comm_args *args, int64_t largest_part)
{
    return 3 * align_up(largest_part * message_wide_bytes(args), ALIGN_TENSOR);
}

// This rank's term of a part: in place, or widened into `scratch`.
static const void *term(const message_sum *s, const void *in, message_part part, void *scratch)
{
    const void *at = message_at(in, part.begin, s->width);
    if (!s->widens) return at;
    message_widen(s, at, scratch, part.count);
    return scratch;
}

status ring_reduce(const message_sum *s, const void *in, message_cut cut, void *out)
{
    comm_call *call = s->call;
    const int n = call->size, next = (call->rank + 1) % n, previous = (call->rank + n - 1) % n;
    if (n == 1) {
        message_alone(s, in, out, cut.total);
        return ST_OK;
    }
    const int64_t bytes = message_cut_part(&cut, 0).count * s->wide_width;
    int64_t used = 0;
    void *arrives = message_scratch(call, &used, bytes),
         *terms = message_scratch(call, &used, bytes);
    void *own = message_scratch(call, &used, bytes);
    message_part sent = message_cut_part(&cut, previous);
    const void *source = term(s, in, sent, terms);
    for (int hop = 0; hop < n - 1; hop++) {
        const message_part part = message_cut_part(&cut, (call->rank + 2 * n - hop - 2) % n);
        TRY(message_trade(call, next, source, sent.count * s->wide_width, previous, arrives,
                          part.count * s->wide_width));
        message_add(s, arrives, term(s, in, part, own), arrives, part.count);
        source = arrives;
        sent = part;
        void *const free_now = terms;
        terms = arrives;
        arrives = free_now;
    }
    message_finish(s, source, out, sent.count);
    return ST_OK;
}

status ring_gather(comm_call *call, void *out, message_cut cut, int64_t width)
{
    const int n = call->size, next = (call->rank + 1) % n, previous = (call->rank + n - 1) % n;
    for (int hop = 0; hop < n - 1; hop++) {
        const message_part has = message_cut_part(&cut, (call->rank + n - hop) % n);
        const message_part wants = message_cut_part(&cut, (call->rank + n - hop - 1) % n);
        TRY(message_trade(call, next, message_at(out, has.begin, width), has.count * width,
                          previous, message_at(out, wants.begin, width), wants.count * width));
    }
    return ST_OK;
}
