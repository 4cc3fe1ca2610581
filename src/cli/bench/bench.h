// What the parts of `bench` share: its flags, the peak, the comparison with an earlier measurement.
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "base/format/json.h"
#include "cli/cli.h"
#include "config/run_config.h"
#include "train/bench.h"

// Zero or NULL stands for what the subcommand takes by itself.
typedef struct bench_flags {
    const char *model, *baseline, *write, *op, *bytes, *algorithm, *transport, *tune;
    int64_t batch, seq, threads, steps, repeats;
    int64_t context;
    int64_t ranks, n, m, k, heads, kv_heads, head_dim, size;
    int32_t precision, dtype;
    double tolerance;
    bool json, is_private, stream;
} bench_flags;

typedef struct bench_context {
    cli_context *cli;
    const bench_flags *flags;
    run_config *config; // of `step` the run's; of the others only threads and kernels.level
    kern_level level;
    int threads;
    json *baseline; // NULL: none
} bench_context;

extern const char *const bench_types[]; // the words of precision and dtype
dtype bench_type(int32_t choice);

status bench_step(bench_context *c);
status bench_machine(bench_context *c);
status bench_gemm(bench_context *c);
status bench_attention(bench_context *c);
status bench_generate(bench_context *c);
status bench_comm(bench_context *c);

// The larger of a register loop and the best product, both measured here.
typedef struct bench_peak {
    double flops, loop, product;
} bench_peak;
NODISCARD status bench_peak_measure(const bench_context *c, kern_level level, int threads,
                                    dtype type, bench_peak *out);

// Where the time of a `whole` ("step", "token") goes, as a table or as "parts": [...].
void bench_parts_print(cli_context *cli, const char *whole, const train_parts *parts,
                       double peak_flops, double bytes_per_s);
NODISCARD status bench_parts_json(text *t, const train_parts *parts, double peak_flops,
                                  double bytes_per_s);
// The most that ever lay in memory: to be asked before measurements that take memory of their own.
int64_t bench_resident_bytes(void);

// What operations of training steps reach here, which is less than single kernels do: their operands come
// from wherever the operation before left them. Of steps of two small models in two types.
typedef struct bench_speeds {
    double product[2];                      // FLOP/s of large products, fp32 and bf16
    double product_half, product_rows_half; // n and k of half that, and m
    double attention[2],
        attention_half;    // forward, backward, of long sequences; tokens of half that
    double pointwise[2];   // operands a second, fp32 and bf16, of long rows
    double pointwise_half; // columns of half that
    double team;           // of what its threads do each for itself, that all do on one product
} bench_speeds;
NODISCARD status bench_calibrate(const bench_context *c, bench_speeds *out);

// The figure that --baseline compares: its name there ("step", "forward 4096 x 768 x 768") and
// what it took.
typedef struct bench_row {
    const char *name;
    double median_s;
} bench_row;
// Of --baseline, before all else. One of another subcommand is refused.
NODISCARD status bench_baseline_read(bench_context *c, const char *bench);
// `what` must be that of the baseline, where it names one. ST_ANSWER_NO if a row took longer than
// the tolerance allows; rows that the baseline lacks are refused. Without --baseline: ST_OK.
NODISCARD status bench_compare(const bench_context *c, const char *what, const bench_row *rows,
                               int64_t count);

#endif
