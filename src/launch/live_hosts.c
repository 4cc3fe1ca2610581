// Ranks that live on, on several hosts: one launcher on each, which decide together.
//
//   each     starts its part of the ranks, ends them when their epoch ends, and tells the others
//            about them (a report); it gives out the places of the newest agreed record
//   leader   plans the next epoch when all ranks of the last one are at rest, and proposes it
//
//   host A (leads)                         host B
//   rank 1 has died                        its ranks see that rank 1 is gone, and leave
//   report: broken, at rest          <->   report: at rest, 2 processes wait
//   record: epoch 4, places, address  ->   a majority has it: both begin epoch 4
//
// A launcher that is lost counts as one without processes. If it only was cut off, it ends its
// ranks when it has heard no majority for a while; and whatever it or they send is of an earlier
// epoch or term, which no other process takes. When it is back it gets the newest record, which has
// no place for it, and offers new processes. So does one that was started again (live_back.c).
#include "launch/live_internal.h"

#include "control/council.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HOSTS = CONTROL_QUORUM_MAX,
    WORDS_BYTES = 1024 // of a report's reason
};
static const int64_t fence_ns =
    INT64_C(3000000000); // without a majority, until the ranks are ended
static const int64_t farewell_ns = INT64_C(3000000000);

typedef struct report {
    int epoch; // that it has begun; 0: none
    int is_at_rest, is_broken, is_certain, is_changing, is_over;
    int event, lost, exit_code;
    int waiting; // processes without a place, or at rest
    int placed;  // processes with a place
    int ends;    // the leader: the epoch that is to end
    int64_t step;
    char address[CONTROL_ADDRESS_BYTES]; // where a rank 0 of this host would listen
    char text[WORDS_BYTES];
    bool is_told, is_gone; // not sent: it has told something; it is lost
} report;

typedef struct record {
    int epoch, ranks, is_over, exit_code, lost;
    int planned; // processes that could have taken a place
    uint64_t job;
    char address[CONTROL_ADDRESS_BYTES];
    int count[HOSTS];               // ranks by host, in order
    char order[LAUNCH_ORDER_BYTES]; // or why it is over
} record;

struct live_hosts {
    int self, count;
    int share;     // ranks of this host in the whole layout
    int listen_fd; // for the next rank 0 of this host
    char bound[CONTROL_ADDRESS_BYTES], near[CONTROL_ADDRESS_BYTES]; // `near`: this host, port 0
    control_council *council;
    uint64_t seen; // index of the record in `now`
    record now;    // epoch 0: none yet
    int begun, ends;
    int64_t broken_at, wait_until, over_at;
    bool is_waiting;
    bool is_back; // this launcher was started again, and has seen no record yet
    launch_seats seats;
    arena *a; // of `seats`
    char told[CONTROL_TOLD_BYTES];
    report of[HOSTS];
    char bytes[CONTROL_RECORD_BYTES];
};

// ---- reports and records as text ----------------------------------------------------------------

static void report_print(const report *r, char out[CONTROL_TOLD_BYTES])
{
    (void)snprintf(out, CONTROL_TOLD_BYTES, "%d %d %d %d %d %d %d %d %d %d %d %d %lld %s\n%s",
                   r->epoch, r->is_at_rest, r->is_broken, r->is_certain, r->is_changing, r->is_over,
                   r->event, r->lost, r->exit_code, r->waiting, r->placed, r->ends,
                   (long long)r->step, r->address, r->text);
}

static bool report_read(const char *told, report *out)
{
    long long step = 0;
    int at = 0;
    const char *end = strchr(told, '\n');
    *out = (report){.lost = -1};
    const int n = sscanf(told, "%d %d %d %d %d %d %d %d %d %d %d %d %lld %159s%n", &out->epoch,
                         &out->is_at_rest, &out->is_broken, &out->is_certain, &out->is_changing,
                         &out->is_over, &out->event, &out->lost, &out->exit_code, &out->waiting,
                         &out->placed, &out->ends, &step, out->address, &at);
    out->step = step;
    out->is_told = n == 14 && end == told + at && out->event >= LAUNCH_BEGIN &&
                   out->event <= LAUNCH_JOINED && out->waiting >= 0 && out->placed >= 0;
    if (out->is_told) (void)snprintf(out->text, sizeof(out->text), "%s", end + 1);
    return out->is_told;
}

