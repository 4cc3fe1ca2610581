// The demands of a policy on the results and on the training data.
#include "cli/gate/gate.h"

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "data/corpus.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

status gate_check_add(gate *g, const char *kind, const char *what, bool is_passed,
                      const char *format, ...)
{
    char found[512];
    va_list args;
    gate_check c = {.kind = kind, .is_passed = is_passed};
    char *kept_what = NULL, *kept = NULL;
    va_start(args, format);
    (void)vsnprintf(found, sizeof(found), format, args);
    va_end(args);
    TRY(arena_strdup(g->cli->a, what, &kept_what));
    TRY(arena_strdup(g->cli->a, found, &kept));
    c.what = kept_what;
    c.found = kept;
    TRY(arena_grow(g->cli->a, (void **)&g->checks.items, &g->checks.capacity, g->checks.count + 1,
                   (int64_t)sizeof(c)));
    g->checks.items[g->checks.count++] = c;
    return ST_OK;
}

static const char *shown(double value, double error, char buffer[64])
{
    if (error >= 0.0) {
        (void)snprintf(buffer, 64, "%.4f +- %.4f", value, error);
    } else {
        (void)snprintf(buffer, 64, "%.6g", value);
    }
    return buffer;
}

// ---- bounds -------------------------------------------------------------------------------------

static status unknown_metric(const gate *g, const char *key, const char *name)
{
    text all = {.a = g->cli->a};
    for (int64_t i = 0; i < g->results.count; i++) {
        TRY(text_add(&all, "%s%s.%s", i > 0 ? ", " : "", g->results.items[i].task,
                     g->results.items[i].metric));
    }
    return fail(ST_CONFIG, "%s: %s: no task gives \"%s\"; there are: %s", g->policy.path, key, name,
                all.length > 0 ? all.bytes : "none");
}

static status bound_check(gate *g, const char *bound)
{
    static const char *const signs[] = {">=", "<=", ">", "<"};
    char name[256], value_text[64], buffer[64];
    const char *sign = NULL;
    double limit = 0.0;
    int kind = 0;
    for (; kind < COUNT_OF(signs) && sign == NULL; kind++) sign = strstr(bound, signs[kind]);
    const bool is_parsed = sign != NULL &&
                           sscanf(bound, "%255[^<>= ]", name) == 1 && // NOLINT(cert-err34-c)
                           sscanf(sign + strlen(signs[kind - 1]), "%63s", value_text) == 1 &&
                           text_parse_f64(value_text, &limit);
    if (!is_parsed) {
        return fail(ST_CONFIG,
                    "%s: require: expected a bound such as \"arc.acc >= 0.3\", got "
                    "\"%.200s\"",
                    g->policy.path, bound);
    }
    const gate_result *r = gate_result_find(&g->results, name);
    if (r == NULL) return unknown_metric(g, "require", name);
    const bool is_passed = kind == 1   ? r->value >= limit
                           : kind == 2 ? r->value <= limit
                           : kind == 3 ? r->value > limit
                                       : r->value < limit;
    return gate_check_add(g, "bound", bound, is_passed, "%s", shown(r->value, r->error, buffer));
}

// ---- regressions --------------------------------------------------------------------------------

static status no_worse_check(gate *g, const char *name)
{
    char own[64], base[64], what[320];
    const gate_result *r = gate_result_find(&g->results, name);
    if (r == NULL) return unknown_metric(g, "no_worse", name);
    (void)shown(r->value, r->error, own);
    (void)shown(r->base_value, r->base_error, base);
    (void)snprintf(what, sizeof(what), "%.256s no worse", name);
    if (r->p >= 0.0) {
        return gate_check_add(g, "regression", what, r->p >= g->policy.significance,
                              "%s, baseline %s, p %.3g (%s)", own, base, r->p, r->method);
    }
    const double worse =
        gate_lower_is_better(r->metric) ? r->value - r->base_value : r->base_value - r->value;
    const bool is_passed = worse <= g->policy.tolerance * fabs(r->base_value);
    return gate_check_add(g, "regression", what, is_passed, "%s, baseline %s, tolerance %g", own,
                          base, g->policy.tolerance);
}

// ---- licences -----------------------------------------------------------------------------------

typedef struct source_list {
    gate_source *items;
    int64_t count, capacity;
} source_list;

