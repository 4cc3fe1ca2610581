// The configuration of a run: ten lines train a model, every row of the table has its own field,
// and conflicts are refused by name, all at once.
#include "config/run_config.h"
#include "config/run_length.h"

#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    arena *a;
    run_config r;
    config *c;
} fixture;

static const char base_yaml[] = "data: {train: a.txt}\nmodel: {preset: gpt2-124m}\n";

// Loads the base text, more lines and override words as run_config_load() does.
static status load_for(bool planned, fixture *f, const char *base, const char *lines,
                       const char *const *words, int64_t count)
{
    memset(f, 0, sizeof(*f));
    f->r.planned = planned;
    assert_int_equal(arena_create("test", 0, &f->a), ST_OK);
    text yaml = {.a = f->a};
    assert_int_equal(text_add(&yaml, "%s%s", base, lines), ST_OK);
    TRY(config_parse(f->a, &run_config_table,
                     &(const config_input){.yaml = yaml.bytes,
                                           .bytes = yaml.length,
                                           .name = "run.yaml",
                                           .folder = "/here",
                                           .overrides = words,
                                           .override_count = count},
                     &f->r, &f->c));
    TRY(run_config_follow(&f->r, f->c, f->a));
    TRY(run_config_check(&f->r, f->c, f->a));
    run_config_complete(&f->r);
    return ST_OK;
}

static status load(fixture *f, const char *base, const char *lines, const char *const *words,
                   int64_t count)
{
    return load_for(false, f, base, lines, words, count);
}

static void must_load(fixture *f, const char *lines)
{
    if (load(f, base_yaml, lines, NULL, 0) != ST_OK) {
        fail_msg("%s\n%s", lines, error_last()->text);
    }
}

static void rows_are_sound(void **state)
{
    (void)state;
    for (int64_t i = 0; i < run_config_table.count; i++) {
        const option *o = &run_config_table.rows[i];
        assert_non_null(o->help);
        assert_true(o->help[strlen(o->help) - 1] != '.');
        assert_true(o->offset >= 0 && o->offset < (int64_t)sizeof(run_config));
        assert_false(option_is_heading(&run_config_table, o->key));
        // Two keys of planned runs have no heading.
        const bool alone =
            strcmp(o->key, "profile") == 0 || strcmp(o->key, "flops_convention") == 0;
        assert_true(strchr(o->key, '.') != NULL || alone);
        for (int64_t j = 0; j < i; j++) {
            assert_string_not_equal(o->key, run_config_table.rows[j].key);
            assert_true(o->offset != run_config_table.rows[j].offset);
        }
    }
}

// The public names of the first design, each with a valid value.
static const char *const fixed_names[] = {"run.dir=r",
                                          "train.steps=50",
                                          "train.seq=128",
                                          "train.global_batch=16",
                                          "train.micro_batch=4",
                                          "train.precision=fp16",
                                          "train.recompute=selective",
                                          "train.seed=3",
                                          "optimizer.name=muon",
                                          "optimizer.lr=1e-3",
                                          "optimizer.beta1=0.8",
                                          "optimizer.beta2=0.99",
                                          "optimizer.eps=1e-9",
                                          "optimizer.weight_decay=0.2",
                                          "optimizer.clip=0.5",
                                          "schedule.name=wsd",
                                          "schedule.warmup=5",
                                          "schedule.min_ratio=0.1",
                                          "schedule.decay_steps=10",
                                          "eval.every=10",
                                          "eval.batches=2",
                                          "checkpoint.every=10",
                                          "checkpoint.keep=2",
                                          "checkpoint.keep_every=20",
                                          "model.layers=2",
                                          "model.dim=64",
                                          "model.heads=4",
                                          "model.kv_heads=2",
                                          "model.head_dim=16",
                                          "model.ffn_dim=128",
                                          "model.vocab=256",
                                          "data.train=a.txt",
                                          "data.valid=0.1",
                                          "data.tokenizer=bytes",
                                          "data.packing=plain",
                                          "memory.limit=1GiB",
                                          "kernels.level=avx2",
                                          "kernels.threads=2",
                                          "model.dropout=0.1",
                                          "train.z_loss=1e-4",
                                          "train.max_time=1h",
                                          "policy.nan=skip",
                                          "policy.spike=skip",
                                          "precision.weights=fp16",
                                          "precision.grads=fp32",
                                          "precision.master=none",
                                          "precision.moments=bf16",
                                          "precision.loss_scale.window=100",
                                          "precision.loss_scale.hysteresis=1",
                                          "precision.loss_scale.floor=1",
                                          "optimizer.momentum=0.9",
                                          "optimizer.stochastic_rounding=yes",
                                          "trace.steps=2:3",
                                          "determinism=strict",
                                          "layout.dp=1",
                                          "layout.tp=1",
                                          "layout.pp=1",
                                          "layout.cp=1",
                                          "layout.vpp=0",
                                          "layout.zero=0",
                                          "layout.zero_group=0",
                                          "layout.zero_sums=microbatch",
                                          "layout.sp=no",
                                          "layout.cp_heads=1",
                                          "layout.cp_ring=auto",
                                          "layout.schedule=1f1b"};

static void every_fixed_name_is_there(void **state)
{
    (void)state;
    fixture f;
    const status st = load(&f, "", "", fixed_names, COUNT_OF(fixed_names));
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    assert_int_equal(f.r.train.precision, RUN_FP16);
    assert_int_equal(f.r.optimizer.name, RUN_MUON);
    assert_int_equal(f.r.schedule.name, RUN_SCHEDULE_WSD);
    assert_int_equal(f.r.kernels.level, RUN_LEVEL_AVX2);
    assert_int_equal(f.r.policy.nan.mode, NAN_SKIP);
    assert_int_equal(f.r.policy.spike.mode, SPIKE_SKIP);
    assert_int_equal(f.r.determinism.mode, RUN_STRICT);
    assert_int_equal(f.r.data.packing, RUN_PACKING_PLAIN);
    assert_int_equal(f.r.train.recompute, RUN_RECOMPUTE_SELECTIVE);
    assert_int_equal(f.r.memory.limit, INT64_C(1) << 30);
    assert_int_equal(f.r.train.max_time, INT64_C(3600000000000));
    const run_types t = run_config_types(&f.r);
    assert_int_equal(t.weights, DTYPE_F16);
    assert_int_equal(t.grads, DTYPE_F32);
    assert_int_equal(t.moments, DTYPE_BF16);
    assert_false(t.has_master);
    arena_destroy(f.a);
}

