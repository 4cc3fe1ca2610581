// Connections: routes, the key, the body's limit, and answers as they come.
#include "base/text.h"
#include "serve/connections.h"
#include "serve/http_library.h"
#include "serve/serve_internal.h"

#include <string.h>

#if TRIREME_HAVE_MICROHTTPD
#    include <arpa/inet.h>
#    include <errno.h>
#    include <netinet/in.h>
#    include <signal.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <strings.h>

struct serve_http {
    http_library lib;
    serve *s;
    struct MHD_Daemon *daemon;
    serve_connections connections;
};

static const struct {
    const char *path, *method;
} routes[ROUTE_COUNT] = {
    [ROUTE_COMPLETIONS] = {"/v1/completions", "POST"},
    [ROUTE_CHAT] = {"/v1/chat/completions", "POST"},
    [ROUTE_MODELS] = {"/v1/models", "GET"},
    [ROUTE_HEALTH] = {"/health", "GET"},
    [ROUTE_METRICS] = {"/metrics", "GET"},
};

static bool is_post(serve_route route)
{
    return strcmp(routes[route].method, "POST") == 0;
}

// A path behind that of the models names one of them.
static serve_route route_of(const serve *s, const char *path, int64_t *model)
{
    static const char models[] = "/v1/models/";
    *model = SERVE_ALL_MODELS;
    if (strncmp(path, models, strlen(models)) == 0) {
        *model = serve_model_number(&s->model, path + strlen(models));
        return ROUTE_MODELS;
    }
    for (int i = 0; i < ROUTE_COUNT; i++) {
        if (strcmp(routes[i].path, path) == 0) return (serve_route)i;
    }
    return ROUTE_NONE;
}

// ---- answers ------------------------------------------------------------------------------------

static enum MHD_Result send_response(const serve_http *http, struct MHD_Connection *connection,
                                     int code, const char *type, struct MHD_Response *response)
{
    if (response == NULL) return MHD_NO;
    (void)http->lib.add_response_header(response, "Content-Type", type);
    (void)http->lib.add_response_header(response, "Cache-Control", "no-store");
    (void)http->lib.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code == 401) (void)http->lib.add_response_header(response, "WWW-Authenticate", "Bearer");
    if (code == 503) (void)http->lib.add_response_header(response, "Retry-After", "1");
    const enum MHD_Result sent = http->lib.queue_response(connection, (unsigned)code, response);
    http->lib.destroy_response(response);
    return sent;
}

// An error that needs no thread but the connection's.
static enum MHD_Result send_error(const serve_http *http, struct MHD_Connection *connection,
                                  serve_route route, int code, const char *message)
{
    char body[512];
    const int length = snprintf(
        body, sizeof(body),
        "{\"error\": {\"message\": \"%s\", \"type\": \"invalid_request_error\", \"param\": "
        "null, \"code\": null}}\n",
        message);
    struct MHD_Response *response =
        http->lib.create_response_from_buffer((size_t)length, body, MHD_RESPMEM_MUST_COPY);
    serve_count_answer(http->s, route, code);
    const bool ends = code == 400 || code == 413 || code == 501; // what follows may be no request
    if (ends && response != NULL) {
        (void)http->lib.add_response_header(response, "Connection", "close");
    }
    if (code == 405 && response != NULL) {
        (void)http->lib.add_response_header(response, "Allow",
                                            is_post(route) ? "POST" : "GET, HEAD");
    }
    return send_response(http, connection, code, "application/json", response);
}

