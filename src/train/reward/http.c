// A service over HTTP: a POST for each completion, several at once, and a number comes back.
//
//   POST /path HTTP/1.1            {"prompt": "...", "completion": "...", "answer": "..."}
//   HTTP/1.1 200 OK                0.5, or {"reward": 0.5}
//
// Only the host that reward.url names is asked, without encryption; redirections are not followed.
// A request that fails (no connection, no whole answer within reward.time_limit, a code other than
// 200, a body that is no number) is sent again, up to reward.retries times, each after a longer
// wait; then the run ends, since a reward of 0 in its place would be learned.
#include "base/format/json.h"
#include "control/socket.h"
#include "train/reward/answer.h"
#include "train/reward/reward.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 16, NS_PER_MS = 1000000, WAIT_MS = 100, NO_CASE = -1 };

typedef struct place {
    char address[CONTROL_ADDRESS_BYTES]; // host:port
    char host[CONTROL_ADDRESS_BYTES];    // as the URL has it
    const char *path;
} place;

// A request on its way.
typedef struct request {
    int64_t index; // of the case; NO_CASE: none
    int fd;
    text out; // its bytes
    int64_t sent, got, deadline_ns, attempts, not_before_ns;
    char in[REWARD_ANSWER_BYTES + 1];
} request;

typedef struct asking {
    const reward_context *x;
    place to;
    arena *a;
    const reward_case *cases;
    double *rewards;
    int64_t next, count, done;
    request requests[AT_ONCE];
} asking;

static status url_read(const char *url, place *out)
{
    static const char scheme[] = "http://";
    const size_t skip = strlen(scheme);
    if (url == NULL || strncmp(url, scheme, skip) != 0) {
        return fail(ST_CONFIG_RANGE, "reward.url: expected http://HOST:PORT/PATH, found \"%.100s\"",
                    url != NULL ? url : "");
    }
    const char *from = url + skip;
    const size_t length = strcspn(from, "/");
    bool is_plain = length > 0 && length + 4 < sizeof(out->host);
    for (const char *c = url; *c != '\0'; c++) is_plain = is_plain && *c > ' ' && *c < 127;
    for (size_t i = 0; i < length; i++) is_plain = is_plain && from[i] != '@' && from[i] != '?';
    if (!is_plain) {
        return fail(ST_CONFIG_RANGE,
                    "reward.url: \"%.100s\" has no host, a name and password, or a character that "
                    "a URL cannot hold",
                    url);
    }
    (void)snprintf(out->host, sizeof(out->host), "%.*s", (int)length, from);
    const char *colon = strrchr(out->host, ':');
    const bool has_port = colon != NULL && strchr(colon, ']') == NULL;
    int64_t port = 80;
    const bool is_number = !has_port || text_parse_i64(colon + 1, &port);
    if (colon == out->host || !is_number || port < 1 || port > 65535) {
        return fail(ST_CONFIG_RANGE, "reward.url: expected http://HOST:PORT/PATH, found \"%.100s\"",
                    url);
    }
    (void)snprintf(out->address, sizeof(out->address), "%.150s%s", out->host,
                   has_port ? "" : ":80");
    out->path = from[length] == '/' ? from + length : "/";
    return ST_OK;
}

static int64_t now_of(const asking *s)
{
    return s->x->h->api->monotonic_ns(s->x->h);
}

static status request_write(asking *s, request *r)
{
    const reward_case *c = &s->cases[r->index];
    text body = {.a = s->a};
    TRY(text_add(&body, "{\"prompt\": "));
    TRY(text_add_json(&body, c->prompt));
    TRY(text_add(&body, ", \"completion\": "));
    TRY(text_add_json(&body, c->completion));
    if (c->answer != NULL) {
        TRY(text_add(&body, ", \"answer\": "));
        TRY(text_add_json(&body, c->answer));
    }
    TRY(text_add(&body, "}"));
    r->out = (text){.a = s->a};
    return text_add(&r->out,
                    "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                    "Content-Length: %lld\r\nConnection: close\r\n\r\n%s",
                    s->to.path, s->to.host, (long long)body.length, body.bytes);
}

static void request_close(request *r)
{
    if (r->fd >= 0) (void)close(r->fd);
    r->fd = -1;
}

