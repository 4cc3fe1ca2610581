// Available and installed memory, from Linux's /proc and control groups.
#include "base/host.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Reads the start of a small kernel file; false if it cannot be read.
static bool kernel_file(const char *path, char *out, int64_t bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t got = read(fd, out, (size_t)bytes - 1);
    (void)close(fd);
    if (got <= 0) return false;
    out[got] = '\0';
    return true;
}

static int64_t leading_number(const char *s)
{
    int64_t value = 0;
    s += strspn(s, " \t");
    for (; *s >= '0' && *s <= '9' && value < (INT64_C(1) << 58); s++)
        value = value * 10 + (*s - '0');
    return value;
}

// The limit of the control group (version 2); 0: no limit.
static int64_t group_limit(void)
{
    char limit[64];
    if (!kernel_file("/sys/fs/cgroup/memory.max", limit, sizeof(limit))) return 0;
    return limit[0] == 'm' ? 0 : leading_number(limit);
}

// The memory that the control group has left.
static int64_t group_left(void)
{
    char used[64];
    const int64_t limit = group_limit();
    if (limit == 0 || !kernel_file("/sys/fs/cgroup/memory.current", used, sizeof(used))) return 0;
    return max_i64(1, limit - leading_number(used));
}

// The value of a row such as "MemAvailable:"; 0: unknown.
static int64_t meminfo(const char *name)
{
    char text[4096];
    if (!kernel_file("/proc/meminfo", text, sizeof(text))) return 0;
    const char *line = strstr(text, name);
    return line != NULL ? leading_number(line + strlen(name)) * 1024 : 0;
}

// The smaller of two, where 0 means unlimited.
static int64_t smaller(int64_t a, int64_t b)
{
    if (a == 0 || b == 0) return a + b;
    return min_i64(a, b);
}

int64_t host_memory_bytes(const host *h)
{
    if (h->api != host_real()->api) return 0; // a simulated host has no memory limits
    return smaller(meminfo("MemAvailable:"), group_left());
}

int64_t host_memory_installed(const host *h)
{
    if (h->api != host_real()->api) return 0;
    return smaller(meminfo("MemTotal:"), group_limit());
}
