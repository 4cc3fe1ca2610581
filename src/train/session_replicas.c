// sdc.digests: the ranks compare the state that several of them hold. A difference means that a
// processor or memory has returned a wrong value. They also do so after each copy for a checkpoint
// was taken and before it is written, so a value that changes at any time is in no checkpoint, or
// stops the run first.
#include "train/session.h"

#include <string.h>

static status hashes_exchange(session *s, arena *a, const uint64_t *mine, int64_t count,
                              uint64_t **all)
{
    const int64_t ranks = comm_ranks(s->ranks.all);
    TRY(arena_new(a, ranks * count + 1, all));
    const comm_item item = {.in = mine, .out = *all, .count = count * 8};
    const comm_args args = {.op = COLLECTIVE_ALL_GATHER,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "digests of the state",
                            .site = __func__,
                            .step = s->step};
    return comm_run(s->ranks.hosts, &args);
}

static status fault_fail(const session *s, const ckpt_replica_fault *f)
{
    const long long step = (long long)s->step;
    if (f->with < f->against) {
        return fail(ST_CORRUPT,
                    "step %lld: %s of rank %lld differs from that of %lld ranks that agree; a "
                    "processor or memory of rank %lld has returned a wrong value",
                    step, f->name, (long long)f->rank, (long long)f->against, (long long)f->rank);
    }
    return fail(ST_CORRUPT,
                "step %lld: %s differs between rank %lld and rank %lld, and no majority says "
                "which is right; a processor or memory has returned a wrong value",
                step, f->name, (long long)f->rank, (long long)f->other);
}

status session_replicas_check(session *s)
{
    if (s->r->sdc.digests == 0 || s->ranks.all == NULL) return ST_OK;
    arena *a = NULL;
    uint64_t *mine = NULL, *all = NULL;
    int64_t count = 0;
    ckpt_replica_fault fault = {0};
    TRY(arena_create("replicas", 0, &a));
    status st = ckpt_replicas_hash(&s->job.state, a, &mine, &count);
    if (st == ST_OK) st = hashes_exchange(s, a, mine, count, &all);
    if (st == ST_OK) {
        st = ckpt_replicas_compare(&s->job.state, a, all, comm_ranks(s->ranks.all), &fault);
    }
    arena_destroy(a);
    TRY(st);
    return fault.found ? fault_fail(s, &fault) : ST_OK;
}
