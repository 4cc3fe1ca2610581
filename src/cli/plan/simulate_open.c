// Reads the input of a simulation from an operand and keys.
//
// A preset or a folder has no run file, so this file has defaults for a run's settings: bf16, a
// sequence of up to 8,192 tokens, a batch of about four million tokens. layout.dp follows from
// cluster.devices if it is not given. All become keys next to the user's, so that one reader with
// its checks handles everything.
#include "catalog/catalog.h"
#include "catalog/profile.h"
#include "cli/plan/plan.h"
#include "cli/plan/simulate.h"
#include "cli/run_folder.h"
#include "cli/run_model.h"

#include <stdio.h>
#include <string.h>

enum { SEQ_MOST = 8192, BATCH_TOKENS = 4 << 20 };

typedef struct opening {
    cli_context *cli;
    const char *yaml; // NULL: a preset or a folder
    bool is_resolved;
    const char **run_keys, **cluster_keys; // the user's keys, after those made here
    const char **profile_keys;
    int64_t run_count, cluster_count, profile_count;
    int64_t own, last; // keys made here so far, before and after the user's: OWN_KEYS each
    run_config first;  // as read, without checks
    config *c;
} opening;

enum { OWN_KEYS = 8 };

// ---- keys --------------------------------------------------------------------------------------

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

// Splits the user's keys into those of the cluster, of the profile and of the run.
static status keys_split(opening *o, const char *const *keys, int64_t count)
{
    static const char of_cluster[] = "cluster.", of_profile[] = "profile.";
    TRY(arena_new(o->cli->a, count + 2 * OWN_KEYS, &o->run_keys));
    TRY(arena_new(o->cli->a, count + 1, &o->cluster_keys));
    TRY(arena_new(o->cli->a, count + 1, &o->profile_keys));
    o->run_count = OWN_KEYS;
    for (int64_t i = 0; i < count; i++) {
        if (begins(keys[i], of_cluster) && !begins(keys[i], "cluster.devices=")) {
            TRY(simulate_cluster_key_check(keys[i] + strlen(of_cluster)));
            o->cluster_keys[o->cluster_count++] = keys[i] + strlen(of_cluster);
        } else if (begins(keys[i], of_profile)) {
            o->profile_keys[o->profile_count++] = keys[i] + strlen(of_profile);
        } else {
            o->run_keys[o->run_count++] = keys[i];
        }
    }
    return ST_OK;
}

static const char *const *keys_of(const opening *o, int64_t *count)
{
    *count = o->run_count - OWN_KEYS + o->own;
    return o->run_keys + OWN_KEYS - o->own;
}

static status key_text(arena *a, const char *key, int64_t number, const char *word, char **out)
{
    if (word != NULL) return arena_format(a, out, "%s=%s", key, word);
    return arena_format(a, out, "%s=%lld", key, (long long)number);
}

// Adds a key before the user's, which may replace it.
static status key_put(opening *o, const char *key, const char *word)
{
    char *line = NULL;
    ASSERT(o->own < OWN_KEYS);
    TRY(key_text(o->cli->a, key, 0, word, &line));
    o->own++;
    o->run_keys[OWN_KEYS - o->own] = line;
    return ST_OK;
}

// Adds a key that is not given after the user's, of which one may have removed a file's value.
static status key_put_last(opening *o, const char *key, int64_t number, const char *word)
{
    char *line = NULL;
    ASSERT(o->last < OWN_KEYS);
    TRY(key_text(o->cli->a, key, number, word, &line));
    o->last++;
    o->run_keys[o->run_count++] = line;
    return ST_OK;
}

// Reads file and keys before they are checked together.
static status first_read(opening *o)
{
    int64_t count = 0;
    const char *const *keys = keys_of(o, &count);
    memset(&o->first, 0, sizeof(o->first));
    return config_load(o->cli->h, o->cli->a, &run_config_table, o->yaml, keys, count, &o->first,
                       &o->c);
}

// ---- the operand -------------------------------------------------------------------------------

static status model_defaults(opening *o, const decoder_spec *spec)
{
    const run_config *r = &o->first;
    if (!config_is_given(o->c, "train.precision")) {
        TRY(key_put_last(o, "train.precision", 0, "bf16"));
    }
    if (!config_is_given(o->c, "train.seq")) {
        const int64_t context = r->model.context > 0 ? r->model.context : spec->context;
        TRY(key_put_last(o, "train.seq", min_i64(context > 0 ? context : SEQ_MOST, SEQ_MOST),
                         NULL));
    }
    return first_read(o);
}

