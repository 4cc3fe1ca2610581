// Saving and loading a session's state.
#include "train/session.h"

#include <math.h>
#include <string.h>

// `latest` is a pointer for people; resuming trusts manifests only.
static status link_set(session *s, arena *work)
{
    char *link = NULL;
    TRY(path_join(work, s->folder.checkpoints, "latest", &link));
    return s->h->api->path_link(s->h, path_base_name(s->newest_path), link);
}

static int64_t state_bytes(const session *s)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->plans.run.count; i++) {
        const plan_tensor *t = &s->plans.run.tensors[i];
        if (t->role == ROLE_STATE || t->role == ROLE_WEIGHT) bytes += t->bytes;
    }
    return bytes;
}

// What a save needs besides its path is forgotten after it, or a long run would grow.
static status save_with(session *s, arena *work)
{
    const ckpt_info info = {.step = s->step,
                            .sequences = s->sequences,
                            .tokens = s->tokens,
                            .seed = s->r->train.seed,
                            .val_loss = s->val_loss,
                            .best_val_loss = s->best_val_loss,
                            .numerics = s->numerics};
    const ckpt_extra extras[] = {
        {"config.json", s->config_json.bytes},
        {"config.resolved.yaml", s->config_yaml.bytes},
    };
    char *path = NULL, *kept = NULL;
    TRY(ckpt_save(&s->job.state, work, s->folder.checkpoints, s->fork, &info, extras,
                  COUNT_OF(extras), &path));
    TRY(arena_strdup(s->a, path, &kept));
    s->newest_path = kept;
    s->saved_step = s->step;
    TRY(link_set(s, work));
    const ckpt_keep keep = {.keep = s->r->checkpoint.keep,
                            .keep_every = s->r->checkpoint.keep_every,
                            .best = s->best,
                            .damaged = s->damaged.names,
                            .damaged_count = s->damaged.count};
    return ckpt_prune(s->h, work, s->folder.checkpoints, &keep);
}

status session_save(session *s)
{
    if (s->saved_step == s->step) return ST_OK; // an evaluation saved it a moment ago
    const int64_t begin = session_now(s);
    arena *work = NULL;
    TRY(arena_create("save", 0, &work));
    const status st = save_with(s, work);
    arena_destroy(work);
    TRY(st);
    if (s->w->saved != NULL) {
        s->w->saved(s->w->context, s->step, s->r->train.steps, state_bytes(s),
                    (double)(session_now(s) - begin) / 1e9, s->newest_path);
    }
    return ST_OK;
}

status session_save_or_go_on(session *s)
{
    const status st = session_save(s);
    if (st != ST_DISK_FULL && st != ST_IO) return st;
    if (s->newest_path != NULL) {
        session_say(s, LOG_WARN,
                    "checkpoint of step %lld given up: %s; training goes on, %s is safe",
                    (long long)s->step, error_last()->text, path_base_name(s->newest_path));
    } else {
        session_say(s, LOG_WARN, "checkpoint of step %lld given up: %s; training goes on",
                    (long long)s->step, error_last()->text);
    }
    error_clear();
    return ST_OK;
}

status session_load(session *s, const char *path)
{
    ckpt_info info;
    TRY(ckpt_load(&s->job.state, s->a, path, false, &info));
    if (info.seed != s->r->train.seed) {
        return fail(ST_CONFIG_FIXED, "%s was made with train.seed = %lld, this run has %lld", path,
                    (long long)info.seed, (long long)s->r->train.seed);
    }
    if (strcmp(info.numerics, s->numerics) != 0) {
        session_say(s, LOG_WARN,
                    "the checkpoint was made by \"%s\", this is \"%s\": bits may differ from here",
                    info.numerics, s->numerics);
    }
    s->step = s->saved_step = info.step;
    s->sequences = info.sequences;
    s->tokens = info.tokens;
    s->val_loss = info.val_loss;
    s->best_val_loss = info.best_val_loss;
    s->newest_path = path;
    return ST_OK;
}
