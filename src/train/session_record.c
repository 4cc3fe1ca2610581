// sdc.replay: records the hashes of all ranks' state after sampled steps, for `trireme replay`.
#include "train/session.h"

#include <math.h>

// The share of steps that are recorded, as the distance between two of them.
int64_t session_record_every(const session *s)
{
    const double share = s->r->sdc.replay;
    if (!(share > 0.0)) return 0;
    return max_i64(1, (int64_t)floor(1.0 / share + 0.5));
}

status session_record(session *s)
{
    const int64_t every = session_record_every(s);
    if (every == 0 || s->step % every != 0 || s->step == 0) return ST_OK;
    char *folder = NULL, *path = NULL;
    text lines = {.a = s->a};
    const int64_t ranks = s->ranks.all != NULL ? comm_ranks(s->ranks.all) : 1;
    const uint64_t *all = NULL;
    TRY(session_hashes(s, &all));
    if (!session_is_first(s)) return ST_OK;
    TRY(ckpt_replicas_record(s->replicas.own, all, ranks, s->step, &lines));
    TRY(path_join(s->a, s->folder.path, "replay", &folder));
    TRY(s->h->api->path_mkdir(s->h, folder));
    TRY(arena_format(s->a, &path, "%s/step-%07lld.jsonl", folder, (long long)s->step));
    const status st = host_write_all(s->h, path, lines.bytes, lines.length);
    if (st == ST_OK) return ST_OK;
    if (st != ST_DISK_FULL && st != ST_IO) return st;
    session_say(s, LOG_WARN, "step %lld was not recorded: %s", (long long)s->step,
                error_last()->text);
    error_clear();
    return ST_OK;
}
