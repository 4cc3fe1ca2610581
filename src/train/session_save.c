// Saves and loads a session's state. A save begins between two steps; its result is polled between
// later steps. The last save of a session is waited for.
#include "train/lr/lr.h"
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

status session_saver_open(session *s)
{
    if (s->newest_path == NULL) TRY(arena_new(s->a, CKPT_PATH_BYTES, &s->newest_path));
    if (s->best_path == NULL) TRY(arena_new(s->a, CKPT_PATH_BYTES, &s->best_path));
    if (!session_is_first(s)) return ST_OK;
    const ckpt_saver_config c = {.state = &s->job.state,
                                 .folder = s->folder.checkpoints,
                                 .fork = s->fork,
                                 .async = assemble_saves_in_background(s->r)};
    text removed = {.a = s->a};
    if (ckpt_debris_remove(s->h, s->a, s->folder.checkpoints, &removed) != ST_OK) {
        session_say(s, LOG_WARN, "cannot remove the files of an interrupted save: %.700s",
                    error_last()->text);
        error_clear();
    }
    if (removed.length > 0) {
        session_say(s, LOG_INFO, "removed the files of an interrupted save: %s", removed.bytes);
    }
    return ckpt_saver_create(&c, &s->saver);
}

// ---- the result of a save -----------------------------------------------------------------------

static const char *name_or_null(const char *path)
{
    return path != NULL && path[0] != '\0' ? path_base_name(path) : NULL;
}

// A full or failing disk costs that checkpoint and logs a warning; the run continues.
static void given_up_say(session *s, const ckpt_saved *r)
{
    char space[96] = "", wanted[32], left[32], safe[320] = "";
    if (r->error.code == ST_DISK_FULL) {
        (void)snprintf(space, sizeof(space), " (wanted %s, free %s)",
                       text_bytes_human(r->bytes, wanted),
                       r->free_bytes >= 0 ? text_bytes_human(r->free_bytes, left) : "not known");
    }
    const char *name = name_or_null(s->newest_path);
    if (name != NULL) (void)snprintf(safe, sizeof(safe), ", %.255s is safe", name);
    session_say(
        s, LOG_WARN,
        "checkpoint of step %lld given up: %.600s%s; training continues%s; %s; the next save "
        "tries again",
        (long long)r->step, r->error.text, space, safe,
        r->error.code == ST_DISK_FULL ? "free space or keep fewer (checkpoint.keep)"
                                      : "check the disk");
}

static bool costs_the_checkpoint_only(status st)
{
    return st == ST_DISK_FULL || st == ST_IO || st == ST_DAMAGED || st == ST_NOT_FOUND ||
           st == ST_NO_MEMORY || st == ST_SECURITY;
}

static void saved_say(session *s, const ckpt_saved *r)
{
    if (s->w->saved != NULL) {
        const train_saved saved = {.step = r->step,
                                   .steps = s->r->train.steps,
                                   .bytes = r->bytes,
                                   .seconds = r->seconds,
                                   .stall_s = r->stall_s,
                                   .path = s->newest_path};
        s->w->saved(s->w->context, &saved);
    }
    if (r->after != ST_OK) {
        session_say(s, LOG_WARN, "%s is safe, but pruning after it failed: %.700s",
                    path_base_name(r->path), r->error.text);
    }
}

status session_save_poll(session *s, bool wait)
{
    ckpt_saved *r = NULL;
    const int64_t begin = session_now(s);
    if (s->saver == NULL || !ckpt_saver_result(s->saver, wait, &r)) return ST_OK;
    r->stall_s += (double)(session_now(s) - begin) / 1e9;
    s->begun_step = -1;
    if (r->st != ST_OK) {
        (void)error_put(&r->error);
        if (!costs_the_checkpoint_only(r->st)) return r->st;
        s->save_error = r->error;
        given_up_say(s, r);
        return ST_OK;
    }
    memcpy(s->newest_path, r->path, CKPT_PATH_BYTES);
    if (r->is_best) memcpy(s->best_path, r->path, CKPT_PATH_BYTES);
    s->saved_step = r->step;
    s->interval.cost_s = r->stall_s;
    saved_say(s, r);
    session_durable_copy(s, r);
    return ST_OK;
}

