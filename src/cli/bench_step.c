// `bench step`: what this machine does in a step, what share of its peak that is, and where the
// step's time goes.
#include "cli/bench.h"

#include "model/model.h"

#include <math.h>

#include <sys/resource.h>

typedef struct bench_result {
    train_bench step;
    bench_peak peak;
    double tokens_per_s, mfu, copy_bytes_per_s;
    int64_t rss_bytes;
    const char *what;
} bench_result;

// The most that ever lay in memory; before the measurements that take memory of their own.
static int64_t resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static status measure(bench_context *c, bench_result *b)
{
    enum { WARMUP = 2 };
    const run_config *r = c->config;
    cli_context *cli = c->cli;
    char *what = NULL;
    decoder_spec spec;
    TRY(model_spec_from_config(cli->h, cli->a, r, &spec));
    TRY(train_bench_steps(cli->h, cli->a, r, &spec, WARMUP, c->flags->steps, &b->step));
    b->rss_bytes = resident_bytes();
    TRY(bench_peak_measure(c, b->step.level, b->step.threads, run_config_types(r).compute,
                           &b->peak));
    TRY(train_machine_copy(cli->h, b->step.level, b->step.threads, c->flags->size,
                           &b->copy_bytes_per_s));
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
                 kern_level_name(s->level), (long long)s->parameters));
    TRY(text_add(&t,
                 "\"loop_flops\": %.6g, \"product_flops\": %.6g, \"copy_bytes_per_s\": %.6g,\n "
                 "\"parts\": [",
                 b->peak.loop, b->peak.product, b->copy_bytes_per_s));
    for (int i = 0; i < s->parts.count; i++) {
        const train_part *p = &s->parts.rows[i];
        TRY(text_add(&t, "%s\n  {\"name\": \"%s\", \"calls\": %lld, \"seconds\": %.9g, ",
                     i == 0 ? "" : ",", p->name, (long long)p->calls, p->seconds));
        TRY(text_add(&t, "\"flops\": %.9g, \"bytes\": %.9g, \"bound_s\": %.9g}", p->flops, p->bytes,
                     train_part_bound_s(p, b->peak.flops, b->copy_bytes_per_s)));
    }
    TRY(text_add(&t, "]}\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

// 80 columns.
static void print_parts(cli_context *cli, const bench_result *b)
{
    const train_parts *parts = &b->step.parts;
    cli_print(cli, "\nwhere the step's time goes, and what the limit of each part is\n"
                   "operation     calls   ms/step share   GFLOP     GB GFLOP/s   GB/s bound ms"
                   "     x\n");
    double bound_s = 0.0, flops = 0.0, bytes = 0.0;
    for (int i = 0; i <= parts->count; i++) {
        const bool is_sum = i == parts->count;
        const train_part sum = {
            .name = "step", .seconds = parts->step_s, .flops = flops, .bytes = bytes};
        const train_part *p = is_sum ? &sum : &parts->rows[i];
        const double bound =
            is_sum ? bound_s : train_part_bound_s(p, b->peak.flops, b->copy_bytes_per_s);
        char calls[24] = "", ratio[24] = "";
        if (p->calls > 0) (void)snprintf(calls, sizeof(calls), "%lld", (long long)p->calls);
        const double bounds = bound > 0.0 ? p->seconds / bound : 0.0;
        if (bounds > 0.0) (void)snprintf(ratio, sizeof(ratio), "%.2f", fmin(bounds, 999.99));
        cli_print(cli, "%-13s%6s%10.2f%6.1f%8.2f%7.2f", p->name, calls, 1e3 * p->seconds,
                  100.0 * p->seconds / parts->step_s, p->flops / 1e9, p->bytes / 1e9);
        if (p->flops + p->bytes > 0.0 && p->seconds > 0.0) {
            cli_print(cli, "%8.1f%7.1f%9.2f%6s", p->flops / p->seconds / 1e9,
                      p->bytes / p->seconds / 1e9, 1e3 * bound, ratio);
        }
        cli_print(cli, "\n");
        bound_s += bound;
        flops += p->flops;
        bytes += p->bytes;
    }
    cli_print(cli,
              "bound: the larger of FLOPs at %.4g GFLOP/s, bytes at %.4g GB/s (a copy);\n"
              "x: the time is so many bounds; below 1, operands came from the cache.\n",
              b->peak.flops / 1e9, b->copy_bytes_per_s / 1e9);
}

static void print_table(cli_context *cli, const bench_result *b)
{
    char bytes[32], rss[32], count[32], speed[32];
    cli_print(cli, "model     %s, %s params, %d threads, %s\n", b->what,
              text_count_human((double)b->step.parameters, count), b->step.threads,
              kern_level_name(b->step.level));
    cli_print(cli, "step      %.4g s (%.4g to %.4g)   %s tok/s\n", b->step.step_s,
              b->step.step_s_min, b->step.step_s_max, text_count_human(b->tokens_per_s, speed));
    cli_print(cli, "flops     %.4g a step   mfu %.1f%%\n", b->step.flops, 100.0 * b->mfu);
    cli_print(cli, "peak      %.4g FLOP/s (register loop %.4g, best product %.4g)\n", b->peak.flops,
              b->peak.loop, b->peak.product);
    cli_print(cli, "memory    %s planned and used, %s resident\n",
              text_bytes_human(b->step.touched_bytes, bytes), text_bytes_human(b->rss_bytes, rss));
    print_parts(cli, b);
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
