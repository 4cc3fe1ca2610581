// The texts of contracts, and of two that differ.
#include "comm/contract.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(comm_contract) == 64, "one cache line");
_Static_assert(offsetof(comm_contract, site) == 56, "the last word is not compared");

uint32_t comm_name_hash(const char *name)
{
    if (name == NULL || name[0] == '\0') return 0;
    const uint64_t h = hash64(name, (int64_t)strlen(name), 0);
    const uint32_t folded = (uint32_t)(h ^ h >> 32);
    return folded != 0 ? folded : 1;
}

const char *comm_contract_text(const comm_contract *k, const char *tensor, char *buffer, int bytes)
{
    const char *of = tensor != NULL && tensor[0] != '\0' ? tensor : "?";
    const char *type = dtype_name((dtype)k->type);
    (void)snprintf(buffer, (size_t)bytes, "%s #%llu of %s (%lld x %s)",
                   op_collective_name((op_collective)k->op), (unsigned long long)k->sequence, of,
                   (long long)k->count, type);
    return buffer;
}

typedef struct difference {
    const char *field;
    char a[160], b[160];
} difference;

static void numbers(difference *d, const char *field, long long a, long long b)
{
    d->field = field;
    (void)snprintf(d->a, sizeof(d->a), "%lld", a);
    (void)snprintf(d->b, sizeof(d->b), "%lld", b);
}

static void names(difference *d, const char *field, const char *a, const char *b)
{
    d->field = field;
    (void)snprintf(d->a, sizeof(d->a), "%s", a != NULL && a[0] != '\0' ? a : "no name");
    (void)snprintf(d->b, sizeof(d->b), "%s", b != NULL && b[0] != '\0' ? b : "no name");
}

// Finds the first field that differs, in the order of how much a field explains.
static void find(const comm_contract *a, const comm_caller *caller_a, const comm_contract *b,
                 const comm_caller *caller_b, difference *d)
{
    if (a->magic != b->magic)
        numbers(d, "version of the protocol", a->magic, b->magic);
    else if (a->job != b->job)
        numbers(d, "job", (long long)a->job, (long long)b->job);
    else if (a->epoch != b->epoch)
        numbers(d, "epoch", a->epoch, b->epoch);
    else if (a->group != b->group)
        numbers(d, "group", a->group, b->group);
    else if (a->sequence != b->sequence) {
        numbers(d, "sequence number", (long long)a->sequence, (long long)b->sequence);
    } else if (a->op != b->op) {
        names(d, "operation", op_collective_name((op_collective)a->op),
              op_collective_name((op_collective)b->op));
    } else if (a->items != b->items) {
        numbers(d, "number of tensors", a->items, b->items);
    } else if (a->tensor != b->tensor && caller_a->tensor != NULL && caller_b->tensor != NULL &&
               strcmp(caller_a->tensor, caller_b->tensor) == 0) {
        names(d, "sizes of the single tensors", "one list", "another");
    } else if (a->tensor != b->tensor)
        names(d, "tensor", caller_a->tensor, caller_b->tensor);
    else if (a->type != b->type) {
        names(d, "type", dtype_name((dtype)a->type), dtype_name((dtype)b->type));
    } else if (a->count != b->count)
        numbers(d, "count", a->count, b->count);
    else if (a->reduction != b->reduction) {
        names(d, "reduction", op_reduction_name((op_reduction)a->reduction),
              op_reduction_name((op_reduction)b->reduction));
    } else if (a->order != b->order) {
        names(d, "order of summation", comm_order_name((comm_order)a->order),
              comm_order_name((comm_order)b->order));
    } else if (a->root != b->root)
        numbers(d, "root", a->root, b->root);
    else if (a->shards != b->shards)
        numbers(d, "shards", a->shards, b->shards);
    else
        numbers(d, "algorithm", a->algorithm, b->algorithm);
}

static void side(const comm_contract *k, const comm_caller *who, const char *value, char *out,
                 size_t bytes)
{
    char what[256];
    const bool has_host = who->host != NULL && who->host[0] != '\0';
    const bool has_site = who->site != NULL && who->site[0] != '\0';
    (void)snprintf(out, bytes, "rank %d%s%s%s has %s in %s%s%s", who->rank, has_host ? " (" : "",
                   has_host ? who->host : "", has_host ? ")" : "", value,
                   comm_contract_text(k, who->tensor, what, sizeof(what)), has_site ? " at " : "",
                   has_site ? who->site : "");
}

status comm_contract_refuse(const char *group, const comm_contract *a, const comm_caller *caller_a,
                            const comm_contract *b, const comm_caller *caller_b)
{
    difference d;
    char one[640], other[640];
    find(a, caller_a, b, caller_b, &d);
    side(a, caller_a, d.a, one, sizeof(one));
    side(b, caller_b, d.b, other, sizeof(other));
    return fail(ST_DIVERGED, "collectives of group %s differ in %s: %s; %s",
                group != NULL && group[0] != '\0' ? group : "?", d.field, one, other);
}