// A choice's words must be in the order of its enum.
static void choices_match_their_enums(void **state)
{
    (void)state;
    static const struct {
        const char *key, *word;
        int position;
    } cases[] = {
        {"train.precision", "bf16", RUN_BF16},
        {"train.precision", "fp16", RUN_FP16},
        {"train.recompute", "full", RUN_RECOMPUTE_FULL},
        {"optimizer.muon_lr_adjust", "match_rms_adamw", RUN_MUON_MATCH_RMS_ADAMW},
        {"schedule.name", "constant", RUN_SCHEDULE_CONSTANT},
        {"schedule.name", "linear", RUN_SCHEDULE_LINEAR},
        {"schedule.name", "cosine", RUN_SCHEDULE_COSINE},
        {"schedule.name", "wsd", RUN_SCHEDULE_WSD},
        {"schedule.name", "inverse_sqrt", RUN_SCHEDULE_INVERSE_SQRT},
        {"schedule.decay_shape", "cosine", RUN_DECAY_COSINE},
        {"schedule.decay_shape", "1-sqrt", RUN_DECAY_ONE_MINUS_SQRT},
        {"model.arch", "gpt2", RUN_ARCH_GPT2},
        {"model.arch", "mistral", RUN_ARCH_MISTRAL},
        {"model.arch", "qwen3", RUN_ARCH_QWEN3},
        {"model.tied", "no", RUN_NO},
        {"model.qk_norm", "yes", RUN_YES},
        {"model.qk_norm", "true", RUN_YES},
        {"model.qk_norm", "off", RUN_NO},
        {"kernels.level", "scalar", RUN_LEVEL_SCALAR},
        {"kernels.level", "avx512", RUN_LEVEL_AVX512},
        {"kernels.level", "amx", RUN_LEVEL_AMX},
        {"kernels.device", "shadow", RUN_DEVICE_SHADOW},
        {"kernels.backend", "cpu", RUN_BACKEND_CPU},
        {"kernels.backend", "ref", RUN_BACKEND_REF},
        {"precision.weights", "fp32", RUN_STORED_FP32},
        {"precision.grads", "bf16", RUN_STORED_BF16},
        {"precision.moments", "fp16", RUN_STORED_FP16},
        {"precision.master", "fp32", RUN_MASTER_FP32},
        {"precision.master", "none", RUN_MASTER_NONE},
        {"policy.nan.mode", "count", NAN_COUNT},
        {"policy.nan.mode", "stop", NAN_STOP},
        {"policy.spike.mode", "off", SPIKE_OFF},
        {"policy.spike.mode", "stop", SPIKE_STOP},
        {"data.packing", "plain", RUN_PACKING_PLAIN},
        {"determinism.mode", "strict", RUN_STRICT},
        {"log.format", "json", RUN_LOG_JSON},
    };
    fixture f;
    must_load(&f, "");
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const option *o = option_find(&run_config_table, cases[i].key);
        assert_non_null(o);
        assert_int_equal(option_set(o, f.a, &f.r, cases[i].word, NULL, NULL), ST_OK);
        const int32_t *field = (const int32_t *)(const void *)((const char *)&f.r + o->offset);
        assert_int_equal(*field, cases[i].position);
    }
    arena_destroy(f.a);
}

static void ten_lines_train(void **state)
{
    (void)state;
    fixture f;
    must_load(&f, "train:\n  steps: 300\noptimizer:\n  lr: 1e-3\nschedule: {warmup: 20}\n");
    assert_int_equal(f.r.train.seq, 256);
    assert_int_equal(f.r.train.global_batch, 8);
    assert_int_equal(f.r.train.micro_batch, 8);
    assert_int_equal(f.r.schedule.name, RUN_SCHEDULE_COSINE);
    assert_int_equal(f.r.optimizer.name, RUN_ADAMW);
    assert_int_equal(f.r.determinism.mode, RUN_FAST);
    assert_string_equal(f.r.run.dir, "/here/run");
    assert_string_equal(f.r.data.train.items[0], "/here/a.txt");
    assert_string_equal(f.r.data.tokenizer, "auto");
    double share;
    assert_true(run_config_valid_share(&f.r, &share));
    assert_true(share == 0.05);
    assert_true(run_config_has_valid(&f.r));
    const run_types t = run_config_types(&f.r);
    assert_int_equal(t.weights, DTYPE_F32);
    assert_false(t.has_master);
    arena_destroy(f.a);
    must_load(&f, "train: {precision: bf16, seq: 1024, global_batch: 12}\ndata.valid: v.txt\n");
    assert_int_equal(f.r.train.micro_batch, 4);
    assert_true(run_config_types(&f.r).has_master);
    assert_false(run_config_valid_share(&f.r, &share));
    assert_true(run_config_has_valid(&f.r));
    assert_string_equal(f.r.data.valid.items[0], "/here/v.txt");
    arena_destroy(f.a);
}