// ---- saving -------------------------------------------------------------------------------------

static status confirm(void *context)
{
    return session_replicas_check(context, true);
}

status session_confirm(session *s)
{
    if (assemble_cuts_state(s->r)) TRY(ckpt_state_give(&s->job.state, s->a));
    return session_replicas_check(s, true);
}

ckpt_info session_info(const session *s)
{
    return (ckpt_info){.step = s->step,
                       .sequences = s->sequences,
                       .tokens = s->tokens,
                       .seed = s->r->train.seed,
                       .world = 1,
                       .val_loss = s->val_loss,
                       .best_val_loss = s->best_val_loss,
                       .best = name_or_null(s->best_path),
                       .numerics = s->numerics,
                       .config = s->config_sum,
                       .data = s->data_sum,
                       .tokenizer = s->tokenizer_sum,
                       .whole_from = s->whole_from};
}

status session_order_fill(session *s, session_copy where, ckpt_order *order)
{
    const char *experts = NULL, *rollouts = NULL;
    const ckpt_extra extras[] = {
        {"config.json", s->config_json.bytes},
        {"config.resolved.yaml", s->config_yaml.bytes},
        {"adapter_config.json", s->adapter_json.bytes},
        {"base.json", s->base_json.bytes},
    };
    int64_t count = train_job_has_base(&s->job) ? COUNT_OF(extras) : 2;
    memcpy(s->extras[where], extras, sizeof(extras));
    TRY(session_rebalance_print(s, where, &experts));
    if (experts != NULL) s->extras[where][count++] = (ckpt_extra){"experts.json", experts};
    TRY(session_rollouts_print(s, where, &rollouts));
    if (rollouts != NULL) s->extras[where][count++] = (ckpt_extra){"rollouts.json", rollouts};
    *order = (ckpt_order){.info = session_info(s),
                          .extras = s->extras[where],
                          .extra_count = count,
                          .keep = {.keep = s->r->checkpoint.keep,
                                   .keep_every = s->r->checkpoint.keep_every,
                                   .best = name_or_null(s->best_path),
                                   .damaged = s->damaged.names,
                                   .damaged_count = s->damaged.count},
                          .confirm = confirm,
                          .context = s};
    return ST_OK;
}

status session_save_begin(session *s, bool is_best)
{
    session_progress(s, "saving", false);
    const bool first = session_is_first(s); // the first rank saves for all
    int due = first && s->saved_step != s->step && s->begun_step != s->step; // not begun yet
    if (assemble_cuts_state(s->r) || s->r->sdc.digests > 0) TRY(session_agree(s, &due, "save"));
    if (!first) {
        s->saved_step = s->step;
        return due ? session_confirm(s) : ST_OK;
    }
    if (!due) return ST_OK;
    TRY(session_save_poll(s, true));
    ckpt_order order;
    TRY(session_order_fill(s, COPY_ON_DISK, &order));
    order.is_best = is_best;
    TRY(ckpt_saver_begin(s->saver, &order));
    s->begun_step = s->step;
    return session_save_poll(s, false);
}

status session_save_last(session *s)
{
    TRY(session_folder_check(s, true));
    TRY(session_save_begin(s, false));
    TRY(session_save_poll(s, true));
    int again = s->saved_step != s->step;
    TRY(session_agree(s, &again, "save again"));
    if (!again) return ST_OK;
    TRY(session_save_begin(s, false)); // a failed save is tried once more
    TRY(session_save_poll(s, true));
    if (s->saved_step == s->step) return ST_OK;
    const char *name = name_or_null(s->newest_path);
    return fail(s->save_error.code, "cannot save step %lld: %.1000s; %s%s", (long long)s->step,
                s->save_error.text,
                name != NULL ? "the run can continue from " : "the run has no checkpoint",
                name != NULL ? name : "");
}

