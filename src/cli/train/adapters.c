#include "cli/train/adapters.h"

#include "cli/train/run_log.h"
#include "cli/train/signals.h"
#include "config/run_config_overrides.h"
#include "train/train.h"

#include <string.h>

typedef struct one {
    run_config *r;
    config *c;
    const char *name;
    run_log *log;
    train_watcher watcher;
} one;

// one.yaml: "one".
static status name_of(cli_context *cli, const char *path, const char **out)
{
    char *name = NULL;
    TRY(arena_strdup(cli->a, path_base_name(path), &name));
    char *dot = strrchr(name, '.');
    if (dot != NULL && dot != name) *dot = '\0';
    *out = name;
    return ST_OK;
}

static status load(cli_context *cli, const cli_adapters_order *o, const run_config *common,
                   const char *path, one *out)
{
    option_list own;
    const char **all = NULL;
    char *dir = NULL;
    int64_t count = 0;
    TRY(name_of(cli, path, &out->name));
    const status read = run_config_overrides(cli->h, cli->a, path, &own);
    if (read != ST_OK) note("while reading %s of adapter.files", path);
    TRY(read);
    TRY(arena_new(cli->a, own.count + o->key_count + 2, &all));
    for (int64_t i = 0; i < own.count; i++) all[count++] = own.items[i];
    for (int64_t i = 0; i < o->key_count; i++) all[count++] = o->keys[i];
    TRY(arena_format(cli->a, &dir, "run.dir=%s/%s", common->run.dir, out->name));
    all[count++] = dir;
    all[count++] = "adapter.files=null";
    TRY(arena_new(cli->a, 1, &out->r));
    const status st = run_config_load(cli->h, cli->a, o->yaml_path, all, count, out->r, &out->c);
    if (st != ST_OK) note("while reading the adapter %s", path);
    TRY(st);
    if (run_config_ranks(out->r) > 1 || out->r->resilience.mode != RUN_RESILIENCE_OFF ||
        out->r->kernels.device == RUN_DEVICE_CUDA) {
        return fail(ST_UNSUPPORTED,
                    "adapter.files: several adapters train on one rank of the CPU, without "
                    "resilience.mode; train each in its own run for other layouts");
    }
    return ST_OK;
}

static status names_check(const one *all, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < i; k++) {
            if (strcmp(all[i].name, all[k].name) != 0) continue;
            return fail(ST_CONFIG_CONFLICT,
                        "adapter.files: two files are called %s, which names the folder of the "
                        "run",
                        all[i].name);
        }
    }
    return ST_OK;
}

static status train_all(cli_context *cli, const cli_adapters_order *o, one *all, int64_t count)
{
    train_order *orders = NULL;
    train_outcome *outcomes = NULL;
    status *states = NULL;
    TRY(arena_new(cli->a, count, &orders));
    TRY(arena_new(cli->a, count, &outcomes));
    TRY(arena_new(cli->a, count, &states));
    cli->live = false; // lines of several runs, each with its name
    for (int64_t i = 0; i < count; i++) {
        TRY(run_log_create(cli, all[i].r, o->quiet, 0, false, &all[i].log));
        run_log_name(all[i].log, all[i].name);
        all[i].watcher = run_log_watcher(all[i].log);
        orders[i] = (train_order){.r = all[i].r,
                                  .c = all[i].c,
                                  .config_text = o->config_text,
                                  .resume = o->resume,
                                  .watcher = &all[i].watcher};
    }
    cli_signals_begin();
    const status st = train_together(cli->h, cli->a, orders, count, outcomes, states);
    for (int64_t i = 0; i < count; i++) run_log_end(all[i].log, states[i], &outcomes[i]);
    cli_signals_end();
    return st;
}

status cli_adapters_train(cli_context *cli, const cli_adapters_order *order,
                          const run_config *common)
{
    const option_list *files = &common->adapter.files;
    one *all = NULL;
    TRY(arena_new(cli->a, files->count, &all));
    for (int64_t i = 0; i < files->count; i++) {
        TRY(load(cli, order, common, files->items[i], &all[i]));
    }
    TRY(names_check(all, files->count));
    return train_all(cli, order, all, files->count);
}
