// The state that a session begins with: the newest intact checkpoint or copy, or the one that was
// asked for, or initial weights.
#include "train/session.h"

#include <math.h>
#include <string.h>

static status begin_anew(session *s)
{
    if (train_job_has_base(&s->job)) {
        TRY(train_job_adapter(&s->job, s->a)); // the base is there
    } else {
        TRY(train_job_weights(&s->job, s->a));
    }
    if (s->r->model.from != NULL) {
        session_say(s, LOG_INFO, "weights from %s; the optimizer state starts at zero",
                    s->r->model.from);
    }
    return ST_OK;
}

// Records a checkpoint that cannot be used, and warns with the reason.
static status refused(session *s, const ckpt_entry *e, text *tried)
{
    TRY(arena_grow(s->a, (void **)&s->damaged.names, &s->damaged.capacity, s->damaged.count + 1,
                   (int64_t)sizeof(*s->damaged.names)));
    s->damaged.names[s->damaged.count++] = e->name;
    session_say(s, LOG_WARN, "%s cannot be used: %s", e->name, error_last()->text);
    return text_add(tried, "\n  %s: %.*s", e->name, (int)strcspn(error_last()->text, "\n"),
                    error_last()->text);
}

// Loads the newest intact checkpoint of the disk or of the durable tier: on a damaged one it warns
// and tries the next.
static status resume_newest(session *s, const ckpt_entries *disk)
{
    text tried = {.a = s->a};
    ckpt_entries list;
    TRY(session_durable_merge(s, disk, &list));
    if (list.count == 0) return begin_anew(s);
    for (int64_t i = 0; i < list.count; i++) {
        const status st = session_load(s, list.items[i].path);
        if (st == ST_OK) {
            s->fork = list.items[0].fork + (i > 0 ? 1 : 0);
            const bool is_durable = list.items[i].name == list.items[i].path;
            if (i > 0 || is_durable)
                session_say(s, LOG_WARN, "continuing from %s", list.items[i].name);
            if (is_durable) s->saved_step = -1; // in the run's folder
            return ST_OK;
        }
        if (st != ST_DAMAGED && st != ST_NOT_FOUND) return st;
        TRY(refused(s, &list.items[i], &tried));
    }
    return fail(ST_DAMAGED,
                "no checkpoint of %s is intact; tried:%s\n  restore one of them from a copy, or "
                "start from the beginning with --resume none",
                s->folder.path, tried.bytes);
}

// Returns the newest intact checkpoint, for an error's advice; NULL: none.
static const char *newest_whole(session *s, const ckpt_entries *list)
{
    const char *name = NULL;
    error_record kept;
    error_take(&kept);
    for (int64_t i = 0; i < list->count && name == NULL; i++) {
        text report = {.a = s->a};
        if (ckpt_verify(s->h, s->a, list->items[i].path, &report) == ST_OK) {
            name = list->items[i].name;
        }
    }
    (void)error_put(&kept);
    return name;
}

// Loads `resume`, which is a path or the name of one of this run's checkpoints.
static status resume_from(session *s, const ckpt_entries *list, const char *resume)
{
    const char *path = resume;
    file_info info, newest;
    for (int64_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, resume) == 0) path = list->items[i].path;
    }
    TRY(s->h->api->path_info(s->h, path, &info));
    if (list->count > 0) { // under any name: resuming from the newest one starts no new branch
        TRY(s->h->api->path_info(s->h, list->items[0].path, &newest));
        s->fork = list->items[0].fork + (newest.inode != info.inode ? 1 : 0);
    }
    if (info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND, "--resume %s: no such folder, and no checkpoint of %s%s%s",
                    resume, s->folder.path, list->count > 0 ? "; the newest is " : "",
                    list->count > 0 ? list->items[0].name : "");
    }
    const status st = session_load(s, path);
    if (st != ST_DAMAGED) return st;
    error_record why;
    const char *whole = newest_whole(s, list);
    error_take(&why);
    if (whole == NULL) {
        return fail(ST_DAMAGED, "%.3000s\n  no other checkpoint of %s is intact", why.text,
                    s->folder.path);
    }
    const char *run = NULL, *quoted = NULL;
    TRY(text_quote(s->a, s->folder.path, &run));
    TRY(text_quote(s->a, whole, &quoted));
    return fail(ST_DAMAGED, "%.3000s\n  %s is intact; continue with: trireme train %s --resume %s",
                why.text, whole, run, quoted);
}

