// Layers on stages.
#include "plan/pipeline.h"

// Decoder layers of each stage: as asked for, or as even as can be, the first ones taking what is left.
static status layers_of_stages(const plan_pipeline_request *r, int32_t depth, int32_t decoders,
                               int32_t *count)
{
    if (r->layers == NULL) {
        if (depth > decoders) {
            return fail(ST_CONFIG_CONFLICT,
                        "layout.pp x layout.vpp = %d stages, the model has %d layers: at most %d "
                        "stages",
                        (int)depth, (int)decoders, (int)decoders);
        }
        for (int32_t i = 0; i < depth; i++) {
            count[i] = decoders / depth + (i < decoders % depth ? 1 : 0);
        }
        return ST_OK;
    }
    int64_t sum = 0;
    if (r->layers_count != depth) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.stages has %d numbers, the pipeline has %d stages (layout.pp x "
                    "layout.vpp)",
                    (int)r->layers_count, (int)depth);
    }
    for (int32_t i = 0; i < depth; i++) {
        count[i] = r->layers[i];
        sum += count[i];
        if (count[i] < 1) {
            return fail(ST_CONFIG_RANGE,
                        "layout.stages: stage %d has %d layers, expected 1 or more", (int)i,
                        (int)count[i]);
        }
    }
    if (sum == decoders) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "layout.stages are %lld layers together, the model has %d",
                (long long)sum, (int)decoders);
}

static status stages_cut(arena *a, const op_model *m, const plan_pipeline_request *r,
                         plan_pipeline *out)
{
    int32_t *first = NULL, *count = NULL;
    const int32_t decoders = m->layer_count - 2; // between embedding and head
    TRY(arena_new(a, out->depth + 1, &first));
    TRY(arena_new(a, out->depth, &count));
    out->first_layer = first;
    if (out->depth == 1) {
        first[1] = m->layer_count;
        return ST_OK;
    }
    TRY(layers_of_stages(r, out->depth, decoders, count));
    int32_t at = 1; // the embedding stands with the first stage, the head with the last
    for (int32_t i = 0; i < out->depth; i++) {
        at += count[i];
        first[i + 1] = at;
    }
    first[out->depth] = m->layer_count;
    return ST_OK;
}

status plan_pipeline_make(arena *a, const op_model *m, const plan_mesh *mesh,
                          const plan_pipeline_request *r, int64_t microbatches, plan_pipeline *out)
{
    const int32_t stages = plan_mesh_size(mesh, AXIS_PP);
    *out = (plan_pipeline){.model = m, .depth = 1, .schedule = r->schedule};
    out->shape = (schedule_request){
        .stages = stages, .microbatches = (int32_t)microbatches, .chunks = r->chunks};
    if (r->schedule == NULL) {
        if (stages > 1) return fail(ST_INTERNAL, "%d stages and no schedule", (int)stages);
        out->shape.chunks = 1;
        return stages_cut(a, m, r, out);
    }
    if (r->chunks == 0) out->shape.chunks = r->schedule->chunks_min;
    if (microbatches > 0) TRY(plan_schedule_check(r->schedule, &out->shape));
    out->depth = plan_schedule_depth(r->schedule, &out->shape);
    return stages_cut(a, m, r, out);
}

int32_t plan_pipeline_stage_of(const plan_pipeline *p, int32_t layer_row)
{
    int32_t stage = 0;
    while (p->first_layer[stage + 1] <= layer_row) stage++;
    return stage;
}

int32_t plan_pipeline_chunk_of(const plan_pipeline *p, int32_t pp, int32_t layer_row)
{
    if (p->schedule == NULL) return 0;
    const int32_t stage = plan_pipeline_stage_of(p, layer_row);
    for (int32_t c = 0; c < p->shape.chunks; c++) {
        if (plan_schedule_stage(p->schedule, &p->shape, pp, c) == stage) return c;
    }
    return -1;
}

static bool layer_uses(const op_model *m, int32_t layer_row, int32_t weight)
{
    const op_layer *layer = &m->layers[layer_row];
    const op_program *program = m->programs[layer->program];
    for (int64_t t = 0; t < program->tensor_count; t++) {
        if (program->tensors[t].role == ROLE_WEIGHT && layer->weight_of[t] == weight) return true;
    }
    return false;
}

int plan_pipeline_holders(const plan_pipeline *p, int32_t weight, int32_t holders[PLAN_MAX_HOLDERS])
{
    int count = 0;
    for (int32_t pp = 0; pp < p->shape.stages; pp++) {
        bool holds = false;
        for (int32_t i = 0; i < p->model->layer_count && !holds; i++) {
            holds = layer_uses(p->model, i, weight) && plan_pipeline_chunk_of(p, pp, i) >= 0;
        }
        if (!holds) continue;
        ASSERT(count < PLAN_MAX_HOLDERS);
        holders[count++] = pp;
    }
    return count;
}
