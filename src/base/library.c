#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

bool library_find(void *library, const char *name, void *out)
{
    void *const symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof(symbol));
    return symbol != NULL;
}
