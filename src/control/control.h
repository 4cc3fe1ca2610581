// Who is in the job: joining, heartbeats, verdicts, agreement. Small messages, apart from the data.
//
//   control_server_start   the coordinator, in the process of rank 0 (or of a launcher): a thread of its own
//   control_open           this rank's end: a thread that nothing in training can hold up
//   control_swap           every rank gives bytes and gets everybody's: how transports are wired up
//   control_step           before each step: is there something that all agreed to do before it
//   on_notice              from the control thread: a rank is dead, stopped, stuck, ...; abort what waits
//   control_close          leaves, when all leave
//
// Nothing here waits without an end: joining has its deadline, everything after it ends with the verdict
// on whoever is missing. The machines behind it (machine.h) know neither sockets nor clocks.
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include "control/socket.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- coordinator -----------------------------------------------------------------------------------------
typedef struct control_server control_server;
typedef struct control_server_config {
    const host *h;
    const control_key *key; // borrowed until control_server_stop
    uint64_t job;
    uint32_t epoch;
    int ranks;
    int rank; // whose process this is, or CONTROL_COORDINATOR
    int64_t join_ns;
    control_limits limits;
    // What the coordinator saw, for a log; from its thread.
    void (*on_notice)(void *context, const control_notice *n);
    void *context;
} control_server_config;
// Takes the listening socket, in every case.
NODISCARD status control_server_start(const control_server_config *config, int listen_fd,
                                      control_server **out);
// Waits a moment for last words to be sent. NULL is legal.
void control_server_stop(control_server *s);

// ---- rank ----------------------------------------------------------------------------------------
typedef struct control control;
typedef struct control_config {
    const host *h;
    const control_key *key; // borrowed until control_close
    uint64_t job;
    uint32_t epoch;
    int rank, ranks;
    const char *address;       // the coordinator's
    const control_fact *facts; // borrowed until control_close
    int64_t fact_count;
    int64_t join_ns; // [60 s] to be connected and welcomed
    control_limits limits;
    // Both from the control thread. report fills in what the next heartbeat says; NULL: nothing is
    // judged but life. on_notice: see control_notice_kind.
    void (*report)(void *context, control_report *out);
    void (*on_notice)(void *context, const control_notice *n);
    void *context;
} control_config;

// Collective: returns when all ranks have joined, or with the reason why not.
NODISCARD status control_open(const control_config *config, control **out);
// Collective: waits until all others leave, too, or are lost. NULL is legal.
void control_close(control *c);
// Tells the others why this rank ends, and cuts the connection. Then control_close, which no longer waits.
void control_fail(control *c, status code, const char *said);

int control_rank(const control *c);
int control_ranks(const control *c);
const control_peer *control_peer_of(const control *c, int rank); // host, machine, process
// Collective. all holds ranks * bytes, in rank order. At most CONTROL_SWAP_BYTES_MAX each. One thread.
NODISCARD status control_swap(control *c, const void *mine, int64_t bytes, void *all);
NODISCARD status control_barrier(control *c);
// Any rank, at any time, from any thread but a signal handler's: all will agree on a step.
void control_request(control *c, control_agreement kind, uint64_t argument);
// Before step `step` is begun; steps only grow. due: CONTROL_AGREEMENTS of them. On all ranks an agreement
// is due before the same step. Waits only while a decision is being made and this step lies two beyond
// the one that was being done when the question came: about a round trip.
NODISCARD status control_step(control *c, int64_t step, control_decision *due);

#ifdef __cplusplus
}
#endif
#endif
