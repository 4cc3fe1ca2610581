// checkpoint.scrub: reads all checkpoints of the run again, so that bits that rot on the disk are
// found while there is still a copy of them. A thread of the first rank does it at the lowest
// priority while training goes on. What is damaged is rebuilt from the copies in the machine's
// memory, in the durable folder and in other checkpoints (checkpoint/repair.c); otherwise a warning
// names file, tensor and byte.
#include "train/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct scrub {
    const host *h;
    const char *folder, *memory, *durable; // memory, durable: NULL: none
    int64_t next_ns;
    pthread_t thread;
    bool is_begun;
    atomic_bool is_done, is_asked; // asked to end early
    int64_t intact, repaired, lost;
    char said[700]; // of the last damage
};
typedef struct scrub scrub;

enum { SOURCES_MAX = 256 };

static status sources_add(const scrub *x, arena *a, const char *folder, const char *own,
                          file_names *out)
{
    ckpt_entries list = {0};
    if (folder == NULL) return ST_OK;
    TRY(ckpt_list(x->h, a, folder, &list));
    for (int64_t i = 0; i < list.count && i < SOURCES_MAX; i++) {
        if (strcmp(list.items[i].path, own) == 0) continue;
        TRY(arena_strdup(a, list.items[i].path, &out->names[out->count++]));
    }
    return ST_OK;
}

static status damaged_repair(scrub *x, arena *a, const char *path)
{
    file_names others = {0};
    text report = {.a = a};
    int64_t pieces = 0;
    TRY(arena_new(a, 3 * SOURCES_MAX, &others.names));
    TRY(sources_add(x, a, x->memory, path, &others));
    TRY(sources_add(x, a, x->durable, path, &others));
    TRY(sources_add(x, a, x->folder, path, &others));
    TRY(ckpt_repair(x->h, a, path, &others, &report, &pieces));
    x->repaired++;
    return ST_OK;
}

// A checkpoint may be removed while it is read, because newer ones have come.
static bool is_removed(const scrub *x, arena *a, const char *path)
{
    char *manifest = NULL;
    file_info info;
    const status st = path_join(a, path, "manifest.json", &manifest);
    if (st == ST_OK && x->h->api->path_info(x->h, manifest, &info) == ST_OK) {
        return info.kind == FILE_KIND_NONE;
    }
    error_clear();
    return false;
}

static bool is_to_stop(void *context)
{
    scrub *x = context;
    return atomic_load(&x->is_asked);
}

static void one_scrub(scrub *x, arena *a, const char *path)
{
    text damage = {.a = a};
    status st = ckpt_scrub(x->h, path, is_to_stop, x, &damage);
    if (st == ST_OK) {
        x->intact++;
        return;
    }
    error_record why;
    error_take(&why);
    if (st == ST_STOPPED || is_removed(x, a, path)) return;
    (void)snprintf(x->said, sizeof(x->said), "%.600s", why.text);
    st = damaged_repair(x, a, path);
    if (st == ST_OK) return;
    error_clear();
    x->lost++;
}

static void *scrub_main(void *context)
{
    scrub *x = context;
    arena *a = NULL;
    ckpt_entries list = {0};
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); // this thread alone
    status st = arena_create("scrub", 0, &a);
    if (st == ST_OK) st = ckpt_list(x->h, a, x->folder, &list);
    for (int64_t i = 0; i < list.count && i < SOURCES_MAX && !atomic_load(&x->is_asked); i++) {
        one_scrub(x, a, list.items[i].path);
    }
    if (st != ST_OK) error_clear();
    arena_destroy(a);
    atomic_store(&x->is_done, true);
    return NULL;
}

// Waits for the thread, and tells people and metrics.jsonl what it found.
static status scrub_end(session *s)
{
    scrub *x = s->scrub;
    text line = {.a = s->a};
    if (!x->is_begun) return ST_OK;
    (void)pthread_join(x->thread, NULL);
    x->is_begun = false;
    if (x->repaired + x->lost > 0) {
        session_say(
            s, LOG_WARN, "%lld checkpoint%s damaged on the disk, of which %lld %s rebuilt: %s",
            (long long)(x->repaired + x->lost), x->repaired + x->lost == 1 ? " was" : "s were",
            (long long)x->repaired, x->repaired == 1 ? "was" : "were", x->said);
    }
    if (s->metrics == NULL) return ST_OK;
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"scrub\", \"intact\": %lld, \"repaired\": %lld, "
                 "\"lost\": %lld}\n",
                 (long long)s->step, (long long)x->intact, (long long)x->repaired,
                 (long long)x->lost));
    return session_event(s, &line);
}

status session_scrub_open(session *s)
{
    scrub *x = NULL;
    if (s->r->checkpoint.scrub == 0 || !session_is_first(s)) return ST_OK;
    TRY(arena_new(s->a, 1, &x));
    x->h = s->h;
    x->folder = s->folder.checkpoints;
    x->memory = s->memory.order != NULL ? s->memory.order->memory : NULL;
    x->durable = s->r->checkpoint.durable;
    x->next_ns = session_now(s) + s->r->checkpoint.scrub;
    s->scrub = x;
    return ST_OK;
}

status session_scrub_poll(session *s)
{
    scrub *x = s->scrub;
    if (x == NULL) return ST_OK;
    if (x->is_begun && atomic_load(&x->is_done)) TRY(scrub_end(s));
    if (x->is_begun || session_now(s) < x->next_ns) return ST_OK;
    x->next_ns = session_now(s) + s->r->checkpoint.scrub;
    x->intact = x->repaired = x->lost = 0;
    atomic_store(&x->is_done, false);
    x->is_begun = pthread_create(&x->thread, NULL, scrub_main, x) == 0;
    return ST_OK;
}

void session_scrub_close(session *s)
{
    if (s->scrub == NULL) return;
    // A run that is to stop has little time; one that is over ends what it has begun.
    if (s->stop > 0) atomic_store(&s->scrub->is_asked, true);
    if (scrub_end(s) != ST_OK) error_clear();
    s->scrub = NULL;
}
