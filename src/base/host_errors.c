// Adds the numbers in the small files of /sys.
#include "base/host_errors.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_LIMIT_BYTES = 512 };

static int64_t number_in(const char *path)
{
    char text[32];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (got <= 0) return -1;
    text[got] = '\0';
    return text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : -1;
}

// The sum over all files of a pattern and what was known before; -1: there is none.
static int64_t add(int64_t before, const char *root, const char *pattern)
{
    char path[PATH_LIMIT_BYTES];
    glob_t found;
    if (snprintf(path, sizeof(path), "%s%s", root, pattern) >= PATH_LIMIT_BYTES) return before;
    if (glob(path, GLOB_NOSORT, NULL, &found) != 0) return before;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const int64_t n = number_in(found.gl_pathv[i]);
        if (n >= 0) before = max_i64(before, 0) + n;
    }
    globfree(&found);
    return before;
}

void host_errors_read(const char *root, host_errors *out)
{
    static const char *const links[] = {
        "/sys/class/infiniband/*/ports/*/counters/link_error_recovery",
        "/sys/class/infiniband/*/ports/*/counters/symbol_error",
        "/sys/class/net/*/statistics/rx_crc_errors",
        "/sys/class/net/*/statistics/tx_carrier_errors",
    };
    *out = (host_errors){-1, -1, -1, -1};
    out->memory_corrected = add(-1, root, "/sys/devices/system/edac/mc/mc*/ce_count");
    out->memory_uncorrected = add(-1, root, "/sys/devices/system/edac/mc/mc*/ue_count");
    out->throttled =
        add(-1, root, "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count");
    for (int64_t i = 0; i < COUNT_OF(links); i++) out->links = add(out->links, root, links[i]);
}
