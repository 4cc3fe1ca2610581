// The policy's tasks on the model and on its baseline, and how sure a difference is.
#include "cli/gate/gate.h"

#include "cli/infer/answering.h"
#include "cli/train/signals.h"
#include "infer/task_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const gate_result *gate_result_find(const gate_results *r, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return NULL;
    for (int64_t i = 0; i < r->count; i++) {
        const gate_result *x = &r->items[i];
        const bool is_task = strlen(x->task) == (size_t)(dot - name) &&
                             strncmp(x->task, name, (size_t)(dot - name)) == 0;
        if (is_task && strcmp(x->metric, dot + 1) == 0) return x;
    }
    return NULL;
}

static bool ends_with(const char *word, const char *end)
{
    const size_t n = strlen(word), m = strlen(end);
    return n >= m && strcmp(word + n - m, end) == 0;
}

bool gate_lower_is_better(const char *metric)
{
    return ends_with(metric, "perplexity") || strcmp(metric, "bits_per_byte") == 0;
}

// ---- significance -------------------------------------------------------------------------------

// The chance of a standard normal value of z or less.
static double normal_below(double z)
{
    return 0.5 * erfc(-z / 1.4142135623730950488);
}

// The chance of at least `bad` heads in n tosses of a fair coin.
static double coin_at_least(int64_t bad, int64_t n)
{
    double p = 0.0;
    for (int64_t k = bad; k <= n; k++) {
        p += exp(lgamma((double)n + 1.0) - lgamma((double)k + 1.0) - lgamma((double)(n - k) + 1.0) -
                 (double)n * 0.69314718055994530942);
    }
    return fmin(p, 1.0);
}

double gate_paired_p(const double *model, const double *baseline, int64_t count,
                     bool lower_is_better, const char **method)
{
    double sum = 0.0, squares = 0.0;
    int64_t better = 0, worse = 0;
    bool is_binary = true;
    for (int64_t i = 0; i < count; i++) {
        const double d = lower_is_better ? baseline[i] - model[i] : model[i] - baseline[i];
        sum += d;
        better += d > 0.0 ? 1 : 0;
        worse += d < 0.0 ? 1 : 0;
        is_binary = is_binary && (model[i] == 0.0 || model[i] == 1.0) &&
                    (baseline[i] == 0.0 || baseline[i] == 1.0);
    }
    if (is_binary) {
        *method = "sign test";
        return coin_at_least(worse, better + worse);
    }
    *method = "paired";
    const double mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++) {
        const double d = lower_is_better ? baseline[i] - model[i] : model[i] - baseline[i];
        squares += (d - mean) * (d - mean);
    }
    const double error = count > 1 ? sqrt(squares / (double)(count - 1) / (double)count) : 0.0;
    if (error == 0.0) return mean < 0.0 ? 0.0 : 1.0;
    return normal_below(mean / error);
}

static void difference_set(gate_result *r, const double *model, const double *baseline,
                           int64_t count)
{
    const bool lower = gate_lower_is_better(r->metric);
    r->p = -1.0;
    r->method = "";
    if (model != NULL && baseline != NULL) {
        r->p = gate_paired_p(model, baseline, count, lower, &r->method);
    } else if (r->error >= 0.0 && r->base_error >= 0.0 && r->error + r->base_error > 0.0) {
        const double d = lower ? r->base_value - r->value : r->value - r->base_value;
        r->p = normal_below(d / sqrt(r->error * r->error + r->base_error * r->base_error));
        r->method = "unpaired";
    }
}

// ---- running ------------------------------------------------------------------------------------

typedef struct gate_model {
    const cli_model *model;
    data_tokenizer *tokenizer;
    data_chat *chat;
} gate_model;

