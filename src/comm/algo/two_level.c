// Two levels: inside each host through its memory, between hosts by messages of the ranks with the
// same number on their host (a column), all columns at once, so that every link carries each byte
// once.
//
//   all_reduce       add up part l inside, to local rank l; add that up in the column; gather
//                    inside
//   reduce_scatter   add the pieces of the column's ranks inside the host; scatter in the column
//   all_gather       gather in the column; then inside, host by host
//   broadcast        down the root's column; then inside
//   all_to_all       inside the host; then in the column (two_level_exchange.c)
//   barrier          inside the host; then in every column: a rank that leaves has met all others
//
// For groups with the same number of ranks on each host, with neighbouring numbers. The order of
// sums depends on the hosts of the ranks: order `any`. Types that would be rounded between the
// levels are not accepted.
#include "comm/algo/two_level.h"
#include "comm/algo/algo_messages.h"
#include "comm/algo/algo_table.h"
#include "comm/algo/message.h"
#include "comm/args.h"

enum { SMALL_BYTES = 64 << 10 };

comm_call two_level_inside(const comm_call *call, const comm_args *args)
{
    const comm_levels *v = call->levels;
    comm_call c = *call;
    c.args = args;
    c.port = v->local;
    c.transport = v->local->transport;
    c.rank = v->local->members.me;
    c.size = v->local->members.count;
    c.direct = v->direct;
    return c;
}

comm_call two_level_column(const comm_call *call, const comm_args *args)
{
    const comm_levels *v = call->levels;
    comm_call c = *call;
    c.args = args;
    c.port = v->across;
    c.transport = v->across->transport;
    c.rank = v->across->members.me;
    c.size = v->across->members.count;
    return c;
}

comm_args two_level_item(const comm_call *call, op_collective op, const comm_item *item)
{
    comm_args a = *call->args;
    a.op = op;
    a.items = item;
    a.item_count = 1;
    return a;
}

static status run_inside(const comm_call *call, const comm_algorithm *row, const comm_item *item)
{
    const comm_args a = two_level_item(call, row->op, item);
    comm_call c = two_level_inside(call, &a);
    return row->run(&c);
}

// Sets *total to the elements of piece `first` and of those 1, 2, ... times `apart` behind it,
// among the `pieces` pieces of an item, if some pieces have ended; 0: none has. False: there are no
// elements.
static bool pieces_end(const comm_item *item, int64_t first, int64_t pieces, int64_t apart,
                       int64_t *total)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < pieces; i++) sum += comm_item_piece(item, first + i * apart);
    *total = sum < pieces * item->count ? sum : 0;
    return sum > 0;
}

// ---- all_reduce --------------------------------------------------------------------------------
static status reduce_in_column(const comm_call *call, const comm_item *item)
{
    const comm_args a = two_level_item(call, COLLECTIVE_ALL_REDUCE, item);
    const bool small = item->count * dtype_bytes(a.type) <= SMALL_BYTES;
    comm_call c = two_level_column(call, &a);
    return small ? comm_algorithm_all_reduce_doubling.run(&c)
                 : comm_algorithm_all_reduce_ring.run(&c);
}

static status all_reduce_one(comm_call *call, const comm_item *item)
{
    const int64_t width = dtype_bytes(call->args->type);
    const int size = call->levels->local->members.count, me = call->levels->local->members.me;
    const int64_t part = item->count / size, rest = item->count % size;
    char *const out = item->out, *const mine = message_at(out, me * part, width);
    if (part > 0) {
        const comm_item scatter = {.in = item->in, .out = mine, .count = part};
        const comm_item sum = {.in = mine, .out = mine, .count = part};
        const comm_item gather = {.in = mine, .out = out, .count = part};
        TRY(run_inside(call, &comm_algorithm_reduce_scatter_direct, &scatter));
        TRY(reduce_in_column(call, &sum));
        TRY(run_inside(call, &comm_algorithm_all_gather_direct, &gather));
    }
    if (rest == 0 && part > 0) return ST_OK;
    // The remainder, less than an element for each column; all columns do the same.
    char *const last = message_at(out, part * size, width);
    const comm_item tail = {
        .in = message_at(item->in, part * size, width), .out = last, .count = rest};
    const comm_item sum = {.in = last, .out = last, .count = rest};
    TRY(run_inside(call, &comm_algorithm_all_reduce_direct, &tail));
    return reduce_in_column(call, &sum);
}

static status all_reduce_run(comm_call *call)
{
    return message_each(call, all_reduce_one);
}

static int64_t all_reduce_scratch(const comm_args *args, int size)
{
    const int64_t small = 2 * align_up(SMALL_BYTES, ALIGN_TENSOR);
    return max_i64(small, ring_scratch(args, message_largest(args) / size + 2));
}

const comm_algorithm comm_algorithm_all_reduce_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_ALL_REDUCE,
    .order = COMM_ORDER_ANY,
    .levels = true,
    .items = true,
    .run = all_reduce_run,
    .scratch = all_reduce_scratch,
};

