// Measures collectives on this host, for `trireme bench comm` and for its tuning table.
//
// Ranks are forked, pinned to cores in turn, and share memory. A size is measured in samples of
// several operations. Between two samples the *limit* is measured: the same reads and writes by the
// same cores on the same memory without synchronisation, with ordinary and with streaming stores,
// the faster of both. Ranks of several hosts have no such limit.
#ifndef COMM_BENCH_H
#define COMM_BENCH_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_BENCH_SIZES = 64, COMM_BENCH_SAMPLES = 31 };

typedef struct comm_bench_config {
    const host *h;
    int ranks;
    op_collective op;
    op_reduction reduction;
    comm_order order;
    dtype type;
    const char *algorithm; // NULL: the one that is chosen
    const char *tuning;    // NULL: built-in choices
    bool is_private;       // buffers that peers cannot reach
    bool limit;            // measure it
    bool stream;           // SEND: one way, one after the other; else there and back
    int64_t bytes[COMM_BENCH_SIZES];
    int count;
} comm_bench_config;

// bytes are those of the largest operand of a rank (all_gather: of its output), as is the
// bandwidth.
typedef struct comm_bench_row {
    int64_t bytes;
    double median_s, min_s, max_s;
    double limit_s; // median; 0: not measured
    double bus;     // bytes over a link per byte of the operand: 2(n-1)/n of all_reduce, ...
    char algorithm[32], transport[16]; // that really ran
    bool staged;
} comm_bench_row;

// rows: config->count of them.
NODISCARD status comm_bench_run(const comm_bench_config *config, comm_bench_row *rows);
// The same with existing ranks, also of several hosts; rank 0 gets the rows. Collective.
NODISCARD status comm_bench_join(comm *c, const comm_bench_config *config, comm_bench_row *rows);

// Lists the algorithms of an operation that serve `ranks` over shared memory, at most `capacity`.
int comm_bench_algorithms(op_collective op, int ranks, const char **names, int capacity);

#ifdef __cplusplus
}
#endif
#endif
