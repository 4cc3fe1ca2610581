// The server. Private to this folder.
#ifndef SERVE_SERVE_INTERNAL_H
#define SERVE_SERVE_INTERNAL_H

#include "serve/exchange.h"
#include "serve/request.h"

typedef struct serve_http serve_http; // what listens (http.c)

enum { SERVE_BUCKETS = 12 };
typedef struct serve_histogram {
    int64_t counts[SERVE_BUCKETS + 1]; // the last: beyond all bounds
    double sum;
} serve_histogram;

// The values of /metrics.
typedef struct serve_metrics {
    serve_counts counts;
    int64_t answers[ROUTE_COUNT][6]; // by the first digit of the code
    int64_t waiting, running;        // sequences
    int64_t kept_tokens;             // of prompts that were not computed again
    infer_cache cache;
    serve_histogram first_token_s, answer_s, prompt_length, answer_length;
    int64_t windows;           // compared with the reference
    double drift[DRIFT_COUNT]; // the index of the last one
    int64_t alerts[DRIFT_COUNT];
} serve_metrics;

typedef struct job job;

struct serve {
    const host *h;
    serve_model model;
    serve_options options;
    int64_t port, begin_unix_s;
    serve_http *http;
    pthread_mutex_t lock; // of the queue and the metrics
    pthread_cond_t changed;
    exchange *first, *last; // requests that no one read yet
    int64_t open_requests;  // that have no whole answer yet
    bool stopping;
    serve_metrics metrics;
    // The model's thread:
    job *jobs;               // a list, the oldest first
    int64_t turn;            // of the last request that came or got a slot
    struct sequence **slots; // [slot of the model]; NULL: free
    drift_window seen, recent;
    arena *event;      // of the event of a stream that is made
    int64_t adapter;   // that all sequences in slots have; -1: none
    int64_t looked_ns; // when connections and other ranks were last looked at
};

// ---- http.c -------------------------------------------------------------------------------------
NODISCARD status serve_http_open(serve *s, arena *a, serve_http **out);
int64_t serve_http_port(const serve_http *http);
void serve_http_close(serve_http *http); // waits for all connections' threads
void serve_http_look(serve_http *http);  // about once a second: ends clients that are too slow

// ---- serve.c, for the connections' threads ------------------------------------------------------
// Queues a complete request, or answers it at once.
void serve_submit(serve *s, exchange *x);

// ---- answer.c -----------------------------------------------------------------------------------
NODISCARD status serve_error_text(text *t, int code, const char *member, const char *message);
// which: as exchange.model.
NODISCARD status serve_models_text(const serve *s, int64_t which, text *t);
// The number that exchange.model has for this name; -1: there is no such model.
int64_t serve_model_number(const serve_model *m, const char *name);
NODISCARD status serve_metrics_text(serve *s, text *t);
void serve_count_answer(serve *s, serve_route route, int code);
void serve_observe(serve_histogram *h, const double *bounds, double value);
extern const double serve_second_bounds[SERVE_BUCKETS], serve_token_bounds[SERVE_BUCKETS];

#endif
