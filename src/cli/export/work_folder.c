// Replaces a folder by two renames. The old folder is renamed before the new one takes its
// name, so for a moment neither exists, but a partial folder never does.
#include "cli/export/work_folder.h"

#include <string.h>

status cli_path_trim(arena *a, const char *path, char **out)
{
    int length = (int)strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    return arena_format(a, out, "%.*s", length, path);
}

static void files_remove(cli_context *cli, const char *folder, int depth)
{
    const host_api *api = cli->h->api;
    file_names names;
    file_info info;
    if (api->path_info(cli->h, folder, &info) != ST_OK || info.kind != FILE_KIND_FOLDER) return;
    if (api->path_list(cli->h, cli->a, folder, &names) != ST_OK) return;
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL;
        if (path_join(cli->a, folder, names.names[i], &path) != ST_OK) return;
        if (api->path_remove(cli->h, path) != ST_OK && depth > 0) {
            files_remove(cli, path, depth - 1);
        }
    }
    (void)api->path_remove(cli->h, folder);
}

void cli_work_remove(cli_context *cli, const char *folder)
{
    error_record kept;
    error_take(&kept);
    files_remove(cli, folder, 1);
    (void)error_put(&kept);
}

// Makes a rename durable.
static status parent_sync(cli_context *cli, const char *path)
{
    char *folder = NULL;
    const int length = (int)(path_base_name(path) - path);
    TRY(arena_format(cli->a, &folder, "%.*s.", length, path));
    return cli->h->api->path_sync(cli->h, folder);
}

status cli_work_rename(cli_context *cli, const char *work, const char *to, bool replaces)
{
    const host_api *api = cli->h->api;
    char *old = NULL;
    file_info info;
    TRY(api->path_sync(cli->h, work));
    TRY(api->path_info(cli->h, to, &info));
    if (info.kind == FILE_KIND_NONE || !replaces) {
        TRY(api->path_rename(cli->h, work, to));
        return parent_sync(cli, to);
    }
    TRY(arena_format(cli->a, &old, "%s.replaced", to));
    cli_work_remove(cli, old); // left by a run that was killed here
    TRY(api->path_rename(cli->h, to, old));
    const status st = api->path_rename(cli->h, work, to);
    if (st != ST_OK) {
        error_record kept;
        error_take(&kept);
        (void)api->path_rename(cli->h, old, to);
        return error_put(&kept);
    }
    TRY(parent_sync(cli, to));
    cli_work_remove(cli, old);
    return ST_OK;
}
