// Makes the planner of a command line from keys and file, and writes its layouts as keys and as a
// configuration.
#include "cli/plan/plan.h"

#include "cli/run_folder.h"

#include <stdio.h>
#include <string.h>

enum { ENOUGH_SIMULATIONS = 8, ENOUGH_ROWS = 64 << 10 }; // about four seconds

// ---- the searched keys --------------------------------------------------------------------------

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

// The search decides these keys, so they are not part of the run that it starts from.
static bool is_searched(const char *key)
{
    static const char *const keys[] = {
        "layout.", "layout=", "train.micro_batch=", "train.recompute=", "train.recompute_layers=",
        "cluster."};
    for (int64_t i = 0; i < COUNT_OF(keys); i++) {
        if (begins(key, keys[i])) return true;
    }
    return false;
}

status plan_fix(const config *c, const run_config *r, search_fixed *f)
{
    static const char *const not_searched[] = {"layout.zero_group", "layout.stages",
                                               "layout.shares", "layout.cp_heads"};
    for (int64_t i = 0; i < COUNT_OF(not_searched); i++) {
        if (!config_is_given(c, not_searched[i])) continue;
        return fail(ST_UNSUPPORTED,
                    "%s: the search does not vary %s; `simulate` accepts it in a given layout",
                    config_place(c, not_searched[i]), not_searched[i]);
    }
    *f = search_fixed_none();
    if (config_is_given(c, "layout.dp")) f->dp = (int32_t)r->layout.dp;
    if (config_is_given(c, "layout.tp")) f->tp = (int32_t)r->layout.tp;
    if (config_is_given(c, "layout.pp")) f->pp = (int32_t)r->layout.pp;
    if (config_is_given(c, "layout.cp")) f->cp = (int32_t)r->layout.cp;
    if (config_is_given(c, "layout.ep")) f->ep = (int32_t)r->layout.ep;
    if (config_is_given(c, "layout.etp")) f->whole_experts = r->layout.etp == 1 ? 1 : 0;
    if (config_is_given(c, "layout.vpp")) f->chunks = (int32_t)r->layout.vpp;
    if (config_is_given(c, "layout.zero")) f->zero = (int32_t)r->layout.zero;
    if (config_is_given(c, "layout.sp")) f->sp = r->layout.sp ? 1 : 0;
    const bool leaves = r->train.recompute_chosen || r->train.recompute == RUN_RECOMPUTE_AUTO;
    if (!leaves) f->recompute = r->train.recompute;
    if (config_is_given(c, "train.recompute_layers")) {
        f->recompute_layers = (int32_t)r->train.recompute_layers;
    }
    if (config_is_given(c, "train.micro_batch") && !r->train.micro_batch_chosen) {
        f->micro_batch = max_i64(r->train.micro_batch, 0);
    }
    if (!config_is_given(c, "layout.schedule")) return ST_OK;
    f->schedule = plan_schedule_find(r->layout.schedule);
    if (f->schedule != NULL) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: `plan` takes a schedule by name, not \"%s\"",
                config_place(c, "layout.schedule"), r->layout.schedule);
}

// The rest of plan_open(), with arenas for simulations.
static status model_open(planning *x, const run_config *given, const config *c)
{
    predict_planner *p = &x->p;
    predict_setup *s = &p->each.base;
    TRY(simulate_open(x->cli, x->operand, p->cluster, x->run_keys, x->run_key_count, true, s));
    if (config_is_given(c, "layout.cp_ring")) s->r->layout.cp_ring = given->layout.cp_ring;
    if (config_is_given(c, "layout.zero_sums")) s->r->layout.zero_sums = given->layout.zero_sums;
    x->layers_given = s->spec.layers;
    TRY(candidates_scratch_create(&p->each));
    TRY(predict_planner_layers(p, s->spec.layers));
    return predict_planner_devices(p, 0);
}

status plan_open(cli_context *cli, const char *operand, const char *cluster_name,
                 const char *const *keys, int64_t key_count, planning *out)
{
    const char **rest = NULL, **of_layout = NULL, **of_cluster = NULL;
    int64_t rest_count = 0, layout_count = 0, cluster_count = 0;
    run_config *given = NULL;
    config *c = NULL;
    memset(out, 0, sizeof(*out));
    TRY(arena_new(cli->a, key_count + 2, &rest));
    TRY(arena_new(cli->a, key_count + 1, &of_layout));
    TRY(arena_new(cli->a, key_count + 1, &of_cluster));
    for (int64_t i = 0; i < key_count; i++) {
        if (begins(keys[i], "cluster.")) {
            TRY(simulate_cluster_key_check(keys[i] + strlen("cluster.")));
            TRY(simulate_cores_key_check(keys[i] + strlen("cluster.")));
            of_cluster[cluster_count++] = keys[i] + strlen("cluster.");
        } else if (is_searched(keys[i])) {
            of_layout[layout_count++] = keys[i];
        } else {
            rest[rest_count++] = keys[i];
        }
    }
    rest[rest_count++] = "layout.mode=given"; // the search replaces the file's mode
    *out = (planning){.cli = cli,
                      .operand = operand,
                      .run_keys = rest,
                      .run_key_count = rest_count,
                      .p = {.h = cli->h,
                            .a = cli->a,
                            .cluster = cluster_name,
                            .cluster_keys = of_cluster,
                            .cluster_key_count = cluster_count,
                            .wanted = 3,
                            .simulations = ENOUGH_SIMULATIONS,
                            .rows = ENOUGH_ROWS}};
    TRY(arena_new(cli->a, 1, &given));
    TRY(config_load(cli->h, cli->a, &run_config_table, NULL, of_layout, layout_count, given, &c));
    TRY(plan_fix(c, given, &out->p.fixed));
    const status st = model_open(out, given, c);
    if (st != ST_OK) plan_close(out);
    return st;
}

