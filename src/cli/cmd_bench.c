// `bench`: what this machine does in a step, and what share of its peak that is.
#include "cli/commands.h"
#include "train/train.h"

#include <string.h>
#include <sys/resource.h>

typedef struct bench_flags {
    const char *model;
    int64_t batch, seq, threads, steps;
    int32_t precision;
    bool json;
} bench_flags;

#define AT(field) (int64_t) offsetof(bench_flags, field)
static const option rows[] = {
    {.key = "model",
     .kind = OPTION_TEXT,
     .offset = AT(model),
     .default_text = "gpt2-124m",
     .help = "preset of the model",
     .also = "preset"},
    {.key = "batch",
     .kind = OPTION_INT,
     .offset = AT(batch),
     .default_text = "4",
     .min = 1,
     .max = 1 << 24,
     .unit = "sequences",
     .help = "size of a step",
     .also = "global-batch, batch-size"},
    {.key = "seq",
     .kind = OPTION_INT,
     .offset = AT(seq),
     .default_text = "1024",
     .min = 1,
     .max = 1 << 24,
     .unit = "tokens",
     .help = "length of a sequence"},
    {.key = "precision",
     .kind = OPTION_CHOICE,
     .offset = AT(precision),
     .default_text = "fp32",
     .choices = "fp32, bf16, fp16",
     .help = "type of products and activations"},
    {.key = "threads",
     .kind = OPTION_INT,
     .offset = AT(threads),
     .default_text = "0",
     .max = KERN_MAX_THREADS,
     .help = "0 is one per core"},
    {.key = "steps",
     .kind = OPTION_INT,
     .offset = AT(steps),
     .default_text = "5",
     .min = 1,
     .max = 1000000,
     .help = "steps that count, after two that do not; their median is taken"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "one JSON object instead of a table"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

// The flags as keys; what the user writes as keys comes after, and wins.
static status config_make(cli_context *cli, const cli_call *call, run_config *r)
{
    const bench_flags *f = call->flags;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"train.seq", f->seq},
                   {"train.global_batch", f->batch},
                   {"kernels.threads", f->threads},
                   {"eval.every", 0},
                   {"data.valid", 0}};
    const char **keys = NULL;
    char *pair = NULL;
    int64_t count = 0;
    config *c = NULL;
    TRY(arena_new(cli->a, call->key_count + COUNT_OF(numbers) + 3, &keys));
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        TRY(arena_format(cli->a, &pair, "%s=%lld", numbers[i].key, (long long)numbers[i].value));
        keys[count++] = pair;
    }
    TRY(arena_format(cli->a, &pair, "model.preset=%s", f->model));
    keys[count++] = pair;
    TRY(arena_format(cli->a, &pair, "train.precision=%s", precisions[f->precision]));
    keys[count++] = pair;
    keys[count++] = "data.train=random"; // never opened; a run must have some
    for (int64_t i = 0; i < call->key_count; i++) keys[count++] = call->keys[i];
    return run_config_load(cli->h, cli->a, NULL, keys, count, r, &c);
}

// The most that ever lay in memory; before the products that find the peak.
static int64_t resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

typedef struct bench_result {
    train_bench step;
    double tokens_per_s, peak_flops, loop_flops, product_flops, mfu;
    int64_t rss_bytes;
} bench_result;

static status measure(cli_context *cli, const run_config *r, const bench_flags *f, bench_result *b)
{
    enum { WARMUP = 2, LOOPS = 5 };
    decoder_spec spec;
    const dtype compute = run_config_types(r).compute;
    TRY(model_spec_from_config(cli->h, cli->a, r, &spec));
    TRY(train_bench_steps(cli->h, cli->a, r, &spec, WARMUP, f->steps, &b->step));
    b->rss_bytes = resident_bytes();
    for (int i = 0; i < LOOPS; i++) { // other processes can only make it look slower
        const double flops = kern_peak_flops(b->step.level, b->step.threads, compute != DTYPE_F32);
        if (flops > b->loop_flops) b->loop_flops = flops;
    }
    TRY(train_bench_product(cli->h, b->step.level, b->step.threads, compute, &b->product_flops));
    b->peak_flops = b->loop_flops > b->product_flops ? b->loop_flops : b->product_flops;
    b->tokens_per_s = (double)(r->train.global_batch * r->train.seq) / b->step.step_s;
    b->mfu = b->step.flops / b->step.step_s / b->peak_flops;
    return ST_OK;
}

static void print_json(cli_context *cli, const bench_result *b)
{
    cli_print(cli, "{\"tokens_per_s\": %.6g, \"step_s\": %.6g, \"flops\": %.9g, ", b->tokens_per_s,
              b->step.step_s, b->step.flops);
    cli_print(cli,
              "\"peak_flops\": %.6g, \"mfu\": %.6g, \"peak_bytes\": %lld, \"rss_bytes\": %lld}\n",
              b->peak_flops, b->mfu, (long long)b->step.touched_bytes, (long long)b->rss_bytes);
}

static void print_table(cli_context *cli, const bench_flags *f, const bench_result *b)
{
    char bytes[32], rss[32], count[32], speed[32];
    cli_print(cli, "model     %s  %s params, %lld x %lld tokens, %s, %d threads, %s\n", f->model,
              text_count_human((double)b->step.parameters, count), (long long)f->batch,
              (long long)f->seq, precisions[f->precision], b->step.threads,
              kern_level_name(b->step.level));
    cli_print(cli, "step      %.4g s (%.4g to %.4g)   %s tok/s\n", b->step.step_s,
              b->step.step_s_min, b->step.step_s_max, text_count_human(b->tokens_per_s, speed));
    cli_print(cli, "flops     %.4g a step   mfu %.1f%%\n", b->step.flops, 100.0 * b->mfu);
    cli_print(cli, "peak      %.4g FLOP/s (register loop %.4g, best product %.4g)\n", b->peak_flops,
              b->loop_flops, b->product_flops);
    cli_print(cli, "memory    %s planned and used, %s resident\n",
              text_bytes_human(b->step.touched_bytes, bytes), text_bytes_human(b->rss_bytes, rss));
}

static status run(cli_context *cli, const cli_call *call)
{
    const bench_flags *f = call->flags;
    run_config *r = NULL;
    bench_result *b = NULL;
    if (strcmp(call->operands[0], "step") != 0) {
        return fail(ST_USAGE, "there is no \"bench %s\"; did you mean \"bench step\"?",
                    call->operands[0]);
    }
    TRY(arena_new(cli->a, 1, &r));
    TRY(arena_new(cli->a, 1, &b));
    TRY(config_make(cli, call, r));
    TRY(measure(cli, r, f, b));
    if (f->json) {
        print_json(cli, b);
    } else {
        print_table(cli, f, b);
    }
    return ST_OK;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "time training steps on random tokens",
    .synopsis = "step [--model PRESET] [--batch B] [--seq T] [--precision P] [--threads N] "
                "[--steps N] [--json] [key.path=value ...]",
    .about =
        "Steps of a model with random weights on random tokens, without data and folder. flops "
        "counts 6 x the weights in products per token and 6 L T (heads x head size) for "
        "attention, recomputation never; mfu is its share of the peak, the larger of a loop on "
        "registers and the best matrix product found in the same process.",
    .examples =
        "  trireme bench step --model gpt2-124m --batch 4 --seq 1024\n"
        "  trireme bench step --model llama-135m --batch 8 --seq 512 --precision bf16 --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(bench_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .words = "step",
    .run = run,
};
