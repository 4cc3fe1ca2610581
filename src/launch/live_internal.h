// State and functions that live.c (the ranks of one host) and live_hosts.c (several hosts, which
// decide together) share.
#ifndef LAUNCH_LIVE_INTERNAL_H
#define LAUNCH_LIVE_INTERNAL_H

#include "control/council.h"
#include "launch/local_internal.h"

typedef struct live_hosts live_hosts;
typedef struct live {
    const launch_live_config *config;
    local *l;
    int ranks;                   // places of this epoch; 0: none has begun
    uint32_t epoch;              // counted from 0
    bool is_broken, is_changing; // the epoch ends: after a loss; a process has joined
    bool is_waiting;             // for processes to join
    bool is_over;                // the job ends
    status st;                   // of the planner
    int64_t wait_until;
    launch_event event;
    int blamed;         // process whose values were wrong; -1: none
    int64_t at;         // when the loss was noticed
    int lost;           // its rank; -1: not known
    bool is_certain;    // the process of that rank has ended by itself
    const char *filler; // what takes the free places
    char cause[LAUNCH_TEXT_BYTES];
    char order[LAUNCH_ORDER_BYTES]; // of this epoch, for spares
    int64_t spare_at;               // when the next spare is started; 0: none is missing
    int spare_ends;                 // spares in a row that ended, or failed, before they were ready
    int error;         // process that ended with an error that would come again; -1: none
    int64_t step;      // the newest one that a rank said it had finished
    live_hosts *hosts; // NULL: all ranks are of this process
} live;

static inline bool live_is_placed(const local_rank *r)
{
    return r->is_alive && r->rank >= 0;
}
// Returns whether it has a place and has not left its epoch.
static inline bool live_is_at_work(const local_rank *r)
{
    return live_is_placed(r) && !r->is_ready;
}
// Returns whether the process could take a place.
static inline bool live_is_waiting(const local_rank *r)
{
    return r->is_alive && (r->is_ready || r->rank < 0);
}

// live.c
int64_t launch_live_now(const live *v);
void launch_live_broken(live *v, int rank, bool is_certain, const char *cause);
void launch_live_end_ask(live *v); // asks all ranks to leave this epoch
bool launch_live_is_at_rest(const live *v);
int launch_live_waiting(const live *v); // processes that could take a place
NODISCARD status launch_live_process_start(live *v);
void launch_live_quarantine(live *v);
// An epoch as the processes of this host see it.
typedef struct live_places {
    uint64_t job;
    uint32_t epoch;          // counted from 0
    int ranks, first, count; // of all hosts; this host's
    int local, locals; // index of the first one among the ranks of its machine, and their number
    int control_block_fd, listen_fd; // -1: the ranks of a host share one by themselves; none
    const char *address, *order;
} live_places;
// Gives the places to waiting processes. by_place: [count] numbers of processes.
NODISCARD status launch_live_place(live *v, const live_places *p, const int *by_place);

// live_hosts.c
NODISCARD status launch_hosts_open(live *v);
void launch_hosts_look(live *v); // once in a while: what the others say, and what is agreed
bool launch_hosts_is_done(const live *v);
void launch_hosts_tell_end(const live *v, launch_result *out);
// The address of this host that the others see, with port 0.
NODISCARD status launch_near_find(const char *address, char out[CONTROL_ADDRESS_BYTES]);
void launch_hosts_close(live *v); // NULL in v->hosts is legal

// live_back.c
uint64_t launch_facts_digest(const control_fact *facts, int64_t count);
NODISCARD status launch_seats_write(const launch_live_config *c, const launch_seats *s);
// Comes back into the run of the file at hosts_path. *out: NULL: no such run goes on. `key` is
// borrowed until the council is stopped; *s is of the arena.
NODISCARD status launch_hosts_back(const launch_live_config *c, launch_seats *s, arena *a,
                                   const control_key *key, char near[CONTROL_ADDRESS_BYTES],
                                   control_council **out);

#endif
