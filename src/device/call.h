// The launch record: one call of a kernel. The executor fills it, a device queues it and a backend
// runs it.
//
// A device copies the record and reads only the names for the trace in it. Kernels (kernels/) get
// operands as addresses with types, dims and strides.
#ifndef DEVICE_CALL_H
#define DEVICE_CALL_H

#include "op/op.h"
#include "op/step.h"

#ifdef __cplusplus
extern "C" {
#endif

// A tensor as a kernel sees it. Strides in elements; the last dim is contiguous (stride 1).
typedef struct kern_tensor {
    void *data; // NULL: operand missing
    dtype type;
    int32_t ndim;
    int64_t dims[OP_MAX_DIMS];
    int64_t strides[OP_MAX_DIMS];
    // Address in device memory of the count of bounded rows; dims[0] is the bound. NULL: dims are
    // exact. Kernels neither read nor write rows from the count on. For backends that run on the
    // host, kern_run passes the live count as dims[0]. If a call itself computes the count, its
    // kernel gets the bound.
    const void *count;
    dtype count_type; // DTYPE_I32 or DTYPE_I64
} kern_tensor;

// The hash of a tile of an operand (kern_seal_tile), and whether its bytes have had another one.
typedef struct kern_tile {
    uint64_t hash;
    bool has_changed; // set, and never cleared, by calls
} kern_tile;

// Hashes of the state that an update writes, from one call to the next, in memory of the host. The
// call compares each tile with its hash before it writes it, and hashes it anew after that, while
// the tile is in a cache. A step that is skipped only compares. The operands are contiguous.
typedef struct kern_seal {
    kern_tile *out[OP_MAX_OUT]; // [tile]; NULL: not of this output
    // [tile] of in[0], the gradient, which the call hashes when it reads it; NULL: it does not.
    kern_tile *grad;
    bool compares_grad; // these are its hashes from before, unless the run is halted
} kern_seal;

typedef struct kern_call {
    op_code code;
    op_attrs attrs;
    op_piece piece;
    kern_tensor in[OP_MAX_IN], out[OP_MAX_OUT];
    step_block *step; // device memory
    void *workspace;  // workspace_bytes of the backend's row for this call; aligned to 64
    int64_t workspace_bytes;
    // Packed weight, kept for several calls: packed_bytes of the backend's row, aligned to 64.
    // NULL: none. With `fills` this call packs it; without, an earlier call has.
    void *packed;
    bool fills;
    int64_t seq;            // T: rows per sequence
    int64_t cache_seq;      // S_max of caches; 0 without
    int64_t first_sequence; // number within the global batch of the sequence of row 0
    // DROPOUT of positions that are cut over AXIS_TP (op/zigzag.h: cut_position): the number of
    // ranks, this rank's index, and the pieces of a sequence. 0: they are not cut.
    int64_t cut_ways, cut_at, cut_pieces;
    // Operations that find their rows themselves: those of `sequence_count` sequences of the
    // micro-batch from sequence_begin on (count 0: of all), of rank rows_of - 1 (0: of all ranks).
    int64_t sequence_begin, sequence_count, rows_of;
    int64_t first_head;  // number within the layer of head 0, where heads are cut: dropout
    int64_t first_row;   // number within the weight of row 0, where rows are cut: optimizers
    double loss_divisor; // HEAD_LOSS
    bool accumulate;     // "+=" outputs: false = start from +0
    bool strict;         // bits of a row may not depend on other rows, threads or position
    // With strict: sums over rows that continue over several calls have had an even number of rows
    // so far, so a unit that takes two rows at a time gives one sequential sum.
    bool in_pairs;
    int32_t cp_shards; // with strict: the ranks of AXIS_CP that may share a sequence; 0, 1: one
    bool poison;       // bounded outputs: rows that are not there become NaN (bytes 0xFF)
    // A second call that the plan fused with this one (kern_fuses): both are one launch. NULL:
    // none.
    const struct kern_call *then;
    const kern_seal *seal; // borrowed until the call has run; NULL: none
    // For the trace: step, micro-batch, layer and names.
    int32_t step_no, microbatch, layer;
} kern_call;

#ifdef __cplusplus
}
#endif
#endif
