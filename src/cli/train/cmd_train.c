// `train`: trains from a configuration, or continues a stopped run, to the last step.
#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/gpus.h"
#include "cli/plan/plan.h"
#include "cli/run_folder.h"
#include "cli/train/adapters.h"
#include "cli/train/live.h"
#include "cli/train/ranks.h"
#include "cli/train/restart.h"
#include "cli/train/run_log.h"
#include "cli/train/signals.h"
#include "train/dry_run.h"
#include "train/folder.h"

#include <stdlib.h>
#include <string.h>

typedef struct train_flags {
    const char *resume;
    bool fresh, join, dry_run, quiet;
} train_flags;

#define AT(field) (int64_t) offsetof(train_flags, field)
static const option rows[] = {
    {.key = "resume",
     .kind = OPTION_TEXT,
     .offset = AT(resume),
     .default_text = "auto",
     .help = "start of the run: auto continues from the run's newest checkpoint if there is one, "
             "none starts from the beginning; or a checkpoint, by its path or by its name in the "
             "run"},
    {.key = "fresh",
     .kind = OPTION_BOOL,
     .offset = AT(fresh),
     .default_text = "false",
     .help = "starts the run anew in an empty folder: the earlier run's folder is renamed to "
             "RUN.before-1 and kept"},
    {.key = "join",
     .kind = OPTION_BOOL,
     .offset = AT(join),
     .default_text = "false",
     .help = "joins the run, which goes on elsewhere on this machine with resilience.mode=live, as "
             "one more rank; on several hosts: becomes the launcher of a host that was lost"},
    {.key = "dry-run",
     .kind = OPTION_BOOL,
     .offset = AT(dry_run),
     .default_text = "false",
     .help =
         "checks configuration, memory, data and folder, runs one step on random tokens and stops"},
    {.key = "quiet",
     .kind = OPTION_BOOL,
     .offset = AT(quiet),
     .default_text = "false",
     .help = "prints only warnings and errors; the run's files have all messages"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct source {
    const char *yaml_path;
    const char *config_text; // the text as given; NULL if the run has it already
    const char **keys;
    int64_t key_count;
    const char **found; // keys that the planner found; started ranks get them too
    int64_t found_count;
} source;

// A run is its resolved configuration with the folder's present path. The user's keys come later
// and win.
static status source_of_run(cli_context *cli, const char *path, source *s)
{
    char *yaml = NULL, *key = NULL;
    bool has = false;
    TRY(path_join(cli->a, path, "config.resolved.yaml", &yaml));
    TRY(cli_has_file(cli, path, "config.resolved.yaml", &has));
    if (!has) {
        return fail(ST_NOT_FOUND,
                    "%s is a run that has lost its config.resolved.yaml; train with the "
                    "configuration that it was started with",
                    path);
    }
    TRY(arena_format(cli->a, &key, "run.dir=%s", path));
    s->yaml_path = yaml;
    s->keys[s->key_count++] = key;
    return ST_OK;
}

enum { CONFIG_LIMIT_BYTES = 1 << 22 };

// A run that starts anew gets the text that the earlier one was given, which moves away with it.
static status text_keep(cli_context *cli, const char *run, source *s)
{
    char *path = NULL, *given = NULL;
    int64_t bytes = 0;
    bool has = false;
    TRY(cli_has_file(cli, run, "config.yaml", &has));
    if (!has) return ST_OK;
    TRY(path_join(cli->a, run, "config.yaml", &path));
    TRY(host_read_all(cli->h, cli->a, path, CONFIG_LIMIT_BYTES, &given, &bytes));
    s->config_text = given;
    return ST_OK;
}

static status source_find(cli_context *cli, const cli_call *call, source *s)
{
    const train_flags *f = call->flags;
    const char *path = call->operands[0];
    char *given = NULL;
    int64_t bytes = 0;
    bool is_run = false, is_folder = false;
    file_info info;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND, "%s does not exist; trireme init DIR makes a configuration",
                    path);
    }
    is_folder = info.kind == FILE_KIND_FOLDER;
    TRY(arena_new(cli->a, call->key_count + 1, &s->keys));
    if (is_folder) TRY(cli_has_file(cli, path, "run.json", &is_run));
    if (is_run) {
        TRY(source_of_run(cli, path, s));
    } else if (is_folder) { // a folder made by `init`
        bool has = false;
        TRY(cli_has_file(cli, path, "config.yaml", &has));
        if (!has) {
            return fail(ST_NOT_FOUND, "%s holds neither a run (run.json) nor a config.yaml", path);
        }
        char *yaml = NULL;
        TRY(path_join(cli->a, path, "config.yaml", &yaml));
        s->yaml_path = yaml;
    } else {
        s->yaml_path = path;
    }
    for (int64_t i = 0; i < call->key_count; i++) s->keys[s->key_count++] = call->keys[i];
    if (is_run) return f->fresh ? text_keep(cli, path, s) : ST_OK;
    TRY(host_read_all(cli->h, cli->a, s->yaml_path, CONFIG_LIMIT_BYTES, &given, &bytes));
    s->config_text = given;
    return ST_OK;
}

