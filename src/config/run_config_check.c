// Refuses conflicts in the configuration of a run. Each check_ function holds the rules of one
// heading, and all complaints are reported at once. The principle: an accepted option
// changes the run. So these functions also refuse a key that would have no effect, unless it has
// its default value, because a resolved configuration, which lists every key, must load again.
#include "config/run_config_internal.h"

#include <stdio.h>
#include <string.h>

bool check_is_changed(const checker *k, const char *key)
{
    const option *o = option_find(&run_config_table, key);
    ASSERT(o != NULL);
    return config_is_given(k->c, key) && !option_equal(o, k->r, &k->defaults);
}

void check_refuse_keys(checker *k, const char *const *keys, const char *reason)
{
    for (; *keys != NULL; keys++) {
        if (!check_is_changed(k, *keys)) continue;
        config_complain(k->l, *keys, ST_CONFIG_CONFLICT, "%s has no effect: %s", *keys, reason);
    }
}

// ---- train -------------------------------------------------------------------------------------

const char *check_near_divisors(int64_t n, int64_t m, char buffer[64])
{
    int64_t below = 1, above = n;
    for (int64_t d = 1; d <= n / d; d++) {
        if (n % d != 0) continue;
        const int64_t pair[2] = {d, n / d};
        for (int i = 0; i < 2; i++) {
            if (pair[i] < m) below = max_i64(below, pair[i]);
            if (pair[i] > m) above = min_i64(above, pair[i]);
        }
    }
    if (m > n) {
        snprintf(buffer, 64, "%lld", (ll)n);
    } else {
        snprintf(buffer, 64, "%lld or %lld", (ll)below, (ll)above);
    }
    return buffer;
}

static void check_batches(checker *k)
{
    const run_config *r = k->r;
    const int64_t micro = r->train.micro_batch, ramp = r->train.batch_ramp.count;
    const char *key = ramp > 0 ? "train.batch_ramp" : "train.global_batch";
    int64_t step = 0, size = 0;
    char near[64];
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        run_config_ramp_at(r, i, &step, &size);
        if (micro > 0 && size % micro != 0) {
            CONFLICT("train.micro_batch",
                     "train.micro_batch = %lld does not divide %s = %lld; nearest that do: %s",
                     (ll)micro, key, (ll)size, check_near_divisors(size, micro, near));
        }
        if (ramp > 0 && i == 0 && step != 0) {
            CONFLICT(
                key,
                "%s begins at step %lld, expected 0: the batch of the first steps is undefined",
                key, (ll)step);
        }
        if (ramp > 0 && step >= r->train.steps) {
            CONFLICT(key, "%s changes after step %lld, but train.steps = %lld", key, (ll)step,
                     (ll)r->train.steps);
        }
    }
    if (ramp > 0 && config_is_given(k->c, "train.global_batch") && size != r->train.global_batch) {
        CONFLICT("train.global_batch",
                 "train.global_batch = %lld, but train.batch_ramp ends at %lld; leave it out",
                 (ll)r->train.global_batch, (ll)size);
    }
}

static void check_train(checker *k)
{
    enum { RAMP_MAX = 64 }; // each size needs its own plan
    if (k->r->train.batch_ramp.count > RAMP_MAX) {
        CONFLICT("train.batch_ramp", "train.batch_ramp has %lld sizes, at most %d expected",
                 (ll)k->r->train.batch_ramp.count, RAMP_MAX);
    } else {
        check_batches(k);
    }
    if (k->r->train.recompute == RUN_RECOMPUTE_NONE && k->r->train.recompute_layers > 0) {
        CONFLICT(
            "train.recompute_layers",
            "train.recompute_layers = %lld has no effect: it applies only to train.recompute = "
            "selective or full",
            (ll)k->r->train.recompute_layers);
    }
    const option_range *trace = &k->r->trace.steps;
    if (trace->end > k->r->train.steps) {
        CONFLICT("trace.steps", "trace.steps = %lld:%lld, but train.steps = %lld", (ll)trace->begin,
                 (ll)trace->end, (ll)k->r->train.steps);
    }
}

