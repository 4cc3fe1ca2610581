// sdc.digests: the ranks compare the state that several of them hold, and the gradients of all
// steps since the session began; what a rank alone holds it compares with what it wrote
// (train/rest.h). A difference means that a processor or memory has returned a wrong value. They
// also do so after each copy for a checkpoint was taken and before it is written, so a value that
// changes at any time is in no checkpoint, or stops the run first.
#include "train/gradients.h"
#include "train/session.h"

#include <stdio.h>

// Each rank hashes the gradients that it applies, inside the steps.
static status gradients_open(session *s)
{
    train_watch *watches = s->objective.watches;
    bool *is_compared = NULL;
    TRY(arena_new(s->a, s->job.state.model->weight_count + 1, &is_compared));
    for (int64_t i = 0; i < s->job.state.model->weight_count; i++) {
        is_compared[i] = ckpt_replicas_compares_gradient(s->replicas.own, i);
    }
    const train_gradients g = {.e = s->job.e,
                               .kernels = s->plans.kernels,
                               .base = train_job_memory(&s->job),
                               .rank = comm_rank(s->ranks.all),
                               .hashes = ckpt_replicas_gradients(s->replicas.own),
                               .is_compared = is_compared,
                               .rest = s->replicas.rest};
    if (!s->objective.is_watched) {
        TRY(arena_new(s->a, s->plans.count, &watches));
        for (int64_t i = 0; i < s->plans.count; i++) watches[i].p = s->plans.all[i];
    }
    return train_gradients_watch(s->a, &g, watches, s->plans.count);
}

// Each rank hashes what it holds between two updates.
static status rest_open(session *s)
{
    const plan_table *run = &s->plans.run;
    bool *is_compared = NULL;
    TRY(arena_new(s->a, run->count + 1, &is_compared));
    for (int64_t i = 0; i < run->count; i++) {
        is_compared[i] = ckpt_replicas_compares(s->replicas.own, i);
    }
    const train_rest_config c = {.e = s->job.e,
                                 .kernels = s->plans.kernels,
                                 .run = run,
                                 .plans = (const plan *const *)s->plans.all,
                                 .plan_count = s->plans.count,
                                 .base = train_job_memory(&s->job),
                                 .rank = comm_rank(s->ranks.all),
                                 .is_compared = is_compared};
    return train_rest_create(&c, s->a, &s->replicas.rest);
}

status session_replicas_open(session *s)
{
    const bool compares = s->r->sdc.digests > 0 && s->ranks.all != NULL;
    if (!compares && session_record_every(s) == 0) return ST_OK;
    const int64_t ranks = s->ranks.all != NULL ? comm_ranks(s->ranks.all) : 1;
    const ckpt_replicas_config all = {.s = &s->job.state,
                                      .ranks = ranks,
                                      .has_gradients = compares,
                                      .has_all = session_record_every(s) > 0,
                                      .memory = train_job_memory(&s->job)};
    TRY(ckpt_replicas_create(&all, s->a, &s->replicas.own));
    if (compares) TRY(rest_open(s));
    if (compares) TRY(gradients_open(s));
    const int64_t count = ckpt_replicas_count(s->replicas.own);
    s->replicas.compares = compares;
    return arena_new(s->a, ranks * count + 1, &s->replicas.all);
}

// reads: hashes all pieces as they are now, not as they were when they were written.
static status hashes_exchange(session *s, bool reads)
{
    const ckpt_known known = {s->plans.kernels, train_rest_hash, s->replicas.rest};
    const uint64_t *mine = NULL;
    TRY(ckpt_replicas_hash(s->replicas.own, reads ? NULL : &known, &mine));
    const int64_t bytes = ckpt_replicas_count(s->replicas.own) * (int64_t)sizeof(*mine);
    return session_gather(s, mine, s->replicas.all, bytes, "digests of the state");
}

status session_hashes(session *s, const uint64_t **all)
{
    *all = s->replicas.all;
    if (s->ranks.hosts == NULL) return ckpt_replicas_hash(s->replicas.own, NULL, all);
    return hashes_exchange(s, true);
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

typedef struct rest_told {
    char name[PLAN_NAME_BYTES]; // "": nothing has changed
} rest_told;

// Whether a rank has found that its state changed at rest; then the first of them is named.
static status rest_fail(session *s)
{
    const char *mine = train_rest_found(s->replicas.rest);
    const int64_t ranks = comm_ranks(s->ranks.all);
    rest_told own = {{0}}, *all = NULL;
    TRY(arena_new(s->a, ranks, &all));
    if (mine != NULL) (void)snprintf(own.name, sizeof(own.name), "%s", mine);
    TRY(session_gather(s, &own, all, (int64_t)sizeof(own), "what has changed at rest"));
    for (int64_t i = 0; i < ranks; i++) {
        if (all[i].name[0] == '\0') continue;
        s->wrong = i;
        return fail(ST_CORRUPT,
                    "step %lld: %s of rank %lld has changed since it was written; a processor or "
                    "memory of rank %lld has returned a wrong value",
                    (long long)s->step, all[i].name, (long long)i, (long long)i);
    }
    return ST_OK;
}

// Each rank compares its own pieces, and what it alone holds with what it wrote. All of them look
// for the one that is wrong only if one sees a difference.
status session_replicas_check(session *s, bool is_copied)
{
    if (!s->replicas.compares) return ST_OK;
    const int64_t ranks = comm_ranks(s->ranks.all);
    ckpt_replica_fault fault;
    // First: what it hashes anew is compared below.
    TRY(train_rest_verify(s->replicas.rest, is_copied ? REST_LONE : REST_NEW));
    TRY(hashes_exchange(s, is_copied));
    int differs = ckpt_replicas_differ(s->replicas.own, s->replicas.all, ranks);
    differs = differs || train_rest_found(s->replicas.rest) != NULL;
    TRY(session_agree(s, &differs, "replicas"));
    if (!differs) return ST_OK;
    TRY(train_rest_verify(s->replicas.rest, REST_ALL));
    TRY(rest_fail(s));
    if (!ckpt_replicas_find(s->replicas.own, s->replicas.all, ranks, &fault)) return ST_OK;
    return fault_fail(s, &fault);
}
