// The statement that approvals sign, and the record of a gate, with a hash of its own text.
//
// The record:
//   {"format": "trireme-gate-1", "passed": true, "model": {...}, "policy": {...}, "evidence": "..",
//    "results": [...], "checks": [...], "record": "<hash of the text up to here>"}
#include "cli/gate/gate.h"

#include "cli/export/work_folder.h"

#include <math.h>
#include <string.h>

enum { RECORD_BYTES_MAX = 1 << 26 };
static const char format_name[] = "trireme-gate-1";
static const char tail[] = ",\n \"record\": \"";

status gate_record_place(cli_context *cli, const char *operand, const char **path)
{
    operand_kind kind;
    char *trimmed = NULL, *out = NULL;
    TRY(cli_path_trim(cli->a, operand, &trimmed));
    TRY(cli_operand_kind(cli, trimmed, &kind));
    TRY(arena_format(cli->a, &out,
                     kind == OPERAND_RUN ? "%s/gate/record.json" : "%s.gate/record.json", trimmed));
    *path = out;
    return ST_OK;
}

// ---- texts --------------------------------------------------------------------------------------

static status number_add(text *t, const char *name, double x)
{
    if (!isfinite(x)) return text_add(t, ", \"%s\": null", name);
    return text_add(t, ", \"%s\": %.17g", name, x);
}

static status results_add(const gate_results *r, text *t)
{
    TRY(text_add(t, "["));
    for (int64_t i = 0; i < r->count; i++) {
        const gate_result *x = &r->items[i];
        TRY(text_add(t, "%s\n  {\"task\": ", i > 0 ? "," : ""));
        TRY(text_add_json(t, x->task));
        TRY(text_add(t, ", \"metric\": "));
        TRY(text_add_json(t, x->metric));
        TRY(number_add(t, "value", x->value));
        TRY(number_add(t, "stderr", x->error >= 0.0 ? x->error : (double)NAN));
        TRY(text_add(t, ", \"items\": %lld", (long long)x->items));
        if (x->has_baseline) {
            TRY(number_add(t, "baseline", x->base_value));
            TRY(number_add(t, "baseline_stderr",
                           x->base_error >= 0.0 ? x->base_error : (double)NAN));
            TRY(number_add(t, "p", x->p >= 0.0 ? x->p : (double)NAN));
            TRY(text_add(t, ", \"method\": \"%s\"", x->method));
        }
        TRY(text_add(t, "}"));
    }
    return text_add(t, "]");
}

status gate_statement(const gate *g, text *out)
{
    text results = {.a = g->cli->a};
    char hash[GATE_HEX_BYTES];
    TRY(results_add(&g->results, &results));
    gate_hash_text(results.bytes, results.length, hash);
    TRY(text_add(out, "%s\nmodel    %s\npolicy   %s\nevidence %s\nresults  %s\n", format_name,
                 g->model_hash, g->policy.hash, g->evidence, hash));
    for (int64_t i = 0; i < g->checks.count; i++) {
        const gate_check *c = &g->checks.items[i];
        if (strcmp(c->kind, "approval") == 0) continue;
        TRY(text_add(out, "%s  %s: %s (%s)\n", c->is_passed ? "passed" : "FAILED", c->kind, c->what,
                     c->found));
    }
    return ST_OK;
}

static status checks_add(const gate_checks *checks, text *t, bool *passed)
{
    *passed = true;
    TRY(text_add(t, "["));
    for (int64_t i = 0; i < checks->count; i++) {
        const gate_check *c = &checks->items[i];
        *passed = *passed && c->is_passed;
        TRY(text_add(t, "%s\n  {\"kind\": \"%s\", \"what\": ", i > 0 ? "," : "", c->kind));
        TRY(text_add_json(t, c->what));
        TRY(text_add(t, ", \"found\": "));
        TRY(text_add_json(t, c->found));
        TRY(text_add(t, ", \"passed\": %s}", c->is_passed ? "true" : "false"));
    }
    return text_add(t, "]");
}

status gate_record_write(gate *g)
{
    cli_context *cli = g->cli;
    text t = {.a = cli->a}, checks = {.a = cli->a}, statement = {.a = cli->a};
    char hash[GATE_HEX_BYTES], *path = NULL;
    bool is_passed = false;
    TRY(checks_add(&g->checks, &checks, &is_passed));
    TRY(text_add(
        &t, "{\"format\": \"%s\", \"passed\": %s,\n \"model\": {\"sha256\": \"%s\", \"path\": ",
        format_name, is_passed ? "true" : "false", g->model_hash));
    TRY(text_add_json(&t, g->model.folder));
    TRY(text_add(&t, "},\n \"policy\": {\"name\": "));
    TRY(text_add_json(&t, g->policy.name));
    TRY(text_add(&t, ", \"version\": %lld, \"sha256\": \"%s\", \"path\": ",
                 (long long)g->policy.version, g->policy.hash));
    TRY(text_add_json(&t, g->policy.path));
    TRY(text_add(&t, "},\n \"evidence\": \"%s\",\n \"results\": ", g->evidence));
    TRY(results_add(&g->results, &t));
    TRY(text_add(&t, ",\n \"checks\": %s", checks.bytes));
    gate_hash_text(t.bytes, t.length, hash);
    TRY(text_add(&t, "%s%s\"}\n", tail, hash));
    TRY(gate_statement(g, &statement));
    TRY(path_join(cli->a, g->folder, "statement", &path));
    TRY(host_write_all(cli->h, path, statement.bytes, statement.length));
    return host_write_all(cli->h, g->record_path, t.bytes, t.length);
}

// ---- reading ------------------------------------------------------------------------------------