// ---- optimizer, schedule -----------------------------------------------------------------------

static void check_below_one(checker *k, const char *key, double value)
{
    if (value < 1.0) return;
    config_complain(k->l, key, ST_CONFIG_RANGE,
                    "%s = %g: expected below 1, because the optimizer would ignore all gradients",
                    key, value);
}

bool check_is_listed(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at != '\0';) {
        const size_t own = strcspn(at, ",");
        if (own == length && memcmp(at, word, length) == 0) return true;
        at += own + strspn(at + own, ", ");
    }
    return false;
}

// Refuses keys of optimizers that update no weight of this run.
static void check_optimizer_keys(checker *k)
{
    const run_optimizer name = (run_optimizer)k->r->optimizer.name;
    for (int i = 0; i < RUN_OPTIMIZER_COUNT; i++) {
        const run_optimizer_row *row = run_optimizer_at((run_optimizer)i);
        char key[64], reason[96];
        (void)snprintf(reason, sizeof(reason), "it applies only to optimizer.name = %s", row->name);
        for (const char *at = row->keys; *at != '\0';) {
            const size_t length = strcspn(at, ",");
            bool is_read = false;
            for (int matrix = 0; matrix < 2; matrix++) {
                is_read |= check_is_listed(run_optimizer_for(name, matrix == 1)->keys, at, length);
            }
            (void)snprintf(key, sizeof(key), "%.*s", (int)length, at);
            const char *const keys[] = {key, NULL};
            if (!is_read) check_refuse_keys(k, keys, reason);
            at += length + strspn(at + length, ", ");
        }
    }
}

static void check_optimizer(checker *k)
{
    const run_config *r = k->r;
    check_below_one(k, "optimizer.beta1", r->optimizer.beta1);
    check_below_one(k, "optimizer.beta2", r->optimizer.beta2);
    check_below_one(k, "optimizer.momentum", r->optimizer.momentum);
    check_optimizer_keys(k);
    const run_types t = run_config_types(r);
    const bool narrow_weights = t.weights != DTYPE_F32 && !t.has_master;
    if (r->optimizer.stochastic_rounding && !narrow_weights && t.moments == DTYPE_F32) {
        CONFLICT("optimizer.stochastic_rounding",
                 "optimizer.stochastic_rounding has no effect: the optimizer writes only fp32; it "
                 "applies to precision.master = none or precision.moments = bf16");
    }
}

static void check_schedule(checker *k)
{
    static const char *const of_wsd[] = {"schedule.decay_steps", "schedule.decay_shape", NULL};
    static const char *const of_inverse_sqrt[] = {"schedule.timescale", NULL};
    static const char *const of_decay[] = {"schedule.min_ratio", NULL};
    const run_config *r = k->r;
    const int32_t name = r->schedule.name;
    const int64_t steps = r->train.steps, warmup = r->schedule.warmup,
                  decay = r->schedule.decay_steps;
    // A warm-up beyond the last step is no conflict: a short trial of a long run has one.
    if (name != RUN_SCHEDULE_WSD) {
        check_refuse_keys(k, of_wsd, "it applies only to schedule.name = wsd");
    } else if (decay == 0) {
        CONFLICT("schedule.decay_steps",
                 "schedule.name = wsd needs schedule.decay_steps, such as %lld",
                 (ll)max_i64(steps / 10, 1));
    } else if (warmup + decay > steps) {
        CONFLICT("schedule.decay_steps",
                 "schedule.warmup = %lld and schedule.decay_steps = %lld are longer than "
                 "train.steps = %lld",
                 (ll)warmup, (ll)decay, (ll)steps);
    }
    if (name != RUN_SCHEDULE_INVERSE_SQRT) {
        check_refuse_keys(k, of_inverse_sqrt, "it applies only to schedule.name = inverse_sqrt");
    }
    if (name == RUN_SCHEDULE_CONSTANT || name == RUN_SCHEDULE_INVERSE_SQRT) {
        check_refuse_keys(k, of_decay, "it applies only to schedule.name = linear, cosine and wsd");
    }
}

