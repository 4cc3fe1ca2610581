// Times steps on random tokens. It needs no data and keeps no files.
//
// Steps are posted one after the other as the trainer posts them, so the device never waits for the
// host. A step lasts from the end of the step before to its own end; the median leaves out steps
// that other load disturbed. The trace ring has the time of each operation.
#include "train/bench.h"

#include "base/rng.h"

#include <string.h>

typedef struct bench {
    const host *h;
    run_config config; // as given, with tracing of the counted steps
    assemble_plans plans;
    train_job job;
    exec_input input;
    trace_ring *trace;
    train_windows windows;
} bench;

// Fills ids, labels, positions, documents and the next tokens and labels one after the other, each
// (sequences, seq).
static status batch_make(bench *b, arena *a, int64_t vocab, int64_t sequences)
{
    const run_config *r = &b->config;
    const int64_t seq = r->train.seq, cells = sequences * seq;
    const int64_t bytes = cells * (int64_t)sizeof(int32_t);
    int32_t *all = NULL;
    TRY(arena_new(a, 6 * cells, &all));
    for (int64_t i = 0; i < cells; i++) {
        all[i] = (int32_t)(rng_word((uint64_t)r->train.seed, 0, (uint64_t)i) % (uint64_t)vocab);
        all[2 * cells + i] = (int32_t)(i % seq);
    }
    for (int64_t i = 0; i < cells; i++) {
        all[cells + i] = all[4 * cells + i] = all[(i + 1) % cells];
        all[5 * cells + i] = all[(i + 2) % cells];
    }
    static const char *const names[] = {"ids",       "labels",   "positions",
                                        "documents", "next_ids", "next_labels"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        b->input.batch[i] = (exec_batch){names[i], all + i * cells, bytes};
    }
    b->input.batch_count = COUNT_OF(names);
    b->input.settings = train_step_settings(r);
    b->input.host.seed = (uint64_t)r->train.seed;
    b->input.host.lr = r->optimizer.lr;
    b->input.host.sequences = sequences;
    return ST_OK;
}

// Results come one step late: after step n is posted, those of step n - 1 are read.
static status step_end(bench *b, arena *a, int64_t expected, int64_t warmup)
{
    step_device results;
    int64_t step = 0;
    bool any = false;
    TRY(exec_results(b->job.e, &results, &step, &any));
    ASSERT(any && step == expected);
    const int64_t now_ns = exec_results_ns(b->job.e);
    if (step < warmup) return ST_OK;
    if (step == warmup) {
        train_windows_init(&b->windows, a, now_ns);
        return ST_OK;
    }
    TRY(train_windows_trace(&b->windows, b->trace));
    return train_windows_close(&b->windows, now_ns);
}

static status steps_run(bench *b, arena *a, int64_t warmup, int64_t steps)
{
    const plan *p = b->plans.all[0];
    for (int64_t i = 1; i <= warmup + steps; i++) {
        b->input.host.step = i;
        TRY(exec_begin(b->job.e, p, &b->input));
        if (i == 1) train_windows_init(&b->windows, a, exec_first_action_ns(b->job.e));
        TRY(exec_post(b->job.e));
        if (i > 1) TRY(step_end(b, a, i - 1, warmup));
    }
    TRY(exec_finish(b->job.e));
    TRY(step_end(b, a, warmup + steps, warmup));
    return train_windows_trace(&b->windows, b->trace);
}

static status steps_time(bench *b, arena *a, int64_t warmup, int64_t steps, train_bench *out)
{
    const plan *p = b->plans.all[0];
    double *times = NULL;
    TRY(steps_run(b, a, warmup, steps));
    ASSERT(b->windows.count == steps);
    TRY(arena_new(a, steps, &times));
    for (int64_t i = 0; i < steps; i++) {
        times[i] = (double)(b->windows.all[i].end_ns - b->windows.all[i].begin_ns) / 1e9;
    }
    const train_time time = train_time_of(times, steps);
    char *level = NULL; // outlives the device
    TRY(arena_format(a, &level, "%s", exec_facts(b->job.e).level));
    *out = (train_bench){
        .step_s = time.median_s,
        .step_s_min = time.min_s,
        .step_s_max = time.max_s,
        .arena_bytes = exec_arena_bytes(b->job.e),
        .touched_bytes = exec_touched_bytes(b->job.e),
        .flops = op_model_flops_per_token(b->plans.whole, b->config.train.seq) *
                 (double)(p->sequences * p->whole_seq),
        .level = level,
        .threads = exec_facts(b->job.e).units,
        .peak_flops = exec_peak_flops(b->job.e, assemble_peak_type(&b->config)),
        .bytes_per_s = exec_facts(b->job.e).bytes_per_s,
        .parameters = b->plans.whole->parameters,
    };
    return train_parts_make(p, &b->windows, &out->parts);
}

static status job_time(bench *b, arena *a, const decoder_spec *spec,
                       const assemble_options *options, int64_t warmup, int64_t steps,
                       train_bench *out)
{
    TRY(train_job_create(b->h, a, &b->plans, options, NULL, b->trace, &b->job));
    status st = train_job_weights(&b->job, a);
    if (st == ST_OK) st = batch_make(b, a, spec->vocab, b->plans.all[0]->sequences);
    if (st == ST_OK) st = steps_time(b, a, warmup, steps, out);
    train_job_destroy(&b->job);
    return st;
}

status train_bench_steps(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                         int64_t warmup, int64_t steps, train_bench *out)
{
    ASSERT(warmup >= 0 && steps >= 1);
    if (run_config_ranks(r) > 1) {
        return fail(ST_UNSUPPORTED,
                    "the layout is of %lld ranks, and a step of one is measured: leave "
                    "layout.* out",
                    (long long)run_config_ranks(r));
    }
    const assemble_options options = {
        .threads = assemble_threads(r),
        .device = run_config_device(r),
        .backend = run_config_backend(r),
    };
    bench *b = NULL;
    TRY(arena_new(a, 1, &b));
    b->h = h;
    b->config = *r;
    // A step's results are read before its updates are done, so the first counted window begins
    // with the updates of the step before.
    b->config.trace.steps = (option_range){.begin = max_i64(1, warmup), .end = warmup + steps};
    TRY(assemble_memory_choose(&b->config, spec, &options));
    TRY(assemble_rank(a, &b->config, spec, &options, &b->plans));
    TRY(assemble_fit_check(r, spec, &options, &b->plans, assemble_memory_limit(h, r, 1)));
    TRY(trace_create(h, train_trace_capacity(b->plans.all[0]), &b->trace));
    const status st = job_time(b, a, spec, &options, warmup, steps, out);
    trace_destroy(b->trace);
    return st;
}