static void micro_batches_are_left_open(void **state)
{
    (void)state;
    fixture f;
    must_load(&f, "");
    assert_true(f.r.train.micro_batch_chosen && !f.r.train.micro_batch_planned);
    arena_destroy(f.a);
    must_load(&f, "train.micro_batch: 0\n");
    assert_true(f.r.train.micro_batch_chosen && !f.r.train.micro_batch_planned);
    arena_destroy(f.a);
    must_load(&f, "train.micro_batch: auto\n");
    assert_int_equal(f.r.train.micro_batch, 8); // until the planner chooses
    assert_true(f.r.train.micro_batch_chosen && f.r.train.micro_batch_planned);
    arena_destroy(f.a);
    must_load(&f, "train.micro_batch: 2\n");
    assert_false(f.r.train.micro_batch_chosen || f.r.train.micro_batch_planned);
    arena_destroy(f.a);
    must_load(&f, "train: {batch_ramp: {0: 8, 10: 12}, micro_batch: auto}\n");
    assert_int_equal(run_config_batch_divisor(&f.r), 4);
    arena_destroy(f.a);
}

static void the_batch_ramps(void **state)
{
    (void)state;
    fixture f;
    must_load(&f, "train: {batch_ramp: {0: 8, 100: 12, 200: 32}, seq: 512}\n");
    assert_int_equal(f.r.train.global_batch, 32);
    assert_int_equal(f.r.train.micro_batch, 4);
    assert_int_equal(run_config_batch(&f.r, 0), 8);
    assert_int_equal(run_config_batch(&f.r, 99), 8);
    assert_int_equal(run_config_batch(&f.r, 100), 12);
    assert_int_equal(run_config_batch(&f.r, 5000), 32);
    assert_int_equal(run_config_batch_max(&f.r), 32);
    assert_int_equal(run_config_ramp_count(&f.r), 3);
    arena_destroy(f.a);
    must_load(&f, "train: {global_batch: 6}\n");
    assert_int_equal(run_config_batch(&f.r, 7), 6);
    assert_int_equal(run_config_batch_max(&f.r), 6);
    assert_int_equal(run_config_ramp_count(&f.r), 1);
    arena_destroy(f.a);
}

typedef struct wrong_run {
    const char *lines;
    status st;
    const char *says;
} wrong_run;