// ---- model, data -------------------------------------------------------------------------------

static void check_heads(checker *k)
{
    const run_config *r = k->r;
    const int64_t heads = r->model.heads, kv = r->model.kv_heads, dim = r->model.dim;
    char near[64];
    if (heads > 0 && kv > 0 && heads % kv != 0) {
        CONFLICT("model.kv_heads",
                 "model.kv_heads = %lld does not divide model.heads = %lld; nearest that do: %s",
                 (ll)kv, (ll)heads, check_near_divisors(heads, kv, near));
    }
    if (heads > 0 && dim > 0 && r->model.head_dim == 0 && dim % heads != 0) {
        CONFLICT("model.heads",
                 "model.heads = %lld does not divide model.dim = %lld; nearest that do: %s, or "
                 "give model.head_dim",
                 (ll)heads, (ll)dim, check_near_divisors(dim, heads, near));
    }
}

static void check_model(checker *k)
{
    static const char *const of_sizes[] = {"model.layers",
                                           "model.dim",
                                           "model.heads",
                                           "model.kv_heads",
                                           "model.head_dim",
                                           "model.ffn_dim",
                                           "model.vocab",
                                           "model.context",
                                           "model.window",
                                           "model.rope_theta",
                                           "model.norm_eps",
                                           "model.tied",
                                           "model.mlp_bias",
                                           "model.qk_norm",
                                           "model.attention_bias",
                                           "model.experts",
                                           "model.experts_per_token",
                                           "model.shared_experts",
                                           "model.expert_ffn_dim",
                                           "model.dense_layers",
                                           "model.router.score",
                                           "model.router.groups",
                                           "model.router.top_groups",
                                           "model.router.scale",
                                           "model.router.normalize",
                                           "model.arch",
                                           NULL};
    static const char *const needed[] = {"model.layers", "model.dim", "model.heads"};
    static const char *const of_preset[] = {"model.arch", NULL};
    static const char *const of_rope[] = {"model.rope_theta", NULL};
    const run_config *r = k->r;
    if (r->model.from != NULL) {
        check_refuse_keys(k, of_sizes, "the folder of model.from sets it");
        if (r->model.preset != NULL) {
            CONFLICT("model.preset", "model.preset = %s and model.from exclude each other",
                     r->model.preset);
        }
        return;
    }
    if (r->model.preset != NULL) check_refuse_keys(k, of_preset, "model.preset sets it");
    const int64_t sizes[] = {r->model.layers, r->model.dim, r->model.heads};
    for (int64_t i = 0; i < COUNT_OF(needed) && r->model.preset == NULL; i++) {
        if (sizes[i] > 0) continue;
        CONFLICT(needed[i], "%s is not given, nor model.preset, nor model.from", needed[i]);
    }
    if (r->model.arch == RUN_ARCH_GPT2) check_refuse_keys(k, of_rope, "gpt2 learns its positions");
    if (r->model.context > 0 && r->train.seq > r->model.context) {
        CONFLICT("model.context", "train.seq = %lld is longer than model.context = %lld",
                 (ll)r->train.seq, (ll)r->model.context);
    }
    check_heads(k);
}

static void check_adapter(checker *k)
{
    static const char *const of_base[] = {"model.router.bias_rate", NULL};
    static const char *const of_folder[] = {"adapter.kind", "adapter.rank", "adapter.alpha",
                                            "adapter.targets", NULL};
    static const char *const of_adapter[] = {"adapter.rank",     "adapter.alpha",
                                             "adapter.targets",  "adapter.dropout",
                                             "adapter.quantize", NULL};
    if (k->r->adapter.files.count > 0) { // `train` has taken them apart
        const run_config *r = k->r;
        CONFLICT("adapter.files",
                 "adapter.files = %s ... is read by `trireme train FILE` alone; give the keys of "
                 "one adapter, and adapter.files=null",
                 r->adapter.files.items[0]);
    }
    if (k->r->adapter.from != NULL || k->r->adapter.kind != RUN_ADAPTER_NONE) {
        check_refuse_keys(k, of_base, "the base model under an adapter keeps its values");
    }
    if (k->r->adapter.from != NULL) {
        check_refuse_keys(k, of_folder, "adapter_config.json of adapter.from sets it");
    } else if (k->r->adapter.kind == RUN_ADAPTER_NONE) {
        check_refuse_keys(k, of_adapter, "the run has no adapter; see adapter.kind");
    }
}

