// Loads UCX and undoes its side effects on the process: it must not take over signals, and it does
// not print.
#include "comm/transport/ucx_library.h"

#include "base/library.h"

#if TRIREME_HAVE_UCX
#    include <dlfcn.h>
#    include <signal.h>
#    include <string.h>

// UCX's constructor installs handlers for these signals, which print a stack trace.
static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};

static void *open_quietly(const char *name)
{
    struct sigaction before[COUNT_OF(signals)];
    for (int64_t i = 0; i < COUNT_OF(signals); i++) (void)sigaction(signals[i], NULL, &before[i]);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (int64_t i = 0; i < COUNT_OF(signals); i++) (void)sigaction(signals[i], &before[i], NULL);
    return library;
}

// UCX's warnings would go to the stdout of the program. The level that a user sets is respected.
static void silence(void *ucs)
{
    typedef ucs_status_t get_value(const char *name, char *value, size_t max);
    typedef ucs_status_t set_value(const char *name, const char *value);
    union {
        void *symbol;
        get_value *call;
    } get = {.symbol = dlsym(ucs, "ucs_global_opts_get_value")};
    union {
        void *symbol;
        set_value *call;
    } set = {.symbol = dlsym(ucs, "ucs_global_opts_set_value")};
    char level[32] = "";
    if (get.symbol == NULL || set.symbol == NULL) return;
    if (get.call("LOG_LEVEL", level, sizeof(level)) == UCS_OK && strcasecmp(level, "warn") == 0) {
        (void)set.call("LOG_LEVEL", "fatal");
    }
}

bool ucx_library_open(ucx_library *out, const char **why)
{
    void *const ucs = open_quietly("libucs.so.0");
    void *const ucp = ucs != NULL ? open_quietly("libucp.so.0") : NULL;
    if (ucp == NULL) {
        *why = "UCX (libucp.so.0) is not on this machine; apt install libucx0";
        return false;
    }
    silence(ucs);
    bool all = library_find(ucs, "ucs_status_string", &out->status_text);
#    define UCX_FIND(name) all = all && library_find(ucp, "ucp_" #    name, &out->name);
    UCX_FUNCTIONS(UCX_FIND)
#    undef UCX_FIND
    *why = all ? NULL : "the UCX of this machine is too old; 1.13 or later is needed";
    return all;
}
#else
typedef int ucx_library_is_absent;
#endif