// An existing file or folder; otherwise the name of a preset.
static status operand_take(opening *o, const char *operand)
{
    cli_context *cli = o->cli;
    file_info info;
    bool is_hf = false;
    decoder_spec spec;
    TRY(cli->h->api->path_info(cli->h, operand, &info));
    if (info.kind == FILE_KIND_FOLDER) TRY(cli_has_file(cli, operand, "config.json", &is_hf));
    if (info.kind != FILE_KIND_NONE && !is_hf) {
        TRY(cli_config_file(cli, operand, &o->yaml, &o->is_resolved));
        return first_read(o);
    }
    if (is_hf) {
        TRY(model_spec_from_hf(cli->h, cli->a, operand, &spec));
        TRY(key_put(o, "model.from", operand));
    } else {
        TRY(model_spec_preset(cli->h, cli->a, operand, &spec));
        TRY(key_put(o, "model.preset", operand));
    }
    TRY(first_read(o));
    return model_defaults(o, &spec);
}

// ---- devices and batch -------------------------------------------------------------------------

static status devices_take(opening *o)
{
    const run_config *r = &o->first;
    const int64_t inner = r->layout.tp * r->layout.pp * r->layout.cp, n = r->cluster.devices;
    const bool given = config_is_given(o->c, "layout.dp");
    if (n == 0) return ST_OK;
    if (given && inner * r->layout.dp == n) return ST_OK;
    const char *place = config_place(o->c, "cluster.devices");
    if (given) {
        return fail(
            ST_CONFIG_CONFLICT,
            "%s: cluster.devices = %lld, and layout.dp x tp x pp x cp = %lld x %lld x %lld x "
            "%lld needs %lld; leave out cluster.devices or layout.dp",
            place, (long long)n, (long long)r->layout.dp, (long long)r->layout.tp,
            (long long)r->layout.pp, (long long)r->layout.cp, (long long)(inner * r->layout.dp));
    }
    if (n % inner != 0) {
        const long long low = (long long)max_i64(n / inner, 1) * inner;
        return fail(ST_CONFIG_CONFLICT,
                    "%s: cluster.devices = %lld is not a multiple of layout.tp x pp x cp = %lld; "
                    "nearest that are: %lld and %lld",
                    place, (long long)n, (long long)inner, low,
                    (long long)((n / inner + 1) * inner));
    }
    TRY(key_put_last(o, "layout.dp", n / inner, NULL));
    return first_read(o);
}

// Without a run file: about four million tokens, the same number for every rank.
static status batch_take(opening *o)
{
    const run_config *r = &o->first;
    if (o->yaml != NULL || config_is_given(o->c, "train.global_batch") ||
        config_is_given(o->c, "train.batch_ramp")) {
        return ST_OK;
    }
    const int64_t unit = r->layout.dp * max_i64(r->train.micro_batch, 1);
    const int64_t wanted = max_i64(BATCH_TOKENS / r->train.seq, 1);
    return key_put_last(o, "train.global_batch", (wanted + unit - 1) / unit * unit, NULL);
}

// With a run file the vocabulary is the tokenizer's if it can be opened; else the preset's, or a
// usual one.
static status model_take(const opening *o, predict_setup *out)
{
    enum { VOCAB_ANY = 1 << 16 };
    cli_context *cli = o->cli;
    bool is_known = false;
    if (o->yaml != NULL) {
        TRY(cli_run_model(cli, out->r, &out->spec, &is_known));
    } else {
        TRY(model_spec_from_config(cli->h, cli->a, out->r, &out->spec));
    }
    if (out->spec.vocab == 0) out->spec.vocab = VOCAB_ANY;
    return ST_OK;
}

// ---- cluster, profile, convention --------------------------------------------------------------

// A processor is one device, and all ranks of a machine share it.
static void cpu_share(predict_setup *out)
{
    cluster_device *d = &out->machine.device;
    if (!cost_is_processor(d)) return;
    const int64_t ranks = min_i64(run_config_ranks(out->r), out->machine.levels[0].devices);
    const double n = (double)ranks;
    for (int i = 0; i < MATH_COUNT; i++) d->peak_flops[i] /= n;
    d->vector_flops /= n;
    d->pointwise_fp32_s /= n;
    d->pointwise_16_s /= n;
    d->memory_bytes /= n;
    d->usable_bytes /= n;
    d->memory_bytes_s /= n;
    cost_units_share(d, ranks);
}

