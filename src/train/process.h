// A process that lives on (resilience.mode = live) keeps this between its sessions. Internal to
// train/.
//
//   copies     of its own pieces of the state, and of another rank's (session_buddy.c)
//   memory     of the arena. The state in it is that of the last copy as long as no later update
//              has begun, so a session with equal plans goes on with it in place
//   plans      of places that this process had, or may get as a spare, by a key of all that they
//              are made from
#ifndef TRAIN_PROCESS_H
#define TRAIN_PROCESS_H

#include "base/hash.h"
#include "checkpoint/shard.h"
#include "comm/comm.h"
#include "train/train.h"

enum { PROCESS_GENERATIONS = CKPT_GENERATIONS, PROCESS_PLANS_MAX = 8, PROCESS_DRAINED_MAX = 64 };

typedef struct process_plans {
    arena *a; // where they lie; NULL: the entry is free
    hash128 key;
    assemble_plans plans;
    int64_t used; // number of its last use
} process_plans;

struct train_process {
    ckpt_shard own[PROCESS_GENERATIONS], lone[PROCESS_GENERATIONS]; // lone: of another rank
    int next;                                                       // generation to overwrite
    comm_memory *memory;  // while no session has it; NULL: none
    bool memory_is_fresh; // no session has had it
    // The state in `memory`: of which plans, and the newest step whose copy was taken from it or
    // loaded into it; -1: it has none.
    hash128 state_key;
    int64_t state_step;
    process_plans plans[PROCESS_PLANS_MAX];
    arena *given; // of this session, whose plans may be kept; NULL: it is gone after the session
    int64_t uses;
    hash128 proved;    // key of the plans of all ranks that were verified; zero: none
    int drained_count; // of the first rank: those that lost their place because of their GPU
    int64_t drained[PROCESS_DRAINED_MAX];
    double peak_flops; // of the device with this type and number of threads; 0: not measured
    dtype peak_type;
    int peak_threads;
};

// The plans for this key; NULL: there are none.
const assemble_plans *process_plans_find(train_process *p, hash128 key);
// Keeps plans that lie in `a`, if that arena was given for it.
void process_plans_keep(train_process *p, hash128 key, arena *a, const assemble_plans *plans);
// A key of all that a rank's plans are made from; `a`: scratch. mesh: NULL: of all ranks.
NODISCARD status process_key(arena *a, const run_config *r, const decoder_spec *spec,
                             const assemble_options *options, const plan_mesh *mesh, hash128 *out);

#endif
