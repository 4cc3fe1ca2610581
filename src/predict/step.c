// Predicts a step in virtual time from configuration and cluster, and computes its figures.
#include "predict/step.h"

#include "predict/habits.h"
#include "predict/repeat.h"

#include <math.h>
#include <string.h>

// The rank of dp with the most sequences: a rank that waits for it waits for all.
static int32_t busiest_dp(const run_config *r)
{
    plan_mesh mesh = run_config_mesh(r, 0);
    int64_t most = -1, first = 0, own = 0;
    int32_t at = 0;
    for (int32_t i = 0; i < (int32_t)r->layout.dp; i++) {
        mesh.at[AXIS_DP] = i;
        plan_own_sequences(&mesh, r->determinism.mode == RUN_STRICT, (int32_t)r->determinism.shards,
                           run_config_batch_max(r), &first, &own);
        if (own <= most) continue;
        most = own;
        at = i;
    }
    return at;
}

bool predict_experts_even(const predict_setup *s)
{
    return !cost_is_processor(&s->machine.device);
}

// True if the profile adds bytes to a plan that differ from stage to stage.
static bool adds_bytes(const cost_profile *p)
{
    return p->slack != 0.0 || predict_habit_adds_bytes(p);
}

static int64_t usable_of(const cluster_device *d)
{
    return (int64_t)(d->usable_bytes > 0.0 ? d->usable_bytes : d->memory_bytes);
}

static status plans_make(arena *a, const predict_setup *s, const assemble_options *how,
                         predict_step *out)
{
    const run_config *r = s->r;
    assemble_options options = *how;
    options.threads = 1;
    options.device = options.backend = "cpu";
    options.documents = r->data.packing != RUN_PACKING_PLAIN;
    options.mesh = run_config_mesh(r, 0);
    options.sizes_only = true;
    options.even_experts = predict_experts_even(s);
    options.scratch = s->plan_scratch;
    options.rows_inline = predict_habit_rows_inline(&s->profile);
    options.whole_again = predict_habit_whole_again(&s->profile);
    const int share = (int)max_i64(1, assemble_threads(r) / run_config_ranks(r));
    if (r->kernels.threads > 0) {
        options.threads = (int)r->kernels.threads;
    } else if (cost_is_processor(&s->machine.device)) {
        options.threads = share;
    }
    options.mesh.at[AXIS_DP] = busiest_dp(r);
    out->stages = (int32_t)r->layout.pp;
    TRY(arena_new(a, out->stages, &out->plans));
    TRY(arena_new(a, out->stages, &out->ranks));
    TRY(assemble_stages(a, r, &s->spec, &options, out->plans));
    for (int32_t i = 0; i < out->stages; i++) {
        out->ranks[i] =
            (sim_rank){.p = out->plans[i].all[0], .mesh = options.mesh}; // NULL: not made
        out->ranks[i].mesh.at[AXIS_PP] = i;
    }
    const plan *p = out->ranks[how->peak_stages != NULL ? how->peak_stages[0] : 0].p;
    out->micro_batch = p->micro_batch;
    out->simulated = out->microbatches = p->own_sequences / p->micro_batch;
    return ST_OK;
}

cost_model predict_prices(const predict_setup *s)
{
    return (cost_model){.c = &s->machine,
                        .profile = &s->profile,
                        .fp8 = s->r->train.precision == RUN_FP8,
                        .top_k = s->spec.experts.top_k};
}

// Copies the parts that outlive the arena of the simulation.
static status step_keep(arena *a, sim_step **step)
{
    sim_step *kept = NULL;
    TRY(arena_new(a, 1, &kept));
    *kept = **step;
    TRY(arena_new(a, kept->ranks, &kept->times));
    TRY(arena_new(a, kept->ranks, &kept->some));
    memcpy(kept->times, (*step)->times, (size_t)kept->ranks * sizeof(*kept->times));
    memcpy(kept->some, (*step)->some, (size_t)kept->ranks * sizeof(*kept->some));
    *step = kept;
    return ST_OK;
}

