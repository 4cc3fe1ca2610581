// Facts that Linux reports about the machine, without opening a device.
#include "cli/doctor/doctor.h"
#include "kernels/kernels.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

// ---- findings -----------------------------------------------------------------------------------

static status text_of(const doctor *d, const char *before, const char *format, va_list args,
                      const char **out) PRINTF_LIKE(3, 0);
static status text_of(const doctor *d, const char *before, const char *format, va_list args,
                      const char **out)
{
    char line[1024], *copy = NULL;
    (void)vsnprintf(line, sizeof(line), format, args);
    TRY(arena_format(d->cli->a, &copy, "%s%s%s", before == NULL ? "" : before,
                     before == NULL ? "" : ", ", line));
    *out = copy;
    return ST_OK;
}

status doctor_found(const doctor *d, doctor_finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const status st = text_of(d, f->found, format, args, &f->found);
    va_end(args);
    return st;
}

status doctor_costs(const doctor *d, doctor_finding *f, doctor_level level, const char *format, ...)
{
    const char *cost = NULL;
    va_list args;
    va_start(args, format);
    const status st = text_of(d, NULL, format, args, &cost);
    va_end(args);
    if (f->cost == NULL || level > f->level) f->cost = cost;
    if (level > f->level) f->level = level;
    return st;
}

void doctor_file(const char *path, char *out, int64_t bytes)
{
    out[0] = '\0';
    FILE *f = fopen(path, "re");
    if (f == NULL) return;
    const size_t got = fread(out, 1, (size_t)bytes - 1, f);
    out[got] = '\0';
    (void)fclose(f); // the file was only read
}

// Counts the entries of a kernel folder whose name is `begin` and a number.
int doctor_entries(const char *folder, const char *begin)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) return 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const size_t n = strlen(begin);
        if (strncmp(e->d_name, begin, n) == 0 && isdigit((unsigned char)e->d_name[n])) count++;
    }
    (void)closedir(dir); // the folder was only read
    return count;
}

// ---- processor ----------------------------------------------------------------------------------

static bool cpu_has(const char *flags, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(flags, name); at != NULL; at = strstr(at + n, name)) {
        if (at[-1] == ' ' && (at[n] == ' ' || at[n] == '\n' || at[n] == '\0')) return true;
    }
    return false;
}

status doctor_cpu(const doctor *d, doctor_finding *f)
{
    static const char *const wanted[] = {"avx2",        "fma",      "f16c",     "avx512f",
                                         "avx512_bf16", "amx_tile", "amx_bf16", "asimd"};
    char info[8192], quota[64];
    text flags = {.a = d->cli->a};
    double whole = 0.0, period = 0.0;
    const int cores = kern_core_count();
    const char *level = kern_level_default();
    doctor_file("/proc/cpuinfo", info, sizeof(info));
    for (int64_t i = 0; i < COUNT_OF(wanted); i++) {
        if (cpu_has(info, wanted[i])) TRY(text_add(&flags, " %s", wanted[i]));
    }
    TRY(doctor_found(d, f, "%d core%s, level %s (has%s)", cores, text_plural(cores, "s"), level,
                     flags.length > 0 ? flags.bytes : " none of ours"));
    TRY(doctor_product_try(d, f));
    if (!kern_machine_has_avx2()) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "without vector code a step takes 5 to 20 times longer"));
    }
    doctor_file("/sys/fs/cgroup/cpu.max", quota, sizeof(quota));
    if (sscanf(quota, "%lf %lf", &whole, &period) == 2 && period > 0.0 && whole / period < cores) {
        TRY(doctor_found(d, f, "the control group gives %.1f", whole / period));
        TRY(doctor_costs(d, f, DOCTOR_WARN, "threads beyond that wait; set kernels.threads=%d",
                         (int)max_i64(1, (int64_t)(whole / period))));
    }
    return ST_OK;
}

status doctor_onednn(const doctor *d, doctor_finding *f)
{
    int version[3] = {0};
    if (!kern_onednn_version(version)) {
        TRY(doctor_found(d, f, "not built in"));
        return doctor_costs(
            d, f, DOCTOR_WARN,
            "large GEMMs may be slower where Trireme's own kernels have no code for this "
            "processor; the results are equally correct");
    }
    TRY(doctor_found(d, f, "%d.%d.%d", version[0], version[1], version[2]));
    return ST_OK;
}

// ---- memory -------------------------------------------------------------------------------------

status doctor_memory(const doctor *d, doctor_finding *f)
{
    char limit[64], human[32];
    const int64_t available = host_memory_bytes(d->cli->h);
    const int nodes = doctor_entries("/sys/devices/system/node", "node");
    if (available == 0) {
        TRY(doctor_found(d, f, "not known"));
        return doctor_costs(
            d, f, DOCTOR_WARN,
            "a run that does not fit is detected only when it fails; set memory.limit");
    }
    TRY(doctor_found(d, f, "%s free", text_bytes_human(available, human)));
    doctor_file("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
    if (isdigit((unsigned char)limit[0])) {
        const int64_t bytes = strtoll(limit, NULL, 10);
        TRY(doctor_found(d, f, "control group limit %s", text_bytes_human(bytes, human)));
    } else {
        TRY(doctor_found(d, f, "no control group limit"));
    }
    TRY(doctor_found(d, f, "%d NUMA node%s", (int)max_i64(1, nodes), nodes > 1 ? "s" : ""));
    TRY(doctor_memory_try(d, f));
    if (available < INT64_C(1) << 30) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "a 124M model needs about 3 GiB; this is enough for tiny models"));
    }
    if (nodes > 1) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "memory of another node is slower; use one process per node under numactl "
                         "--cpunodebind --membind"));
    }
    return ST_OK;
}

