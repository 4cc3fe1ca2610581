// The launcher's side of resilience.mode = live: the layout of each epoch, what its ranks are told,
// and the socket at which processes join.
#include "cli/train/live.h"

#include "base/text.h"
#include "cli/diagnose/post_mortem.h"
#include "cli/train/shrink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct live_run {
    cli_context *cli;
    cli_restart *k;
    const cli_start *order;
    comm_control_block **control_block; // of this epoch
    post_mortem *last;
    int64_t ranks; // of this epoch; 0: none yet
    int refused;   // processes for which no layout has ranks enough; 0: not asked
} live_run;

// ---- the socket at which processes join ---------------------------------------------------------

static status join_open(live_run *v, int *out)
{
    char *path = NULL, *line = NULL;
    uint64_t name = 0;
    const host *h = v->cli->h;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    TRY(h->api->random_fill(h, &name, (int64_t)sizeof(name)));
    TRY(arena_format(v->cli->a, &line, "@trireme-join-%016llx\n", (unsigned long long)name));
    const size_t length = strlen(line) - 1;
    memcpy(to.sun_path + 1, line + 1, length - 1); // sun_path[0] = 0: abstract, it leaves no file
    TRY(path_join(v->cli->a, v->order->r->run.dir, "join", &path));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&to, bytes) != 0 || listen(fd, 16) != 0) {
        const status st = fail(ST_IO, "a socket for ranks that join: %s%s", strerror(errno),
                               host_limit_remedy(errno));
        if (fd >= 0) (void)close(fd);
        return st;
    }
    const status st = host_write_all(h, path, line, (int64_t)strlen(line));
    if (st == ST_OK) {
        *out = fd;
        return chmod(path, 0600) == 0 ? ST_OK : fail(ST_IO, "%s: %s", path, strerror(errno));
    }
    (void)close(fd);
    return st;
}

static void join_close(live_run *v, int fd)
{
    char *path = NULL;
    error_record kept;
    error_take(&kept);
    if (fd >= 0) (void)close(fd);
    if (path_join(v->cli->a, v->order->r->run.dir, "join", &path) == ST_OK)
        (void)v->cli->h->api->path_remove(v->cli->h, path);
    (void)error_put(&kept);
}

// ---- an epoch -----------------------------------------------------------------------------------

static const char *const events[] = {[LAUNCH_BEGIN] = "",
                                     [LAUNCH_LOST] = "lost",
                                     [LAUNCH_WRONG] = "sdc",
                                     [LAUNCH_JOINED] = "joined"};

// The sentence for people: who has the places now.
static status done_print(const live_run *v, const launch_change *c, const cli_layout *l, char **out)
{
    text t = {.a = v->cli->a};
    const int64_t full = run_config_ranks(v->order->r);
    if (l->ranks == v->ranks && l->ranks == full) {
        const bool is_whole = c->event == LAUNCH_WRONG || c->filler == NULL; // no rank has ended
        TRY(is_whole ? text_add(&t, "all ranks live on")
                     : text_add(&t, "the others live on, and %s takes the place", c->filler));
    } else {
        TRY(text_add(&t, "%lld rank%s in place of %lld: %s", (long long)l->ranks,
                     text_plural(l->ranks, "s"), (long long)v->ranks, l->words));
    }
    if (l->unused > 0) {
        TRY(text_add(&t, ", the nearest layout of at most %lld ranks", (long long)c->available));
    }
    *out = t.bytes;
    return ST_OK;
}

static status loss_print(live_run *v, const launch_change *c, const cli_layout *l, char **out)
{
    const host *h = v->cli->h;
    const int64_t ago_ns = h->api->monotonic_ns(h) - c->at;
    char *done = NULL, *cause = NULL;
    if (v->k->epoch == 0) return arena_strdup(v->cli->a, "", out);
    TRY(done_print(v, c, l, &done));
    TRY(arena_format(v->cli->a, &cause, "%.*s", (int)strcspn(c->cause, "\n"), c->cause));
    for (char *at = done; *at != '\0'; at++) {
        if (*at == '|') *at = '/';
    }
    const train_restart lost = {.epoch = v->k->epoch,
                                .event = events[c->event],
                                .rank = c->rank,
                                .lost_ns = h->api->unix_ns(h) - ago_ns,
                                .detect_ms = (double)ago_ns / 1e6,
                                .living = c->filler != NULL ? l->ranks - 1 : l->ranks,
                                .done = done,
                                .cause = cause};
    return cli_restart_note(v->k, &lost, out);
}

