// `bench`: what this machine gives, and what a training step and its kernels make of it.
//
// A row of the table below is a subcommand: its flags, a function. To add one: the row, and a file
// bench_<name>.c.
#include "cli/bench/bench.h"
#include "cli/commands.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(bench_flags, field)
#define COUNT(name, words, ...)                                                              \
    {                                                                                        \
        .key = (name), .kind = OPTION_INT, .default_text = "0", .help = (words), __VA_ARGS__ \
    }
static const option rows[] = {
    {.key = "model",
     .kind = OPTION_TEXT,
     .offset = AT(model),
     .help = "step, generate, gemm: preset of the model; gpt2-124m, of gemm that and llama-135m",
     .also = "preset"},
    COUNT("batch", "sequences; 0 is 4, of attention 1", .offset = AT(batch), .max = 1 << 24,
          .unit = "sequences", .also = "global-batch, batch-size"),
    COUNT("seq", "length of a sequence; 0 is 1024, of attention 1024, 4096 and 16384",
          .offset = AT(seq), .max = 1 << 24, .unit = "tokens"),
    {.key = "precision",
     .kind = OPTION_CHOICE,
     .offset = AT(precision),
     .default_text = "fp32",
     .choices = "fp32, bf16, fp16",
     .help = "step, generate: type of weights, products and activations"},
    {.key = "dtype",
     .kind = OPTION_CHOICE,
     .offset = AT(dtype),
     .default_text = "fp32",
     .choices = "fp32, bf16, fp16",
     .help = "gemm, attention: type of operands"},
    COUNT("threads", "0 is one per core", .offset = AT(threads), .max = KERN_MAX_THREADS),
    {.key = "steps",
     .kind = OPTION_INT,
     .offset = AT(steps),
     .default_text = "5",
     .min = 1,
     .max = 1000000,
     .help = "step: steps that count, after two that do not; their median is taken"},
    COUNT(
        "repeats",
        "gemm, attention: calls that count; 0 is 3 to 20, for about two seconds; generate: tokens "
        "that count; 0 is 100",
        .offset = AT(repeats), .max = 1000),
    COUNT("context", "generate: tokens of the text before the first that counts; 0 is 64",
          .offset = AT(context), .max = 1 << 24, .unit = "tokens"),
    COUNT("n", "gemm: rows of x and y, the tokens", .offset = AT(n), .max = 1 << 24),
    COUNT("m", "gemm: columns of y, rows of w", .offset = AT(m), .max = 1 << 24),
    COUNT("k", "gemm: columns of x and w", .offset = AT(k), .max = 1 << 24),
    COUNT("heads", "attention: heads of queries; 0 is 12", .offset = AT(heads), .max = 1024),
    COUNT("kv-heads", "attention: heads of keys and values; 0 is as many", .offset = AT(kv_heads),
          .max = 1024),
    COUNT("head-dim", "attention: size of a head; 0 is 64", .offset = AT(head_dim), .max = 256),
    {.key = "size",
     .kind = OPTION_BYTES,
     .offset = AT(size),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .help =
         "machine, step, generate: the largest buffer of copies; 0 is 4 last caches, 64 to 512 MiB"},
    {.key = "ranks",
     .kind = OPTION_INT,
     .offset = AT(ranks),
     .default_text = "2",
     .min = 1,
     .max = 256,
     .help = "comm: processes that talk, started by itself"},
    {.key = "op",
     .kind = OPTION_TEXT,
     .offset = AT(op),
     .help = "comm: operation, such as all_reduce; nothing is all_reduce, with --tune all of them"},
    {.key = "bytes",
     .kind = OPTION_TEXT,
     .offset = AT(bytes),
     .help = "comm: sizes of the largest operand with commas, 8,64KiB; nothing is 8 B to 64 MiB"},
    {.key = "algorithm",
     .kind = OPTION_TEXT,
     .offset = AT(algorithm),
     .help = "comm: this one instead of the one that is chosen"},
    {.key = "private",
     .kind = OPTION_BOOL,
     .offset = AT(is_private),
     .default_text = "false",
     .help = "comm: buffers outside of shared memory, which cost a copy more"},
    {.key = "stream",
     .kind = OPTION_BOOL,
     .offset = AT(stream),
     .default_text = "false",
     .help = "comm: send goes one way, message after message, instead of there and back"},
    {.key = "transport",
     .kind = OPTION_TEXT,
     .offset = AT(transport),
     .help =
         "comm, of ranks that a launcher started: shm, ucx or mpi; nothing is the best there is"},
    {.key = "tune",
     .kind = OPTION_TEXT,
     .offset = AT(tune),
     .help = "comm: write the table of the fastest algorithms here instead of measuring one"},
    {.key = "write",
     .kind = OPTION_TEXT,
     .offset = AT(write),
     .help = "machine: also write this machine as a cluster, YAML"},
    {.key = "baseline",
     .kind = OPTION_TEXT,
     .offset = AT(baseline),
     .help = "what --json printed earlier; exit code 8 if a median is slower now",
     .also = "compare"},
    {.key = "tolerance",
     .kind = OPTION_REAL,
     .offset = AT(tolerance),
     .default_text = "10",
     .max = 10000,
     .unit = "percent",
     .help = "what --baseline forgives"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "one JSON object instead of a table"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

const char *const bench_types[] = {"fp32", "bf16", "fp16"};

dtype bench_type(int32_t choice)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    ASSERT(choice >= 0 && choice < COUNT_OF(types));
    return types[choice];
}

typedef struct bench_row_of {
    const char *name;
    const char *takes; // flags, each between spaces
    bool takes_keys;   // all of them; else kernels.level only
    status (*run)(bench_context *c);
} bench_row_of;
static const bench_row_of benches[] = {
    {"step", " model batch seq precision threads steps size baseline tolerance json ", true,
     bench_step},
    {"generate", " model context precision threads repeats size baseline tolerance json ", false,
     bench_generate},
    {"machine", " threads size write json ", false, bench_machine},
    {"gemm", " model batch seq n m k dtype threads repeats baseline tolerance json ", false,
     bench_gemm},
    {"attention",
     " batch seq heads kv-heads head-dim dtype threads repeats baseline tolerance json ", false,
     bench_attention},
    {"comm", " ranks op bytes dtype algorithm private stream transport tune json ", false,
     bench_comm},
};

static status bench_find(const char *name, const bench_row_of **out)
{
    const char *names[COUNT_OF(benches)];
    for (int i = 0; i < COUNT_OF(benches); i++) {
        names[i] = benches[i].name;
        if (strcmp(name, benches[i].name) != 0) continue;
        *out = &benches[i];
        return ST_OK;
    }
    const char *near = text_nearest(name, names, COUNT_OF(names));
    if (near != NULL) {
        return fail(ST_USAGE, "there is no \"bench %s\"; did you mean \"bench %s\"?", name, near);
    }
    return fail(ST_USAGE,
                "there is no \"bench %s\"; there are step, generate, machine, gemm, "
                "attention and comm",
                name);
}

// No flag is taken and then ignored.
static status flags_check(cli_context *cli, const cli_call *call, const bench_row_of *bench)
{
    bench_flags *defaults = NULL;
    TRY(arena_new(cli->a, 1, &defaults));
    TRY(option_set_defaults(&flags, cli->a, defaults));
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char word[64];
        (void)snprintf(word, sizeof(word), " %s ", rows[i].key);
        if (strstr(bench->takes, word) != NULL) continue;
        if (option_equal(&rows[i], call->flags, defaults)) continue;
        return fail(ST_USAGE, "bench %s takes no --%s", bench->name, rows[i].key);
    }
    for (int64_t i = 0; i < call->key_count && !bench->takes_keys; i++) {
        if (strncmp(call->keys[i], "kernels.level=", strlen("kernels.level=")) == 0) continue;
        return fail(ST_USAGE, "bench %s takes no key but kernels.level, found \"%s\"", bench->name,
                    call->keys[i]);
    }
    return ST_OK;
}