static const wrong_run wrong_runs[] = {
    {"train: {global_batch: 10, micro_batch: 4}\n", ST_CONFIG_CONFLICT,
     "train.micro_batch = 4 does not divide train.global_batch = 10; nearest that do: 2 or 5"},
    {"train: {global_batch: 8, micro_batch: 16}\n", ST_CONFIG_CONFLICT, "nearest that do: 8"},
    {"train: {batch_ramp: {0: 8, 10: 6}, micro_batch: 4}\n", ST_CONFIG_CONFLICT,
     "does not divide train.batch_ramp = 6; nearest that do: 3 or 6"},
    {"train: {batch_ramp: {5: 8}}\n", ST_CONFIG_CONFLICT, "begins at step 5, expected 0"},
    {"train: {batch_ramp: {0: 4, 60: 8}, steps: 50}\n", ST_CONFIG_CONFLICT, "after step 60"},
    {"train: {batch_ramp: {0: 4, 60: 8}, global_batch: 4}\n", ST_CONFIG_CONFLICT, "ends at 8"},
    {"train: {batch_ramp: {0: 0}}\n", ST_CONFIG_RANGE, "train.batch_ramp"},
    // Combinations that are not implemented.
    {"determinism: {mode: strict, tp_shards: 16}\n", ST_CONFIG_CONFLICT,
     "determinism.tp_shards = 16 is more than 8 for each rank of layout.tp = 1"},
    {"determinism: {mode: strict, cp_shards: 16}\n", ST_CONFIG_CONFLICT,
     "determinism.cp_shards = 16 is more than 8 for each rank of layout.cp = 1"},
    {"determinism: {mode: strict, cp_shards: 3}\n", ST_CONFIG_CONFLICT,
     "6 pieces, which do not divide train.seq = 256"},
    {"layout: {cp: 2}\ndeterminism: strict\n", ST_CONFIG_CONFLICT,
     "layout.cp = 2 does not divide determinism.cp_shards = 1; nearest that do: 1"},
    // Keys without effect, and conflicts.
    {"fleet: {spares: 8}\n", ST_CONFIG_CONFLICT,
     "fleet.spares has no effect: it applies only to `trireme simulate` and `trireme plan`"},
    {"checkpoint: {interval_s: 60}\n", ST_CONFIG_CONFLICT, "checkpoint.interval_s has no effect"},
    {"train: {tokens: 1e9, steps: 5}\n", ST_CONFIG_CONFLICT,
     "train.steps and train.tokens are both given"},
    {"train: {epochs: 2, tokens: 1000}\n", ST_CONFIG_CONFLICT,
     "train.tokens and train.epochs are both given"},
    {"layout: {vpp: 2}\n", ST_CONFIG_CONFLICT, "layout.vpp has no effect: layout.pp is 1"},
    {"layout: {stages: [6, 6]}\n", ST_CONFIG_CONFLICT, "layout.stages has no effect: layout.pp"},
    {"layout: {schedule: zb-h1}\n", ST_CONFIG_CONFLICT, "layout.schedule has no effect"},
    {"layout: {shares: [2]}\n", ST_CONFIG_CONFLICT, "layout.shares has no effect: layout.dp is 1"},
    {"layout: {dp: 2, shares: [3, 2, 3]}\n", ST_CONFIG_CONFLICT,
     "layout.shares lists 3 ranks, but layout.dp = 2"},
    {"layout: {dp: 2, shares: [3, 0]}\n", ST_CONFIG_CONFLICT,
     "layout.shares: rank 1 has \"0\" parts, expected a whole number from 1 to 1000000"},
    {"layout: {dp: 2, shares: [1, 1000]}\n", ST_CONFIG_CONFLICT,
     "layout.dp = 2 leaves rank 0 without one of the 8 sequences of a step"},
    {"layout: {dp: 2, ep: 2, shares: [3, 1]}\nmodel: {experts: 4}\n", ST_CONFIG_CONFLICT,
     "layout.shares cannot be used with layout.ep = 2"},
    {"resilience: {straggler: move}\n", ST_CONFIG_CONFLICT,
     "resilience.straggler has no effect: the run has one rank"},
    {"resilience: {straggler: evict}\nlayout: {dp: 2}\n", ST_CONFIG_CONFLICT,
     "resilience.straggler = evict needs resilience.mode = live"},
    {"resilience: {straggler: move}\nlayout: {tp: 2}\n", ST_CONFIG_CONFLICT,
     "resilience.straggler = move cannot be used here: layout.dp is 1"},
    {"layout: {sp: yes}\n", ST_CONFIG_CONFLICT, "layout.sp has no effect: layout.tp is 1"},
    {"layout: {cp_heads: 2}\n", ST_CONFIG_CONFLICT, "layout.cp_heads has no effect: layout.cp"},
    {"layout: {cp_ring: yes}\n", ST_CONFIG_CONFLICT, "layout.cp_ring has no effect: layout.cp"},
    {"layout: {cp: 4, cp_heads: 4, cp_ring: yes}\n", ST_CONFIG_CONFLICT,
     "layout.cp_heads = 4 is all of layout.cp, and leaves no ranks for a ring"},
    {"layout: {cp: 2, cp_ring: yes}\ndeterminism: {mode: strict, cp_shards: 2}\n",
     ST_CONFIG_CONFLICT, "layout.cp_ring = yes cannot be used with determinism = strict"},
    {"layout: {cp: 16, cp_heads: 8}\ndeterminism: {mode: strict, cp_shards: 32}\n",
     ST_CONFIG_CONFLICT,
     "determinism.cp_shards = 32 is more than 8 for each rank of layout.cp / layout.cp_heads = 2"},
    {"layout: {dp: 2, zero_group: 2}\n", ST_CONFIG_CONFLICT,
     "zero_group has no effect: layout.zero"},
    {"layout: {dp: 4, zero: 1, zero_group: 3}\n", ST_CONFIG_CONFLICT,
     "layout.zero_group = 3 does not divide layout.dp = 4; nearest that do: 2 or 4"},
    {"layout: {dp: 2, zero_sums: step}\n", ST_CONFIG_CONFLICT,
     "zero_sums has no effect: layout.zero"},
    {"layout: {dp: 2, zero: 1, zero_group: 1}\n", ST_CONFIG_CONFLICT,
     "leaves layout.zero no ranks"},
    {"layout: {tp: 2}\ndeterminism: strict\n", ST_CONFIG_CONFLICT,
     "layout.tp = 2 does not divide determinism.tp_shards = 1; nearest that do: 1"},
    {"layout: {tp: 4}\ndeterminism: {mode: strict, tp_shards: 6}\n", ST_CONFIG_CONFLICT,
     "layout.tp = 4 does not divide determinism.tp_shards = 6; nearest that do: 3 or 6"},
    {"layout: {cp: 2}\ndeterminism: {mode: strict, cp_shards: 3}\n", ST_CONFIG_CONFLICT,
     "layout.cp = 2 does not divide determinism.cp_shards = 3; nearest that do: 1 or 3"},
    {"layout: {tp: 3, sp: yes}\n", ST_CONFIG_CONFLICT,
     "is not a multiple of 3; nearest that is: 255"},
    {"layout: {tp: 4, sp: yes}\ntrain: {seq: 80}\n"
     "determinism: {mode: strict, tp_shards: 4, cp_shards: 4}\n",
     ST_CONFIG_CONFLICT,
     "8 pieces of a sequence over layout.tp = 4, and train.seq = 80 is not a multiple of 32; "
     "nearest "
     "that is: 64"},
    {"layout: {cp: 3}\n", ST_CONFIG_CONFLICT, "6 pieces, which do not divide train.seq = 256"},
    {"layout: {cp: 4, cp_heads: 3}\n", ST_CONFIG_CONFLICT,
     "layout.cp_heads = 3 does not divide layout.cp = 4; nearest that do: 2 or 4"},
    {"layout: {pp: 3, stages: [6, 6]}\n", ST_CONFIG_CONFLICT, "lists 2 stages, but layout.pp = 3"},
    {"layout: {pp: 2, schedule: interleaved, stages: [6, 6]}\n", ST_CONFIG_CONFLICT, "needs 4"},
    {"layout: {pp: 2, stages: [6, six]}\n", ST_CONFIG_CONFLICT, "stage 1 has \"six\" layers"},
    {"layout: {pp: 3, stages: [6, 0, 6]}\n", ST_CONFIG_CONFLICT,
     "layers, 0.5, 1, 1.5 or more expected"},
    {"layout: {pp: 2, stages: [12.25, 0]}\n", ST_CONFIG_CONFLICT,
     "layers, 0, 0.5, 1, 1.5 or more expected"},
    {"layout: {pp: 2, stages: [6.5, 5.25]}\n", ST_CONFIG_CONFLICT, "stage 1 has \"5.25\" layers"},
    {"layout: {pp: 2, stages: [-1, 13]}\n", ST_CONFIG_CONFLICT, "stage 0 has \"-1\" layers"},
    {"layout: {pp: 2, stages: [1e300, 13]}\n", ST_CONFIG_CONFLICT, "stage 0 has \"1e300\" layers"},
    {"layout: {pp: 2, stages: [6.5, 6]}\nmodel.layers: 12\n", ST_CONFIG_CONFLICT,
     "layout.stages has 12.5 layers, but model.layers = 12"},
    {"layout: {pp: 2, stages: [6, 7]}\nmodel.layers: 12\n", ST_CONFIG_CONFLICT,
     "layout.stages has 13 layers, but model.layers = 12"},
    {"layout: {dp: 1048576, tp: 2}\n", ST_CONFIG_CONFLICT, "more than 1048576 ranks"},
    {"layout: {pp: 2}\ncheckpoint.async: no\n", ST_CONFIG_CONFLICT,
     "cannot be used with layout.pp"},
    {"layout: {pp: 2}\ncomm: {compression: int8}\n", ST_CONFIG_CONFLICT,
     "layout.dp and layout.cp are 1"},
    {"layout.dp: 9\n", ST_CONFIG_CONFLICT,
     "layout.dp = 9 leaves rank 0 without one of the 8 sequences of a step"},
    {"layout.dp: 4\ndeterminism: {mode: strict, shards: 2}\n", ST_CONFIG_CONFLICT,
     "layout.dp = 4 is more than determinism.shards = 2"},
    {"layout.dp: 3\ntrain.global_batch: 4\ndeterminism: {mode: strict, shards: 5}\n",
     ST_CONFIG_CONFLICT, "layout.dp = 3 leaves rank 0 without one of the 4 sequences"},
    {"layout.dp: 2\nkernels.device: shadow\n", ST_UNSUPPORTED, "it trains only with one rank"},
    {"layout.zero: 1\n", ST_CONFIG_CONFLICT,
     "layout.zero has no effect: layout.dp and layout.cp are 1"},
    {"layout: {dp: 2, zero: 4}\n", ST_CONFIG_RANGE, "layout.zero"},
    {"layout: {dp: 2, zero: 2}\ncomm: {compression: int8}\n", ST_CONFIG_CONFLICT,
     "layout.zero = 2 sums gradients in every micro-batch"},
    {"layout: {dp: 4, zero: 2, zero_group: 2}\ncomm: {compression: int8}\n", ST_CONFIG_CONFLICT,
     "layout.zero = 2 sums gradients in every micro-batch"},
    {"layout: auto\n", ST_CONFIG_CONFLICT, "chooses the layout when it starts"},
    {"layout: {dp: 0}\n", ST_CONFIG_RANGE, "layout.dp = \"0\": expected 1 to"},
    {"schedule: {name: wsd}\n", ST_CONFIG_CONFLICT, "wsd needs schedule.decay_steps, such as 100"},
    {"schedule: {name: wsd, decay_steps: 900, warmup: 200}\n", ST_CONFIG_CONFLICT, "longer"},
    {"schedule: {decay_steps: 10}\n", ST_CONFIG_CONFLICT, "schedule.decay_steps has no effect"},
    {"schedule: {decay_shape: cosine}\n", ST_CONFIG_CONFLICT, "schedule.decay_shape has no effect"},
    {"schedule: {timescale: 10}\n", ST_CONFIG_CONFLICT, "schedule.timescale has no effect"},
    {"schedule: {name: constant, min_ratio: 0.1}\n", ST_CONFIG_CONFLICT, "min_ratio has no effect"},
    {"schedule: {name: cosin}\n", ST_CONFIG_RANGE, "did you mean \"cosine\"?"},
    {"schedule: {min_ratio: 1.5}\n", ST_CONFIG_RANGE, "expected 0 to 1"},
    {"precision: {loss_scale: {window: 5}}\n", ST_CONFIG_CONFLICT, "only train.precision = fp16"},
    {"precision: {loss_scale: {window: 0}}\n", ST_CONFIG_RANGE, "precision.loss_scale.window"},
    {"train: {precision: fp16}\nprecision: {loss_scale: {floor: 99999}}\n", ST_CONFIG_CONFLICT,
     "above precision.loss_scale.initial"},
    {"precision: {weights: bf16}\n", ST_CONFIG_CONFLICT, "with train.precision = fp32; expected"},
    {"train: {precision: bf16}\nprecision: {grads: fp16}\n", ST_CONFIG_CONFLICT, "fp32 or bf16"},
    {"precision: bf16\n", ST_CONFIG_TYPE, "heads keys such as precision.weights"},
    {"optimizer: {stochastic_rounding: yes}\n", ST_CONFIG_CONFLICT, "no effect: the optimizer"},
    {"optimizer: {momentum: 0.5}\n", ST_CONFIG_CONFLICT,
     "it applies only to optimizer.name = muon"},
    {"optimizer: {nesterov: no}\n", ST_CONFIG_CONFLICT, "optimizer.nesterov has no effect"},
    {"optimizer: {beta2: 1}\n", ST_CONFIG_RANGE, "optimizer.beta2 = 1: expected below 1"},
    {"optimizer: {lr: -1}\n", ST_CONFIG_RANGE, "optimizer.lr"},
    {"optimizer: {lr: 3e}\n", ST_CONFIG_TYPE, "optimizer.lr = \"3e\": expected a number"},
    {"optimizer: {learning_rate: 1}\n", ST_CONFIG_KEY, "did you mean \"optimizer.lr\"?"},
    {"optimiser: {learnig_rate: 1}\n", ST_CONFIG_KEY, "did you mean \"optimizer.lr\"?"},
    {"train: {batch_size: 4}\n", ST_CONFIG_KEY, "did you mean \"train.global_batch\"?"},
    {"training: {steps: 4}\n", ST_CONFIG_KEY, "did you mean \"train.steps\"?"},
    {"model: {n_layer: 4}\n", ST_CONFIG_KEY, "did you mean \"model.layers\"?"},
    {"model: {from: hf}\n", ST_CONFIG_SYNTAX, "given twice"},
    {"model.from: hf\n", ST_CONFIG_CONFLICT, "model.preset = gpt2-124m and model.from exclude"},
    {"model.from: hf\nmodel.layers: 3\n", ST_CONFIG_CONFLICT, "model.layers has no effect"},
    {"model.arch: llama\n", ST_CONFIG_CONFLICT, "model.arch has no effect: model.preset sets it"},
    {"model.heads: 6\nmodel.kv_heads: 4\n", ST_CONFIG_CONFLICT, "nearest that do: 3 or 6"},
    {"model.heads: 7\nmodel.dim: 64\n", ST_CONFIG_CONFLICT, "nearest that do: 4 or 8"},
    {"model.head_dim: 300\n", ST_CONFIG_RANGE, "expected 0 to 256"},
    {"model.context: 100\n", ST_CONFIG_CONFLICT, "train.seq = 256 is longer than model.context"},
    {"model.dropout: 1\n", ST_CONFIG_RANGE, "expected 0 to 0.99"},
    {"eval: {every: 5}\ndata.valid: 0\n", ST_CONFIG_CONFLICT, "eval.every = 5 needs data.valid"},
    {"eval: {every: 0, batches: 3}\n", ST_CONFIG_CONFLICT, "eval.batches has no effect"},
    {"data.valid: 1\n", ST_CONFIG_RANGE, "expected 0 to 0.99"},
    {"data.valid: -0.1\n", ST_CONFIG_RANGE, "data.valid"},
    {"data.packing: none\n", ST_CONFIG_RANGE, "masked, plain, best-fit"},
    {"checkpoint: {every: 100, keep_every: 250}\n", ST_CONFIG_CONFLICT, "nearest: 200"},
    {"checkpoint: {every: 0, keep_every: 250}\n", ST_CONFIG_CONFLICT, "checkpoint.every = 0"},
    {"checkpoint: {keep: 0}\n", ST_CONFIG_RANGE, "checkpoint.keep"},
    {"determinism: {shards: 4}\n", ST_CONFIG_CONFLICT, "determinism.shards has no effect"},
    {"determinism: strict\ntrain: {precision: bf16}\nprecision: {grads: bf16}\n",
     ST_CONFIG_CONFLICT, "precision.grads = bf16 cannot be used in strict mode"},
    {"determinism: {mode: strict, shards: 65}\n", ST_CONFIG_RANGE, "1 to 64"},
    {"kernels: {backend: ref, level: avx2}\n", ST_CONFIG_CONFLICT, "kernels.level has no effect"},
    {"kernels: {level: avx51}\n", ST_CONFIG_RANGE, "did you mean \"avx512\"?"},
    {"kernels: {threads: -1}\n", ST_CONFIG_RANGE, "kernels.threads"},
    {"policy: {nan: {mode: stop, limit: 3}}\n", ST_CONFIG_CONFLICT,
     "it applies only to policy.nan = skip"},
    {"policy: {spike: {threshold: 3}}\n", ST_CONFIG_CONFLICT, "policy.spike is off"},
    {"policy: {spike: {mode: count, limit: 3}}\n", ST_CONFIG_CONFLICT, "policy.spike = skip"},
    {"policy: {nan: off}\n", ST_CONFIG_RANGE, "count, skip, stop"},
    {"trace: {steps: 5000}\n", ST_CONFIG_CONFLICT, "trace.steps = 5000:5000, but"},
    {"trace: {steps: 5:3}\n", ST_CONFIG_TYPE, "10:20"},
    {"memory: {limit: lots}\n", ST_CONFIG_TYPE, "4GiB"},
    {"train: {max_time: 30}\n", ST_CONFIG_TYPE, "30s"},
    {"train: {seed: 18446744073709551616}\n", ST_CONFIG_TYPE, "train.seed"},
    {"comm: {compression: int8}\n", ST_CONFIG_CONFLICT,
     "layout.dp and layout.cp are 1, so ranks exchange no"},
    {"comm: {compression: int4}\n", ST_CONFIG_RANGE, "none, bf16, int8, fp8, topk, onebit"},
    {"comm: {compression: {bound: 0.1}}\n", ST_CONFIG_CONFLICT, "comm.compression is none"},
    {"layout: {dp: 2}\ncomm: {compression: int8}\ndeterminism: strict\n", ST_CONFIG_CONFLICT,
     "comm.compression = int8 changes the result with the number of ranks: it cannot be used "
     "in strict mode"},
    {"layout: {dp: 2}\ncomm: {compression: {mode: int8, keep: 0.5}}\n", ST_CONFIG_CONFLICT,
     "it applies only to comm.compression = topk"},
    {"layout: {dp: 2}\ncomm: {compression: {mode: fp8, warmup: 3}}\n", ST_CONFIG_CONFLICT,
     "it applies only to comm.compression = topk and onebit"},
    {"layout: {dp: 2}\ncomm: {compression: onebit}\ntrain: {precision: fp16}\n", ST_CONFIG_CONFLICT,
     "under another loss scale"},
    {"layout: {dp: 2}\ncomm: {compression: {mode: topk, warmup: 1000}}\n", ST_CONFIG_CONFLICT,
     "comm.compression.warmup = 1000 and train.steps = 1000"},
    {"layout: {dp: 2}\ncomm: {compression: topk}\ncheckpoint: {async: no}\n", ST_CONFIG_CONFLICT,
     "that the other ranks have not sent yet"},
    {"layout: {dp: 2}\ncomm: {compression: bf16}\ntrain: {precision: bf16}\nprecision: "
     "{grads: bf16}\n",
     ST_CONFIG_CONFLICT, "precision.grads = bf16 with comm.compression = bf16"},
};

