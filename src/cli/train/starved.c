#include "cli/train/starved.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int64_t least_ns = 100000000; // less is no starvation

void cli_starved_see(starved *s, uint64_t counter, int64_t now, int64_t cpu, bool is_runnable)
{
    const bool has_moved = counter != s->counter || s->at == 0;
    const int64_t wall = now - s->at, used = cpu - s->cpu;
    s->wall = has_moved ? 0 : s->wall + wall;
    s->stood = has_moved ? 0 : s->stood + (is_runnable ? min_i64(used, wall) : wall);
    s->counter = counter;
    s->at = now;
    s->cpu = cpu;
}

bool cli_starved_is_excused(const starved *s, int64_t limit_ns)
{
    return s->wall - s->stood >= least_ns && s->stood < limit_ns;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The state of a thread as the kernel shows it, after the name in brackets: "R" runs or may run.
static char state_of(int folder, const char *thread)
{
    char path[300], bytes[512];
    (void)snprintf(path, sizeof(path), "%s/stat", thread);
    const int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return '?';
    const ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
    (void)close(fd);
    if (n <= 0) return '?';
    bytes[n] = '\0';
    const char *end = strrchr(bytes, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

static bool is_runnable(void)
{
    const long own = (long)gettid();
    bool found = false;
    DIR *folder = opendir("/proc/self/task");
    while (folder != NULL && !found) {
        const struct dirent *e = readdir(folder);
        if (e == NULL) break;
        if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) == own) continue;
        found = state_of(dirfd(folder), e->d_name) == 'R';
    }
    if (folder != NULL) (void)closedir(folder);
    return found;
}

void cli_starved_look(starved *s, uint64_t counter)
{
    const bool stands = counter == s->counter && s->at != 0;
    cli_starved_see(s, counter, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                    stands && is_runnable());
}
