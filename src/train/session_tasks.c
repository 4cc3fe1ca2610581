// eval.tasks: task files run on the weights of a step while the run trains.
//
// The first rank runs them on the step's checkpoint, so the layout of the run does not matter, and
// the results are those that `eval` computes from this checkpoint. They become events of
// metrics.jsonl. A session that resumes from a step whose tasks are due looks there first: an
// earlier one may have ended between its checkpoint and its tasks. A task that fails costs its
// result, and the run goes on.
#include "data/chat.h"
#include "infer/task_run.h"
#include "sandbox/sandbox.h"
#include "train/session.h"
#include "train/times.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_tasks(const session *s)
{
    return s->r->eval.tasks.count > 0;
}

static bool is_due(const session *s)
{
    const int64_t every = s->r->eval.tasks_every;
    if (!has_tasks(s) || s->step == 0) return false;
    return s->step == s->r->train.steps || (every > 0 && s->step % every == 0);
}

int64_t session_tasks_next(const session *s)
{
    const int64_t every = s->r->eval.tasks_every;
    return has_tasks(s) && every > 0 ? (s->step / every + 1) * every : INT64_MAX;
}

// ---- opening ------------------------------------------------------------------------------------

static status files_load(session *s)
{
    const run_config *r = s->r;
    TRY(arena_new(s->a, r->eval.tasks.count, &s->tasks.specs));
    for (int64_t i = 0; i < r->eval.tasks.count; i++) {
        TRY(task_load(s->h, s->a, r->eval.tasks.items[i], &s->tasks.specs[i]));
        if (s->tasks.specs[i].kind == TASK_KIND_GENERATION) {
            TRY(task_grade_check(s->h, s->a, &s->tasks.specs[i]));
        }
    }
    TRY(train_loader_open(s->h, s->a, r, &s->tasks.loader));
    if (r->eval.tasks_template == NULL) return ST_OK;
    return train_loader_chat(s->tasks.loader, r->eval.tasks_template, &s->tasks.chat);
}

status session_tasks_open(session *s)
{
    error_record own;
    if (!has_tasks(s)) return ST_OK;
    const status st = session_is_first(s) ? files_load(s) : ST_OK;
    int worst = (int)st;
    error_take(&own);
    TRY(session_agree(s, &worst, "task files"));
    if (st != ST_OK) return error_put(&own);
    if (worst == (int)ST_OK) return ST_OK;
    return fail((status)worst, "the first rank cannot use a file of eval.tasks");
}

void session_tasks_close(session *s)
{
    data_chat_close(s->tasks.chat);
    train_loader_close(s->tasks.loader);
}

// ---- results ------------------------------------------------------------------------------------

// The beginning of a task's event.
static status event_begin(const session *s, const task_spec *spec, text *out)
{
    TRY(text_add(out, "{\"step\": %lld, \"event\": \"task\", \"task\": ", (long long)s->step));
    return text_add_json(out, spec->name);
}

