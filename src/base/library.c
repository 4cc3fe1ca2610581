#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

bool library_find(void *library, const char *name, void *out)
{
    void *const symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

void *library_load(const char *name, const char **why)
{
    void *const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *said = library == NULL ? dlerror() : NULL;
    // "libx.so.1: cannot open shared object file: No such file or directory"; a library that it
    // needs is named in the same way.
    const size_t length = strlen(name);
    const bool is_absent = said != NULL && strncmp(said, name, length) == 0 &&
                           said[length] == ':' && strstr(said, "No such file") != NULL;
    *why = is_absent ? NULL : said;
    return library;
}