// ---- reduce_scatter ----------------------------------------------------------------------------
static status reduce_scatter_one(comm_call *call, const comm_item *item)
{
    const comm_levels *v = call->levels;
    const int hosts = v->across->members.count, here = v->local->members.count;
    const int64_t width = dtype_bytes(call->args->type), bytes = item->count * width;
    int64_t used = 0;
    char *const sums = message_scratch(call, &used, hosts * bytes);
    for (int h = 0; h < hosts; h++) {
        comm_item one = {.in = message_at(item->in, h * here * item->count, width),
                         .out = message_at(sums, h * item->count, width),
                         .count = item->count};
        if (!pieces_end(item, h * here, here, 1, &one.total)) break; // on all ranks
        TRY(run_inside(call, &comm_algorithm_reduce_scatter_direct, &one));
    }
    comm_item all = *item;
    all.in = sums;
    if (!pieces_end(item, v->local->members.me, hosts, here, &all.total)) return ST_OK;
    const comm_args a = two_level_item(call, COLLECTIVE_REDUCE_SCATTER, &all);
    comm_call c = two_level_column(call, &a);
    c.scratch = comm_scratch_at(call, used);
    c.scratch_bytes = call->scratch_bytes - used;
    return comm_algorithm_reduce_scatter_ring.run(&c);
}

static status reduce_scatter_run(comm_call *call)
{
    return message_each(call, reduce_scatter_one);
}

// At least two ranks are on each host.
static int64_t reduce_scatter_scratch(const comm_args *args, int size)
{
    const int64_t count = message_largest(args);
    return align_up(size / 2 * count * dtype_bytes(args->type), ALIGN_TENSOR) +
           ring_scratch(args, count);
}

const comm_algorithm comm_algorithm_reduce_scatter_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_REDUCE_SCATTER,
    .order = COMM_ORDER_ANY,
    .ends = true,
    .levels = true,
    .items = true,
    .run = reduce_scatter_run,
    .scratch = reduce_scatter_scratch,
};

// ---- all_gather --------------------------------------------------------------------------------
static status all_gather_one(comm_call *call, const comm_item *item)
{
    const comm_levels *v = call->levels;
    const int hosts = v->across->members.count, here = v->local->members.count;
    const int me = v->across->members.me, number = v->local->members.me;
    const int next = (me + 1) % hosts, previous = (me + hosts - 1) % hosts;
    const int64_t width = dtype_bytes(call->args->type);
    char *const out = item->out;
    comm_call c = two_level_column(call, call->args);
    const void *source = item->in;
    int64_t bytes = comm_item_piece(item, me * here + number) * width;
    for (int hop = 0; hop < hosts - 1; hop++) {
        const int from = (me + 2 * hosts - hop - 1) % hosts;
        const int64_t comes = comm_item_piece(item, from * here + number) * width;
        char *const arrives = message_at(out, (from * here + number) * item->count, width);
        TRY(message_trade(&c, next, source, bytes, previous, arrives, comes));
        source = arrives;
        bytes = comes;
    }
    for (int h = 0; h < hosts; h++) {
        char *const place = message_at(out, h * here * item->count, width);
        comm_item one = {.in = h == me ? item->in : message_at(place, number * item->count, width),
                         .out = place,
                         .count = item->count};
        if (!pieces_end(item, h * here, here, 1, &one.total)) break; // on all ranks
        TRY(run_inside(call, &comm_algorithm_all_gather_direct, &one));
    }
    return ST_OK;
}

static status all_gather_run(comm_call *call)
{
    return message_each(call, all_gather_one);
}

const comm_algorithm comm_algorithm_all_gather_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_ALL_GATHER,
    .order = COMM_ORDER_SHARD,
    .ends = true,
    .levels = true,
    .items = true,
    .run = all_gather_run,
};

// ---- broadcast, barrier ------------------------------------------------------------------------
static status broadcast_one(comm_call *call, const comm_item *item)
{
    const comm_levels *v = call->levels;
    const int here = v->local->members.count;
    const int root = call->args->root, root_host = root / here, root_number = root % here;
    comm_item one = *item;
    if (v->local->members.me == root_number) {
        comm_args a = two_level_item(call, COLLECTIVE_BROADCAST, item);
        a.root = root_host;
        comm_call c = two_level_column(call, &a);
        TRY(comm_algorithm_broadcast_tree.run(&c));
        if (call->rank != root) one.in = item->out;
    }
    comm_args a = two_level_item(call, COLLECTIVE_BROADCAST, &one);
    a.root = root_number;
    comm_call c = two_level_inside(call, &a);
    return comm_algorithm_broadcast_direct.run(&c);
}

static status broadcast_run(comm_call *call)
{
    return message_each(call, broadcast_one);
}

const comm_algorithm comm_algorithm_broadcast_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_BROADCAST,
    .order = COMM_ORDER_SHARD,
    .levels = true,
    .items = true,
    .run = broadcast_run,
};

static status barrier_run(comm_call *call)
{
    comm_call c = two_level_inside(call, call->args);
    TRY(comm_algorithm_barrier_direct.run(&c));
    c = two_level_column(call, call->args);
    return comm_algorithm_barrier_dissemination.run(&c);
}

const comm_algorithm comm_algorithm_barrier_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_BARRIER,
    .order = COMM_ORDER_SHARD,
    .levels = true,
    .items = true,
    .run = barrier_run,
};
