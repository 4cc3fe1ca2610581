// Fuzz entry: a model's folder as Hugging Face shards it: the index, a line "%%", the first file,
// a line "%%", the second. What opens is read in full; no name but plain ones is ever opened.
#include "base/format/safetensors.h"
#include "memory_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status open_plain(const host *h, const char *path, file_mode mode, file **out)
{
    // The index may name files beside it and nothing else.
    ASSERT(strncmp(path, "m/", 2) == 0 && strchr(path + 2, '/') == NULL && path[2] != '.');
    ASSERT(mode == FILE_READ_OWN);
    return memory_open(h, path, mode, out);
}

static void read_all(const safetensors *s)
{
    unsigned char piece[256];
    for (int64_t i = 0; i < safetensors_count(s); i++) {
        const safetensors_entry *e = safetensors_at(s, i);
        ASSERT(safetensors_find(s, e->name) != NULL);
        for (int64_t at = 0; at < e->bytes; at += (int64_t)sizeof(piece)) {
            const status st =
                safetensors_read(s, e, at, piece, min_i64((int64_t)sizeof(piece), e->bytes - at));
            ASSERT(st == ST_OK);
        }
    }
    (void)safetensors_metadata(s, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"m/model.safetensors.index.json", "m/a.safetensors",
                                        "m/b.safetensors"};
    memory_files files = {0};
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < 3; i++) {
        const uint8_t *border = i == 2 ? NULL : memmem(at, (size_t)(end - at), "\n%%\n", 4);
        const uint8_t *stop = border != NULL ? border : end;
        files.files[i] = (struct file){names[i], at, stop - at, NULL};
        at = border != NULL ? border + 4 : end;
    }
    host_api api = memory_api;
    api.file_open = open_plain;
    const host h = {.api = &api, .state = &files};
    safetensors *s = NULL;
    if (safetensors_open(&h, names[0], &s) == ST_OK) {
        read_all(s);
        safetensors_close(s);
    } else {
        const int code = status_exit_code(error_last()->code);
        ASSERT(code == 5 || code == 76 || error_last()->code == ST_NO_MEMORY);
        ASSERT(strstr(error_last()->text, "m/") != NULL);
    }
    return 0;
}
