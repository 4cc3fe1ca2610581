// Trials: write a small file in the folder of runs, and send a byte over the loopback and back.
#include "cli/doctor/doctor.h"
#include "comm/bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static double seconds_since(const doctor *d, int64_t begin_ns)
{
    return (double)max_i64(1, d->cli->h->api->monotonic_ns(d->cli->h) - begin_ns) / 1e9;
}

// ---- storage ------------------------------------------------------------------------------------

static const char *type_of(const char *folder, char buffer[32])
{
    static const struct {
        uint32_t magic;
        const char *name;
    } known[] = {{0xef53, "ext4"},       {0x58465342, "xfs"},      {0x9123683e, "btrfs"},
                 {0x01021994, "tmpfs"},  {0x794c7630, "overlay"},  {0x6969, "nfs"},
                 {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"},     {0x65735546, "fuse"},
                 {0x2fc12fc1, "zfs"},    {0xff534d42, "cifs"},     {0x9fa0, "proc"},
                 {0x62656572, "sysfs"},  {0x01021997, "9p"},       {0x00c36400, "ceph"},
                 {0x7461636f, "ocfs2"},  {0x73717368, "squashfs"}, {0x2011bab0, "exfat"}};
    struct statfs s;
    if (statfs(folder, &s) != 0) return "an unknown file system";
    const uint32_t magic = (uint32_t)s.f_type;
    for (int64_t i = 0; i < COUNT_OF(known); i++) {
        if (known[i].magic == magic) return known[i].name;
    }
    (void)snprintf(buffer, 32, "file system 0x%x", magic);
    return buffer;
}

typedef struct speeds {
    double write_bytes_per_s, fsync_s;
} speeds;

static status file_write(const doctor *d, file *f, speeds *out)
{
    enum { PIECE = 1 << 20, PIECES = 32, SYNCS = 4 };
    const host_api *api = d->cli->h->api;
    char *piece = NULL;
    TRY(arena_new(d->cli->a, PIECE, &piece));
    // Different bytes, so that the disk cannot compress them away.
    for (int i = 0; i < PIECE; i++) piece[i] = (char)(i * 131 >> 3);
    int64_t begin = api->monotonic_ns(d->cli->h);
    for (int i = 0; i < PIECES; i++) TRY(api->file_write(f, piece, PIECE));
    TRY(api->file_sync(f));
    out->write_bytes_per_s = (double)PIECE * PIECES / seconds_since(d, begin);
    begin = api->monotonic_ns(d->cli->h);
    for (int i = 0; i < SYNCS; i++) {
        TRY(api->file_write(f, piece, 4096));
        TRY(api->file_sync(f));
    }
    out->fsync_s = seconds_since(d, begin) / SYNCS;
    return ST_OK;
}

static status folder_try(const doctor *d, speeds *out)
{
    const host_api *api = d->cli->h->api;
    char *path = NULL;
    file *f = NULL;
    TRY(arena_format(d->cli->a, &path, "%s/.trireme-doctor-%ld", d->folder, (long)getpid()));
    TRY(api->file_open(d->cli->h, path, FILE_CREATE, &f));
    const status st = file_write(d, f, out);
    error_record kept;
    error_take(&kept);
    (void)api->file_close(f); // the file is removed in any case
    (void)api->path_remove(d->cli->h, path);
    (void)error_put(&kept);
    return st;
}

status doctor_storage(const doctor *d, doctor_finding *f)
{
    static const int64_t enough = INT64_C(4) << 30;
    struct statvfs s;
    char buffer[32], free_text[32], speed[32];
    speeds measured = {0};
    if (statvfs(d->folder, &s) != 0) {
        TRY(doctor_found(d, f, "%s: %s", d->folder, strerror(errno)));
        return doctor_costs(d, f, DOCTOR_FAIL, "a run cannot write there; give another folder");
    }
    const char *type = type_of(d->folder, buffer);
    const int64_t left = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    TRY(doctor_found(d, f, "%s on %s, %s free", d->folder, type,
                     text_bytes_human(left, free_text)));
    if (folder_try(d, &measured) != ST_OK) {
        TRY(doctor_found(d, f, "not writable"));
        TRY(doctor_costs(d, f, DOCTOR_FAIL, "%s; give another folder", error_last()->text));
        error_clear();
        return ST_OK;
    }
    TRY(doctor_found(d, f, "write %s/s, fsync %.2g ms",
                     text_bytes_human((int64_t)measured.write_bytes_per_s, speed),
                     measured.fsync_s * 1e3));
    if (left < enough) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "checkpoints of a 124M model take 1.5 GiB each, and two are kept"));
    }
    if (strcmp(type, "tmpfs") == 0) {
        TRY(doctor_costs(d, f, DOCTOR_WARN, "it is memory: runs are lost at a restart"));
    }
    return ST_OK;
}

// ---- network ------------------------------------------------------------------------------------

