// Flips a bit of a rank's state or gradients in its memory, as a particle or a defective chip does.
// The arena of a rank is a mapping of its own, and plan.json says which of its bytes hold what.
#include "base/format/json.h"
#include "cli/chaos/chaos.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLAN_LIMIT_BYTES = 1 << 28, PATH_LIMIT_BYTES = 4096 };

// True if the process holds a descriptor of this file: ranks map each other's arenas, but keep only
// the descriptor of their own.
static bool is_own(pid_t process, unsigned long long inode)
{
    char path[64];
    bool found = false;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    while (folder != NULL && !found) {
        const struct dirent *e = readdir(folder);
        struct stat info;
        if (e == NULL) break;
        found = fstatat(dirfd(folder), e->d_name, &info, 0) == 0 && info.st_ino == inode;
    }
    if (folder != NULL) (void)closedir(folder);
    return found;
}

// The address of the mapping with at least these bytes; 0: none.
static uint64_t arena_find(pid_t process, uint64_t bytes)
{
    char path[64], line[1024];
    uint64_t found = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)process);
    FILE *f = fopen(path, "re");
    while (f != NULL && found == 0 && fgets(line, sizeof(line), f) != NULL) {
        unsigned long long begin = 0, end = 0, inode = 0;
        if (strstr(line, "trireme-region") == NULL) continue;
        const int n = sscanf(line, "%llx-%llx %*s %*s %*s %llu", &begin, &end, &inode);
        if (n == 3 && end - begin >= bytes && is_own(process, inode)) found = begin;
    }
    if (f != NULL) (void)fclose(f);
    return found;
}

typedef enum flip_where { FLIP_STATE, FLIP_WEIGHTS, FLIP_MOMENTS, FLIP_GRADIENTS } flip_where;

static bool is_there(const json *tensor, flip_where where)
{
    const char *kind = json_text(json_get(tensor, "kind"), "");
    const bool is_run = strcmp(json_text(json_get(tensor, "lifetime"), ""), "run") == 0;
    const bool is_weight = strcmp(kind, "weights") == 0 || strcmp(kind, "master") == 0;
    const bool is_moment = strcmp(kind, "moments") == 0;
    if (where == FLIP_GRADIENTS) return strcmp(kind, "gradients") == 0;
    return is_run && ((is_weight && where != FLIP_MOMENTS) || (is_moment && where != FLIP_WEIGHTS));
}

// A random byte: its offset in the arena; -1: the plan cannot be read.
static int64_t byte_choose(const chaos_target *t, flip_where where, uint64_t *arena_bytes)
{
    char path[PATH_LIMIT_BYTES];
    json *plan = NULL;
    int64_t all_bytes = 0, found = -1;
    (void)snprintf(path, sizeof(path), "%s/plan.json", t->run_dir);
    if (json_read(t->h, path, PLAN_LIMIT_BYTES, &plan) != ST_OK) {
        error_clear();
        return -1;
    }
    const json *list = json_get(plan, "tensors");
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *x = json_at(list, i);
        if (is_there(x, where)) all_bytes += json_int(json_get(x, "bytes"), 0);
    }
    int64_t left = all_bytes > 0 ? (int64_t)((t->word >> 8) % (uint64_t)all_bytes) : 0;
    for (int64_t i = 0; i < json_count(list) && found < 0 && all_bytes > 0; i++) {
        const json *x = json_at(list, i);
        const int64_t bytes = json_int(json_get(x, "bytes"), 0);
        if (!is_there(x, where)) continue;
        if (left < bytes) found = json_int(json_get(x, "offset"), 0) + left;
        left -= bytes;
    }
    *arena_bytes = (uint64_t)json_int(json_get(plan, "run_bytes"), 0);
    json_free(plan);
    return found;
}

// Moments are zero before the first step, and most flips of a zero vanish in the first update.
bool chaos_has_stepped(const chaos_target *t)
{
    char path[PATH_LIMIT_BYTES];
    file_info info;
    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", t->run_dir);
    if (t->h->api->path_info(t->h, path, &info) == ST_OK) return info.bytes > 0;
    error_clear();
    return false;
}

static bool flip(const chaos_target *t, flip_where where)
{
    char path[64];
    uint64_t arena_bytes = 0;
    uint8_t byte = 0;
    if (!chaos_has_stepped(t)) return false;
    const int64_t offset = byte_choose(t, where, &arena_bytes);
    const uint64_t begin = offset >= 0 ? arena_find(t->process, arena_bytes) : 0;
    if (begin == 0) return false;
    const off_t at = (off_t)(begin + (uint64_t)offset);
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->process);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_done = pread(fd, &byte, 1, at) == 1;
    byte ^= (uint8_t)(1u << (t->word & 7));
    is_done = is_done && pwrite(fd, &byte, 1, at) == 1;
    (void)close(fd);
    return is_done;
}

bool chaos_inject_flip(const chaos_target *t)
{
    return flip(t, FLIP_STATE);
}

bool chaos_inject_flip_weight(const chaos_target *t)
{
    return flip(t, FLIP_WEIGHTS);
}

bool chaos_inject_flip_moment(const chaos_target *t)
{
    return flip(t, FLIP_MOMENTS);
}

// A gradient shares its memory with other tensors of the step, so the bit may be of one of those,
// or of none.
bool chaos_inject_flip_gradient(const chaos_target *t)
{
    return flip(t, FLIP_GRADIENTS);
}