static int64_t record_print(const record *r, int hosts, char out[CONTROL_RECORD_BYTES])
{
    int64_t used = snprintf(out, CONTROL_RECORD_BYTES, "%d %d %d %d %d %d %llx %s", r->epoch,
                            r->ranks, r->planned, r->is_over, r->exit_code, r->lost,
                            (unsigned long long)r->job, r->address);
    for (int m = 0; m < hosts; m++) {
        used += snprintf(out + used, (size_t)(CONTROL_RECORD_BYTES - used), " %d", r->count[m]);
    }
    used += snprintf(out + used, (size_t)(CONTROL_RECORD_BYTES - used), "\n%s", r->order);
    return used + 1;
}

static bool record_read(const char *bytes, int hosts, record *out)
{
    unsigned long long job = 0;
    int at = 0, sum = 0;
    *out = (record){0};
    if (sscanf(bytes, "%d %d %d %d %d %d %llx %159s%n", &out->epoch, &out->ranks, &out->planned,
               &out->is_over, &out->exit_code, &out->lost, &job, out->address, &at) != 8) {
        return false;
    }
    out->job = job;
    for (int m = 0; m < hosts; m++) {
        int more = 0;
        if (sscanf(bytes + at, " %d%n", &out->count[m], &more) != 1) return false;
        if (out->count[m] < 0 || out->count[m] > LAUNCH_LOCAL_MAX) return false;
        sum += out->count[m];
        at += more;
    }
    if (bytes[at] != '\n' || sum != out->ranks) return false;
    (void)snprintf(out->order, sizeof(out->order), "%s", bytes + at + 1);
    return true;
}

// ---- beginning ----------------------------------------------------------------------------------

// That of its end of a connection to another one.
status launch_near_find(const char *address, char out[CONTROL_ADDRESS_BYTES])
{
    int fd = -1;
    TRY(control_connect(address, 2000, &fd));
    char *port = control_own_address(fd, out) ? strrchr(out, ':') : NULL;
    (void)close(fd);
    if (port == NULL) {
        return fail(ST_IO, "cannot find this host's address on the way to %s", address);
    }
    memcpy(port, ":0", sizeof(":0"));
    return ST_OK;
}

// The processes meet at the first one and tell each other where they listen.
static status meet(const live *v, live_hosts *h, const launch_job *j, int *listen_fd)
{
    typedef struct seat {
        uint64_t job;
        char address[CONTROL_ADDRESS_BYTES];
    } seat;
    const launch_live_config *c = v->config;
    seat mine = {0};
    TRY(launch_near_find(c->place->address, h->near));
    TRY(control_listen(h->near, false, listen_fd, mine.address));
    TRY(control_listen(h->near, false, &h->listen_fd, h->bound));
    TRY(c->local.h->api->random_fill(c->local.h, &mine.job, (int64_t)sizeof(mine.job)));
    seat *all = calloc((size_t)(unsigned)h->count, sizeof(*all));
    if (all == NULL) return fail(ST_NO_MEMORY, "no memory for the addresses of %d hosts", h->count);
    const status st = control_swap(j->c, &mine, (int64_t)sizeof(mine), all);
    for (int m = 0; m < h->count && st == ST_OK; m++) {
        memcpy(h->seats.addresses[m], all[m].address, CONTROL_ADDRESS_BYTES);
        h->seats.addresses[m][CONTROL_ADDRESS_BYTES - 1] = '\0';
    }
    h->seats.job = all[0].job; // a new one for each start
    free(all);
    return st;
}

