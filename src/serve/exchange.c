// A lock and a condition; an answer that memory is short for ends early.
#include "serve/exchange.h"

#include "control/thread.h"

#include <stdlib.h>
#include <string.h>

status exchange_create(exchange **out)
{
    exchange *x = calloc(1, sizeof(*x));
    if (x == NULL) return fail(ST_NO_MEMORY, "no memory for a request");
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->changed, NULL);
    x->holders = 1;
    *out = x;
    return ST_OK;
}

void exchange_hold(exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->holders++;
    (void)pthread_mutex_unlock(&x->lock);
}

void exchange_drop(exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    const int left = --x->holders;
    (void)pthread_mutex_unlock(&x->lock);
    if (left > 0) return;
    (void)pthread_cond_destroy(&x->changed);
    (void)pthread_mutex_destroy(&x->lock);
    data_bytes_deinit(&x->body);
    data_bytes_deinit(&x->answer);
    free(x);
}

static void change(exchange *x, int code, bool streams, const char *bytes, int64_t count, bool over)
{
    (void)pthread_mutex_lock(&x->lock);
    if (x->code == 0) {
        x->code = code;
        x->streams = streams;
    }
    if (!x->over && !x->gone && count > 0 && data_bytes_add(&x->answer, bytes, count) != ST_OK) {
        error_clear();
        over = true;
    }
    x->over = x->over || over;
    (void)pthread_cond_broadcast(&x->changed);
    (void)pthread_mutex_unlock(&x->lock);
}

void exchange_answer(exchange *x, int code, const char *bytes, int64_t count)
{
    change(x, code, false, bytes, count, true);
}

void exchange_begin(exchange *x)
{
    change(x, 200, true, NULL, 0, false);
}

void exchange_add(exchange *x, const char *bytes, int64_t count)
{
    change(x, 200, true, bytes, count, false);
}

void exchange_end(exchange *x)
{
    change(x, 200, true, NULL, 0, true);
}

bool exchange_is_gone(exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    (void)pthread_mutex_unlock(&x->lock);
    return gone;
}

int exchange_wait(exchange *x, bool *streams)
{
    (void)pthread_mutex_lock(&x->lock);
    while (x->code == 0) (void)pthread_cond_wait(&x->changed, &x->lock);
    const int code = x->code;
    *streams = x->streams;
    (void)pthread_mutex_unlock(&x->lock);
    return code;
}

static bool is_due(const exchange *x)
{
    return x->sent < x->answer.count || x->over;
}

int64_t exchange_take(exchange *x, int64_t wait_ns, char *out, int64_t count)
{
    static const char comment[] = ": waiting\n\n"; // between two events, of which all were taken
    const int64_t length = (int64_t)sizeof(comment) - 1;
    bool in_time = true;
    (void)pthread_mutex_lock(&x->lock);
    while (!is_due(x) && (in_time || count < length)) {
        in_time = control_condition_wait(&x->changed, &x->lock, wait_ns);
    }
    const bool waits = !is_due(x);
    const int64_t n = waits ? length : min_i64(count, x->answer.count - x->sent);
    if (n > 0) memcpy(out, waits ? comment : x->answer.items + x->sent, (size_t)n);
    if (!waits) x->sent += n;
    if (x->sent == x->answer.count) x->sent = x->answer.count = 0;
    (void)pthread_mutex_unlock(&x->lock);
    return n;
}

void exchange_leave(exchange *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->gone = true;
    (void)pthread_mutex_unlock(&x->lock);
}
