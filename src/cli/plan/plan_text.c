// Prints a search for people, in at most 80 columns: the best few layouts, why the others lose, a
// table of the bytes, and the value of one percent.
#include "cli/explain/explain.h"
#include "cli/plan/plan.h"

#include <stdio.h>
#include <string.h>

static double gib(int64_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

static double mib_or_gib(int64_t bytes, int64_t limit, const char **unit)
{
    *unit = limit >= (int64_t)1 << 33 ? "GiB" : "MiB";
    return limit >= (int64_t)1 << 33 ? gib(bytes) : gib(bytes) * 1024.0;
}

static const char *mesh_word(const search_layout *l, char buffer[32])
{
    int n = snprintf(buffer, 32, "%dx%d%sx%d", l->dp, l->tp, l->sp ? "s" : "", l->pp);
    if (l->cp > 1) n += snprintf(buffer + n, 32 - (size_t)n, "x%d", l->cp);
    if (l->ep > 1 || l->whole_experts) {
        (void)snprintf(buffer + n, 32 - (size_t)n, " e%d%s", l->ep, l->whole_experts ? "w" : "");
    }
    return buffer;
}

static const char *schedule_word(const search_layout *l, char buffer[32])
{
    const char *name = l->schedule != NULL ? l->schedule->name : "-";
    const bool is_long = strcmp(name, "interleaved") == 0;
    if (l->pp > 1 && l->chunks > l->schedule->chunks_min - 1 && is_long) {
        (void)snprintf(buffer, 32, "1f1b x%d", l->chunks);
    } else {
        (void)snprintf(buffer, 32, "%s", name);
    }
    return buffer;
}

// "32L": 32 layers.
static const char *recompute_word(const search_layout *l, char buffer[16])
{
    static const char *const names[] = {"none", "sel", "full"};
    if (l->recompute_layers == 0) return names[l->recompute];
    (void)snprintf(buffer, 16, "%dL", l->recompute_layers);
    return buffer;
}

// ---- head --------------------------------------------------------------------------------------

static status head_lines(const predict_planner *p, const search_result *found, text *t)
{
    const predict_setup *s = &p->each.base;
    char n[4][32];
    TRY(text_add(t, "model     %.30s  %lld layer%s  dim %lld  seq %s  batch %s\n", s->name,
                 (long long)s->spec.layers, text_plural(s->spec.layers, "s"),
                 (long long)s->spec.dim, text_grouped(s->r->train.seq, n[0]),
                 text_grouped(run_config_batch_max(s->r), n[1])));
    TRY(text_add(t, "cluster   %.30s, %s device%s with %s usable   profile %s\n", s->machine.name,
                 text_grouped(p->devices, n[0]), text_plural(p->devices, "s"),
                 text_bytes_human(predict_usable_bytes(p), n[1]), s->profile.name));
    TRY(text_add(t,
                 "searched  %s layouts: %s do not fit,\n"
                 "          %s ruled out by a lower bound, %s simulated\n",
                 text_grouped(found->layouts, n[0]), text_grouped(found->too_large, n[1]),
                 text_grouped(found->slower, n[2]), text_grouped(found->simulated, n[3])));
    if (p->asked) {
        TRY(text_add(
            t,
            "          of 1F1B pipelines only, for a quick answer: plan cluster.devices=%lld "
            "searches\n          every kind\n",
            (long long)p->devices));
    }
    if (found->unknown > 0) {
        TRY(text_add(t, "          %s more might be as fast and were not simulated\n",
                     text_grouped(found->unknown, n[0])));
    }
    return ST_OK;
}

// ---- the table ---------------------------------------------------------------------------------

static status row_begin(const predict_planner *p, const search_found *f, const char *number,
                        text *t)
{
    char mesh[32], schedule[32], again[16];
    const char *unit = "";
    const search_layout *l = &f->layout;
    const int64_t bytes = f->simulated.peak_bytes > 0 ? f->simulated.peak_bytes : f->bytes;
    return text_add(t, "%2s %-13s %-10s %d %4s %3lld %6.1f", number, mesh_word(l, mesh),
                    schedule_word(l, schedule), l->zero, recompute_word(l, again),
                    (long long)l->micro_batch, mib_or_gib(bytes, predict_usable_bytes(p), &unit));
}

static status plan_row(const predict_planner *p, const search_found *f, int32_t number, text *t)
{
    char word[16], step[32], rate[32];
    predict_figures x = {.step_s = (double)f->simulated.step_ns * 1e-9};
    for (int64_t i = 0; i < min_i64(p->each.figure_count, PREDICT_FIGURES); i++) {
        if (search_layout_is_same(&p->each.figures[i].layout, &f->layout)) x = p->each.figures[i];
    }
    (void)snprintf(word, sizeof(word), "%d", number);
    TRY(row_begin(p, f, word, t));
    return text_add(t, " %8s %7s %4.0f%% %3.0f%% %3.0f%%\n", text_duration_human(x.step_s, step),
                    text_count_human(x.tokens_per_s, rate), 100.0 * x.mfu, 100.0 * x.bubble,
                    100.0 * x.waits);
}

static status too_large_row(predict_planner *p, arena *a, const search_found *f, text *t)
{
    char over[32];
    text remedies = {.a = a};
    const int64_t bytes = f->simulated.peak_bytes > 0 ? f->simulated.peak_bytes : f->bytes;
    TRY(row_begin(p, f, "-", t));
    TRY(text_add(t, "  NO: %s over\n", text_bytes_human(bytes - predict_usable_bytes(p), over)));
    TRY(plan_print_remedies(p, a, f, &remedies));
    if (remedies.length == 0) return ST_OK;
    for (const char *at = remedies.bytes; at != NULL;) { // one line each
        const char *end = strstr(at, ", ");
        const int length = end != NULL ? (int)(end - at) : (int)strlen(at);
        TRY(text_add(t, "      %.*s\n", length, at));
        at = end != NULL ? end + 2 : NULL;
    }
    return ST_OK;
}

// Explains the marks that occur in the rows.
static status legend_line(const search_result *found, text *t)
{
    bool sp = false, cp = false, ep = false, whole = false, some = false;
    for (int32_t i = 0; i < found->count; i++) {
        const search_layout *l = &found->plans[i].layout;
        sp |= l->sp;
        cp |= l->cp > 1;
        ep |= l->ep > 1;
        whole |= l->whole_experts;
        some |= l->recompute_layers > 0;
    }
    const struct {
        bool is_there;
        const char *legend;
    } marks[] = {{sp, "4s: tp 4 with sp"},
                 {cp, "a fourth number: cp"},
                 {ep, "e8: ep 8"},
                 {whole, "w: etp 1"},
                 {some, "nL: n layers recompute"}};
    const char *before = "   ";
    for (int64_t i = 0; i < COUNT_OF(marks); i++) {
        if (!marks[i].is_there) continue;
        TRY(text_add(t, "%s%s", before, marks[i].legend));
        before = "; ";
    }
    return before[0] == ';' ? text_add(t, "\n") : ST_OK;
}

static status table_lines(predict_planner *p, arena *a, const search_result *found, text *t)
{
    const char *unit = "";
    (void)mib_or_gib(0, predict_usable_bytes(p), &unit);
    TRY(text_add(t,
                 "\n # dp x tp x pp  schedule   z  rec  mb    %s     step tok/s/d   MFU bub comm\n",
                 unit));
    for (int32_t i = 0; i < found->count; i++) TRY(plan_row(p, &found->plans[i], i + 1, t));
    TRY(legend_line(found, t));
    const search_found *no = found->count > 0 ? &found->fastest_too_large : &found->smallest;
    if (no->layout.dp == 0) return ST_OK;
    return too_large_row(p, a, no, t);
}

static status rule_lines(const search_result *found, text *t)
{
    char n[32];
    for (int i = 0; i < RULE_COUNT; i++) {
        if (found->ruled_out[i] == 0) continue;
        TRY(text_add(t, "%10s  %s\n", text_grouped(found->ruled_out[i], n),
                     search_rule_name((search_rule)i)));
    }
    return ST_OK;
}

// ---- bytes -------------------------------------------------------------------------------------

static status recipe_lines(const predict_planner *p, double parameters, text *t)
{
    static const struct {
        int32_t each;
        const char *parts, *keys;
    } recipes[] = {
        {8, "2 + 2 + 0 + 4", "precision.{grads,moments}=bf16 precision.master=none"},
        {12, "2 + 2 + 0 + 8", "precision.grads=bf16 precision.master=none"},
        {16, "2 + 2 + 4 + 8", "precision.grads=bf16; fp32: 4 + 4 + 0 + 8"},
        {18, "2 + 4 + 4 + 8", "train.precision=bf16, the default"},
        {20, "2 + 2+4 + 4 + 8", "other software: sums of gradients in both types"},
    };
    char all[32], rank[32];
    TRY(text_add(t, "\nstate in bytes per parameter: weights + gradients + master + moments\n"));
    for (int64_t i = 0; i < COUNT_OF(recipes); i++) {
        const double bytes = parameters * recipes[i].each;
        TRY(text_add(t, "%4d  %-16s %9s, %9s per device\n      %s\n", recipes[i].each,
                     recipes[i].parts, text_bytes_human((int64_t)bytes, all),
                     text_bytes_human((int64_t)(bytes / (double)p->devices), rank),
                     recipes[i].keys));
    }
    return ST_OK;
}

static status memory_lines(const predict_planner *p, const search_found *f, double parameters,
                           text *t)
{
    char bytes[32];
    int64_t kind[PLAN_BYTES_COUNT];
    memcpy(kind, f->simulated.peak_bytes > 0 ? f->simulated.kind : f->memory.kind, sizeof(kind));
    TRY(text_add(t, "\nmemory    fullest rank of %s:\n", f->fits ? "# 1" : "the smallest layout"));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        TRY(text_add(t, "%s%-11s %9s", k % 3 == 0 ? "          " : "   ",
                     plan_bytes_name((plan_kind_of_bytes)k), text_bytes_human(kind[k], bytes)));
        if (k % 3 == 2) TRY(text_add(t, "\n"));
    }
    return recipe_lines(p, parameters, t);
}

