// Files that this program writes: runs, checkpoints, configurations.
#include "cli/inspect/inspect.h"
#include "config/run_config.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

// ---- checkpoints --------------------------------------------------------------------------------

// Returns whether a tensor is of this kind: "weight/layers.0.attn.q" is a "weight". A history of
// factors of 8 bits is stored as a weight, but it is no parameter of the model.
static bool is_of_kind(const char *name, const char *kind)
{
    const size_t length = strlen(name), head = strcspn(name, "/");
    const bool is_history = length > 4 && strcmp(name + length - 4, ".fp8") == 0;
    if (strcmp(kind, "fp8 history") == 0) return is_history;
    return !is_history && head == strlen(kind) && strncmp(name, kind, head) == 0;
}

static status states_tell(inspect_report *r, const ckpt_reader *c)
{
    static const char *const kinds[] = {"weight",   "master", "m",          "v",
                                        "feedback", "step",   "fp8 history"};
    char told[128] = "";
    size_t used = 0;
    int64_t bytes = 0;
    for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < ckpt_reader_count(c); i++) {
            if (is_of_kind(ckpt_reader_at(c, i)->name, kinds[k])) count++;
        }
        if (count == 0 || used > sizeof(told) - 32) continue;
        used += (size_t)snprintf(told + used, sizeof(told) - used, "%s%lld %s",
                                 used == 0 ? "" : ", ", (long long)count, kinds[k]);
    }
    for (int64_t i = 0; i < ckpt_reader_count(c); i++) bytes += ckpt_reader_at(c, i)->bytes;
    TRY(inspect_add_int(r, "tensors", ckpt_reader_count(c)));
    TRY(inspect_add(r, "state", "%s", told));
    return inspect_add_int(r, "bytes", bytes);
}

static status info_tell(inspect_report *r, const ckpt_info *info)
{
    TRY(inspect_add_int(r, "step", info->step));
    TRY(inspect_add_int(r, "sequences", info->sequences));
    TRY(inspect_add_int(r, "tokens", info->tokens));
    TRY(inspect_add_int(r, "seed", info->seed));
    TRY(inspect_add_int(r, "world", info->world));
    if (isfinite(info->val_loss)) TRY(inspect_add(r, "val loss", "%.6f", info->val_loss));
    if (info->best != NULL) TRY(inspect_add(r, "best so far", "%s", info->best));
    if (info->numerics != NULL && info->numerics[0] != '\0') {
        TRY(inspect_add(r, "numerics", "%s", info->numerics));
    }
    if (info->data != NULL) TRY(inspect_add(r, "data", "%s", info->data));
    if (info->whole_from > 0) TRY(inspect_add_int(r, "whole from", info->whole_from));
    return ST_OK;
}

static status tensors_take(inspect_report *r, const ckpt_reader *c)
{
    for (int64_t i = 0; i < ckpt_reader_count(c); i++) {
        const ckpt_tensor *e = ckpt_reader_at(c, i);
        inspect_tensor t = {
            .type = e->type, .ndim = e->ndim, .offset = e->offset, .bytes = e->bytes};
        char *name = NULL, *file_name = NULL;
        TRY(arena_strdup(r->cli->a, e->name, &name)); // the names must outlive the reader
        TRY(arena_strdup(r->cli->a, e->file, &file_name));
        t.name = name;
        t.file = file_name;
        memcpy(t.dims, e->dims, sizeof(t.dims));
        TRY(inspect_add_tensor(r, &t));
    }
    return ST_OK;
}

static status checkpoint_tell(inspect_report *r, const ckpt_reader *c)
{
    char hex[33];
    TRY(states_tell(r, c));
    TRY(inspect_add(r, "digest", "%s", hash128_text(ckpt_reader_digest(c), hex)));
    TRY(inspect_add(r, "root", "%s", hash128_text(ckpt_reader_root(c), hex)));
    return tensors_take(r, c);
}

