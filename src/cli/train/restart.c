#include "cli/train/restart.h"

#include "checkpoint/checkpoint.h"
#include "cli/export/work_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char memory_begin[] = "/dev/shm/trireme-";
static const char memory_variable[] = "TRIREME_MEMORY"; // the folder
static const char lost_variable[] = "TRIREME_LOST";     // as loss_print() writes it
static const char loss_separator = '\x1f';
enum { LOSSES_IN_PLACE_MAX = 5, PATH_LIMIT_BYTES = 4096, BRIEF_BYTES = 300 };

// ---- the folder in memory -----------------------------------------------------------------------

// True if the link leads to a folder that this program has made for this user.
static bool memory_find(const char *link, char path[PATH_LIMIT_BYTES])
{
    struct stat info;
    const ssize_t n = readlink(link, path, PATH_LIMIT_BYTES - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    const size_t begin = sizeof(memory_begin) - 1;
    return strncmp(path, memory_begin, begin) == 0 && strchr(path + begin, '/') == NULL &&
           lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static status memory_make(cli_context *cli, char **out)
{
    uint64_t name = 0;
    TRY(cli->h->api->random_fill(cli->h, &name, (int64_t)sizeof(name)));
    TRY(arena_format(cli->a, out, "%s%016llx", memory_begin, (unsigned long long)name));
    if (mkdir(*out, 0700) == 0) return ST_OK;
    return fail(ST_IO,
                "resilience.mode = restart keeps the state in %s: %s; give this machine or its "
                "container a file system in memory there, or leave the key out",
                *out, strerror(errno));
}

status cli_restart_forget(cli_context *cli, const char *run_dir)
{
    char *link = NULL, path[PATH_LIMIT_BYTES];
    TRY(path_join(cli->a, run_dir, "memory", &link));
    if (!memory_find(link, path)) return ST_OK;
    cli_work_remove(cli, path);
    if (memory_find(link, path))
        return fail(ST_IO, "%s: some of its files cannot be removed", path);
    return cli->h->api->path_remove(cli->h, link);
}

// Ranks whose values differ all end with the same exit code. Those that know which one was wrong
// leave its number in the folder in memory.
static status wrong_path(arena *a, const char *memory, char **out)
{
    return path_join(a, memory, "wrong", out);
}

status cli_restart_blame(const host *h, arena *a, const char *memory, int64_t rank)
{
    char *path = NULL, number[32];
    const int n = snprintf(number, sizeof(number), "%lld", (long long)rank);
    TRY(wrong_path(a, memory, &path));
    return host_write_all(h, path, number, n);
}

static status wrong_take(const cli_restart *k, int *rank, bool *has)
{
    const host *h = k->cli->h;
    char *path = NULL, *bytes = NULL;
    int64_t count = 0, number = 0;
    file_info info;
    TRY(wrong_path(k->cli->a, k->memory, &path));
    TRY(h->api->path_info(h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(h, k->cli->a, path, 64, &bytes, &count));
    *has = text_parse_i64(bytes, &number) && number >= 0 && number < run_config_ranks(k->r);
    if (*has) *rank = (int)number;
    return h->api->path_remove(h, path);
}

// ---- arguments ----------------------------------------------------------------------------------

// The arguments without --fresh and --resume, and whether --resume names another start than auto.
static status arguments_split(cli_context *cli, char *const *given, char ***out, bool *is_auto)
{
    int64_t count = 0, kept = 0;
    while (given[count] != NULL) count++;
    TRY(arena_new(cli->a, count + 1, out));
    *is_auto = true;
    for (int64_t i = 0; i < count; i++) {
        const char *value = NULL;
        if (strcmp(given[i], "--fresh") == 0) continue;
        if (strcmp(given[i], "--resume") == 0 && i + 1 < count) value = given[++i];
        if (strncmp(given[i], "--resume=", 9) == 0) value = given[i] + 9;
        if (value != NULL) {
            *is_auto = strcmp(value, "auto") == 0;
        } else {
            (*out)[kept++] = given[i];
        }
    }
    return ST_OK;
}

static status variable_set(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0 ? ST_OK : fail(ST_NO_MEMORY, "no memory for %s", name);
}

status cli_restart_open(cli_context *cli, const run_config *r, char *const *arguments,
                        bool has_folder, cli_restart *out)
{
    char path[PATH_LIMIT_BYTES];
    bool is_auto = true, has_wrong = false;
    int wrong = -1;
    *out = (cli_restart){.cli = cli,
                         .r = r,
                         .given = arguments,
                         .begun_ns = cli->h->api->unix_ns(cli->h),
                         .lost_at_step = -1};
    (void)unsetenv(memory_variable);
    (void)unsetenv(lost_variable);
    TRY(arguments_split(cli, arguments, &out->again, &is_auto));
    if (r->resilience.mode == RUN_RESILIENCE_OFF || !has_folder) return ST_OK;
    TRY(path_join(cli->a, r->run.dir, "memory", &out->link));
    if (!is_auto) TRY(cli_restart_forget(cli, r->run.dir));
    if (memory_find(out->link, path)) {
        TRY(arena_strdup(cli->a, path, &out->memory));
        TRY(wrong_take(out, &wrong, &has_wrong)); // of a loss that an earlier launcher gave up
    } else {
        TRY(memory_make(cli, &out->memory));
        TRY(cli->h->api->path_mkdir(cli->h, r->run.dir));
        TRY(cli->h->api->path_link(cli->h, out->memory, out->link));
    }
    return variable_set(memory_variable, out->memory);
}

static status newest_step(const cli_restart *k, int64_t *out)
{
    char *folder = NULL, *path = NULL;
    int64_t saved = -1;
    arena *a = NULL;
    TRY(arena_create("restart", 0, &a));
    status st = ckpt_newest(k->cli->h, a, k->memory, &path, out);
    if (st == ST_OK) st = path_join(a, k->r->run.dir, "checkpoints", &folder);
    if (st == ST_OK) st = ckpt_newest(k->cli->h, a, folder, &path, &saved);
    *out = max_i64(*out, saved);
    arena_destroy(a);
    return st;
}

char *const *cli_restart_arguments(const cli_restart *k)
{
    // Before the first copy the first start is repeated as it was.
    return k->epoch > 0 && k->lost_at_step >= 0 ? k->again : k->given;
}

// ---- after a loss -------------------------------------------------------------------------------

// A rank that was killed, crashed, or waited for a lost one. Errors of a configuration, of data, of
// numbers or of a disk would come again.
static bool is_loss(const launch_result *r)
{
    if (r->is_interrupted || r->was_asked || r->exit_code == 0) return false;
    return r->ended_by != 0 || r->exit_code == status_exit_code(ST_PEER_LOST) ||
           r->exit_code == status_exit_code(ST_INTERNAL);
}

// The loss in a line: how the rank ended, and the error that it had printed, if it is known. Of
// wrong values the error alone: all ranks end because of them, and any of them may be the first.
static status cause_make(const cli_restart *k, const launch_result *result, char **out)
{
    const int length = (int)strcspn(result->text, "\n");
    const char *error = strstr(result->text, "\nerror[");
    if (error == NULL) return arena_format(k->cli->a, out, "%.*s", length, result->text);
    error++;
    const int error_length = (int)strcspn(error, "\n");
    const char *wrong = status_code(ST_CORRUPT);
    if (strncmp(error + strlen("error["), wrong, strlen(wrong)) == 0) {
        return arena_format(k->cli->a, out, "%.*s", error_length, error);
    }
    return arena_format(k->cli->a, out, "%.*s: %.*s", length, result->text, error_length, error);
}

static status loss_print(const cli_restart *k, const train_restart *lost, int cause_bytes,
                         char **out)
{
    return arena_format(k->cli->a, out, "%lld %s %lld %lld %lld %lld %lld %s|%.*s",
                        (long long)lost->epoch, lost->event, (long long)lost->rank,
                        (long long)lost->lost_ns, (long long)k->begun_ns,
                        (long long)(lost->detect_ms * 1e3), (long long)lost->living, lost->done,
                        cause_bytes, lost->cause);
}

static void separators_hide(char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == loss_separator) *s = '?';
    }
}

status cli_restart_note(cli_restart *k, const train_restart *lost, char **out)
{
    arena *a = k->cli->a;
    text all = {.a = a};
    char *own = NULL, *brief = NULL;
    // A step has ended since, so all changes before this one were told.
    if (k->losses_in_place <= 1 && strcmp(lost->event, "joined") != 0) k->before_count = 0;
    TRY(loss_print(k, lost, LAUNCH_TEXT_BYTES, &own));
    TRY(loss_print(k, lost, BRIEF_BYTES, &brief));
    separators_hide(own);
    separators_hide(brief);
    TRY(text_add(&all, "%s", own));
    for (int i = 0; i < k->before_count; i++) {
        TRY(text_add(&all, "%c%s", loss_separator, k->before[i]));
    }
    if (k->before_count < RESTART_BEFORE_MAX) k->before_count++;
    for (int i = k->before_count - 1; i > 0; i--) k->before[i] = k->before[i - 1];
    k->before[0] = brief;
    *out = all.bytes;
    return ST_OK;
}

status cli_restart_put(const char *memory, const char *lost)
{
    TRY(variable_set(memory_variable, memory));
    if (lost[0] != '\0') return variable_set(lost_variable, lost);
    (void)unsetenv(lost_variable);
    return ST_OK;
}

// For the ranks of the next start.
static status loss_publish(cli_restart *k, const launch_result *result)
{
    const host *h = k->cli->h;
    const int64_t ago_ns = h->api->monotonic_ns(h) - result->ended_at;
    char *value = NULL, *cause = NULL;
    int rank = result->lost;
    bool has_wrong = false;
    TRY(wrong_take(k, &rank, &has_wrong));
    TRY(cause_make(k, result, &cause));
    // The kind of a loss is in the code of the error that the lost rank had printed.
    const bool is_wrong = has_wrong || strstr(cause, status_code(ST_CORRUPT)) != NULL;
    if (is_wrong && !has_wrong) rank = -1; // no rank knows which one it was
    const train_restart lost = {.epoch = k->epoch,
                                .event = is_wrong ? "sdc" : "lost",
                                .rank = rank,
                                .lost_ns = h->api->unix_ns(h) - ago_ns,
                                .detect_ms = (double)ago_ns / 1e6,
                                .living = run_config_ranks(k->r) - 1,
                                .done = "all ranks were started again",
                                .cause = cause};
    TRY(cli_restart_note(k, &lost, &value));
    return variable_set(lost_variable, value);
}

status cli_restart_count(cli_restart *k, int64_t said, bool *is_given_up)
{
    int64_t step = -1;
    TRY(newest_step(k, &step));
    cli_restart_count_at(k, max_i64(step, said), is_given_up);
    return ST_OK;
}

void cli_restart_count_at(cli_restart *k, int64_t step, bool *is_given_up)
{
    k->losses_in_place = step == k->lost_at_step && k->epoch > 0 ? k->losses_in_place + 1 : 1;
    k->lost_at_step = step;
    *is_given_up = k->losses_in_place >= LOSSES_IN_PLACE_MAX;
}

status cli_restart_again(cli_restart *k, launch_result *result, bool *again)
{
    bool is_given_up = false;
    *again = false;
    if (k->memory == NULL || !is_loss(result)) return ST_OK;
    TRY(cli_restart_count(k, -1, &is_given_up));
    if (is_given_up) {
        const size_t used = strlen(result->text);
        (void)snprintf(result->text + used, sizeof(result->text) - used,
                       "\n%d ranks in a row were lost without a finished step in between, so the "
                       "run was not started again",
                       k->losses_in_place);
        return ST_OK;
    }
    k->epoch++;
    *again = true;
    return loss_publish(k, result);
}

void cli_restart_close(cli_restart *k, bool is_over)
{
    if (k->memory == NULL || !is_over) return;
    error_record kept;
    error_take(&kept);
    if (cli_restart_forget(k->cli, k->r->run.dir) != ST_OK) {
        cli_print(k->cli, "warning  the copies in memory were not removed: %s\n",
                  error_last()->text);
    }
    error_clear();
    const status st = error_put(&kept);
    (void)st;
}

// ---- a rank -------------------------------------------------------------------------------------

// Reads one change; the text is split.
static status loss_read(arena *a, const char *lost, train_restart *out)
{
    long long epoch = 0, rank = 0, at = 0, begun = 0, detect_us = 0, living = 0;
    int at_done = 0;
    char event[16], *kind = NULL, *done = NULL;
    const int found = sscanf(lost, "%lld %15s %lld %lld %lld %lld %lld %n", &epoch, event, &rank,
                             &at, &begun, &detect_us, &living, &at_done);
    if (found != 7 || at_done == 0 || strchr(lost + at_done, '|') == NULL) {
        return fail(ST_CONFIG, "%s = \"%s\" was not set by this program; unset it", lost_variable,
                    lost);
    }
    TRY(arena_strdup(a, event, &kind));
    TRY(arena_strdup(a, lost + at_done, &done));
    char *why = strchr(done, '|');
    *why++ = '\0';
    out->epoch = epoch;
    out->event = kind;
    out->done = done;
    out->rank = rank;
    out->lost_ns = at;
    out->begun_ns = begun;
    out->detect_ms = (double)detect_us / 1e3;
    out->living = living;
    out->cause = why;
    return ST_OK;
}

status cli_restart_read(arena *a, train_restart *out, bool *has)
{
    const char *memory = getenv(memory_variable), *lost = getenv(lost_variable);
    char *folder = NULL, *all = NULL;
    *out = (train_restart){.rank = -1, .cause = ""};
    *has = memory != NULL;
    if (!*has) return ST_OK;
    if (memory[0] != '\0') TRY(arena_strdup(a, memory, &folder));
    out->memory = folder;
    if (lost == NULL) return ST_OK;
    train_restart *before = NULL;
    TRY(arena_strdup(a, lost, &all));
    TRY(arena_new(a, RESTART_BEFORE_MAX, &before));
    char *next = strchr(all, loss_separator);
    if (next != NULL) *next++ = '\0';
    TRY(loss_read(a, all, out));
    for (; next != NULL && out->before_count < RESTART_BEFORE_MAX; out->before_count++) {
        char *own = next;
        next = strchr(own, loss_separator);
        if (next != NULL) *next++ = '\0';
        TRY(loss_read(a, own, &before[out->before_count]));
    }
    out->before = before;
    return ST_OK;
}
