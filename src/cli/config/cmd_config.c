// `config`: shows a configuration with all values and their origins, checks several, compares two
// runs, and prints the documents that are made from the option table.
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "config/run_config.h"
#include "model/model.h"

#include <string.h>

enum { CONFIG_LIMIT_BYTES = 1 << 22 };

// A loaded configuration. For a run or a checkpoint: the resolved one.
typedef struct loaded {
    const char *path; // path of the YAML file
    bool is_resolved;
    run_config r;
    config *c;
} loaded;

static status load(cli_context *cli, const char *operand, const cli_call *call, loaded **out)
{
    loaded *l = NULL;
    TRY(arena_new(cli->a, 1, &l));
    TRY(cli_config_file(cli, operand, &l->path, &l->is_resolved));
    const char *const *keys = call->keys;
    const int64_t count = call->key_count;
    TRY(config_load(cli->h, cli->a, &run_config_table, l->path, keys, count, &l->r, &l->c));
    // A configuration with layout=auto is complete as it is.
    TRY(l->r.layout.mode == RUN_LAYOUT_AUTO
            ? run_config_load_searched(cli->h, cli->a, l->path, keys, count, false, &l->r, &l->c)
            : run_config_load(cli->h, cli->a, l->path, keys, count, &l->r, &l->c));
    *out = l;
    return ST_OK;
}

// ---- show ---------------------------------------------------------------------------------------

// A run's file records the origins of its values better than a new load could, so it is printed
// unchanged.
static status show_file(cli_context *cli, const char *path)
{
    char *yaml = NULL;
    int64_t bytes = 0;
    TRY(host_read_all(cli->h, cli->a, path, CONFIG_LIMIT_BYTES, &yaml, &bytes));
    cli_print(cli, "%s", yaml);
    return ST_OK;
}

static status show(cli_context *cli, const cli_call *call)
{
    loaded *l = NULL;
    text t = {.a = cli->a};
    TRY(load(cli, call->operands[1], call, &l));
    if (l->is_resolved && call->key_count == 0) return show_file(cli, l->path);
    TRY(config_print_resolved(l->c, &l->r, &t));
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- check --------------------------------------------------------------------------------------

// Also checks the model, because the table of keys does not know presets and folders.
static status check_one(cli_context *cli, const char *operand, const cli_call *call)
{
    enum { VOCAB_ANY = 1 << 16 }; // placeholder for the tokenizer's size, which a run reads
    loaded *l = NULL;
    decoder_spec spec;
    TRY(load(cli, operand, call, &l));
    if (l->r.model.vocab == 0 && l->r.model.from == NULL) l->r.model.vocab = VOCAB_ANY;
    return model_spec_from_config(cli->h, cli->a, &l->r, &spec);
}

static status check(cli_context *cli, const cli_call *call)
{
    const int64_t count = call->operand_count - 1;
    int64_t bad = 0;
    status first = ST_OK;
    for (int64_t i = 0; i < count; i++) {
        const char *operand = call->operands[i + 1];
        const status st = check_one(cli, operand, call);
        if (count == 1) TRY(st);
        if (st == ST_OK) {
            cli_print(cli, count == 1 ? "ok\n" : "%s  ok\n", operand);
            continue;
        }
        cli_print_error(cli, st);
        if (bad++ == 0) first = st;
    }
    if (bad == 0) return ST_OK;
    return fail(first, "%lld of %lld configurations cannot be used", (long long)bad,
                (long long)count);
}

// ---- diff ---------------------------------------------------------------------------------------

static status diff_row(cli_context *cli, const option *o, const loaded *l[2], int64_t *differing)
{
    text values = {.a = cli->a};
    if (option_equal(o, &l[0]->r, &l[1]->r)) return ST_OK;
    (*differing)++;
    for (int i = 0; i < 2; i++) {
        const int64_t before = values.length;
        TRY(text_add(&values, "%s", i == 0 ? "" : " -> "));
        const int64_t begin = values.length;
        TRY(option_print(o, &l[i]->r, &values));
        if (values.length == begin) TRY(text_add(&values, "none"));
        ASSERT(values.length > before);
    }
    cli_print(cli, "%s: %s\n", o->key, values.bytes);
    return ST_OK;
}

static status diff(cli_context *cli, const cli_call *call)
{
    loaded *l[2];
    int64_t differing = 0;
    for (int i = 0; i < 2; i++) TRY(load(cli, call->operands[i + 1], call, &l[i]));
    for (int64_t i = 0; i < run_config_table.count; i++) {
        const option *o = &run_config_table.rows[i];
        if (strcmp(o->key, "run.dir") == 0) continue; // two runs always differ in it
        TRY(diff_row(cli, o, (const loaded *[2]){l[0], l[1]}, &differing));
    }
    if (differing == 0) return ST_OK;
    return fail(ST_ANSWER_NO, "%s and %s differ in %lld key%s", call->operands[1],
                call->operands[2], (long long)differing, text_plural(differing, "s"));
}

// ---- documents ----------------------------------------------------------------------------------

static status schema(cli_context *cli, const cli_call *call)
{
    text t = {.a = cli->a};
    (void)call;
    TRY(option_print_json_schema(&run_config_table, &t));
    cli_print_text(cli, &t);
    return ST_OK;
}

static status reference(cli_context *cli, const cli_call *call)
{
    text t = {.a = cli->a};
    (void)call;
    TRY(option_print_markdown(&run_config_table, &t));
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- the command --------------------------------------------------------------------------------

typedef struct action {
    const char *name, *synopsis;
    int64_t operand_min, operand_max; // after the name; -1: any number
    bool takes_keys;
    status (*run)(cli_context *cli, const cli_call *call);
} action;

static const action actions[] = {
    {"show", "CONFIG|RUN [key.path=value ...]", 1, 1, true, show},
    {"check", "CONFIG ... [key.path=value ...]", 1, -1, true, check},
    {"diff", "CONFIG|RUN CONFIG|RUN", 2, 2, false, diff},
    {"schema", "", 0, 0, false, schema},
    {"reference", "", 0, 0, false, reference},
};

static const action *action_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(actions); i++) {
        if (strcmp(name, actions[i].name) == 0) return &actions[i];
    }
    return NULL;
}

