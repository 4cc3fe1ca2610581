// The real host: POSIX files, clocks and randomness.
//
// Reads open without blocking and then check the file type: a FIFO or device would block or never
// end, so only regular files pass. The host continues short reads and writes and retries EINTR.
// Every failure names the path, the operation and the system's reason.
#include "base/fault.h"
#include "base/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { IO_PIECE_BYTES = 1 << 30 }; // Linux transfers at most 2 GiB - 4 KiB per call

struct file {
    int fd;
    char *path;
    void *map;
    int64_t map_bytes;
};

static status fail_errno(int error, const char *operation, const char *path)
{
    char buffer[128];
    const char *reason = strerror_r(error, buffer, sizeof(buffer));
    const status code = error == ENOSPC || error == EDQUOT    ? ST_DISK_FULL
                        : error == ENOENT || error == ENOTDIR ? ST_NOT_FOUND
                        : error == ENOMEM                     ? ST_NO_MEMORY
                                                              : ST_IO;
    return fail(code, "%s: %s failed: %s%s", path, operation, reason, host_limit_remedy(error));
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t); // cannot fail for these clocks
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t monotonic_ns(const host *h)
{
    (void)h;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t unix_ns(const host *h)
{
    (void)h;
    return clock_ns(CLOCK_REALTIME);
}

static void sleep_ns(const host *h, int64_t duration_ns)
{
    (void)h;
    if (duration_ns <= 0) return;
    struct timespec left = {.tv_sec = duration_ns / 1000000000,
                            .tv_nsec = duration_ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static status random_fill(const host *h, void *buffer, int64_t bytes)
{
    (void)h;
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = getrandom((char *)buffer + done, (size_t)min_i64(bytes - done, 256), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno(n == 0 ? EIO : errno, "getrandom", "the system's randomness");
        done += n;
    }
    return ST_OK;
}

static status machine_name(const host *h, char name[HOST_NAME_BYTES])
{
    (void)h;
    if (gethostname(name, HOST_NAME_BYTES) != 0) return fail(ST_IO, "this machine has no name");
    name[HOST_NAME_BYTES - 1] = '\0';
    return ST_OK;
}

static int64_t process_id(const host *h)
{
    (void)h;
    return getpid();
}

static const char *kind_text(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
                            : "a device";
}

static status check_regular(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_errno(errno, "fstat", path);
    if (!S_ISREG(info.st_mode)) {
        return fail(ST_DAMAGED, "%s: is %s, a regular file expected", path,
                    kind_text(info.st_mode));
    }
    return ST_OK;
}

// Writes go to regular files; devices such as /dev/full stand for a disk. A FIFO without a reader
// would block the writer for ever.
static status check_writable(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_errno(errno, "fstat", path);
    if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
        return fail(ST_IO, "%s: is %s, a regular file to write expected; remove it", path,
                    kind_text(info.st_mode));
    }
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return fail_errno(errno, "fcntl", path);
    }
    return ST_OK;
}

static int open_retry(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

// Files of a Hugging Face cache, MODEL/snapshots/REVISION/NAME, are links to ../../blobs/HASH. The
// function follows only this form and no other link on the way, so no path leads out of MODEL.
// Returns a descriptor, or -1.
static int open_blob(const char *path, int flags)
{
    static const char blobs[] = "../../blobs/";
    char folder[PATH_MAX], target[NAME_MAX];
    const int64_t length = path_base_name(path) - path;
    if (snprintf(folder, sizeof(folder), "%.*s.", (int)length, path) >= (int)sizeof(folder))
        return -1;
    const int at = open_retry(folder, O_PATH | O_DIRECTORY);
    if (at < 0) return -1;
    int fd = -1;
    const ssize_t bytes = readlinkat(at, path + length, target, sizeof(target) - 1);
    if (bytes > (ssize_t)strlen(blobs)) {
        target[bytes] = '\0';
        const char *name = target + strlen(blobs);
        const bool is_plain = strchr(name, '/') == NULL && name[0] != '.';
        if (strncmp(target, blobs, strlen(blobs)) == 0 && is_plain) {
            const int blobs_fd =
                openat(at, "../../blobs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (blobs_fd >= 0) {
                fd = openat(blobs_fd, name, flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
                close(blobs_fd);
            }
        }
    }
    close(at);
    return fd;
}

static status file_open(const host *h, const char *path, file_mode mode, file **out)
{
    (void)h;
    static const int flags[] = {
        [FILE_READ] = O_RDONLY | O_NONBLOCK,
        [FILE_READ_OWN] = O_RDONLY | O_NONBLOCK | O_NOFOLLOW,
        [FILE_CREATE] = O_WRONLY | O_NONBLOCK | O_CREAT | O_EXCL,
        [FILE_WRITE] = O_WRONLY | O_NONBLOCK | O_CREAT | O_TRUNC,
        [FILE_APPEND] = O_WRONLY | O_NONBLOCK | O_CREAT | O_APPEND,
    };
    TRY(fault_point("host.open"));
    const bool reads = mode == FILE_READ || mode == FILE_READ_OWN;
    int fd = open_retry(path, flags[mode]);
    if (fd < 0 && errno == ELOOP && mode == FILE_READ_OWN) {
        fd = open_blob(path, flags[mode]);
        if (fd < 0) {
            return fail(ST_SECURITY,
                        "%s: is a symbolic link; in a folder that others may have made, links are "
                        "followed only in a Hugging Face cache, to its own blobs. Put the file "
                        "itself there",
                        path);
        }
    }
    // A socket gives this error, and a FIFO without a reader.
    if (fd < 0 && errno == ENXIO) {
        return fail(reads ? ST_DAMAGED : ST_IO,
                    "%s: is a socket or a FIFO, a regular file expected", path);
    }
    if (fd < 0) return fail_errno(errno, reads ? "open" : "open for writing", path);
    status st = reads ? check_regular(fd, path) : check_writable(fd, path);
    if (st != ST_OK) goto close_fd;
    file *f = calloc(1, sizeof(*f));
    char *copy = strdup(path);
    if (f == NULL || copy == NULL) {
        free(f);
        free(copy);
        st = fail(ST_NO_MEMORY, "%s: no memory to open it", path);
        goto close_fd;
    }
    f->fd = fd;
    f->path = copy;
    *out = f;
    return ST_OK;
close_fd:
    close(fd);
    return st;
}

static status file_read(file *f, int64_t offset, void *buffer, int64_t bytes)
{
    TRY(fault_point("host.read"));
    for (int64_t done = 0; done < bytes;) {
        const size_t piece = (size_t)min_i64(bytes - done, IO_PIECE_BYTES);
        const ssize_t n = pread(f->fd, (char *)buffer + done, piece, offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(errno, "read", f->path);
        if (n == 0) {
            struct stat info; // a read that begins beyond the end does not say where the end is
            const bool is_beyond = fstat(f->fd, &info) == 0 && info.st_size < offset + done;
            return fail(ST_DAMAGED, "%s: ends at byte %lld, %lld bytes expected at %lld", f->path,
                        (long long)(is_beyond ? info.st_size : offset + done), (long long)bytes,
                        (long long)offset);
        }
        done += n;
    }
    return ST_OK;
}

static status file_write(file *f, const void *buffer, int64_t bytes)
{
    TRY(fault_point("host.write"));
    for (int64_t done = 0; done < bytes;) {
        const size_t piece = (size_t)min_i64(bytes - done, IO_PIECE_BYTES);
        const ssize_t n = write(f->fd, (const char *)buffer + done, piece);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno(n == 0 ? EIO : errno, "write", f->path);
        done += n;
    }
    return ST_OK;
}

static status file_truncate(file *f, int64_t bytes)
{
    TRY(fault_point("host.truncate"));
    int result;
    do {
        result = ftruncate(f->fd, bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? ST_OK : fail_errno(errno, "truncate", f->path);
}

// After EINTR the kernel has dropped no data, so the call can be repeated.
static int sync_retry(int fd)
{
    int result;
    do {
        result = fsync(fd);
    } while (result != 0 && errno == EINTR);
    return result;
}

static status file_sync(file *f)
{
    TRY(fault_point("host.sync"));
    if (sync_retry(f->fd) == 0 || errno == EINVAL) return ST_OK; // a device has nothing to sync
    return fail_errno(errno, "fsync", f->path);
}

static status file_lock(file *f, bool *taken)
{
    TRY(fault_point("host.lock"));
    int result;
    do {
        result = flock(f->fd, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    const bool has_locks = errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK;
    if (result != 0 && errno != EWOULDBLOCK && has_locks) {
        return fail_errno(errno, "flock", f->path);
    }
    *taken = result == 0 || errno != EWOULDBLOCK;
    return ST_OK;
}

static status file_forget(file *f)
{
    TRY(fault_point("host.forget"));
    const int error = posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    // Devices, pipes and file systems in memory have no cache to drop.
    if (error != 0 && error != EINVAL && error != ESPIPE && error != ENOSYS) {
        return fail_errno(error, "fadvise", f->path);
    }
    return ST_OK;
}

static status file_size(file *f, int64_t *out)
{
    struct stat info;
    if (fstat(f->fd, &info) != 0) return fail_errno(errno, "fstat", f->path);
    *out = info.st_size;
    return ST_OK;
}

static status file_map(file *f, const void **out, int64_t *bytes)
{
    TRY(fault_point("host.map"));
    int64_t size = 0;
    TRY(file_size(f, &size));
    if (size > 0 && f->map == NULL) {
        void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, f->fd, 0);
        if (map == MAP_FAILED) return fail_errno(errno, "mmap", f->path);
        f->map = map;
        f->map_bytes = size;
    }
    *out = f->map;
    *bytes = f->map_bytes;
    return ST_OK;
}

static status file_close(file *f)
{
    if (f == NULL) return ST_OK;
    if (f->map != NULL) munmap(f->map, (size_t)f->map_bytes);
    status st = ST_OK;
    // After EINTR the descriptor is gone on Linux: closing again could close another's.
    if (close(f->fd) != 0 && errno != EINTR) st = fail_errno(errno, "close", f->path);
    free(f->path);
    free(f);
    return st;
}

static status path_info(const host *h, const char *path, file_info *out)
{
    (void)h;
    struct stat info;
    *out = (file_info){.kind = FILE_KIND_NONE};
    if (stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return ST_OK;
        return fail_errno(errno, "stat", path);
    }
    out->kind = S_ISREG(info.st_mode)   ? FILE_KIND_REGULAR
                : S_ISDIR(info.st_mode) ? FILE_KIND_FOLDER
                                        : FILE_KIND_OTHER;
    out->bytes = info.st_size;
    out->modified_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    out->device = info.st_dev;
    out->inode = info.st_ino;
    return ST_OK;
}

static status path_rename(const host *h, const char *from, const char *to)
{
    (void)h;
    TRY(fault_point("host.rename"));
    if (rename(from, to) != 0) {
        const status st = fail_errno(errno, "rename", from);
        note("while renaming it to %s", to);
        return st;
    }
    return ST_OK;
}

static status path_remove(const host *h, const char *path)
{
    (void)h;
    TRY(fault_point("host.remove"));
    if (remove(path) != 0) return fail_errno(errno, "remove", path);
    return ST_OK;
}

static status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0) return ST_OK;
    const int error = errno;
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return ST_OK; // exists, perhaps made by another process just now
        return fail(ST_IO, "%s: cannot make a folder, a file has this name", path);
    }
    return fail_errno(error, "mkdir", path);
}

static status path_mkdir(const host *h, const char *path)
{
    (void)h;
    TRY(fault_point("host.mkdir"));
    char *copy = strdup(path);
    if (copy == NULL) return fail(ST_NO_MEMORY, "%s: no memory to make the folder", path);
    status st = ST_OK;
    for (char *at = copy; st == ST_OK && *at != '\0'; at++) {
        if (*at != '/' || at == copy) continue;
        *at = '\0';
        st = make_folder(copy);
        *at = '/';
    }
    if (st == ST_OK) st = make_folder(copy);
    free(copy);
    return st;
}

static status path_sync(const host *h, const char *folder)
{
    (void)h;
    TRY(fault_point("host.sync"));
    const int fd = open_retry(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return fail_errno(errno, "open", folder);
    status st = ST_OK;
    if (sync_retry(fd) != 0 && errno != EINVAL) st = fail_errno(errno, "fsync", folder);
    close(fd);
    return st;
}

static status path_space(const host *h, const char *path, int64_t *free_bytes)
{
    (void)h;
    struct statvfs info;
    if (statvfs(path, &info) != 0) return fail_errno(errno, "statvfs", path);
    int64_t bytes = 0; // f_frsize * f_bavail may be any number that a file system reports
    const bool fits = info.f_bavail <= INT64_MAX && info.f_frsize <= INT64_MAX &&
                      size_mul((int64_t)info.f_bavail, (int64_t)info.f_frsize, &bytes);
    *free_bytes = fits ? bytes : -1;
    return ST_OK;
}

typedef struct name_list {
    char **names;
    int64_t count, capacity;
} name_list;

static status add_name(arena *a, name_list *list, const char *name)
{
    void *items = list->names;
    TRY(arena_grow(a, &items, &list->capacity, list->count + 1, sizeof(char *)));
    list->names = items;
    TRY(arena_strdup(a, name, &list->names[list->count]));
    list->count++;
    return ST_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void give_names(name_list *list, file_names *out)
{
    if (list->count > 1) qsort(list->names, (size_t)list->count, sizeof(char *), compare_names);
    *out = (file_names){.names = list->names, .count = list->count};
}

static status path_list(const host *h, arena *a, const char *folder, file_names *out)
{
    (void)h;
    TRY(fault_point("host.list"));
    DIR *dir;
    do {
        dir = opendir(folder);
    } while (dir == NULL && errno == EINTR);
    if (dir == NULL) return fail_errno(errno, "list", folder);
    name_list list = {0};
    status st = ST_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        TRY_TO(close_dir, add_name(a, &list, entry->d_name));
    }
    if (errno != 0) {
        st = fail_errno(errno, "list", folder);
        goto close_dir;
    }
    give_names(&list, out);
close_dir:
    closedir(dir);
    return st;
}

// Makes the link under a temporary name and renames it, so that the link is never missing.
static status path_link(const host *h, const char *target, const char *link)
{
    TRY(fault_point("host.link"));
    char *temporary;
    if (asprintf(&temporary, "%s.tmp", link) < 0) return fail(ST_NO_MEMORY, "%s: no memory", link);
    if (unlink(temporary) != 0 && errno != ENOENT) {
        const status st = fail_errno(errno, "remove", temporary);
        free(temporary);
        return st;
    }
    status st = ST_OK;
    if (symlink(target, temporary) != 0) {
        st = fail_errno(errno, "symlink", temporary);
    } else {
        st = path_rename(h, temporary, link);
        if (st != ST_OK) (void)unlink(temporary);
    }
    free(temporary);
    return st;
}

static status path_glob(const host *h, arena *a, const char *pattern, file_names *out)
{
    (void)h;
    TRY(fault_point("host.glob"));
    glob_t found;
    const int result = glob(pattern, GLOB_NOSORT, NULL, &found); // sorted by bytes below
    if (result == GLOB_NOMATCH) {
        *out = (file_names){.names = NULL, .count = 0};
        return ST_OK;
    }
    if (result == GLOB_NOSPACE) return fail(ST_NO_MEMORY, "%s: no memory for the names", pattern);
    if (result != 0) return fail(ST_IO, "%s: the folders cannot be read", pattern);
    name_list list = {0};
    status st = ST_OK;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        TRY_TO(free_names, add_name(a, &list, found.gl_pathv[i]));
    }
    give_names(&list, out);
free_names:
    globfree(&found);
    return st;
}

static const host_api api_real = {
    .monotonic_ns = monotonic_ns,
    .unix_ns = unix_ns,
    .sleep_ns = sleep_ns,
    .random_fill = random_fill,
    .machine_name = machine_name,
    .process_id = process_id,
    .file_open = file_open,
    .file_read = file_read,
    .file_write = file_write,
    .file_truncate = file_truncate,
    .file_sync = file_sync,
    .file_lock = file_lock,
    .file_forget = file_forget,
    .file_size = file_size,
    .file_map = file_map,
    .file_close = file_close,
    .path_info = path_info,
    .path_rename = path_rename,
    .path_remove = path_remove,
    .path_mkdir = path_mkdir,
    .path_sync = path_sync,
    .path_space = path_space,
    .path_list = path_list,
    .path_link = path_link,
    .path_glob = path_glob,
};

static const host host_of_this_machine = {.api = &api_real, .state = NULL};

const host *host_real(void)
{
    return &host_of_this_machine;
}