status predict_step_run(arena *a, const predict_setup *s, predict_step *out)
{
    const cost_model prices = predict_prices(s);
    arena *work = s->scratch[0] != NULL ? s->scratch[0] : a;
    sim_prices *all = NULL;
    if (work != a) arena_reset(work);
    TRY(arena_new(work, out->stages, &all));
    TRY(sim_price(work, &prices, out->ranks, out->stages, all));
    TRY(sim_step_run(work, out->ranks, out->stages, all,
                     sim_host_ns(&prices, out->ranks, out->stages), SIM_STEPS, &out->step));
    return work != a ? step_keep(a, &out->step) : ST_OK;
}

status predict_step_turns(arena *a, const predict_step *x, sim_turns *out)
{
    const cluster *c = &x->of->machine;
    const cost_model prices = predict_prices(x->of);
    const int64_t cores = c->node.cpu_cores, ranks = x->devices;
    const int64_t each = x->of->r->kernels.threads, own = max_i64(1, cores / ranks);
    const int64_t threads = min_i64(each > 0 ? each : own, max_i64(1, cores));
    const bool is_whole = x->rounds == 0 && !x->is_line && ranks <= SIM_TURNS_RANKS;
    sim_prices *all = NULL;
    *out = (sim_turns){0};
    if (!is_whole || !cost_is_processor(&c->device) || ranks > c->levels[0].devices) return ST_OK;
    if (cores <= 0 || ranks * threads + c->node.other_threads <= cores) return ST_OK;
    const sim_cores how = {.cores = (int32_t)cores,
                           .threads = (int32_t)threads,
                           .others = c->node.other_threads,
                           .speed = (double)cores / (double)(ranks * threads)};
    TRY(arena_new(a, x->stages, &all));
    TRY(sim_price(a, &prices, x->ranks, x->stages, all));
    return sim_turns_run(a, x->ranks, x->stages, all, &how, out);
}

// FLOPs per token that a backward pass recomputes, in GEMMs and attention.
static double recomputed_flops(const op_model *m, int64_t seq)
{
    const extent_binding bound = {
        .value = {
            [EXTENT_ONE] = 1, [EXTENT_TOKENS] = seq, [EXTENT_SEQS] = 1, [EXTENT_TOKENS_CUT] = seq}};
    double flops = 0.0;
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *p = m->programs[m->layers[i].program];
        for (int64_t k = 0; k < p->lists[OP_RECOMPUTE].count; k++) {
            const op_node *node = &p->lists[OP_RECOMPUTE].nodes[k];
            const op_cost_class class = op_kind_of(node->code)->cost_class;
            if (class != COST_GEMM && class != COST_ATTENTION) continue;
            flops += op_node_cost(p, node, &bound).flops;
        }
    }
    return flops / (double)seq;
}

static void flops_count(const predict_setup *s, predict_step *out)
{
    const op_model *m = out->plans[0].whole;
    const run_config *r = s->r;
    const run_types types = run_config_types(r);
    const double seq = (double)r->train.seq, tokens = (double)run_config_batch_max(r) * seq;
    const model_latent *latent = &s->spec.latent;
    const int64_t head = latent->kv_rank > 0
                             ? (latent->nope_dim + latent->rope_dim + latent->value_dim) / 2
                             : s->spec.head_dim;
    model_counts counts;
    model_count(&s->spec, &counts);
    const flops_model shape = {.layers = (double)s->spec.layers,
                               .dim = (double)s->spec.dim,
                               .vocab = (double)s->spec.vocab,
                               .attention_width = (double)(s->spec.heads * head),
                               .parameters = (double)counts.active,
                               .gemm_parameters = (double)counts.gemm};
    out->parameters = counts.total;
    const double each = (types.has_master ? 4.0 : (double)dtype_bytes(types.weights)) +
                        2.0 * (double)dtype_bytes(types.moments);
    out->state_bytes = each * (double)out->parameters;
    out->step_s = (double)out->step->step_ns * 1e-9;
    out->tokens_per_s = tokens / out->step_s;
    out->model_flops = s->rule->token(&shape, seq);
    out->hardware_flops = out->model_flops;
    if (!s->rule->recomputed) out->hardware_flops += recomputed_flops(m, r->train.seq);
    out->peak_flops = cost_peak_flops(&s->machine.device, types.compute);
    if (r->train.precision == RUN_FP8 && s->machine.device.peak_flops[MATH_FP8] > 0.0) {
        out->peak_flops = s->machine.device.peak_flops[MATH_FP8];
    }
    out->flops_per_device = out->model_flops * out->tokens_per_s / (double)out->devices;
    out->mfu = out->flops_per_device / out->peak_flops;
    out->hfu = out->mfu * out->hardware_flops / out->model_flops;
}

