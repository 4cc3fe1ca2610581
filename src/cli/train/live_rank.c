// A rank's side of resilience.mode = live.
#include "cli/train/live.h"
#include "cli/train/signals.h"
#include "control/quorum.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS_MAX = 64 };

// True if the rank has left its epoch, and is whole: it waits for another place. An error that
// would come again ends it, and the run.
static bool goes_on(status st, const train_outcome *out)
{
    if (st == ST_STOPPED) return out->changes;
    return st != ST_OK && status_exit_code(st) == status_exit_code(ST_PEER_LOST);
}

// "MEMORY\nLOSS\nKEY\nKEY\n" of an epoch.
typedef struct order_parts {
    char *memory, *loss;
    const char *keys[KEYS_MAX];
    int64_t count;
} order_parts;

static status order_read(char *order, order_parts *out)
{
    *out = (order_parts){.memory = order, .loss = strchr(order, '\n')};
    if (out->loss == NULL) return fail(ST_INTERNAL, "the order of an epoch is malformed");
    *out->loss++ = '\0';
    for (char *at = strchr(out->loss, '\n'); at != NULL && out->count < KEYS_MAX;) {
        *at++ = '\0';
        if (*at != '\0') out->keys[out->count++] = at;
        at = strchr(at, '\n');
    }
    return ST_OK;
}

// Everything that a process needs in all of its epochs.
typedef struct rank_epochs {
    cli_context *cli;
    cli_live_train *train;
    cli_live_spare *spare;
    void *context;
    train_process *process;
} rank_epochs;

static status epoch_run(const rank_epochs *x, const launch_place *place, char *order,
                        train_outcome *out)
{
    order_parts parts;
    *out = (train_outcome){.wrong = -1};
    TRY(order_read(order, &parts));
    TRY(cli_restart_put(parts.memory, parts.loss));
    return x->train(x->context, parts.keys, parts.count, place, x->process, out);
}

// A spare that cannot prepare says so, and takes its place as it is.
static void spare_run(const rank_epochs *x, int post_fd, char *order)
{
    order_parts parts;
    status st = order_read(order, &parts);
    if (st == ST_OK) st = x->spare(x->context, parts.keys, parts.count, post_fd, x->process);
    if (st == ST_OK) return;
    launch_post_spare_failed(post_fd, error_last()->text);
    error_clear();
}

// One epoch or one wait as a spare, with memory of its own. Returns whether it was an epoch.
static status turn_run(const rank_epochs *x, const launch_place *place, char *order, int post_fd,
                       train_outcome *out, bool *was_epoch)
{
    cli_context *cli = x->cli;
    arena *kept = cli->a;
    status st = ST_OK;
    *was_epoch = place->rank >= 0;
    TRY(arena_create("epoch", 0, &cli->a));
    train_process_begin(x->process, cli->a);
    if (*was_epoch) {
        st = epoch_run(x, place, order, out);
    } else {
        spare_run(x, post_fd, order);
    }
    error_record error;
    error_take(&error);
    train_process_end(x->process, cli->a);
    cli->a = kept;
    return st == ST_OK ? ST_OK : error_put(&error);
}

status cli_live_rank(cli_context *cli, launch_place *place, cli_live_train *train,
                     cli_live_spare *spare, void *context)
{
    char order[LAUNCH_ORDER_BYTES];
    train_outcome out = {.wrong = -1};
    bool is_over = false, was_epoch = false;
    cpu_set_t cores;
    error_record error = {.code = ST_OK};
    const int post_fd = place->post_fd;
    const bool has_cores = sched_getaffinity(0, sizeof(cores), &cores) == 0;
    const launch_place empty = *place;
    rank_epochs x = {.cli = cli, .train = train, .spare = spare, .context = context};
    status st = ST_OK;
    TRY(train_process_create(&x.process));
    cli_signals_begin();
    for (;;) {
        *place = empty;
        const status waited = launch_post_wait(post_fd, place, order, &is_over);
        if (is_over) break;
        if (waited != ST_OK) {
            train_process_destroy(x.process);
            return waited;
        }
        // An epoch divides the cores of the process among its ranks.
        if (has_cores) (void)sched_setaffinity(0, sizeof(cores), &cores);
        st = turn_run(&x, place, order, post_fd, &out, &was_epoch);
        error_take(&error);
        if (!was_epoch && st == ST_OK) continue;
        if (!goes_on(st, &out) || out.leaves) break;
        (void)fflush(NULL);
        launch_post_ready(post_fd, out.changes, (int)out.wrong, out.steps, error.text);
    }
    cli_signals_end();
    train_process_destroy(x.process);
    if (st == ST_OK || (is_over && out.changes)) return ST_OK;
    return error_put(&error);
}