// Weights once, and keys and values of every position.
static status inference_line(const predict_planner *p, double parameters, text *t)
{
    char weights[32], token[32], text_bytes[32];
    const decoder_spec *s = &p->each.base.spec;
    const int64_t each = 2 * s->layers * s->kv_heads * s->head_dim * 2;
    return text_add(t,
                    "\ninference in bf16: weights %s, keys and values %s per token,\n"
                    "          %s per sequence of train.seq\n",
                    text_bytes_human((int64_t)(2.0 * parameters), weights),
                    text_bytes_human(each, token),
                    text_bytes_human(each * p->each.base.r->train.seq, text_bytes));
}

// ---- the value of one percent -------------------------------------------------------------------

typedef enum lever { LEVER_FLOPS, LEVER_MEMORY, LEVER_LINKS, LEVER_LATENCY, LEVER_COUNT } lever;

static void lever_pull(cluster *c, lever which, double by)
{
    for (int i = 0; i < MATH_COUNT && which == LEVER_FLOPS; i++) c->device.peak_flops[i] *= by;
    if (which == LEVER_MEMORY) c->device.memory_bytes_s *= by;
    for (int32_t i = 0; i < c->level_count; i++) {
        if (which == LEVER_LINKS) c->levels[i].bytes_s *= by;
        if (which == LEVER_LATENCY) c->levels[i].latency_s /= by;
    }
}