static void times_sum(predict_step *out)
{
    for (int32_t i = 0; i < out->stages; i++) {
        const sim_times *t = &out->step->times[i];
        const double whole = (double)t->length * out->stages;
        out->compute += (double)t->compute / whole;
        out->bubble += (double)t->bubble / whole;
        out->data += (double)t->data / whole;
        out->host += (double)t->host / whole;
        for (int k = 0; k < TRAFFIC_COUNT; k++) {
            out->exposed[k] += (double)t->exposed[k] / whole;
            out->exposed_s += (double)t->exposed[k] * 1e-9 / out->stages;
        }
    }
}

// Bytes of the plan by kind for the profile's software, without its allocator's losses and its
// runtime.
static void stage_bytes(const predict_step *x, int32_t stage, int64_t bytes[PLAN_BYTES_COUNT])
{
    const assemble_plans *plans = &(x->sized != NULL ? x->sized : x->plans)[stage];
    const plan *p = plans->all[0];
    const cost_profile *profile = &x->of->profile;
    const plan_unsharded_limits limits = predict_habit_limits(profile);
    int64_t sum = 0, spared[PLAN_BYTES_COUNT];
    plan_memory_by_kind(p, bytes);
    plan_memory_spared(p, &limits, spared);
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        sum += bytes[k];
        bytes[k] -= spared[k];
    }
    bytes[PLAN_BYTES_BUFFERS] += plans->arena_bytes - sum; // holes between tensors
    // A profile may keep fewer activations than are alive at the peak: the rest is 0, not negative.
    const int64_t own = (int64_t)predict_habit_activations(profile, bytes[PLAN_BYTES_ACTIVATIONS]);
    bytes[PLAN_BYTES_ACTIVATIONS] = max_i64(0, own + predict_kept_bytes(x, stage));
    bytes[PLAN_BYTES_WEIGHTS] -= predict_spared_weights(x, stage);
}

// Bytes that the allocator loses.
static int64_t stage_lost(const predict_step *x, const int64_t bytes[PLAN_BYTES_COUNT])
{
    return cost_lost_bytes(&x->of->profile, (double)bytes[PLAN_BYTES_ACTIVATIONS],
                           bytes[PLAN_BYTES_GRADIENTS], run_config_types(x->of->r).grads);
}

int64_t predict_step_bytes(const predict_step *x, int32_t stage, int64_t bytes[PLAN_BYTES_COUNT])
{
    int64_t all = 0;
    stage_bytes(x, stage, bytes);
    bytes[PLAN_BYTES_BUFFERS] += stage_lost(x, bytes) + x->of->profile.context_bytes;
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) all += bytes[k];
    return all;
}

static void memory_sum(const predict_setup *s, predict_step *out)
{
    for (int32_t i = 0; i < out->stages; i++) {
        int64_t bytes[PLAN_BYTES_COUNT];
        if (out->ranks[i].p == NULL) continue; // not among the requested stages
        const int64_t all = predict_step_bytes(out, i, bytes);
        if (all <= out->peak_bytes) continue;
        out->peak_bytes = all;
        out->lost_bytes = stage_lost(out, bytes);
        out->fullest = i;
        memcpy(out->memory, bytes, sizeof(bytes));
    }
    out->usable_bytes = usable_of(&s->machine.device);
    out->fits = out->peak_bytes <= out->usable_bytes;
}

static status step_plan(arena *a, const predict_setup *s, const assemble_options *how,
                        predict_step *out)
{
    memset(out, 0, sizeof(*out));
    out->of = s;
    out->devices = run_config_ranks(s->r);
    return plans_make(a, s, how, out);
}

