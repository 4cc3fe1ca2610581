// The common part of the direct algorithms: descriptors, reducers, and the three ways to reach
// operands.
#include "comm/algo/direct.h"

#include "base/hash.h"
#include "comm/peer.h"

#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#    include <immintrin.h>
#endif

// Ordinary and non-temporal stores, 2 ranks, 32 MiB of cache shared with other guests of the host
// (Zen 4): all_gather of 4 MiB 139 and 103 us, of 8 MiB 567 and 334; all_reduce 175 and 195, 873
// and 657.
enum { STREAM_BYTES = 12 << 20 };
static const comm_place nowhere = {.region = COMM_NOWHERE};

struct comm_direct {
    comm_descriptor descriptor;
    comm_reducer reducer;
    uint64_t reducer_key;
    uint64_t inline_key; // key of the reducer, if it is for operands in descriptors; else 0
    comm_term *terms;    // of all ranks
    const char **in;
    char **out;
    int64_t *in_stride, *out_stride;
    int *first; // term of each rank; one more: their number
    int *place; // [term] where it comes in the order of shards, which `terms` and `in` are in
};

status comm_direct_create(int size, comm_direct **out)
{
    comm_direct *d = calloc(1, sizeof(*d));
    if (d != NULL) {
        const size_t n = (size_t)size, terms = n * COMM_MAX_TERMS;
        d->terms = calloc(terms, sizeof(*d->terms));
        d->in = calloc(terms, sizeof(*d->in));
        d->out = calloc(n, sizeof(*d->out));
        d->in_stride = calloc(n * 2, sizeof(*d->in_stride));
        d->first = calloc(n + 1, sizeof(*d->first));
        d->place = calloc(terms, sizeof(*d->place));
        if (d->terms != NULL && d->in != NULL && d->out != NULL && d->in_stride != NULL &&
            d->first != NULL && d->place != NULL) {
            d->out_stride = d->in_stride + n;
            *out = d;
            return ST_OK;
        }
    }
    comm_direct_destroy(d);
    return fail(ST_NO_MEMORY, "no memory for the operations of a group of %d ranks", size);
}

void comm_direct_destroy(comm_direct *d)
{
    if (d == NULL) return;
    free(d->terms);
    free(d->in);
    free(d->out);
    free(d->in_stride);
    free(d->first);
    free(d->place);
    free(d);
}

#ifdef __x86_64__
// Copies with non-temporal stores: ordinary ones would read a large target only to overwrite it.
__attribute__((target("avx2"))) static void copy_stream(char *to, const char *from, int64_t bytes)
{
    const int64_t head = min_i64(bytes, -(int64_t)(uintptr_t)to & 63);
    memcpy(to, from, (size_t)head);
    int64_t at = head;
    for (; at + 128 <= bytes; at += 128) {
        const __m256i *source = (const __m256i *)(const void *)(from + at);
        __m256i *target = (__m256i *)(void *)(to + at);
        const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
        const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
        _mm256_stream_si256(target, a);
        _mm256_stream_si256(target + 1, b);
        _mm256_stream_si256(target + 2, c);
        _mm256_stream_si256(target + 3, d);
    }
    _mm_sfence();
    memcpy(to + at, from + at, (size_t)(bytes - at));
}
#endif

void direct_copy(const direct_view *v, char *to, const char *from, int64_t bytes)
{
    if (bytes <= 0 || to == from) return;
    if (v->call->port->peer != NULL) {
        comm_peer_copy(v->call->port->peer, to, from, bytes);
        return;
    }
#ifdef __x86_64__
    if (v->stream && v->call->vectors == COMM_AVX2) {
        copy_stream(to, from, bytes);
        return;
    }
#endif
    (void)v;
    memcpy(to, from, (size_t)bytes);
}

void direct_reduce(const direct_view *v, const comm_reduce_args *args)
{
    if (v->call->port->peer != NULL) {
        comm_peer_sum(v->call->port->peer, v->reducer, args);
    } else {
        comm_reduce(v->reducer, args);
    }
}

// Uses non-temporal stores if the caches cannot hold the data that all ranks write.
static bool streams(const comm_call *c, int64_t written)
{
    if (c->stores != COMM_STORES_AUTO) return c->stores == COMM_STORES_STREAM;
    return written > STREAM_BYTES;
}