static void wrong_runs_are_refused_by_name(void **state)
{
    (void)state;
    fixture f;
    for (int64_t i = 0; i < COUNT_OF(wrong_runs); i++) {
        const wrong_run *w = &wrong_runs[i];
        // Lines about model and data add to the base's, so the base writes its keys with dots.
        const char *base = strncmp(w->lines, "model: {f", 9) == 0
                               ? base_yaml
                               : "data.train: a.txt\nmodel.preset: gpt2-124m\n";
        const status st = load(&f, base, w->lines, NULL, 0);
        if (st != w->st || strstr(error_last()->text, w->says) == NULL) {
            fail_msg("%s gave %d\n%s\nexpected %d and %s", w->lines, (int)st, error_last()->text,
                     (int)w->st, w->says);
        }
        assert_int_equal(status_exit_code(st), 3);
        arena_destroy(f.a);
    }
    assert_int_equal(load(&f, "", "", NULL, 0), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "model.layers is not given, nor model.preset"));
    assert_non_null(strstr(error_last()->text, "data.train is not given"));
    assert_non_null(strstr(error_last()->text, "4 errors, nothing was started"));
    arena_destroy(f.a);
}

static void resolved_configurations_load_again(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "determinism: strict\n",
        "train: {precision: fp16, batch_ramp: {0: 4, 10: 8}}\n",
        "optimizer: {name: muon}\nschedule: {name: inverse_sqrt, warmup: 7}\n",
        "data.valid: 0\n",
        "kernels: {backend: ref, threads: 3}\npolicy: {spike: stop}\ntrace.steps: 3:4\n",
        "data.valid: [v.txt, w.txt]\nmemory.limit: 3GiB\ntrain.max_time: 90s\n",
        "layout: {dp: 4, zero: 1, zero_group: 2}\ncomm.compression: int8\n",
        "layout: {dp: 2, zero: 1, cp: 2}\ncomm.compression: topk\n",
        "layout: {dp: 2, zero: 3, zero_sums: step}\ncomm.compression: int8\n",
    };
    for (int64_t i = 0; i < COUNT_OF(lines); i++) {
        fixture f, again;
        must_load(&f, lines[i]);
        text out = {.a = f.a};
        assert_int_equal(config_print_resolved(f.c, &f.r, &out), ST_OK);
        if (load(&again, out.bytes, "", NULL, 0) != ST_OK) {
            fail_msg("%s\n%s", error_last()->text, out.bytes);
        }
        for (int64_t k = 0; k < run_config_table.count; k++) {
            const option *o = &run_config_table.rows[k];
            if (!option_equal(o, &f.r, &again.r)) fail_msg("%s in\n%s", o->key, out.bytes);
        }
        arena_destroy(again.a);
        arena_destroy(f.a);
    }
}