static status head_print(cli_context *cli, const run_config *r)
{
    text t = {.a = cli->a};
    TRY(run_log_print_head(r->run.dir, &t));
    cli_print_text(cli, &t);
    cli_push(cli);
    return ST_OK;
}

static void warnings_print(cli_context *cli, char *lines)
{
    for (char *line = lines; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        cli_print(cli, "warning  %s\n", line);
        line = end == NULL ? NULL : end + 1;
    }
}

// The step of the checkpoint that this command would continue; 0: it would begin anew.
static status resumed_step(cli_context *cli, const train_flags *f, const run_config *r,
                           int64_t *out)
{
    char *folder = NULL, *newest = NULL;
    *out = 0;
    if (f->fresh || strcmp(f->resume, "auto") != 0) return ST_OK;
    TRY(path_join(cli->a, r->run.dir, "checkpoints", &folder));
    TRY(ckpt_newest(cli->h, cli->a, folder, &newest, out));
    *out = max_i64(*out, 0);
    return ST_OK;
}

// A checkpoint that --resume names must be there before the run is given hours of a machine.
static status resume_check(cli_context *cli, const train_flags *f, const run_config *r)
{
    char *folder = NULL, *path = NULL;
    ckpt_folder named, given;
    if (strcmp(f->resume, "auto") == 0 || strcmp(f->resume, "none") == 0) return ST_OK;
    TRY(path_join(cli->a, r->run.dir, "checkpoints", &folder));
    TRY(path_join(cli->a, folder, f->resume, &path));
    TRY(ckpt_folder_look(cli->h, cli->a, path, &named));
    TRY(ckpt_folder_look(cli->h, cli->a, f->resume, &given));
    if (named == CKPT_FOLDER_COMPLETE || given == CKPT_FOLDER_COMPLETE) return ST_OK;
    return fail(ST_NOT_FOUND, "--resume %s: no checkpoint of %s, and no folder of one", f->resume,
                r->run.dir);
}

static status dry_run(cli_context *cli, const train_flags *f, const run_config *r, const config *c)
{
    train_start start;
    double step_s = 0.0;
    int64_t resumed = 0;
    char whole[32], *warnings = NULL;
    text t = {.a = cli->a};
    TRY(resume_check(cli, f, r));
    if (!f->quiet) TRY(head_print(cli, r));
    TRY(train_dry_run(cli->h, cli->a, r, c, &start, &step_s));
    TRY(resumed_step(cli, f, r, &resumed));
    start.resumed = resumed > 0;
    start.first_step = resumed + 1;
    TRY(run_log_print_start(&start, &t));
    if (!f->quiet) cli_print_text(cli, &t);
    if (start.warnings != NULL) TRY(arena_strdup(cli->a, start.warnings, &warnings));
    warnings_print(cli, warnings);
    if (f->quiet) return ST_OK;
    const bool alone = run_config_ranks(r) > 1;
    cli_print(cli, "dry run  one step on random tokens took %.3g s%s; no weights were trained\n",
              step_s, alone ? " on one rank alone" : "");
    const int64_t left = start.config->train.steps - resumed;
    if (left <= 0) {
        cli_print(cli,
                  "         the run has all its %lld steps (train.steps): nothing would be "
                  "trained\n",
                  (long long)resumed);
        return ST_OK;
    }
    cli_print(cli,
              "         %s %lld step%s would take about %s, without evaluations "
              "and checkpoints%s\n",
              resumed > 0 ? "the remaining" : "the whole run of", (long long)left,
              text_plural(left, "s"), text_duration_human(step_s * (double)left, whole),
              alone ? " and without the time of ranks for each other" : "");
    return ST_OK;
}

