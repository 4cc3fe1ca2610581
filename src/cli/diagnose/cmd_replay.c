// `replay`: computes a recorded step again in this process alone, and compares one rank's bits.
//
//   checkpoint before the step --- the run's configuration with a layout of one rank ---> state
//   RUN/replay/step-S.jsonl    --- hashes of the rank's pieces ------------------------> equal?
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/export/work_folder.h"
#include "cli/run_folder.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct replay_flags {
    int64_t step, rank;
} replay_flags;

#define AT(field) (int64_t) offsetof(replay_flags, field)
static const option rows[] = {
    {.key = "step",
     .kind = OPTION_INT,
     .offset = AT(step),
     .default_text = "0",
     .max = 1e12,
     .help = "step that is computed again; 0 is the newest one that was recorded"},
    {.key = "rank",
     .kind = OPTION_INT,
     .offset = AT(rank),
     .default_text = "0",
     .max = 1e6,
     .help = "rank whose state after the step is compared"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

enum { RECORDING_LIMIT_BYTES = 1 << 30 };

// The recording of the step, or the newest one.
static status recording_find(cli_context *cli, const char *run, int64_t *step, char **path)
{
    char *folder = NULL;
    file_info info;
    TRY(path_join(cli->a, run, "replay", &folder));
    TRY(cli->h->api->path_info(cli->h, folder, &info));
    file_names names = {0};
    if (info.kind == FILE_KIND_FOLDER) {
        TRY(cli->h->api->path_list(cli->h, cli->a, folder, &names));
    }
    for (int64_t i = 0; i < names.count && *step == 0; i++) {
        long long at = 0;
        const char *name = names.names[names.count - 1 - i];
        if (sscanf(name, "step-%lld.jsonl", &at) == 1) *step = at;
    }
    TRY(arena_format(cli->a, path, "%s/step-%07lld.jsonl", folder, (long long)*step));
    TRY(cli->h->api->path_info(cli->h, *path, &info));
    if (info.kind == FILE_KIND_REGULAR) return ST_OK;
    return fail(ST_NOT_FOUND,
                "%s has no recording of step %lld; a run with sdc.replay=0.01 records every "
                "hundredth step",
                run, (long long)*step);
}

// The newest checkpoint before the step; *path is NULL: the run is computed from its beginning.
static status start_find(cli_context *cli, const char *run, int64_t step, const char **path)
{
    char *folder = NULL;
    ckpt_entries list;
    *path = NULL;
    TRY(path_join(cli->a, run, "checkpoints", &folder));
    TRY(ckpt_list(cli->h, cli->a, folder, &list));
    int64_t best = -1;
    for (int64_t i = 0; i < list.count; i++) {
        if (list.items[i].step >= step || list.items[i].step <= best) continue;
        best = list.items[i].step;
        *path = list.items[i].path;
    }
    return ST_OK;
}

static void said(void *context, log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static status compute(cli_context *cli, const char *run, const char *work, int64_t step,
                      char **checkpoint)
{
    static const char *const alone[] = {"layout.dp=1",          "layout.tp=1",
                                        "layout.pp=1",          "layout.cp=1",
                                        "layout.zero=0",        "sdc.replay=0",
                                        "resilience.mode=off",  "sdc.digests=0",
                                        "checkpoint.every=0",   "checkpoint.tiers=null",
                                        "checkpoint.async=yes", "trace.steps=null",
                                        "resilience.spares=0",  "resilience.min_ranks=0",
                                        "eval.every=0",         "layout.ep=1",
                                        "moe.rebalance=off"};
    const char *keys[COUNT_OF(alone) + 1], *start = NULL;
    char *yaml = NULL, *dir = NULL, *folder = NULL;
    run_config *r = NULL;
    config *c = NULL;
    train_outcome out;
    int64_t newest = -1;
    const train_watcher watcher = {.said = said};
    for (int64_t i = 0; i < COUNT_OF(alone); i++) keys[i] = alone[i];
    TRY(arena_format(cli->a, &dir, "run.dir=%s", work));
    keys[COUNT_OF(alone)] = dir;
    TRY(path_join(cli->a, run, "config.resolved.yaml", &yaml));
    TRY(arena_new(cli->a, 1, &r));
    TRY(run_config_load(cli->h, cli->a, yaml, keys, COUNT_OF(keys), r, &c));
    if (r->determinism.mode != RUN_STRICT) {
        return fail(ST_CONFIG_CONFLICT,
                    "%s has determinism.mode = fast, where the bits depend on the layout; one rank "
                    "alone can replay a run with determinism.mode=strict",
                    run);
    }
    TRY(start_find(cli, run, step, &start));
    const train_order order = {.r = r,
                               .c = c,
                               .resume = start != NULL ? start : "none",
                               .watcher = &watcher,
                               .last_step = step};
    TRY(train_run(cli->h, cli->a, &order, &out));
    TRY(path_join(cli->a, work, "checkpoints", &folder));
    TRY(ckpt_newest(cli->h, cli->a, folder, checkpoint, &newest));
    if (newest == step) return ST_OK;
    return fail(ST_INTERNAL, "the replay ended after step %lld", (long long)newest);
}

static status compare(cli_context *cli, const char *run, const replay_flags *f, const char *work)
{
    char *recording = NULL, *bytes = NULL, *checkpoint = NULL;
    int64_t count = 0, step = f->step;
    text report = {.a = cli->a};
    ckpt_compared found;
    TRY(recording_find(cli, run, &step, &recording));
    TRY(host_read_all(cli->h, cli->a, recording, RECORDING_LIMIT_BYTES, &bytes, &count));
    TRY(compute(cli, run, work, step, &checkpoint));
    TRY(ckpt_recording_compare(cli->h, bytes, count, checkpoint, f->rank, &report, &found));
    if (found.differ == 0 && found.agree > 0) {
        cli_print(cli, "step %lld, rank %lld: all %lld pieces of its state agree to the bit\n",
                  (long long)step, (long long)f->rank, (long long)found.agree);
        return ST_OK;
    }
    cli_print_text(cli, &report);
    return fail(ST_ANSWER_NO,
                "step %lld, rank %lld: %lld of %lld pieces of its state differ from those that "
                "this process computed",
                (long long)step, (long long)f->rank, (long long)found.differ,
                (long long)(found.agree + found.differ));
}

static status run(cli_context *cli, const cli_call *call)
{
    const replay_flags *f = call->flags;
    const char *path = call->operands[0];
    operand_kind kind;
    char work[] = "/tmp/trireme-replay-XXXXXX";
    TRY(cli_operand_kind(cli, path, &kind));
    if (kind != OPERAND_RUN) return fail(ST_USAGE, "%s is no run; replay takes a run", path);
    if (mkdtemp(work) == NULL) return fail(ST_IO, "cannot make a folder in /tmp");
    const status st = compare(cli, path, f, work);
    error_record kept;
    error_take(&kept);
    const char *const parts[] = {"checkpoints", "cache", "logs"};
    for (int64_t i = 0; i < COUNT_OF(parts); i++) {
        char *part = NULL;
        if (path_join(cli->a, work, parts[i], &part) == ST_OK) cli_work_remove(cli, part);
    }
    cli_work_remove(cli, work);
    error_clear();
    return st == ST_OK ? ST_OK : error_put(&kept);
}

const cli_command cli_command_replay = {
    .name = "replay",
    .summary = "compute a recorded step again alone, and compare a rank's bits",
    .synopsis = "RUN [--step S] [--rank R]",
    .about =
        "Takes the newest checkpoint before the step, computes up to it in this process with a "
        "layout of one rank, and compares the weights and the optimizer state that rank R held "
        "with the hashes that the run recorded (sdc.replay). The run must be in strict order, "
        "in which each layout has the same bits. Exit code 8 if they differ: then that rank's "
        "processor or memory, or this one's, has returned a wrong value; a replay on another "
        "machine decides.",
    .examples =
        "  trireme train demo/config.yaml layout.dp=2 determinism.mode=strict sdc.replay=0.01\n"
        "  trireme replay demo/run --step 100 --rank 1\n",
    .flags = &flags,
    .flags_bytes = sizeof(replay_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