static int64_t cut(int64_t count, int64_t line, int rank, int size)
{
    if (rank == size) return count;
    return count / size * rank / line * line;
}

void direct_share(int64_t count, int64_t width, int rank, int size, int64_t *begin, int64_t *end)
{
    const int64_t line = max_i64(1, 64 / width);
    *begin = cut(count, line, rank, size);
    *end = cut(count, line, rank + 1, size);
}

// ---- before arrive() ----------------------------------------------------------------------------
static comm_shape shape_of(const comm_call *c, int rank)
{
    return comm_shape_of(c->args->op, c->size, rank == c->args->root);
}

// Returns the largest number of pieces of any rank, so all ranks take the same decision.
static int pieces_most(const comm_call *c)
{
    const comm_op_row *row = &comm_op_rows[c->args->op];
    return comm_pieces(row->root_in > row->in ? row->root_in : row->in, c->size);
}

// Returns the largest payload of any rank; -1: it does not fit in a descriptor.
static int64_t inline_bytes(const comm_call *c)
{
    if (c->args->item_count != 1 || c->args->shards > 0 || comm_args_end(c->args)) return -1;
    if (c->port->peer != NULL) return -1; // the host cannot touch them
    const int64_t bytes = c->contract.count * dtype_bytes(c->args->type) * pieces_most(c);
    return bytes <= c->port->inline_bytes ? bytes : -1;
}

static void payload_fill(comm_call *c, comm_descriptor *t)
{
    const comm_item *item = &c->args->items[0];
    const comm_op_row *row = &comm_op_rows[c->args->op];
    const int pieces = comm_pieces(c->rank == c->args->root ? row->root_in : row->in, c->size);
    t->payload_bytes = (int32_t)(pieces * item->count * dtype_bytes(c->args->type));
    if (t->payload_bytes > 0) memcpy(t->payload, item->in, (size_t)t->payload_bytes);
}

// Returns the elements that a rank gives. All ranks have the counts of this rank's item.
static int64_t given(const comm_call *c, const comm_item *item, int rank)
{
    const int pieces = shape_of(c, rank).in_pieces;
    if (c->args->op == COLLECTIVE_ALL_GATHER) return comm_item_piece(item, rank);
    return pieces > 1 ? comm_item_whole(item, pieces) : pieces * item->count;
}

// Makes the places of one item's term. `staged` collects the buffers that peers must or may touch
// and cannot reach.
static comm_entry entry_of(const comm_call *c, const comm_item *item, bool first_term,
                           direct_touch touch, int32_t *staged)
{
    const comm_shape shape = shape_of(c, c->rank);
    const int64_t width = dtype_bytes(c->args->type), bytes = item->count * width;
    comm_entry e = {.count = item->count, .in = nowhere, .out = nowhere};
    const comm_link *link = c->port->link;
    const bool all = c->port->shares_cores, in = touch != DIRECT_PUSH, out = touch != DIRECT_PULL;
    if (shape.in_pieces > 0 && (in || all)) {
        const int64_t gives = given(c, item, c->rank) * width;
        e.in = c->transport->locate(link, item->in, gives);
        if (e.in.region == COMM_PRIVATE && gives > 0) *staged |= in ? COMM_STAGED_IN : COMM_ALONE;
    }
    if (shape.out_pieces > 0 && first_term && (out || all)) {
        e.out = c->transport->locate(link, item->out, bytes * shape.out_pieces);
        if (e.out.region == COMM_PRIVATE && bytes > 0)
            *staged |= out ? COMM_STAGED_OUT : COMM_ALONE;
    }
    return e;
}