static status cluster_take(opening *o, const char *name, predict_setup *out)
{
    char *devices = NULL;
    const int64_t ranks = run_config_ranks(out->r);
    TRY(arena_format(o->cli->a, &devices, "devices=%lld", (long long)ranks));
    o->cluster_keys[o->cluster_count] = devices;
    TRY(catalog_cluster_load(o->cli->h, o->cli->a, name, o->cluster_keys, o->cluster_count + 1,
                             &out->machine));
    cpu_share(out);
    return ST_OK;
}

// With a run file, the choice of `train`; else the largest micro-batch with at most 4,096 tokens,
// and no recomputation. The same for devices other than processors, because the choice uses
// processor costs.
static status memory_take(const opening *o, predict_setup *out)
{
    const int64_t ranks = run_config_ranks(out->r);
    const assemble_options options = {
        .threads = (int)max_i64(1, assemble_threads(out->r) / ranks),
        .device = "cpu",
        .backend = "cpu",
        .documents = out->r->data.packing != RUN_PACKING_PLAIN,
        .even_experts = predict_experts_even(out),
        .sizes_only = true,
    };
    const bool chosen = out->r->train.recompute_chosen;
    if (!cost_is_processor(&out->machine.device)) out->r->train.recompute_chosen = false;
    if (o->yaml != NULL && !out->r->train.micro_batch_planned) {
        TRY(assemble_memory_settle(out->r, &out->spec, &options));
    }
    out->r->train.micro_batch_chosen = false;
    out->r->train.recompute_chosen = chosen;
    out->r->train.memory_settled = true;
    return ST_OK;
}

static status profile_take(const opening *o, predict_setup *out)
{
    const cluster_device *d = &out->machine.device;
    return catalog_profile_load(o->cli->h, o->cli->a, out->r->profile,
                                d->entry != NULL ? d->entry : d->name, o->profile_keys,
                                o->profile_count, &out->profile);
}

static status rule_take(const opening *o, predict_setup *out)
{
    const char *names[32];
    int64_t count = 0;
    text all = {.a = o->cli->a};
    out->rule = cost_flops_find(out->r->flops_convention);
    if (out->rule != NULL) return ST_OK;
    for (; cost_flops_at((int)count) != NULL && count < COUNT_OF(names); count++) {
        names[count] = cost_flops_at((int)count)->name;
        TRY(text_add(&all, "%s%s", count == 0 ? "" : ", ", names[count]));
    }
    const char *near = text_nearest(out->r->flops_convention, names, count);
    return fail(ST_CONFIG_RANGE, "%s: there is no flops_convention \"%.64s\"%s%s; there are %s",
                config_place(o->c, "flops_convention"), out->r->flops_convention,
                near != NULL ? "; did you mean " : "", near != NULL ? near : "", all.bytes);
}

status simulate_open(cli_context *cli, const char *operand, const char *cluster_name,
                     const char *const *keys, int64_t key_count, bool searched, predict_setup *out)
{
    opening *o = NULL;
    int64_t count = 0;
    memset(out, 0, sizeof(*out));
    TRY(arena_new(cli->a, 1, &o));
    TRY(arena_new(cli->a, 1, &out->r));
    o->cli = cli;
    out->name = operand;
    TRY(keys_split(o, keys, key_count));
    TRY(operand_take(o, operand));
    if (!searched && o->first.layout.mode == RUN_LAYOUT_AUTO) {
        const simulate_request run = {
            .operand = operand, .cluster = cluster_name, .keys = keys, .key_count = key_count};
        const char **more = NULL;
        TRY(plan_chosen(cli, &run, o->c, &o->first, &more, &count));
        return simulate_open(cli, operand, cluster_name, more, count, false, out);
    }
    TRY(devices_take(o));
    TRY(batch_take(o));
    const char *const *all = keys_of(o, &count);
    TRY(searched
            ? run_config_load_searched(cli->h, cli->a, o->yaml, all, count, true, out->r, &o->c)
            : run_config_load_planned(cli->h, cli->a, o->yaml, all, count, out->r, &o->c));
    TRY(model_take(o, out));
    TRY(assemble_layout_check(out->r, &out->spec));
    TRY(rule_take(o, out));
    out->has_profile = config_is_given(o->c, "profile");
    out->has_length = out->r->train.tokens > 0 || config_is_given(o->c, "train.steps");
    TRY(cluster_take(o, cluster_name, out));
    TRY(memory_take(o, out));
    TRY(profile_take(o, out));
    return searched ? ST_OK : predict_micro_batch(cli->h, cli->a, out);
}
