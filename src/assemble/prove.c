// Makes the plans of all ranks of a run one after the other; the verifier checks them together.
#include "assemble/prove.h"

#include <string.h>

enum { MANY_RANKS = 64 }; // larger jobs are made smaller

static int64_t now(const host *h)
{
    return h->api->monotonic_ns(h);
}

// Verifies one plan of every rank: the i-th of each.
static status plan_prove(arena *a, const plan_mesh *mesh, assemble_plans *const *ranks, int64_t i,
                         assemble_proved *out)
{
    const plan **plans = NULL;
    plan_verified v;
    TRY(arena_new(a, out->ranks, &plans));
    for (int64_t r = 0; r < out->ranks; r++) {
        ASSERT(ranks[r]->count == ranks[0]->count);
        plans[r] = ranks[r]->all[i];
    }
    TRY(plan_verify(a, mesh, plans, DEVICE_QUEUE_ITEMS, &v));
    out->actions += v.actions;
    out->rendezvous += v.rendezvous;
    out->waits += v.waits;
    out->sums += v.sums;
    for (int64_t r = 0; r < out->ranks; r++) {
        out->peak_bytes[r] = max_i64(out->peak_bytes[r], v.peak_bytes[r]);
    }
    return ST_OK;
}

static status all_prove(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                        const assemble_options *options, assemble_proved *out)
{
    assemble_plans **ranks = NULL;
    assemble_options own = *options;
    const int64_t begin = now(h);
    TRY(arena_new(a, out->ranks, &ranks));
    for (int64_t i = 0; i < out->ranks; i++) {
        own.mesh = run_config_mesh(r, i);
        TRY(arena_new(a, 1, &ranks[i]));
        TRY(assemble_rank(a, r, spec, &own, ranks[i]));
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

// Makes the same layout over fewer ranks of dp with the same sequences per rank: a few plans show
// what hundreds would.
static void make_smaller(run_config *r, assemble_options *options)
{
    const int64_t least = 2 * max_i64(1, r->layout.zero_group);
    const int64_t dp = r->layout.dp;
    if (run_config_ranks(r) <= MANY_RANKS || least >= dp) return;
    r->layout.dp = least;
    r->train.global_batch = max_i64(1, run_config_batch_max(r) / dp) * least;
    r->train.batch_ramp.count = 0;
    if (options->eval_sequences > 0) {
        options->eval_sequences = max_i64(1, options->eval_sequences / dp) * least;
    }
}

status assemble_prove(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                      const assemble_options *options, assemble_proved *out)
{
    arena *work = NULL;
    run_config *own = NULL;
    assemble_options trial = *options;
    trial.snapshots = 0; // snapshots are outside the plans
    memset(out, 0, sizeof(*out));
    TRY(arena_new(a, 1, &own));
    *own = *r;
    make_smaller(own, &trial);
    out->dp = own->layout.dp < r->layout.dp ? own->layout.dp : 0;
    out->ranks = run_config_ranks(own);
    TRY(arena_new(a, out->ranks, &out->peak_bytes));
    TRY(arena_create("verifier", 0, &work));
    const status st = all_prove(h, work, own, spec, &trial, out);
    arena_destroy(work);
    return st;
}
