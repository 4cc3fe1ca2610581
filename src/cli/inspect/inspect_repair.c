// `inspect CHECKPOINT --repair`: where the damaged pieces may come from. A checkpoint of a run has
// its neighbours, the copies in the machine's memory (RUN/memory) and those of the durable tier
// (RUN/durable).
#include "checkpoint/checkpoint.h"
#include "cli/inspect/inspect.h"

#include <string.h>

enum { SOURCES_MAX = 1024 };

typedef struct sources {
    cli_context *cli;
    const char *own; // the checkpoint's name is not a source at this place
    file_names list;
} sources;

static status source_add(sources *s, const char *path)
{
    file_info own, other;
    TRY(s->cli->h->api->path_info(s->cli->h, s->own, &own));
    TRY(s->cli->h->api->path_info(s->cli->h, path, &other));
    if (other.kind == FILE_KIND_NONE || own.inode == other.inode) return ST_OK;
    if (s->list.count == SOURCES_MAX) return ST_OK;
    return arena_strdup(s->cli->a, path, &s->list.names[s->list.count++]);
}

// The checkpoints of a folder; one that cannot be read has none.
static status folder_add(sources *s, const char *folder)
{
    ckpt_entries found = {0};
    if (ckpt_list(s->cli->h, s->cli->a, folder, &found) != ST_OK) error_clear();
    for (int64_t i = 0; i < found.count; i++) TRY(source_add(s, found.items[i].path));
    return ST_OK;
}

static status sources_find(sources *s, const char *from)
{
    char *siblings = NULL, *memory = NULL, *durable = NULL, *manifest = NULL;
    file_info info;
    TRY(arena_new(s->cli->a, SOURCES_MAX, &s->list.names));
    if (from != NULL) {
        TRY(path_join(s->cli->a, from, "manifest.json", &manifest));
        TRY(s->cli->h->api->path_info(s->cli->h, from, &info));
        if (info.kind != FILE_KIND_FOLDER) {
            return fail(ST_NOT_FOUND, "--from %s is no folder", from);
        }
        TRY(s->cli->h->api->path_info(s->cli->h, manifest, &info));
        TRY(info.kind == FILE_KIND_NONE ? folder_add(s, from) : source_add(s, from));
    }
    TRY(path_join(s->cli->a, s->own, "../../memory", &memory));
    TRY(path_join(s->cli->a, s->own, "../../durable", &durable));
    TRY(path_join(s->cli->a, s->own, "..", &siblings));
    TRY(folder_add(s, memory));
    TRY(folder_add(s, durable));
    return folder_add(s, siblings);
}

status inspect_repair(cli_context *cli, const char *path, const char *from)
{
    sources s = {.cli = cli, .own = path};
    text report = {.a = cli->a}, damage = {.a = cli->a};
    ckpt_folder kind;
    int64_t pieces = 0;
    TRY(ckpt_folder_look(cli->h, cli->a, path, &kind));
    if (kind == CKPT_FOLDER_DEBRIS) {
        return fail(ST_NOT_FOUND,
                    "%s is no checkpoint; --repair takes a folder like "
                    "RUN/checkpoints/step-0000100",
                    path);
    }
    const status before = ckpt_verify(cli->h, cli->a, path, &damage);
    if (before == ST_OK) {
        cli_print(cli, "%s is whole; nothing was changed\n", path);
        return ST_OK;
    }
    error_clear();
    TRY(sources_find(&s, from));
    TRY(ckpt_repair(cli->h, cli->a, path, &s.list, &report, &pieces));
    cli_print_text(cli, &report);
    cli_print(cli, "%lld piece%s rebuilt; %s is whole again\n", (long long)pieces,
              text_plural(pieces, "s"), path);
    return ST_OK;
}
