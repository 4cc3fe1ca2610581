// The folder of a run's checkpoints: lists them, finds the newest, and removes those that may go.
//
// In "step-0000100.1" the number after the point is the fork; "step-0000100" is fork 0. A run that
// resumes from a checkpoint other than its newest (the newest is damaged, or the user asked for an
// older one) starts a new fork. All checkpoints of a later fork count as newer than those of
// earlier forks.
//
// A folder without manifest.json is one of two things. It is debris if a save or a removal was cut
// off: then it has no state, or one of the marks that both put there first and remove last,
// manifest.json.tmp and manifest.json.removed. With state and without a mark, its manifest is lost:
// the folder was a checkpoint, and nothing here ever removes it.
#include "base/fault.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool digits_parse(const char *digits, int64_t length, int64_t *out)
{
    int64_t value = 0;
    if (length < 1 || length > 18) return false;
    for (int64_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        value = value * 10 + (digits[i] - '0');
    }
    *out = value;
    return true;
}

bool ckpt_name_parse(const char *name, int64_t *step, int64_t *fork)
{
    *fork = 0;
    if (strncmp(name, "step-", 5) != 0) return false;
    const char *digits = name + 5, *point = strchr(digits, '.');
    const int64_t length = point != NULL ? point - digits : (int64_t)strlen(digits);
    if (!digits_parse(digits, length, step)) return false;
    return point == NULL || digits_parse(point + 1, (int64_t)strlen(point + 1), fork);
}

