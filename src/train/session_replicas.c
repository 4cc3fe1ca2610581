// sdc.digests: the ranks compare the state that several of them hold, and the gradients of all
// steps since the session began. A difference means that a processor or memory has returned a wrong
// value. They also do so after each copy for a checkpoint was taken and before it is written, so a
// value that changes at any time is in no checkpoint, or stops the run first.
#include "train/gradients.h"
#include "train/session.h"

// Each rank hashes the gradients that it applies, inside the steps.
static status gradients_open(session *s)
{
    comm_memory *memory = s->job.shared.memory;
    train_watch *watches = s->objective.watches;
    const train_gradients g = {.e = s->job.e,
                               .base = memory != NULL ? comm_memory_at(memory) : NULL,
                               .rank = comm_rank(s->ranks.all),
                               .hashes = ckpt_replicas_gradients(s->replicas.own)};
    if (!s->objective.is_watched) {
        TRY(arena_new(s->a, s->plans.count, &watches));
        for (int64_t i = 0; i < s->plans.count; i++) watches[i].p = s->plans.all[i];
    }
    return train_gradients_watch(s->a, &g, watches, s->plans.count);
}

status session_replicas_open(session *s)
{
    const bool compares = s->r->sdc.digests > 0 && s->ranks.all != NULL;
    if (!compares && session_record_every(s) == 0) return ST_OK;
    const int64_t ranks = s->ranks.all != NULL ? comm_ranks(s->ranks.all) : 1;
    const comm_memory *memory = s->job.shared.memory;
    const ckpt_replicas_config all = {.s = &s->job.state,
                                      .ranks = ranks,
                                      .has_gradients = compares,
                                      .has_all = session_record_every(s) > 0,
                                      .memory = memory != NULL ? comm_memory_at(memory) : NULL};
    TRY(ckpt_replicas_create(&all, s->a, &s->replicas.own));
    if (compares) TRY(gradients_open(s));
    const int64_t count = ckpt_replicas_count(s->replicas.own);
    s->replicas.compares = compares;
    return arena_new(s->a, ranks * count + 1, &s->replicas.all);
}

static status hashes_exchange(session *s)
{
    const uint64_t *mine = NULL;
    TRY(ckpt_replicas_hash(s->replicas.own, &mine));
    const int64_t bytes = ckpt_replicas_count(s->replicas.own) * (int64_t)sizeof(*mine);
    const comm_item item = {.in = mine, .out = s->replicas.all, .count = bytes};
    const comm_args args = {.op = COLLECTIVE_ALL_GATHER,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "digests of the state",
                            .site = __func__,
                            .step = s->step};
    return comm_run(s->ranks.hosts, &args);
}

status session_hashes(session *s, const uint64_t **all)
{
    *all = s->replicas.all;
    if (s->ranks.hosts == NULL) return ckpt_replicas_hash(s->replicas.own, all);
    return hashes_exchange(s);
}

static status fault_fail(session *s, const ckpt_replica_fault *f)
{
    const long long step = (long long)s->step;
    if (f->with < f->against) {
        s->wrong = f->rank;
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

// Each rank compares its own pieces. All of them look for the one that is wrong only if one sees a
// difference.
status session_replicas_check(session *s)
{
    if (!s->replicas.compares) return ST_OK;
    const int64_t ranks = comm_ranks(s->ranks.all);
    ckpt_replica_fault fault;
    TRY(hashes_exchange(s));
    int differs = ckpt_replicas_differ(s->replicas.own, s->replicas.all, ranks);
    TRY(session_agree(s, &differs, "replicas"));
    if (!differs || !ckpt_replicas_find(s->replicas.own, s->replicas.all, ranks, &fault)) {
        return ST_OK;
    }
    return fault_fail(s, &fault);
}