// ---- train RUN --join ---------------------------------------------------------------------------

status cli_live_hosts_path(cli_context *cli, const char *run_dir, int launcher, char **out)
{
    char *name = NULL;
    TRY(arena_format(cli->a, &name, "hosts-%d", launcher));
    return path_join(cli->a, run_dir, name, out);
}

// The launcher that this process becomes: the one that the variables of another launcher name, else
// the first one of this folder at whose address no process listens.
static status seats_find(cli_context *cli, const char *run_dir, const launch_place *place,
                         launch_seats *out)
{
    const bool is_told = place->ranks > 1;
    *out = (launch_seats){.self = -1};
    for (int m = is_told ? place->rank : 0; m < CONTROL_QUORUM_MAX; m++) {
        char *path = NULL;
        TRY(cli_live_hosts_path(cli, run_dir, m, &path));
        TRY(launch_seats_read(cli->h, cli->a, path, out));
        const bool is_free = out->self >= 0 && !launch_seat_listens(out, out->self);
        if (is_free || is_told) return ST_OK;
        out->self = -1;
    }
    return ST_OK;
}

// The variables of torchrun, for the command that follows.
static bool place_set(const launch_seats *s)
{
    char self[16], count[16], address[CONTROL_ADDRESS_BYTES];
    (void)snprintf(self, sizeof(self), "%d", s->self);
    (void)snprintf(count, sizeof(count), "%d", s->count);
    memcpy(address, s->first_at, sizeof(address));
    char *port = strrchr(address, ':');
    if (port == NULL) return false;
    *port++ = '\0';
    return setenv("RANK", self, 1) == 0 && setenv("WORLD_SIZE", count, 1) == 0 &&
           setenv("LOCAL_RANK", "0", 1) == 0 && setenv("LOCAL_WORLD_SIZE", "1", 1) == 0 &&
           setenv("MASTER_ADDR", address, 1) == 0 && setenv("MASTER_PORT", port, 1) == 0;
}

static status not_joined(const char *run_dir)
{
    return fail(
        ST_NOT_FOUND,
        "%s does not go on with resilience.mode = live on this machine, or on several hosts "
        "of which one is missing, so no rank can join it",
        run_dir);
}

// On several hosts: becomes the launcher of a host that was lost.
static status hosts_join(cli_context *cli, const char *run_dir)
{
    launch_seats s;
    launch_place place;
    TRY(cli_ranks_place(&place));
    TRY(seats_find(cli, run_dir, &place, &s));
    if (s.self < 0 || launch_seats_alive(&s) < 0) return not_joined(run_dir);
    if (s.folder == NULL) {
        return fail(
            ST_UNSUPPORTED,
            "the command of %s is not known here; give it again, and it comes back into the "
            "run by itself",
            run_dir);
    }
    if (chdir(s.folder) != 0 || (place.ranks <= 1 && !place_set(&s))) {
        return fail(ST_IO, "cannot join from %s: %s", s.folder, strerror(errno));
    }
    cli_print(cli, "note     this process is the launcher of host %d of %d of %s again\n", s.self,
              s.count, run_dir);
    cli_push(cli);
    (void)execv("/proc/self/exe", s.arguments);
    return fail(ST_IO, "cannot start this program again: %s", strerror(errno));
}

status cli_live_join(cli_context *cli, const char *run_dir)
{
    char *path = NULL, *address = NULL, *folder = NULL, **arguments = NULL, value[64];
    int64_t bytes = 0;
    int fd = -1;
    file_info info;
    TRY(path_join(cli->a, run_dir, "join", &path));
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return hosts_join(cli, run_dir);
    TRY(host_read_all(cli->h, cli->a, path, 256, &address, &bytes));
    address[strcspn(address, "\n")] = '\0';
    TRY(launch_post_join(address, cli->a, &fd, &arguments, &folder));
    const int kept = dup(fd); // without close-on-exec
    (void)snprintf(value, sizeof(value), "post %d", kept);
    if (kept < 0 || setenv("TRIREME_LAUNCH", value, 1) != 0 || chdir(folder) != 0) {
        return fail(ST_IO, "cannot join from %s: %s", folder, strerror(errno));
    }
    cli_print(cli,
              "note     this process is a rank of %s now, when the run has a place for it; "
              "its output is in logs/\n",
              run_dir);
    cli_push(cli);
    (void)execv("/proc/self/exe", arguments);
    return fail(ST_IO, "cannot start this program again as a rank: %s", strerror(errno));
}
