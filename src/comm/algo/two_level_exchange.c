// All-to-all over two levels (two_level.c), with pieces of one size or with counts of each pair.
//
//        host A                      host B            a piece (a1 -> b2) goes inside the host to
//    a1 ---- inside ----> a2  ---- column ----> b2     the rank with the number of its target, and
//                                                      with the pieces of all ranks of the host
//                                                      through the column
//
// With L ranks on each of H hosts a rank sends H - 1 messages to other hosts instead of (H - 1) L,
// each L times as long; the same bytes cross. In step s the ranks of a host gather the pieces for
// the host s places on, and send them while those of the host s places before arrive. Pieces of the
// own host go straight to their place.
//
//   scratch   the pieces of one step; with counts, how many elements come from each local rank
//
// With counts, the rank in the middle learns them from the others of its host. Its scratch needs a
// bound, so only rows with offsets, whose most is known, take this way (comm_algorithm.bounded).
#include "comm/algo/algo_messages.h"
#include "comm/algo/algo_table.h"
#include "comm/algo/message.h"
#include "comm/algo/two_level.h"
#include "comm/args.h"

#include <string.h>

// Where a call is: hosts, ranks of each host, the own host and the own number on it.
typedef struct place {
    int hosts, here, host, number;
} place;

static place place_of(const comm_call *call)
{
    const comm_levels *v = call->levels;
    return (place){.hosts = v->across->members.count,
                   .here = v->local->members.count,
                   .host = v->across->members.me,
                   .number = v->local->members.me};
}

// Returns the input; one that the output would overwrite is copied first.
static const void *input_of(comm_call *call, const comm_item *item, int64_t bytes, int64_t *used)
{
    if (item->in != item->out || bytes == 0) return item->in;
    return memcpy(message_scratch(call, used, bytes), item->in, (size_t)bytes);
}

// ---- pieces of one size ------------------------------------------------------------------------
static status pieces_inside(const comm_call *call, const void *in, void *out, int64_t count)
{
    const comm_item item = {.in = in, .out = out, .count = count};
    const comm_args a = two_level_item(call, COLLECTIVE_ALL_TO_ALL, &item);
    comm_call c = two_level_inside(call, &a);
    c.contract.count = count; // direct algorithms read it there
    return comm_algorithm_all_to_all_direct.run(&c);
}

static status all_to_all_one(comm_call *call, const comm_item *item)
{
    const place p = place_of(call);
    const int64_t each = p.here * item->count * dtype_bytes(call->args->type); // bytes of a host
    int64_t used = 0;
    const void *in = input_of(call, item, p.hosts * each, &used);
    void *const sent = message_scratch(call, &used, each);
    comm_call across = two_level_column(call, call->args);
    TRY(pieces_inside(call, message_at(in, p.host, each), message_at(item->out, p.host, each),
                      item->count));
    for (int step = 1; step < p.hosts; step++) {
        const int to = (p.host + step) % p.hosts, from = (p.host + p.hosts - step) % p.hosts;
        TRY(pieces_inside(call, message_at(in, to, each), sent, item->count));
        TRY(message_trade(&across, to, sent, each, from, message_at(item->out, from, each), each));
    }
    return ST_OK;
}

static status all_to_all_run(comm_call *call)
{
    return message_each(call, all_to_all_one);
}

// At least two hosts have ranks.
static int64_t all_to_all_scratch(const comm_args *args, int size)
{
    const int64_t piece = message_largest(args) * dtype_bytes(args->type);
    const int64_t copied = message_any_in_place(args) ? size * piece : 0;
    return align_up(size / 2 * piece, ALIGN_TENSOR) + align_up(copied, ALIGN_TENSOR);
}

const comm_algorithm comm_algorithm_all_to_all_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_ALL_TO_ALL,
    .order = COMM_ORDER_SHARD,
    .levels = true,
    .items = true,
    .run = all_to_all_run,
    .scratch = all_to_all_scratch,
};

// ---- counts of each pair -----------------------------------------------------------------------
// An exchange with counts in progress.
typedef struct counted {
    comm_call *call;
    place at;
    const void *in;
    int64_t *sent, *received; // [hosts + 1] where the elements of each host begin
    int64_t *comes;           // [here] elements from each rank of this host
} counted;

