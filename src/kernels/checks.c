// The record of checked products: which of them are checked, and what was found.
//
// Several streams of a device may multiply at the same time, so counts are atomic and findings are
// kept under a lock, which only a finding takes.
#include "kernels/kernels_internal.h"

#include "base/fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct kern_checks {
    double share;
    int rank;
    char fault[48];
    _Atomic(int64_t) seen, checked, repeated, repaired;
    _Atomic(bool) has_failed;
    pthread_mutex_t lock;
    kern_hit last, failure;
};

status kern_checks_create(arena *a, double share, kern_checks **out)
{
    ASSERT(share > 0.0 && share <= 1.0);
    TRY(arena_new(a, 1, out));
    (*out)->share = share;
    pthread_mutex_init(&(*out)->lock, NULL);
    kern_checks_begin(*out, 0);
    return ST_OK;
}

void kern_checks_begin(kern_checks *k, int rank)
{
    k->rank = rank;
    k->seen = k->checked = k->repeated = k->repaired = 0;
    k->has_failed = false;
    (void)snprintf(k->fault, sizeof(k->fault), "kernels.product.%d", rank);
}

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195).
static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

bool kern_checks_draw(kern_checks *k)
{
    const int64_t number = atomic_fetch_add(&k->seen, 1);
    if (k->share < 1.0) {
        const uint64_t x = mixed(((uint64_t)number + 1) * 0x9E3779B97F4A7C15u);
        if ((double)(x >> 11) * 0x1p-53 >= k->share) return false;
    }
    atomic_fetch_add(&k->checked, 1);
    return true;
}

bool kern_checks_flips(kern_checks *k, uint64_t *where)
{
    if (fault_point(k->fault) == ST_OK) return false;
    error_clear();
    const uint64_t number = (uint64_t)fault_hits(k->fault) + ((uint64_t)k->rank << 32);
    *where = mixed(number * 0x9E3779B97F4A7C15u);
    return true;
}

void kern_checks_repeated(kern_checks *k)
{
    atomic_fetch_add(&k->repeated, 1);
}

void kern_checks_repaired(kern_checks *k, const kern_hit *hit)
{
    pthread_mutex_lock(&k->lock);
    k->last = *hit;
    atomic_fetch_add(&k->repaired, 1);
    pthread_mutex_unlock(&k->lock);
}

void kern_checks_failed(kern_checks *k, const kern_hit *hit)
{
    pthread_mutex_lock(&k->lock);
    if (!k->has_failed) k->failure = *hit;
    k->has_failed = true;
    pthread_mutex_unlock(&k->lock);
}

bool kern_checks_has_failed(const kern_checks *k)
{
    return k != NULL && k->has_failed;
}

void kern_hit_print(const kern_hit *hit, char out[KERN_HIT_BYTES])
{
    char layer[32] = "";
    if (hit->layer >= 0) (void)snprintf(layer, sizeof(layer), " of layer %d", hit->layer);
    (void)snprintf(out, KERN_HIT_BYTES, "%s%s, micro-batch %d, row %lld of %lld",
                   op_kind_of(hit->code)->name, layer, hit->microbatch, (long long)hit->row,
                   (long long)hit->rows);
}

status kern_checks_status(kern_checks *k)
{
    char what[KERN_HIT_BYTES];
    if (k == NULL || !k->has_failed) return ST_OK;
    const kern_hit *hit = &k->failure;
    kern_hit_print(hit, what);
    return fail(ST_CORRUPT,
                "step %d: the product %s is wrong on rank %d, also when computed again: its sum is "
                "off by %.3g, and rounding explains %.3g; a processor or memory of rank %d has "
                "returned a wrong value",
                hit->step, what, k->rank, hit->off, hit->limit, k->rank);
}

kern_checks_facts kern_checks_read(kern_checks *k)
{
    kern_checks_facts f = {0};
    if (k == NULL) return f;
    pthread_mutex_lock(&k->lock);
    f.seen = k->seen;
    f.checked = k->checked;
    f.repeated = k->repeated;
    f.repaired = k->repaired;
    f.last = k->last;
    pthread_mutex_unlock(&k->lock);
    return f;
}
