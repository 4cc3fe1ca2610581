// `stages`: runs a chain of commands from one file, and only those whose inputs have changed.
#include "cli/commands.h"
#include "cli/stages/stages.h"
#include "cli/train/signals.h"

typedef struct stages_flags {
    bool json;
} stages_flags;

#define AT(field) (int64_t) offsetof(stages_flags, field)
static const option rows[] = {
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints one JSON object for each stage instead of the lines"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static void stage_tell(cli_context *cli, const stage *s, bool is_json)
{
    char duration[32];
    if (is_json) {
        cli_print(cli,
                  "{\"stage\": \"%s\", \"kind\": \"%s\", \"skipped\": %s, \"key\": \"%s\", "
                  "\"digest\": \"%s\", \"seconds\": %.3f, \"out\": ",
                  s->name, stage_kind_name(s->kind), s->is_skipped ? "true" : "false", s->key,
                  s->digest, s->seconds);
        text out = {.a = cli->a};
        if (text_add_json(&out, s->out) == ST_OK) cli_print(cli, "%s}\n", out.bytes);
    } else {
        cli_print(cli, "%-7s  %-12s %-8s %8s  %.12s  %s\n", s->is_skipped ? "skipped" : "done",
                  s->name, stage_kind_name(s->kind), text_duration_human(s->seconds, duration),
                  s->digest, s->out);
    }
    cli_push(cli);
}

// One chain at a time works in a folder.
static status lock_take(const stages *v, file **out)
{
    char *path = NULL;
    bool taken = false;
    TRY(v->cli->h->api->path_mkdir(v->cli->h, v->dir));
    TRY(path_join(v->cli->a, v->dir, "lock", &path));
    TRY(v->cli->h->api->file_open(v->cli->h, path, FILE_APPEND, out));
    const status st = v->cli->h->api->file_lock(*out, &taken);
    if (st == ST_OK && taken) return ST_OK;
    (void)v->cli->h->api->file_close(*out);
    *out = NULL;
    return st != ST_OK ? st : fail(ST_LOCKED, "another process runs the stages in %s", v->dir);
}

static status chain_run(stages *v, const stages_flags *f)
{
    file *lock = NULL;
    char used[32];
    TRY(lock_take(v, &lock));
    status st = stages_spent_read(v);
    for (int64_t i = 0; i < v->count && st == ST_OK; i++) {
        st = stage_run(v, i);
        if (st == ST_OK) stage_tell(v->cli, &v->list[i], f->json);
    }
    (void)v->cli->h->api->file_close(lock); // nothing was written to it
    TRY(st);
    if (!f->json) {
        cli_print(v->cli, "all %lld stages are done; commands took %s in all\n",
                  (long long)v->count, text_duration_human(v->spent_s, used));
    }
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    stages *v = NULL;
    TRY(arena_new(cli->a, 1, &v));
    *v = (stages){.cli = cli};
    TRY(stages_load(cli, call->operands[0], v));
    cli_signals_begin_quiet();
    const status st = chain_run(v, call->flags);
    cli_signals_end();
    return st;
}

const cli_command cli_command_stages = {
    .name = "stages",
    .summary = "run a chain of commands from one file",
    .synopsis = "FILE [--json]",
    .about =
        "The file names stages in their order: data, train (pretrain, adapt, sft, dpo, reward, grpo), eval, "
        "gate, export. Each works in DIR/NAME-KEY, where KEY is a hash of the stage, the contents "
        "of all its files and the digests of the stages before it; a stage that is finished there "
        "is skipped. The same command continues a chain that was ended in any way, and a training "
        "stage goes on from its last checkpoint. stages.budget stops the chain after a time (2h) or "
        "a sum ($50, with stages.price) over all calls. The first stage that fails ends the chain.",
    .examples = "  trireme stages chain.yaml\n",
    .flags = &flags,
    .flags_bytes = sizeof(stages_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