// ---- loading ------------------------------------------------------------------------------------

// Finds the best checkpoint so far, if it still stands next to the checkpoint that names it.
static status best_find(session *s, const char *best)
{
    char *path = NULL, *manifest = NULL;
    file_info info;
    if (best == NULL) return ST_OK;
    TRY(path_join(s->a, s->folder.checkpoints, best, &path));
    TRY(path_join(s->a, path, "manifest.json", &manifest));
    TRY(s->h->api->path_info(s->h, manifest, &info));
    if (info.kind == FILE_KIND_REGULAR) {
        (void)snprintf(s->best_path, CKPT_PATH_BYTES, "%s", path);
    }
    return ST_OK;
}

// The first rank compares the base model with that of the checkpoint's adapter.
static status base_check(session *s, const char *path)
{
    assemble_base was;
    bool is_there = false;
    if (!session_is_first(s)) return ST_OK;
    TRY(assemble_base_read(s->h, s->a, path, &was, &is_there));
    return is_there && train_job_has_base(&s->job) ? assemble_base_compare(path, &was, &s->base)
                                                   : ST_OK;
}

// Each rank reads its own part; damage that one rank finds is an error on all ranks.
static status all_load(session *s, const char *path, ckpt_info *info)
{
    error_record own;
    status st = base_check(s, path);
    if (st == ST_OK) st = session_rebalance_load(s, path);
    if (st == ST_OK) st = ckpt_load(&s->job.state, s->a, path, false, info);
    if (st == ST_OK) st = session_rollouts_load(s, path, info->step);
    int worst = (int)st;
    error_take(&own);
    TRY(session_agree(s, &worst, "load"));
    if (st != ST_OK) return error_put(&own);
    if (worst == (int)ST_OK) return ST_OK;
    return fail((status)worst, "%s: another rank failed to load its part", path);
}

// The configuration in a checkpoint, checked; *out is NULL if it has none.
static status config_of(session *s, const char *path, run_config **out)
{
    char *yaml = NULL;
    int64_t bytes = 0;
    config *c = NULL;
    *out = NULL;
    TRY(ckpt_extra_read(s->h, s->a, path, "config.resolved.yaml", &yaml, &bytes));
    if (yaml == NULL) return ST_OK;
    const config_input input = {.yaml = yaml, .bytes = bytes, .name = path, .folder = path};
    run_config *was = NULL;
    TRY(arena_new(s->a, 1, &was));
    TRY(config_parse(s->a, &run_config_table, &input, was, &c));
    run_config_before(was, c);
    run_config_complete(was);
    *out = was;
    return ST_OK;
}

// The state of a checkpoint does not fit this run. Names the keys that differ, if its configuration
// shows them; otherwise the first error stays.
static status keys_differ(session *s, const char *path)
{
    run_config *was = NULL;
    error_record why;
    text log = {.a = s->a};
    error_take(&why);
    if (config_of(s, path, &was) != ST_OK || was == NULL) return error_put(&why);
    if (run_config_compare(s->a, was, s->r, s->c, &log) == ST_OK) return error_put(&why);
    error_record keys;
    error_take(&keys);
    return fail(ST_CONFIG_FIXED, "%s does not fit this run:\n%.3000s", path, keys.text);
}

static const char *precision_text(const run_config *r, char buffer[96])
{
    const run_types t = run_config_types(r);
    (void)snprintf(buffer, 96, "train.precision = %s, %s weights%s, %s optimizer state",
                   dtype_name(t.compute), dtype_name(t.weights),
                   t.has_master ? " with an fp32 master" : "", dtype_name(t.moments));
    return buffer;
}

