// Checks a layout against the model's shapes. config/run_config_layout.c checks what the
// configuration alone decides.
#include "assemble/assemble.h"

#include <stdio.h>

typedef bool (*fits_fn)(const decoder_spec *spec, const run_config *r, int64_t ways);

// Heads and the feed-forward's columns are cut into equal parts; several ranks may share a key
// head. The vocabulary may be cut unevenly.
static bool fits_tp(const decoder_spec *s, const run_config *r, int64_t ways)
{
    const bool keys = s->kv_heads % ways == 0 || ways % s->kv_heads == 0;
    plan_mesh mesh = run_config_mesh(r, 0);
    const int64_t of_expert = mesh.whole_experts ? 0 : s->experts.ffn_dim;
    return s->heads % ways == 0 && keys && s->ffn_dim % ways == 0 && of_expert % ways == 0 &&
           model_shared_width(&s->experts) % ways == 0;
}

// cp cuts the heads that tp leaves once more. Several ranks may share a key head, but then its
// gradient is a sum over them in rank order.
static bool fits_cp_heads(const decoder_spec *s, const run_config *r, int64_t ways)
{
    const int64_t all = r->layout.tp * ways, own = s->kv_heads / r->layout.tp;
    if (s->heads % all != 0 || r->layout.cp % ways != 0 || own < 1) return false;
    return own % ways == 0 || (ways % own == 0 && r->determinism.mode != RUN_STRICT);
}

// The valid choices nearest to an invalid one: "2 or 4".
static const char *nearest_of(const decoder_spec *s, const run_config *r, fits_fn fits,
                              int64_t wanted, int64_t most, char buffer[64])
{
    int64_t below = min_i64(wanted - 1, most), above = wanted + 1;
    while (below > 1 && !fits(s, r, below)) below--;
    while (above <= most && !fits(s, r, above)) above++;
    if (above > most) {
        (void)snprintf(buffer, 64, "%lld", (long long)below);
    } else {
        (void)snprintf(buffer, 64, "%lld or %lld", (long long)below, (long long)above);
    }
    return buffer;
}

static const char *nearest(const decoder_spec *s, const run_config *r, fits_fn fits, int64_t wanted,
                           char buffer[64])
{
    return nearest_of(s, r, fits, wanted, s->heads, buffer);
}

// A rank has a whole number of experts, and the ranks that share them out are whole rows of ranks.
static bool fits_ep(const decoder_spec *s, const run_config *r, int64_t ways)
{
    plan_mesh mesh = run_config_mesh(r, 0);
    mesh.ep = (int32_t)ways;
    return s->experts.count % ways == 0 && plan_ep_fits(&mesh);
}

// Either all of tp cuts the experts or none of it; in the second case each rank of tp needs rows of
// its own.
static status whole_experts_check(const run_config *r, const decoder_spec *s)
{
    const int64_t etp = r->layout.etp, tp = r->layout.tp;
    if (etp == 0) return ST_OK;
    if (s->experts.count == 0) {
        return fail(ST_CONFIG_CONFLICT, "layout.etp = %lld has no effect: the model has no experts",
                    (long long)etp);
    }
    if (etp != 1 && etp != tp) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.etp = %lld: experts are cut by all of layout.tp = %lld or by none of it; "
            "nearest: %s%lld",
            (long long)etp, (long long)tp, tp > 1 ? "1 or " : "", (long long)tp);
    }
    if (etp == tp || r->layout.sp) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "layout.etp = 1: without layout.sp all ranks of layout.tp = %lld have the same rows, "
        "and would send each to its experts %lld times; add layout.sp=yes",
        (long long)tp, (long long)tp);
}

// Says that tp's ranks could share the experts out too if they had rows of their own.
static const char *share_of_tp(const run_config *r, const decoder_spec *s)
{
    run_config with = *r;
    with.layout.sp = true;
    const bool helps = !r->layout.sp && r->layout.etp == 0 && fits_ep(s, &with, r->layout.ep);
    return helps ? "; or add layout.sp=yes, so that the ranks of layout.tp share them too" : "";
}

