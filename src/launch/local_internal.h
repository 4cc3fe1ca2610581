// What local.c (processes) and local_output.c (what they print, and what is told of them) share.
#ifndef LAUNCH_LOCAL_INTERNAL_H
#define LAUNCH_LOCAL_INTERNAL_H

#include "launch/launch.h"

#include <poll.h>
#include <signal.h>

enum { LAUNCH_PATH_BYTES = 4096, LAUNCH_QUEUE_BYTES = 1 << 20, LAUNCH_LIVE_BYTES = 4096 };

typedef struct local_rank {
    pid_t pid;
    int pidfd;
    bool is_alive;
    uint64_t sent;    // signals that we sent or passed on, a bit each
    bool was_ended;   // by one of these
    bool was_pressed; // it had not ended by itself in time
    int exit_code, ended_by;
    int64_t ended_at;
} local_rank;

typedef struct local {
    const launch_local_config *config;
    control_key *key;
    uint64_t job;
    char address[CONTROL_ADDRESS_BYTES];
    int listen_fd, liveness_out, liveness_in, pipe_out, pipe_in, null_fd, log_fd, signal_fd;
    sigset_t mask_before;
    bool is_masked;
    int alive, first;         // first: the rank whose end is the cause; -1
    int pressure;             // the signal that was sent last to end what is left; 0: none
    int64_t grace_ns, end_at; // end_at: when the next pressure is due; 0: none
    // Rank 0's output on its way to the console.
    uint8_t *queue;
    int64_t queue_begin, queue_count, dropped;
    bool is_console_gone;
    // A line that is written over again and again is the console's alone: what may be one, so far.
    uint8_t live[LAUNCH_LIVE_BYTES];
    int64_t live_count;
    bool is_live_shown;
    local_rank ranks[LAUNCH_LOCAL_MAX];
} local;

int64_t launch_now(const local *l);
void launch_log_path(const launch_local_config *c, int rank, char out[LAUNCH_PATH_BYTES]);
void launch_output_read(local *l); // rank 0's pipe: to its log, and to the queue
bool launch_output_is_waiting(const local *l);
void launch_output_write(local *l); // the console takes some
void launch_output_end(local *l);
void launch_say_end(const local *l, int rank, char *out, int64_t limit_bytes);
void launch_tell(const local *l, launch_result *out);

#endif
