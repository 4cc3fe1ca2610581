// The transports, in the order in which "auto" tries them.
#include "comm/transport/transport_table.h"

#include <string.h>

const comm_transport *const comm_transport_table[] = {&comm_transport_self, &comm_transport_shm,
                                                      &comm_transport_ucx, &comm_transport_mpi};

int comm_transport_count(void)
{
    return (int)COUNT_OF(comm_transport_table);
}

const comm_transport *comm_transport_find(const char *name)
{
    for (int i = 0; i < comm_transport_count(); i++) {
        if (strcmp(comm_transport_table[i]->name, name) == 0) return comm_transport_table[i];
    }
    return NULL;
}