static void progress_show(void *context, const search_progress *now)
{
    cli_progress_say(context, "%lld devices, %d layers: %lld of %lld layouts, %lld simulated",
                     (long long)now->devices, now->layers, (long long)now->looked,
                     (long long)now->layouts, (long long)now->simulated);
}

void plan_watch(predict_planner *p, cli_progress *progress)
{
    p->progress = progress_show;
    p->progress_context = progress;
}

void plan_close(planning *x)
{
    candidates_scratch_destroy(&x->p.each);
}

// ---- the configuration to write ----------------------------------------------------------------

static status key_add(arena *a, const char **keys, int64_t *count, const char *key,
                      const char *value)
{
    char *line = NULL;
    TRY(arena_format(a, &line, "%s=%s", key, value));
    keys[(*count)++] = line;
    return ST_OK;
}

static status number_add(arena *a, const char **keys, int64_t *count, const char *key,
                         int64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof(digits), "%lld", (long long)value);
    return key_add(a, keys, count, key, digits);
}

status plan_memory_keys(arena *a, const run_config *r, const char **keys, int64_t *n)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    TRY(key_add(a, keys, n, "train.recompute", recompute[r->train.recompute]));
    if (r->train.recompute_layers > 0) {
        TRY(number_add(a, keys, n, "train.recompute_layers", r->train.recompute_layers));
    }
    return number_add(a, keys, n, "train.micro_batch", r->train.micro_batch);
}

status plan_layout_keys(const predict_planner *p, const search_layout *l, const char **keys,
                        int64_t *n)
{
    TRY(key_add(p->a, keys, n, "layout.mode", "given"));
    TRY(number_add(p->a, keys, n, "layout.dp", l->dp));
    TRY(number_add(p->a, keys, n, "layout.tp", l->tp));
    TRY(number_add(p->a, keys, n, "layout.pp", l->pp));
    TRY(number_add(p->a, keys, n, "layout.cp", l->cp));
    if (p->each.base.r->layout.cp_ring != RUN_AUTO) {
        TRY(key_add(p->a, keys, n, "layout.cp_ring",
                    p->each.base.r->layout.cp_ring == RUN_YES ? "yes" : "no"));
    }
    if (l->ep > 1) TRY(number_add(p->a, keys, n, "layout.ep", l->ep));
    if (l->whole_experts) TRY(number_add(p->a, keys, n, "layout.etp", 1));
    TRY(number_add(p->a, keys, n, "layout.zero", l->zero));
    if (l->zero > 0 && p->each.base.r->layout.zero_sums == RUN_SUMS_STEP) {
        TRY(key_add(p->a, keys, n, "layout.zero_sums", "step"));
    }
    TRY(key_add(p->a, keys, n, "layout.sp", l->sp ? "yes" : "no"));
    TRY(key_add(p->a, keys, n, "layout.schedule",
                l->schedule != NULL ? l->schedule->name : "1f1b"));
    TRY(number_add(p->a, keys, n, "layout.vpp", l->pp > 1 && l->chunks > 1 ? l->chunks : 0));
    const run_config r = candidates_config(&p->each, l);
    return plan_memory_keys(p->a, &r, keys, n);
}

// The values that simulate_open() chose without a run file.
static status model_keys(const predict_planner *p, const char **keys, int64_t *n)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp8"};
    const run_config *r = p->each.base.r;
    if (r->model.preset != NULL) TRY(key_add(p->a, keys, n, "model.preset", r->model.preset));
    if (r->model.from != NULL) TRY(key_add(p->a, keys, n, "model.from", r->model.from));
    TRY(key_add(p->a, keys, n, "train.precision", precisions[r->train.precision]));
    TRY(number_add(p->a, keys, n, "train.seq", r->train.seq));
    if (r->train.batch_ramp.count > 0) return ST_OK;
    return number_add(p->a, keys, n, "train.global_batch", r->train.global_batch);
}

status plan_config_write(const planning *x, const search_layout *l, const char *path)
{
    enum { OWN_KEYS = 24 };
    cli_context *cli = x->cli;
    const predict_planner *p = &x->p;
    const char **keys = NULL, *yaml = NULL;
    int64_t n = 0;
    bool is_hf = false, is_resolved = false;
    file_info info;
    run_config *r = NULL;
    config *c = NULL;
    text t = {.a = cli->a};
    TRY(arena_new(cli->a, x->run_key_count + OWN_KEYS, &keys));
    TRY(cli->h->api->path_info(cli->h, x->operand, &info));
    if (info.kind == FILE_KIND_FOLDER) TRY(cli_has_file(cli, x->operand, "config.json", &is_hf));
    if (info.kind != FILE_KIND_NONE && !is_hf) {
        TRY(cli_config_file(cli, x->operand, &yaml, &is_resolved));
    } else {
        TRY(model_keys(p, keys, &n));
    }
    for (int64_t i = 0; i < x->run_key_count; i++) keys[n++] = x->run_keys[i];
    if (p->each.base.spec.layers != x->layers_given) {
        TRY(number_add(cli->a, keys, &n, "model.layers", p->each.base.spec.layers));
    }
    TRY(plan_layout_keys(p, l, keys, &n));
    TRY(arena_new(cli->a, 1, &r));
    TRY(run_config_load_planned(cli->h, cli->a, yaml, keys, n, r, &c));
    TRY(config_print_resolved(c, r, &t));
    return host_write_all(cli->h, path, t.bytes, t.length);
}