// Removing an axis resets the file's keys of that axis, but not keys of the same command line.
static void keys_of_a_removed_axis_are_reset(void **state)
{
    (void)state;
    static const char *const given =
        "layout: {pp: 2, schedule: zb-h1, tp: 2, sp: yes, dp: 2, zero: 3, zero_group: 2, "
        "zero_sums: step}\n";
    const char *const words[] = {"layout.pp=1", "layout.tp=1", "layout.zero=0"};
    fixture f;
    assert_int_equal(load(&f, base_yaml, given, words, COUNT_OF(words)), ST_OK);
    assert_string_equal(f.r.layout.schedule, "1f1b");
    assert_false(f.r.layout.sp);
    assert_int_equal(f.r.layout.zero_group, 0);
    assert_int_equal(f.r.layout.zero_sums, RUN_SUMS_MICROBATCH);
    assert_string_equal(f.r.dropped,
                        "layout.schedule, layout.sp, layout.zero_group, layout.zero_sums");
    arena_destroy(f.a);
    assert_int_equal(load(&f, base_yaml, given, NULL, 0), ST_OK);
    assert_null(f.r.dropped);
    arena_destroy(f.a);
    const char *const both[] = {"layout.pp=1", "layout.schedule=gpipe"};
    assert_int_equal(load(&f, base_yaml, given, both, COUNT_OF(both)), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "layout.schedule has no effect: layout.pp is 1"));
    arena_destroy(f.a);
    // If one file has both, the user may have made a mistake in either, so it is refused.
    const char *const none[] = {"train.steps=7"};
    assert_int_equal(load(&f, base_yaml, "layout: {pp: 1, schedule: zb-h1}\n", none, 1),
                     ST_CONFIG_CONFLICT);
    arena_destroy(f.a);
}

