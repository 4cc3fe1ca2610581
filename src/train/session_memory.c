// Copies of the state in the machine's memory. The first rank writes a checkpoint of every
// resilience.buddy.every-th step into a folder of a file system in memory, which outlives all
// processes of the run. After a loss the launcher starts all ranks again, and they load the newest
// copy. The folder belongs to the launcher, which removes it.
#include "base/text.h"
#include "train/session.h"
#include "train/times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES_KEPT = 2 };

bool session_memory_is_kept(const session *s)
{
    return s->memory.order != NULL && s->memory.order->memory != NULL;
}

status session_memory_open(session *s)
{
    if (!session_memory_is_kept(s) || !session_is_first(s)) return ST_OK;
    const ckpt_saver_config c = {
        .state = &s->job.state, .folder = s->memory.order->memory, .fork = s->fork, .async = true};
    return ckpt_saver_create(&c, &s->memory.saver);
}

void session_memory_close(session *s)
{
    ckpt_saver_destroy(s->memory.saver);
    s->memory.saver = NULL;
}

// A failed copy costs more repeated steps after a loss, and nothing else.
static status copy_end(session *s)
{
    ckpt_saved *r = NULL;
    if (!s->memory.is_begun || !ckpt_saver_result(s->memory.saver, true, &r)) return ST_OK;
    s->memory.is_begun = false;
    if (r->st == ST_OK || s->memory.is_failed) return ST_OK;
    s->memory.is_failed = true;
    session_say(
        s, LOG_WARN,
        "step %lld cannot be kept in memory: %.600s; a lost rank now costs the steps since "
        "the newest copy or checkpoint; the file system in the machine's memory must hold %d "
        "copies of the state; enlarge it, or set a larger resilience.buddy.every",
        (long long)r->step, r->error.text, COPIES_KEPT + 1);
    return ST_OK;
}

static status copy_now(session *s)
{
    session_process_holds(s);
    if (!session_is_first(s)) return session_confirm(s);
    ckpt_order order;
    TRY(copy_end(s));
    TRY(session_order_fill(s, COPY_IN_MEMORY, &order));
    order.keep = (ckpt_keep){.keep = COPIES_KEPT};
    TRY(ckpt_saver_begin(s->memory.saver, &order));
    s->memory.is_begun = true;
    return ST_OK;
}

status session_memory_save(session *s)
{
    if (!session_memory_is_kept(s) || s->step % s->r->resilience.buddy.every != 0) return ST_OK;
    return copy_now(s);
}

status session_memory_last(session *s)
{
    if (s->memory.order == NULL) return session_save_last(s);
    if (s->buddy.sharder != NULL) return session_buddy_save(s, true);
    if (!session_memory_is_kept(s)) return session_save_last(s);
    if (s->step % s->r->resilience.buddy.every != 0) TRY(copy_now(s));
    TRY(copy_end(s));
    int is_failed = s->memory.is_failed;
    TRY(session_agree(s, &is_failed, "copy in memory"));
    return is_failed ? session_save_last(s) : ST_OK;
}

status session_memory_newest(session *s, const ckpt_entry **newest)
{
    ckpt_entries copies;
    if (!session_memory_is_kept(s)) return ST_OK;
    TRY(ckpt_list(s->h, s->a, s->memory.order->memory, &copies));
    const bool is_newer =
        copies.count > 0 && (*newest == NULL || ckpt_is_newer(&copies.items[0], *newest));
    if (is_newer) *newest = &copies.items[0];
    return ST_OK;
}

status session_memory_load(session *s, const ckpt_entry *newest, bool *is_loaded)
{
    ckpt_entries copies;
    *is_loaded = false;
    if (!session_memory_is_kept(s)) return ST_OK;
    TRY(ckpt_list(s->h, s->a, s->memory.order->memory, &copies));
    for (int64_t i = 0; i < copies.count && !*is_loaded; i++) {
        if (newest != NULL && ckpt_is_newer(newest, &copies.items[i])) return ST_OK;
        const status st = session_load(s, copies.items[i].path);
        *is_loaded = st == ST_OK;
        if (st == ST_OK) continue;
        if (st != ST_DAMAGED && st != ST_NOT_FOUND) return st;
        session_say(s, LOG_WARN, "the copy %s in memory cannot be used: %.700s",
                    copies.items[i].name, error_last()->text);
        error_clear();
    }
    if (!*is_loaded) return ST_OK;
    const bool is_saved = newest != NULL && newest->step == s->step;
    s->saved_step = is_saved ? s->step : -1; // on the disk
    (void)snprintf(s->newest_path, CKPT_PATH_BYTES, "%s", newest != NULL ? newest->path : "");
    return ST_OK;
}

