// Lowering: from a model's programs and a schedule to the actions of one step on one rank, in five
// passes.
//
//   expand    what each layer does for each micro-batch: runs of its lists, merges of accumulators
//   bind      the tensors of each run: accumulators, slots of micro-batches in flight, buffers
//             between stages
//   collect   the finished list: collectives where placements differ, waits, overlap with GEMMs
//   live      the intervals in which transient tensors are live
//   place     their offsets
//
// Each pass reads the results of the passes before it and depends neither on later passes nor on
// the caller. A caller that needs only times stops after `collect`, one that needs bytes after
// `place`.
#ifndef PLAN_LOWER_LOWER_H
#define PLAN_LOWER_LOWER_H

#include "plan/pipeline.h"
#include "plan/plan_internal.h"

// The input of all passes, and the plan that they fill.
typedef struct lower_input {
    const plan_request *r; // for this rank's rows: `seq` is the length on one rank along AXIS_CP
    const op_model *m;
    arena *a; // scratch that lasts as long as lowering
    plan *p;
    extent_binding bound; // extents of a micro-batch
    plan_pipeline pipe;
} lower_input;

// Weights of experts are replicated on other ranks than all other weights.
typedef enum lower_kind { KIND_DENSE, KIND_EXPERT, KIND_COUNT } lower_kind;
static inline lower_kind lower_kind_of(const lower_input *in, int32_t weight)
{
    return plan_is_shared_out(&in->r->mesh, &in->m->weights[weight]) ? KIND_EXPERT : KIND_DENSE;
}

// Ranks among which every sequence is cut. In plans that generate each has its own.
static inline int32_t lower_cp(const plan_request *r)
{
    const bool draws = r->model->purpose > PURPOSE_EVALUATE;
    return draws ? 1 : plan_mesh_size(&r->mesh, AXIS_CP);
}

// ZeRO-3: sharded weights are gathered for the layers that read them.
static inline bool lower_gathers_weights(const plan_request *r)
{
    return r->zero >= 3 && plan_zero_size(&r->mesh) > 1;
}
// ZeRO-2: gradients of sharded weights are reduce-scattered after every micro-batch. In strict
// order accumulators stay whole, because the sum of a shard continues from one micro-batch to the
// next.
static inline bool lower_scatters_gradients(const plan_request *r)
{
    return r->zero >= 2 && plan_zero_size(&r->mesh) > 1 && r->optimizer != NULL && !r->strict &&
           !r->sums_once;
}

// The rows of a weight that this rank updates.
plan_rows lower_rows(const lower_input *in, int32_t weight);
// True if this rank computes the norms of only some of the weights, so norms are summed over ranks.
bool lower_norm_is_summed(const lower_input *in);
// Value of plan_comm_item.total for rows of `columns` elements; 0: the pieces are equal.
int64_t lower_pieces_end(const plan_rows *rows, int64_t columns);
// Bytes of a weight or its gradient; if it is sharded, the pieces are padded to equal size.
int64_t lower_padded_bytes(const lower_input *in, int32_t weight, const plan_tensor *t);
// Shrinks `t`, which is as large as the weight, to this rank's rows.
void lower_own_rows(const lower_input *in, int32_t weight, plan_tensor *t);
// A tensor for `rows` of `whole`; `whole` itself if they are all of it.
NODISCARD status lower_part(const lower_input *in, int32_t whole, plan_rows rows, int32_t *out);
// Finds or adds a run tensor; a batch tensor grows to the largest plan's size.
NODISCARD status lower_run_tensor(plan_table *run, const plan_tensor *want, int32_t *ref);
plan_tensor lower_tensor_like(const op_tensor *t, const extent_binding *bound);
void lower_name(plan_tensor *t, const char *a, const char *separator, const char *b);

#endif
