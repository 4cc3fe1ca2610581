// libmicrohttpd, looked for at run time. Private to this folder.
#ifndef SERVE_HTTP_LIBRARY_H
#define SERVE_HTTP_LIBRARY_H

#include "base/base.h"

#if TRIREME_HAVE_MICROHTTPD
#    include <microhttpd.h>

// The functions of the library that are used, each as MHD_<name>.
#    define HTTP_FUNCTIONS(X)            \
        X(start_daemon)                  \
        X(stop_daemon)                   \
        X(get_daemon_info)               \
        X(get_connection_info)           \
        X(get_connection_values)         \
        X(lookup_connection_value)       \
        X(create_response_from_buffer)   \
        X(create_response_from_callback) \
        X(add_response_header)           \
        X(queue_response)                \
        X(destroy_response)

typedef struct http_library {
#    define HTTP_MEMBER(name) __typeof__(MHD_##name) *name;
    HTTP_FUNCTIONS(HTTP_MEMBER)
#    undef HTTP_MEMBER
} http_library;

// False: *why says what is missing.
bool http_library_open(http_library *out, const char **why);
#endif

#endif
