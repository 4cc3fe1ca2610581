// A transport of messages for tests: ranks are threads, a message is a slot that its receiver empties. A
// send ends only when it was taken, so an algorithm that counts on buffering deadlocks here.
#ifndef COMM_ALGO_TEST_MESSAGES_H
#define COMM_ALGO_TEST_MESSAGES_H

#include "comm/algo/message.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { FIXTURE_RANKS = 9 };

typedef struct fixture_slot {
    const void *data; // of the sender
    int64_t bytes;
    uint64_t sequence;
    bool full;
} fixture_slot;

typedef struct fixture_net {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fixture_slot slots[FIXTURE_RANKS][FIXTURE_RANKS]; // [from][to]
    int64_t bytes, messages;                          // that travelled
} fixture_net;

typedef struct fixture_port {
    comm_port base;
    fixture_net *net;
} fixture_port;

static inline bool fixture_wait(fixture_net *net)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    return pthread_cond_timedwait(&net->changed, &net->lock, &until) == 0;
}

static inline status fixture_late(const char *what, int rank, int peer)
{
    return fail(ST_TIMEOUT, "rank %d %s rank %d", rank, what, peer);
}

static status fixture_locked(fixture_port *p, const comm_contract *contract, comm_message send,
                             comm_message receive)
{
    fixture_net *net = p->net;
    const int me = p->base.members.me;
    fixture_slot *gives = NULL;
    if (send.peer >= 0) {
        gives = &net->slots[me][send.peer];
        while (gives->full) {
            if (!fixture_wait(net)) return fixture_late("cannot send to", me, send.peer);
        }
        *gives = (fixture_slot){send.send, send.bytes, contract->sequence, true};
        net->bytes += send.bytes;
        net->messages++;
        (void)pthread_cond_broadcast(&net->changed);
    }
    if (receive.peer >= 0) {
        fixture_slot *takes = &net->slots[receive.peer][me];
        while (!takes->full) {
            if (!fixture_wait(net)) return fixture_late("hears nothing of", me, receive.peer);
        }
        if (takes->bytes != receive.bytes || takes->sequence != contract->sequence) {
            return fail(ST_DIVERGED,
                        "rank %d expects %lld bytes of #%llu, rank %d sends %lld of #%llu", me,
                        (long long)receive.bytes, (unsigned long long)contract->sequence,
                        receive.peer, (long long)takes->bytes, (unsigned long long)takes->sequence);
        }
        if (receive.bytes > 0) memcpy(receive.receive, takes->data, (size_t)receive.bytes);
        takes->full = false;
        (void)pthread_cond_broadcast(&net->changed);
    }
    while (gives != NULL && gives->full) {
        if (!fixture_wait(net)) return fixture_late("is not heard by", me, send.peer);
    }
    return ST_OK;
}

static status fixture_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                               comm_message receive)
{
    fixture_port *p = (fixture_port *)port;
    (void)pthread_mutex_lock(&p->net->lock);
    const status st = fixture_locked(p, contract, send, receive);
    (void)pthread_mutex_unlock(&p->net->lock);
    return st;
}

static const comm_transport fixture_transport = {
    .name = "fixture",
    .messages = true,
    .exchange = fixture_exchange,
};

#endif
