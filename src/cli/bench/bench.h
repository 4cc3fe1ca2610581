// Shared by the parts of `bench`: flags, the peak, the comparison with an earlier measurement.
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "base/format/json.h"
#include "cli/cli.h"
#include "config/run_config.h"
#include "train/bench.h"

// Zero or NULL: the subcommand's own default.
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
    run_config *config; // the run's for `step`; the others read only threads and kernels.level
    kern_context *kernels;
    int threads;
    json *baseline; // NULL: none
} bench_context;

extern const char *const bench_types[]; // names of precisions and dtypes
dtype bench_type(int32_t choice);

status bench_step(bench_context *c);
status bench_machine(bench_context *c);
status bench_gemm(bench_context *c);
status bench_attention(bench_context *c);
status bench_generate(bench_context *c);
status bench_comm(bench_context *c);

// The higher of a register loop and the best GEMM, both measured here.
typedef struct bench_peak {
    double flops, loop, gemm;
} bench_peak;
NODISCARD status bench_peak_measure(const bench_context *c, dtype type, bench_peak *out);

// Prints the time of each part of a `whole` ("step", "token"), as a table or as "parts": [...].
void bench_parts_print(cli_context *cli, const char *whole, const train_parts *parts,
                       double peak_flops, double bytes_per_s);
NODISCARD status bench_parts_json(text *t, const train_parts *parts, double peak_flops,
                                  double bytes_per_s);
// The peak resident memory so far: to be read before measurements that take memory of their own.
int64_t bench_resident_bytes(void);

// Speeds that operations reach inside training steps. They are lower than those of isolated
// kernels, because operands come from wherever the operation before left them. From steps of two
// small models in two types.
typedef struct bench_speeds {
    double gemm[2];                   // FLOP/s of large GEMMs, fp32 and bf16
    double gemm_half, gemm_rows_half; // n and k at half that speed, and m
    double attention[2],
        attention_half;    // forward and backward of long sequences; tokens at half that speed
    double pointwise[2];   // operands per second, fp32 and bf16, of long rows
    double pointwise_half; // columns at half that speed
    double team;           // speed of all threads on one GEMM over their sum on separate ones
} bench_speeds;
NODISCARD status bench_calibrate(const bench_context *c, bench_speeds *out);

// A figure that --baseline compares: its name there ("step", "forward 4096 x 768 x 768") and its
// time.
typedef struct bench_row {
    const char *name;
    double median_s;
} bench_row;
// Reads the file of --baseline, before any measurement. Refuses a file of another subcommand.
NODISCARD status bench_baseline_read(bench_context *c, const char *bench);
// Compares with the baseline. `what` must equal the baseline's, if it has one. ST_ANSWER_NO if a
// row took longer than the tolerance allows; refuses rows that the baseline lacks. Without
// --baseline: ST_OK.
NODISCARD status bench_compare(const bench_context *c, const char *what, const bench_row *rows,
                               int64_t count);

#endif
