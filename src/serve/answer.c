// Texts that need no model: errors, the list of models, and metrics in Prometheus's text format.
#include "serve/serve_internal.h"

#include <stdio.h>
#include <string.h>

const double serve_second_bounds[SERVE_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                   0.5,   1,    2.5,   5,    10,  60};
const double serve_token_bounds[SERVE_BUCKETS] = {1,   4,   16,   32,   64,    128,
                                                  256, 512, 1024, 4096, 16384, 131072};

status serve_error_text(text *t, int code, const char *member, const char *message)
{
    TRY(text_add(t, "{\"error\": {\"message\": "));
    TRY(text_add_json(t, message));
    TRY(text_add(t, ", \"type\": \"%s\", \"param\": ",
                 code < 500 ? "invalid_request_error" : "server_error"));
    if (member != NULL) {
        TRY(text_add_json(t, member));
    } else {
        TRY(text_add(t, "null"));
    }
    return text_add(t, ", \"code\": %s}}\n", code == 404 ? "\"model_not_found\"" : "null");
}

static status model_text(const serve *s, const char *name, const char *parent, text *t)
{
    TRY(text_add(t, "{\"id\": "));
    TRY(text_add_json(t, name));
    TRY(text_add(t,
                 ", \"object\": \"model\", \"created\": %lld, \"owned_by\": \"trireme\", "
                 "\"max_model_len\": %lld",
                 (long long)s->begin_unix_s, (long long)s->model.context));
    if (parent != NULL) {
        TRY(text_add(t, ", \"parent\": "));
        TRY(text_add_json(t, parent));
    }
    return text_add(t, "}");
}

int64_t serve_model_number(const serve_model *m, const char *name)
{
    if (strcmp(name, m->name) == 0) return SERVE_BASE_MODEL;
    for (int64_t i = 0; i < m->adapter_count; i++) {
        if (strcmp(name, m->adapters[i]) == 0) return SERVE_ADAPTERS + i;
    }
    return -1;
}

status serve_models_text(const serve *s, int64_t which, text *t)
{
    const serve_model *m = &s->model;
    if (which != SERVE_ALL_MODELS) {
        const bool is_base = which == SERVE_BASE_MODEL;
        const char *name = is_base ? m->name : m->adapters[which - SERVE_ADAPTERS];
        TRY(model_text(s, name, is_base ? NULL : m->name, t));
        return text_add(t, "\n");
    }
    TRY(text_add(t, "{\"object\": \"list\", \"data\": ["));
    TRY(model_text(s, m->name, NULL, t));
    for (int64_t i = 0; i < m->adapter_count; i++) {
        TRY(text_add(t, ", "));
        TRY(model_text(s, m->adapters[i], m->name, t));
    }
    return text_add(t, "]}\n");
}

void serve_count_answer(serve *s, serve_route route, int code)
{
    (void)pthread_mutex_lock(&s->lock);
    serve_metrics *m = &s->metrics;
    m->counts.requests++;
    if (code >= 400 && code < 500) m->counts.refused++;
    if (route < ROUTE_COUNT) m->answers[route][code / 100 % 6]++;
    (void)pthread_mutex_unlock(&s->lock);
}

void serve_observe(serve_histogram *h, const double *bounds, double value)
{
    int64_t i = 0;
    while (i < SERVE_BUCKETS && value > bounds[i]) i++;
    h->counts[i]++;
    h->sum += value;
}

