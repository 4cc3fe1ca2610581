// Writes the flight recorders of this host to a file at intervals.
//
// The control block is shared memory without a name, so that no kill can leave it behind; but a
// kill of all processes (a scheduler's, a machine that runs out of memory) takes the recorders
// along. A file in the page cache survives that. The recorders themselves do not lie in a mapped
// file: a store to one can wait for the disk, in the middle of an operation of 200 ns, and faults
// when another process truncates it. So the file is up to half a second old; a job that hangs for
// longer is shown exactly.
#include "cli/diagnose/post_mortem.h"

#include "cli/diagnose/hang_report.h"
#include "control/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL_MS = 500, PATH_BYTES = 4096 };

struct post_mortem {
    const host *h;
    const comm_control_block *b;
    arena *a; // memory of one report
    char path[PATH_BYTES];
    int fd;
    size_t file_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool is_stopping; // guarded by the lock
};

// Overwrites the file in place and fills its rest with empty lines. So a kill in between leaves no
// half of a report, and no second file has to be made and renamed.
static void report_write(post_mortem *p)
{
    text t = {.a = p->a};
    arena_reset(p->a);
    bool is_written = cli_hang_report(p->b, &t) == ST_OK;
    while (is_written && t.length < (int64_t)p->file_bytes)
        is_written = text_add(&t, "\n") == ST_OK;
    if (!is_written) {
        error_clear();
        return;
    }
    const ssize_t n = pwrite(p->fd, t.bytes, (size_t)t.length, 0);
    if (n > (ssize_t)p->file_bytes) p->file_bytes = (size_t)n;
}

static void *post_mortem_main(void *context)
{
    post_mortem *p = context;
    (void)pthread_mutex_lock(&p->lock);
    while (!p->is_stopping) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += INTERVAL_MS * INT64_C(1000000);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_mutex_unlock(&p->lock);
        report_write(p);
        (void)pthread_mutex_lock(&p->lock);
        while (!p->is_stopping && pthread_cond_timedwait(&p->stop, &p->lock, &until) != ETIMEDOUT) {
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

static status file_make(post_mortem *p, const char *run_dir)
{
    char name[HOST_NAME_BYTES], *folder = NULL;
    TRY(p->h->api->machine_name(p->h, name));
    TRY(path_join(p->a, run_dir, "dumps", &folder));
    TRY(p->h->api->path_mkdir(p->h, folder));
    const int n = snprintf(p->path, sizeof(p->path), "%s/last-%s.txt", folder, name);
    if (n < 0 || n >= (int)sizeof(p->path)) return fail(ST_CONFIG, "%s is too long", folder);
    p->fd = open(p->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd >= 0) return ST_OK;
    return fail(ST_IO, "%s: open for writing failed: %s%s", p->path, strerror(errno),
                host_limit_remedy(errno));
}

static void destroy(post_mortem *p)
{
    if (p->fd >= 0) (void)close(p->fd);
    (void)pthread_cond_destroy(&p->stop);
    (void)pthread_mutex_destroy(&p->lock);
    arena_destroy(p->a);
    free(p);
}

status post_mortem_start(const host *h, const char *run_dir, const comm_control_block *b,
                         post_mortem **out)
{
    post_mortem *p = calloc(1, sizeof(*p));
    pthread_condattr_t attr;
    if (p == NULL) return fail(ST_NO_MEMORY, "no memory for the report of last operations");
    *p = (post_mortem){.h = h, .b = b, .fd = -1};
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->stop, &attr);
    (void)pthread_condattr_destroy(&attr);
    status st;
    TRY_TO(destroy_report, arena_create("last operations", 0, &p->a));
    TRY_TO(destroy_report, file_make(p, run_dir));
    report_write(p);
    const int error = control_thread_start(&p->thread, post_mortem_main, p);
    if (error != 0) {
        st = fail(ST_NO_MEMORY, "cannot start the thread that reports last operations (error %d)%s",
                  error, host_limit_remedy(error));
        goto destroy_report;
    }
    *out = p;
    return ST_OK;
destroy_report:
    destroy(p);
    return st;
}

void post_mortem_stop(post_mortem *p, bool keep)
{
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    (void)pthread_cond_broadcast(&p->stop);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    if (keep) {
        report_write(p);
    } else {
        (void)unlink(p->path);
    }
    destroy(p);
}
