// The plans that draw completions inside a training job. They are in the job's table of run
// tensors, so they read the weights that the job trains, and their caches are part of the predicted
// memory.
//
// Ranks along cp draw completions of their own, as those along dp do, because a token that is drawn
// is one row. So these programs have no parts of context parallelism.
//
// In strict order a value has the bits that training gives it (model_options.as_training), so the
// log-probability of a drawn token is that of the training pass.
#include "assemble/rollouts.h"

#include "exec/pages.h"
#include "op/zigzag.h"

enum { CHUNK_MAX = 256 };

static status model_make(arena *a, const assemble_options *o, const assemble_plans *plans,
                         op_purpose purpose, op_model **out)
{
    const run_config *r = plans->config;
    op_cuts cuts = assemble_cuts(r, plans->spec, &o->mesh, o->even_experts);
    cuts.tp.rows = false; // a sequence has one row, which every rank computes
    cuts.cp = (op_context){.ways = 1, .shards = 1, .ordered = cuts.cp.ordered};
    cuts.ep.cp_own = 1;
    op_model *whole = NULL, *of_tp = NULL;
    model_options options = {.purpose = purpose,
                             .compute = plans->types.compute,
                             .grad = plans->types.grads,
                             .fp8 = assemble_fp8(r),
                             .fp8_margin = (int32_t)r->precision.fp8_margin,
                             .seq = r->train.seq,
                             .as_training = true,
                             .page = plans->rollout.pages > 0 ? EXEC_PAGE : 0,
                             .pages = plans->rollout.pages,
                             .sizes_only = o->sizes_only};
    assemble_router_options(r, &options);
    TRY(model_build(a, plans->spec, &options, &whole));
    return op_model_cut(a, whole, &cuts, &of_tp, out);
}

static status model_check(const assemble_plans *plans)
{
    const decoder_spec *m = plans->spec;
    const int64_t vocab = m->vocab, tp = plans->config->layout.tp;
    if (m->dropout_embedding > 0.0F || m->dropout_attention > 0.0F || m->dropout_residual > 0.0F) {
        return fail(ST_CONFIG_CONFLICT,
                    "rollout.prompts: the model has dropout, with which the log-probabilities of "
                    "drawn tokens are not those of training; set model.dropout=0");
    }
    if (vocab % tp == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "rollout.prompts: layout.tp = %lld does not divide the vocabulary of %lld tokens, "
                "whose logits it gathers; train with layout.tp = 1, or a model with model.vocab = "
                "%lld",
                (long long)tp, (long long)vocab, (long long)align_up(vocab, tp));
}

status assemble_rollouts(arena *a, const assemble_options *o, plan_request *request,
                         assemble_plans *out)
{
    const run_config *r = out->config;
    const int64_t dp = plan_mesh_size(&o->mesh, AXIS_DP);
    op_model *decode = NULL, *prefill = NULL;
    plan *made = NULL, *first = NULL;
    const int64_t slots = run_config_slots(r) + 1;
    out->rollout.slots = slots;
    out->rollout.pages = min_i64(r->rollout.cache / EXEC_PAGE, slots * exec_pages_of(r->train.seq));
    TRY(model_check(out));
    TRY(model_make(a, o, out, PURPOSE_DECODE, &decode));
    TRY(model_make(a, o, out, PURPOSE_PREFILL, &prefill));
    out->rollout.context = r->train.seq;
    out->rollout.chunk = min_i64(CHUNK_MAX, r->train.seq - r->rollout.max_tokens);
    ASSERT(out->count + 2 <= ASSEMBLE_MAX_PLANS);
    request->optimizer = NULL;
    request->codec = NULL;
    request->packed_bytes = NULL;
    request->in_pairs = request->strict && zigzag_in_pairs(r->train.seq, request->cp_shards);
    request->cache_seq = out->rollout.context;
    request->shards = (int32_t)dp;
    request->cp_shards = 1;
    request->sequences = out->rollout.slots * dp;
    request->fewest_microbatches = request->most_microbatches = 0;
    request->model = decode;
    request->seq = 1;
    request->micro_batch = out->rollout.slots;
    TRY(plan_create(a, request, &out->run, &made));
    request->model = prefill;
    request->seq = out->rollout.chunk;
    request->micro_batch = 1;
    request->sequences = dp; // in the first slot of the caches
    TRY(plan_create(a, request, &out->run, &first));
    out->all[out->count++] = out->rollout.decode = made;
    out->all[out->count++] = out->rollout.prefill = first;
    return ST_OK;
}
