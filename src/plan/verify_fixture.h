// For the tests of the verifier: the plans of all ranks of a small job.
#ifndef PLAN_VERIFY_FIXTURE_H
#define PLAN_VERIFY_FIXTURE_H

#include "plan/plan_sample.h"
#include "plan/verify.h"

typedef struct job_settings {
    int32_t dp, pp; // 0: 1
    const char *schedule;
    int32_t chunks, stages[8]; // decoder layers of each stage; first 0: even
    int32_t zero, shards;
    bool strict, untied, compressed, alone; // alone: an evaluation
    int64_t sequences, micro_batch;         // micro_batch 0: of each rank all
    op_recompute recompute;
    int layers;
} job_settings;

typedef struct job {
    arena *a;
    plan_mesh mesh;
    plan_table *tables; // [rank]
    plan **plans;       // [rank]
    int32_t ranks;
} job;

static int64_t job_workspace(void *context, const op_program *program, const op_node *node,
                             const extent_binding *bound, int64_t seq, int64_t cache_seq)
{
    (void)context, (void)program, (void)seq, (void)cache_seq;
    return node->code == OP_MATMUL_DW ? 512 + bound->value[EXTENT_TOKENS] * 16 : 0;
}

static int64_t job_codec_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    (void)context, (void)ranks;
    return (piece > 0 ? piece : count) * 2;
}

// ST_OK, or what plan_create refuses.
static inline status job_make(arena *a, const job_settings *s, job *out)
{
    const plan_codec codec = {.name = "half",
                              .reals = 5,
                              .feedback_bytes = job_codec_bytes,
                              .work_bytes = job_codec_bytes};
    const plan_sample_config config = {.layers = s->layers > 0 ? s->layers : 2,
                                       .dim = 32,
                                       .ffn = 48,
                                       .heads = 4,
                                       .vocab = 67,
                                       .tied = !s->untied,
                                       .recompute = s->recompute,
                                       .purpose = s->alone ? PURPOSE_EVALUATE : PURPOSE_TRAIN};
    int32_t stages = 0;
    while (stages < 8 && s->stages[stages] > 0) stages++;
    *out = (job){.a = a, .mesh = {.size = {[AXIS_DP] = s->dp, [AXIS_PP] = s->pp}}};
    out->ranks = (int32_t)plan_mesh_ranks(&out->mesh);
    TRY(arena_new(a, out->ranks, &out->tables));
    TRY(arena_new(a, out->ranks, &out->plans));
    for (int32_t r = 0; r < out->ranks; r++) {
        op_model *m = NULL;
        plan_request request = {
            .mesh = plan_mesh_from(&out->mesh, r),
            .sequences = s->sequences,
            .micro_batch = s->micro_batch,
            .seq = 8,
            .pipeline = {.schedule = s->pp > 1 ? plan_schedule_find(s->schedule) : NULL,
                         .chunks = s->chunks,
                         .layers = stages > 0 ? s->stages : NULL,
                         .layers_count = stages},
            .zero = s->zero,
            .strict = s->strict,
            .shards = s->shards > 0 ? s->shards : 8,
            .codec = s->compressed ? &codec : NULL,
            .scratch_bytes = 4096,
            .workspace = job_workspace};
        int64_t first = 0, own = 0;
        TRY(plan_sample_model(a, &config, &m));
        request.model = m;
        if (!s->alone) {
            TRY(plan_sample_rows_optimizer(a, m, &request.mesh, s->zero, &request.optimizer));
        }
        plan_own_sequences(&request.mesh, s->strict, request.shards, s->sequences, &first, &own);
        if (s->micro_batch == 0) request.micro_batch = own;
        out->tables[r].a = a;
        TRY(plan_create(a, &request, &out->tables[r], &out->plans[r]));
        plan_table_place(&out->tables[r]);
    }
    return ST_OK;
}

static inline status job_verify(const job *j, plan_verified *out)
{
    return plan_verify(j->a, &j->mesh, (const plan *const *)j->plans, out);
}

#endif
