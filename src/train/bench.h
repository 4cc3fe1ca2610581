// Measurements of this machine and of the parts of a training step, for `trireme bench`.
//
// Functions here measure and count; what they find is plain data, printed by cli. Times are host
// clocks around a kernel, or what the device says of a step; a median with its least and most.
//
//   bench_step.c       whole steps on random tokens, and the time of each kind of operation in them
//   bench_parts.c      pure: spans and a plan to "where the time goes, and what bounds it"
//   bench_kernel.c     one kernel call by itself: products at a model's shapes, attention
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
// All calls of one kind of operation in a step. FLOPs and bytes are what its row in op/ says that a
// call must compute, read and write: each operand once, recomputation included.
typedef struct train_part {
    const char *name;
    int64_t calls;
    double seconds, flops, bytes;
} train_part;

enum { TRAIN_MAX_PARTS = OP_CODE_COUNT + 1 };
// The longest first; the last row is the time in no operation. Their seconds add up to step_s.
typedef struct train_parts {
    train_part rows[TRAIN_MAX_PARTS];
    int count;
    double step_s;
} train_parts;

// The least time that a part can take: its FLOPs at the peak, or its bytes at the speed of a copy.
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

// The windows whose length is the median (one, or the middle two, averaged) with the plan's costs.
NODISCARD status train_parts_make(const plan *p, const train_windows *w, train_parts *out);

// ---- whole steps --------------------------------------------------------------------------------
typedef struct train_bench {
    double step_s; // median
    double step_s_min, step_s_max;
    int64_t arena_bytes, touched_bytes;
    double flops;      // of a step, by the convention of op_model_flops_per_token
    double peak_flops; // of the device, in a second (device_api)
    const char *level; // of the device's kernels
    int threads;
    int64_t parameters;
    train_parts parts;
} train_bench;
// Steps on random tokens: no data, no folder. A step lasts from the end of the one before to its
// own end, on the device; so warmup 0 counts what the first step costs too.
NODISCARD status train_bench_steps(const host *h, arena *a, const run_config *r,
                                   const decoder_spec *spec, int64_t warmup, int64_t steps,
                                   train_bench *out);

// ---- single kernels -----------------------------------------------------------------------------
typedef struct train_bench_on {
    const host *h;
    const kern_context *kernels; // of the cpu backend
    dtype type;                  // of operands
    int64_t repeats; // timed calls after one that is not; 0: 3 to 20, until two seconds have gone
} train_bench_on;

// y(n, m) = x(n, k) w(m, k)^T, or a gradient of it, or the whole head with its loss.
typedef struct train_gemm {
    op_code code;
    int64_t n, m, k;
    int64_t calls; // in a step
    double flops;  // of a call
    train_time time;
} train_gemm;
double train_gemm_flops(op_code code, int64_t n, int64_t m, int64_t k);
// The products of a step of this model on so many tokens, each shape once.
NODISCARD status train_gemm_shapes(arena *a, const decoder_spec *spec, dtype type, int64_t tokens,
                                   int64_t seq, train_gemm **out, int64_t *count);
NODISCARD status train_gemm_time(const train_bench_on *on, train_gemm *gemm);

typedef struct train_attention {
    int64_t batch, seq, heads, kv_heads, head_dim;
    bool backward;
    // Causal: half of the square. Two products forward, four backward (that the scores are computed
    // again there is recomputation, and does not count).
    double flops;
    train_time time;
} train_attention;
double train_attention_flops(const train_attention *attention);
NODISCARD status train_attention_time(const train_bench_on *on, train_attention *attention);

// FLOP/s of the best of a few matrix products in operands of `type`, by the cpu backend.
NODISCARD status train_bench_product(const host *h, const kern_context *kernels, dtype type,
                                     double *flops_per_s);

// ---- the machine --------------------------------------------------------------------------------
enum { TRAIN_MAX_SIZES = 16 };
typedef struct train_memory_row {
    int64_t bytes; // all that is touched, by all threads together
    int threads;
    double read, write, copy; // bytes/s; a copy counts what it reads and what it writes
} train_memory_row;
typedef struct train_latency_row {
    int64_t bytes;
    double load_s; // of a load whose address the load before gave
} train_latency_row;

typedef struct train_machine {
    char cpu[64];
    const char *level;
    int threads, cores, hardware_threads; // hardware_threads: that this process may use
    double frequency_hz;                  // of a core that works, seen by a chain of additions
    // FLOP/s of all threads in the register loop over that of one, times their number: 1 if each
    // has a core for itself, a half if two share one.
    double thread_share;
    int64_t cache_bytes[3], memory_bytes;   // 0: not known
    double loop_flops[2], product_flops[2]; // fp32, bf16
    train_memory_row memory[TRAIN_MAX_SIZES];
    int memory_count;
    train_latency_row latency[TRAIN_MAX_SIZES];
    int latency_count;
    double barrier_s;
    double copy_bytes_per_s; // in memory, all threads
} train_machine;
// largest_bytes: of the buffers; 0: four times the last cache, 64 MiB to 512 MiB.
NODISCARD status train_machine_measure(const host *h, const kern_context *kernels,
                                       int64_t largest_bytes, train_machine *out);
// A copy of half of a buffer to the other half, by all threads, to be timed in turn with what is
// judged by it: a machine's memory is shared with neighbours, and is another one a second later.
typedef struct train_copy {
    const host *h;
    const kern_context *kernels;
    int64_t bytes;
    void *memory;
} train_copy;
NODISCARD status train_copy_open(const host *h, const kern_context *kernels, int64_t largest_bytes,
                                 train_copy *out);
// Bytes/s of the best of so many tries, what is read and what is written; after one that does not
// count.
NODISCARD status train_copy_run(const train_copy *c, int tries, double *bytes_per_s);
void train_copy_close(train_copy *c);
// Copy bandwidth in memory alone: what bounds an operation that computes little.
NODISCARD status train_machine_copy(const host *h, const kern_context *kernels,
                                    int64_t largest_bytes, double *bytes_per_s);

#endif