static ssize_t more(void *context, uint64_t position, char *out, size_t count)
{
    static const int64_t wait_ns = SERVE_COMMENT_S * INT64_C(1000000000);
    (void)position;
    const int64_t n = exchange_take(context, wait_ns, out, (int64_t)count);
    return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void drop(void *context)
{
    exchange_drop(context);
}

static enum MHD_Result send_answer(const serve_http *http, struct MHD_Connection *connection,
                                   exchange *x)
{
    enum { BLOCK_BYTES = 1 << 15 };
    bool streams = false;
    const int code = exchange_wait(x, &streams);
    const char *type = streams                     ? "text/event-stream"
                       : x->route == ROUTE_METRICS ? "text/plain; version=0.0.4"
                                                   : "application/json";
    exchange_hold(x);
    struct MHD_Response *response = http->lib.create_response_from_callback(
        streams ? MHD_SIZE_UNKNOWN : (uint64_t)x->answer.count, BLOCK_BYTES, more, x, drop);
    if (response == NULL) exchange_drop(x);
    return send_response(http, connection, code, type, response);
}

// ---- requests -----------------------------------------------------------------------------------

// Takes as long for a wrong key as for the right one.
static bool is_key(const serve *s, const char *given)
{
    static const char scheme[] = "Bearer ";
    const char *key = s->options.key;
    if (key == NULL) return true;
    if (given == NULL || strncasecmp(given, scheme, strlen(scheme)) != 0) return false;
    given += strlen(scheme);
    const size_t bytes = strlen(given), wanted = strlen(key);
    unsigned differ = bytes == wanted ? 0 : 1;
    for (size_t i = 0; i < wanted; i++) {
        differ |= (unsigned)(unsigned char)key[i] ^ (unsigned char)given[i < bytes ? i : 0];
    }
    return differ == 0;
}

// Headers that say where a request ends. A proxy in front may read two of them in another order
// than this server does, and take the rest of a body for a request of its own.
typedef struct framing {
    int lengths, encodings;
    bool is_chunked;
} framing;

static enum MHD_Result header_see(void *context, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    framing *f = context;
    (void)kind;
    f->lengths += strcasecmp(name, "Content-Length") == 0 ? 1 : 0;
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    f->encodings++;
    f->is_chunked = value != NULL && strcasecmp(value, "chunked") == 0;
    return MHD_YES;
}

static enum MHD_Result refuse(const serve_http *http, struct MHD_Connection *connection,
                              serve_route route, int64_t model, const char *method, bool *refused)
{
    const char *length =
        http->lib.lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const char *type =
        http->lib.lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type");
    const char *key =
        http->lib.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    framing f = {0};
    (void)http->lib.get_connection_values(connection, MHD_HEADER_KIND, header_see, &f);
    *refused = true;
    if (f.lengths + f.encodings > 1) {
        return send_error(http, connection, route, 400,
                          "the request has more than one Content-Length or Transfer-Encoding");
    }
    if (f.encodings > 0 && !f.is_chunked) {
        return send_error(http, connection, route, 501, "Transfer-Encoding may be chunked only");
    }
    if (route == ROUTE_NONE) {
        return send_error(http, connection, route, 404, "there is no such path");
    }
    if (route != ROUTE_HEALTH && !is_key(http->s, key)) {
        return send_error(http, connection, route, 401,
                          "the key is missing or wrong; send it as Authorization: Bearer KEY");
    }
    if (model < 0) return send_error(http, connection, route, 404, "there is no such model");
    const bool posts = is_post(route);
    if (strcmp(method, routes[route].method) != 0 && (posts || strcmp(method, "HEAD") != 0)) {
        return send_error(http, connection, route, 405,
                          posts ? "this path takes POST" : "this path takes GET");
    }
    if (posts && (type == NULL || strncmp(type, "application/json", 16) != 0)) {
        return send_error(http, connection, route, 415,
                          "the request is to have Content-Type: application/json");
    }
    if (length != NULL && strtoll(length, NULL, 10) > SERVE_BODY_BYTES_MAX) {
        return send_error(http, connection, route, 413, "the request is too long");
    }
    *refused = false;
    return MHD_YES;
}

static void connection_works(serve_http *http, struct MHD_Connection *connection, bool works)
{
    const union MHD_ConnectionInfo *info =
        http->lib.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL) return;
    serve_connection_works(&http->connections, info->socket_context, works);
}

// A body that is too long, or of a path that takes none, is read and dropped, so that the client
// reads the answer. Much of it ends the connection.
static enum MHD_Result body_take(exchange *x, const char *bytes, size_t *count)
{
    const int64_t n = (int64_t)*count;
    *count = 0;
    if (is_post(x->route) && x->unread == 0 && x->body.count + n <= SERVE_BODY_BYTES_MAX) {
        return data_bytes_add(&x->body, bytes, n) == ST_OK ? MHD_YES : MHD_NO;
    }
    data_bytes_deinit(&x->body);
    x->unread += n;
    return x->unread <= 2 * (int64_t)SERVE_BODY_BYTES_MAX ? MHD_YES : MHD_NO;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    serve_http *http = context;
    exchange *x = *state;
    (void)version;
    if (x == NULL) {
        bool refused = false;
        int64_t model = SERVE_ALL_MODELS;
        const serve_route route = route_of(http->s, path, &model);
        const enum MHD_Result result = refuse(http, connection, route, model, method, &refused);
        if (refused) return result;
        if (exchange_create(&x) != ST_OK) return MHD_NO;
        x->route = route;
        x->model = model;
        *state = x;
        return MHD_YES;
    }
    if (*upload_bytes > 0) return body_take(x, upload, upload_bytes);
    connection_works(http, connection, true);
    if (x->unread > 0 && is_post(x->route)) {
        return send_error(http, connection, x->route, 413, "the request is too long");
    }
    serve_submit(http->s, x);
    return send_answer(http, connection, x);
}

