// Finds the library's functions by name.
#include "serve/http_library.h"

#include "base/library.h"

#if TRIREME_HAVE_MICROHTTPD
#    include <dlfcn.h>
#    include <string.h>

bool http_library_open(http_library *out, const char **why)
{
    void *const library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    bool all = library != NULL;
    if (!all) {
        *why = "libmicrohttpd (libmicrohttpd.so.12) is not on this machine; apt install "
               "libmicrohttpd12";
        return false;
    }
#    define HTTP_FIND(name) all = all && library_find(library, "MHD_" #    name, &out->name);
    HTTP_FUNCTIONS(HTTP_FIND)
#    undef HTTP_FIND
    *why = all ? NULL : "the libmicrohttpd of this machine is too old; 0.9.70 or later is needed";
    return all;
}
#else
typedef int http_library_is_absent;
#endif
