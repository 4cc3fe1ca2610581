// Loads MPI at run time.
#include "comm/transport/mpi_library.h"

#include "base/library.h"

#if TRIREME_HAVE_MPI
#    include <dlfcn.h>
#    include <string.h>

bool mpi_library_open(mpi_library *out, const char **why)
{
    // Global: its own plugins look for its symbols.
    void *const library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        *why = "Open MPI (libmpi.so.40) is not on this machine; apt install libopenmpi3";
        return false;
    }
    bool all = library_find(library, "ompi_mpi_comm_world", &out->world) &&
               library_find(library, "ompi_mpi_byte", &out->byte) &&
               library_find(library, "ompi_mpi_errors_return", &out->errors_return);
#    define MPI_FIND(name) all = all && library_find(library, "MPI_" #    name, &out->name);
    MPI_FUNCTIONS(MPI_FIND)
#    undef MPI_FIND
    *why = all ? NULL : "the libmpi.so.40 of this machine is not Open MPI's";
    return all;
}
#else
typedef int mpi_library_is_absent;
#endif
