// Pass 2 of lowering: which tensors each run of a layer works on.
#ifndef PLAN_LOWER_BIND_H
#define PLAN_LOWER_BIND_H

#include "plan/lower/boundary.h"
#include "plan/lower/expand.h"

// One use of a weight by one layer, and its accumulators.
typedef struct weight_use {
    int32_t weight, layer;
    tensor_id local;                  // ROLE_WEIGHT_GRAD of the layer's program
    int32_t buffer[TREE_MAX_BUFFERS]; // transient tensors
    int32_t buffers;                  // how many
    bool shared;  // fast: another use of the same weight has the same accumulator
    int32_t adds; // 1 + last row of bound.adds for this use; 0: none
} weight_use;

// The tensors of a layer for one micro-batch in flight.
typedef struct layer_slot {
    int32_t *tensor;                   // [tensor of the program], without gradients of weights
    int32_t binding[TREE_MAX_BUFFERS]; // one per accumulator
    int32_t bound;                     // 1 + row of the boundary binding made last; 0: none
} layer_slot;

typedef struct layer_tensors {
    layer_slot *slots;            // NULL: another stage has the layer
    int64_t use_begin, use_count; // into bound.uses
} layer_tensors;

// Slots of micro-batches in flight, and the buffers of transfers between stages.
typedef struct bound_slots {
    int32_t slot_count;
    int32_t *pool;     // [chunk] number of the slot pool; consecutive stages on this rank share one
    int32_t **slot_of; // [chunk][micro-batch]; -1: the micro-batch is not in the chunk
    bool (*crosses)[BOUNDARY_COUNT]; // [chunk] it receives from or sends to another rank
    plan_boundary_buffers boundary;
    int32_t *buffer_ref; // [buffer] transient tensor
} bound_slots;

typedef struct bound_visit {
    int32_t actions_begin, actions_count; // into bound.actions
    // Where gradients are unsharded for one layer at a time: for each use of the layer, the row in
    // bound.sums of the action that adds this rank's rows so far to the whole gradient; -1: there
    // is no such action.
    int32_t sums_begin;
} bound_visit;

// The binding of a program that adds one accumulator to another one.
typedef struct bound_add {
    int32_t target, source, binding;
    int32_t next; // 1 + next row of the same use; 0: none
} bound_add;

// The end of a step: rows of bound.actions.
typedef struct bound_update {
    int32_t *final;                   // [weight] tensor with its complete gradient; -1
    int32_t adds_begin, adds_count;   // sums over several uses of a weight
    int32_t norms_begin, norms_count; // norms of this rank's share of the gradients
    int32_t decide;                   // -1: there is no update
    int32_t *optimize;                // [weight]; -1: this rank updates no rows of it
} bound_update;

typedef struct bound {
    bound_slots slots;
    layer_tensors *layers;
    weight_use *uses;
    int64_t use_count, use_capacity;
    bool *holds;       // [weight] this rank has it
    int32_t *whole_of; // [weight] transient tensor: the gathered weight; -1
    int32_t *rows_of;  // [weight] transient tensor: this rank's rows of its gradient; -1
    int32_t step_ref;
    plan_action *actions; // without communications, streams and waits
    int64_t action_count, action_capacity;
    bound_visit *visits; // [visit of expanded]
    int32_t *sums;
    int64_t sum_count, sum_capacity;
    bound_add *adds;
    int64_t add_count, add_capacity;
    int32_t begin; // action that begins the step
    bound_update update;
    int32_t *kept; // transient tensors that are read after the step
    int64_t kept_count, kept_capacity;
} bound;

NODISCARD status plan_bind(const lower_input *in, const expanded *x, bound *out);
// The part of plan_bind that depends on schedule and layout alone.
NODISCARD status plan_bind_slots(const lower_input *in, const expanded *x, bound_slots *out);

static inline bool bind_is_unsharded(const bound *b, int32_t weight)
{
    return b->rows_of[weight] >= 0;
}
// The buffer of a transfer between stages; -1: the tensor crosses to no other rank.
static inline int32_t bind_buffer(const lower_input *in, const bound_slots *s, int32_t chunk,
                                  int32_t microbatch, boundary_kind kind)
{
    if (!s->crosses[chunk][kind]) return -1;
    return s->boundary.buffer[kind][(int64_t)chunk * in->pipe.shape.microbatches + microbatch];
}
// The layer, and the tensor of its program, that a chunk sends to another stage or receives from
// one.
int32_t bind_boundary_layer(const expand_chunk *c, boundary_kind kind);
tensor_id bind_boundary_tensor(const lower_input *in, const expand_chunk *c, boundary_kind kind);

#endif