static void check_data(checker *k)
{
    static const char *const of_eval[] = {"eval.batches", NULL};
    static const char *const of_tasks[] = {"eval.tasks_every", "eval.tasks_limit",
                                           "eval.tasks_template", NULL};
    static const char *const of_samples[] = {"data.format", "data.template", "data.trained", NULL};
    const run_config *r = k->r;
    if (r->data.train.count == 0 && !r->planned && !run_config_has_rollouts(r)) {
        config_complain(k->l, "data.train", ST_CONFIG_KEY,
                        "data.train is not given: a text, JSON lines or token file, or several");
    }
    if (!run_config_has_valid(r) && !run_config_has_rollouts(r) &&
        check_is_changed(k, "eval.every") && r->eval.every > 0) {
        CONFLICT("eval.every", "eval.every = %lld needs data.valid: a share of data.train or files",
                 (ll)r->eval.every);
    }
    if (r->train.objective == RUN_OBJECTIVE_PRETRAIN) {
        check_refuse_keys(
            k, of_samples,
            "train.objective = pretrain takes whole texts; see train.objective = sft");
    }
    check_objective(k);
    if (!run_config_has_valid(r) || r->eval.every == 0) {
        check_refuse_keys(k, of_eval,
                          "the run computes no validation loss; see eval.every and data.valid");
    }
    if (r->eval.tasks.count == 0) {
        check_refuse_keys(k, of_tasks, "the run has no tasks; see eval.tasks");
    }
}

static void check_straggler(checker *k)
{
    static const char *const keys[] = {"resilience.straggler", NULL};
    const run_config *r = k->r;
    if (r->searched) return;
    if (run_config_ranks(r) == 1) {
        check_refuse_keys(k, keys, "the run has one rank");
        return;
    }
    if (r->resilience.straggler == RUN_STRAGGLER_EVICT &&
        r->resilience.mode != RUN_RESILIENCE_LIVE) {
        CONFLICT(
            "resilience.straggler",
            "resilience.straggler = evict needs resilience.mode = live, whose other ranks live "
            "on");
    }
    if (r->resilience.straggler != RUN_STRAGGLER_MOVE) return;
    const char *why = r->layout.dp == 1      ? "layout.dp is 1"
                      : r->layout.ep > 1     ? "with layout.ep each rank takes as many sequences"
                      : r->moe.rebalance > 0 ? "moe.rebalance moves experts"
                      : run_config_has_rollouts(r) ? "the run draws completions itself"
                                                   : NULL;
    if (why == NULL) return;
    CONFLICT("resilience.straggler", "resilience.straggler = move cannot be used here: %s", why);
}