// Values of another precision have been converted. A loss scale belongs to fp16 alone.
static status precision_follow(session *s, const run_config *was, const char *path,
                               const ckpt_info *info)
{
    char before[96], now[96];
    if (was->train.precision != RUN_FP16 || s->r->train.precision != RUN_FP16) {
        TRY(train_job_scale_reset(&s->job));
    }
    const bool same = strcmp(precision_text(was, before), precision_text(s->r, now)) == 0;
    if (same && info->converted == 0) return ST_OK;
    session_say(
        s, LOG_INFO, "%s has %s; this run has %s: %lld tensors were converted, %lld rounded",
        path_base_name(path), before, now, (long long)info->converted, (long long)info->rounded);
    return ST_OK;
}

// More steps stretch a schedule that decays over the run, so the learning rate jumps up. That is
// rarely meant, and is said aloud unless the rate's own keys were changed too.
static void rate_compare(session *s, const run_config *was)
{
    const run_config *r = s->r;
    const bool same_rule = was->schedule.name == r->schedule.name &&
                           was->schedule.min_ratio == r->schedule.min_ratio &&
                           was->schedule.decay_steps == r->schedule.decay_steps &&
                           was->optimizer.lr == r->optimizer.lr;
    if (!same_rule || s->step <= max_i64(r->schedule.warmup, was->schedule.warmup)) return;
    if (was->train.steps >= r->train.steps || s->step >= r->train.steps) return;
    const double before = lr_rate(was, s->step - 1), now = lr_rate(r, s->step);
    if (!(now > 1.2 * before)) return; // more than a schedule changes in a step
    const double kept = before > 1e-3 * r->optimizer.lr ? before : 0.1 * r->optimizer.lr;
    session_say(s, LOG_WARN,
                "train.steps = %lld stretches the schedule, which raises the learning rate from "
                "%.3g to %.3g; optimizer.lr=%.3g schedule.min_ratio=1 trains on at a constant rate",
                (long long)r->train.steps, before, now, kept);
}

static status counts_check(const session *s, const char *path, const ckpt_info *info)
{
    if (info->updates != info->step) {
        return fail(ST_DAMAGED,
                    "%s: its step block counts %lld updates, its manifest.json says step %lld",
                    path, (long long)info->updates, (long long)info->step);
    }
    if (info->seed == s->r->train.seed) return ST_OK;
    return fail(ST_CONFIG_FIXED, "%s was made with train.seed = %lld, this run has %lld", path,
                (long long)info->seed, (long long)s->r->train.seed);
}

status session_follow(session *s, const ckpt_info *info, const char *newest)
{
    s->step = info->step;
    s->sequences = info->sequences;
    s->tokens = info->tokens;
    s->data_before = info->data;
    session_codec_load(s, info);
    s->val_loss = info->val_loss;
    s->best_val_loss = info->best_val_loss;
    TRY(arena_new(s->a, CKPT_PATH_BYTES, &s->newest_path));
    TRY(arena_new(s->a, CKPT_PATH_BYTES, &s->best_path));
    (void)snprintf(s->newest_path, CKPT_PATH_BYTES, "%s", newest);
    return best_find(s, info->best);
}

status session_load(session *s, const char *path)
{
    ckpt_info info;
    run_config *was = NULL;
    const status loaded = all_load(s, path, &info);
    if (loaded == ST_CONFIG_FIXED || loaded == ST_MODEL) return keys_differ(s, path);
    TRY(loaded);
    TRY(counts_check(s, path, &info));
    TRY(config_of(s, path, &was));
    if (was != NULL) TRY(precision_follow(s, was, path, &info));
    if (strcmp(info.numerics, s->numerics) != 0) {
        session_say(s, LOG_WARN,
                    "the checkpoint was made by \"%s\", this is \"%s\": bits may differ from here",
                    info.numerics, s->numerics);
    }
    s->saved_step = info.step;
    TRY(session_follow(s, &info, path));
    if (was != NULL) rate_compare(s, was);
    return ST_OK;
}