// The end of the first rank whose loss comes after this time, in s: several ranks may be lost one
// after the other before training goes on.
static int64_t first_lost_ns(const train_restart *o, double time)
{
    int64_t first = o->lost_ns;
    for (int64_t i = 0; i < o->before_count; i++) {
        const int64_t at = o->before[i].lost_ns;
        if (at < first && (double)at / 1e9 > time) first = at;
    }
    return first;
}

void session_memory_count(session *s, double time)
{
    const train_restart *o = s->memory.order;
    if (o == NULL || o->epoch == 0) return;
    const double lost_s = (double)first_lost_ns(o, time) / 1e9;
    const double now_s = (double)s->h->api->unix_ns(s->h) / 1e9;
    const double living = fmin(1.0, (double)o->living / (double)run_config_ranks(s->r));
    if ((double)o->lost_ns / 1e9 < time) return; // an earlier session has counted it
    if (time > 0.0) s->goodput.lost_s[OBS_REDONE] += fmax(0.0, lost_s - time);
    s->goodput.lost_s[OBS_RECOVERY] += fmax(0.0, now_s - lost_s) * living;
}

static status event_add(session *s, const train_restart *o)
{
    text line = {.a = s->a};
    const double resume_ms = (double)(s->h->api->unix_ns(s->h) - o->lost_ns) / 1e6;
    session_say(s, LOG_WARN,
                "%s; %s (epoch %lld), and training continues after step %lld; it took %.2f s",
                o->cause, o->done, (long long)o->epoch, (long long)s->step, resume_ms / 1e3);
    TRY(text_add(
        &line,
        "{\"step\": %lld, \"event\": \"%s\", \"rank\": %lld, \"epoch\": %lld, "
        "\"ranks\": %lld, \"ready\": %d, \"detect_ms\": %.1f, \"resume_ms\": %.1f, \"time\": %.3f, "
        "\"cause\": ",
        (long long)s->step, o->event, (long long)o->rank, (long long)o->epoch,
        (long long)run_config_ranks(s->r), (int)s->memory.ready, o->detect_ms, resume_ms,
        (double)s->h->api->unix_ns(s->h) / 1e9));
    TRY(text_add_json(&line, o->cause));
    TRY(text_add(&line, ", "));
    TRY(obs_goodput_print_json(&s->goodput, &line)); // another loss may come before the next step
    TRY(text_add(&line, "}\n"));
    return session_event(s, &line);
}

// Whether the records have the event of this change. A launcher counts its epochs from 1, so one of
// an earlier launcher may have the same number.
static bool is_told(const char *records, const train_restart *o)
{
    char mark[64];
    (void)snprintf(mark, sizeof(mark), "\"epoch\": %lld, \"ranks\": ", (long long)o->epoch);
    for (const char *at = strstr(records, mark); at != NULL; at = strstr(at + 1, mark)) {
        static const char time[] = "\"time\": ";
        const char *end = strchr(at, '\n'), *found = strstr(at, time);
        if (found == NULL || (end != NULL && found > end)) continue;
        if (strtod(found + sizeof(time) - 1, NULL) >= (double)o->begun_ns / 1e9) return true;
    }
    return false;
}

static status untold_tell(session *s, arena *a, const train_restart *o)
{
    enum { LIMIT_BYTES = 1 << 30 };
    char *path = NULL, *bytes = NULL;
    int64_t count = 0;
    TRY(path_join(a, s->folder.path, "metrics.jsonl", &path));
    TRY(host_read_all(s->h, a, path, LIMIT_BYTES, &bytes, &count));
    for (int64_t i = o->before_count - 1; i >= 0; i--) {
        if (!is_told(bytes, &o->before[i])) TRY(event_add(s, &o->before[i]));
    }
    return ST_OK;
}

// Tells the changes before this one that no session has told, because it ended before it could.
static status earlier_tell(session *s, const train_restart *o)
{
    arena *a = NULL;
    if (o->before_count == 0) return ST_OK;
    TRY(arena_create("earlier changes", 0, &a)); // all records, which the session does not need
    const status st = untold_tell(s, a, o);
    arena_destroy(a);
    return st;
}

status session_memory_tell(session *s)
{
    const train_restart *o = s->memory.order;
    if (o == NULL || o->epoch == 0) return ST_OK;
    TRY(earlier_tell(s, o));
    return event_add(s, o);
}
