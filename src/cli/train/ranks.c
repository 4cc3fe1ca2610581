// `train` on several ranks.
//
//   trireme train run.yaml layout.dp=2
//     this process   prepares the data, makes the shared control block and the key, starts the
//                    ranks, forwards signals, shows rank 0's output, and at the end the error of
//                    the rank that failed first
//     rank 0, 1      run the same command line with a place in the environment: join over control,
//                    open comm over the shared control block, train
//
// Under torchrun, srun or mpirun there is no such parent: every process finds its place in its
// environment, and the job's key in the file that TRIREME_KEY names. Ranks of one host share a
// control block, and ranks of several hosts communicate over UCX.
#include "cli/train/ranks.h"

#include "base/hash.h"
#include "cli/diagnose/hang_report.h"
#include "cli/diagnose/post_mortem.h"
#include "cli/train/live.h"
#include "cli/train/restart.h"
#include "cli/train/run_log.h"
#include "cli/train/signals.h"
#include "cli/train/starved.h"
#include "comm/nccl/library.h"
#include "comm/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

status cli_ranks_place(launch_place *out)
{
    return launch_detect(cli_environment, NULL, out);
}

// ---- starting -----------------------------------------------------------------------------------

// The code of the table with this exit code; the text is the rank's own.
status cli_ranks_status(int exit_code)
{
    for (int st = 0; st < STATUS_COUNT; st++) {
        if (status_exit_code((status)st) == exit_code) return (status)st;
    }
    return ST_INTERNAL;
}

// Writes the flight recorders of all ranks for a later report. If the disk fails, only the report
// is lost.
static void dump(cli_context *cli, const run_config *r, const comm_control_block *control_block)
{
    text t = {.a = cli->a};
    char *folder = NULL, *path = NULL;
    status st = cli_hang_report(control_block, &t);
    if (st == ST_OK) st = path_join(cli->a, r->run.dir, "dumps", &folder);
    if (st == ST_OK) st = cli->h->api->path_mkdir(cli->h, folder);
    if (st == ST_OK) {
        st = arena_format(cli->a, &path, "%s/hang-%lld.txt", folder,
                          (long long)(cli->h->api->unix_ns(cli->h) / 1000000000));
    }
    if (st == ST_OK) st = host_write_all(cli->h, path, t.bytes != NULL ? t.bytes : "", t.length);
    if (st != ST_OK) error_clear();
}

// This command's arguments, and `keys`.
static status arguments_make(cli_context *cli, const char *const *keys, int64_t key_count,
                             char ***out)
{
    int64_t count = 0;
    while (cli->argv[count] != NULL) count++;
    TRY(arena_new(cli->a, count + key_count + 1, out));
    for (int64_t i = 0; i < count; i++) (*out)[i] = cli->argv[i];
    for (int64_t i = 0; i < key_count; i++) TRY(arena_strdup(cli->a, keys[i], &(*out)[count + i]));
    return ST_OK;
}

// Ends this process as the second ^C ended its ranks.
static void interrupt(cli_context *cli, const run_config *r)
{
    train_end_write(cli->h, cli->a, r->run.dir, TRAIN_END_WRITER_FIRST, "failed", 128 + SIGINT,
                    RUN_LOG_QUIT);
    cli_push(cli);
    (void)signal(SIGINT, SIG_DFL);
    (void)raise(SIGINT);
}

// Starts the ranks once and waits for their end.
static status start_once(cli_context *cli, const run_config *r, char *const *arguments,
                         launch_result *result, comm_control_block **control_block)
{
    char *logs = NULL;
    uint64_t job = 0;
    post_mortem *last = NULL;
    const int ranks = (int)run_config_ranks(r);
    TRY(path_join(cli->a, r->run.dir, "logs", &logs));
    TRY(cli->h->api->path_mkdir(cli->h, logs));
    TRY(cli->h->api->random_fill(cli->h, &job, (int64_t)sizeof(job)));
    TRY(comm_control_block_create(ranks, job, 0, control_block));
    const launch_local_config c = {.h = cli->h,
                                   .ranks = ranks,
                                   .program = "/proc/self/exe",
                                   .argv = arguments,
                                   .environment = environ,
                                   .job = job,
                                   .log_folder = logs,
                                   .console_fd = STDOUT_FILENO,
                                   .control_block_fd = comm_control_block_fd(*control_block)};
    TRY(post_mortem_start(cli->h, r->run.dir, *control_block, &last));
    const status st = launch_local(&c, result);
    post_mortem_stop(last, false); // now dump() has the whole
    return st;
}

