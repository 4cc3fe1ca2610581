// The parent's side: scratch folders, starts, deadlines, outputs.
//
// Standard input and outputs are files in memory, so that no pipe fills up, and the limit of a
// file's size is that of an output. The end of a command is the end of its report pipe, which only
// its first process holds; poll() waits for all of them and for the nearest deadline.
#include "sandbox/sandbox_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE_MAX = 256, PATH_BYTES = 4096 };

typedef struct running {
    int64_t job; // -1: free
    int64_t deadline_ns;
    pid_t pid;
    int in, out, err, report;
    bool was_ended; // by its deadline
    char scratch[PATH_BYTES];
} running;

typedef struct sandbox {
    const host *h;
    arena *a;
    const char *parent;
    sandbox_limits limits;
    const sandbox_job *jobs;
    sandbox_result *results;
    bool has_spaces, is_root, only_tries;
    running *slots;
    int64_t at_once;
} sandbox;

static status fail_system(const char *what)
{
    return fail(errno == ENOMEM || errno == EAGAIN ? ST_NO_MEMORY : ST_IO,
                "cannot run a confined command: %s: %s%s", what, strerror(errno),
                host_limit_remedy(errno));
}

static void close_at(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

// ---- the scratch folder -------------------------------------------------------------------------

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// True if the name is a folder, which can then be read and changed. A link is none: chmod() would
// follow it.
static bool folder_unlock(int parent, const char *name)
{
    struct stat info;
    return fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode) &&
           fchmodat(parent, name, 0700, 0) == 0;
}

// Empties the folder `name` of `top`: folders in it move to `top`, where they are met again. So no
// depth needs a stack or a long path.
static void folder_empty(int top, const char *name, uint64_t *moved)
{
    if (!folder_unlock(top, name)) return;
    const int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0) (void)close(fd);
    for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        char target[32];
        if (is_dots(e->d_name) || unlinkat(fd, e->d_name, 0) == 0) continue;
        // A folder that cannot be written cannot move.
        if (!folder_unlock(fd, e->d_name)) continue;
        (void)snprintf(target, sizeof(target), "moved-%llu", (unsigned long long)++*moved);
        (void)renameat(fd, e->d_name, top, target);
    }
    if (folder != NULL) (void)closedir(folder);
    (void)unlinkat(top, name, AT_REMOVEDIR);
}

static void scratch_remove(const char *path)
{
    enum { ROUNDS_MAX = 100000 }; // each takes a level away
    uint64_t moved = 0;
    const int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (int round = 0; top >= 0 && round < ROUNDS_MAX && rmdir(path) != 0; round++) {
        const int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
        if (folder == NULL) break;
        for (struct dirent *e; (e = readdir(folder)) != NULL;) {
            if (is_dots(e->d_name) || unlinkat(top, e->d_name, 0) == 0) continue;
            folder_empty(top, e->d_name, &moved);
        }
        (void)closedir(folder);
    }
    if (top >= 0) (void)close(top);
}

