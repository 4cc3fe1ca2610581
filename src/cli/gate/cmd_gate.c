// `gate`: whether a model may be released, by a policy that stands apart from it.
#include "cli/commands.h"
#include "cli/gate/gate.h"
#include "cli/train/signals.h"

#include <string.h>

typedef struct gate_flags {
    const char *policy, *record;
    int64_t threads;
    bool json;
} gate_flags;

#define AT(field) (int64_t) offsetof(gate_flags, field)
static const option rows[] = {
    {.key = "policy",
     .kind = OPTION_TEXT,
     .offset = AT(policy),
     .help = "file with what is demanded (required)"},
    {.key = "record",
     .kind = OPTION_TEXT,
     .offset = AT(record),
     .help =
         "file for the record; without it gate/record.json of a run, or MODEL.gate/record.json"},
    {.key = "threads",
     .kind = OPTION_INT,
     .offset = AT(threads),
     .default_text = "0",
     .max = KERN_MAX_THREADS,
     .help = "number of threads; 0 is one per core"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints the record instead of the lines"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static status opened(gate *g, const gate_flags *f, const char *operand)
{
    cli_context *cli = g->cli;
    char *folder = NULL;
    if (f->policy == NULL) return fail(ST_USAGE, "gate needs --policy FILE");
    g->operand = operand;
    g->threads = f->threads;
    g->record_path = f->record;
    cli_warn_threads(cli, f->threads);
    TRY(gate_policy_load(cli, f->policy, &g->policy));
    TRY(cli_model_find(cli, operand, &g->model));
    if (g->record_path == NULL) TRY(gate_record_place(cli, operand, &g->record_path));
    const int length = (int)(path_base_name(g->record_path) - g->record_path);
    TRY(arena_format(cli->a, &folder, "%.*s", length > 0 ? length : 1,
                     length > 0 ? g->record_path : "."));
    g->folder = folder;
    TRY(cli->h->api->path_mkdir(cli->h, folder));
    TRY(gate_hash_folder(cli, g->model.folder, g->model_hash));
    return gate_evidence(g);
}

static void checks_tell(const gate *g)
{
    cli_context *cli = g->cli;
    cli_print(cli, "model      %s  %.16s...\n", g->model.folder, g->model_hash);
    cli_print(cli, "policy     %s, version %lld  %.16s...\n", g->policy.name,
              (long long)g->policy.version, g->policy.hash);
    if (g->is_reused)
        cli_print(cli, "results    those of the record, of the same model and tasks\n");
    for (int64_t i = 0; i < g->checks.count; i++) {
        const gate_check *c = &g->checks.items[i];
        cli_print(cli, "%s %-11s%s: %s\n", c->is_passed ? "passed    " : "FAILED    ", c->kind,
                  c->what, c->found);
    }
    cli_print(cli, "record     %s\n", g->record_path);
}

static status verdict(const gate *g)
{
    int64_t failed = 0, approvals = 0;
    for (int64_t i = 0; i < g->checks.count; i++) {
        const gate_check *c = &g->checks.items[i];
        failed += c->is_passed ? 0 : 1;
        approvals += !c->is_passed && strcmp(c->kind, "approval") == 0 ? 1 : 0;
    }
    if (failed == 0) return ST_OK;
    if (failed == approvals) {
        return fail(ST_ANSWER_NO,
                    "approvals are missing: a signer signs with `ssh-keygen -Y sign -f KEY -n "
                    "trireme-gate %sstatement`, gives the .sig file a name of its own in that "
                    "folder, and the same command counts it",
                    g->folder);
    }
    return fail(ST_ANSWER_NO, "%lld of %lld checks failed", (long long)failed,
                (long long)g->checks.count);
}

static status gate_run(gate *g, const gate_flags *f, const char *operand)
{
    TRY(opened(g, f, operand));
    TRY(gate_record_reuse(g));
    if (!g->is_reused) TRY(gate_results_make(g));
    TRY(gate_checks_make(g));
    TRY(gate_approvals_check(g));
    TRY(gate_record_write(g));
    if (f->json) {
        char *bytes = NULL;
        int64_t count = 0;
        TRY(host_read_all(g->cli->h, g->cli->a, g->record_path, 1 << 26, &bytes, &count));
        cli_print(g->cli, "%s", bytes);
    } else {
        checks_tell(g);
    }
    return verdict(g);
}

static status run(cli_context *cli, const cli_call *call)
{
    gate *g = NULL;
    TRY(arena_new(cli->a, 1, &g));
    *g = (gate){.cli = cli};
    cli_signals_begin_quiet();
    const status st = gate_run(g, call->flags, call->operands[0]);
    if (st == ST_STOPPED) {
        (void)fprintf(cli->err, "stopped  %s; there is no record\n", error_last()->text);
        cli_push(cli);
        cli_signals_raise();
    }
    cli_signals_end();
    return st;
}

const cli_command cli_command_gate = {
    .name = "gate",
    .summary = "decide by a policy whether a model may be released",
    .synopsis = "RUN|CHECKPOINT|FOLDER --policy FILE [--record FILE] [--threads N] [--json]",
    .about =
        "Runs the policy's tasks on the model, compares results with bounds and with a baseline "
        "(item by item where there are items), looks for the licences of the training data in the "
        "ledgers of its corpora, and counts approvals: signatures by ssh keys of the file "
        "`statement`. The record has hashes of the model, the policy and all that the tasks read; "
        "`export --gated` asks for it. The same command again takes the results from the record "
        "where nothing has changed. The exit code is 8 where a check failed.",
    .examples =
        "  trireme gate demo/run --policy release.yaml\n"
        "  ssh-keygen -Y sign -f ~/.ssh/id_ed25519 -n trireme-gate demo/run/gate/statement\n"
        "  trireme export demo/run hf --gated\n",
    .flags = &flags,
    .flags_bytes = sizeof(gate_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
