// The durable tier: a thread of the first rank copies finished checkpoints to another folder, such
// as a network file system, while training continues. The manifest comes last, so a copy that was
// cut off is debris; each copy is verified. RUN/durable is a link to the folder.
#include "train/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 4 << 20 };

typedef struct durable {
    const host *h;
    const char *folder;
    int64_t every, keep;
    char from[CKPT_PATH_BYTES];
    pthread_t thread;
    bool is_begun;
    atomic_bool is_done;
    status st;
    error_record error;
} durable;

static status file_copy(const host *h, const char *from, const char *to, char *piece)
{
    file *in = NULL, *out = NULL;
    int64_t bytes = 0;
    TRY(h->api->file_open(h, from, FILE_READ_OWN, &in));
    status st = h->api->file_size(in, &bytes);
    if (st == ST_OK) st = h->api->file_open(h, to, FILE_WRITE, &out);
    for (int64_t at = 0; at < bytes && st == ST_OK; at += PIECE_BYTES) {
        const int64_t n = min_i64(PIECE_BYTES, bytes - at);
        st = h->api->file_read(in, at, piece, n);
        if (st == ST_OK) st = h->api->file_write(out, piece, n);
    }
    if (st == ST_OK) st = h->api->file_sync(out);
    (void)h->api->file_close(in); // it was only read
    const status closed = out != NULL ? h->api->file_close(out) : ST_OK;
    return st != ST_OK ? st : closed;
}

// All files but the manifest, then the manifest by a rename.
static status folder_copy(const durable *d, arena *a)
{
    static const char manifest[] = "manifest.json";
    enum { MANIFEST_LIMIT = 256 << 20 };
    char *to = NULL, *source = NULL, *target = NULL, *piece = NULL, *bytes = NULL;
    file_names names;
    int64_t count = 0;
    text damage = {.a = a};
    const host *h = d->h;
    TRY(arena_new(a, PIECE_BYTES, &piece));
    TRY(path_join(a, d->folder, path_base_name(d->from), &to));
    TRY(h->api->path_mkdir(h, to));
    TRY(h->api->path_list(h, a, d->from, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (strcmp(names.names[i], manifest) == 0) continue;
        TRY(path_join(a, d->from, names.names[i], &source));
        TRY(path_join(a, to, names.names[i], &target));
        TRY(file_copy(h, source, target, piece));
    }
    TRY(h->api->path_sync(h, to));
    TRY(path_join(a, d->from, manifest, &source));
    TRY(path_join(a, to, manifest, &target));
    TRY(host_read_own(h, a, source, MANIFEST_LIMIT, &bytes, &count));
    TRY(host_write_all(h, target, bytes, count));
    TRY(h->api->path_sync(h, d->folder));
    TRY(ckpt_verify(h, a, to, &damage));
    const ckpt_keep keep = {.keep = d->keep, .saved = path_base_name(d->from)};
    return ckpt_prune(h, a, d->folder, &keep);
}

static void *copy_main(void *context)
{
    durable *d = context;
    arena *a = NULL;
    status st = arena_create("durable", 0, &a);
    if (st == ST_OK) st = folder_copy(d, a);
    d->st = st;
    if (st != ST_OK) error_take(&d->error);
    arena_destroy(a);
    atomic_store(&d->is_done, true);
    return NULL;
}

// Waits for the copy in progress, and tells about a failed one. The next one tries again.
static void copy_end(session *s)
{
    durable *d = s->durable;
    if (!d->is_begun) return;
    (void)pthread_join(d->thread, NULL);
    d->is_begun = false;
    if (d->st == ST_OK) {
        session_say(s, LOG_INFO, "%s is in %s too", path_base_name(d->from), d->folder);
        return;
    }
    session_say(s, LOG_WARN, "%s was not copied to %s: %.700s", path_base_name(d->from), d->folder,
                d->error.text);
}

status session_durable_open(session *s)
{
    char *link = NULL;
    durable *d = NULL;
    if (s->r->checkpoint.durable == NULL || !session_is_first(s)) return ST_OK;
    TRY(s->h->api->path_mkdir(s->h, s->r->checkpoint.durable));
    TRY(path_join(s->a, s->folder.path, "durable", &link));
    TRY(s->h->api->path_link(s->h, s->r->checkpoint.durable, link));
    TRY(arena_new(s->a, 1, &d));
    d->h = s->h;
    d->folder = s->r->checkpoint.durable;
    d->every = s->r->checkpoint.durable_every;
    d->keep = s->r->checkpoint.keep;
    s->durable = d;
    return ST_OK;
}

void session_durable_close(session *s)
{
    if (s->durable != NULL) copy_end(s);
    s->durable = NULL;
}

void session_durable_copy(session *s, const ckpt_saved *saved)
{
    durable *d = s->durable;
    const bool is_last = s->step >= s->r->train.steps;
    if (d == NULL || (saved->step % d->every != 0 && !is_last)) return;
    if (d->is_begun && !atomic_load(&d->is_done) && !is_last) return; // the next one is newer
    copy_end(s);
    (void)snprintf(d->from, sizeof(d->from), "%s", saved->path);
    atomic_store(&d->is_done, false);
    d->is_begun = pthread_create(&d->thread, NULL, copy_main, d) == 0;
    if (!d->is_begun) session_say(s, LOG_WARN, "no thread to copy %s", path_base_name(d->from));
}

// Paths do not count: the same checkpoint may be in both folders.
static bool is_newer(const ckpt_entry *x, const ckpt_entry *y)
{
    return x->fork != y->fork ? x->fork > y->fork : x->step > y->step;
}

status session_durable_merge(session *s, const ckpt_entries *disk, ckpt_entries *out)
{
    ckpt_entries copies = {0};
    int64_t d = 0, newer = 0;
    *out = *disk;
    if (s->r->checkpoint.durable == NULL) return ST_OK;
    TRY(ckpt_list(s->h, s->a, s->r->checkpoint.durable, &copies));
    for (int64_t i = 0; i < copies.count; i++) copies.items[i].name = copies.items[i].path;
    *out = (ckpt_entries){0};
    TRY(arena_new(s->a, disk->count + copies.count + 1, &out->items));
    while (disk->count > 0 && newer < copies.count &&
           is_newer(&copies.items[newer], &disk->items[0])) {
        newer++;
    }
    if (newer > 0) {
        session_say(s, LOG_WARN,
                    "%s is newer than the checkpoints of this run's folder, but may be of another "
                    "run, so it comes last; --resume with its path takes it",
                    copies.items[0].path);
    }
    d = newer;
    for (int64_t i = 0; i < disk->count || d < copies.count;) {
        const bool is_disk =
            i < disk->count && (d == copies.count || !is_newer(&copies.items[d], &disk->items[i]));
        out->items[out->count++] = is_disk ? disk->items[i++] : copies.items[d++];
    }
    for (int64_t i = 0; i < newer; i++) out->items[out->count++] = copies.items[i];
    return ST_OK;
}
