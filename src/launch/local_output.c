// Handles rank 0's output and writes the report on a job that failed.
//
// The launcher never waits for the console. Output that the console does not accept goes to a
// bounded queue; beyond its capacity it is dropped and counted, while the log file has all of it.
// The console is written to only when poll says that it accepts data, in pieces that a pipe takes
// whole: its descriptor may be shared, so it cannot be made non-blocking.
#include "launch/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, END_MS = 2000, TAIL_BYTES = 1200, TAIL_LINES = 8 };

int64_t launch_now(const local *l)
{
    return l->config->h->api->monotonic_ns(l->config->h);
}

void launch_log_path(const launch_local_config *c, int rank, char out[LAUNCH_PATH_BYTES])
{
    (void)snprintf(out, LAUNCH_PATH_BYTES, "%s/rank-%05d.log", c->log_folder, rank);
}

static void write_whole(int fd, const uint8_t *bytes, int64_t count)
{
    for (int64_t done = 0; done < count;) {
        const ssize_t n = write(fd, bytes + done, (size_t)(count - done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; // a full disk must not block the job either
        done += n;
    }
}

// Writes all but live lines, which begin with \r and end with "\033[K" (erase the rest of the
// line).
static void log_put(local *l, const uint8_t *bytes, int64_t count)
{
    static const char end[] = "\033[K";
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        if (l->live_count == 0 && bytes[i] != '\r') continue;
        if (l->live_count == 0) write_whole(l->log_fd, bytes + begin, i - begin);
        l->live[l->live_count++] = bytes[i];
        begin = i + 1;
        const int64_t before = l->live_count - 3;
        const bool ends = before > 0 && memcmp(l->live + before, end, 3) == 0;
        const bool is_text = bytes[i] == '\n' || l->live_count == LAUNCH_LIVE_BYTES;
        if (ends) l->is_live_shown = before > 1; // otherwise it only erases a live line
        if (is_text) write_whole(l->log_fd, l->live, l->live_count);
        if (ends || is_text) l->live_count = 0;
    }
    if (begin < count) write_whole(l->log_fd, bytes + begin, count - begin);
}

static void enqueue(local *l, const uint8_t *bytes, int64_t count)
{
    if (l->config->console_fd < 0 || l->is_console_gone) return;
    if (l->queue == NULL) l->queue = malloc(LAUNCH_QUEUE_BYTES);
    if (l->queue == NULL || l->queue_count + count > LAUNCH_QUEUE_BYTES) {
        l->dropped += count;
        return;
    }
    if (l->queue_begin + l->queue_count + count > LAUNCH_QUEUE_BYTES) {
        memmove(l->queue, l->queue + l->queue_begin, (size_t)l->queue_count);
        l->queue_begin = 0;
    }
    memcpy(l->queue + l->queue_begin + l->queue_count, bytes, (size_t)count);
    l->queue_count += count;
}

void launch_output_read(local *l)
{
    uint8_t buffer[READ_BYTES];
    const ssize_t n = read(l->pipe_out, buffer, sizeof(buffer));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        (void)close(l->pipe_out);
        l->pipe_out = -1;
        return;
    }
    log_put(l, buffer, n);
    enqueue(l, buffer, n);
    launch_output_write(l);
}

bool launch_output_is_waiting(const local *l)
{
    return l->queue_count > 0 && !l->is_console_gone;
}

void launch_output_write(local *l)
{
    while (launch_output_is_waiting(l)) {
        struct pollfd p = {.fd = l->config->console_fd, .events = POLLOUT};
        if (poll(&p, 1, 0) <= 0 || (p.revents & (POLLOUT | POLLERR | POLLHUP)) == 0) return;
        const int64_t piece = min_i64(l->queue_count, PIPE_BUF);
        const ssize_t n = write(p.fd, l->queue + l->queue_begin, (size_t)piece);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (n <= 0) {
            l->is_console_gone = true;
            return;
        }
        l->queue_begin += n;
        l->queue_count -= n;
    }
    l->queue_begin = 0;
}

// All ranks have ended and the rest of their output is in the pipe. A grandchild may hold the pipe
// open; the launcher does not wait for that.
void launch_output_end(local *l)
{
    const int64_t until = launch_now(l) + (int64_t)END_MS * 1000000;
    for (int64_t before = -1; l->pipe_out >= 0 && before != 0;) {
        struct pollfd p = {.fd = l->pipe_out, .events = POLLIN};
        before = poll(&p, 1, 0);
        if (before > 0) launch_output_read(l);
    }
    if (l->live_count > 0) write_whole(l->log_fd, l->live, l->live_count);
    if (l->is_live_shown) enqueue(l, (const uint8_t *)"\r\033[K", 4);
    while (launch_output_is_waiting(l) && launch_now(l) < until) {
        struct pollfd p = {.fd = l->config->console_fd, .events = POLLOUT};
        (void)poll(&p, 1, 100);
        launch_output_write(l);
    }
    l->dropped += l->queue_count;
    if (l->dropped == 0) return;
    char message[128];
    const int n =
        snprintf(message, sizeof(message),
                 "note   %lld bytes were not shown because the console did not accept them\n",
                 (long long)l->dropped);
    if (n > 0 && l->log_fd >= 0) write_whole(l->log_fd, (const uint8_t *)message, n);
}