// Keeps the file by which this launcher comes back.
static status seats_keep(live *v)
{
    live_hosts *h = v->hosts;
    for (int m = 0; m < h->count; m++) {
        control_council_address(h->council, m, h->seats.addresses[m]);
    }
    return launch_seats_write(v->config, &h->seats);
}

// If the run goes on elsewhere, this launcher takes part again.
static status come_back(live *v)
{
    live_hosts *h = v->hosts;
    const launch_live_config *c = v->config;
    TRY(launch_hosts_back(c, &h->seats, h->a, v->l->key, h->near, &h->council));
    h->is_back = h->council != NULL;
    if (!h->is_back) return ST_OK;
    return control_listen(h->near, false, &h->listen_fd, h->bound);
}

// All launchers begin at the same time.
static status begin_together(live *v)
{
    live_hosts *h = v->hosts;
    const launch_live_config *c = v->config;
    int listen_fd = -1;
    launch_job j = {0};
    sigset_t blocked;
    const launch_join_config join = {.h = c->local.h,
                                     .place = c->place,
                                     .key_path = c->key_path,
                                     .facts = c->facts,
                                     .fact_count = c->fact_count,
                                     .join_ns = c->wait_ns};
    h->seats = (launch_seats){
        .facts = launch_facts_digest(c->facts, c->fact_count), .self = h->self, .count = h->count};
    (void)snprintf(h->seats.first_at, sizeof(h->seats.first_at), "%s", c->place->address);
    TRY(arena_new(h->a, h->count, &h->seats.addresses));
    // A signal ends a launcher that waits for the others; later it is forwarded to the ranks.
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    status st = launch_join(&join, &j);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    TRY(st);
    st = meet(v, h, &j, &listen_fd);
    error_record kept;
    error_take(&kept);
    launch_leave(&j);
    if (st != ST_OK) {
        launch_close(&listen_fd);
        return error_put(&kept);
    }
    const control_council_config council = {
        .h = c->local.h,
        .key = v->l->key,
        .job = h->seats.job,
        .self = h->self,
        .count = h->count,
        .addresses = (const char(*)[CONTROL_ADDRESS_BYTES])h->seats.addresses};
    return control_council_start(&council, listen_fd, &h->council);
}

status launch_hosts_open(live *v)
{
    const launch_live_config *c = v->config;
    if (c->place->ranks > HOSTS || c->local.ranks % c->place->ranks != 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "resilience.mode = live: %s started %d processes, and the layout has %d ranks; "
                    "start one process on each host, at most %d, with equal parts of the ranks",
                    c->place->launcher, c->place->ranks, c->local.ranks, HOSTS);
    }
    live_hosts *h = calloc(1, sizeof(*h));
    if (h == NULL) return fail(ST_NO_MEMORY, "no memory for %d hosts", c->place->ranks);
    v->hosts = h;
    v->l->ranks_die = true; // the other hosts go on without them
    h->self = c->place->rank;
    h->count = c->place->ranks;
    h->share = c->local.ranks / h->count;
    h->listen_fd = -1;
    TRY(arena_create("hosts", 0, &h->a));
    control_key_destroy(v->l->key);
    v->l->key = NULL;
    TRY(control_key_read(c->key_path, &v->l->key));
    TRY(come_back(v));
    if (!h->is_back) TRY(begin_together(v));
    return seats_keep(v);
}

void launch_hosts_close(live *v)
{
    live_hosts *h = v->hosts;
    if (h == NULL) return;
    control_council_stop(h->council);
    launch_close(&h->listen_fd);
    if (h->now.is_over && v->config->hosts_path != NULL) (void)unlink(v->config->hosts_path);
    arena_destroy(h->a);
    free(h);
    v->hosts = NULL;
}

// ---- this host ----------------------------------------------------------------------------------

static int placed_count(const live *v)
{
    int n = 0;
    for (int i = 0; i < v->l->count; i++) n += live_is_placed(&v->l->ranks[i]);
    return n;
}

