// `chaos`: trains under faults, and reports what they cost.
#include "checkpoint/checkpoint.h"
#include "cli/chaos/chaos.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "cli/train/live.h"
#include "config/run_config.h"
#include "observe/observe.h"

#include <stdlib.h>
#include <string.h>

typedef struct chaos_flags {
    const char *faults, *schedule, *against;
    int64_t every, seconds; // ns
    int64_t seed;
    bool json;
} chaos_flags;

#define AT(field) (int64_t) offsetof(chaos_flags, field)
static const option rows[] = {
    {.key = "faults",
     .kind = OPTION_TEXT,
     .offset = AT(faults),
     .default_text = "kill",
     .help =
         "kinds of faults, with commas between them: kill, stop, pause, slow, flip, flip_weight, "
         "flip_moment, flip_gradient, cut, diskfull, host"},
    {.key = "every",
     .kind = OPTION_TIME,
     .offset = AT(every),
     .default_text = "15s",
     .min = 5e7,
     .max = 1e15,
     .help = "mean time between two faults"},
    {.key = "seconds",
     .kind = OPTION_TIME,
     .offset = AT(seconds),
     .default_text = "60s",
     .min = 5e7,
     .max = 1e16,
     .unit = "seconds",
     .help = "time after which no more faults come; the run goes on to its end"},
    {.key = "schedule",
     .kind = OPTION_PATH,
     .offset = AT(schedule),
     .help = "file of lines SECONDS FAULT [RANK], in place of --faults, --every and --seconds"},
    {.key = "seed",
     .kind = OPTION_INT,
     .offset = AT(seed),
     .default_text = "1",
     .max = 1e12,
     .help = "chooses the faults, their times and their ranks"},
    {.key = "against",
     .kind = OPTION_PATH,
     .offset = AT(against),
     .help = "an undisturbed run; exit code 8 if the digests of the two differ"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints one JSON object instead of the table"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct chaos_result {
    chaos_injected injected;
    obs_losses losses;
    int exit_code;
    double since;                      // its begin, Unix seconds: the run may have earlier records
    double seconds;                    // of the whole command
    double detect_ms[2], resume_ms[2]; // median and largest
    char digest[33], against[33];      // "": not asked for
} chaos_result;

// "train CONFIG key=value ... resilience.mode=restart"; keys of the user win.
static status arguments_make(cli_context *cli, const cli_call *call, char ***out)
{
    int64_t n = 0;
    TRY(arena_new(cli->a, call->key_count + 5, out));
    (*out)[n++] = cli->argv[0];
    TRY(arena_strdup(cli->a, "train", &(*out)[n++]));
    TRY(arena_strdup(cli->a, call->operands[0], &(*out)[n++]));
    TRY(arena_strdup(cli->a, "resilience.mode=restart", &(*out)[n++]));
    for (int64_t i = 0; i < call->key_count; i++) {
        TRY(arena_strdup(cli->a, call->keys[i], &(*out)[n++]));
    }
    return ST_OK;
}

static status schedule_find(cli_context *cli, const chaos_flags *f, chaos_schedule *out)
{
    if (f->schedule != NULL) return chaos_schedule_read(cli->h, cli->a, f->schedule, out);
    return chaos_schedule_make(cli->a, f->faults, (double)f->every / 1e9, (double)f->seconds / 1e9,
                               (uint64_t)f->seed, out);
}

static int compare_reals(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

// Median and largest.
static void range_of(double *values, int64_t count, double out[2])
{
    out[0] = out[1] = 0.0;
    if (count == 0) return;
    qsort(values, (size_t)count, sizeof(*values), compare_reals);
    out[0] = values[count / 2];
    out[1] = values[count - 1];
}

static status losses_take(cli_context *cli, const char *run_dir, chaos_result *r)
{
    char *path = NULL;
    double *detect = NULL, *resume = NULL;
    TRY(path_join(cli->a, run_dir, "metrics.jsonl", &path));
    TRY(obs_losses_read(cli->h, cli->a, path, r->since, &r->losses));
    TRY(arena_new(cli->a, r->losses.count + 1, &detect));
    TRY(arena_new(cli->a, r->losses.count + 1, &resume));
    int64_t n = 0;
    for (int64_t i = 0; i < r->losses.count; i++) {
        if (!r->losses.items[i].is_loss) continue;
        detect[n] = r->losses.items[i].detect_ms;
        resume[n++] = r->losses.items[i].resume_ms;
    }
    range_of(detect, n, r->detect_ms);
    range_of(resume, n, r->resume_ms);
    return ST_OK;
}

static status digest_of(cli_context *cli, const char *run, char out[33])
{
    char *path = NULL;
    hash128 digest;
    TRY(cli_checkpoint_of(cli, run, &path));
    TRY(ckpt_digest(cli->h, cli->a, path, &digest));
    (void)hash128_text(digest, out);
    return ST_OK;
}

// Start, last save and what else is no time of the survivors.
static double outside_s(const chaos_result *r)
{
    return r->seconds - obs_goodput_seconds(&r->losses.goodput);
}

static status print_json(cli_context *cli, const chaos_result *r)
{
    text time = {.a = cli->a};
    TRY(obs_goodput_print_json(&r->losses.goodput, &time));
    cli_print(cli,
              "{\"faults\": %lld, \"losses_expected\": %lld, \"skipped\": %lld, \"losses\": %lld, "
              "\"exit_code\": %d, \"seconds\": %.3f, \"steps\": %lld, \"in_steps\": %.4f, "
              "\"detect_ms\": {\"median\": %.1f, \"max\": %.1f}, "
              "\"resume_ms\": {\"median\": %.1f, \"max\": %.1f}, %s, \"outside_s\": %.3f, "
              "\"digest\": \"%s\"",
              (long long)r->injected.count, (long long)r->injected.losses,
              (long long)r->injected.skipped, (long long)r->losses.losses, r->exit_code, r->seconds,
              (long long)r->losses.steps, obs_goodput_share(&r->losses.goodput), r->detect_ms[0],
              r->detect_ms[1], r->resume_ms[0], r->resume_ms[1], time.bytes, outside_s(r),
              r->digest);
    if (r->against[0] != '\0') {
        cli_print(cli, ", \"same\": %s", strcmp(r->digest, r->against) == 0 ? "true" : "false");
    }
    cli_print(cli, "}\n");
    return ST_OK;
}

static void print_table(cli_context *cli, const chaos_result *r)
{
    cli_print(cli, "faults   %lld injected, %lld of them end a rank; %lld had no rank to hit\n",
              (long long)r->injected.count, (long long)r->injected.losses,
              (long long)r->injected.skipped);
    cli_print(cli, "losses   %lld; the run went on after each\n", (long long)r->losses.losses);
    cli_print(cli, "detect   median %.1f ms, at most %.1f ms until all ranks had ended\n",
              r->detect_ms[0], r->detect_ms[1]);
    cli_print(cli, "resume   median %.1f ms, at most %.1f ms until training went on\n",
              r->resume_ms[0], r->resume_ms[1]);
    char time[512];
    obs_goodput_print(&r->losses.goodput, time, (int64_t)sizeof(time));
    cli_print(cli, "time     %s: %.1f s in the %lld steps that count\n", time,
              r->losses.goodput.steps_s, (long long)r->losses.steps);
    cli_print(cli, "outside  %.1f of %.1f s: start, last save, end\n", outside_s(r), r->seconds);
    const bool is_same = strcmp(r->digest, r->against) == 0;
    cli_print(cli, "digest   %s%s\n", r->digest,
              r->against[0] == '\0' ? ""
              : is_same             ? ", as without faults"
                                    : ", which differs from the undisturbed run");
}

static status digests_compare(const chaos_flags *f, const chaos_result *r)
{
    if (f->against == NULL || strcmp(r->digest, r->against) == 0) return ST_OK;
    return fail(ST_ANSWER_NO, "the digest %s differs from that of %s, %s", r->digest, f->against,
                r->against);
}

static status ranks_check(const run_config *r, const chaos_flags *f, const chaos_schedule *s)
{
    const int64_t ranks = run_config_ranks(r);
    for (int64_t i = 0; i < s->count; i++) {
        if (s->items[i].rank < ranks) continue;
        return fail(ST_USAGE, "%s: %s of rank %lld; the run has %lld rank%s, counted from 0",
                    f->schedule, s->items[i].kind->name, (long long)s->items[i].rank,
                    (long long)ranks, text_plural(ranks, "s"));
    }
    return ST_OK;
}

// The text of the last error in the run's own output, without its code; NULL: there is none.
static const char *last_error(cli_context *cli, const char *log)
{
    enum { LIMIT_BYTES = 1 << 28 };
    char *bytes = NULL, *found = NULL;
    int64_t count = 0;
    if (host_read_all(cli->h, cli->a, log, LIMIT_BYTES, &bytes, &count) != ST_OK) {
        error_clear();
        return NULL;
    }
    for (char *at = bytes; (at = strstr(at, "error[")) != NULL; at++) found = at;
    if (found == NULL) return NULL;
    found[strcspn(found, "\n")] = '\0';
    const char *text_at = strstr(found, "] ");
    return text_at != NULL ? text_at + 2 : NULL;
}

static status end_fail(cli_context *cli, const chaos_result *r, const char *log)
{
    if (r->exit_code == status_exit_code(ST_STOPPED)) {
        return fail(ST_STOPPED, "the run was stopped; %s has its output", log);
    }
    const char *why = last_error(cli, log);
    return fail(ST_ANSWER_NO, "the run ended with exit code %d%s%.2000s; %s has its output",
                r->exit_code, why != NULL ? ": " : "", why != NULL ? why : "", log);
}

// The processes of an earlier run are not those of this one.
static status processes_forget(cli_context *cli, const char *path)
{
    file_info info;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    return info.kind == FILE_KIND_NONE ? ST_OK : cli->h->api->path_remove(cli->h, path);
}

// Another launcher has started one `chaos` on each host: each disturbs the ranks of its host.
static status hosts_check(const launch_place *place, const run_config *r, const chaos_schedule *s)
{
    const bool is_live = r->resilience.mode == RUN_RESILIENCE_LIVE, on_hosts = place->ranks > 1;
    if (on_hosts && !is_live) {
        return fail(
            ST_CONFIG_CONFLICT,
            "%s started %d processes of chaos; on several hosts a run goes on after a fault "
            "with resilience.mode=live alone",
            place->launcher, place->ranks);
    }
    for (int64_t i = 0; i < s->count && !on_hosts; i++) {
        if (s->items[i].kind->inject != NULL) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "the fault %s needs several hosts: start one chaos on each, as torchrun does",
                    s->items[i].kind->name);
    }
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const chaos_flags *f = call->flags;
    run_config r;
    config *c = NULL;
    char **arguments = NULL, *log = NULL;
    chaos_schedule schedule;
    chaos_result result = {0};
    TRY(schedule_find(cli, f, &schedule));
    if (f->against != NULL) TRY(digest_of(cli, f->against, result.against));
    TRY(arguments_make(cli, call, &arguments));
    const char *yaml = NULL;
    bool is_resolved = false;
    TRY(cli_config_file(cli, call->operands[0], &yaml, &is_resolved));
    TRY(run_config_load(cli->h, cli->a, yaml, call->keys, call->key_count, &r, &c));
    launch_place place;
    TRY(cli_ranks_place(&place));
    TRY(hosts_check(&place, &r, &schedule));
    TRY(ranks_check(&r, f, &schedule));
    const int launcher = place.ranks > 1 ? place.rank : -1;
    const bool is_live = r.resilience.mode == RUN_RESILIENCE_LIVE;
    char *name = NULL, *processes = NULL, *arenas = NULL;
    TRY(arena_format(cli->a, &name, launcher >= 0 ? "chaos-%d.log" : "chaos.log", launcher));
    TRY(path_join(cli->a, r.run.dir, CHAOS_ARENAS, &arenas));
    TRY(cli->h->api->path_mkdir(cli->h, arenas));
    TRY(cli_live_processes_path(cli, r.run.dir, launcher, &processes));
    TRY(processes_forget(cli, processes));
    TRY(path_join(cli->a, r.run.dir, name, &log));
    const int64_t begin = cli->h->api->monotonic_ns(cli->h);
    result.since = (double)cli->h->api->unix_ns(cli->h) / 1e9;
    const chaos_order order = {.arguments = arguments,
                               .run_dir = r.run.dir,
                               .log = log,
                               .processes = is_live ? processes : NULL,
                               .schedule = &schedule,
                               .seed = (uint64_t)f->seed};
    TRY(chaos_run(cli, &order, &result.injected, &result.exit_code));
    result.seconds = (double)(cli->h->api->monotonic_ns(cli->h) - begin) / 1e9;
    if (result.exit_code != 0) return end_fail(cli, &result, log);
    TRY(losses_take(cli, r.run.dir, &result));
    TRY(digest_of(cli, r.run.dir, result.digest));
    if (f->json) {
        TRY(print_json(cli, &result));
    } else {
        print_table(cli, &result);
    }
    return digests_compare(f, &result);
}

const cli_command cli_command_chaos = {
    .name = "chaos",
    .summary = "train under faults, and report what they cost",
    .synopsis = "CONFIG [--faults LIST] [--every TIME] [--seconds S] [--against RUN] [--json] "
                "[key.path=value ...]",
    .about =
        "Trains with resilience.mode=restart and injects faults into its ranks: kill ends one "
        "by SIGKILL, stop stops one for good, pause stops one for 0.3 s, slow lets one run "
        "half of the time for 2 s, flip changes a bit of a rank's weights or optimizer state, "
        "which sdc.digests=1 finds (flip_weight, flip_moment and flip_gradient: one of these alone), "
        "cut ends a rank's connections, diskfull lets no file of rank 0 grow for 2 s. On several hosts (resilience.mode=live) start one chaos on each, as torchrun "
        "does: it disturbs the ranks of its host, and host ends its launcher with them and starts it "
        "again. The table has the losses, the time until the ranks knew "
        "and until training went on, the share of the survivors' time in steps that count, where "
        "the rest went (a lost rank has no time until it is back; start and end are outside), and "
        "the digest, which with determinism.mode=strict is that of an undisturbed run "
        "(--against). The run's own output is in RUN/chaos.log, on several hosts "
        "in RUN/chaos-N.log.",
    .examples = "  trireme chaos demo/config.yaml layout.dp=2 --every 5s --seconds 60\n"
                "  trireme chaos demo/config.yaml run.dir=shaken --faults kill,stop --against "
                "demo/run\n",
    .flags = &flags,
    .flags_bytes = sizeof(chaos_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