static void check_resilience(checker *k)
{
    const run_config *r = k->r;
    if (r->sdc.digests > 0 && run_config_ranks(r) == 1 && !r->searched) {
        CONFLICT("sdc.digests",
                 "sdc.digests = %lld compares what the ranks of a run hold and what they have "
                 "written; the run has one rank",
                 (ll)r->sdc.digests);
    }
    static const char *const of_restart[] = {"resilience.buddy.every", NULL};
    if (r->sdc.digests > 0 && !r->checkpoint.async) {
        CONFLICT("checkpoint.async",
                 "checkpoint.async = no cannot be used with sdc.digests: the state must not change "
                 "between the comparison and the write");
    }
    static const char *const of_live[] = {"resilience.spares", "resilience.min_ranks",
                                          "resilience.join_timeout", "resilience.buddy.ranks",
                                          NULL};
    if (r->resilience.mode != RUN_RESILIENCE_LIVE) {
        check_refuse_keys(k, of_live, "it applies only to resilience.mode = live");
    } else if (r->resilience.min_ranks > run_config_ranks(r) && !r->searched) {
        CONFLICT("resilience.min_ranks",
                 "resilience.min_ranks = %lld, but the layout has %lld ranks",
                 (ll)r->resilience.min_ranks, (ll)run_config_ranks(r));
    }
    check_straggler(k);
    if (r->resilience.mode == RUN_RESILIENCE_OFF) {
        check_refuse_keys(
            k, of_restart,
            "it applies only to resilience.mode = restart and resilience.mode = live");
    }
}

static void check_checkpoint(checker *k)
{
    check_resilience(k);
    const int64_t every = k->r->checkpoint.every, keep_every = k->r->checkpoint.keep_every;
    if (keep_every == 0) return;
    if (every == RUN_EVERY_AUTO) {
        CONFLICT("checkpoint.keep_every",
                 "checkpoint.keep_every = %lld needs steps that are known; checkpoint.every = auto "
                 "chooses them",
                 (ll)keep_every);
    } else if (every == 0) {
        CONFLICT("checkpoint.keep_every", "checkpoint.keep_every = %lld, but checkpoint.every = 0",
                 (ll)keep_every);
    } else if (keep_every % every != 0) {
        const int64_t below = keep_every / every * every;
        CONFLICT("checkpoint.keep_every",
                 "checkpoint.keep_every = %lld is not a multiple of checkpoint.every = %lld; "
                 "nearest: %lld",
                 (ll)keep_every, (ll)every, (ll)max_i64(below, every));
    }
}

// ---- precision, policy -------------------------------------------------------------------------

static const char *precision_name(const run_config *r)
{
    return dtype_name(run_config_types(r).compute);
}

// Kernels read stored values in their compute type or in fp32.
static void check_stored(checker *k, const char *key, dtype stored)
{
    const dtype compute = run_config_types(k->r).compute;
    if (stored == DTYPE_F32 || stored == compute) return;
    CONFLICT(key, "%s = %s with train.precision = %s; expected fp32%s%s", key, dtype_name(stored),
             precision_name(k->r), compute == DTYPE_F32 ? "" : " or ",
             compute == DTYPE_F32 ? "" : precision_name(k->r));
}

static void check_precision(checker *k)
{
    static const char *const of_fp16[] = {
        "precision.loss_scale.initial", "precision.loss_scale.window",
        "precision.loss_scale.hysteresis", "precision.loss_scale.floor", NULL};
    static const char *const of_fp8[] = {"precision.fp8", NULL};
    static const char *const of_tensors[] = {"precision.fp8_history", "precision.fp8_margin", NULL};
    const run_config *r = k->r;
    const run_types t = run_config_types(r);
    if (r->train.precision != RUN_FP8) {
        check_refuse_keys(k, of_fp8, "it applies only to train.precision = fp8");
    }
    if (r->train.precision != RUN_FP8 || r->precision.fp8 != RUN_FP8_TENSOR) {
        check_refuse_keys(k, of_tensors, "it applies only to precision.fp8 = tensor");
    }
    check_stored(k, "precision.weights", t.weights);
    check_stored(k, "precision.grads", t.grads);
    if (r->train.precision != RUN_FP16) {
        check_refuse_keys(k, of_fp16, "only train.precision = fp16 scales the loss");
    } else if (r->precision.loss_scale.initial < r->precision.loss_scale.floor) {
        CONFLICT("precision.loss_scale.floor",
                 "precision.loss_scale.floor = %g is above precision.loss_scale.initial = %g",
                 r->precision.loss_scale.floor, r->precision.loss_scale.initial);
    }
}

