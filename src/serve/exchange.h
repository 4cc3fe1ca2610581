// A request and its answer, between the connection's thread and the model's. Private to this
// folder.
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H

#include "data/tokenizer.h"

#include <pthread.h>
#include <stdbool.h>

typedef enum serve_route {
    ROUTE_COMPLETIONS,
    ROUTE_CHAT,
    ROUTE_MODELS,
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTE_COUNT,
    ROUTE_NONE = ROUTE_COUNT
} serve_route;

// Numbers of models; SERVE_ADAPTERS is that of the first adapter, and the others follow.
enum { SERVE_ALL_MODELS, SERVE_BASE_MODEL, SERVE_ADAPTERS };

typedef struct exchange {
    serve_route route;
    int64_t model; // that ROUTE_MODELS is asked for
    data_bytes body;
    int64_t unread;   // bytes of a body that is too long, or that the path does not take
    int64_t begin_ns; // when the request was complete
    // Under the lock:
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int code; // of HTTP; 0: no answer yet
    bool streams;
    data_bytes answer;
    int64_t sent;          // bytes of `answer` that the connection took
    bool over;             // nothing more comes
    bool gone;             // the client left
    int holders;           // the connection, the model's thread
    struct exchange *next; // in the queue
} exchange;

NODISCARD status exchange_create(exchange **out); // with one holder
void exchange_hold(exchange *x);
void exchange_drop(exchange *x); // the last holder frees it

// ---- the model's thread -------------------------------------------------------------------------
// A whole answer.
void exchange_answer(exchange *x, int code, const char *bytes, int64_t count);
// The beginning of a stream, and more of it.
void exchange_begin(exchange *x);
void exchange_add(exchange *x, const char *bytes, int64_t count);
void exchange_end(exchange *x);
bool exchange_is_gone(exchange *x);

// ---- the connection's thread --------------------------------------------------------------------
// Waits for the code; *streams: the rest comes by exchange_take().
int exchange_wait(exchange *x, bool *streams);
// Waits for bytes and copies up to `count`; 0: no more come. If a stream has none for wait_ns, it
// gives a comment, which clients skip.
int64_t exchange_take(exchange *x, int64_t wait_ns, char *out, int64_t count);
void exchange_leave(exchange *x); // the client is gone

#endif