static status descriptor_fill(comm_call *c, direct_touch touch, comm_descriptor *t)
{
    const comm_args *a = c->args;
    const int terms = comm_args_terms(a);
    const int64_t entries = (int64_t)a->item_count * terms;
    t->contract = c->contract;
    t->payload_bytes = t->staged = t->brief = 0;
    t->term_count = a->terms != NULL ? a->term_count : 0;
    t->entry_count = 0;
    if (entries == 1 && t->term_count == 0) {
        const comm_entry e = entry_of(c, &a->items[0], true, touch, &t->staged);
        t->in = e.in;
        t->out = e.out;
    } else {
        comm_list *list = NULL;
        TRY(c->transport->list_begin(c->port, entries, &list));
        t->entry_count = (int32_t)entries;
        for (int i = 0; i < t->term_count; i++) list->terms[i] = a->terms[i];
        for (int64_t i = 0; i < entries; i++) {
            list->entries[i] = entry_of(c, &a->items[i], i % terms == 0, touch, &t->staged);
        }
    }
    // all_to_all in place would overwrite data that peers have not read yet.
    for (int i = 0; i < a->item_count && a->op == COLLECTIVE_ALL_TO_ALL && c->size > 1; i++) {
        if (a->items[i].in == a->items[i].out && a->items[i].count > 0) t->staged |= COMM_STAGED_IN;
    }
    return ST_OK;
}

// ---- after arrive() -----------------------------------------------------------------------------
static const comm_descriptor *descriptor_of(const comm_call *c, int rank)
{
    return c->transport->descriptor(c->port, rank);
}

static int terms_of(const comm_descriptor *t)
{
    return t->term_count > 0 ? t->term_count : 1;
}

// Inserts a term by its shard, since ranks may hold shards in any order. Nearly always it is the
// last one.
static void term_add(comm_direct *d, int count, comm_term next)
{
    int at = count;
    for (; at > 0 && d->terms[at - 1].begin > next.begin; at--) d->terms[at] = d->terms[at - 1];
    d->terms[at] = next;
    d->place[count] = at;
    for (int i = 0; i < count && at < count; i++) d->place[i] += d->place[i] >= at;
}

// Makes the reducer of an operation that adds, unless the last operation had the same one.
static status reducer_find(comm_call *c, int terms)
{
    comm_direct *d = c->direct;
    const comm_args *a = c->args;
    const bool sequential = a->order == COMM_ORDER_RANK || (a->shards == 0 && terms <= 2);
    const uint64_t what[4] = {(uint64_t)a->type << 32 | (uint64_t)a->reduction,
                              (uint64_t)terms << 32 | (uint32_t)a->shards, sequential,
                              sequential ? 1
                                         : hash64(d->terms, terms * (int64_t)sizeof(comm_term), 0)};
    const uint64_t key = hash64(what, sizeof(what), 1);
    if (key == d->reducer_key) return ST_OK;
    d->reducer_key = d->inline_key = 0;
    if (sequential) {
        TRY(comm_reducer_sequential(c->vectors, a->type, a->reduction, terms, c->size,
                                    &d->reducer));
    } else {
        TRY(comm_reducer_tree(c->vectors, a->type, a->reduction, d->terms, terms,
                              a->shards > 0 ? a->shards : c->size, c->size, &d->reducer));
    }
    d->reducer_key = key;
    return ST_OK;
}

// Counts the terms.
static status terms_find(comm_call *c)
{
    comm_direct *d = c->direct;
    int count = 0;
    for (int r = 0; r < c->size; r++) {
        const comm_descriptor *t = descriptor_of(c, r);
        d->first[r] = count;
        if (t->term_count < 0 || t->term_count > COMM_MAX_TERMS) {
            return fail(ST_DIVERGED, "rank %d shows %d tree nodes", c->port->members.ranks[r],
                        t->term_count);
        }
        const comm_term own = {.begin = r, .end = r + 1};
        const comm_term *terms = t->term_count > 0 ? c->transport->list(c->port, r)->terms : &own;
        for (int i = 0; i < terms_of(t); i++) term_add(d, count++, terms[i]);
    }
    d->first[c->size] = count;
    return shape_of(c, c->rank).adds ? reducer_find(c, count) : ST_OK;
}

static direct_view view_begin(comm_call *c)
{
    const comm_direct *d = c->direct;
    return (direct_view){.call = c,
                         .rank = c->rank,
                         .width = dtype_bytes(c->args->type),
                         .terms = d->first[c->size],
                         .in = d->in,
                         .out = d->out,
                         .in_stride = d->in_stride,
                         .out_stride = d->out_stride,
                         .reducer = &d->reducer};
}