// The flags as keys; what the user writes as keys comes after, and wins.
static status config_make(cli_context *cli, const cli_call *call, run_config *r)
{
    const bench_flags *f = call->flags;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"train.seq", f->seq > 0 ? f->seq : 1024},
                   {"train.global_batch", f->batch > 0 ? f->batch : 4},
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
    TRY(arena_format(cli->a, &pair, "model.preset=%s", f->model != NULL ? f->model : "gpt2-124m"));
    keys[count++] = pair;
    TRY(arena_format(cli->a, &pair, "train.precision=%s", bench_types[f->precision]));
    keys[count++] = pair;
    keys[count++] = "data.train=random"; // never opened; a run must have some
    for (int64_t i = 0; i < call->key_count; i++) keys[count++] = call->keys[i];
    return run_config_load(cli->h, cli->a, NULL, keys, count, r, &c);
}

status bench_peak_measure(const bench_context *c, kern_level level, int threads, dtype type,
                          bench_peak *out)
{
    enum { LOOPS = 3 };
    bench_peak peak = {0};
    for (int i = 0; i < LOOPS; i++) { // other processes can only make it look slower
        const double flops = kern_peak_flops(level, threads, type != DTYPE_F32);
        if (flops > peak.loop) peak.loop = flops;
    }
    TRY(train_bench_product(c->cli->h, level, threads, type, &peak.product));
    peak.flops = peak.loop > peak.product ? peak.loop : peak.product;
    *out = peak;
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const bench_row_of *bench = NULL;
    bench_context c = {.cli = cli, .flags = call->flags};
    TRY(bench_find(call->operands[0], &bench));
    TRY(flags_check(cli, call, bench));
    TRY(arena_new(cli->a, 1, &c.config));
    TRY(config_make(cli, call, c.config));
    TRY(train_level(c.config, &c.level));
    c.threads = train_threads(c.config);
    TRY(bench_baseline_read(&c, bench->name));
    const status st = bench->run(&c);
    json_free(c.baseline);
    return st;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "time training steps, kernels and the machine",
    .synopsis =
        "step [--model PRESET] [--batch B] [--seq T] [--precision P] [--steps N] "
        "[key.path=value ...] | generate [--model PRESET] [--precision P] [--context N] | "
        "machine [--size BYTES] [--write FILE] | "
        "gemm [--model PRESET | --n N --m M --k K] [--dtype P] | "
        "attention [--seq T] [--heads H] [--kv-heads G] [--head-dim D] [--dtype P] | "
        "comm [--ranks N] [--op OP] [--bytes SIZES] [--dtype P] [--tune FILE]; "
        "all: [--json]; all but comm: [--threads N]; step, generate, gemm, attention: [--baseline FILE]",
    .about =
        "step: steps of a model with random weights on random tokens, without data and folder, and "
        "where their time goes. flops counts 6 x the weights in products per token and 6 L T "
        "(heads x head size) for attention, recomputation never; mfu is its share of the peak, the "
        "larger of a loop on registers and the best matrix product found in the same process. "
        "generate: one text of a model with random weights, grown token by token with a cache of keys "
        "and values; its share is the bytes of weights read for a token, per second, over those that "
        "a copy moves, both medians, timed in turn. "
        "machine: that peak, bandwidth and latency by size, frequency; --write makes the "
        "catalogue's entry. gemm: the products of a step of the model, or y (n, m) = x (n, k) w "
        "(m, k) and its gradients. attention: causal, forward and backward; FLOPs count half of "
        "the square. comm: an operation between ranks of this host, or those that torchrun, srun "
        "or mpirun started, also on several; on one its share of the limit: the same reads and "
        "writes by the same cores with nobody waiting for anybody, measured in "
        "between. All with medians; --baseline compares them with an earlier --json.",
    .examples =
        "  trireme bench step --model gpt2-124m --batch 4 --seq 1024\n"
        "  trireme bench step --model llama-135m --batch 8 --seq 512 --precision bf16 --json\n"
        "  trireme bench generate --model llama-135m --precision bf16\n"
        "  trireme bench machine --write here.yaml\n"
        "  trireme bench gemm --n 4096 --m 3072 --k 768 --dtype bf16\n"
        "  trireme bench attention --seq 4096 --heads 9 --kv-heads 3\n"
        "  trireme bench comm --ranks 2 --op reduce_scatter --bytes 64KiB,16MiB --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(bench_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .words = "step, generate, machine, gemm, attention, comm",
    .run = run,
};