static void check_policy(checker *k)
{
    static const char *const of_nan_skip[] = {"policy.nan.limit", NULL};
    static const char *const of_spike_skip[] = {"policy.spike.limit", NULL};
    static const char *const of_spike[] = {"policy.spike.threshold", "policy.spike.warmup", NULL};
    if (k->r->policy.nan.mode != NAN_SKIP) {
        check_refuse_keys(k, of_nan_skip, "it applies only to policy.nan = skip");
    }
    if (k->r->policy.spike.mode != SPIKE_SKIP) {
        check_refuse_keys(k, of_spike_skip, "it applies only to policy.spike = skip");
    }
    if (k->r->policy.spike.mode == SPIKE_OFF) check_refuse_keys(k, of_spike, "policy.spike is off");
}

// ---- machine, determinism, layout ---------------------------------------------------------------

static void check_gpu(checker *k)
{
    static const char *const of_cpu[] = {"kernels.level", "kernels.backend", "kernels.keep_panels",
                                         NULL};
    const run_config *r = k->r;
    check_refuse_keys(k, of_cpu, "it applies only to kernels that run on the CPU");
    if (r->train.precision == RUN_FP16) {
        CONFLICT("train.precision",
                 "device cuda trains in bf16, fp8 and fp32; set train.precision");
    }
}

static void check_machine(checker *k)
{
    static const char *const of_cpu[] = {"kernels.level", "kernels.keep_panels", NULL};
    static const char *const of_gpu[] = {"kernels.graphs", NULL};
    static const char *const of_strict[] = {"determinism.shards", "determinism.tp_shards",
                                            "determinism.cp_shards", "determinism.etp_shards",
                                            NULL};
    const run_config *r = k->r;
    if (r->kernels.backend == RUN_BACKEND_REF) {
        check_refuse_keys(k, of_cpu, "the ref backend has no vector code");
    }
    if (r->kernels.device == RUN_DEVICE_CUDA) {
        check_gpu(k);
    } else {
        check_refuse_keys(k, of_gpu, "it applies only to kernels.device = cuda");
        if (r->comm.transport == RUN_TRANSPORT_NCCL || r->comm.transport == RUN_TRANSPORT_PEER) {
            CONFLICT("comm.transport",
                     "comm.transport = %s is between GPUs; it needs kernels.device = cuda",
                     r->comm.transport == RUN_TRANSPORT_NCCL ? "nccl" : "peer");
        }
    }
    if (r->sdc.abft > 0.0 &&
        (r->kernels.backend == RUN_BACKEND_REF || r->kernels.device == RUN_DEVICE_CUDA)) {
        CONFLICT("sdc.abft",
                 "sdc.abft = %g checks the products of the cpu backend; it cannot be used with %s",
                 r->sdc.abft,
                 r->kernels.backend == RUN_BACKEND_REF ? "kernels.backend = ref"
                                                       : "kernels.device = cuda");
    }
    if (r->determinism.mode != RUN_STRICT) {
        check_refuse_keys(k, of_strict, "it applies only to determinism = strict");
    } else if (run_config_types(r).grads != DTYPE_F32) {
        // A narrow accumulator is rounded once per micro-batch, so its bits depend on their number.
        CONFLICT("precision.grads",
                 "precision.grads = %s cannot be used in strict mode: accumulators must be "
                 "fp32; leave it out, or use determinism: fast",
                 dtype_name(run_config_types(r).grads));
    }
}