// "MEMORY\nLOSS\nKEY\nKEY\n".
static status order_print(live_run *v, const launch_change *c, const cli_layout *l,
                          char out[LAUNCH_ORDER_BYTES])
{
    text t = {.a = v->cli->a};
    char *loss = NULL;
    TRY(loss_print(v, c, l, &loss));
    TRY(text_add(&t, "%s\n%s\n", v->k->memory != NULL ? v->k->memory : "", loss));
    for (int64_t i = 0; i < l->key_count; i++) TRY(text_add(&t, "%s\n", l->keys[i]));
    if (t.length >= LAUNCH_ORDER_BYTES) return fail(ST_INTERNAL, "the order of an epoch is long");
    memcpy(out, t.bytes, (size_t)t.length + 1);
    return ST_OK;
}

static status too_few(const launch_change *c, int64_t least)
{
    if (!c->is_last) return ST_OK; // processes may join
    return fail(ST_STOPPED,
                "%d of at least %lld ranks are left, and no process joined within "
                "resilience.join_timeout",
                c->available, (long long)least);
}

static status epoch_plan(void *context, const launch_change *c, launch_epoch *out)
{
    live_run *v = context;
    cli_layout l;
    bool is_given_up = false;
    const run_config *r = v->order->r;
    const int64_t least = r->resilience.min_ranks > 0 ? r->resilience.min_ranks : 1;
    const bool is_full = c->available >= run_config_ranks(r);
    *out = (launch_epoch){.control_block_fd = -1};
    if ((c->available < least && !is_full) || c->available == v->refused) {
        return too_few(c, least);
    }
    TRY(cli_shrink(v->cli, v->order, c->available, &l));
    if (l.ranks < least && !is_full) {
        v->refused = c->available;
        return too_few(c, least);
    }
    v->refused = 0;
    if (c->event == LAUNCH_LOST || c->event == LAUNCH_WRONG) {
        if (v->order->place != NULL) {
            cli_restart_count_at(v->k, c->step, &is_given_up);
        } else {
            TRY(cli_restart_count(v->k, c->step, &is_given_up));
        }
        if (is_given_up) {
            return fail(
                ST_PEER_LOST,
                "%s\n%d ranks in a row were lost without a finished step in between, so the "
                "run ends",
                c->cause, v->k->losses_in_place);
        }
    }
    if (c->event != LAUNCH_BEGIN) v->k->epoch++;
    if (v->order->place != NULL) {
        v->k->epoch = c->epoch;
        v->ranks = c->ranks;
    }
    TRY(order_print(v, c, &l, out->text));
    TRY(v->cli->h->api->random_fill(v->cli->h, &out->job, (int64_t)sizeof(out->job)));
    out->ranks = (int)l.ranks;
    v->ranks = l.ranks;
    if (v->order->place != NULL) return ST_OK; // the ranks of each host make their own
    post_mortem_stop(v->last, false);
    v->last = NULL;
    comm_control_block_unmap(*v->control_block);
    *v->control_block = NULL;
    TRY(comm_control_block_create((int)l.ranks, out->job, 0, v->control_block));
    TRY(post_mortem_start(v->cli->h, r->run.dir, *v->control_block, &v->last));
    out->control_block_fd = comm_control_block_fd(*v->control_block);
    return ST_OK;
}

status cli_live_processes_path(cli_context *cli, const char *run_dir, int launcher, char **out)
{
    char *name = NULL;
    TRY(arena_format(cli->a, &name, launcher >= 0 ? "logs/processes-%d" : "logs/processes",
                     launcher));
    return path_join(cli->a, run_dir, name, out);
}

static void epoch_placed(void *context, const int64_t *processes, int first, int count)
{
    live_run *v = context;
    text t = {.a = v->cli->a};
    char *path = NULL;
    const launch_place *place = v->order->place;
    status st = cli_live_processes_path(v->cli, v->order->r->run.dir,
                                        place != NULL ? place->rank : -1, &path);
    for (int i = 0; i < count && st == ST_OK; i++) {
        st = text_add(&t, "%d %lld\n", first + i, (long long)processes[i]);
    }
    if (st == ST_OK) st = host_write_all(v->cli->h, path, t.bytes != NULL ? t.bytes : "", t.length);
    if (st != ST_OK) error_clear();
}

