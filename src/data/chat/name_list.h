// Names of lines: FILE:LINE, with or without the folders, or the "id" of the line. Private to this
// folder.
#ifndef DATA_CHAT_NAME_LIST_H
#define DATA_CHAT_NAME_LIST_H

#include "base/base.h"
#include "base/hash.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct name_list {
    hash128 *hashes; // sorted
    int64_t count;
    char *name; // of a line, as it is compared
    size_t capacity;
} name_list;

// longest: bytes of the longest path that the list is asked for.
NODISCARD status name_list_make(const char *const *names, int64_t count, int64_t longest,
                                name_list *out);
void name_list_free(name_list *l);
// Whether the list names this line. id: id_bytes long; 0: it has none.
bool name_list_has(const name_list *l, const char *path, int64_t line, const char *id,
                   int64_t id_bytes);

#ifdef __cplusplus
}
#endif
#endif
