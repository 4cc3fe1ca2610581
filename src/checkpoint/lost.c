// Describes the folder of a checkpoint whose manifest.json is lost: which of its state files can
// still be read, and how to go on. It reads headers only, as no checksum of the values is left.
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

#include <string.h>

static status file_describe(const host *h, arena *a, const char *path, const char *name, text *out)
{
    file *f = NULL;
    safetensors_head head;
    char *own = NULL, size[32];
    TRY(path_join(a, path, name, &own));
    TRY(h->api->file_open(h, own, FILE_READ_OWN, &f));
    const status st = safetensors_head_read(h, f, a, own, &head);
    (void)h->api->file_close(f); // it was only read
    if (st == ST_NO_MEMORY) return st;
    if (st != ST_OK) {
        error_clear();
        return text_add(out, "\n  %s cannot be read: it was cut, or its header is damaged", name);
    }
    return text_add(out, "\n  %s can be read: %lld tensors, %s", name, (long long)head.count,
                    text_bytes_human(head.file_bytes, size));
}

status ckpt_lost_fail(const host *h, arena *a, const char *path)
{
    text files = {.a = a};
    file_names names = {0};
    TRY(h->api->path_list(h, a, path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (!ckpt_is_state_file(names.names[i])) continue;
        TRY(file_describe(h, a, path, names.names[i], &files));
    }
    return fail(ST_DAMAGED,
                "%s has lost its " CKPT_MANIFEST_NAME ", without which no byte of it can be "
                "verified; nothing was removed%.2000s\n  put " CKPT_MANIFEST_NAME
                " back from a copy of the checkpoint; or read weights and optimizer state from "
                "these files with any safetensors library, unverified",
                path, files.bytes != NULL ? files.bytes : "");
}