// Starts the ranks, again after a loss if the configuration says so.
static status start_all(cli_context *cli, const cli_start *order, char *const *arguments,
                        launch_result *result, comm_control_block **control_block)
{
    const run_config *r = order->r;
    cli_restart restart;
    bool again = r->resilience.mode != RUN_RESILIENCE_LIVE;
    TRY(cli_restart_open(cli, r, arguments, order->place == NULL, &restart));
    status st = again ? ST_OK : cli_live_start(&restart, order, result, control_block);
    while (again && st == ST_OK) {
        comm_control_block_unmap(*control_block);
        *control_block = NULL;
        st = start_once(cli, r, cli_restart_arguments(&restart), result, control_block);
        if (st == ST_OK) st = cli_restart_again(&restart, result, &again);
    }
    const int code = result->exit_code;
    const bool is_saved = code == 0 || code == status_exit_code(ST_STOPPED);
    cli_restart_close(&restart, st == ST_OK && is_saved && !result->is_interrupted);
    return st;
}

// Reports the end of the ranks to the run's folder.
static status end_tell(cli_context *cli, const run_config *r, const launch_result *result,
                       train_end_writer writer, const comm_control_block *control_block)
{
    if (result->is_interrupted) interrupt(cli, r);
    if (result->exit_code == 0) return ST_OK;
    const bool has_block = control_block != NULL; // the ranks of several hosts make their own
    if (has_block && result->exit_code != status_exit_code(ST_STOPPED)) dump(cli, r, control_block);
    // Rank 0 has written STATUS if it ended by its own error, but for one before its session.
    const bool is_own = result->rank <= 0 && result->ended_by == 0;
    if (is_own && result->exit_code != status_exit_code(ST_STOPPED)) {
        writer = TRAIN_END_WRITER_LAUNCHER;
    }
    if (!is_own || writer == TRAIN_END_WRITER_LAUNCHER) {
        train_end_write(cli->h, cli->a, r->run.dir, writer, "failed", result->exit_code,
                        result->text);
    }
    return fail(cli_ranks_status(result->exit_code), "%s", result->text);
}

static status prepare(cli_context *cli, const cli_start *order)
{
    if (order->runs == NULL) return train_prepare(cli->h, cli->a, order->r);
    for (int64_t i = 0; i < order->run_count; i++) {
        TRY(train_prepare(cli->h, cli->a, order->runs[i]));
    }
    return ST_OK;
}

status cli_ranks_start(cli_context *cli, const cli_start *order)
{
    const run_config *r = order->r;
    char **arguments = NULL;
    comm_control_block *control_block = NULL;
    launch_result result = {.rank = -1};
    const int64_t wanted = run_config_ranks(r);
    if (wanted > LAUNCH_LOCAL_MAX) {
        return fail(ST_UNSUPPORTED,
                    "the layout needs %lld ranks, but on one machine at most %d are started; for "
                    "several machines use torchrun, srun or mpirun",
                    (long long)wanted, LAUNCH_LOCAL_MAX);
    }
    TRY(arguments_make(cli, order->found, order->found_count, &arguments));
    const bool is_first = order->place == NULL || order->place->rank == 0;
    const train_end_writer writer = is_first ? TRAIN_END_WRITER_FIRST : TRAIN_END_WRITER_OTHER;
    // On several hosts the others wait for the first one.
    status st = is_first ? prepare(cli, order) : ST_OK;
    if (st == ST_OK) st = start_all(cli, order, arguments, &result, &control_block);
    if (st == ST_OK) {
        st = end_tell(cli, r, &result, writer, control_block);
    } else {
        train_end_write(cli->h, cli->a, r->run.dir, writer, st == ST_STOPPED ? "stopped" : "failed",
                        status_exit_code(st), error_last()->text);
    }
    comm_control_block_unmap(control_block);
    return st;
}

// ---- a rank -------------------------------------------------------------------------------------