static void planned_runs_have_failures(void **state)
{
    (void)state;
    fixture f;
    const char *lines =
        "train: {tokens: 1e12}\nfleet: {mtbf_device_h: 50677, repair_h: 24, spares: 0}\n"
        "checkpoint: {write_s: 60, restart_s: 300}\nprice: {device_hour: 2, kwh: 0.07}\n";
    assert_int_equal(load_for(true, &f, base_yaml, lines, NULL, 0), ST_OK);
    assert_true(f.r.train.tokens == 1000000000000);
    assert_true(f.r.fleet.mtbf_device_h == 50677.0 && f.r.fleet.spares == 0);
    assert_true(f.r.checkpoint.interval_s == 0.0 && f.r.price.kwh == 0.07);
    arena_destroy(f.a);
    lines = "train: {tokens: 1e12, steps: 50}\n";
    assert_int_equal(load_for(true, &f, base_yaml, lines, NULL, 0), ST_CONFIG_CONFLICT);
    arena_destroy(f.a);
}

// The length of a run has three forms, of which the command line's replaces the file's.
static void a_length_has_three_forms(void **state)
{
    (void)state;
    fixture f;
    const char *const tokens[] = {"train.tokens=10001"};
    const char *const ramp[] = {"train.tokens=10001", "train.batch_ramp=0=2,3=4"};
    const char *const both[] = {"train.tokens=1000", "train.epochs=1"};
    const char *const epochs[] = {"train.epochs=2.5"};
    const char *lines = "train: {steps: 77, seq: 100, global_batch: 10}\n";
    assert_int_equal(load(&f, base_yaml, lines, tokens, 1), ST_OK);
    assert_int_equal(f.r.train.steps, 11); // of 1000 tokens
    assert_int_equal(f.r.train.tokens, 0);
    arena_destroy(f.a);
    assert_int_equal(load(&f, base_yaml, "train: {seq: 100}\n", ramp, 2), ST_OK);
    assert_int_equal(f.r.train.steps, 27); // 3 of 2 sequences, 24 of 4 for the other 95
    arena_destroy(f.a);
    assert_int_equal(load(&f, base_yaml, lines, both, 2), ST_CONFIG_CONFLICT);
    arena_destroy(f.a);
    assert_int_equal(load(&f, base_yaml, lines, epochs, 1), ST_OK);
    assert_int_equal(run_length_of_epochs(&f.r, f.c, f.a, 41), ST_OK);
    assert_int_equal(f.r.train.steps, 11); // 103 sequences
    assert_true(f.r.train.epochs == 0.0);
    arena_destroy(f.a);
    const char *const wsd[] = {"train.epochs=1", "schedule.name=wsd", "schedule.decay_steps=50"};
    assert_int_equal(load(&f, base_yaml, lines, wsd, 3), ST_OK);
    assert_int_equal(run_length_of_epochs(&f.r, f.c, f.a, 41), ST_CONFIG_CONFLICT);
    arena_destroy(f.a);
}