// Why the run is over, if it is by a process of this host.
static void over_say(const live *v, report *out)
{
    const local *l = v->l;
    out->is_over = v->is_over;
    if (!v->is_over) return;
    if (v->st != ST_OK) {
        out->exit_code = status_exit_code(v->st);
        (void)snprintf(out->text, sizeof(out->text), "%.900s", error_last()->text);
    } else if (v->error >= 0) {
        launch_result how = {.rank = -1};
        out->lost = l->ranks[v->error].rank;
        launch_tell_rank(l, v->error, &how);
        out->exit_code = how.exit_code;
        launch_tell_tail(l, v->error, &how);
        (void)snprintf(out->text, sizeof(out->text), "%.900s", how.text);
    }
    for (int i = 0; i < l->count && v->st == ST_OK && v->error < 0; i++) {
        const local_rank *r = &l->ranks[i];
        if (!r->is_alive && r->ended_by == 0 && r->exit_code == 75) out->exit_code = 75;
    }
}

static void report_make(const live *v, report *out)
{
    const live_hosts *h = v->hosts;
    const bool ends = v->is_broken || v->is_changing || h->begun == 0;
    *out = (report){.epoch = h->begun,
                    .is_at_rest = ends && launch_live_is_at_rest(v),
                    .is_broken = v->is_broken,
                    .is_certain = v->is_certain,
                    .is_changing = v->is_changing,
                    .event = (int)v->event,
                    .lost = v->lost,
                    .waiting = launch_live_waiting(v),
                    .placed = placed_count(v),
                    .ends = h->ends,
                    .step = v->step};
    (void)snprintf(out->address, sizeof(out->address), "%s", h->bound);
    (void)snprintf(out->text, sizeof(out->text), "%.*s",
                   (int)min_i64((int64_t)strcspn(v->cause, "\n"), WORDS_BYTES - 1), v->cause);
    over_say(v, out);
}

static void tell(const live *v)
{
    live_hosts *h = v->hosts;
    char bytes[CONTROL_TOLD_BYTES];
    report_make(v, &h->of[h->self]);
    h->of[h->self].is_told = true;
    report_print(&h->of[h->self], bytes);
    if (strcmp(bytes, h->told) == 0) return;
    memcpy(h->told, bytes, sizeof(bytes));
    control_council_tell(h->council, bytes, (int64_t)strlen(bytes) + 1);
}

static void listen_again(live *v)
{
    live_hosts *h = v->hosts;
    if (h->listen_fd >= 0) return;
    const status st = control_listen(h->near, false, &h->listen_fd, h->bound);
    if (st != ST_OK && v->st == ST_OK) v->st = st;
}

// Ends the ranks of this host at once: no majority is heard, or its epoch is over elsewhere.
static void fence(live *v, const char *why)
{
    launch_live_broken(v, -1, false, why);
    for (int i = 0; i < v->l->count; i++) {
        local_rank *r = &v->l->ranks[i];
        if (!live_is_at_work(r)) continue;
        r->was_forced = true;
        launch_signal_rank(v->l, i, SIGKILL);
    }
}

// New processes for those that have ended.
static void replace(live *v)
{
    const live_hosts *h = v->hosts;
    const int wanted = h->share;
    if (!v->config->replaces || v->is_over || v->l->is_asked || !launch_live_is_at_rest(v)) return;
    launch_live_quarantine(v);
    while (launch_live_waiting(v) < wanted && v->st == ST_OK) v->st = launch_live_process_start(v);
}

// ---- records ------------------------------------------------------------------------------------

