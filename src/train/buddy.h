// The copier: a thread that takes a rank's own copy of the state of step n while step n + 1
// computes. Internal to train/.
//
//   step     n: update | n + 1: forward, backward, decide | update
//   copier             ^ begins   copy and hash n    done ^ the update waits for it
//
// No operation between the last update of a step and the first one of the next step writes what is
// copied, except for the step block, which is taken at the beginning.
#ifndef TRAIN_BUDDY_H
#define TRAIN_BUDDY_H

#include "train/process.h"

// Whether the states of steps of this plan can be copied so.
bool buddy_can_copy(const plan *p);
typedef struct buddy_copier buddy_copier;
typedef struct buddy_config {
    const ckpt_sharder *sharder;
    train_process *process; // has the copies
    exec *e;
    const plan *const *plans; // of steps; their probes are set
    int64_t count;
    const char *memory; // of the arena
    int64_t every;      // steps
    int64_t step;       // the last finished one, which needs no copy
    int64_t tokens;     // so far
} buddy_config;
NODISCARD status buddy_copier_create(const buddy_config *config, arena *a, buddy_copier **out);
// The state of this step has a copy, so the next step makes none. p->next is the one to overwrite.
void buddy_copier_has(buddy_copier *c, int64_t step);
// The record of the state after a step, before that step is posted; its tokens do not matter.
void buddy_copier_info(buddy_copier *c, const ckpt_info *info, int64_t fork);
// *newest: the step of the newest copy; while none is in progress p->next is set too. A copy that
// failed is an error. waits: until none is in progress.
NODISCARD status buddy_copier_see(buddy_copier *c, bool waits, int64_t *newest);
// Ends the thread after a copy in progress; no step runs. Later calls of `see` are legal.
void buddy_copier_close(buddy_copier *c);
void buddy_copier_destroy(buddy_copier *c); // NULL is legal

// session_buddy.c: copies that overlap with the next step. before: tells the copier of a step that
// is to be posted, and its sequences. see: an error if a copy failed. close: completes the copies
// of the steps that have ended; before the job's device is destroyed.
struct session;
bool session_buddy_overlaps(const struct session *s);
void session_buddy_before(struct session *s, int64_t step, int64_t sequences);
NODISCARD status session_buddy_see(struct session *s);
void session_buddy_close(struct session *s);

#endif
