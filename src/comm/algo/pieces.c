// Order `shard` over messages: every rank sends its terms of part k to rank k, which adds the terms
// of all ranks by the tree over shards. No partial sum ever travels, so ranks, hosts and routes
// leave no trace in the bits, and narrow floats travel narrow.
//
//   rank 0 has nodes [0,2) [2,3), gets part 0 of [3,4) [4,8) from rank 1, and makes
//          ([0,2) + ([2,3) + [3,4))) + [4,8)
//   rank 1 has nodes [3,4) [4,8), and gets part 1 of [0,2) [2,3)
//
// Cost: n - 1 latencies per block; with one node per rank (n - 1) / n of the bytes, which is the
// minimum. Received terms are cut into blocks, so scratch does not grow with the tensor. Each rank
// first sends the list of its nodes to every other rank in a message of 136 bytes, unless every
// rank has one node, its own number.
#include "comm/algo/pieces.h"

#include "comm/args.h"

#include <string.h>

enum { PIECES_BLOCK_BYTES = 4 << 20 }; // of terms at a time

typedef struct node_list {
    comm_term terms[COMM_MAX_TERMS];
    int32_t count, shards;
} node_list;

// One term of the sums of this rank.
typedef struct node_term {
    comm_term term;
    int32_t rank, term_idx;
} node_term;

// The state of the call, at the begin of its scratch; the tables follow.
typedef struct pieces {
    comm_call *call;
    pieces_scope scope;
    int64_t width;
    unsigned char *apart;
    int32_t own_terms, shards, term_count;
    node_list *lists; // by rank
    node_term *terms; // ascending
    const void **in;  // of each term: this rank's own, or where its block arrives
    unsigned char *blocks;
    int64_t block; // elements of a term at a time
    comm_reducer reducer;
} pieces;

static int64_t terms_most(const comm_args *args, int size)
{
    if (args->terms == NULL || args->term_count == 0) return size;
    return min_i64(min_i64(args->shards, (int64_t)size * COMM_MAX_TERMS), COMM_REDUCE_MAX_TERMS);
}

// Returns the bytes of the tables before the blocks.
static int64_t tables_bytes(int64_t terms, int size)
{
    return align_up((int64_t)sizeof(pieces), ALIGN_TENSOR) +
           align_up(size * (int64_t)sizeof(node_list), ALIGN_TENSOR) +
           align_up(terms * (int64_t)sizeof(node_term), ALIGN_TENSOR) +
           align_up(terms * (int64_t)sizeof(void *), ALIGN_TENSOR);
}

// Elements of a term at a time: the same number on all ranks.
static int64_t block_count(const comm_args *args, int64_t terms)
{
    const int64_t most = max_i64(PIECES_BLOCK_BYTES / (terms * dtype_bytes(args->type)), 1);
    return min_i64(most, max_i64(message_largest(args), 1));
}

int64_t pieces_scratch(const comm_args *args, int size)
{
    const int64_t terms = terms_most(args, size);
    return tables_bytes(terms, size) + terms * block_count(args, terms) * dtype_bytes(args->type);
}

// ---- which nodes there are ---------------------------------------------------------------------
static status lists_trade(pieces *p)
{
    comm_call *call = p->call;
    const comm_args *a = call->args;
    const int n = call->size, rank = call->rank;
    const bool given = a->terms != NULL && a->term_count > 0;
    p->own_terms = comm_args_terms(a);
    p->shards = given ? a->shards : n;
    for (int r = 0; r < n && !given; r++) {
        p->lists[r] = (node_list){.terms = {{r, r + 1}}, .count = 1, .shards = n};
    }
    if (!given) return ST_OK;
    memset(&p->lists[rank], 0, sizeof(node_list));
    memcpy(p->lists[rank].terms, a->terms, (size_t)a->term_count * sizeof(comm_term));
    p->lists[rank].count = a->term_count;
    p->lists[rank].shards = a->shards;
    const int64_t bytes = (int64_t)sizeof(node_list);
    for (int step = 1; step < n; step++) {
        const int to = (rank + step) % n, from = (rank + n - step) % n;
        TRY(message_trade(call, to, &p->lists[rank], bytes, from, &p->lists[from], bytes));
    }
    return ST_OK;
}

// Sorts the terms of all ranks in ascending order; comm_reducer_tree refuses terms that are no
// forest of nodes.
static status terms_sort(pieces *p, int64_t most)
{
    p->term_count = 0;
    for (int r = 0; r < p->call->size; r++) {
        const node_list *list = &p->lists[r];
        if (list->count < 1 || list->count > COMM_MAX_TERMS || list->shards != p->shards ||
            p->term_count + list->count > most) {
            return fail(ST_DIVERGED, "rank %d of the group has %d nodes of %d shards; %d of %d fit",
                        r, list->count, list->shards, (int)most - p->term_count, p->shards);
        }
        for (int32_t k = 0; k < list->count; k++) {
            int32_t at = p->term_count++;
            for (; at > 0 && p->terms[at - 1].term.begin > list->terms[k].begin; at--) {
                p->terms[at] = p->terms[at - 1];
            }
            p->terms[at] = (node_term){list->terms[k], r, k};
        }
    }
    return ST_OK;
}

