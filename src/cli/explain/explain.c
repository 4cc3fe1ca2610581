// Collects the facts about a run from its configuration, without starting a rank.
#include "cli/explain/explain.h"

#include "cli/plan/plan.h"
#include "cli/run_folder.h"
#include "cli/run_model.h"

#include <stdio.h>
#include <string.h>

static assemble_options options_of(const explain *x, int64_t rank)
{
    const run_config *r = x->r;
    const int cores = assemble_threads(r);
    return (assemble_options){
        .threads = r->kernels.threads > 0 ? cores : (int)max_i64(1, cores / x->ranks),
        .device = run_config_device(r),
        .backend = run_config_backend(r),
        .documents = r->data.packing != RUN_PACKING_PLAIN,
        .evaluate = r->eval.every > 0 && run_config_has_valid(r),
        .rollouts = run_config_has_rollouts(r),
        .snapshots = rank == 0 ? assemble_snapshots(r) : 0,
        .mesh = run_config_mesh(r, rank),
        .sizes_only = true,
    };
}

status explain_open(cli_context *cli, const cli_call *call, explain *x)
{
    const char *yaml = NULL;
    bool is_resolved = false;
    config *c = NULL;
    *x = (explain){.cli = cli};
    TRY(cli_config_file(cli, call->operands[0], &yaml, &is_resolved));
    TRY(arena_new(cli->a, 1, &x->r));
    TRY(run_config_load(cli->h, cli->a, yaml, call->keys, call->key_count, x->r, &c));
    cli_warn_unread(cli, call->keys, call->key_count, RUN_READER_PLAN);
    TRY(plan_micro_batch_here(cli, NULL, x->r));
    TRY(cli_run_model(cli, x->r, &x->spec, &x->vocab_is_known));
    TRY(assemble_layout_check(x->r, &x->spec));
    x->schedule = x->r->layout.pp > 1 ? x->r->layout.pipeline : plan_schedule_find("1f1b");
    x->mesh = run_config_mesh(x->r, 0);
    x->ranks = run_config_ranks(x->r);
    const assemble_options options = options_of(x, 0);
    return assemble_memory_settle(x->r, &x->spec, &options);
}

// ---- the costs of a stage -----------------------------------------------------------------------

typedef struct work {
    double forward, input, weights; // FLOPs
} work;

static double list_flops(const op_program *program, op_list list, const extent_binding *bound)
{
    double flops = 0.0;
    for (int64_t i = 0; i < program->lists[list].count; i++) {
        flops += op_node_cost(program, &program->lists[list].nodes[i], bound).flops;
    }
    return flops;
}

static void work_add(work *w, const op_program *program, const extent_binding *bound)
{
    w->forward += list_flops(program, OP_FORWARD, bound);
    w->input +=
        list_flops(program, OP_RECOMPUTE, bound) + list_flops(program, OP_BACKWARD_INPUT, bound);
    w->weights += list_flops(program, OP_BACKWARD_WEIGHT, bound);
}

// In units of a 24th of the most expensive stage's forward: fine enough to see, and integer.
static status costs_make(explain *x)
{
    enum { FINE = 24 };
    const int64_t batch = x->r->train.micro_batch, tokens = batch * x->r->train.seq;
    const extent_binding bound = {.value = {[EXTENT_ONE] = 1,
                                            [EXTENT_TOKENS] = tokens,
                                            [EXTENT_SEQS] = batch,
                                            [EXTENT_TOKENS_CUT] = tokens}};
    const op_model *m = x->model;
    work *all = NULL;
    timeline_cost *costs = NULL;
    double dearest = 1.0;
    TRY(arena_new(x->cli->a, x->pipe.depth, &all));
    TRY(arena_new(x->cli->a, x->pipe.depth, &costs));
    for (int32_t s = 0; s < x->pipe.depth; s++) {
        for (int32_t k = x->pipe.first_layer[s]; k < x->pipe.first_layer[s + 1]; k++) {
            work_add(&all[s], m->programs[m->layers[k].program], &bound);
        }
        if (all[s].forward > dearest) dearest = all[s].forward;
    }
    for (int32_t s = 0; s < x->pipe.depth; s++) {
        const double unit = dearest / FINE;
        costs[s] = (timeline_cost){max_i64(1, (int64_t)(all[s].forward / unit + 0.5)),
                                   max_i64(1, (int64_t)(all[s].input / unit + 0.5)),
                                   max_i64(1, (int64_t)(all[s].weights / unit + 0.5))};
    }
    x->costs = costs;
    return ST_OK;
}