static status failure_line(arena *a, const predict_step *x, text *t)
{
    sim_long_run_input in;
    sim_long_run_result now, then;
    if (!x->of->has_length) {
        return text_add(t, "          failure rate     needs train.tokens or train.steps\n");
    }
    TRY(predict_long_run(a, x, &in, &now));
    for (int32_t i = 0; i < in.event_count; i++) in.events[i].rate_h /= 1.01;
    TRY(sim_long_run_simulate(a, &in, &then));
    return text_add(t, "          %-16s %+7.3f%% of the run\n", "failure rate",
                    100.0 * (now.kept / then.kept - 1.0));
}

static status sensitivity_lines(predict_planner *p, arena *a, const search_found *f, text *t)
{
    static const char *const names[LEVER_COUNT] = {"FLOP/s", "memory bandwidth", "link bandwidth",
                                                   "link latency"};
    const predict_step *x = NULL;
    cluster machines[LEVER_COUNT];
    double step_s[LEVER_COUNT] = {0.0};
    arena_reset(p->each.work);
    TRY(candidates_step(&p->each, p->each.work, &f->layout, &x));
    for (int k = 0; k < LEVER_COUNT; k++) {
        machines[k] = p->each.base.machine;
        lever_pull(&machines[k], (lever)k, 1.01);
    }
    TRY(predict_step_elsewhere(x, machines, LEVER_COUNT, step_s));
    TRY(text_add(t, "\neffect on # 1 of one percent better:\n"));
    for (int k = 0; k < LEVER_COUNT; k++) {
        TRY(text_add(t, "          %-16s %+7.3f%% of the step\n", names[k],
                     100.0 * (step_s[k] / x->step_s - 1.0)));
    }
    return failure_line(a, x, t);
}

