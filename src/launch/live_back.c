// A launcher that was started again comes back into a run on several hosts.
//
//   RUN/hosts-N   written by launcher N: the run's number, where each launcher listens, a digest of
//                 the facts, the folder and the arguments of the command
//   back          a process that finds this file connects to the others. If one of them proves that
//                 it is of the same run, the process takes the place of launcher N (council.h);
//                 else the run is over, and a new one begins
//
// A process that still listens at N's address keeps the place: two launchers on one host would only
// take turns in replacing each other.
#include "launch/live_internal.h"

#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20, ARGUMENTS_MAX = 4096, CONNECT_MS = 300, LOOK_US = 5000 };
static const int64_t heard_ns = INT64_C(3000000000); // for one of the others to prove itself

uint64_t launch_facts_digest(const control_fact *facts, int64_t count)
{
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    control_facts_digest(facts, count, digest);
    return hash64(digest, (int64_t)sizeof(digest), 0);
}

// ---- the file -----------------------------------------------------------------------------------

static status arguments_add(const launch_live_config *c, text *out)
{
    char folder[LAUNCH_PATH_BYTES];
    bool is_plain = getcwd(folder, sizeof(folder)) != NULL && strchr(folder, '\n') == NULL;
    for (char *const *a = c->local.argv; *a != NULL; a++)
        is_plain = is_plain && strchr(*a, '\n') == NULL;
    if (!is_plain) return ST_OK; // then the command itself must be given again
    TRY(text_add(out, "folder %s\n", folder));
    for (char *const *a = c->local.argv; *a != NULL; a++) TRY(text_add(out, "argument %s\n", *a));
    return ST_OK;
}

status launch_seats_write(const launch_live_config *c, const launch_seats *s)
{
    arena *a = NULL;
    if (c->hosts_path == NULL) return ST_OK;
    TRY(arena_create("hosts", 0, &a));
    text t = {.a = a};
    status st = text_add(&t, "trireme-hosts 1 %llx %llx %d %d %s\n", (unsigned long long)s->job,
                         (unsigned long long)s->facts, s->self, s->count, s->first_at);
    for (int m = 0; m < s->count && st == ST_OK; m++) st = text_add(&t, "%s\n", s->addresses[m]);
    if (st == ST_OK) st = arguments_add(c, &t);
    if (st == ST_OK) st = host_write_all(c->local.h, c->hosts_path, t.bytes, t.length);
    arena_destroy(a);
    return st;
}

