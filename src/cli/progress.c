// The progress line. A thread prints it, so it appears even during one long computation.
#include "cli/progress.h"

#include <pthread.h>
#include <stdarg.h>
#include <time.h>

enum { DETAIL_BYTES = 128, LOG_PAUSE_MAX_S = 60 };

struct cli_progress {
    FILE *err;
    const char *activity;
    bool live;
    int columns;
    pthread_t thread;
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t ended;
    bool is_over, is_shown;
    char detail[DETAIL_BYTES];
};

static void line_print(cli_progress *p, int64_t seconds)
{
    const int width = p->columns > 1 ? p->columns - 1 : 79;
    char line[DETAIL_BYTES + 128];
    (void)snprintf(line, sizeof(line), "%s, %lld s%s%s", p->activity, (long long)seconds,
                   p->detail[0] != '\0' ? ": " : "", p->detail);
    if (p->live) {
        (void)fprintf(p->err, "\r\033[K%.*s", width, line);
    } else {
        (void)fprintf(p->err, "%s\n", line);
    }
    (void)fflush(p->err);
    p->is_shown = true;
}

static void *line_thread(void *context)
{
    cli_progress *p = context;
    struct timespec begin, until;
    int64_t next_s = 1, pause_s = 1;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    (void)pthread_mutex_lock(&p->lock);
    while (!p->is_over) {
        until = (struct timespec){begin.tv_sec + (time_t)next_s, begin.tv_nsec};
        const int rc = pthread_cond_timedwait(&p->ended, &p->lock, &until);
        if (p->is_over) break;
        if (rc == 0) continue; // woken without a reason
        line_print(p, next_s);
        if (!p->live) pause_s = min_i64(2 * pause_s, LOG_PAUSE_MAX_S);
        next_s += pause_s;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

// The clock of the wait is the monotonic one: a step of the wall clock stops no line.
static bool condition_make(pthread_cond_t *c)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a) != 0) return false;
    const bool ok =
        pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0 && pthread_cond_init(c, &a) == 0;
    (void)pthread_condattr_destroy(&a);
    return ok;
}

void cli_progress_begin(cli_context *cli, const char *activity, cli_progress **out)
{
    cli_progress *p = NULL;
    *out = NULL;
    if (arena_new(cli->a, 1, &p) != ST_OK) {
        error_clear();
        return;
    }
    p->err = cli->err;
    p->activity = activity;
    p->columns = cli->columns;
    p->live = cli->live_err;
    if (pthread_mutex_init(&p->lock, NULL) != 0) return;
    if (!condition_make(&p->ended)) goto destroy_lock;
    if (pthread_create(&p->thread, NULL, line_thread, p) != 0) goto destroy_condition;
    *out = p;
    return;
destroy_condition:
    (void)pthread_cond_destroy(&p->ended);
destroy_lock:
    (void)pthread_mutex_destroy(&p->lock);
}

void cli_progress_say(cli_progress *p, const char *format, ...)
{
    va_list list;
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    va_start(list, format);
    (void)vsnprintf(p->detail, sizeof(p->detail), format, list);
    va_end(list);
    (void)pthread_mutex_unlock(&p->lock);
}

void cli_progress_end(cli_progress *p)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    p->is_over = true;
    (void)pthread_cond_signal(&p->ended);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    if (p->is_shown && p->live) {
        (void)fprintf(p->err, "\r\033[K");
        (void)fflush(p->err);
    }
    (void)pthread_cond_destroy(&p->ended);
    (void)pthread_mutex_destroy(&p->lock);
}
