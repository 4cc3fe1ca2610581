// Values of a step that the host reads: copies of an operand of one operation of a plan, one for
// each micro-batch, made right after the operation (exec_probe). The plan does not change.
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include "exec/exec.h"

typedef struct train_watch {
    const plan *p;
    exec_probe *probes; // sorted by action
    int64_t count;      // of probes: micro-batches; 0: the plan has no such operation
    int64_t values;     // of each
    float *data;        // (count, values)
} train_watch;

// Watches operand `operand` (op_operand), fp32, of the node with this code of each micro-batch.
NODISCARD status train_watch_make(arena *a, const plan *p, op_code code, int operand,
                                  train_watch *w);
// Makes the copies in all later steps of the plan, instead of earlier watches. The device is idle.
void train_watch_set(exec *e, const train_watch *w);

#endif
