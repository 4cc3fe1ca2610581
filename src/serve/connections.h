// The connections whose clients have sent no whole request yet. Private to this folder.
//
// A client that sends a byte now and then is never silent, and each holds a thread and one of the
// places. So a request has a time to arrive in; and where the places become few, the connection
// that has waited longest for its request ends for a new one. A connection whose request is
// answered is never ended for another.
#ifndef SERVE_CONNECTIONS_H
#define SERVE_CONNECTIONS_H

#include "serve/serve.h"

#include <pthread.h>

typedef struct serve_connection serve_connection;

typedef struct serve_connections {
    const host *h;
    pthread_mutex_t lock;
    serve_connection *first, *last; // those that wait for a request, the oldest first
    int64_t count;                  // all
} serve_connections;

NODISCARD status serve_connections_init(serve_connections *l, const host *h);
void serve_connections_deinit(serve_connections *l); // all have ended
// fd: its socket, until serve_connection_end. NULL: no memory; it is not watched then.
serve_connection *serve_connection_begin(serve_connections *l, int fd);
void serve_connection_end(serve_connections *l, serve_connection *c);
// It has a whole request now, or has answered it.
void serve_connection_works(serve_connections *l, serve_connection *c, bool works);
// Ends those whose request takes too long.
void serve_connections_look(serve_connections *l);

#endif
