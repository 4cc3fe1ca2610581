// Runs a stage's command as a child process and watches time, budget and signals.
//
// The child gets SIGKILL when this process dies, so no command outlives its chain; ranks that it
// started end when they notice, and until then they may hold a run's lock, for which a new chain
// waits. The budget counts the time of commands over all calls; DIR/spent holds it.
#include "cli/stages/stages.h"

#include "cli/train/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_NS = 10000000, SPENT_EVERY_NS = 1000000000, LOCK_TRIES = 60, EXIT_FILES = 4 };

static double seconds_since(const stages *v, int64_t begin_ns)
{
    return (double)(v->cli->h->api->monotonic_ns(v->cli->h) - begin_ns) / 1e9;
}

// ---- the budget ---------------------------------------------------------------------------------

static status spent_path(const stages *v, char **out)
{
    return path_join(v->cli->a, v->dir, "spent", out);
}

status stages_spent_read(stages *v)
{
    char *path = NULL, *bytes = NULL;
    int64_t count = 0;
    file_info info;
    TRY(spent_path(v, &path));
    TRY(v->cli->h->api->path_info(v->cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(v->cli->h, v->cli->a, path, 64, &bytes, &count));
    bytes[strcspn(bytes, "\n")] = 0;
    if (text_parse_f64(bytes, &v->spent_s)) return ST_OK;
    return fail(ST_DAMAGED, "%s: expected a number of seconds", path);
}

static status spent_write(const stages *v, const char *path)
{
    char line[64];
    const int n = snprintf(line, sizeof(line), "%.3f\n", v->spent_s);
    return host_write_all(v->cli->h, path, line, n);
}

static bool is_over(const stages *v)
{
    return v->budget_s > 0.0 && v->spent_s >= v->budget_s;
}

static status budget_stop(const stages *v, const stage *s)
{
    char used[32];
    return fail(ST_STOPPED,
                "the budget of %s is used up (%s) in stage %s; the same command with a larger "
                "stages.budget continues",
                v->budget, text_duration_human(v->spent_s, used), s->name);
}

// ---- the child ----------------------------------------------------------------------------------

// An evaluation's results are its standard output.
static status child_start(const stages *v, const stage *s, char *const *words, pid_t *out)
{
    char *log = NULL, *results = NULL;
    TRY(path_join(v->cli->a, s->folder, "log", &log));
    TRY(path_join(v->cli->a, s->out, "results.json", &results));
    const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return fail(ST_IO, "%s: open for writing failed: %s", log, strerror(errno));
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int to =
        s->kind == STAGE_EVAL ? open(results, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : fd;
    const pid_t pid = null_fd >= 0 && to >= 0 ? fork() : -1;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (chdir(v->home) == 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
            dup2(to, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0) {
            (void)execv("/proc/self/exe", words);
        }
        _exit(EXIT_FILES);
    }
    const int error = errno;
    (void)close(fd);
    if (to >= 0 && to != fd) (void)close(to);
    if (null_fd >= 0) (void)close(null_fd);
    if (pid < 0) {
        return fail(ST_NO_MEMORY, "stage %s: cannot start its command: %s", s->name,
                    strerror(error));
    }
    *out = pid;
    return ST_OK;
}

typedef struct child_end {
    int wait_status;
    bool was_asked, was_over; // it was told to stop: by a signal to us, by the budget
} child_end;

static status child_wait(stages *v, pid_t pid, child_end *out)
{
    char *path = NULL;
    const double before = v->spent_s;
    const int64_t begin = v->cli->h->api->monotonic_ns(v->cli->h);
    int64_t written = begin;
    *out = (child_end){.wait_status = 0};
    TRY(spent_path(v, &path));
    for (;;) {
        const pid_t ended = waitpid(pid, &out->wait_status, WNOHANG);
        const int64_t now = v->cli->h->api->monotonic_ns(v->cli->h);
        v->spent_s = before + (double)(now - begin) / 1e9;
        if (ended != 0) break;
        if (now - written >= SPENT_EVERY_NS) {
            written = now;
            TRY(spent_write(v, path));
        }
        const bool asked = cli_signals_asked(), over = is_over(v);
        if ((asked && !out->was_asked) || (over && !out->was_over)) (void)kill(pid, SIGTERM);
        out->was_asked = out->was_asked || asked;
        out->was_over = out->was_over || over;
        v->cli->h->api->sleep_ns(v->cli->h, LOOK_NS);
    }
    return spent_write(v, path);
}

// ---- a stage ------------------------------------------------------------------------------------

// The end of its log, and whether it says that the run is locked.
static status log_end(const stages *v, const stage *s, text *out, bool *is_locked)
{
    enum { SHOWN = 600 };
    char *path = NULL, buffer[SHOWN + 1];
    file *f = NULL;
    int64_t bytes = 0;
    TRY(path_join(v->cli->a, s->folder, "log", &path));
    TRY(v->cli->h->api->file_open(v->cli->h, path, FILE_READ, &f));
    status st = v->cli->h->api->file_size(f, &bytes);
    const int64_t n = min_i64(SHOWN, bytes);
    if (st == ST_OK && n > 0) st = v->cli->h->api->file_read(f, bytes - n, buffer, n);
    (void)v->cli->h->api->file_close(f); // it was only read
    TRY(st);
    buffer[n] = 0;
    *is_locked = strstr(buffer, "error[E004]") != NULL;
    return text_add(out, "%s%s", n > 0 ? "\n" : "", buffer);
}

static status command_end(const stages *v, const stage *s, const child_end *end, bool *is_locked)
{
    text said = {.a = v->cli->a};
    *is_locked = false;
    if (WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0) return ST_OK;
    if (end->was_over) return budget_stop(v, s);
    if (end->was_asked) return fail(ST_STOPPED, "stage %s was stopped", s->name);
    TRY(log_end(v, s, &said, is_locked));
    if (WIFSIGNALED(end->wait_status)) {
        return fail(ST_IO, "stage %s was ended by signal %d; the same command continues%s", s->name,
                    WTERMSIG(end->wait_status), said.bytes);
    }
    const int code = WEXITSTATUS(end->wait_status);
    *is_locked = *is_locked && code == EXIT_FILES;
    return fail(code == 8 ? ST_ANSWER_NO : ST_CONFIG,
                "stage %s ended with exit code %d; %s/log has "
                "all that it said:%s",
                s->name, code, s->folder, said.bytes);
}

static status record_write(const stages *v, const stage *s)
{
    char *path = NULL;
    text t = {.a = v->cli->a};
    TRY(text_add(&t,
                 "{\"stage\": \"%s\", \"kind\": \"%s\", \"key\": \"%s\", \"digest\": \"%s\", "
                 "\"seconds\": %.3f}\n",
                 s->name, stage_kind_name(s->kind), s->key, s->digest, s->seconds));
    TRY(path_join(v->cli->a, s->folder, "stage.json", &path));
    return host_write_all(v->cli->h, path, t.bytes, t.length);
}

static status record_read(stages *v, stage *s)
{
    char *path = NULL;
    json *root = NULL;
    file_info info;
    TRY(path_join(v->cli->a, s->folder, "stage.json", &path));
    TRY(v->cli->h->api->path_info(v->cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(json_read(v->cli->h, path, 1 << 16, &root));
    s->is_skipped = strcmp(json_text(json_get(root, "key"), ""), s->key) == 0;
    (void)snprintf(s->digest, sizeof(s->digest), "%s", json_text(json_get(root, "digest"), ""));
    s->seconds = json_real(json_get(root, "seconds"), 0.0);
    json_free(root);
    return ST_OK;
}

static status command_run(stages *v, int64_t i)
{
    stage *s = &v->list[i];
    char **words = NULL;
    TRY(stage_words(v, i, &words));
    for (int tries = 0;; tries++) {
        pid_t pid = 0;
        child_end end;
        bool is_locked = false;
        TRY(child_start(v, s, words, &pid));
        TRY(child_wait(v, pid, &end));
        const status st = command_end(v, s, &end, &is_locked);
        if (st == ST_OK || !is_locked || tries >= LOCK_TRIES) return st;
        error_clear();
        v->cli->h->api->sleep_ns(v->cli->h, SPENT_EVERY_NS);
    }
}

status stage_run(stages *v, int64_t i)
{
    stage *s = &v->list[i];
    const bool makes_folder = s->kind == STAGE_EVAL || s->kind == STAGE_GATE;
    TRY(stage_key(v, i));
    TRY(record_read(v, s));
    if (s->is_skipped) return ST_OK;
    if (is_over(v)) return budget_stop(v, s);
    if (cli_signals_asked()) return fail(ST_STOPPED, "before stage %s", s->name);
    TRY(v->cli->h->api->path_mkdir(v->cli->h, makes_folder ? s->out : s->folder));
    const int64_t begin = v->cli->h->api->monotonic_ns(v->cli->h);
    TRY(command_run(v, i));
    TRY(stage_digest(v, s));
    s->seconds = seconds_since(v, begin);
    return record_write(v, s);
}