static void end_write(cli_context *cli, const run_config *r, train_end_writer who, status st)
{
    train_end_write(cli->h, cli->a, r->run.dir, who, st == ST_STOPPED ? "stopped" : "failed",
                    status_exit_code(st), error_last()->text);
}

// Rank 0 may be stopped rather than dead. A launcher of this program ends it and then writes
// STATUS; under another's the ranks that are left write it, after they have told each other.
static void held_write(cli_context *cli, const run_config *r, const char *first, status st)
{
    if (first == NULL || st == ST_OK || st == ST_STOPPED) return;
    train_end_write_held(cli->h, cli->a, r->run.dir, first, status_exit_code(st),
                         error_last()->text);
}

// A plan of base/fault.h for every process of the run, for tests.
static const char faults_variable[] = "TRIREME_FAULTS";
static const char console_variable[] = "TRIREME_CONSOLE"; // number of columns

// Rank 0 writes to a terminal through the process that started it, which gives it the terminal's
// width.
static status console_find(cli_context *cli, const launch_place *place)
{
    const char *value = getenv(console_variable);
    int64_t columns = 0;
    const bool ours = strcmp(place->launcher, "trireme") == 0;
    if (ours && place->rank == 0 && value != NULL && text_parse_i64(value, &columns)) {
        cli->columns = (int)max_i64(20, min_i64(columns, 1000));
        cli->live = true;
    }
    if (ours) return ST_OK;
    (void)unsetenv(console_variable); // set by an outer process
    if (!cli->live) return ST_OK;
    char *digits = NULL;
    TRY(arena_format(cli->a, &digits, "%d", cli->columns));
    return setenv(console_variable, digits, 1) == 0 ? ST_OK : fail(ST_NO_MEMORY, "no memory");
}

// Trains as one process, or as one rank of several.
typedef struct training {
    cli_context *cli;
    source *s;
    const train_flags *f;
    const run_config *r;
    const config *c;
    train_process *process; // what it keeps between epochs; NULL: it has one
} training;

// The error of the session stays.
static void blame(cli_context *cli, const train_restart *restart, int64_t wrong)
{
    error_record kept;
    if (restart->memory == NULL || wrong < 0) return;
    error_take(&kept);
    if (cli_restart_blame(cli->h, cli->a, restart->memory, wrong) != ST_OK) error_clear();
    (void)error_put(&kept);
}

