// Loads NCCL at run time.
#include "comm/nccl/library.h"

#include "base/library.h"

status nccl_library_open(nccl_library *out)
{
    int version = 0;
    const char *why = NULL;
    void *const library = library_load("libnccl.so.2", &why);
    if (library == NULL && why != NULL) {
        return fail(
            ST_UNSUPPORTED,
            "NCCL cannot be loaded: %s; install libnccl2 anew, or set comm.transport = auto", why);
    }
    if (library == NULL) {
        return fail(ST_UNSUPPORTED,
                    "NCCL (libnccl.so.2) is not on this machine; apt install libnccl2, or set "
                    "comm.transport = auto");
    }
    bool all = library_find(library, "ncclGetErrorString", &out->text);
#define FIND(field, symbol, parameters) all = all && library_find(library, #symbol, &out->field);
    NCCL_FUNCTIONS(FIND)
#undef FIND
    if (!all || out->version(&version) != 0 || version < NCCL_OLDEST) {
        return fail(ST_UNSUPPORTED, "NCCL %d.%d is too old; 2.19 or later is needed",
                    version / 10000, version / 100 % 100);
    }
    return ST_OK;
}
