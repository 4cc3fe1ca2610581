#include "cli/train/adapters.h"

#include "cli/train/ranks.h"
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
    if (out->r->layout.mode == RUN_LAYOUT_AUTO || out->r->resilience.mode != RUN_RESILIENCE_OFF ||
        out->r->kernels.device == RUN_DEVICE_CUDA) {
        return fail(ST_UNSUPPORTED,
                    "adapter.files: several adapters train on the CPU, without layout.mode = auto "
                    "and resilience.mode; train each in its own run otherwise");
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

static status value_of(cli_context *cli, const option *row, const run_config *r, const char **out)
{
    text value = {.a = cli->a};
    TRY(option_print(row, r, &value));
    *out = value.bytes != NULL ? value.bytes : "";
    return ST_OK;
}

// The base model is cut and kept in one way for all.
static status layouts_check(cli_context *cli, const one *all, int64_t count)
{
    static const char section[] = "layout.";
    const option_table *t = &run_config_table;
    for (int64_t i = 1; i < count; i++) {
        for (int64_t k = 0; k < t->count; k++) {
            const char *first = NULL, *own = NULL;
            if (strncmp(t->rows[k].key, section, sizeof(section) - 1) != 0) continue;
            TRY(value_of(cli, &t->rows[k], all[0].r, &first));
            TRY(value_of(cli, &t->rows[k], all[i].r, &own));
            if (strcmp(first, own) == 0) continue;
            return fail(ST_CONFIG_CONFLICT,
                        "adapter.files: %s is %s for %s and %s for %s; all adapters have one "
                        "layout",
                        t->rows[k].key, first, all[0].name, own, all[i].name);
        }
    }
    return ST_OK;
}

static status train_here(cli_context *cli, const cli_adapters_order *o, one *all, int64_t count,
                         cli_ranks *ranks)
{
    const bool ours = ranks != NULL;
    const int rank = ours ? o->place->rank : 0;
    train_order *orders = NULL;
    train_outcome *outcomes = NULL;
    error_record *ends = NULL, first;
    TRY(arena_new(cli->a, count, &orders));
    TRY(arena_new(cli->a, count, &outcomes));
    TRY(arena_new(cli->a, count, &ends));
    cli->live = false; // lines of several runs, each with its name
    for (int64_t i = 0; i < count; i++) {
        TRY(run_log_create(cli, all[i].r, o->quiet, rank, ours, &all[i].log));
        run_log_name(all[i].log, all[i].name);
        all[i].watcher = run_log_watcher(all[i].log);
        if (ours) {
            all[i].watcher.progress = cli_ranks_progress;
            all[i].watcher.progress_context = ranks;
        }
        orders[i] = (train_order){.r = all[i].r,
                                  .c = all[i].c,
                                  .config_text = o->config_text,
                                  .resume = o->resume,
                                  .ranks = ours ? cli_ranks_comm(ranks) : NULL,
                                  .watcher = &all[i].watcher};
    }
    const status st = train_together(cli->h, cli->a, orders, count, outcomes, ends);
    error_take(&first);
    for (int64_t i = 0; i < count; i++) {
        (void)error_put(&ends[i]);
        run_log_end(all[i].log, ends[i].code, &outcomes[i]);
    }
    return st == ST_OK ? ST_OK : error_put(&first);
}

// This process is one of the ranks of the job, or all of it.
static status train_all(cli_context *cli, const cli_adapters_order *o, const run_config *job,
                        one *all, int64_t count)
{
    cli_ranks *ranks = NULL;
    status st = ST_OK;
    cli_signals_begin();
    if (run_config_ranks(job) > 1) st = cli_ranks_join(cli, job, NULL, o->place, &ranks);
    if (st == ST_OK) st = train_here(cli, o, all, count, ranks);
    cli_ranks_leave(ranks, st);
    cli_signals_end();
    return st;
}

// Starts the ranks of the job. STATUS of a run whose rank 0 was killed still says that it runs.
static status start(cli_context *cli, const cli_adapters_order *o, const run_config *job,
                    const one *all, int64_t count)
{
    const run_config **runs = NULL;
    TRY(arena_new(cli->a, count, &runs));
    for (int64_t i = 0; i < count; i++) runs[i] = all[i].r;
    const cli_start order = {.r = job,
                             .yaml = o->yaml_path,
                             .keys = o->keys,
                             .key_count = o->key_count,
                             .runs = runs,
                             .run_count = count};
    const status st = cli_ranks_start(cli, &order);
    for (int64_t i = 0; i < count && st != ST_OK; i++) {
        train_end_write(cli->h, cli->a, all[i].r->run.dir, TRAIN_END_WRITER_OTHER,
                        st == ST_STOPPED ? "stopped" : "failed", status_exit_code(st),
                        error_last()->text);
    }
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
    TRY(layouts_check(cli, all, files->count));
    run_config job = *all[0].r; // the layout is that of all, the folder holds theirs
    job.run.dir = common->run.dir;
    const bool is_ours = strcmp(order->place->launcher, "trireme") == 0;
    if (order->place->ranks > 1 && !is_ours) {
        return fail(ST_UNSUPPORTED,
                    "adapter.files: %s starts the ranks, and several adapters train on ranks that "
                    "this program starts itself, on one machine",
                    order->place->launcher);
    }
    if (run_config_ranks(&job) > 1 && !is_ours) return start(cli, order, &job, all, files->count);
    return train_all(cli, order, &job, all, files->count);
}