static status action_unknown(const char *name)
{
    const char *names[COUNT_OF(actions)];
    for (int64_t i = 0; i < COUNT_OF(actions); i++) names[i] = actions[i].name;
    const char *near = text_nearest(name, names, COUNT_OF(actions));
    if (near != NULL) {
        return fail(ST_USAGE, "there is no \"config %s\"; did you mean \"config %s\"?", name, near);
    }
    return fail(ST_USAGE,
                "there is no \"config %s\"; there are show, check, diff, schema and reference",
                name);
}

static status run(cli_context *cli, const cli_call *call)
{
    const action *found = action_find(call->operands[0]);
    if (found == NULL) return action_unknown(call->operands[0]);
    const int64_t count = call->operand_count - 1;
    if (count < found->operand_min || (found->operand_max >= 0 && count > found->operand_max) ||
        (call->key_count > 0 && !found->takes_keys)) {
        return fail(ST_USAGE, "usage: trireme config %s %s", found->name, found->synopsis);
    }
    return found->run(cli, call);
}

const cli_command cli_command_config = {
    .name = "config",
    .summary = "show, check and compare configurations; list all keys",
    .synopsis = "show|check|diff|schema|reference [CONFIG|RUN ...] [key.path=value ...]",
    .about = "show: prints all values and the origin of each. check: prints all errors of each "
             "file, or ok, and starts no run. diff: prints the keys in which two runs differ, one "
             "per line, and exits with 8 if there are any (run.dir does not count). schema: prints "
             "a JSON schema for editors. reference: prints every key with its default and limits, "
             "as Markdown.",
    .examples = "  trireme config show demo/config.yaml optimizer.lr=1e-3\n"
                "  trireme config check *.yaml\n"
                "  trireme config diff demo/run other/run\n",
    .operand_min = 1,
    .operand_max = -1,
    .takes_keys = true,
    .words = "show, check, diff, schema, reference",
    .run = run,
};