static int compare_entries(const void *a, const void *b)
{
    const ckpt_entry *x = a, *y = b; // newest first
    if (x->fork != y->fork) return x->fork > y->fork ? -1 : 1;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool is_mark(const char *name)
{
    return strcmp(name, CKPT_MANIFEST_NAME ".tmp") == 0 ||
           strcmp(name, CKPT_MANIFEST_NAME ".removed") == 0;
}

bool ckpt_is_state_file(const char *name)
{
    static const char begin[] = "state-", end[] = ".safetensors";
    const size_t n = strlen(name);
    return n > sizeof(end) && strncmp(name, begin, sizeof(begin) - 1) == 0 &&
           strcmp(name + n - (sizeof(end) - 1), end) == 0;
}

status ckpt_folder_look(const host *h, arena *a, const char *path, ckpt_folder *out)
{
    char *manifest = NULL;
    file_info info;
    file_names names = {0};
    *out = CKPT_FOLDER_DEBRIS;
    TRY(path_join(a, path, CKPT_MANIFEST_NAME, &manifest));
    TRY(h->api->path_info(h, manifest, &info));
    if (info.kind == FILE_KIND_REGULAR) {
        *out = CKPT_FOLDER_COMPLETE;
        return ST_OK;
    }
    TRY(h->api->path_info(h, path, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(h->api->path_list(h, a, path, &names));
    bool is_marked = false, has_state = false;
    for (int64_t i = 0; i < names.count; i++) {
        is_marked |= is_mark(names.names[i]);
        has_state |= ckpt_is_state_file(names.names[i]);
    }
    if (has_state && !is_marked) *out = CKPT_FOLDER_LOST;
    return ST_OK;
}

status ckpt_folder_is(const host *h, arena *a, const char *path, bool *out)
{
    ckpt_folder kind = CKPT_FOLDER_DEBRIS;
    TRY(ckpt_folder_look(h, a, path, &kind));
    *out = kind != CKPT_FOLDER_DEBRIS;
    return ST_OK;
}

static status list(const host *h, arena *a, const char *folder, ckpt_folder wanted,
                   ckpt_entries *out)
{
    file_info info;
    file_names names = {0};
    *out = (ckpt_entries){0};
    TRY(h->api->path_info(h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(h->api->path_list(h, a, folder, &names));
    TRY(arena_new(a, names.count, &out->items));
    for (int64_t i = 0; i < names.count; i++) {
        ckpt_entry e = {.name = names.names[i]};
        ckpt_folder kind = CKPT_FOLDER_DEBRIS;
        char *path = NULL;
        if (!ckpt_name_parse(e.name, &e.step, &e.fork)) continue;
        TRY(path_join(a, folder, e.name, &path));
        TRY(ckpt_folder_look(h, a, path, &kind));
        e.path = path;
        if (kind == wanted) out->items[out->count++] = e;
    }
    if (out->count > 1) {
        qsort(out->items, (size_t)out->count, sizeof(*out->items), compare_entries);
    }
    return ST_OK;
}

status ckpt_list(const host *h, arena *a, const char *folder, ckpt_entries *out)
{
    return list(h, a, folder, CKPT_FOLDER_COMPLETE, out);
}

status ckpt_list_lost(const host *h, arena *a, const char *folder, ckpt_entries *out)
{
    return list(h, a, folder, CKPT_FOLDER_LOST, out);
}

bool ckpt_is_newer(const ckpt_entry *x, const ckpt_entry *y)
{
    return compare_entries(x, y) < 0;
}

status ckpt_newest(const host *h, arena *a, const char *folder, char **path, int64_t *step)
{
    ckpt_entries list;
    *path = NULL;
    *step = -1;
    TRY(ckpt_list(h, a, folder, &list));
    if (list.count == 0) return ST_OK;
    *step = list.items[0].step;
    return arena_strdup(a, list.items[0].path, path);
}

// Removes the files of a folder, the marks only, or all except the marks.
static status files_remove(const host *h, arena *a, const char *path, bool marks)
{
    file_names names = {0};
    TRY(h->api->path_list(h, a, path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *name = NULL;
        if (is_mark(names.names[i]) != marks) continue;
        TRY(path_join(a, path, names.names[i], &name));
        TRY(fault_point("checkpoint.prune_unlink"));
        TRY(h->api->path_remove(h, name));
    }
    return ST_OK;
}

status ckpt_remove(const host *h, arena *a, const char *path)
{
    char *manifest = NULL, *gone = NULL;
    ckpt_folder kind = CKPT_FOLDER_DEBRIS;
    TRY(ckpt_folder_look(h, a, path, &kind));
    if (kind == CKPT_FOLDER_COMPLETE) {
        TRY(path_join(a, path, CKPT_MANIFEST_NAME, &manifest));
        TRY(path_join(a, path, CKPT_MANIFEST_NAME ".removed", &gone));
        TRY(fault_point("checkpoint.prune_rename"));
        TRY(h->api->path_rename(h, manifest, gone));
        TRY(h->api->path_sync(h, path));
    }
    TRY(files_remove(h, a, path, false));
    TRY(h->api->path_sync(h, path)); // the mark must not be gone before the state is
    TRY(files_remove(h, a, path, true));
    return h->api->path_remove(h, path);
}

status ckpt_name_free(const host *h, arena *a, const char *folder, int64_t step, int64_t fork,
                      char **name)
{
    for (;; fork++) {
        char *path = NULL;
        file_info info;
        ckpt_folder kind = CKPT_FOLDER_DEBRIS;
        if (fork == 0) {
            TRY(arena_format(a, name, "step-%07lld", (long long)step));
        } else {
            TRY(arena_format(a, name, "step-%07lld.%lld", (long long)step, (long long)fork));
        }
        TRY(path_join(a, folder, *name, &path));
        TRY(h->api->path_info(h, path, &info));
        if (info.kind == FILE_KIND_NONE) return ST_OK;
        if (info.kind != FILE_KIND_FOLDER) continue;
        TRY(ckpt_folder_look(h, a, path, &kind));
        if (kind != CKPT_FOLDER_DEBRIS) continue;
        if (ckpt_remove(h, a, path) == ST_OK) return ST_OK;
        error_clear(); // a folder that cannot be removed keeps its name
    }
}

status ckpt_debris_remove(const host *h, arena *a, const char *folder, text *removed)
{
    file_info info;
    file_names names = {0};
    TRY(h->api->path_info(h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(h->api->path_list(h, a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        int64_t step = 0, fork = 0;
        char *path = NULL;
        TRY(path_join(a, folder, name, &path));
        if (ckpt_name_parse(name, &step, &fork)) {
            ckpt_folder kind = CKPT_FOLDER_DEBRIS;
            TRY(h->api->path_info(h, path, &info));
            TRY(ckpt_folder_look(h, a, path, &kind));
            if (kind != CKPT_FOLDER_DEBRIS || info.kind != FILE_KIND_FOLDER) continue;
            TRY(ckpt_remove(h, a, path));
        } else if (strcmp(name, "latest.tmp") == 0 || strcmp(name, "best.tmp") == 0) {
            TRY(h->api->path_remove(h, path));
        } else {
            continue;
        }
        TRY(text_add(removed, "%s%s", removed->length > 0 ? ", " : "", name));
    }
    return ST_OK;
}

static bool is_protected(const ckpt_keep *k, const ckpt_entry *e)
{
    if (k->keep_every > 0 && e->step % k->keep_every == 0) return true;
    if (k->saved != NULL && strcmp(k->saved, e->name) == 0) return true;
    return k->best != NULL && strcmp(k->best, e->name) == 0;
}

static bool is_damaged(const ckpt_keep *k, const char *name)
{
    for (int64_t i = 0; i < k->damaged_count; i++) {
        if (strcmp(k->damaged[i], name) == 0) return true;
    }
    return false;
}

status ckpt_prune(const host *h, arena *a, const char *folder, const ckpt_keep *k)
{
    ckpt_entries list;
    int64_t good = 0;
    TRY(ckpt_list(h, a, folder, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const ckpt_entry *e = &list.items[i];
        if (!is_damaged(k, e->name)) good++;
        if (good <= max_i64(k->keep, 2) || is_protected(k, e)) continue;
        TRY(ckpt_remove(h, a, e->path));
    }
    return ST_OK;
}
