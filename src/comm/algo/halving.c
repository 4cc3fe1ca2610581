// Recursive halving and doubling, for a power of two of ranks: log2 n exchanges each way.
//
//   halving    ranks that differ in the highest bit trade halves and add; then quarters, ...
//   doubling   the same backwards, with finished parts
//
// Source: Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521. The lower rank's sum
// comes first: (x0 + x2) + (x1 + x3) for 4 ranks, so order `any`.
#include "comm/algo/message.h"

int64_t halving_scratch(const comm_args *args, int64_t total, int size)
{
    const int64_t wide = message_wide_bytes(args);
    return align_up(total * wide, ALIGN_TENSOR) + align_up((total / 2 + size) * wide, ALIGN_TENSOR);
}

status halving_reduce(const message_sum *s, const void *in, int64_t total, void *work, void *out)
{
    comm_call *call = s->call;
    const int n = call->size;
    const int64_t wide = s->wide_width;
    if (n == 1) {
        message_alone(s, in, out, total);
        return ST_OK;
    }
    int64_t used = 0;
    void *arrives = message_scratch(call, &used, message_parts(total, n, 0, n / 2).count * wide);
    if (work == NULL) work = message_scratch(call, &used, total * wide);
    const void *terms = in; // of all parts still in hand, part 0 first
    if (s->widens) {
        message_widen(s, in, work, total);
        terms = work;
    }
    int first = 0, last = n;
    for (int bit = n / 2; bit > 0; bit /= 2) {
        const int middle = (first + last) / 2;
        const bool low = (call->rank & bit) == 0;
        const message_part keep =
            message_parts(total, n, low ? first : middle, low ? middle : last);
        const message_part give =
            message_parts(total, n, low ? middle : first, low ? last : middle);
        TRY(message_trade(call, call->rank ^ bit, message_at(terms, give.begin, wide),
                          give.count * wide, call->rank ^ bit, arrives, keep.count * wide));
        const void *mine = message_at(terms, keep.begin, wide);
        message_add(s, low ? mine : arrives, low ? arrives : mine,
                    message_at(work, keep.begin, wide), keep.count);
        terms = work;
        first = low ? first : middle;
        last = low ? middle : last;
    }
    const message_part own = message_part_of(total, n, call->rank);
    message_finish(s, message_at(work, own.begin, wide), out, own.count);
    return ST_OK;
}

status doubling_gather(comm_call *call, void *out, int64_t total, int64_t width)
{
    const int n = call->size;
    for (int bit = 1; bit < n; bit *= 2) {
        const int mine = call->rank / bit * bit, theirs = mine ^ bit;
        const message_part has = message_parts(total, n, mine, mine + bit);
        const message_part wants = message_parts(total, n, theirs, theirs + bit);
        TRY(message_trade(call, call->rank ^ bit, message_at(out, has.begin, width),
                          has.count * width, call->rank ^ bit, message_at(out, wants.begin, width),
                          wants.count * width));
    }
    return ST_OK;
}