status plan_print_text(predict_planner *p, arena *a, const search_result *found, text *out)
{
    TRY(head_lines(p, found, out));
    TRY(table_lines(p, a, found, out));
    TRY(text_add(out, "\nlayouts that break a rule:\n"));
    TRY(rule_lines(found, out));
    const search_found *first = found->count > 0 ? &found->plans[0] : &found->smallest;
    TRY(memory_lines(p, first, p->parameters, out));
    TRY(inference_line(p, p->parameters, out));
    return found->count > 0 ? sensitivity_lines(p, a, first, out) : ST_OK;
}

// ---- remedies ----------------------------------------------------------------------------------

static status remedy_try(predict_planner *p, arena *a, const search_found *f,
                         const search_layout *l, const char *key, int *shown, text *t)
{
    char less[32];
    search_result found;
    const search_fixed fixed = p->fixed;
    p->fixed = (search_fixed){.dp = l->dp,
                              .tp = l->tp,
                              .pp = l->pp,
                              .cp = l->cp,
                              .chunks = l->chunks,
                              .zero = l->zero,
                              .sp = l->sp ? 1 : 0,
                              .recompute = (int32_t)l->recompute,
                              .recompute_layers = l->recompute_layers,
                              .schedule = l->schedule,
                              .micro_batch = l->micro_batch};
    const status st = predict_search(p, a, 0, &found);
    p->fixed = fixed;
    if (st != ST_OK) {
        error_clear();
        return ST_OK;
    }
    const search_found *now = found.count > 0 ? &found.plans[0] : &found.smallest;
    if (now->layout.dp == 0 || now->bytes >= f->bytes || *shown == 3) return ST_OK;
    ++*shown;
    return text_add(t, "%s%s -%s%s", *shown > 1 ? ", " : "", key,
                    text_bytes_human(f->bytes - now->bytes, less), now->fits ? " (fits)" : "");
}

status plan_print_remedies(predict_planner *p, arena *a, const search_found *f, text *out)
{
    int shown = 0;
    char key[64];
    search_layout l = f->layout;
    if (l.dp * l.cp > 1 && l.zero < 3) {
        l.zero++;
        (void)snprintf(key, sizeof(key), "layout.zero=%d", l.zero);
        TRY(remedy_try(p, a, f, &l, key, &shown, out));
    }
    l = f->layout;
    if (l.recompute != RECOMPUTE_FULL || l.recompute_layers > 0) {
        l.recompute = RECOMPUTE_FULL;
        l.recompute_layers = 0;
        TRY(remedy_try(p, a, f, &l, "train.recompute=full", &shown, out));
    }
    l = f->layout;
    if (l.micro_batch > 1) {
        l.micro_batch = 1;
        TRY(remedy_try(p, a, f, &l, "train.micro_batch=1", &shown, out));
    }
    l = f->layout;
    if (l.dp % 2 == 0 && l.tp * 2 <= p->each.base.machine.levels[0].devices) {
        l.dp /= 2;
        l.tp *= 2;
        (void)snprintf(key, sizeof(key), "layout.tp=%d", l.tp);
        TRY(remedy_try(p, a, f, &l, key, &shown, out));
    }
    return ST_OK;
}
