// Finds out whether the kernel's OOM killer ended a rank, which looks like any other SIGKILL.
//
// The kernel counts its kills: per control group in memory.events (version 2) or memory.oom_control
// (version 1), and for the whole machine in /proc/vmstat. The counter of the group is preferred,
// because that of the machine also counts other users' processes. A kill counts before the end of
// the process is visible, which may take seconds for a large one; so the launcher compares with the
// count of 5 to 10 s ago, and not with that of the start, when other processes may have been
// killed.
#include "launch/local_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 16 << 10 };
static const int64_t look_ns = INT64_C(5000000000);

static bool read_file(const char *root, const char *path, char out[FILE_BYTES])
{
    char whole[LAUNCH_PATH_BYTES];
    const int n = snprintf(whole, sizeof(whole), "%s%s", root, path);
    if (n < 0 || n >= (int)sizeof(whole)) return false;
    const int fd = open(whole, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t count = read(fd, out, FILE_BYTES - 1);
    (void)close(fd);
    if (count < 0) return false;
    out[count] = '\0';
    return true;
}

// The number after the line's first word "oom_kill"; -1: there is no such line.
static int64_t count_in(const char *root, const char *path)
{
    static const char name[] = "oom_kill ";
    char content[FILE_BYTES];
    if (!read_file(root, path, content)) return -1;
    for (const char *line = content; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, sizeof(name) - 1) == 0)
            return strtoll(line + sizeof(name) - 1, NULL, 10);
    }
    return -1;
}

// This process's group in a hierarchy of /proc/self/cgroup, whose lines are "4:memory:/path" or, in
// version 2, "0::/path".
static bool group_of(const char *list, const char *hierarchy, char *out, size_t limit_bytes)
{
    for (const char *line = list; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        const int length = end == NULL ? (int)strlen(line) : (int)(end - line);
        if (colon != NULL && colon < line + length &&
            strncmp(colon, hierarchy, strlen(hierarchy)) == 0) {
            const char *path = colon + strlen(hierarchy);
            const int n = snprintf(out, limit_bytes, "%.*s", (int)(line + length - path), path);
            return n >= 0 && n < (int)limit_bytes;
        }
        line = end == NULL ? NULL : end + 1;
    }
    return false;
}

int64_t launch_oom_kills(const char *root)
{
    static const struct {
        const char *hierarchy, *mount, *file;
    } versions[] = {{"::", "/sys/fs/cgroup", "memory.events"},
                    {":memory:", "/sys/fs/cgroup/memory", "memory.oom_control"}};
    char list[FILE_BYTES], group[1024], path[2048];
    if (read_file(root, "/proc/self/cgroup", list)) {
        for (int64_t i = 0; i < COUNT_OF(versions); i++) {
            if (!group_of(list, versions[i].hierarchy, group, sizeof(group))) continue;
            (void)snprintf(path, sizeof(path), "%s%s/%s", versions[i].mount, group,
                           versions[i].file);
            int64_t count = count_in(root, path);
            // A container sees its own group as the root of the mount.
            (void)snprintf(path, sizeof(path), "%s/%s", versions[i].mount, versions[i].file);
            if (count < 0) count = count_in(root, path);
            if (count >= 0) return count;
        }
    }
    return count_in(root, "/proc/vmstat");
}

void launch_oom_look(local *l, int64_t now)
{
    if (l->oom_at != 0 && now - l->oom_at < look_ns) return;
    const int64_t kills = launch_oom_kills("");
    l->oom_before = l->oom_at == 0 ? kills : l->oom_last;
    l->oom_last = kills;
    l->oom_at = now;
}

oom_verdict launch_oom_find(const local *l)
{
    const int64_t kills = launch_oom_kills("");
    if (kills < 0 || l->oom_before < 0) return OOM_UNKNOWN;
    return kills > l->oom_before ? OOM_KILLED : OOM_NOT;
}
