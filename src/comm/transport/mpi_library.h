// Inside comm/transport/: MPI, found at run time. The build needs its header only; its library is
// loaded when ranks are to communicate over it. It must be Open MPI, whose constants are symbols.
// Other libraries number them, and with their headers this transport is left out.
#ifndef COMM_TRANSPORT_MPI_LIBRARY_H
#define COMM_TRANSPORT_MPI_LIBRARY_H

#include "base/base.h"

#if TRIREME_HAVE_MPI
#    include <mpi.h>

// X(name): the functions MPI_name that the transport calls.
#    define MPI_FUNCTIONS(X)   \
        X(Init_thread)         \
        X(Initialized)         \
        X(Finalize)            \
        X(Finalized)           \
        X(Comm_rank)           \
        X(Comm_size)           \
        X(Comm_set_errhandler) \
        X(Error_string)        \
        X(Isend)               \
        X(Irecv)               \
        X(Recv)                \
        X(Iprobe)              \
        X(Test)                \
        X(Cancel)              \
        X(Get_count)

typedef struct mpi_library {
#    define MPI_MEMBER(name) __typeof__(&MPI_##name) name;
    MPI_FUNCTIONS(MPI_MEMBER)
#    undef MPI_MEMBER
    MPI_Comm world;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
} mpi_library;

// Returns false, with the reason in *why, if it is missing or incomplete. It stays open until the
// process ends.
bool mpi_library_open(mpi_library *out, const char **why);
#endif

#endif
