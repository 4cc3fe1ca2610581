// `inspect`: identifies any file or folder, verifies it, and compares two models.
#include "cli/commands.h"
#include "cli/inspect/inspect.h"
#include "cli/run_folder.h"

#include <string.h>

typedef struct inspect_flags {
    bool verify, json, tensors, faults, experts, repair;
    const char *diff, *from;
} inspect_flags;

#define AT(field) (int64_t) offsetof(inspect_flags, field)
static const option rows[] = {
    {.key = "verify",
     .kind = OPTION_BOOL,
     .offset = AT(verify),
     .default_text = "false",
     .help = "checks the whole contents; exit code 8 if they are damaged"},
    {.key = "repair",
     .kind = OPTION_BOOL,
     .offset = AT(repair),
     .default_text = "false",
     .help = "rebuilds damaged pieces of a checkpoint from others with the same content: next to "
             "it, in the machine's memory, on the durable tier, or in --from"},
    {.key = "from",
     .kind = OPTION_PATH,
     .offset = AT(from),
     .help = "checkpoint, or folder of checkpoints, that --repair may use too"},
    {.key = "diff",
     .kind = OPTION_TEXT,
     .offset = AT(diff),
     .help = "model, checkpoint or run to compare with; exit code 8 if they differ",
     .also = "compare"},
    {.key = "tensors",
     .kind = OPTION_BOOL,
     .offset = AT(tensors),
     .default_text = "false",
     .help = "lists every tensor, or with --diff every tensor that differs"},
    {.key = "faults",
     .kind = OPTION_BOOL,
     .offset = AT(faults),
     .default_text = "false",
     .help = "lists the ranks that a run lost, and what each loss cost"},
    {.key = "experts",
     .kind = OPTION_BOOL,
     .offset = AT(experts),
     .default_text = "false",
     .help = "draws the load of each layer's experts over the steps of a run"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints one JSON object instead of the table"},
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

static status run_check(cli_context *cli, const char *path, const char *flag)
{
    operand_kind kind;
    TRY(cli_operand_kind(cli, path, &kind));
    if (kind == OPERAND_RUN) return ST_OK;
    return fail(ST_USAGE, "%s is no run; %s reads the metrics of one", path, flag);
}

static status run(cli_context *cli, const cli_call *call)
{
    enum { SHOWN = 10 };
    const inspect_flags *f = call->flags;
    const char *path = call->operands[0];
    inspect_report *r = NULL;
    if (f->from != NULL && !f->repair) return fail(ST_USAGE, "--from belongs to --repair");
    if (f->repair) {
        if (f->verify || f->faults || f->experts || f->tensors || f->json || f->diff != NULL) {
            return fail(ST_USAGE, "--repair excludes all other flags but --from");
        }
        return inspect_repair(cli, path, f->from);
    }
    if (f->diff != NULL) {
        if (f->verify) return fail(ST_USAGE, "--verify and --diff exclude each other");
        if (f->faults) return fail(ST_USAGE, "--faults and --diff exclude each other");
        if (f->experts) return fail(ST_USAGE, "--experts and --diff exclude each other");
        const inspect_diff_options options = {.json = f->json,
                                              .shown = f->tensors ? INT64_MAX : SHOWN};
        return inspect_diff(cli, path, f->diff, &options);
    }
    if (f->faults || f->experts) {
        const char *flag = f->faults ? "--faults" : "--experts";
        if (f->verify || f->tensors || (f->faults && f->experts)) {
            return fail(ST_USAGE, "%s excludes --verify and --tensors%s", flag,
                        f->faults && f->experts ? " and --experts" : "");
        }
        TRY(run_check(cli, path, flag));
        return f->faults ? inspect_faults(cli, path, f->json) : inspect_experts(cli, path, f->json);
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
        return fail(ST_ANSWER_NO, "%s is damaged: %.*s", path, (int)strcspn(r->damage.bytes, "\n"),
                    r->damage.bytes);
    }
    if (r->checked != NULL) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: it has no contents that can be verified (%s)", path, r->kind);
}

const cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "identify and verify a file or folder, or compare two",
    .synopsis =
        "PATH [--verify] [--tensors] [--json] | RUN --faults | RUN --experts | CHECKPOINT --repair [--from OTHER] | "
        "PATH --diff OTHER",
    .about =
        "Recognizes runs, checkpoints, Hugging Face folders, safetensors, configurations, "
        "token files of all formats, tokenizers, texts and JSON lines (.gz and .zst too), "
        "metrics, TensorBoard events and Chrome traces, and names formats that it cannot read, "
        "such as GGUF and pickle. --verify reads every byte: checksums, headers, ids, lines. "
        "The exit code is 5 if the file cannot be opened. --diff compares tensor by tensor and "
        "lists the worst first.",
    .examples = "  trireme inspect demo/run --verify\n"
                "  trireme inspect model.safetensors --tensors\n"
                "  trireme inspect demo/run/checkpoints/step-0000100 --diff demo/run\n",
    .flags = &flags,
    .flags_bytes = sizeof(inspect_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