static status train(const training *t, const launch_place *place, train_outcome *out)
{
    cli_context *cli = t->cli;
    const train_flags *f = t->f;
    const run_config *r = t->r;
    run_log *log = NULL;
    cli_ranks *ranks = NULL;
    train_outcome outcome = {.wrong = -1};
    train_restart restart;
    bool restarts = false;
    const bool ours = strcmp(place->launcher, "trireme") == 0;
    const bool quiet = f->quiet || (place->rank > 0 && !ours);
    if (ours) TRY(cli_restart_read(cli->a, &restart, &restarts));
    restart.process = t->process;
    if (!ours && r->resilience.mode != RUN_RESILIENCE_OFF) {
        return fail(
            ST_UNSUPPORTED,
            "resilience.mode = restart starts ranks again that this program has started itself; "
            "under %s take live, which also needs several processes, or let %s restart the job",
            place->launcher, place->launcher);
    }
    TRY(run_log_create(cli, r, quiet, place->rank, ours, &log));
    train_watcher watcher = run_log_watcher(log);
    if (place->post_fd < 0) cli_signals_begin();
    status st = ST_OK;
    if (place->ranks > 1 || ours) {
        st = cli_ranks_join(cli, r, NULL, place, &ranks);
        watcher.progress = cli_ranks_progress;
        watcher.progress_context = ranks;
        if (place->post_fd >= 0) watcher.change_asked = cli_ranks_change_asked;
    }
    if (st == ST_OK) {
        comm *all = ranks != NULL ? cli_ranks_comm(ranks) : NULL;
        const train_order order = {
            .r = r,
            .c = t->c,
            .config_text = t->s->config_text,
            .resume = restarts && restart.epoch > 0 ? "auto" : f->resume,
            .ranks = all,
            .watcher = &watcher,
            .restart = restarts ? &restart : NULL,
        };
        st = train_run(cli->h, cli->a, &order, &outcome);
        if (restarts && place->post_fd < 0) blame(cli, &restart, outcome.wrong);
    } else if (place->rank == 0) {
        end_write(cli, r, TRAIN_END_WRITER_FIRST, st);
    }
    // Rank 0 may have been killed.
    if (place->rank > 0 && st != ST_OK) end_write(cli, r, TRAIN_END_WRITER_OTHER, st);
    char *first = NULL;
    if (!ours && place->rank > 0 && cli_ranks_first(ranks, cli->a, &first) != ST_OK) first = NULL;
    cli_ranks_leave(ranks, st);
    held_write(cli, r, first, st);
    run_log_end(log, st, &outcome);
    if (!ours && place->rank > 0 && st == ST_STOPPED) error_clear(); // rank 0 tells it
    if (place->post_fd < 0) cli_signals_end();
    if (out != NULL) *out = outcome;
    return st;
}

static status epoch_load(training *t, const char *const *keys, int64_t count)
{
    const int64_t own = t->s->key_count;
    const char **all = NULL;
    run_config *r = NULL;
    config *c = NULL;
    TRY(arena_new(t->cli->a, own + count + 1, &all));
    TRY(arena_new(t->cli->a, 1, &r));
    for (int64_t i = 0; i < own; i++) all[i] = t->s->keys[i];
    for (int64_t i = 0; i < count; i++) all[own + i] = keys[i];
    TRY(run_config_load(t->cli->h, t->cli->a, t->s->yaml_path, all, own + count, r, &c));
    t->r = r;
    t->c = c;
    return ST_OK;
}

static bool place_asked(void *context)
{
    return launch_post_has_news(*(const int *)context);
}

// A spare of resilience.mode = live: prepares for a place, and says so.
static status train_spare_run(void *context, const char *const *keys, int64_t count, int post_fd,
                              train_process *process)
{
    training t = *(const training *)context;
    train_spare ready;
    TRY(epoch_load(&t, keys, count));
    TRY(train_spare_prepare(t.cli->h, t.cli->a, t.r, process, place_asked, &post_fd, &ready));
    launch_post_spare(post_fd, ready.bytes, ready.places);
    return ST_OK;
}

// A rank of resilience.mode = live, in one epoch: trains with these keys added.
static status train_epoch(void *context, const char *const *keys, int64_t count,
                          const launch_place *place, train_process *process, train_outcome *out)
{
    training t = *(const training *)context;
    TRY(epoch_load(&t, keys, count));
    t.process = process;
    TRY(console_find(t.cli, place));
    return train(&t, place, out);
}

// Reads the keys as they are written.
static status source_read(cli_context *cli, const source *s, run_config **out)
{
    run_config *r = NULL;
    config *c = NULL;
    TRY(arena_new(cli->a, 1, &r));
    TRY(config_load(cli->h, cli->a, &run_config_table, s->yaml_path, s->keys, s->key_count, r, &c));
    *out = r;
    return ST_OK;
}

// Handles layout: auto.
static status layout_find(cli_context *cli, const launch_place *started, const run_config *r,
                          source *s)
{
    const int64_t given = s->key_count;
    if (r->layout.mode != RUN_LAYOUT_AUTO) return ST_OK;
    TRY(plan_auto(cli, s->yaml_path, s->keys, given, started, &s->keys, &s->key_count));
    s->found = s->keys + given;
    s->found_count = s->key_count - given;
    return ST_OK;
}