static void begins(const place *p, const int64_t *counts, int64_t *out)
{
    out[0] = 0;
    for (int h = 0; h < p->hosts; h++) {
        out[h + 1] = out[h];
        for (int l = 0; l < p->here; l++) out[h + 1] += counts[h * p->here + l];
    }
}

// Brings the elements for the rank with this number on host `to` from all ranks of this host to
// `out`, which has space for `most`; comes[] says how many.
static status gather_inside(const counted *x, int to, void *out, int64_t most, int64_t *total)
{
    const int64_t width = dtype_bytes(x->call->args->type);
    const int64_t *sends = x->call->args->send_counts + (int64_t)to * x->at.here;
    const comm_item counts = {.in = sends, .out = x->comes, .count = 1};
    comm_args a = two_level_item(x->call, COLLECTIVE_ALL_TO_ALL, &counts);
    a.type = DTYPE_I64;
    comm_call c = two_level_inside(x->call, &a);
    c.contract.count = 1;
    TRY(comm_algorithm_all_to_all_direct.run(&c));
    *total = 0;
    for (int l = 0; l < x->at.here; l++) *total += x->comes[l];
    if (*total > most) {
        return fail(ST_DIVERGED, "%s: %lld elements go to one rank, which takes %lld at most",
                    a.tensor != NULL ? a.tensor : "all_to_allv", (long long)*total,
                    (long long)most);
    }
    const comm_item rows = {.in = message_at(x->in, x->sent[to], width), .out = out};
    a = two_level_item(x->call, COLLECTIVE_ALL_TO_ALLV, &rows);
    a.send_offsets = a.receive_offsets = NULL;
    a.send_counts = sends;
    a.receive_counts = x->comes;
    c = two_level_inside(x->call, &a);
    return comm_algorithm_all_to_allv_direct.run(&c);
}

// Returns the most elements that the ranks of a host send to one rank.
static int64_t step_most(const comm_args *args, int here)
{
    return min_i64(here * args->items[0].count, args->receive_most);
}

static status all_to_allv_run(comm_call *call)
{
    const comm_args *a = call->args;
    const comm_item *item = &a->items[0];
    const int64_t width = dtype_bytes(a->type), number = (int64_t)sizeof(int64_t);
    counted x = {.call = call, .at = place_of(call)};
    const place *p = &x.at;
    const int64_t most = step_most(a, p->here);
    int64_t used = 0, total = 0;
    x.sent = message_scratch(call, &used, (p->hosts + 1) * number);
    x.received = message_scratch(call, &used, (p->hosts + 1) * number);
    x.comes = message_scratch(call, &used, p->here * number);
    void *const gathered = message_scratch(call, &used, most * width);
    begins(p, a->send_counts, x.sent);
    begins(p, a->receive_counts, x.received);
    x.in = input_of(call, item, x.sent[p->hosts] * width, &used);
    TRY(gather_inside(&x, p->host, message_at(item->out, x.received[p->host], width),
                      x.received[p->host + 1] - x.received[p->host], &total));
    comm_call across = two_level_column(call, a);
    for (int step = 1; step < p->hosts; step++) {
        const int to = (p->host + step) % p->hosts, from = (p->host + p->hosts - step) % p->hosts;
        TRY(gather_inside(&x, to, gathered, most, &total));
        TRY(message_trade(&across, to, gathered, total * width, from,
                          message_at(item->out, x.received[from], width),
                          (x.received[from + 1] - x.received[from]) * width));
    }
    return ST_OK;
}

static int64_t all_to_allv_scratch(const comm_args *args, int size)
{
    const int64_t width = dtype_bytes(args->type);
    const bool in_place = args->items[0].in == args->items[0].out;
    const int64_t numbers = align_up((size / 2 + 1) * (int64_t)sizeof(int64_t), ALIGN_TENSOR);
    return 3 * numbers + align_up(step_most(args, size / 2) * width, ALIGN_TENSOR) +
           (in_place ? align_up(args->items[0].count * width, ALIGN_TENSOR) : 0);
}

const comm_algorithm comm_algorithm_all_to_allv_two_level = {
    .name = "two_level",
    .op = COLLECTIVE_ALL_TO_ALLV,
    .order = COMM_ORDER_SHARD,
    .levels = true,
    .bounded = true,
    .run = all_to_allv_run,
    .scratch = all_to_allv_scratch,
};
