// Keeps the key in a page mapped for it alone, with MADV_DONTDUMP and MADV_WIPEONFORK (a child has
// the key only if it was given it), locked into memory where the limit allows that.
#include "control/key.h"

#include "base/fault.h"
#include "control/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, FILE_BYTES_MAX = 2 * CONTROL_KEY_BYTES + 2 };

struct control_key {
    uint8_t bytes[CONTROL_KEY_BYTES];
};

static status page_create(control_key **out)
{
    TRY(fault_point("control.key.map"));
    void *at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(ST_NO_MEMORY, "no memory for the job's key");
    if (madvise(at, PAGE_BYTES, MADV_DONTDUMP) != 0) {
        (void)munmap(at, PAGE_BYTES);
        return fail(ST_UNSUPPORTED, "this system cannot keep the job's key out of core dumps");
    }
    (void)madvise(at, PAGE_BYTES, MADV_WIPEONFORK); // kernels before 4.14 lack it
    (void)mlock(at, PAGE_BYTES);                    // a limit may forbid it
    *out = at;
    return ST_OK;
}

void control_key_destroy(control_key *k)
{
    if (k == NULL) return;
    control_wipe(k, PAGE_BYTES);
    (void)munmap(k, PAGE_BYTES);
}

const uint8_t *control_key_bytes(const control_key *k)
{
    return k->bytes;
}

status control_key_create(const host *h, control_key **out)
{
    control_key *k = NULL;
    TRY(page_create(&k));
    const status st = h->api->random_fill(h, k->bytes, sizeof(k->bytes));
    if (st != ST_OK) {
        control_key_destroy(k);
        return st;
    }
    *out = k;
    return ST_OK;
}

status control_key_copy(const uint8_t bytes[CONTROL_KEY_BYTES], control_key **out)
{
    control_key *k = NULL;
    TRY(page_create(&k));
    memcpy(k->bytes, bytes, sizeof(k->bytes));
    *out = k;
    return ST_OK;
}

// Reads up to the end or `limit` bytes; returns -1 on an error.
static int64_t read_some(int fd, uint8_t *buffer, int64_t limit)
{
    int64_t done = 0;
    while (done < limit) {
        const ssize_t n = read(fd, buffer + done, (size_t)(limit - done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += n;
    }
    return done;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool parse(const uint8_t *text, int64_t count, uint8_t out[CONTROL_KEY_BYTES])
{
    if (count == CONTROL_KEY_BYTES) {
        memcpy(out, text, CONTROL_KEY_BYTES);
        return true;
    }
    if (count > 2 * CONTROL_KEY_BYTES && text[count - 1] == '\n') count--;
    if (count > 2 * CONTROL_KEY_BYTES && text[count - 1] == '\r') count--;
    if (count != 2 * CONTROL_KEY_BYTES) return false;
    for (int i = 0; i < CONTROL_KEY_BYTES; i++) {
        const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static status check_owner(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return fail(ST_IO, "%s: fstat failed", path);
    if (!S_ISREG(info.st_mode)) {
        return fail(ST_SECURITY, "%s: the job's key must be a regular file", path);
    }
    if (info.st_uid != geteuid()) {
        return fail(ST_SECURITY,
                    "%s: the job's key belongs to user %u, this process runs as user %u", path,
                    (unsigned)info.st_uid, (unsigned)geteuid());
    }
    if ((info.st_mode & 077) != 0) {
        return fail(ST_SECURITY,
                    "%s: other users can access the job's key (mode %03o, expected 600): make a "
                    "new key, and chmod 600 it",
                    path, (unsigned)(info.st_mode & 0777));
    }
    return ST_OK;
}

status control_key_read(const char *path, control_key **out)
{
    uint8_t text[FILE_BYTES_MAX + 1], bytes[CONTROL_KEY_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        const int error = errno;
        return fail(error == ELOOP    ? ST_SECURITY
                    : error == ENOENT ? ST_NOT_FOUND
                                      : ST_IO,
                    "%s: cannot read the job's key: %s", path, strerror(error));
    }
    status st = check_owner(fd, path);
    if (st == ST_OK) {
        const int64_t count = read_some(fd, text, sizeof(text));
        if (count < 0 || !parse(text, count, bytes)) {
            st =
                fail(ST_SECURITY,
                     "%s: the file holds no key, expected 32 bytes or 64 hexadecimal digits", path);
        } else {
            st = control_key_copy(bytes, out);
        }
    }
    control_wipe(text, sizeof(text));
    control_wipe(bytes, sizeof(bytes));
    (void)close(fd);
    return st;
}

status control_key_take(int fd, control_key **out)
{
    control_key *k = NULL;
    uint8_t more;
    status st = page_create(&k);
    if (st == ST_OK && (read_some(fd, k->bytes, CONTROL_KEY_BYTES) != CONTROL_KEY_BYTES ||
                        read_some(fd, &more, 1) != 0)) {
        control_key_destroy(k);
        st = fail(ST_SECURITY, "descriptor %d does not hold the 32 bytes of a job's key", fd);
    }
    (void)close(fd);
    if (st == ST_OK) *out = k;
    return st;
}

status control_key_pipe(const control_key *k, int *fd)
{
    int ends[2];
    TRY(fault_point("control.key.pipe"));
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fail(ST_IO, "cannot create a pipe for the job's key: %s%s", strerror(errno),
                    host_limit_remedy(errno));
    }
    // An empty pipe takes 32 bytes in one write.
    const ssize_t n = write(ends[1], k->bytes, CONTROL_KEY_BYTES);
    (void)close(ends[1]);
    if (n != CONTROL_KEY_BYTES) {
        (void)close(ends[0]);
        return fail(ST_IO, "the job's key could not be written to a pipe");
    }
    *fd = ends[0];
    return ST_OK;
}