// Says which layout the planner took; the ranks that this process starts do not repeat it.
static status layout_tell(cli_context *cli, const source *s, const launch_place *place,
                          const run_config *r)
{
    text layout = {.a = cli->a}, keys = {.a = cli->a};
    if (s->found_count == 0 || place->rank > 0) return ST_OK;
    TRY(run_config_print_layout(r, &layout));
    for (int64_t i = 0; i < s->found_count; i++) TRY(text_add(&keys, " %s", s->found[i]));
    cli_print(cli, "note     layout: auto took %s, as do%s\n",
              run_config_ranks(r) > 1 ? layout.bytes : "one rank", keys.bytes);
    return ST_OK;
}

// Handles train.micro_batch: auto.
static status micro_batch_find(cli_context *cli, const launch_place *started, run_config *r,
                               source *s)
{
    if (!r->train.micro_batch_planned) return ST_OK;
    TRY(plan_micro_batch_here(cli, started, r));
    TRY(arena_new(cli->a, PLAN_MEMORY_KEYS, &s->found));
    return plan_memory_keys(cli->a, r, s->found, &s->found_count);
}

// Moves the folder of an earlier run away, before anything is written in the new one. Ranks that
// another process has started find it done.
static status fresh_make(cli_context *cli, const train_flags *f, const run_config *r,
                         const launch_place *place)
{
    char *to = NULL;
    if (!f->fresh || strcmp(place->launcher, "trireme") == 0) return ST_OK;
    if (strcmp(f->resume, "auto") != 0) {
        return fail(ST_USAGE,
                    "--fresh begins with an empty folder, so --resume %s has no effect; "
                    "leave one of them out",
                    f->resume);
    }
    if (place->ranks > 1) {
        return fail(ST_UNSUPPORTED,
                    "--fresh moves a folder that %d ranks would open at once; move %s yourself, or "
                    "give another run.dir",
                    place->ranks, r->run.dir);
    }
    if (f->dry_run) return ST_OK;
    TRY(cli_restart_forget(cli, r->run.dir));
    TRY(train_folder_move_away(cli->h, cli->a, r->run.dir, &to));
    if (to != NULL && !f->quiet) cli_print(cli, "note     the earlier run is kept in %s\n", to);
    return ST_OK;
}

// Trains several adapters.
static status adapters_train(cli_context *cli, const train_flags *f, const source *s,
                             const launch_place *place, const run_config *r)
{
    if (f->fresh || f->dry_run) {
        return fail(ST_UNSUPPORTED,
                    "--fresh and --dry-run are for one run; adapter.files has several");
    }
    const cli_adapters_order order = {.yaml_path = s->yaml_path,
                                      .config_text = s->config_text,
                                      .resume = f->resume,
                                      .keys = s->keys,
                                      .key_count = s->key_count,
                                      .quiet = f->quiet,
                                      .place = place};
    return cli_adapters_train(cli, &order, r);
}

// Shows the driver the GPUs that Slurm gave to this process.
static status gpus_show(cli_context *cli, const train_flags *f, const run_config *r,
                        const launch_place *place)
{
    const char *said = NULL;
    if (r->kernels.device != RUN_DEVICE_CUDA) return ST_OK;
    const bool reach = r->comm.transport == RUN_TRANSPORT_PEER;
    TRY(cli_gpus_show(cli, reach ? place->local_ranks : 0, &said));
    const bool tells = said != NULL && !f->quiet && r->log.format != RUN_LOG_JSON;
    if (tells) cli_print(cli, "note     %s\n", said);
    return ST_OK;
}

// The process gets the run's own configuration.
static status join(cli_context *cli, const cli_call *call)
{
    const train_flags *f = call->flags;
    if (call->key_count > 0 || f->dry_run || f->fresh || strcmp(f->resume, "auto") != 0) {
        return fail(ST_USAGE, "--join takes the running job's configuration and state, so keys, "
                              "--resume, --fresh and --dry-run have no effect; leave them out");
    }
    return cli_live_join(cli, call->operands[0]);
}

