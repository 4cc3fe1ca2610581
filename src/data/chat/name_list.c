// Lists of names of lines, as sorted hashes: a long list costs a line no more than a short one.
#include "data/chat/name_list.h"

#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_hashes(const void *left, const void *right)
{
    const hash128 *a = left, *b = right;
    return hash128_compare(*a, *b);
}

status name_list_make(const char *const *names, int64_t count, int64_t longest, name_list *out)
{
    *out = (name_list){.count = count, .capacity = (size_t)longest + 32};
    out->name = malloc(out->capacity);
    out->hashes = malloc((size_t)max_i64(1, count) * sizeof(*out->hashes));
    if (out->name == NULL || out->hashes == NULL) {
        name_list_free(out);
        return fail(ST_NO_MEMORY, "no memory for a list of %lld names", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        out->hashes[i] = hash128_of(names[i], (int64_t)strlen(names[i]));
    }
    qsort(out->hashes, (size_t)count, sizeof(*out->hashes), compare_hashes);
    return ST_OK;
}

void name_list_free(name_list *l)
{
    free(l->name);
    free(l->hashes);
    *l = (name_list){.count = 0};
}

static bool is_listed(const name_list *l, const char *name, int64_t bytes)
{
    const hash128 hash = hash128_of(name, bytes);
    return bsearch(&hash, l->hashes, (size_t)l->count, sizeof(hash), compare_hashes) != NULL;
}

bool name_list_has(const name_list *l, const char *path, int64_t line, const char *id,
                   int64_t id_bytes)
{
    const int64_t folders = path_base_name(path) - path;
    const int bytes = snprintf(l->name, l->capacity, "%s:%lld", path, (long long)line);
    ASSERT(bytes > 0 && (size_t)bytes < l->capacity);
    return is_listed(l, l->name, bytes) || is_listed(l, l->name + folders, bytes - folders) ||
           (id_bytes > 0 && is_listed(l, id, id_bytes));
}
