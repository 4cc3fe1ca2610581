// Shared by the algorithms over messages: the cut of a buffer into parts, one exchange, and sums
// between two ranks.
//
// Narrow floats are summed in fp32 and rounded once, as everywhere: such sums are sent as fp32
// (`wide`), finished pieces in their own type.
#ifndef COMM_ALGO_MESSAGE_H
#define COMM_ALGO_MESSAGE_H

#include "comm/algo/algo.h"
#include "comm/reduce.h"

typedef struct message_part {
    int64_t begin, count; // elements
} message_part;

// Part k, 0 <= k < parts, of `total` elements; the first total mod parts have one more.
message_part message_part_of(int64_t total, int parts, int k);
// Returns parts [first, last) as one.
message_part message_parts(int64_t total, int parts, int first, int last);

// A cut of `total` elements for `parts` ranks: shares that differ by one at most, or pieces of
// `piece` elements until the elements end.
typedef struct message_cut {
    int64_t total, piece; // piece 0: shares
    int parts;
} message_cut;
message_part message_cut_part(const message_cut *cut, int k);
message_cut message_cut_item(const comm_item *item, int ranks); // its pieces

// Sends to one rank while receiving from another. Empty messages are sent too, because they contain
// the contract.
NODISCARD status message_trade(comm_call *call, int to, const void *source, int64_t source_bytes,
                               int from, void *target, int64_t target_bytes);
NODISCARD status message_send(comm_call *call, int to, const void *source, int64_t bytes);
NODISCARD status message_receive(comm_call *call, int from, void *target, int64_t bytes);

// Runs the tensors one after the other: each is its own operation. in, out and count of tensor i.
typedef status message_run_one(comm_call *call, const comm_item *item);
NODISCARD status message_each(comm_call *call, message_run_one *run);
int64_t message_largest(const comm_args *args);   // count of the largest tensor
bool message_any_in_place(const comm_args *args); // some tensor has its output where its input is

typedef struct message_sum {
    comm_call *call;
    dtype type, wide;
    int64_t width, wide_width; // bytes of an element
    bool widens;               // wide is not type
} message_sum;
message_sum message_sum_of(comm_call *call);
int64_t message_wide_bytes(const comm_args *args); // of an element of a sum under way
// Sets out = in as wide. No copy if in == out.
void message_widen(const message_sum *s, const void *in, void *out, int64_t count);
// Sets out = a + b; all are wide, and out may be one of the inputs.
void message_add(const message_sum *s, const void *a, const void *b, void *out, int64_t count);
// Converts the whole sum, wide, to the result. If sums are not widened, out may be `sum`.
void message_finish(const message_sum *s, const void *sum, void *out, int64_t count);
// Runs a sum in a group of one rank.
void message_alone(const message_sum *s, const void *in, void *out, int64_t count);

// Returns the address `count` elements of `width` bytes on; NULL (on a rank without elements) stays
// NULL.
static inline void *message_at(const void *base, int64_t count, int64_t width)
{
    return base == NULL ? NULL : (unsigned char *)(uintptr_t)base + count * width;
}
// Returns the scratch from `offset` bytes on, and moves `offset` behind `bytes` of it.
void *message_scratch(comm_call *call, int64_t *offset, int64_t bytes);

// ---- parts that are shared between files -------------------------------------------------------
// Sums part r to rank r, in a ring; the first part is the largest. scratch: ring_scratch bytes of
// the call's.
NODISCARD status ring_reduce(const message_sum *s, const void *in, message_cut cut, void *out);
int64_t ring_scratch(const comm_args *args, int64_t largest_part);
// Sends the parts of all ranks to all ranks; the own part is in place in `out`.
NODISCARD status ring_gather(comm_call *call, void *out, message_cut cut, int64_t width);
// The same by halving and doubling; the number of ranks is a power of two. `work`: memory for wide
// sums, may be `in` if that may be written; NULL: scratch.
NODISCARD status halving_reduce(const message_sum *s, const void *in, int64_t total, void *work,
                                void *out);
int64_t halving_scratch(const comm_args *args, int64_t total, int size);
NODISCARD status doubling_gather(comm_call *call, void *out, int64_t total, int64_t width);

#endif
