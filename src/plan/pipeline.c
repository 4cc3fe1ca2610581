// Assigns layers to the stages of a pipeline.
#include "plan/pipeline.h"

// Returns the FLOPs of a layer, forward and backward, on a sequence of a usual length.
static double layer_flops(const op_model *m, int32_t layer_row)
{
    enum { USUAL = 1024 };
    const extent_binding bound = {
        .value = {
            [EXTENT_ONE] = 1, [EXTENT_TOKENS] = USUAL, [EXTENT_SEQS] = 1, [EXTENT_CACHE] = USUAL}};
    const op_program *program = m->programs[m->layers[layer_row].program];
    double flops = 0.0;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < program->lists[list].count; i++) {
            flops += op_node_cost(program, &program->lists[list].nodes[i], &bound).flops;
        }
    }
    return flops;
}

// Fills stage after stage up to `most` FLOPs, with at least one decoder layer each; the last stage
// takes the rest, and `top`: that of the head. Returns whether it also has at most `most`.
static bool stages_fill(const double *flops, double top, int32_t decoders, int32_t depth,
                        double most, int32_t *count)
{
    double cost = flops[0]; // the embedding
    int32_t at = 0;
    for (int32_t s = 0; s < depth; s++) {
        const int32_t later = depth - 1 - s; // stages that need a layer each
        if (later == 0) cost += top;
        count[s] = 0;
        while (at < decoders - later &&
               (later == 0 || count[s] == 0 || cost + flops[1 + at] <= most)) {
            cost += flops[1 + at++];
            count[s]++;
        }
        if (cost > most) return false;
        cost = 0.0;
    }
    return true;
}

// Finds the cut that minimises the FLOPs of the largest stage: a head costs as much as several
// layers.
static status stages_balance(arena *a, const op_model *m, int32_t depth, int32_t decoders,
                             int32_t *count)
{
    double *flops = NULL, low = 0.0, high = 0.0, top = 0.0;
    TRY(arena_new(a, m->layer_count, &flops));
    for (int32_t i = 0; i < m->layer_count; i++) {
        flops[i] = layer_flops(m, i);
        high += flops[i];
        if (i > decoders) top += flops[i];
    }
    for (int i = 0; i < 50; i++) { // precision 2^-50 of the sum
        const double middle = 0.5 * (low + high);
        if (stages_fill(flops, top, decoders, depth, middle, count)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (void)stages_fill(flops, top, decoders, depth, high, count);
    return ST_OK;
}

// Counts the rows of each stage without embedding and head: as requested, or balanced by FLOPs.
static status rows_of_stages(arena *a, const op_model *m, const plan_pipeline_request *r,
                             int32_t depth, int32_t *count)
{
    const int32_t decoders = m->layer_count - 2 - m->next_rows; // between embedding and head
    if (r->rows == NULL) {
        if (depth > decoders) {
            return fail(ST_CONFIG_CONFLICT,
                        "layout.pp x layout.vpp = %d stages, the model has %d layers: at most %d "
                        "stages",
                        (int)depth, (int)decoders, (int)decoders);
        }
        return stages_balance(a, m, depth, decoders, count);
    }
    int64_t sum = 0;
    if (r->rows_count != depth) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.stages has %d numbers, the pipeline has %d stages (layout.pp x "
                    "layout.vpp)",
                    (int)r->rows_count, (int)depth);
    }
    for (int32_t i = 0; i < depth; i++) {
        count[i] = r->rows[i];
        sum += count[i];
        if (count[i] <
            (i == 0 || i == depth - 1 ? 0 : 1)) { // the first and last have embedding and head
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
    TRY(arena_new(a, out->depth + 1, &first));
    TRY(arena_new(a, out->depth, &count));
    out->first_layer = first;
    if (out->depth == 1) {
        first[1] = m->layer_count;
        return ST_OK;
    }
    TRY(rows_of_stages(a, m, r, out->depth, count));
    int32_t at = 1; // the embedding is on the first stage, the rows at the top on the last
    for (int32_t i = 0; i < out->depth; i++) {
        at += count[i];
        first[i + 1] = at;
    }
    first[out->depth] = m->layer_count;
    return ST_OK;
}

// Validates lists from a user's file: an action that is missing or comes twice breaks the plan. The
// verifier finds ranks that wait for each other.
static status lists_check(arena *a, const plan_schedule *s, const schedule_request *r)
{
    if (s->file == NULL) return ST_OK;
    const status st = plan_schedule_validate(s, r, a);
    if (st != ST_CONFIG) return st;
    error_record why;
    error_take(&why);
    return fail(ST_BROKEN_PLAN, "%.3000s", why.text);
}

static void holder_add(int32_t holders[PLAN_MAX_HOLDERS], int32_t rank)
{
    int32_t at = rank;
    for (int i = 0; i < PLAN_MAX_HOLDERS; i++) {
        if (holders[i] == at) return;
        if (holders[i] >= 0 && holders[i] < at) continue;
        const int32_t next = holders[i]; // moves to the next slot
        holders[i] = at;
        if (next < 0) return;
        at = next;
    }
    ASSERT(at < 0); // more than PLAN_MAX_HOLDERS
}

// Finds the holders of all weights in one pass over the layers.
static status holders_find(arena *a, plan_pipeline *p)
{
    int32_t(*holders)[PLAN_MAX_HOLDERS] = NULL;
    TRY(arena_new(a, p->model->weight_count + 1, &holders));
    for (int64_t w = 0; w < p->model->weight_count; w++) {
        for (int i = 0; i < PLAN_MAX_HOLDERS; i++) holders[w][i] = -1;
    }
    const bool two = p->schedule != NULL && p->schedule->shape == SHAPE_TWO;
    for (int32_t stage = 0; stage < p->depth; stage++) {
        int32_t rank[2] = {0, 0}, chunk = 0;
        for (int32_t d = 0; d < (two ? 2 : 1) && p->schedule != NULL; d++) {
            plan_schedule_holder(p->schedule, &p->shape, stage, d, &rank[d], &chunk);
        }
        for (int32_t i = p->first_layer[stage]; i < p->first_layer[stage + 1]; i++) {
            const op_layer *layer = &p->model->layers[i];
            const op_program *program = p->model->programs[layer->program];
            for (int64_t t = 0; t < program->tensor_count; t++) {
                if (program->tensors[t].role != ROLE_WEIGHT || layer->weight_of[t] < 0) continue;
                holder_add(holders[layer->weight_of[t]], rank[0]);
                if (two) holder_add(holders[layer->weight_of[t]], rank[1]);
            }
        }
    }
    p->holders = (const int32_t(*)[PLAN_MAX_HOLDERS])holders;
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
        TRY(stages_cut(a, m, r, out));
        return holders_find(a, out);
    }
    if (r->chunks == 0) out->shape.chunks = r->schedule->chunks_min;
    if (microbatches > 0) {
        TRY(plan_schedule_check(r->schedule, &out->shape));
        TRY(lists_check(a, r->schedule, &out->shape));
    }
    out->depth = plan_schedule_depth(r->schedule, &out->shape);
    TRY(stages_cut(a, m, r, out));
    return holders_find(a, out);
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

int plan_pipeline_holders(const plan_pipeline *p, int32_t weight, int32_t holders[PLAN_MAX_HOLDERS])
{
    int count = 0;
    for (; count < PLAN_MAX_HOLDERS && p->holders[weight][count] >= 0; count++) {
        holders[count] = p->holders[weight][count];
    }
    return count;
}