// ---- clock, limits ------------------------------------------------------------------------------

status doctor_clock(const doctor *d, doctor_finding *f)
{
    enum { LOOKS = 1000 };
    static const int64_t year_2024_s = 1704067200;
    const host *h = d->cli->h;
    int64_t before = h->api->monotonic_ns(h), step = INT64_MAX;
    for (int i = 0; i < LOOKS; i++) {
        const int64_t now = h->api->monotonic_ns(h);
        if (now < before) {
            TRY(doctor_found(d, f, "the monotonic clock went back by %lld ns",
                             (long long)(before - now)));
            return doctor_costs(d, f, DOCTOR_FAIL, "times, rates and deadlines would be wrong");
        }
        if (now > before) step = min_i64(step, now - before);
        before = now;
    }
    TRY(doctor_found(d, f, "monotonic, steps of %lld ns", (long long)step));
    if (h->api->unix_ns(h) / 1000000000 < year_2024_s) {
        TRY(doctor_found(d, f, "the time of day is before 2024"));
        return doctor_costs(d, f, DOCTOR_WARN, "logs and events have wrong times");
    }
    struct timex state = {.modes = 0}; // only a query
    const int sync = adjtimex(&state);
    return doctor_found(d, f,
                        sync >= 0 && sync != TIME_ERROR
                            ? "kept by a time server"
                            : "not kept by a time server (logs of several nodes may not align)");
}

static const char *limit_text(rlim_t value, bool is_bytes, char buffer[32])
{
    if (value == RLIM_INFINITY) return "unlimited";
    if (is_bytes) return text_bytes_human((int64_t)value, buffer);
    (void)snprintf(buffer, 32, "%llu", (unsigned long long)value);
    return buffer;
}

status doctor_limits(const doctor *d, doctor_finding *f)
{
    enum { FILES_WANTED = 1024 };
    struct rlimit files, locked;
    struct statvfs shm;
    char buffer[32];
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_MEMLOCK, &locked) != 0) {
        return doctor_found(d, f, "not known");
    }
    TRY(doctor_found(d, f, "nofile %s", limit_text(files.rlim_cur, false, buffer)));
    TRY(doctor_found(d, f, "memlock %s", limit_text(locked.rlim_cur, true, buffer)));
    if (files.rlim_cur < FILES_WANTED) {
        TRY(doctor_costs(d, f, DOCTOR_WARN, "a data set of many shards may not open; ulimit -n %d",
                         FILES_WANTED));
    }
    if (statvfs("/dev/shm", &shm) != 0) {
        TRY(doctor_found(d, f, "no /dev/shm"));
        return doctor_costs(d, f, DOCTOR_WARN, "MPI and NCCL on one host need it");
    }
    const int64_t bytes = (int64_t)shm.f_blocks * (int64_t)shm.f_frsize;
    TRY(doctor_found(d, f, "shm %s", text_bytes_human(bytes, buffer)));
    if (bytes < INT64_C(64) << 20) {
        TRY(doctor_costs(d, f, DOCTOR_WARN, "MPI and NCCL on one host need 64 MiB or more"));
    }
    return ST_OK;
}

// ---- programs -----------------------------------------------------------------------------------

// The first folder of PATH that has the program, or NULL.
static status program_find(const doctor *d, const char *name, const char **out)
{
    const char *at = getenv("PATH");
    *out = NULL;
    while (at != NULL && *at != '\0') {
        char *path = NULL;
        const size_t length = strcspn(at, ":");
        TRY(arena_format(d->cli->a, &path, "%.*s/%s", (int)length, at, name));
        if (access(path, X_OK) == 0) {
            *out = path;
            return ST_OK;
        }
        at += length + (at[length] == ':');
    }
    return ST_OK;
}

typedef struct program {
    const char *name, *cost; // cost: of a missing program, or NULL
} program;

static status programs_find(const doctor *d, doctor_finding *f, const program *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *path = NULL;
        TRY(program_find(d, rows[i].name, &path));
        TRY(doctor_found(d, f, "%s %s", rows[i].name, path == NULL ? "none" : "there"));
        if (path == NULL && rows[i].cost != NULL) {
            TRY(doctor_costs(d, f, DOCTOR_WARN, "%s", rows[i].cost));
        }
    }
    return ST_OK;
}

// A run on one host needs no launcher.
status doctor_launchers(const doctor *d, doctor_finding *f)
{
    static const program rows[] = {{"mpirun", NULL}, {"srun", NULL}, {"kubectl", NULL}};
    return programs_find(d, f, rows, COUNT_OF(rows));
}

status doctor_tools(const doctor *d, doctor_finding *f)
{
    static const program rows[] = {
        {"tensorboard",
         "runs write events in any case; view them on another machine, or read metrics.jsonl"},
        {"python3", "only tools/ needs it; training does not"}};
    return programs_find(d, f, rows, COUNT_OF(rows));
}
