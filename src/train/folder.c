// The folder of a run. Every file in it is written completely and renamed into place.
#include "train/folder.h"

#include <stdio.h>
#include <string.h>

enum { SMALL_FILE_BYTES = 1 << 20 };

static status lock_text(const host *h, char out[320])
{
    char name[HOST_NAME_BYTES];
    TRY(h->api->machine_name(h, name));
    (void)snprintf(out, 320, "%s:%lld\n", name, (long long)h->api->process_id(h));
    return ST_OK;
}

static status lock_text_read(const train_folder *f, const char *path, char **out)
{
    int64_t bytes = 0;
    TRY(host_read_all(f->h, f->a, path, SMALL_FILE_BYTES, out, &bytes));
    (*out)[strcspn(*out, "\n")] = '\0';
    return ST_OK;
}

static status lock_held_by(const train_folder *f, const char *path)
{
    char *held = NULL;
    TRY(lock_text_read(f, path, &held));
    return fail(ST_LOCKED, "%s is in use by %s; give another run.dir, or wait for that process",
                f->path, held);
}

// The lock is a lock of the operating system, not the existence of the file. So a killed process, a
// power loss or a reused process number leaves no lock behind. The file itself stays: after its
// removal a third process could lock another file of that name.
static status lock_take(train_folder *f)
{
    char mine[320], *path = NULL;
    bool taken = false;
    file *lock = NULL;
    file_info info;
    status st;
    TRY(lock_text(f->h, mine));
    TRY(path_join(f->a, f->path, "lock", &path));
    TRY(f->h->api->file_open(f->h, path, FILE_APPEND, &lock));
    TRY_TO(close_lock, f->h->api->file_lock(lock, &taken));
    if (!taken) TRY_TO(close_lock, lock_held_by(f, path));
    TRY_TO(close_lock, f->h->api->file_truncate(lock, 0));
    TRY_TO(close_lock, f->h->api->file_write(lock, mine, (int64_t)strlen(mine)));
    TRY_TO(close_lock, f->h->api->path_info(f->h, path, &info));
    f->lock = lock;
    f->lock_path = path;
    f->lock_inode = info.inode;
    return ST_OK;
close_lock : {
    error_record first;
    error_take(&first);
    (void)f->h->api->file_close(lock);
    (void)error_put(&first);
}
    return st;
}

// The first free name of <path>.before-1, <path>.before-2, ...
static status away_name(const host *h, arena *a, const char *path, char **out)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    for (int64_t n = 1;; n++) {
        file_info info;
        TRY(arena_format(a, out, "%.*s.before-%lld", (int)length, path, (long long)n));
        TRY(h->api->path_info(h, *out, &info));
        if (info.kind == FILE_KIND_NONE) return ST_OK;
    }
}

status train_folder_move_away(const host *h, arena *a, const char *path, char **to)
{
    static const char *const marks[] = {"run.json", "STATUS", "metrics.jsonl"};
    train_folder f = {.h = h, .a = a, .path = path};
    file_info info;
    bool is_run = false;
    *to = NULL;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    for (int64_t i = 0; i < COUNT_OF(marks) && !is_run; i++) {
        char *mark = NULL;
        TRY(path_join(a, path, marks[i], &mark));
        TRY(h->api->path_info(h, mark, &info));
        is_run = info.kind == FILE_KIND_REGULAR;
    }
    if (!is_run) {
        file_names names;
        TRY(h->api->path_list(h, a, path, &names));
        if (names.count == 0) return ST_OK;
        return fail(ST_USAGE, "%s holds no run, so it is not moved away; give another run.dir",
                    path);
    }
    TRY(lock_take(&f)); // a run that is in use stays where it is
    status st = away_name(h, a, path, to);
    if (st == ST_OK) st = h->api->path_rename(h, path, *to);
    train_folder_close(&f);
    return st;
}