// A line in RUN/logs/spares. A file that cannot be written is no reason to stop.
static void spares_log(const live_run *v, const char *line)
{
    char *path = NULL;
    if (path_join(v->cli->a, v->order->r->run.dir, "logs/spares", &path) != ST_OK) {
        error_clear();
        return;
    }
    FILE *f = fopen(path, "ae");
    if (f == NULL) return;
    (void)fprintf(f, "%s\n", line);
    (void)fclose(f);
}

static void spare_ready(void *context, int64_t process, int64_t bytes, int64_t places)
{
    char line[160];
    (void)snprintf(
        line, sizeof(line), "process %lld is ready: plans of %lld place%s, %lld bytes reserved",
        (long long)process, (long long)places, text_plural(places, "s"), (long long)bytes);
    spares_log(context, line);
}

static void spare_failed(void *context, int64_t process, const char *why)
{
    const live_run *v = context;
    char line[LAUNCH_TEXT_BYTES];
    if (process > 0) {
        (void)snprintf(line, sizeof(line), "process %lld, a spare, is not ready: %.1900s",
                       (long long)process, why);
    } else {
        (void)snprintf(line, sizeof(line), "no spare: %.1900s", why);
    }
    spares_log(v, line);
    cli_print(v->cli, "warning  %s\n", line);
    cli_push(v->cli);
}

// Ranks of several hosts share no memory but that of each other.
static status hosts_check(const run_config *r, const launch_place *place)
{
    if (r->resilience.buddy.ranks == 0) {
        return fail(
            ST_CONFIG_CONFLICT,
            "resilience.mode = live on several hosts, as %s started it, needs copies of the "
            "state in the memory of other ranks: set resilience.buddy.ranks=1, or the tier "
            "buddy in checkpoint.tiers",
            place->launcher);
    }
    if (getenv("TRIREME_KEY") != NULL) return ST_OK;
    return fail(
        ST_SECURITY,
        "processes that %s started need a shared key: make a file of 32 random bytes, chmod "
        "600 it, and set TRIREME_KEY to its path on every host",
        place->launcher);
}

// The spares are divided among the hosts.
static int spares_here(const run_config *r, const launch_place *place)
{
    const int all = (int)r->resilience.spares;
    if (place == NULL) return all;
    return all / place->ranks + (place->rank < all % place->ranks);
}

status cli_live_start(cli_restart *k, const cli_start *order, launch_result *result,
                      comm_control_block **control_block)
{
    cli_context *cli = k->cli;
    live_run v = {.cli = cli, .k = k, .order = order, .control_block = control_block};
    const run_config *r = order->r;
    const launch_place *place = order->place;
    control_fact *facts = NULL;
    int64_t fact_count = 0;
    char *logs = NULL;
    int join_fd = -1;
    if (place != NULL) TRY(hosts_check(r, place));
    TRY(cli->h->api->path_mkdir(cli->h, r->run.dir));
    TRY(path_join(cli->a, r->run.dir, "logs", &logs));
    TRY(cli->h->api->path_mkdir(cli->h, logs));
    if (place != NULL) {
        TRY(cli_ranks_facts(cli, r, NULL, &facts, &fact_count));
    } else {
        TRY(join_open(&v, &join_fd));
    }
    char *hosts_path = NULL;
    if (place != NULL) TRY(cli_live_hosts_path(cli, r->run.dir, place->rank, &hosts_path));
    const launch_live_config c = {.local = {.h = cli->h,
                                            .ranks = (int)run_config_ranks(r),
                                            .program = "/proc/self/exe",
                                            .argv = k->given,
                                            .environment = environ,
                                            .log_folder = logs,
                                            .console_fd = STDOUT_FILENO,
                                            .control_block_fd = -1},
                                  .spares = spares_here(r, place),
                                  .replaces = r->resilience.min_ranks == 0,
                                  .join_fd = join_fd,
                                  .wait_ns = r->resilience.join_timeout,
                                  .plan = epoch_plan,
                                  .placed = epoch_placed,
                                  .spare = spare_ready,
                                  .spare_failed = spare_failed,
                                  .context = &v,
                                  .place = place,
                                  .key_path = getenv("TRIREME_KEY"),
                                  .facts = facts,
                                  .fact_count = fact_count,
                                  .hosts_path = hosts_path};
    const status st = launch_live(&c, result);
    error_record kept;
    error_take(&kept);
    post_mortem_stop(v.last, false);
    if (place == NULL) join_close(&v, join_fd);
    return st == ST_OK ? ST_OK : error_put(&kept);
}
