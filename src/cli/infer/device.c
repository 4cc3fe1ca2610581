// Two keys of a run, kernels.device and kernels.graphs, for commands that have no run.
#include "cli/infer/device.h"

#include "cli/gpus.h"

#include <string.h>

static const char *const names[] = {"kernels.device", "kernels.graphs"};

bool cli_device_is_key(const char *key)
{
    const size_t length = strcspn(key, "=");
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strlen(names[i]) == length && strncmp(key, names[i], length) == 0) return true;
    }
    return false;
}

status cli_device_find(cli_context *cli, const cli_call *call, const char *command,
                       run_config **out)
{
    config *c = NULL;
    for (int64_t i = 0; i < call->key_count; i++) {
        if (cli_device_is_key(call->keys[i])) continue;
        return fail(
            ST_USAGE,
            "%.*s: %s takes the keys kernels.device and kernels.graphs alone; `trireme help "
            "%s` lists its flags",
            (int)strcspn(call->keys[i], "="), call->keys[i], command, command);
    }
    TRY(arena_new(cli->a, 1, out));
    TRY(config_load(cli->h, cli->a, &run_config_table, NULL, call->keys, call->key_count, *out,
                    &c));
    TRY(cli_device_check(*out, c));
    return cli_device_show(cli, *out);
}

status cli_device_show(cli_context *cli, const run_config *r)
{
    const char *said = NULL;
    if (r->kernels.device != RUN_DEVICE_CUDA) return ST_OK;
    TRY(cli_gpus_show(cli, 0, &said));
    if (said != NULL) cli_warn(cli, "%s", said);
    return ST_OK;
}

status cli_device_check(const run_config *r, const config *c)
{
    if (r->kernels.device == RUN_DEVICE_CUDA || !config_is_given(c, names[1])) return ST_OK;
    return fail(ST_CONFIG_CONFLICT, "%s applies only to kernels.device = cuda", names[1]);
}

void cli_device_set(const run_config *r, bool strict, infer_options *options)
{
    options->device = run_config_device(r);
    options->by_calls = !r->kernels.graphs;
    options->strict = options->strict || (strict && r->kernels.device != RUN_DEVICE_CUDA);
}