// Every rank has one term, so a repeated operation needs no search.
static status inline_reducer(comm_call *c)
{
    comm_direct *d = c->direct;
    const comm_args *a = c->args;
    const uint64_t key = UINT64_C(1) << 63 | (uint64_t)a->type << 16 | (uint64_t)a->reduction << 8 |
                         (uint64_t)a->order;
    if (!comm_op_rows[a->op].adds || key == d->inline_key) return ST_OK;
    for (int r = 0; r < c->size; r++) d->terms[r] = (comm_term){.begin = r, .end = r + 1};
    TRY(reducer_find(c, c->size));
    d->inline_key = key;
    return ST_OK;
}

static status run_inline(comm_call *c, direct_core core)
{
    comm_direct *d = c->direct;
    const comm_item *item = &c->args->items[0];
    TRY(inline_reducer(c));
    direct_view v = view_begin(c);
    v.terms = c->size;
    v.item = item;
    v.count = v.end = item->count;
    v.is_inline = true;
    for (int r = 0; r < c->size; r++) {
        d->in[r] = c->transport->payload(c->port, r);
        d->out[r] = r == c->rank ? item->out : NULL;
        d->in_stride[r] = d->out_stride[r] = item->count * v.width;
    }
    core(&v);
    return ST_OK;
}

// ---- in place -----------------------------------------------------------------------------------
static status reach(comm_call *c, int rank, comm_place place, const void *own, int64_t bytes,
                    void **out)
{
    *out = NULL;
    if (rank == c->rank) { // casts const away: `in` is only read
        memcpy(out, &own, sizeof(own));
        return ST_OK;
    }
    if (place.region < 0 || bytes == 0) return ST_OK;
    return c->transport->address(c->port, rank, place, bytes, out);
}

// Gives entry `i`, term `l` of a rank's tensors.
static status entry_at(comm_call *c, int rank, int i, int l, comm_entry *out)
{
    const comm_descriptor *t = descriptor_of(c, rank);
    if (t->entry_count == 0) {
        *out = (comm_entry){.count = c->contract.count, .in = t->in, .out = t->out};
        return ST_OK;
    }
    *out = c->transport->list(c->port, rank)->entries[i * terms_of(t) + l];
    const int64_t mine = c->args->items[(int64_t)i * comm_args_terms(c->args)].count;
    if (out->count == mine && t->entry_count == c->args->item_count * terms_of(t)) return ST_OK;
    return fail(ST_DIVERGED, "tensor %d of %s has %lld elements on rank %d and %lld on rank %d", i,
                c->args->tensor, (long long)out->count, c->port->members.ranks[rank],
                (long long)mine, c->port->members.ranks[c->rank]);
}

static status view_of_item(comm_call *c, int i, direct_view *v)
{
    comm_direct *d = c->direct;
    const comm_item *own = &c->args->items[(int64_t)i * comm_args_terms(c->args)];
    const int64_t bytes = own->count * v->width;
    for (int r = 0; r < c->size; r++) {
        const comm_shape shape = shape_of(c, r);
        comm_entry e;
        for (int t = d->first[r]; t < d->first[r + 1]; t++) {
            const int term = t - d->first[r];
            void *at = NULL;
            TRY(entry_at(c, r, i, term, &e));
            if (r != v->rank && v->touch == DIRECT_PUSH) e.in = nowhere; // not to be mapped
            if (r != v->rank && v->touch == DIRECT_PULL) e.out = nowhere;
            TRY(reach(c, r, e.in, r == c->rank ? own[term].in : NULL, given(c, own, r) * v->width,
                      &at));
            d->in[d->place[t]] = at;
            if (term > 0) continue;
            TRY(reach(c, r, e.out, own->out, bytes * shape.out_pieces, &at));
            d->out[r] = at;
        }
        d->in_stride[r] = d->out_stride[r] = bytes;
    }
    v->item = own;
    v->count = own->count;
    return ST_OK;
}

// Rank r does its share of all tensors taken as one vector, so small ones are divided too.
static status share_run(comm_call *c, int rank, direct_touch touch, direct_core core)
{
    direct_view v = view_begin(c);
    int64_t begin, end, before = 0;
    v.rank = rank;
    v.touch = touch;
    direct_share(c->contract.count, v.width, rank, c->size, &begin, &end);
    for (int i = 0; i < c->args->item_count; i++) {
        TRY(view_of_item(c, i, &v));
        v.begin = min_i64(max_i64(begin - before, 0), v.count);
        v.end = min_i64(max_i64(end - before, 0), v.count);
        before += v.count;
        const comm_shape shape = comm_shape_of(c->args->op, c->size, true);
        v.stream = streams(c, v.count * v.width * shape.out_pieces * c->size);
        if (v.count > 0) core(&v);
    }
    return ST_OK;
}