// Makes <path>/checkpoints and its parent folders durable, because a checkpoint is only as durable
// as the folders above it. Parents that cannot be opened were not created here.
static status folder_sync(const train_folder *f)
{
    char *at = NULL;
    TRY(f->h->api->path_sync(f->h, f->checkpoints));
    TRY(f->h->api->path_sync(f->h, f->path));
    TRY(arena_strdup(f->a, f->path, &at));
    for (char *slash = strrchr(at, '/'); slash != NULL; slash = strrchr(at, '/')) {
        slash[slash == at ? 1 : 0] = '\0';
        if (f->h->api->path_sync(f->h, at) != ST_OK) break;
        if (slash == at) break;
    }
    error_clear();
    return ST_OK;
}

status train_folder_join(const host *h, arena *a, const char *path, train_folder *out)
{
    char *checkpoints = NULL, *cache = NULL;
    TRY(path_join(a, path, "checkpoints", &checkpoints));
    TRY(path_join(a, path, "cache", &cache));
    *out = (train_folder){
        .h = h, .a = a, .path = path, .checkpoints = checkpoints, .cache = cache, .reader = true};
    return ST_OK;
}

static status folders_make(const train_folder *f)
{
    char *logs = NULL;
    TRY(path_join(f->a, f->path, "logs", &logs));
    TRY(f->h->api->path_mkdir(f->h, f->checkpoints));
    TRY(f->h->api->path_mkdir(f->h, f->cache));
    return f->h->api->path_mkdir(f->h, logs);
}

status train_folder_open(const host *h, arena *a, const char *path, train_folder *out)
{
    train_folder f;
    TRY(train_folder_join(h, a, path, &f));
    f.reader = false;
    TRY(folders_make(&f));
    TRY(lock_take(&f));
    const status st = folder_sync(&f);
    if (st != ST_OK) train_folder_close(&f);
    TRY(st);
    *out = f;
    return ST_OK;
}

// While the lock file is open, no other file can get its inode.
bool train_folder_is_lost(const train_folder *f)
{
    file_info info;
    if (f->lock == NULL) return false;
    if (f->h->api->path_info(f->h, f->lock_path, &info) != ST_OK) {
        error_clear(); // a disk that fails for a while
        return false;
    }
    return info.kind == FILE_KIND_NONE || info.inode != f->lock_inode;
}

status train_folder_remake(train_folder *f)
{
    file *const before = f->lock;
    TRY(folders_make(f));
    TRY(lock_take(f));
    const status closed = f->h->api->file_close(before);
    if (closed != ST_OK) error_clear();
    return ST_OK;
}

// The name of the holder is removed with the lock.
void train_folder_close(train_folder *f)
{
    if (f->lock == NULL) return;
    error_record kept;
    error_take(&kept);
    (void)f->h->api->file_truncate(f->lock, 0);
    (void)f->h->api->file_close(f->lock);
    (void)error_put(&kept);
    f->lock = NULL;
}

status train_folder_write(const train_folder *f, const char *name, const char *contents)
{
    char *path = NULL;
    if (f->reader) return ST_OK;
    TRY(path_join(f->a, f->path, name, &path));
    return host_write_all(f->h, path, contents, (int64_t)strlen(contents));
}

// Writes the codec, its bound, the first step with compressed gradients, the first one without (if
// the bound was broken) and the buckets.
static status compression_json(const train_start *s, text *t)
{
    const plan *p = s->compressed;
    const bool warms = run_config_has_error_feedback(s->config);
    TRY(text_add(t, " \"compression\": {\"codec\": \"%s\", \"bound\": %.9g, \"from_step\": %lld, ",
                 p->codec, s->codec_bound,
                 (long long)(warms ? s->config->comm.compression.warmup + 1 : 1)));
    if (s->whole_from > 0) {
        TRY(text_add(t, "\"whole_from_step\": %lld, ", (long long)s->whole_from));
    }
    TRY(text_add(t, "\"buckets\": ["));
    const char *between = "";
    for (int64_t i = 0; i < p->bucket_count; i++) {
        if (p->buckets[i].name[0] == '\0') continue; // the codec leaves this sum uncompressed
        TRY(text_add(t, "%s{\"name\": ", between));
        between = ", ";
        TRY(text_add_json(t, p->buckets[i].name));
        TRY(text_add(t, ", \"count\": %lld}", (long long)p->buckets[i].count));
    }
    return text_add(t, "]},\n");
}