// Each line of the report is one fault.
static status checkpoint_verify(inspect_report *r, const char *path)
{
    text report = {.a = r->cli->a};
    const status st = ckpt_verify(r->cli->h, r->cli->a, path, &report);
    if (st != ST_OK && st != ST_DAMAGED) return st;
    error_clear();
    const char *line = report.length > 0 ? report.bytes : "";
    while (*line != '\0') {
        const size_t length = strcspn(line, "\n");
        if (length > 0) TRY(inspect_damage(r, "%.*s", (int)length, line));
        line += length + (line[length] == '\n');
    }
    if (st == ST_DAMAGED && r->damage_count == 0) TRY(inspect_damage(r, "%s: is damaged", path));
    return ST_OK;
}

// An unreadable manifest means that the checkpoint cannot be opened; every other fault is damage.
status inspect_checkpoint(inspect_report *r, const inspect_probe *p)
{
    ckpt_reader *c = NULL;
    ckpt_info info;
    TRY(ckpt_info_read(r->cli->h, r->cli->a, p->path, &info));
    TRY(info_tell(r, &info));
    if (r->verifies) TRY(checkpoint_verify(r, p->path));
    if (r->damage_count > 0) return ST_OK;
    TRY(ckpt_reader_open(r->cli->h, p->path, &c));
    const status st = checkpoint_tell(r, c);
    ckpt_reader_close(c);
    TRY(st);
    return inspect_checked(r, "manifest, files, and every byte of %lld tensors",
                           (long long)r->tensor_count);
}

// ---- runs ---------------------------------------------------------------------------------------

static status run_json_tell(inspect_report *r, const char *folder)
{
    char *path = NULL;
    json *root = NULL;
    TRY(path_join(r->cli->a, folder, "run.json", &path));
    TRY(json_read(r->cli->h, path, 1 << 24, &root));
    status st = inspect_add(r, "made by", "%s", json_text(json_get(root, "version"), "?"));
    if (st == ST_OK) st = inspect_add(r, "model", "%s", json_text(json_get(root, "arch"), "?"));
    if (st == ST_OK) {
        st = inspect_add_int(r, "parameters", json_int(json_get(root, "parameters"), 0));
    }
    if (st == ST_OK) {
        st = inspect_add(r, "tokenizer", "%s", json_text(json_get(root, "tokenizer"), "?"));
    }
    json_free(root);
    return st;
}

enum { STATUS_LIMIT_BYTES = 1 << 16 };

// Finds out whether the process that took the run's lock was killed: it is not there, and the lock,
// which contains "HOST:PROCESS", is free. The lock alone would do, but to take it could refuse a
// run that begins now. *process is 0 if it was not killed, or runs elsewhere.
static status killed_find(inspect_report *r, const inspect_probe *p, int64_t *process)
{
    const host *h = r->cli->h;
    char here[HOST_NAME_BYTES], *path = NULL, *held = NULL;
    int64_t bytes = 0, number = 0;
    bool is_free = false;
    file *lock = NULL;
    *process = 0;
    if (!inspect_has(p, "lock")) return ST_OK;
    TRY(h->api->machine_name(h, here));
    TRY(path_join(r->cli->a, p->path, "lock", &path));
    TRY(host_read_all(h, r->cli->a, path, STATUS_LIMIT_BYTES, &held, &bytes));
    const size_t length = strlen(here);
    if (strncmp(held, here, length) != 0 || held[length] != ':') return ST_OK;
    held[length + 1 + strcspn(held + length + 1, "\n")] = '\0';
    if (!text_parse_i64(held + length + 1, &number) || number <= 0 || number > INT32_MAX ||
        kill((pid_t)number, 0) == 0 || errno != ESRCH) {
        return ST_OK;
    }
    TRY(h->api->file_open(h, path, FILE_READ, &lock));
    const status st = h->api->file_lock(lock, &is_free);
    TRY(h->api->file_close(lock));
    TRY(st);
    if (is_free) *process = number;
    return ST_OK;
}