struct cli_ranks {
    launch_job job;
    launch_liveness *liveness;
    comm_control_block *control_block;
    post_mortem *last; // under another's launcher, in the first rank of a host
    int rank, ranks;
    control_limits limits; // of the failure detector
    pthread_mutex_t lock;  // guards the fields below, which control's thread reads and writes
    train_progress progress;
    starved turn; // of control's thread alone
    comm *c;
    const char *transport;
    nccl_library nccl;
    bool has_nccl, has_peers;
    const char *tuning; // contents of the file of comm.tuning
    FILE *err;
    int refusals_told; // by the coordinator's thread alone
    atomic_bool has_peer_failed;
    status lost_code; // of the coordinator, before all ranks have joined
    bool lost;        // a notice came before there was an operation to abort
    char why[1024];
};

// A peer is lost: aborts all waits for it.
static void on_notice(void *context, const control_notice *n)
{
    cli_ranks *k = context;
    if (n->kind != CONTROL_NOTE_VERDICT && n->kind != CONTROL_NOTE_FAILED) return;
    if (n->kind == CONTROL_NOTE_VERDICT && n->verdict == CONTROL_SLOW) return;
    (void)pthread_mutex_lock(&k->lock);
    if (!k->lost) {
        k->lost = true;
        (void)snprintf(k->why, sizeof(k->why), "%.*s", (int)sizeof(k->why) - 1, n->text);
        if (k->c != NULL) {
            comm_abort(k->c, ST_PEER_LOST, k->why);
        } else if (k->control_block != NULL) { // comm_open() waits for the other ranks of this host
            comm_control_block_abort(k->control_block, ST_PEER_LOST, k->why);
        }
    }
    (void)pthread_mutex_unlock(&k->lock);
}

// Rank 0: the coordinator refused a process. It is told at once, while this rank may still wait for
// the others. Strangers can cause many refusals, so only the first ones are told.
static void on_coordinator_notice(void *context, const control_notice *n)
{
    enum { TOLD_MAX = 8 };
    cli_ranks *k = context;
    if (n->kind == CONTROL_NOTE_FAILED && n->rank == CONTROL_COORDINATOR) {
        (void)pthread_mutex_lock(&k->lock);
        k->lost = true;
        k->lost_code = n->code;
        (void)snprintf(k->why, sizeof(k->why), "%.*s", (int)sizeof(k->why) - 1, n->text);
        (void)pthread_mutex_unlock(&k->lock);
    }
    if (n->kind != CONTROL_NOTE_REFUSED || k->refusals_told >= TOLD_MAX) return;
    k->refusals_told++;
    (void)fprintf(k->err, "warning  %s\n", n->text);
    (void)fflush(k->err);
}

void cli_ranks_progress(void *ranks, const train_progress *p)
{
    cli_ranks *k = ranks;
    (void)pthread_mutex_lock(&k->lock);
    k->progress = *p;
    (void)pthread_mutex_unlock(&k->lock);
}

// Finds the ranks that this rank waits for.
static void edges_find(const cli_ranks *k, control_report *out)
{
    comm_awaited awaited[CONTROL_EDGES_MAX];
    out->edge_count = comm_waits_for(k->c, awaited, CONTROL_EDGES_MAX);
    for (int i = 0; i < out->edge_count; i++) {
        out->edges[i] = (control_edge){
            .rank = awaited[i].rank, .group = awaited[i].group, .operation = awaited[i].operation};
    }
}

// Fills in the next heartbeat.
static void report(void *context, control_report *out)
{
    cli_ranks *k = context;
    (void)pthread_mutex_lock(&k->lock);
    out->step = k->progress.step;
    out->counter = k->progress.counter;
    out->step_ns = k->progress.step_ns;
    (void)snprintf(out->doing, sizeof(out->doing), "%s",
                   k->progress.doing != NULL ? k->progress.doing : "starting");
    if (k->c != NULL) edges_find(k, out);
    (void)pthread_mutex_unlock(&k->lock);
    // No progress because others have the processors proves nothing.
    cli_starved_look(&k->turn, out->counter);
    const control_limits *l = &k->limits;
    const int64_t limit_ns = l->stuck_ns + (int64_t)(l->stuck_steps * (double)out->step_ns);
    if (out->edge_count == 0 && cli_starved_is_excused(&k->turn, limit_ns)) out->step_ns = 0;
}