static status kept_text(arena *a, const json *value, const char **out)
{
    char *kept = NULL;
    TRY(arena_strdup(a, json_text(value, ""), &kept));
    *out = kept;
    return ST_OK;
}

static status results_take(cli_context *cli, const json *list, gate_results *out)
{
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *x = json_at(list, i);
        gate_result r = {.value = json_real(json_get(x, "value"), (double)NAN),
                         .error = json_real(json_get(x, "stderr"), -1.0),
                         .items = json_int(json_get(x, "items"), 0),
                         .has_baseline = json_get(x, "baseline") != NULL,
                         .base_value = json_real(json_get(x, "baseline"), (double)NAN),
                         .base_error = json_real(json_get(x, "baseline_stderr"), -1.0),
                         .p = json_real(json_get(x, "p"), -1.0)};
        TRY(kept_text(cli->a, json_get(x, "task"), &r.task));
        TRY(kept_text(cli->a, json_get(x, "metric"), &r.metric));
        TRY(kept_text(cli->a, json_get(x, "method"), &r.method));
        TRY(arena_grow(cli->a, (void **)&out->items, &out->capacity, out->count + 1,
                       (int64_t)sizeof(r)));
        out->items[out->count++] = r;
    }
    return ST_OK;
}

static status checks_take(cli_context *cli, const json *list, gate_checks *out)
{
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *x = json_at(list, i);
        gate_check c = {.is_passed = json_bool(json_get(x, "passed"), false)};
        TRY(kept_text(cli->a, json_get(x, "kind"), &c.kind));
        TRY(kept_text(cli->a, json_get(x, "what"), &c.what));
        TRY(kept_text(cli->a, json_get(x, "found"), &c.found));
        TRY(arena_grow(cli->a, (void **)&out->items, &out->capacity, out->count + 1,
                       (int64_t)sizeof(c)));
        out->items[out->count++] = c;
    }
    return ST_OK;
}

// Reads a record and checks its own hash.
static status record_read(cli_context *cli, const char *path, json **out)
{
    char *bytes = NULL, hash[GATE_HEX_BYTES];
    int64_t count = 0;
    TRY(host_read_all(cli->h, cli->a, path, RECORD_BYTES_MAX, &bytes, &count));
    const int64_t end = count - (int64_t)strlen(tail) - (GATE_HEX_BYTES - 1) - 3;
    if (end < 0 || strncmp(bytes + end, tail, strlen(tail)) != 0) {
        return fail(ST_DAMAGED, "%s is no record of a gate", path);
    }
    gate_hash_text(bytes, end, hash);
    if (strncmp(bytes + end + strlen(tail), hash, GATE_HEX_BYTES - 1) != 0) {
        return fail(ST_DAMAGED, "%s was changed after the gate wrote it", path);
    }
    return json_parse(bytes, count, path, out);
}

static const char *hash_in(const json *root, const char *name)
{
    return json_text(json_get(json_get(root, name), "sha256"), "");
}

status gate_record_reuse(gate *g)
{
    file_info info;
    json *root = NULL;
    TRY(g->cli->h->api->path_info(g->cli->h, g->record_path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    if (record_read(g->cli, g->record_path, &root) != ST_OK) {
        error_clear(); // it is made anew
        return ST_OK;
    }
    status st = ST_OK;
    if (strcmp(hash_in(root, "model"), g->model_hash) == 0 &&
        strcmp(hash_in(root, "policy"), g->policy.hash) == 0 &&
        strcmp(json_text(json_get(root, "evidence"), ""), g->evidence) == 0) {
        st = results_take(g->cli, json_get(root, "results"), &g->results);
        g->is_reused = true;
    }
    json_free(root);
    return st;
}

static status required(cli_context *cli, const cli_model *model, const char *path, const json *root,
                       gate_passed *out)
{
    char hash[GATE_HEX_BYTES];
    if (!json_bool(json_get(root, "passed"), false)) {
        return fail(ST_ANSWER_NO, "--gated: the gate did not let this model pass: see %s", path);
    }
    TRY(gate_hash_folder(cli, model->folder, hash));
    if (strcmp(hash_in(root, "model"), hash) != 0) {
        return fail(ST_ANSWER_NO,
                    "%s is the record of another model: its hash is %.16s..., that of %s is "
                    "%.16s...; run `trireme gate` on this one",
                    path, hash_in(root, "model"), model->folder, hash);
    }
    const json *policy = json_get(root, "policy");
    TRY(kept_text(cli->a, json_get(policy, "name"), &out->policy_name));
    TRY(kept_text(cli->a, json_get(policy, "sha256"), &out->policy_hash));
    TRY(kept_text(cli->a, json_get(json_get(root, "model"), "sha256"), &out->model_hash));
    out->policy_version = json_int(json_get(policy, "version"), 0);
    TRY(results_take(cli, json_get(root, "results"), &out->results));
    return checks_take(cli, json_get(root, "checks"), &out->checks);
}

status gate_record_require(cli_context *cli, const char *operand, const cli_model *model,
                           const char *record, gate_passed *out)
{
    file_info info;
    json *root = NULL;
    const char *path = record;
    *out = (gate_passed){.policy_name = NULL};
    if (path == NULL) TRY(gate_record_place(cli, operand, &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) {
        const char *quoted = NULL;
        TRY(text_quote(cli->a, operand, &quoted));
        return fail(
            ST_ANSWER_NO,
            "--gated: there is no record of a gate (%s); run `trireme gate %s --policy FILE`", path,
            quoted);
    }
    TRY(record_read(cli, path, &root));
    const status st = required(cli, model, path, root, out);
    json_free(root);
    return st;
}