static const char *cause_of_kill(const local_rank *r)
{
    if (r->by_oom == OOM_NOT) return ": it was killed from outside, not by the kernel's OOM killer";
    if (r->by_oom == OOM_UNKNOWN) return "";
    return ": the kernel's OOM killer ended it, because the memory of this machine or of its control "
           "group ran out";
}

void launch_say_how(const local_rank *r, char *out, int64_t limit_bytes)
{
    if (r->ended_by != 0) {
        const char *name = sigabbrev_np(r->ended_by);
        (void)snprintf(out, (size_t)limit_bytes, "died by signal %d (SIG%s)%s%s", r->ended_by,
                       name == NULL ? "?" : name,
                       r->was_ended ? ", which the launcher forwarded" : "", cause_of_kill(r));
    } else {
        (void)snprintf(out, (size_t)limit_bytes, "ended with exit code %d", r->exit_code);
    }
}

void launch_say_end(const local *l, int rank, char *out, int64_t limit_bytes)
{
    const local_rank *r = &l->ranks[rank];
    char host_name[HOST_NAME_BYTES] = "?";
    if (l->config->h->api->machine_name(l->config->h, host_name) != ST_OK) error_clear();
    const int n =
        snprintf(out, (size_t)limit_bytes, "rank %d (%s) ", l->is_live ? r->rank : rank, host_name);
    if (n < limit_bytes) launch_say_how(r, out + n, limit_bytes - n);
}

// Adds the last lines of a rank's log, which usually state the cause.
static void add_tail(const local *l, int rank, char *out, int64_t limit_bytes)
{
    if (l->is_live) rank = l->ranks[rank].rank;
    char path[LAUNCH_PATH_BYTES], tail[TAIL_BYTES + 1];
    launch_log_path(l->config, rank, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    const off_t size = lseek(fd, 0, SEEK_END);
    const ssize_t n = pread(fd, tail, TAIL_BYTES, size > TAIL_BYTES ? size - TAIL_BYTES : 0);
    (void)close(fd);
    if (n <= 0) return;
    tail[n] = '\0';
    const char *begin = tail + n;
    for (int lines = 0; begin > tail && lines <= TAIL_LINES;) {
        begin--;
        if (*begin == '\n' && begin < tail + n - 1 && ++lines == TAIL_LINES) begin++;
    }
    if (begin == tail && size > TAIL_BYTES) { // the first line is incomplete
        const char *next = strchr(begin, '\n');
        if (next != NULL) begin = next + 1;
    }
    while (*begin == '\n') begin++;
    const size_t used = strlen(out);
    (void)snprintf(out + used, (size_t)limit_bytes - used, "\nthe last lines of %s:\n%s", path,
                   begin);
}

// The exit codes have no 128 + n: a crash is a bug in Trireme, and a signal from outside means a
// lost peer.
static int exit_code_of(int number)
{
    const bool is_crash = number == SIGSEGV || number == SIGABRT || number == SIGBUS ||
                          number == SIGFPE || number == SIGILL || number == SIGSYS ||
                          number == SIGTRAP;
    return is_crash ? status_exit_code(ST_INTERNAL) : status_exit_code(ST_PEER_LOST);
}

void launch_tell_tail(const local *l, int rank, launch_result *out)
{
    add_tail(l, rank, out->text, sizeof(out->text));
}

void launch_tell_rank(const local *l, int rank, launch_result *out)
{
    const local_rank *r = &l->ranks[rank];
    out->ended_by = r->ended_by;
    out->ended_at = r->ended_at;
    out->exit_code = r->ended_by != 0 ? exit_code_of(r->ended_by) : r->exit_code;
    launch_say_end(l, rank, out->text, sizeof(out->text));
}

void launch_tell(const local *l, launch_result *out)
{
    *out = (launch_result){.rank = l->first, .lost = l->first, .was_asked = l->is_asked};
    const int ranks = l->config->ranks;
    if (l->is_interrupted) {
        out->rank = -1;
        out->is_interrupted = true;
        out->ended_by = SIGINT;
        (void)snprintf(out->text, sizeof(out->text),
                       "a second SIGINT ended the run at once, without a checkpoint");
        return;
    }
    if (l->first < 0) {
        for (int r = 0; r < ranks; r++) {
            const local_rank *k = &l->ranks[r];
            // A rank that a forwarded signal ended had no time for a checkpoint.
            if (k->ended_by != 0) {
                out->ended_by = k->ended_by;
                out->rank = r;
                out->exit_code = exit_code_of(k->ended_by);
                launch_say_end(l, r, out->text, sizeof(out->text));
                if (!k->was_stopped) continue;
                out->lost = r;
                (void)snprintf(out->text, sizeof(out->text),
                               "rank %d, like every other rank, was stopped (SIGSTOP), so the "
                               "launcher ended it",
                               r);
            } else if (k->exit_code > out->exit_code && out->ended_by == 0) {
                out->exit_code = k->exit_code;
            }
        }
        return;
    }
    launch_tell_rank(l, l->first, out);
    for (int r = 0; r < ranks; r++) {
        const size_t used = strlen(out->text);
        if (!l->ranks[r].was_forced) continue;
        if (l->ranks[r].was_stopped) out->lost = r;
        (void)snprintf(out->text + used, sizeof(out->text) - used,
                       "; rank %d did not end by itself%s, so the launcher ended it", r,
                       l->ranks[r].was_stopped ? " because it was stopped (SIGSTOP)" : "");
    }
    add_tail(l, l->first, out->text, sizeof(out->text));
}
