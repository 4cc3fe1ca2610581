// The keys of `serve`, and its ranks. The process of the command line starts them, forwards signals
// to them and shows the output of rank 0, which alone listens; the others follow it
// (infer/ranks.c). Logs of the ranks are in a folder of their own until the end.
#include "cli/serve/ranks.h"

#include "cli/export/work_folder.h"
#include "cli/infer/device.h"
#include "cli/train/ranks.h"
#include "infer/infer.h"
#include "op/pass/cut.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"layout.tp", "determinism.tp_shards", "determinism.etp_shards"};
enum { NAMES = COUNT_OF(names) };

static status key_check(const char *key, bool given[NAMES])
{
    const int length = (int)strcspn(key, "=");
    const bool is_layout = strncmp(key, "layout", 6) == 0 && (key[6] == '.' || length == 6);
    for (int i = 0; i < NAMES; i++) {
        if ((int)strlen(names[i]) != length || strncmp(key, names[i], (size_t)length) != 0)
            continue;
        given[i] = true;
        return ST_OK;
    }
    if (cli_device_is_key(key)) return ST_OK;
    if (is_layout) {
        return fail(ST_UNSUPPORTED,
                    "%.*s: a model is served on one rank or cut by layout.tp; the other keys of "
                    "layout are for training",
                    length, key);
    }
    return fail(ST_USAGE,
                "%.*s: serve takes the keys layout.tp, determinism.tp_shards, "
                "determinism.etp_shards, kernels.device and kernels.graphs alone; `trireme help "
                "serve` lists its flags",
                length, key);
}

// Sums are cut as in the run that trained the model, unless a key says otherwise.
static status shards_add(arena *a, const cli_model *model, const bool given[NAMES],
                         const char **keys, int64_t *count)
{
    const int64_t values[NAMES] = {1, model->tp_shards, model->etp_shards};
    for (int i = 1; i < NAMES; i++) {
        char *key = NULL;
        if (given[i] || values[i] <= 1) continue;
        TRY(arena_format(a, &key, "%s=%lld", names[i], (long long)values[i]));
        keys[(*count)++] = key;
    }
    return ST_OK;
}

// Rules between them, as in training.
static status shards_check(const run_config *r, bool strict, bool has_experts,
                           const bool given[NAMES])
{
    const int64_t tp = r->layout.tp, shards = r->determinism.tp_shards;
    const int64_t values[NAMES] = {tp, shards, has_experts ? r->determinism.etp_shards : tp};
    for (int i = 1; i < NAMES && !strict; i++) {
        if (!given[i]) continue;
        return fail(ST_CONFIG_CONFLICT, "%s has no effect without --strict", names[i]);
    }
    for (int i = 1; i < NAMES && strict; i++) {
        if (values[i] % tp == 0) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "layout.tp = %lld does not divide %s = %lld, the terms of a sum in strict "
                    "mode; add %s=%lld, here and where one rank is to give the same texts",
                    (long long)tp, names[i], (long long)values[i], names[i],
                    (long long)align_up(values[i], tp));
    }
    if (shards <= OP_CUT_MAX_TERMS * tp) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "determinism.tp_shards = %lld is more than %d for each rank of layout.tp = %lld",
                (long long)shards, (int)OP_CUT_MAX_TERMS, (long long)tp);
}

status cli_serve_layout(cli_context *cli, const cli_call *call, const cli_model *model, bool strict,
                        run_config **out)
{
    infer_options wanted = {.strict = strict};
    bool given[NAMES] = {false};
    const char **keys = NULL;
    config *c = NULL;
    int64_t count = 0;
    TRY(arena_new(cli->a, call->key_count + NAMES, &keys));
    for (; count < call->key_count; count++) {
        TRY(key_check(call->keys[count], given));
        keys[count] = call->keys[count];
    }
    TRY(arena_new(cli->a, 1, out));
    TRY(config_load(cli->h, cli->a, &run_config_table, NULL, keys, count, *out, &c));
    TRY(cli_device_check(*out, c));
    cli_device_set(*out, model->strict, &wanted);
    if (wanted.strict) {
        TRY(shards_add(cli->a, model, given, keys, &count));
        keys[count++] = "determinism.mode=strict";
        TRY(config_load(cli->h, cli->a, &run_config_table, NULL, keys, count, *out, &c));
    }
    TRY(shards_check(*out, wanted.strict, model->spec.experts.count > 0, given));
    return infer_layout_check(&model->spec, *out);
}

// ---- starting -----------------------------------------------------------------------------------

static status ranks_run(cli_context *cli, int ranks, const char *logs, launch_result *result)
{
    uint64_t job = 0;
    comm_control_block *block = NULL;
    TRY(cli->h->api->random_fill(cli->h, &job, (int64_t)sizeof(job)));
    TRY(comm_control_block_create(ranks, job, 0, &block));
    const launch_local_config c = {.h = cli->h,
                                   .ranks = ranks,
                                   .program = "/proc/self/exe",
                                   .argv = cli->argv,
                                   .environment = environ,
                                   .job = job,
                                   .log_folder = logs,
                                   .console_fd = STDOUT_FILENO,
                                   .control_block_fd = comm_control_block_fd(block)};
    const status st = launch_local(&c, result);
    comm_control_block_unmap(block);
    return st;
}

status cli_serve_start(cli_context *cli, int64_t ranks)
{
    char logs[] = "/tmp/trireme-serve-XXXXXX";
    launch_result result = {.rank = -1};
    if (ranks > LAUNCH_LOCAL_MAX) {
        return fail(ST_UNSUPPORTED,
                    "layout.tp = %lld: on one machine at most %d ranks are started; for several "
                    "machines use torchrun, srun or mpirun",
                    (long long)ranks, LAUNCH_LOCAL_MAX);
    }
    if (mkdtemp(logs) == NULL) return fail(ST_IO, "cannot make a folder in /tmp");
    cli_push(cli);
    const status st = ranks_run(cli, (int)ranks, logs, &result);
    error_record kept;
    error_take(&kept);
    cli_work_remove(cli, logs);
    error_clear();
    if (st != ST_OK) return error_put(&kept);
    if (result.is_interrupted) {
        (void)signal(SIGINT, SIG_DFL);
        (void)raise(SIGINT);
    }
    if (result.exit_code == 0) return ST_OK;
    return fail(cli_ranks_status(result.exit_code), "%s", result.text);
}