// While ranks join: a stop signal, or the end of another rank, which the launcher reports.
static status cancelled(void *context)
{
    cli_ranks *k = context;
    (void)pthread_mutex_lock(&k->lock);
    const status lost = k->lost ? k->lost_code : ST_OK;
    (void)pthread_mutex_unlock(&k->lock);
    if (lost != ST_OK) return fail(lost, "%s", k->why);
    if (atomic_load(&k->has_peer_failed)) {
        return fail(ST_PEER_LOST, "another rank ended before all ranks had joined");
    }
    if (!cli_signals_asked()) return ST_OK;
    return fail(ST_STOPPED, "%s before all ranks had joined; nothing is lost", cli_signals_name());
}

// While ranks wait for NCCL's start: the same, and a signal to stop ends nothing that was trained.
static status start_cancelled(void *context)
{
    cli_ranks *k = context;
    if (atomic_load(&k->has_peer_failed)) return fail(ST_PEER_LOST, "another rank ended");
    if (!cli_signals_asked()) return ST_OK;
    return fail(ST_STOPPED, "%s while NCCL started; nothing is lost", cli_signals_name());
}

static const char *host_of(void *context, int rank)
{
    const cli_ranks *k = context;
    return control_peer_of(k->job.c, rank)->host;
}

static void on_peer_failure(void *context)
{
    cli_ranks *k = context;
    atomic_store(&k->has_peer_failed, true);
}

// No parent can forward signals now, so the rank acts as if one had come.
static void on_launcher_gone(void *context)
{
    (void)context;
    (void)kill(getpid(), SIGTERM);
}

// Facts that must be equal on all ranks: the program, and every key that the result or the layout
// depends on.
status cli_ranks_facts(cli_context *cli, const run_config *r, const char *tuning,
                       control_fact **out, int64_t *count)
{
    static const char *const free_keys[] = {"kernels.threads", "memory.limit", "log.every",
                                            "log.format",      "trace.steps",  "comm.tuning"};
    const option_table *t = &run_config_table;
    control_fact *facts = NULL;
    int64_t n = 0;
    char *sum = NULL;
    TRY(arena_new(cli->a, t->count + 3, &facts));
    facts[n++] = (control_fact){CONTROL_BUILD, "trireme", TRIREME_VERSION};
    facts[n++] = (control_fact){CONTROL_NUMERICS, "kernels of the machine", kern_level_highest()};
    if (tuning != NULL) {
        const uint64_t hash = hash64(tuning, (int64_t)strlen(tuning), 0);
        TRY(arena_format(cli->a, &sum, "a table with checksum %016llx", (unsigned long long)hash));
        facts[n++] = (control_fact){CONTROL_CONFIG, "contents of comm.tuning", sum};
    }
    for (int64_t i = 0; i < t->count && r != NULL; i++) {
        bool is_free = false;
        for (int64_t k = 0; k < COUNT_OF(free_keys); k++) {
            is_free = is_free || strcmp(t->rows[i].key, free_keys[k]) == 0;
        }
        if (is_free) continue;
        text value = {.a = cli->a};
        TRY(option_print(&t->rows[i], r, &value));
        facts[n++] =
            (control_fact){CONTROL_CONFIG, t->rows[i].key, value.bytes != NULL ? value.bytes : ""};
    }
    *out = facts;
    *count = n;
    return ST_OK;
}

// The ranks of this machine: this rank's index among them, their number, and the first rank.
typedef struct neighbours {
    int here, count, first;
} neighbours;

static neighbours neighbours_find(const control *c)
{
    const int rank = control_rank(c);
    const uint64_t machine = control_peer_of(c, rank)->machine;
    neighbours n = {.first = rank};
    if (machine == 0) return (neighbours){.count = 1, .first = rank};
    for (int i = control_ranks(c) - 1; i >= 0; i--) {
        if (control_peer_of(c, i)->machine != machine) continue;
        n.first = i;
        n.count++;
        n.here += i < rank;
    }
    return n;
}