// True if metrics.jsonl has this step's event of the task.
static status is_recorded(const session *s, arena *a, const task_spec *spec, bool *out)
{
    char *path = NULL;
    file *f = NULL;
    const void *bytes = NULL;
    int64_t count = 0;
    text wanted = {.a = a};
    file_info info;
    *out = false;
    TRY(event_begin(s, spec, &wanted));
    TRY(path_join(a, s->folder.path, "metrics.jsonl", &path));
    TRY(s->h->api->path_info(s->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(s->h->api->file_open(s->h, path, FILE_READ, &f));
    const status st = s->h->api->file_map(f, &bytes, &count);
    if (st == ST_OK && bytes != NULL) {
        *out = memmem(bytes, (size_t)count, wanted.bytes, (size_t)wanted.length) != NULL;
    }
    const status closed = s->h->api->file_close(f);
    return st != ST_OK ? st : closed;
}

static status result_tell(session *s, const task_spec *spec, const task_result *r, double seconds)
{
    task_metric metrics[TASK_METRICS_MAX];
    const int64_t count = task_metrics(spec, r, metrics);
    arena *a = NULL;
    TRY(arena_create("task result", 1 << 20, &a));
    text line = {.a = a}, shown = {.a = a}, missing = {.a = a};
    status st = event_begin(s, spec, &line);
    for (int64_t i = 0; i < count && st == ST_OK; i++) {
        const task_metric *m = &metrics[i];
        char value[40] = "null"; // JSON has no infinity
        if (isfinite(m->value)) (void)snprintf(value, sizeof(value), "%.9g", m->value);
        st = text_add(&line, ", \"%s\": %s", m->name, value);
        if (st == ST_OK) st = text_add(&shown, "  %s %.4f", m->name, m->value);
        if (st != ST_OK || m->error < 0.0) continue;
        st = text_add(&line, ", \"%s_stderr\": %.6g", m->name, m->error);
        if (st == ST_OK) st = text_add(&shown, " +- %.4f", m->error);
    }
    if (st == ST_OK) {
        st = text_add(&line, ", \"items\": %lld, \"seconds\": %.3f}\n", (long long)r->items,
                      seconds);
    }
    if (st == ST_OK && spec->command != NULL) st = sandbox_missing(r->confined, &missing);
    if (st == ST_OK && missing.length > 0) {
        session_say(s, LOG_WARN, "task %s: on this machine the command %s", spec->name,
                    missing.bytes);
    }
    if (st == ST_OK) {
        session_say(s, LOG_INFO, "task %s, step %lld:%s  %lld items in %.1f s", spec->name,
                    (long long)s->step, shown.bytes, (long long)r->items, seconds);
        st = session_event(s, &line);
    }
    arena_destroy(a);
    return st;
}

// ---- running ------------------------------------------------------------------------------------

static bool watched(void *context, const char *unit, int64_t done, int64_t all)
{
    session *s = context;
    (void)unit;
    (void)done;
    (void)all;
    session_progress(s, "running tasks", false);
    return session_should_stop(s);
}

static status task_do(session *s, arena *a, const task_spec *spec)
{
    const task_watcher watcher = {.context = s, .scored = watched};
    const int64_t begin = session_now(s);
    decoder_spec spec_of_folder;
    task_outcome outcome;
    bool is_done = false;
    TRY(is_recorded(s, a, spec, &is_done));
    if (is_done) return ST_OK;
    TRY(model_spec_from_hf(s->h, a, s->newest_path, &spec_of_folder));
    const task_run_args args = {.h = s->h,
                                .folder = s->newest_path,
                                .spec = &spec_of_folder,
                                .tokenizer = train_loader_encoder(s->tasks.loader),
                                .chat = s->tasks.chat,
                                .limit = s->r->eval.tasks_limit,
                                .options = {.threads = s->options.threads,
                                            .compute = run_config_types(s->r).compute,
                                            .strict = s->r->determinism.mode == RUN_STRICT},
                                .processors = kern_core_count(),
                                .watcher = &watcher};
    TRY(task_run(&args, a, spec, &outcome));
    return result_tell(s, spec, &outcome.result, (double)(session_now(s) - begin) / 1e9);
}

static status tasks_do(session *s)
{
    TRY(session_save_poll(s, true));
    if (s->saved_step != s->step) {
        session_say(s, LOG_WARN, "step %lld has no checkpoint, so its tasks are left out",
                    (long long)s->step);
        return ST_OK;
    }
    for (int64_t i = 0; i < s->r->eval.tasks.count && s->stop == 0; i++) {
        arena *a = NULL;
        TRY(arena_create("tasks", 0, &a));
        const status st = task_do(s, a, &s->tasks.specs[i]);
        arena_destroy(a);
        if (st == ST_OK) continue;
        if (st != ST_STOPPED) {
            session_say(s, LOG_WARN, "task %s of step %lld failed, and the run goes on: %.700s",
                        s->tasks.specs[i].name, (long long)s->step, error_last()->text);
        }
        error_clear();
    }
    return ST_OK;
}

status session_tasks_run(session *s)
{
    if (!is_due(s)) return ST_OK;
    session_progress(s, "running tasks", false);
    TRY(session_save_begin(s, false));
    const status st = session_is_first(s) ? tasks_do(s) : ST_OK;
    error_record own;
    int worst = (int)st;
    error_take(&own);
    TRY(session_agree(s, &worst, "tasks"));
    if (st != ST_OK) return error_put(&own);
    if (worst != (int)ST_OK) return fail((status)worst, "the first rank failed between two steps");
    session_spend(s, OBS_EVALUATION);
    return session_stop_agree(s);
}