static status file_put(const sandbox *s, int folder, const sandbox_file *f)
{
    ASSERT(strchr(f->name, '/') == NULL && !is_dots(f->name));
    const int fd = openat(folder, f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return fail_system(f->name);
    status st = ST_OK;
    for (int64_t done = 0; done < f->count && st == ST_OK;) {
        const ssize_t n = write(fd, f->bytes + done, (size_t)(f->count - done));
        if (n < 0 && errno != EINTR) st = fail_system(f->name);
        done += n > 0 ? n : 0;
    }
    if (st == ST_OK && s->is_root && fchown(fd, SANDBOX_USER, SANDBOX_USER) != 0) {
        st = fail_system(f->name);
    }
    (void)close(fd);
    return st;
}

static status scratch_create(const sandbox *s, const sandbox_job *job, running *r)
{
    const int length = snprintf(r->scratch, sizeof(r->scratch), "%s/trireme-XXXXXX", s->parent);
    if (length < 0 || length >= PATH_BYTES) return fail(ST_USAGE, "%s: too long", s->parent);
    if (mkdtemp(r->scratch) == NULL) {
        r->scratch[0] = 0;
        return fail_system(s->parent);
    }
    const int folder = open(r->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return fail_system(r->scratch);
    status st = ST_OK;
    for (int64_t i = 0; i < job->file_count && st == ST_OK; i++) {
        st = file_put(s, folder, &job->files[i]);
    }
    if (st == ST_OK && s->is_root && fchown(folder, SANDBOX_USER, SANDBOX_USER) != 0) {
        st = fail_system(r->scratch);
    }
    (void)close(folder);
    return st;
}

// ---- starting -----------------------------------------------------------------------------------

static status memory_open(const char *bytes, int64_t count, int *out)
{
    *out = memfd_create("trireme", MFD_CLOEXEC);
    if (*out < 0) return fail_system("memfd_create");
    for (int64_t done = 0; done < count;) {
        const ssize_t n = write(*out, bytes + done, (size_t)(count - done));
        if (n < 0 && errno != EINTR) return fail_system("writing the input");
        done += n > 0 ? n : 0;
    }
    return lseek(*out, 0, SEEK_SET) == 0 ? ST_OK : fail_system("lseek");
}

static bool map_write(pid_t pid, const char *name, const char *line)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool is_ok = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
    (void)close(fd);
    return is_ok;
}

// Gives the new namespace its only user, by the same number as outside.
static bool user_map(const sandbox *s, pid_t pid)
{
    char user[64], group[64];
    const unsigned uid = s->is_root ? SANDBOX_USER : geteuid();
    const unsigned gid = s->is_root ? SANDBOX_USER : getegid();
    (void)snprintf(user, sizeof(user), "%u %u 1\n", uid, uid);
    (void)snprintf(group, sizeof(group), "%u %u 1\n", gid, gid);
    if (!s->is_root && !map_write(pid, "setgroups", "deny")) return false;
    return map_write(pid, "uid_map", user) && map_write(pid, "gid_map", group);
}

static void kill_all(const running *r)
{
    (void)kill(-r->pid, SIGKILL);
    (void)kill(r->pid, SIGKILL);
}

// Forks; without namespaces where the system refuses them.
static status child_start(sandbox *s, sandbox_child *c, int go, running *r)
{
    for (;;) {
        c->has_spaces = s->has_spaces;
        r->pid = sandbox_fork(s->has_spaces);
        if (r->pid == 0) sandbox_child_run(c);
        if (r->pid < 0 && !s->has_spaces) return fail_system("fork");
        if (r->pid > 0 && (!s->has_spaces || user_map(s, r->pid))) break;
        if (r->pid > 0) {
            kill_all(r);
            (void)waitpid(r->pid, NULL, 0);
        }
        s->has_spaces = false;
    }
    if (write(go, "", 1) == 1) return ST_OK;
    return fail_system("starting the child");
}

static status child_prepare(sandbox *s, const sandbox_job *job, running *r)
{
    char home[PATH_BYTES + 8], temporary[PATH_BYTES + 8], shell[] = "/bin/sh", flag[] = "-c";
    char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", language[] = "LANG=C.UTF-8";
    char *command = NULL;
    int go[2] = {-1, -1}, report[2] = {-1, -1};
    status st = ST_OK;
    TRY(arena_strdup(s->a, job->command != NULL ? job->command : "", &command));
    (void)snprintf(home, sizeof(home), "HOME=%s", r->scratch);
    (void)snprintf(temporary, sizeof(temporary), "TMPDIR=%s", r->scratch);
    char *const argv[] = {shell, flag, command, NULL};
    char *const environment[] = {path, language, home, temporary, NULL};
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) {
        TRY_TO(done, fail_system("pipe"));
    }
    sandbox_child c = {.scratch = r->scratch,
                       .argv = s->only_tries ? NULL : argv,
                       .environment = environment,
                       .limits = s->limits,
                       .is_root = s->is_root,
                       .in = r->in,
                       .out = r->out,
                       .err = r->err,
                       .go = go[0],
                       .report = report[1]};
    TRY_TO(done, child_start(s, &c, go[1], r));
    r->report = report[0];
    report[0] = -1;
done:
    close_at(&go[0]);
    close_at(&go[1]);
    close_at(&report[0]);
    close_at(&report[1]);
    return st;
}

static status job_start(sandbox *s, int64_t i, running *r)
{
    const sandbox_job *job = &s->jobs[i];
    r->job = i;
    r->was_ended = false;
    r->scratch[0] = 0;
    TRY(scratch_create(s, job, r));
    TRY(memory_open(job->input, job->input_bytes, &r->in));
    TRY(memory_open(NULL, 0, &r->out));
    TRY(memory_open(NULL, 0, &r->err));
    TRY(child_prepare(s, job, r));
    r->deadline_ns = s->h->api->monotonic_ns(s->h) + s->limits.time_ns;
    return ST_OK;
}