static status run(cli_context *cli, const cli_call *call)
{
    const train_flags *f = call->flags;
    source s = {0};
    run_config *written = NULL, *r = NULL;
    config *c = NULL;
    launch_place place;
    if (f->join) return join(cli, call);
    TRY(source_find(cli, call, &s));
    TRY(cli_ranks_place(&place));
    if (getenv(faults_variable) != NULL) TRY(fault_arm(getenv(faults_variable)));
    training t = {.cli = cli, .s = &s, .f = f};
    if (place.post_fd >= 0) return cli_live_rank(cli, &place, train_epoch, train_spare_run, &t);
    TRY(source_read(cli, &s, &written));
    TRY(gpus_show(cli, f, written, &place));
    if (written->adapter.files.count > 0) return adapters_train(cli, f, &s, &place, written);
    const launch_place *started = place.ranks > 1 ? &place : NULL;
    TRY(layout_find(cli, started, written, &s));
    TRY(arena_new(cli->a, 1, &r));
    TRY(run_config_load(cli->h, cli->a, s.yaml_path, s.keys, s.key_count, r, &c));
    if (!f->quiet && r->log.format != RUN_LOG_JSON) TRY(layout_tell(cli, &s, &place, r));
    TRY(micro_batch_find(cli, started, r, &s));
    TRY(fresh_make(cli, f, r, &place));
    if (f->dry_run) return dry_run(cli, f, r, c);
    TRY(console_find(cli, &place));
    if (place.note[0] != '\0') cli_print(cli, "note     %s\n", place.note);
    if (r->dropped != NULL && place.ranks == 1) {
        cli_print(cli, "note     keys of a removed axis, which returned to their defaults: %s\n",
                  r->dropped);
    }
    const bool is_alone = strcmp(place.launcher, "none") == 0;
    const bool on_hosts = r->resilience.mode == RUN_RESILIENCE_LIVE && !is_alone && place.ranks > 1;
    const bool restarts = r->resilience.mode != RUN_RESILIENCE_OFF && is_alone;
    if ((run_config_ranks(r) > 1 && place.ranks == 1) || restarts || on_hosts) {
        const bool tells = !f->quiet && r->log.format != RUN_LOG_JSON && place.rank <= 0;
        if (tells) TRY(head_print(cli, r));
        const cli_start order = {.r = r,
                                 .yaml = s.yaml_path,
                                 .keys = s.keys,
                                 .key_count = s.key_count,
                                 .found = s.found,
                                 .found_count = s.found_count,
                                 .place = on_hosts ? &place : NULL};
        return cli_ranks_start(cli, &order);
    }
    t.r = r;
    t.c = c;
    return train(&t, &place, NULL);
}

const cli_command cli_command_train = {
    .name = "train",
    .summary = "train a model, or continue a run",
    .synopsis = "CONFIG|RUN [--resume auto|PATH|none] [--fresh] [--join] [--dry-run] [--quiet] "
                "[key.path=value ...]",
    .about =
        "The same command again continues the run in run.dir; so does `trireme train RUN`. On "
        "INT (Ctrl-C), TERM, USR1, USR2, XCPU or HUP the run finishes the step, saves and exits "
        "with 75; a second INT quits at once. `trireme config reference` lists all keys, `trireme help "
        "KEY` explains one.\n\n"
        "layout.dp, tp, pp and cp give the number of ranks, which the command starts on this "
        "machine. Under "
        "torchrun, srun or mpirun each process finds its place in the environment; TRIREME_KEY "
        "names a file of 32 bytes, "
        "mode 0600, that proves that a rank belongs to the job. With resilience.mode=live start "
        "one process on each host: it starts its part of the ranks; one that was lost comes back with "
        "the same command, or with --join.",
    .examples = "  trireme train demo/config.yaml\n"
                "  trireme train demo/config.yaml train.steps=2000 optimizer.lr=1e-3\n"
                "  trireme train demo/run\n"
                "  trireme train demo/config.yaml layout.dp=2 layout.zero=1\n",
    .flags = &flags,
    .flags_bytes = sizeof(train_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
