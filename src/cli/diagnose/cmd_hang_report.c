// `hang-report`: shows the last operations of each rank of a run and the ranks it waits for. It
// reads the control block of a live run, or the report that the launcher of a failed run wrote.
#include "cli/commands.h"
#include "cli/diagnose/hang_report.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The process that holds the run; 0: none.
static status holder_of(cli_context *cli, const char *run, long *pid)
{
    enum { LOCK_BYTES = 4096 };
    char *path = NULL, *held = NULL;
    int64_t bytes = 0;
    file_info info;
    *pid = 0;
    TRY(path_join(cli->a, run, "lock", &path));
    TRY(cli->h->api->path_info(cli->h, run, &info));
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s does not exist", run);
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) {
        return fail(ST_NOT_FOUND,
                    "%s is not the folder of a run: it has no lock; give the run.dir of `train`",
                    run);
    }
    TRY(host_read_all(cli->h, cli->a, path, LOCK_BYTES, &held, &bytes));
    const char *colon = strrchr(held, ':');
    if (colon != NULL) *pid = strtol(colon + 1, NULL, 10);
    return ST_OK;
}

// Opens the control block among the descriptors of that process; -1: it has none, or has ended.
static int control_block_open(long pid)
{
    char folder[64], path[400], name[128];
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fd", pid);
    DIR *list = opendir(folder);
    int fd = -1;
    if (list == NULL) return -1;
    for (const struct dirent *e = readdir(list); e != NULL && fd < 0; e = readdir(list)) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        const ssize_t length = readlink(path, name, sizeof(name) - 1);
        if (length <= 0) continue;
        name[length] = '\0';
        if (strstr(name, "memfd:trireme-control") != NULL) fd = open(path, O_RDWR | O_CLOEXEC);
    }
    (void)closedir(list);
    return fd;
}

static status live_tell(cli_context *cli, int fd)
{
    comm_control_block *b = NULL;
    text t = {.a = cli->a};
    status st = comm_control_block_map(fd, &b);
    (void)close(fd);
    TRY(st);
    st = cli_hang_report(b, &t);
    comm_control_block_unmap(b);
    TRY(st);
    cli_print_text(cli, &t);
    return ST_OK;
}

static status file_tell(cli_context *cli, const char *path, bool is_last)
{
    enum { DUMP_BYTES = 16 << 20 };
    char *dump = NULL;
    int64_t bytes = 0;
    file_info info;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    TRY(host_read_all(cli->h, cli->a, path, DUMP_BYTES, &dump, &bytes));
    while (bytes > 0 && dump[bytes - 1] == '\n') dump[--bytes] = '\0';
    cli_print(cli, "%s", path);
    if (is_last) {
        const int64_t age_ns = cli->h->api->unix_ns(cli->h) - info.modified_ns;
        cli_print(cli, ", written %.1f s ago while the run was alive", (double)age_ns / 1e9);
    }
    cli_print(cli, ":\n%s\n", dump);
    return ST_OK;
}

// Prints the newest report that a launcher left, or those that all hosts of a killed job left.
static status dump_tell(cli_context *cli, const char *run)
{
    char *folder = NULL, *path = NULL, *newest = NULL;
    int64_t newest_ns = INT64_MIN;
    bool is_last = false;
    file_info info;
    file_names names = {0};
    TRY(path_join(cli->a, run, "dumps", &folder));
    TRY(cli->h->api->path_info(cli->h, folder, &info));
    if (info.kind == FILE_KIND_FOLDER) {
        TRY(cli->h->api->path_list(cli->h, cli->a, folder, &names));
    }
    for (int64_t i = 0; i < names.count; i++) {
        const bool is_of_host = strncmp(names.names[i], "last-", 5) == 0;
        if (!is_of_host && strncmp(names.names[i], "hang-", 5) != 0) continue;
        TRY(path_join(cli->a, folder, names.names[i], &path));
        TRY(cli->h->api->path_info(cli->h, path, &info));
        if (info.modified_ns < newest_ns) continue;
        newest = path;
        newest_ns = info.modified_ns;
        is_last = is_of_host;
    }
    if (newest == NULL) {
        return fail(ST_NOT_FOUND,
                    "no process of %s with several ranks is alive, and %s has no report", run,
                    folder);
    }
    if (!is_last) return file_tell(cli, newest, false);
    for (int64_t i = 0; i < names.count; i++) {
        if (strncmp(names.names[i], "last-", 5) != 0) continue;
        TRY(path_join(cli->a, folder, names.names[i], &path));
        TRY(file_tell(cli, path, true));
    }
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    long pid = 0;
    TRY(holder_of(cli, call->operands[0], &pid));
    const int fd = pid > 0 ? control_block_open(pid) : -1;
    return fd >= 0 ? live_tell(cli, fd) : dump_tell(cli, call->operands[0]);
}

const cli_command cli_command_hang_report = {
    .name = "hang-report",
    .summary = "show the last operations of each rank and the ranks it waits for",
    .synopsis = "RUN",
    .about =
        "For a live run, prints the newest operations of all ranks of this host, read from their "
        "flight recorders without stopping them. For a run that failed, prints the report that the "
        "launcher wrote into the run's dumps/. If all its processes were killed at once, prints the "
        "report that was written last, which is at most half a second older than that.",
    .examples = "  trireme hang-report demo/run\n",
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
