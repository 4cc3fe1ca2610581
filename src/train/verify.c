// See verify.h.
#include "train/verify.h"

#include <string.h>

enum { MAX_RANKS = 1024 }; // whose plans are made here

static int64_t now(const host *h)
{
    return h->api->monotonic_ns(h);
}

// One plan of every rank: the i-th of each.
static status plan_prove(arena *a, const plan_mesh *mesh, train_plans *const *ranks, int64_t i,
                         train_verified *out)
{
    const plan **plans = NULL;
    plan_verified v;
    TRY(arena_new(a, out->ranks, &plans));
    for (int64_t r = 0; r < out->ranks; r++) {
        ASSERT(ranks[r]->count == ranks[0]->count);
        plans[r] = ranks[r]->all[i];
    }
    TRY(plan_verify(a, mesh, plans, KERN_QUEUE_ITEMS, &v));
    out->actions += v.actions;
    out->meetings += v.meetings;
    out->waits += v.waits;
    out->sums += v.sums;
    for (int64_t r = 0; r < out->ranks; r++) {
        out->peak_bytes[r] = max_i64(out->peak_bytes[r], v.peak_bytes[r]);
    }
    return ST_OK;
}

static status all_prove(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                        const train_options *options, train_verified *out)
{
    train_plans **ranks = NULL;
    train_options own = *options;
    const int64_t begin = now(h);
    TRY(arena_new(a, out->ranks, &ranks));
    for (int64_t i = 0; i < out->ranks; i++) {
        own.mesh = run_config_mesh(r, i);
        TRY(arena_new(a, 1, &ranks[i]));
        TRY(train_assemble(a, r, spec, &own, ranks[i]));
    }
    const int64_t made = now(h);
    const plan_mesh mesh = run_config_mesh(r, 0);
    out->plans = ranks[0]->count;
    out->global_batch = ranks[0]->all[0]->sequences;
    out->micro_batch = ranks[0]->all[0]->micro_batch;
    for (int64_t i = 0; i < out->plans; i++) TRY(plan_prove(a, &mesh, ranks, i, out));
    out->make_s = (double)(made - begin) * 1e-9;
    out->prove_s = (double)(now(h) - made) * 1e-9;
    return ST_OK;
}

status train_verify(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                    const train_options *options, train_verified *out)
{
    arena *work = NULL;
    train_options own = *options;
    memset(out, 0, sizeof(*out));
    out->ranks = run_config_ranks(r);
    if (out->ranks > MAX_RANKS) {
        return fail(ST_UNSUPPORTED,
                    "the plans of %lld ranks cannot be verified in one process, "
                    "which takes %d at most",
                    (long long)out->ranks, MAX_RANKS);
    }
    own.snapshot = false; // it lies outside the plans
    TRY(arena_new(a, out->ranks, &out->peak_bytes));
    TRY(arena_create("verifier", 0, &work));
    const status st = all_prove(h, work, r, spec, &own, out);
    arena_destroy(work);
    return st;
}

status train_verify_config(const host *h, arena *a, run_config *r, const decoder_spec *spec,
                           train_verified *out)
{
    const int64_t ranks = run_config_ranks(r);
    const int64_t share = max_i64(1, train_threads(r) / ranks);
    const train_options options = {
        .threads = r->kernels.threads > 0 ? (int)r->kernels.threads : (int)share,
        .device = r->kernels.device == RUN_DEVICE_SHADOW ? "shadow" : "cpu",
        .backend = r->kernels.backend == RUN_BACKEND_REF ? "ref" : "cpu",
        .documents = r->data.packing == RUN_PACKING_MASKED,
        .evaluate = r->eval.every > 0 && run_config_has_valid(r),
    };
    TRY(train_layout_check(r, spec));
    TRY(train_micro_batch_settle(r, spec, &options));
    return train_verify(h, a, r, spec, &options, out);
}
