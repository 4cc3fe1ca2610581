// The copier: a thread that takes a rank's copies of the state of step n while step n + 1 computes.
// Internal to train/.
//
//   step     n: update, gather | n + 1: forward, backward | update
//   copier                     ^ begins   copy n to own   ^ the update waits for it
//                                         | send n to the buddy | all ranks have n
//
// It begins when the last operation of a step that writes what is copied is done, on each stream,
// and the first one of the next step that does so waits until the rank's own shard is complete. It
// then sends the lone pieces out of that shard, on a group of its own, while the update runs too.
// There are two generations:
//
//   1  own[g] and lone[g] do not count       from here on the other generation is the newest
//   2  the state goes to own[g], which counts then; updates wait for this
//   3  each rank gets lone[g] out of the own[g] of the rank whose buddy it is
//   4  lone[g] counts
//   5  barrier: all ranks are past 4         from here on g is complete everywhere
//   6  the next copy goes to the other generation
//
// A rank overwrites n - 1 only after 5, when n counts on all ranks; so if one is lost at any point,
// n or n - 1 is complete.
#ifndef TRAIN_BUDDY_H
#define TRAIN_BUDDY_H

#include "plan/writes.h"
#include "train/process.h"

// The way of lone pieces between ranks.
typedef struct buddy_route {
    comm *all;
    comm_group *group;          // of all ranks
    bool is_lone;               // some rank has lone pieces
    int64_t *bytes;             // [ranks]
    int64_t ranks, rank, apart; // apart: from a rank to its buddy, as many as fail together
    int64_t *counts;            // [2 * ranks]
} buddy_route;
// Steps 3 and 4. Collective.
NODISCARD status buddy_exchange(const buddy_route *x, int64_t step, ckpt_shard *own,
                                ckpt_shard *lone);

// Whether the states of steps of this plan can be copied so. A plan that does not train must not
// write what is copied; then *out stays as it was.
typedef struct buddy_plan {
    const plan *p;
    plan_writes writes;
    plan_place last; // of the compute stream: the step block is final too
} buddy_plan;
NODISCARD status buddy_can_copy(arena *a, const plan *p, const plan_mesh *mesh, const bool *rows,
                                buddy_plan *out, bool *can);

typedef struct buddy_copier buddy_copier;
typedef struct buddy_config {
    const ckpt_sharder *sharder;
    train_process *process; // has the copies
    exec *e;
    const buddy_plan *plans; // of steps; their probes are set
    int64_t count;
    const char *memory; // of the arena
    int64_t every;      // steps
    int64_t step;       // the last finished one, which needs no copy
    int64_t tokens;     // so far
    buddy_route route;
} buddy_config;
NODISCARD status buddy_copier_create(const buddy_config *config, arena *a, buddy_copier **out);
// The state of this step has a copy, so the next step makes none. p->next is the one to overwrite.
void buddy_copier_has(buddy_copier *c, int64_t step);
// Begins a copy of the state as it is, of which this is the record; the device is idle.
void buddy_copier_begin(buddy_copier *c, const ckpt_info *info, int64_t fork);
// The record of the state after a step, before that step is posted; its tokens do not matter.
void buddy_copier_info(buddy_copier *c, const ckpt_info *info, int64_t fork);
// *newest: the step of the newest copy; while none is in progress p->next is set too. A copy that
// failed is an error. waits: until none is in progress.
NODISCARD status buddy_copier_see(buddy_copier *c, bool waits, int64_t *newest);
// The error of the copier, if it has made this one by ending all waits of the rank; else `st`.
status buddy_copier_error(buddy_copier *c, status st);
// Returns when nothing reads the state: it may be written between steps.
void buddy_copier_rest(buddy_copier *c);
// No further copy begins, and no operation of a step waits for one that has not begun. Then
// exec_settle returns, also if a step has failed.
void buddy_copier_stop(buddy_copier *c);
// Ends the thread after a copy in progress; no step runs. Later calls of `see` are legal.
void buddy_copier_close(buddy_copier *c);
void buddy_copier_destroy(buddy_copier *c); // NULL is legal

// session_buddy.c: copies that overlap with the next step. before: tells the copier of a step that
// is to be posted, and its sequences. see: an error if a copy failed. rest: the state is to be
// written between steps. close: completes the copies of the steps that have ended; before the job's
// device is destroyed.
struct session;
// Ranks in a row that fail together. Collective.
NODISCARD status session_buddy_domain(const struct session *s, int64_t *out);
bool session_buddy_overlaps(const struct session *s);
void session_buddy_before(struct session *s, int64_t step, int64_t sequences);
NODISCARD status session_buddy_see(struct session *s);
status session_buddy_error(struct session *s, status st);
void session_buddy_rest(struct session *s);
void session_buddy_close(struct session *s);

#endif