// Ranks of an external launcher: maps the control block of the first rank on each host, by its
// descriptor in that process. *out may be set on failure too.
static status control_block_share(const cli_ranks *k, const launch_place *place,
                                  const neighbours *n, comm_control_block **out)
{
    typedef struct where {
        int64_t process;
        int32_t fd, failed;
    } where;
    where mine = {.fd = -1};
    status st = ST_OK;
    where *all = calloc((size_t)place->ranks, sizeof(*all));
    if (all == NULL)
        return fail(ST_NO_MEMORY, "no memory for the places of %d ranks", place->ranks);
    if (n->count > LAUNCH_LOCAL_MAX) {
        st = fail(ST_UNSUPPORTED, "%d ranks on one host, at most %d", n->count, LAUNCH_LOCAL_MAX);
    } else if (place->rank == n->first) {
        st = comm_control_block_create(n->count, place->job, 0, out);
        mine.process = (int64_t)getpid();
        mine.fd = st == ST_OK ? comm_control_block_fd(*out) : -1;
    }
    mine.failed = st != ST_OK;
    const status swapped = control_swap(k->job.c, &mine, (int64_t)sizeof(mine), all);
    const where first = all[n->first];
    free(all);
    TRY(swapped);
    TRY(st);
    if (place->rank != n->first && first.failed == 0) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)first.process, first.fd);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return fail(ST_IO, "rank %d's control block %s: %s", n->first, path, strerror(errno));
        st = comm_control_block_map(fd, out); // the mapping keeps its own descriptor
        (void)close(fd);
        TRY(st);
    }
    // The first rank keeps it until all have mapped it.
    return control_barrier(k->job.c);
}

static status swap(void *context, const control_group *g, const void *mine, int64_t bytes,
                   void *all)
{
    return control_group_swap(context, g, mine, bytes, all);
}

static status comm_join(cli_context *cli, const run_config *r, const launch_place *place,
                        cli_ranks *k)
{
    const neighbours n = neighbours_find(k->job.c);
    const control_peer *self = control_peer_of(k->job.c, place->rank);
    comm_control_block *b = NULL;
    const status shared = place->control_block_fd >= 0
                              ? comm_control_block_map(place->control_block_fd, &b)
                              : control_block_share(k, place, &n, &b);
    (void)pthread_mutex_lock(&k->lock);
    k->control_block = b;
    const bool is_lost = k->lost;
    (void)pthread_mutex_unlock(&k->lock);
    TRY(shared);
    if (r != NULL && place->control_block_fd < 0 && n.here == 0) {
        TRY(post_mortem_start(cli->h, r->run.dir, b, &k->last));
    }
    if (is_lost) return fail(ST_PEER_LOST, "%s", k->why);
    const comm_config wanted = {.h = cli->h,
                                .job = place->job,
                                .epoch = place->epoch,
                                .rank = place->rank,
                                .ranks = place->ranks,
                                .local_rank = n.here,
                                .local_ranks = n.count,
                                .transport = k->transport,
                                .tuning = k->tuning,
                                .control_block = k->control_block,
                                .nccl = k->has_nccl ? &k->nccl : NULL,
                                .cancelled = start_cancelled,
                                .host_of = host_of,
                                .watch_context = k,
                                .peer = k->has_peers,
                                .machine = self->machine,
                                .host = self->host,
                                .swap = swap,
                                .swap_context = k->job.c};
    comm *c = NULL;
    const status st = comm_open(&wanted, &c);
    if (st != ST_OK && k->tuning != NULL) note("while using the table of comm.tuning");
    TRY(st);
    (void)pthread_mutex_lock(&k->lock);
    k->c = c;
    if (k->lost) comm_abort(c, ST_PEER_LOST, k->why);
    (void)pthread_mutex_unlock(&k->lock);
    return ST_OK;
}

static status tuning_read(cli_context *cli, const run_config *r, const char **out)
{
    enum { LIMIT_BYTES = 1 << 20 };
    char *bytes = NULL;
    int64_t count = 0;
    if (r == NULL || r->comm.tuning == NULL) return ST_OK;
    TRY(host_read_text(cli->h, cli->a, r->comm.tuning, LIMIT_BYTES, &bytes, &count));
    *out = bytes;
    return ST_OK;
}