static status reducer_make(pieces *p, int64_t most)
{
    const comm_args *a = p->call->args;
    TRY(terms_sort(p, most));
    // The sorted terms lie in the memory that later holds the pointers; it is large enough for
    // both.
    _Static_assert(sizeof(comm_term) <= sizeof(void *), "terms fit in the place of pointers");
    comm_term *terms = (comm_term *)(void *)p->in;
    for (int32_t t = 0; t < p->term_count; t++) terms[t] = p->terms[t].term;
    return comm_reducer_tree(p->call->vectors, a->type, a->reduction, terms, p->term_count,
                             p->shards, p->call->size, &p->reducer);
}

// ---- one tensor --------------------------------------------------------------------------------
static message_part part_of(const pieces *p, const message_cut *cut, int rank)
{
    if (p->scope == PIECES_PARTS) return message_cut_part(cut, rank);
    const bool has = p->scope == PIECES_ALL || rank == p->call->args->root;
    return (message_part){0, has ? cut->total : 0};
}

// Elements [done, done + block) of a part.
static message_part block_of(const pieces *p, message_part part, int64_t done)
{
    const int64_t count = max_i64(min_i64(part.count - done, p->block), 0);
    return (message_part){part.begin + done, count};
}

// A block of each of my nodes to the rank whose part it is; each of its nodes' blocks of my part
// from another. The numbers of nodes may differ. The first block travels even if it is empty.
static status block_trade(pieces *p, const comm_item *items, int to, message_part theirs, int from,
                          message_part mine, bool first)
{
    const int sends = theirs.count > 0 || first ? p->own_terms : 0;
    const int receives = mine.count > 0 || first ? p->lists[from].count : 0;
    int32_t t = 0;
    for (int k = 0; k < sends || k < receives; k++) {
        comm_message send = {.peer = -1}, receive = {.peer = -1};
        if (k < sends) {
            send = (comm_message){.peer = to,
                                  .send = message_at(items[k].in, theirs.begin, p->width),
                                  .bytes = theirs.count * p->width};
        }
        if (k < receives) {
            while (p->terms[t].rank != from || p->terms[t].term_idx != k)
                t = (t + 1) % p->term_count;
            void *at = p->blocks + t * p->block * p->width;
            p->in[t] = at;
            receive = (comm_message){.peer = from, .receive = at, .bytes = mine.count * p->width};
        }
        TRY(p->call->transport->exchange(p->call->port, &p->call->contract, send, receive));
    }
    return ST_OK;
}

static status tensor_sum(pieces *p, const comm_item *items)
{
    const int n = p->call->size, rank = p->call->rank;
    const bool scatters = p->call->args->op == COLLECTIVE_REDUCE_SCATTER;
    const message_cut shares = {.total = items[0].count, .parts = n};
    const message_cut cut = scatters ? message_cut_item(items, n) : shares;
    const message_part own = part_of(p, &cut, rank);
    const int64_t longest = p->scope == PIECES_PARTS ? message_cut_part(&cut, 0).count : cut.total;
    for (int64_t done = 0; done == 0 || done < longest; done += p->block) {
        const message_part mine = block_of(p, own, done);
        for (int step = 1; step < n; step++) {
            const int to = (rank + step) % n, from = (rank + n - step) % n;
            const message_part theirs = block_of(p, part_of(p, &cut, to), done);
            TRY(block_trade(p, items, to, theirs, from, mine, done == 0));
        }
        if (mine.count == 0) continue;
        for (int32_t t = 0; t < p->term_count; t++) {
            if (p->terms[t].rank != rank) continue;
            p->in[t] = message_at(items[p->terms[t].term_idx].in, mine.begin, p->width);
        }
        void *out = p->apart != NULL ? message_at(p->apart, done, p->width)
                    : scatters       ? message_at(items[0].out, done, p->width)
                                     : message_at(items[0].out, mine.begin, p->width);
        comm_reduce(&p->reducer,
                    &(comm_reduce_args){.in = p->in, .out = &out, .outs = 1, .count = mine.count});
    }
    return ST_OK;
}

status pieces_run(comm_call *call, pieces_scope scope, void *apart)
{
    const comm_args *a = call->args;
    const int64_t most = terms_most(a, call->size);
    if (call->size > COMM_REDUCE_MAX_TERMS) {
        return fail(ST_UNSUPPORTED, "a sum in order shard over %d ranks; %d can be", call->size,
                    COMM_REDUCE_MAX_TERMS);
    }
    int64_t used = 0;
    pieces *p = message_scratch(call, &used, (int64_t)sizeof(pieces));
    p->call = call;
    p->scope = scope;
    p->apart = apart;
    p->width = dtype_bytes(a->type);
    p->lists = message_scratch(call, &used, call->size * (int64_t)sizeof(node_list));
    p->terms = message_scratch(call, &used, most * (int64_t)sizeof(node_term));
    p->in = message_scratch(call, &used, most * (int64_t)sizeof(void *));
    p->block = block_count(a, most);
    p->blocks = message_scratch(call, &used, most * p->block * p->width);
    TRY(lists_trade(p));
    TRY(reducer_make(p, most));
    for (int i = 0; i < a->item_count; i++) {
        TRY(tensor_sum(p, &a->items[(int64_t)i * p->own_terms]));
    }
    return ST_OK;
}
