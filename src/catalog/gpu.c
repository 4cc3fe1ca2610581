// The entry of a GPU by the name that its driver tells: "NVIDIA H100 80GB HBM3" is h100.
#include "catalog/files.h"

#include <ctype.h>
#include <string.h>

enum { NAME_BYTES = 64 };

// Letters and digits alone, in lower case: "h100pcie".
static void plain(const char *name, char out[NAME_BYTES])
{
    int count = 0;
    for (; *name != '\0' && count < NAME_BYTES - 1; name++) {
        if (isalnum((unsigned char)*name)) out[count++] = (char)tolower((unsigned char)*name);
    }
    out[count] = '\0';
}

status catalog_gpu_entry(arena *a, const char *gpu, const char **out)
{
    const char **names = NULL;
    int64_t count = 0;
    size_t longest = 0;
    char own[NAME_BYTES], theirs[NAME_BYTES];
    plain(gpu, own);
    *out = "h100";
    TRY(catalog_names(a, "devices", &names, &count));
    for (int64_t i = 0; i < count; i++) {
        plain(names[i], theirs);
        if (strlen(theirs) <= longest || strstr(own, theirs) == NULL) continue;
        longest = strlen(theirs);
        *out = names[i];
    }
    return ST_OK;
}
