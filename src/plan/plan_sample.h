// A small model made by hand, for the tests of plan and exec: embedding, layers of norm and gated
// feed-forward and a causal attention, a head that may share the embedding's table.
#ifndef PLAN_PLAN_SAMPLE_H
#define PLAN_PLAN_SAMPLE_H

#include "plan/plan.h"

typedef struct plan_sample_config {
    int layers, dim, ffn, heads, vocab;
    int kv_heads; // 0: as many as heads
    bool tied;
    float dropout;
    op_recompute recompute;
    op_purpose purpose;
    dtype compute;
} plan_sample_config;

NODISCARD status plan_sample_model(arena *a, const plan_sample_config *config, op_model **out);
// AdamW for every weight, in fp32 without a master copy.
NODISCARD status plan_sample_optimizer(arena *a, const op_model *m, op_program *const **out);
// On the rows that this rank updates.
NODISCARD status plan_sample_rows_optimizer(arena *a, const op_model *m, const plan_mesh *mesh,
                                            int32_t zero, op_program *const **out);

#endif
