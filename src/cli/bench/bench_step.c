// `bench step`: the speed of a training step on this machine, its share of the peak, and the time
// of each part.
#include "cli/bench/bench.h"

#include "model/model.h"

typedef struct bench_result {
    train_bench step;
    bench_peak peak;
    double tokens_per_s, mfu, copy_bytes_per_s;
    int64_t rss_bytes;
    const char *what;
} bench_result;

static status measure(bench_context *c, bench_result *b)
{
    enum { WARMUP = 2 };
    const run_config *r = c->config;
    cli_context *cli = c->cli;
    char *what = NULL;
    decoder_spec spec;
    TRY(model_spec_from_config(cli->h, cli->a, r, &spec));
    TRY(train_bench_steps(cli->h, cli->a, r, &spec, WARMUP, c->flags->steps, &b->step));
    b->rss_bytes = bench_resident_bytes();
    if (b->step.bytes_per_s > 0.0) { // a GPU's peaks are its maker's
        const double flops = b->step.peak_flops;
        b->peak = (bench_peak){.flops = flops, .loop = flops, .gemm = flops};
        b->copy_bytes_per_s = b->step.bytes_per_s;
    } else {
        TRY(bench_peak_measure(c, run_config_types(r).compute, &b->peak));
        TRY(train_machine_copy(cli->h, c->kernels, c->flags->size, &b->copy_bytes_per_s));
    }
    b->tokens_per_s = (double)(r->train.global_batch * r->train.seq) / b->step.step_s;
    b->mfu = b->step.flops / b->step.step_s / b->peak.flops;
    TRY(arena_format(cli->a, &what, "%s  %lld x %lld tokens, %s",
                     r->model.preset != NULL ? r->model.preset : "model",
                     (long long)r->train.global_batch, (long long)r->train.seq,
                     bench_types[r->train.precision]));
    b->what = what;
    return ST_OK;
}

static status print_json(cli_context *cli, const bench_result *b)
{
    const train_bench *s = &b->step;
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"tokens_per_s\": %.6g, \"step_s\": %.9g, \"flops\": %.9g, ",
                 b->tokens_per_s, s->step_s, s->flops));
    TRY(text_add(&t, "\"peak_flops\": %.6g, \"mfu\": %.6g, \"peak_bytes\": %lld, ", b->peak.flops,
                 b->mfu, (long long)s->touched_bytes));
    TRY(text_add(
        &t, "\"rss_bytes\": %lld,\n \"bench\": \"step\", \"what\": ", (long long)b->rss_bytes));
    TRY(text_add_json(&t, b->what));
    TRY(text_add(&t, ", \"step_s_min\": %.9g, \"step_s_max\": %.9g, ", s->step_s_min,
                 s->step_s_max));
    TRY(text_add(&t, "\"threads\": %d, \"level\": \"%s\", \"parameters\": %lld,\n ", s->threads,
                 s->level, (long long)s->parameters));
    TRY(text_add(&t,
                 "\"loop_flops\": %.6g, \"product_flops\": %.6g, \"copy_bytes_per_s\": %.6g,\n ",
                 b->peak.loop, b->peak.gemm, b->copy_bytes_per_s));
    TRY(bench_parts_json(&t, &s->parts, b->peak.flops, b->copy_bytes_per_s));
    TRY(text_add(&t, "}\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

static void print_table(cli_context *cli, const bench_result *b)
{
    char bytes[32], rss[32], count[32], speed[32];
    cli_print(cli, "model     %s, %s params, %d threads, %s\n", b->what,
              text_count_human((double)b->step.parameters, count), b->step.threads, b->step.level);
    cli_print(cli, "step      %.4g s (%.4g to %.4g)   %s tok/s\n", b->step.step_s,
              b->step.step_s_min, b->step.step_s_max, text_count_human(b->tokens_per_s, speed));
    cli_print(cli, "flops     %.4g a step   mfu %.1f%%\n", b->step.flops, 100.0 * b->mfu);
    cli_print(cli, "peak      %.4g FLOP/s (register loop %.4g, best GEMM %.4g)\n", b->peak.flops,
              b->peak.loop, b->peak.gemm);
    cli_print(cli, "memory    %s planned and used, %s resident\n",
              text_bytes_human(b->step.touched_bytes, bytes), text_bytes_human(b->rss_bytes, rss));
    bench_parts_print(cli, "step", &b->step.parts, b->peak.flops, b->copy_bytes_per_s);
}

status bench_step(bench_context *c)
{
    bench_result *b = NULL;
    TRY(arena_new(c->cli->a, 1, &b));
    TRY(measure(c, b));
    if (c->flags->json) {
        TRY(print_json(c->cli, b));
    } else {
        print_table(c->cli, b);
    }
    const bench_row row = {.name = "step", .median_s = b->step.step_s};
    return bench_compare(c, b->what, &row, 1);
}
