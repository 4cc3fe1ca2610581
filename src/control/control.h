// Job membership: ranks join, send heartbeats, receive verdicts and agree on steps. All messages
// are small and travel apart from the training data.
//
//   control_server_start   starts the coordinator, a thread of rank 0 or of a launcher
//   control_open           joins this rank; its control thread never blocks on training
//   control_swap           gathers equal-sized bytes of all ranks on every rank; sets up transports
//   control_step           says before each step which agreed actions are due
//   on_notice              reports from the control thread that a rank is dead, stopped or stuck;
//                          the owner then aborts its waits
//   control_close          leaves the job when all ranks leave
//
// Every wait here ends: joining has a deadline, and each later wait ends with the verdict on the
// missing rank. The state machines in machine.h use neither sockets nor clocks; this layer supplies
// both.
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include "control/socket.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- coordinator --------------------------------------------------------------------------------
typedef struct control_server control_server;
typedef struct control_server_config {
    const host *h;
    const control_key *key; // borrowed until control_server_stop
    uint64_t job;
    uint32_t epoch;
    int ranks;
    int rank; // the rank whose process runs this, or CONTROL_COORDINATOR
    int64_t join_ns;
    control_limits limits;
    // Called from the coordinator's thread with what it observed, for a log.
    void (*on_notice)(void *context, const control_notice *n);
    void *context;
} control_server_config;
// Takes ownership of the listening socket, also on failure.
NODISCARD status control_server_start(const control_server_config *config, int listen_fd,
                                      control_server **out);
// Waits up to a second until pending output is sent. NULL is legal.
void control_server_stop(control_server *s);

// ---- rank ---------------------------------------------------------------------------------------
typedef struct control control;
typedef struct control_config {
    const host *h;
    const control_key *key; // borrowed until control_close
    uint64_t job;
    uint32_t epoch;
    int rank, ranks;
    const char *address;       // the coordinator's address
    const control_fact *facts; // borrowed until control_close
    int64_t fact_count;
    int64_t join_ns; // [60 s] limit for connecting and being welcomed
    control_limits limits;
    // The control thread calls both. `report` fills in the next heartbeat; with NULL only the
    // rank's presence is monitored. control_notice_kind describes the notices.
    void (*report)(void *context, control_report *out);
    void (*on_notice)(void *context, const control_notice *n);
    // control_open asks it several times a second; with any other result than ST_OK the join fails
    // with it. NULL: never.
    status (*cancelled)(void *context);
    void *context;
} control_config;

// Collective: returns when all ranks have joined, or fails with the reason.
NODISCARD status control_open(const control_config *config, control **out);
// Collective: waits until all other ranks leave or are lost. NULL is legal.
void control_close(control *c);
// Tells the other ranks why this rank ends and cuts the connection. A following control_close does
// not wait.
void control_fail(control *c, status code, const char *said);

int control_rank(const control *c);
int control_ranks(const control *c);
const control_peer *control_peer_of(const control *c, int rank); // host, machine, process
// Collective. `all` holds ranks * bytes, in rank order. A rank gives at most
// CONTROL_SWAP_BYTES_MAX. Only one thread may call this.
NODISCARD status control_swap(control *c, const void *mine, int64_t bytes, void *all);
// The same among the members of a group, which is collective over them only. `all` holds
// count * bytes, by place.
NODISCARD status control_group_swap(control *c, const control_group *g, const void *mine,
                                    int64_t bytes, void *all);
NODISCARD status control_barrier(control *c);
// Asks all ranks to agree on a step. Any rank may call this at any time, from any thread but not
// from a signal handler.
void control_request(control *c, control_agreement kind, uint64_t argument);
// Call this before each step; steps only grow. `due` has CONTROL_AGREEMENTS entries. An agreement
// is due before the same step on all ranks. The call waits, for about a round trip, only while a
// decision is pending and `step` is at least two beyond the step that ran when the question came.
NODISCARD status control_step(control *c, int64_t step, control_decision *due);

#ifdef __cplusplus
}
#endif
#endif
