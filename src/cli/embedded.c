// Decompresses the embedded files of share/.
#include "cli/embedded.h"

#include <string.h>
#include <zstd.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

status cli_embedded_read(arena *a, const char *ending, char **out, int64_t *bytes)
{
    const cli_embedded_file *f = cli_embedded_files;
    char *data = NULL;
    while (f->name != NULL && !ends_with(f->name, ending)) f++;
    if (f->name == NULL) {
        return fail(ST_NOT_FOUND, "this program was built without a file \"%s\"", ending);
    }
    TRY(arena_new(a, (int64_t)f->bytes + 1, &data));
    if (ZSTD_decompress(data, f->bytes, f->packed, f->packed_bytes) != f->bytes) {
        return fail(ST_INTERNAL, "the file %s in the program is damaged", f->name);
    }
    *out = data;
    *bytes = (int64_t)f->bytes;
    return ST_OK;
}