// ---- ending -------------------------------------------------------------------------------------

static status output_take(const sandbox *s, int fd, char **out, int64_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_system("fstat");
    const int64_t wanted = min_i64((int64_t)info.st_size, s->limits.output_bytes);
    int64_t done = 0;
    TRY(arena_new(s->a, wanted + 1, out));
    while (done < wanted) {
        const ssize_t n = pread(fd, *out + done, (size_t)(wanted - done), done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; // the command cut the file
        done += n;
    }
    (*out)[done] = 0;
    *bytes = done;
    return ST_OK;
}

static status fail_stage(const running *r, const sandbox_report *report)
{
    static const char *const what[] = {[SANDBOX_STAGE_SCRATCH] = "entering the scratch folder",
                                       [SANDBOX_STAGE_USER] = "becoming another user",
                                       [SANDBOX_STAGE_FORK] = "starting a process",
                                       [SANDBOX_STAGE_LIMITS] = "setting limits",
                                       [SANDBOX_STAGE_EXEC] = "starting /bin/sh"};
    errno = report->value;
    const char *name = report->stage >= SANDBOX_STAGE_SCRATCH && report->stage < COUNT_OF(what)
                           ? what[report->stage]
                           : "the child's report";
    const status st = fail_system(name);
    note("while %s was the scratch folder", r->scratch);
    return st;
}

static status reports_read(const running *r, sandbox_result *out, bool *has_confined,
                           bool *has_ended)
{
    sandbox_report report;
    while (read(r->report, &report, sizeof(report)) == (ssize_t)sizeof(report)) {
        if (report.stage == SANDBOX_STAGE_CONFINED) {
            *has_confined = true;
            out->confined = (unsigned)report.value;
        } else if (report.stage != SANDBOX_STAGE_ENDED) {
            return fail_stage(r, &report);
        } else {
            *has_ended = true;
            out->end = WIFSIGNALED(report.value) ? SANDBOX_SIGNALED : SANDBOX_EXITED;
            out->code =
                WIFSIGNALED(report.value) ? WTERMSIG(report.value) : WEXITSTATUS(report.value);
        }
    }
    return ST_OK;
}

static status job_end(sandbox *s, running *r)
{
    enum { NEEDED = SANDBOX_WRITES | SANDBOX_NETWORK };
    sandbox_result *out = &s->results[r->job];
    bool has_confined = false, has_ended = false;
    *out = (sandbox_result){.end = SANDBOX_SIGNALED, .code = SIGKILL};
    (void)waitpid(r->pid, NULL, 0);
    r->pid = 0;
    TRY(reports_read(r, out, &has_confined, &has_ended));
    if (!has_ended && r->was_ended) out->end = SANDBOX_TIMED_OUT;
    // The kernel's own limit of CPU time.
    if (has_ended && out->end == SANDBOX_SIGNALED && out->code == SIGXCPU) {
        out->end = SANDBOX_TIMED_OUT;
    }
    if (!s->only_tries && has_confined && (out->confined & NEEDED) != NEEDED) {
        return fail(ST_UNSUPPORTED,
                    "this machine's kernel cannot keep a command from %s, so none is run: Linux "
                    "5.13 with Landlock, or user namespaces, would",
                    (out->confined & SANDBOX_WRITES) == 0 ? "writing files" : "the network");
    }
    TRY(output_take(s, r->out, &out->out, &out->out_bytes));
    return output_take(s, r->err, &out->err, &out->err_bytes);
}

static void slot_clear(running *r)
{
    if (r->pid > 0) {
        kill_all(r);
        (void)waitpid(r->pid, NULL, 0);
    }
    r->pid = 0;
    close_at(&r->in);
    close_at(&r->out);
    close_at(&r->err);
    close_at(&r->report);
    if (r->scratch[0] != 0) scratch_remove(r->scratch);
    r->scratch[0] = 0;
    r->job = -1;
}

// Waits until a job ends or reaches its deadline, and takes the results of those that ended.
static status jobs_wait(sandbox *s)
{
    struct pollfd fds[AT_ONCE_MAX];
    int64_t nearest = INT64_MAX;
    const int64_t now = s->h->api->monotonic_ns(s->h);
    for (int64_t i = 0; i < s->at_once; i++) {
        running *r = &s->slots[i];
        fds[i] = (struct pollfd){.fd = r->job >= 0 ? r->report : -1};
        if (r->job < 0 || r->was_ended) continue;
        if (now >= r->deadline_ns) {
            r->was_ended = true;
            kill_all(r);
        } else {
            nearest = min_i64(nearest, r->deadline_ns - now);
        }
    }
    const int wait_ms = (int)min_i64(nearest / 1000000 + 1, 1000);
    if (poll(fds, (nfds_t)s->at_once, wait_ms) < 0 && errno != EINTR) return fail_system("poll");
    for (int64_t i = 0; i < s->at_once; i++) {
        running *r = &s->slots[i];
        if (r->job < 0 || (fds[i].revents & POLLHUP) == 0) continue;
        const status st = job_end(s, r);
        slot_clear(r);
        TRY(st);
    }
    return ST_OK;
}

static status jobs_run(sandbox *s, int64_t count)
{
    int64_t next = 0;
    for (;;) {
        bool is_busy = false;
        for (int64_t i = 0; i < s->at_once; i++) {
            running *r = &s->slots[i];
            if (r->job < 0 && next < count) TRY(job_start(s, next++, r));
            is_busy = is_busy || r->job >= 0;
        }
        if (!is_busy) return ST_OK;
        TRY(jobs_wait(s));
    }
}

// True if this process can become SANDBOX_USER: not in a container that has only its own user.
static bool can_change_user(void)
{
    unsigned inside = 0, outside = 0, count = 0;
    bool has_user = false;
    if (geteuid() != 0) return false;
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (map == NULL) return false;
    while (fscanf(map, "%u %u %u", &inside, &outside, &count) == 3) { // NOLINT(cert-err34-c)
        has_user = has_user || (inside <= SANDBOX_USER && SANDBOX_USER - inside < count);
    }
    (void)fclose(map);
    return has_user;
}

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static status run(const host *h, arena *a, const sandbox_spec *spec, const sandbox_job *jobs,
                  int64_t count, bool only_tries, sandbox_result *results)
{
    const sandbox_limits *l = &spec->limits;
    sandbox s = {
        .h = h,
        .a = a,
        .parent = spec->parent != NULL ? spec->parent : "/tmp",
        .limits = {.time_ns = or_default(l->time_ns, INT64_C(10000000000)),
                   .memory_bytes = or_default(l->memory_bytes, 1 << 30),
                   .processes = or_default(l->processes, 32),
                   .file_bytes = or_default(l->file_bytes, 16 << 20),
                   .output_bytes = or_default(l->output_bytes, 64 << 10)},
        .jobs = jobs,
        .results = results,
        .has_spaces = true,
        .is_root = can_change_user(),
        .only_tries = only_tries,
        .at_once = min_i64(min_i64(or_default(spec->at_once, 1), max_i64(count, 1)), AT_ONCE_MAX)};
    TRY(arena_new(a, s.at_once, &s.slots));
    for (int64_t i = 0; i < s.at_once; i++) {
        s.slots[i] = (running){.job = -1, .in = -1, .out = -1, .err = -1, .report = -1};
    }
    const status st = jobs_run(&s, count);
    for (int64_t i = 0; i < s.at_once; i++) slot_clear(&s.slots[i]);
    return st;
}

status sandbox_run(const host *h, arena *a, const sandbox_spec *spec, const sandbox_job *jobs,
                   int64_t count, sandbox_result *results)
{
    return run(h, a, spec, jobs, count, false, results);
}

status sandbox_probe(const host *h, arena *a, unsigned *confined)
{
    const sandbox_spec spec = {.parent = NULL};
    const sandbox_job job = {.command = NULL};
    sandbox_result result;
    TRY(run(h, a, &spec, &job, 1, true, &result));
    *confined = result.confined;
    return ST_OK;
}

status sandbox_missing(unsigned confined, text *out)
{
    static const struct {
        unsigned bit;
        const char *what;
    } rows[] = {{SANDBOX_WRITES, "writing files elsewhere"},
                {SANDBOX_NETWORK, "the network"},
                {SANDBOX_MODES, "changing modes and times of the user's files"},
                {SANDBOX_PROCESSES, "sending signals to the user's processes"},
                {SANDBOX_COUNT, "starting any number of processes"}};
    bool is_first = true;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if ((confined & rows[i].bit) != 0) continue;
        TRY(text_add(out, "%s%s", is_first ? "is not kept from " : ", from ", rows[i].what));
        is_first = false;
    }
    return ST_OK;
}
