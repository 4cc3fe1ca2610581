// The policy: a YAML file apart from the model. Its hash, and those of all that its tasks read,
// stand in the record.
#include "cli/gate/gate.h"

#include "control/crypto.h"
#include "infer/task.h"

#include <string.h>

#define AT(field) (int64_t) offsetof(gate_policy, field)
static const option rows[] = {
    {.key = "name", .kind = OPTION_TEXT, .offset = AT(name), .help = "name of the policy"},
    {.key = "version",
     .kind = OPTION_INT,
     .offset = AT(version),
     .default_text = "1",
     .min = 1,
     .max = 1e12,
     .help = "version of the policy"},
    {.key = "tasks",
     .kind = OPTION_PATHS,
     .offset = AT(tasks),
     .help = "task files that are run on the model"},
    {.key = "limit",
     .kind = OPTION_INT,
     .offset = AT(limit),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .help = "number of items after which a task stops; 0 is all"},
    {.key = "template",
     .kind = OPTION_TEXT,
     .offset = AT(template_name),
     .help = "chat template of generation tasks, as eval --template"},
    {.key = "require",
     .kind = OPTION_LIST,
     .offset = AT(require),
     .help = "bounds, such as `arc.acc >= 0.3`: a task's name, a metric, >=, <=, > or <, a number"},
    {.key = "baseline",
     .kind = OPTION_PATH,
     .offset = AT(baseline),
     .help = "run, checkpoint or folder of the model to compare with"},
    {.key = "no_worse",
     .kind = OPTION_LIST,
     .offset = AT(no_worse),
     .help = "metrics that may not be worse than the baseline's"},
    {.key = "significance",
     .kind = OPTION_REAL,
     .offset = AT(significance),
     .default_text = "0.05",
     .min = 1e-9,
     .max = 0.5,
     .help = "chance below which a difference counts as worse"},
    {.key = "tolerance",
     .kind = OPTION_REAL,
     .offset = AT(tolerance),
     .default_text = "0.01",
     .max = 1,
     .help = "the same for metrics without a standard error: share by which they may be worse"},
    {.key = "licences",
     .kind = OPTION_LIST,
     .offset = AT(licences),
     .help = "licences that training data may have; without it they are not looked at",
     .also = "licenses"},
    {.key = "approvals",
     .kind = OPTION_INT,
     .offset = AT(approvals),
     .default_text = "0",
     .max = 1000,
     .help = "number of signers who must approve"},
    {.key = "signers",
     .kind = OPTION_PATH,
     .offset = AT(signers),
     .help = "keys of those who may approve, as ssh's allowed_signers file"},
};
static const option_table table = {.title = "Policy", .rows = rows, .count = COUNT_OF(rows)};

static status policy_check(const config *c, const gate_policy *p)
{
    if (p->tasks.count == 0 && (p->require.count > 0 || p->no_worse.count > 0)) {
        return fail(ST_CONFIG_CONFLICT, "%s: require and no_worse need `tasks`", p->path);
    }
    if ((p->baseline != NULL) != (p->no_worse.count > 0)) {
        return fail(ST_CONFIG_CONFLICT, "%s: baseline and no_worse belong together", p->path);
    }
    if ((p->approvals > 0) != (p->signers != NULL)) {
        return fail(ST_CONFIG_CONFLICT, "%s: approvals and signers belong together", p->path);
    }
    if (p->require.count + p->no_worse.count + p->licences.count + p->approvals == 0) {
        return fail(ST_CONFIG_KEY,
                    "%s demands nothing: see `require`, `no_worse`, `licences` and "
                    "`approvals`",
                    p->path);
    }
    if (p->template_name == NULL || p->tasks.count > 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "%s: template needs `tasks`", config_place(c, "template"));
}