static status experts_check(const run_config *r, const decoder_spec *s)
{
    const int64_t ep = r->layout.ep;
    const plan_mesh mesh = run_config_mesh(r, 0);
    char near[64], of_tp[32] = "";
    if (s->latent.kv_rank > 0 && r->layout.cp_heads > 1) {
        return fail(ST_UNSUPPORTED,
                    "layout.cp_heads = %lld: latent attention does not distribute heads; "
                    "nearest: 1",
                    (long long)r->layout.cp_heads);
    }
    if (s->experts.count == 0 && r->moe.capacity_factor > 0.0) {
        return fail(ST_CONFIG_CONFLICT,
                    "moe.capacity_factor = %g has no effect: the model has no experts",
                    r->moe.capacity_factor);
    }
    TRY(whole_experts_check(r, s));
    if (!plan_experts_apart(&mesh)) return ST_OK;
    if (s->experts.count == 0) {
        return fail(ST_CONFIG_CONFLICT, "layout.ep = %lld has no effect: the model has no experts",
                    (long long)ep);
    }
    if (r->layout.zero_group > 0 && r->layout.zero_group < r->layout.dp) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.zero_group = %lld needs weights that all ranks hold, and layout.%s = "
                    "%lld; leave one of them out",
                    (long long)r->layout.zero_group, ep > 1 ? "ep" : "etp", (long long)ep);
    }
    if (fits_ep(s, r, ep)) return ST_OK;
    if (mesh.whole_experts)
        (void)snprintf(of_tp, sizeof(of_tp), " x %lld", (long long)r->layout.tp);
    return fail(ST_CONFIG_CONFLICT,
                "layout.ep = %lld does not divide the model's %lld experts, and layout.dp x cp%s = "
                "%lld x %lld%s by whole rows of ranks; nearest that do: %s%s",
                (long long)ep, (long long)s->experts.count, mesh.whole_experts ? " x tp" : "",
                (long long)r->layout.dp, (long long)r->layout.cp, of_tp,
                nearest_of(s, r, fits_ep, ep, s->experts.count, near), share_of_tp(r, s));
}

// Ranks that share experts exchange rows in every micro-batch, so each has as many sequences as the
// others, and in strict order as many in each shard.
static status experts_even_check(const run_config *r)
{
    const bool strict = r->determinism.mode == RUN_STRICT;
    const int64_t dp = r->layout.dp, shards = strict ? r->determinism.shards : dp;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step = 0, size = 0;
        run_config_ramp_at(r, i, &step, &size);
        if (size % shards == 0 && shards % dp == 0) continue;
        if (shards % dp != 0) {
            return fail(ST_UNSUPPORTED,
                        "layout.ep = %lld: layout.dp = %lld does not divide determinism.shards = "
                        "%lld, so ranks that share experts would have different numbers of shards; "
                        "change layout.dp",
                        (long long)r->layout.ep, (long long)dp, (long long)shards);
        }
        return fail(ST_UNSUPPORTED,
                    "layout.ep = %lld: a batch of %lld sequences is not cut evenly into %lld %s, "
                    "as ranks that share experts need; use train.global_batch=%lld",
                    (long long)r->layout.ep, (long long)size, (long long)shards,
                    strict ? "shards (determinism.shards)" : "parts (layout.dp)",
                    (long long)(max_i64(size / shards, 1) * shards));
    }
    return ST_OK;
}

// A limit of rows is one of whole sequences, so that it does not depend on the layout.
static status capacity_check(const run_config *r)
{
    const int64_t cp = r->layout.cp, tp = r->layout.sp ? r->layout.tp : 1;
    if (r->moe.capacity_factor <= 0.0 || (cp == 1 && tp == 1)) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "moe.capacity_factor = %g: a rank of layout.%s = %lld has some positions of a "
                "sequence and cannot count the tokens of an expert; use layout.%s=1 or "
                "moe.capacity_factor=0",
                r->moe.capacity_factor, cp > 1 ? "cp" : "tp", (long long)(cp > 1 ? cp : tp),
                cp > 1 ? "cp" : "tp");
}