static status source_add(cli_context *cli, source_list *l, gate_source s)
{
    TRY(arena_grow(cli->a, (void **)&l->items, &l->capacity, l->count + 1, (int64_t)sizeof(s)));
    l->items[l->count++] = s;
    return ST_OK;
}

static status text_or_null(arena *a, const json *value, const char **out)
{
    char *kept = NULL;
    *out = NULL;
    if (json_kind_of(value) != JSON_TEXT) return ST_OK;
    TRY(arena_strdup(a, json_text(value, ""), &kept));
    *out = kept;
    return ST_OK;
}

static status corpus_add(cli_context *cli, const char *folder, source_list *l)
{
    enum { CORPUS_BYTES_MAX = 1 << 28 };
    char *path = NULL;
    json *root = NULL;
    status st = ST_OK;
    TRY(path_join(cli->a, folder, "corpus.json", &path));
    TRY(json_read(cli->h, path, CORPUS_BYTES_MAX, &root));
    const json *sources = json_get(root, "sources");
    for (int64_t i = 0; i < json_count(sources) && st == ST_OK; i++) {
        const json *x = json_at(sources, i);
        const char *name = NULL;
        gate_source s = {.name = NULL};
        st = text_or_null(cli->a, json_get(x, "source"), &name);
        if (st == ST_OK) st = text_or_null(cli->a, json_get(x, "licence"), &s.licence);
        if (st == ST_OK) st = text_or_null(cli->a, json_get(x, "generator"), &s.generator);
        s.name = name != NULL ? name : "?";
        if (st == ST_OK) st = source_add(cli, l, s);
    }
    json_free(root);
    return st;
}

status gate_sources_find(cli_context *cli, const cli_model *model, gate_source **out,
                         int64_t *count)
{
    source_list l = {.items = NULL};
    char *yaml = NULL;
    int64_t bytes = 0;
    run_config *r = NULL;
    config *c = NULL;
    *out = NULL;
    *count = 0;
    if (model->kind == OPERAND_HF) return ST_OK;
    TRY(ckpt_extra_read(cli->h, cli->a, model->folder, "config.resolved.yaml", &yaml, &bytes));
    if (yaml == NULL) return ST_OK;
    TRY(arena_new(cli->a, 1, &r));
    const config_input input = {
        .yaml = yaml, .bytes = bytes, .name = model->folder, .folder = model->folder};
    TRY(config_parse(cli->a, &run_config_table, &input, r, &c));
    for (int64_t i = 0; i < r->data.train.count; i++) {
        char *path = NULL;
        bool is_corpus = false;
        TRY(arena_strdup(cli->a, r->data.train.items[i], &path));
        char *equals = strrchr(path, '='); // of a weight
        if (equals != NULL) *equals = 0;
        TRY(corpus_folder_is(cli->h, cli->a, path, &is_corpus));
        TRY(is_corpus ? corpus_add(cli, path, &l)
                      : source_add(cli, &l, (gate_source){.name = path_base_name(path)}));
    }
    if (r->model.from != NULL) {
        TRY(source_add(cli, &l, (gate_source){.name = path_base_name(r->model.from)}));
    }
    *out = l.items;
    *count = l.count;
    return ST_OK;
}

static bool is_allowed(const gate_policy *p, const char *licence)
{
    for (int64_t i = 0; i < p->licences.count && licence != NULL; i++) {
        if (strcmp(p->licences.items[i], licence) == 0) return true;
    }
    return false;
}

static status licences_check(gate *g)
{
    gate_source *sources = NULL;
    int64_t count = 0;
    TRY(gate_sources_find(g->cli, &g->model, &sources, &count));
    if (count == 0) {
        return gate_check_add(g, "licence", "training data", false, "is not known");
    }
    for (int64_t i = 0; i < count; i++) {
        const gate_source *s = &sources[i];
        TRY(gate_check_add(g, "licence", s->name, is_allowed(&g->policy, s->licence), "%s",
                           s->licence != NULL ? s->licence : "not known: no ledger names it"));
    }
    return ST_OK;
}

status gate_checks_make(gate *g)
{
    const gate_policy *p = &g->policy;
    for (int64_t i = 0; i < p->require.count; i++) TRY(bound_check(g, p->require.items[i]));
    for (int64_t i = 0; i < p->no_worse.count; i++) TRY(no_worse_check(g, p->no_worse.items[i]));
    return p->licences.count > 0 ? licences_check(g) : ST_OK;
}
