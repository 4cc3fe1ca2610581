// Digests of the state at rest: a hash of each weight, master weight and moment of this rank from
// the update that wrote it to the next one, also where no other rank has a copy to compare with.
//
//   step n: ..., update, hash | forward, backward | step n + 1: hash, compare, update, hash, ...
//                               ^ a bit that flips here is found before the update uses it
//
// Where the kernel of an update takes a seal (kern_seal), it does so tile by tile, while the tile
// is in a cache. Other rows that nodes write are hashed on the compute stream, next to the update.
// A weight that a collective completes (ZeRO-1 and -2), and one that the run does not train, are
// hashed by the host between steps. On a device whose memory the host cannot touch, rows are copied
// to the host first.
#ifndef TRAIN_REST_H
#define TRAIN_REST_H

#include "exec/exec.h"

typedef struct train_rest train_rest;
typedef struct train_rest_config {
    exec *e;
    const kern_context *kernels; // of the plans
    const plan_table *run;
    const plan *const *plans; // of training steps
    int64_t plan_count;
    char *base; // of the device's arena; NULL: the host cannot touch it
    int rank;   // names the fault point "train.rest.RANK", where tests flip a bit at rest
    // [row of run] Other ranks hold the same rows, and something compares them after each step.
    const bool *is_compared;
} train_rest_config;

// Hashes the state as it is now. The device is idle, here and in the other functions.
NODISCARD status train_rest_create(const train_rest_config *config, arena *a, train_rest **out);
// Probes and seals of the nodes of a plan.
typedef struct train_marks {
    exec_probe *probes;
    exec_seal *seals;
    int64_t probe_count, seal_count;
} train_marks;
// Adds probes and seals to others of a plan, and sorts them by action and node.
NODISCARD status train_rest_add(const train_rest *r, arena *a, const plan *p, train_marks *marks);
// Whether the kernel of the node takes the seal of this operand, which is all of `bytes` at `data`.
bool train_rest_seals(const train_rest *r, const plan *p, const plan_action *action,
                      const op_node *node, tensor_id operand, const char *data, int64_t bytes);
// Compares rows that are at rest with their hashes: those that no step writes; with REST_LONE all
// that no other rank has; with REST_ALL all. Hashes those that have no hash yet.
typedef enum train_rest_rows { REST_NEW, REST_LONE, REST_ALL } train_rest_rows;
NODISCARD status train_rest_verify(train_rest *r, train_rest_rows which);
// The hash of a row as it was written (ckpt_known). False: it has none now.
bool train_rest_hash(const void *rest, int64_t row, uint64_t *out);
// Something else than a step has written the state, which is hashed anew.
NODISCARD status train_rest_renew(train_rest *r);
// Something else has changed in a step, or at rest: it counts like a row.
void train_rest_tell(train_rest *r, const char *kind, const char *name);
// The name of the first thing that has changed since the session began; NULL: none has.
const char *train_rest_found(const train_rest *r);

#endif
