// Loads NCCL at run time.
#include "comm/nccl/library.h"

#include "base/library.h"

#include <dlfcn.h>

status nccl_library_open(nccl_library *out)
{
    int version = 0;
    void *const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
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
