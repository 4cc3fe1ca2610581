// Inside comm/transport/: UCX as it is found at run time. Its headers are needed to build what speaks to it, its
// libraries never: they are opened when ranks of several hosts want to talk.
#ifndef COMM_TRANSPORT_UCX_LIBRARY_H
#define COMM_TRANSPORT_UCX_LIBRARY_H

#include "base/base.h"

#if TRIREME_HAVE_UCX
#    include <stdio.h>
#    include <ucp/api/ucp.h>

// X(name): the functions of libucp that are called, as ucp_name.
#    define UCX_FUNCTIONS(X)          \
        X(init_version)               \
        X(cleanup)                    \
        X(config_read)                \
        X(config_release)             \
        X(config_modify)              \
        X(config_print)               \
        X(worker_create)              \
        X(worker_destroy)             \
        X(worker_get_address)         \
        X(worker_release_address)     \
        X(worker_progress)            \
        X(worker_get_efd)             \
        X(worker_arm)                 \
        X(worker_set_am_recv_handler) \
        X(worker_flush_nbx)           \
        X(ep_create)                  \
        X(ep_close_nbx)               \
        X(ep_print_info)              \
        X(tag_send_nbx)               \
        X(tag_recv_nbx)               \
        X(am_send_nbx)                \
        X(request_cancel)             \
        X(request_check_status)       \
        X(request_free)

typedef struct ucx_library {
#    define UCX_MEMBER(name) __typeof__(&ucp_##name) name;
    UCX_FUNCTIONS(UCX_MEMBER)
#    undef UCX_MEMBER
    const char *(*status_text)(ucs_status_t st);
} ucx_library;

// False: it is not there or lacks something; then *why says so. It stays open until the process ends.
bool ucx_library_open(ucx_library *out, const char **why);
#endif

#endif
