// The rank's side of a launch: it joins the job and notices when the launcher is gone.
#include "launch/local_internal.h"

#include "base/fault.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static status start_coordinator(const launch_join_config *config, launch_job *j)
{
    const launch_place *p = config->place;
    int fd = p->listen_fd;
    char bound[CONTROL_ADDRESS_BYTES];
    if (fd < 0) TRY(control_listen(p->address, config->allow_wildcard, &fd, bound));
    const control_server_config coordinator = {.h = config->h,
                                               .key = j->key,
                                               .job = p->job,
                                               .epoch = config->epoch,
                                               .ranks = p->ranks,
                                               .rank = p->rank,
                                               .join_ns = config->join_ns,
                                               .limits = config->limits,
                                               .on_notice = config->on_coordinator_notice,
                                               .context = config->context};
    return control_server_start(&coordinator, fd, &j->server);
}

static status join(const launch_join_config *config, launch_job *j)
{
    const launch_place *p = config->place;
    if (p->address[0] == '\0') {
        return fail(ST_CONFIG,
                    "%s does not say where rank 0 is: set TRIREME_ADDRESS to its host:port on all "
                    "ranks",
                    p->launcher);
    }
    if (p->key_fd >= 0) {
        TRY(control_key_take(p->key_fd, &j->key));
    } else if (config->key_path != NULL) {
        TRY(control_key_read(config->key_path, &j->key));
    } else {
        return fail(ST_SECURITY,
                    "ranks that %s started need a shared key: make a file of 32 random bytes, "
                    "chmod 600 it, and set TRIREME_KEY to its path on every rank",
                    p->launcher);
    }
    if (p->rank == 0) TRY(start_coordinator(config, j));
    const control_config c = {.h = config->h,
                              .key = j->key,
                              .job = p->job,
                              .epoch = config->epoch,
                              .rank = p->rank,
                              .ranks = p->ranks,
                              .address = p->address,
                              .facts = config->facts,
                              .fact_count = config->fact_count,
                              .join_ns = config->join_ns,
                              .limits = config->limits,
                              .report = config->report,
                              .on_notice = config->on_notice,
                              .cancelled = config->cancelled,
                              .context = config->context};
    return control_open(&c, &j->c);
}

void launch_signals(sigset_t *out)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP, SIGQUIT};
    (void)sigemptyset(out);
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) (void)sigaddset(out, numbers[i]);
}

status launch_join(const launch_join_config *config, launch_job *out)
{
    launch_job j = {0};
    sigset_t forwarded;
    launch_signals(&forwarded);
    (void)pthread_sigmask(SIG_UNBLOCK, &forwarded, NULL); // the launcher blocked them
    const status st = join(config, &j);
    if (st != ST_OK) {
        launch_leave(&j);
        return st;
    }
    *out = j;
    return ST_OK;
}

void launch_leave(launch_job *j)
{
    control_close(j->c);
    control_server_stop(j->server);
    control_key_destroy(j->key);
    *j = (launch_job){0};
}

// ---- liveness of the launcher -------------------------------------------------------------------
struct launch_liveness {
    int fd, stop_fd;
    launch_liveness_config config;
    pthread_t thread;
};

// Returns true if stop_fd became readable within the time.
static bool is_stopped(const launch_liveness *l, int64_t limit_ns)
{
    struct pollfd p = {.fd = l->stop_fd, .events = POLLIN};
    const int64_t ms = limit_ns / 1000000;
    return poll(&p, 1, ms > INT32_MAX ? INT32_MAX : (int)ms) > 0;
}

static void *liveness_main(void *context)
{
    const launch_liveness *l = context;
    const launch_liveness_config *c = &l->config;
    short events = POLLIN;
    for (;;) {
        struct pollfd p[2] = {{.fd = l->fd, .events = events},
                              {.fd = l->stop_fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0) continue;
        if (p[1].revents != 0) return NULL;
        if ((p[0].revents & ~POLLIN) != 0) break; // it has closed
        // A byte, which stays in the pipe for the other ranks: one of them has failed.
        if (p[0].revents == 0) continue;
        events = 0;
        if (c->on_failure != NULL) c->on_failure(c->context);
    }
    c->on_end(c->context);
    if (c->grace_ns > 0 && !is_stopped(l, c->grace_ns)) _exit(7);
    return NULL;
}

status launch_liveness_start(int fd, const launch_liveness_config *config, launch_liveness **out)
{
    launch_liveness *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        (void)close(fd);
        return fail(ST_NO_MEMORY, "no memory to watch the launcher");
    }
    *l = (launch_liveness){.fd = fd, .config = *config};
    l->stop_fd = eventfd(0, EFD_CLOEXEC);
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = l->stop_fd < 0 ? errno : pthread_create(&l->thread, NULL, liveness_main, l);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        if (l->stop_fd >= 0) (void)close(l->stop_fd);
        (void)close(fd);
        free(l);
        return fail(ST_NO_MEMORY, "cannot start the thread that watches the launcher: %s%s",
                    strerror(error), host_limit_remedy(error));
    }
    *out = l;
    return ST_OK;
}

void launch_liveness_stop(launch_liveness *l)
{
    if (l == NULL) return;
    const uint64_t one = 1;
    const ssize_t n = write(l->stop_fd, &one, sizeof(one));
    (void)n;
    (void)pthread_join(l->thread, NULL);
    (void)close(l->stop_fd);
    (void)close(l->fd);
    free(l);
}