static status add_json_or_null(text *t, const char *name, const char *value)
{
    TRY(text_add(t, ",\n \"%s\": ", name));
    return value != NULL ? text_add_json(t, value) : text_add(t, "null");
}

static status run_json(const train_start *s, text *t)
{
    TRY(text_add(t, "{\n \"format\": \"trireme-run-1\",\n \"version\": \"%s\",\n \"arch\": ",
                 TRIREME_VERSION));
    TRY(text_add_json(t, s->spec->arch));
    TRY(text_add(t, ",\n \"parameters\": %lld,\n \"tokenizer\": ", (long long)s->parameters));
    TRY(text_add_json(t, s->tokenizer));
    TRY(text_add(t, ",\n \"level\": \"%s\",\n \"threads\": %d,\n \"ranks\": %d", s->level,
                 s->threads, s->ranks));
    text layout = {.a = t->a};
    TRY(run_config_print_layout(s->config, &layout));
    TRY(add_json_or_null(t, "layout", layout.bytes));
    TRY(add_json_or_null(t, "transport", s->transport));
    TRY(add_json_or_null(t, "comm_tuning", s->tuning));
    TRY(text_add(t, ",\n"));
    TRY(text_add(t, " \"arena_bytes\": %lld,\n", (long long)s->arena_bytes));
    TRY(text_add(t, " \"flops_per_token\": %.9g,\n \"peak_flops\": %.9g,\n", s->flops_per_token,
                 s->peak_flops));
    if (s->compressed != NULL) TRY(compression_json(s, t));
    return text_add(t, " \"flops_convention\": \"6 x weights in GEMMs per token + 6 L T (heads "
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

status train_folder_rerun(const train_folder *f, const train_start *s)
{
    text t = {.a = f->a};
    TRY(run_json(s, &t));
    return train_folder_write(f, "run.json", t.bytes);
}

// A full disk may have no block for a second file. Then STATUS is written in place, where it has
// one.
static status status_put(const train_folder *f, const char *line, int64_t bytes)
{
    char *path = NULL;
    file *out = NULL;
    if (f->reader) return ST_OK;
    TRY(path_join(f->a, f->path, "STATUS", &path));
    const status st = host_write_all(f->h, path, line, bytes);
    if (st != ST_DISK_FULL) return st;
    error_record full;
    error_take(&full);
    if (f->h->api->file_open(f->h, path, FILE_WRITE, &out) != ST_OK) return error_put(&full);
    const status written = f->h->api->file_write(out, line, bytes);
    if (f->h->api->file_close(out) == ST_OK && written == ST_OK) return ST_OK;
    return error_put(&full);
}

status train_folder_status(const train_folder *f, const char *state, int exit_code,
                           const char *reason)
{
    text t = {.a = f->a};
    TRY(text_add(&t, "%s", state));
    if (exit_code >= 0) TRY(text_add(&t, " %d", exit_code));
    if (reason != NULL) TRY(text_add(&t, " %.*s", (int)strcspn(reason, "\n"), reason));
    TRY(text_add(&t, "\n"));
    return status_put(f, t.bytes, t.length);
}

// The line of STATUS; "" if there is none.
static const char *status_read(const train_folder *f)
{
    char *path = NULL, *line = NULL;
    int64_t bytes = 0;
    if (path_join(f->a, f->path, "STATUS", &path) != ST_OK ||
        host_read_all(f->h, f->a, path, SMALL_FILE_BYTES, &line, &bytes) != ST_OK) {
        error_clear();
        return "";
    }
    return line;
}

static bool says_running(const train_folder *f)
{
    return strncmp(status_read(f), "running", 7) == 0;
}

// An earlier session may have ended with the same code: then its reason stays.
static bool is_end_due(const train_folder *f, train_end_writer who, int exit_code)
{
    int64_t said = -1;
    if (who == TRAIN_END_WRITER_FIRST) return true;
    if (who == TRAIN_END_WRITER_OTHER) return says_running(f);
    const char *line = status_read(f);
    char code[16];
    line += strcspn(line, " ");
    line += strspn(line, " ");
    (void)snprintf(code, sizeof(code), "%.*s", (int)min_i64(15, (int64_t)strcspn(line, " \n")),
                   line);
    return !text_parse_i64(code, &said) || said != exit_code;
}

// True if a session or its launcher has begun to write there.
static bool is_begun(const train_folder *f)
{
    static const char *const marks[] = {"checkpoints", "cache", "logs"};
    for (int64_t i = 0; i < COUNT_OF(marks); i++) {
        char *path = NULL;
        file_info info;
        if (path_join(f->a, f->path, marks[i], &path) != ST_OK ||
            f->h->api->path_info(f->h, path, &info) != ST_OK) {
            error_clear();
            return false;
        }
        if (info.kind == FILE_KIND_FOLDER) return true;
    }
    return false;
}

void train_end_write(const host *h, arena *a, const char *run_dir, train_end_writer who,
                     const char *state, int exit_code, const char *reason)
{
    train_folder f;
    error_record kept;
    char said[ERROR_TEXT_BYTES]; // `reason` may be the text of the record
    (void)snprintf(said, sizeof(said), "%s", reason);
    error_take(&kept);
    // Rank 0 may want the lock, and fail without it: another rank takes it only for a reason.
    bool is_due = train_folder_join(h, a, run_dir, &f) == ST_OK && is_begun(&f) &&
                  is_end_due(&f, who, exit_code);
    if (is_due && lock_take(&f) == ST_OK) {
        f.reader = false;
        is_due = is_end_due(&f, who, exit_code);
        if (is_due && train_folder_status(&f, state, exit_code, said) != ST_OK) error_clear();
        train_folder_close(&f);
    }
    (void)error_put(&kept);
}

static bool is_locked_by(const train_folder *f, const char *holder)
{
    char *path = NULL, *held = NULL;
    if (path_join(f->a, f->path, "lock", &path) == ST_OK &&
        lock_text_read(f, path, &held) == ST_OK) {
        return strcmp(held, holder) == 0;
    }
    error_clear();
    return false;
}

void train_end_write_held(const host *h, arena *a, const char *run_dir, const char *first,
                          int exit_code, const char *reason)
{
    static const int64_t wait_ns = INT64_C(1500000000), look_ns = INT64_C(50000000);
    train_folder f;
    error_record kept;
    char said[ERROR_TEXT_BYTES]; // `reason` may be the text of the record
    (void)snprintf(said, sizeof(said), "%s", reason);
    error_take(&kept);
    status st = train_folder_join(h, a, run_dir, &f);
    const int64_t until = h->api->monotonic_ns(h) + wait_ns;
    bool is_there = st == ST_OK && says_running(&f) && is_locked_by(&f, first);
    while (is_there && h->api->monotonic_ns(h) < until) {
        h->api->sleep_ns(h, look_ns);
        is_there = says_running(&f) && is_locked_by(&f, first);
    }
    f.reader = false;
    if (is_there) st = train_folder_status(&f, "failed", exit_code, said);
    if (st != ST_OK) error_clear();
    (void)error_put(&kept);
}

status train_folder_events(const train_folder *f, char **path)
{
    char name[HOST_NAME_BYTES];
    TRY(f->h->api->machine_name(f->h, name));
    return arena_format(f->a, path, "%s/events.out.tfevents.%lld.%s", f->path,
                        (long long)(f->h->api->unix_ns(f->h) / 1000000000), name);
}

status train_folder_before(const train_folder *f, run_config **out)
{
    char *path = NULL, *yaml = NULL;
    int64_t bytes = 0;
    file_info info;
    run_config *was = NULL;
    config *was_config = NULL;
    *out = NULL;
    TRY(path_join(f->a, f->path, "config.resolved.yaml", &path));
    TRY(f->h->api->path_info(f->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(f->h, f->a, path, SMALL_FILE_BYTES, &yaml, &bytes));
    TRY(arena_new(f->a, 1, &was));
    TRY(config_parse(
        f->a, &run_config_table,
        &(const config_input){.yaml = yaml, .bytes = bytes, .name = path, .folder = f->path}, was,
        &was_config));
    run_config_before(was, was_config);
    run_config_complete(was);
    *out = was;
    return ST_OK;
}