// Begins the newest epoch. The processes of this host are at rest.
static void begin(live *v)
{
    live_hosts *h = v->hosts;
    const record *r = &h->now;
    int first = 0, by_place[LAUNCH_LOCAL_MAX], count = 0;
    for (int m = 0; m < h->self; m++) first += r->count[m];
    for (int i = 0; i < v->l->count && count < r->count[h->self]; i++) {
        if (live_is_waiting(&v->l->ranks[i])) by_place[count++] = i;
    }
    h->begun = r->epoch;
    h->ends = 0;
    // A process has ended since the leader counted them: its rank never joins, and the epoch ends.
    const bool is_short = count < r->count[h->self];
    const launch_place *own = v->config->place;
    const live_places p = {.job = r->job,
                           .epoch = (uint32_t)(r->epoch - 1),
                           .ranks = r->ranks,
                           .first = first,
                           .count = count,
                           .local = (own->local_rank > 0 ? own->local_rank : 0) * count,
                           .locals = (own->local_ranks > 0 ? own->local_ranks : 1) * count,
                           .control_block_fd = -1,
                           .listen_fd = h->listen_fd,
                           .address = r->address,
                           .order = r->order};
    const status st = launch_live_place(v, &p, by_place);
    if (st != ST_OK && v->st == ST_OK) v->st = st;
    if (count > 0 && first == 0) launch_close(&h->listen_fd); // its rank 0 has it now
    listen_again(v);
    if (is_short) launch_live_broken(v, -1, false, "a process ended before the epoch began");
}

// The first record that a launcher sees which was started again. It has no process in that epoch.
static void back_begin(live *v)
{
    live_hosts *h = v->hosts;
    char cause[96];
    h->is_back = false;
    if (h->now.count[h->self] == 0) {
        begin(v);
        return;
    }
    h->begun = h->now.epoch;
    (void)snprintf(cause, sizeof(cause), "the launcher of host %d of %d was started again", h->self,
                   h->count);
    launch_live_broken(v, -1, false, cause);
}

static void records_take(live *v)
{
    live_hosts *h = v->hosts;
    control_council_view view;
    control_council_look(h->council, &view);
    if (view.index > h->seen) {
        record next;
        h->seen = view.index;
        if (control_council_record(h->council, h->bytes) > 0 &&
            record_read(h->bytes, h->count, &next)) {
            h->now = next;
        }
        const status st = seats_keep(v); // a host may have moved
        if (st != ST_OK) error_clear();
    }
    if (h->now.is_over) {
        const bool is_error = h->now.exit_code != 0 && h->now.exit_code != 75;
        if (h->over_at == 0) h->over_at = launch_live_now(v);
        h->begun = h->now.epoch;
        v->is_over = true;
        if (is_error) launch_live_broken(v, -1, false, h->now.order); // the ranks leave
        return;
    }
    if (h->now.epoch <= h->begun) return;
    if (h->is_back) {
        back_begin(v);
        return;
    }
    if (!launch_live_is_at_rest(v)) {
        fence(v, "the other hosts went on without this one");
    } else if (!v->is_over) {
        begin(v);
    }
}

// ---- the leader ---------------------------------------------------------------------------------

static void reports_take(live_hosts *h)
{
    for (int m = 0; m < h->count; m++) {
        char told[CONTROL_TOLD_BYTES];
        bool is_lost = false;
        if (m == h->self) continue;
        const int64_t n = control_council_told(h->council, m, told, &is_lost);
        if (n > 0 && told[n - 1] == '\0') (void)report_read(told, &h->of[m]);
        h->of[m].is_gone = is_lost;
    }
}

// The record that ends the run.
static void over_propose(live *v, int exit_code, int lost, const char *said)
{
    live_hosts *h = v->hosts;
    record r = {.epoch = h->now.epoch + 1,
                .is_over = 1,
                .exit_code = exit_code,
                .lost = lost,
                .address = "-"};
    (void)snprintf(r.order, sizeof(r.order), "%s", said);
    const int64_t bytes = record_print(&r, h->count, h->bytes);
    (void)control_council_propose(h->council, h->bytes, bytes);
}

