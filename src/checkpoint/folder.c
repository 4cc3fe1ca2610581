// The folder of a run's checkpoints: which is newest, which may go.
#include "checkpoint/checkpoint.h"

#include <string.h>

// The step of "step-0000100"; -1 if the name is none, or (with_manifest) has none.
static status step_of(const host *h, arena *a, const char *folder, const char *name,
                      bool with_manifest, int64_t *step)
{
    *step = -1;
    int64_t value = 0;
    if (strncmp(name, "step-", 5) != 0 || !text_parse_i64(name + 5, &value)) return ST_OK;
    if (with_manifest) {
        char *path = NULL;
        file_info info;
        TRY(arena_format(a, &path, "%s/%s/manifest.json", folder, name));
        TRY(h->api->path_info(h, path, &info));
        if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    }
    *step = value;
    return ST_OK;
}

status ckpt_newest(const host *h, arena *a, const char *folder, int64_t before, char **path,
                   int64_t *step)
{
    file_info info;
    file_names names = {0};
    *path = NULL;
    *step = -1;
    TRY(h->api->path_info(h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(h->api->path_list(h, a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        int64_t found = -1;
        TRY(step_of(h, a, folder, names.names[i], true, &found));
        if (found <= *step || found >= before) continue;
        *step = found;
        TRY(path_join(a, folder, names.names[i], path));
    }
    return ST_OK;
}

// The manifest goes first: from then on the folder is debris, whatever happens.
static status checkpoint_remove(const host *h, arena *a, const char *path)
{
    file_names names = {0};
    char *manifest = NULL, *gone = NULL;
    TRY(path_join(a, path, "manifest.json", &manifest));
    TRY(path_join(a, path, "manifest.removed", &gone));
    TRY(h->api->path_rename(h, manifest, gone));
    TRY(h->api->path_sync(h, path));
    TRY(h->api->path_list(h, a, path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *name = NULL;
        TRY(path_join(a, path, names.names[i], &name));
        TRY(h->api->path_remove(h, name));
    }
    return h->api->path_remove(h, path);
}

status ckpt_prune(const host *h, arena *a, const char *folder, int64_t keep, int64_t keep_every,
                  const char *best)
{
    file_names names = {0};
    TRY(h->api->path_list(h, a, folder, &names)); // sorted: steps have seven digits and more
    int64_t newer = 0;
    for (int64_t i = names.count - 1; i >= 0; i--) {
        int64_t step = -1;
        TRY(step_of(h, a, folder, names.names[i], true, &step));
        if (step < 0) continue;
        newer++;
        if (newer <= max_i64(keep, 1)) continue;
        if (keep_every > 0 && step % keep_every == 0) continue;
        if (best != NULL && strcmp(best, names.names[i]) == 0) continue;
        char *path = NULL;
        TRY(path_join(a, folder, names.names[i], &path));
        TRY(checkpoint_remove(h, a, path));
    }
    return ST_OK;
}
