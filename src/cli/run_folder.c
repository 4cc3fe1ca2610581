// Recognizes operands by the contents of a folder and never by its name.
#include "cli/run_folder.h"

#include "checkpoint/checkpoint.h"
#include "model/preset.h"

status cli_has_file(cli_context *cli, const char *folder, const char *name, bool *out)
{
    char *path = NULL;
    file_info info;
    TRY(path_join(cli->a, folder, name, &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    *out = info.kind == FILE_KIND_REGULAR;
    return ST_OK;
}

status cli_operand_kind(cli_context *cli, const char *path, operand_kind *out)
{
    static const struct {
        const char *name;
        operand_kind kind;
    } marks[] = {{"run.json", OPERAND_RUN},
                 {"manifest.json", OPERAND_CHECKPOINT},
                 {"config.json", OPERAND_HF}};
    file_info info;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s does not exist", path);
    if (info.kind != FILE_KIND_FOLDER) {
        *out = OPERAND_CONFIG;
        return ST_OK;
    }
    for (int64_t i = 0; i < COUNT_OF(marks); i++) {
        bool has = false;
        // A checkpoint that has lost its manifest is none of the other kinds.
        if (marks[i].kind == OPERAND_HF) TRY(ckpt_folder_is(cli->h, cli->a, path, &has));
        if (has) return ckpt_lost_fail(cli->h, cli->a, path);
        TRY(cli_has_file(cli, path, marks[i].name, &has));
        if (!has) continue;
        *out = marks[i].kind;
        return ST_OK;
    }
    return fail(ST_NOT_FOUND,
                "%s holds no run (run.json), no checkpoint (manifest.json) and no model "
                "(config.json)",
                path);
}

status cli_checkpoint_of(cli_context *cli, const char *path, char **out)
{
    operand_kind kind;
    char *folder = NULL, *newest = NULL;
    TRY(cli_operand_kind(cli, path, &kind));
    if (kind == OPERAND_CHECKPOINT) return arena_strdup(cli->a, path, out);
    if (kind != OPERAND_RUN) {
        return fail(ST_USAGE, "%s is neither a run nor a checkpoint", path);
    }
    TRY(path_join(cli->a, path, "checkpoints", &folder));
    int64_t step = -1;
    TRY(ckpt_newest(cli->h, cli->a, folder, &newest, &step));
    if (newest == NULL) {
        ckpt_entries lost;
        TRY(ckpt_list_lost(cli->h, cli->a, folder, &lost));
        if (lost.count > 0) return ckpt_lost_fail(cli->h, cli->a, lost.items[0].path);
        return fail(ST_NOT_FOUND, "the run %s has no complete checkpoint yet in %s", path, folder);
    }
    *out = newest;
    return ST_OK;
}

status cli_config_file(cli_context *cli, const char *path, const char **out, bool *is_resolved)
{
    static const char *const names[] = {"config.resolved.yaml", "config.yaml"};
    file_info info;
    *out = path;
    *is_resolved = false;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_NONE && model_preset_named(path) != NULL) {
        return fail(ST_NOT_FOUND,
                    "there is no file \"%s\"; the model of this name goes with --cluster NAME, or "
                    "with model.preset=%s in a configuration",
                    path, path);
    }
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s does not exist", path);
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        bool has = false;
        char *found = NULL;
        TRY(cli_has_file(cli, path, names[i], &has));
        if (!has) continue;
        TRY(path_join(cli->a, path, names[i], &found));
        *out = found;
        *is_resolved = i == 0;
        return ST_OK;
    }
    return fail(ST_NOT_FOUND, "%s holds neither a %s nor a %s", path, names[0], names[1]);
}
