// Measurements of this machine and of the parts of a training step, for `trireme bench`.
//
// Functions here measure and count and return plain data, which cli prints. Times come from the
// host's clock around a kernel or from the device's record of a step, and are reported as median,
// minimum and maximum.
//
//   bench_step.c       whole steps on random tokens, and the time of each kind of operation in them
//   bench_parts.c      pure: spans and a plan to "where the time goes, and what bounds it"
//   bench_kernel.c     one kernel call by itself: GEMMs of a model's shapes, attention
//   bench_machine.c    peak, memory, latency, frequency
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "model/model.h"
#include "train/job.h"

typedef struct train_time {
    double median_s, min_s, max_s;
    int64_t count;
} train_time;
// Sorts. The median of an even number is the mean of the middle two.
train_time train_time_of(double *seconds, int64_t count);

// ---- parts of a step ----------------------------------------------------------------------------
// All calls of one kind of operation in a step. FLOPs and bytes are those that the operation's row
// in op/ states for a call (each operand read or written once), recomputation included.
typedef struct train_part {
    const char *name;
    int64_t calls;
    double seconds, flops, bytes;
} train_part;

enum { TRAIN_MAX_PARTS = OP_CODE_COUNT + 1 };
// Parts of a step, the longest first; the last row is the time in no operation. Their seconds add
// up to step_s.
typedef struct train_parts {
    train_part rows[TRAIN_MAX_PARTS];
    int count;
    double step_s;
} train_parts;

// The shortest possible time of a part: its FLOPs at the peak rate, or its bytes at copy bandwidth.
double train_part_bound_s(const train_part *part, double peak_flops, double bytes_per_s);

// Steps are windows of time that follow one another; a span counts in each window with the time
// that lies inside it. Spans of one stream come in any order and never overlap.
typedef struct train_window {
    int64_t begin_ns, end_ns;
    double in_operation[OP_CODE_COUNT];
} train_window;
typedef struct train_windows {
    arena *a;
    train_window *all;
    int64_t count, capacity;
    int64_t last_ns; // end of the last window
    struct train_span {
        op_code code;
        int64_t begin_ns, end_ns;
    } * open; // spans that reach beyond last_ns
    int64_t open_count, open_capacity;
} train_windows;
void train_windows_init(train_windows *w, arena *a, int64_t first_ns);
NODISCARD status train_windows_span(train_windows *w, op_code code, int64_t begin_ns,
                                    int64_t end_ns);
// Adds all spans of the compute stream that the ring holds. Lost records are ST_INTERNAL.
NODISCARD status train_windows_trace(train_windows *w, trace_ring *trace);
// Number of records that the steps in flight can leave between two calls.
int64_t train_trace_capacity(const plan *p);
NODISCARD status train_windows_close(train_windows *w, int64_t end_ns); // the window ends here
// The next window begins at begin_ns; no window holds the time since the last one ended.
void train_windows_resume(train_windows *w, int64_t begin_ns);

// Averages the windows of median length (one, or the middle two) and adds the plan's costs.
NODISCARD status train_parts_make(const plan *p, const train_windows *w, train_parts *out);

// ---- whole steps --------------------------------------------------------------------------------
typedef struct train_bench {
    double step_s; // median
    double step_s_min, step_s_max;
    int64_t arena_bytes, touched_bytes;
    double flops;       // of a step, by the convention of op_model_flops_per_token
    double peak_flops;  // of the device, in a second (device_api)
    double bytes_per_s; // of its memory, where its maker states both (device_facts); else 0
    const char *level;  // of the device's kernels
    int threads;
    int64_t parameters;
    train_parts parts;
} train_bench;
// Runs steps on random tokens, without data files or a run folder. A step lasts from the end of the
// step before to its own end, on the device, so with warmup 0 the first step includes its start-up
// cost.
NODISCARD status train_bench_steps(const host *h, arena *a, const run_config *r,
                                   const decoder_spec *spec, int64_t warmup, int64_t steps,
                                   train_bench *out);

// ---- single kernels -----------------------------------------------------------------------------
typedef struct train_bench_on {
    const host *h;
    const kern_context *kernels; // of the cpu backend
    dtype type;                  // of operands
    int64_t repeats;             // timed calls after an untimed one; 0: 3 to 20, up to two seconds
} train_bench_on;