// Rows travel in fewer bits than they have, or as they are.
static status dispatch_check(const run_config *r, const decoder_spec *spec)
{
    static const char *const names[] = {"auto", "fp32", "bf16", "fp8"};
    const dtype rows = run_config_types(r).compute;
    const int32_t as = r->moe.dispatch;
    const char *why = NULL;
    if (as == RUN_DISPATCH_AUTO) return ST_OK;
    if (spec->experts.count == 0) {
        why = "the model has no experts";
    } else if (r->layout.ep == 1 && r->determinism.mode != RUN_STRICT) {
        why = "no rows travel with layout.ep = 1";
    } else if (as == RUN_DISPATCH_FP32 && rows != DTYPE_F32) {
        why = "rows of experts are narrower (train.precision)";
    } else if (as == RUN_DISPATCH_BF16 && rows == DTYPE_F16) {
        why = "rows of experts have 16 bits already (train.precision = fp16)";
    }
    if (why == NULL) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "moe.dispatch = %s has no effect: %s; leave it out", names[as],
                why);
}

// Experts move between ranks, and only between ranks that have several.
static status rebalance_check(const run_config *r, const decoder_spec *spec)
{
    const char *why = NULL;
    if (r->moe.rebalance == 0) return ST_OK;
    if (spec->experts.count == 0) {
        why = "the model has no experts";
    } else if (r->layout.ep == 1) {
        why = "with layout.ep = 1 no ranks share experts";
    } else if (r->layout.ep == spec->experts.count) {
        why = "each rank of layout.ep has one expert";
    }
    if (why == NULL) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "moe.rebalance = %lld has no effect: %s; use moe.rebalance=off",
                (long long)r->moe.rebalance, why);
}

static status experts_apart_check(const run_config *r)
{
    if (r->layout.ep == 1) return ST_OK;
    if (r->comm.compression.mode != RUN_COMPRESS_NONE) {
        return fail(ST_UNSUPPORTED,
                    "comm.compression: the gradients of experts on layout.ep = %lld ranks cannot "
                    "be compressed yet; use comm.compression=none or layout.ep=1",
                    (long long)r->layout.ep);
    }
    return experts_even_check(r);
}

// Where tp cuts experts, every rank of tp has the same rows and a piece of every expert.
static status experts_cut_check(const run_config *r, const decoder_spec *spec)
{
    const int64_t tp = r->layout.tp, width = spec->experts.ffn_dim;
    if (tp == 1) return ST_OK;
    if (width % tp != 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "layout.tp = %lld does not divide the width %lld of an expert; change it, or "
                    "add layout.etp=1 and layout.sp=yes, so that experts stay whole",
                    (long long)tp, (long long)width);
    }
    if (r->determinism.mode != RUN_STRICT || r->determinism.etp_shards % tp == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "determinism.etp_shards = %lld: in strict order layout.tp = %lld cuts the sums "
                "inside experts, so it must divide it; use determinism.etp_shards=%lld, or add "
                "layout.etp=1 and layout.sp=yes, so that experts stay whole",
                (long long)r->determinism.etp_shards, (long long)tp,
                (long long)align_up(r->determinism.etp_shards, tp));
}

// With tp each rank has rows of its own, which go to whole experts. In strict order all pieces of a
// sequence go to one rank, which adds them in the order of its tokens.
static status experts_tp_check(const run_config *r, const decoder_spec *spec)
{
    const int64_t tp = r->layout.tp;
    if (!run_config_mesh(r, 0).whole_experts) return experts_cut_check(r, spec);
    if (r->determinism.etp_shards > 1) {
        return fail(ST_CONFIG_CONFLICT,
                    "determinism.etp_shards = %lld has no effect: no rank has a part of an expert "
                    "(layout.etp = 1)",
                    (long long)r->determinism.etp_shards);
    }
    if (r->determinism.mode != RUN_STRICT) return ST_OK;
    if (r->layout.ep % tp != 0) {
        return fail(ST_UNSUPPORTED,
                    "layout.ep = %lld: in strict order the ranks of layout.tp = %lld must share "
                    "the experts, so that one rank gets all positions of a sequence; use "
                    "layout.ep=%lld, or determinism.mode=fast",
                    (long long)r->layout.ep, (long long)tp, (long long)tp);
    }
    if (r->determinism.cp_shards == 1) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "determinism.cp_shards = %lld: in strict order a model with experts is not cut "
                "along both cp and layout.tp = %lld yet; use determinism.cp_shards=1, or "
                "determinism.mode=fast",
                (long long)r->determinism.cp_shards, (long long)tp);
}

