// A list, the oldest first. The end of a socket ends its connection, which its thread notices.
#include "serve/connections.h"

#include <stdlib.h>
#include <sys/socket.h>

struct serve_connection {
    serve_connection *before, *after;
    int fd;
    int64_t since_ns;
    bool waits; // it is in the list
};

static void list_leave(serve_connections *l, serve_connection *c)
{
    if (!c->waits) return;
    c->waits = false;
    *(c->before != NULL ? &c->before->after : &l->first) = c->after;
    *(c->after != NULL ? &c->after->before : &l->last) = c->before;
}

static void list_join(serve_connections *l, serve_connection *c)
{
    ASSERT(!c->waits);
    c->waits = true;
    c->since_ns = l->h->api->monotonic_ns(l->h);
    c->before = l->last;
    c->after = NULL;
    *(l->last != NULL ? &l->last->after : &l->first) = c;
    l->last = c;
}

static void end_oldest(serve_connections *l)
{
    serve_connection *c = l->first;
    list_leave(l, c);
    (void)shutdown(c->fd, SHUT_RDWR);
}

status serve_connections_init(serve_connections *l, const host *h)
{
    *l = (serve_connections){.h = h};
    if (pthread_mutex_init(&l->lock, NULL) != 0) return fail(ST_NO_MEMORY, "no memory for a lock");
    return ST_OK;
}

void serve_connections_deinit(serve_connections *l)
{
    ASSERT(l->count == 0);
    (void)pthread_mutex_destroy(&l->lock);
}

serve_connection *serve_connection_begin(serve_connections *l, int fd)
{
    serve_connection *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->fd = fd;
    (void)pthread_mutex_lock(&l->lock);
    l->count++;
    list_join(l, c);
    const bool is_full = l->count > SERVE_CONNECTIONS_MAX - SERVE_CONNECTIONS_SPARE;
    if (is_full && l->first != c) end_oldest(l);
    (void)pthread_mutex_unlock(&l->lock);
    return c;
}

void serve_connection_end(serve_connections *l, serve_connection *c)
{
    (void)pthread_mutex_lock(&l->lock);
    l->count--;
    list_leave(l, c);
    (void)pthread_mutex_unlock(&l->lock);
    free(c);
}

void serve_connection_works(serve_connections *l, serve_connection *c, bool works)
{
    (void)pthread_mutex_lock(&l->lock);
    list_leave(l, c);
    if (!works) list_join(l, c);
    (void)pthread_mutex_unlock(&l->lock);
}

void serve_connections_look(serve_connections *l)
{
    static const int64_t most_ns = SERVE_ARRIVAL_S * INT64_C(1000000000);
    const int64_t now = l->h->api->monotonic_ns(l->h);
    (void)pthread_mutex_lock(&l->lock);
    while (l->first != NULL && now - l->first->since_ns > most_ns) end_oldest(l);
    (void)pthread_mutex_unlock(&l->lock);
}
