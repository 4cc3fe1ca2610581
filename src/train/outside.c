// The bytes of a GPU that no plan has: the driver's context, the code of kernels, libraries.
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "train/job.h"

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

// The entry with the longest name that the GPU's contains; the H100's for others.
static status entry_of(arena *a, const char *gpu, const char **out)
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

status train_outside_bytes(const host *h, arena *a, const run_config *r, int64_t *out)
{
    char gpu[NAME_BYTES];
    const char *entry = NULL;
    cluster_device d;
    *out = 0;
    if (r->kernels.device != RUN_DEVICE_CUDA) return ST_OK;
    device_cuda_name(gpu);
    TRY(entry_of(a, gpu, &entry));
    TRY(catalog_device_load(h, a, entry, &d));
    *out = (int64_t)d.context_bytes;
    return ST_OK;
}