static status experts_losses_check(const run_config *r, const decoder_spec *spec)
{
    if (r->moe.aux_loss == 0.0 && r->moe.z_loss == 0.0) return ST_OK;
    if (spec->experts.count > 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "%s = %g has no effect: the model has no experts",
                r->moe.aux_loss > 0.0 ? "moe.aux_loss" : "moe.z_loss",
                r->moe.aux_loss > 0.0 ? r->moe.aux_loss : r->moe.z_loss);
}

// Muon's unit is the matrix of one expert, which a rank has whole.
static status muon_check(const run_config *r)
{
    if (r->optimizer.name != RUN_MUON) return ST_OK;
    if (r->layout.tp > 1 && !run_config_mesh(r, 0).whole_experts) {
        return fail(ST_UNSUPPORTED,
                    "optimizer.name = muon needs whole matrices of experts, which layout.tp = %lld "
                    "cuts; use layout.sp=yes layout.etp=1, or optimizer.name=adamw",
                    (long long)r->layout.tp);
    }
    if (r->layout.ep == 1 || !r->optimizer.stochastic_rounding) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "optimizer.stochastic_rounding: Muon's draws depend on the place of an expert on "
                "its rank (layout.ep = %lld); use optimizer.stochastic_rounding=no, or layout.ep=1",
                (long long)r->layout.ep);
}

status assemble_train_check(const run_config *r, const decoder_spec *spec)
{
    TRY(experts_losses_check(r, spec));
    TRY(dispatch_check(r, spec));
    TRY(rebalance_check(r, spec));
    if (spec->experts.count == 0 && r->determinism.etp_shards > 1) {
        return fail(ST_CONFIG_CONFLICT,
                    "determinism.etp_shards = %lld has no effect: the model has no experts",
                    (long long)r->determinism.etp_shards);
    }
    if (spec->experts.count == 0) return ST_OK;
    TRY(experts_tp_check(r, spec));
    TRY(capacity_check(r));
    TRY(muon_check(r));
    return experts_apart_check(r);
}

status assemble_layout_check(const run_config *r, const decoder_spec *spec)
{
    char near[64];
    TRY(experts_check(r, spec));
    if (r->train.recompute_layers > spec->layers) {
        return fail(ST_CONFIG_RANGE, "train.recompute_layers = %lld, the model has %lld layers",
                    (long long)r->train.recompute_layers, (long long)spec->layers);
    }
    if (r->layout.tp > 1 && !fits_tp(spec, r, r->layout.tp)) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.tp = %lld does not divide the model's %lld heads, %lld heads of keys and "
            "%lld columns of the feed-forward; nearest that do: %s",
            (long long)r->layout.tp, (long long)spec->heads, (long long)spec->kv_heads,
            (long long)spec->ffn_dim, nearest(spec, r, fits_tp, r->layout.tp, near));
    }
    if (r->layout.cp_heads > 1 && !fits_cp_heads(spec, r, r->layout.cp_heads)) {
        return fail(
            ST_CONFIG_CONFLICT,
            "layout.cp_heads = %lld x layout.tp = %lld do not distribute the model's %lld heads "
            "with %lld heads of keys%s; nearest layout.cp_heads that do: %s",
            (long long)r->layout.cp_heads, (long long)r->layout.tp, (long long)spec->heads,
            (long long)spec->kv_heads, r->determinism.mode == RUN_STRICT ? " in strict order" : "",
            nearest(spec, r, fits_cp_heads, r->layout.cp_heads, near));
    }
    if (r->layout.pp > 1 && r->layout.stages.count == 0) {
        const int64_t depth = run_config_depth(r);
        if (depth > spec->layers) {
            return fail(ST_CONFIG_CONFLICT,
                        "layout.pp = %lld makes %lld stages of whole layers, the model has %lld",
                        (long long)r->layout.pp, (long long)depth, (long long)spec->layers);
        }
    }
    int64_t halves = 0;
    for (int64_t i = 0; i < r->layout.stages.count; i++) halves += run_config_stage_halves(r, i);
    if (halves > 0 && halves != 2 * spec->layers) {
        return fail(ST_CONFIG_CONFLICT, "layout.stages has %g layers, the model has %lld",
                    0.5 * (double)halves, (long long)spec->layers);
    }
    return ST_OK;
}
