// A model behind HTTP, with the requests and answers of OpenAI's API: /v1/models, /v1/completions
// and /v1/chat/completions, streamed or not; /health; /metrics for Prometheus.
//
// The server has a thread for each connection, which reads a request, hands it to the model's
// thread and writes what that has to say. The model's thread alone touches the model: it takes
// requests in their order, gives each sequence a slot as soon as one is free, and extends all
// sequences by a token at a time.
//
// HTTP itself is libmicrohttpd, which is looked for at run time.
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "data/chat.h"
#include "infer/infer.h"
#include "serve/drift.h"

enum {
    SERVE_ENDS_MAX = 64, // tokens that end a text
    SERVE_BODY_BYTES_MAX = 4 << 20,
    SERVE_CHOICES_MAX = 128, // sequences of one request
    SERVE_STOPS_MAX = 16,
    SERVE_LIKELY_MAX = 20, // most probable tokens that are told for each token
    SERVE_CONNECTIONS_MAX = 512,
    SERVE_CONNECTIONS_SPARE = 64, // of them are free where any waits for a request
    SERVE_SILENCE_S = 30,         // a connection that moves nothing for so long is closed
    SERVE_ARRIVAL_S = 60,         // as is one whose request takes longer to arrive
    SERVE_COMMENT_S = 10          // a stream without a token for so long gets a comment
};

// The model and its parts, which are borrowed; the model's thread alone uses them. `g` was opened
// with options.logits.
typedef struct serve_model {
    infer *g;
    data_tokenizer *tokenizer;
    data_chat *chat; // NULL: /v1/chat/completions is refused
    int32_t ends[SERVE_ENDS_MAX];
    int64_t end_count;
    int64_t context; // tokens of a sequence, at most
    const char *name;
    // Names of the adapters that take turns over the model (infer_adapter_use), each a model of its
    // own for clients.
    const char *const *adapters;
    int64_t adapter_count;
} serve_model;

typedef struct serve_options {
    const char *address; // an IPv4 address of this machine, "127.0.0.1"
    int64_t port;        // 0: any free one
    const char *key;     // what clients must know; NULL: nothing
    int64_t requests;    // at once, waiting ones included; further ones are told to come again
    const drift_window *reference; // what answers are compared with; NULL: nothing
    int64_t window;                // answers that are compared at once
    bool watches;                  // counts answers in serve_seen(); on with a reference
} serve_options;

typedef struct serve serve;

// Starts to listen. ST_UNSUPPORTED: no libmicrohttpd. `a` must outlive the server.
NODISCARD status serve_open(const host *h, arena *a, const serve_model *model,
                            const serve_options *options, serve **out);
int64_t serve_port(const serve *s);

typedef struct serve_watcher {
    void *context;
    bool (*stop)(void *context); // asked several times a second
    // A window differs from the reference in this; may be NULL.
    void (*drifted)(void *context, drift_of of, double index);
} serve_watcher;
// Answers requests until the watcher says stop. An error is the model's.
NODISCARD status serve_run(serve *s, const serve_watcher *watcher);

typedef struct serve_counts {
    int64_t requests, refused;        // refused: those with an error of the client
    int64_t prompt_tokens, generated; // tokens
} serve_counts;
serve_counts serve_counted(serve *s);
// All answers since the beginning, for a reference; none unless options.watches. After serve_run().
const drift_window *serve_seen(const serve *s);
void serve_close(serve *s); // NULL is legal; ends all connections

#endif