static status add_histogram(text *t, const char *name, const char *help, const serve_histogram *h,
                            const double *bounds)
{
    int64_t sum = 0;
    TRY(text_add(t, "# HELP trireme_%s %s\n# TYPE trireme_%s histogram\n", name, help, name));
    for (int64_t i = 0; i < SERVE_BUCKETS; i++) {
        sum += h->counts[i];
        TRY(text_add(t, "trireme_%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], (long long)sum));
    }
    sum += h->counts[SERVE_BUCKETS];
    return text_add(t,
                    "trireme_%s_bucket{le=\"+Inf\"} %lld\ntrireme_%s_sum %.9g\ntrireme_%s_count "
                    "%lld\n",
                    name, (long long)sum, name, h->sum, name, (long long)sum);
}

static status add_value(text *t, const char *name, const char *kind, const char *help,
                        int64_t value)
{
    return text_add(t, "# HELP trireme_%s %s\n# TYPE trireme_%s %s\ntrireme_%s %lld\n", name, help,
                    name, kind, name, (long long)value);
}

static status add_drift(text *t, const serve_metrics *m)
{
    TRY(text_add(t,
                 "# HELP trireme_drift Population stability index of the last window of answers "
                 "against the reference; above %g is an alert.\n# TYPE trireme_drift gauge\n",
                 drift_alert));
    for (int of = 0; of < DRIFT_COUNT; of++) {
        TRY(text_add(t, "trireme_drift{of=\"%s\"} %.6g\n", drift_name((drift_of)of), m->drift[of]));
    }
    TRY(text_add(t, "# HELP trireme_drift_alerts_total Windows that differed from the reference.\n"
                    "# TYPE trireme_drift_alerts_total counter\n"));
    for (int of = 0; of < DRIFT_COUNT; of++) {
        TRY(text_add(t, "trireme_drift_alerts_total{of=\"%s\"} %lld\n", drift_name((drift_of)of),
                     (long long)m->alerts[of]));
    }
    return add_value(t, "drift_windows_total", "counter", "Windows that were compared.",
                     m->windows);
}

static status add_cache(text *t, const infer_cache *c)
{
    TRY(add_value(t, "cache_tokens", "gauge", "Tokens that the pages of the cache hold.",
                  c->tokens));
    TRY(add_value(t, "cache_tokens_used", "gauge",
                  "Tokens of the pages in use, those of kept prompts included.", c->used));
    return add_value(t, "sequences_put_back_total", "counter",
                     "Sequences that gave up their pages to older ones, and were computed again.",
                     c->put_back);
}

status serve_metrics_text(serve *s, text *t)
{
    static const char *const names[ROUTE_COUNT] = {"completions", "chat", "models", "health",
                                                   "metrics"};
    (void)pthread_mutex_lock(&s->lock);
    const serve_metrics m = s->metrics;
    (void)pthread_mutex_unlock(&s->lock);
    TRY(text_add(t, "# HELP trireme_requests_total Requests by path and first digit of the "
                    "answer's code.\n# TYPE trireme_requests_total counter\n"));
    for (int r = 0; r < ROUTE_COUNT; r++) {
        for (int code = 2; code < 6; code++) {
            if (m.answers[r][code] == 0) continue;
            TRY(text_add(t, "trireme_requests_total{path=\"%s\",code=\"%dxx\"} %lld\n", names[r],
                         code, (long long)m.answers[r][code]));
        }
    }
    TRY(add_value(t, "prompt_tokens_total", "counter", "Tokens of prompts.",
                  m.counts.prompt_tokens));
    TRY(add_value(t, "prompt_tokens_kept_total", "counter",
                  "Tokens of prompts that were not computed again.", m.kept_tokens));
    TRY(add_value(t, "generated_tokens_total", "counter", "Tokens of answers.",
                  m.counts.generated));
    TRY(add_value(t, "sequences_running", "gauge", "Sequences that have a slot.", m.running));
    TRY(add_value(t, "sequences_waiting", "gauge", "Sequences that wait for a slot.", m.waiting));
    if (m.cache.tokens > 0) TRY(add_cache(t, &m.cache));
    if (s->options.reference != NULL) TRY(add_drift(t, &m));
    TRY(add_histogram(t, "first_token_seconds", "From a request to its first token.",
                      &m.first_token_s, serve_second_bounds));
    TRY(add_histogram(t, "answer_seconds", "From a request to its end.", &m.answer_s,
                      serve_second_bounds));
    TRY(add_histogram(t, "prompt_tokens", "Tokens of a prompt.", &m.prompt_length,
                      serve_token_bounds));
    return add_histogram(t, "answer_tokens", "Tokens of an answer.", &m.answer_length,
                         serve_token_bounds);
}
