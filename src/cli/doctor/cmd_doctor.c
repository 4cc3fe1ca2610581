// `doctor`: checks this machine and shows the cost of missing features. It changes no setting and
// removes the file that it writes to test the disk.
#include "cli/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/wrap.h"

typedef struct doctor_flags {
    bool json;
} doctor_flags;

static const option rows[] = {
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = (int64_t)offsetof(doctor_flags, json),
     .default_text = "false",
     .help = "prints one JSON object instead of the table"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static const struct {
    const char *name;
    status (*look)(const doctor *d, doctor_finding *f);
} checks[] = {
    {"cpu", doctor_cpu},       {"oneDNN", doctor_onednn},       {"memory", doctor_memory},
    {"cuda", doctor_cuda},     {"storage", doctor_storage},     {"network", doctor_network},
    {"comm", doctor_comm},     {"launchers", doctor_launchers}, {"clock", doctor_clock},
    {"limits", doctor_limits}, {"tools", doctor_tools},
};
static const char *const level_names[] = {"ok", "warn", "fail"};

static status print_line(cli_context *cli, const char *name, const doctor_finding *f)
{
    enum { INDENT = 17 };
    text t = {.a = cli->a};
    TRY(text_add(&t, "%-4s  %-9s  ", level_names[f->level], name));
    TRY(wrap_sentences(&t, f->found, INDENT, cli->columns));
    if (f->cost != NULL) {
        TRY(text_add(&t, "\n%*s", INDENT, ""));
        TRY(wrap_sentences(&t, f->cost, INDENT, cli->columns));
    }
    TRY(text_add(&t, "\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

static status add_json(text *t, const char *name, const doctor_finding *f)
{
    TRY(text_add(t, "  {\"name\": \"%s\", \"level\": \"%s\", \"found\": ", name,
                 level_names[f->level]));
    TRY(text_add_json(t, f->found));
    TRY(text_add(t, ", \"cost\": "));
    TRY(f->cost == NULL ? text_add(t, "null") : text_add_json(t, f->cost));
    return text_add(t, "}");
}

static status print_all(cli_context *cli, const doctor_finding *findings, const int64_t counts[3],
                        bool json)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"checks\": [\n"));
    for (int64_t i = 0; i < COUNT_OF(checks); i++) {
        if (!json) TRY(print_line(cli, checks[i].name, &findings[i]));
        TRY(add_json(&t, checks[i].name, &findings[i]));
        TRY(text_add(&t, i + 1 < COUNT_OF(checks) ? ",\n" : "\n"));
    }
    TRY(text_add(&t, " ], \"ok\": %lld, \"warn\": %lld, \"fail\": %lld}\n",
                 (long long)counts[DOCTOR_OK], (long long)counts[DOCTOR_WARN],
                 (long long)counts[DOCTOR_FAIL]));
    if (json) {
        cli_print_text(cli, &t);
    } else {
        cli_print(cli, "summary  %lld ok, %lld warn, %lld fail\n", (long long)counts[DOCTOR_OK],
                  (long long)counts[DOCTOR_WARN], (long long)counts[DOCTOR_FAIL]);
    }
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const doctor_flags *f = call->flags;
    const doctor d = {.cli = cli, .folder = call->operand_count > 0 ? call->operands[0] : "."};
    doctor_finding *findings = NULL;
    int64_t counts[3] = {0};
    const char *failed = NULL;
    TRY(arena_new(cli->a, COUNT_OF(checks), &findings));
    for (int64_t i = 0; i < COUNT_OF(checks); i++) {
        TRY(checks[i].look(&d, &findings[i]));
        counts[findings[i].level]++;
        if (findings[i].level == DOCTOR_FAIL && failed == NULL) failed = checks[i].name;
    }
    TRY(print_all(cli, findings, counts, f->json));
    if (failed == NULL) return ST_OK;
    return fail(ST_IO, "this machine cannot run training: %s failed%s", failed,
                counts[DOCTOR_FAIL] > 1 ? ", and more" : "");
}

const cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "check this machine for runs, and show the cost of what is missing",
    .synopsis = "[DIR] [--json]",
    .about = "Checks the processor (a product with known bits), oneDNN, memory (patterns that it "
             "must keep), CUDA, storage (of DIR or the current folder, "
             "where it writes and removes a small file), the loopback network, communication "
             "between ranks (two ranks add 1 MiB), launchers, clock, limits and tools. The exit "
             "code is 4 if a run is impossible; warnings do not count.",
    .examples = "  trireme doctor\n"
                "  trireme doctor /scratch/runs --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(doctor_flags),
    .operand_min = 0,
    .operand_max = 1,
    .run = run,
};