status explain_stages(explain *x, int64_t microbatches)
{
    plan_pipeline_request request = {.schedule = x->schedule};
    if (x->r->layout.pp > 1) TRY(run_config_pipeline(x->r, x->cli->a, &request));
    TRY(plan_pipeline_make(x->cli->a, x->model, &x->mesh, &request, microbatches, &x->pipe));
    return costs_make(x);
}

status explain_plans(const explain *x, arena *a, int64_t rank, assemble_plans **out)
{
    const assemble_options options = options_of(x, rank);
    TRY(arena_new(a, 1, out));
    return assemble_rank(a, x->r, &x->spec, &options, *out);
}

explain_bytes explain_bytes_of(const assemble_plans *plans, int64_t rank)
{
    explain_bytes b = {.rank = rank,
                       .all = assemble_peak_bytes(plans),
                       .snapshot = assemble_snapshot_bytes(plans),
                       .copies = assemble_copies_bytes(plans)};
    // The fullest plan decides.
    int64_t most = -1;
    for (int64_t i = 0; i < plans->count; i++) {
        if (plans->all[i]->transient_bytes <= most) continue;
        most = plans->all[i]->transient_bytes;
        plan_memory_by_kind(plans->all[i], b.kind);
    }
    return b;
}

status explain_simulate(const explain *x, explain_price price, int64_t least, plan_timeline **out)
{
    schedule_request request = x->pipe.shape;
    const timeline_costs costs = {.each = {1, 1, 1},
                                  .stages = price == PRICE_FLOPS ? x->costs : NULL,
                                  .optimizer_barrier = true};
    // A schedule may need multiples or a minimum: takes the next number that it accepts.
    for (int64_t m = least; m > 0 && m < request.microbatches; m++) {
        schedule_request fewer = request;
        fewer.microbatches = (int32_t)m;
        if (plan_schedule_check(x->schedule, &fewer) != ST_OK) continue;
        request = fewer;
    }
    error_clear();
    return plan_timeline_simulate(x->cli->a, x->schedule, &request, &costs, out);
}

// ---- text ---------------------------------------------------------------------------------------

const char *explain_layers(const explain *x, int32_t stage, char buffer[64])
{
    const op_model *m = x->model;
    const int32_t begin = x->pipe.first_layer[stage], end = x->pipe.first_layer[stage + 1];
    const op_layer *first = NULL, *last = NULL;
    for (int32_t i = begin; i < end; i++) {
        if (m->layers[i].index < 0) continue;
        if (first == NULL) first = &m->layers[i];
        last = &m->layers[i];
    }
    // A layer whose stage begins or ends in its middle is marked: "8.mlp-11", "0-8.attn".
    char middle[32] = "";
    if (first != NULL && first->index == last->index) {
        (void)snprintf(middle, sizeof(middle), "%d%s", first->index,
                       first != last ? "" : op_layer_part_end(first->part));
    } else if (first != NULL) {
        (void)snprintf(middle, sizeof(middle), "%d%s-%d%s", first->index,
                       op_layer_part_end(first->part), last->index, op_layer_part_end(last->part));
    }
    const bool embeds = begin == 0, heads = end == m->layer_count;
    (void)snprintf(buffer, 64, "%s%s%s%s%s", embeds ? "embed" : "",
                   embeds && first != NULL ? ", " : "", middle,
                   heads && (first != NULL || embeds) ? ", " : "", heads ? "head" : "");
    return buffer;
}