status gate_policy_load(cli_context *cli, const char *path, gate_policy *out)
{
    config *c = NULL;
    TRY(config_load(cli->h, cli->a, &table, path, NULL, 0, out, &c));
    out->path = path;
    if (out->name == NULL) out->name = path_base_name(path);
    TRY(policy_check(c, out));
    return gate_hash_file(cli, path, out->hash);
}

// ---- hashes -------------------------------------------------------------------------------------

static void hex_of(control_sha256 *s, char out[GATE_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[CONTROL_HASH_BYTES];
    control_sha256_end(s, hash);
    for (int i = 0; i < CONTROL_HASH_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * CONTROL_HASH_BYTES] = 0;
}

void gate_hash_text(const char *bytes, int64_t count, char out[GATE_HEX_BYTES])
{
    control_sha256 s;
    control_sha256_begin(&s);
    control_sha256_add(&s, bytes, count);
    hex_of(&s, out);
}

static status file_add(cli_context *cli, const char *path, control_sha256 *s)
{
    enum { PIECE = 1 << 16 };
    const host_api *api = cli->h->api;
    char buffer[PIECE];
    file *f = NULL;
    int64_t bytes = 0;
    TRY(api->file_open(cli->h, path, FILE_READ, &f));
    status st = api->file_size(f, &bytes);
    control_sha256_add(s, &bytes, sizeof(bytes));
    for (int64_t at = 0; at < bytes && st == ST_OK; at += PIECE) {
        const int64_t n = min_i64(PIECE, bytes - at);
        st = api->file_read(f, at, buffer, n);
        if (st == ST_OK) control_sha256_add(s, buffer, n);
    }
    const status closed = api->file_close(f);
    return st != ST_OK ? st : closed;
}

status gate_hash_file(cli_context *cli, const char *path, char out[GATE_HEX_BYTES])
{
    control_sha256 s;
    control_sha256_begin(&s);
    TRY(file_add(cli, path, &s));
    hex_of(&s, out);
    return ST_OK;
}

status gate_hash_folder(cli_context *cli, const char *folder, char out[GATE_HEX_BYTES])
{
    control_sha256 s;
    file_names names;
    control_sha256_begin(&s);
    TRY(cli->h->api->path_list(cli->h, cli->a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL;
        file_info info;
        TRY(path_join(cli->a, folder, names.names[i], &path));
        TRY(cli->h->api->path_info(cli->h, path, &info));
        if (info.kind != FILE_KIND_REGULAR || strcmp(names.names[i], "README.md") == 0) continue;
        control_sha256_add(&s, names.names[i], (int64_t)strlen(names.names[i]) + 1);
        TRY(file_add(cli, path, &s));
    }
    hex_of(&s, out);
    return ST_OK;
}

static status evidence_add(gate *g, const char *what, const char *path, text *all)
{
    char hash[GATE_HEX_BYTES];
    if (path == NULL) return ST_OK;
    TRY(gate_hash_file(g->cli, path, hash));
    return text_add(all, "%s %s\n", what, hash);
}

status gate_evidence(gate *g)
{
    text all = {.a = g->cli->a};
    char hash[GATE_HEX_BYTES];
    TRY(text_add(&all, "limit %lld\n", (long long)g->policy.limit));
    for (int64_t i = 0; i < g->policy.tasks.count; i++) {
        task_spec spec = {.file = NULL};
        TRY(task_load(g->cli->h, g->cli->a, g->policy.tasks.items[i], &spec));
        TRY(evidence_add(g, "task", g->policy.tasks.items[i], &all));
        TRY(evidence_add(g, "data", spec.data, &all));
        TRY(evidence_add(g, "shots", spec.shots_data, &all));
    }
    if (g->policy.baseline != NULL) {
        cli_model baseline;
        TRY(cli_model_find(g->cli, g->policy.baseline, &baseline));
        TRY(gate_hash_folder(g->cli, baseline.folder, hash));
        TRY(text_add(&all, "baseline %s\n", hash));
    }
    gate_hash_text(all.bytes, all.length, g->evidence);
    return ST_OK;
}