static status join(cli_context *cli, const run_config *r, const launch_place *place, cli_ranks *k)
{
    static const int64_t grace_ns = INT64_C(120) * 1000000000;
    // Added to three usual steps. Another tenant on the same core can delay a rank by more than the
    // half second that suits dedicated machines.
    static const int64_t stuck_ns = INT64_C(1500000000);
    control_fact *facts = NULL;
    int64_t count = 0;
    if (place->liveness_fd >= 0) {
        const launch_liveness_config l = {.on_end = on_launcher_gone,
                                          .grace_ns = grace_ns,
                                          .on_failure = on_peer_failure,
                                          .context = k};
        TRY(launch_liveness_start(place->liveness_fd, &l, &k->liveness));
    }
    if (place->local_ranks > 1) kern_cores_divide(place->local_rank, place->local_ranks);
    k->limits = (control_limits){.stuck_ns = stuck_ns};
    control_limits_complete(&k->limits);
    TRY(tuning_read(cli, r, &k->tuning));
    TRY(cli_ranks_facts(cli, r, k->tuning, &facts, &count));
    const launch_join_config c = {.h = cli->h,
                                  .place = place,
                                  .key_path = getenv("TRIREME_KEY"),
                                  .epoch = place->epoch,
                                  .facts = facts,
                                  .fact_count = count,
                                  .limits = k->limits,
                                  .report = report,
                                  .on_notice = on_notice,
                                  .cancelled = cancelled,
                                  .on_coordinator_notice = on_coordinator_notice,
                                  .context = k};
    TRY(launch_join(&c, &k->job));
    return comm_join(cli, r, place, k);
}

status cli_ranks_join(cli_context *cli, const run_config *r, const char *transport,
                      const launch_place *place, cli_ranks **out)
{
    static const char *const names[RUN_TRANSPORTS] = {"auto", "shm", "ucx", "mpi", "auto", "auto"};
    cli_ranks *k = NULL;
    TRY(arena_new(cli->a, 1, &k));
    k->transport = transport != NULL ? transport : names[r != NULL ? r->comm.transport : 0];
    if (transport == NULL && r != NULL && r->comm.transport == RUN_TRANSPORT_NCCL) {
        TRY(nccl_library_open(&k->nccl));
        k->has_nccl = true;
    }
    k->has_peers = transport == NULL && r != NULL && r->comm.transport == RUN_TRANSPORT_PEER;
    k->err = cli->err;
    k->rank = place->rank;
    k->ranks = place->ranks;
    if (pthread_mutex_init(&k->lock, NULL) != 0) return fail(ST_NO_MEMORY, "no memory for a lock");
    const status st = join(cli, r, place, k);
    if (st == ST_OK) {
        *out = k;
    } else {
        cli_ranks_leave(k, st);
    }
    return st;
}

// Under launch_live the launcher's byte asks for the end of the epoch.
bool cli_ranks_change_asked(void *ranks)
{
    cli_ranks *k = ranks;
    return atomic_load(&k->has_peer_failed);
}

comm *cli_ranks_comm(const cli_ranks *k)
{
    return k->c;
}

status cli_ranks_first(const cli_ranks *k, arena *a, char **out)
{
    *out = NULL;
    if (k == NULL || k->job.c == NULL) return ST_OK;
    const control_peer *first = control_peer_of(k->job.c, 0);
    return arena_format(a, out, "%s:%lld", first->host, (long long)first->pid);
}

// Tells the ranks of this host about a failure at once, whatever they wait for, before they see
// this process end.
static void tell_host(const cli_ranks *k, status st, const char *said)
{
    char why[1024];
    const bool is_shared = st == ST_PEER_LOST || st == ST_TIMEOUT || st == ST_DIVERGED;
    if (k->control_block == NULL) return;
    if (is_shared) { // all ranks share the error
        (void)snprintf(why, sizeof(why), "%.1000s", said);
    } else {
        (void)snprintf(why, sizeof(why), "rank %d failed: %.990s", k->rank, said);
    }
    comm_control_block_abort(k->control_block, is_shared ? st : ST_PEER_LOST, why);
}

void cli_ranks_leave(cli_ranks *k, status st)
{
    if (k == NULL) return;
    error_record kept;
    error_take(&kept);
    const bool failed = st != ST_OK && st != ST_STOPPED;
    if (failed) tell_host(k, st, kept.text);
    if (failed && k->job.c != NULL) control_fail(k->job.c, st, kept.text);
    (void)pthread_mutex_lock(&k->lock);
    comm *c = k->c;
    k->c = NULL;
    (void)pthread_mutex_unlock(&k->lock);
    comm_close(c);
    launch_leave(&k->job);
    launch_liveness_stop(k->liveness);
    post_mortem_stop(k->last, failed);
    comm_control_block_unmap(k->control_block);
    (void)pthread_mutex_destroy(&k->lock);
    (void)error_put(&kept);
}