static status step_make(arena *a, const predict_setup *s, const assemble_options *how,
                        predict_step *out)
{
    TRY(step_plan(a, s, how, out));
    return predict_step_run(a, s, out);
}

void predict_step_figures(const predict_setup *s, predict_step *out)
{
    flops_count(s, out);
    times_sum(out);
}

// Times and bytes of the same plans.
static status step_and_bytes(arena *a, const predict_setup *s, plan_last last, predict_step *out)
{
    const assemble_options how = {.last = last};
    TRY(step_make(a, s, &how, out));
    predict_step_figures(s, out);
    memory_sum(s, out);
    return ST_OK;
}

// Bytes of the micro-batches' tokens, which grow with their number.
static int64_t batch_bytes(const plan_table *run)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < run->count; i++) {
        if (strncmp(run->tensors[i].name, "batch.", 6) == 0) bytes += run->tensors[i].bytes;
    }
    return bytes;
}

status predict_step_make(arena *a, const predict_setup *s, predict_step *out)
{
    return step_and_bytes(a, s, PLAN_WHOLE, out);
}

// Additional bytes of the profile's software are counted from the actions of all micro-batches.
status predict_step_show(arena *a, const predict_setup *s, predict_step *out)
{
    assemble_options how = {.last = PLAN_PLACED, .make = predict_plan_bytes};
    const predict_setup *of = s;
    predict_step *sized = NULL;
    if (adds_bytes(&s->profile)) {
        TRY(predict_step_few(a, s, &of));
        if (of == s) return step_and_bytes(a, s, PLAN_PLACED, out);
        how.make = NULL;
    }
    TRY(arena_new(a, 1, &sized));
    TRY(predict_step_times(a, s, out));
    TRY(step_plan(a, of, &how, sized));
    out->sized = sized->plans;
    memory_sum(s, out);
    if (of == s) return ST_OK;
    const int64_t tokens = batch_bytes(&sized->plans[out->fullest].run) *
                           (run_config_batch_max(s->r) - run_config_batch_max(of->r)) /
                           run_config_batch_max(of->r);
    out->peak_bytes += tokens;
    out->memory[PLAN_BYTES_BUFFERS] += tokens;
    out->fits = out->peak_bytes <= out->usable_bytes;
    return ST_OK;
}

status predict_step_simulate(arena *a, const predict_setup *s, predict_step *out)
{
    const assemble_options how = {.last = PLAN_COLLECTED};
    return step_make(a, s, &how, out);
}

status predict_step_part(arena *a, const predict_setup *s, const sim_stretch *stretch, int64_t all,
                         predict_step *out)
{
    const assemble_options how = {.last = PLAN_COLLECTED};
    TRY(step_plan(a, s, &how, out));
    for (int32_t i = 0; i < out->stages; i++) {
        out->ranks[i].microbatches = all;
        out->ranks[i].first = stretch->first;
        out->ranks[i].count = stretch->apart;
    }
    return predict_step_run(a, s, out);
}

status predict_step_plan(arena *a, const predict_setup *s, const int32_t *stages, int32_t count,
                         predict_step *out)
{
    const bool is_plain = !adds_bytes(&s->profile);
    const assemble_options how = {.last = PLAN_PLACED,
                                  .make = is_plain ? predict_plan_bytes : NULL,
                                  .peak_stages = is_plain ? stages : NULL,
                                  .peak_count = count,
                                  .peak_limit =
                                      usable_of(&s->machine.device) - s->profile.context_bytes};
    TRY(step_plan(a, s, &how, out));
    memory_sum(s, out);
    return ST_OK;
}

status predict_long_run(arena *a, const predict_step *x, sim_long_run_input *in,
                        sim_long_run_result *out)
{
    const sim_long_run_step step = {
        .step_s = x->step_s, .devices = x->devices, .state_bytes = x->state_bytes};
    sim_long_run_input_make(x->of->r, &x->of->machine, &step, in);
    return sim_long_run_simulate(a, in, out);
}