// Rules between compression and other keys; each text gives its reason.
static void check_compressed(checker *k, const char *word)
{
    const run_config *r = k->r;
    const char *key = "comm.compression.mode";
    if (r->determinism.mode == RUN_STRICT) {
        CONFLICT(key,
                 "comm.compression = %s changes the result with the number of ranks: it cannot be "
                 "used in strict mode; leave it out, or use determinism: fast",
                 word);
    }
    if (r->layout.dp == 1 && r->layout.cp == 1 && !r->searched) {
        CONFLICT(key,
                 "comm.compression has no effect: layout.dp and layout.cp are 1, so ranks exchange "
                 "no gradients");
    }
    if (run_config_types(r).grads != DTYPE_F32) {
        CONFLICT("precision.grads",
                 "precision.grads = %s with comm.compression = %s; expected fp32, which the codec "
                 "compresses",
                 dtype_name(run_config_types(r).grads), word);
    }
    if (r->layout.zero >= 2 && r->layout.zero_sums == RUN_SUMS_MICROBATCH) {
        CONFLICT(key,
                 "comm.compression = %s compresses a step's sum once, but layout.zero = %lld sums "
                 "gradients "
                 "in every micro-batch; take layout.zero_sums = step, or no compression",
                 word, (ll)r->layout.zero);
    }
    if (!run_config_has_error_feedback(r)) return;
    if (r->train.precision == RUN_FP16) {
        CONFLICT(key,
                 "comm.compression = %s cannot be used with train.precision = fp16: the residual "
                 "would be added to the next step's gradient under another loss scale; take bf16, "
                 "int8 or fp8",
                 word);
    }
    if (!r->checkpoint.async) {
        CONFLICT("checkpoint.async",
                 "checkpoint.async = no cannot be used with comm.compression = %s: rank 0 needs a "
                 "copy of the values that the other ranks have not sent yet",
                 word);
    }
    if (r->comm.compression.warmup >= r->train.steps) {
        CONFLICT("comm.compression.warmup",
                 "comm.compression = %s has no effect: comm.compression.warmup = %lld and "
                 "train.steps = %lld",
                 word, (ll)r->comm.compression.warmup, (ll)r->train.steps);
    }
}

static void check_comm(checker *k)
{
    static const char *const of_any[] = {"comm.compression.bound", NULL};
    static const char *const of_topk[] = {"comm.compression.keep", NULL};
    static const char *const of_feedback[] = {"comm.compression.warmup", NULL};
    static const char *const names[] = {"none", "bf16", "int8", "fp8", "topk", "onebit"};
    const int32_t mode = k->r->comm.compression.mode;
    if (mode == RUN_COMPRESS_NONE) check_refuse_keys(k, of_any, "comm.compression is none");
    if (mode != RUN_COMPRESS_TOPK)
        check_refuse_keys(k, of_topk, "it applies only to comm.compression = topk");
    if (!run_config_has_error_feedback(k->r)) {
        check_refuse_keys(k, of_feedback, "it applies only to comm.compression = topk and onebit");
    }
    if (mode != RUN_COMPRESS_NONE) check_compressed(k, names[mode]);
}

// Refuses keys that take effect only in a planned run.
static void check_planned(checker *k)
{
    static const char *const of_planned[] = {"checkpoint.write_s",
                                             "checkpoint.restart_s",
                                             "checkpoint.interval_s",
                                             "fleet.mtbf_device_h",
                                             "fleet.repair_h",
                                             "fleet.spares",
                                             "price.kind",
                                             "price.device_hour",
                                             "price.kwh",
                                             "cluster.devices",
                                             "profile",
                                             "flops_convention",
                                             NULL};
    if (!k->r->planned) {
        check_refuse_keys(k, of_planned,
                          "it applies only to `trireme simulate` and `trireme plan`");
    } else if (k->r->train.epochs > 0) {
        CONFLICT("train.epochs",
                 "train.epochs = %g needs the data, which is not read here; give train.tokens",
                 k->r->train.epochs);
    }
}

status run_config_check(const run_config *r, const config *c, arena *a)
{
    checker k = {.r = r, .c = c, .a = a};
    TRY(option_set_defaults(&run_config_table, a, &k.defaults));
    TRY(config_complaints_begin(c, a, &k.l));
    check_train(&k);
    check_optimizer(&k);
    check_schedule(&k);
    check_model(&k);
    check_adapter(&k);
    check_data(&k);
    check_checkpoint(&k);
    check_precision(&k);
    check_policy(&k);
    check_machine(&k);
    check_layout(&k);
    check_comm(&k);
    check_planned(&k);
    return config_complaints_end(k.l);
}