// Fills the hosts one after the other: first their parts of the whole layout, then what is free.
static void places_divide(const live_hosts *h, int ranks, record *out)
{
    int left = ranks;
    for (int turn = 0; turn < 2; turn++) {
        for (int m = 0; m < h->count; m++) {
            const report *r = &h->of[m];
            const int most = r->is_gone                           ? 0
                             : turn == 0 && r->waiting > h->share ? h->share
                                                                  : r->waiting;
            const int more = most - out->count[m] < left ? most - out->count[m] : left;
            out->count[m] += more;
            left -= more;
        }
    }
}

// The report that says best why the epoch ends.
static const report *cause_find(const live_hosts *h)
{
    const report *best = NULL;
    for (int m = 0; m < h->count; m++) {
        const report *r = &h->of[m];
        if (r->is_gone || !r->is_broken || r->epoch != h->now.epoch) continue;
        if (best == NULL || (r->is_certain && !best->is_certain)) best = r;
    }
    return best;
}

static void epoch_propose(live *v, int available)
{
    live_hosts *h = v->hosts;
    char gone[128];
    launch_epoch e = {.ranks = 0};
    const report *why = cause_find(h);
    launch_change change = {.event = h->now.epoch == 0 ? LAUNCH_BEGIN
                                     : why != NULL     ? (launch_event)why->event
                                                       : LAUNCH_JOINED,
                            .available = available,
                            .rank = why != NULL ? why->lost : -1,
                            .at = h->broken_at,
                            .cause = why != NULL ? why->text : "processes joined",
                            .filler = v->config->replaces ? "a new process" : NULL,
                            .is_last = v->l->is_asked ||
                                       (h->is_waiting && launch_live_now(v) >= h->wait_until),
                            .epoch = h->now.epoch,
                            .ranks = h->now.ranks};
    for (int m = 0; m < h->count; m++) {
        change.step = max_i64(change.step, h->of[m].step);
        if (!h->of[m].is_gone || h->now.count[m] == 0) continue;
        (void)snprintf(gone, sizeof(gone), "host %d of %d is lost: it is not heard any more", m,
                       h->count);
        change.cause = gone;
        change.event = LAUNCH_LOST;
        change.filler = NULL;
    }
    const status st = v->config->plan(v->config->context, &change, &e);
    if (st != ST_OK) {
        over_propose(v, status_exit_code(st), change.rank, error_last()->text);
        error_clear();
        return;
    }
    if (e.ranks == 0) {
        if (!h->is_waiting) h->wait_until = launch_live_now(v) + v->config->wait_ns;
        h->is_waiting = true;
        return;
    }
    record r = {.epoch = h->now.epoch + 1,
                .ranks = e.ranks,
                .planned = available,
                .lost = -1,
                .job = e.job};
    places_divide(h, e.ranks, &r);
    for (int m = h->count - 1; m >= 0; m--) {
        if (r.count[m] > 0) (void)snprintf(r.address, sizeof(r.address), "%s", h->of[m].address);
    }
    (void)snprintf(r.order, sizeof(r.order), "%s", e.text);
    const int64_t bytes = record_print(&r, h->count, h->bytes);
    if (!control_council_propose(h->council, h->bytes, bytes)) return;
    h->is_waiting = false;
}

// True if the epoch must end: a rank or a host is lost, or processes wait that could take part.
static bool must_end(const live_hosts *h, bool *has_all)
{
    int waiting = 0, placed = 0;
    bool ends = h->now.epoch == 0;
    *has_all = true;
    for (int m = 0; m < h->count; m++) {
        const report *r = &h->of[m];
        if (r->is_gone) {
            ends = ends || h->now.count[m] > 0;
            continue;
        }
        *has_all = *has_all && r->is_told && r->epoch == h->now.epoch;
        if (!r->is_told || r->epoch != h->now.epoch) continue;
        ends = ends || r->is_broken || r->is_changing;
        placed += r->placed;
        waiting += r->waiting;
    }
    return ends || (*has_all && h->now.planned > 0 && placed < h->share * h->count &&
                    placed + waiting > h->now.planned);
}