status direct_end(comm_call *c, status st)
{
    comm_peer *peer = c->port->peer;
    const status done = peer != NULL ? comm_peer_wait(peer) : ST_OK; // of what was posted
    TRY(st);
    TRY(done);
    return c->transport->depart(c->port);
}

// If two ranks share a core, the first to arrive yields it to the other, which then does the shares
// of both; that saves a context switch. The bits do not depend on the rank that adds.
static status run_place(comm_call *c, direct_touch touch, direct_core core)
{
    const comm_transport *t = c->transport;
    if (t->steal == NULL || !c->port->shares_cores || c->port->peer != NULL) {
        TRY(terms_find(c));
        return direct_end(c, share_run(c, c->rank, touch, core));
    }
    bool found = false;
    for (int r = t->steal(c->port); r >= 0; r = t->steal(c->port)) {
        if (!found) TRY(terms_find(c));
        found = true;
        TRY(share_run(c, r, touch, core));
        t->complete(c->port, r);
    }
    return t->wait_all(c->port);
}

// ---- staged -------------------------------------------------------------------------------------
typedef struct staging {
    comm_call *c;
    direct_touch touch;
    int64_t chunk;          // elements of each piece in a round
    int64_t item, from, to; // elements [from, to) of each piece of this item
    int any;                // buffers that are staged on any rank
} staging;

static char *stage_piece(const staging *s, char *stage, int piece)
{
    return stage + piece * s->chunk * dtype_bytes(s->c->args->type);
}

// Returns where the round ends in piece p of this rank's operand.
static int64_t given_end(const staging *s, const comm_item *item, int p)
{
    const op_collective op = s->c->args->op;
    if (op != COLLECTIVE_ALL_GATHER && op != COLLECTIVE_REDUCE_SCATTER) return s->to;
    return min_i64(s->to, comm_item_piece(item, op == COLLECTIVE_ALL_GATHER ? s->c->rank : p));
}

static void copy_in(const staging *s, char *stage)
{
    const comm_call *c = s->c;
    const int64_t width = dtype_bytes(c->args->type);
    const int terms = comm_args_terms(c->args), pieces = shape_of(c, c->rank).in_pieces;
    const comm_item *items = &c->args->items[s->item * terms];
    for (int l = 0; l < terms; l++) {
        for (int p = 0; p < pieces; p++) {
            const int64_t end = given_end(s, items, p);
            if (end <= s->from) continue;
            memcpy(stage_piece(s, stage, l * pieces + p),
                   (const char *)items[l].in + (p * items[l].count + s->from) * width,
                   (size_t)((end - s->from) * width));
        }
    }
}

static void copy_out(const staging *s, char *stage)
{
    const comm_call *c = s->c;
    const int64_t width = dtype_bytes(c->args->type);
    const comm_item *item = &c->args->items[s->item * comm_args_terms(c->args)];
    for (int p = 0; p < shape_of(c, c->rank).out_pieces; p++) {
        memcpy((char *)item->out + (p * item->count + s->from) * width, stage_piece(s, stage, p),
               (size_t)((s->to - s->from) * width));
    }
}

// Moves the addresses of a whole item to the elements of this round, or into the stages.
static status view_of_round(const staging *s, direct_view *v)
{
    comm_call *c = s->c;
    comm_direct *d = c->direct;
    const bool in_staged = s->touch != DIRECT_PUSH, out_staged = s->touch != DIRECT_PULL;
    for (int r = 0; r < c->size; r++) {
        const comm_item *own = &c->args->items[s->item * comm_args_terms(c->args)];
        const int pieces = shape_of(c, r).in_pieces;
        void *at = NULL;
        TRY(c->transport->stage(c->port, r, &at));
        for (int t = d->first[r]; t < d->first[r + 1]; t++) {
            const int term = t - d->first[r];
            d->in[d->place[t]] = in_staged ? stage_piece(s, at, term * pieces)
                                 : r == c->rank && pieces > 0
                                     ? (const char *)own[term].in + s->from * v->width
                                     : NULL;
        }
        d->out[r] = out_staged                         ? (shape_of(c, r).out_pieces > 0 ? at : NULL)
                    : r == c->rank && own->out != NULL ? (char *)own->out + s->from * v->width
                                                       : NULL;
        d->in_stride[r] = (in_staged ? s->chunk : own->count) * v->width;
        d->out_stride[r] = (out_staged ? s->chunk : own->count) * v->width;
    }
    v->item = &c->args->items[s->item * comm_args_terms(c->args)];
    v->from = s->from;
    v->count = s->to - s->from;
    direct_share(v->count, v->width, c->rank, c->size, &v->begin, &v->end);
    return ST_OK;
}

