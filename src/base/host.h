// The outside world of a process: time, files, randomness. Code takes a `const host *`, so that a
// simulator can replace it; only cli/ makes the real one. Paths are UTF-8. Relative paths are
// relative to the current directory.
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include "base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct file file; // an open file

typedef enum file_mode {
    FILE_READ,     // must be a regular file
    FILE_READ_OWN, // the same in a folder that others made: a link is ST_SECURITY, except
                   // those of a Hugging Face cache into its own blobs
    FILE_CREATE,   // write; must not exist
    FILE_WRITE,    // write; created or truncated
    FILE_APPEND    // write at the end; created if missing
} file_mode;

typedef enum file_kind {
    FILE_KIND_NONE,
    FILE_KIND_REGULAR,
    FILE_KIND_FOLDER,
    FILE_KIND_OTHER
} file_kind;

typedef struct file_info {
    file_kind kind; // NONE: the path does not exist
    int64_t bytes;
    int64_t modified_ns; // Unix time
    uint64_t device, inode;
} file_info;

typedef struct file_names {
    char **names; // sorted by bytes
    int64_t count;
} file_names;

typedef struct host host;

enum { HOST_NAME_BYTES = 256 };

// Every call that can fail names the path, the operation and the system's reason.
typedef struct host_api {
    int64_t (*monotonic_ns)(const host *h);
    int64_t (*unix_ns)(const host *h);
    void (*sleep_ns)(const host *h, int64_t duration_ns);
    status (*random_fill)(const host *h, void *buffer, int64_t bytes);
    // The machine's name and this process's number, by which a lock file names its owner.
    status (*machine_name)(const host *h, char name[HOST_NAME_BYTES]);
    int64_t (*process_id)(const host *h);

    status (*file_open)(const host *h, const char *path, file_mode mode, file **out);
    status (*file_read)(file *f, int64_t offset, void *buffer, int64_t bytes); // all of it or fails
    status (*file_write)(file *f, const void *buffer, int64_t bytes); // appends; all or fails
    status (*file_truncate)(file *f, int64_t bytes);
    status (*file_sync)(file *f); // fsync; after a failure the file must be given up
    // Locks the file for this process until the file is closed or the process ends in any way.
    // False: another process holds the lock. On a file system without locks every process gets it.
    status (*file_lock)(file *f, bool *taken);
    // Asks the system to drop the file's pages from its cache, so that the next read goes to the
    // disk.
    status (*file_forget)(file *f);
    status (*file_size)(file *f, int64_t *out);
    // Read-only view of the whole file, unmapped by close. NULL for an empty file.
    status (*file_map)(file *f, const void **out, int64_t *bytes);
    status (*file_close)(file *f); // NULL is legal; reports what close() reports

    status (*path_info)(const host *h, const char *path, file_info *out); // NONE is not an error
    status (*path_rename)(const host *h, const char *from, const char *to);
    status (*path_remove)(const host *h, const char *path); // a file or an empty folder
    status (*path_mkdir)(const host *h, const char *path);  // parents too; existing is fine
    status (*path_sync)(const host *h, const char *folder); // makes renames in it durable
    // Bytes that can still be written at `path`; -1: unknown.
    status (*path_space)(const host *h, const char *path, int64_t *free_bytes);
    status (*path_list)(const host *h, arena *a, const char *folder, file_names *out);
    status (*path_link)(const host *h, const char *target, const char *link); // symlink, by rename
    status (*path_glob)(const host *h, arena *a, const char *pattern, file_names *out);
} host_api;

struct host {
    const host_api *api;
    void *state;      // of a simulated host
    const char *home; // the folder that "~" means in paths; NULL: unknown
};

const host *host_real(void);

// Memory that a process may still take: the system's available memory, limited by the rest of the
// process's control group. 0: unknown.
int64_t host_memory_bytes(const host *h);
// The same for an idle machine: installed memory, limited by the limit of the control group.
int64_t host_memory_installed(const host *h);

// For the text of an error: the limit of the process that made a system call fail with this errno,
// and the remedy, in parentheses after a blank; "" if no limit did.
const char *host_limit_remedy(int error);

// Reads whole small files. Refuses more than `limit_bytes` before it allocates. A NUL follows the
// last byte of the text and is not counted.
NODISCARD status host_read_all(const host *h, arena *a, const char *path, int64_t limit_bytes,
                               char **out, int64_t *bytes);
// The same for a text that a person wrote: skips the UTF-8 byte order mark of Windows editors and
// refuses UTF-16, which PowerShell writes.
NODISCARD status host_read_text(const host *h, arena *a, const char *path, int64_t limit_bytes,
                                char **out, int64_t *bytes);
// host_read_all with FILE_READ_OWN.
NODISCARD status host_read_own(const host *h, arena *a, const char *path, int64_t limit_bytes,
                               char **out, int64_t *bytes);
// Writes path.tmp, syncs it, renames it over path, syncs the folder.
NODISCARD status host_write_all(const host *h, const char *path, const void *data, int64_t bytes);
NODISCARD status path_join(arena *a, const char *folder, const char *name, char **out);
const char *path_base_name(const char *path); // borrowed: the part after the last slash

#ifdef __cplusplus
}
#endif
#endif