static status status_tell(inspect_report *r, const inspect_probe *p)
{
    int64_t process = 0;
    char *path = NULL, *line = NULL;
    int64_t bytes = 0;
    if (!inspect_has(p, "STATUS")) return inspect_add(r, "status", "not told");
    TRY(path_join(r->cli->a, p->path, "STATUS", &path));
    TRY(host_read_all(r->cli->h, r->cli->a, path, STATUS_LIMIT_BYTES, &line, &bytes));
    // A process that is killed cannot write STATUS.
    if (strncmp(line, "running", 7) == 0) TRY(killed_find(r, p, &process));
    if (process > 0) {
        return inspect_add(r, "status",
                           "killed: STATUS says running, but process %lld has ended without a word",
                           (long long)process);
    }
    return inspect_add(r, "status", "%.*s", (int)strcspn(line, "\n"), line);
}

static status checkpoints_look(inspect_report *r, const char *folder, ckpt_entries *out)
{
    char *checkpoints = NULL, list[256] = "";
    size_t used = 0;
    TRY(path_join(r->cli->a, folder, "checkpoints", &checkpoints));
    TRY(ckpt_list(r->cli->h, r->cli->a, checkpoints, out));
    TRY(inspect_add_int(r, "checkpoints", out->count));
    for (int64_t i = 0; i < out->count && used < sizeof(list) - 64; i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.40s", i == 0 ? "" : ", ",
                                 out->items[i].name);
    }
    if (out->count > 0) TRY(inspect_add(r, "newest", "%s", list));
    for (int64_t i = 0; r->verifies && i < out->count; i++) {
        TRY(inspect_within(r, out->items[i].path));
    }
    return ST_OK;
}

// Verifies the run's own files by their kinds: metrics, events, traces, and the configuration with
// all values (the original file may depend on keys of the command line).
static status files_verify(inspect_report *r, const inspect_probe *p, int64_t *count)
{
    for (int64_t i = 0; i < p->names.count; i++) {
        inspect_probe inner = {.name = p->names.names[i]};
        char *path = NULL;
        if (strcmp(inner.name, "config.yaml") == 0) continue;
        if (!inspect_ends(&inner, ".json") && !inspect_ends(&inner, ".jsonl") &&
            !inspect_ends(&inner, ".yaml") && strstr(inner.name, "tfevents") == NULL) {
            continue;
        }
        TRY(path_join(r->cli->a, p->path, inner.name, &path));
        TRY(inspect_within(r, path));
        (*count)++;
    }
    return ST_OK;
}

status inspect_run(inspect_report *r, const inspect_probe *p)
{
    ckpt_entries checkpoints = {0};
    int64_t files = 0;
    TRY(run_json_tell(r, p->path));
    TRY(status_tell(r, p));
    TRY(checkpoints_look(r, p->path, &checkpoints));
    if (!r->verifies) return ST_OK;
    TRY(files_verify(r, p, &files));
    return inspect_checked(r, "%lld checkpoints and %lld files", (long long)checkpoints.count,
                           (long long)files);
}

// ---- configurations -----------------------------------------------------------------------------

static bool is_config_error(status st)
{
    return st == ST_CONFIG || st == ST_CONFIG_SYNTAX || st == ST_CONFIG_TYPE ||
           st == ST_CONFIG_KEY || st == ST_CONFIG_RANGE || st == ST_CONFIG_CONFLICT;
}

status inspect_config(inspect_report *r, const inspect_probe *p)
{
    run_config *c = NULL;
    config *origins = NULL;
    int64_t given = 0;
    TRY(arena_new(r->cli->a, 1, &c));
    const status st = run_config_load(r->cli->h, r->cli->a, p->path, NULL, 0, c, &origins);
    if (is_config_error(st)) {
        TRY(inspect_add(r, "usable", "no: %s", error_last()->text));
        TRY(inspect_damage(r, "%s", error_last()->text));
        error_clear();
        return ST_OK;
    }
    TRY(st);
    for (int64_t i = 0; i < run_config_table.count; i++) {
        given += config_is_given(origins, run_config_table.rows[i].key);
    }
    TRY(inspect_add_int(r, "keys", given));
    TRY(inspect_add_int(r, "steps", c->train.steps));
    TRY(inspect_add_int(r, "seq", c->train.seq));
    TRY(inspect_add_int(r, "batch", c->train.global_batch));
    if (c->model.preset != NULL) TRY(inspect_add(r, "preset", "%s", c->model.preset));
    return inspect_checked(r, "keys, types, limits and conflicts");
}