// Plans the next attempt, or fails the run.
static status request_again(asking *s, request *r, const char *reason)
{
    request_close(r);
    if (r->attempts > s->x->keys->retries) {
        return fail(ST_IO, "reward.url: %s gave no reward in %lld attempt%s; the last: %.199s",
                    s->to.address, (long long)r->attempts, text_plural(r->attempts, "s"), reason);
    }
    const int64_t wait = (int64_t)WAIT_MS << min_i64(r->attempts - 1, 6);
    r->not_before_ns = now_of(s) + wait * NS_PER_MS;
    return ST_OK;
}

static status failed_with_error(asking *s, request *r)
{
    error_record e;
    error_take(&e);
    return request_again(s, r, e.text);
}

static status request_begin(asking *s, request *r)
{
    const int64_t limit = s->x->keys->time_limit_ns;
    r->attempts++;
    r->sent = r->got = 0;
    r->deadline_ns = now_of(s) + limit;
    const int64_t wait_ms = max_i64(1, min_i64(limit / NS_PER_MS, INT32_MAX));
    if (control_connect(s->to.address, (int)wait_ms, &r->fd) == ST_OK) return ST_OK;
    r->fd = -1;
    return failed_with_error(s, r);
}

static void request_end(asking *s, request *r, double reward)
{
    s->rewards[r->index] = reward;
    s->done++;
    request_close(r);
    r->index = NO_CASE;
}

// Reads what is there.
static status request_read(asking *s, request *r)
{
    const int64_t left = (int64_t)sizeof(r->in) - r->got;
    const int64_t count = left > 0 ? control_read(r->fd, r->in + r->got, left) : 0;
    reward_answer answer;
    if (count > 0) r->got += count;
    if (reward_answer_read(r->in, r->got, count < 0, &answer) != ST_OK) {
        return failed_with_error(s, r);
    }
    if (!answer.is_whole) return ST_OK;
    if (answer.code == 200) {
        request_end(s, r, answer.reward);
        return ST_OK;
    }
    char why[64];
    (void)snprintf(why, sizeof(why), "the code of the answer is %d", answer.code);
    return request_again(s, r, why);
}

static status request_move(asking *s, request *r, short ready)
{
    if (now_of(s) > r->deadline_ns) {
        return request_again(s, r, "no whole answer within reward.time_limit");
    }
    if (ready == 0) return ST_OK;
    if (r->sent < r->out.length) {
        const int64_t count = control_write(r->fd, r->out.bytes + r->sent, r->out.length - r->sent);
        if (count < 0) return request_again(s, r, "the connection was closed");
        r->sent += count;
        return ST_OK;
    }
    return request_read(s, r);
}

// Gives a free request the next case, and begins requests whose wait is over.
static status request_fill(asking *s, request *r)
{
    if (r->index == NO_CASE && s->next < s->count) {
        r->index = s->next++;
        r->attempts = r->not_before_ns = 0;
        TRY(request_write(s, r));
    }
    if (r->index == NO_CASE || r->fd >= 0 || now_of(s) < r->not_before_ns) return ST_OK;
    return request_begin(s, r);
}

static status ask(asking *s)
{
    struct pollfd fds[AT_ONCE];
    while (s->done < s->count) {
        for (int i = 0; i < AT_ONCE; i++) {
            request *r = &s->requests[i];
            TRY(request_fill(s, r));
            const bool sends = r->fd >= 0 && r->sent < r->out.length;
            fds[i] = (struct pollfd){.fd = r->fd, .events = sends ? POLLOUT : POLLIN};
        }
        (void)poll(fds, AT_ONCE, 20);
        for (int i = 0; i < AT_ONCE; i++) {
            if (s->requests[i].fd >= 0) TRY(request_move(s, &s->requests[i], fds[i].revents));
        }
    }
    return ST_OK;
}

static status all(const reward_context *x, const reward_case *cases, int64_t count, double *out)
{
    arena *a = NULL;
    asking *s = NULL;
    TRY(arena_create("rewards", 0, &a));
    status st = arena_new(a, 1, &s);
    if (st == ST_OK) {
        *s = (asking){.x = x, .a = a, .cases = cases, .rewards = out, .count = count};
        for (int i = 0; i < AT_ONCE; i++) {
            s->requests[i].index = NO_CASE;
            s->requests[i].fd = -1;
        }
        st = url_read(x->keys->url, &s->to);
        if (st == ST_OK) st = ask(s);
        for (int i = 0; i < AT_ONCE; i++) request_close(&s->requests[i]);
    }
    arena_destroy(a);
    return st;
}

static status check(const reward_context *x, text *warning)
{
    place to;
    (void)warning;
    return url_read(x->keys->url, &to);
}

const reward_rule reward_http = {.name = "http", .needs_prompt = true, .check = check, .all = all};