static void completed(void *context, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why)
{
    (void)why;
    connection_works(context, connection, false);
    if (*state == NULL) return;
    exchange_leave(*state);
    exchange_drop(*state);
    *state = NULL;
}

// ---- connections that begin and end -------------------------------------------------------------

static void notice(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_ConnectionNotificationCode what)
{
    serve_http *http = context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            http->lib.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL) *own = serve_connection_begin(&http->connections, info->connect_fd);
    } else if (*own != NULL) {
        serve_connection_end(&http->connections, *own);
        *own = NULL;
    }
}

// Decodes %41. %00 stays as it is: a NUL would end the path before its end.
static size_t unescape(void *context, struct MHD_Connection *connection, char *s)
{
    char *to = s;
    (void)context;
    (void)connection;
    for (const char *from = s; *from != '\0';) {
        const int high = *from == '%' ? text_hex_digit(from[1]) : -1;
        const int low = high >= 0 ? text_hex_digit(from[2]) : -1;
        const bool is_code = low >= 0 && high + low > 0;
        *to++ = is_code ? (char)(16 * high + low) : *from;
        from += is_code ? 3 : 1;
    }
    *to = '\0';
    return (size_t)(to - s);
}

// ---- listening ----------------------------------------------------------------------------------

// The library's complaints about clients are not for people.
static void silent(void *context, const char *format, va_list list)
{
    (void)context;
    (void)format;
    (void)list;
}

status serve_http_open(serve *s, arena *a, serve_http **out)
{
    enum { STACK_BYTES = 1 << 18, MEMORY_BYTES = 1 << 16 };
    serve_http *http = NULL;
    const char *why = NULL;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->options.port)};
    TRY(arena_new(a, 1, &http));
    *http = (serve_http){.s = s};
    if (!http_library_open(&http->lib, &why)) return fail(ST_UNSUPPORTED, "%s", why);
    if (inet_pton(AF_INET, s->options.address, &at.sin_addr) != 1) {
        return fail(ST_USAGE, "\"%s\" is not an IPv4 address, such as 127.0.0.1",
                    s->options.address);
    }
    TRY(serve_connections_init(&http->connections, s->h));
    // Signals are for the thread that waits for them.
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = 0;
    http->daemon = http->lib.start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, handle, http, MHD_OPTION_EXTERNAL_LOGGER, silent, NULL, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&at, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
        MHD_OPTION_NOTIFY_CONNECTION, notice, http, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)SERVE_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)SERVE_SILENCE_S, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES, MHD_OPTION_END);
    const int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (http->daemon == NULL) {
        serve_connections_deinit(&http->connections);
        return fail(ST_IO, "cannot listen on %s port %lld: %s", s->options.address,
                    (long long)s->options.port, strerror(error));
    }
    *out = http;
    return ST_OK;
}

int64_t serve_http_port(const serve_http *http)
{
    const union MHD_DaemonInfo *info =
        http->lib.get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info != NULL ? (int64_t)info->port : 0;
}

void serve_http_close(serve_http *http)
{
    if (http == NULL) return;
    http->lib.stop_daemon(http->daemon);
    serve_connections_deinit(&http->connections);
}

void serve_http_look(serve_http *http)
{
    serve_connections_look(&http->connections);
}
#else
status serve_http_open(serve *s, arena *a, serve_http **out)
{
    (void)s;
    (void)a;
    (void)out;
    return fail(ST_UNSUPPORTED, "built without HTTP: install libmicrohttpd-dev and build again");
}
int64_t serve_http_port(const serve_http *http)
{
    (void)http;
    return 0;
}
void serve_http_close(serve_http *http)
{
    (void)http;
}
void serve_http_look(serve_http *http)
{
    (void)http;
}
#endif