typedef struct pair {
    int listener, a, b;
} pair;

static status system_failed(const char *what)
{
    return fail(ST_IO, "%s: %s", what, strerror(errno));
}

// Two ends of one loopback connection, in one thread: the kernel's queue accepts the connection.
static status pair_open(pair *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0};
    socklen_t length = sizeof(at);
    const int yes = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->listener < 0) return system_failed("socket");
    if (bind(p->listener, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        return system_failed("binding a port of 127.0.0.1");
    }
    if (listen(p->listener, 1) != 0) return system_failed("listening on 127.0.0.1");
    if (getsockname(p->listener, (struct sockaddr *)&at, &length) != 0) {
        return system_failed("asking for the port");
    }
    p->a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->a < 0) return system_failed("socket");
    if (connect(p->a, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        return system_failed("connecting to 127.0.0.1");
    }
    p->b = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    if (p->b < 0) return system_failed("accepting on 127.0.0.1");
    (void)setsockopt(p->a, IPPROTO_TCP, TCP_NODELAY, &yes,
                     sizeof(yes)); // without the option the trial is slower, but correct
    (void)setsockopt(p->b, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return ST_OK;
}

static void pair_close(const pair *p)
{
    const int fds[] = {p->a, p->b, p->listener};
    for (int64_t i = 0; i < COUNT_OF(fds); i++) {
        if (fds[i] >= 0) (void)close(fds[i]); // no unsent data
    }
}

static status round_trips(const doctor *d, const pair *p, double *trip_s)
{
    enum { TRIPS = 200 };
    const int64_t begin = d->cli->h->api->monotonic_ns(d->cli->h);
    char byte = 1;
    for (int i = 0; i < TRIPS; i++) {
        if (write(p->a, &byte, 1) != 1 || read(p->b, &byte, 1) != 1 || write(p->b, &byte, 1) != 1 ||
            read(p->a, &byte, 1) != 1) {
            return system_failed("a byte over the loopback");
        }
    }
    *trip_s = seconds_since(d, begin) / TRIPS;
    return ST_OK;
}

status doctor_network(const doctor *d, doctor_finding *f)
{
    pair p = {-1, -1, -1};
    double trip_s = 0.0;
    status st = pair_open(&p);
    if (st == ST_OK) st = round_trips(d, &p, &trip_s);
    pair_close(&p);
    if (st != ST_OK) {
        TRY(doctor_found(d, f, "%s", error_last()->text));
        TRY(doctor_costs(d, f, DOCTOR_FAIL, "processes of one run cannot communicate"));
        error_clear();
        return ST_OK;
    }
    return doctor_found(d, f, "loopback TCP, a port can be bound, there and back in %.0f us",
                        trip_s * 1e6);
}

// ---- between ranks -----------------------------------------------------------------------------

// Runs two ranks that add a buffer, as in a run, and reports the chosen transport and its speed.
static status ranks_try(const doctor *d, doctor_finding *f)
{
    comm_bench_config c = {.h = d->cli->h,
                           .ranks = 2,
                           .op = COLLECTIVE_ALL_REDUCE,
                           .type = DTYPE_F32,
                           .bytes = {1 << 20},
                           .count = 1};
    comm_bench_row row;
    if (comm_bench_run(&c, &row) != ST_OK) {
        TRY(doctor_found(d, f, "two ranks cannot communicate: %s", error_last()->text));
        error_clear();
        return doctor_costs(d, f, DOCTOR_WARN, "only one rank can train here (layout.dp=1)");
    }
    TRY(doctor_found(d, f, "two ranks add 1 MiB over %s at %.2g GB/s (%s%s)", row.transport,
                     (double)row.bytes / row.median_s / 1e9, row.algorithm,
                     row.staged ? ", staged" : ""));
    if (row.staged) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "peers cannot reach buffers in place: a copy more for each, about half "
                         "the speed"));
    }
    return ST_OK;
}

status doctor_comm(const doctor *d, doctor_finding *f)
{
    enum { PATHS_MAX = 8 };
    comm_path paths[PATHS_MAX];
    const int count = comm_paths(paths, PATHS_MAX);
    bool leaves_host = false;
    for (int i = 0; i < count; i++) {
        const char *not_there = paths[i].is_there ? "" : "not there: ";
        TRY(doctor_found(d, f, "%s: %s%s", paths[i].name, not_there, paths[i].words));
        if (paths[i].cost != NULL) {
            TRY(doctor_costs(d, f, DOCTOR_WARN, "%s", paths[i].cost));
        }
        leaves_host = leaves_host || (paths[i].hosts_apart && paths[i].is_there);
    }
    TRY(ranks_try(d, f));
    if (leaves_host) return ST_OK;
    TRY(doctor_found(d, f, "none between hosts"));
    return doctor_costs(d, f, DOCTOR_WARN, "all ranks of a run must be on this host");
}
