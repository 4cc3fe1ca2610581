// Notices that the run's folder was removed, moved or replaced under the run: by `rm -rf`, or by a
// cleaner of scratch disks. The open files of the run stay writable, so no write would fail, and a
// save would make a folder that no command recognizes as a run. So rank 0 looks once a second, says
// so, and makes the folder again: what has been trained is in memory and can still be saved.
#include "train/session.h"

static const int64_t look_ns = INT64_C(1000000000);

static status files_make(session *s)
{
    TRY(train_folder_remake(&s->folder));
    TRY(train_folder_describe(&s->folder, &s->start, s->given, s->config_text));
    TRY(train_folder_status(&s->folder, "running", -1, NULL));
    return session_records_open(s);
}

status session_folder_check(session *s, bool at_once)
{
    const int64_t now = session_now(s);
    if (!session_is_first(s) || (!at_once && now - s->folder_at < look_ns)) return ST_OK;
    s->folder_at = now;
    if (!train_folder_is_lost(&s->folder)) {
        s->folder_looks = 0;
        return ST_OK;
    }
    // The first look may come while `rm -rf` is at work, which would remove new files, too.
    if (!at_once && s->folder_looks++ == 0) return ST_OK;
    // Names of checkpoints that are not there any more must not be kept or given as advice.
    s->newest_path[0] = s->best_path[0] = '\0';
    s->saved_step = -1;
    const status st = files_make(s);
    if (st == ST_LOCKED) return st;
    if (st == ST_OK && s->w->folder_made != NULL) s->w->folder_made(s->w->context);
    if (!s->is_folder_lost) {
        session_say(s, LOG_WARN,
                    "%s was removed, moved or replaced while this run uses it, so its checkpoints, "
                    "metrics and logs are not there any more; the folder %s%.500s",
                    s->folder.path,
                    st == ST_OK ? "was made again for the next save" : "cannot be made again: ",
                    st == ST_OK ? "" : error_last()->text);
    }
    if (st != ST_OK) error_clear();
    s->is_folder_lost = st != ST_OK;
    return ST_OK;
}
