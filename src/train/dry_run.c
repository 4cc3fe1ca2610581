// A run without its steps. The order is that of train_run(), so both report the same first error.
#include "train/dry_run.h"

#include "config/run_length.h"
#include "train/advice.h"
#include "train/bench.h"
#include "train/loader.h"

typedef struct dry_run {
    const host *h;
    arena *a;
    const config *c;
    run_config own; // a vocabulary may be filled in
    decoder_spec spec;
    assemble_plans plans;
    int64_t outside_bytes;
    train_loader *loader;
    text warnings;
} dry_run;

// Checks that the folder can be made and written to, then removes it if it was made here.
static status folder_try(const dry_run *d, char **cache)
{
    const host_api *api = d->h->api;
    char *probe = NULL;
    TRY(path_join(d->a, d->own.run.dir, "cache", cache));
    TRY(api->path_mkdir(d->h, *cache));
    TRY(path_join(d->a, d->own.run.dir, "dry-run", &probe));
    TRY(host_write_all(d->h, probe, "x", 1));
    return api->path_remove(d->h, probe);
}

static status data_heard(void *context, log_level level, const char *line)
{
    dry_run *d = context;
    return level == LOG_WARN && line != NULL ? text_add(&d->warnings, "%s\n", line) : ST_OK;
}

// Threads of one rank: the ranks share the cores of this host.
static int threads_of(const run_config *r)
{
    if (r->kernels.threads > 0) return (int)r->kernels.threads;
    return (int)max_i64(1, assemble_threads(r) / run_config_ranks(r));
}

// Checks the memory of the whole run, evaluation included, on the first rank of each stage, which
// needs the most. The plans of the first stage are kept.
static status memory_try(dry_run *d)
{
    run_config *r = &d->own;
    assemble_options options = {
        .threads = threads_of(r),
        .device = run_config_device(r),
        .backend = run_config_backend(r),
        .documents = r->data.packing != RUN_PACKING_PLAIN,
        .evaluate = r->eval.every > 0 && run_config_has_valid(r),
        .rollouts = run_config_has_rollouts(r),
    };
    const int64_t limit = assemble_memory_limit(d->h, r, run_config_ranks(r));
    TRY(train_outside_bytes(d->h, d->a, r, &d->outside_bytes));
    options.outside_bytes = d->outside_bytes;
    TRY(assemble_memory_settle(r, &d->spec, &options));
    for (int64_t stage = r->layout.pp - 1; stage >= 0; stage--) {
        options.mesh = run_config_mesh(r, stage * (run_config_ranks(r) / r->layout.pp));
        options.snapshots = stage == 0 ? assemble_snapshots(r) : 0;
        TRY(assemble_rank(d->a, r, &d->spec, &options, &d->plans));
        TRY(assemble_fit_check(r, &d->spec, &options, &d->plans, limit));
    }
    return ST_OK;
}

// Runs approximately one rank's work of a step without the other ranks: its part of the batch
// through a model with its number of layers and its part of heads, MLP and vocabulary.
static status step_try(const dry_run *d, train_bench *out)
{
    run_config alone = d->own;
    decoder_spec spec = d->spec;
    if (run_config_ranks(&d->own) > 1) {
        const int64_t tp = alone.layout.tp;
        spec.layers = (spec.layers + alone.layout.pp - 1) / alone.layout.pp;
        spec.heads /= tp;
        spec.kv_heads = max_i64(1, spec.kv_heads / tp);
        spec.ffn_dim /= tp;
        spec.vocab = max_i64(1, spec.vocab / tp);
        alone.train.global_batch = d->plans.all[0]->own_sequences;
        alone.train.batch_ramp.count = 0;
        alone.kernels.threads = threads_of(&d->own);
        alone.layout.dp = alone.layout.tp = alone.layout.pp = alone.layout.cp = 1;
        alone.layout.zero = alone.layout.zero_group = 0;
        alone.layout.sp = false;
    }
    return train_bench_steps(d->h, d->a, &alone, &spec, 0, 1, out);
}

static status dry(dry_run *d, train_start *out, double *step_s)
{
    char *cache = NULL, *about = NULL;
    train_bench step;
    TRY(train_loader_model(d->loader, &d->own, &d->spec));
    TRY(assemble_layout_check(&d->own, &d->spec));
    TRY(assemble_train_check(&d->own, &d->spec));
    TRY(memory_try(d));
    TRY(step_try(d, &step));
    TRY(folder_try(d, &cache));
    TRY(train_loader_prepare(d->loader, cache, data_heard, d));
    TRY(run_length_of_epochs(&d->own, d->c, d->a, train_loader_sequences(d->loader)));
    TRY(train_loader_about(d->loader, d->a, &d->own, &about));
    const int64_t ranks = run_config_ranks(&d->own);
    const train_facts facts = {.tokens = train_loader_tokens(d->loader),
                               .threads = step.threads,
                               .ranks = (int)ranks,
                               .cores = kern_core_count()};
    TRY(train_advice(&d->own, &facts, &d->warnings));
    *step_s = step.step_s;
    *out =
        (train_start){.config = &d->own,
                      .spec = &d->spec,
                      .run_dir = d->own.run.dir,
                      .data_about = about,
                      .tokenizer = train_loader_tokenizer(d->loader),
                      .first_step = 1,
                      .parameters = d->plans.whole->parameters,
                      .arena_bytes = d->plans.arena_bytes,
                      .snapshot_bytes = assemble_snapshot_bytes(&d->plans),
                      .copies_bytes = assemble_copies_bytes(&d->plans),
                      .available_bytes = assemble_memory_limit(d->h, &d->own, ranks),
                      .outside_bytes = d->outside_bytes,
                      .threads = step.threads,
                      .ranks = (int)ranks,
                      .level = step.level,
                      .peak_flops = step.peak_flops * (double)ranks *
                                    assemble_cores_share(facts.threads, facts.ranks, facts.cores),
                      .warnings = d->warnings.bytes};
    return ST_OK;
}

status train_dry_run(const host *h, arena *a, const run_config *r, const config *c,
                     train_start *out, double *step_s)
{
    dry_run *d = NULL;
    TRY(arena_new(a, 1, &d));
    d->h = h;
    d->a = a;
    d->own = *r;
    d->c = c;
    d->warnings.a = a;
    TRY(train_loader_open(h, a, &d->own, &d->loader));
    const status st = dry(d, out, step_s);
    train_loader_close(d->loader);
    return st;
}
