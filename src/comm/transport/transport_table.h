// The rows of transport_table.c.
#ifndef COMM_TRANSPORT_TABLE_H
#define COMM_TRANSPORT_TABLE_H

#include "comm/transport/transport.h"

extern const comm_transport comm_transport_self;
extern const comm_transport comm_transport_shm;
extern const comm_transport comm_transport_ucx;
extern const comm_transport comm_transport_mpi;

#endif
