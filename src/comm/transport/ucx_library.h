// Inside comm/transport/: UCX, found at run time. The build needs its headers only; its libraries
// are loaded when ranks of several hosts communicate.
#ifndef COMM_TRANSPORT_UCX_LIBRARY_H
#define COMM_TRANSPORT_UCX_LIBRARY_H

#include "base/base.h"

#if TRIREME_HAVE_UCX
#    include <stdio.h>
#    include <ucp/api/ucp.h>

// X(name): the functions ucp_name of libucp that the transport calls.
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

// Returns false, with the reason in *why, if it is missing or incomplete. It stays open until the
// process ends.
bool ucx_library_open(ucx_library *out, const char **why);
#endif

#endif