static status round_run(const staging *s, direct_core core)
{
    comm_call *c = s->c;
    void *stage = NULL;
    TRY(c->transport->stage(c->port, c->rank, &stage));
    if (s->touch != DIRECT_PUSH) copy_in(s, stage);
    TRY(c->transport->depart(c->port));
    direct_view v = view_begin(c);
    TRY(view_of_round(s, &v));
    core(&v);
    TRY(c->transport->depart(c->port));
    const comm_item *own = &c->args->items[s->item * comm_args_terms(c->args)];
    if (s->touch != DIRECT_PULL && own->out != NULL) copy_out(s, stage);
    return ST_OK;
}

static status run_staged(comm_call *c, direct_touch touch, direct_core core)
{
    const int64_t width = dtype_bytes(c->args->type);
    const comm_shape root = comm_shape_of(c->args->op, c->size, true);
    int64_t most = 1; // pieces that a stage holds
    for (int r = 0; r < c->size; r++) {
        const int64_t in = (int64_t)shape_of(c, r).in_pieces * terms_of(descriptor_of(c, r));
        most = max_i64(most, touch != DIRECT_PUSH ? in : 0);
    }
    if (touch != DIRECT_PULL) most = max_i64(most, root.out_pieces);
    staging s = {.c = c, .touch = touch, .chunk = COMM_STAGE_BYTES / most / 64 * 64 / width};
    if (s.chunk < 1) {
        return fail(ST_UNSUPPORTED,
                    "%s of %d ranks with private buffers: too many pieces for a stage; "
                    "put them in shared memory",
                    op_collective_name(c->args->op), c->size);
    }
    const int terms = comm_args_terms(c->args);
    for (s.item = 0; s.item < c->args->item_count; s.item++) {
        const int64_t count = c->args->items[s.item * terms].count;
        for (s.from = 0; s.from < count; s.from = s.to) {
            s.to = min_i64(count, s.from + s.chunk);
            TRY(round_run(&s, core));
        }
    }
    return ST_OK;
}

comm_descriptor *direct_descriptor(comm_call *c)
{
    comm_descriptor *t = &c->direct->descriptor;
    t->contract = c->contract;
    t->entry_count = t->term_count = t->staged = t->brief = 0;
    return t;
}

status direct_is_outside(const comm_call *c, int r)
{
    return fail(ST_DIVERGED,
                "%s of %s: the buffers of rank %d lie outside of the memory that GPUs share",
                op_collective_name(c->args->op), c->args->tensor, c->port->members.ranks[r]);
}

status direct_run(comm_call *c, direct_touch touch, direct_core core)
{
    comm_descriptor *t = &c->direct->descriptor;
    const int64_t bytes = inline_bytes(c);
    const bool small = bytes >= 0;
    if (small) {
        direct_descriptor(c)->brief = bytes <= COMM_BRIEF_BYTES;
        t->in = t->out = nowhere;
        payload_fill(c, t);
    } else {
        TRY(descriptor_fill(c, touch, t));
    }
    TRY(c->transport->arrive(c->port, t));
    if (small) return run_inline(c, core);
    int staged = 0;
    for (int r = 0; r < c->size; r++) staged |= descriptor_of(c, r)->staged;
    if ((staged & COMM_STAGED) == 0) return run_place(c, touch, core);
    for (int r = 0; r < c->size && c->port->peer != NULL; r++) {
        if ((descriptor_of(c, r)->staged & COMM_STAGED) != 0) return direct_is_outside(c, r);
    }
    TRY(terms_find(c));
    return run_staged(c, touch, core);
}
