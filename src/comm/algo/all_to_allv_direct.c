// All-to-all with counts per pair: each rank lists a piece per peer, and copies its pieces from all
// lists. The count of the sender and that of the receiver must agree.
#include "comm/algo/algo_table.h"
#include "comm/algo/direct.h"
#include "comm/peer.h"

#include <string.h>

// Gives the piece that rank `r` sends to rank `to`.
static const comm_entry *piece(const comm_call *c, int r, int to)
{
    return &c->transport->list(c->port, r)->entries[to];
}

static status show(comm_call *c)
{
    const comm_args *a = c->args;
    const int64_t width = dtype_bytes(a->type);
    comm_list *list = NULL;
    comm_descriptor t = {.contract = c->contract, .entry_count = c->size};
    int64_t at = 0, total = 0;
    TRY(c->transport->list_begin(c->port, c->size, &list));
    for (int i = 0; i < c->size; i++) total += a->send_counts[i] * width;
    t.in = c->transport->locate(c->port->link, a->items[0].in, total);
    t.out = (comm_place){.region = COMM_NOWHERE};
    const bool in_place = a->items[0].in == a->items[0].out && c->size > 1;
    if (total > 0 && (t.in.region == COMM_PRIVATE || in_place)) t.staged = COMM_STAGED_IN;
    for (int i = 0; i < c->size; i++) {
        list->entries[i] = (comm_entry){.count = a->send_counts[i], .in = t.in};
        list->entries[i].in.offset += at;
        at += a->send_counts[i] * width;
    }
    return c->transport->arrive(c->port, &t);
}

static status counts_check(const comm_call *c)
{
    const int32_t *ranks = c->port->members.ranks;
    for (int r = 0; r < c->size; r++) {
        const int64_t sent = piece(c, r, c->rank)->count;
        if (sent == c->args->receive_counts[r]) continue;
        return fail(
            ST_DIVERGED,
            "all_to_allv #%llu of %s: rank %d sends %lld elements to rank %d, which expects "
            "%lld at %s",
            (unsigned long long)c->contract.sequence,
            c->args->tensor != NULL ? c->args->tensor : "?", ranks[r], (long long)sent,
            ranks[c->rank], (long long)c->args->receive_counts[r],
            c->args->site != NULL ? c->args->site : "?");
    }
    return ST_OK;
}

// Copies all pieces, or posts the copies to the stream of a GPU.
static status pieces_copy(comm_call *c)
{
    const int64_t width = dtype_bytes(c->args->type);
    char *out = c->args->items[0].out;
    int64_t at = 0, own = 0;
    for (int i = 0; i < c->rank; i++) own += c->args->send_counts[i] * width;
    for (int r = 0; r < c->size; r++) {
        const comm_entry *e = piece(c, r, c->rank);
        const int64_t bytes = c->args->receive_counts[r] * width;
        void *theirs = NULL;
        if (bytes == 0) continue; // then a buffer may be missing
        if (r != c->rank) TRY(c->transport->address(c->port, r, e->in, bytes, &theirs));
        const void *from = r != c->rank ? theirs : (const char *)c->args->items[0].in + own;
        if (c->port->peer != NULL) {
            comm_peer_copy(c->port->peer, out + at, from, bytes);
        } else {
            memmove(out + at, from, (size_t)bytes);
        }
        at += bytes;
    }
    return ST_OK;
}

// In place, a round would write where the next one reads, so the scratch holds a copy of the whole
// input.
static status run_staged(comm_call *c)
{
    const int64_t width = dtype_bytes(c->args->type);
    const int64_t share = COMM_STAGE_BYTES / c->size / 64 * 64;
    int64_t most = 0;
    void *own = NULL, *theirs = NULL;
    for (int r = 0; r < c->size; r++) {
        for (int to = 0; to < c->size; to++) most = max_i64(most, piece(c, r, to)->count * width);
    }
    TRY(c->transport->stage(c->port, c->rank, &own));
    const char *in = c->args->items[0].in;
    if (in == c->args->items[0].out && c->scratch_bytes > 0) {
        memcpy(c->scratch, in, (size_t)c->scratch_bytes);
        in = c->scratch;
    }
    for (int64_t from = 0; from < most; from += share) {
        int64_t at = 0;
        for (int to = 0; to < c->size; to++) {
            const int64_t bytes = c->args->send_counts[to] * width;
            const int64_t part = min_i64(max_i64(bytes - from, 0), share);
            if (part > 0) memcpy((char *)own + to * share, in + at + from, (size_t)part);
            at += bytes;
        }
        TRY(c->transport->depart(c->port));
        at = 0;
        for (int r = 0; r < c->size; r++) {
            const int64_t bytes = c->args->receive_counts[r] * width;
            const int64_t part = min_i64(max_i64(bytes - from, 0), share);
            TRY(c->transport->stage(c->port, r, &theirs));
            if (part > 0) {
                memcpy((char *)c->args->items[0].out + at + from,
                       (const char *)theirs + c->rank * share, (size_t)part);
            }
            at += bytes;
        }
        TRY(c->transport->depart(c->port));
    }
    return ST_OK;
}

static status run(comm_call *c)
{
    TRY(show(c));
    TRY(counts_check(c));
    int staged = 0;
    for (int r = 0; r < c->size; r++) {
        const int32_t theirs = c->transport->descriptor(c->port, r)->staged;
        if (theirs != 0 && c->port->peer != NULL) return direct_is_outside(c, r);
        staged |= theirs;
    }
    return staged != 0 ? run_staged(c) : direct_end(c, pieces_copy(c));
}

static int64_t scratch(const comm_args *args, int size)
{
    if (args->items[0].in != args->items[0].out || args->items[0].in == NULL) return 0;
    int64_t bytes = 0;
    for (int i = 0; i < size; i++) bytes += args->send_counts[i] * dtype_bytes(args->type);
    return bytes;
}

const comm_algorithm comm_algorithm_all_to_allv_direct = {
    .name = "direct",
    .op = COLLECTIVE_ALL_TO_ALLV,
    .order = COMM_ORDER_SHARD,
    .direct = true,
    .items = true,
    .run = run,
    .scratch = scratch,
};