static void resume_refuses_fixed_keys(void **state)
{
    (void)state;
    fixture was, now;
    text log;
    must_load(&was, "");
    must_load(&now, "optimizer: {lr: 1e-3}\ntrain: {steps: 2000, micro_batch: 2}\n"
                    "kernels.threads: 2\nlog.every: 1\n");
    log = (text){.a = now.a};
    assert_int_equal(run_config_compare(now.a, &was.r, &now.r, now.c, &log), ST_OK);
    assert_string_equal(log.bytes, "train.steps: 1000 -> 2000\noptimizer.lr: 0.0003 -> 0.001\n");
    arena_destroy(now.a);

    must_load(&now, "train: {seed: 2}\nmodel.dropout: 0.1\ndata.packing: plain\n"
                    "determinism: strict\ntrain.seq: 128\n");
    log = (text){.a = now.a};
    assert_int_equal(run_config_compare(now.a, &was.r, &now.r, now.c, &log), ST_CONFIG_FIXED);
    const char *message = error_last()->text;
    assert_non_null(strstr(message, "run.yaml:3:15  error[C040] train.seed = 2, but the run was"));
    assert_non_null(strstr(message, "model.dropout = 0.1"));
    assert_non_null(strstr(message, "data.packing = plain"));
    assert_non_null(strstr(message, "determinism.mode = strict"));
    assert_non_null(strstr(message, "train.seq = 128, but the run was started with 256"));
    assert_non_null(strstr(message, "5 errors, nothing was started"));
    arena_destroy(now.a);

    // A moved folder with the same name counts as the same data; another file does not.
    const char *moved = "data: {train: /elsewhere/a.txt}\nmodel: {preset: gpt2-124m}\n";
    assert_int_equal(load(&now, moved, "", NULL, 0), ST_OK);
    log = (text){.a = now.a};
    assert_int_equal(run_config_compare(now.a, &was.r, &now.r, now.c, &log), ST_OK);
    arena_destroy(now.a);
    const char *other = "data: {train: b.txt}\nmodel: {preset: gpt2-124m}\n";
    assert_int_equal(load(&now, other, "", NULL, 0), ST_OK);
    log = (text){.a = now.a};
    assert_int_equal(run_config_compare(now.a, &was.r, &now.r, now.c, &log), ST_CONFIG_FIXED);
    arena_destroy(now.a);
    arena_destroy(was.a);
}

static void documents_hold_the_whole_table(void **state)
{
    (void)state;
    fixture f;
    must_load(&f, "");
    text help = {.a = f.a}, markdown = {.a = f.a}, schema = {.a = f.a}, man = {.a = f.a};
    assert_int_equal(option_print_help(&run_config_table, 80, &help), ST_OK);
    assert_int_equal(option_print_markdown(&run_config_table, &markdown), ST_OK);
    assert_int_equal(option_print_man(&run_config_table, &man), ST_OK);
    assert_int_equal(option_print_json_schema(&run_config_table, &schema), ST_OK);
    for (int64_t i = 0; i < run_config_table.count; i++) {
        assert_non_null(strstr(help.bytes, run_config_table.rows[i].key));
        assert_non_null(strstr(markdown.bytes, run_config_table.rows[i].key));
    }
    assert_non_null(strstr(markdown.bytes, "## optimizer\n"));
    assert_non_null(strstr(help.bytes, "train.precision=fp32|bf16|fp16"));
    arena_destroy(f.a);
}

static void files_load(void **state)
{
    (void)state;
    char folder[64];
    char *path;
    fixture f = {0};
    assert_non_null(test_scratch(folder));
    assert_int_equal(arena_create("test", 0, &f.a), ST_OK);
    assert_int_equal(path_join(f.a, folder, "run.yaml", &path), ST_OK);
    assert_int_equal(host_write_all(host_real(), path, base_yaml, COUNT_OF(base_yaml) - 1), ST_OK);
    const char *word = "train.global_batch=64";
    assert_int_equal(run_config_load(host_real(), f.a, path, &word, 1, &f.r, &f.c), ST_OK);
    assert_int_equal(f.r.train.micro_batch, 16);
    assert_string_equal(path_base_name(f.r.run.dir), "run");
    word = "layout.cp=3";
    assert_int_equal(run_config_load(host_real(), f.a, path, &word, 1, &f.r, &f.c),
                     ST_CONFIG_CONFLICT);
    test_scratch_remove(folder);
    arena_destroy(f.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sound),
        cmocka_unit_test(every_fixed_name_is_there),
        cmocka_unit_test(choices_match_their_enums),
        cmocka_unit_test(ten_lines_train),
        cmocka_unit_test(micro_batches_are_left_open),
        cmocka_unit_test(the_batch_ramps),
        cmocka_unit_test(wrong_runs_are_refused_by_name),
        cmocka_unit_test(resolved_configurations_load_again),
        cmocka_unit_test(keys_of_a_removed_axis_are_reset),
        cmocka_unit_test(planned_runs_have_failures),
        cmocka_unit_test(a_length_has_three_forms),
        cmocka_unit_test(resume_refuses_fixed_keys),
        cmocka_unit_test(documents_hold_the_whole_table),
        cmocka_unit_test(files_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
