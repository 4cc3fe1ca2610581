// `inspect`: what any file or folder is, whether it is whole, and how two models differ.
#include "cli/commands.h"
#include "cli/inspect/inspect.h"

#include <string.h>

typedef struct inspect_flags {
    bool verify, json, tensors;
    const char *diff;
} inspect_flags;

#define AT(field) (int64_t) offsetof(inspect_flags, field)
static const option rows[] = {
    {.key = "verify",
     .kind = OPTION_BOOL,
     .offset = AT(verify),
     .default_text = "false",
     .help = "check all that can be checked; exit code 8 if something is damaged"},
    {.key = "diff",
     .kind = OPTION_TEXT,
     .offset = AT(diff),
     .help = "compare with this model, checkpoint or run; exit code 8 if they differ",
     .also = "compare"},
    {.key = "tensors",
     .kind = OPTION_BOOL,
     .offset = AT(tensors),
     .default_text = "false",
     .help = "list every tensor, or with --diff every one that differs"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "one JSON object instead of the table"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static status look(cli_context *cli, const char *path, const inspect_flags *f, inspect_report *r)
{
    inspect_probe *p = NULL;
    TRY(arena_new(cli->a, 1, &p));
    TRY(inspect_probe_make(cli, path, p));
    const inspect_kind *kind = inspect_kind_of(p);
    *r = (inspect_report){.cli = cli,
                          .path = p->path,
                          .kind = kind->name,
                          .verifies = f->verify,
                          .lists = f->tensors};
    return kind->look(r, p);
}

static status run(cli_context *cli, const cli_call *call)
{
    enum { SHOWN = 10 };
    const inspect_flags *f = call->flags;
    const char *path = call->operands[0];
    inspect_report *r = NULL;
    if (f->diff != NULL) {
        if (f->verify) return fail(ST_USAGE, "--verify and --diff are two questions; ask one");
        const inspect_diff_options options = {.json = f->json,
                                              .shown = f->tensors ? INT64_MAX : SHOWN};
        return inspect_diff(cli, path, f->diff, &options);
    }
    TRY(arena_new(cli->a, 1, &r));
    TRY(look(cli, path, f, r));
    if (f->json) {
        text t = {.a = cli->a};
        TRY(inspect_add_json(r, &t));
        TRY(text_add(&t, "\n"));
        cli_print_text(cli, &t);
    } else {
        inspect_print(r);
    }
    if (!f->verify) return ST_OK;
    if (r->damage_count > 0) {
        return fail(ST_ANSWER_NO, "%s is not right: %.*s", path,
                    (int)strcspn(r->damage.bytes, "\n"), r->damage.bytes);
    }
    if (r->checked != NULL) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: there is nothing in it that can be verified (%s)", path,
                r->kind);
}

const cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "say what a file or folder is, verify it, compare two",
    .synopsis = "PATH [--verify] [--tensors] [--json] | PATH --diff OTHER",
    .about =
        "Knows runs, checkpoints, Hugging Face folders, safetensors, configurations, token files "
        "of all dialects, tokenizers, texts and JSON lines (.gz and .zst too), metrics, "
        "TensorBoard events and Chrome traces; formats that cannot be read, such as GGUF and "
        "pickle, are named. --verify reads every byte: checksums, headers, ids, lines. Exit code 5 "
        "if it cannot even be opened. --diff goes tensor by tensor, worst first.",
    .examples = "  trireme inspect demo/run --verify\n"
                "  trireme inspect model.safetensors --tensors\n"
                "  trireme inspect demo/run/checkpoints/step-0000100 --diff demo/run\n",
    .flags = &flags,
    .flags_bytes = sizeof(inspect_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
