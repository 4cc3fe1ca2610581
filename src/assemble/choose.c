// Chooses settings that a run file leaves open and that trade memory for speed.
//
// Two settings change no bit in strict order and only rounding in fast mode: the operations that
// the backward pass recomputes, and the number of sequences of a micro-batch. If the user gives
// neither, a run whose transient bytes (activations, gradients) are few compared with its state
// keeps all activations, with at most 4,096 tokens at once. Otherwise the choice is, in this order:
//
//   recompute `selective`   if repeating pointwise work is at most 2% of a step's work and saves a
//                           tenth of the peak: GPT-2 124M at 4 x 1,024 tokens takes 3.34 instead of
//                           4.24 GB
//   smaller micro-batches   of at least 2,048 tokens: each reads and packs the weights once more
//                           and adds to all gradients. Fewer tokens only for a deep and thin model
//
// Work is counted by the operations' rows: FLOPs, and bytes as the FLOPs that the processor could
// do meanwhile. The choice compares only sums of the plan's own bytes, so it is the same on every
// rank of a stage, and in `explain`, `verify` and `train --dry-run`.
#include "assemble/assemble.h"

#include <string.h>

enum { TOKENS_LEAST = 2048, PIPELINE_FILL = 4 }; // micro-batches per stage: a bubble of a fifth

typedef struct trial {
    int64_t transient, lasting; // bytes
    double again;               // share of a step's work
} trial;

int64_t assemble_divisor_below(int64_t sequences, int64_t most)
{
    int64_t best = 1; // also for a batch of 0: the plan reports the error
    for (int64_t d = 1; d <= min_i64(most, sequences); d++) {
        if (sequences % d == 0) best = d;
    }
    return best;
}

// Share of the recompute lists in a step's work, both for one micro-batch.
static double share_again(const run_config *r, const assemble_plans *plans)
{
    const plan *p = plans->all[0];
    const extent_binding bound = plan_bound(p, p->micro_batch, 0);
    const double per_byte = kern_flops_per_byte(plans->kernels, run_config_types(r).compute);
    double work[OP_LIST_COUNT] = {0.0}, all = 0.0;
    for (int32_t i = 0; i < plans->model->layer_count; i++) {
        const op_program *program = plans->model->programs[plans->model->layers[i].program];
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            for (int64_t k = 0; k < program->lists[list].count; k++) {
                const op_cost cost = op_node_cost(program, &program->lists[list].nodes[k], &bound);
                work[list] += cost.flops + per_byte * (cost.bytes_read + cost.bytes_written);
            }
        }
    }
    for (int list = 0; list < OP_LIST_COUNT; list++) all += work[list];
    return all > 0.0 ? work[OP_RECOMPUTE] / (all - work[OP_RECOMPUTE]) : 0.0;
}

int64_t assemble_shard_sequences(const run_config *r)
{
    const int64_t shards = r->determinism.shards;
    int64_t common = 0;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        int64_t one = size % shards == 0 ? size / shards : 1; // uneven shards differ by one
        while (one > 0) {
            const int64_t rest = common % one;
            common = one;
            one = rest;
        }
    }
    return common;
}

static status trial_make(const run_config *r, const decoder_spec *spec,
                         const assemble_options *options, trial *out)
{
    arena *a = NULL;
    assemble_plans *plans = NULL;
    assemble_options own = *options;
    own.sizes_only = true;
    TRY(arena_create("memory of a choice", 0, &a));
    status st = arena_new(a, 1, &plans);
    if (st == ST_OK) st = assemble_rank(a, r, spec, &own, plans);
    if (st == ST_OK) {
        const int64_t lasting = plans->run.run_bytes;
        *out = (trial){plans->arena_bytes - lasting, lasting, share_again(r, plans)};
    }
    arena_destroy(a);
    return st;
}

// Transient bytes may take as much as weights and optimizer state, and up to 1 GiB for a small
// model.
static bool is_small(const trial *t)
{
    return t->transient <= max_i64(t->lasting, (int64_t)1 << 30);
}

static bool fits(const run_config *r, const trial *t)
{
    const int64_t next = assemble_divisor_below(r->train.micro_batch, r->train.micro_batch - 1);
    const int64_t allowed = max_i64(t->lasting / 4 * 9, (int64_t)1 << 30);
    if (is_small(t) || r->train.micro_batch == 1) return true;
    return next * r->train.seq < TOKENS_LEAST && t->transient <= allowed;
}

static status recompute_choose(run_config *r, const decoder_spec *spec,
                               const assemble_options *options, trial *now)
{
    run_config changed = *r;
    trial then = {0};
    if (is_small(now)) return ST_OK;
    changed.train.recompute = RUN_RECOMPUTE_SELECTIVE;
    TRY(trial_make(&changed, spec, options, &then));
    const int64_t saved = now->transient - then.transient;
    if (then.again > 0.02 || saved < (now->transient + now->lasting) / 10) return ST_OK;
    r->train.recompute = RUN_RECOMPUTE_SELECTIVE;
    r->train.recompute_cost = then.again;
    *now = then;
    return ST_OK;
}

status assemble_memory_choose(run_config *r, const decoder_spec *spec,
                              const assemble_options *options)
{
    trial now = {0};
    const bool chosen = r->train.micro_batch_chosen;
    if (r->train.memory_settled || (!chosen && !r->train.recompute_chosen)) return ST_OK;
    if (chosen && r->layout.pp > 1) { // a pipeline needs several micro-batches for each stage
        int64_t first = 0, own = 0;
        plan_own_sequences(&options->mesh, r->determinism.mode == RUN_STRICT,
                           (int32_t)r->determinism.shards, r->train.global_batch, &first, &own);
        const int64_t most = max_i64(own / (PIPELINE_FILL * r->layout.pp), 1);
        r->train.micro_batch = assemble_divisor_below(own, min_i64(most, r->train.micro_batch));
    }
    if (chosen && spec->experts.count > 0 && r->determinism.mode == RUN_STRICT) {
        r->train.micro_batch =
            assemble_divisor_below(assemble_shard_sequences(r), r->train.micro_batch);
    }
    TRY(trial_make(r, spec, options, &now));
    if (r->train.recompute_chosen) TRY(recompute_choose(r, spec, options, &now));
    while (chosen && !fits(r, &now)) {
        r->train.micro_batch =
            assemble_divisor_below(r->train.micro_batch, r->train.micro_batch - 1);
        TRY(trial_make(r, spec, options, &now));
    }
    r->train.micro_batch_chosen = false;
    r->train.memory_settled = true;
    return ST_OK;
}

status assemble_memory_settle(run_config *r, const decoder_spec *spec,
                              const assemble_options *options)
{
    assemble_options own = *options;
    const int64_t stage_ranks = run_config_ranks(r) / r->layout.pp;
    const run_config given = *r;
    for (int64_t stage = 0; stage < r->layout.pp; stage++) {
        run_config one = given;
        own.mesh = run_config_mesh(r, stage * stage_ranks);
        TRY(assemble_memory_choose(&one, spec, &own));
        r->train.micro_batch = min_i64(r->train.micro_batch, one.train.micro_batch);
        if (one.train.recompute <= r->train.recompute) continue;
        r->train.recompute = one.train.recompute;
        r->train.recompute_cost = one.train.recompute_cost;
    }
    r->train.micro_batch_chosen = false;
    r->train.memory_settled = true;
    return ST_OK;
}
