// `simulate`: simulates a step of the trainer's own plan on a cluster that need not be present.
#include "cli/commands.h"
#include "cli/plan/simulate.h"
#include "cli/progress.h"

typedef struct simulate_flags {
    const char *cluster, *trace;
    bool json, execute;
} simulate_flags;

#define AT(field) (int64_t) offsetof(simulate_flags, field)
static const option rows[] = {
    {.key = "cluster",
     .kind = OPTION_TEXT,
     .offset = AT(cluster),
     .help = "the cluster: a name such as h100, or a YAML file"},
    {.key = "execute",
     .kind = OPTION_BOOL,
     .offset = AT(execute),
     .default_text = "false",
     .help =
         "also run the executor for these steps on devices in virtual time; exit 8 if its times "
         "differ"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "print one JSON object instead of text"},
    {.key = "trace",
     .kind = OPTION_PATH,
     .offset = AT(trace),
     .help = "also write a Chrome trace of the virtual step to this file"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static status trace_write(cli_context *cli, const predict_step *x, const char *path)
{
    text t = {.a = cli->a};
    TRY(sim_trace_print(x->ranks, x->step, &t));
    return host_write_all(cli->h, path, t.bytes, t.length);
}

// long_run: NULL without one; `in`: its input.
static status text_print(cli_context *cli, const simulate_request *w, const predict_step *x,
                         const sim_long_run_result *long_run, const sim_long_run_input *in, text *t)
{
    TRY(simulate_print_text(cli->a, x, t));
    TRY(simulate_print_published(cli, w, x, long_run, t));
    TRY(simulate_print_assumed(cli, w, x, long_run, t));
    if (long_run == NULL) return ST_OK;
    TRY(text_add(t, "\n"));
    if (x->fits) return sim_long_run_print(in, long_run, t);
    return text_add(t, "time      no days and no cost are printed of a run that does not fit\n");
}

static status run(cli_context *cli, const cli_call *call)
{
    const simulate_flags *f = call->flags;
    predict_setup *s = NULL;
    predict_step *x = NULL;
    sim_long_run_input in;
    sim_long_run_result long_run;
    sim_executed done;
    cli_progress *progress = NULL;
    text t = {.a = cli->a};
    simulate_request w = {.operand = call->operands[0],
                          .cluster = f->cluster,
                          .keys = call->keys,
                          .key_count = call->key_count};
    TRY(simulate_named(cli, &w));
    TRY(arena_new(cli->a, 1, &s));
    TRY(arena_new(cli->a, 1, &x));
    TRY(simulate_open(cli, w.operand, w.cluster, w.keys, w.key_count, false, s));
    TRY(simulate_keys_check(cli, call->keys, call->key_count, s, run_config_ranks(s->r)));
    cli_progress_begin(cli, "simulating a step", &progress);
    // A trace has every action, and the executor runs the plans; the figures need less.
    const bool whole = f->execute || f->trace != NULL;
    status st = whole ? predict_step_make(cli->a, s, x) : predict_step_show(cli->a, s, x);
    if (st == ST_OK && s->has_length) st = predict_long_run(cli->a, x, &in, &long_run);
    if (st == ST_OK && f->execute) st = predict_step_execute(cli->a, x, &done);
    cli_progress_end(progress);
    TRY(st);
    if (f->json) {
        TRY(simulate_print_json(cli->a, x, &w, s->has_length ? &long_run : NULL, &t));
    } else {
        TRY(text_print(cli, &w, x, s->has_length ? &long_run : NULL, &in, &t));
    }
    cli_print_text(cli, &t);
    if (f->execute && !f->json) {
        cli_print(cli,
                  "\nexecuted  %lld kernels in virtual time, one rank per stage: equal to the ns\n",
                  (long long)done.calls);
    }
    if (f->trace == NULL) return ST_OK;
    TRY(trace_write(cli, x, f->trace));
    if (!f->json) cli_print(cli, "\ntrace     %s\n", f->trace);
    return ST_OK;
}

const cli_command cli_command_simulate = {
    .name = "simulate",
    .summary = "predict the speed and memory of a run on any cluster",
    .synopsis = "CONFIG|PRESET|FOLDER|RUN --cluster NAME|FILE [--json] [--trace FILE] [--execute] "
                "[key.path=value ...]",
    .about =
        "Makes the plans that `trireme train` would execute, prices every action for the cluster "
        "and simulates a step in virtual time: step time, tokens/s, MFU and HFU, pipeline bubble, "
        "exposed collectives, bytes of the fullest rank. With train.tokens or train.steps it also "
        "simulates the whole run with its failures: days, cost, energy, goodput. CONFIG is a run file, "
        "PRESET a model by name (with bf16 and about four million tokens per step), FOLDER holds a "
        "Hugging Face config.json. RUN is a run of the catalogue (trireme explain catalog), which supplies its own "
        "cluster and settings: `simulate llama3.1-405b` simulates Meta's run, with --cluster the model. "
        "cluster.devices=N determines layout.dp if that is not given. layout=auto takes the layout that "
        "`plan` finds fastest, and train.micro_batch=auto the fastest micro-batch of a given layout. Other "
        "cluster.* keys change the cluster's figures, profile.* keys those of the software's profile. "
        "The output says whether the run fits; one that does not fit is no error.",
    .examples = "  trireme simulate bloom-176b\n"
                "  trireme simulate llama3.1-405b --cluster h100 cluster.devices=16384 layout.tp=8 "
                "layout.pp=16\n"
                "  trireme simulate demo/config.yaml --cluster a100-80 --json layout.dp=8 "
                "layout.zero=1\n",
    .flags = &flags,
    .flags_bytes = sizeof(simulate_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
