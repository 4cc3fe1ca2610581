// Flips a bit of a rank's state or gradients in its memory, as a particle or a defective chip does.
// Each rank says in RUN/logs/arenas where its arena lies and which of its bytes hold what, because
// the ranks of a pipeline, of experts or of uneven shares have different plans.
#include "base/format/json.h"
#include "cli/chaos/chaos.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_LIMIT_BYTES = 1 << 28, PATH_LIMIT_BYTES = 4096 };

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

// A random byte among those of these tensors: its offset in the arena; -1: there is none.
static int64_t byte_choose(const json *list, flip_where where, uint64_t word)
{
    int64_t all_bytes = 0;
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *x = json_at(list, i);
        if (is_there(x, where)) all_bytes += json_int(json_get(x, "bytes"), 0);
    }
    int64_t left = all_bytes > 0 ? (int64_t)(word % (uint64_t)all_bytes) : 0;
    for (int64_t i = 0; i < json_count(list) && all_bytes > 0; i++) {
        const json *x = json_at(list, i);
        const int64_t bytes = json_int(json_get(x, "bytes"), 0);
        if (!is_there(x, where)) continue;
        if (left < bytes) return json_int(json_get(x, "offset"), 0) + left;
        left -= bytes;
    }
    return -1;
}

// Reads how this process describes its memory. *out: NULL: it has not. What an earlier process of
// this place has said is not of this one.
static void said_read(const chaos_target *t, json **out)
{
    char path[PATH_LIMIT_BYTES];
    *out = NULL;
    (void)snprintf(path, sizeof(path), "%s/" CHAOS_ARENAS "/%d.json", t->run_dir, t->rank);
    if (json_read(t->h, path, PLAN_LIMIT_BYTES, out) != ST_OK) {
        error_clear();
        *out = NULL;
    } else if (json_int(json_get(*out, "process"), 0) != t->process) {
        json_free(*out);
        *out = NULL;
    }
}

bool chaos_has_begun(const chaos_target *t)
{
    json *said = NULL;
    said_read(t, &said);
    const bool has = said != NULL;
    json_free(said);
    return has;
}

// The address of a random byte in the process; 0: it has not said so.
static uint64_t address_choose(const chaos_target *t, flip_where where)
{
    json *said = NULL;
    uint64_t found = 0;
    said_read(t, &said);
    if (said == NULL) return 0;
    const int64_t at = json_int(json_get(said, "address"), 0);
    const int64_t offset = byte_choose(json_get(said, "tensors"), where, t->word >> 8);
    if (at != 0 && offset >= 0) found = (uint64_t)(at + offset);
    json_free(said);
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
    uint8_t byte = 0;
    if (!chaos_has_stepped(t)) return false;
    const off_t at = (off_t)address_choose(t, where);
    if (at == 0) return false;
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