// The next line, without its end; NULL: there is none.
static char *line_take(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (end == NULL) return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

static const char *after(const char *line, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(line, word, n) == 0 ? line + n : NULL;
}

static bool seats_parse(arena *a, char *bytes, launch_seats *out)
{
    unsigned long long job = 0, facts = 0;
    char *at = bytes, *line = line_take(&at);
    static const char word[] = "argument ";
    int n = 0;
    if (line == NULL ||
        sscanf(line, "trireme-hosts 1 %llx %llx %d %d %159s", &job, &facts, &out->self, &out->count,
               out->first_at) != 5 ||
        out->count < 2 || out->count > CONTROL_QUORUM_MAX || out->self < 0 ||
        out->self >= out->count) {
        return false;
    }
    out->job = job;
    out->facts = facts;
    if (arena_new(a, out->count, &out->addresses) != ST_OK ||
        arena_new(a, ARGUMENTS_MAX + 1, &out->arguments) != ST_OK)
        return false;
    for (int m = 0; m < out->count; m++) {
        line = line_take(&at);
        if (line == NULL || strlen(line) >= CONTROL_SEAT_BYTES) return false;
        memcpy(out->addresses[m], line, strlen(line) + 1);
    }
    line = line_take(&at);
    if (line != NULL) out->folder = after(line, "folder ");
    for (line = line_take(&at); line != NULL && n < ARGUMENTS_MAX; line = line_take(&at)) {
        if (after(line, word) != NULL) out->arguments[n++] = line + strlen(word);
    }
    return true;
}

status launch_seats_read(const host *h, arena *a, const char *path, launch_seats *out)
{
    char *bytes = NULL;
    int64_t count = 0;
    file_info info;
    *out = (launch_seats){.self = -1};
    TRY(h->api->path_info(h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(host_read_all(h, a, path, FILE_BYTES, &bytes, &count));
    if (seats_parse(a, bytes, out)) return ST_OK;
    return fail(ST_DATA, "%s is damaged; remove it if no run goes on there", path);
}

bool launch_seat_listens(const launch_seats *s, int member)
{
    int fd = -1;
    if (control_connect(s->addresses[member], CONNECT_MS, &fd) != ST_OK) {
        error_clear();
        return false;
    }
    (void)close(fd);
    return true;
}

int launch_seats_alive(const launch_seats *s)
{
    for (int m = 0; m < s->count; m++) {
        if (m != s->self && launch_seat_listens(s, m)) return m;
    }
    return -1;
}

// ---- back ---------------------------------------------------------------------------------------

// Waits until one of the others has proved itself.
static bool is_heard(const host *h, control_council *council)
{
    control_council_view view = {0};
    const int64_t until = h->api->monotonic_ns(h) + heard_ns;
    while (!view.is_heard && h->api->monotonic_ns(h) < until) {
        (void)usleep(LOOK_US);
        control_council_look(council, &view);
    }
    return view.is_heard;
}

static status council_back(const launch_live_config *c, launch_seats *s, const char *near,
                           const control_key *key, control_council **out)
{
    char bound[CONTROL_ADDRESS_BYTES];
    int listen_fd = -1;
    bool is_moved = false;
    if (control_listen(s->addresses[s->self], false, &listen_fd, bound) != ST_OK) {
        error_clear();
        is_moved = true; // another host, or another process has the port
        TRY(control_listen(near, false, &listen_fd, bound));
    }
    memcpy(s->addresses[s->self], bound, sizeof(bound));
    const control_council_config config = {.h = c->local.h,
                                           .key = key,
                                           .job = s->job,
                                           .self = s->self,
                                           .count = s->count,
                                           .is_back = true,
                                           .is_moved = is_moved,
                                           .addresses =
                                               (const char(*)[CONTROL_ADDRESS_BYTES])s->addresses};
    TRY(control_council_start(&config, listen_fd, out));
    if (is_heard(c->local.h, *out)) return ST_OK;
    control_council_stop(*out);
    *out = NULL;
    return ST_OK;
}

// Before the others hear of this process, for they would put it in the place of the one that is
// there.
static status back_check(const launch_live_config *c, const launch_seats *s)
{
    if (launch_seat_listens(s, s->self)) {
        return fail(ST_LOCKED,
                    "host %d of %d takes part in this run already: its launcher listens at %s; end "
                    "that process first, or remove %s if it is of another run",
                    s->self, s->count, s->addresses[s->self], c->hosts_path);
    }
    if (s->facts == launch_facts_digest(c->facts, c->fact_count)) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "the run goes on elsewhere with other settings, another build or other kernels than "
        "this process has; give the same command as before to come back into it, or remove "
        "%s if it has ended",
        c->hosts_path);
}

status launch_hosts_back(const launch_live_config *c, launch_seats *s, arena *a,
                         const control_key *key, char near[CONTROL_ADDRESS_BYTES],
                         control_council **out)
{
    *out = NULL;
    if (c->hosts_path == NULL) return ST_OK;
    TRY(launch_seats_read(c->local.h, a, c->hosts_path, s));
    if (s->self != c->place->rank || s->count != c->place->ranks) return ST_OK;
    const int other = launch_seats_alive(s);
    if (other < 0) return ST_OK;
    TRY(back_check(c, s));
    TRY(launch_near_find(s->addresses[other], near));
    return council_back(c, s, near, key, out);
}
