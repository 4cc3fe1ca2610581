// For the tests of the verifier: the plans of all ranks of a small job, places in them by what stands there,
// and small changes to them.
#ifndef PLAN_VERIFY_SAMPLE_H
#define PLAN_VERIFY_SAMPLE_H

#include "plan/plan_sample.h"
#include "plan/verify.h"

typedef struct sample_settings {
    int32_t dp, pp; // 0: 1
    const char *schedule;
    int32_t chunks, stages[8]; // decoder layers of each stage; first 0: even
    int32_t zero, zero_group, shards;
    bool strict, untied, compressed, alone; // alone: an evaluation
    int64_t sequences, micro_batch;         // micro_batch 0: of each rank all
    op_recompute recompute;
    int layers, dim; // 0: 2 and 32
} sample_settings;

typedef struct sample_job {
    arena *a;
    plan_mesh mesh;
    plan_table *tables; // [rank]
    plan **plans;       // [rank]
    int32_t ranks;
} sample_job;

// ST_OK, or what plan_create refuses.
NODISCARD status sample_make(arena *a, const sample_settings *settings, sample_job *out);
NODISCARD status sample_verify(const sample_job *j, plan_verified *out);

// Places; what is looked for is there.
plan_action *sample_action(plan *p, int32_t index);
// The n-th communication of this operation whose name begins so.
int32_t sample_find_comm(const plan *p, plan_comm_op op, const char *name, int n);
// The n-th action of a layer's list in a micro-batch.
int32_t sample_find_list(const plan *p, const char *layer, op_list list, int32_t microbatch, int n);
// The n-th action whose first node is this operation.
int32_t sample_find_node(const plan *p, op_code code, int n);
int32_t sample_find_kind(const plan *p, action_kind kind);
plan_tensor *sample_tensor(plan *p, const char *name);
plan_comm *sample_comm(plan *p, int32_t action);
plan_comm_item *sample_item(plan *p, int32_t action, int32_t item);

// Its place in the list stays, it does nothing.
void sample_leave_out(plan *p, int32_t index);
void sample_forget_waits(plan *p, int32_t index);
void sample_wait_for(plan *p, int32_t index, int32_t on);
// The tensors that an action's program stands for here, in a copy that may be changed.
int32_t *sample_own_map(plan *p, int32_t index);
void sample_swap_comms(plan *p, int32_t one, int32_t other);

#endif