// Checkpoints whose manifest is lost are never loaded and never removed. Checkpoints that this
// session writes count as newer than they are.
static status lost_say(session *s, const ckpt_entries *lost, const ckpt_entries *list,
                       const char *resume)
{
    if (lost->count == 0) return ST_OK;
    const bool is_newest = list->count == 0 || ckpt_is_newer(&lost->items[0], &list->items[0]);
    if (list->count == 0 && strcmp(resume, "auto") == 0) {
        error_record why;
        const status st = ckpt_lost_fail(s->h, s->a, lost->items[0].path);
        error_take(&why);
        return fail(st, "%.3800s\n  or begin anew with --resume none, which keeps the folder",
                    why.text);
    }
    for (int64_t i = 0; i < lost->count; i++) {
        session_say(s, LOG_WARN,
                    "%s has lost its manifest.json and is not used; nothing of it was removed, and "
                    "manifest.json can be put back from a copy",
                    lost->items[i].name);
    }
    if (is_newest) s->fork = max_i64(s->fork, lost->items[0].fork + 1);
    return ST_OK;
}

// Checkpoints hold the adapter alone, so its base is loaded for each of them.
static status base_of_run(session *s)
{
    if (!train_job_has_base(&s->job)) return ST_OK;
    if (s->shares == NULL) {
        session_process_forget(s); // the adapter is cleared with it
        TRY(train_job_base(&s->job, s->a));
    }
    if (!session_is_first(s)) return ST_OK;
    TRY(assemble_base_describe(s->h, s->a, &s->spec, s->r->model.from, s->r->train.seed, &s->base));
    if (s->shares == NULL) return ST_OK;
    return assemble_base_compare(s->folder.path, &s->shares->base, &s->base);
}

status session_state(session *s, const char *resume)
{
    ckpt_entries list, lost;
    TRY(base_of_run(s));
    session_process_take(s);
    s->saved_step = s->begun_step = -1;
    s->val_loss = s->best_val_loss = s->loss = (double)NAN;
    if (session_goes_on(s)) return session_shares_put(s);
    TRY(ckpt_list(s->h, s->a, s->folder.checkpoints, &list));
    TRY(ckpt_list_lost(s->h, s->a, s->folder.checkpoints, &lost));
    if (strcmp(resume, "auto") == 0) {
        bool is_loaded = false;
        const ckpt_entry *saved = list.count > 0 ? &list.items[0] : NULL, *newest = saved;
        s->fork = saved != NULL ? saved->fork : 0;
        TRY(session_memory_newest(s, &newest));
        TRY(session_buddy_load(s, newest, saved, &is_loaded));
        if (!is_loaded) TRY(session_memory_load(s, saved, &is_loaded));
        if (is_loaded) session_process_holds(s);
        if (is_loaded) return ST_OK;
        s->fork = 0;
        TRY(session_process_clear(s));
        TRY(lost_say(s, &lost, &list, resume));
        const int64_t fork = s->fork;
        TRY(resume_newest(s, &list));
        s->fork = max_i64(s->fork, fork);
        return ST_OK;
    }
    for (int64_t i = 0; i < lost.count; i++) {
        if (strcmp(lost.items[i].name, resume) != 0) continue;
        return ckpt_lost_fail(s->h, s->a, lost.items[i].path);
    }
    TRY(session_process_clear(s));
    if (strcmp(resume, "none") != 0) {
        TRY(resume_from(s, &list, resume));
    } else {
        s->fork = list.count > 0 ? list.items[0].fork + 1 : 0;
        TRY(begin_anew(s));
    }
    return lost_say(s, &lost, &list, resume);
}
