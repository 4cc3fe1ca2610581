// A run's folder. Every file in it is written whole and renamed into place.
#include "train/folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_FILE_BYTES = 1 << 20 };

static status lock_text(char out[320])
{
    char name[256];
    if (gethostname(name, sizeof(name)) != 0) return fail(ST_IO, "the host has no name");
    name[sizeof(name) - 1] = '\0';
    (void)snprintf(out, 320, "%s:%ld\n", name, (long)getpid());
    return ST_OK;
}

// Is the process that wrote the lock gone? Only what is on this host can be told.
static bool lock_is_stale(const host *h, const char *held, const char *mine)
{
    const char *pid = strrchr(held, ':'), *own = strrchr(mine, ':');
    if (pid == NULL || own == NULL || pid - held != own - mine) return false;
    if (memcmp(held, mine, (size_t)(pid - held)) != 0) return false; // another host
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%.*s", (int)strcspn(pid + 1, "\n"), pid + 1);
    file_info info;
    return h->api->path_info(h, path, &info) == ST_OK && info.kind == FILE_KIND_NONE;
}

static status lock_write(const train_folder *f, const char *mine)
{
    file *lock = NULL;
    TRY(f->h->api->file_open(f->h, f->lock, FILE_CREATE, &lock));
    const status st = f->h->api->file_write(lock, mine, (int64_t)strlen(mine));
    TRY(f->h->api->file_close(lock));
    return st;
}

static status lock_take(train_folder *f)
{
    char mine[320];
    TRY(lock_text(mine));
    file_info info;
    TRY(f->h->api->path_info(f->h, f->lock, &info));
    if (info.kind != FILE_KIND_NONE) {
        char *held = NULL;
        int64_t bytes = 0;
        TRY(host_read_all(f->h, f->a, f->lock, SMALL_FILE_BYTES, &held, &bytes));
        if (!lock_is_stale(f->h, held, mine)) {
            return fail(ST_LOCKED,
                        "%s is in use by %.*s; give another run.dir, or remove %s if "
                        "that process is gone",
                        f->path, (int)strcspn(held, "\n"), held, f->lock);
        }
        TRY(f->h->api->path_remove(f->h, f->lock));
    }
    return lock_write(f, mine);
}

status train_folder_open(const host *h, arena *a, const char *path, train_folder *out)
{
    train_folder f = {.h = h, .a = a, .path = path};
    char *checkpoints = NULL, *cache = NULL, *logs = NULL;
    TRY(path_join(a, path, "checkpoints", &checkpoints));
    TRY(path_join(a, path, "cache", &cache));
    TRY(path_join(a, path, "logs", &logs));
    TRY(path_join(a, path, "lock", &f.lock));
    TRY(h->api->path_mkdir(h, checkpoints));
    TRY(h->api->path_mkdir(h, cache));
    TRY(h->api->path_mkdir(h, logs));
    f.checkpoints = checkpoints;
    f.cache = cache;
    TRY(lock_take(&f));
    *out = f;
    return ST_OK;
}

void train_folder_close(train_folder *f)
{
    if (f->lock == NULL) return;
    error_record kept;
    error_take(&kept);
    (void)f->h->api->path_remove(f->h, f->lock);
    (void)error_put(&kept);
    f->lock = NULL;
}

status train_folder_write(const train_folder *f, const char *name, const char *contents)
{
    char *path = NULL;
    TRY(path_join(f->a, f->path, name, &path));
    return host_write_all(f->h, path, contents, (int64_t)strlen(contents));
}

static status run_json(const train_start *s, text *t)
{
    TRY(text_add(t, "{\n \"format\": \"trireme-run-1\",\n \"version\": \"%s\",\n \"arch\": ",
                 TRIREME_VERSION));
    TRY(text_add_json(t, s->spec->arch));
    TRY(text_add(t, ",\n \"parameters\": %lld,\n \"tokenizer\": ", (long long)s->parameters));
    TRY(text_add_json(t, s->tokenizer));
    TRY(text_add(t, ",\n \"level\": \"%s\",\n \"threads\": %d,\n", s->level, s->threads));
    TRY(text_add(t, " \"arena_bytes\": %lld,\n", (long long)s->arena_bytes));
    TRY(text_add(t, " \"flops_per_token\": %.9g,\n \"peak_flops\": %.9g,\n", s->flops_per_token,
                 s->peak_flops));
    return text_add(t, " \"flops_convention\": \"6 x weights in products per token + 6 L T (heads "
                       "x head size); recomputation never counts\"\n}\n");
}

status train_folder_describe(const train_folder *f, const train_start *s, const config *c,
                             const char *config_text)
{
    text resolved = {.a = f->a}, plan_text = {.a = f->a}, run_text = {.a = f->a};
    TRY(config_print_resolved(c, s->config, &resolved));
    TRY(plan_print_json(s->largest, &plan_text));
    TRY(run_json(s, &run_text));
    if (config_text != NULL) TRY(train_folder_write(f, "config.yaml", config_text));
    TRY(train_folder_write(f, "config.resolved.yaml", resolved.bytes));
    TRY(train_folder_write(f, "plan.json", plan_text.bytes));
    return train_folder_write(f, "run.json", run_text.bytes);
}

status train_folder_status(const train_folder *f, const char *state, int exit_code,
                           const char *reason)
{
    text t = {.a = f->a};
    TRY(text_add(&t, "%s", state));
    if (exit_code >= 0) TRY(text_add(&t, " %d", exit_code));
    if (reason != NULL) TRY(text_add(&t, " %.*s", (int)strcspn(reason, "\n"), reason));
    TRY(text_add(&t, "\n"));
    return train_folder_write(f, "STATUS", t.bytes);
}

status train_folder_events(const train_folder *f, char **path)
{
    char name[256];
    if (gethostname(name, sizeof(name)) != 0) return fail(ST_IO, "the host has no name");
    name[sizeof(name) - 1] = '\0';
    return arena_format(f->a, path, "%s/events.out.tfevents.%lld.%s", f->path,
                        (long long)(f->h->api->unix_ns(f->h) / 1000000000), name);
}

status train_folder_compare(const train_folder *f, const run_config *now, const config *c,
                            text *log)
{
    char *path = NULL, *yaml = NULL;
    int64_t bytes = 0;
    file_info info;
    run_config was;
    config *was_config = NULL;
    TRY(path_join(f->a, f->path, "config.resolved.yaml", &path));
    TRY(f->h->api->path_info(f->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(f->h, f->a, path, SMALL_FILE_BYTES, &yaml, &bytes));
    memset(&was, 0, sizeof(was));
    TRY(config_parse(f->a, &run_config_table, yaml, bytes, path, f->path, NULL, 0, &was,
                     &was_config));
    run_config_complete(&was);
    return run_config_compare(f->a, &was, now, c, log);
}
