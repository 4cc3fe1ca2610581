// The configuration of a run: loading, derived values, and the changes that a resumed run may make.
// run_config_check.c refuses values that conflict.
#include "config/run_config.h"

#include <string.h>

// Published schedules that train on stale weights: recognized, and refused.
static bool is_asynchronous(const char *name)
{
    static const char *const names[] = {"pipedream", "pipedream-2bw", "pipemare", "xpipe"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

// Reads layout.schedule as a file.
static status schedule_read(const host *h, arena *a, run_config *r)
{
    enum { SCHEDULE_LIMIT_BYTES = 64 << 20 };
    char *bytes = NULL;
    int64_t count = 0;
    file_info info;
    const char *name = path_base_name(r->layout.schedule); // a schedule's name was taken for a path
    if (r->layout.pp == 1 || r->layout.pipeline != NULL) return ST_OK;
    TRY(h->api->path_info(h, r->layout.schedule, &info));
    if (info.kind == FILE_KIND_NONE && is_asynchronous(name)) {
        return fail(
            ST_UNSUPPORTED,
            "layout.schedule = %s updates weights while earlier micro-batches still use the "
            "old ones, so the result would depend on the layout; zb-h2 has no bubble either",
            name);
    }
    if (info.kind == FILE_KIND_NONE) {
        text known = {.a = a};
        for (int i = 0; plan_schedule_at(i) != NULL; i++) {
            TRY(text_add(&known, "%s%s", i > 0 ? ", " : "", plan_schedule_at(i)->name));
        }
        return fail(ST_CONFIG_RANGE, "layout.schedule = %s is none of %s, and no file", name,
                    known.bytes);
    }
    TRY(host_read_text(h, a, r->layout.schedule, SCHEDULE_LIMIT_BYTES, &bytes, &count));
    return plan_schedule_parse(a, r->layout.schedule, bytes, count, &r->layout.pipeline);
}

static status load(const host *h, arena *a, const char *yaml_path, const char *const *overrides,
                   int64_t override_count, run_config *out, config **out_config)
{
    config *c;
    TRY(config_load(h, a, &run_config_table, yaml_path, overrides, override_count, out, &c));
    TRY(run_config_follow(out, c, a));
    TRY(run_config_tiers(h, out, a));
    TRY(run_config_check(out, c, a));
    run_config_complete(out);
    TRY(schedule_read(h, a, out));
    *out_config = c;
    return ST_OK;
}

status run_config_load(const host *h, arena *a, const char *yaml_path, const char *const *overrides,
                       int64_t override_count, run_config *out, config **out_config)
{
    memset(out, 0, sizeof(*out)); // also clears fields without a row: layout.pipeline
    return load(h, a, yaml_path, overrides, override_count, out, out_config);
}

status run_config_load_planned(const host *h, arena *a, const char *yaml_path,
                               const char *const *overrides, int64_t override_count,
                               run_config *out, config **out_config)
{
    memset(out, 0, sizeof(*out));
    out->planned = true;
    return load(h, a, yaml_path, overrides, override_count, out, out_config);
}

status run_config_load_searched(const host *h, arena *a, const char *yaml_path,
                                const char *const *overrides, int64_t override_count, bool planned,
                                run_config *out, config **out_config)
{
    memset(out, 0, sizeof(*out));
    out->planned = planned;
    out->searched = true;
    return load(h, a, yaml_path, overrides, override_count, out, out_config);
}

// ---- batches -----------------------------------------------------------------------------------

int64_t run_config_ramp_count(const run_config *r)
{
    return max_i64(r->train.batch_ramp.count, 1);
}

void run_config_ramp_at(const run_config *r, int64_t index, int64_t *step, int64_t *size)
{
    ASSERT(index >= 0 && index < run_config_ramp_count(r));
    if (r->train.batch_ramp.count == 0) {
        *step = 0;
        *size = r->train.global_batch;
        return;
    }
    // "step=size", as option_value.c has checked and written it.
    const char *pair = r->train.batch_ramp.items[index], *equals = strchr(pair, '=');
    ASSERT(equals != NULL);
    int64_t number = 0;
    for (const char *s = pair; s < equals; s++) number = number * 10 + (*s - '0');
    *step = number;
    const bool is_size = text_parse_i64(equals + 1, size);
    ASSERT(is_size);
}

int64_t run_config_batch(const run_config *r, int64_t finished)
{
    int64_t batch = r->train.global_batch;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step, size;
        run_config_ramp_at(r, i, &step, &size);
        if (step <= finished) batch = size;
    }
    return batch;
}

int64_t run_config_batch_max(const run_config *r)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step, size;
        run_config_ramp_at(r, i, &step, &size);
        largest = max_i64(largest, size);
    }
    return largest;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t run_config_batch_divisor(const run_config *r)
{
    int64_t all = 0;
    for (int64_t i = 0; i < run_config_ramp_count(r); i++) {
        int64_t step, size;
        run_config_ramp_at(r, i, &step, &size);
        all = common_divisor(size, all);
    }
    return all;
}

// 4096 tokens keep two cores busy and stay small in memory.
static int64_t choose_micro_batch(const run_config *r)
{
    enum { TOKENS = 4096 };
    const int64_t all = run_config_batch_divisor(r);
    int64_t best = 1;
    for (int64_t m = 1; m <= all && m * r->train.seq <= TOKENS; m++) {
        if (all % m == 0) best = m;
    }
    return best;
}