static status model_open(gate *g, const cli_model *model, gate_model *out)
{
    *out = (gate_model){.model = model};
    TRY(cli_tokenizer_open(g->cli, model, NULL, &out->tokenizer));
    if (g->policy.template_name == NULL) return ST_OK;
    return cli_chat_open(g->cli, model, NULL, g->policy.template_name, out->tokenizer, &out->chat);
}

static void model_close(gate_model *m)
{
    data_chat_close(m->chat);
    data_tokenizer_close(m->tokenizer);
}

static bool watched(void *context, const char *unit, int64_t done, int64_t all)
{
    (void)context;
    (void)unit;
    (void)done;
    (void)all;
    return cli_signals_asked();
}

static status model_run(gate *g, const gate_model *m, const task_spec *spec, task_outcome *out)
{
    const task_watcher watcher = {.context = g, .scored = watched};
    const task_run_args args = {.h = g->cli->h,
                                .folder = m->model->folder,
                                .spec = &m->model->spec,
                                .tokenizer = m->tokenizer,
                                .chat = m->chat,
                                .limit = g->policy.limit,
                                .options = {.threads = (int)g->threads,
                                            .compute = m->model->compute,
                                            .strict = m->model->strict},
                                .processors = kern_core_count(),
                                .watcher = &watcher};
    return task_run(&args, g->cli->a, spec, out);
}

static status results_add(gate *g, const task_spec *spec, const task_outcome *own,
                          const task_outcome *base)
{
    task_metric metrics[TASK_METRICS_MAX], of_base[TASK_METRICS_MAX];
    arena *a = g->cli->a;
    const int64_t count = task_metrics(spec, &own->result, metrics);
    if (base != NULL) (void)task_metrics(spec, &base->result, of_base);
    for (int64_t i = 0; i < count; i++) {
        gate_result r = {.task = spec->name,
                         .value = metrics[i].value,
                         .error = metrics[i].error,
                         .items = own->result.items,
                         .p = -1.0,
                         .method = ""};
        char *name = NULL;
        TRY(arena_strdup(a, metrics[i].name, &name));
        r.metric = name;
        if (base != NULL) {
            double *x = NULL, *y = NULL;
            int64_t n = 0, m = 0;
            r.has_baseline = true;
            r.base_value = of_base[i].value;
            r.base_error = of_base[i].error;
            TRY(task_outcome_values(a, spec, own, r.metric, &x, &n));
            TRY(task_outcome_values(a, spec, base, r.metric, &y, &m));
            difference_set(&r, x, n == m ? y : NULL, n);
        }
        TRY(arena_grow(a, (void **)&g->results.items, &g->results.capacity, g->results.count + 1,
                       (int64_t)sizeof(r)));
        g->results.items[g->results.count++] = r;
    }
    return ST_OK;
}

static status one_run(gate *g, const gate_model *own, const gate_model *base, const char *path)
{
    task_spec spec = {.file = NULL};
    task_outcome of_own, of_base;
    TRY(task_load(g->cli->h, g->cli->a, path, &spec));
    TRY(model_run(g, own, &spec, &of_own));
    if (base != NULL) TRY(model_run(g, base, &spec, &of_base));
    return results_add(g, &spec, &of_own, base != NULL ? &of_base : NULL);
}

status gate_results_make(gate *g)
{
    gate_model own = {.model = NULL}, base = {.model = NULL};
    cli_model baseline;
    const bool has_baseline = g->policy.baseline != NULL;
    status st = g->policy.tasks.count > 0 ? model_open(g, &g->model, &own) : ST_OK;
    if (st == ST_OK && has_baseline) {
        st = cli_model_find(g->cli, g->policy.baseline, &baseline);
        if (st == ST_OK) st = model_open(g, &baseline, &base);
    }
    for (int64_t i = 0; i < g->policy.tasks.count && st == ST_OK; i++) {
        st = one_run(g, &own, has_baseline ? &base : NULL, g->policy.tasks.items[i]);
    }
    model_close(&own);
    model_close(&base);
    return st;
}
