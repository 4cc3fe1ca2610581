// State and functions that local.c (processes), local_output.c (their output and the report on a
// failure) and oom.c (kills by the kernel) share.
#ifndef LAUNCH_LOCAL_INTERNAL_H
#define LAUNCH_LOCAL_INTERNAL_H

#include "launch/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { LAUNCH_PATH_BYTES = 4096, LAUNCH_QUEUE_BYTES = 1 << 20, LAUNCH_LIVE_BYTES = 4096 };

// Whether the kernel's OOM killer sent a SIGKILL; UNKNOWN: the kernel shows no counter.
typedef enum oom_verdict { OOM_UNKNOWN, OOM_NOT, OOM_KILLED } oom_verdict;

typedef struct local_rank {
    pid_t pid;
    int pidfd;
    bool is_alive;
    uint64_t sent;      // signals that we sent or forwarded, one bit each
    bool was_ended;     // one of these signals ended it
    bool was_forced;    // it had not ended by itself in time
    bool was_stopped;   // SIGSTOP held it
    oom_verdict by_oom; // of an end by SIGKILL
    int exit_code, ended_by;
    int64_t ended_at;
    // launch_live only.
    int post;           // socket to it; -1: none
    int rank;           // its place in this epoch; -1: none
    bool is_ready;      // it waits for a place
    bool is_joined;     // this process did not start it
    int64_t stopped_at; // 0: it is not stopped
    int hits;           // times that its values were wrong
} local_rank;

typedef struct local {
    const launch_local_config *config;
    control_key *key;
    uint64_t job;
    char address[CONTROL_ADDRESS_BYTES];
    int listen_fd, liveness_out, liveness_in, pipe_out, pipe_in, null_fd, log_fd, signal_fd;
    sigset_t mask_before;
    struct sigaction pipe_before; // disposition of SIGPIPE
    bool is_masked;
    bool is_live;     // launch_live: processes get their places one epoch after the other
    bool ranks_die;   // at once with this process; else they stop with a checkpoint
    int count;        // of processes, in `ranks`
    int alive, first; // first: the rank whose end is the cause; -1: none
    int last_signal;  // last signal sent to end the remaining ranks; 0: none
    int64_t grace_ns, failed_at, end_at;  // end_at: time of the next signal; 0: none
    int64_t looked_at, all_stopped_at;    // for stopped ranks; all_stopped_at: 0: not all are
    bool is_asked, is_interrupted;        // a signal was forwarded; a second ^C came
    int64_t oom_at, oom_last, oom_before; // counts at oom_at and one look earlier; -1: unknown
    // Rank 0's output that waits for the console.
    uint8_t *queue;
    int64_t queue_begin, queue_count, dropped;
    bool is_console_gone;
    // A live line, which is rewritten in place, goes to the console alone; this holds the start of
    // a possible one.
    uint8_t live[LAUNCH_LIVE_BYTES];
    int64_t live_count;
    bool is_live_shown;
    local_rank ranks[LAUNCH_LOCAL_MAX];
} local;

// local.c: processes by their number, which is the rank except under launch_live.
NODISCARD status launch_prepare(local *l);
void launch_release(local *l);
NODISCARD status launch_start_rank(local *l, int rank);
void launch_signal_rank(local *l, int rank, int number);
void launch_signal_all(local *l, int number);
void launch_end_rank(local *l, int rank, int64_t now); // if it has ended
void launch_forward_signals(local *l);
bool launch_is_stopped(const local_rank *r);
void launch_close(int *fd);

// Descriptors that come with a place; the last one for rank 0 only.
enum { POST_OUT, POST_KEY, POST_BLOCK, POST_LISTEN, POST_FDS };
// "@name", of an abstract Unix socket.
NODISCARD status launch_join_address(const char *name, struct sockaddr_un *out, socklen_t *length);

void launch_signals(sigset_t *out); // that the launcher forwards to its ranks
int64_t launch_now(const local *l);
void launch_log_path(const launch_local_config *c, int rank, char out[LAUNCH_PATH_BYTES]);
// Opens the log of a rank. If ranks live on, a log that cannot be written is left out.
NODISCARD status launch_log_open(const local *l, int rank, int *fd);
void launch_output_read(local *l); // moves rank 0's output from the pipe to its log and the queue
bool launch_output_is_waiting(const local *l);
void launch_output_write(local *l); // writes as much as the console accepts
void launch_output_end(local *l);
// How a process has ended, "died by signal 9 (SIGKILL)", and the same behind its rank and host.
void launch_say_how(const local_rank *r, char *out, int64_t limit_bytes);
void launch_say_end(const local *l, int rank, char *out, int64_t limit_bytes);
void launch_tell(const local *l, launch_result *out);
void launch_tell_rank(const local *l, int rank, launch_result *out); // how that one ended
void launch_tell_tail(const local *l, int rank, launch_result *out); // adds its last lines
// Processes that the OOM killer has ended in this process's control group, or on this machine; -1:
// unknown. root: prefix of all paths, for tests; "" in use.
int64_t launch_oom_kills(const char *root);
void launch_oom_look(local *l, int64_t now); // notes the counter from time to time
oom_verdict launch_oom_find(const local *l);

#endif