void run_config_complete(run_config *r)
{
    enum { TIMESCALE = 10000 }; // the value of transformers for a rule without warm-up
    const int64_t ramp = r->train.batch_ramp.count;
    if (ramp > 0) {
        int64_t step, size;
        run_config_ramp_at(r, ramp - 1, &step, &size);
        r->train.global_batch = size;
    }
    if (r->train.micro_batch <= 0) {
        r->train.micro_batch_planned = r->train.micro_batch == RUN_MICRO_BATCH_AUTO;
        r->train.micro_batch = choose_micro_batch(r);
        r->train.micro_batch_chosen = true;
    }
    if (r->train.recompute == RUN_RECOMPUTE_AUTO) {
        r->train.recompute = RUN_RECOMPUTE_NONE;
        r->train.recompute_chosen = true;
    }
    if (r->layout.pp > 1) r->layout.pipeline = plan_schedule_find(r->layout.schedule);
    if (r->schedule.name == RUN_SCHEDULE_INVERSE_SQRT && r->schedule.timescale == 0) {
        r->schedule.timescale = r->schedule.warmup > 0 ? r->schedule.warmup : TIMESCALE;
    }
}

// ---- data and types ----------------------------------------------------------------------------

bool run_config_valid_share(const run_config *r, double *share)
{
    return r->data.valid.count == 1 && text_parse_f64(r->data.valid.items[0], share);
}

bool run_config_has_valid(const run_config *r)
{
    double share;
    if (run_config_has_rollouts(r)) return false;
    if (run_config_valid_share(r, &share)) return share > 0.0;
    return r->data.valid.count > 0;
}

static dtype stored_type(int32_t stored, dtype otherwise)
{
    switch ((run_stored)stored) {
    case RUN_STORED_AUTO:
        return otherwise;
    case RUN_STORED_FP32:
        return DTYPE_F32;
    case RUN_STORED_BF16:
        return DTYPE_BF16;
    case RUN_STORED_FP16:
        return DTYPE_F16;
    }
    return otherwise;
}

static dtype compute_type(int32_t precision)
{
    switch ((run_precision)precision) {
    case RUN_FP32:
        return DTYPE_F32;
    case RUN_BF16:
    case RUN_FP8:
        return DTYPE_BF16;
    case RUN_FP16:
        return DTYPE_F16;
    case RUN_FP64:
        return DTYPE_F64;
    }
    return DTYPE_F32;
}

const char *run_config_device(const run_config *r)
{
    static const char *const names[] = {
        [RUN_DEVICE_CPU] = "cpu", [RUN_DEVICE_SHADOW] = "shadow", [RUN_DEVICE_CUDA] = "cuda"};
    return names[r->kernels.device];
}

const char *run_config_backend(const run_config *r)
{
    if (r->kernels.device == RUN_DEVICE_CUDA) return "cuda"; // no other runs there
    return r->kernels.backend == RUN_BACKEND_REF ? "ref" : "cpu";
}

const char *run_config_level(const run_config *r)
{
    static const char *const names[] = {
        [RUN_LEVEL_AUTO] = NULL,
        [RUN_LEVEL_SCALAR] = "scalar",
        [RUN_LEVEL_AVX2] = "avx2",
        [RUN_LEVEL_AVX512] = "avx512",
        [RUN_LEVEL_AVX512_BF16] = "avx512_bf16",
        [RUN_LEVEL_AMX] = "amx",
    };
    return names[r->kernels.level];
}

run_types run_config_types(const run_config *r)
{
    run_types t = {.compute = compute_type(r->train.precision)};
    t.weights = stored_type(r->precision.weights, t.compute);
    const bool is_wide = t.compute == DTYPE_F64;
    t.grads = stored_type(r->precision.grads, is_wide ? DTYPE_F64 : DTYPE_F32);
    t.moments = stored_type(r->precision.moments, is_wide ? DTYPE_F64 : DTYPE_F32);
    t.has_master = !is_wide && t.weights != DTYPE_F32 && r->precision.master != RUN_MASTER_NONE;
    return t;
}

// ---- resume ------------------------------------------------------------------------------------

// Compares the last parts of two paths, so that a run and its data may be moved together.
static bool same_name(const char *a, const char *b)
{
    if (a == NULL || b == NULL) return a == b;
    return strcmp(path_base_name(a), path_base_name(b)) == 0;
}

static bool same_value(const option *o, const run_config *was, const run_config *now)
{
    if (option_equal(o, was, now)) return true;
    const void *x = (const char *)was + o->offset, *y = (const char *)now + o->offset;
    if (o->kind == OPTION_PATH) return same_name(*(const char *const *)x, *(const char *const *)y);
    if (o->kind != OPTION_PATHS && o->kind != OPTION_SHARE) return false;
    const option_list *a = x, *b = y;
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++) {
        if (!same_name(a->items[i], b->items[i])) return false;
    }
    return true;
}

void run_config_before(run_config *was, const config *c)
{
    if (!config_is_given(c, "schedule.warmup_from")) was->schedule.warmup_from = RUN_WARMUP_ZERO;
}

status run_config_compare(arena *a, const run_config *was, const run_config *now, const config *c,
                          text *log)
{
    config_complaints *l;
    TRY(config_complaints_begin(c, a, &l));
    for (int64_t i = 0; i < run_config_table.count; i++) {
        const option *o = &run_config_table.rows[i];
        if (o->on_resume == OPTION_FREE || same_value(o, was, now)) continue;
        text before = {.a = a}, after = {.a = a};
        TRY(option_print(o, was, &before));
        TRY(option_print(o, now, &after));
        if (o->on_resume == OPTION_FIXED) {
            config_complain(l, o->key, ST_CONFIG_FIXED,
                            "%s = %s, but the run was started with %s, and this key is fixed for "
                            "a run; take the old value or another run.dir",
                            o->key, after.bytes, before.bytes);
        } else {
            TRY(text_add(log, "%s: %s -> %s\n", o->key, before.bytes, after.bytes));
        }
    }
    return config_complaints_end(l);
}