// One GEMM: y(n, m) = x(n, k) w(m, k)^T, or one of its gradients, or the head with its loss.
typedef struct train_gemm {
    op_code code;
    int64_t n, m, k;
    int64_t calls; // in a step
    double flops;  // of a call
    train_time time;
} train_gemm;
double train_gemm_flops(op_code code, int64_t n, int64_t m, int64_t k);
// Computes a product whose sums are exact in any order. *wrong: elements with other bits than whole
// numbers give.
NODISCARD status train_product_prove(const train_bench_on *on, int64_t *wrong);
// Lists the GEMMs of a step of this model on `tokens` tokens, each shape once.
NODISCARD status train_gemm_shapes(arena *a, const decoder_spec *spec, dtype type, int64_t tokens,
                                   int64_t seq, train_gemm **out, int64_t *count);
NODISCARD status train_gemm_time(const train_bench_on *on, train_gemm *gemm);

typedef struct train_attention {
    int64_t batch, seq, heads, kv_heads, head_dim;
    bool backward;
    // Causal attention: half of the square. Counts two GEMMs forward and four backward; computing
    // the scores again in backward is recomputation and does not count.
    double flops;
    train_time time;
} train_attention;
double train_attention_flops(const train_attention *attention);
NODISCARD status train_attention_time(const train_bench_on *on, train_attention *attention);

// Measures FLOP/s of the fastest of a few GEMMs with operands of `type`, on the cpu backend.
NODISCARD status train_bench_gemm(const host *h, const kern_context *kernels, dtype type,
                                  double *flops_per_s);

// ---- the machine --------------------------------------------------------------------------------
enum { TRAIN_MAX_SIZES = 16 };
typedef struct train_memory_row {
    int64_t bytes; // bytes that all threads together touch
    int threads;
    double read, write, copy; // bytes/s; a copy counts the bytes read and the bytes written
} train_memory_row;
typedef struct train_latency_row {
    int64_t bytes;
    double load_s; // time of a load whose address depends on the load before
} train_latency_row;

typedef struct train_machine {
    char cpu[64];
    const char *level;
    int threads, cores, hardware_threads; // hardware_threads: those that this process may use
    double frequency_hz;                  // of a busy core, measured by a chain of additions
    // FLOP/s of all threads in the register loop, divided by (FLOP/s of one thread * number of
    // threads): 1 if each thread has a core for itself, 0.5 if two share one.
    double thread_share;
    int other_threads;                      // of other programs, that want to run all the time
    int64_t cache_bytes[3], memory_bytes;   // 0: unknown
    double loop_flops[2], product_flops[2]; // fp32, bf16
    train_memory_row memory[TRAIN_MAX_SIZES];
    int memory_count;
    train_latency_row latency[TRAIN_MAX_SIZES];
    int latency_count;
    double barrier_s;
    double copy_bytes_per_s; // in memory, all threads
} train_machine;
// largest_bytes: size of the largest buffer; 0 takes four times the last-level cache, between 64
// MiB and 512 MiB.
NODISCARD status train_machine_measure(const host *h, const kern_context *kernels,
                                       int64_t largest_bytes, train_machine *out);
// A copy of one half of a buffer to the other by all threads. It is timed alternately with the
// operation that it is compared with, because a shared machine's memory bandwidth changes from
// second to second.
typedef struct train_copy {
    const host *h;
    const kern_context *kernels;
    int64_t bytes;
    void *memory;
} train_copy;
NODISCARD status train_copy_open(const host *h, const kern_context *kernels, int64_t largest_bytes,
                                 train_copy *out);
// Measures bytes/s of the fastest of `tries` copies, reads and writes counted; one more copy before
// them is not timed.
NODISCARD status train_copy_run(const train_copy *c, int tries, double *bytes_per_s);
void train_copy_close(train_copy *c);
// Measures copy bandwidth of main memory alone, which bounds operations with few FLOPs.
NODISCARD status train_machine_copy(const host *h, const kern_context *kernels,
                                    int64_t largest_bytes, double *bytes_per_s);

#endif
