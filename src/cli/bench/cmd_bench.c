// `bench`: measures this machine, training steps and their kernels.
//
// A row of the table below is a subcommand: its flags and its function. To add one: the row, and a
// file bench_<name>.c.
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
     .help = "model preset for step, generate and gemm; the default is gpt2-124m, and for gemm "
             "also llama-135m",
     .also = "preset"},
    COUNT("batch", "number of sequences; 0 is 4, and 1 for attention", .offset = AT(batch),
          .max = 1 << 24, .unit = "sequences", .also = "global-batch, batch-size"),
    COUNT("seq", "length of a sequence; 0 is 1024, of attention 1024, 4096 and 16384",
          .offset = AT(seq), .max = 1 << 24, .unit = "tokens"),
    {.key = "precision",
     .kind = OPTION_CHOICE,
     .offset = AT(precision),
     .default_text = "fp32",
     .choices = "fp32, bf16, fp16",
     .help = "type of weights, GEMMs and activations for step and generate"},
    {.key = "dtype",
     .kind = OPTION_CHOICE,
     .offset = AT(dtype),
     .default_text = "fp32",
     .choices = "fp32, bf16, fp16",
     .help = "type of operands for gemm and attention"},
    COUNT("threads", "number of threads; 0 is one per core", .offset = AT(threads),
          .max = KERN_MAX_THREADS),
    {.key = "steps",
     .kind = OPTION_INT,
     .offset = AT(steps),
     .default_text = "5",
     .min = 1,
     .max = 1000000,
     .help = "number of measured steps after two warm-up steps; the result is their median"},
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
     .help = "largest buffer of copies for machine, step and generate; 0 is 4 last-level caches, "
             "64 to 512 MiB"},
    {.key = "ranks",
     .kind = OPTION_INT,
     .offset = AT(ranks),
     .default_text = "2",
     .min = 1,
     .max = 256,
     .help = "number of ranks that comm starts"},
    {.key = "op",
     .kind = OPTION_TEXT,
     .offset = AT(op),
     .help = "collective that comm measures, such as all_reduce; the default is all_reduce, and "
             "all of them with --tune"},
    {.key = "bytes",
     .kind = OPTION_TEXT,
     .offset = AT(bytes),
     .help = "sizes of the largest operand for comm, with commas, such as 8,64KiB; the default is "
             "8 B to 64 MiB"},
    {.key = "algorithm",
     .kind = OPTION_TEXT,
     .offset = AT(algorithm),
     .help = "algorithm for comm instead of the chosen one"},
    {.key = "private",
     .kind = OPTION_BOOL,
     .offset = AT(is_private),
     .default_text = "false",
     .help = "comm uses buffers outside of shared memory, which cost one more copy"},
    {.key = "stream",
     .kind = OPTION_BOOL,
     .offset = AT(stream),
     .default_text = "false",
     .help = "comm sends transfers one after another in one direction instead of back and forth"},
    {.key = "transport",
     .kind = OPTION_TEXT,
     .offset = AT(transport),
     .help = "transport of comm between ranks that a launcher started: shm, ucx or mpi; the "
             "default is the best available"},
    {.key = "tune",
     .kind = OPTION_TEXT,
     .offset = AT(tune),
     .help = "file for comm's table of the fastest algorithms, instead of one measurement"},
    {.key = "write",
     .kind = OPTION_TEXT,
     .offset = AT(write),
     .help = "file to which machine also writes this machine as a cluster, in YAML"},
    {.key = "baseline",
     .kind = OPTION_TEXT,
     .offset = AT(baseline),
     .help = "earlier output of --json to compare with; exit code 8 if a median is slower now",
     .also = "compare"},
    {.key = "tolerance",
     .kind = OPTION_REAL,
     .offset = AT(tolerance),
     .default_text = "10",
     .max = 10000,
     .unit = "percent",
     .help = "slowdown that --baseline allows"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints one JSON object instead of a table"},
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
    bool takes_keys;   // takes all keys; otherwise only kernels.level
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

// Refuses flags that the subcommand would ignore.
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

// Converts flags to keys; the user's keys come later and win.
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
    keys[count++] = "data.train=random"; // never opened, but a run must have some data
    for (int64_t i = 0; i < call->key_count; i++) keys[count++] = call->keys[i];
    return run_config_load(cli->h, cli->a, NULL, keys, count, r, &c);
}

status bench_peak_measure(const bench_context *c, dtype type, bench_peak *out)
{
    enum { LOOPS = 3 };
    bench_peak peak = {0};
    for (int i = 0; i < LOOPS; i++) { // other processes can only slow the loop down
        const double flops = kern_peak_flops(c->kernels, 0, type);
        if (flops > peak.loop) peak.loop = flops;
    }
    TRY(train_bench_gemm(c->cli->h, c->kernels, type, &peak.gemm));
    peak.flops = peak.loop > peak.gemm ? peak.loop : peak.gemm;
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
    c.threads = assemble_threads(c.config);
    const kern_hint hint = {.threads = c.threads, .level = run_config_level(c.config)};
    TRY(kern_level_check(hint.level));
    TRY(kern_context_create(cli->a, "cpu", &hint, &c.kernels));
    TRY(bench_baseline_read(&c, bench->name));
    const status st = bench->run(&c);
    json_free(c.baseline);
    return st;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "time training steps, kernels and the machine",
    .synopsis = "step [--model PRESET] [--batch B] [--seq T] [--precision P] [--steps N] "
                "[key.path=value ...] | generate [--model PRESET] [--precision P] [--context N] | "
                "machine [--size BYTES] [--write FILE] | "
                "gemm [--model PRESET | --n N --m M --k K] [--dtype P] | "
                "attention [--seq T] [--heads H] [--kv-heads G] [--head-dim D] [--dtype P] | "
                "comm [--ranks N] [--op OP] [--bytes SIZES] [--dtype P] [--tune FILE]; "
                "all: [--json]; all but comm: [--threads N]; step, generate, gemm, attention: "
                "[--baseline FILE]",
    .about =
        "step: measures training steps of a model with random weights on random tokens, "
        "without data and folder, and the time of each part. flops counts 6 x the GEMM weights "
        "per token and 6 L T (heads x head size) for attention, and never counts "
        "recomputation; mfu is its share of the peak, which is the higher of a register loop "
        "and the best GEMM in the same process. generate: decodes one sequence of a model with "
        "random weights, token by token with a KV cache; its share is the bytes of weights "
        "read per token and second, over the bandwidth of a memory copy, both medians of "
        "alternating measurements. machine: measures that peak, bandwidth and latency by size, "
        "and frequency; --write makes the catalogue's entry. gemm: measures the GEMMs of a "
        "step of the model, or y (n, m) = x (n, k) w (m, k) and its gradients. attention: "
        "measures causal attention, forward and backward; FLOPs count half of the square. "
        "comm: measures a collective between ranks of this host, or between ranks that "
        "torchrun, srun or mpirun started on one or several hosts; on one host it also prints "
        "the share of the limit, which is the same reads and writes by the same cores without "
        "synchronization, measured in between. All results are medians; --baseline compares "
        "them with an earlier --json.",
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