static void lead(live *v)
{
    live_hosts *h = v->hosts;
    bool has_all = false, is_at_rest = true;
    int available = 0;
    for (int m = 0; m < h->count; m++) {
        const report *r = &h->of[m];
        if (r->is_gone || !r->is_told) continue;
        if (r->is_over) {
            over_propose(v, r->exit_code, r->lost, r->text);
            return;
        }
        is_at_rest = is_at_rest && r->is_at_rest;
        available += r->waiting;
    }
    if (!must_end(h, &has_all)) {
        h->broken_at = 0;
        return;
    }
    if (h->broken_at == 0) h->broken_at = launch_live_now(v);
    h->ends = h->now.epoch;
    if (has_all && is_at_rest) epoch_propose(v, available);
}

// ---- once in a while ----------------------------------------------------------------------------

// The leader wants the epoch to end.
static void end_if_asked(live *v, const control_council_view *view)
{
    const live_hosts *h = v->hosts;
    const bool is_known = view->leader >= 0 && h->of[view->leader].is_told;
    if (!is_known || h->begun == 0 || h->of[view->leader].ends != h->begun) return;
    if (v->is_broken || v->is_changing) return;
    v->is_changing = true;
    launch_live_end_ask(v);
}

void launch_hosts_look(live *v)
{
    live_hosts *h = v->hosts;
    control_council_view view;
    if (h == NULL || h->council == NULL) return;
    records_take(v);
    if (h->now.is_over) {
        tell(v);
        reports_take(h);
        return;
    }
    replace(v);
    control_council_look(h->council, &view);
    if (view.is_replaced && v->st == ST_OK) {
        fence(v, "another process has the place of this host");
        v->st =
            fail(ST_PEER_LOST, "another process has taken the place of host %d of %d in this run",
                 h->self, h->count);
    }
    if (view.cut_ns > fence_ns) {
        fence(v, "this host hears no majority of the others");
        if (view.cut_ns > v->config->wait_ns && v->st == ST_OK && !v->is_over) {
            v->st = fail(ST_PEER_LOST,
                         "no majority of %d hosts was heard within resilience.join_timeout, so the "
                         "run ends here; it goes on from its last checkpoint when it is started "
                         "again",
                         h->count);
        }
    }
    reports_take(h);
    end_if_asked(v, &view);
    tell(v);
    if (view.leads) lead(v);
    tell(v);
}

// The run is over, and every host that is heard knows it. A process that is cut off goes by itself.
bool launch_hosts_is_done(const live *v)
{
    const live_hosts *h = v->hosts;
    if (h == NULL || h->council == NULL || v->l->is_interrupted) return true;
    if (!h->now.is_over) {
        control_council_view view;
        control_council_look(h->council, &view);
        return v->st != ST_OK && view.cut_ns > fence_ns;
    }
    if (launch_live_now(v) - h->over_at > farewell_ns) return true;
    for (int m = 0; m < h->count; m++) {
        if (m == h->self || h->of[m].is_gone) continue;
        if (h->of[m].epoch != h->now.epoch) return false;
    }
    return true;
}

void launch_hosts_tell_end(const live *v, launch_result *out)
{
    const live_hosts *h = v->hosts;
    out->was_asked = v->l->is_asked;
    if (!h->now.is_over) {
        out->exit_code = status_exit_code(v->st != ST_OK ? v->st : ST_PEER_LOST);
        out->rank = out->lost = 0;
        (void)snprintf(out->text, sizeof(out->text), "%.2000s", v->cause);
        return;
    }
    out->exit_code = h->now.exit_code;
    if (out->exit_code == 0 || out->exit_code == status_exit_code(ST_STOPPED)) return;
    out->rank = out->lost = h->now.lost >= 0 ? h->now.lost : 0;
    (void)snprintf(out->text, sizeof(out->text), "%.2000s", h->now.order);
}
